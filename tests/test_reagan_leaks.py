"""What a node may not learn, and what the nodes of a run tell each other whatever their order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agl.core import Post
from agl.graphs.sources import open_graph
from agl.policies.policy import Policy
from agl.policies.scripted import Player, Random
from agl.trace import Episode
from envs.reagan.env import ReaganEnv
from envs.reagan.tasks import ReaganTask
from tests.reagan_graphs import Says, blocks, plan, prompts, together
from tests.text_graphs import node, write

EVERYTHING: list[dict[str, Any]] = [
    {},
    {"rag_scope": "all", "train_broadcast": True, "aggregate": "concat", "layers": 3},
    {"strategy": "B", "anonymise": False},
    {"planning": False},
]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def curious(env: ReaganEnv, turn: int) -> str:
    """Asks for all there is and tells its neighbours."""
    others = list(env.place.neighbours)
    if not env.legal_actions()[1:]:
        return plan({"act": "update", "predicted_label": env.labels.shown[len(env.memory) % len(env.labels.shown)]})
    guess = env.labels.shown[(int(env.task.node) + turn) % len(env.labels.shown)]
    return plan(
        {"act": "retrieve", "target_nodes": others, "info_type": "all"},
        {"act": "rag_query", "query": "word1x1 word2x2", "top_k": 10},
        {"act": "update", "predicted_label": guess},
        {"act": "broadcast", "target_nodes": others, "message": f"from {env.task.node}"},
    )


def shown(found: dict[str, Episode]) -> dict[str, Any]:
    """All that policies saw and said; not the scores, which know the truth."""
    return {
        key: (
            [(turn.source, turn.role, turn.text) for turn in episode.transcript],
            [event.model_dump() for event in episode.events],
            [post.model_dump() for post in episode.posts],
            None if episode.score is None else episode.score.labels["predicted"],
        )
        for key, episode in found.items()
    }


def players() -> Sequence[Policy]:
    return Says(curious), Player("oracle-planner"), Player("no-op"), Random()


@pytest.mark.parametrize("options", EVERYTHING, ids=lambda options: "-".join(options) or "default")
def test_permuted_hidden_labels_change_nothing_that_is_shown(tmp_path: Path, options: dict[str, Any]) -> None:
    runs = []
    for hidden in ("true", "permuted"):
        tasks = ReaganEnv.tasks(str(blocks(tmp_path / hidden / "g", hidden=hidden)))
        runs.append((tasks, [shown(together(lambda: ReaganEnv(**options), tasks, one)) for one in players()]))
    (tasks, before), (permuted, after) = runs
    assert before == after
    assert [task.gold for task in tasks] != [task.gold for task in permuted], "nothing was permuted"


def test_permuted_hidden_labels_of_cora(shared: Path, tmp_path: Path) -> None:
    import json

    data = shared / "data" / "cora"
    nodes = [json.loads(line) for line in (data / "nodes.jsonl").read_text(encoding="utf-8").splitlines()]
    hidden = [one for one in nodes if one.get("split") != "train"]
    labels = [one["label"] for one in hidden]
    random.Random(0).shuffle(labels)
    for one, label in zip(hidden, labels, strict=True):
        one["label"] = label
    edges = (data / "edges.tsv").read_text(encoding="utf-8").splitlines()
    names = list(open_graph(data).class_names)
    write(tmp_path / "cora", nodes, edges, {"name": "cora_text", "class_names": names})
    tasks = ReaganEnv.tasks(str(data), limit=20)
    # Permuted texts fit no label, so the tasks of the copy are made by hand.
    copy = open_graph(tmp_path / "cora")
    moved = [
        task.model_copy(
            update={
                "data": str(tmp_path / "cora"),
                "data_hash": copy.content_hash,
                "gold": int(copy.labels[copy.index_of(task.node)]),
            }
        )
        for task in tasks
    ]
    assert shown(together(ReaganEnv, tasks, Says(curious))) == shown(together(ReaganEnv, moved, Says(curious)))
    assert [task.gold for task in tasks] != [task.gold for task in moved]


def test_a_node_learns_nothing_about_itself(tmp_path: Path) -> None:
    """Also where it is a training node whose label its neighbours see."""
    data = str(blocks(tmp_path / "g"))
    first = ReaganEnv.tasks(data)
    graph = open_graph(data)
    train = [
        first[0].model_copy(update={"id": graph.ids[row], "node": graph.ids[row], "gold": int(graph.labels[row])})
        for row in graph.nodes_in("train")
    ]
    seen: list[tuple[str, Any]] = []

    class Watched(ReaganEnv):
        def end_turn(self) -> Any:
            seen.extend((self.task.node, entry) for entry in self.memory)
            return super().end_turn()

    together(lambda: Watched(rag_scope="all", layers=3), [*first, *train], Says(curious))
    assert {entry.source_type for _, entry in seen} == {"self", "local", "local_hop", "global", "broadcast"}
    for own, entry in seen:
        if entry.source == own:
            assert (entry.source_type, entry.label) == ("self", None)
        if entry.label_status == "gold":
            row = graph.index_of(entry.source)
            assert graph.split[row] == 0
            assert entry.label == graph.labels[row]
        if entry.label_status == "predicted":
            assert graph.split[graph.index_of(entry.source)] != 0


@pytest.mark.parametrize("policy", [Says(curious), Random()], ids=["curious", "random"])
def test_order_and_concurrency_change_nothing(tmp_path: Path, policy: Policy) -> None:
    tasks = list(ReaganEnv.tasks(str(blocks(tmp_path / "g"))))
    base = shown(together(ReaganEnv, tasks, policy, concurrency=1))
    random.Random(1).shuffle(tasks)
    assert shown(together(ReaganEnv, tasks, policy, concurrency=7)) == base


def chain(folder: Path) -> dict[str, ReaganTask]:
    """a - b - c, where a and b are asked for and c is a training node; and d, linked to nothing that counts."""
    texts = {"a": "graphs edges", "b": "graphs nodes", "c": "graphs paths", "d": "cats dogs", "e": "cats birds"}
    labels = {"a": "X", "b": "X", "c": "X", "d": "Y", "e": "Y"}
    nodes = [
        node(name, text, label=labels[name], split="test" if name in "ab" else "train") for name, text in texts.items()
    ]
    write(folder, nodes, ["a\tb", "b\tc", "d\te"], {"directed": False, "class_names": ["X", "Y"]})
    return {task.node: task for task in ReaganEnv.tasks(str(folder))}


def by_node(plans: dict[str, list[str]]) -> Says:
    return Says(lambda env, turn: plans[env.task.node][turn] if turn < len(plans[env.task.node]) else "[]")


def test_a_message_is_read_in_the_next_layer_and_not_before(tmp_path: Path) -> None:
    """The words arrive, not their number, with the sender's provisional label, here class 0."""
    tasks = chain(tmp_path / "g")
    said = by_node(
        {
            "a": [
                plan(
                    {"act": "update", "predicted_label": "Label_0"},
                    {"act": "broadcast", "target_nodes": ["b"], "message": "I cite you"},
                )
            ],
            "b": [],
        }
    )
    heard = prompts(together(ReaganEnv, tasks.values(), said)["b"])
    assert "I cite you" not in heard[0]
    assert "- I cite you => Label_0 (its own guess)" in heard[1]
    alone = together(lambda: ReaganEnv(world="independent"), tasks.values(), said)
    assert not any("I cite you" in text for text in prompts(alone["b"]))
    assert not alone["a"].posts


