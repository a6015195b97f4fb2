"""Files of GRIT and of other benchmarks: which format, which records, and one item per record.

A source is a path, or `FORMAT:PATH`. Read are JSONL, a JSON list or object of records, and CSV with a header.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from agl.errors import DataError
from agl.graphs.named import GraphError
from agl.json_text import JsonError, loads
from envs.grit import items
from envs.grit.external import grapharena, graphinstruct, graphomni, graphqa, greal, nlgraph
from envs.grit.external.item import Unfit, build
from envs.grit.items import GritTask

FORMATS: Mapping[str, ModuleType] = {
    "greal": greal,
    "nlgraph": nlgraph,
    "graphinstruct": graphinstruct,
    "grapharena": grapharena,
    "graphomni": graphomni,
    "graphqa": graphqa,
}
OWN = "grit"
LEGAL = ", ".join([OWN, *FORMATS])


def split_source(source: str) -> tuple[str | None, Path]:
    """Format (None: to be detected) and path of a source.

    Raises:
        DataError: there is no such format.
    """
    name, colon, rest = source.partition(":")
    if not colon or Path(source).exists():
        return None, Path(source)
    if name not in (OWN, *FORMATS):
        raise DataError(f"expected a format ({LEGAL}), got {name!r} in {source!r}")
    return name, Path(rest)


def load(source: str, limit: int | None = None) -> tuple[GritTask, ...]:
    """The items of a file.

    Raises:
        DataError: no such file, an unknown or ambiguous format, or a record that cannot be read, with its number.
    """
    name, path = split_source(source)
    if not path.is_file():
        raise DataError(f"expected a file of items, got {str(path)!r}, which is none")
    if name is None:
        first = next(_records(path), None)
        name = OWN if first is None else detect(first[1], first[0])
    if name == OWN:
        return tuple(items.read(path, limit))
    return tuple(_item(name, place, number, fields) for number, (place, fields) in _numbered(path, limit))


def detect(fields: Mapping[str, Any], place: str = "the record") -> str:
    """The only format that a record can be in.

    Raises:
        DataError: none fits, or several do.
    """
    if {"graph_id", "gold", "scheme"} & fields.keys():
        return OWN
    fitting = [name for name, format_ in FORMATS.items() if format_.matches(fields)]
    if len(fitting) == 1:
        return fitting[0]
    said = f"fits several formats ({', '.join(fitting)})" if fitting else "fits no known format"
    raise DataError(
        f"{place} {said}; name one with --format ({LEGAL}); its fields are {', '.join(sorted(fields))[:200]}"
    )


def _numbered(path: Path, limit: int | None) -> Iterator[tuple[int, tuple[str, Mapping[str, Any]]]]:
    return enumerate(islice(_records(path), limit))


def _item(name: str, place: str, number: int, fields: Mapping[str, Any]) -> GritTask:
    try:
        parsed, checker = FORMATS[name].read(fields, f"{name}-{number:05d}")
        return build(parsed, checker)
    except (Unfit, GraphError) as error:
        raise DataError(f"{place}, format {name}: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DataError(f"{place}, format {name}: {first['msg'].removeprefix('Value error, ')}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # Fields of a foreign file may hold anything; the adapters read them without checking each first.
        raise DataError(
            f"{place}, format {name}: a field has an unexpected shape ({type(error).__name__}: {error})"
        ) from None


def _records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Place and fields of each record."""
    try:
        if path.suffix == ".csv":
            csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
            with path.open(encoding="utf-8-sig", newline="") as file:
                for number, row in enumerate(csv.DictReader(file), 2):
                    yield f"{path}, row {number}", {key: value for key, value in row.items() if key is not None}
            return
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the items in {path}: {error}") from None
    if (whole := _whole(text)) is not None:
        for number, (key, fields) in enumerate(whole, 1):
            yield _record(f"{path}, record {number}", fields, key)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield _record(place, loads(line), None)
            except JsonError as error:
                raise DataError(f"{place}: expected one JSON object, got text that is none: {error}") from None


def _whole(text: str) -> list[tuple[str | None, Any]] | None:
    """The records of a file that is one JSON list, or one object of objects; None when it is not."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value = loads(text)
    except JsonError:
        return None
    if isinstance(value, list):
        return [(None, fields) for fields in value]
    if isinstance(value, dict) and value and all(isinstance(fields, dict) for fields in value.values()):
        return list(value.items())
    return None


def _record(place: str, fields: Any, key: str | None) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(fields, dict):
        raise DataError(f"{place}: expected one JSON object, got {json.dumps(fields)[:60]}")
    return place, fields if key is None or "id" in fields else {"id": key, **fields}
