"""Group arithmetic: abstaining rewards, batches of whole groups, long-episode ratios."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import check_case, handed_cases
from train.groups import BatchError, RewardError, batch_plan, group, ratio

finite = st.floats(-1e6, 1e6)


def run(op: str, given_input: dict[str, Any]) -> dict[str, Any]:
    """Answer a handed case."""
    try:
        if op == "group":
            found = group([float(reward) if isinstance(reward, str) else reward for reward in given_input["rewards"]])
            return {
                "status": "ok",
                "used": found.used,
                "mean": found.mean,
                "zero_variance": found.zero_variance,
                "centred": list(found.centred),
            }
        if op == "batch_plan":
            plan = batch_plan(**given_input)
            return {
                "status": "ok",
                "rows_per_step": plan.rows_per_step,
                "prompts_per_step": plan.prompts_per_step,
                "steps_per_epoch": plan.steps_per_epoch,
                "dropped_prompts": plan.dropped_prompts,
            }
        result = ratio(given_input["log_diffs"], how=given_input["how"], cap=given_input["cap"])
        return {"status": "ok", "ratio": result.value, "masked": result.masked}
    except (RewardError, BatchError) as error:
        return {"status": "error", "code": error.code}


@pytest.mark.parametrize("case", handed_cases("verifier.jsonl", "group", "batch_plan", "ratio"))
def test_handed_case(case: dict[str, Any]) -> None:
    check_case(case, lambda given_input: run(case["op"], given_input))


@given(st.lists(st.one_of(st.none(), finite), min_size=1, max_size=16))
def test_abstaining_equals_a_smaller_group(rewards: list[float | None]) -> None:
    smaller = group([reward for reward in rewards if reward is not None])
    found = group(rewards)
    assert [value for value in found.centred if value is not None] == list(smaller.centred)
    assert (found.used, found.mean, found.zero_variance) == (smaller.used, smaller.mean, smaller.zero_variance)
    assert [value is None for value in found.centred] == [reward is None for reward in rewards]


def test_lone_survivor_gives_no_gradient() -> None:
    found = group([None, 0.7, None])
    assert found.zero_variance
    assert found.centred == (None, 0.0, None)
    assert group([None, None]).mean is None


@given(
    prompts=st.integers(1, 500),
    group_size=st.integers(2, 16),
    ranks=st.integers(1, 8),
    per_rank=st.integers(1, 16),
    accumulated=st.integers(1, 4),
)
def test_plan_accounts_for_every_prompt_and_its_remedy_works(
    prompts: int, group_size: int, ranks: int, per_rank: int, accumulated: int
) -> None:
    sizes = {"group_size": group_size, "ranks": ranks, "steps_accumulated": accumulated}
    rows = ranks * per_rank * accumulated
    if rows % group_size:
        with pytest.raises(BatchError) as refused:
            batch_plan(prompts=prompts, per_rank=per_rank, **sizes)
        assert refused.value.code == "not_divisible"
        legal = int(str(refused.value).split("per_device_train_batch_size) to ")[1].split(",")[0].split()[0])
        assert batch_plan(prompts=10**6, per_rank=legal, **sizes).rows_per_generation
        return
    if prompts < rows // group_size:
        with pytest.raises(BatchError) as refused:
            batch_plan(prompts=prompts, per_rank=per_rank, **sizes)
        assert refused.value.code == "too_few_prompts"
        return
    plan = batch_plan(prompts=prompts, per_rank=per_rank, **sizes)
    assert plan.generations_per_epoch * plan.prompts_per_generation + plan.dropped_prompts == prompts
    assert plan.rows_per_rank * ranks == plan.rows_per_generation == plan.prompts_per_generation * group_size
    assert plan.steps_per_epoch * plan.rows_per_step == (prompts - plan.dropped_prompts) * group_size


def test_mini_batches_of_the_paper() -> None:
    """GRAIN: 16 prompts sampled at once, 4 optimiser steps of 4 prompts each, 4 GPUs, groups of 8."""
    plan = batch_plan(prompts=1000, group_size=8, ranks=4, per_rank=1, steps_accumulated=8, steps_per_generation=32)
    assert plan.prompts_per_generation == 16
    assert plan.prompts_per_step == 4
    assert plan.steps_per_epoch == 62 * 4
    assert plan.dropped_prompts == 8


def test_plan_refuses_zero() -> None:
    with pytest.raises(BatchError, match="ranks of at least 1, got 0"):
        batch_plan(prompts=1, group_size=1, ranks=0, per_rank=1)


def test_ratio_of_a_very_long_episode_does_not_overflow() -> None:
    diffs = [0.1] * 30_000
    assert ratio(diffs, how="sequence_sum", cap=3.0).masked
    assert ratio(diffs, how="sequence_mean", cap=3.0).value == pytest.approx(math.exp(0.1))
    with pytest.raises(RewardError):
        ratio([math.nan], how="sequence_sum", cap=3.0)
