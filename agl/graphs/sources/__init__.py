"""Where text-attributed graphs come from: embedded and downloadable sources by name, and folders.

Each source is a function that builds the graph; it is imported only when its name is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agl.errors import UserError
from agl.graphs.text_graph import TextGraph, TextGraphError


@dataclass(frozen=True)
class Source:
    """`entry` is `module:function`; the function takes the name and the place of the texts, if one was given."""

    entry: str
    about: str
    needs: str = "nothing"


_PYG = "agl.graphs.sources.pyg:build"
_DOWNLOAD = "network (Hugging Face Hub), or --texts DIR"

SOURCES: dict[str, Source] = {
    "networkx-docs": Source(
        "agl.graphs.sources.networkx_docs:build", "Functions of networkx: docstrings, references, sub-packages."
    ),
    "debian": Source(
        "agl.graphs.sources.debian:build",
        "Debian packages: descriptions, dependencies, sections.",
        "an apt package index",
    ),
    "cora": Source(_PYG, "Planetoid Cora: papers, citations, 7 topics.", _DOWNLOAD),
    "citeseer": Source(_PYG, "Planetoid Citeseer: papers, citations, 6 topics.", _DOWNLOAD),
    "pubmed": Source(_PYG, "Planetoid PubMed: papers, citations, 3 topics.", _DOWNLOAD),
    "wikics": Source(_PYG, "WikiCS: Wikipedia articles, links, 10 branches of computer science.", _DOWNLOAD),
    "amazon-photo": Source(_PYG, "Amazon Photo: products bought together, 8 categories.", "network and --texts FILE"),
    "amazon-computers": Source(
        _PYG, "Amazon Computers: products bought together, 10 categories.", "network and --texts FILE"
    ),
    "chameleon": Source(
        _PYG, "Wikipedia Chameleon: no text exists, structure only.", "network and --allow-synthetic-text"
    ),
    "ogbn-arxiv": Source(
        "agl.graphs.sources.ogb:build", "OGB arXiv: papers, citations, 40 subjects.", "the package ogb and network"
    ),
    "ogbn-products": Source(
        "agl.graphs.sources.ogb:build",
        "OGB products: Amazon products bought together, 47 categories.",
        "the package ogb, network and --texts FILE",
    ),
}


def open_graph(
    name_or_dir: str | Path, *, texts: str | Path | None = None, allow_synthetic_text: bool = False
) -> TextGraph:
    """The graph of a source by name or of a folder; mapped from the cache when it was opened before.

    A folder holds the project's format (`nodes.jsonl`) or PromptGFM's tables (`node_info.csv`). A folder that bears
    the name of a source is reached as `./NAME`. `texts` is a table or folder with the texts of a downloaded graph.

    Raises:
        UserError: neither a source nor a folder; a source that cannot be built here.
        TextGraphError: the data make no graph, or (`synthetic_text`) its texts are made up and that is not allowed.
    """
    if isinstance(name_or_dir, str) and name_or_dir in SOURCES:
        graph = _build(name_or_dir, None if texts is None else Path(texts), allow_synthetic_text)
    else:
        graph = _open_folder(Path(name_or_dir))
    if graph.meta.get("synthetic_text") and not allow_synthetic_text:
        raise TextGraphError(
            "synthetic_text",
            f"expected texts that somebody wrote, got texts generated from features in {name_or_dir}; "
            "use the graph for its structure with --allow-synthetic-text",
        )
    return graph


def _build(name: str, texts: Path | None, allow_synthetic_text: bool) -> TextGraph:
    if name == "chameleon" and not allow_synthetic_text:
        raise TextGraphError(
            "synthetic_text",
            "expected a graph whose texts somebody wrote, got chameleon, which has none; "
            "use it for its structure with --allow-synthetic-text",
        )
    module, _, function = SOURCES[name].entry.partition(":")
    build: Callable[[str, Path | None], TextGraph] = getattr(importlib.import_module(module), function)
    return build(name, texts)


def _open_folder(path: Path) -> TextGraph:
    if path.is_dir():
        if not (path / "nodes.jsonl").is_file() and (path / "node_info.csv").is_file():
            from agl.graphs.sources.promptgfm import read_tables

            return read_tables(path)
        from agl.graphs.sources.folder import read_folder

        return read_folder(path)
    close = difflib.get_close_matches(str(path), SOURCES, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known names are {', '.join(SOURCES)}"
    if path.is_file():
        hint = f"give its folder {path.parent}" if re.fullmatch(r"nodes\.jsonl|node_info\.csv", path.name) else hint
    raise UserError(f"expected the name of a graph or a folder that holds one, got {str(name_of(path))!r}; {hint}")


def name_of(path: Path) -> str:
    """The path as the user wrote it."""
    return str(path)
