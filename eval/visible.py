"""Recorded text, which may be hostile, for a terminal: shown as it is, but never obeyed."""

from __future__ import annotations

import json


def visible(text: str, *, lines: bool = False) -> str:
    """`text` with everything a terminal would act upon (control, bidirectional and other format characters, halves of
    surrogate pairs) written as a Python escape. `lines` keeps line breaks and tabs."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def visible_json(text: str) -> str:
    """One line of JSON with the same characters as JSON escapes; its value stays the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
