"""Index: the nodes most similar to a query, by cosine, among those that are allowed.

Exact search with NumPy is the default and the reference. FAISS (`flat`, `ivf`, `hnsw`) is for graphs of hundreds of
thousands of nodes and imported when such an index is built. Whatever finds the candidates, their scores are computed
anew, row by row in double precision, and ties go to the lower row: the answer depends neither on the number of
threads nor on what else was searched.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agl.errors import UserError
from agl.graphs.embeddings import Embeddings, Vectors

Kind = Literal["exact", "flat", "ivf", "hnsw"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SLACK = 1e-5
"""More than single precision can be off in a dot product of unit vectors of up to some thousand dimensions."""
FEW = 20_000
"""So many allowed rows are searched exactly, whatever the kind: faster, and filters spoil the recall of FAISS."""
BLOCK = 2**25
"""So many scores are held at once: 128 MiB."""
MU = 0.3


class RetrievalError(ValueError):
    """A search that has no answer; `code` names the kind, the message is for the model."""

    def __init__(self, code: Literal["zero_vector", "bad_range", "no_encoder"], message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Hit:
    """A node and the cosine of its vector to the query, to six decimals: what single precision can tell apart."""

    node: int
    similarity: float


class Index:
    """Rows of `vectors` [n, d] by similarity; row i is node i, all-zero rows have similarity 0 to everything.

    `vectors` are `Embeddings` (then texts can be queries, and a FAISS index is kept beside them) or an array, whose
    rows are brought to length 1.

    Raises:
        UserError: unknown kind, or faiss is not installed.
    """

    def __init__(self, vectors: Embeddings | NDArray[Any], kind: Kind = "exact") -> None:
        if kind not in KINDS:
            raise UserError(f"expected an index of kind {', '.join(KINDS)}, got {kind!r}")
        self.kind, self._given = kind, vectors
        self._embeddings = vectors if isinstance(vectors, Embeddings) else None
        self.vectors: Vectors = vectors.vectors if isinstance(vectors, Embeddings) else _unit_rows(vectors)
        self._faiss: Any = None if kind == "exact" else _faiss_index(kind, self.vectors, self._embeddings)

    @property
    def n(self) -> int:
        return len(self.vectors)

    def __reduce__(self) -> tuple[Any, ...]:
        return Index, (self._given, self.kind)

    def encode(self, text: str) -> Vectors:
        """The vector [d] of a query text.

        Raises:
            RetrievalError: `no_encoder` when the index was made from bare vectors.
        """
        if self._embeddings is None:
            raise RetrievalError("no_encoder", "this index was built from vectors and cannot embed text")
        found: Vectors = self._embeddings.encode([text])[0]
        return found

    def fused(self, query: str | NDArray[Any] | None, nodes: Sequence[int], weight: float = 0.5) -> Vectors:
        """`weight` of the query plus `1 - weight` of the mean vector of `nodes`, as a unit vector [d].

        AgentGL's fused ranking (arXiv 2604.05846, lambda = 0.5). An empty query, or one without known words, leaves
        the nodes alone; nodes without a vector leave the query alone. All zero if neither has a direction.
        """
        if isinstance(query, str):
            query = self.encode(query) if query.strip() else None
        anchor = _unit_vector(self.vectors[list(nodes)].mean(axis=0)) if len(nodes) else np.zeros(self.vectors.shape[1])
        asked = np.zeros_like(anchor) if query is None else _unit_vector(query)
        if not asked.any() or not anchor.any():
            return np.asarray(asked if asked.any() else anchor, dtype=np.float32)
        return np.asarray(_unit_vector(weight * asked + (1 - weight) * anchor), dtype=np.float32)

    def search(
        self,
        query: str | NDArray[Any],
        k: int,
        allowed: NDArray[Any] | Sequence[int] | None = None,
        *,
        exclude: Collection[int] = (),
    ) -> list[Hit]:
        """The k most similar allowed nodes, best first, ties by row; fewer when fewer are allowed.

        `allowed` are rows or a mask [n], None for all; `exclude` are rows taken out of them.

        Raises:
            RetrievalError: `bad_range` when k < 1, `zero_vector` for a query without direction, `no_encoder`.
        """
        vector = self.encode(query) if isinstance(query, str) else np.asarray(query)
        return self.search_many(vector[None, :], k, allowed, exclude=[exclude])[0]

    def search_many(
        self,
        queries: NDArray[Any],
        k: int,
        allowed: NDArray[Any] | Sequence[int] | None = None,
        *,
        exclude: Sequence[Collection[int]] | None = None,
    ) -> list[list[Hit]]:
        """As `search` for each row of `queries` [m, d], with one matrix product for many; `exclude` is per query.

        Raises:
            RetrievalError: as `search`.
        """
        if k < 1:
            raise RetrievalError("bad_range", f"the number of results must be 1 or more, got {k}")
        if not len(queries):
            return []
        out = exclude if exclude is not None else [()] * len(queries)
        directions = np.stack([_direction(query) for query in queries])
        rows = None if allowed is None else _rows(allowed, self.n)
        if self._faiss is not None and (self.n if rows is None else len(rows)) > FEW:
            return [self._search_faiss(query, k, rows, without) for query, without in zip(directions, out, strict=True)]
        step = max(1, BLOCK // max(1, self.n))
        starts = range(0, len(directions), step)
        parts = [self._search_exact(directions[i : i + step], k, rows, out[i : i + step]) for i in starts]
        return [hits for part in parts for hits in part]

    def _search_exact(
        self, queries: NDArray[np.float64], k: int, rows: NDArray[np.int64] | None, out: Sequence[Collection[int]]
    ) -> list[list[Hit]]:
        hidden = None
        if rows is not None and len(rows) > self.n // 4:
            # Scoring all rows costs less than copying many.
            hidden = np.ones(self.n, dtype=bool)
            hidden[rows] = False
            rows = None
        pool = self.vectors if rows is None else self.vectors[rows]
        scores = queries.astype(np.float32) @ pool.T
        if hidden is not None:
            scores[:, hidden] = -np.inf
        hits = []
        for query, found, without in zip(queries, scores, out, strict=True):
            if len(without):
                banned = np.fromiter(without, dtype=np.int64)
                found[banned if rows is None else np.isin(rows, banned)] = -np.inf
            best = _candidates(found, k)
            hits.append(self._ranked(query, best if rows is None else rows[best], k))
        return hits

    def _ranked(self, query: NDArray[np.float64], rows: NDArray[np.int64], k: int) -> list[Hit]:
        exact = np.round((self.vectors[rows].astype(np.float64) * query).sum(axis=1), 6) + 0.0
        order = np.lexsort((rows, -exact))[:k]
        return [Hit(int(rows[i]), float(exact[i])) for i in order]

    def _search_faiss(
        self, query: NDArray[np.float64], k: int, rows: NDArray[np.int64] | None, without: Collection[int]
    ) -> list[Hit]:
        faiss = _faiss_module()
        selector = None
        if rows is not None:
            bits = np.zeros(self.n, dtype=bool)
            bits[rows] = True
            selector = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
        wanted = min(k + len(without), self.n if rows is None else len(rows))
        parameters = _search_parameters(faiss, self._faiss, self.kind, selector, wanted)
        fetched = min(wanted + 16, self.n)
        while True:
            scores, found = self._faiss.search(query.astype(np.float32)[None, :], fetched, params=parameters)
            real = found[0] >= 0
            scores, found = scores[0][real], found[0][real]
            # The last score may tie with nodes that were not fetched.
            cut = len(found) < fetched or scores[-1] < scores[min(wanted, len(scores)) - 1] - SLACK
            if cut or fetched >= self.n:
                break
            fetched = min(2 * fetched, self.n)
        if len(found) < wanted:
            return self._search_exact(query[None, :], k, rows, [without])[0]
        if len(without):
            found = found[~np.isin(found, np.fromiter(without, dtype=np.int64))]
        return self._ranked(query, found.astype(np.int64), k)


def _rows(allowed: NDArray[Any] | Sequence[int], n: int) -> NDArray[np.int64]:
    given = np.asarray(allowed)
    if given.dtype == np.bool_:
        if given.shape != (n,):
            raise IndexError(f"expected a mask of {n} nodes, got shape {given.shape}")
        return np.flatnonzero(given)
    rows = np.unique(given.astype(np.int64))
    if len(rows) and not (rows[0] >= 0 and rows[-1] < n):
        raise IndexError(f"expected allowed rows 0 to {n - 1}")
    return rows


def _candidates(scores: Vectors, k: int) -> NDArray[np.int64]:
    """All positions that can be among the k best once scores are exact."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        return np.flatnonzero((scores >= least - SLACK) & (scores > -np.inf))
    return np.flatnonzero(scores > -np.inf)


