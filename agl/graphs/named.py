"""NamedGraph: the small weighted graph with named nodes that models write and solvers read."""

from __future__ import annotations

from dataclasses import dataclass

Weight = int | float
Edge = tuple[str, str, Weight]


class GraphError(ValueError):
    """A graph that cannot be read or used; `code` names the kind, the message is for the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class NamedGraph:
    """`nodes` in order of first appearance; each undirected edge stands once, in the order it was first written.

    Simple unless read with `self_loops` allowed; weights are finite numbers, 1 where the graph is unweighted.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    directed: bool = False
    weighted: bool = False
