"""Mistakes of a policy: what kinds there are, and which kind a text that was no action is."""

from __future__ import annotations

from agl.core import Malformed

FAULTS = (
    "unreadable",
    "empty_plan",
    "unknown_action",
    "bad_item",
    "bad_target",
    "clamped",
    "bad_label",
    "train_update",
    "over_limit",
)
"""Each item of a plan, and each text that is no plan, counts at most once. `empty_plan` is a plan without items; one
that validation emptied counts under what emptied it."""

_OF_ITEMS = {
    "empty_plan": "empty_plan",
    "unknown_action": "unknown_action",
    "unknown_tool": "unknown_action",
    "bad_type": "bad_item",
    "bad_enum": "bad_item",
    "missing_argument": "bad_item",
    "unknown_argument": "bad_item",
}


def kind_of(action: Malformed) -> str:
    """The kind of a Malformed; `unreadable` where its reason concerns the text as a whole and no single item."""
    return _OF_ITEMS.get(action.reason, "unreadable")
