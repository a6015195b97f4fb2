"""Make every registered env known to Gymnasium without importing Gymnasium.

`announce_all` runs when `agl` is imported: at once when Gymnasium is loaded already, else right after it loads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def gym_id(name: str) -> str:
    """The Gymnasium id of the env registered as `name`: `grit` is `agl/Grit-v0`, `agentgl-nc` is `agl/AgentglNc-v0`."""
    return f"agl/{''.join(part.capitalize() for part in re.split('[-_]', name))}-v0"


def announce(name: str) -> None:
    """Register the env `name` with Gymnasium if that is loaded; else `announce_all` does it later."""
    gymnasium: Any = sys.modules.get("gymnasium")
    if gymnasium is not None and hasattr(gymnasium, "register") and gym_id(name) not in gymnasium.registry:
        gymnasium.register(id=gym_id(name), entry_point="agl.gym_env:TextEnv", kwargs={"name": name})


def announce_all() -> None:
    """Register all envs with Gymnasium, now or as soon as it is imported."""
    if "gymnasium" in sys.modules:
        _announce_known()
    elif not any(isinstance(finder, _Waiter) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiter())


def _announce_known() -> None:
    from agl.registry import ENVS

    for name in ENVS:
        announce(name)


class _Waiter:
    """Import hook that lets Gymnasium load as usual, then registers, and goes away."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_announce(module: ModuleType) -> None:
            load(module)
            _announce_known()

        spec.loader.exec_module = load_and_announce  # type: ignore[method-assign]
        return spec
