"""GraphView: the only thing through which tools see a large graph, with what the query may not reveal left out.

For a node target the view hides its label; for a pair target it takes the edge away, in both directions, before any
neighbourhood, distance, PageRank or pool is computed, so that no result differs between a linked and an unlinked pair.
Labels are shown for training nodes only. Nothing is copied: a view costs microseconds, and every reading goes through
`arcs`, where the hidden edge is filtered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from agl.graphs.index import Hit, Index
    from agl.graphs.text_graph import TextGraph

Rows = NDArray[np.int32]
Pool = Literal["all", "train", "one_hop", "two_hop"]
PAGE = 20
MAX_PAGE = 1_000


class ViewError(ValueError):
    """A question the view cannot answer; `code` names the kind, the message is for the model."""

    def __init__(self, code: Literal["bad_range", "bad_pool", "no_index"], message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class NodeTarget:
    """The class of this node is asked for."""

    node: int


@dataclass(frozen=True)
class PairTarget:
    """Whether these two nodes are linked is asked for."""

    u: int
    v: int


Target = NodeTarget | PairTarget


@dataclass(frozen=True)
class Label:
    """A class as the view shows it: `gold` of a training node, or `predicted` by someone earlier in the run."""

    index: int
    name: str
    source: Literal["gold", "predicted"]


@dataclass(frozen=True)
class Page:
    """Part of a list of nodes: `items` are rows `offset .. offset + len(items)` of `total`."""

    items: tuple[int, ...]
    total: int
    offset: int
    next_offset: int | None

    def __str__(self) -> str:
        return f"{len(self.items)} of {self.total} shown"


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Neighbours in compressed sparse rows (as `TextGraph.indptr`, `indices`) with some edges left out for good."""

    indptr: NDArray[np.int64]
    indices: Rows
    key: str = ""
    """Identifies what was left out, for caches; empty when nothing was."""


def without_pairs(graph: TextGraph, pairs: Iterable[tuple[int, int]] | NDArray[Any]) -> Adjacency:
    """The graph's adjacency without `pairs` in both directions: made once for a link-prediction split.

    The views of all its queries share it, so that edges of validation and test are absent throughout.
    """
    given = np.asarray(pairs if hasattr(pairs, "__len__") else list(pairs), dtype=np.int64).reshape(-1, 2)
    n = len(graph.indptr) - 1
    if len(given) and not (given.min() >= 0 and given.max() < n):
        raise IndexError(f"expected pairs of rows 0 to {n - 1}")
    hidden = np.unique(np.concatenate([given[:, 0] * n + given[:, 1], given[:, 1] * n + given[:, 0]]))
    source = np.repeat(np.arange(n, dtype=np.int64), np.diff(graph.indptr))
    keep = ~np.isin(source * n + graph.indices, hidden)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source[keep], minlength=n), out=indptr[1:])
    return Adjacency(indptr, graph.indices[keep], hashlib.sha256(hidden.tobytes()).hexdigest())


