"""Personalised PageRank: push against power iteration against networkx, the hidden edge, real Cora."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.pagerank import Ranking, exact_pagerank, personalized_pagerank
from agl.graphs.text_graph import TextGraph, edge_rows
from agl.graphs.view import GraphView, NodeTarget, PairTarget


def graph_of(n: int, edges: Any) -> TextGraph:
    return TextGraph.build(range(n), [""] * n, edges)


def dense(ranking: Ranking, n: int) -> Any:
    scores = np.zeros(n)
    scores[ranking.nodes] = ranking.scores
    return scores


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 15), st.data())
def test_push_is_within_its_bound(n: int, data: Any) -> None:
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=40))
    sources = tuple(data.draw(st.lists(node, min_size=1, max_size=2)))
    target: Any = PairTarget(0, n - 1) if data.draw(st.booleans()) else NodeTarget(0)
    view = GraphView(graph_of(n, edges), target)
    tolerance = data.draw(st.sampled_from([1e-2, 1e-4, 1e-6]))
    pushed = dense(personalized_pagerank(view, sources, tolerance=tolerance), n)
    exact = dense(exact_pagerank(view, sources), n)
    assert exact.sum() == pytest.approx(1)
    gap = exact - pushed
    assert (gap >= -1e-9).all()
    assert (gap <= tolerance * view.degrees(np.arange(n, dtype=np.int32)) + 1e-9).all()


def test_power_iteration_is_that_of_networkx() -> None:
    reference = networkx.connected_watts_strogatz_graph(60, 4, 0.3, seed=3)
    view = GraphView(graph_of(60, list(reference.edges)), NodeTarget(5))
    wanted = networkx.pagerank(reference, personalization={5: 1}, tol=1e-12, max_iter=1000)
    found = dense(exact_pagerank(view, (5,)), 60)
    assert found == pytest.approx([wanted[i] for i in range(60)], abs=1e-8)
    wanted = networkx.pagerank(reference, tol=1e-12, max_iter=1000)
    assert dense(exact_pagerank(view), 60) == pytest.approx([wanted[i] for i in range(60)], abs=1e-8)


def test_the_hidden_edge_carries_nothing() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3)])
    ranking = personalized_pagerank(GraphView(graph, PairTarget(1, 2)), (0,))
    assert sorted(ranking.nodes.tolist()) == [0, 1]
    assert 2 in personalized_pagerank(GraphView(graph, PairTarget(1, 2), leaky=True), (0,)).nodes
    assert 2 in personalized_pagerank(GraphView(graph, PairTarget(0, 3)), (0,)).nodes


def test_an_isolated_source_keeps_its_walk() -> None:
    ranking = personalized_pagerank(GraphView(graph_of(3, [(1, 2)]), NodeTarget(0)))
    assert ranking.nodes.tolist() == [0]
    assert ranking.scores.tolist() == [1.0]


def test_ties_go_to_the_lower_row_and_the_target_can_be_left_out() -> None:
    view = GraphView(graph_of(5, [(2, 4), (2, 0), (2, 3), (2, 1)]), NodeTarget(2))
    ranking = personalized_pagerank(view)
    assert ranking.nodes.tolist() == [2, 0, 1, 3, 4]
    assert [node for node, _ in ranking.top(2, exclude=(2,))] == [0, 1]
    assert [node for node, _ in ranking.top(9)] == [2, 0, 1, 3, 4]


def test_wrong_arguments_are_refused() -> None:
    view = GraphView(graph_of(3, []), NodeTarget(0))
    with pytest.raises(IndexError):
        personalized_pagerank(view, (3,))
    with pytest.raises(ValueError, match="source"):
        personalized_pagerank(view, ())
    with pytest.raises(ValueError, match="damping"):
        exact_pagerank(view, (0,), damping=1.0)
    with pytest.raises(ValueError, match="tolerance"):
        personalized_pagerank(view, tolerance=0.0)


def test_push_on_cora(shared: Path) -> None:
    rows = (shared / "data" / "cora" / "edges.tsv").read_text(encoding="utf-8").split("\n")
    ids = [str(i) for i in range(2708)]
    pairs: Any = [tuple(row.split("\t")) for row in rows if row]
    graph = TextGraph.build(ids, ids, edge_rows(ids, pairs))
    rng = random.Random(0)
    for u, v in rng.sample(graph.edges().tolist(), 5):
        view = GraphView(graph, PairTarget(u, v))
        pushed = personalized_pagerank(view)
        exact = exact_pagerank(view, (u, v))
        gap = dense(exact, graph.n) - dense(pushed, graph.n)
        assert gap.min() > -1e-9
        assert (gap <= 1e-6 * view.degrees(np.arange(graph.n, dtype=np.int32)) + 1e-9).all()
        wanted = {node for node, _ in exact.top(5, view.targets)}
        worst = min(score for _, score in exact.top(5, view.targets))
        for node, score in pushed.top(5, view.targets):
            assert node in wanted or score > worst - 1e-4
