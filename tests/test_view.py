"""GraphView: what tools may see, that the hidden edge and hidden labels never show, paging, handed cases."""

from __future__ import annotations

import dataclasses
import pickle
import random
import time
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.index import Index
from agl.graphs.pagerank import exact_pagerank, personalized_pagerank
from agl.graphs.text_graph import TextGraph, edge_rows
from agl.graphs.view import (
    GraphView,
    NodeTarget,
    PairTarget,
    ViewError,
    link_split_faults,
    page,
    without_pairs,
)
from tests.conftest import check_case, handed_cases

CLASSES = ("canary-a", "canary-b", "canary-c")


def graph_of(n: int, edges: list[tuple[int, int]], labels: Any = None, split: Any = None) -> TextGraph:
    texts = [f"text of node {i}" for i in range(n)]
    names = None if labels is None else CLASSES
    return TextGraph.build([f"n{i}" for i in range(n)], texts, edges, labels=labels, class_names=names, split=split)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(2, 9))
    node = st.integers(0, n - 1)
    return n, draw(st.lists(st.tuples(node, node), max_size=30))


def everything(view: GraphView) -> list[object]:
    """Every object a tool can get out of the view, in a fixed order."""
    found: list[object] = []
    for i in range(view.n):
        found += [view.id(i), view.text(i), view.label(i), view.degree(i), view.is_train(i)]
        found += [view.neighbors(i), view.two_hop(i), view.two_hop(i, exact=False)]
        found += [view.neighbor_rows(i).tolist(), view.two_hop_rows(i).tolist()]
        for j in range(view.n):
            found += [view.common_neighbors(i, j), view.distance(i, j)]
    everywhere = np.arange(view.n, dtype=np.int32)
    source, target = view.arcs(everywhere)
    found += [source.tolist(), target.tolist(), view.degrees(everywhere).tolist()]
    for sources in (None, (0,)):
        for ranking in (personalized_pagerank(view, sources), exact_pagerank(view, sources)):
            found += [ranking.nodes.tolist(), ranking.scores.tolist()]
    if view.index is not None:
        for pool in ("all", "train", "one_hop", "two_hop"):
            found += [view.search(None, 5, pool), view.search(np.array([1.0, 1.0, 1.0]), 5, pool, fuse=0.5)]
    return found


def vectors(n: int) -> Index:
    return Index(np.random.default_rng(0).standard_normal((n, 3)))


@settings(max_examples=30, deadline=None)
@given(graphs(), st.data())
def test_a_pair_is_seen_as_if_its_edge_had_never_been(drawn: tuple[int, list[tuple[int, int]]], data: Any) -> None:
    n, edges = drawn
    u = data.draw(st.integers(0, n - 1))
    v = data.draw(st.integers(0, n - 1).filter(lambda other: other != u))
    without = [edge for edge in edges if set(edge) != {u, v}]
    shown = [
        everything(GraphView(graph_of(n, e), PairTarget(*t), index=vectors(n)))
        for e, t in [
            (without, (u, v)),
            ([*without, (u, v)], (u, v)),
            ([*without, (v, u)], (u, v)),
            ([*without, (u, v)], (v, u)),
        ]
    ]
    assert shown[1] == shown[0]
    assert shown[2] == shown[0]
    assert shown[3] == shown[0]
    # A mask for all queries of a split hides as well as the target does.
    masked = without_pairs(graph_of(n, [*without, (u, v)]), [(v, u)])
    assert (
        everything(GraphView(graph_of(n, [*without, (u, v)]), PairTarget(u, v), adjacency=masked, index=vectors(n)))
        == shown[0]
    )


