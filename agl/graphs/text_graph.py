"""TextGraph: a large graph whose nodes carry text, labels and a split.

Nodes are rows `0 .. n-1`; ids are strings and live in one table, so a row number is never mistaken for an id. Texts
and arrays are memory-mapped from a cache keyed by content: opening costs milliseconds, and a pickle is a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from agl.errors import DataError
from agl.graphs.naming import NamingError, natural_key, node_id
from agl.json_text import dumps

if TYPE_CHECKING:
    import pyarrow as pa

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
"""Code of a split: its place in this tuple; -1 is none."""

IntArray = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
Labels = npt.NDArray[np.int32]

CACHE_VERSION = 1
META = "graph.json"
NODES = "nodes.arrow"


class TextGraphError(DataError):
    """Data that make no text-attributed graph; `code` names the kind."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def cache_folder() -> Path:
    """Where graphs are cached: `graphs` under `$AGL_CACHE`, or under `~/.cache/agl`."""
    return Path(os.environ.get("AGL_CACHE") or Path.home() / ".cache" / "agl") / "graphs"


class TextGraph:
    """`n` nodes with ids, texts, labels and splits, and their edges in compressed sparse rows.

    Attributes:
        indptr: int64 `[n + 1]`, and
        indices: int32 `[2 * edges]`: the undirected view. Row i holds the neighbours of node i in ascending order,
            without i itself and without duplicates.
        out_indptr: int64 `[n + 1]`, and
        out_indices: int32 `[arcs]`: the arcs as directed, in the same form. Equal to the above when not `directed`.
        labels: int32 `[n]`, index into `class_names`; -1 is no label.
        class_names: the classes, in the order of their index.
        split: int8 `[n]`, index into `SPLITS`; -1 is none.
        splits: further named splits in the form of `split`.
        meta: name, licence, source, counts; JSON, not part of `content_hash` (the name and the rest say nothing that
            a reader of the graph sees).
    """

    def __init__(
        self,
        nodes: pa.Table,
        adjacency: tuple[IntArray, Rows],
        out: tuple[IntArray, Rows],
        labels: Labels,
        class_names: Sequence[str],
        split: Codes,
        splits: Mapping[str, Codes],
        directed: bool,
        meta: Mapping[str, Any],
        texts_hash: str,
        path: Path | None = None,
    ) -> None:
        """Use `build`, `open`, `read_folder` or `agl.graphs.sources.open_graph`; this takes parts that are checked."""
        self._nodes = nodes
        self.indptr, self.indices = adjacency
        self.out_indptr, self.out_indices = out
        self.labels = labels
        self.class_names = tuple(class_names)
        self.split = split
        self.splits = dict(splits)
        self.directed = directed
        self.meta = dict(meta)
        self.path = path
        """Folder in the cache, or None while the graph lives in memory only."""
        self._texts_hash = texts_hash
        self._text = _column(nodes, "text")
        self._extra = _column(nodes, "extra")

    @classmethod
    def build(
        cls,
        ids: Iterable[object],
        texts: Sequence[str],
        edges: npt.ArrayLike | Iterable[tuple[int, int]] = (),
        *,
        labels: Sequence[int] | npt.NDArray[Any] | None = None,
        class_names: Sequence[str] | None = None,
        split: Sequence[int] | npt.NDArray[Any] | None = None,
        splits: Mapping[str, Any] | None = None,
        directed: bool = False,
        meta: Mapping[str, Any] | None = None,
        extras: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> TextGraph:
        """A checked graph in memory. `edges` are pairs of row numbers `[m, 2]`; `edge_rows` makes them from ids.

        Self-loops are dropped, an edge given again (in an undirected graph also the other way round) is kept once;
        both are counted in `meta["counts"]`. Labels are class indices, -1 for none; splits are codes as in `SPLITS`.

        Raises:
            TextGraphError: `bad_id`, `duplicate_id`, `bad_text`, `bad_length`, `bad_edge`, `bad_label`, `bad_split`.
        """
        import pyarrow as pa

        names = _checked_ids(ids)
        n = len(names)
        if len(texts) != n:
            raise TextGraphError("bad_length", f"expected {n} texts, one for each node, got {len(texts)}")
        for name, text in zip(names, texts, strict=True):
            if not isinstance(text, str):
                raise TextGraphError("bad_text", f"expected a text for node {name!r}, got {type(text).__name__}")
        if extras is not None and len(extras) != n:
            raise TextGraphError("bad_length", f"expected {n} extras, one for each node, got {len(extras)}")
        codes = _labels(labels, n)
        classes = [str(k) for k in range(int(codes.max(initial=-1)) + 1)] if class_names is None else list(class_names)
        if len(set(classes)) != len(classes):
            raise TextGraphError("bad_label", f"expected class names that differ, got {classes}")
        if n and (codes.max() >= len(classes) or codes.min() < -1):
            wrong = int(codes.max()) if codes.max() >= len(classes) else int(codes.min())
            raise TextGraphError(
                "bad_label",
                f"expected labels from -1 to {len(classes) - 1} for {len(classes)} class names, got {wrong}",
            )
        adjacency, out, counts = _adjacency(edges, n, directed)
        extra = [None if not row else dumps(dict(row)) for row in extras] if extras is not None else [None] * n
        try:
            nodes = pa.table(
                {
                    "id": pa.array(names, pa.large_string()),
                    "text": pa.array(texts, pa.large_string()),
                    "extra": pa.array(extra, pa.large_string()),
                }
            )
        except UnicodeEncodeError:
            raise TextGraphError("bad_text", "expected texts in Unicode, got half a surrogate pair in one") from None
        return cls(
            nodes,
            adjacency,
            out,
            codes,
            classes,
            _codes(split, n, "split"),
            {name: _codes(values, n, f"split {name!r}") for name, values in sorted((splits or {}).items())},
            directed,
            {**(meta or {}), "counts": counts},
            _hash_columns(names, texts, extra),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, self-loops and duplicates apart."""
        return len(self.indices) // 2

    @property
    def num_arcs(self) -> int:
        """Number of directed arcs; in an undirected graph each edge counts twice."""
        return len(self.out_indices)

    @property
    def name(self) -> str:
        return str(self.meta.get("name", ""))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Id of each node; decoded on first use."""
        return tuple(self._nodes.column("id").to_pylist())

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}

    def index_of(self, node: object) -> int:
        """Row of the node with this id.

        Raises:
            TextGraphError: `unknown_id`, `bad_id`.
        """
        try:
            return self._index[node] if node in self._index else self._index[node_id(node)]
        except (KeyError, TypeError):
            raise TextGraphError(
                "unknown_id", f"expected the id of a node of {self.name or 'the graph'}, got {node!r}"
            ) from None
        except NamingError as error:
            raise TextGraphError("bad_id", str(error)) from None

    def text(self, i: int) -> str:
        """Text of node i, decoded from the map on each call."""
        return str(self._text[int(i)].as_py())

    def texts(self) -> list[str]:
        """All texts, decoded: memory in proportion to the corpus."""
        return [str(text) for text in self._nodes.column("text").to_pylist()]

    def extra(self, i: int) -> dict[str, Any]:
        """What the source said about node i beyond id, text, label and split."""
        value = self._extra[int(i)].as_py()
        return {} if value is None else dict(json.loads(value))

    def neighbors(self, i: int) -> Rows:
        """Neighbours of node i in the undirected view, ascending; a view into `indices`, not a copy."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def successors(self, i: int) -> Rows:
        """Heads of the arcs that leave node i, ascending; a view, not a copy."""
        return self.out_indices[self.out_indptr[i] : self.out_indptr[i + 1]]

    def degree(self, i: int) -> int:
        """Number of neighbours of node i in the undirected view."""
        return int(self.indptr[i + 1] - self.indptr[i])

    @cached_property
    def degrees(self) -> IntArray:
        """Number of neighbours of each node."""
        return np.diff(self.indptr)

    def has_edge(self, i: int, j: int) -> bool:
        """Whether i and j are neighbours in the undirected view."""
        row = self.neighbors(i)
        place = int(np.searchsorted(row, j))
        return place < len(row) and int(row[place]) == j

    def edges(self) -> Rows:
        """The undirected edges `[num_edges, 2]` with the smaller row first, in ascending order."""
        pairs = _pairs(self.indptr, self.indices)
        return pairs[pairs[:, 0] < pairs[:, 1]]

    def arcs(self) -> Rows:
        """The arcs `[num_arcs, 2]` as (source, target), in ascending order."""
        return _pairs(self.out_indptr, self.out_indices)

    def nodes_in(self, split: Split, of: str | None = None) -> IntArray:
        """Rows of the nodes in `split` of the main split or of the named split `of`, ascending.

        Raises:
            TextGraphError: `unknown_split`.
        """
        return np.flatnonzero(self.split_codes(of) == SPLITS.index(split))

    def split_codes(self, of: str | None = None) -> Codes:
        """Codes of the main split, or of the named split `of`.

        Raises:
            TextGraphError: `unknown_split`.
        """
        if of is None:
            return self.split
        if of not in self.splits:
            known = ", ".join(self.splits) or "none"
            raise TextGraphError(
                "unknown_split", f"expected a split of {self.name or 'the graph'} ({known}), got {of!r}"
            )
        return self.splits[of]

    def label_name(self, i: int) -> str | None:
        """Class name of node i, or None where it has no label."""
        label = int(self.labels[i])
        return None if label < 0 else self.class_names[label]

    def replaced(
        self,
        *,
        split: npt.ArrayLike | None = None,
        splits: Mapping[str, npt.ArrayLike] | None = None,
        labels: npt.ArrayLike | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> TextGraph:
        """The same nodes and edges with another split, other named splits, labels or meta; nothing is copied.

        Raises:
            TextGraphError: as `build`.
        """
        codes = self.labels if labels is None else _labels(np.asarray(labels), self.n)
        if self.n and (codes.min() < -1 or codes.max() >= len(self.class_names)):
            raise TextGraphError("bad_label", f"expected labels from -1 to {len(self.class_names) - 1}")
        return TextGraph(
            self._nodes,
            (self.indptr, self.indices),
            (self.out_indptr, self.out_indices),
            codes,
            self.class_names,
            self.split if split is None else _codes(split, self.n, "split"),
            self.splits
            if splits is None
            else {name: _codes(values, self.n, f"split {name!r}") for name, values in sorted(splits.items())},
            self.directed,
            self.meta if meta is None else {**meta, "counts": self.meta["counts"]},
            self._texts_hash,
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over ids, texts, extras, edges, labels, classes and splits; the same in any process."""
        if self.path is not None:
            return str(json.loads((self.path / META).read_text(encoding="utf-8"))["content_hash"])
        digest = hashlib.sha256(f"{self._texts_hash} {self.directed}".encode())
        digest.update(dumps([list(self.class_names), list(self.splits)]).encode())
        for array in (self.labels, self.split, *self.splits.values(), self.out_indptr, self.out_indices):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    # The cache: one folder for the node table (shared by graphs that differ in splits only), one for the arrays.

    def stored(self) -> TextGraph:
        """The same graph, written to the cache if need be and mapped from there.

        Raises:
            OSError: the cache cannot be written.
        """
        if self.path is not None:
            return self
        root = cache_folder()
        texts = root / f"texts-{self._texts_hash[:32]}"
        if not (texts / NODES).is_file():
            shutil.rmtree(texts, ignore_errors=True)
            with _new_folder(texts) as draft:
                _write_table(self._nodes, draft / NODES)
        meta = dumps(self.meta)
        key = hashlib.sha256(f"{self.content_hash} {meta}".encode()).hexdigest()[:32]
        folder = root / f"graph-{key}"
        if not (folder / META).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            with _new_folder(folder) as draft:
                arrays: dict[str, npt.NDArray[Any]] = {
                    "labels": self.labels,
                    "split": self.split,
                    "indptr": self.indptr,
                    "indices": self.indices,
                }
                arrays |= {f"split-{place}": codes for place, codes in enumerate(self.splits.values())}
                if self.directed:
                    arrays |= {"out_indptr": self.out_indptr, "out_indices": self.out_indices}
                for name, array in arrays.items():
                    np.save(draft / f"{name}.npy", array)
                card = {
                    "version": CACHE_VERSION,
                    "content_hash": self.content_hash,
                    "texts": texts.name,
                    "texts_hash": self._texts_hash,
                    "class_names": list(self.class_names),
                    "splits": list(self.splits),
                    "directed": self.directed,
                    "meta": self.meta,
                }
                (draft / META).write_text(dumps(card), encoding="utf-8")
        return TextGraph.open(folder)

    @classmethod
    def open(cls, path: Path | str) -> TextGraph:
        """The graph stored in this folder of the cache, mapped.

        Raises:
            TextGraphError: `not_cached`.
        """
        import pyarrow as pa

        folder = Path(path)
        try:
            card = json.loads((folder / META).read_text(encoding="utf-8"))
            nodes = pa.ipc.open_file(pa.memory_map(str(folder.parent / card["texts"] / NODES))).read_all()

            def array(name: str) -> Any:
                return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))

            adjacency = array("indptr"), array("indices")
            return cls(
                nodes,
                adjacency,
                (array("out_indptr"), array("out_indices")) if card["directed"] else adjacency,
                array("labels"),
                card["class_names"],
                array("split"),
                {name: array(f"split-{place}") for place, name in enumerate(card["splits"])},
                card["directed"],
                card["meta"],
                card["texts_hash"],
                folder,
            )
        except (OSError, ValueError, KeyError) as error:
            raise TextGraphError(
                "not_cached",
                f"expected a cached graph in {folder}, got {error}; remove that folder and open the graph by its name",
            ) from None

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return TextGraph.open, (str(self.stored().path),)

    def __repr__(self) -> str:
        counts = f"{self.n} nodes, {self.num_edges} edges, {len(self.class_names)} classes"
        return f"<TextGraph {self.name or 'unnamed'}: {counts}>"

    # PyTorch Geometric.

    def to_pyg(self, features: npt.ArrayLike | None = None, *, directed: bool = False) -> Any:
        """A `torch_geometric.data.Data`: `y`, masks, `x` if given, and both directions of each edge.

        With `directed` the arcs instead.

        Raises:
            TextGraphError: `bad_length` when `features` has another number of rows.
        """
        import torch
        from torch_geometric.data import Data

        pairs = self.arcs() if directed else _pairs(self.indptr, self.indices)
        data = Data(
            edge_index=torch.from_numpy(pairs.T.astype(np.int64)),
            y=torch.from_numpy(self.labels.astype(np.int64)),
            num_nodes=self.n,
        )
        if features is not None:
            matrix = np.asarray(features, dtype=np.float32)
            if matrix.shape[:1] != (self.n,):
                raise TextGraphError("bad_length", f"expected {self.n} rows of features, got shape {matrix.shape}")
            data.x = torch.from_numpy(matrix.copy())
        for code, split in enumerate(SPLITS):
            data[f"{split}_mask"] = torch.from_numpy(self.split == code)
        return data

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        texts: Sequence[str],
        *,
        ids: Iterable[object] | None = None,
        class_names: Sequence[str] | None = None,
        directed: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> TextGraph:
        """A graph from a `torch_geometric.data.Data` and one text per node, in the order of its rows.

        Masks of shape [n, k] become named splits `0 .. k-1`, the first of them the main split. Direction is found
        from the edges unless given.

        Raises:
            TextGraphError: as `build`.
        """
        n = int(data.num_nodes)
        arcs = np.asarray(data.edge_index.cpu().numpy(), dtype=np.int64).T
        if directed is None:
            directed = not bool(data.is_undirected())
        labels = None if data.get("y") is None else np.where((y := data.y.cpu().numpy().reshape(n)) == y, y, -1)
        columns = _pyg_splits(data, n)
        return cls.build(
            range(n) if ids is None else ids,
            texts,
            arcs,
            labels=labels,
            class_names=class_names,
            split=columns[0] if columns else None,
            splits={str(k): codes for k, codes in enumerate(columns)} if len(columns) > 1 else None,
            directed=directed,
            meta=meta,
        )