@dataclass(frozen=True, eq=False)
class GraphView:
    """`graph` as the tools of one episode see it; nodes are row numbers, `id` gives their names.

    `train` are the rows whose labels may be seen (default: the train part of the main split) as rows or as a mask
    [n]. `adjacency` replaces the edges of the graph by fewer, see `without_pairs`. `index` is needed by `search` only.
    `leaky` hides nothing; it exists to measure what leakage would be worth.

    Raises:
        IndexError: the target, or a row passed to a method, is no row of the graph.
    """

    graph: TextGraph
    target: Target
    train: NDArray[Any] | Sequence[int] | None = None
    adjacency: Adjacency | None = None
    index: Index | None = None
    leaky: bool = False
    _pair: tuple[int, int] | None = field(init=False, default=None)
    _edges: Adjacency = field(init=False)

    def __post_init__(self) -> None:
        for node in self.targets:
            self._row(node)
        edges = self.adjacency or Adjacency(self.graph.indptr, self.graph.indices)
        object.__setattr__(self, "_edges", edges)
        if isinstance(self.target, PairTarget) and not self.leaky:
            object.__setattr__(self, "_pair", (int(self.target.u), int(self.target.v)))

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphView, (self.graph, self.target, self.train, self.adjacency, self.index, self.leaky)

    @property
    def n(self) -> int:
        return self.graph.n

    @property
    def targets(self) -> tuple[int, ...]:
        """The one or two rows the query is about; never evidence for themselves."""
        pair = (self.target.u, self.target.v) if isinstance(self.target, PairTarget) else (self.target.node,)
        return tuple(dict.fromkeys(int(node) for node in pair))

    @property
    def key(self) -> tuple[str, str, tuple[int, ...] | None]:
        """What decides the visible edges, for caches: equal keys see equal neighbourhoods."""
        return self.graph.content_hash, self._edges.key, self._pair and tuple(sorted(self._pair))

    def id(self, i: int) -> str:
        return self.graph.ids[self._row(i)]

    def text(self, i: int) -> str:
        return self.graph.text(self._row(i))

    def is_train(self, i: int) -> bool:
        return bool(self._train[self._row(i)])

    def label(self, i: int, predictions: Mapping[int, int] | None = None) -> Label | None:
        """The gold label if i is a training node and not the target; else what `predictions` says of i; else None."""
        i = self._row(i)
        gold = int(self.graph.labels[i])
        if gold >= 0 and (self.leaky or (self._train[i] and self.target != NodeTarget(i))):
            return Label(gold, self.graph.class_names[gold], "gold")
        guess = None if predictions is None else predictions.get(i)
        if guess is None:
            return None
        if not 0 <= guess < len(self.graph.class_names):
            raise IndexError(f"expected predictions from 0 to {len(self.graph.class_names) - 1}, got {guess}")
        return Label(guess, self.graph.class_names[guess], "predicted")

    def degree(self, i: int) -> int:
        return len(self.neighbor_rows(i))

    def degrees(self, rows: Rows) -> NDArray[np.int64]:
        """Number of visible neighbours of each of `rows` [k]."""
        counts: NDArray[np.int64] = self._edges.indptr[rows + 1] - self._edges.indptr[rows]
        if self._pair is not None and self._linked(*self._pair):
            counts = counts - np.isin(rows, self._pair)
        return counts

    def arcs(self, rows: Rows) -> tuple[NDArray[np.int64], Rows]:
        """All visible arcs that leave `rows` [k]: position of the source in `rows` [m], and target row [m].

        Sources in the given order, targets of one source ascending.
        """
        starts = self._edges.indptr[rows]
        counts = self._edges.indptr[rows + 1] - starts
        source = np.repeat(np.arange(len(rows)), counts)
        shift = starts - (np.cumsum(counts) - counts)
        target = self._edges.indices[np.arange(len(source)) + shift[source]]
        if self._pair is not None:
            u, v = self._pair
            ends = np.flatnonzero((rows == u) | (rows == v))
            if len(ends):
                start = rows[source]
                keep = ~(((start == u) & (target == v)) | ((start == v) & (target == u)))
                source, target = source[keep], target[keep]
        return source, target

    def neighbor_rows(self, i: int) -> Rows:
        """All neighbours of i, ascending: for ranking, not for showing (a hub has thousands)."""
        i = self._row(i)
        found = self._edges.indices[self._edges.indptr[i] : self._edges.indptr[i + 1]]
        if self._pair is not None and i in self._pair:
            other = self._pair[1] if i == self._pair[0] else self._pair[0]
            found = found[found != other]
        return found

    def two_hop_rows(self, i: int, *, exact: bool = True) -> Rows:
        """All nodes at distance exactly 2 from i, ascending; with `exact=False` at distance 1 or 2. Never i itself."""
        i = self._row(i)
        near = self.neighbor_rows(i)
        _, far = self.arcs(near)
        seen = np.zeros(self.n, dtype=bool) if len(far) > self.n // 16 else None
        if seen is None:
            far = np.unique(far)
            found: Rows = np.setdiff1d(far, near, assume_unique=True) if exact else np.union1d(far, near)
            return np.asarray(found[found != i])
        seen[far] = True
        seen[near] = not exact
        seen[i] = False
        return np.flatnonzero(seen).astype(np.int32)

    def neighbors(self, i: int, limit: int = PAGE, offset: int = 0) -> Page:
        """Neighbours of i in ascending order of rows, `limit` at a time.

        Raises:
            ViewError: `bad_range` for a limit outside 1..1000 or a negative offset.
        """
        return page(self.neighbor_rows(i), limit, offset)

    def two_hop(self, i: int, limit: int = PAGE, offset: int = 0, *, exact: bool = True) -> Page:
        """Nodes two steps from i, as `two_hop_rows`, `limit` at a time.

        Raises:
            ViewError: `bad_range`.
        """
        return page(self.two_hop_rows(i, exact=exact), limit, offset)

    def common_neighbors(self, u: int, v: int, limit: int = PAGE, offset: int = 0) -> Page:
        """Nodes that are neighbours of both u and v, as pages like `neighbors`.

        Raises:
            ViewError: `bad_range`.
        """
        return page(self.common_rows(u, v), limit, offset)

    def common_rows(self, u: int, v: int) -> Rows:
        """All common neighbours of u and v, ascending."""
        found: Rows = np.intersect1d(self.neighbor_rows(u), self.neighbor_rows(v), assume_unique=True)
        return found

    def distance(self, u: int, v: int, limit: int = 6) -> int | None:
        """Number of steps from u to v, or None if there is no path of at most `limit` steps."""
        u, v = self._row(u), self._row(v)
        seen = np.zeros(self.n, dtype=bool)
        front = np.array([u], dtype=np.int32)
        for steps in range(limit + 1):
            seen[front] = True
            if seen[v]:
                return steps
            _, reached = self.arcs(front)
            front = np.unique(reached[~seen[reached]])
        return None

    def search(
        self, query: str | NDArray[Any] | None, k: int = 5, pool: Pool | Rows = "all", *, fuse: float = 1.0
    ) -> list[Hit]:
        """The k nodes of the pool most similar to the query; the target itself is never among them.

        `pool` is the whole graph, its training nodes, the neighbours (or nodes two steps away) of the target or of
        either end of the target pair, or an array of rows. `fuse` is the weight of the query against the target's own
        vector (AgentGL: 0.5, see `Index.fused`); without a query only the target's vector counts.

        Raises:
            ViewError: `no_index`, `bad_pool`.
            RetrievalError: as `Index.search`.
        """
        if self.index is None:
            raise ViewError("no_index", "this graph has no retrieval index; build one and pass it to the view")
        vector = self.index.fused(query, self.targets, fuse)
        return self.index.search(vector, k, self.pool_rows(pool), exclude=self.targets)

    def pool_rows(self, pool: Pool | Rows) -> NDArray[Any] | None:
        """The rows of a pool: None for the whole graph, else rows or a mask [n].

        Raises:
            ViewError: `bad_pool`.
        """
        if not isinstance(pool, str):
            return np.asarray(pool)
        if pool == "all":
            return None
        if pool == "train":
            return self._train
        reach = {"one_hop": self.neighbor_rows, "two_hop": self.two_hop_rows}.get(pool)
        if reach is None:
            raise ViewError("bad_pool", f"expected the pool all, train, one_hop or two_hop, got {pool!r}")
        found: NDArray[Any] = np.unique(np.concatenate([reach(node) for node in self.targets]))
        return found

    @property
    def _train(self) -> NDArray[np.bool_]:
        mask = self.__dict__.get("_mask")
        if mask is None:
            mask = _mask(self.train, self.graph)
            object.__setattr__(self, "_mask", mask)
        found: NDArray[np.bool_] = mask
        return found

    def _linked(self, u: int, v: int) -> bool:
        row = self._edges.indices[self._edges.indptr[u] : self._edges.indptr[u + 1]]
        place = int(np.searchsorted(row, v))
        return place < len(row) and int(row[place]) == v

    def _row(self, i: int) -> int:
        if isinstance(i, bool | np.bool_) or not isinstance(i, int | np.integer):
            raise TypeError(f"nodes of a view are rows, got {type(i).__name__}; see TextGraph.index_of")
        if not 0 <= i < self.graph.n:
            raise IndexError(f"expected a row from 0 to {self.graph.n - 1}, got {i}")
        return int(i)


