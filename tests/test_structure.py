"""Structure recovery scores."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.graphs.named import NamedGraph
from agl.graphs.naming import NameTable, fold, relabel
from rewards.structure import FAILED, ErrorClass, compare
from tests.conftest import check_case, handed_cases
from tests.test_named import graphs


def raw(graph: dict[str, Any]) -> NamedGraph:
    """A graph as logged, contradictions and all."""
    edges = tuple((str(u), str(v), weight[0] if weight else 1) for u, v, *weight in graph["edges"])
    ends = [end for u, v, _ in edges for end in (u, v)]
    return NamedGraph(tuple(dict.fromkeys([*map(str, graph.get("nodes", [])), *ends])), edges, False, True)


@pytest.mark.parametrize("case", handed_cases("verifier.jsonl", "structure"))
def test_handed_structures(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        found = compare(raw(data["predicted"]), raw(data["true"]))
        numbers = {"jaccard": found.jaccard, "node_f1": found.node_f1, "edge_f1": found.edge_f1}
        return {"status": "ok", **numbers, "exact": found.exact}

    check_case(case, run)


GOLD = NamedGraph.from_edges("abcd", [("a", "b", 1), ("b", "c", 2), ("c", "d", 3)], weighted=True)


@pytest.mark.parametrize(
    ("nodes", "edges", "error"),
    [
        ("abcd", [("d", "c", 3), ("a", "b", 1), ("c", "b", 2)], "exact"),
        ("abcd", [("a", "b", 1), ("b", "c", 2), ("c", "d", 3), ("a", "d", 1)], "extra_edges"),
        ("abcd", [("a", "b", 1), ("b", "c", 2)], "missing_edges"),
        ("abcd", [("a", "b", 1), ("b", "c", 3), ("c", "d", 2)], "weight"),
        ("abcd", [("a", "b", 1), ("b", "d", 2), ("c", "d", 3)], "mixed"),
        ("abcd", [("a", "b", 2), ("b", "c", 2)], "mixed"),
        ("abcde", [("a", "b", 1), ("b", "c", 2), ("c", "d", 3)], "node_set"),
        ("abc", [("a", "b", 1), ("b", "c", 2)], "node_set"),
        ("abcx", [("a", "b", 1), ("b", "c", 2), ("c", "x", 3)], "node_set"),
    ],
)
def test_error_classes(nodes: str, edges: list[tuple[str, str, int]], error: str) -> None:
    found = compare(NamedGraph.from_edges(nodes, edges, weighted=True), GOLD)
    assert found.error_class == error
    assert found.exact == (error == "exact")
    assert (found.jaccard == 1) == (found.edge_f1 == 1) == (error == "exact" or nodes == "abcde")


def test_a_graph_that_could_not_be_read_scores_nothing() -> None:
    assert compare(None, GOLD) == FAILED
    assert FAILED.error_class is ErrorClass.PARSE_FAILURE


def test_isomorphism_and_hashes_accept_what_is_wrong() -> None:
    ring = NamedGraph.from_edges([], [(i, (i + 1) % 6) for i in range(6)])
    triangles = NamedGraph.from_edges([], [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_hash = [nx.weisfeiler_lehman_graph_hash(graph.to_networkx()) for graph in (ring, triangles)]
    assert same_hash[0] == same_hash[1]
    assert compare(triangles, ring).jaccard == pytest.approx(4 / 8)
    swapped = NamedGraph.from_edges("abc", [("a", "b", 2), ("b", "c", 1)], weighted=True)
    path = NamedGraph.from_edges("abc", [("a", "b", 1), ("b", "c", 2)], weighted=True)
    assert nx.is_isomorphic(swapped.to_networkx(), path.to_networkx(), edge_match=lambda a, b: a == b)
    assert compare(swapped, path).jaccard == 0
    assert compare(swapped, path).error_class is ErrorClass.WEIGHT


def test_one_way_listing_of_an_undirected_graph_gives_a_half() -> None:
    one_way = NamedGraph("abcd", GOLD.edges, True, True)  # type: ignore[arg-type]
    assert compare(one_way, GOLD).jaccard == 0.5
    both = NamedGraph.from_edges("abcd", [*GOLD.edges, *((v, u, w) for u, v, w in GOLD.edges)], True, True)
    assert compare(both, GOLD).jaccard == 1
    assert compare(GOLD, one_way).jaccard == 0.5


def test_spellings_and_aliases_are_aligned_and_merged() -> None:
    table = NameTable(["King's Row", "Mill"], {"K-1": 0})
    gold = NamedGraph.from_edges(table.names, [("King's Row", "Mill", 4)], weighted=True)
    found = NamedGraph.from_edges([], [("king’s row", "MILL", 4.0), ("K-1", "Mill", 4)], weighted=True)
    assert compare(found, gold, table).exact
    twice = NamedGraph.from_edges([], [("K-1", "Mill", 4), ("King's Row", "Mill", 5)], weighted=True)
    assert compare(twice, gold, table).jaccard == 0.5
    merged = NamedGraph.from_edges([], [("K-1", "Mill", 4), ("K-1", "King's Row", 1)], weighted=True)
    assert compare(merged, gold, table).error_class is ErrorClass.EXTRA_EDGES


def test_unknown_and_ambiguous_names_are_extra_nodes() -> None:
    gold = NamedGraph.from_edges(["Ab", "AB", "c"], [("Ab", "c"), ("AB", "c")])
    found = compare(NamedGraph.from_edges(["Ab"], [("ab", "c"), ("AB", "c"), ("zz", "c")]), gold)
    assert found.error_class is ErrorClass.NODE_SET
    assert found.jaccard == pytest.approx(1 / 4)
    assert found.node_f1 == pytest.approx(2 * 3 / (3 + 5))


def test_empty_edge_sets() -> None:
    lone = NamedGraph.from_edges("ab", [])
    assert compare(lone, lone).jaccard == compare(lone, lone).edge_f1 == 1
    joined = NamedGraph.from_edges("ab", [("a", "b")])
    assert compare(lone, joined).jaccard == compare(joined, lone).jaccard == 0


def test_weights_are_exact_rationals() -> None:
    tenth = NamedGraph.from_edges("ab", [("a", "b", 0.1)], weighted=True)
    third = NamedGraph.from_edges("ab", [("a", "b", 0.1 + 1e-12)], weighted=True)
    assert compare(third, tenth).jaccard == 0
    odd = NamedGraph(("a", "b"), (("a", "b", math.nan),), False, True)
    assert compare(odd, tenth).error_class is ErrorClass.WEIGHT


def test_weights_in_an_unweighted_task_are_wrong_tuples() -> None:
    gold = NamedGraph.from_edges("abc", [("a", "b"), ("b", "c")])
    assert compare(NamedGraph.from_edges("abc", [("a", "b", 1), ("b", "c", 1)], weighted=True), gold).exact
    assert compare(NamedGraph.from_edges("abc", [("a", "b", 1), ("b", "c", 5)], weighted=True), gold).jaccard == 1 / 3


def test_a_true_graph_outside_its_table_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="does not fit the name table"):
        compare(GOLD, GOLD, NameTable(["a"]))


@given(graphs(), graphs())
def test_jaccard_is_symmetric(one: NamedGraph, two: NamedGraph) -> None:
    table = NameTable([*one.nodes, *(node for node in two.nodes if node not in one.nodes)])
    there, back = compare(one, two, table), compare(two, one, table)
    assert (there.jaccard, there.node_f1, there.edge_f1) == (back.jaccard, back.node_f1, back.edge_f1)
    assert all(0 <= value <= 1 for value in (there.jaccard, there.node_f1, there.edge_f1))
    assert (there.jaccard == 1) == (there.edge_f1 == 1)
    assert there.exact == (there.jaccard == 1 and there.node_f1 == 1)
    if one.directed == two.directed:
        bare_one, bare_two = one.canonical(), two.canonical()
        assert there.exact == ((bare_one.nodes, bare_one.edges) == (bare_two.nodes, bare_two.edges))


@given(graphs(), st.randoms(use_true_random=False))
def test_scores_do_not_depend_on_the_names(gold: NamedGraph, rng: random.Random) -> None:
    kept = [edge for edge in gold.edges if rng.random() < 0.7]
    predicted = NamedGraph.from_edges(gold.nodes, kept, gold.directed, gold.weighted)
    fresh = {node: f"n{i}" for i, node in enumerate(gold.nodes)}
    before = compare(predicted, gold)
    assert compare(relabel(predicted, fresh), relabel(gold, fresh)) == before
    through = NameTable(gold.nodes, {fresh[node]: i for i, node in enumerate(gold.nodes)})
    if len({fold(name) for name in [*gold.nodes, *fresh.values()]}) == 2 * len(gold.nodes):
        assert compare(relabel(predicted, fresh), gold, through) == before
    assert before.jaccard == (len(kept) / len(gold.edges) if gold.edges else 1)
