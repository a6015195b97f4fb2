"""The paper's tables from run folders: its formulas, its check values, and its figures beside ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agl.core import Answer, Outcome, OutcomeKind, StopReason
from agl.errors import DataError
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play, Policy
from agl.policies.scripted import Oracle, Random, ScriptedDialogue
from agl.rollout import rollout
from agl.trace import Episode, Tokens
from envs.grit.actions import Solve
from envs.grit.build import SPLITS, Recipe, Split, _sizes, item, views
from envs.grit.env import GritEnv
from envs.grit.graphs import budget
from envs.grit.items import FORMS, SCHEMES, TASKS
from eval import grain_tables
from eval.grain_tables import (
    ERRORS,
    PAPER_TASKS,
    Run,
    Sample,
    average,
    density_tertiles,
    efficiency,
    errors,
    form_gap,
    mean,
    naming_variance,
    paper,
    part,
    read_runs,
    show,
    size_buckets,
    tables,
    variance,
)
from eval.runner import evaluate

SPLIT = Split("probe", 6, 9, 1, tsp_shift=0)
BASE = {task: item(SPLIT, Recipe(), task, 2, ("standard", "canonical")) for task in TASKS}


@pytest.mark.parametrize(
    ("percentages", "printed"),
    [
        ((83.33, 66.67, 75.00, 70.00), "52.5"),
        ((96.61, 91.53, 93.22, 96.67), "6.54"),
        ((80.39, 82.00, 82.35, 84.31), "2.59"),
        ((23.33, 13.33, 51.67, 40.00), "292"),
    ],
)
def test_naming_variance_is_the_papers(percentages: tuple[float, ...], printed: str) -> None:
    found = naming_variance([percentage / 100 for percentage in percentages]) * 1e4
    digits = len(printed.partition(".")[2])
    assert f"{found:.{digits}f}" == printed
    with pytest.raises(ValueError, match="at least two"):
        naming_variance([0.5])


def generated(split: Split) -> Run:
    """Sizes and densities of a split in the paper's model; nothing is solved or told."""
    samples: list[Any] = []
    for task in TASKS:
        for graph, n in enumerate(_sizes(split, 0, task)):
            m = n * (n - 1) // 2 if task == "tsp" else budget(task, n, "edge_budget")
            for _ in views(split, task, graph):
                told: Any = SimpleNamespace(n=n, m=m, directed=False)
                samples.append(Sample(told, None, {}, {}))  # type: ignore[arg-type]
    return Run("all", tuple(samples))


def test_buckets_of_the_test_split_are_the_papers() -> None:
    run = generated(SPLITS["test"])
    assert {name: len(part.samples) for name, part in size_buckets(run).items()} == {
        "10-15": 536,
        "16-20": 460,
        "21-30": 920,
        "31-40": 844,
    }
    tertiles = density_tertiles(run)
    assert {name: len(part.samples) for name, part in tertiles.items()} == {"low": 912, "mid": 920, "high": 928}
    densities = {name: sum(sample.density for sample in part.samples) for name, part in tertiles.items()}
    printed = {name: round(densities[name] / len(tertiles[name].samples), 3) for name in tertiles}
    assert printed == {"low": 0.310, "mid": 0.359, "high": 0.722}


def sample(task: str, right: bool, *, form: str = "standard", scheme: str = "canonical", **parts: float) -> Sample:
    told = BASE[task].model_copy(update={"form": form, "scheme": scheme})
    return Sample(told, EPISODE, {"acc": float(right), **parts}, {})


EPISODE = Episode(
    task={"id": "x"},
    attempt=0,
    policy="scripted",
    dialect="tags",
    transcript=(),
    events=(),
    score=None,
    outcome=Outcome(kind=OutcomeKind.OK, stop=StopReason.ANSWER),
    tokens=Tokens(sampled=7),
    seconds={"total": 1.0, "model": 0.5, "framework": 0.5},
)


def test_average_is_unweighted_and_needs_all_tasks() -> None:
    counts = {"shortest_path": 8, "coloring": 4, "tsp": 2, "vertex_cover": 1, "bfs": 1, "centrality": 1}
    samples = [sample(task, i % 2 == 0) for task, count in counts.items() for i in range(count)]
    run = Run("r", tuple(samples))
    found = average(run)
    assert found is not None
    assert found.value == pytest.approx((0.5 * 3 + 3) / 6)
    micro = mean(run, part("acc"))
    assert micro is not None
    assert micro.value == pytest.approx((4 + 2 + 1 + 3) / 17)
    assert average(run.where(lambda one: one.task.task != "tsp")) is None


def test_gap_and_variance_over_views() -> None:
    rates = dict(zip(SCHEMES, (10, 8, 9, 7), strict=True))
    samples = [
        sample("bfs", i < rate, scheme=scheme, form=FORMS[i % 2]) for scheme, rate in rates.items() for i in range(10)
    ]
    run = Run("r", tuple(samples))
    found = variance(run)
    assert found is not None
    assert found.value == pytest.approx(naming_variance([1.0, 0.8, 0.9, 0.7]))
    gap = form_gap(run)
    assert gap is not None
    standard = sum(one.parts["acc"] or 0 for one in samples if one.task.form == "standard") / 20
    realistic = sum(one.parts["acc"] or 0 for one in samples if one.task.form == "realistic") / 20
    assert gap.value == pytest.approx(abs(standard - realistic))
    assert gap.value > 0
    assert variance(run.where(lambda one: one.task.scheme != "mixed")) is None
    assert form_gap(run.where(lambda one: one.task.form == "standard")) is None


