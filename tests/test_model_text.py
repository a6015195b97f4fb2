"""Graphs out of free model text and out of benchmark encodings."""

from __future__ import annotations

import collections
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.encodings import read_adjacency_sets, read_encoding
from agl.graphs.model_text import Route, read_text
from agl.graphs.named import GraphError, NamedGraph
from agl.graphs.naming import natural_key
from rewards.structure import ErrorClass, compare
from tests.conftest import check_case, handed_cases


def shown(graph: NamedGraph, *, weights: bool) -> dict[str, Any]:
    edges = sorted([*(ends if graph.directed else sorted(ends)), weight] for *ends, weight in graph.edges)
    return {"nodes": sorted(graph.nodes), "edges": edges if weights else [edge[:2] for edge in edges]}


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "graph"))
def test_handed_texts(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        try:
            parsed = read_text(
                data["text"], declared=data.get("declared"), format=data["format"], directed=data["directed"]
            )
        except GraphError as error:
            return {"status": "error", "code": error.code}
        return {"status": "ok", **shown(parsed.graph, weights=True)}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "encoding"))
def test_handed_encodings(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        graph = read_encoding(data["text"], data.get("names", ()))
        return {"status": "ok", **shown(graph, weights=False), "directed": graph.directed}

    check_case(case, run)


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "adjset_bfs"))
def test_handed_adjacency_sets(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        graph = read_adjacency_sets(data["text"], [data["start"]]).to_networkx()
        order = [
            layer for layers in nx.bfs_layers(graph, str(data["start"])) for layer in sorted(layers, key=natural_key)
        ]
        return {"status": "ok", "order": order}

    check_case(case, run)


def test_recorded_outputs_come_out_as_labelled(shared: Path) -> None:
    lines = (shared / "data" / "llm_graph_outputs_sample.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = []
    for row in map(json.loads, lines):
        found = classes(row["response"], NamedGraph.from_edges(row["nodes"], row["edges"], False, True))
        syntax = {"pipeline_error_marker": "unparseable"}.get(row["syntax_class"], row["syntax_class"])
        if found != (syntax, row["semantic_class"]):
            wrong.append((row["id"], found, row["syntax_class"], row["semantic_class"]))
    assert not wrong
    assert len(lines) == 80


def classes(text: str, gold: NamedGraph) -> tuple[str, str]:
    """The labels of the sample: edges first, weights only where the edges agree, the last of two weights counting."""
    try:
        parsed = read_text(text, keep_contradictions=True)
    except GraphError:
        return "unparseable", "n/a"
    last = {frozenset(edge[:2]): edge for edge in parsed.graph.edges}
    graph = NamedGraph(parsed.graph.nodes, tuple(last.values()), False, True)
    found = compare(unweighted(graph), unweighted(gold)).error_class
    if found is ErrorClass.EXACT:
        found = compare(graph, gold).error_class
    exact = "exact" if set(graph.nodes) == set(gold.nodes) else "exact_after_apostrophe_fold"
    label = {"exact": exact, "weight": "weight_mismatch", "mixed": "extra_and_missing_edges"}.get(found, found)
    return parsed.route, label + "+contradictory_duplicate_weight" * (len(last) < len(parsed.graph.edges))


def unweighted(graph: NamedGraph) -> NamedGraph:
    return NamedGraph.from_edges(graph.nodes, [edge[:2] for edge in graph.edges])


ABC = NamedGraph.from_edges("abc", [("a", "b", 2), ("b", "c", 5)], weighted=True)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ('{"a": {"b": 2}, "b": {"c": 5}}', "strict_json"),
        ('<think>{"a": {}}</think>{"a": {"b": 2}, "b": {"c": 5}}', "strict_json"),
        ('hm {"x": 1} </think> {"a": {"b": 2}, "b": {"c": 5}}', "strict_json"),
        ('{"a": {"b": 2}, "b": {"c": 5}}\nThat is {all}.', "fenced_or_prose_json"),
        ('First {"a": {"b": 9}}, no: {"a": {"b": 2}, "b": {"c": 5}}', "fenced_or_prose_json"),
        ('```json\n{"a": {"b": 2}, "b": {"c": 5}}', "fenced_or_prose_json"),
        ('```json {"a": {"b": 2}, "b": {"c": 5}}``` Then run ```python\nprint(1)\n```', "fenced_or_prose_json"),
        ("{'a': [('b', 2)], 'b': [('c', 5)],}", "python_literal"),
        ("I found {'a': {'b': 2}, 'b': {'c': 5.0}} # done", "fenced_or_prose_python_literal"),
        ('{"nodes": ["a", "b", "c"], "edges": [["a", "b", {"distance": 2}], ["c", "b", 5]]}', "strict_json"),
        (
            '{"nodes": [{"id": "a"}], "links": [{"source": "a", "target": "b", "weight": 2}, ["b", "c", 5]]}',
            "strict_json",
        ),
        ('[["a", "b", 2], ["b", "c", 5]]', "strict_json"),
        (
            '{"type": "adjacency_list", "data": {"a": {"b": 2}, "b": {"c": 5}}, "directed": false, "weighted": true}',
            "strict_json",
        ),
        (
            '{"adjacency_list": {"0": [[1, 2]], "1": [[2, 5]]}, "node_mapping": {"0": "a", "1": "b", "2": "c"}}',
            "strict_json",
        ),
        ('{"a": [{"node": "b", "weight": 2}], "b": [{"to": "c", "km": 5}]}', "strict_json"),
    ],
)
def test_forms_and_routes(text: str, route: str) -> None:
    parsed = read_text(text)
    assert compare(parsed.graph, ABC).exact
    assert parsed.route == route


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "no_graph"),
        ("no graph here", "no_graph"),
        ("7", "no_graph"),
        ('"text"', "no_graph"),
        ("nodes {u, v} only", "no_graph"),
        ("{}", "empty_graph"),
        ("<think>still going {", "truncated"),
        ('so {"a": {"b": 1}} or {"a": {"b"', "truncated"),
        ("{'a': [('b', 2), ('c", "truncated"),
        ('```json\n{"a": {"b": 2}}\n```\n```json\n{"a": {"b": ', "truncated"),
        ('{"a": {"b": 1.', "truncated"),
        ("{'a': {'b': 1, 'b': 2}}", "duplicate_key"),
        ("{'a': {'b': 1e999}}", "non_finite"),
        ("{'a': {'b': __import__('os').getpid()}}", "not_json"),
        ("{'a': {'b': 1 + 1}}", "not_json"),
        ("{'a': {'b': x}}", "not_json"),
        ('{"a": {"b": true}}', "bad_weight"),
        ('{"a": {"b": {"x": 1, "y": 2}}}', "bad_weight"),
        ('{"a": 3}', "bad_type"),
        ('{"edges": [["a", "b", 1, 2]]}', "bad_type"),
        ('{"adjacency_list": {"0": [1]}, "node_mapping": {"a": 0, "b": 0}}', "bad_mapping"),
        ("[" * 100_000, "too_deep"),
        ('{"a":' * 100_000, "too_deep"),
        ("x " * 600_000, "too_large"),
    ],
)
def test_refusals_have_codes(text: str, code: str) -> None:
    with pytest.raises(GraphError) as error:
        read_text(text)
    assert error.value.code == code
    assert str(error.value)


