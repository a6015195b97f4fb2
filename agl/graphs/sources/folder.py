"""The folder format of a text-attributed graph: `nodes.jsonl`, `edges.tsv`, `meta.json`, `splits.json`.

* `nodes.jsonl`: one object a line with `id` (string or integer), `text` (may be empty), `label` (string, integer or
  null; absent is null, and -1 is no label), `split` (train, val, test or null). Other fields are kept as extras.
* `edges.tsv`: source, tab, target, no header; more columns are ignored. Self-loops are dropped, repeats kept once.
* `meta.json` (optional): `name`, `directed` (absent: true, so that nothing is lost; the undirected view is always
  there), `class_names` (absent: the labels that occur, in natural order), licence, counts, checksum.
* `splits.json` (optional): further splits, `{name: {"train": [ids], "val": [ids], "test": [ids]}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agl.errors import UserError
from agl.graphs.naming import NamingError, node_id
from agl.graphs.sources.remembered import file_state, remembered
from agl.graphs.text_graph import SPLITS, Codes, TextGraph, TextGraphError, natural_order
from agl.json_text import JsonError, dumps, loads

NODES, EDGES, META, SPLIT_FILE = "nodes.jsonl", "edges.tsv", "meta.json", "splits.json"
_SPLIT_CODES: dict[str | None, int] = {
    "train": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "test": 2,
    "none": -1,
    None: -1,
}
_KNOWN = ("id", "text", "label", "split")


def read_folder(path: str | Path) -> TextGraph:
    """The graph in this folder, mapped from the cache; the files are read again only after they changed.

    Raises:
        TextGraphError: a file is missing or a line cannot be used; the sentence names file and line.
    """
    folder = Path(path)
    for name in (NODES, EDGES):
        if not (folder / name).is_file():
            raise TextGraphError("no_file", f"expected {NODES} and {EDGES} in the folder {folder}, found no {name}")
    files = [folder / name for name in (NODES, EDGES, META, SPLIT_FILE)]
    return remembered("folder", file_state(*files), lambda: _read(folder, _raise))


def problems(path: str | Path) -> list[TextGraphError]:
    """Everything that `read_folder` would refuse, not only the first line of it; no line hides the next."""
    found: list[TextGraphError] = []
    try:
        _read(Path(path), found.append)
    except TextGraphError as error:
        if error not in found:
            found.append(error)
    return found


def write_folder(graph: TextGraph, path: str | Path) -> None:
    """Write the folder format; `read_folder` gives back a graph with the same `content_hash`.

    Raises:
        UserError: the folder exists and holds something.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"expected an empty or new folder, got {folder}, which holds something; choose another one")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NODES).open("w", encoding="utf-8", newline="\n") as file:
        for row, name in enumerate(graph.ids):
            node: dict[str, Any] = {"id": name, "text": graph.text(row), "label": graph.label_name(row)}
            if (code := int(graph.split[row])) >= 0:
                node["split"] = SPLITS[code]
            extra = {key: value for key, value in graph.extra(row).items() if key not in _KNOWN}
            file.write(dumps({**node, **extra}, sort_keys=False) + "\n")
    pairs = graph.arcs() if graph.directed else graph.edges()
    with (folder / EDGES).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{graph.ids[source]}\t{graph.ids[target]}\n" for source, target in pairs.tolist())
    counts = {"nodes": graph.n, "undirected_edges": graph.num_edges}
    card = {
        **graph.meta,
        "name": graph.name,
        "directed": graph.directed,
        "class_names": list(graph.class_names),
        "counts": {**graph.meta.get("counts", {}), **counts},
        "checksum": graph.content_hash,
    }
    (folder / META).write_text(json.dumps(card, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if graph.splits:
        named = {
            name: {
                split: [graph.ids[row] for row in np.flatnonzero(codes == code)] for code, split in enumerate(SPLITS)
            }
            for name, codes in graph.splits.items()
        }
        (folder / SPLIT_FILE).write_text(dumps(named, sort_keys=False) + "\n", encoding="utf-8")


Refuse = Callable[[TextGraphError], None]


def _raise(error: TextGraphError) -> None:
    raise error


def _read(folder: Path, refuse: Refuse) -> TextGraph:
    meta = stated(folder)
    directed = meta.get("directed", True)
    if not isinstance(directed, bool):
        raise TextGraphError("bad_meta", f"{folder / META}: expected true or false as directed, got {dumps(directed)}")
    nodes = _Nodes(folder / NODES, refuse)
    declared = meta.get("class_names")
    if declared is not None and not (isinstance(declared, list) and all(isinstance(name, str) for name in declared)):
        raise TextGraphError("bad_meta", f"{folder / META}: expected a list of strings as class_names")
    class_names = natural_order(name for name in nodes.labels if name is not None) if declared is None else declared
    place = {name: code for code, name in enumerate(class_names)}
    for row, name in enumerate(nodes.labels):
        if name is not None and name not in place:
            where = f"{folder / NODES}, line {nodes.lines[row]}"
            refuse(
                TextGraphError(
                    "bad_label", f"{where}: expected one of the class_names of {META} as label, got {name!r}"
                )
            )
    edges, facts = _edges(folder / EDGES, nodes.index, refuse)
    facts.update(
        {key: value for key, value in meta.items() if key not in ("checksum", "counts", "class_names", "directed")}
    )
    return TextGraph.build(
        list(nodes.index),
        nodes.texts,
        edges,
        labels=[-1 if name is None else place.get(name, -1) for name in nodes.labels],
        class_names=class_names,
        split=nodes.splits,
        splits=_named_splits(folder / SPLIT_FILE, nodes.index),
        directed=directed,
        extras=nodes.extras,
        meta={**facts, "name": str(meta.get("name") or folder.resolve().name)},
    )


class _Nodes:
    """The columns of `nodes.jsonl`."""

    def __init__(self, path: Path, refuse: Refuse) -> None:
        self.index: dict[str, int] = {}
        self.lines: list[int] = []
        self.texts: list[str] = []
        self.labels: list[str | None] = []
        self.splits: list[int] = []
        self.extras: list[Mapping[str, Any]] = []
        for number, line in _lines(path):
            try:
                self._add(line, number, f"{path}, line {number}")
            except TextGraphError as error:
                refuse(error)
        if not self.index:
            raise TextGraphError("no_nodes", f"{path}: expected at least one node, got none")

    def _add(self, line: str, number: int, where: str) -> None:
        try:
            node = loads(line)
        except JsonError as error:
            raise TextGraphError("bad_line", f"{where}: expected one JSON object, {error}") from None
        if not isinstance(node, dict):
            raise TextGraphError("bad_line", f"{where}: expected one JSON object, got {type(node).__name__}")
        if "id" not in node:
            raise TextGraphError("bad_id", f"{where}: expected the field id, got {', '.join(node) or 'no field'}")
        try:
            name = node_id(node["id"])
        except NamingError as error:
            raise TextGraphError("bad_id", f"{where}: {error}") from None
        if any(letter in name for letter in "\t\n\r"):
            raise TextGraphError("bad_id", f"{where}: expected an id without tab or line break, got {name!r}")
        if name in self.index:
            first = self.lines[self.index[name]]
            raise TextGraphError(
                "duplicate_id", f"{where}: expected ids that differ, got {name!r} again (line {first})"
            )
        text = node.get("text")
        if not isinstance(text, str):
            got = f"a text of type {type(text).__name__}" if "text" in node else "no field text"
            raise TextGraphError("bad_text", f"{where}: expected a string as text (it may be empty), got {got}")
        split = node.get("split")
        if not isinstance(split, str | None) or split not in _SPLIT_CODES:
            raise TextGraphError("bad_split", f"{where}: expected train, val, test or null as split, got {split!r}")
        label = _label(node.get("label"), where)
        self.index[name] = len(self.lines)
        self.lines.append(number)
        self.texts.append(text)
        self.labels.append(label)
        self.splits.append(_SPLIT_CODES[split])
        self.extras.append({key: value for key, value in node.items() if key not in _KNOWN})


def _label(value: Any, where: str) -> str | None:
    if value is None or (value == -1 and isinstance(value, int)):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise TextGraphError(
            "bad_label", f"{where}: expected a string, an integer or null as label, got {dumps(value)}"
        )
    return str(value)


def _edges(path: Path, index: Mapping[str, int], refuse: Refuse) -> tuple[Any, dict[str, Any]]:
    found: list[tuple[int, int]] = []
    columns = 2
    for number, line in _lines(path):
        ends = line.split("\t")
        if len(ends) < 2:
            refuse(
                TextGraphError("bad_line", f"{path}, line {number}: expected source, tab, target, got {line[:80]!r}")
            )
            continue
        columns = max(columns, len(ends))
        rows = [index.get(end.strip(), -1) for end in ends[:2]]
        if -1 in rows:
            stranger = ends[rows.index(-1)].strip()
            refuse(
                TextGraphError(
                    "unknown_endpoint", f"{path}, line {number}: expected the id of a node of {NODES}, got {stranger!r}"
                )
            )
            continue
        found.append((rows[0], rows[1]))
    return np.array(found, dtype=np.int64).reshape(-1, 2), {} if columns == 2 else {"ignored_edge_columns": columns - 2}


def _named_splits(path: Path, index: Mapping[str, int]) -> dict[str, Codes]:
    splits: dict[str, Codes] = {}
    for name, parts in (_object(path) if path.is_file() else {}).items():
        codes = np.full(len(index), -1, dtype=np.int8)
        if not isinstance(parts, dict) or not parts.keys() <= set(SPLITS):
            raise TextGraphError("bad_split", f"{path}: expected lists of ids under train, val and test in {name!r}")
        for code, split in enumerate(SPLITS):
            for value in parts.get(split, ()):
                row = index.get(str(value))
                if row is None or codes[row] >= 0:
                    what = "which is no node" if row is None else "which stands in two parts"
                    raise TextGraphError(
                        "bad_split", f"{path}: expected each id once in split {name!r}, got {value!r}, {what}"
                    )
                codes[row] = code
        splits[name] = codes
    return splits


def _object(path: Path) -> dict[str, Any]:
    try:
        value = loads(path.read_text(encoding="utf-8-sig"))
    except (JsonError, UnicodeDecodeError) as error:
        raise TextGraphError("bad_meta", f"{path}: expected one JSON object, {error}") from None
    if not isinstance(value, dict):
        raise TextGraphError("bad_meta", f"{path}: expected one JSON object, got {type(value).__name__}")
    return value


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank; only LF and CRLF end a line, since texts may hold other separators."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise TextGraphError("bad_line", f"{path}, line {number}: expected UTF-8, {error.reason}") from None
            if line.strip():
                yield number, line


def stated(folder: Path) -> dict[str, Any]:
    """What `meta.json` says, counts and checksum included; empty without the file.

    Raises:
        TextGraphError: `bad_meta`.
    """
    return _object(folder / META) if (folder / META).is_file() else {}
