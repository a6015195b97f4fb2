"""The form solvers compute on: nodes as indices, weights as integers over one common denominator."""

from __future__ import annotations

import math
from fractions import Fraction

from agl.graphs.named import NamedGraph
from agl.graphs.solve.solution import Exact, SolveError, exact


class Indexed:
    """`graph` with nodes numbered in their given order.

    `out[u]` maps each successor v (ascending) to the weight of (u, v) times `scale`, an exact integer; `into[v]` is the
    reverse. Undirected edges stand in both directions. Self-loops are left out of both and listed in `loops`.
    """

    def __init__(self, graph: NamedGraph) -> None:
        if not graph.nodes:
            raise SolveError("empty_graph", "the graph has no nodes")
        self.names = graph.nodes
        self.directed = graph.directed
        self.weighted = graph.weighted
        self.index = {name: place for place, name in enumerate(graph.nodes)}
        weights: list[Exact] = [exact(weight) if graph.weighted else 1 for _, _, weight in graph.edges]
        self.scale = math.lcm(*(weight.denominator for weight in weights if isinstance(weight, Fraction)))
        out: list[dict[int, int]] = [{} for _ in graph.nodes]
        self.loops: dict[int, int] = {}
        for (source, target, _), weight in zip(graph.edges, weights, strict=True):
            if source not in self.index or target not in self.index:
                missing = source if source not in self.index else target
                raise SolveError("unknown_node", f"the edge ({source}, {target}) names {missing!r}, which is no node")
            u, v, scaled = self.index[source], self.index[target], int(weight * self.scale)
            if u == v:
                self.loops[u] = scaled
                continue
            if out[u].get(v, scaled) != scaled:
                raise SolveError("contradictory_edge", f"the edge ({source}, {target}) stands twice with two weights")
            out[u][v] = scaled
            if not graph.directed:
                out[v][u] = scaled
        self.out = [dict(sorted(row.items())) for row in out]
        self.into = self.out if not graph.directed else self._reversed()

    def _reversed(self) -> list[dict[int, int]]:
        into: list[dict[int, int]] = [{} for _ in self.names]
        for u, row in enumerate(self.out):
            for v, weight in row.items():
                into[v][u] = weight
        return into

    def __len__(self) -> int:
        return len(self.names)

    def value(self, scaled: int) -> Exact:
        """A sum of integer weights in the unit of the graph."""
        return exact(Fraction(scaled, self.scale)) if self.scale > 1 else scaled

    def named(self, nodes: list[int]) -> list[str]:
        return [self.names[node] for node in nodes]

    def pairs(self) -> list[tuple[int, int, int]]:
        """The edges (u, v, weight) without loops, sorted; u < v where undirected."""
        return [(u, v, weight) for u, row in enumerate(self.out) for v, weight in row.items() if self.directed or u < v]

    def undirected_only(self, problem: str) -> None:
        """Refuse a directed graph.

        Raises:
            SolveError: code `directed_unsupported`.
        """
        if self.directed:
            raise SolveError("directed_unsupported", f"{problem} takes an undirected graph; set directed to false")
