"""GraphOmni (https://github.com/GAI-Community/GraphOmni, arXiv 2504.12764): six tasks over serialised graphs.

Fields as published: `query`, `gt_answer`, `task_type`, `serialization_type`, `graph_info` (a matrix). Gold is computed
from the text, the last "Graph:" section of it: some published labels are too long, some start nodes have no edge and so
are missing from the text, and some stored matrices are other graphs. Nodes are those of the text and of the question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agl.graphs.encodings import read_adjacency_sets
from agl.graphs.named import NamedGraph
from agl.graphs.naming import natural_key
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

TASKS: Mapping[str, tuple[TaskName, Any]] = {
    "bfsorder": ("bfs", "witness"),
    "shortest_path": ("shortest_path", "witness"),
    "connectivity": ("connectivity", "value"),
    "cycle": ("cycle", "value"),
    "diameter": ("diameter", "value"),
    "triangle": ("triangles", "value"),
}

_PAIR = re.compile(r"\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_LINE = re.compile(r"^\s*([0-9]+)[ \t]+([0-9]+)(?:[ \t]+\{.*\})?\s*$", re.MULTILINE)
_MATRIX_ROW = re.compile(r"\[([01][\s,01]*)\]")
_GML = re.compile(r"source\s+([0-9]+)\s+target\s+([0-9]+)")
_XML = re.compile(r'<edge\s[^>]*?source="([0-9]+)"[^>]*?target="([0-9]+)"')
_NODE = re.compile(r"node ([0-9]+)")


def matches(fields: Mapping[str, Any]) -> bool:
    return "query" in fields and bool(fields.keys() & {"gt_answer", "serialization_type", "name-id"})


def read_text(text: str) -> tuple[NamedGraph, list[str]]:
    """The graph of the last "Graph:" section and the nodes that the question behind it names.

    Raises:
        Unfit: there is no such section, or its serialisation is not known.
        GraphError: the graph cannot be read.
    """
    story, _, question = text.rpartition("Q:")
    section = story.rpartition("Graph:")[2]
    if not question or not section.strip():
        raise Unfit("expected a 'Graph:' section followed by 'Q:'")
    asked = _NODE.findall(question)
    kind = next((name for name in _READERS if name in section[:60]), None)
    if kind is None:
        raise Unfit(f"expected a serialisation among {', '.join(_READERS)}, got {section.strip()[:40]!r}")
    body = section.partition(kind)[2].strip().removeprefix("is").strip()
    return _READERS[kind](body, asked), asked


def _sets(body: str, asked: Sequence[str]) -> NamedGraph:
    opening, closing = body.find("{"), body.rfind("}")
    return read_adjacency_sets(body[opening : closing + 1], asked)


def _by(pattern: re.Pattern[str], node: str | None = None) -> Callable[[str, Sequence[str]], NamedGraph]:
    def read(body: str, asked: Sequence[str]) -> NamedGraph:
        ends = pattern.findall(body)
        listed: list[str] = re.findall(node, body) if node else []
        names: set[str] = {end for pair in ends for end in pair}
        names.update(asked, listed)
        nodes: list[str] = sorted(names, key=natural_key)
        return NamedGraph.from_edges(nodes, ends)

    return read


def matrix_graph(text: str, asked: Sequence[str] = ()) -> NamedGraph:
    """The graph of a 0/1 matrix, nodes named by their row.

    Raises:
        Unfit: the rows do not form a square.
    """
    rows = [[int(cell) for cell in re.findall("[01]", row)] for row in _MATRIX_ROW.findall(text)]
    if not rows or any(len(row) != len(rows) for row in rows):
        raise Unfit("expected a square 0/1 adjacency matrix")
    ends = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell and i != j]
    return NamedGraph.from_edges([*range(len(rows)), *(node for node in asked if int(node) >= len(rows))], ends)


_READERS: Mapping[str, Callable[[str, Sequence[str]], NamedGraph]] = {
    "Adjacency Set": _sets,
    "Adjacency List": _sets,
    "Adjacency Matrix": matrix_graph,
    "Edge Set": _by(_PAIR),
    "Edge List": _by(_LINE),
    "Graph Modelling Language": _by(_GML, r"\bid\s+([0-9]+)"),
    "GraphML": _by(_XML, r'<node\s+id="([0-9]+)"'),
}


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: an unknown task, or as `read_text`.
        GraphError: the graph cannot be read.
    """
    kind, text = str(fields.get("task_type", "")), fields.get("query")
    if kind not in TASKS:
        raise Unfit(f"expected task_type to be one of {', '.join(TASKS)}, got {kind!r}")
    if not isinstance(text, str):
        raise Unfit("expected the question as text under 'query'")
    task, needs = TASKS[kind]
    graph, asked = read_text(text)
    count = {"bfs": 1, "shortest_path": 2, "connectivity": 2}.get(task, 0)
    if len(asked) < count:
        raise Unfit(f"expected a {kind} question that names {count} node{'s' * (count > 1)}")
    label = fields.get("gt_answer")
    parsed = Parsed(
        id=str(fields.get("name-id", name)),
        task=task,
        text=text,
        graph=graph,
        start=asked[0] if count else None,
        end=asked[1] if count == 2 else None,
        aliases={f"node {node}": node for node in graph.nodes},
        published=None if label is None else str(label),
        given=None if label is None else _label(needs, str(label)),
        graph_agrees=_same(graph, fields.get("graph_info")),
    )
    return parsed, Checker(benchmark="graphomni", form="text", needs=needs)


def _same(graph: NamedGraph, stored: Any) -> bool | None:
    """Whether the stored matrix has the edges of the text; nodes without edges are not compared."""
    if not isinstance(stored, str):
        return None
    try:
        matrix = matrix_graph(stored)
    except Unfit:
        return None
    return {frozenset(edge[:2]) for edge in matrix.edges} == {frozenset(edge[:2]) for edge in graph.edges}


def _label(needs: str, label: str) -> Given | None:
    numbers = re.findall(r"[0-9]+", label)
    if needs == "witness":
        return Given(None, numbers) if numbers else None
    says = re.search(r"\b(true|false|yes|no)\b", label, re.IGNORECASE)
    if says:
        return Given("yes" if says[1].casefold() in ("true", "yes") else "no")
    return Given(int(numbers[0])) if len(numbers) == 1 else None
