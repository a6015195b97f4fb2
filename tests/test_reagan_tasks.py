"""ReaGAN's tasks: which nodes are asked for, under which split, and which data are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agl.errors import DataError
from agl.graphs.sources import open_graph
from agl.graphs.sources.splits import random_split
from envs.reagan.env import ReaganEnv
from envs.reagan.tasks import open_split
from eval.baselines.table import split_codes as baseline_splits
from tests.reagan_graphs import blocks
from tests.text_graphs import node, write


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_all_labelled_test_nodes_are_asked_for_once(tmp_path: Path) -> None:
    data = str(blocks(tmp_path / "g"))
    graph = open_graph(data)
    tasks = ReaganEnv.tasks(data)
    assert sorted(int(task.node) for task in tasks) == graph.nodes_in("test").tolist()
    assert ReaganEnv.tasks(data, limit=4) == tasks[:4]
    assert [task.node for task in ReaganEnv.tasks(data, seed=1)] != [task.node for task in tasks]
    for task in tasks:
        row = graph.index_of(task.node)
        known = [other for other in graph.neighbors(row) if graph.split[other] == 0]
        assert (task.gold, task.labelled_neighbours) == (graph.labels[row], len(known))
    assert {task.bucket for task in tasks} <= {"0", "1", "2-3", "4+"}


@pytest.mark.parametrize("kind", ["79/1/20", "60-20-20", "5-per-class", "own"])
def test_splits_are_those_of_the_baselines(tmp_path: Path, kind: str) -> None:
    data = blocks(tmp_path / "g@home")
    tasks = ReaganEnv.tasks(f"{data}@{kind}", seed=3)
    graph = open_graph(data)
    assert tasks[0].data == str(data)
    assert np.array_equal(open_split(tasks[0]).codes, baseline_splits(graph, kind, 1, 3)[0])


def test_a_named_split_of_the_graph(tmp_path: Path) -> None:
    data = blocks(tmp_path / "g")
    ids = open_graph(data).ids
    parts = {"train": list(ids[:40]), "val": [], "test": list(ids[40:])}
    (data / "splits.json").write_text(json.dumps({"mine": parts}), encoding="utf-8")
    assert {task.node for task in ReaganEnv.tasks(f"{data}@mine")} == set(ids[40:])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("no-such-graph", "name of a graph or a folder"),
        ("networkx-docs@sixty", "expected a split"),
        ("networkx-docs@planetoid", "20 training nodes"),
        ("networkx-docs@0/50/50", "no training node"),
        ("networkx-docs@100/0/0", "no test node"),
        ("networkx-docs@90/20/20", "add up to at most 1"),
        ("chameleon", "--allow-synthetic-text"),
    ],
)
def test_what_is_no_data_is_refused_in_one_sentence(source: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        ReaganEnv.tasks(source)


def test_a_graph_without_labels_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "g", [node("a"), node("b")], ["a\tb"])
    for source in (f"{data}@60/20/20", str(data)):
        with pytest.raises(DataError, match="without any"):
            ReaganEnv.tasks(source)


def test_a_graph_without_a_split_says_how_to_name_one(tmp_path: Path) -> None:
    nodes = [node("a", label="x"), node("b", label="y")]
    data = write(tmp_path / "g", nodes, ["a\tb"])
    with pytest.raises(DataError, match="use @60/20/20"):
        ReaganEnv.tasks(str(data))


def test_texts_that_belong_to_other_nodes_are_refused_with_the_shift(tmp_path: Path) -> None:
    data = blocks(tmp_path / "g")
    nodes = [json.loads(line) for line in (data / "nodes.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = [one["text"] for one in nodes]
    moved = [{**one, "text": texts[(place + 1) % len(texts)]} for place, one in enumerate(nodes)]
    edges = (data / "edges.tsv").read_text(encoding="utf-8").splitlines()
    shifted = write(tmp_path / "shifted", moved, edges, {"directed": False})
    with pytest.raises(DataError, match=r"node i should get the text of node i-1"):
        ReaganEnv.tasks(str(shifted))


def test_a_task_of_data_that_changed_is_refused(tmp_path: Path) -> None:
    data = blocks(tmp_path / "g")
    task = ReaganEnv.tasks(str(data), limit=1)[0]
    lines = (data / "edges.tsv").read_text(encoding="utf-8").splitlines()
    (data / "edges.tsv").write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="make the tasks again"):
        ReaganEnv().reset(task)
    again = ReaganEnv.tasks(str(data), limit=1)[0]
    assert again.data_hash != task.data_hash
    ReaganEnv().reset(again)


def test_cora_under_the_split_of_the_public_code(shared: Path) -> None:
    data = shared / "data" / "cora"
    tasks = ReaganEnv.tasks(f"{data}@79/1/20")
    codes = random_split(open_graph(data), (0.79, 0.01, 0.2), seed=0)
    assert len(tasks) == int((codes == 2).sum()) == 542
    lonely = sum(task.labelled_neighbours == 0 for task in tasks) / len(tasks)
    assert 0.03 < lonely < 0.09, "the share of nodes without a labelled neighbour is known to be 5.5 %"
