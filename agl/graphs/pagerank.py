"""Personalised PageRank on a view: local push for queries, power iteration as the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agl.graphs.view import GraphView, Rows

DAMPING = 0.85
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Ranking:
    """`nodes` [k] with a score above 0, best first, ties by row; `scores` [k] are probabilities."""

    nodes: Rows
    scores: NDArray[np.float64]

    def top(self, k: int, exclude: tuple[int, ...] = ()) -> list[tuple[int, float]]:
        """The k best nodes that are not in `exclude`, with their scores."""
        head = zip(self.nodes[: k + len(exclude)].tolist(), self.scores.tolist(), strict=False)
        return [(node, score) for node, score in head if node not in exclude][:k]


@dataclass(frozen=True)
class _Query:
    key: tuple[object, ...]
    sources: tuple[int, ...]
    damping: float
    tolerance: float
    view: GraphView = field(compare=False)


def personalized_pagerank(
    view: GraphView, sources: tuple[int, ...] | None = None, *, damping: float = DAMPING, tolerance: float = TOLERANCE
) -> Ranking:
    """Where a walk from `sources` (default: the targets) stands that goes home with probability 1 - damping a step.

    Local push (Andersen, Chung and Lang, "Local graph partitioning using PageRank vectors", FOCS 2006), with plain
    instead of lazy steps and all nodes above the threshold pushed at once. Each score lies below the true one by at
    most `tolerance` times the degree of its node. A walk stays where there is no edge to follow. The hidden edge of a
    pair target is not walked. Rankings of recent queries are kept.

    Raises:
        IndexError: a source is no row of the graph.
        ValueError: no source, or damping or tolerance outside (0, 1).
    """
    start = view.targets if sources is None else tuple(sorted({int(node) for node in sources}))
    _check(view, start, damping)
    if not 0 < tolerance < 1:
        raise ValueError(f"expected a tolerance between 0 and 1, got {tolerance}")
    return _ranking(_Query(view.key, start, damping, tolerance, view))


def _check(view: GraphView, sources: tuple[int, ...], damping: float) -> None:
    if not sources:
        raise ValueError("expected at least one source of the walk, got none")
    for node in sources:
        if not 0 <= node < view.n:
            raise IndexError(f"expected sources from 0 to {view.n - 1}, got {node}")
    if not 0 < damping < 1:
        raise ValueError(f"expected a damping between 0 and 1, got {damping}")


@lru_cache(maxsize=256)
def _ranking(query: _Query) -> Ranking:
    view, n = query.view, query.view.n
    settled = np.zeros(n)
    waiting = np.zeros(n)
    active = np.array(query.sources, dtype=np.int32)
    waiting[active] = 1 / len(active)
    while len(active):
        mass = waiting[active]
        waiting[active] = 0.0
        degrees = view.degrees(active)
        settled[active] += np.where(degrees > 0, (1 - query.damping) * mass, mass)
        source, target = view.arcs(active)
        share = (query.damping * mass / np.maximum(degrees, 1))[source]
        if len(target) < n // 8:
            np.add.at(waiting, target, share)
            touched = np.unique(target)
        else:
            waiting += np.bincount(target, share, minlength=n)
            touched = np.flatnonzero(waiting).astype(np.int32)
        active = touched[waiting[touched] > query.tolerance * view.degrees(touched)]
    return _sorted(settled)


def _sorted(scores: NDArray[np.float64]) -> Ranking:
    nodes = np.flatnonzero(scores > 0)
    order = np.lexsort((nodes, -scores[nodes]))
    return Ranking(nodes[order].astype(np.int32), scores[nodes][order])


def exact_pagerank(
    view: GraphView, sources: tuple[int, ...] | None = None, *, damping: float = DAMPING, tolerance: float = 1e-12
) -> Ranking:
    """PageRank by power iteration over the whole view, to `tolerance` in the sum of absolute changes.

    `sources=None` is the global PageRank (home is a random node): AgentGL's `salience: global`.

    Raises:
        IndexError, ValueError: as `personalized_pagerank`.
    """
    home = np.zeros(view.n)
    if sources is None:
        home[:] = 1 / max(view.n, 1)
    else:
        start = tuple(sorted({int(node) for node in sources}))
        _check(view, start, damping)
        home[list(start)] = 1 / len(start)
    rows = np.arange(view.n, dtype=np.int32)
    degrees = view.degrees(rows)
    source, target = view.arcs(rows)
    scores = home
    while True:
        share = damping * scores / np.maximum(degrees, 1)
        moved = np.bincount(target, share[source], minlength=view.n) + np.where(degrees == 0, damping * scores, 0.0)
        following = moved + (1 - damping) * home
        if float(np.abs(following - scores).sum()) < tolerance:
            return _sorted(following)
        scores = following
