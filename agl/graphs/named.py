"""NamedGraph: the small weighted graph with named nodes that models write and solvers read.

The JSON value and its semantics follow GRAIN (arXiv 2608.27142), prompt table and worked example: the nodes are the
keys and the neighbours; an undirected graph is symmetrised, each edge may be listed once or twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agl.graphs.naming import NamingError, natural_key, node_id

if TYPE_CHECKING:
    import networkx

Weight = int | float
Edge = tuple[str, str, Weight]

MAX_NODES = 2_000
MAX_EDGES = 200_000
MAX_WEIGHT = 10**15
"""Largest magnitude of a weight: whole numbers up to here, and their sums, stay exact in the solvers' floats."""


class GraphError(ValueError):
    """A graph that cannot be read or used; `code` names the kind, the message is for the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class NamedGraph:
    """`nodes` in order of first appearance (in JSON: keys, then nodes that are only neighbours); each undirected edge
    stands once, in the order and direction it was first written.

    Simple unless read with `self_loops` allowed; weights are finite numbers, 1 where the graph is unweighted.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    directed: bool = False
    weighted: bool = False

    @classmethod
    def from_edges(
        cls,
        nodes: Iterable[object],
        edges: Iterable[tuple[object, object] | tuple[object, object, object]],
        directed: bool = False,
        weighted: bool = False,
        *,
        self_loops: bool = False,
        coerce_weights: bool = False,
        max_nodes: int = MAX_NODES,
        max_edges: int = MAX_EDGES,
    ) -> NamedGraph:
        """A checked graph; ends that `nodes` does not list follow in order of appearance, a missing weight is 1.

        Raises:
            GraphError: `bad_id`, `bad_weight`, `non_finite`, `self_loop`, `contradictory_edge`, `empty_graph`,
                `too_large`.
        """
        build = _Build(directed, weighted, self_loops, coerce_weights, max_nodes, max_edges)
        for node in nodes:
            build.node(node)
        for u, v, *weight in edges:
            build.edge(u, v, weight[0] if weight else 1)
        return build.graph()

    def to_json(self) -> dict[str, Any]:
        """The `<graph>` value; `read_graph` gives back an equal graph (same nodes in the same order, same edges)."""
        data: dict[str, dict[str, Weight]] = {node: {} for node in self.nodes}
        for u, v, weight in self.edges:
            data[u][v] = weight
        return {"type": "adjacency_list", "data": data, "directed": self.directed, "weighted": self.weighted}

    def adjacency(self) -> dict[str, dict[str, Weight]]:
        """Node -> neighbour -> weight, nodes and neighbours in the order of `nodes`; successors where directed."""
        found: dict[str, dict[str, Weight]] = {node: {} for node in self.nodes}
        for u, v, weight in self.edges:
            found[u][v] = weight
            if not self.directed:
                found[v][u] = weight
        place = {node: i for i, node in enumerate(self.nodes)}
        return {node: dict(sorted(near.items(), key=lambda item: place[item[0]])) for node, near in found.items()}

    def to_networkx(self) -> networkx.Graph[str]:
        """A `Graph` or `DiGraph` with the attribute `weight` on every edge."""
        import networkx

        graph: networkx.Graph[str] = networkx.DiGraph() if self.directed else networkx.Graph()
        graph.add_nodes_from(self.nodes)
        graph.add_weighted_edges_from(self.edges)
        return graph

    def canonical(self) -> NamedGraph:
        """The same graph in natural order of names and with whole numbers as `int`: equal for equal graphs."""
        place = {node: i for i, node in enumerate(sorted(self.nodes, key=natural_key))}
        ends = [(u, v, w) if self.directed or place[u] <= place[v] else (v, u, w) for u, v, w in self.edges]
        ends.sort(key=lambda edge: (place[edge[0]], place[edge[1]]))
        edges = tuple((u, v, _plain(weight)) for u, v, weight in ends)
        return NamedGraph(tuple(place), edges, self.directed, self.weighted)


