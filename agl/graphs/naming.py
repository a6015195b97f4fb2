"""Names of nodes: folding, looking a mention up, natural order, renaming.

The law for mentions: exact spelling first, then a unique folded match; anything else is an error, never a guess.
Homoglyphs (Latin a, Cyrillic а) are different letters and stay apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agl.graphs.named import NamedGraph

NamingCode = Literal["unknown_name", "ambiguous_name", "not_bijective", "bad_id"]


class NamingError(ValueError):
    """A name that cannot be used or found; `code` names the kind, the message is for the model."""

    def __init__(self, code: NamingCode, message: str) -> None:
        super().__init__(message)
        self.code: NamingCode = code


_APOSTROPHES = dict.fromkeys(map(ord, "`´‘’‚‛′ʹʻʼʽˈˊˋ՚＇｀"), "'")
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200e\u200f\u2060\ufeff"), None)
_TRANSLATE: dict[int, str | None] = {**_APOSTROPHES, **_INVISIBLE}


def fold(name: str) -> str:
    """The form in which names are compared: NFKC, typographic apostrophes as `'`, blanks squeezed, case folded.

    Zero-width marks vanish. Idempotent.
    """
    text = unicodedata.normalize("NFKC", name.translate(_TRANSLATE)).casefold()
    return " ".join(unicodedata.normalize("NFKC", text).translate(_TRANSLATE).split())


def node_id(value: object) -> str:
    """A node id at the border: strings (outer blanks dropped) and integers; `1`, `"1"` and `" 1 "` are one node.

    Raises:
        NamingError: `bad_id` for anything else (`1`, `True` and `1.0` would be one dictionary key), for a blank name
            and for text that is not Unicode.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**18 else ""
    if not isinstance(value, str):
        raise NamingError("bad_id", f"a node name is a string or an integer, got {_shown(value)}")
    name = value.strip()
    if not name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise NamingError("bad_id", f"a node name is a string that is not blank, got {_shown(value)}")
    return name


def _shown(value: object) -> str:
    return repr(value[:40]) if isinstance(value, str) else type(value).__name__


def natural_key(name: str) -> tuple[tuple[tuple[str, int, str], ...], str]:
    """Sort key under which `Node 2` stands before `Node 10`; total: only equal names have equal keys."""
    parts = re.split(r"([0-9]+)", name)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    chunks = [(text, len(digits), digits) for text, digits in zip(parts[::2], [*numbers, ""], strict=True)]
    return tuple(chunks), name


def collisions(names: Iterable[str]) -> list[list[str]]:
    """Groups of different spellings that fold to one name, in order of first appearance."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(fold(name), {})[name] = None
    return [list(group) for group in groups.values() if len(group) > 1]


class NameTable:
    """Node ids `0 .. len(names)-1` by name and alias.

    Raises:
        ValueError: an alias points at no name.
    """

    def __init__(self, names: Sequence[str], aliases: Mapping[str, int] | None = None) -> None:
        self.names = tuple(names)
        self.aliases = dict(aliases or {})
        self._exact: dict[str, set[int]] = {}
        for spelling, index in [*((name, i) for i, name in enumerate(self.names)), *self.aliases.items()]:
            if not 0 <= index < len(self.names):
                raise ValueError(f"the alias {spelling!r} points at node {index}; there are {len(self.names)} nodes")
            self._exact.setdefault(spelling, set()).add(index)

    @cached_property
    def _folded(self) -> dict[str, set[int]]:
        table: dict[str, set[int]] = {}
        for spelling, found in self._exact.items():
            table.setdefault(fold(spelling), set()).update(found)
        return table

    def resolve(self, mention: str) -> int:
        """The id of the node that `mention` names.

        Raises:
            NamingError: `unknown_name`, or `ambiguous_name` when several nodes match equally well.
        """
        found = self._exact.get(mention) or self._folded.get(fold(mention))
        if not found:
            raise NamingError("unknown_name", f"no node is named {mention[:80]!r}")
        if len(found) > 1:
            legal = ", ".join(repr(self.names[index]) for index in sorted(found)[:5])
            raise NamingError("ambiguous_name", f"{mention[:80]!r} may be any of {legal}; use the exact spelling")
        (index,) = found
        return index

    def name(self, mention: str) -> str:
        """The declared spelling of `mention`; raises as `resolve`."""
        return self.names[self.resolve(mention)]

    def __len__(self) -> int:
        return len(self.names)


def bijection(nodes: Sequence[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """`mapping` completed to all `nodes` (those it leaves out keep their name) and checked to be one-to-one.

    Raises:
        NamingError: `unknown_name` for a key that is no node, `not_bijective` when two nodes would get one name.
    """
    full = {node: node_id(mapping.get(node, node)) for node in nodes}
    if stray := sorted(mapping.keys() - full.keys(), key=natural_key):
        raise NamingError("unknown_name", f"the renaming mentions {stray[0]!r}, which is no node")
    taken: dict[str, str] = {}
    for old, new in full.items():
        if new in taken:
            raise NamingError("not_bijective", f"{taken[new]!r} and {old!r} would both be renamed to {new!r}")
        taken[new] = old
    return full


def relabel(graph: NamedGraph, mapping: Mapping[str, str]) -> NamedGraph:
    """`graph` with all names replaced at once (a swap stays a swap); order, weights and flags stay.

    Raises:
        NamingError: as `bijection`.
    """
    full = bijection(graph.nodes, mapping)
    edges = tuple((full[u], full[v], weight) for u, v, weight in graph.edges)
    return replace(graph, nodes=tuple(full.values()), edges=edges)
