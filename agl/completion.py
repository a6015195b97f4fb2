"""What the shell completes in an `agl` command: names of environments and policies. Imports no model library."""

from __future__ import annotations

import typer

from agl.errors import AglError
from agl.policies.build import SPECS
from agl.registry import ENVS, env_class


def env_names(incomplete: str) -> list[str]:
    """Environments that begin with `incomplete`."""
    return [name for name in sorted(ENVS) if name.startswith(incomplete)]


def policy_names(context: typer.Context, incomplete: str) -> list[str]:
    """Policies that begin with `incomplete`, the players of the environment on the line among them.

    Of a form such as `hf:NAME|DIR` the part to begin with is offered.
    """
    forms = [form.partition(":")[0] + ":" * (":" in form) for form in SPECS if "(" not in form]
    # The parser of a line that is not finished leaves its positional words aside.
    words = [context.params.get("env"), *context.args]
    env = next((word for word in words if word in ENVS), None)
    try:
        players = env_class(env).players if env is not None else ()
    except (AglError, ImportError):
        players = ()
    return [name for name in (*players, *forms) if name.startswith(incomplete)]
