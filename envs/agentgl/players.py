"""Rules that play without a model: what the tools, the labels of training nodes or shared neighbours are worth alone.

Votes of nodes go to the class that most voters have; ties to the class whose voters are more similar to the target in
sum, then to the lower class. Labels are read through the view, so those of the target and of test nodes are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from agl.core import Score
from agl.graphs.index import Index, RetrievalError
from agl.graphs.view import GraphView, Rows
from envs.agentgl.links import Links, auc
from envs.agentgl.pairs import search_pair
from envs.agentgl.pools import Found, Pool, PoolOptions, index_of

NC_PLAYERS = ("no-search", "random-tool", "all-tools", "vote", "knn")
LP_PLAYERS = ("no-search", "random-tool", "all-tools", "common-neighbours", "probe")
NEIGHBOURS = 5
"""Nearest training nodes that vote."""
FITTED = 300
"""Training pairs of each kind that the threshold of `probe` is fitted on."""


def majority_class(view: GraphView) -> int:
    """The most frequent class of the training nodes, the lowest of several."""
    labels = view.graph.labels[_training(view)]
    return int(np.bincount(labels[labels >= 0], minlength=len(view.graph.class_names)).argmax())


def vote(view: GraphView, voters: Iterable[int]) -> int | None:
    """The class that most of the `voters` have whose labels are seen; None where there are none."""
    (target,) = view.targets
    vectors = index_of(view).vectors
    counts: Counter[int] = Counter()
    likeness: dict[int, float] = {}
    for node in voters:
        label = view.label(node)
        if label is not None:
            counts[label.index] += 1
            cosine = float(vectors[node].astype(np.float64) @ vectors[target])
            likeness[label.index] = likeness.get(label.index, 0.0) + cosine
    return min(counts, key=lambda label: (-counts[label], -round(likeness[label], 6), label), default=None)


def nearest(view: GraphView, among: Sequence[int] | None = None) -> list[int]:
    """The `NEIGHBOURS` training nodes (of those in `among`) whose texts are most similar to the target's."""
    rows = _training(view)
    if among is not None:
        rows = rows[np.isin(rows, np.array(among, dtype=np.int32))]
    try:
        return [hit.node for hit in view.search(None, NEIGHBOURS, rows) if hit.similarity > 0] if len(rows) else []
    except RetrievalError:
        return []


def _training(view: GraphView) -> Rows:
    mask = view.pool_rows("train")
    assert mask is not None
    return np.flatnonzero(mask).astype(np.int32)


def class_of(view: GraphView, player: str, found: Sequence[Found], options: PoolOptions) -> int:
    """What a player answers after the searches `found`; the majority class where it has no evidence.

    `random-tool` and `all-tools` let everything that came vote where labels are shown, else the nearest of it. `vote`
    asks the neighbours, and the nearest training nodes where no neighbour has a label that is seen.
    """
    came = [node for one in found for node in one.nodes]
    best: int | None = None
    if player in ("random-tool", "all-tools"):
        best = vote(view, came if options.show_labels == "train" else nearest(view, list(dict.fromkeys(came))))
    elif player == "vote":
        best = vote(view, view.neighbor_rows(view.targets[0]).tolist())
    if best is None and player in ("vote", "knn"):
        best = vote(view, nearest(view))
    return majority_class(view) if best is None else best


def is_linked(view: GraphView, links: Links, player: str, found: Sequence[Found], options: PoolOptions) -> bool:
    """What a player answers after the searches `found`; no where it has no evidence.

    `common-neighbours` says yes where the two have one; `probe` where `overlap` is above its threshold; the players
    that search let each pool vote (see `_leaning`), and more must speak for a link than against one.
    """
    if player == "common-neighbours":
        return len(view.common_rows(*view.targets)) > 0
    if player == "probe":
        score = overlap(found)
        return score is not None and score >= threshold(view, links, options)
    return sum(map(_leaning, found)) > 0


def _leaning(found: Found) -> int:
    """+1 for a link, -1 against: a shared node among those near the pair; most of the similar pairs linked."""
    if found.pool in (Pool.ONE_HOP, Pool.TWO_HOP):
        return 1 if "common" in found.roles else -1
    if found.pool is Pool.SIMILAR and found.linked:
        linked = sum(found.linked)
        return (2 * linked > len(found.linked)) - (2 * linked < len(found.linked))
    return 0


def overlap(found: Iterable[Found]) -> float | None:
    """Of the nodes of `1-hop` near one end only, the share that `2-hop` shows as well; None without both searches.

    Through an edge (u, v), what is next to v lies two steps from u: where the edge of the target is left in the graph,
    the two results tell on it. This is the trivial rule of leak probes, on no more than a search returns.
    """
    by_pool = {one.pool: one for one in found}
    near, far = by_pool.get(Pool.ONE_HOP), by_pool.get(Pool.TWO_HOP)
    if near is None or far is None:
        return None
    alone = [node for node, role in zip(near.nodes, near.roles, strict=True) if role != "common"]
    return len(set(alone) & set(far.nodes)) / len(alone) if alone else 0.0


def probe_auc(scores: Sequence[Score]) -> float | None:
    """AUC of `overlap` over episodes; None where one did not make both searches, or where all have the same answer."""
    overlaps = [score.parts.get("probe") for score in scores]
    known = [value for value in overlaps if value is not None]
    linked = [score.labels["gold"] == "yes" for score in scores]
    if len(known) < len(scores) or len(set(linked)) < 2:
        return None
    return auc(known, linked)


@dataclass(frozen=True)
class _Fit:
    links: Links
    index: Index
    leaky: bool
    key: str
    options: PoolOptions = field(compare=False)


def threshold(view: GraphView, links: Links, options: PoolOptions) -> float:
    """The least `overlap` that counts as a link: the one that is right most often on training pairs, the highest of
    several."""
    return _threshold(_Fit(links, index_of(view), view.leaky, repr(options), options))


@lru_cache(maxsize=16)
def _threshold(fit: _Fit) -> float:
    scored: list[tuple[float, bool]] = []
    for answer, pairs in ((True, fit.links.positives["train"]), (False, fit.links.negatives["train"])):
        for u, v in pairs[:FITTED]:
            view = fit.links.view(u, v, fit.index, leaky=fit.leaky)
            hops = [search_pair(view, pool, "", fit.options, fit.links) for pool in (Pool.ONE_HOP, Pool.TWO_HOP)]
            scored.append((overlap(hops) or 0.0, answer))
    cuts = sorted({score for score, _ in scored}) or [1.0]
    return max(cuts, key=lambda cut: (sum((score >= cut) == answer for score, answer in scored), cut))