@settings(max_examples=60, deadline=None)
@given(graphs(), st.data())
def test_neighbourhoods_are_those_of_networkx(drawn: tuple[int, list[tuple[int, int]]], data: Any) -> None:
    n, edges = drawn
    reference = networkx.Graph([edge for edge in edges if edge[0] != edge[1]])
    reference.add_nodes_from(range(n))
    target: Any = NodeTarget(0)
    if data.draw(st.booleans()):
        target = PairTarget(0, 1)
        reference.remove_edges_from([(0, 1)])
    view = GraphView(graph_of(n, edges), target)
    for i in range(n):
        lengths = networkx.single_source_shortest_path_length(reference, i)
        near = sorted(node for node, length in lengths.items() if length == 1)
        far = sorted(node for node, length in lengths.items() if length == 2)
        assert view.neighbor_rows(i).tolist() == near == list(view.neighbors(i).items)
        assert view.degree(i) == len(near) == view.degrees(np.array([i], dtype=np.int32))[0]
        assert view.two_hop_rows(i).tolist() == far == list(view.two_hop(i).items)
        assert view.two_hop_rows(i, exact=False).tolist() == sorted(near + far)
        for j in range(n):
            shared = sorted(networkx.common_neighbors(reference, i, j)) if i != j else near
            assert list(view.common_neighbors(i, j).items) == shared
            length = lengths.get(j)
            assert view.distance(i, j) == (length if length is None or length <= 6 else None)


def test_two_hop_agrees_on_both_sides_of_the_switch_to_a_mask() -> None:
    rng = random.Random(0)
    edges = [(rng.randrange(400), rng.randrange(400)) for _ in range(420)] + [(0, i) for i in range(1, 60)]
    view = GraphView(graph_of(400, edges), PairTarget(0, 7))
    reference = networkx.Graph([edge for edge in edges if edge[0] != edge[1] and set(edge) != {0, 7}])
    sizes = set()
    for i in sorted(reference):
        lengths = networkx.single_source_shortest_path_length(reference, i, cutoff=2)
        assert view.two_hop_rows(i).tolist() == sorted(node for node, length in lengths.items() if length == 2)
        sizes.add(len(view.arcs(view.neighbor_rows(i))[1]) > 400 // 16)
    assert sizes == {True, False}


def labelled(labels: list[int]) -> TextGraph:
    rng = random.Random(1)
    n = len(labels)
    edges = [(rng.randrange(n), rng.randrange(n)) for _ in range(2 * n)]
    return graph_of(n, edges, labels, [i % 3 for i in range(n)])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=12, max_size=12), st.randoms(use_true_random=False), st.integers(0, 11))
def test_hidden_labels_change_no_byte(labels: list[int], rng: random.Random, target: int) -> None:
    """Labels of validation, test and target nodes are replaced; every returned object stays the same."""
    other = [label if i % 3 == 0 and i != target else rng.randrange(3) for i, label in enumerate(labels)]
    shown = []
    for given_labels in (labels, other):
        view = GraphView(labelled(given_labels), NodeTarget(target), index=vectors(12))
        shown.append(pickle.dumps(everything(view)))
    assert shown[0] == shown[1]


def test_a_canary_label_is_in_no_returned_object() -> None:
    """Only hidden nodes carry class c: its name and index must not be found anywhere, however deep."""
    labels = [i % 2 if i % 3 == 0 else 2 for i in range(12)]
    view = GraphView(labelled(labels), NodeTarget(6), index=vectors(12))

    def walk(found: Any) -> Any:
        if dataclasses.is_dataclass(found):
            for part in dataclasses.fields(found):
                yield from walk(getattr(found, part.name))
        elif isinstance(found, list | tuple):
            for part in found:
                yield from walk(part)
        else:
            yield found

    leaves = list(walk(everything(view)))
    assert "canary-a" in leaves
    assert "canary-c" not in leaves
    assert view.label(6) is None
    leaky = GraphView(labelled(labels), NodeTarget(6), index=vectors(12), leaky=True)
    assert "canary-c" in list(walk(everything(leaky)))


def test_class_zero_is_a_label_like_any_other() -> None:
    graph = graph_of(3, [(0, 1)], [0, 0, 0], [0, 1, 0])
    view = GraphView(graph, NodeTarget(2))
    shown = view.label(0)
    assert shown is not None
    assert (shown.index, shown.name, shown.source) == (0, "canary-a", "gold")
    guess = view.label(1, {1: 0, 0: 2})
    assert guess is not None
    assert (guess.index, guess.source) == (0, "predicted")
    assert view.label(0, {0: 2}) == shown
    with pytest.raises(IndexError, match="predictions"):
        view.label(1, {1: -1})