def test_strict_takes_bare_json_only() -> None:
    assert read_text('{"a": {"b": 2}}', strict=True).route is Route.STRICT_JSON
    for text in ("{'a': {'b': 2}}", '```\n{"a": {"b": 2}}\n```'):
        with pytest.raises(GraphError) as error:
            read_text(text, strict=True)
        assert error.value.code == "not_json"


def test_a_node_may_be_called_like_a_field() -> None:
    graph = read_text('{"nodes": {"edges": 3}, "adjacency_list": ["data"]}').graph
    assert set(graph.nodes) == {"nodes", "edges", "adjacency_list", "data"}


def test_a_named_adjacency_keeps_its_isolated_nodes() -> None:
    graph = read_text('{"nodes": ["a", "z"], "adjacency_list": {"a": {"b": 2}}, "directed": false}').graph
    assert graph.nodes == ("a", "z", "b")
    assert set(read_text('{"data": {"a": 2}, "type": {"b": 1}}').graph.nodes) == {"data", "type", "a", "b"}


def test_the_text_decides_the_direction_when_it_says_so() -> None:
    assert read_text('{"graph_type": "directed", "adjacency_list": {"a": ["b"]}}').graph.directed
    assert not read_text('{"directed": false, "edges": [["a", "b"]]}', directed=True).graph.directed
    assert read_text('{"a": ["b"]}', directed=True).graph.directed


