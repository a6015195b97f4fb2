"""Where the leading think block of a generated text ends."""

from __future__ import annotations

import re

UNFINISHED_THINK = "the <think> block was not closed; close it before acting"
_MARK = re.compile(r"<think>|</think>")


def after_thinking(text: str, *, may_begin_inside: bool = True) -> int | None:
    """Offset just behind the leading think block of `text`, 0 when there is none, None when it was not closed.

    `may_begin_inside`: the prompt may have opened the block, so a leading `</think>` without its opening tag ends it.
    """
    first = _MARK.search(text)
    if first is None:
        return 0
    opens = first.group() == "<think>"
    if text[: first.start()].strip() if opens else not may_begin_inside:
        return 0
    end = text.find("</think>")
    return None if end < 0 else end + len("</think>")