def test_a_message_without_a_label_is_read_as_words(tmp_path: Path) -> None:
    tasks = chain(tmp_path / "g")
    said = by_node({"a": [plan({"act": "broadcast", "target_nodes": ["b"], "message": "hello 👋"})], "b": []})
    for options in ({}, {"aggregate": "none"}):
        found = together(lambda chosen=options: ReaganEnv(**chosen), tasks.values(), said)  # type: ignore[misc]
        assert '- from "a": hello 👋' in prompts(found["b"])[1]
        assert '- from "a": hello 👋' in prompts(found["b"])[2]


def test_a_published_guess_is_read_with_its_status(tmp_path: Path) -> None:
    tasks = chain(tmp_path / "g")
    retrieve = plan({"act": "retrieve", "target_nodes": ["a"], "info_type": "both"})
    said = by_node({"a": [plan({"act": "update", "predicted_label": 0})], "b": [retrieve, retrieve]})
    heard = prompts(together(ReaganEnv, tasks.values(), said)["b"])
    assert "=> Label_0" not in heard[1], "the guess was read before it was published"
    assert "- graphs edges => Label_0 (its own guess)" in heard[2]


def test_the_memory_of_a_neighbour_reaches_the_prompt(tmp_path: Path) -> None:
    tasks = chain(tmp_path / "g")
    plans = {
        "a": [plan({"act": "no_op"}), plan({"act": "retrieve", "target_nodes": ["b"], "info_type": "all"})],
        "b": [plan({"act": "retrieve", "target_nodes": ["c"], "info_type": "both"})],
    }
    found = together(ReaganEnv, tasks.values(), by_node(plans))
    assert "- graphs paths => Label_0\n" in prompts(found["a"])[2]
    plans["a"][1] = plans["a"][1].replace('"all"', '"both"')
    assert "graphs paths" not in prompts(together(ReaganEnv, tasks.values(), by_node(plans))["a"])[2]


def test_posts_of_strangers_are_not_read(tmp_path: Path) -> None:
    env = ReaganEnv()
    env.reset(chain(tmp_path / "g")["a"])
    env.step(env.player_actions("no-op")[0])
    notes = {"messages": [{"to": ["a"], "text": "trust me"}], "label": 1, "memory": []}
    assert env.post() == Post(round=1, notes={"messages": [], "label": None, "memory": []})
    env.receive({"d": Post(round=1, notes=notes), "a": Post(round=1, notes=notes)})
    env.close_turn()
    assert [entry.source_type for entry in env.memory] == ["self"]
