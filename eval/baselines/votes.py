"""Votes over labelled training nodes: neighbours, nearest texts, both, and labels that spread along edges.

A majority decides. Ties go to the class whose voters are most similar to the node in sum, then to the lower class;
nearest texts that are equally similar go by row. Where nobody votes the node is unanswered: -1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from agl.graphs.text_graph import IntArray, Labels
from eval.baselines.problem import BLOCK, NodeProblem

K = 5
"""Nearest texts that vote."""
DAMPING = 0.9
ROUNDS = 100
Voters = tuple[IntArray, IntArray]
"""Position of the asked node [m] and row of the voter [m]."""


def vote(problem: NodeProblem) -> Labels:
    """Majority of the labelled neighbours; nodes without any go by their nearest texts."""
    asked, voter = problem.labelled_arcs()
    linked = np.zeros(len(problem.asked), dtype=bool)
    linked[asked] = True
    if linked.all():
        return _majority(problem, (asked, voter))
    alone = np.flatnonzero(~linked)
    near, text = _nearest(problem, alone)
    return _majority(problem, (np.concatenate([asked, near]), np.concatenate([voter, text])))


def knn(problem: NodeProblem) -> Labels:
    """Majority of the `K` training nodes whose texts are most similar; a similarity of 0 is no evidence."""
    return _majority(problem, _nearest(problem, np.arange(len(problem.asked))))


def vote_knn(problem: NodeProblem) -> Labels:
    """Labelled neighbours and nearest texts vote together; a node that is both has two votes."""
    asked, voter = problem.labelled_arcs()
    near, text = _nearest(problem, np.arange(len(problem.asked)))
    return _majority(problem, (np.concatenate([asked, near]), np.concatenate([voter, text])))


def label_propagation(problem: NodeProblem) -> Labels:
    """Local and global consistency: F = a S F + (1 - a) Y with S = D^-1/2 A D^-1/2 and a = 0.9, 100 rounds.

    A node in a component without a training node is unanswered. Source: Zhou et al., NeurIPS 2004.
    """
    from scipy.sparse import csr_array, diags_array

    n, classes = problem.n, len(problem.class_names)
    edges = csr_array((np.ones(len(problem.indices)), problem.indices, problem.indptr), shape=(n, n))
    degrees = np.diff(problem.indptr)
    scale = diags_array(np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0.0))
    step = scale @ edges @ scale
    given = np.zeros((n, classes))
    given[problem.train, problem.train_labels[problem.train]] = 1
    spread = given
    for _ in range(ROUNDS):
        spread = DAMPING * (step @ spread) + (1 - DAMPING) * given
    # Relative to the node's sum, so that rounding means the same near and far from labels.
    sums = spread.sum(axis=1, keepdims=True)
    shares = np.round(np.divide(spread, sums, where=sums > 0, out=np.zeros_like(spread)), 9)
    found = np.where(sums[:, 0] > 0, shares.argmax(axis=1), -1).astype(np.int32)
    found[problem.train] = -1
    return found


def lookup(problem: NodeProblem) -> Labels:
    """The class whose name stands in the node's text; of several the one that stands there most often, then the
    longest. No label is read: what this answers right, a text gives away.

    Names are read as words (`Case_Based`, `CaseBased` and `cs.LG` as `case based` and `cs lg`), whatever their case.
    """
    names = [_words(name) for name in problem.class_names]
    texts = problem.texts.all()
    found = np.full(problem.n, -1, dtype=np.int32)
    for row in problem.asked.tolist():
        text = f" {_words(texts[row])} "
        counts = [(text.count(f" {name} ") if name else 0, len(name), -place) for place, name in enumerate(names)]
        times, _, place = max(counts, default=(0, 0, 0))
        if times:
            found[row] = -place
    return found


VOTES: dict[str, Callable[[NodeProblem], Labels]] = {
    "vote": vote,
    "knn": knn,
    "vote+knn": vote_knn,
    "labelprop": label_propagation,
    "lookup": lookup,
}


def _words(text: str) -> str:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return " ".join(re.findall(r"[^\W_]+", apart.lower()))


def _majority(problem: NodeProblem, voters: Voters) -> Labels:
    asked, voter = voters
    shape = len(problem.asked), len(problem.class_names)
    labels = problem.train_labels[voter]
    votes = np.zeros(shape, dtype=np.int64)
    np.add.at(votes, (asked, labels), 1)
    most = votes.max(axis=1)
    best = (votes == most[:, None]) & (most > 0)[:, None]
    tied = np.flatnonzero(best.sum(axis=1) > 1)
    if len(tied):
        part = np.isin(asked, tied)
        sums = np.zeros(shape)
        np.add.at(sums, (asked[part], labels[part]), _cosines(problem, problem.asked[asked[part]], voter[part]))
        sums = np.where(best[tied], np.round(sums[tied], 6), -np.inf)
        best[tied] = sums == sums.max(axis=1, keepdims=True)
    found = np.full(problem.n, -1, dtype=np.int32)
    found[problem.asked] = np.where(most > 0, best.argmax(axis=1), -1)
    return found


def _nearest(problem: NodeProblem, positions: IntArray) -> Voters:
    """The `K` training nodes most similar to each asked node at `positions`, ties by row."""
    vectors = problem.vectors
    pool = vectors[problem.train].T
    count = len(problem.train)
    k = min(K, count)
    step = max(1, BLOCK // count)
    asked: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    voters: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(positions), step):
        block = positions[start : start + step]
        scores = np.round(_dense(vectors[problem.asked[block]] @ pool) * 1e6).astype(np.int64)
        # One number for similarity, then row: no two are equal, however many texts are.
        keys = scores * count + np.arange(count - 1, -1, -1)
        best = -np.sort(-np.partition(keys, count - k, axis=1)[:, count - k :], axis=1)
        source, place = np.nonzero(best >= count)
        asked.append(block[source])
        voters.append(problem.train[count - 1 - best[source, place] % count])
    return np.concatenate(asked), np.concatenate(voters)


def _cosines(problem: NodeProblem, left: IntArray, right: IntArray) -> npt.NDArray[np.float64]:
    vectors = problem.vectors
    step = max(1, BLOCK // 512)
    parts = [np.zeros(0)]
    for start in range(0, len(left), step):
        a, b = vectors[left[start : start + step]], vectors[right[start : start + step]]
        product = a * b if isinstance(a, np.ndarray) else a.multiply(b)
        parts.append(np.round(np.asarray(product.sum(axis=1), dtype=np.float64).ravel(), 6))
    return np.concatenate(parts)


def _dense(scores: Any) -> npt.NDArray[np.float64]:
    return cast(npt.NDArray[np.float64], np.asarray(scores if isinstance(scores, np.ndarray) else scores.toarray()))
