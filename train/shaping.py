"""Reward shaping that no paper has: off unless a config asks for it, always logged as a part of its own."""

from __future__ import annotations

from agl.core import StopReason
from agl.trace import Episode


def format_credit(episode: Episode) -> float:
    """How far an episode kept to the protocol, in [0, 1], right or wrong.

    A fifth each for: the first thing it did was an action; some action other than the answer ran without error; it
    ended with an answer; nothing it wrote was malformed; it thought, and closed what it opened. The first four are
    read from the record of what ran, so writing a tag earns nothing by itself; the last is read from the text.

    Example:
        >>> from agl.core import Outcome, OutcomeKind
        >>> from agl.trace import Tokens
        >>> silent = Episode(
        ...     task={"id": "a"}, attempt=0, policy="p", dialect="tags", transcript=(), events=(), score=None,
        ...     outcome=Outcome(kind=OutcomeKind.POLICY_FAILURE, stop=StopReason.INVALID), tokens=Tokens(), seconds={},
        ... )
        >>> format_credit(silent)
        0.0
    """
    events = episode.events
    if not events:
        return 0.0
    said = "".join(turn.text for turn in episode.transcript if turn.source == "sampled")
    clean = all(event.action != "malformed" for event in events)
    answered = episode.outcome.stop is StopReason.ANSWER
    ran = [event for event in events if event.action not in ("malformed", "answer") and not event.is_error]
    kept = (
        events[0].action != "malformed",
        bool(ran),
        answered,
        clean,
        0 < said.count("<think>") == said.count("</think>"),
    )
    return sum(kept) / len(kept)
