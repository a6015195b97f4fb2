"""Folders as PromptGFM publishes them: `node_info.csv` (id, title, abstract), `data.csv` (id, label), `graph.csv`.

Columns count by position, as in that project. `label_info.csv` (label, written-out name) is used where it exists. Its
Citeseer numbers texts from 1 and labels and edges from 0; such a shift is refused, with the repair in the message.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.sources.text_table import join, read_rows, text_of
from agl.graphs.text_graph import TextGraph, TextGraphError, edge_rows, natural_order

TEXTS, LABELS, EDGES, CLASSES = "node_info.csv", "data.csv", "graph.csv", "label_info.csv"


def read_tables(folder: Path, shift: int = 0) -> TextGraph:
    """The graph of such a folder; node i of labels and edges gets the text of row i + `shift` of `node_info.csv`.

    Raises:
        TextGraphError: a table is missing; `misaligned` when the texts do not belong to the ids; `missing_key` when a
            node has no text.
    """
    for name in (TEXTS, LABELS, EDGES):
        if not (folder / name).is_file():
            raise TextGraphError(
                "no_file", f"expected {TEXTS}, {LABELS} and {EDGES} in the folder {folder}, found no {name}"
            )
    files = [folder / name for name in (TEXTS, LABELS, EDGES, CLASSES)]
    return remembered(f"promptgfm {shift}", file_state(*files), lambda: _read(folder, shift))


def _read(folder: Path, shift: int) -> TextGraph:
    from agl.graphs.data_check import best_shift, join_alignments

    labels = list(_columns(folder / LABELS))
    ids = [row[0] for row in labels]
    table = [{"id": row[0], "text": text_of(row[1:])} for row in _columns(folder / TEXTS)]
    full = {row[0]: row[1] for row in _columns(folder / CLASSES)} if (folder / CLASSES).is_file() else {}
    names = [full.get(row[1], row[1]) for row in labels]
    class_names = natural_order(names)
    edges = edge_rows(ids, ((row[0], row[1]) for row in _columns(folder / EDGES)))
    codes = [class_names.index(name) for name in names]
    meta = {"name": folder.resolve().name, "source": f"PromptGFM tables in {folder.name}", "text_shift": shift}

    def graph(texts: list[str]) -> TextGraph:
        return TextGraph.build(ids, texts, edges, labels=codes, class_names=class_names, directed=True, meta=meta)

    if shift == 0 and _whole(ids) and _whole(row["id"] for row in table):
        probes = join_alignments(graph([""] * len(ids)), {int(row["id"]): row["text"] for row in table})
        best = best_shift(probes)
        if best:
            raise TextGraphError(
                "misaligned",
                f"expected texts that belong to the ids, got linked pairs of similarity {probes[0].linked:.3f} "
                f"in {folder} (texts shifted by {best:+d}: {probes[best].linked:.3f}); build it with --shift {best}",
            )
    if shift:
        try:
            table = [{**row, "id": str(int(row["id"]) - shift)} for row in table]
        except ValueError:
            raise TextGraphError("bad_id", f"expected whole numbers as ids in {folder / TEXTS} to shift them") from None
    return with_standard_splits(graph(join(ids, table, "id", "text")))


def _columns(path: Path) -> Iterable[list[str]]:
    rows = [[value.strip() if isinstance(value, str) else "" for value in row.values()] for row in read_rows(path)]
    for number, row in enumerate(rows, start=2):
        if len(row) < 2 or not row[0]:
            raise TextGraphError("bad_line", f"{path}, row {number}: expected at least two columns, got {row}")
    return rows


def _whole(ids: Iterable[str]) -> bool:
    return all(name.lstrip("-").isdigit() for name in ids)
