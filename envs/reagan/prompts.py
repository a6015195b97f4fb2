"""What a node is shown: its memory and neighbourhood before a plan, its memory before the prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from agl.json_text import dumps


def instructions(*, planning: bool, layers: int, anonymise: bool) -> str:
    """The role, the same for all nodes of a run."""
    return _render("instructions.jinja", planning=planning, layers=layers, anonymise=anonymise)


def planning(**seen: Any) -> str:
    """The prompt of a planning turn; `seen` are the variables of `planning.jinja` and what it includes."""
    return _render("planning.jinja", **seen)


def prediction(**seen: Any) -> str:
    """The prompt of the prediction; `seen` are the variables of `prediction.jinja` and what it includes."""
    return _render("prediction.jinja", **seen)


def first_sentence(text: str) -> str:
    """Up to the first full stop, question or exclamation mark that a blank follows; not one of the first 30 characters,
    which mostly ends an abbreviation."""
    found = re.match(r".{30,}?[.!?](?=\s)", text)
    return found[0] if found else text


def shown_of(shown: Sequence[str], total: int) -> str:
    return "" if len(shown) == total else f" ({len(shown)} of {total} shown)"


def _render(template: str, **seen: Any) -> str:
    return _templates().get_template(template).render(**seen).strip()


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    made = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined)
    filters: Mapping[str, Any] = {
        "json": lambda value: dumps(value).replace('","', '", "'),
        "first_sentence": first_sentence,
    }
    made.filters.update(filters)
    made.globals["shown_of"] = shown_of
    return made
