"""GraphInstruct style (https://github.com/CGCL-codes/GraphInstruct, arXiv 2403.04483), written anew.

Columns as published: `task`, `question`, `directed`, `nodes`, `answer`, and the graph in `graph` (edge list),
`graph_adj` (adjacency) or `graph_nl` (sentences). Node ids are `<3>`, `3` or three capitals. The question names no
graph, so the text of an item is the graph in sentences (or the first encoding there is) and then the question. Answers
stand in `<<<...>>>`; the last wrapper counts, ids keep their brackets, fractional values may be off by 3 %.

Fire-station questions take the printed lengths as distances; the published labels count hops. The published check of
breadth-first orders compares layers only; here the whole order must be valid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agl.graphs.named import NamedGraph
from agl.graphs.naming import natural_key
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

TASKS: Mapping[str, tuple[TaskName, Any]] = {
    "shortest_path": ("shortest_path", "value"),
    "bfs": ("bfs", "witness"),
    "degree": ("degree", "value"),
    "common_neighbor": ("common_neighbors", "witness"),
    "jaccard": ("jaccard", "value"),
    "clustering_coefficient": ("clustering", "value"),
    "connectivity": ("connectivity", "value"),
    "topological_sort": ("topological_order", "witness"),
    "cycle": ("cycle", "value"),
    "edge": ("edge_exists", "value"),
    "neighbor": ("neighbors", "witness"),
    "fire_station": ("nearest", "witness"),
    "diameter": ("diameter", "value"),
    "mst": ("mst", "value"),
    "hamiltonian_path": ("hamilton_path", "witness"),
    "maximum_flow": ("max_flow", "value"),
    "connected_component": ("component", "witness"),
}
"""Published name, folded -> task and what its answer needs."""
TOLERANCE = 0.03

_ID = r"(?:<[0-9]+>|<[A-Z]{3}>|\b[A-Z]{3}\b|\b[0-9]+\b)"
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_EDGE = re.compile(rf"\(\s*({_ID})\s*,\s*({_ID})\s*(?:,\s*\w+:\s*({_NUMBER})\s*)?\)")
_ROW = re.compile(rf"({_ID}):\s*\[([^\]]*)\]")
_NEAR = re.compile(rf"({_ID})(?:\s*,\s*\w+:\s*({_NUMBER})|\s*\(\w+:\s*({_NUMBER})\))?")
_SENTENCE = re.compile(rf"Node ({_ID}) is connected to nodes? (.+?)\.\s*(?:\n|$)")
_MENTION = re.compile(_ID)


def matches(fields: Mapping[str, Any]) -> bool:
    return {"task", "question"} <= fields.keys() and bool(fields.keys() & {"graph_nl", "graph_adj"})


def read_text(text: str, directed: bool, nodes: tuple[str, ...] = ()) -> NamedGraph:
    """The graph in sentences, as an adjacency or as an edge list.

    Raises:
        Unfit: the text is in none of these forms.
    """
    rows = _SENTENCE.findall(text) or _ROW.findall(text)
    if rows:
        near = [(source, *edge) for source, listed in rows for edge in _NEAR.findall(listed)]
        ends = [(u, v, one or other) for u, v, one, other in near]
    else:
        ends = _EDGE.findall(text)
    if not ends and not nodes:
        raise Unfit("expected a graph of nodes like <3> or ABC as sentences, adjacency or edge list")
    weighted = any(weight for _, _, weight in ends)
    listed = [(u, v, (float(w) if "." in w else int(w)) if w else 1) for u, v, w in ends]
    known = nodes or tuple(sorted({end for u, v, _ in listed for end in (u, v)}, key=natural_key))
    return NamedGraph.from_edges(known, listed, directed, weighted)


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: an unknown task, or a graph in no known form.
    """
    kind = str(fields.get("task", "")).casefold()
    if kind not in TASKS:
        raise Unfit(f"expected a GraphInstruct task that has a checker ({', '.join(TASKS)}), got {kind!r}")
    task, needs = TASKS[kind]
    encodings = [str(fields[key]) for key in ("graph_nl", "graph_adj", "graph") if fields.get(key)]
    if not encodings:
        raise Unfit("expected the graph under 'graph_nl', 'graph_adj' or 'graph'")
    directed = str(fields.get("directed")).casefold() == "true"
    nodes = tuple(_MENTION.findall(str(fields.get("nodes", ""))))
    graph = read_text(encodings[0], directed, nodes)
    agree = all(read_text(other, directed, nodes).canonical() == graph.canonical() for other in encodings[1:])
    question, known = str(fields["question"]), set(graph.nodes)
    asked = [mention for mention in _MENTION.findall(question) if mention in known]
    wanted = {"start": 1, "end": 2, "candidates": 4}
    count = wanted[_ASKS[task]] if task in _ASKS else 0
    if len(asked) < count:
        raise Unfit(f"expected a {kind} question that names {count} nodes")
    kind_words = "a directed" if directed else "an undirected"
    listed = ", ".join(graph.nodes)
    label = fields.get("answer")
    number = str(fields.get("id", name))
    parsed = Parsed(
        id=f"{kind}-{number}" if number.isdecimal() else number,
        task=task,
        text=f"Given is {kind_words} graph with the nodes {listed}.\n{encodings[0].strip()}\n\n{question.strip()}",
        graph=graph,
        start=asked[0] if count else None,
        end=asked[1] if count == 2 else None,
        candidates=tuple(asked[1:4]) if count == 4 else None,
        aliases={
            alias: node
            for node in graph.nodes
            for alias in (node.strip("<>"), f"node {node.strip('<>')}", f"node {node}")
        },
        published=None if label is None else str(label),
        given=None if label is None else _label(needs, str(label), known),
        graph_agrees=agree if len(encodings) > 1 else None,
    )
    tolerance = TOLERANCE if task in ("jaccard", "clustering") else 0.0
    return parsed, Checker(benchmark="graphinstruct", form="angle3", needs=needs, tolerance=tolerance)


_ASKS: Mapping[TaskName, str] = {
    "shortest_path": "end",
    "bfs": "start",
    "degree": "start",
    "common_neighbors": "end",
    "jaccard": "end",
    "clustering": "start",
    "connectivity": "end",
    "edge_exists": "end",
    "neighbors": "start",
    "max_flow": "end",
    "component": "start",
    "nearest": "candidates",
}


def _label(needs: str, label: str, known: set[str]) -> Given | None:
    if needs == "witness":
        return Given(None, [name if name in known else f"<{name}>" for name in _MENTION.findall(label)])
    says = re.search(r"\b(yes|no|true|false)\b", label, re.IGNORECASE)
    if says:
        return Given("yes" if says[1].casefold() in ("yes", "true") else "no")
    number = re.fullmatch(r"\s*(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*\.?\s*", label)
    if number is None:
        return None
    return Given(int(number[1]) if number[1].lstrip("-").isdecimal() else float(number[1]))
