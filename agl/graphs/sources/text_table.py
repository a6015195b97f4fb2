"""Texts that live apart from their graph, joined by key; never by position, for tables differ in length and order."""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from agl.errors import UserError
from agl.graphs.naming import NamingError, node_id
from agl.graphs.text_graph import TextGraphError
from agl.json_text import JsonError, loads

_KEYS = ("id", "node_id", "node_idx", "paper_id", "paper id", "asin", "pid")
_TEXTS = ("text", "raw_text", "title", "abstract", "abs", "content", "description")


def join(nodes: Iterable[object], rows: Iterable[Mapping[str, Any]], key: str, value: str) -> list[Any]:
    """`value` of the row whose `key` is the node, for each node; further rows are ignored.

    Raises:
        TextGraphError: `duplicate_key` when two rows have one key, `missing_key` when a node has no row, `bad_id`.
    """
    found: dict[str, Any] = {}
    for number, row in enumerate(rows, start=1):
        name = _id(row.get(key), f"row {number}")
        if name in found:
            raise TextGraphError("duplicate_key", f"expected one row for each {key}, got {name!r} twice (row {number})")
        found[name] = row.get(value)
    names = [_id(node, "a node") for node in nodes]
    missing = [name for name in names if name not in found]
    if missing:
        raise TextGraphError(
            "missing_key",
            f"expected a row for each of {len(names)} nodes, got none for {len(missing)}, {missing[0]!r} first",
        )
    return [found[name] for name in names]


def read_texts(path: Path, ids: Sequence[str], columns: tuple[str, ...] = ()) -> list[str]:
    """One text per id out of a table (.csv, .tsv, .jsonl, also .gz); title and abstract are put together.

    The key is the column `id`, `node_id`, `paper_id` or `asin`; `columns` names the columns of a table without header.

    Raises:
        UserError: no such file, or another format.
        TextGraphError: as `join`; `no_column` when key or text cannot be told.
    """
    if not path.is_file():
        raise UserError(f"expected a table of texts (.csv, .tsv, .jsonl), got {path}, which is no file")
    rows = list(read_rows(path, columns))
    header = rows[0] if rows else {}
    names = {str(name).strip().lower(): name for name in header}
    key = next((names[name] for name in _KEYS if name in names), None)
    parts = [names[name] for name in _TEXTS if name in names]
    if key is None or not parts:
        raise TextGraphError(
            "no_column",
            f"expected {path} to have a column for the id ({', '.join(_KEYS)}) and one for the text "
            f"({', '.join(_TEXTS)}), got {', '.join(map(str, header)) or 'no row'}",
        )
    if parts[0] in (names.get("text"), names.get("raw_text")):
        parts = parts[:1]
    joined = (
        {"key": row[key], "text": text_of(row.get(part) for part in parts)} for row in rows if row[key] is not None
    )
    return join(ids, joined, "key", "text")


def text_of(parts: Iterable[object]) -> str:
    """Title, abstract and so on as one text: parts that are not empty, one a line."""
    return "\n".join(part for part in (str(part).strip() for part in parts if part is not None) if part)


def read_rows(path: Path, columns: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a .csv, .tsv or .jsonl table by column.

    Raises:
        UserError: another format.
        TextGraphError: `bad_line`.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in ("csv", "tsv", "jsonl"):
        raise UserError(f"expected a table ending in .csv, .tsv or .jsonl, got {path}")
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        try:
            if kind == "jsonl":
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        row = loads(line)
                        if not isinstance(row, dict):
                            raise TextGraphError("bad_line", f"{path}, line {number}: expected one JSON object")
                        yield row
                return
            csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
            table = csv.reader(file) if kind == "csv" else csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            header = list(columns) or next(table, [])
            for values in table:
                if values:
                    yield dict(zip_longest(header, values[: len(header)]))
        except (JsonError, csv.Error, UnicodeDecodeError) as error:
            raise TextGraphError("bad_line", f"{path}: expected a readable table, {error}") from None


def _id(value: object, where: str) -> str:
    try:
        return node_id(value)
    except NamingError as error:
        raise TextGraphError("bad_id", f"{where}: {error}") from None
