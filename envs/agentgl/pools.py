"""The four pools an AgentGL agent searches (arXiv 2604.05846): one hop, two hops, structure salience, similar texts.

Everything is read through a `GraphView`, so that a search knows no more than the view shows. This module serves node
targets and holds what both kinds of target share; `envs.agentgl.pairs` serves pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from agl.graphs.index import Hit, Index
from agl.graphs.pagerank import Ranking, exact_pagerank, personalized_pagerank
from agl.graphs.view import GraphView, Label, NodeTarget, PairTarget, ViewError

Profile = Literal["paper", "code"]
Role = Literal["common", "u", "v"]
"""Near both ends of the target pair, or near one of them only."""


class Pool(StrEnum):
    """Where a search looks; the value is the name in prompts and logs."""

    ONE_HOP = "1-hop"
    TWO_HOP = "2-hop"
    PAGERANK = "pagerank"
    SIMILAR = "similar"


PREFIXES: dict[str, Pool] = {
    **dict.fromkeys(("1-hop", "1 hop", "1hop", "one-hop", "one hop"), Pool.ONE_HOP),
    **dict.fromkeys(("2-hop", "2 hop", "2hop", "two-hop", "two hop"), Pool.TWO_HOP),
    **dict.fromkeys(("pagerank", "page rank", "pr"), Pool.PAGERANK),
    **dict.fromkeys(("similar", "sim", "similarity"), Pool.SIMILAR),
}
"""What may stand before the colon of a query, in lower case."""

NODE_K: Mapping[Pool, int] = dict.fromkeys(Pool, 5)
PAIR_K: Mapping[Pool, int] = {Pool.ONE_HOP: 5, Pool.TWO_HOP: 5, Pool.PAGERANK: 2, Pool.SIMILAR: 3}
NODE_PREVIEW = 500
PAIR_PREVIEW = 480


def read_pool(text: str) -> Pool | None:
    """The pool a query's prefix names, without regard to case and to blanks around it; None if it names none."""
    return PREFIXES.get(" ".join(text.lower().split()))


@dataclass(frozen=True)
class PoolOptions:
    """What a search may be told; the defaults are those of the paper for a node target.

    Use `for_nodes` and `for_pairs`, which know what differs between the two kinds of target and the two profiles.
    """

    k: Mapping[Pool, int] = field(default_factory=lambda: dict(NODE_K))
    """Results of one search, by pool."""
    lambda_: float = 0.5
    """Weight of the query against the target's own text, see `Index.fused`."""
    two_hop: Literal["exact", "upto"] = "exact"
    """Nodes at distance 2, or at distance 1 and 2 (the paper does not say; the code reads a precomputed list)."""
    salience: Literal["personalised", "global"] = "personalised"
    """PageRank from the target as the paper says, or one vector for all targets as the code does."""
    preview_chars: int = NODE_PREVIEW
    profile: Profile = "paper"
    show_labels: Literal["none", "train"] = "none"
    """Whether classes of training nodes stand beside their texts; not in the paper."""

    @classmethod
    def for_nodes(cls, profile: Profile = "paper", **changes: Any) -> PoolOptions:
        """Options for a node target, with `changes` to single fields."""
        salience: Any = "global" if profile == "code" else "personalised"
        return replace(cls(salience=salience, profile=profile), **changes)

    @classmethod
    def for_pairs(cls, profile: Profile = "paper", **changes: Any) -> PoolOptions:
        """Options for a pair target, with `changes` to single fields."""
        return replace(cls.for_nodes(profile, k=dict(PAIR_K), preview_chars=PAIR_PREVIEW), **changes)


@dataclass(frozen=True)
class Found:
    """What a search found, best first: `nodes`, or in two of the pools of a pair target `pairs`.

    The other tuples run beside them and are empty where they do not apply: `roles` of the nodes of a pair target,
    `linked` (whether there is an edge) of pairs, `labels` of nodes where labels are shown.
    """

    pool: Pool
    nodes: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    scores: tuple[float, ...] = ()
    total: int = 0
    """Number of candidates, shown or not."""
    roles: tuple[Role, ...] = ()
    linked: tuple[bool, ...] = ()
    labels: tuple[Label | None, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes) or len(self.pairs)

    def __str__(self) -> str:
        return f"{len(self)} of {self.total} shown"


