"""Paired comparison of two runs: its figures, its laws, and what it refuses."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.core import Outcome, OutcomeKind, StopReason
from agl.errors import UserError
from agl.policies.scripted import Oracle, Random, Silent
from agl.registry import register
from agl.stats import clustered, mcnemar, paired
from agl.trace import Episode, read_episodes
from eval.compare import Comparison, compare, rendered
from eval.runner import evaluate
from eval.tables import console
from tests.agl_process import agl
from tests.toy_env import ToyEnv, ToyTask

values = st.floats(-100, 100, allow_nan=False).map(lambda value: value + 0.0)
rows = st.lists(st.tuples(values, values, st.sampled_from("abcde")), min_size=1, max_size=40)


class PairsEnv(ToyEnv):
    """The toy env with two tasks to a cluster."""

    @classmethod
    def cluster(cls, task: ToyTask) -> str:
        return str(int(task.id[-3:]) // 2)


@pytest.fixture(autouse=True)
def others(toy: None) -> None:
    register("other", "tests.toy_env:ToyEnv")
    register("pairs", "tests.test_compare:PairsEnv")


def columns(found: Sequence[tuple[float, float, str]]) -> tuple[list[float], list[float], list[str]]:
    return [row[0] for row in found], [row[1] for row in found], [row[2] for row in found]


def test_mcnemar_by_hand() -> None:
    # One win against eight: 2 * (C(9, 0) + C(9, 1)) / 2^9.
    assert mcnemar(1, 8) == mcnemar(8, 1) == pytest.approx(20 / 512)
    assert mcnemar(0, 5) == pytest.approx(2 / 2**5)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0
    with pytest.raises(ValueError, match="at least 0"):
        mcnemar(-1, 2)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_binomial_tail(a_only: int, b_only: int) -> None:
    n, least = a_only + b_only, min(a_only, b_only)
    tail = sum(math.comb(n, k) for k in range(least + 1)) / 2**n
    assert mcnemar(a_only, b_only) == pytest.approx(min(1.0, 2 * tail))


def test_a_constant_difference_is_found_without_doubt() -> None:
    found = paired([1.0, 2.0, 3.0, 6.0], [1.5, 2.5, 3.5, 6.5], ["a", "a", "b", "c"])
    assert found == (4, 3, 3.0, 3.5, 0.5, 0.5, 0.5)
    assert paired([1.0, 2.0], [2.0, 2.0], ["a", "a"]) == (2, 1, 1.5, 2.0, 0.5, None, None)
    with pytest.raises(ValueError, match="at least one pair"):
        paired([], [], [])


def test_two_clusters_give_the_interval_of_all_resamples() -> None:
    # Means of resamples: 0, 1/4, 1 with chances 1/4, 1/2, 1/4 (cluster a holds three of the four pairs).
    found = paired([0.0] * 4, [0.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b"])
    assert (found.difference, found.low, found.high) == (0.25, 0.0, 1.0)


def test_the_interval_agrees_with_the_clustered_standard_error() -> None:
    rng = random.Random(3)
    groups = [[rng.gauss(centre, 1) for _ in range(4)] for centre in (rng.gauss(0.3, 1) for _ in range(200))]
    flat = [(0.0, value, str(index)) for index, group in enumerate(groups) for value in group]
    found, se = paired(*columns(flat)), clustered(groups)
    assert found.low is not None
    assert found.high is not None
    assert found.difference == pytest.approx(se.mean)
    assert found.high - found.low == pytest.approx(2 * 1.96 * se.se, rel=0.12)
    assert found.high - found.low > 1.3 * 2 * 1.96 * se.naive_se


def test_the_interval_covers_the_truth_as_often_as_promised() -> None:
    rng = random.Random(11)
    covered = 0
    for _ in range(200):
        flat = []
        for cluster in range(40):
            gain = rng.gauss(0.2, 0.5)
            flat += [(base := rng.random(), base + rng.gauss(gain, 0.5), str(cluster)) for _ in range(4)]
        found = paired(*columns(flat), draws=400)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.2 <= found.high
    assert 0.89 <= covered / 200 <= 0.99


@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_pairs_changes_nothing(found: list[tuple[float, float, str]], rng: random.Random) -> None:
    mixed = rng.sample(found, len(found))
    assert paired(*columns(mixed), draws=50) == paired(*columns(found), draws=50)


@given(rows)
def test_the_sign_turns_with_the_sides(found: list[tuple[float, float, str]]) -> None:
    a, b, clusters = columns(found)
    there, back = paired(a, b, clusters, draws=50), paired(b, a, clusters, draws=50)
    assert (back.a, back.b, back.difference) == (there.b, there.a, -there.difference)
    if there.low is not None and there.high is not None:
        assert (back.low, back.high) == (-there.high, -there.low)
        assert there.low <= there.high


@given(rows)
def test_a_side_against_itself_is_no_difference(found: list[tuple[float, float, str]]) -> None:
    a, _, clusters = columns(found)
    same = paired(a, a, clusters, draws=50)
    assert same.difference == 0
    assert (same.low or 0, same.high or 0) == (0, 0)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a", tmp_path / "b"
    evaluate("pairs", Random(), data="train", limit=60, out=a)
    evaluate("pairs", Oracle(), data="train", limit=60, out=b)
    return a, b


def rewrite(run: Path, change: Callable[[list[Episode]], list[Episode]]) -> None:
    path = run / "episodes.jsonl"
    path.write_text("".join(episode.line() + "\n" for episode in change(list(read_episodes(path)))))


def fail(episode: Episode) -> Episode:
    outcome = Outcome(kind=OutcomeKind.INFRA_FAILURE, stop=StopReason.ERROR, error="server down")
    return episode.model_copy(update={"score": None, "outcome": outcome})


def test_the_figures_are_those_of_the_two_runs(runs: tuple[Path, Path]) -> None:
    found = compare(*runs)
    summaries = [json.loads((run / "summary.json").read_text())["metrics"] for run in runs]
    for name in ("score", "reward", "arrived", "moves"):
        row = found.metrics[name]
        assert (row.a, row.b) == pytest.approx(tuple(metrics[name]["value"] for metrics in summaries))
        assert row.difference == pytest.approx(row.b - row.a)
        assert (row.n, row.clusters) == (60, 30)
    score = found.metrics["score"]
    assert score.mcnemar is not None
    right = round(score.a * 60)
    assert (score.mcnemar.a_only, score.mcnemar.b_only) == (0, 60 - right)
    assert score.mcnemar.p == pytest.approx(min(1.0, 2 / 2 ** (60 - right)))
    assert found.differences == {"policy": ("random", "oracle")}
    assert list(found.metrics)[:4] == ["score", "reward", "arrived", "moves"]
    assert list(found.metrics)[-3:] == ["rounds", "tokens", "seconds"]
    assert found.metrics["reward"].mcnemar is None
    assert sum(row.n for row in found.groups["distance"].values()) == 60
    assert list(found.groups["distance"]) == sorted(found.groups["distance"])


def test_rounds_are_the_turns_of_the_policy(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=10, out=tmp_path)
    row = compare(tmp_path, tmp_path).metrics["rounds"]
    actions = [len(episode.events) for episode in read_episodes(tmp_path / "episodes.jsonl")]
    assert row.a == pytest.approx(sum(actions) / 10)


def test_a_run_does_not_differ_from_itself(runs: tuple[Path, Path]) -> None:
    found = compare(runs[0], runs[0])
    assert found.differences == {}
    for row in (*found.metrics.values(), *found.groups["distance"].values()):
        assert (row.difference, row.low or 0, row.high or 0) == (0, 0, 0)
        assert row.mcnemar is None or (row.mcnemar.a_only, row.mcnemar.b_only, row.mcnemar.p) == (0, 0, 1)


def test_the_other_way_round_turns_the_signs(runs: tuple[Path, Path]) -> None:
    there, back = compare(*runs), compare(*reversed(runs))
    for name, row in there.metrics.items():
        turned = back.metrics[name]
        assert turned.difference == -row.difference
        assert (turned.low, turned.high) == (-(row.high or 0), -(row.low or 0))
    assert back.metrics["score"].mcnemar.p == there.metrics["score"].mcnemar.p  # type: ignore[union-attr]


def test_the_order_of_episodes_in_the_file_changes_nothing(runs: tuple[Path, Path]) -> None:
    before = compare(*runs)
    rewrite(runs[0], lambda episodes: random.Random(2).sample(episodes, len(episodes)))
    assert compare(*runs) == before


def test_infrastructure_failures_are_left_out_in_pairs(runs: tuple[Path, Path]) -> None:
    rewrite(runs[0], lambda episodes: [fail(episodes[0]), fail(episodes[1]), *episodes[2:]])
    rewrite(runs[1], lambda episodes: [episodes[0], fail(episodes[1]), fail(episodes[2]), *episodes[3:]])
    found = compare(*runs)
    assert (found.pairs, found.excluded) == (57, 3)
    assert (found.a.infra_failures, found.b.infra_failures) == (2, 2)
    assert found.metrics["score"].n == 57
    assert found.metrics["score"].b == 1.0


def test_only_common_attempts_are_paired(tmp_path: Path) -> None:
    evaluate("toy", Random(), limit=5, attempts=3, out=tmp_path / "a")
    evaluate("toy", Oracle(), limit=5, out=tmp_path / "b")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.pairs, found.a.unpaired, found.b.unpaired) == (5, 10, 0)
    assert found.differences["attempts"] == (3, 1)


def test_parts_of_one_run_only_are_named_and_left_out(runs: tuple[Path, Path]) -> None:
    def widened(episodes: list[Episode]) -> list[Episode]:
        made = []
        for index, episode in enumerate(episodes):
            assert episode.score is not None
            parts = {**episode.score.parts, "extra": 1.0, "moves": None if index < 10 else episode.score.parts["moves"]}
            made.append(episode.model_copy(update={"score": episode.score.model_copy(update={"parts": parts})}))
        return made

    rewrite(runs[1], widened)
    found = compare(*runs)
    assert found.only_in_one == ["extra"]
    assert "extra" not in found.metrics
    assert found.metrics["moves"].n == 50


def test_a_score_between_0_and_1_has_no_mcnemar(runs: tuple[Path, Path]) -> None:
    def halved(episodes: list[Episode]) -> list[Episode]:
        assert episodes[0].score is not None
        score = episodes[0].score.model_copy(update={"total": 0.5})
        return [episodes[0].model_copy(update={"score": score}), *episodes[1:]]

    rewrite(runs[1], halved)
    assert compare(*runs).metrics["score"].mcnemar is None


def change_config(run: Path, **changes: Any) -> None:
    path = run / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_options_that_may_differ_are_listed(runs: tuple[Path, Path]) -> None:
    change_config(runs[1], shots=2, env_options={"mode": "direct"}, sampling={"temperature": 0.7}, dialect="tools")
    found = compare(*runs)
    assert found.differences == {
        "dialect": ("tags", "tools"),
        "env_options.mode": (None, "direct"),
        "policy": ("random", "oracle"),
        "sampling.temperature": (None, 0.7),
        "shots": (0, 2),
    }


def torn(run: Path) -> None:
    path = run / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-40])


def without_break(run: Path) -> None:
    path = run / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-1])


def resumed_and_torn(run: Path) -> None:
    with (run / "episodes.jsonl").open("a") as file:
        file.write('{"task": {"id"')


def emptied(run: Path) -> None:
    (run / "episodes.jsonl").write_text("")
    change_config(run, tasks=0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (emptied, r"expected a finished run in .*, got 0 of 0 episodes"),
        (lambda run: change_config(run, env="toy"), "expected two runs of one environment, got pairs in .* and toy in"),
        (
            lambda run: change_config(run, data_sha256="0" * 64, seed=1),
            r"got seed 0 in .* and seed 1 in .* same --seed",
        ),
        (lambda run: change_config(run, data_sha256="0" * 64, limit=9), r"got limit 60 in .* limit 9 .* same --limit"),
        (lambda run: change_config(run, data_sha256="0" * 64, data="x"), r'got data "train" in .* data "x" in'),
        (lambda run: change_config(run, data_sha256="0" * 64), "differ in content although"),
        (lambda run: change_config(run, data_sha256=None), "expected env and data_sha256 in"),
        (torn, r"expected a finished run in .*, got 59 of 60 episodes; continue it with --out .* --resume"),
        (without_break, "last line is torn"),
        (resumed_and_torn, "last line is torn"),
        (lambda run: rewrite(run, lambda episodes: episodes[:10]), "got 10 of 60 episodes"),
        (lambda run: rewrite(run, lambda episodes: [*map(fail, episodes)]), "60 common and none scored in both"),
        (lambda run: (run / "summary.json").unlink(), r"got one without summary\.json"),
        (lambda run: (run / "episodes.jsonl").unlink(), r"expected the episodes\.jsonl of a run"),
        (lambda run: (run / "config.json").unlink(), r"expected config\.json in the run folder"),
        (lambda run: (run / "config.json").write_text("[]"), "expected a JSON object"),
        (lambda run: run.rename(run.parent / "away"), "which does not exist"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    runs: tuple[Path, Path], spoil: Callable[[Path], object], message: str
) -> None:
    spoil(runs[1])
    with pytest.raises(UserError, match=message) as caught:
        compare(*runs)
    assert "\n" not in str(caught.value)


def test_a_seed_of_generated_tasks_is_refused_and_runs_inside_are_named(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=3, out=tmp_path / "a")
    evaluate("toy", Oracle(), limit=3, seed=1, out=tmp_path / "b")
    with pytest.raises(UserError, match="same --seed"):
        compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UserError, match=r"whose sub-folders hold runs; name one, such as .*a"):
        compare(tmp_path, tmp_path / "a")


def printed(found: Comparison, capsys: pytest.CaptureFixture[str]) -> str:
    screen = console()
    for item in rendered(found):
        screen.print(item, soft_wrap=True)
    return capsys.readouterr().out


def test_the_table_says_what_differs_and_what_was_left_out(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(runs[0], lambda episodes: [fail(episodes[0]), *episodes[1:]])
    change_config(runs[1], policy="openai:[red]m\x1b[2J@http://h")
    shown = printed(compare(*runs), capsys)
    assert 'differs: policy: A "random", B "openai:[red]m' in shown
    assert "\x1b" not in shown
    assert "pairs: 59; left out: 1 (infrastructure failures A 1, B 0)" in shown
    assert "distance = 1" in shown
    assert "McNemar's test takes 59 pairs as independent, but they share 30 clusters" in shown


def test_the_command_prints_a_table_or_one_object(tmp_path: Path) -> None:
    evaluate("toy", Silent(), limit=6, out=tmp_path / "a")
    evaluate("toy", Oracle(), limit=6, out=tmp_path / "b")
    told = agl("compare", "a", "b", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "+1.000 [+1.000, +1.000]" in told.stdout
    assert "0.0312" in told.stdout
    done = [agl("compare", "a", "b", "--json", cwd=tmp_path, hash_seed=seed) for seed in (0, 1)]
    assert done[0].stdout == done[1].stdout
    assert json.loads(done[0].stdout)["metrics"]["score"]["mcnemar"] == {"a_only": 0, "b_only": 6, "p": 2 / 64}


def test_wrong_arguments_exit_with_2_and_help_has_an_example(tmp_path: Path) -> None:
    for arguments in (["compare", "a", "b"], ["compare", "a"], ["compare"]):
        done = agl(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("agl: ")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert "Example: agl compare" in agl("compare", "--help", cwd=tmp_path).stdout