def _unit_vector(vector: NDArray[Any]) -> NDArray[np.float64]:
    exact = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(exact))
    return exact / length if length > 1e-9 else np.zeros_like(exact)


def _direction(query: NDArray[Any]) -> NDArray[np.float64]:
    unit = _unit_vector(query)
    if not unit.any() or not np.isfinite(unit).all():
        raise RetrievalError("zero_vector", "the query has no words that the index knows; use other words")
    return unit


def _unit_rows(vectors: NDArray[Any]) -> Vectors:
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise UserError(f"expected a matrix [n, d] of finite numbers to index, got shape {given.shape}")
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    return np.ascontiguousarray(np.divide(given, lengths, where=lengths > 0, out=np.zeros_like(given)), np.float32)


def _faiss_module() -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("an index of this kind needs faiss: pip install 'agl[graphs]', or use the kind exact") from None
    # faiss and torch bring two OpenMP runtimes; as many spinning threads as cores from each stall or crash.
    faiss.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
    return faiss


def _faiss_index(kind: Kind, vectors: Vectors, embeddings: Embeddings | None) -> Any:
    faiss = _faiss_module()
    path = None if embeddings is None or kind == "flat" else embeddings.folder / f"{kind}.faiss"
    if path is not None and path.is_file():
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    n, d = vectors.shape
    index: Any
    if kind == "flat":
        index = faiss.IndexFlatIP(d)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(d, 32, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 100
    else:
        # FAISS asks for at least 39 training points a cell.
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(d), d, max(1, min(int(4 * n**0.5), n // 39)), faiss.METRIC_INNER_PRODUCT
        )
        index.train(np.asarray(vectors))
    index.add(np.asarray(vectors))
    if path is not None:
        _write(faiss, index, path)
        # Mapped, so that the processes of a run share one copy.
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    return index


def _write(faiss: Any, index: Any, path: Path) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    faiss.write_index(index, str(draft))
    draft.replace(path)


def _search_parameters(faiss: Any, index: Any, kind: Kind, selector: Any, wanted: int) -> Any:
    if kind == "ivf":
        return faiss.SearchParametersIVF(sel=selector, nprobe=max(8, index.nlist // 16))
    if kind == "hnsw":
        return faiss.SearchParametersHNSW(sel=selector, efSearch=max(128, 4 * wanted))
    return faiss.SearchParameters(sel=selector)


def diversify(hits: Iterable[Hit], labels: Sequence[object | None], k: int, mu: float = MU) -> list[Hit]:
    """Choose k of `hits` greedily by similarity - mu * (share of those already chosen that have the same label).

    Label-diversity rerank of ReaGAN (arXiv 2508.00429; claimed there, absent from the public code; mu is ours).
    `labels[i]` belongs to hit i; a hit without label (None) resembles none. Ties go to the earlier hit; mu = 0 keeps
    the order of similarity.
    """
    left = list(zip(hits, labels, strict=True))
    chosen: list[tuple[Hit, object | None]] = []
    while left and len(chosen) < k:

        def worth(place: int) -> float:
            hit, label = left[place]
            same = 0 if label is None else sum(other == label for _, other in chosen)
            return hit.similarity - mu * same / max(1, len(chosen))

        best = max(range(len(left)), key=lambda place: (worth(place), -place))
        chosen.append(left.pop(best))
    return [hit for hit, _ in chosen]
