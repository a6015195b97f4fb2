"""How typed actions are written as text: the papers' protocols, and `tools` (native function calling)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from agl.core import Env
from agl.dialects.dialect import Dialect
from agl.errors import UserError

_DIALECTS = {
    "json_plan": "agl.dialects.json_plan:JsonPlan",
    "queries": "agl.dialects.queries:Queries",
    "tags": "agl.dialects.tags:Tags",
    "tools": "agl.dialects.tools:Tools",
}


def dialect_for(env: Env[Any] | type[Env[Any]], name: str | None = None) -> Dialect:
    """The dialect `name` over the actions of `env` (of an instance: its legal ones); None takes the one its paper used.

    Raises:
        UserError: no such dialect.
    """
    chosen = name or env.dialect
    if chosen not in _DIALECTS:
        raise UserError(f"expected a dialect out of {', '.join(sorted(_DIALECTS))}; got {chosen!r}; choose one of them")
    module, _, cls = _DIALECTS[chosen].partition(":")
    dialect: type[Dialect] = getattr(import_module(module), cls)
    actions = env.legal_actions() if isinstance(env, Env) and not dialect.fresh else env.actions
    built = dialect(actions)
    built.thinking = env.thinking
    return built


__all__ = ["Dialect", "dialect_for"]
