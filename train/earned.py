"""What training takes from an episode: its reward, and the numbers that are logged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agl.core import OutcomeKind, StopReason
from agl.json_text import dumps
from agl.trace import Episode
from train.groups import group
from train.shaping import format_credit

Treatment = Literal["train", "mask", "abstain"]
"""Of an episode that did not end with an answer: like any other; it counts in its group but gives no gradient; it is
left out of its group as well."""


@dataclass(frozen=True)
class Earned:
    """What training needs to know of an episode; small, so that every rank can see every one.

    Attributes:
        reward: what is trained on, shaping included; None for an episode that abstains.
        score: the task score; None likewise.
        parts: reward parts by name, None where not applicable.
        mean: numbers that are averaged over episodes.
        first_call: digest of the first tool call: of its graph, where it has one; None without a call.
    """

    outcome: str
    stop: str
    error: str | None
    reward: float | None
    score: float | None
    parts: Mapping[str, float | None]
    mean: Mapping[str, float]
    first_call: str | None = None


def treatment(episode: Episode, *, truncated: Treatment, unanswered: Treatment) -> Treatment:
    """How an episode enters training; one that failed for the machinery's fault always abstains.

    Args:
        truncated: of episodes that a token limit cut.
        unanswered: of others that ended without an answer.
    """
    if not episode.is_sample:
        return "abstain"
    if episode.outcome.stop is StopReason.MAX_TOKENS:
        return truncated
    return "train" if episode.outcome.stop is StopReason.ANSWER else unanswered


def earned(episode: Episode, credit: float = 0.0, treated: Treatment = "train") -> Earned:
    """Sum up an episode; `credit` scales the format shaping."""
    events = episode.events
    malformed = sum(event.action == "malformed" for event in events)
    calls = [event for event in events if event.action not in ("malformed", "answer")]
    mean = {
        "turns": float(sum(turn.source == "sampled" for turn in episode.transcript)),
        "tool_calls": float(len(calls)),
        "tool_errors": float(sum(event.is_error for event in calls)),
        "malformed": float(malformed),
        "retries": float(episode.outcome.retries),
        "tokens_sampled": float(episode.tokens.sampled),
        "tokens_injected": float(episode.tokens.injected or 0),
        "seconds_model": episode.seconds["model"],
        "seconds_framework": episode.seconds["framework"],
    }
    first = None
    if calls:
        said = dumps(calls[0].arguments.get("graph", calls[0].arguments))
        first = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]
    outcome = episode.outcome
    reward: float | None = None
    score: float | None = None
    parts: dict[str, float | None] = {}
    if episode.score is not None and treated != "abstain":
        parts = dict(episode.score.parts)
        reward, score = episode.score.reward, episode.score.total
        if credit:
            parts["format_credit"] = credit * format_credit(episode)
            reward += parts["format_credit"] or 0.0
    return Earned(outcome.kind.value, outcome.stop.value, outcome.error, reward, score, parts, mean, first)


def flat_groups(everyone: Sequence[Earned], group_size: int) -> list[int]:
    """Numbers of the groups without spread in the task score, shaping not looked at; `everyone` in group order."""
    return [
        start // group_size
        for start in range(0, len(everyone), group_size)
        if group([each.score for each in everyone[start : start + group_size]]).zero_variance
    ]


def summary(everyone: Sequence[Earned], group_size: int, *, shaped: bool = False) -> dict[str, float]:
    """Metrics of one generation over all ranks; `everyone` stands in the order of the groups.

    The shares `outcome/*` add up to 1, and so do `stop/*`; `episodes` is what they are shares of.
    """
    count = len(everyone)
    out = {"episodes": float(count)}
    out |= {f"outcome/{kind.value}": _share(each.outcome == kind for each in everyone) for kind in OutcomeKind}
    out |= {f"stop/{stop.value}": _share(each.stop == stop for each in everyone) for stop in StopReason}
    out["outcome/abstained"] = _share(each.reward is None for each in everyone)
    scores = [each.score for each in everyone if each.score is not None]
    if scores:
        out["score"] = sum(scores) / len(scores)
    for name in sorted({name for each in everyone for name in each.parts}):
        values = [value for each in everyone if (value := each.parts.get(name)) is not None]
        if values:
            out[f"parts/{name}"] = sum(values) / len(values)
    for name in everyone[0].mean:
        out[f"episode/{name}"] = sum(each.mean[name] for each in everyone) / count
    calls = sum(each.mean["tool_calls"] for each in everyone)
    out["episode/tool_error_rate"] = sum(each.mean["tool_errors"] for each in everyone) / max(calls, 1.0)
    groups = [everyone[start : start + group_size] for start in range(0, count, group_size)]
    by_reward = [group([each.reward for each in members]) for members in groups]
    out["groups/zero_variance_score"] = len(flat_groups(everyone, group_size)) / len(groups)
    out["groups/zero_variance_reward"] = _share(found.zero_variance for found in by_reward)
    out["groups/survivors"] = sum(found.used for found in by_reward) / len(groups)
    distinct = [len({each.first_call for each in members} - {None}) for members in groups]
    out["groups/distinct_first_calls"] = sum(distinct) / len(groups)
    if shaped:
        plain = [
            group([None if e.reward is None else e.reward - (e.parts.get("format_credit") or 0.0) for e in members])
            for members in groups
        ]
        out["groups/only_shaping_varies"] = _share(
            bare.zero_variance and not full.zero_variance for bare, full in zip(plain, by_reward, strict=True)
        )
    return out


def mean_reward(everyone: Iterable[Earned]) -> float | None:
    """Mean over the episodes that do not abstain; None when all do."""
    rewards = [each.reward for each in everyone if each.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _share(hits: Iterable[bool]) -> float:
    found = list(hits)
    return sum(found) / len(found)
