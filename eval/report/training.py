"""Figures of a training: what the trainer logged, and what the kept episodes say about the groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eval.report.charts import Figure, Value, lines
from eval.report.records import Records, Row
from eval.report.views import EnvView

_LOGGED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("reward", "Reward and score", ("reward", "score", "reward_std")),
    ("zero-variance", "Share of groups without variance", (
        "groups/zero_variance_reward", "groups/zero_variance_score", "groups/only_shaping_varies")),
    ("entropy", "Entropy of the sampled tokens", ("entropy",)),
    ("stops", "Share of episodes by outcome", ("outcome/ok", "outcome/policy_failure", "outcome/infra_failure")),
    ("turns", "Turns and calls per episode", (
        "episode/turns", "episode/tool_calls", "episode/tool_errors", "episode/malformed")),
    ("tokens", "Sampled and injected tokens per episode", ("episode/tokens_sampled", "episode/tokens_injected")),
    ("loss", "Loss", ("loss",)),
    ("gradient", "Gradient norm", ("grad_norm",)),
    ("kl", "KL divergence from the reference", ("kl",)),
    ("gap", "Log-probability gap of sampler and trainer", ("sampling/gap_mean", "sampling/gap_max")),
)  # fmt: skip
_COUNTED = ("rounds", "tool_calls", "tool_errors", "malformed")
_MOST_SERIES = 8


def figures(records: Records, view: EnvView) -> list[Figure]:
    """Over optimiser steps. Without a checkpoint there is no log, and only the figures from episodes remain."""
    history = records.history
    found = [
        _over_steps(f"training-{name}", title, _curves(history, keys))
        for name, title, keys in _LOGGED
        if _curves(history, keys)
    ]
    parts = sorted({name for entry in history for name in entry if name.startswith("parts/")})
    shares = [name for name in parts if name.removeprefix("parts/") not in _COUNTED]
    for start in range(0, len(shares), _MOST_SERIES):
        curves = _curves(history, shares[start : start + _MOST_SERIES])
        if curves:
            more = "" if start == 0 else f" ({start // _MOST_SERIES + 1})"
            found.insert(
                1 + start // _MOST_SERIES, _over_steps(f"training-parts{start}", f"Reward parts{more}", curves)
            )
    groups = _groups(records.rows)
    if not history:
        found += [_from_episodes("reward", "Mean reward and score of the kept episodes", records.rows)]
        found += [_over_steps("training-flat", "Share of groups without variance", {"reward": _each(groups, _flat)})]
    if any(row.written is not None for row in records.rows):
        curves = {"distinct": _each(groups, _distinct), "members": _each(groups, lambda group: float(len(group)))}
        found.append(_over_steps("training-distinct", f"Distinct {view.written} per group", curves))
    return found


def _curves(history: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, dict[float, Value]]:
    curves = {
        name.partition("/")[2] or name: {entry["step"]: Value(entry[name]) for entry in history if name in entry}
        for name in names
    }
    return {name: curve for name, curve in curves.items() if curve}


def _over_steps(name: str, title: str, curves: Mapping[str, Mapping[float, Value]]) -> Figure:
    return lines(name, title, curves, x_title="step")


def _groups(rows: Sequence[Row]) -> dict[int, list[list[Row]]]:
    """Step -> its groups."""
    found: dict[int, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row.step or 0, {}).setdefault(row.group, []).append(row)
    return {step: list(groups.values()) for step, groups in sorted(found.items())}


def _each(groups: Mapping[int, list[list[Row]]], measure: Callable[[list[Row]], float]) -> dict[float, Value]:
    means = {}
    for step, found in groups.items():
        values = [measure(group) for group in found]
        means[float(step)] = Value(math.fsum(values) / len(values))
    return means


def _flat(group: list[Row]) -> float:
    return float(len({row.reward for row in group if row.reward is not None}) < 2)


def _distinct(group: list[Row]) -> float:
    return float(len({row.written for row in group if row.written is not None}))


def _from_episodes(name: str, title: str, rows: Sequence[Row]) -> Figure:
    curves: dict[str, dict[float, Value]] = {}
    for step in sorted({row.step or 0 for row in rows}):
        chosen = [row for row in rows if (row.step or 0) == step]
        for which, values in (
            ("reward", [row.reward for row in chosen if row.reward is not None]),
            ("score", [row.score for row in chosen if row.score is not None]),
        ):
            if values:
                curves.setdefault(which, {})[float(step)] = Value(math.fsum(values) / len(values))
    return _over_steps(f"training-{name}", title, curves)
