"""Models run by transformers in this process: a Hub id, a folder, a PEFT adapter, or a model that is already loaded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agl.errors import InfraError, UserError
from agl.messages import Prompt
from agl.policies.batcher import Batcher
from agl.policies.chat_template import ChatTemplate
from agl.policies.decoding import Prefix, choose, context_length, generate
from agl.policies.embedded import FOLDER, smollm2_folder
from agl.policies.policy import Play, Policy, Sampling
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue


def resolve_model(model: str) -> str:
    """Name or path that transformers and vLLM understand; the embedded model becomes its folder.

    Raises:
        UserError: `model` looks like a path and there is no model.
    """
    if model == "smollm2":
        return str(smollm2_folder())
    path = Path(model).expanduser()
    if path.is_dir():
        if not ((path / "config.json").is_file() or (path / "adapter_config.json").is_file()):
            raise UserError(f"{model} holds no model: expected config.json or adapter_config.json in it")
        return str(path)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise UserError(f"there is no folder {model}; give a model folder, a Hub id (OWNER/NAME) or smollm2")
    return model


def adapter_base(folder: str) -> str | None:
    """The base model of a PEFT adapter folder; None when `folder` is a whole model."""
    file = Path(folder, "adapter_config.json")
    if not file.is_file():
        return None
    base = str(json.loads(file.read_text(encoding="utf-8"))["base_model_name_or_path"])
    # An adapter that was trained on the embedded model elsewhere names a cache folder of that machine.
    return "smollm2" if Path(base).name == FOLDER and not Path(base).is_dir() else base


def load(
    model: str, *, device: str | None = None, dtype: str | None = None, revision: str | None = None
) -> tuple[Any, Any]:
    """Load (model, tokenizer), an adapter merged into its base.

    Args:
        device: None takes a GPU where there is one.
        dtype: a torch dtype name; None is bfloat16 on a GPU and float32 elsewhere.
        revision: branch, tag or commit of a Hub id.

    Raises:
        UserError: nothing to load there, or torch and transformers are not installed.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise UserError(f"local models need torch and transformers: pip install 'agl[local]' ({error})") from None
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = getattr(torch, dtype or ("bfloat16" if device.startswith("cuda") else "float32"), None)
    if not isinstance(kind, torch.dtype):
        raise UserError(f"dtype must be a torch dtype such as float32 or bfloat16, got {dtype!r}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", 1)[0]
        raise UserError(f"expected a device that torch can use, got {device!r} ({reason}); try cpu") from None
    folder = resolve_model(model)
    base = adapter_base(folder)
    source = resolve_model(base) if base is not None else folder
    words = source if base is None or not Path(folder, "tokenizer_config.json").is_file() else folder
    try:
        tokenizer = AutoTokenizer.from_pretrained(words, revision=revision)
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=kind, revision=revision)
        if base is not None:
            from peft import PeftModel

            loaded = PeftModel.from_pretrained(loaded, folder).merge_and_unload()
    except ImportError as error:
        raise UserError(f"{model} is a PEFT adapter, which needs peft: pip install peft ({error})") from None
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot load the model {model}: {reason.rstrip('.')}; see `agl doctor --model {model}`"
        ) from error
    return loaded.to(device), tokenizer


def read_template(setting: str | None, tokenizer: Any) -> str | None:
    """Jinja source for the policy option `chat_template`: None, a file, or `training` for TRL's.

    Raises:
        UserError: no such file, or TRL is not installed or has no training template for this model.
    """
    if setting is None:
        return None
    if setting == "training":
        try:
            from trl.chat_template_utils import get_training_chat_template
        except ImportError as error:
            raise UserError(f"chat_template=training needs TRL: pip install 'agl[train]' ({error})") from None
        try:
            found: str | None = get_training_chat_template(tokenizer)
        except ValueError as error:
            raise UserError(f"TRL has no training template for this model ({error}); give a file") from None
        return found
    path = Path(setting).expanduser()
    if not path.is_file():
        raise UserError(f"chat_template must be a Jinja file or 'training', and there is no file {setting}")
    return path.read_text(encoding="utf-8")


class HfPolicy(Policy):
    """A transformers model in this process; concurrent dialogues share its batches.

    Args:
        model: `smollm2`, a Hub id, a model folder or a PEFT adapter folder, or a pair (model, tokenizer).
        max_batch: most dialogues decoded together.
        chat_template: see `read_template`.

    Raises:
        UserError: the model cannot be loaded, or its chat template rewrites earlier turns.
    """

    def __init__(
        self,
        model: str | tuple[Any, Any],
        sampling: Sampling,
        *,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        max_batch: int = 16,
        chat_template: str | None = None,
    ) -> None:
        if max_batch < 1:
            raise UserError(f"max_batch must be at least 1, got {max_batch}")
        if isinstance(model, str):
            self.name = model if model == "smollm2" else f"hf:{model}"
            self.model, self.tokenizer = load(model, device=device, dtype=dtype, revision=revision)
        else:
            self.model, self.tokenizer = model
            self.name = f"hf:{getattr(self.model.config, 'name_or_path', '') or type(self.model).__name__}"
        self.sampling = sampling
        self.prefix = Prefix() if isinstance(model, str) else None
        """What earlier requests left behind; None where the weights may change in between."""
        self.template = ChatTemplate(self.tokenizer, read_template(chat_template, self.tokenizer))
        self._batcher = Batcher[Request, Generated](
            self._run, key=lambda request: (request.stops, bool(request.choices)), max_batch=max_batch
        )

    def _run(self, requests: Sequence[Request], gone: Sequence[Callable[[], bool]]) -> list[Generated]:
        import torch

        settings = {"temperature": self.sampling.temperature, "top_p": self.sampling.top_p}
        try:
            if requests[0].choices:
                return [
                    choose(
                        self.model,
                        self.tokenizer,
                        asked.ids,
                        asked.choices,
                        seed=asked.seed,
                        prefix=self.prefix,
                        **settings,
                    )
                    for asked in requests
                ]
            return generate(
                self.model,
                self.tokenizer,
                [request.ids for request in requests],
                stops=requests[0].stops,
                max_tokens=[request.max_tokens for request in requests],
                **settings,
                seeds=[request.seed for request in requests],
                gone=gone,
                prefix=self.prefix,
            )
        except torch.OutOfMemoryError as error:
            raise InfraError(f"out of memory with {len(requests)} dialogues at once; lower max_batch") from error

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> TokenDialogue:
        return TokenDialogue(
            prompt,
            LocalEncoder(self.template),
            self.generate,
            self.sampling,
            model_context=context_length(self.model),
            seed=seed,
        )

    async def generate(self, request: Request) -> Generated:
        """One stretch in tokens.

        Raises:
            InfraError: out of memory, or the model failed.
        """
        return await self._batcher.submit(request)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._batcher.close)
