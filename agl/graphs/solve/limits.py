"""Size and time limits: hostile input becomes a typed error, never a hang."""

from __future__ import annotations

import time
from dataclasses import dataclass

from agl.graphs.solve.solution import SolveError

NODES = {
    "tsp": 120,
    "coloring": 200,
    "vertex_cover": 200,
    "matching": 200,
    "centrality": 1000,
    "diameter": 1000,
    "max_flow": 1000,
}
"""Largest number of nodes per problem type; `OTHERS` for the rest, which need little more than linear time."""
OTHERS = 20_000


@dataclass(frozen=True)
class Limits:
    """`nodes`: largest graph, None for the default of the problem type (`NODES`); `seconds`: wall clock of one call.

    The clock is read between solver steps of well under a second each, so a call ends within about `seconds` + 1.
    """

    nodes: int | None = None
    seconds: float = 10.0

    def admit(self, problem_type: str, count: int) -> None:
        """Raise for a graph of `count` nodes that is too large.

        Raises:
            SolveError: code `too_large`.
        """
        most = self.nodes if self.nodes is not None else NODES.get(problem_type, OTHERS)
        if count > most:
            raise SolveError("too_large", f"{problem_type} takes at most {most} nodes here, got {count}")


class Deadline:
    """The wall clock of one call, read at the solvers' own pace."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return self._end - time.monotonic()

    def check(self) -> None:
        """Raise when time is up.

        Raises:
            SolveError: code `timeout`.
        """
        if time.monotonic() > self._end:
            raise SolveError("timeout", f"no proven answer within {self._seconds:g} seconds; try a smaller graph")
