"""From prompts to training rows: the episodes of a GRPO step, played by the same loop as evaluation.

TRL hands `rollout_func` the prompts of a generation, already repeated; each becomes one `agl.rollout` episode of the
model in training, and its token log one row. What the policy did wrong is scored and trained on. What the machinery
did wrong abstains: its row has an all-zero mask, and its reward enters neither mean nor spread of its group. Loss types
that average over rows (grpo, dr_grpo) still count the empty row; those over tokens (dapo, bnpo) do not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from agl.core import OutcomeKind, StopReason
from agl.errors import InfraError, UserError
from agl.messages import Prompt
from agl.policies.decoding import Prefix, context_length
from agl.policies.hf import HfPolicy
from agl.policies.policy import Play, Sampling
from agl.policies.token_dialogue import LocalEncoder, TokenDialogue
from agl.rollout import Job, Limits, derived_seed, rollouts
from agl.trace import Episode, EpisodeWriter
from train.groups import group
from train.options import EpisodeArguments
from train.plan import Setting
from train.shaping import format_credit

STRIKES = 3
"""Generations in a row with too many infrastructure failures that end the run."""


class TrainerPolicy(HfPolicy):
    """The model in training, as `agl.rollout` sees it. Each response has `response_tokens`, whatever its prompt."""

    def __init__(
        self, model: Any, tokenizer: Any, sampling: Sampling, *, response_tokens: int, max_batch: int,
        chat_template: str | None,
    ) -> None:  # fmt: skip
        super().__init__((model, tokenizer), sampling, max_batch=max_batch, chat_template=chat_template)
        self.name = "in-training"
        # The weights stand still as long as this policy lives: one generation.
        self._prefix = Prefix()
        self.response_tokens = response_tokens

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> TokenDialogue:
        used = len(self.template.first(prompt.messages, prompt.tools))
        return TokenDialogue(
            prompt,
            LocalEncoder(self.template),
            self._batcher.submit,
            replace(self.sampling, context_tokens=used + self.response_tokens),
            model_context=context_length(self.model),
            seed=seed,
        )


@dataclass(frozen=True)
class Earned:
    """What training needs to know of an episode; small, so that every rank can see every one.

    Attributes:
        reward: what is trained on, shaping included; None for an episode that is no sample.
        score: the task score; None likewise.
        parts: reward parts by name, None where not applicable.
        mean: numbers that are averaged over episodes.
    """

    outcome: str
    stop: str
    error: str | None
    reward: float | None
    score: float | None
    parts: Mapping[str, float | None]
    mean: Mapping[str, float]


def earned(episode: Episode, credit: float = 0.0) -> Earned:
    """Sum up an episode; `credit` scales the format shaping."""
    events = episode.events
    malformed = sum(event.action == "malformed" for event in events)
    calls = sum(event.action not in ("malformed", "answer") for event in events)
    failed = sum(event.action not in ("malformed", "answer") and event.is_error for event in events)
    mean = {
        "turns": float(sum(turn.source == "sampled" for turn in episode.transcript)),
        "tool_calls": float(calls),
        "tool_errors": float(failed),
        "malformed": float(malformed),
        "retries": float(episode.outcome.retries),
        "tokens_sampled": float(episode.tokens.sampled),
        "tokens_injected": float(episode.tokens.injected or 0),
        "seconds_model": episode.seconds["model"],
        "seconds_framework": episode.seconds["framework"],
    }
    outcome = episode.outcome
    if episode.score is None:
        return Earned(outcome.kind.value, outcome.stop.value, outcome.error, None, None, {}, mean)
    parts = dict(episode.score.parts)
    reward = episode.score.reward
    if credit:
        parts["format_credit"] = credit * format_credit(episode)
        reward += parts["format_credit"] or 0.0
    return Earned(outcome.kind.value, outcome.stop.value, outcome.error, reward, episode.score.total, parts, mean)


def row_of(
    episode: Episode, *, filler: int, mask_truncated: bool
) -> tuple[list[int], list[int], list[int], list[float]]:
    """(prompt ids, completion ids, mask, log-probabilities) of one episode.

    The mask is 1 exactly on tokens the policy sampled. It is all 0 when the episode is no sample, when it was cut and
    `mask_truncated`, and when nothing was sampled; `filler` stands in where there are no tokens.

    Raises:
        UserError: the episode rebuilt its context, so that it has more than one row.
    """
    if not episode.is_sample:
        return [filler], [filler], [0], [0.0]
    if len(episode.logs) != 1:
        raise UserError(
            f"expected episodes of one context, got one of {len(episode.logs)} in task {episode.task['id']!r}; "
            "train/grpo.py trains one row per episode, choose a dialect that continues its context"
        )
    row = episode.logs[0].row()
    if not row.completion_ids:
        return row.prompt_ids, [filler], [0], [0.0]
    if row.logprobs is None:
        raise InfraError("expected log-probabilities of every sampled token, got none; the sampler must return them")
    cut = mask_truncated and episode.outcome.stop is StopReason.MAX_TOKENS
    return row.prompt_ids, row.completion_ids, [0] * len(row.mask) if cut else row.mask, row.logprobs


def training_reward(
    prompts: Sequence[Any], completions: Sequence[Any], *, episode_reward: list[float | None], **_: Any
) -> list[float | None]:
    """The reward function TRL calls: what the episodes earned; None abstains."""
    return episode_reward


class EpisodeTrainer(GRPOTrainer):
    """GRPOTrainer whose generations are AGL episodes.

    Args:
        setting: environment and tasks; the dataset is made from it.
        episodes: options of the episodes.
        others: arguments of GRPOTrainer but `rollout_func`, `reward_funcs` and `train_dataset`.
    """

    args: Any
    model: Any
    num_generations: int

    def __init__(self, setting: Setting, episodes: EpisodeArguments, **others: Any) -> None:
        self._setting = setting
        self._episodes = episodes
        self._jobs: list[Job] = []
        self._drawn = (-1, 0)
        self._strikes = 0
        self._logps: torch.Tensor | None = None
        super().__init__(
            rollout_func=self._play,
            reward_funcs=training_reward,
            train_dataset=dataset_of(setting),
            **others,
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        # rollout_func sees prompts only; the tasks behind them are kept for it here.
        first = self.accelerator.process_index * len(inputs)
        read = self._setting.task_type.model_validate_json
        self._jobs = [
            Job(read(row["task"]), (first + place) % self.num_generations) for place, row in enumerate(inputs)
        ]
        return cast("dict[str, Any]", super()._generate_and_score_completions(inputs))

    def _play(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """One episode per job, in order, as TRL wants rows."""
        step = self.state.global_step
        draw = self._drawn[1] + 1 if self._drawn[0] == step else 0
        self._drawn = (step, draw)
        seed = derived_seed(self.args.seed, "train", step, draw)
        started = time.perf_counter()
        # Opened once around all turns: under ZeRO-3 it gathers the weights, which every rank must do together, while
        # the number of turns differs from rank to rank.
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self._dist.summon_full_params(self.model_wrapped, recurse=False),
        ):
            played = asyncio.run(self._collect(model, seed))
        seconds = time.perf_counter() - started
        if self._episodes.save_episodes:
            folder = Path(self.args.output_dir, "episodes")
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{step:06d}-{draw}-rank{self.accelerator.process_index}.jsonl"
            file.unlink(missing_ok=True)
            with EpisodeWriter(file) as writer:
                for episode in played:
                    writer.write(episode)
        mine = [earned(episode, self._episodes.format_credit) for episode in played]
        everyone: list[Earned] = gather_object(mine)
        metrics = summary(everyone, self.num_generations, shaped=self._episodes.format_credit > 0)
        self._record({**metrics, "episode/seconds_of_generation": seconds})
        self._watch(everyone)
        mask_truncated = self._episodes.truncated_episodes == "mask"
        rows = [row_of(episode, filler=self.eos_token_ids[0], mask_truncated=mask_truncated) for episode in played]
        prompt_ids, completion_ids, mask, logprobs = (list(column) for column in zip(*rows, strict=True))
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completion_ids,
            "logprobs": logprobs,
            "env_mask": mask,
            "episode_reward": [each.reward for each in mine],
        }

    async def _collect(self, model: Any, seed: int) -> list[Episode]:
        options = self._episodes
        concurrency = options.concurrency or len(self._jobs)
        policy = TrainerPolicy(
            model,
            self._tokenizer,
            Sampling(temperature=self.args.temperature, max_tokens=options.max_turn_tokens),
            response_tokens=self.args.max_completion_length,
            max_batch=concurrency,
            chat_template=options.chat_template,
        )
        places = {(job.task.id, job.attempt): place for place, job in enumerate(self._jobs)}
        played: dict[int, Episode] = {}
        try:
            async for episode in rollouts(
                self._setting.make_env,
                self._jobs,
                policy,
                dialect=self._setting.dialect,
                limits=Limits(options.max_turns, options.episode_deadline, options.episode_retries),
                shots=self._setting.shots,
                seed=seed,
                concurrency=concurrency,
            ):
                played[places[episode.key]] = episode
        finally:
            # The sampler's thread may still use the weights for an episode that missed its deadline.
            await policy.aclose()
        return [played[place] for place in range(len(self._jobs))]

    def _record(self, metrics: Mapping[str, float]) -> None:
        mode = "train" if self.model.training else "eval"
        for name, value in metrics.items():
            self._metrics[mode][name].append(value)

    def _watch(self, everyone: Sequence[Earned]) -> None:
        """End the run when infrastructure failures are no accident any more; every rank decides alike."""
        failed = [each for each in everyone if each.outcome == OutcomeKind.INFRA_FAILURE]
        over = len(failed) > self._episodes.max_infra_share * len(everyone)
        self._strikes = self._strikes + 1 if over else 0
        if self._strikes >= STRIKES:
            error, _ = Counter(each.error for each in failed).most_common(1)[0]
            raise InfraError(
                f"{len(failed)} of {len(everyone)} episodes failed for the machinery's fault, the {STRIKES}rd "
                f"generation in a row above max_infra_share {self._episodes.max_infra_share:g}; most often: {error}"
            )

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._logps = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss; beside it, how far sampler and trainer disagree about the sampled tokens.

        Before the first step on a generation the two are one model, so a gap beyond rounding is a fault in ids, mask
        or weights; on later steps it shows how far the weights have moved.
        """
        loss: torch.Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        if self._logps is not None and "sampling_per_token_logps" in inputs:
            mask = inputs["completion_mask"] * inputs["tool_mask"]
            gap = (self._logps - inputs["sampling_per_token_logps"]).abs() * mask
            sums = torch.stack([gap.sum(), mask.sum().to(gap.dtype), gap.max()])
            gathered = self.accelerator.gather(sums).view(-1, 3)
            total, count = gathered[:, 0].sum().item(), gathered[:, 1].sum().item()
            if count:
                self._record({"sampling/gap_mean": total / count, "sampling/gap_max": gathered[:, 2].max().item()})
        return loss