def test_published_figures_are_whole() -> None:
    accuracy = paper()["accuracy"]
    assert len(accuracy) == 15
    for row in accuracy.values():
        assert list(row) == [*PAPER_TASKS, "average"]
        known = [row[task] or 0.0 for task in PAPER_TASKS]
        assert row["average"] == pytest.approx(sum(known) / 6, abs=0.011)
    assert sum(value or 0 for value in paper()["errors"]["GRAIN Qwen3-4B"].values()) == 2760
    for row in paper()["ood"].values():
        assert (row["test"] or 0) - (row["ood"] or 0) == pytest.approx(row["gap"])
    assert set(paper()["errors"]["GRAIN Qwen3-4B"]) == set(ERRORS)


class Spoiler(Policy):
    """The oracle with its graph changed by `spoil`, or no call at all."""

    name = "spoiler"

    def __init__(self, spoil: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        self.spoil = spoil

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        turns = iter(range(9))

        def next_line() -> Any:
            action = play.env.oracle()
            if isinstance(action, Solve) and next(turns) == 0:
                graph = self.spoil(json.loads(json.dumps(action.graph)))
                if graph is None:
                    return play.dialect.write(Answer(text="\\boxed{0}")), "stop"
                return play.dialect.write(action.model_copy(update={"graph": graph})), "stop"
            return play.dialect.write(Answer(text="\\boxed{0}")), "stop"

        return ScriptedDialogue(next_line)


def first_edge(graph: dict[str, Any]) -> tuple[str, str]:
    return next((u, v) for u, near in graph["data"].items() for v in near)


def absent_edge(graph: dict[str, Any]) -> tuple[str, str]:
    data = graph["data"]
    return next((u, v) for u in data for v in data if u != v and v not in data[u] and u not in data[v])


def extra(graph: dict[str, Any]) -> dict[str, Any]:
    u, v = absent_edge(graph)
    graph["data"][u][v] = 1
    return graph


def missing(graph: dict[str, Any]) -> dict[str, Any]:
    u, v = first_edge(graph)
    del graph["data"][u][v]
    return graph


def weight(graph: dict[str, Any]) -> dict[str, Any]:
    u, v = first_edge(graph)
    graph["data"][u][v] += 5
    return {**graph, "weighted": True}


def node(graph: dict[str, Any]) -> dict[str, Any]:
    graph["data"]["Nowhere"] = {}
    return graph


async def test_the_seven_errors_are_counted() -> None:
    spoilt: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
        "exact": lambda graph: graph,
        "parse_failure": lambda graph: None,
        "node_set": node,
        "extra_edges": extra,
        "missing_edges": missing,
        "weight": weight,
        "mixed": lambda graph: weight(extra(graph)),
    }
    samples = []
    for name, spoil in spoilt.items():
        task = BASE["coloring" if name == "missing_edges" else "shortest_path"]
        episode = await rollout(GritEnv(), task, Spoiler(spoil))
        assert episode.score is not None
        samples.append(Sample(task, episode, episode.score.parts, episode.score.labels))
    found = errors(Run("r", tuple(samples)))
    assert {name: figure.value for name, figure in found.items() if figure} == dict.fromkeys(spoilt, 1)
    exact = mean(Run("r", tuple(samples)), part("exact"))
    edge_f1 = mean(Run("r", tuple(samples)), part("edge_f1"))
    assert exact is not None
    assert edge_f1 is not None
    assert exact.value == pytest.approx(1 / 7)
    assert exact.value < edge_f1.value < 1


