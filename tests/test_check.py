"""The certificate checker: it accepts what the solvers return and refuses every mutation of it."""

from __future__ import annotations

import copy
import itertools
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.check import check
from agl.graphs.named import NamedGraph
from agl.graphs.solve import PROBLEMS, Solution, SolveError, solve
from agl.graphs.solve.solution import jsonable
from tests.test_solve import graphs, random_graph

MEASURES = ("degree", "closeness", "betweenness", "pagerank", "eigenvector")
DIRECTIONS = {"tsp": False, "mst": False, "matching": False, "topological_order": True}
PROVED = [problem for problem in PROBLEMS if problem != "centrality"]


def parameters_of(problem: str, graph: NamedGraph, draw: Any) -> dict[str, object]:
    node = st.sampled_from(graph.nodes)
    if problem == "shortest_path":
        return {"start": draw(node), "end": draw(node)}
    if problem == "max_flow":
        return {"source": draw(node), "target": draw(node)}
    if problem == "bfs":
        return {"start": draw(node), "order": draw(st.permutations(graph.nodes))}
    if problem == "tsp":
        return {"start": draw(node)}
    if problem == "components":
        return {"kind": draw(st.sampled_from(["weak", "strong"]))}
    if problem == "centrality":
        direction = draw(st.sampled_from(["in", "out"]))
        scaling = draw(st.booleans())
        return {"measure": draw(st.sampled_from(MEASURES)), "direction": direction, "component_scaling": scaling}
    return {}


def stored(found: Solution) -> tuple[Any, Any, Any]:
    """Value, witness and certificate after a trip through a JSON file."""
    text = json.dumps([jsonable(found.value), found.witness, dict(found.certificate)], allow_nan=False)
    value, witness, certificate = json.loads(text)
    return value, witness, certificate


@pytest.mark.parametrize("problem", list(PROBLEMS))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_solutions_are_proven(problem: str, data: st.DataObject) -> None:
    graph = data.draw(graphs(most=9, directed=DIRECTIONS.get(problem)))
    parameters = parameters_of(problem, graph, data.draw)
    try:
        found = solve(problem, graph, parameters)
    except SolveError:
        return
    assert check(problem, graph, parameters, *stored(found)) == []


def test_a_float_spells_a_decimal_cost() -> None:
    """0.1 + 0.2 is no double, but what a file stores as 0.3 is that cost."""
    graph = NamedGraph(("a", "b", "c"), (("a", "b", 0.1), ("b", "c", 0.2)), weighted=True)
    ends: dict[str, object] = {"start": "a", "end": "c"}
    _, witness, certificate = stored(solve("shortest_path", graph, ends))
    assert check("shortest_path", graph, ends, 0.3, witness, certificate) == []
    assert check("shortest_path", graph, ends, 0.30000000000000004, witness, certificate)


@pytest.mark.parametrize("problem", PROVED)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_another_value_is_a_fault(problem: str, data: st.DataObject) -> None:
    graph = data.draw(graphs(most=7, directed=DIRECTIONS.get(problem)))
    parameters = parameters_of(problem, graph, data.draw)
    try:
        value, witness, certificate = stored(solve(problem, graph, parameters))
    except SolveError:
        return
    for other in (Fraction(value) - 1, Fraction(value) + 1, "x", None, True):
        assert check(problem, graph, parameters, other, witness, certificate)


SIX: dict[str, dict[str, object]] = {
    "shortest_path": {"start": "v0", "end": "v6"},
    "bfs": {"start": "v0"},
    "tsp": {},
    "coloring": {},
    "vertex_cover": {},
    "centrality": {"measure": "betweenness"},
}


@pytest.mark.parametrize("problem", SIX)
def test_broken_witnesses_are_faults(problem: str) -> None:
    graph = random_graph(4, 9, 0.6, 5)
    value, witness, certificate = stored(solve(problem, graph, SIX[problem]))
    assert check(problem, graph, SIX[problem], value, witness, certificate) == []
    broken: list[Any] = [None, [], {}, 3, "v0"]
    if isinstance(witness, list):
        broken += [witness[1:], witness[:-1], [*witness, "ghost"], [*witness, witness[0]], [1, *witness]]
    else:
        broken += [dict.fromkeys(witness, 1), dict(list(witness.items())[1:]), witness | {"ghost": 1}]
    other: Any
    for other in broken:
        assert check(problem, graph, SIX[problem], value, other, certificate), other


