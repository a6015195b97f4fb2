"""Reading of the parameters a model wrote, with typed errors that name the legal values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.solution import SolveError, listed


class Parameters:
    """The parameters of one call, read against the graph. `algorithm` is already validated."""

    def __init__(self, graph: Indexed, given: Mapping[str, object], algorithm: str | None) -> None:
        self._graph = graph
        self._given = given
        self.algorithm = algorithm

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def _index(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise SolveError("bad_parameter", f"{name} takes a node name, got {value!r}"[:300])
        node = self._graph.index.get(str(value))
        if node is None:
            known = listed(self._graph.names, ", ", 10)
            raise SolveError(
                "unknown_node", f"{name} names {str(value)[:100]!r}, which is no node; nodes: {known}"[:600]
            )
        return node

    def node(self, name: str) -> int:
        return self._index(name, self._given[name])

    def nodes(self, name: str) -> list[int]:
        values = self._given[name]
        if not isinstance(values, list | tuple):
            raise SolveError("bad_parameter", f"{name} takes a list of node names, got {values!r}"[:300])
        nodes = [self._index(name, value) for value in values]
        if len(set(nodes)) < len(nodes):
            raise SolveError("bad_parameter", f"{name} names a node twice")
        return nodes

    def choice(self, name: str, legal: Sequence[str], default: str | None = None) -> str:
        value = self._given[name] if name in self else default
        if value not in legal or not isinstance(value, str):
            raise SolveError("bad_parameter", f"{name} is one of {', '.join(legal)}; got {value!r}"[:300])
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given[name] if name in self else default
        if not isinstance(value, bool):
            raise SolveError("bad_parameter", f"{name} is true or false; got {value!r}"[:300])
        return value

    def count(self, name: str, default: int) -> int:
        value = self._given[name] if name in self else default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SolveError("bad_parameter", f"{name} is a whole number of at least 1; got {value!r}"[:300])
        return value

    def fraction(self, name: str, default: float) -> float:
        value = self._given[name] if name in self else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise SolveError("bad_parameter", f"{name} is a number from 0 to below 1; got {value!r}"[:300])
        return float(value)
