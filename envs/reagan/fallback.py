"""The label of a node whose policy did not decide: always a legal one, with the rule that gave it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from envs.reagan.memory import Entry, labelled

Rule = Literal["local", "global", "train"]


def fallback(entries: Sequence[Entry], train_counts: Sequence[int]) -> tuple[int, Rule]:
    """Majority of the local examples, else of the global ones weighted by similarity, else the most frequent train
    label (`train_counts` by class). Ties go to the label with the highest summed similarity, then to the lowest.
    """
    if local := labelled(entries, "local"):
        return majority(local), "local"
    if found := labelled(entries, "global"):
        return majority(found, weighted=True), "global"
    return max(range(len(train_counts)), key=lambda label: (train_counts[label], -label)), "train"


def majority(entries: Iterable[Entry], *, weighted: bool = False) -> int:
    """The label most of `entries` carry, each counted once or by its similarity.

    Raises:
        ValueError: no entry has a label.
    """
    votes: dict[int, float] = {}
    closeness: dict[int, float] = {}
    for entry in entries:
        if entry.label is not None:
            votes[entry.label] = votes.get(entry.label, 0.0) + (max(0.0, entry.closeness) if weighted else 1.0)
            closeness[entry.label] = closeness.get(entry.label, 0.0) + entry.closeness
    if not votes:
        raise ValueError("expected at least one entry with a label")
    return max(votes, key=lambda label: (round(votes[label], 6), round(closeness[label], 6), -label))