def _mask(train: NDArray[Any] | Sequence[int] | None, graph: TextGraph) -> NDArray[np.bool_]:
    if train is None:
        return np.asarray(graph.split == 0)
    given = np.asarray(train)
    if given.dtype == np.bool_:
        if given.shape != (graph.n,):
            raise IndexError(f"expected a mask of {graph.n} nodes, got shape {given.shape}")
        return given
    mask = np.zeros(graph.n, dtype=np.bool_)
    if len(given):
        if not (given.min() >= 0 and given.max() < graph.n):
            raise IndexError(f"expected training rows 0 to {graph.n - 1}")
        mask[given.astype(np.int64)] = True
    return mask


def page(rows: NDArray[Any] | Sequence[int], limit: int = PAGE, offset: int = 0) -> Page:
    """`limit` of `rows` from `offset` on; an offset past the end gives an empty page.

    Raises:
        ViewError: `bad_range`.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ViewError("bad_range", f"limit must be from 1 to {MAX_PAGE}, got {limit}")
    if offset < 0:
        raise ViewError("bad_range", f"offset must be 0 or more, got {offset}")
    items = tuple(int(row) for row in rows[offset : offset + limit])
    end = offset + len(items)
    return Page(items, len(rows), offset, end if end < len(rows) and items else None)


Pair = tuple[object, object]


def link_split_faults(
    train: Iterable[Pair],
    val: Iterable[Pair],
    test: Iterable[Pair],
    negatives: Mapping[str, Iterable[Pair]] | None = None,
) -> list[str]:
    """What is wrong with a link-prediction split, pairs taken without direction; sorted, empty when sound.

    `train_val_overlap`, `train_test_overlap`, `val_test_overlap`, `self_pair` of the positives; `negative_self_pair`,
    `negative_is_edge` (of any part), `negatives_shared` between parts.
    """
    parts = {name: {_canonical(p) for p in pairs} for name, pairs in (("train", train), ("val", val), ("test", test))}
    absent = {name: {_canonical(p) for p in pairs} for name, pairs in (negatives or {}).items()}
    edges = set().union(*parts.values())
    names, others = list(parts), list(absent)
    faults = {f"{a}_{b}_overlap" for i, a in enumerate(names) for b in names[i + 1 :] if parts[a] & parts[b]}
    if any(a == b for a, b in edges):
        faults.add("self_pair")
    for i, a in enumerate(others):
        if any(x == y for x, y in absent[a]):
            faults.add("negative_self_pair")
        if absent[a] & edges:
            faults.add("negative_is_edge")
        if any(absent[a] & absent[b] for b in others[i + 1 :]):
            faults.add("negatives_shared")
    return sorted(faults)


def _canonical(pair: Pair) -> tuple[str, str]:
    a, b = str(pair[0]), str(pair[1])
    return (a, b) if a <= b else (b, a)
