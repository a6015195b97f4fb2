"""Players that need no model: fixed plans, and votes over what they put into memory."""

from __future__ import annotations

from collections.abc import Sequence

from agl.core import Action
from envs.reagan.actions import GlobalAggregation, LocalAggregation, NoOp
from envs.reagan.fallback import majority
from envs.reagan.memory import Entry, labelled

PLAYERS = ("oracle-planner", "vote", "no-op")
"""`oracle-planner` reads all labelled neighbours and the nearest training texts in each layer, then all vote (the
baseline vote+kNN); `vote` asks for texts only where no neighbour has a label (the baseline vote); `no-op` does nothing
and leaves the label to the fallback."""


def plan(player: str, labelled_neighbours: Sequence[str], legal: Sequence[type[Action]]) -> list[Action]:
    """The plan of a layer, of legal actions only."""
    found: list[Action] = []
    if player != "no-op" and labelled_neighbours and LocalAggregation in legal:
        found.append(LocalAggregation(target_nodes=list(labelled_neighbours), info_type="both"))
    if (player == "oracle-planner" or (player == "vote" and not labelled_neighbours)) and GlobalAggregation in legal:
        found.append(GlobalAggregation())
    return found or [NoOp()]


def ballot(player: str, memory: Sequence[Entry]) -> int | None:
    """The label that most gold entries of the memory carry; None without any. A similarity of 0 is no evidence."""
    if player == "no-op":
        return None
    near = [entry for entry in labelled(memory, "local") if entry.label_status == "gold"]
    far = [entry for entry in labelled(memory, "global") if entry.closeness > 0]
    return majority([*near, *far]) if near or far else None
