"""Which graph of the cache a source gave last time, by the state of the files it was built from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import agl
from agl.graphs.text_graph import CACHE_VERSION, TextGraph, TextGraphError, cache_folder
from agl.json_text import dumps


def remembered(source: str, state: Iterable[object], build: Callable[[], TextGraph]) -> TextGraph:
    """The stored graph of `build()`, built only when `state` (JSON values) was not seen with `source` before."""
    key = hashlib.sha256(dumps([CACHE_VERSION, agl.__version__, source, list(state)]).encode()).hexdigest()[:32]
    note = cache_folder() / f"source-{key}"
    try:
        return TextGraph.open(cache_folder() / note.read_text(encoding="utf-8"))
    except (OSError, TextGraphError):
        graph = build().stored()
    assert graph.path is not None
    draft = note.with_name(f".{note.name}.{os.getpid()}")
    draft.write_text(graph.path.name, encoding="utf-8")
    draft.replace(note)
    return graph


def file_state(*paths: Path) -> list[list[object]]:
    """Path, size and time of change of each file that exists: what decides whether it is read again."""
    found = []
    for path in paths:
        if path.exists():
            stat = path.stat()
            found.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    return found
