"""The two stage rewards of AgentGL (arXiv 2604.05846): search the graph first, then learn to stop.

Paper and released code differ in numbers; both are profiles, `paper` the default. Where both are vague or can be gamed:

- Coverage counts searches that were executed and returned documents; the code counts tags in the text.
- Reasoning is measured after each retrieval, as the paper says. No search: no short segment, but no bonus either, else
  not searching would earn it. Profile `code` splits the think block at queries instead, so its first segment precedes
  every search.
- The answer is compared in lower case and without blanks, here as in evaluation; the strict comparison is kept beside.
- Only what the policy wrote is measured, never what the environment inserted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

Stage = Literal[1, 2]
Profile = Literal["paper", "code"]
TaskKind = Literal["nc", "lp"]
Depth = Literal["flat", "per_segment"]

QUERY_MARKS = ("<|begin_of_query|>", "<|end_of_query|>")
DOCUMENT_MARKS = ("<|begin_of_documents|>", "<|end_of_documents|>")
THINK_TAGS = ("<think>", "</think>")
ANSWER_TAGS = ("<answer>", "</answer>")


@dataclass(frozen=True)
class Search:
    """A search that the environment executed. `documents`: how many results it returned."""

    pool: str
    documents: int


@dataclass(frozen=True)
class Transcript:
    """One finished episode.

    Attributes:
        spoken: what the policy wrote, its marks and tags included, split where results were inserted: `spoken[i]`
            comes before `searches[i]`, the last part after the last search. Text around a refused query (unknown pool,
            budget used) stays in one part. An opening tag that the prompt wrote for it belongs to the first part.
        searches: the executed searches in order; refused queries are none.
        answer: what stood inside the answer block; None when the episode ended without one.
        gold: the right answer: a class name, or `yes` / `no`.
        bad_item: the item that the answer refers to does not exist, so nothing can be compared.
    """

    spoken: tuple[str, ...]
    searches: tuple[Search, ...]
    answer: str | None
    gold: str
    bad_item: bool = False


@dataclass(frozen=True)
class NavigationReward:
    """`parts` holds every term of stage and profile, 0 where it did not strike; `total` is their clamped sum.

    `correct` is the comparison that earns the reward, `strict` the one of the released evaluation (equal as written).
    """

    parts: Mapping[str, float]
    total: float
    correct: bool
    strict: bool


@dataclass(frozen=True)
class Density:
    """The reasoning density term: a bonus when no segment is short, else a price.

    `flat`: one price however many are short (the paper's appendix). `per_segment`: each costs it, at most `most`
    together (the paper's method section has no such bound: None).
    """

    least: int
    unit: Literal["tokens", "words"]
    depth: Depth
    bonus: float = 0.5
    price: float = 0.2
    most: float | None = None
    no_think: float | None = None
    """What a text without think block earns, where segments are parts of the think block; None: they follow
    retrievals."""

    def value(self, short: int) -> float:
        """What `short` short segments earn."""
        if not short:
            return self.bonus
        if self.depth == "flat":
            return -self.price
        return -min(self.price * short, math.inf if self.most is None else self.most)


@dataclass(frozen=True)
class Terms:
    """The numbers of one column of the reward table; None where the column has no such term. Pairs are (kept, not)."""

    correct: float = 1.5
    no_answer: float = -1.0
    unparsable_is_no_answer: bool = False
    bad_item: float = -0.5
    blocks: tuple[float, float] = (0.5, -0.5)
    tag_balance: tuple[float, float] = (0.1, -0.3)
    answer_tags: float = -0.5
    answer_words: int = 12
    answer_length: float = -0.2
    leftover_think: float = -0.3
    pool: float | None = None
    most_pools: float = 2.0
    density: Density | None = None
    most_words: int | None = None
    length: float = -0.5
    efficiency: Mapping[int, float] | None = None
    """Number of searches -> what a right answer earns on top."""
    clamp: float | None = None


_CODE_DENSITY = Density(least=80, unit="words", depth="per_segment", most=0.6, no_think=-0.3)
_CODE_1 = Terms(pool=0.5, density=replace(_CODE_DENSITY, least=30), most_words=2200, clamp=15.0)
_TABLE: dict[tuple[Profile, TaskKind, Stage], Terms] = {
    ("paper", "nc", 1): Terms(pool=0.5),
    ("paper", "lp", 1): Terms(pool=0.5),
    ("paper", "nc", 2): Terms(density=Density(least=100, unit="tokens", depth="flat")),
    ("paper", "lp", 2): Terms(density=Density(least=100, unit="tokens", depth="flat")),
    ("code", "nc", 1): _CODE_1,
    ("code", "lp", 1): replace(_CODE_1, bad_item=-1.0, answer_words=6, most_words=2000),
    ("code", "nc", 2): Terms(density=_CODE_DENSITY, most_words=2000, clamp=15.0),
    ("code", "lp", 2): Terms(
        unparsable_is_no_answer=True,
        bad_item=-1.0,
        blocks=(0.6, -0.6),
        tag_balance=(0.2, -0.4),
        answer_words=4,
        density=replace(_CODE_DENSITY, price=0.15),
        most_words=2000,
        efficiency={0: -0.2, 3: 0.8},
        clamp=15.0,
    ),
}


def terms(stage: Stage, profile: Profile = "paper", task: TaskKind = "nc", depth: Depth | None = None) -> Terms:
    """A column of the reward table; `depth` replaces the form of its density term, where it has one.

    The code's LP cell leaves out what happens without think block; the price of its stage 1 stands in.
    """
    column = _TABLE[profile, task, stage]
    if depth is None or column.density is None:
        return column
    return replace(column, density=replace(column.density, depth=depth))


def navigation_reward(
    transcript: Transcript,
    *,
    stage: Stage,
    profile: Profile = "paper",
    task: TaskKind = "nc",
    depth: Depth | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> NavigationReward:
    """What an episode earns in `stage`.

    Args:
        depth: form of the density term; None takes that of the profile (`paper` flat, `code` per segment).
        count_tokens: tokens of a text by the policy's tokenizer; None counts words and punctuation marks.
    """
    return scored(transcript, terms(stage, profile, task, depth), task=task, count_tokens=count_tokens)


def scored(
    transcript: Transcript, column: Terms, *, task: TaskKind = "nc", count_tokens: Callable[[str], int] | None = None
) -> NavigationReward:
    """What an episode earns under the numbers of `column`."""
    text = "\n".join(transcript.spoken)
    given = transcript.answer
    if column.unparsable_is_no_answer and task == "lp" and given is not None and normalised(given) not in ("yes", "no"):
        given = None
    right = given is not None and not transcript.bad_item and is_correct(given, transcript.gold)
    answer = transcript.answer or ""
    parts = {
        "answer": column.correct if right else 0.0,
        "no_answer": column.no_answer if given is None else 0.0,
        "bad_item": column.bad_item if given is not None and transcript.bad_item else 0.0,
        "blocks": column.blocks[0 if _has_blocks(text) else 1],
        "tag_balance": column.tag_balance[0 if _balanced(text, QUERY_MARKS) and _balanced(text, DOCUMENT_MARKS) else 1],
        "answer_tags": column.answer_tags if _holds(answer, *QUERY_MARKS, *DOCUMENT_MARKS, *ANSWER_TAGS) else 0.0,
        "answer_length": column.answer_length if _words(answer) > column.answer_words else 0.0,
        "leftover_think": column.leftover_think if _holds(answer, *THINK_TAGS) else 0.0,
    }
    if column.pool is not None:
        pools = {search.pool for search in transcript.searches if search.documents > 0}
        parts["coverage"] = min(column.pool * len(pools), column.most_pools)
    if column.density is not None:
        parts["density"] = _density(transcript, column.density, count_tokens or _rough_tokens)
    if column.most_words is not None:
        parts["length"] = column.length if _words(text) > column.most_words else 0.0
    if column.efficiency is not None:
        parts["efficiency"] = column.efficiency.get(len(transcript.searches), 0.0) if right else 0.0
    total = math.fsum(parts.values())
    if column.clamp is not None:
        total = max(-column.clamp, min(column.clamp, total))
    return NavigationReward(parts, total, right, right and transcript.answer == transcript.gold)


def normalised(answer: str) -> str:
    """The form in which answers are compared: lower case, without blanks."""
    return "".join(answer.lower().split())


def is_correct(answer: str, gold: str) -> bool:
    """Whether `answer` is `gold` but for case and blanks."""
    return normalised(answer) == normalised(gold)


def _has_blocks(text: str) -> bool:
    """Exactly one think block and, behind it, exactly one answer block."""
    tags = [*THINK_TAGS, *ANSWER_TAGS]
    return re.findall("|".join(map(re.escape, tags)), text) == tags


def _balanced(text: str, marks: tuple[str, str]) -> bool:
    """Every opening mark is closed before the next one opens."""
    found = re.findall("|".join(map(re.escape, marks)), text)
    return found == [*marks] * (len(found) // 2)


def _holds(text: str, *marks: str) -> bool:
    return any(mark in text for mark in marks)


def _words(text: str) -> int:
    return len(text.split())


def _rough_tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def _density(transcript: Transcript, density: Density, count_tokens: Callable[[str], int]) -> float:
    if density.no_think is None:
        if not transcript.searches:
            return 0.0
        parts = transcript.spoken[1 : len(transcript.searches) + 1]
        segments = [_before(_without_blocks(part, QUERY_MARKS), THINK_TAGS[1], ANSWER_TAGS[0]) for part in parts]
        segments += [""] * (len(transcript.searches) - len(segments))
    else:
        _, opened, rest = "\n".join(transcript.spoken).partition(THINK_TAGS[0])
        block, closed, _ = rest.partition(THINK_TAGS[1])
        if not opened or not closed:
            return density.no_think
        segments = _block(QUERY_MARKS).split(block)
    count = count_tokens if density.unit == "tokens" else _words
    short = sum(count(_without_blocks(segment, DOCUMENT_MARKS)) < density.least for segment in segments)
    return density.value(short)


def _block(marks: tuple[str, str]) -> re.Pattern[str]:
    opening, closing = map(re.escape, marks)
    return re.compile(rf"{opening}.*?(?:{closing}|\Z)", re.DOTALL)


def _without_blocks(text: str, marks: tuple[str, str]) -> str:
    return _block(marks).sub(" ", text)


def _before(text: str, *ends: str) -> str:
    """`text` up to the first of `ends`."""
    return text[: min((place for end in ends if (place := text.find(end)) >= 0), default=len(text))]
