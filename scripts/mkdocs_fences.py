"""Hook of mkdocs.yml: its Markdown knows a fence by its language alone, ours also say how the tests treat a block."""

from __future__ import annotations

import re
from typing import Any

_INFO = re.compile(r"^(```\w+)[^\n`]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _INFO.sub(r"\1", markdown)