def overlap_probe(graph: TextGraph, leaky: bool) -> float:
    """AUC of a rule without any model: every neighbour of v lies within two steps of u."""
    rng = random.Random(0)
    edges = graph.edges().tolist()
    linked = rng.sample(edges, 200)
    unlinked: list[tuple[int, int]] = []
    while len(unlinked) < len(linked):
        u, v = linked[len(unlinked)][0], rng.choice(edges)[1]
        if u != v and not graph.has_edge(u, v):
            unlinked.append((u, v))

    def rule(u: int, v: int) -> bool:
        view = GraphView(graph, PairTarget(u, v), leaky=leaky)
        reached = {u, *view.two_hop_rows(u, exact=False).tolist()}
        near = set(view.neighbor_rows(v).tolist()) - {u}
        return bool(near) and near <= reached

    positive = sum(rule(u, v) for u, v in linked) / len(linked)
    negative = sum(rule(u, v) for u, v in unlinked) / len(unlinked)
    return 0.5 + (positive - negative) / 2


def test_no_trivial_rule_tells_linked_pairs_on_a_random_graph() -> None:
    rng = np.random.default_rng(0)
    graph = TextGraph.build(range(600), [""] * 600, rng.integers(0, 600, (1800, 2)))
    assert overlap_probe(graph, leaky=True) > 0.95
    assert 0.4 < overlap_probe(graph, leaky=False) < 0.6


def test_the_trivial_rule_is_weak_on_cora(shared: Path) -> None:
    lines = (shared / "data" / "cora" / "edges.tsv").read_text(encoding="utf-8").split()
    ids = [str(i) for i in range(2708)]
    graph = TextGraph.build(ids, ids, edge_rows(ids, list(zip(lines[::2], lines[1::2], strict=True))))
    assert overlap_probe(graph, leaky=True) > 0.95
    assert overlap_probe(graph, leaky=False) <= 0.65


def test_training_nodes_as_rows_and_as_mask() -> None:
    graph = graph_of(3, [], [0, 1, 2], [2, 2, 2])
    for train in ([1], np.array([False, True, False])):
        view = GraphView(graph, NodeTarget(2), train=train)
        assert [view.is_train(i) for i in range(3)] == [False, True, False]
        assert [label and label.name for label in map(view.label, range(3))] == [None, "canary-b", None]


def test_leaky_shows_the_edge() -> None:
    graph = graph_of(3, [(0, 1), (1, 2)])
    assert GraphView(graph, PairTarget(0, 1), leaky=True).distance(0, 2) == 2
    assert GraphView(graph, PairTarget(0, 1)).distance(0, 2) is None


def test_a_hub_is_shown_in_pages() -> None:
    n = 10_001
    view = GraphView(graph_of(n, [(0, i) for i in range(1, n)]), NodeTarget(0))
    first = view.neighbors(0)
    assert str(first) == "20 of 10000 shown"
    assert first.items == tuple(range(1, 21))
    seen: list[int] = []
    offset: int | None = 0
    while offset is not None:
        part = view.neighbors(0, 1000, offset)
        seen += part.items
        offset = part.next_offset
    assert seen == list(range(1, n))
    assert view.neighbors(0, 20, 10_000).items == ()
    assert view.two_hop(1).total == n - 2
    for limit, start in ((0, 0), (1001, 0), (5, -1)):
        with pytest.raises(ViewError) as raised:
            view.neighbors(0, limit, start)
        assert raised.value.code == "bad_range"


def test_rows_are_checked() -> None:
    view = GraphView(graph_of(3, [(0, 1)]), NodeTarget(0))
    for bad in (-1, 3):
        with pytest.raises(IndexError):
            view.neighbors(bad)
    with pytest.raises(TypeError):
        view.label(True)
    with pytest.raises(TypeError):
        view.label("n1")  # type: ignore[arg-type]
    assert view.neighbors(np.int64(0)).items == (1,)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        GraphView(graph_of(3, []), PairTarget(0, 3))
    with pytest.raises(IndexError):
        without_pairs(graph_of(3, []), [(0, 3)])


