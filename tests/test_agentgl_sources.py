"""Sources of AgentGL that join several graphs: tasks in turn, ids that differ, each task on its own graph."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agl.errors import DataError
from agl.policies.scripted import Oracle
from agl.run_folder import TRAINING
from envs.agentgl.env import AgentglLp, AgentglNc
from envs.agentgl.tasks import NcTask, graph_of, read_sources
from eval.agentgl_tables import read_runs, tables, trained_graphs
from eval.runner import evaluate
from tests.text_graphs import node, write
from train.curriculum import Stages, arranged
from train.ease import node_scores

ENVS = (AgentglNc, AgentglLp)


def ring(folder: Path, n: int, name: str, words: str) -> Path:
    """A ring with chords and two classes; texts, and so contents, differ by `words`."""
    draw = random.Random(n)
    nodes = [
        node(row, f"{words} {row}", label="xy"[row % 2 if row % 3 else draw.randrange(2)], split=part)
        for row, part in enumerate(draw.choices(["train", "test"], [3, 1], k=n))
    ]
    edges = [f"{row}\t{(row + step) % n}" for row in range(n) for step in (1, 2, 5)]
    return write(folder, nodes, edges, {"name": name, "class_names": ["x", "y"], "directed": False})


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "cache"))
    return ring(tmp_path / "red", 60, "red", "fox"), ring(tmp_path / "blue", 40, "blue", "whale")


def test_a_list_of_sources_is_read(tmp_path: Path) -> None:
    assert read_sources("cora@train + networkx-docs@60-20-20/train") == ["cora@train", "networkx-docs@60-20-20/train"]
    assert read_sources(None) == ["networkx-docs"]
    (tmp_path / "c++").mkdir()
    assert read_sources(f"{tmp_path}/c++@train") == [f"{tmp_path}/c++@train"]
    with pytest.raises(DataError, match=r"with \+ between them"):
        read_sources("cora@train+")


@pytest.mark.parametrize("env_class", ENVS)
def test_the_tasks_of_two_graphs_come_in_turn(two: tuple[Path, Path], env_class: type[AgentglNc | AgentglLp]) -> None:
    red, blue = (f"{folder}@train" for folder in two)
    apart = [list(env_class.tasks(source, seed=3)) for source in (red, blue)]
    joined = list(env_class.tasks(f"{red}+{blue}", seed=3))
    assert sorted(task.id for task in joined) == sorted(task.id for tasks in apart for task in tasks)
    assert len({task.id for task in joined}) == len(joined)
    shorter = min(map(len, apart))
    assert joined[: 2 * shorter : 2] == apart[0][:shorter]
    assert joined[1 : 2 * shorter : 2] == apart[1][:shorter]
    assert list(env_class.tasks(f"{red}+{blue}", seed=3, limit=7)) == joined[:7]
    env: Any = env_class()
    for task, word in zip(joined, ("fox", "whale"), strict=False):
        assert word in env.reset(task).text


def test_graphs_of_one_name_have_different_ids_and_one_graph_is_not_taken_twice(tmp_path: Path) -> None:
    one, other = ring(tmp_path / "a" / "g", 60, "ring", "fox"), ring(tmp_path / "b" / "g", 60, "ring", "whale")
    tasks = AgentglNc.tasks(f"{one}@train+{other}@train")
    assert len({task.id for task in tasks}) == len(tasks)
    same = ring(tmp_path / "c", 60, "ring", "fox")
    with pytest.raises(DataError, match="leave one out"):
        AgentglNc.tasks(f"{one}@train+{same}@train")
    parts = AgentglNc.tasks(f"{one}@train+{one}@test")
    assert {task.part for task in parts} == {"train", "test"}


def test_a_graph_with_a_name_of_one_letter_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    ring(tmp_path / "r", 40, "red", "fox")
    with pytest.raises(DataError, match="got r and r; leave one out"):
        AgentglNc.tasks("r+r")


def test_the_curriculum_takes_tertiles_of_each_graph(two: tuple[Path, Path]) -> None:
    red, blue = two
    tasks = [task for task in AgentglNc.tasks(f"{red}@train+{blue}@train") if isinstance(task, NcTask)]
    found = arranged(tasks, Stages(quotas=((2, 2, 2), (0, 0, 0))))
    for folder in two:
        graph = graph_of(str(folder))
        scores = node_scores(graph, graph.split == 0)
        everyone = sorted(
            (scores[graph.index_of(task.node)] for task in tasks if task.graph == str(folder)), reverse=True
        )
        third = -(-len(everyone) // 3)
        places = [place for place, task in enumerate(found) if task.graph == str(folder)]
        mine = [scores[graph.index_of(found[place].node)] for place in places]
        assert [place // 4 for place in places] == [0, 0, 1, 1, 2, 2], "each bucket holds two tasks of each graph"
        assert min(mine[:2]) >= everyone[third - 1] >= max(mine[2:4])
        assert min(mine[2:4]) >= max(mine[4:])


def test_a_run_over_two_graphs_has_a_column_for_each(two: tuple[Path, Path], tmp_path: Path) -> None:
    red, blue = two
    evaluate("agentgl-nc", Oracle(), data=f"{red}+{blue}", limit=7, out=tmp_path / "run")
    runs = read_runs(tmp_path / "run")
    assert [(run.graph, len(run.episodes)) for run in runs] == [("red", 4), ("blue", 3)]
    (row,) = tables(runs, published=False)[0].ours.values()
    assert set(row) == {"red", "blue"}
    trained = tmp_path / "trained"
    evaluate("agentgl-nc", Oracle(), data=f"{red}@train", limit=1, out=trained)
    (trained / TRAINING).write_text(json.dumps({"env": "agentgl-nc", "data": f"{red}@train+{blue}@train"}))
    assert trained_graphs(f"hf:{trained}") == ("blue", "red")


def test_splits_of_one_graph_are_runs_of_their_own(two: tuple[Path, Path], tmp_path: Path) -> None:
    red, _ = two
    ids = [str(row) for row in range(60)]
    halves = {"a": {"train": ids[:30], "test": ids[30:]}, "b": {"train": ids[30:], "test": ids[:30]}}
    (red / "splits.json").write_text(json.dumps(halves))
    graph = graph_of(str(red))
    evaluate("agentgl-nc", Oracle(), data=f"{red}@a/test+{red}@b/test", out=tmp_path / "both")
    joined = read_runs(tmp_path / "both")
    assert [(run.name, len(run.episodes)) for run in joined] == [("oracle (a)", 30), ("oracle (b)", 30)]
    assert {graph.index_of(episode.task["node"]) < 30 for episode in joined[0].episodes} == {False}
    with pytest.raises(DataError, match="same nodes"):
        tables(joined, ["vote"], published=False)