def edge_rows(ids: Sequence[str], pairs: Iterable[tuple[object, object]]) -> IntArray:
    """Row numbers `[m, 2]` of `pairs` of ids.

    Raises:
        TextGraphError: `unknown_endpoint`, `bad_id`.
    """
    index = {name: row for row, name in enumerate(ids)}
    found: list[int] = []
    for pair in pairs:
        for end in pair:
            try:
                row = index.get(node_id(end))
            except NamingError as error:
                raise TextGraphError("bad_id", f"edge {pair!r}: {error}") from None
            if row is None:
                raise TextGraphError(
                    "unknown_endpoint", f"expected edges between listed nodes, got {end!r} in {pair!r}"
                )
            found.append(row)
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def natural_order(names: Iterable[str]) -> list[str]:
    """Names without duplicates in natural order: the order of classes where the data state none."""
    return sorted(set(names), key=natural_key)


def _checked_ids(ids: Iterable[object]) -> list[str]:
    names: list[str] = []
    for value in ids:
        try:
            name = node_id(value)
        except NamingError as error:
            raise TextGraphError("bad_id", f"node {len(names)}: {error}") from None
        if any(letter in name for letter in "\t\n\r"):
            raise TextGraphError("bad_id", f"node {len(names)}: expected an id without tab or line break, got {name!r}")
        names.append(name)
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise TextGraphError("duplicate_id", f"expected ids that differ, got {twice!r} twice")
    return names


