"""The gated reward of GRAIN (arXiv 2608.27142, Eq. 3).

    R = rho_err                       for an invalid trajectory
    R = r_ans + lambda_inv * s_inv    for a valid one

The paper gives no number for rho_err; the ARPO code that it builds on uses -1. It does not say which of several graphs
counts; here the last one that the tool accepted, so that repairing a graph pays and guessing many does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rewards.structure import FAILED, Structure

Counted = Literal["last", "first", "best"]


@dataclass(frozen=True)
class GatedReward:
    """The open points of Eq. 3. `value_only` is what a right value with a wrong witness earns in r_ans (off: 0)."""

    rho_err: float = -1.0
    lambda_inv: float = 1.0
    value_only: float = 0.0
    counted: Counted = "last"

    def answer_part(self, right: bool, value_right: bool) -> float:
        """r_ans in [0, 1]."""
        return 1.0 if right else self.value_only if value_right else 0.0

    def total(self, *, valid: bool, r_ans: float, s_inv: float) -> float:
        """R of Eq. 3."""
        return r_ans + self.lambda_inv * s_inv if valid else self.rho_err


def counted_graph(structures: Sequence[Structure], counted: Counted) -> Structure:
    """The graph that is scored, among those of all successful calls in order; a failed parse when there is none.

    `best` invites guessing: fit for logs, not for training.
    """
    if not structures:
        return FAILED
    if counted == "best":
        return max(structures, key=lambda structure: structure.jaccard)
    return structures[0 if counted == "first" else -1]
