"""Episodes that know of each other: the same at any concurrency, no waiting for the dead, exact resumption."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agl.core import OutcomeKind, Post
from agl.dialects import dialect_for
from agl.errors import InfraError
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play, Policy, Sample
from agl.policies.scripted import Oracle, Player, Random, ScriptedDialogue
from agl.registry import register
from agl.rollout import Limits, rollout
from agl.run_folder import DRAFTS
from agl.trace import read_episodes
from agl.world import World
from eval.runner import evaluate
from tests.ring_env import PLACES, RingEnv


@pytest.fixture(autouse=True)
def ring() -> None:
    register("ring", "tests.ring_env:RingEnv")


def lines(run: Path) -> list[dict[str, Any]]:
    return [episode.model_dump(mode="json", exclude={"seconds"}) for episode in read_episodes(run / "episodes.jsonl")]


class Faulty(Player):
    """Echoes, and fails as told: `fault(task id, turn)` may raise."""

    def __init__(self, fault: Any) -> None:
        super().__init__("echo")
        self.asked: list[tuple[str, int]] = []
        self._fault = fault

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        inner, policy, task = super().open(prompt, seed=seed, play=play), self, play.env.task.id
        turns = iter(range(100))

        class Watched(ScriptedDialogue):
            async def sample(self, stops: Sequence[str]) -> Sample:
                turn = next(turns)
                policy._fault(task, turn)
                policy.asked.append((task, turn))
                await asyncio.sleep(0)
                return await inner.sample(stops)

            def recall(self, sample: Sample) -> None:
                next(turns)

        return Watched(lambda: ("", "eos"))


def no_fault(task: str, turn: int) -> None:
    pass


@pytest.mark.parametrize("attempts", [1, 2])
def test_results_do_not_depend_on_concurrency(tmp_path: Path, attempts: int) -> None:
    runs = []
    for concurrency in (1, 2, 8):
        out = tmp_path / str(concurrency)
        summary = evaluate("ring", Player("echo"), out=out, concurrency=concurrency, attempts=attempts)
        assert summary.metrics["score"].value == 1.0
        assert not (out / DRAFTS).exists()
        runs.append(lines(out))
    assert runs[0] == runs[1] == runs[2]


def test_words_of_a_round_are_heard_in_the_next(tmp_path: Path) -> None:
    evaluate("ring", Player("echo"), out=tmp_path / "run")
    first = lines(tmp_path / "run")[0]
    said = [turn["text"] for turn in first["transcript"] if turn["role"] == "user"]
    assert said == [
        "You are at place 0.",
        "Round 1. Heard: ['5:from-5', '1:from-1']",
        "Round 2. Heard: ['5:from-5', '1:from-1', '5:from-4', '5:from-0', '1:from-0', '1:from-2']",
    ]
    assert [post["round"] for post in first["posts"]] == [0, 1]


def test_an_episode_alone_waits_for_nobody() -> None:
    task = RingEnv.tasks()[0]
    episode = asyncio.run(rollout(RingEnv(), task, Oracle()))
    assert episode.score is not None
    assert (episode.score.total, episode.posts) == (1.0, ())


def test_nobody_waits_for_an_episode_that_failed(tmp_path: Path) -> None:
    def fault(task: str, turn: int) -> None:
        if task == "place-2" and turn == 1:
            raise InfraError("gone")

    summary = evaluate("ring", Faulty(fault), out=tmp_path / "run", concurrency=1, limits=Limits(retries=1))
    assert summary.outcomes.infra_failure == 1
    heard = {episode["task"]["id"]: episode["score"] for episode in lines(tmp_path / "run")}
    assert heard["place-2"] is None
    assert heard["place-0"]["parts"]["heard"] == 6
    assert heard["place-1"]["parts"]["heard"] == 2 + 2, "the word of round 0 stands, of round 1 there is none"


def test_a_repeated_episode_hears_the_same(tmp_path: Path) -> None:
    failed: list[str] = []

    def once(task: str, turn: int) -> None:
        if task == "place-2" and turn == 1 and not failed:
            failed.append(task)
            raise InfraError("for a moment")

    evaluate("ring", Faulty(once), out=tmp_path / "retried", concurrency=2)
    evaluate("ring", Faulty(no_fault), out=tmp_path / "straight", concurrency=2)
    retried, straight = lines(tmp_path / "retried"), lines(tmp_path / "straight")
    assert failed
    assert [run["transcript"] for run in retried] == [run["transcript"] for run in straight]


@pytest.mark.parametrize("moment", [("place-3", 0), ("place-4", 1), ("place-0", 2), ("place-5", 2)])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, moment: tuple[str, int]) -> None:
    def interrupt(task: str, turn: int) -> None:
        if (task, turn) == moment:
            raise KeyboardInterrupt

    before, after = Faulty(interrupt), Faulty(no_fault)
    with pytest.raises(KeyboardInterrupt):
        evaluate("ring", before, out=tmp_path / "run", concurrency=2)
    evaluate("ring", after, out=tmp_path / "run", concurrency=2, resume=True)
    evaluate("ring", Faulty(no_fault), out=tmp_path / "straight")
    assert lines(tmp_path / "run") == lines(tmp_path / "straight")
    assert not (tmp_path / "run" / DRAFTS).exists()
    again = set(before.asked) & set(after.asked)
    assert all(turn == moment[1] for _, turn in again), "only turns of the round that was interrupted are asked again"


def test_an_episode_that_comes_late_reads_what_the_others_read() -> None:
    async def play() -> list[Any]:
        world = World([("a", 0), ("b", 0)], slots=1)
        world.recall(("b", 0), [Post(round=0, notes={"x": 1}), Post(round=1, notes={"x": 2})])
        async with world.member(("a", 0)):
            return [dict(await world.exchange(("a", 0), Post(round=number))) for number in (0, 1, 0)]

    first, second, again = asyncio.run(play())
    assert first["b"].notes == {"x": 1}
    assert second["b"].notes == {"x": 2}
    assert again == first


def test_waiting_does_not_count_for_the_deadline(tmp_path: Path) -> None:
    class Slow(Policy):
        name = "slow"

        def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
            class Speaks(ScriptedDialogue):
                async def sample(self, stops: Sequence[str]) -> Sample:
                    await asyncio.sleep(0.05)
                    return Sample(play.dialect.write(play.env.oracle()), "eos", 1)

            return Speaks(lambda: ("", "eos"))

    evaluate("ring", Slow(), out=tmp_path / "run", concurrency=1, limits=Limits(deadline=0.5))
    played = lines(tmp_path / "run")
    assert [run["outcome"]["kind"] for run in played] == [OutcomeKind.OK] * PLACES


def test_a_dialect_over_a_phase_names_what_is_legal_now() -> None:
    env = RingEnv()
    dialect = dialect_for(env)
    first = dialect.prompt(env, env.reset(RingEnv.tasks()[0]))
    assert '"say"' in first.messages[0].content
    assert '"answer"' not in first.messages[0].content


class Interrupted(Random):
    """Plays at random until it was asked `after` times."""

    def __init__(self, after: int) -> None:
        self._left = after

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        inner, policy = super().open(prompt, seed=seed, play=play), self

        class Counted(ScriptedDialogue):
            async def sample(self, stops: Sequence[str]) -> Sample:
                policy._left -= 1
                if policy._left < 0:
                    raise KeyboardInterrupt
                return await inner.sample(stops)

            def recall(self, sample: Sample) -> None:
                inner.recall(sample)

        return Counted(lambda: ("", "eos"))


@pytest.mark.parametrize("after", [7, 9, 14])
def test_random_numbers_go_on_after_an_interruption(tmp_path: Path, after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate("ring", Interrupted(after), out=tmp_path / "run", concurrency=1)
    evaluate("ring", Interrupted(1000), out=tmp_path / "run", resume=True)
    evaluate("ring", Interrupted(1000), out=tmp_path / "straight")
    assert lines(tmp_path / "run") == lines(tmp_path / "straight")
