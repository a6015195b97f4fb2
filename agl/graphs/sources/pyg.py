"""Planetoid, WikiCS, Amazon and Chameleon through PyTorch Geometric, with texts from the Hub or a table.

Ids are the row numbers of the PyTorch Geometric data set. Texts of Cora, Citeseer, PubMed and WikiCS come from the
Hub's `Graph-COM/Text-Attributed-Graphs`, in the node order of the graph that stands beside them; that graph is taken
too, so that text and node cannot part. Amazon has no published texts in this node order:
give a table. Chameleon has none at all; its texts are its feature numbers, and the graph says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agl.errors import UserError
from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.sources.text_table import read_texts
from agl.graphs.text_graph import TextGraph, cache_folder

HUB = "Graph-COM/Text-Attributed-Graphs"
GRAPH, TEXTS, CLASSES = "processed_data.pt", "raw_texts.pt", "categories.csv"
ON_HUB = ("cora", "citeseer", "pubmed", "wikics")
_AMAZON = {"amazon-photo": "Photo", "amazon-computers": "Computers"}


def build(name: str, texts: Path | None = None) -> TextGraph:
    """The graph `name`. `texts`: a table of texts by row number, or a folder with the three files of the Hub.

    Raises:
        UserError: a package or the network is missing, or the data set needs `texts`.
        TextGraphError: the texts do not cover the nodes.
    """
    if name in _AMAZON and texts is None:
        raise UserError(
            f"expected --texts FILE with {name}, whose texts are not published by row; give a table id, text"
        )
    state: list[object] = (
        [] if texts is None else [*file_state(texts, *(texts / file for file in (GRAPH, TEXTS, CLASSES)))]
    )
    return remembered(name, state, lambda: with_standard_splits(_build(name, texts)))


def _build(name: str, texts: Path | None) -> TextGraph:
    meta: dict[str, Any] = {"name": name}
    if texts is None and name in ON_HUB:
        return _from_hub(lambda file: _download(f"{name}/{file}"), {**meta, "source": HUB})
    if texts is not None and texts.is_dir():
        return _from_hub(lambda file: texts / file, {**meta, "source": f"{HUB}, from a folder"})
    data = _dataset(name)[0]
    meta["source"] = "torch_geometric.datasets"
    if name == "chameleon":
        lines = [" ".join(f"feature{k}" for k in row.nonzero().flatten().tolist()) for row in data.x]
        return TextGraph.from_pyg(data, lines, meta={**meta, "synthetic_text": True})
    assert texts is not None
    return TextGraph.from_pyg(data, read_texts(texts, [str(row) for row in range(int(data.num_nodes))]), meta=meta)


def _from_hub(file: Callable[[str], Path], meta: dict[str, Any]) -> TextGraph:
    """A graph, the texts in the order of its nodes, and the names of its classes, as the Hub's files hold them."""
    data = _load(file(GRAPH))
    texts = data.get("raw_texts") or _load(file(TEXTS))
    categories = file(CLASSES)
    names = [line.strip() for line in categories.read_text("utf-8").splitlines()[1:]] if categories.is_file() else []
    return TextGraph.from_pyg(data, list(texts), class_names=[name for name in names if name] or None, meta=meta)


def _load(path: Path) -> Any:
    torch = _package("torch")
    if not path.is_file():
        raise UserError(f"expected {path.name} of {HUB} in {path.parent}, found none; download it there")
    try:
        with torch.serialization.safe_globals(_safe_classes()):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"expected a file of {HUB} in {path}, which cannot be read: {_first(error)}") from None


def _safe_classes() -> list[Any]:
    data = _package("torch_geometric.data.data")
    storage = _package("torch_geometric.data.storage")
    return [
        data.Data,
        *(getattr(data, name) for name in ("DataEdgeAttr", "DataTensorAttr") if hasattr(data, name)),
        *(getattr(storage, name) for name in ("GlobalStorage", "NodeStorage", "EdgeStorage")),
    ]


def _download(file: str) -> Path:
    hub = _package("huggingface_hub")
    _package("huggingface_hub.utils.logging").set_verbosity_error()  # its retries would hide the one sentence below
    try:
        return Path(hub.hf_hub_download(HUB, file, repo_type="dataset"))
    except Exception as error:
        raise UserError(
            f"expected to download {file} of {HUB} from the Hugging Face Hub, which failed ({_first(error)}); "
            "check the network, or give --texts DIR with a copy"
        ) from None


def _dataset(name: str) -> Any:
    datasets = _package("torch_geometric.datasets")
    root = str(cache_folder() / "pyg" / name)
    try:
        if name in _AMAZON:
            return datasets.Amazon(root, _AMAZON[name])
        if name == "wikics":
            return datasets.WikiCS(root, is_undirected=True)
        if name == "chameleon":
            return datasets.WikipediaNetwork(root, "chameleon")
        return datasets.Planetoid(root, {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}[name])
    except Exception as error:
        raise UserError(
            f"expected to download {name} through torch_geometric, which failed ({_first(error)}); check the network, "
            f"or put its files under {root}"
        ) from None


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0].replace("_", "-")
        raise UserError(f"expected the package {package} for this source; pip install 'agl[graphs]'") from None


def _first(error: BaseException) -> str:
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:200]