def search(view: GraphView, pool: Pool, query: str, options: PoolOptions) -> Found:
    """The best nodes of a pool for a node target, the target itself never among them.

    The two hop pools rank by cosine to `lambda_` of the query plus the rest of the target; without a query, or with
    one that has no known words, the target's text decides alone, and where neither says anything the order is that of
    the rows, with score 0. `pagerank` and `similar` ignore the query.

    Raises:
        ViewError: `no_index` when the view has no index.
        TypeError: the target is no node.
    """
    if not isinstance(view.target, NodeTarget):
        raise TypeError(f"expected a view with a node target, got {view.target}; see envs.agentgl.pairs.search_pair")
    k = options.k[pool]
    if pool is Pool.PAGERANK:
        ranking = salience(view, options)
        best = ranking.top(k, view.targets)
        total = len(ranking.nodes) - 1
    elif pool is Pool.SIMILAR:
        best = [(hit.node, hit.similarity) for hit in _similar(index_of(view), view.targets, k)]
        total = view.n - 1
    else:
        rows = hop_rows(view, pool, view.targets[0], options)
        best = [(hit.node, hit.similarity) for hit in ranked(view, query, rows, k, options)]
        total = len(rows)
    nodes = tuple(node for node, _ in best)
    scores = tuple(score for _, score in best)
    return Found(pool, nodes, scores=scores, total=total, labels=labels_of(view, nodes, options))


def labels_of(view: GraphView, nodes: Sequence[int], options: PoolOptions) -> tuple[Label | None, ...]:
    """The classes of training nodes where `options` shows them, else nothing."""
    return tuple(map(view.label, nodes)) if options.show_labels == "train" else ()


def preview(view: GraphView, node: int, options: PoolOptions) -> str:
    """The beginning of the node's text, all that a result says of it: no id, degree or class."""
    return view.text(node)[: options.preview_chars]


def hop_rows(view: GraphView, pool: Pool, node: int, options: PoolOptions) -> NDArray[np.int32]:
    """The nodes one or two steps from `node`, ascending, without the targets."""
    exact = options.two_hop == "exact"
    rows = view.neighbor_rows(node) if pool is Pool.ONE_HOP else view.two_hop_rows(node, exact=exact)
    return rows[~np.isin(rows, view.targets)]


def ranked(view: GraphView, query: str, rows: NDArray[np.int32], k: int, options: PoolOptions) -> list[Hit]:
    """The `k` best of `rows` (ascending) by fused ranking."""
    if not len(rows) or k < 1:
        return []
    index = index_of(view)
    asked = _encoded(index, query) if query.strip() else None
    vector = index.fused(asked, view.targets, options.lambda_)
    if not vector.any():
        return [Hit(int(row), 0.0) for row in rows[:k]]
    return index.search(vector, k, rows)


def salience(view: GraphView, options: PoolOptions) -> Ranking:
    """PageRank of the nodes of the view: from its targets, or with `salience="global"` from everywhere.

    The global vector is computed once for each set of visible edges: once in all, unless the hidden edge of a pair is
    in the graph, as with training pairs.
    """
    if options.salience == "personalised":
        return personalized_pagerank(view)
    if isinstance(view.target, PairTarget):
        whole = GraphView(view.graph, NodeTarget(view.target.u), adjacency=view.adjacency)
        if view.leaky or whole.degree(view.target.u) == view.degree(view.target.u):
            view = whole
    return _global(_Edges(view.key, view))


@dataclass(frozen=True)
class _Edges:
    key: tuple[object, ...]
    view: GraphView = field(compare=False)


@lru_cache(maxsize=16)
def _global(edges: _Edges) -> Ranking:
    return exact_pagerank(edges.view, tolerance=1e-8)


@lru_cache(maxsize=4096)
def _encoded(index: Index, query: str) -> NDArray[Any]:
    return index.encode(query)


_SIMILAR: WeakKeyDictionary[Index, dict[tuple[tuple[int, ...], int], tuple[Hit, ...]]] = WeakKeyDictionary()


def prepare_similar(index: Index, targets: Iterable[tuple[int, ...]], k: int = NODE_K[Pool.SIMILAR]) -> None:
    """Find the `k` nodes most similar to each of many targets at once, for searches to come.

    The pool `similar` depends on the target alone: one matrix product for all tasks of a run takes the place of one
    product with all nodes in each of their searches.
    """
    found = _SIMILAR.setdefault(index, {})
    missing = [nodes for nodes in dict.fromkeys(targets) if (nodes, k) not in found]
    vectors = [index.fused(None, nodes) for nodes in missing]
    found.update({(nodes, k): () for nodes in missing})
    known = [place for place, vector in enumerate(vectors) if vector.any()]
    if known and k > 0:
        asked = [missing[place] for place in known]
        hits = index.search_many(np.stack([vectors[place] for place in known]), k, exclude=asked)
        found.update({(nodes, k): tuple(best) for nodes, best in zip(asked, hits, strict=True)})


def _similar(index: Index, targets: tuple[int, ...], k: int) -> tuple[Hit, ...]:
    prepare_similar(index, [targets], k)
    return _SIMILAR[index][targets, k]


def index_of(view: GraphView) -> Index:
    """The index of the view.

    Raises:
        ViewError: `no_index`.
    """
    if view.index is None:
        raise ViewError("no_index", "this graph has no retrieval index; build one and pass it to the view")
    return view.index
