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
    return [text[start:end] for start, end in _spans(text) if end >= 0]


def has_open_box(text: str) -> bool:
    r"""True when `text` ends inside a `\boxed{`."""
    return any(end < 0 for _, end in _spans(text))


def _spans(text: str) -> list[tuple[int, int]]:
    """Begin and end of each box's content, the end -1 for a box that is not closed."""
    spans: list[tuple[int, int]] = []
    closing: dict[int, int] | None = None
    start = 0
    while (match := _OPEN.search(text, start)) is not None:
        end = _json_end(text, match.end())
        if end < 0:
            closing = _closing_braces(text) if closing is None else closing
            end = closing.get(match.end() - 1, -1)
        spans.append((match.end(), end))
        start = max(match.end(), end)
    return spans


def _json_end(text: str, start: int) -> int:
    """Offset of the brace behind the JSON value at `start`, or of the last brace of the object around it; else -1."""
    for value, inner in ((start - 1, 1), (start, 0)):
        try:
            end = decode(text, value)[1] - inner
        except JsonError:
            continue
        while text[end : end + 1].isspace():
            end += 1
        if text.startswith("}", end):
            return end
    return -1


def _closing_braces(text: str) -> dict[int, int]:
    """Offset of each opening brace -> offset of the brace that closes it."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing
