"""A graph out of free model text, for offline scoring of outputs that follow no protocol: fences, prose, literals.

Nothing is repaired and nothing is evaluated: truncated text is an error, Python literals are parsed, not run. Which
road led to the graph is recorded, so that tolerance can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeGuard

from agl.graphs.named import Edge, GraphError, NamedGraph, read_weight
from agl.graphs.naming import NameTable, NamingError, node_id
from agl.json_text import JsonError, decode, literal, loads
from agl.thinking import after_thinking

Format = Literal["adjacency", "edge_list"]
MAX_TEXT = 1_000_000
"""Most characters that are read."""
MAX_DEPTH = 50


class Route(StrEnum):
    """How a graph was found in a text."""

    STRICT_JSON = "strict_json"
    FENCED_OR_PROSE_JSON = "fenced_or_prose_json"
    PYTHON_LITERAL = "python_literal"
    FENCED_OR_PROSE_PYTHON_LITERAL = "fenced_or_prose_python_literal"


@dataclass(frozen=True)
class ParsedGraph:
    """A graph and the road that led to it."""

    graph: NamedGraph
    route: Route


def read_text(
    text: str,
    *,
    declared: Sequence[str] | None = None,
    format: Format | None = None,  # noqa: A002
    directed: bool = False,
    strict: bool = False,
    coerce_weights: bool = False,
    keep_contradictions: bool = False,
) -> ParsedGraph:
    """Read the graph a model wrote somewhere in `text`.

    The thinking part is dropped. Fenced blocks go before prose, the last one counts; blocks are never merged. A block
    that was cut and begun again is truncated. `declared` gives the spelling of the nodes: a name that folds to exactly
    one of them becomes that one. `format` None tells adjacency and edge list apart by their fields; `directed` is
    what holds when the text does not say. `strict` accepts only a bare JSON value. `coerce_weights` also reads "7".

    Forms: the `<graph>` value; a bare or named adjacency (`adjacency_list`, optional `node_mapping`) of weights, names
    or pairs; `nodes` and `edges` with ends and an optional weight or one numeric attribute.

    With `keep_contradictions` the graph may hold one edge with two weights, for scoring of raw logs; it is then
    unfit for solvers.

    Raises:
        GraphError: `no_graph` when there is none, the codes of `JsonError` for text that cannot be decoded, those of
            `NamedGraph.from_edges` for the graph, `bad_type` for a shape that is no graph.
    """
    if len(text) > MAX_TEXT:
        raise GraphError("too_large", f"the text is longer than {MAX_TEXT:,} characters")
    try:
        value, route = _decode(text, strict)
    except JsonError as error:
        raise GraphError(error.code, str(error)) from None
    return ParsedGraph(_Reader(declared, directed, coerce_weights, keep_contradictions).read(value, format), route)


def _decode(text: str, strict: bool) -> tuple[Any, Route]:
    try:
        return loads(text), Route.STRICT_JSON
    except JsonError as error:
        if error.code == "too_deep":
            raise
    start = after_thinking(text)
    if start is None:
        raise GraphError("truncated", "the text ends inside its thinking part")
    body = text[start:].strip()
    if strict:
        return loads(body), Route.STRICT_JSON
    block = _last_block(body)
    found = _scan(body) if block is None else _value(block)
    whole = found.length == len(body)
    if found.is_json:
        return found.value, Route.STRICT_JSON if whole else Route.FENCED_OR_PROSE_JSON
    return found.value, Route.PYTHON_LITERAL if whole else Route.FENCED_OR_PROSE_PYTHON_LITERAL


_FENCE = re.compile(r"```(?:[ \t]*([A-Za-z0-9_+-]+)(?=[ \t]*(?:\n|[\[{]|$)))?")


def _last_block(text: str) -> str | None:
    """The last fenced block that begins like a value; an open one at the end counts."""
    found: str | None = None
    start: int | None = None
    for fence in _FENCE.finditer(text):
        if start is None:
            start = fence.end()
            continue
        block = text[start : fence.start()].strip()
        is_value = block.startswith(("{", "["))
        if fence.group(1):
            if is_value:
                raise GraphError("truncated", "a block was cut and begun again")
            start = fence.end()
        else:
            found = block if is_value else found
            start = None
    if start is not None and text[start:].lstrip().startswith(("{", "[")):
        found = text[start:].strip()
    return found


class _Found(NamedTuple):
    value: Any
    is_json: bool
    length: int
    """Characters the value takes in the text."""


def _value(block: str) -> _Found:
    """The one value that `block` is."""
    try:
        return _Found(loads(block), True, len(block))
    except JsonError as error:
        if error.code != "not_json":
            raise
    if _balanced_end(block, 0) < len(block):
        raise JsonError("extra_value", "something follows the value")
    return _Found(literal(block), False, len(block))


def _scan(text: str) -> _Found:
    """The last object in prose; a list only where the whole text is one."""
    if text.startswith("["):
        return _value(text)
    last: _Found | None = None
    end = 0
    while (start := text.find("{", end)) >= 0:
        if last is not None and not text[end:start].strip():
            raise JsonError("extra_value", f"a second value follows at character {start}; expected one", start)
        found, end = _value_at(text, start)
        last = found or last
    if last is None:
        raise GraphError("no_graph", "the text holds no object that could be a graph")
    return last


def _value_at(text: str, start: int) -> tuple[_Found | None, int]:
    """The object whose brace stands at `start` (None: braces of prose, such as "nodes {u, v}") and its end."""
    try:
        value, end = decode(text, start)
        return _Found(value, True, end - start), end
    except JsonError as error:
        if error.code != "not_json":
            raise
        refused = error
    end = _balanced_end(text, start)
    try:
        value = literal(text[start:end])
    except JsonError as error:
        if error.code != "not_json":
            raise
        if ":" in text[start:end]:
            raise refused from None
        return None, end
    return (_Found(value, False, end - start) if isinstance(value, dict) else None), end


_MARK = re.compile(r"""[\[\](){}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|["']""", re.DOTALL)
_CLOSES = {"}": "{", "]": "[", ")": "("}


def _balanced_end(text: str, start: int) -> int:
    """Offset behind the bracket that closes the one at `start`, brackets in quoted text not counted."""
    open_: list[str] = []
    for mark in _MARK.finditer(text, start):
        symbol = mark.group()
        if symbol in "[({":
            open_.append(symbol)
            if len(open_) > MAX_DEPTH:
                raise JsonError("too_deep", "the value is nested too deeply", mark.start())
        elif symbol in ("]", ")", "}"):
            if open_.pop() != _CLOSES[symbol]:
                raise JsonError("not_json", f"{symbol!r} at character {mark.start()} closes nothing", mark.start())
            if not open_:
                return mark.end()
        elif symbol in ('"', "'"):
            break
    raise JsonError("truncated", "the text ends inside a value", len(text))


_MAPPINGS = ("node_mapping", "mapping", "node_names")
_WRAPPERS = {"adjacency_list", "graph_type", "directed", "weighted", "type", "nodes", *_MAPPINGS}
_FLAGS = {"data", "type", "directed", "weighted"}


class _Reader:
    """Turns a decoded value into a graph."""

    def __init__(self, declared: Sequence[str] | None, directed: bool, coerce: bool, keep_contradictions: bool) -> None:
        self.table = NameTable(declared) if declared is not None else None
        self.directed = directed
        self.coerce = coerce
        self.keep = keep_contradictions

    def read(self, value: Any, form: Format | None) -> NamedGraph:
        if isinstance(value, dict) and isinstance(value.get("graph"), dict) and "problem_type" in value:
            value = value["graph"]
        if isinstance(value, list):
            if form == "adjacency":
                raise GraphError("bad_type", "an adjacency list is an object, got a list")
            return self._build([], value, {}, self.directed)
        if not isinstance(value, dict):
            raise GraphError("no_graph", f"a graph is an object, got {type(value).__name__}")
        edges = next((value[key] for key in ("edges", "links") if key in value), None)
        if form is None:
            listed = isinstance(edges, list) and all(isinstance(edge, list | dict) for edge in edges)
            form = "edge_list" if listed else "adjacency"
        if form == "edge_list":
            if not isinstance(edges, list):
                raise GraphError("missing_field", 'an edge list needs the field "edges"')
            nodes = value.get("nodes", [])
            return self._build(
                nodes if isinstance(nodes, list) else [nodes], edges, _mapping(value), self._direction(value)
            )
        near, nodes = value.get("adjacency_list"), value.get("nodes", [])
        if not (_is_adjacency(near) and value.keys() <= _WRAPPERS):
            near, nodes = value.get("data"), []
            flagged = isinstance(value.get("type"), str) or isinstance(value.get("directed"), bool)
            if not (_is_adjacency(near) and value.keys() <= _FLAGS and flagged):
                near = None
        if near is None:
            return self._build(value, list(_neighbours(value)), {}, self.directed)
        listed_nodes = [*(nodes if isinstance(nodes, list) else []), *near]
        return self._build(listed_nodes, list(_neighbours(near)), _mapping(value), self._direction(value))

    def _direction(self, value: dict[Any, Any]) -> bool:
        if isinstance(value.get("directed"), bool):
            return bool(value["directed"])
        kind = value.get("graph_type")
        return kind == "directed" if kind in ("directed", "undirected") else self.directed

    def _build(self, nodes: Any, edges: Sequence[Any], mapping: dict[Any, Any], directed: bool) -> NamedGraph:
        ends = [_ends(edge) for edge in edges]
        listed = [_node(node) for node in nodes]
        names = _index_names(mapping, [*listed, *(_id(end) for u, v, _ in ends for end in (u, v))])
        known = [self._spell(name) for name in names.values()]
        place = {key: self._spell(names.get(key, key)) for key in listed}
        named: list[tuple[str, str, object]] = []
        for u, v, weight in ends:
            source, target = (self._spell(names.get(_id(end), _id(end))) for end in (u, v))
            named.append((source, target, weight))
        order = list(dict.fromkeys([*known, *place.values()]))
        if not self.keep:
            weighted = any(type(weight) not in (int, float) or weight != 1 for _, _, weight in named)
            return NamedGraph.from_edges(order, named, directed, weighted, coerce_weights=self.coerce)
        return _with_contradictions(order, named, directed, self.coerce)

    def _spell(self, name: str) -> str:
        if self.table is None:
            return name
        try:
            return self.table.name(name)
        except NamingError:
            return name


def _id(value: object) -> str:
    try:
        return node_id(value)
    except NamingError as error:
        raise GraphError(error.code, str(error)) from None


def _node(entry: object) -> str:
    """A node in a list: its name, or an object with one."""
    if isinstance(entry, dict):
        entry = next((entry[key] for key in ("id", "name", "label") if key in entry), None)
    return _id(entry)


def _is_adjacency(value: object) -> TypeGuard[dict[Any, Any]]:
    """Not the neighbours of a node that happens to be called like a field: those are weights."""
    return isinstance(value, dict) and all(isinstance(near, dict | list) for near in value.values())


def _neighbours(adjacency: dict[Any, Any]) -> Iterator[list[object]]:
    for node, near in adjacency.items():
        if isinstance(near, dict):
            yield from ([node, neighbour, weight] for neighbour, weight in near.items())
        elif isinstance(near, list):
            for item in near:
                if isinstance(item, dict):
                    _, neighbour, weight = _ends({**item, "source": node})
                    yield [node, neighbour, weight]
                else:
                    yield [node, *item] if isinstance(item, list) else [node, item]
        else:
            raise GraphError("bad_type", f"the neighbours of {str(node)[:40]!r} are neither an object nor a list")


_TARGETS = ("target", "to", "v", "node", "neighbor", "neighbour", "id", "name")


def _ends(edge: object) -> tuple[object, object, object]:
    """Source, target and weight of an edge in any of the forms models write."""
    if isinstance(edge, list) and 2 <= len(edge) <= 3:
        return edge[0], edge[1], _weight(edge[2]) if len(edge) == 3 else 1
    if isinstance(edge, dict):
        source = next((key for key in ("source", "from", "u") if key in edge), None)
        target = next((key for key in _TARGETS if key in edge), None)
        if source is not None and target is not None:
            rest = {key: value for key, value in edge.items() if key not in (source, target)}
            return edge[source], edge[target], _weight(rest)
    raise GraphError("bad_type", "an edge needs two ends and at most one weight")


def _weight(value: object) -> object:
    """The number itself, or the one in an object of attributes such as `{"distance": 7}`; 1 when it is empty."""
    if not isinstance(value, dict):
        return value
    if "weight" in value or not value:
        return value.get("weight", 1)
    numbers = [item for item in value.values() if type(item) in (int, float)]
    return numbers[0] if len(numbers) == 1 else None


def _mapping(value: dict[Any, Any]) -> dict[Any, Any]:
    return next((value[key] for key in _MAPPINGS if isinstance(value.get(key), dict)), {})


def _index_names(mapping: dict[Any, Any], used: Sequence[str]) -> dict[str, str]:
    """Index -> name from a table written either way round; whichever side the graph uses is the index."""
    pairs = [(_id(key), _id(value)) for key, value in mapping.items()]
    keys, values = {key for key, _ in pairs}, {value for _, value in pairs}
    if sum(name in values for name in used) >= sum(name in keys for name in used):
        pairs = [(value, key) for key, value in pairs]
    names = dict(pairs)
    if len(names) < len(pairs) or len(set(names.values())) < len(pairs):
        raise GraphError("bad_mapping", "the table of node names gives one index or one name twice")
    return names


def _with_contradictions(
    nodes: Sequence[str], edges: Sequence[tuple[str, str, object]], directed: bool, coerce: bool
) -> NamedGraph:
    found: dict[tuple[str, str, float], Edge] = {}
    for u, v, raw in edges:
        weight = read_weight(raw, (u, v), coerce=coerce)
        ends = (u, v) if directed or u <= v else (v, u)
        found.setdefault((*ends, weight), (u, v, weight))
    if not nodes and not found:
        raise GraphError("empty_graph", "the graph has no nodes")
    every = dict.fromkeys([*nodes, *(end for u, v, _ in found.values() for end in (u, v))])
    return NamedGraph(tuple(every), tuple(found.values()), directed, any(edge[2] != 1 for edge in found.values()))
