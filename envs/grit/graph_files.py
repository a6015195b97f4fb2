"""Graphs of users: GRIT items and other JSON lines, node-link JSON, GraphML, and edge lists as TSV or CSV.

Every graph is simple and undirected, its names are strings and differ even after folding, and all of its edges have a
weight or none has. Nothing is guessed or dropped: what breaks a rule is refused with its place in the file.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.parsers import expat

from pydantic import ValidationError

from agl.errors import DataError
from agl.graphs.named import GraphError, NamedGraph, Weight, read_graph, read_weight
from agl.graphs.naming import NamingError, collisions, node_id
from agl.json_text import JsonError, loads
from envs.grit.items import TASKS, GritTask, Query, TaskName

FORMATS = {
    ".jsonl": "one graph a line: a GRIT item, node-link JSON or an adjacency object",
    ".json": "node-link JSON or an adjacency object, or a list of them",
    ".graphml": "GraphML",
    ".tsv": "source<TAB>target[<TAB>weight]",
    ".csv": "source,target[,weight]",
}


@dataclass(frozen=True)
class UserGraph:
    """A checked graph. `where` is its place in the files; edges are (u, v, w) in indices of `nodes` with u < v,
    ascending; the weight is 1 where `weighted` is False. `asked` holds what a GRIT item asks about it."""

    name: str
    where: str
    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int, Weight], ...]
    weighted: bool
    asked: tuple[TaskName, Query] | None = None


@dataclass(frozen=True)
class Refused:
    """A graph that cannot be used: where it stands and why not."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class _Unusable(Exception):
    """A graph breaks a rule."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(reason)
        self.refused = Refused(where, reason)


def read_graphs(path: Path) -> list[UserGraph | Refused]:
    """The graphs of a file in order. GRIT items that are views of one graph give it once, with the names of the first.

    Raises:
        DataError: the file cannot be read, is of no known format, or holds no graph.
    """
    readers = {".jsonl": _lines, ".json": _json, ".graphml": _graphml, ".tsv": _rows, ".csv": _rows}
    if path.suffix.lower() not in readers:
        known = "; ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise DataError(f"expected a file of graphs, got {path}; known are: {known}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the graphs in {path}: {error}") from None
    found = list(readers[path.suffix.lower()](path, text))
    if not found:
        raise DataError(f"expected at least one graph in {path}, got none")
    return found


class _Collected:
    """Nodes and edges of one graph as they are read, each with its place; `graph` checks the whole."""

    def __init__(self, where: str, *, declared: bool) -> None:
        self.where, self.declared = where, declared
        self._nodes: dict[str, int] = {}
        self._edges: dict[tuple[int, int], tuple[str, Weight | None]] = {}

    def node(self, value: object, where: str) -> None:
        name = _name(value, where)
        if name in self._nodes:
            raise _Unusable(where, f"the node {name!r} is declared twice; remove one")
        self._nodes[name] = len(self._nodes)

    def edge(self, source: object, target: object, weight: object, where: str) -> None:
        """`weight` None: the edge has none."""
        u, v = _name(source, where), _name(target, where)
        if u == v:
            raise _Unusable(where, f"the edge ({u}, {v}) is a self-loop; remove it")
        for end in (u, v):
            if end not in self._nodes:
                if self.declared:
                    raise _Unusable(where, f"the edge ({u}, {v}) ends at {end!r}, which is no node; declare it")
                self._nodes[end] = len(self._nodes)
        try:
            number = None if weight is None else read_weight(weight, (u, v))
        except GraphError as error:
            raise _Unusable(where, str(error)) from None
        a, b = sorted((self._nodes[u], self._nodes[v]))
        if (a, b) in self._edges:
            first, known = self._edges[a, b]
            if known != number:
                raise _Unusable(where, f"contradictory weights for ({u}, {v}): {known} at {first}, now {number}")
            raise _Unusable(where, f"the edge ({u}, {v}) stands twice, first at {first}; remove one")
        self._edges[a, b] = (where, number)

    def graph(self, name: str) -> UserGraph:
        return _checked(
            name, self.where, tuple(self._nodes), {pair: weight for pair, (_, weight) in self._edges.items()}
        )


def _checked(
    name: str, where: str, nodes: tuple[str, ...], edges: Mapping[tuple[int, int], Weight | None]
) -> UserGraph:
    if not nodes:
        raise _Unusable(where, "the graph has no nodes")
    if alike := collisions(nodes):
        raise _Unusable(
            where,
            f"{alike[0][0]!r} and {alike[0][1]!r} are one name once case, blanks and apostrophes are "
            "folded; rename one",
        )
    bare = [pair for pair, weight in edges.items() if weight is None]
    if bare and len(bare) < len(edges):
        u, v = bare[0]
        raise _Unusable(
            where, f"the edge ({nodes[u]}, {nodes[v]}) has no weight while others have; give all one, or none"
        )
    rows = sorted((u, v, 1 if weight is None else weight) for (u, v), weight in edges.items())
    return UserGraph(name, where, nodes, tuple(rows), weighted=bool(edges) and not bare)


def _name(value: object, where: str) -> str:
    try:
        return node_id(value)
    except NamingError as error:
        raise _Unusable(where, str(error)) from None


def _lines(path: Path, text: str) -> Iterator[UserGraph | Refused]:
    views: dict[str, UserGraph] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            graph = _object(_loaded(line, where), f"{path.stem}-{number}", where)
            first = views.setdefault(graph.name, graph) if graph.asked is not None else graph
            if first is graph:
                yield graph
            elif (len(first.nodes), first.edges, first.asked) != (len(graph.nodes), graph.edges, graph.asked):
                raise _Unusable(
                    where,
                    f"expected another view of the graph {graph.name!r}, "
                    f"got a graph or question unlike that of {first.where}; give it a graph_id of its own",
                )
        except _Unusable as error:
            yield error.refused


def _json(path: Path, text: str) -> Iterator[UserGraph | Refused]:
    try:
        value = loads(text)
    except JsonError as error:
        line = "" if error.position is None else f", line {text.count(chr(10), 0, error.position) + 1}"
        yield Refused(f"{path}{line}", f"expected JSON, got text that is none: {error}")
        return
    many = isinstance(value, list)
    for index, one in enumerate(value if many else [value]):
        where = f"{path}, graph {index}" if many else str(path)
        try:
            yield _object(one, f"{path.stem}-{index}" if many else path.stem, where)
        except _Unusable as error:
            yield error.refused


def _loaded(line: str, where: str) -> Any:
    try:
        return loads(line)
    except JsonError as error:
        raise _Unusable(where, f"expected one JSON object, got text that is none: {error}") from None


def _object(value: Any, name: str, where: str) -> UserGraph:
    if isinstance(value, dict):
        if "question" in value and "gold" in value:
            return _item(value, where)
        if "data" in value:
            return _adjacency(value, name, where)
        if "nodes" in value:
            return _node_link(value, name, where)
    raise _Unusable(
        where,
        f"expected a GRIT item, a node-link graph (nodes, edges) or an adjacency object (data), got "
        f"{'an object without their fields' if isinstance(value, dict) else type(value).__name__}",
    )


def _item(value: dict[str, Any], where: str) -> UserGraph:
    try:
        item = GritTask.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "item"
        raise _Unusable(where, f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
    if item.directed:
        raise _Unusable(where, _DIRECTED)
    found = _Collected(where, declared=True)
    for node in item.nodes:
        found.node(node, where)
    for u, v, weight in item.edges:
        found.edge(item.nodes[u], item.nodes[v], weight if item.weighted else None, where)
    graph = found.graph(item.graph_id)
    return replace(graph, asked=(item.task, item.query)) if item.task in TASKS else graph


_DIRECTED = "the graph is directed; GRIT questions are about undirected graphs, so merge its directions first"


def _adjacency(value: dict[str, Any], name: str, where: str) -> UserGraph:
    try:
        graph = read_graph({key: part for key, part in value.items() if key not in ("name", "id")})
    except GraphError as error:
        raise _Unusable(where, str(error)) from None
    if graph.directed:
        raise _Unusable(where, _DIRECTED)
    return _named(graph, str(value.get("name", value.get("id", name))), where)


def _named(graph: NamedGraph, name: str, where: str) -> UserGraph:
    place = {node: index for index, node in enumerate(graph.nodes)}
    edges: dict[tuple[int, int], Weight | None] = {}
    for source, target, weight in graph.edges:
        u, v = sorted((place[source], place[target]))
        edges[u, v] = weight if graph.weighted else None
    return _checked(name, where, graph.nodes, edges)


def _node_link(value: dict[str, Any], name: str, where: str) -> UserGraph:
    for flag in ("directed", "multigraph"):
        if not isinstance(value.get(flag), bool):
            got = "none" if flag not in value else repr(value[flag])[:40]
            raise _Unusable(where, f"node-link JSON needs the flag {flag!r}, true or false, got {got}; write it down")
    if value["directed"]:
        raise _Unusable(where, _DIRECTED)
    keys = [key for key in ("edges", "links") if key in value]
    if len(keys) != 1:
        raise _Unusable(where, f"expected the edges under 'edges' or under 'links', got {' and '.join(keys) or 'none'}")
    found = _Collected(where, declared=True)
    for index, node in enumerate(_list(value, "nodes", where)):
        place = f"{where}, nodes[{index}]"
        if not isinstance(node, dict) or "id" not in node:
            raise _Unusable(place, f"expected an object with the field 'id', got {str(node)[:40]!r}")
        found.node(node["id"], place)
    for index, edge in enumerate(_list(value, keys[0], where)):
        place = f"{where}, {keys[0]}[{index}]"
        if not isinstance(edge, dict) or not {"source", "target"} <= edge.keys():
            raise _Unusable(place, f"expected an object with 'source' and 'target', got {str(edge)[:40]!r}")
        if "weight" in edge and edge["weight"] is None:
            raise _Unusable(place, "the weight is null; write a number, or leave it out of all edges")
        found.edge(edge["source"], edge["target"], edge.get("weight"), place)
    about = value.get("graph")
    own = about.get("name") if isinstance(about, dict) else None
    return found.graph(str(own or value.get("name") or value.get("id") or name))


def _list(value: dict[str, Any], key: str, where: str) -> Sequence[Any]:
    if not isinstance(value[key], list):
        raise _Unusable(where, f"expected a list under {key!r}, got {type(value[key]).__name__}")
    found: list[Any] = value[key]
    return found


def _graphml(path: Path, text: str) -> Iterator[UserGraph | Refused]:
    import networkx

    try:
        nodes, ends = _places(text)
        graph = networkx.parse_graphml(text, node_type=str, force_multigraph=True)
    except expat.ExpatError as error:
        yield Refused(f"{path}, line {error.lineno}", f"expected GraphML, got text that is no XML: {error}")
        return
    except Exception as error:  # networkx raises many kinds for one cause: a file that is no GraphML
        yield Refused(str(path), f"expected GraphML, got a file that networkx cannot read: {error}")
        return
    try:
        if graph.is_directed():
            raise _Unusable(str(path), _DIRECTED)
        found = _Collected(str(path), declared=True)
        for node, line in nodes:
            found.node(node, f"{path}, line {line}")
        weights = {
            key: iter([data.get("weight") for data in graph[key[0]][key[-1]].values()])
            for key in {_pair(source, target) for source, target, _ in ends}
            if graph.has_edge(key[0], key[-1])
        }
        for source, target, line in ends:
            weight = next(weights[_pair(source, target)], None)
            found.edge(source, target, weight, f"{path}, line {line}")
        yield found.graph(str(graph.graph.get("name") or path.stem))
    except _Unusable as error:
        yield error.refused


def _pair(source: str, target: str) -> tuple[str, ...]:
    return tuple(sorted({source, target}))


def _places(text: str) -> tuple[list[tuple[str, int]], list[tuple[str, str, int]]]:
    """Nodes and edges of a GraphML text in file order, with their lines: networkx keeps neither."""
    nodes: list[tuple[str, int]] = []
    edges: list[tuple[str, str, int]] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def start(tag: str, attributes: dict[str, str]) -> None:
        kind = tag.rpartition(" ")[2]
        if kind == "node":
            nodes.append((attributes.get("id", ""), parser.CurrentLineNumber))
        elif kind == "edge":
            edges.append((attributes.get("source", ""), attributes.get("target", ""), parser.CurrentLineNumber))

    parser.StartElementHandler = start
    parser.Parse(text.encode("utf-8"), True)
    return nodes, edges


_HEADERS = ({"source", "target"}, {"source", "target", "weight"})


def _rows(path: Path, text: str) -> Iterator[UserGraph | Refused]:
    if path.suffix.lower() == ".csv":
        reader = csv.reader(text.splitlines(keepends=True), strict=True)
    else:
        reader = csv.reader(text.splitlines(keepends=True), delimiter="\t", quoting=csv.QUOTE_NONE)
    separator = "comma" if path.suffix.lower() == ".csv" else "tab"
    found = _Collected(str(path), declared=False)
    columns = {"source": 0, "target": 1, "weight": 2}
    width = 0
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if not any(cell.strip() for cell in row):
                continue
            if not width:
                width = len(row)
                cells = [cell.strip().casefold() for cell in row]
                if len(cells) == len(set(cells)) and set(cells) in _HEADERS:
                    columns = {cell: index for index, cell in enumerate(cells)}
                    continue
            if len(row) not in (2, 3):
                raise _Unusable(
                    where,
                    f"expected source, target and perhaps a weight, separated by a {separator}, got "
                    f"{len(row)} column{'' if len(row) == 1 else 's'}",
                )
            if len(row) != width:
                raise _Unusable(where, f"expected {width} columns as before, got {len(row)}; give all edges a weight")
            source, target = row[columns["source"]], row[columns["target"]]
            weight = _number(row[columns["weight"]], (source, target), where) if width == 3 else None
            found.edge(source, target, weight, where)
        yield found.graph(path.stem)
    except csv.Error as error:
        yield Refused(f"{path}, line {reader.line_num}", f"expected CSV, got a row that is none: {error}")
    except _Unusable as error:
        yield error.refused


def _number(text: str, edge: tuple[str, str], where: str) -> Weight:
    try:
        if not math.isfinite(float(text)):
            raise _Unusable(where, f"the weight of ({edge[0]}, {edge[1]}) is {text.strip()}, not a finite number")
    except ValueError:
        pass
    try:
        return read_weight(text, edge, coerce=True)
    except GraphError as error:
        raise _Unusable(where, str(error)) from None
