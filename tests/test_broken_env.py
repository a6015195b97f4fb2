"""An environment with a fault costs its episode and nothing else."""

from __future__ import annotations

import time
from typing import Any, NoReturn

import pytest

from agl.core import OutcomeKind, Step, StopReason
from agl.policies.scripted import Oracle
from agl.rollout import Limits, rollout
from agl.trace import Episode
from tests.toy_env import ToyEnv


def _raise(*_: Any) -> NoReturn:
    raise RuntimeError("broken\nin two lines")


async def _play(**broken: Any) -> Episode:
    env = type("BrokenEnv", (ToyEnv,), broken)()
    return await rollout(env, ToyEnv.tasks(limit=1)[0], Oracle(), limits=Limits(deadline=30, retries=0))


@pytest.mark.parametrize("method", ["instructions", "begin", "act", "oracle", "score"])
async def test_an_env_that_raises_is_no_sample(method: str) -> None:
    outcome = (await _play(**{method: _raise})).outcome
    assert (outcome.kind, outcome.stop) == (OutcomeKind.INFRA_FAILURE, StopReason.ERROR)
    assert outcome.error == "RuntimeError: broken in two lines"


@pytest.mark.parametrize(
    ("method", "value"),
    [("begin", "text"), ("act", None), ("act", ("text", 1.0, True)), ("score", 0.5), ("score", None)],
)
async def test_an_env_that_returns_something_else_is_no_sample(method: str, value: object) -> None:
    episode = await _play(**{method: lambda *_: value})
    assert episode.outcome.kind is OutcomeKind.INFRA_FAILURE
    assert episode.score is None


async def test_what_closing_breaks_does_not_take_the_episode_with_it() -> None:
    episode = await _play(close=_raise)
    assert episode.outcome.kind is OutcomeKind.OK
    assert episode.score is not None
    assert episode.score.total == 1.0


async def test_an_env_slower_than_the_deadline_is_no_sample() -> None:
    def dawdle(self: ToyEnv, action: Any) -> Step:
        time.sleep(0.1)
        return ToyEnv.act(self, action)

    env = type("SlowEnv", (ToyEnv,), {"act": dawdle})()
    outcome = (await rollout(env, ToyEnv.tasks(limit=1)[0], Oracle(), limits=Limits(deadline=0.05))).outcome
    assert (outcome.stop, outcome.error) == (StopReason.TIMEOUT, "deadline of 0.05 s passed")
