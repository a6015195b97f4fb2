"""How easy a node or a pair is, by the formulas of AgentGL (arXiv 2604.05846): high is easy.

The paper computes the share of neighbours with the node's own label from all labels; here only training labels are
read, and the neighbours whose label may be seen are the observations that Wilson's bound counts. `profile="code"`
reads all labels, as the released code does, and divides the logarithm by that of the largest degree.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agl.graphs.text_graph import TextGraph

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Profile = Literal["paper", "code"]


def wilson_low(share: npt.ArrayLike, degree: npt.ArrayLike, z: float = 1.96) -> FloatArray:
    """Lower bound of Wilson's interval for `share` out of `degree` observations, element by element; 0 without any."""
    p, d = np.broadcast_arrays(np.asarray(share, dtype=np.float64), np.asarray(degree, dtype=np.float64))
    n = np.where(d > 0, d, 1.0)
    low = (p + z * z / (2 * n) - z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    return np.where(d > 0, np.maximum(low, 0.0), 0.0)


def node_ease(
    share: npt.ArrayLike, degree: npt.ArrayLike, *, observed: npt.ArrayLike | None = None, most: int | None = None
) -> FloatArray:
    """S(v) = Wilson bound + 0.05 log(1 + d) of AgentGL, element by element.

    Args:
        share: neighbours with v's label, among those whose label may be seen.
        degree: number of neighbours.
        observed: neighbours whose label may be seen; None: all of them.
        most: divide the logarithm by log(1 + most), as the released code does with the largest degree.
    """
    degrees = np.asarray(degree, dtype=np.float64)
    scale = 1.0 if most is None else np.log1p(max(most, 1))
    return wilson_low(share, degrees if observed is None else observed) + 0.05 * np.log1p(degrees) / scale


def node_scores(graph: TextGraph, train: npt.ArrayLike, *, profile: Profile = "paper") -> FloatArray:
    """S(v) of each node, `[n]`; NaN where it is not defined: without text, without label, outside `train`.

    Only labels in `train` are read, and Wilson's bound is taken over the neighbours that have one. `code` reads all
    labels, scores every labelled node and scales the logarithm.

    Args:
        train: `[n]` mask, or rows of the training nodes.
    """
    mask = np.zeros(graph.n, dtype=bool)
    mask[np.asarray(train)] = True
    seen = (graph.labels >= 0) & (mask if profile == "paper" else True)
    visible = np.where(seen, graph.labels, -1)
    neighbours = visible[graph.indices]
    same = (neighbours == np.repeat(visible, graph.degrees)) & (neighbours >= 0)
    observed, alike = (_row_sums(hits, graph) for hits in (neighbours >= 0, same))
    most = int(graph.degrees.max(initial=0)) if profile == "code" else None
    ease = node_ease(alike / np.maximum(observed, 1), graph.degrees, observed=observed, most=most)
    with_text = np.fromiter((bool(text.strip()) for text in graph.texts()), dtype=bool, count=graph.n)
    return np.where(seen & with_text, ease, np.nan)


def _row_sums(hits: BoolArray, graph: TextGraph) -> IntArray:
    """Sum of `hits`, one for each entry of the adjacency, over each node's neighbours."""
    running = np.concatenate([[0], np.cumsum(hits, dtype=np.int64)])
    sums: IntArray = running[graph.indptr[1:]] - running[graph.indptr[:-1]]
    return sums


def pair_ease(similarity: npt.ArrayLike, linked: npt.ArrayLike) -> FloatArray:
    """S(e) = y sim + (1 - y)(1 - sim) of AgentGL: linked pairs that look alike are easy, and strangers that do not."""
    sim = np.asarray(similarity, dtype=np.float64)
    return np.where(np.asarray(linked, dtype=bool), sim, 1 - sim)


def pair_scores(vectors: npt.NDArray[np.floating[Any]], pairs: npt.ArrayLike, linked: npt.ArrayLike) -> FloatArray:
    """S(e) of each pair `[m, 2]` of rows of `vectors` `[n, d]`, by the cosine of the two; 0 with an all-zero row."""
    ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    left, right = (vectors[ends[:, side]].astype(np.float64) for side in (0, 1))
    norm = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return pair_ease(np.einsum("ij,ij->i", left, right) / np.where(norm > 0, norm, 1.0), linked)
