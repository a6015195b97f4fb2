"""Small text-attributed graphs for tests, and a cache of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write(folder: Path, nodes: Iterable[Any], edges: Iterable[str] = (), meta: dict[str, Any] | None = None) -> Path:
    """A folder in the project's format; a node or edge given as text is written as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [node if isinstance(node, str) else json.dumps(node, ensure_ascii=False) for node in nodes]
    (folder / "nodes.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "edges.tsv").write_text("".join(f"{line}\n" for line in edges), encoding="utf-8")
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder


def node(name: Any, text: str = "words", **fields: Any) -> dict[str, Any]:
    return {"id": name, "text": text, **fields}
