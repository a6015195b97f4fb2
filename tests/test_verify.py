"""Verification of submitted witnesses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.named import NamedGraph
from agl.graphs.solve import SolveError, solve
from rewards.verify import TASKS, Verdict, verify
from tests.conftest import check_case, handed_cases
from tests.test_solve import graph_of, graphs

FIELDS = ("source", "target", "claimed", "max_colours", "measure")


@pytest.mark.parametrize("case", handed_cases("verifier.jsonl", "verify"))
def test_handed_witnesses(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        fields = {name: given[name] for name in FIELDS if name in given}
        verdict = verify(given["task"], graph_of(given["graph"]), given["answer"], **fields)
        outcome: dict[str, Any] = {"status": "ok", "valid": verdict.valid}
        return outcome if verdict.code is None else outcome | {"code": verdict.code}

    check_case(case, run)


SOLVED = {
    "tour": "tsp",
    "vertex_cover": "vertex_cover",
    "coloring": "coloring",
    "spanning_tree": "mst",
    "matching": "matching",
}


@pytest.mark.parametrize("task", SOLVED)
@settings(max_examples=40, deadline=None)
@given(graph=graphs(low=1))
def test_solver_witnesses_are_right_with_and_without_the_optimum(task: str, graph: NamedGraph) -> None:
    try:
        found = solve(SOLVED[task], graph)
    except SolveError:
        return
    assert not isinstance(found.value, float)
    for optimum in (None, found.value):
        verdict = verify(task, graph, found.witness, claimed=found.value, optimum=optimum)
        assert verdict == Verdict(True, None, found.value)
        wrong = verify(task, graph, found.witness, claimed=found.value + 1, optimum=optimum)
        assert (wrong.valid, wrong.code, wrong.value) == (False, "wrong_total", found.value)
    assert verify(task, graph, found.witness, optimum=found.value - 1).code == "not_optimal"


@settings(max_examples=100, deadline=None)
@given(graph=graphs(most=6), data=st.data())
def test_bfs_orders_are_valid_exactly_when_some_neighbour_order_gives_them(
    graph: NamedGraph, data: st.DataObject
) -> None:
    source = data.draw(st.sampled_from(graph.nodes))
    makes = {
        tuple(solve("bfs", graph, {"start": source, "order": list(order)}).witness)
        for order in itertools.permutations(graph.nodes)
    }
    reached = next(iter(makes))
    # One rank for all nodes cannot make every valid order, so ask the definition: parents' places never decrease.
    near = {v: {w for u, w, _ in graph.edges if u == v} | {u for u, w, _ in graph.edges if w == v} for v in reached}
    for order in itertools.permutations(reached):
        if order[0] != source:
            continue
        place = {node: number for number, node in enumerate(order)}
        parents = [min((place[u] for u in near[v]), default=0) for v in order[1:]]
        valid = parents == sorted(parents) and all(p < i for i, p in enumerate(parents, 1))
        assert verify("bfs_any", graph, list(order), source=source).valid is valid
        assert valid or order not in makes
    index = solve("bfs", graph, {"start": source}).witness
    assert verify("bfs_index", graph, index, source=source).valid


PATH = NamedGraph.from_edges([], [("a", "b", 1), ("b", "c", 2), ("c", "d", 3), ("a", "d", 9)], weighted=True)


@pytest.mark.parametrize(
    ("task", "answer", "fields", "code"),
    [
        ("path", ["a", "b", "c"], {"source": "a", "target": "d"}, "wrong_ends"),
        ("path", [], {"source": "a", "target": "d"}, "no_witness"),
        ("path", "a -> d", {"source": "a", "target": "d"}, "no_witness"),
        ("path", [["a"], "d"], {"source": "a", "target": "d"}, "no_witness"),
        ("path", ["a", True, "d"], {"source": "a", "target": "d"}, "no_witness"),
        ("path", ["a", "b", "a", "d"], {"source": "a", "target": "d"}, "repeated_node"),
        ("path", ["a", "b", "c", "d"], {"source": "a", "target": "d", "claimed": "six"}, "wrong_total"),
        ("path", ["a", "b", "c", "d"], {"source": "a", "target": "d", "claimed": True}, "wrong_total"),
        ("tour", ["a", "b", "c"], {}, "incomplete"),
        ("tour", ["a", "c", "b", "d"], {}, "unknown_edge"),
        ("vertex_cover", ["a", "b"], {}, "uncovered_edge"),
        ("vertex_cover", ["a", "b", "c"], {}, "not_optimal"),
        ("coloring", {"a": 1, "b": 1, "c": 2, "d": 3}, {}, "conflict"),
        ("coloring", {"a": 1, "b": 2, "c": 1, "d": 3}, {}, "not_optimal"),
        ("coloring", {"a": 1, "b": 2, "c": 1, "d": 3}, {"max_colours": 2}, "too_many_colours"),
        ("coloring", {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}, {}, "unknown_node"),
        ("coloring", ["a", "b"], {}, "no_witness"),
        ("coloring", {"a": [1], "b": 2, "c": 1, "d": 2}, {}, "no_witness"),
        ("bfs_any", ["b", "a", "d", "c"], {"source": "b"}, "wrong_order"),
        ("bfs_index", ["a", "d", "b", "c"], {"source": "a"}, "wrong_order"),
        ("top_nodes", ["a"], {"measure": "degree"}, "incomplete"),
        ("top_nodes", ["a", "a"], {"measure": "degree"}, "repeated_node"),
        ("top_node", ["a", "b"], {"measure": "degree"}, "no_witness"),
        ("spanning_tree", [["a", "b"], ["b", "c"]], {}, "incomplete"),
        ("spanning_tree", [["a", "b"], ["b", "c"], ["c", "d"], ["a", "d"]], {}, "not_a_tree"),
        ("spanning_tree", [["a", "b"], ["b", "c"], ["a", "d"]], {}, "not_optimal"),
        ("spanning_tree", [["a", "b"], ["b", "a"], ["a", "d"]], {}, "repeated_edge"),
        ("spanning_tree", [["a", "b", 7], ["b", "c", 2], ["c", "d", 3]], {}, "unknown_edge"),
        ("spanning_tree", ["ab"], {}, "no_witness"),
        ("matching", [["a", "b"], ["b", "c"]], {}, "repeated_node"),
        ("matching", [["a", "b"]], {}, "not_optimal"),
    ],
)
def test_wrong_witnesses_have_codes(task: str, answer: object, fields: dict[str, Any], code: str) -> None:
    verdict = verify(task, PATH, answer, **fields)
    assert (verdict.valid, verdict.code) == (False, code)


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=30, deadline=None)
@given(
    answer=st.recursive(
        st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.sampled_from(["a", "b", "c", "d", "zz"]),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["a", "b", "zz"]), inner),
        max_leaves=8,
    )
)
def test_any_answer_gets_a_verdict(task: str, answer: object) -> None:
    verdict = verify(task, PATH, answer, source="a", target="d", measure="degree", claimed=3)
    assert verdict.valid == (verdict.code is None)


def test_a_known_optimum_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("solved again")

    monkeypatch.setattr("rewards.verify.solve", refuse)
    assert verify("tour", PATH, ["a", "b", "c", "d", "a"], optimum=15, claimed=15.0).valid
    assert verify("path", PATH, ["a", "b", "c", "d"], source="a", target="d", optimum="6").valid
    assert verify("vertex_cover", PATH, ["a", "c"], optimum=2).valid
    assert verify("coloring", PATH, {"a": "red", "b": "blue", "c": "red", "d": "blue"}, optimum=2).valid
    assert verify("top_nodes", PATH, ["d", "a"], optimum=["a", "d"]).valid
    assert verify("bfs_any", PATH, ["a", "d", "b", "c"], source="a").valid


def test_missing_fields_are_programming_errors() -> None:
    with pytest.raises(ValueError, match="needs source"):
        verify("path", PATH, ["a"])
    with pytest.raises(ValueError, match="task is one of"):
        verify("knapsack", PATH, ["a"])
