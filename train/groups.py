"""Arithmetic of GRPO groups: rewards against their group mean, batches out of groups, and sampling ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agl.errors import AglError, UserError


class RewardError(AglError):
    """A reward that may not enter a mean."""

    code = "non_finite"


class BatchError(UserError):
    """Batch sizes that do not fit together. `code` is `not_divisible`, `too_few_prompts` or `bad_size`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Group:
    """Rewards of the episodes of one prompt; None marks an episode that abstains (no sample, no gradient).

    Attributes:
        used: how many took part.
        mean: of those; None when all abstain.
        zero_variance: no two of them differ, so the group gives no gradient; true of a lone survivor, too.
        centred: reward minus mean, in the order given; None stays None.
    """

    used: int
    mean: float | None
    zero_variance: bool
    centred: tuple[float | None, ...]


def group(rewards: Sequence[float | None]) -> Group:
    """Compare the rewards of one group; those that abstain count neither in the mean nor in the spread.

    Raises:
        RewardError: a reward is NaN or infinite.
    """
    present = [reward for reward in rewards if reward is not None]
    for reward in present:
        if not math.isfinite(reward):
            raise RewardError(
                f"expected finite rewards, got {reward} in a group of {len(rewards)}; "
                "an episode without a score must abstain (None), and a reward function must not divide by zero"
            )
    if not present:
        return Group(0, None, True, tuple(None for _ in rewards))
    mean = math.fsum(present) / len(present)
    flat = max(present) == min(present)
    centred = tuple(None if reward is None else 0.0 if flat else reward - mean for reward in rewards)
    return Group(len(present), mean, flat, centred)


@dataclass(frozen=True)
class BatchPlan:
    """How prompts become rows, and rows steps.

    A generation samples `prompts_per_generation` x group size rows at once; an optimiser step consumes `rows_per_step`
    of them. `dropped_prompts` at the end of an epoch do not fill a generation (another shuffle drops others).
    """

    prompts: int
    group_size: int
    ranks: int
    rows_per_generation: int
    rows_per_rank: int
    """Rows that one rank samples in a generation."""
    prompts_per_generation: int
    rows_per_step: int
    generations_per_epoch: int
    steps_per_epoch: int
    dropped_prompts: int

    @property
    def prompts_per_step(self) -> float:
        """Groups whose rows one optimiser step consumes; not whole when steps cut through groups."""
        return self.rows_per_step / self.group_size


def batch_plan(
    *,
    prompts: int,
    group_size: int,
    ranks: int,
    per_rank: int,
    steps_accumulated: int = 1,
    steps_per_generation: int | None = None,
    iterations: int = 1,
) -> BatchPlan:
    """Work out the batch arithmetic of TRL's GRPOTrainer.

    Args:
        prompts: tasks in the training set.
        group_size: episodes per prompt (`num_generations`).
        ranks: processes.
        per_rank: rows in one forward pass of one rank (`per_device_train_batch_size`).
        steps_accumulated: forward passes per optimiser step (`gradient_accumulation_steps`).
        steps_per_generation: forward passes fed by one generation; None: `steps_accumulated`.
        iterations: times each generation is trained on (`num_iterations`).

    Raises:
        BatchError: the rows of a generation are not whole groups, or the prompts do not fill one generation.
    """
    feeds = steps_accumulated if steps_per_generation is None else steps_per_generation
    sizes = {
        "prompts": prompts,
        "group size": group_size,
        "ranks": ranks,
        "rows per rank": per_rank,
        "steps accumulated": steps_accumulated,
        "steps per generation": feeds,
        "iterations": iterations,
    }
    for name, size in sizes.items():
        if size < 1:
            raise BatchError("bad_size", f"expected {name} of at least 1, got {size}; correct it")
    rows = ranks * per_rank * feeds
    if rows % group_size:
        raise BatchError("not_divisible", _remedy(rows, group_size, ranks * feeds, per_rank))
    prompts_per_generation = rows // group_size
    generations, dropped = divmod(prompts, prompts_per_generation)
    if generations == 0:
        raise BatchError(
            "too_few_prompts",
            f"expected at least {prompts_per_generation} prompts ({rows} rows per generation / group size "
            f"{group_size}), got {prompts}; add tasks or lower the batch",
        )
    return BatchPlan(
        prompts=prompts,
        group_size=group_size,
        ranks=ranks,
        rows_per_generation=rows,
        rows_per_rank=per_rank * feeds,
        prompts_per_generation=prompts_per_generation,
        rows_per_step=ranks * per_rank * steps_accumulated,
        generations_per_epoch=generations,
        steps_per_epoch=math.ceil(generations * feeds * iterations / steps_accumulated),
        dropped_prompts=dropped,
    )


