"""Validity of a GRAIN trajectory (arXiv 2608.27142, Eq. 3: an invalid one earns the error reward and nothing else).

The paper does not say what valid means. Here: tags well nested and closed, nothing written that only the environment
writes, not cut off, at least one tool call that succeeded, and one answer with exactly one readable box. A call that
failed and was repaired later does no harm. A think block may lack its opening only behind a chat API, whose template
may have written it into the prompt; where the tokens of the prompt are known, that is a flaw.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Flaw(StrEnum):
    """Why a trajectory is invalid; the first that applies, in this order."""

    FORMAT = "format"
    NO_CALL = "no_call"
    NO_ANSWER = "no_answer"
    NO_BOX = "no_box"
    SEVERAL_BOXES = "several_boxes"
    UNREADABLE_BOX = "unreadable_box"


UNFORGIVABLE = frozenset({"unopened_tag", "wrote_result", "unfinished_think", "missing_close", "truncated"})
"""Reasons of a Malformed that break the protocol for good; any other can be repaired by a later call."""


def flaw(
    malformed: Iterable[str], *, calls_succeeded: int, boxes: int | None, readable: bool, needs_call: bool = True
) -> Flaw | None:
    """What makes a trajectory invalid; None when it is valid.

    Args:
        malformed: reasons of all Malformed actions of the episode.
        boxes: number of boxes in the answer; None when no answer was given.
        readable: the one box holds what the task asks for, right or wrong.
        needs_call: False for text-only baselines, which have no tool.
    """
    if any(reason in UNFORGIVABLE for reason in malformed):
        return Flaw.FORMAT
    if needs_call and not calls_succeeded:
        return Flaw.NO_CALL
    if boxes is None:
        return Flaw.NO_ANSWER
    if boxes != 1:
        return Flaw.SEVERAL_BOXES if boxes else Flaw.NO_BOX
    return None if readable else Flaw.UNREADABLE_BOX