def _labels(labels: Any, n: int) -> Labels:
    if labels is None:
        return np.full(n, -1, dtype=np.int32)
    array = np.asarray(labels)
    if array.shape != (n,):
        raise TextGraphError("bad_length", f"expected {n} labels, one for each node, got shape {array.shape}")
    if n and (array.dtype == bool or not np.array_equal(array, whole := array.astype(np.int64))):
        raise TextGraphError("bad_label", f"expected labels that are class indices, got {array.dtype}")
    return array.astype(np.int32) if not n else whole.astype(np.int32)


def _codes(split: Any, n: int, what: str) -> Codes:
    if split is None:
        return np.full(n, -1, dtype=np.int8)
    array = np.asarray(split, dtype=np.int8)
    if array.shape != (n,):
        raise TextGraphError("bad_length", f"expected a {what} with {n} codes, got shape {array.shape}")
    if n and (array.min() < -1 or array.max() >= len(SPLITS)):
        raise TextGraphError("bad_split", f"expected codes -1 to {len(SPLITS) - 1} in the {what}, got others")
    return array


def _adjacency(
    edges: Any, n: int, directed: bool
) -> tuple[tuple[IntArray, Rows], tuple[IntArray, Rows], dict[str, int]]:
    pairs = np.asarray(edges if hasattr(edges, "__len__") else list(edges), dtype=np.int64).reshape(-1, 2)
    if len(pairs) and not (pairs.min() >= 0 and pairs.max() < n):
        wrong = int(pairs.min() if pairs.min() < 0 else pairs.max())
        raise TextGraphError("bad_edge", f"expected edges between rows 0 to {n - 1}, got row {wrong}")
    proper = pairs[pairs[:, 0] != pairs[:, 1]]
    both = np.unique(np.concatenate([proper[:, 0] * n + proper[:, 1], proper[:, 1] * n + proper[:, 0]]))
    adjacency = _rows(both, n)
    arcs = np.unique(proper[:, 0] * n + proper[:, 1]) if directed else both
    distinct = len(arcs) if directed else len(both) // 2
    counts = {
        "nodes": n,
        "edge_lines": len(pairs),
        "self_loops": len(pairs) - len(proper),
        "duplicate_edges": len(proper) - distinct,
        "undirected_edges": len(both) // 2,
        "isolated_nodes": int((np.diff(adjacency[0]) == 0).sum()),
    }
    return adjacency, _rows(arcs, n) if directed else adjacency, counts


