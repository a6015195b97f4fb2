"""Policies by name: what `--policy` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agl.config import checked_options
from agl.errors import UserError
from agl.policies.policy import Policy, Sampling
from agl.registry import guarded_import

SPECS = (
    "oracle",
    "random",
    "silent",
    "replay:FILE",
    "smollm2",
    "hf:NAME|DIR",
    "vllm:NAME|DIR",
    "openai:MODEL@http://HOST:PORT/v1",
    "magts(POLICY)",
)

TEAMS = {"magts": "envs.grit.magts:team"}
"""Teams of agents over one policy: name -> "module:function" from the policy to the team."""


def inner_spec(spec: str) -> tuple[str, str] | None:
    """Team and policy of a spec such as `magts(smollm2)`; None for any other spec."""
    team, bracket, inner = spec.removesuffix(")").partition("(")
    return (team, inner) if team in TEAMS and bracket and spec.endswith(")") else None


def build_policy(spec: str, sampling: Sampling, players: Sequence[str] = (), /, **options: Any) -> Policy:
    """The policy that `spec` names, with `options` of its class (such as `max_batch` of `hf:`).

    Args:
        players: what the env plays itself, see `Env.players`.

    Raises:
        UserError: an unknown policy or option, or a model that cannot be loaded.
    """
    if (nested := inner_spec(spec)) is not None:
        module, _, function = TEAMS[nested[0]].partition(":")
        team: Policy = getattr(guarded_import(module), function)(build_policy(nested[1], sampling, players, **options))
        return team
    if spec in players:
        from agl.policies.scripted import Player

        return _call(Player, spec, options, spec)
    kind, _, rest = spec.partition(":")
    if kind in ("oracle", "random", "silent") and not rest:
        from agl.policies.scripted import Oracle, Random, Silent

        scripts: dict[str, Callable[[], Policy]] = {"oracle": Oracle, "random": Random, "silent": Silent}
        return _call(scripts[kind], spec, options)
    if kind == "replay" and rest:
        from agl.policies.scripted import Replay

        return _call(Replay, spec, options, Path(rest))
    if spec == "smollm2" or (kind == "hf" and rest):
        from agl.policies.hf import HfPolicy

        return _call(HfPolicy, spec, options, rest or spec, sampling)
    if kind == "vllm" and rest:
        from agl.policies.vllm_engine import VllmPolicy

        return _call(VllmPolicy, spec, options, rest, sampling)
    if kind == "openai" and rest:
        from agl.policies.openai_api import OpenAIPolicy

        model, at, url = rest.rpartition("@http")
        if not (model and at and url):
            raise UserError(f"expected openai:MODEL@http://HOST:PORT/v1, got {spec!r}; name the server as well")
        return _call(OpenAIPolicy, spec, options, model, f"http{url}", sampling)
    raise UserError(f"there is no policy {spec!r}; expected one of: {', '.join((*players, *SPECS))}")


def _call(make: Callable[..., Policy], spec: str, options: dict[str, Any], *arguments: Any) -> Policy:
    return make(*arguments, **checked_options(make, options, f"the policy {spec!r}"))
