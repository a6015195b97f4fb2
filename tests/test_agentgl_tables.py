"""Runs of AgentGL as tables: graphs side by side, baselines on the same nodes, and the leak probe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl.errors import DataError
from agl.graphs.sources import open_graph
from agl.graphs.sources.folder import write_folder
from agl.policies.scripted import Player
from envs.agentgl.links import auc
from eval.agentgl_tables import read_runs, tables
from eval.baselines.cells import predict
from eval.runner import evaluate
from tests.agl_process import agl


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for player in ("vote", "all-tools"):
        evaluate("agentgl-nc", Player(player), limit=15, out=folder / "nc" / player)
    for leaky in (False, True):
        options = {"leaky": True} if leaky else {}
        evaluate("agentgl-lp", Player("probe"), limit=60, env_options=options, out=folder / "lp" / f"{leaky}")
    evaluate("agentgl-nc", Player("vote"), limit=4, out=folder / "fewer")
    return folder


def test_graphs_are_columns_and_baselines_stand_on_the_same_nodes(runs: Path) -> None:
    found = read_runs(runs / "nc")
    accuracy, searches, *_ = tables(found, ["vote"], published=False)
    assert accuracy.columns == ("networkx-docs",)
    graph = open_graph("networkx-docs")
    said = predict(graph, graph.split, "vote")
    nodes = [graph.index_of(episode.task["node"]) for episode in found[0].episodes]
    right = sum(int(said[node]) == int(graph.labels[node]) for node in nodes)
    vote = accuracy.ours["baseline vote"]["networkx-docs"]
    assert vote is not None
    assert vote.value == pytest.approx(right / 15)
    assert vote.n == 15
    every = searches.ours["all-tools, networkx-docs"]["searches"]
    assert every is not None
    assert every.value == 4


def test_a_baseline_needs_the_same_nodes(runs: Path) -> None:
    with pytest.raises(DataError, match="same nodes"):
        tables([*read_runs(runs / "nc"), *read_runs(runs / "fewer")], ["vote"])


def test_the_probe_shows_what_a_leak_is_worth(runs: Path) -> None:
    found = read_runs(runs / "lp")
    probe = next(table for table in tables(found, published=False) if table.key == "probe")
    honest, leaky = (row["networkx-docs"] for row in probe.ours.values())
    assert honest is not None
    assert leaky is not None
    assert leaky.value > honest.value + 0.1
    scores = [episode.score for episode in found[0].episodes if episode.score is not None]
    overlaps = [float(score.parts["probe"] or 0) for score in scores]
    assert honest.value == pytest.approx(auc(overlaps, [score.labels["gold"] == "yes" for score in scores]))


def test_transfer_knows_what_a_policy_was_trained_on(runs: Path, tmp_path: Path) -> None:
    trained = tmp_path / "stage1"
    evaluate("agentgl-lp", Player("probe"), data="networkx-docs@train", limit=2, out=trained)
    write_folder(open_graph("networkx-docs"), tmp_path / "other")
    for name, data in (("known", "networkx-docs"), ("unknown", str(tmp_path / "other"))):
        folder = tmp_path / "tests" / name
        evaluate("agentgl-lp", Player("common-neighbours"), data=data, limit=20, out=folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "policy": f"hf:{trained}/checkpoint-2"}))
    transfer = next(one for one in tables(read_runs(tmp_path / "tests")) if one.key == "link_transfer")
    ((name, row),) = transfer.ours.items()
    assert name.startswith("networkx-docs: hf:")
    assert transfer.columns == ("networkx-docs", "other", "zero-shot")
    zero, other = row["zero-shot"], row["other"]
    assert zero is not None
    assert other is not None
    assert zero.value == other.value
    assert not [one for one in tables(read_runs(runs / "lp")) if one.key.endswith("transfer")]


def test_the_command(runs: Path) -> None:
    done = agl("agentgl", "table", str(runs / "nc"), "--json", cwd=runs)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["node_published"]["published"]["7B AgentGL-GRPO"]["Arxiv"]["value"] == pytest.approx(0.689)
    wrong = agl("agentgl", "table", str(runs / "nc"), "--baseline", "gnn", cwd=runs)
    assert wrong.returncode == 2


def test_attempts_at_one_target_are_no_independent_trials(tmp_path: Path) -> None:
    for attempts in (1, 3):
        evaluate("agentgl-nc", Player("vote"), limit=12, attempts=attempts, out=tmp_path / str(attempts))
    runs = [run for attempts in (1, 3) for run in read_runs(tmp_path / str(attempts))]
    accuracy = tables(runs, ["vote"], published=False)[0]
    assert "networkx-docs 12" in accuracy.title
    figures = {name: row["networkx-docs"] for name, row in accuracy.ours.items()}
    assert list(figures) == ["baseline vote", "vote #1", "vote #2"]
    baseline, once, thrice = figures.values()
    assert baseline is not None
    assert once is not None
    assert thrice is not None
    assert (baseline.n, once.n, thrice.n) == (12, 12, 36)
    assert once.value == thrice.value
    assert thrice.low == pytest.approx(once.low, abs=0.01), "repeating what is deterministic tells nothing new"
    assert thrice.high == pytest.approx(once.high, abs=0.01)


def test_runs_of_one_name_have_a_row_each_and_graphs_share_it(tmp_path: Path) -> None:
    write_folder(open_graph("networkx-docs"), tmp_path / "other")
    for place, data in (("a", "networkx-docs"), ("b", "networkx-docs"), ("c", str(tmp_path / "other"))):
        evaluate("agentgl-nc", Player("vote"), data=data, limit=3, seed=ord(place), out=tmp_path / "runs" / place)
    accuracy = tables(read_runs(tmp_path / "runs"), published=False)[0]
    assert {name: set(row) for name, row in accuracy.ours.items()} == {
        "vote #1": {"networkx-docs", "other"},
        "vote #2": {"networkx-docs"},
    }
