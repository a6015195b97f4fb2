r"""Find `\boxed{...}` values in text, braces balanced."""

from __future__ import annotations

import re

from agl.json_text import JsonError, decode

_OPEN = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def boxes(text: str) -> list[str]:
    r"""Contents of the balanced boxes of `text` in order; a box inside another belongs to the outer one.

    JSON in a box is read as JSON, so a name in it may contain braces; elsewhere `\{` and `\}` do not count.
    """
    found, start = [], 0
    while (match := _OPEN.search(text, start)) is not None:
        end = _end(text, match.end())
        if end < 0:
            start = match.end()
        else:
            found.append(text[match.end() : end])
            start = end + 1
    return found


def has_open_box(text: str) -> bool:
    r"""True when `text` ends inside a `\boxed{`."""
    start = 0
    while (match := _OPEN.search(text, start)) is not None:
        end = _end(text, match.end())
        if end < 0:
            return True
        start = end + 1
    return False


def _end(text: str, start: int) -> int:
    """Offset of the brace that closes the box whose content begins at `start`, or -1."""
    for value, offset in ((start - 1, -1), (start, 0)):
        try:
            end = decode(text, value)[1] + offset
        except JsonError:
            continue
        end += len(text[end:]) - len(text[end:].lstrip())
        if text.startswith("}", end):
            return end
    return _balanced(text, start)


def _balanced(text: str, start: int) -> int:
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return match.start()
    return -1