def dataset_of(setting: Setting) -> Any:
    """Tasks as the dataset TRL wants. The prompt column is what its completion tables show: the first observation.

    The model's own prompt is made by the rollout. A task is one JSON text, since Arrow would give all rows the keys
    of any.
    """
    from datasets import Dataset

    env = setting.make_env()
    rows = [{"prompt": env.reset(task).text, "task": task.model_dump_json()} for task in setting.tasks]
    env.close()
    return Dataset.from_list(rows)


def summary(everyone: Sequence[Earned], group_size: int, *, shaped: bool = False) -> dict[str, float]:
    """Metrics of one generation over all ranks; `everyone` stands in the order of the groups."""
    count = len(everyone)
    out = {f"outcome/{kind.value}": _share(each.outcome == kind for each in everyone) for kind in OutcomeKind}
    out |= {f"stop/{stop.value}": _share(each.stop == stop for each in everyone) for stop in StopReason}
    scores = [each.score for each in everyone if each.score is not None]
    if scores:
        out["score"] = sum(scores) / len(scores)
    for name in sorted({name for each in everyone for name in each.parts}):
        values = [value for each in everyone if (value := each.parts.get(name)) is not None]
        if values:
            out[f"parts/{name}"] = sum(values) / len(values)
    for name in everyone[0].mean:
        out[f"episode/{name}"] = sum(each.mean[name] for each in everyone) / count
    groups = [everyone[start : start + group_size] for start in range(0, count, group_size)]
    by_score = [group([each.score for each in members]) for members in groups]
    by_reward = [group([each.reward for each in members]) for members in groups]
    out["groups/zero_variance_score"] = _share(found.zero_variance for found in by_score)
    out["groups/zero_variance_reward"] = _share(found.zero_variance for found in by_reward)
    out["groups/survivors"] = sum(found.used for found in by_reward) / len(groups)
    if shaped:
        plain = [
            group([None if e.reward is None else e.reward - (e.parts.get("format_credit") or 0.0) for e in members])
            for members in groups
        ]
        out["groups/only_shaping_varies"] = _share(
            bare.zero_variance and not full.zero_variance for bare, full in zip(plain, by_reward, strict=True)
        )
    return out


def _share(hits: Iterable[bool]) -> float:
    found = list(hits)
    return sum(found) / len(found)
