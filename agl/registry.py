"""Environment names -> classes. The ground floor reaches the rooms above only through these strings."""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from agl.core import Env
from agl.errors import UserError
from agl.gym_registration import announce

ENVS: dict[str, str] = {
    "agentgl-lp": "envs.agentgl.env:AgentglLp",
    "agentgl-nc": "envs.agentgl.env:AgentglNc",
    "grit": "envs.grit.env:GritEnv",
    "reagan": "envs.reagan.env:ReaganEnv",
}
"""Registered environments: name -> "module:Class". Adding one is one line here, or a call of `register`."""

_OURS = ("envs", "rewards", "eval", "train")


def register(name: str, entry_point: str) -> None:
    """Make `entry_point` ("module:Class") known as `name`.

    Raises:
        UserError: the name is taken by another class, or is none.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise UserError(f"expected a name such as my-env, of small letters, digits, - and _, got {name!r}; rename it")
    if ENVS.get(name, entry_point) != entry_point:
        raise UserError(f"expected a free environment name, got {name!r}, which is {ENVS[name]}; choose another name")
    ENVS[name] = entry_point
    announce(name)


def env_class(name: str) -> type[Env[Any]]:
    """The class registered as `name`.

    Raises:
        UserError: unknown name, or another package hides the one the class lives in.
    """
    if name not in ENVS:
        near = difflib.get_close_matches(name, ENVS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(sorted(ENVS))}"
        raise UserError(f"expected the name of an environment, got {name!r}; {hint}")
    module, _, attribute = ENVS[name].partition(":")
    try:
        found = getattr(guarded_import(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UserError(
            f"expected the module {module} of the environment {name!r}, got none of that name; "
            "correct the registration, or put its folder on PYTHONPATH"
        ) from None
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise UserError(
            f"expected {ENVS[name]} to be an Env class, got {found!r}; correct the registration of {name!r}"
        )
    return found


def guarded_import(module: str) -> Any:
    """Import `module`; our room names are common words, so make sure that it is ours that was found."""
    room = module.partition(".")[0]
    if room in _OURS:
        home = Path(__file__).resolve().parent.parent
        file = Path(import_module(room).__file__ or "").resolve()
        found = file.parent if file.name == "__init__.py" else file
        if found != home / room:
            raise UserError(
                f"expected AGL's package {room!r} at {home / room}, got {found}, which hides it; "
                "rename that, or run from another folder"
            )
    return import_module(module)
