"""Frozen evaluation: the run folder, the summary, infrastructure failures, determinism."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agl.errors import DataError, InfraError, UserError
from agl.messages import Injection, Prompt
from agl.policies.policy import Dialogue, Play, Policy, Sample, Sampling
from agl.policies.scripted import Oracle, Random, Silent
from agl.registry import register
from agl.rollout import Limits
from agl.trace import read_episodes
from eval.runner import Progress, RunStoppedError, evaluate
from tests.agl_process import agl
from tests.toy_env import ToyEnv, ToyTask


class RepeatingEnv(ToyEnv):
    """Two tasks of one name."""

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[ToyTask]:
        return [*super().tasks(source, seed=seed, limit=1), *super().tasks(source, seed=seed, limit=1)]


@pytest.fixture(autouse=True)
def others(toy: None) -> None:
    register("repeating", "tests.test_runner:RepeatingEnv")


class Mortal(Policy):
    """The oracle behind a server that dies after `lives` samples."""

    name = "mortal"

    def __init__(self, lives: int) -> None:
        self.lives = lives
        self.closed = False

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return _MortalDialogue(self, Oracle().open(prompt, seed=seed, play=play))

    async def aclose(self) -> None:
        self.closed = True


class _MortalDialogue(Dialogue):
    def __init__(self, policy: Mortal, oracle: Dialogue) -> None:
        self._policy, self._oracle = policy, oracle

    async def sample(self, stops: Sequence[str]) -> Sample:
        self._policy.lives -= 1
        if self._policy.lives < 0:
            raise InfraError("the server at http://localhost:1 does not answer")
        return await self._oracle.sample(stops)

    def inject(self, injection: Injection) -> None:
        self._oracle.inject(injection)

    def fork(self) -> Dialogue:
        return _MortalDialogue(self._policy, self._oracle.fork())


NO_RETRY = Limits(retries=0)


def test_the_run_folder_holds_config_episodes_and_summary(tmp_path: Path) -> None:
    out = tmp_path / "run"
    summary = evaluate("toy", Oracle(), limit=8, shots=1, sampling=Sampling(temperature=0.5), out=out)
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "episodes.jsonl", "summary.json"]
    config = json.loads((out / "config.json").read_text())
    assert {name: config[name] for name in ("env", "policy", "limit", "shots", "attempts", "dialect", "seed")} == {
        "env": "toy",
        "policy": "oracle",
        "limit": 8,
        "shots": 1,
        "attempts": 1,
        "dialect": "tags",
        "seed": 0,
    }
    assert config["sampling"]["temperature"] == 0.5
    assert len(config["data_sha256"]) == 64
    assert "agl" in config["versions"]
    written = json.loads((out / "summary.json").read_text())
    assert list(written) == ["env", "policy", "n", "metrics", "outcomes", "tokens", "seconds", "groups"]
    assert written["n"] == summary.n == 8
    assert written["metrics"]["score"] == pytest.approx({"value": 1.0, "low": 0.675592, "high": 1.0, "n": 8}, abs=1e-5)
    assert written["metrics"]["reward"]["value"] == 2.0
    assert written["outcomes"]["stop"] == {"answer": 8}
    assert sum(group["n"] for group in written["groups"]["distance"].values()) == 8


def test_episodes_stand_in_task_order_and_once(tmp_path: Path) -> None:
    evaluate("toy", Random(), data="train", limit=20, attempts=3, concurrency=8, out=tmp_path)
    keys = [episode.key for episode in read_episodes(tmp_path / "episodes.jsonl")]
    assert keys == [(f"train-{task:03d}", attempt) for task in range(20) for attempt in range(3)]


def test_silence_scores_nothing_and_is_the_policys_failure(tmp_path: Path) -> None:
    summary = evaluate("toy", Silent(), out=tmp_path)
    assert summary.metrics["score"].value == 0
    assert summary.metrics["reward"].value == -1
    assert (summary.outcomes.ok, summary.outcomes.policy_failure, summary.outcomes.infra_failure) == (0, 20, 0)


def test_repeats_of_a_task_are_one_cluster(tmp_path: Path) -> None:
    once = evaluate("toy", Oracle(), out=tmp_path / "once")
    many = evaluate("toy", Oracle(), attempts=5, out=tmp_path / "many")
    assert many.metrics["score"].n == 100
    assert many.metrics["score"].low == pytest.approx(once.metrics["score"].low)
    assert "pass@5" not in once.metrics
    assert (many.metrics["pass@5"].value, many.metrics["pass^5"].value, many.metrics["pass@5"].n) == (1.0, 1.0, 20)


def test_a_dying_server_stops_the_run_and_resume_completes_it(tmp_path: Path) -> None:
    policy = Mortal(lives=30)
    with pytest.raises(RunStoppedError, match=r"stopped after 5 infrastructure failures .*does not answer") as caught:
        evaluate("toy", policy, data="train", concurrency=4, limits=NO_RETRY, out=tmp_path)
    assert "\n" not in str(caught.value)
    assert policy.closed
    assert not (tmp_path / "summary.json").exists()
    kept = [episode for episode in read_episodes(tmp_path / "episodes.jsonl") if episode.is_sample]
    assert kept
    seen: list[int] = []
    summary = evaluate(
        "toy",
        Mortal(lives=10_000),
        data="train",
        out=tmp_path,
        resume=True,
        on_episode=lambda progress: seen.append(progress.total),
    )
    assert seen[0] == 100 - len(kept)
    assert (summary.n, summary.outcomes.infra_failure) == (100, 0)
    assert len(list(read_episodes(tmp_path / "episodes.jsonl"))) == 100


def test_a_few_infrastructure_failures_are_counted_and_not_scored(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), out=tmp_path / "oracle")
    played = list(read_episodes(tmp_path / "oracle" / "episodes.jsonl"))
    lives = sum(turn.source == "sampled" for episode in played[:-2] for turn in episode.transcript)
    summary = evaluate("toy", Mortal(lives), concurrency=1, limits=NO_RETRY, out=tmp_path / "mortal")
    assert (summary.n, summary.outcomes.infra_failure) == (18, 2)
    assert summary.metrics["score"].value == 1.0
    assert summary.metrics["score"].n == 18


def test_a_retried_sample_is_counted_and_shown_apart(tmp_path: Path) -> None:
    class Hiccup(Oracle):
        struck = False

        def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
            if play.env.task.id == "test-002" and not self.struck:
                self.struck = True
                raise InfraError("connection reset")
            return super().open(prompt, seed=seed, play=play)

    summary = evaluate("toy", Hiccup(), limit=4, out=tmp_path)
    assert (summary.n, summary.outcomes.retried, summary.outcomes.infra_failure) == (4, 1, 0)
    assert summary.metrics["score_without_retried"].n == 3
    (retried,) = [episode for episode in read_episodes(tmp_path / "episodes.jsonl") if episode.outcome.retries]
    assert retried.outcome.error == "connection reset"


def test_a_run_without_a_single_sample_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RunStoppedError, match="no episode of 2 could be played: the server"):
        evaluate("toy", Mortal(0), limit=2, limits=NO_RETRY, out=tmp_path)


def test_an_unreachable_backend_leaves_no_folder(tmp_path: Path) -> None:
    class Absent(Oracle):
        async def prepare(self) -> None:
            raise InfraError("no server at http://localhost:1")

    with pytest.raises(InfraError, match="no server"):
        evaluate("toy", Absent(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_progress_tells_where_the_run_stands(tmp_path: Path) -> None:
    seen: list[tuple[int, int, float | None]] = []

    def watch(progress: Progress) -> None:
        seen.append((progress.finished, progress.total, progress.mean_score))

    evaluate("toy", Oracle(), limit=3, out=tmp_path, on_episode=watch)
    assert seen == [(0, 3, None), (1, 3, 1.0), (2, 3, 1.0), (3, 3, 1.0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0}, "--limit of at least 1, got 0"),
        ({"attempts": 0}, "--attempts of at least 1"),
        ({"concurrency": 0}, "--concurrency of at least 1"),
        ({"limits": Limits(deadline=float("nan"))}, "--deadline"),
        ({"sampling": Sampling(temperature=-1)}, "--temperature"),
        ({"sampling": Sampling(top_p=0)}, "top_p"),
        ({"dialect": "morse"}, "dialect"),
        ({"data": "nowhere.jsonl"}, "nowhere.jsonl"),
        ({"env_options": {"speed": 3}}, "expected an option of the environment toy, got 'speed'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        evaluate("toy", Oracle(), out=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_tasks_that_share_an_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unique task ids .*'test-000' twice"):
        evaluate("repeating", Oracle(), out=tmp_path / "run")


@pytest.mark.parametrize("env", ["toy", pytest.param("grit", marks=pytest.mark.slow)])
def test_records_do_not_depend_on_hash_seed_or_concurrency(tmp_path: Path, env: str) -> None:
    found: dict[str, set[str]] = {"oracle": set(), "random": set()}
    for hash_seed, concurrency in ((0, 1), (1, 8), (2, 1), (0, 8)):
        out = tmp_path / f"{hash_seed}-{concurrency}"
        options = ["--policy", "oracle", "--policy", "random", "--limit", "12", "--attempts", "2", "--out", str(out)]
        done = agl("eval", env, *options, "--concurrency", str(concurrency), cwd=tmp_path, hash_seed=hash_seed)
        assert done.returncode == 0, done.stderr
        for policy in found:
            lines = (out / policy / "episodes.jsonl").read_text().splitlines()
            records = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
            assert len(records) == 24
            found[policy].add(json.dumps(records))
    assert {policy: len(records) for policy, records in found.items()} == {"oracle": 1, "random": 1}