def test_efficiency_is_that_of_the_summary() -> None:
    rng = random.Random(3)
    seconds = [rng.random() for _ in range(37)]
    samples = tuple(
        Sample(
            BASE["bfs"], EPISODE.model_copy(update={"seconds": {"total": s}}), {"rounds": 2.0, "tool_calls": 1.0}, {}
        )
        for s in seconds
    )
    found = {name: figure.value for name, figure in efficiency(Run("r", samples)).items() if figure}
    assert found["seconds_p90"] == sorted(seconds)[33]
    assert found["seconds"] == pytest.approx(sum(seconds) / 37)
    assert (found["rounds"], found["tool_calls"], found["tokens"]) == (2, 1, 7)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Real runs: the oracle and a random policy on a small split, and the oracle without a tool."""
    root = tmp_path_factory.mktemp("runs")
    made = {name: root / name for name in ("oracle", "random", "cot")}
    evaluate("grit", Oracle(), limit=48, out=made["oracle"])
    evaluate("grit", Random(), limit=48, out=made["random"])
    evaluate("grit", Oracle(), limit=48, out=made["cot"], env_options={"mode": "cot"})
    return made


def test_real_runs_become_tables(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    show(folders["oracle"], folders["oracle"], [folders["random"], folders["cot"]], style="json")
    told = json.loads(capsys.readouterr().out)
    assert told["runs"]["oracle"] == {"n": 48, "infra_failures": 0}
    found = told["tables"]
    ours = {key: table["ours"] for key, table in found.items()}
    assert set(ours["accuracy"]) == {"oracle", "random", "oracle (cot)"}
    accuracy = ours["accuracy"]["oracle"]
    assert [accuracy[task]["value"] for task in (*PAPER_TASKS, "average", "micro")] == [1.0] * 8
    assert [accuracy[task]["n"] for task in PAPER_TASKS] == [8] * 6
    assert all(accuracy[task]["low"] < 1 for task in PAPER_TASKS)
    assert ours["ood"] == {"oracle": {"test": accuracy["average"], "ood": accuracy["average"], "gap": FIGURE_OF_ZERO}}
    assert ours["errors"]["oracle"]["exact"]["value"] == 48
    assert sum(figure["value"] for figure in ours["errors"]["random"].values()) == 48
    assert ours["errors"]["oracle (cot)"]["exact"] is None
    assert ours["structure"]["oracle (cot)"] == {"node_f1": None, "edge_f1": None, "exact": None}
    assert ours["efficiency"]["oracle"]["rounds"]["value"] == 2
    assert ours["efficiency"]["oracle (cot)"]["rounds"]["value"] == 1
    assert ours["robustness"]["oracle"]["variance"]["value"] == 0
    assert found["robustness"]["published"]["GRAIN Qwen3-4B"]["variance"]["value"] == pytest.approx(4.64e-5)
    assert found["accuracy"]["published"]["GRAIN Qwen3-4B"]["average"]["value"] == pytest.approx(0.9576)
    assert found["errors"]["published"]["GRAIN Qwen3-4B"]["exact"]["value"] == 2685


FIGURE_OF_ZERO = {"value": 0.0, "low": None, "high": None, "n": None}


def test_markdown_and_terminal(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    show(folders["random"], None, [], style="markdown")
    text = capsys.readouterr().out
    assert "| *GRAIN Qwen3-4B* | 99.38 | 92.92 | 97.92 | 93.30 | 98.33 | 92.70 | 95.76 | - |" in text
    assert "| *GRAIN Qwen3-4B* | 1.14 | 4.64 | 96.76 |" in text
    assert "| *GRAIN Qwen3-4B* | 2,685 | 33 | 23 | 9 | 7 | 2 | 1 |" in text
    for block in text.split("\n\n**"):
        widths = {line.count(" | ") for line in block.splitlines() if line.startswith("| ") and "---" not in line}
        assert len(widths) == 1, block
    show(folders["random"], None, [], published=False)
    printed = capsys.readouterr().out
    assert "random" in printed
    assert "GRAIN" not in printed
    assert "Out of distribution" not in printed


def test_rows_with_equal_names_stay_apart(folders: dict[str, Path]) -> None:
    (run,) = read_runs(folders["oracle"])
    made = {table.key: table for table in tables([run, run])}
    assert list(made["accuracy"].ours) == ["oracle #1", "oracle #2"]


def test_a_folder_of_runs_and_lost_episodes(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("oracle", "random"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "episodes.jsonl"):
            (tmp_path / name / file).write_bytes((folders[name] / file).read_bytes())
    assert [run.name for run in read_runs(tmp_path)] == ["oracle", "random"]
    recorded = (tmp_path / "oracle" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    lost = json.loads(recorded[0])
    lost["score"] = None
    lost["outcome"] |= {"kind": "infra_failure", "stop": "error", "error": "gone"}
    (tmp_path / "oracle" / "episodes.jsonl").write_text(
        "\n".join([recorded[1], json.dumps(lost), *recorded[1:], recorded[0][:50]]), encoding="utf-8"
    )
    run = read_runs(tmp_path)[0]
    assert (len(run.samples), run.failures) == (47, 1)


def test_what_is_no_run_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no config\.json"):
        read_runs(tmp_path)
    with pytest.raises(DataError, match="expected the same policies"):
        show(folders["oracle"], folders["random"], [])
    (tmp_path / "config.json").write_text('{"env": "word", "policy": "oracle"}', encoding="utf-8")
    with pytest.raises(DataError, match="one of 'word'"):
        read_runs(tmp_path)
    (tmp_path / "config.json").write_text('{"env": "grit", "policy": "oracle"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"expected episodes\.jsonl"):
        read_runs(tmp_path)
    (tmp_path / "episodes.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="expected scored episodes"):
        read_runs(tmp_path)


def test_every_paper_column_is_filled_by_a_full_run(folders: dict[str, Path]) -> None:
    (run,) = read_runs(folders["oracle"])
    for table in tables([run], [run]):
        columns = {column for row in grain_tables.paper().get(table.key, {}).values() for column in row}
        known = {column for column, figure in table.ours["oracle"].items() if figure is not None}
        left = columns - known
        assert table.key == "size" or not left - {"tokens"}, (table.key, left)