def test_search_stays_in_its_pool_and_never_finds_the_target() -> None:
    graph = graph_of(6, [(0, 1), (1, 2), (0, 3)], [0] * 6, [0, 0, 1, 1, 0, 2])
    view = GraphView(graph, NodeTarget(0), index=Index(np.eye(6) + 0.1))
    assert [hit.node for hit in view.search(None, 9, "all")] == [1, 2, 3, 4, 5]
    assert [hit.node for hit in view.search(None, 9, "train")] == [1, 4]
    assert [hit.node for hit in view.search(None, 9, "one_hop")] == [1, 3]
    assert [hit.node for hit in view.search(None, 9, "two_hop")] == [2]
    assert [hit.node for hit in view.search(np.eye(6)[5], 1, "all")] == [5]
    assert [hit.node for hit in view.search(np.eye(6)[0], 9, np.array([0, 5]))] == [5]
    pair = GraphView(graph, PairTarget(0, 1), index=view.index)
    assert [hit.node for hit in pair.search(None, 9, "one_hop")] == [2, 3]
    with pytest.raises(ViewError, match="pool"):
        view.search(None, 5, "pagerank")  # type: ignore[arg-type]
    with pytest.raises(ViewError, match="no retrieval index"):
        GraphView(graph, NodeTarget(0)).search(None)


def test_a_view_survives_pickling(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    view = GraphView(labelled([0, 1] * 6), PairTarget(2, 5), train=[0, 1], index=vectors(12))
    assert everything(pickle.loads(pickle.dumps(view))) == everything(view)


def test_a_question_on_a_large_graph_takes_milliseconds() -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    edges = np.concatenate([rng.integers(0, n, (300_000, 2)), np.stack([np.zeros(10_000), np.arange(1, 10_001)], 1)])
    graph = TextGraph.build(range(n), [""] * n, edges.astype(np.int64))
    began = time.process_time()
    for i in range(50):
        view = GraphView(graph, PairTarget(0, i + 1))
        view.neighbors(i)
        view.common_neighbors(0, i + 1)
        view.two_hop(i + 1)
    assert (time.process_time() - began) / 50 < 0.05


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "page"))
@pytest.mark.parametrize("kind", [list, np.array])
def test_handed_pages(case: Any, kind: Any) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        try:
            found = page(kind(sorted(given["neighbours"])), given["limit"], given["offset"])
        except ViewError as error:
            return {"status": "error", "code": error.code}
        items = [str(item) for item in found.items]
        return {"status": "ok", "items": items, "total": found.total, "next_offset": found.next_offset}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "lp_view"))
@pytest.mark.parametrize("hidden_by", ["target", "adjacency"])
def test_handed_pair_views(case: Any, hidden_by: str) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        ids = sorted({node for edge in given["edges"] for node in edge})
        graph = TextGraph.build(ids, ids, [(ids.index(a), ids.index(b)) for a, b in given["edges"]])
        u, v = map(graph.index_of, given["pair"])
        hidden = without_pairs(graph, [(graph.index_of(a), graph.index_of(b)) for a, b in given["targets"]])
        view = GraphView(graph, PairTarget(u, v))
        if hidden_by == "adjacency":
            view = GraphView(graph, NodeTarget(u), adjacency=hidden)
        if given["tool"] == "distance":
            return {"status": "ok", "value": view.distance(u, v)}
        found = view.two_hop(u) if given["tool"] == "two_hop" else view.common_neighbors(u, v)
        return {"status": "ok", "value": [view.id(i) for i in found.items]}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "label_view"))
def test_handed_label_views(case: Any) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        ids, parts = list(given["nodes"]), ["train", "val", "test"]
        names = sorted({node["label"] for node in given["nodes"].values()} | set(given["guesses"].values()))
        labels = [names.index(node["label"]) for node in given["nodes"].values()]
        split = [parts.index(node["split"]) for node in given["nodes"].values()]
        graph = TextGraph.build(ids, ids, labels=labels, class_names=names, split=split)
        view = GraphView(graph, NodeTarget(graph.index_of(given["target"])))
        guesses = {graph.index_of(node): names.index(guess) for node, guess in given["guesses"].items()}
        records: list[dict[str, str]] = []
        for node in given["ask"]:
            label = view.label(graph.index_of(node), guesses)
            records.append({"node": node} | ({"label": label.name, "source": label.source} if label else {}))
        return {"status": "ok", "records": records}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "lp_split"))
def test_handed_link_splits(case: Any) -> None:
    check_case(case, lambda given: {"status": "ok", "faults": link_split_faults(**given)})


def test_a_sound_link_split_has_no_faults() -> None:
    assert (
        link_split_faults([("a", "b")], [("b", "c")], [("c", "d")], {"val": [("a", "c")], "test": [("b", "d")]}) == []
    )
    assert link_split_faults([("a", "b")], [("b", "a")], [("c", "c")]) == ["self_pair", "train_val_overlap"]
