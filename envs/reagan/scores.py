"""What an episode is scored by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agl.core import Score
from envs.reagan.fallback import Rule
from envs.reagan.faults import FAULTS
from envs.reagan.tasks import ReaganTask


def score(
    task: ReaganTask,
    class_names: Sequence[str],
    label: int,
    rule: Rule | None,
    faults: Mapping[str, int],
    counts: Mapping[str, int],
    steps: Sequence[str],
) -> Score:
    """`total` asks for a right label that the policy decided on; the part `accuracy` is the paper's, where a right
    fallback counts as well. Neither is ever without a label.

    Args:
        rule: of the fallback, None where the policy decided.
        faults: number of mistakes by kind.
        counts: `faulty` turns, `retry`, `plan_fallback`, `prompts`, and executed actions by name.
        steps: those names, such as `layer1_retrieve`, executed or not.
    """
    decided, right = rule is None, label == task.gold
    return Score(
        total=float(right and decided),
        reward=float(right and decided),
        parts={
            "accuracy": float(right),
            "decided": float(decided),
            "accuracy_decided": float(right) if decided else None,
            "accuracy_fallback": None if decided else float(right),
            "labelled_neighbours": float(task.labelled_neighbours),
            **{kind: float(faults.get(kind, 0)) for kind in FAULTS},
            **{name: float(counts.get(name, 0)) for name in ("faulty", "retry", "plan_fallback", "prompts", *steps)},
        },
        labels={
            "gold": class_names[task.gold],
            "predicted": class_names[label],
            "fallback_rule": rule or "none",
            "fallback_label": "none" if decided else class_names[label],
            "labelled_neighbours": task.bucket,
        },
    )