def test_text_weights_only_on_request() -> None:
    text = '[["a", "b", "2"], {"u": "b", "v": "c", "weight": " 5.0 "}]'
    with pytest.raises(GraphError) as error:
        read_text(text)
    assert error.value.code == "bad_weight"
    assert compare(read_text(text, coerce_weights=True).graph, ABC).exact


def test_contradictions_are_kept_for_scoring_only() -> None:
    text = '{"a": {"b": 7}, "b": {"a": 5}}'
    with pytest.raises(GraphError, match=r"contradictory weight for \(a,b\): 7 and 5"):
        read_text(text)
    assert read_text(text, keep_contradictions=True).graph.edges == (("a", "b", 7), ("b", "a", 5))


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text("{}[]()'\":,`\\ \n0aé<>-#", max_size=60)))
def test_any_text_is_a_graph_or_a_graph_error(text: str) -> None:
    with contextlib.suppress(GraphError):
        assert read_text(text).graph.nodes
    with contextlib.suppress(GraphError):
        assert read_encoding(text).nodes
    with contextlib.suppress(GraphError):
        assert read_adjacency_sets(text).nodes


HOSTILE = """
from agl.graphs.model_text import read_text
from agl.graphs.named import GraphError
n = 60_000
texts = [
    "{0: " + "-" * n + "1}", "{0: " + "1+" * n + "1}", "{0: " + "a." * n + "a}", "{0: " + "not " * n + "1}",
    "{0: " + "x if " * n + "}", "{0: lambda:" * n + "0}", "{0: " + "'a' " * n + "}", "{'a': b'" + "x" * n + "'}",
    "{'" * n, "{" * n, "{}," * n, "{u}" * n, "`" * n, "```" * n, "```{" * n, "<think>" * n, "\\ud800{" * n,
    '{"a": {}, ' * n,
    "{" + '"a": {"b": 1}, ' * n + '"c": {}}', "{" + "0: 1, " * n + "}", '{"a": "' + "\\\\u" * n + '"}',
    "{'a': " + "9" * n + "}", '{"a": {"b": ' + "9" * n + "}}",
]
for text in texts:
    try:
        read_text(text)
    except GraphError:
        pass
"""


def test_hostile_texts_neither_crash_nor_hang() -> None:
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_encodings_take_declared_nodes_and_mixed_names() -> None:
    graph = read_encoding("In an undirected graph, (i, j) means an edge: (0, 1) (1,2).", [str(i) for i in range(4)])
    assert graph.nodes == ("0", "1", "2", "3")
    with pytest.raises(GraphError) as error:
        read_encoding("A directed graph:\nA -> B\nB -> Q", ["A", "B"])
    assert error.value.code == "unknown_node"
    assert read_encoding("A directed graph:\nA -> B", ["A", "B"]).directed
    both = read_encoding("Node 0 is connected to nodes 1 and 2.\nNode 1 is connected to node 0.")
    assert collections.Counter(edge[0] for edge in both.edges) == {"0": 2}


@pytest.mark.timeout(20)
def test_adjacency_sets_refuse_other_forms() -> None:
    for text in ("[1, 2]", "{1: 2}", "{1: {2: {3}}}x", "{1: open('x')}"):
        with pytest.raises(GraphError):
            read_adjacency_sets(text)
