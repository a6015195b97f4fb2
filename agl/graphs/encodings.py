"""Graphs printed as text by public benchmarks, read back: incident sentences, arrows, pairs, adjacency sets.

Forms: GraphQA (arXiv 2310.04560) incident ("Node 0 is connected to nodes 1, 2."), arrow ("A -> B") and
adjacency ("(0, 1) (0, 2)"); GraphOmni's adjacency sets ("{4: {3, 7}, 3: {4}}").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from agl.graphs.named import GraphError, NamedGraph
from agl.graphs.naming import NameTable, NamingError, natural_key
from agl.json_text import JsonError, literal

_INCIDENT = re.compile(r"^[ \t]*Node (.+?) is connected to (?:nodes? )?(.*?)[ \t]*\.?[ \t]*$", re.MULTILINE)
_ARROW = re.compile(r"^[ \t]*(.+?)[ \t]*(?:->|→|<->|--)[ \t]*(.+?)[ \t]*[.,;]?[ \t]*$", re.MULTILINE)
_PAIR = re.compile(r"\(\s*([^\s,()]+)\s*,\s*([^\s,()]+)\s*\)(?!\s*(?:means|denotes|represents))")


def read_encoding(text: str, names: Sequence[str] = (), *, directed: bool | None = None) -> NamedGraph:
    """Read an unweighted graph from incident sentences, arrow lines or pairs.

    A sentence that says "directed" or "undirected" decides the direction, not the arrow; without one it is `directed`,
    None meaning undirected. `names` are the declared nodes: all of them are nodes, edges or not. A node printed as an
    index 0 .. n-1 among declared names is the name at that place, so that index and name never make two nodes.

    Raises:
        GraphError: `no_graph` when no form fits, `unknown_node` for an end that is not declared, else as
            `NamedGraph.from_edges`.
    """
    pairs = _incident(text) or _ARROW.findall(text) or _PAIR.findall(text)
    if not pairs:
        raise GraphError("no_graph", "the text holds no edge in a known form (incident, arrow, pairs)")
    said = re.search(r"\b(un)?directed\b", text, re.IGNORECASE)
    direction = said.group(1) is None if said else bool(directed)
    table = NameTable(names) if names else None
    edges = [(_declared(u, table), _declared(v, table)) for u, v in pairs]
    return NamedGraph.from_edges(names, edges, direction)


def _incident(text: str) -> list[tuple[str, str]]:
    pairs = []
    for source, targets in _INCIDENT.findall(text):
        pairs += [(source, target) for target in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", targets) if target]
    return pairs


def _declared(mention: str, table: NameTable | None) -> str:
    if table is None:
        return mention.strip()
    try:
        return table.name(mention.strip())
    except NamingError as error:
        if error.code == "unknown_name" and re.fullmatch("[0-9]{1,9}", mention) and int(mention) < len(table):
            return table.names[int(mention)]
        code = "unknown_node" if error.code == "unknown_name" else error.code
        raise GraphError(code, str(error)) from None


def read_adjacency_sets(text: str, nodes: Iterable[object] = (), *, directed: bool = False) -> NamedGraph:
    """Read `{4: {3, 7}, 3: {4}}`, nodes in natural order.

    The form leaves out nodes without edges: those named elsewhere (a start node) come in through `nodes`.

    Raises:
        GraphError: `not_json` and its kin for text in another form, else as `NamedGraph.from_edges`.
    """
    try:
        value = literal(text)
    except JsonError as error:
        raise GraphError(error.code, str(error)) from None
    if not isinstance(value, dict) or not all(isinstance(near, list | dict) for near in value.values()):
        raise GraphError("bad_type", "expected {node: {neighbour, ...}, ...}")
    edges = [(node, neighbour) for node, near in value.items() for neighbour in near]
    graph = NamedGraph.from_edges([*nodes, *value], edges, directed)
    return NamedGraph(tuple(sorted(graph.nodes, key=natural_key)), graph.edges, directed)
