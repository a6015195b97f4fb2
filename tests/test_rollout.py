"""The agent loop: how an episode ends, who is answerable, and what is never scored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest

from agl.core import Env, OutcomeKind, Score, StopReason
from agl.errors import InfraError, UserError
from agl.messages import Injection, Prompt
from agl.policies.policy import Dialogue, Play, Policy, Sample
from agl.policies.scripted import Oracle
from agl.rollout import Job, Limits, derived_seed, rollout, rollout_with_retries, rollouts
from agl.trace import Episode
from tests.toy_env import ToyEnv, ToyTask

TASK = ToyEnv.tasks(limit=1)[0]
MOVE = '<move>{"direction": "back"}</move>'


class Speaker(Policy):
    """Says whatever `speak` returns or raises."""

    name = "speaker"

    def __init__(self, speak: Callable[[], Awaitable[Sample]]) -> None:
        self.speak = speak

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return _Spoken(self.speak)


class _Spoken(Dialogue):
    def __init__(self, speak: Callable[[], Awaitable[Sample]]) -> None:
        self._speak = speak

    async def sample(self, stops: Sequence[str]) -> Sample:
        return await self._speak()

    def inject(self, injection: Injection) -> None:
        pass

    def fork(self) -> Dialogue:
        return _Spoken(self._speak)


def saying(text: str, finish: str = "stop") -> Speaker:
    async def speak() -> Sample:
        return Sample(text=text, finish=finish, tokens=1)  # type: ignore[arg-type]

    return Speaker(speak)


def failing(error: Exception) -> Speaker:
    async def speak() -> Sample:
        raise error

    return Speaker(speak)


async def stall() -> Sample:
    await asyncio.Event().wait()
    raise AssertionError


def assert_no_sample(episode: Episode, stop: StopReason, words: str) -> None:
    assert episode.outcome.kind is OutcomeKind.INFRA_FAILURE
    assert episode.outcome.stop is stop
    assert words in (episode.outcome.error or "")
    assert episode.score is None
    assert not episode.is_sample


@pytest.mark.parametrize(
    ("policy", "limits", "kind", "stop", "reward"),
    [
        (Oracle(), Limits(), OutcomeKind.OK, StopReason.ANSWER, 2.0),
        (saying("<answer>nowhere</answer>"), Limits(), OutcomeKind.OK, StopReason.ANSWER, 0.0),
        (saying("hello", "eos"), Limits(), OutcomeKind.POLICY_FAILURE, StopReason.INVALID, -1.0),
        (saying("<answer>no", "length"), Limits(), OutcomeKind.POLICY_FAILURE, StopReason.MAX_TOKENS, 0.0),
        (saying(MOVE), Limits(), OutcomeKind.POLICY_FAILURE, StopReason.MAX_TURNS, 0.0),
        (saying(MOVE), Limits(max_turns=2), OutcomeKind.POLICY_FAILURE, StopReason.MAX_TURNS, 0.0),
    ],
)
async def test_what_the_policy_does_is_scored(
    policy: Policy, limits: Limits, kind: OutcomeKind, stop: StopReason, reward: float
) -> None:
    episode = await rollout(ToyEnv(), TASK, policy, limits=limits)
    assert (episode.outcome.kind, episode.outcome.stop, episode.outcome.error) == (kind, stop, None)
    assert episode.score is not None
    assert episode.score.reward == reward


async def test_a_cut_answer_is_no_answer() -> None:
    episode = await rollout(ToyEnv(), TASK, saying("<answer>x</answer> and then", "length"))
    assert [event.arguments.get("reason") for event in episode.events] == ["truncated"]


@pytest.mark.timeout(30)
async def test_a_deadline_ends_the_episode_without_a_score() -> None:
    episode = await rollout(ToyEnv(), TASK, Speaker(stall), limits=Limits(deadline=0.05))
    assert_no_sample(episode, StopReason.TIMEOUT, "deadline of 0.05 s passed")


@pytest.mark.parametrize("error", [InfraError("the server is down"), TimeoutError("the server is down")])
async def test_a_failing_backend_is_named_and_not_scored(error: Exception) -> None:
    episode = await rollout(ToyEnv(), TASK, failing(error))
    assert_no_sample(episode, StopReason.ERROR, "the server is down")


async def test_a_fault_of_the_env_is_not_scored_and_the_env_is_closed() -> None:
    class Faulty(ToyEnv):
        closed = 0

        def score(self) -> Score:
            raise ZeroDivisionError("no weights")

        def close(self) -> None:
            self.closed += 1

    env = Faulty()
    assert_no_sample(await rollout(env, TASK, Oracle()), StopReason.ERROR, "ZeroDivisionError: no weights")
    assert env.closed == 1


async def test_an_unusable_policy_ends_the_run() -> None:
    with pytest.raises(UserError, match="no such model"):
        await rollout(ToyEnv(), TASK, failing(UserError("no such model")))


async def test_a_retry_plays_the_same_episode_in_a_fresh_env_and_keeps_the_first_error() -> None:
    envs: list[Env[ToyTask]] = []

    class Once(Oracle):
        def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
            if len(envs) == 1:
                raise InfraError("connection reset")
            return super().open(prompt, seed=seed, play=play)

    def make_env() -> Env[ToyTask]:
        envs.append(ToyEnv())
        return envs[-1]

    episode = await rollout_with_retries(make_env, Job(TASK, 3), Once())
    assert len(envs) == 2
    assert (episode.outcome.kind, episode.outcome.retries) == (OutcomeKind.OK, 1)
    assert episode.outcome.error == "connection reset"
    plain = await rollout(ToyEnv(), TASK, Oracle(), attempt=3)
    assert (episode.score, episode.transcript, episode.key) == (plain.score, plain.transcript, plain.key)


@pytest.mark.timeout(30)
async def test_leaving_early_cancels_what_still_runs() -> None:
    open_envs: set[Env[ToyTask]] = set()

    class Counted(ToyEnv):
        def __init__(self) -> None:
            open_envs.add(self)

        def close(self) -> None:
            open_envs.discard(self)

    class Mixed(Oracle):
        def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
            return _Spoken(stall) if play.attempt else super().open(prompt, seed=seed, play=play)

    jobs = (Job(TASK, attempt) for attempt in range(100))
    async with aclosing(rollouts(Counted, jobs, Mixed(), concurrency=3)) as playing:
        async for episode in playing:
            assert episode.attempt == 0
            break
    assert open_envs == set()
    assert next(jobs).attempt <= 4


def test_seeds_are_the_same_in_every_process_and_differ() -> None:
    assert derived_seed(0, "a", 1) == derived_seed("0", "a", "1")
    assert derived_seed(0, "toy-1", 2) == 7_310_568_470_902_741_691
    assert len({derived_seed(0, "ab", "c"), derived_seed(0, "a", "bc"), derived_seed(1, "ab", "c")}) == 3
