"""Link-prediction splits that do not leak, and the probes that measure what a leak is worth."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from agl.errors import DataError
from agl.graphs.index import Index
from agl.graphs.text_graph import SPLITS, Split, TextGraph
from agl.graphs.view import Adjacency, GraphView, PairTarget, link_split_faults, without_pairs

Pair = tuple[int, int]
Negatives = Literal["degree", "uniform"]
TRAIN, VAL, TEST = 1500, 500, 500
"""Pairs of each kind, linked and unlinked (AgentGL: 1,500 + 1,500 for training, 500 + 500 for test)."""
SHARE = 10
"""Validation and test take at most one edge in so many each, so that what remains is still the graph."""
TRIES = 1000


def canonical(u: int, v: int) -> Pair:
    """The pair without direction: smaller row first."""
    return (int(u), int(v)) if u <= v else (int(v), int(u))


@dataclass(frozen=True, eq=False)
class Links:
    """Linked and unlinked pairs of `graph` by split, each with the smaller row first.

    Edges of validation and test are in no view made here: not in `adjacency`, hence in no neighbourhood, PageRank or
    list of pairs. A training pair stays, and is hidden only while it is the target itself. Vectors that were smoothed
    over edges must come from `adjacency` too; those of texts know no edges.

    Raises:
        DataError: a pair stands in two splits, is an edge although negative, joins a node with itself, or is none.
    """

    graph: TextGraph
    positives: Mapping[Split, tuple[Pair, ...]]
    negatives: Mapping[Split, tuple[Pair, ...]]
    seed: int = 0
    drawn: Negatives | Literal["given"] = "given"

    def __post_init__(self) -> None:
        for name in ("positives", "negatives"):
            given = getattr(self, name)
            pairs = {split: tuple(canonical(*pair) for pair in given.get(split, ())) for split in SPLITS}
            object.__setattr__(self, name, pairs)
            if any(not 0 <= u <= v < self.graph.n for part in pairs.values() for u, v in part):
                raise DataError(f"expected {name} that are pairs of rows 0 to {self.graph.n - 1}, got others")
        train, val, test = (self.positives[split] for split in SPLITS)
        negatives: dict[str, tuple[Pair, ...]] = {split: self.negatives[split] for split in SPLITS}
        faults = link_split_faults(train, val, test, negatives)
        if any(self.graph.has_edge(*pair) for part in negatives.values() for pair in part):
            faults = sorted({*faults, "negative_is_edge"})
        if faults:
            raise DataError(f"expected link-prediction pairs without leaks, got {', '.join(faults)}")

    @cached_property
    def adjacency(self) -> Adjacency:
        """The edges of the graph without those of validation and test."""
        return without_pairs(self.graph, [*self.positives["val"], *self.positives["test"]])

    def view(self, u: int, v: int, index: Index | None = None, *, train: Any = None, leaky: bool = False) -> GraphView:
        """What the question whether `u` and `v` are linked may see; with `leaky` the whole graph, edge included."""
        adjacency = None if leaky else self.adjacency
        return GraphView(self.graph, PairTarget(u, v), train, adjacency, index, leaky)

    def items(self, split: Split) -> list[tuple[Pair, bool]]:
        """Pairs of a split with the answer, linked and unlinked in turn."""
        linked = [(pair, True) for pair in self.positives[split]]
        unlinked = [(pair, False) for pair in self.negatives[split]]
        both = [item for two in zip(linked, unlinked, strict=False) for item in two]
        least = min(len(linked), len(unlinked))
        return both + linked[least:] + unlinked[least:]

    def __reduce__(self) -> tuple[Any, ...]:
        return Links, (self.graph, self.positives, self.negatives, self.seed, self.drawn)


def link_split(
    graph: TextGraph,
    seed: int = 0,
    *,
    train: int = TRAIN,
    val: int = VAL,
    test: int = TEST,
    negatives: Negatives = "degree",
) -> Links:
    """Edges of `graph` drawn for each split, and as many unlinked pairs: a pure function of edges and arguments.

    The numbers are upper bounds: validation and test take at most a tenth of the edges each (at least one edge), train
    at most the rest. `negatives="uniform"` draws both ends of an unlinked pair from all nodes; then their degree alone
    tells the answer fairly well. `degree` pairs each edge with an unlinked pair whose ends have as many visible
    neighbours as those of the edge have in its own view, or nearly so where no such pair is free.

    Raises:
        DataError: fewer than three edges, or too few unlinked pairs.
    """
    edges = graph.edges()
    if len(edges) < 3:
        raise DataError(f"expected a graph with at least 3 edges to split for link prediction, got {len(edges)}")
    most = max(1, len(edges) // SHARE)
    sizes = {"val": min(val, most), "test": min(test, most)}
    sizes["train"] = min(train, len(edges) - sizes["val"] - sizes["test"])
    rng = random.Random(f"links:{seed}")
    drawn = [canonical(*edges[i].tolist()) for i in rng.sample(range(len(edges)), sum(sizes.values()))]
    positives: dict[Split, tuple[Pair, ...]] = {}
    for split in ("val", "test", "train"):
        positives[split] = tuple(drawn[: sizes[split]])
        del drawn[: sizes[split]]
    visible = without_pairs(graph, [*positives["val"], *positives["test"]])
    draw = _Negatives(graph, np.diff(visible.indptr), rng, negatives)
    unlinked = {split: tuple(draw.like(pair, own=split == "train") for pair in positives[split]) for split in SPLITS}
    return Links(graph, positives, unlinked, seed, negatives)


class _Negatives:
    """Draws unlinked pairs, each once."""

    def __init__(self, graph: TextGraph, degrees: Any, rng: random.Random, how: Negatives) -> None:
        self._graph, self._rng, self._how = graph, rng, how
        self._degrees = degrees
        self._order = np.argsort(degrees, kind="stable")
        self._sorted = degrees[self._order]
        self._taken: set[Pair] = set()

    def like(self, pair: Pair, *, own: bool) -> Pair:
        """An unlinked pair for a linked one; `own` says that its edge counts in the degrees of its ends."""
        for turn in range(TRIES):
            ends = [self._end(int(self._degrees[node]) - own, 2 ** (turn // 8) - 1) for node in pair]
            found = canonical(*ends)
            if found[0] != found[1] and found not in self._taken and not self._graph.has_edge(*found):
                self._taken.add(found)
                return found
        raise DataError(
            f"expected a graph with enough unlinked pairs, found none free in {TRIES} draws; ask for fewer pairs"
        )

    def _end(self, degree: int, slack: int) -> int:
        low, high = 0, self._graph.n
        if self._how == "degree":
            low = int(np.searchsorted(self._sorted, degree - slack, "left"))
            high = int(np.searchsorted(self._sorted, degree + slack, "right"))
            if low == high:
                near = [place for place in (low - 1, low) if 0 <= place < self._graph.n]
                low = min(near, key=lambda place: abs(int(self._sorted[place]) - degree))
                high = low + 1
        return int(self._order[self._rng.randrange(low, high)])


def auc(scores: ArrayLike, labels: Iterable[bool]) -> float:
    """Area under the ROC curve: how often a positive scores above a negative, ties counting half.

    Raises:
        ValueError: there are no positives or no negatives.
    """
    from scipy.stats import rankdata

    truth = np.fromiter(labels, dtype=bool)
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        raise ValueError(f"expected positives and negatives, got {positive} and {negative}")
    ranks = rankdata(np.asarray(scores, dtype=float))
    return float((ranks[truth].sum() - positive * (positive + 1) / 2) / (positive * negative))
