"""NodeProblem: a graph and a split with only those labels that a baseline may read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from agl.errors import UserError
from agl.graphs.text_graph import Codes, IntArray, Labels, Rows, TextGraph

Features = Literal["tfidf", "minilm"]
FEATURES: tuple[Features, ...] = get_args(Features)
BLOCK = 2**24
"""So many similarities are held at once: 128 MiB."""


@dataclass(frozen=True, eq=False)
class NodeProblem:
    """`n` nodes in `classes` classes; the labels of all other nodes than train and val are not in here.

    Attributes:
        train_labels: int32 `[n]`, gold for training nodes, -1 elsewhere.
        val_labels: int32 `[n]`, gold for validation nodes, -1 elsewhere. Networks stop and are tuned on them; votes do
            not read them.
        indptr, indices: the undirected view in compressed sparse rows, as in `TextGraph`.
    """

    n: int
    class_names: tuple[str, ...]
    indptr: IntArray
    indices: Rows
    train_labels: Labels
    val_labels: Labels
    texts: TextsOf
    features: Features = "tfidf"

    @classmethod
    def of(
        cls, graph: TextGraph, split: Codes, features: Features = "tfidf", texts: TextsOf | None = None
    ) -> NodeProblem:
        """What a baseline may know of `graph` under the split codes `split` [n].

        Raises:
            UserError: no node has a label, no training node has one, other features, or a split of another length.
        """
        name = graph.name or "the graph"
        if features not in FEATURES:
            raise UserError(f"expected the features {' or '.join(FEATURES)}, got {features!r}")
        codes = np.asarray(split)
        if codes.shape != (graph.n,):
            raise UserError(f"expected one split code for each of {graph.n} nodes, got shape {codes.shape}")
        if not (graph.labels >= 0).any():
            raise UserError(f"expected a graph with labels for baselines, got {name} without any")
        train = np.where(codes == 0, graph.labels, -1).astype(np.int32)
        if not (train >= 0).any():
            raise UserError(f"expected training nodes with labels in the split, got none in {name}")
        val = np.where(codes == 1, graph.labels, -1).astype(np.int32)
        return cls(
            graph.n, graph.class_names, graph.indptr, graph.indices, train, val, texts or TextsOf(graph), features
        )

    @cached_property
    def train(self) -> IntArray:
        """Rows of the training nodes that have a label, ascending."""
        return np.flatnonzero(self.train_labels >= 0)

    @cached_property
    def val(self) -> IntArray:
        """Rows of the validation nodes that have a label, ascending."""
        return np.flatnonzero(self.val_labels >= 0)

    @cached_property
    def asked(self) -> IntArray:
        """Rows whose class is asked for, ascending: all but the training nodes."""
        return np.flatnonzero(self.train_labels < 0)

    def labelled_arcs(self) -> tuple[IntArray, IntArray]:
        """Arcs from asked nodes to labelled neighbours: position in `asked` [m], row of the neighbour [m]."""
        starts, ends = self.indptr[self.asked], self.indptr[self.asked + 1]
        counts = ends - starts
        source = np.repeat(np.arange(len(counts)), counts)
        shift = starts - (np.cumsum(counts) - counts)
        target = self.indices[np.arange(len(source)) + shift[source]].astype(np.int64)
        keep = self.train_labels[target] >= 0
        return source[keep], target[keep]

    @property
    def vectors(self) -> Any:
        """Unit rows by which texts are compared, as `TextsOf.vectors`."""
        return self.texts.vectors(self.features)

    @property
    def inputs(self) -> npt.NDArray[np.float32]:
        """What networks read at each node, as `TextsOf.inputs`."""
        return self.texts.inputs(self.features)


class TextsOf:
    """The texts of a graph as vectors, computed on first use and shared by the splits of a table."""

    def __init__(self, graph: TextGraph) -> None:
        self._graph = graph
        self._vectors: dict[Features, Any] = {}
        self._inputs: dict[Features, npt.NDArray[np.float32]] = {}

    def all(self) -> list[str]:
        return self._graph.texts()

    def vectors(self, features: Features) -> Any:
        """Sparse TF-IDF rows [n, words] or MiniLM rows [n, 384], of length 1 or all zero."""
        if features not in self._vectors:
            self._vectors[features] = _tfidf(self.all()) if features == "tfidf" else self.inputs(features)
        return self._vectors[features]

    def inputs(self, features: Features) -> npt.NDArray[np.float32]:
        """TF-IDF reduced to 256 dimensions, or MiniLM: `[n, d]` float32, of length 1 or all zero."""
        if features not in self._inputs:
            from agl.graphs.embeddings import embed

            self._inputs[features] = np.array(embed(self.all(), features).vectors)
        return self._inputs[features]


def _tfidf(texts: list[str]) -> Any:
    from scipy.sparse import csr_matrix

    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise UserError("baselines on text need scikit-learn: pip install 'agl[graphs]'") from None
    try:
        return TfidfVectorizer(stop_words="english").fit_transform(texts).tocsr()
    except ValueError:  # no word in any text
        return csr_matrix((len(texts), 1))