def _rows(keys: IntArray, n: int) -> tuple[IntArray, Rows]:
    source, target = np.divmod(keys, max(n, 1))
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=indptr[1:])
    return indptr, target.astype(np.int32)


def _pairs(indptr: IntArray, indices: Rows) -> Rows:
    source = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    return np.stack([source, indices], axis=1)


def _pyg_splits(data: Any, n: int) -> list[Codes]:
    masks = {split: data.get(f"{split}_mask") for split in SPLITS}
    widths = [mask.reshape(n, -1).shape[1] for mask in masks.values() if mask is not None]
    columns: list[Codes] = []
    for k in range(max(widths, default=0)):
        codes = np.full(n, -1, dtype=np.int8)
        for code, split in enumerate(SPLITS):
            if masks[split] is not None:
                mask = masks[split].cpu().numpy().astype(bool).reshape(n, -1)
                codes[mask[:, min(k, mask.shape[1] - 1)]] = code
        columns.append(codes)
    return columns


def _hash_columns(*columns: Iterable[str | None]) -> str:
    digest = hashlib.sha256()
    for column in columns:
        for value in column:
            data = b"" if value is None else value.encode()
            digest.update(b"-" if value is None else b"%d:" % len(data))
            digest.update(data)
        digest.update(b";")
    return digest.hexdigest()


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # the latter copies


def _write_table(table: pa.Table, path: Path) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=max(table.num_rows, 1))


class _new_folder:
    """A draft that takes its final name at once when it is complete; whoever comes second throws its own away."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.path.parent))
        return self.draft

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            try:
                self.draft.rename(self.path)
            except OSError:
                if not self.path.is_dir():
                    raise
        shutil.rmtree(self.draft, ignore_errors=True)
