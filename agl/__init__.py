"""AGL: language-model agents on graphs, evaluated frozen and trained by reinforcement learning."""

from __future__ import annotations

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

announce_all()
