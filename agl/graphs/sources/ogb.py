"""ogbn-arxiv and ogbn-products through the package `ogb`.

ogbn-arxiv: ids are the paper ids of its mapping table, and titles and abstracts are joined by that id, for the table
of titles has 179,719 rows for 169,343 nodes and another order. ogbn-products: ids are ASINs, texts come from a table.
"""

from __future__ import annotations

import gzip
import importlib
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from agl.errors import UserError
from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.sources.text_table import read_rows, read_texts
from agl.graphs.text_graph import TextGraph, cache_folder

TITLES = "https://snap.stanford.edu/ogb/data/misc/ogbn_arxiv/titleabs.tsv.gz"
_MAPPINGS = {
    "ogbn-arxiv": ("nodeidx2paperid.csv.gz", "labelidx2arxivcategeory.csv.gz"),
    "ogbn-products": ("nodeidx2asin.csv.gz", "labelidx2productcategory.csv.gz"),
}


def build(name: str, texts: Path | None = None) -> TextGraph:
    """The graph `name` with the split of OGB; `texts` is a table by paper id or ASIN.

    Raises:
        UserError: the package `ogb` or the network is missing, or ogbn-products comes without `texts`.
        TextGraphError: the texts do not cover the nodes.
    """
    if name == "ogbn-products" and texts is None:
        raise UserError("expected --texts FILE with ogbn-products (a table asin, title, content); OGB ships no texts")
    return remembered(name, [] if texts is None else [*file_state(texts)], lambda: _build(name, texts))


def _build(name: str, texts: Path | None) -> TextGraph:
    root = cache_folder() / "ogb"
    try:
        dataset = importlib.import_module("ogb.nodeproppred").NodePropPredDataset(name, root=str(root))
    except ImportError:
        raise UserError(f"expected the package ogb for {name}; pip install ogb") from None
    except Exception as error:
        raise UserError(f"expected to download {name} through ogb, which failed ({error}); check the network") from None
    graph, labels = dataset[0]
    mapping = Path(dataset.root) / "mapping"
    nodes_file, classes_file = _MAPPINGS[name]
    ids = _by_index(mapping / nodes_file)
    split = np.full(len(ids), -1, dtype=np.int8)
    for code, part in enumerate(("train", "valid", "test")):
        split[dataset.get_idx_split()[part]] = code
    built = TextGraph.build(
        ids,
        read_texts(texts or _titles(root), ids, () if texts else ("paper_id", "title", "abstract")),
        graph["edge_index"].T,
        split=split,
        labels=np.asarray(labels).reshape(-1).astype(np.int64),
        class_names=_by_index(mapping / classes_file),
        directed=name == "ogbn-arxiv",
        meta={"name": name, "source": "ogb", "licence": "ODC-BY" if name == "ogbn-arxiv" else "Amazon terms"},
    )
    return with_standard_splits(built)


def _by_index(path: Path) -> list[str]:
    """The second column of a mapping table, in the order of its first."""
    rows: list[list[Any]] = [list(row.values()) for row in read_rows(path)]
    table = {int(row[0]): str(row[1]) for row in rows}
    return [table[index] for index in range(len(table))]


def _titles(root: Path) -> Path:
    path = root / "titleabs.tsv"
    if not path.is_file():
        try:
            with urllib.request.urlopen(TITLES, timeout=60) as answer:
                data = answer.read()
        except OSError as error:
            raise UserError(f"expected to download {TITLES}, which failed ({error}); give --texts FILE") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_bytes(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        draft.replace(path)
    return path