def _cut(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def _plain(weight: Weight) -> Weight:
    return int(weight) if isinstance(weight, float) and weight.is_integer() else weight


class _Build:
    """Collects nodes and edges, checking each; the work is bounded by the limits."""

    def __init__(
        self, directed: bool, weighted: bool, self_loops: bool, coerce: bool, max_nodes: int, max_edges: int
    ) -> None:
        self.directed, self.weighted, self.self_loops, self.coerce = directed, weighted, self_loops, coerce
        self.max_nodes, self.max_edges = max_nodes, max_edges
        self.nodes: dict[str, None] = {}
        self.edges: dict[tuple[str, str], Edge] = {}

    def node(self, value: object) -> str:
        if type(value) is str and value in self.nodes:
            return value
        try:
            name = node_id(value)
        except NamingError as error:
            raise GraphError(error.code, str(error)) from None
        self.nodes[name] = None
        if len(self.nodes) > self.max_nodes:
            raise GraphError("too_large", f"the graph has more than {self.max_nodes:,} nodes")
        return name

    def edge(self, u: object, v: object, weight: object) -> None:
        source, target = self.node(u), self.node(v)
        if source == target and not self.self_loops:
            raise GraphError("self_loop", f"{_cut(source)!r} is its own neighbour; remove that edge")
        number = read_weight(weight, (source, target), coerce=self.coerce)
        if not self.weighted and number != 1:
            place = f"({_cut(source)},{_cut(target)})"
            raise GraphError(
                "bad_weight",
                f"the weight of {place} is {number} in an unweighted graph; set weighted to true or write 1",
            )
        key = (source, target) if self.directed or source <= target else (target, source)
        known = self.edges.setdefault(key, (source, target, number))
        if known[2] != number:
            place = f"({_cut(known[0])},{_cut(known[1])})"
            raise GraphError("contradictory_edge", f"contradictory weight for {place}: {known[2]} and {number}")
        if len(self.edges) > self.max_edges:
            raise GraphError("too_large", f"the graph has more than {self.max_edges:,} edges")

    def graph(self) -> NamedGraph:
        if not self.nodes:
            raise GraphError("empty_graph", "the graph has no nodes")
        return NamedGraph(tuple(self.nodes), tuple(self.edges.values()), self.directed, self.weighted)


_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


def read_weight(value: object, edge: tuple[str, str], *, coerce: bool = False) -> Weight:
    """A weight as a finite number, whole numbers as `int`; with `coerce`, text such as "7" is read as a number.

    Raises:
        GraphError: `bad_weight` for booleans, text, null, containers and magnitudes over 1e15; `non_finite`.
    """
    if type(value) is int and -MAX_WEIGHT <= value <= MAX_WEIGHT:
        return value
    place = f"the weight of ({_cut(edge[0])},{_cut(edge[1])})"
    if isinstance(value, str):
        if not coerce or not _NUMBER.fullmatch(value.strip()):
            raise GraphError("bad_weight", f"{place} is the text {value[:40]!r}; write a bare number such as 7")
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GraphError("bad_weight", f"{place} must be a number, got {_kind(value)}")
    if value != value or value in (math.inf, -math.inf):
        raise GraphError("non_finite", f"{place} is not a finite number")
    if abs(value) > MAX_WEIGHT:
        raise GraphError("bad_weight", f"{place} is too large: at most 1e15 in magnitude")
    return _plain(value)


_KINDS = {dict: "an object", list: "a list", tuple: "a list", bool: "a boolean", type(None): "null", str: "text"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


_FIELDS = ("type", "data", "directed", "weighted")


def read_graph(
    obj: object,
    *,
    coerce_weights: bool = False,
    self_loops: bool = False,
    max_nodes: int = MAX_NODES,
    max_edges: int = MAX_EDGES,
) -> NamedGraph:
    """Read the `<graph>` value: `{"type": "adjacency_list", "data": {node: {neighbour: weight}}, "directed": bool,
    "weighted": bool}`.

    A list of neighbours means weight 1. `type` may be left out. Both flags are required: a guess would change answers.

    Raises:
        GraphError: `bad_type`, `missing_field`, `unknown_field` for the shape, and all codes of
            `NamedGraph.from_edges`.
    """
    if not isinstance(obj, dict):
        raise GraphError(
            "bad_type", f'the graph must be an object with "data", "directed", "weighted", got {_kind(obj)}'
        )
    if unknown := [key for key in obj if key not in _FIELDS]:
        raise GraphError("unknown_field", f"unknown graph field {str(unknown[0])[:40]!r}; legal: {', '.join(_FIELDS)}")
    if missing := [key for key in _FIELDS[1:] if key not in obj]:
        raise GraphError("missing_field", f"the graph needs the field {missing[0]!r}")
    if obj.get("type", "adjacency_list") != "adjacency_list":
        raise GraphError("bad_type", f'graph.type must be "adjacency_list", got {str(obj["type"])[:40]!r}')
    for flag in ("directed", "weighted"):
        if not isinstance(obj[flag], bool):
            raise GraphError("bad_type", f"graph.{flag} must be true or false, got {_kind(obj[flag])}")
    data = obj["data"]
    if not isinstance(data, dict):
        raise GraphError("bad_type", f"graph.data must be {{node: {{neighbour: weight}}}}, got {_kind(data)}")
    return NamedGraph.from_edges(
        data,
        _edges(data),
        obj["directed"],
        obj["weighted"],
        self_loops=self_loops,
        coerce_weights=coerce_weights,
        max_nodes=max_nodes,
        max_edges=max_edges,
    )


def _edges(data: dict[Any, Any]) -> Iterator[tuple[object, object, object]]:
    for node, near in data.items():
        if isinstance(near, dict):
            for neighbour, weight in near.items():
                yield node, neighbour, weight
        elif isinstance(near, list):
            for neighbour in near:
                if isinstance(neighbour, list | dict):
                    raise GraphError(
                        "bad_type", f"neighbours of {str(node)[:40]!r}: write names or an object {{neighbour: weight}}"
                    )
                yield node, neighbour, 1
        else:
            raise GraphError(
                "bad_type", f"neighbours of {str(node)[:40]!r} must be {{neighbour: weight}}, got {_kind(near)}"
            )
