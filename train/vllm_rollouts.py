"""Rollouts through vLLM: an engine in the trainer's process (`vllm_mode: colocate`) or a server (`server`).

TRL makes the engine, or the client of the server, and moves the weights; the episodes are played by `agl.rollout` like
any others, each turn a request of its own. The weights go over once before a generation, never inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import grpo_trainer

from agl.errors import InfraError
from agl.policies.openai_api import OpenAIPolicy
from agl.policies.policy import Sampling
from agl.policies.vllm_engine import CPU_ARGUMENTS, VllmPolicy, set_environment
from train.rollouts import Sampler


class VllmRollouts(ABC):
    """Where the turns of a generation go, and how the weights get there."""

    def __init__(self) -> None:
        self._step: int | None = None

    def sync(self, step: int) -> None:
        """Bring the weights of `step` over, unless they are there. All ranks must call this together.

        Raises:
            InfraError: the server did not take them.
        """
        if self._step != step:
            self._send()
            self._step = step

    @abstractmethod
    def _send(self) -> None: ...

    @abstractmethod
    def opened(self, sampling: Sampling) -> Any:
        """Context manager of a sampler for one generation, after `sync`. The sampler is closed inside it."""


class Colocated(VllmRollouts):
    """The engine that TRL made in this process; on each rank one of its own.

    Args:
        generation: `trainer.vllm_generation`.
        tokenizer: of the model.
    """

    def __init__(self, generation: Any, tokenizer: Any) -> None:
        super().__init__()
        self._generation = generation
        self._tokenizer = tokenizer

    def _send(self) -> None:
        self._generation.sync_weights()

    @contextmanager
    def opened(self, sampling: Sampling) -> Iterator[Sampler]:
        llm, sleeps = self._generation.llm, self._generation.enable_sleep_mode
        if sleeps:
            llm.wake_up(tags=["kv_cache"])
        try:
            yield VllmPolicy((llm, self._tokenizer), sampling)
        finally:
            if sleeps:
                # Level 2 drops the weights: the next generation brings them anew, whatever its step.
                llm.sleep(level=2)
                self._generation._llm_weights_sleeping = True
                self._step = None


class Served(VllmRollouts):
    """A vLLM server: each turn is an HTTP request of its own episode.

    Args:
        url: ends in `/v1`.
        model: its name on the server.
        send: moves the weights; all ranks call it together.
        timeout: seconds for one request.
    """

    def __init__(self, url: str, model: str, send: Callable[[], None], *, timeout: float) -> None:
        super().__init__()
        self._url = url
        self._model = model
        self._send_weights = send
        self._timeout = timeout

    def _send(self) -> None:
        try:
            self._send_weights()
        except Exception as error:  # whatever requests and NCCL raise
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise InfraError(f"the vLLM server at {self._url} did not take the weights: {reason}") from error

    @contextmanager
    def opened(self, sampling: Sampling) -> Iterator[Sampler]:
        # Retries are those of the episode: they are counted, and a request that failed is not repeated unseen.
        yield OpenAIPolicy(
            self._model, self._url, sampling, mode="tokens", max_concurrency=1024, timeout=self._timeout, retries=0
        )


def server_url(args: Any) -> str:
    """Where GRPOConfig says that the server is."""
    base = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return f"{base.rstrip('/').removesuffix('/v1')}/v1"


def rollouts_of(trainer: Any, *, timeout: float) -> VllmRollouts | None:
    """Of a trainer whose TRL part is made; None without `use_vllm`."""
    if not trainer.args.use_vllm:
        return None
    generation = trainer.vllm_generation
    if generation.mode == "colocate":
        return Colocated(generation, trainer._tokenizer)
    accelerator = trainer.accelerator
    name = [generation.vllm_client.model if accelerator.is_main_process else None]
    broadcast_object_list(name, from_process=0)

    def send() -> None:
        generation.sync_weights()
        # Only the main process sends; the others must not ask a server that is between two sets of weights.
        accelerator.wait_for_everyone()

    return Served(server_url(trainer.args), str(name[0]), send, timeout=timeout)


_ENGINE_MODULE: Any = vllm_generation
_TRAINER_MODULE: Any = grpo_trainer


class CpuGeneration(VLLMGeneration):
    """TRL's engine on a machine without a GPU: in float32, not compiled, weights by way of `reload_weights`.

    TRL writes into the engine's parameters, of which vLLM keeps packed copies on CPUs that would stay as they were.
    """

    def _init_vllm(self) -> None:
        made = _ENGINE_MODULE.LLM
        kept = {name: CPU_ARGUMENTS[name] for name in ("dtype", "enforce_eager")}
        _ENGINE_MODULE.LLM = partial(made, **kept)
        try:
            super()._init_vllm()  # type: ignore[no-untyped-call]
        finally:
            _ENGINE_MODULE.LLM = made

    def sync_weights(self) -> None:
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._weights()})
        self.llm.reset_prefix_cache()

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Copies: TRL merges adapters in place, and vLLM may look at a tensor later than it is handed out."""
        tied = self.model.config.get_text_config().tie_word_embeddings
        for name, weight in self._iter_named_params():  # type: ignore[no-untyped-call]
            copied = weight.detach().clone()
            yield name, copied
            if tied and name.endswith("embed_tokens.weight"):
                # The packed copy of a tied head is not made anew with the embeddings.
                yield "lm_head.weight", copied


@contextmanager
def engine_for_this_machine(args: Any) -> Iterator[None]:
    """Let a GRPOTrainer of these `args` that is made inside use CpuGeneration where there is no GPU."""
    kept = _TRAINER_MODULE.VLLMGeneration
    if args.use_vllm and set_environment():
        _TRAINER_MODULE.VLLMGeneration = CpuGeneration
    try:
        yield
    finally:
        _TRAINER_MODULE.VLLMGeneration = kept
