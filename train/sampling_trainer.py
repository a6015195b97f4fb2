"""SamplingTrainer: a RowTrainer that opens a policy on its weights, sampled from by transformers or by vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from trl.models.utils import unwrap_model_for_generation

from agl.policies.decoding import Prefix
from agl.policies.hf import HfPolicy
from agl.policies.policy import Sampling
from train.options import EpisodeArguments
from train.rollouts import Sampler, TrainerPolicy
from train.row_trainer import RowTrainer
from train.sharding import check_engine, unsharded
from train.vllm_rollouts import VllmRollouts, engine_for_this_machine, rollouts_of


class SamplingTrainer(RowTrainer):
    """The weights in training as a policy; `_episodes` is set before this part is made."""

    _episodes: EpisodeArguments
    _vllm: VllmRollouts | None

    def __init__(self, **others: Any) -> None:
        with engine_for_this_machine(others["args"]):
            super().__init__(**others)
        check_engine(self)
        self._vllm = rollouts_of(self, timeout=self._episodes.episode_deadline)

    @contextmanager
    def _sampler(self, temperature: float, episodes: int, *, branching: bool = False) -> Iterator[TrainerPolicy]:
        """The policy in training, for so many episodes at once.

        Weights are gathered, or sent to vLLM, once around all turns: every rank must do that together, while the number
        of turns differs from rank to rank. `branching` needs them here even when vLLM samples.
        """
        options = self._episodes
        sampling = Sampling(temperature=temperature, max_tokens=options.max_turn_tokens)
        with ExitStack() as stack:
            model = self.model
            if self._vllm is None or branching:
                model = stack.enter_context(self._whole())
            sampler: Sampler
            if self._vllm is None:
                hf = HfPolicy(
                    (model, self._tokenizer),
                    sampling,
                    max_batch=options.concurrency or max(1, episodes),
                    chat_template=options.chat_template,
                )
                # The weights stand still as long as this policy lives.
                hf.prefix = Prefix()
                sampler = hf
            else:
                self._sync()
                sampler = stack.enter_context(self._vllm.opened(sampling))
            policy = TrainerPolicy(
                sampler,
                model,
                self._tokenizer,
                sampling,
                response_tokens=self.args.max_completion_length,
                chat_template=options.chat_template,
                append=options.decisions == "append",
            )
            try:
                yield policy
            finally:
                # The sampler's thread may still use the weights for an episode that missed its deadline.
                asyncio.run(policy.aclose())

    @contextmanager
    def _whole(self) -> Iterator[Any]:
        """The model in training with all its weights on this rank."""
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            unsharded(model),
        ):
            yield model

    def _sync(self) -> None:
        """Bring the weights to vLLM; TRL, which would do the same, takes it as done."""
        if self._vllm is not None:
            self._vllm.sync(self.state.global_step)
            self._last_loaded_step = self.state.global_step
