"""The four pools for a pair of nodes whose link is asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agl.graphs.index import Index
from agl.graphs.view import GraphView, PairTarget
from envs.agentgl.links import Links, Pair, canonical
from envs.agentgl.pools import (
    Found,
    Pool,
    PoolOptions,
    Role,
    hop_rows,
    index_of,
    labels_of,
    ranked,
    salience,
)

CODE_SEED = 20240101
CODE_TWO_HOP = 17
CODE_EDGES = 10
"""The released code lists so many salient edges for all targets."""


def split_rest(exclusive_u: int, exclusive_v: int, rest: int) -> tuple[int, int]:
    """How many of `rest` places go to nodes near `u` only and near `v` only, given how many of each there are.

    The paper's k_u = min(|U_u|, max(ceil(R/2), R - |U_v|)), k_v = R - k_u; k_v is here also capped by |U_v|.
    """
    k_u = min(exclusive_u, max((rest + 1) // 2, rest - exclusive_v))
    return k_u, min(rest - k_u, exclusive_v)


def search_pair(view: GraphView, pool: Pool, query: str, options: PoolOptions, links: Links | None = None) -> Found:
    """The best of a pool for a pair target: nodes of the two hop pools, pairs of the other two.

    Hop pools: common neighbours first, then nodes near one end only, see `split_rest`; each group by fused ranking
    against the mean of both texts, or in profile `code` by row, then at random, whatever the query. `pagerank`: the
    visible edges with the highest mean salience that touch neither end. `similar`: of the training pairs of `links`
    those whose mean vector is closest to that of the target, with the status of each; unlinked ones too, but in
    profile `code`. The target itself, and pairs of validation and test, are in none.

    Raises:
        ViewError: `no_index` when the view has no index.
        TypeError: the target is no pair.
        ValueError: `links` belong to another set of visible edges than the view; make the view with `Links.view`.
    """
    if not isinstance(view.target, PairTarget):
        raise TypeError(f"expected a view with a pair target, got {view.target}; see envs.agentgl.pools.search")
    if links is not None and not view.leaky and (view.adjacency is None or view.adjacency.key != links.adjacency.key):
        raise ValueError("expected a view without the edges of validation and test; make it with Links.view")
    if pool is Pool.PAGERANK:
        return _salient(view, options)
    if pool is Pool.SIMILAR:
        return _similar(view, options, links)
    return _near(view, pool, query, options)


def _near(view: GraphView, pool: Pool, query: str, options: PoolOptions) -> Found:
    assert isinstance(view.target, PairTarget)
    k = options.k[pool]
    of_u, of_v = (hop_rows(view, pool, node, options) for node in (view.target.u, view.target.v))
    common = np.intersect1d(of_u, of_v, assume_unique=True)
    only = [np.setdiff1d(rows, common, assume_unique=True) for rows in (of_u, of_v)]
    rest = max(0, k - len(common))
    takes = (min(k, len(common)), *split_rest(len(only[0]), len(only[1]), rest))
    groups: Sequence[tuple[Role, NDArray[np.int32], int]] = [
        (role, rows, take) for role, rows, take in zip(_ROLES, (common, *only), takes, strict=True)
    ]
    rng = _code_random(view, pool)
    nodes: list[int] = []
    roles: list[Role] = []
    scores: list[float] = []
    for role, rows, take in groups:
        if options.profile == "code":
            places = range(take) if role == "common" else rng.sample(range(len(rows)), take)
            best = [(int(rows[place]), 0.0) for place in places]
        else:
            best = [(hit.node, hit.similarity) for hit in ranked(view, query, rows, take, options)]
        nodes += [node for node, _ in best]
        scores += [score for _, score in best]
        roles += [role] * len(best)
    total = len(common) + len(only[0]) + len(only[1])
    labels = labels_of(view, nodes, options)
    return Found(pool, tuple(nodes), scores=tuple(scores), total=total, roles=tuple(roles), labels=labels)


_ROLES: tuple[Role, ...] = ("common", "u", "v")


def _code_random(view: GraphView, pool: Pool) -> random.Random:
    """The code seeds by the number of the pair in its file; here a number of the pair itself stands for it."""
    u, v = canonical(*view.targets)
    return random.Random(CODE_SEED + u * view.n + v + (CODE_TWO_HOP if pool is Pool.TWO_HOP else 0))


def _salient(view: GraphView, options: PoolOptions) -> Found:
    ranking = salience(view, options)
    scores = np.zeros(view.n)
    scores[ranking.nodes] = ranking.scores
    k = options.k[Pool.PAGERANK]
    if options.profile == "code":
        target = canonical(*view.targets)
        listed = _best_edges(view, ranking.nodes, scores, CODE_EDGES, ())
        best = [item for item in listed if item[0] != target][:k]
        total = len(listed)
    else:
        best = _best_edges(view, ranking.nodes, scores, k, view.targets)
        u, v = view.targets
        everywhere = np.arange(view.n, dtype=np.int32)
        total = int(view.degrees(everywhere).sum()) // 2 - view.degree(u) - view.degree(v)
        total += int(np.isin(v, view.neighbor_rows(u)))
    pairs = tuple(pair for pair, _ in best)
    means = tuple(score for _, score in best)
    return Found(Pool.PAGERANK, pairs=pairs, scores=means, total=total, linked=(True,) * len(pairs))


def _best_edges(
    view: GraphView, nodes: NDArray[np.int32], scores: NDArray[np.float64], k: int, without: tuple[int, ...]
) -> list[tuple[Pair, float]]:
    """The `k` visible edges with the highest mean of `scores` [n], ties by row; `nodes` are sorted by score.

    Only edges of the best nodes are looked at: the mean of any other is at most the score of the next node.
    """
    outside = np.ones(view.n, dtype=bool)
    outside[list(without)] = False
    head = 32
    while True:
        heads = nodes[:head]
        source, target = view.arcs(heads)
        start, end = heads[source].astype(np.int64), target.astype(np.int64)
        keys = np.unique((np.minimum(start, end) * view.n + np.maximum(start, end))[outside[start] & outside[end]])
        low, high = np.divmod(keys, view.n)
        means = (scores[low] + scores[high]) / 2
        least = np.partition(means, -k)[-k] if 0 < k < len(means) else 0.0
        near = np.flatnonzero(means >= least)
        order = near[np.lexsort((keys[near], -means[near]))][:k]
        if head >= len(nodes) or (len(order) == k and (not k or least > scores[nodes[head]])):
            return [((int(low[i]), int(high[i])), float(means[i])) for i in order]
        head *= 4


def _similar(view: GraphView, options: PoolOptions, links: Links | None) -> Found:
    index = index_of(view)
    vector = index.fused(None, view.targets)
    if links is None or not vector.any():
        return Found(Pool.SIMILAR)
    pairs, linked, vectors = _reference(links, index, options.profile == "code")
    target = canonical(*view.targets)
    own = [place for place, pair in enumerate(pairs) if pair == target]
    k = options.k[Pool.SIMILAR]
    hits = vectors.search(vector, k, exclude=own) if k and pairs else []
    return Found(
        Pool.SIMILAR,
        pairs=tuple(pairs[hit.node] for hit in hits),
        scores=tuple(hit.similarity for hit in hits),
        total=len(pairs) - len(own),
        linked=tuple(linked[hit.node] for hit in hits),
    )


@lru_cache(maxsize=8)
def _reference(links: Links, index: Index, positives_only: bool) -> tuple[list[Pair], list[bool], Index]:
    """The training pairs, whether they are linked, and an index of their mean vectors: 4 bytes a dimension and pair."""
    positives = links.positives["train"]
    negatives = () if positives_only else links.negatives["train"]
    pairs = sorted([*positives, *negatives])
    known = set(positives)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    means = (index.vectors[ends[:, 0]].astype(np.float64) + index.vectors[ends[:, 1]]) / 2
    return pairs, [pair in known for pair in pairs], Index(means)