@pytest.mark.parametrize("problem", [*SIX, "max_flow", "matching", "diameter"])
def test_broken_certificates_are_faults(problem: str) -> None:
    graph = random_graph(4, 9, 0.6, 5)
    parameters = SIX.get(problem, {"source": "v0", "target": "v6"} if problem == "max_flow" else {})
    value, witness, certificate = stored(solve(problem, graph, parameters))
    assert check(problem, graph, parameters, value, witness, certificate) == []
    other: Any
    for key in certificate:
        for other in (None, [], {}, 0, [["v0", "v1"]], "v0"):
            if other != certificate[key]:
                assert check(problem, graph, parameters, value, witness, certificate | {key: other}), (key, other)


def test_a_dearer_tour_is_not_proven() -> None:
    graph = random_graph(1, 12, 1.0, 50)
    value, tour, certificate = stored(solve("tsp", graph))
    weight = {frozenset((u, v)): w for u, v, w in graph.edges}
    other = [*tour[:1], tour[2], tour[1], *tour[3:]]
    cost = sum(weight[frozenset(step)] for step in itertools.pairwise(other))
    assert cost > value
    faults = check("tsp", graph, {}, cost, other, certificate | {"bound": cost})
    assert any("prove only" in fault for fault in faults)


def leaves(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return leaves(tree["one"]) + leaves(tree["zero"]) if "edge" in tree else [tree]


def test_tour_proofs_with_branches_hold_and_break() -> None:
    graph = next(
        graph for graph in (random_graph(seed, 25, 1.0, 100) for seed in range(50)) if "edge" in tree_of(graph)
    )
    value, tour, certificate = stored(solve("tsp", graph))
    assert check("tsp", graph, {}, value, tour, certificate) == []
    for number in range(len(leaves(certificate["tree"]))):
        forged = copy.deepcopy(certificate)
        leaf = leaves(forged["tree"])[number]
        leaf["nodes"] = [0] * len(graph.nodes)
        leaf["cuts"] = {}
        assert check("tsp", graph, {}, value, tour, forged)
    negative = copy.deepcopy(certificate)
    for leaf in leaves(negative["tree"]):
        leaf["cuts"] = {name: -multiplier for name, multiplier in leaf["cuts"].items()} or {"0": -1}
    assert check("tsp", graph, {}, value, tour, negative)


def tree_of(graph: NamedGraph) -> dict[str, Any]:
    tree: dict[str, Any] = solve("tsp", graph).certificate["tree"]
    return tree


def cycle(n: int) -> NamedGraph:
    return NamedGraph.from_edges([], [(f"v{i}", f"v{(i + 1) % n}") for i in range(n)])


def test_claims_without_a_combinatorial_proof_are_refuted_independently() -> None:
    ring = cycle(7)
    value, _, certificate = stored(solve("coloring", ring))
    assert (value, certificate["unsat"]) == (3, 2)
    even = cycle(6)
    three = {"v0": 1, "v1": 2, "v2": 3, "v3": 1, "v4": 2, "v5": 3}
    faults = check("coloring", even, {}, 3, three, {"unsat": 2, "solver": "cadical195"})
    assert faults == ["2 colours suffice"]
    for proof in ("branch_and_bound", "maxsat"):
        value, cover, _ = stored(solve("vertex_cover", ring))
        rest = [v for v in ring.nodes if v not in cover]
        assert check("vertex_cover", ring, {}, 4, cover, {"independent_set": rest, "proof": proof}) == []
        large = ["v0", "v2", "v4", "v5"]
        faults = check("vertex_cover", even, {}, 4, large, {"independent_set": ["v1", "v3"], "proof": proof})
        assert faults == ["3 nodes suffice"]


def test_unknown_problems_raise() -> None:
    with pytest.raises(KeyError):
        check("knapsack", cycle(3), {}, 1, [], {})