def _remedy(rows: int, group_size: int, passes: int, per_rank: int) -> str:
    """The error sentence for `rows` = `passes` x `per_rank` that are no multiple of `group_size`."""
    unit = group_size // math.gcd(group_size, passes)
    near_rows = sorted({max(1, per_rank // unit) * unit, -(-per_rank // unit) * unit})
    divisors = [size for size in range(2, rows + 1) if rows % size == 0]
    near_groups = sorted(sorted(divisors, key=lambda size: (abs(size - group_size), size))[:2])
    remedy = f"set rows per rank (per_device_train_batch_size) to {' or '.join(map(str, near_rows))}"
    if near_groups:
        remedy += f", or the group size (num_generations) to {' or '.join(map(str, near_groups))}"
    return (
        f"expected the rows of a generation to be whole groups, got {passes} x {per_rank} = {rows} rows "
        f"for groups of {group_size}; {remedy}"
    )


@dataclass(frozen=True)
class Ratio:
    """Importance ratio of one row; `masked`: above the cap, so its weight is 0."""

    value: float
    masked: bool


def ratio(log_diffs: Sequence[float], *, how: Literal["sequence_mean", "sequence_sum"], cap: float) -> Ratio:
    """Trainer probability over sampler probability of one row, against `cap`.

    `sequence_sum` multiplies over all tokens, so tiny differences blow up on long episodes; `sequence_mean` is its
    length-normalised form. The comparison is made on logarithms: nothing overflows.

    Args:
        log_diffs: trainer minus sampler log-probability of each trained token (natural log).

    Raises:
        RewardError: a difference is not finite.
    """
    if not all(map(math.isfinite, log_diffs)):
        raise RewardError("expected finite log-probabilities, got NaN or infinity; look for padding that is trained on")
    log_ratio = math.fsum(log_diffs)
    if how == "sequence_mean" and log_diffs:
        log_ratio /= len(log_diffs)
    masked = log_ratio > math.log(cap)
    return Ratio(0.0 if masked else math.exp(log_ratio), masked)


def batch_of(grpo: Mapping[str, Any], prompts: int, ranks: int) -> BatchPlan:
    """`batch_plan` of the values of GRPOConfig fields.

    Raises:
        UserError: numbers that do not fit together.
    """
    return batch_plan(
        prompts=prompts,
        group_size=grpo["num_generations"],
        ranks=ranks,
        per_rank=grpo["per_device_train_batch_size"],
        steps_accumulated=grpo["gradient_accumulation_steps"],
        steps_per_generation=_feeds(grpo, ranks),
        iterations=grpo["num_iterations"],
    )


def _feeds(grpo: Mapping[str, Any], ranks: int) -> int | None:
    """Forward passes fed by one generation, as GRPOConfig works it out."""
    feeds: int | None = grpo.get("steps_per_generation")
    rows = grpo.get("generation_batch_size")
    if feeds is not None or rows is None:
        return feeds
    passes = ranks * grpo["per_device_train_batch_size"]
    if rows % passes:
        raise UserError(
            f"option generation_batch_size: expected a multiple of {passes} (ranks x per_device_train_batch_size), "
            f"got {rows}; set it to {max(1, rows // passes) * passes} or {-(-rows // passes) * passes}"
        )
    return int(rows // passes)
