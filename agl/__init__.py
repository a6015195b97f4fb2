"""AGL: language-model agents on graphs, evaluated frozen and trained by reinforcement learning."""

from __future__ import annotations

import sys
from typing import Any

from agl.core import Action, Answer, Env, Malformed, Observation, Outcome, OutcomeKind, Score, Step, StopReason, Task
from agl.gym_registration import announce_all

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Answer",
    "Env",
    "Malformed",
    "Observation",
    "Outcome",
    "OutcomeKind",
    "Score",
    "Step",
    "StopReason",
    "Task",
]

_LAZY = {
    "Limits": "agl.rollout:Limits",
    "Run": "eval.run:Run",
    "Sampling": "agl.policies.policy:Sampling",
    "evaluate": "eval.from_python:evaluate",
}
"""What is imported when it is first asked for, so that `import agl` stays quick."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'agl' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    from agl.registry import guarded_import

    module, _, attribute = _LAZY[name].partition(":")
    return getattr(guarded_import(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


announce_all()
