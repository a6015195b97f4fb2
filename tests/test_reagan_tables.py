"""Runs of ReaGAN as tables: same nodes only, baselines on these nodes, fallbacks and actions counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl.errors import DataError
from agl.graphs.sources import open_graph
from agl.policies.scripted import Player, Silent
from eval.baselines.cells import predict
from eval.paper_table import Figure
from eval.reagan_tables import read_runs, tables
from eval.runner import evaluate
from tests.agl_process import agl
from tests.reagan_graphs import blocks


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for policy in (Player("oracle-planner"), Silent()):
        evaluate("reagan", policy, limit=12, out=folder / policy.name)
    evaluate("reagan", Player("vote"), limit=5, out=folder.parent / "fewer")
    return folder


def test_accuracy_stands_beside_the_baselines_on_the_same_nodes(runs: Path) -> None:
    found = read_runs(runs)
    accuracy = tables(found, ["vote"])[0].ours
    graph = open_graph("networkx-docs")
    said = predict(graph, graph.split, "vote")
    tasks = found[0].tasks
    right = [int(said[graph.index_of(task.node)]) == task.gold for task in tasks]
    vote = accuracy["baseline vote"]["accuracy"]
    assert vote is not None
    assert vote.value == pytest.approx(sum(right) / 12)
    assert vote.n == 12
    decided = {name: row["decided"] for name, row in accuracy.items() if "decided" in row}
    assert [figure.value for figure in decided.values() if figure is not None] == [1.0, 0.0]


def test_fallbacks_are_counted_by_rule_and_label(runs: Path) -> None:
    rows = tables(read_runs(runs), [])[2].ours
    by_run = {name: {column: figure.value for column, figure in row.items() if figure} for name, row in rows.items()}
    silent = next(row for name, row in by_run.items() if "silent" in name)
    planner = next(row for name, row in by_run.items() if "planner" in name)
    assert planner["fallbacks"] == 0
    assert silent["fallbacks"] == 12 == silent["by local"] + silent["by global"] + silent["by train"]
    assert sum(value for name, value in silent.items() if name != "fallbacks" and not name.startswith("by ")) == 12


def test_the_actions_of_a_layer_add_up(runs: Path) -> None:
    rows = tables(read_runs(runs), [])[1].ours
    planner = next(row for name, row in rows.items() if "planner" in name)
    for layer in ("1", "2"):
        assert sum(figure.value for name, figure in planner.items() if figure and name[0] == layer) == pytest.approx(1)


def test_runs_over_other_nodes_are_refused(runs: Path) -> None:
    with pytest.raises(DataError, match="same nodes"):
        tables([*read_runs(runs), *read_runs(runs.parent / "fewer")], [])


def test_the_command(runs: Path) -> None:
    done = agl("reagan", "table", str(runs), "--baseline", "none", "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["tables"]) == {"accuracy", "actions", "fallbacks", "costs"}
    wrong = agl("reagan", "table", str(runs), "--baseline", "gnn", cwd=runs)
    assert wrong.returncode == 2
    assert "gprgnn" in wrong.stderr


def test_attempts_at_one_node_are_no_independent_trials(tmp_path: Path) -> None:
    evaluate("reagan", Player("oracle-planner"), limit=12, out=tmp_path / "once")
    evaluate("reagan", Player("oracle-planner"), limit=12, attempts=3, out=tmp_path / "thrice")
    accuracy = tables([*read_runs(tmp_path / "once"), *read_runs(tmp_path / "thrice")], [])[0].ours
    figures = [row["accuracy"] for row in accuracy.values()]
    assert [figure.n for figure in figures if figure is not None] == [12, 36]
    assert len({figure.value for figure in figures if figure is not None}) == 1
    once, thrice = (
        figure.high - figure.low
        for figure in figures
        if figure is not None and figure.high is not None and figure.low is not None
    )
    assert thrice >= 0.99 * once, "repeating what is deterministic tells nothing new"


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for name, layers in (("a", 1), ("b", 2)):
        evaluate("reagan", Player("vote"), limit=5, env_options={"layers": layers}, out=tmp_path / name / "run")
    done = agl("reagan", "table", "a/run", "b/run", "--baseline", "none", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told["runs"]) == set(told["tables"]["costs"]["ours"]) == {"a/run (vote)", "b/run (vote)"}


def test_a_split_by_its_code_has_the_published_rows_too(tmp_path: Path) -> None:
    graph = blocks(tmp_path / "cora")
    meta = json.loads((graph / "meta.json").read_text())
    (graph / "meta.json").write_text(json.dumps({**meta, "name": "cora"}))
    for split in ("79-1-20", "79/1/20"):
        evaluate("reagan", Player("vote"), data=f"{graph}@{split}", out=tmp_path / "runs" / split.replace("/", "_"))
    accuracy = tables(read_runs(tmp_path / "runs"), [])[0]
    assert len(accuracy.ours) == 2
    assert accuracy.published["ReaGAN (by others)"]["accuracy"] == Figure(value=0.8495)
