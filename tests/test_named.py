"""Reading, writing and comparing named graphs."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.named import GraphError, NamedGraph, read_graph
from agl.json_text import dumps, loads
from tests.conftest import check_case, handed_cases

HOSTILE = [
    "</graph>",
    "<think>",
    "neighbours",
    "data",
    "a,b",
    "#1",
    "שלום",
    "🚉",
    '"',
    "\\",
    "a -> b",
    "0",
    "00",
    "__proto__",
]
names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(str.strip).filter(bool),
)
weights = st.one_of(st.integers(-50, 50), st.floats(-1e6, 1e6, allow_nan=False))


@st.composite
def graphs(draw: st.DrawFn) -> NamedGraph:
    nodes = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    directed, weighted = draw(st.booleans()), draw(st.booleans())
    pairs = [(u, v) for i, u in enumerate(nodes) for j, v in enumerate(nodes) if (i != j if directed else i < j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return NamedGraph.from_edges(
        nodes, [(u, v, draw(weights) if weighted else 1) for u, v in chosen], directed, weighted
    )


def graph_of(data: dict[str, Any], directed: bool = False, weighted: bool = True) -> dict[str, Any]:
    return {"type": "adjacency_list", "data": data, "directed": directed, "weighted": weighted}


def code_of(obj: object, **options: Any) -> str:
    with pytest.raises(GraphError) as error:
        read_graph(obj, **options)
    assert str(error.value)
    assert len(str(error.value)) < 300
    return error.value.code


@given(graphs())
def test_what_is_written_is_read_back(graph: NamedGraph) -> None:
    back = read_graph(graph.to_json())
    assert back.nodes == graph.nodes
    assert back.canonical() == graph.canonical()
    through_text = read_graph(loads(dumps(graph.to_json())))
    assert through_text.canonical() == graph.canonical()


@given(graphs(), st.randoms(use_true_random=False))
def test_canonical_forgets_the_order_of_writing(graph: NamedGraph, rng: random.Random) -> None:
    nodes = rng.sample(graph.nodes, len(graph.nodes))
    edges = [(v, u, w) if not graph.directed and rng.random() < 0.5 else (u, v, w) for u, v, w in graph.edges]
    rng.shuffle(edges)
    other = NamedGraph.from_edges(nodes, edges, graph.directed, graph.weighted)
    assert other.canonical() == graph.canonical()
    assert dumps(other.canonical().to_json()) == dumps(graph.canonical().to_json())


@given(graphs())
def test_networkx_and_adjacency_agree(graph: NamedGraph) -> None:
    other = graph.to_networkx()
    assert other.is_directed() == graph.directed
    assert list(other) == list(graph.nodes)
    near = graph.adjacency()
    assert list(near) == list(graph.nodes)
    assert {u: {v: d["weight"] for v, d in other.adj[u].items()} for u in other} == near


def test_the_worked_semantics() -> None:
    graph = read_graph(graph_of({"A": {"B": 7, "C": 2}, "B": {"A": 7.0, "D": 1}}))
    assert graph.nodes == ("A", "B", "C", "D")
    assert graph.edges == (("A", "B", 7), ("A", "C", 2), ("B", "D", 1))
    assert nx.shortest_path_length(graph.to_networkx(), "D", "C", weight="weight") == 10
    assert read_graph(graph_of({"A": ["B"], "C": {}}, weighted=False)).edges == (("A", "B", 1),)
    assert len(read_graph(graph_of({"A": {"B": 7}, "B": {"A": 5}}, directed=True)).edges) == 2


def test_a_contradiction_says_what_it_saw() -> None:
    with pytest.raises(GraphError) as error:
        read_graph(graph_of({"A": {"B": 7}, "B": {"A": 5}}))
    assert (error.value.code, str(error.value)) == ("contradictory_edge", "contradictory weight for (A,B): 7 and 5")


@pytest.mark.parametrize(
    ("obj", "code"),
    [
        (None, "bad_type"),
        ([], "bad_type"),
        ({}, "missing_field"),
        ({"data": {}, "directed": False}, "missing_field"),
        ({**graph_of({"A": {"B": 1}}), "nodes": []}, "unknown_field"),
        ({**graph_of({"A": {"B": 1}}), "type": "edge_list"}, "bad_type"),
        ({**graph_of({"A": {"B": 1}}), "directed": "false"}, "bad_type"),
        ({**graph_of({"A": {"B": 1}}), "weighted": 0}, "bad_type"),
        ({**graph_of({}), "data": [["A", "B"]]}, "bad_type"),
        (graph_of({}), "empty_graph"),
        (graph_of({"A": {"A": 1}}), "self_loop"),
        (graph_of({"A": "B"}), "bad_type"),
        (graph_of({"A": None}), "bad_type"),
        (graph_of({"A": [["B", 1]]}), "bad_type"),
        (graph_of({"A": [None]}), "bad_id"),
        (graph_of({"A": [1.5]}), "bad_id"),
        (graph_of({"A": [True]}), "bad_id"),
        (graph_of({"A": {"": 1}}), "bad_id"),
        (graph_of({"A": {"B": True}}), "bad_weight"),
        (graph_of({"A": {"B": None}}), "bad_weight"),
        (graph_of({"A": {"B": [1]}}), "bad_weight"),
        (graph_of({"A": {"B": "7"}}), "bad_weight"),
        (graph_of({"A": {"B": "7 km"}}), "bad_weight"),
        (graph_of({"A": {"B": 10**400}}), "bad_weight"),
        (graph_of({"A": {"B": 1e16}}), "bad_weight"),
        (graph_of({"A": {"B": float("nan")}}), "non_finite"),
        (graph_of({"A": {"B": float("-inf")}}), "non_finite"),
        (graph_of({"A": {"B": 7}}, weighted=False), "bad_weight"),
        (graph_of({"A": {"B": 1, " B": 2}}), "contradictory_edge"),
    ],
)
def test_refusals_have_codes(obj: object, code: str) -> None:
    assert code_of(obj) == code


def test_text_weights_get_a_hint_or_are_coerced() -> None:
    with pytest.raises(GraphError, match="write a bare number such as 7"):
        read_graph(graph_of({"A": {"B": "7 km"}}))
    coerced = read_graph(graph_of({"A": {"B": "7", "C": "2.50"}}), coerce_weights=True)
    assert coerced.edges == (("A", "B", 7), ("A", "C", 2.5))
    for text in ("7 km", "1,5", "1/3", "2*3", "1e999999999", "", "nan"):
        assert code_of(graph_of({"A": {"B": text}}), coerce_weights=True) == "bad_weight"


def test_self_loops_only_on_request() -> None:
    graph = read_graph(graph_of({"A": {"A": 2, "B": 1}}), self_loops=True)
    assert graph.edges == (("A", "A", 2), ("A", "B", 1))
    assert graph.adjacency()["A"] == {"A": 2, "B": 1}


@pytest.mark.timeout(20)
def test_large_graphs_are_refused() -> None:
    wide: dict[str, Any] = {str(i): [] for i in range(300_000)}
    dense: dict[str, Any] = {str(i): [str(j) for j in range(i)] for i in range(700)}
    assert code_of(graph_of(wide)) == "too_large"
    assert code_of(graph_of(dense)) == "too_large"
    assert code_of(graph_of({"a": ["b"], "c": []}), max_nodes=2) == "too_large"


nested = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.one_of(nested, st.builds(graph_of, st.dictionaries(st.text(max_size=5), nested))))
def test_any_json_is_a_graph_or_a_graph_error(value: object) -> None:
    try:
        graph = read_graph(value)
    except GraphError:
        assert code_of(value)
    else:
        assert read_graph(graph.to_json()).canonical() == graph.canonical()


def test_deep_values_and_endless_names_make_short_errors() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert code_of(graph_of({"A": {"B": deep}})) == "bad_weight"
    assert code_of(graph_of({"A": [deep]})) == "bad_type"
    long = "x" * 100_000
    for data in ({long: {long: 1}}, {long: {"B": 1}, "B": {long: 2}}, {long: {"B": "7"}}, {long: 5}):
        code_of(graph_of(data))


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "file_graph"))
def test_handed_file_graphs(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        graph = read_graph(loads(dumps(NamedGraph.from_edges([], data["rows"]).to_json())))
        return {"status": "ok", "nodes": len(graph.nodes), "edges": len(graph.edges), "names": sorted(graph.nodes)}

    check_case(case, run)
