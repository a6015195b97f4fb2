"""The AgentGL rewards: every number of the published table, hand-scored episodes, and what hostile text can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.navigation import (
    ANSWER_TAGS,
    DOCUMENT_MARKS,
    QUERY_MARKS,
    THINK_TAGS,
    NavigationReward,
    Search,
    Transcript,
    navigation_reward,
    normalised,
    scored,
    terms,
)

PAPER: dict[str, Any] = {"profile": "paper"}
CODE: dict[str, Any] = {"profile": "code"}
CODE_LP: dict[str, Any] = {"profile": "code", "task": "lp"}
POOLS = ("1-hop", "2-hop", "pagerank", "similar")


def query(pool: str = "1-hop") -> str:
    return f"{QUERY_MARKS[0]}{pool}: neural nets{QUERY_MARKS[1]}"


def prose(words: int) -> str:
    return "word " * words


def episode(
    *pools: str,
    words: int | tuple[int, ...] = 120,
    answer: str | None = "cs.AI",
    gold: str = "cs.AI",
    empty: tuple[str, ...] = (),
    first: int | None = None,
) -> Transcript:
    """An episode in form: one think block with searches in `pools`, then the answer.

    `words`: of reasoning behind each search; `first`: before the first one; `empty`: pools that return nothing.
    """
    counts = (words,) * len(pools) if isinstance(words, int) else words
    lead = first if first is not None else words if isinstance(words, int) else words[0]
    spoken = ["<think>" + prose(lead)]
    for pool, count in zip(pools, counts, strict=True):
        spoken[-1] += query(pool)
        spoken.append(prose(count))
    spoken[-1] += "</think>" + ("" if answer is None else f"<answer>{answer}</answer>")
    searches = tuple(Search(pool, 0 if pool in empty else 5) for pool in pools)
    return Transcript(tuple(spoken), searches, answer, gold)


def with_text(transcript: Transcript, *spoken: str, **fields: Any) -> Transcript:
    return replace(transcript, spoken=spoken, **fields)


BARE = Transcript(("<think>so</think><answer>cs.AI</answer>",), (), "cs.AI", "cs.AI")
LINK = replace(BARE, spoken=("<think>so</think><answer>yes</answer>",), answer="yes", gold="yes")
FOUR = episode(*POOLS)
THREE = episode(*POOLS[:3], answer="yes", gold="yes")

COLUMNS: dict[str, dict[str, Any]] = {
    "paper 1": {**PAPER, "stage": 1},
    "paper 2": {**PAPER, "stage": 2},
    "code 1": {**CODE, "stage": 1},
    "code 2": {**CODE, "stage": 2},
    "paper lp 1": {**PAPER, "task": "lp", "stage": 1},
    "paper lp 2": {**PAPER, "task": "lp", "stage": 2},
    "code lp 1": {**CODE_LP, "stage": 1},
    "code lp 2": {**CODE_LP, "stage": 2},
}


def expect(transcript: Transcript, part: str, *values: float | None) -> list[Any]:
    """One test case for each column; None: the column has no such term."""
    assert len(values) == len(COLUMNS)
    return [
        pytest.param(options, transcript, part, value, id=f"{part}-{name}-{value}")
        for (name, options), value in zip(COLUMNS.items(), values, strict=True)
    ]


def answered(text: str) -> Transcript:
    return replace(BARE, spoken=(f"<think>so</think><answer>{text}</answer>",), answer=text)


TABLE = [
    *expect(BARE, "answer", 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 0.0),  # cs.AI is no answer to a link question
    *expect(LINK, "answer", 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5),
    *expect(replace(LINK, gold="no"), "answer", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(replace(LINK, gold="no"), "no_answer", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(replace(LINK, answer=None), "no_answer", -1, -1, -1, -1, -1, -1, -1, -1),
    *expect(replace(LINK, answer="maybe"), "no_answer", 0, 0, 0, 0, 0, 0, 0, -1),
    *expect(replace(LINK, bad_item=True), "bad_item", -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, -1, -1),
    *expect(replace(LINK, bad_item=True), "answer", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(LINK, "blocks", 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6),
    *expect(with_text(LINK, "<answer>yes</answer>"), "blocks", -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, -0.6),
    *expect(LINK, "tag_balance", 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2),
    *expect(with_text(LINK, QUERY_MARKS[0]), "tag_balance", -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.4),
    *expect(with_text(LINK, DOCUMENT_MARKS[1]), "tag_balance", -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.4),
    *expect(answered(f"yes {query()}"), "answer_tags", -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, -0.5, -0.5),
    *expect(LINK, "answer_tags", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(answered(prose(4)), "answer_length", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(answered(prose(5)), "answer_length", 0, 0, 0, 0, 0, 0, 0, -0.2),
    *expect(answered(prose(6)), "answer_length", 0, 0, 0, 0, 0, 0, 0, -0.2),
    *expect(answered(prose(7)), "answer_length", 0, 0, 0, 0, 0, 0, -0.2, -0.2),
    *expect(answered(prose(12)), "answer_length", 0, 0, 0, 0, 0, 0, -0.2, -0.2),
    *expect(answered(prose(13)), "answer_length", -0.2, -0.2, -0.2, -0.2, -0.2, -0.2, -0.2, -0.2),
    *expect(answered("</think> yes"), "leftover_think", -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3, -0.3),
    *expect(LINK, "leftover_think", 0, 0, 0, 0, 0, 0, 0, 0),
    *expect(BARE, "coverage", 0, None, 0, None, 0, None, 0, None),
    *expect(episode("1-hop"), "coverage", 0.5, None, 0.5, None, 0.5, None, 0.5, None),
    *expect(episode("1-hop", "1-hop"), "coverage", 0.5, None, 0.5, None, 0.5, None, 0.5, None),
    *expect(FOUR, "coverage", 2, None, 2, None, 2, None, 2, None),
    *expect(episode(*POOLS, "another"), "coverage", 2, None, 2, None, 2, None, 2, None),
    *expect(episode(*POOLS, empty=POOLS[:3]), "coverage", 0.5, None, 0.5, None, 0.5, None, 0.5, None),
    *expect(FOUR, "density", None, 0.5, 0.5, 0.5, None, 0.5, 0.5, 0.5),
    *expect(episode("1-hop", words=100), "density", None, 0.5, 0.5, 0.5, None, 0.5, 0.5, 0.5),
    *expect(episode("1-hop", words=99), "density", None, -0.2, 0.5, 0.5, None, -0.2, 0.5, 0.5),
    *expect(episode("1-hop", words=80), "density", None, -0.2, 0.5, 0.5, None, -0.2, 0.5, 0.5),
    *expect(episode("1-hop", words=79), "density", None, -0.2, 0.5, -0.4, None, -0.2, 0.5, -0.3),
    *expect(episode("1-hop", words=30), "density", None, -0.2, 0.5, -0.4, None, -0.2, 0.5, -0.3),
    *expect(episode("1-hop", words=29, first=120), "density", None, -0.2, -0.2, -0.2, None, -0.2, -0.2, -0.15),
    *expect(episode("1-hop", words=29), "density", None, -0.2, -0.4, -0.4, None, -0.2, -0.4, -0.3),
    *expect(episode(*POOLS, words=5), "density", None, -0.2, -0.6, -0.6, None, -0.2, -0.6, -0.6),
    *expect(episode("1-hop", words=120, first=0), "density", None, 0.5, -0.2, -0.2, None, 0.5, -0.2, -0.15),
    *expect(episode(), "density", None, 0, 0.5, 0.5, None, 0, 0.5, 0.5),  # no search: no bonus in `paper`
    *expect(with_text(LINK, prose(200)), "density", None, 0, -0.3, -0.3, None, 0, -0.3, -0.3),
    *expect(with_text(LINK, prose(2000)), "length", None, None, 0, 0, None, None, 0, 0),
    *expect(with_text(LINK, prose(2001)), "length", None, None, 0, -0.5, None, None, -0.5, -0.5),
    *expect(with_text(LINK, prose(2200)), "length", None, None, 0, -0.5, None, None, -0.5, -0.5),
    *expect(with_text(LINK, prose(2201)), "length", None, None, -0.5, -0.5, None, None, -0.5, -0.5),
    *expect(LINK, "efficiency", *[None] * 7, -0.2),
    *expect(THREE, "efficiency", *[None] * 7, 0.8),
    *expect(replace(FOUR, answer="yes", gold="yes"), "efficiency", *[None] * 7, 0.0),
    *expect(replace(THREE, gold="no"), "efficiency", *[None] * 7, 0.0),
    *expect(replace(LINK, gold="no"), "efficiency", *[None] * 7, 0.0),
]


@pytest.mark.parametrize(("options", "transcript", "part", "value"), TABLE)
def test_table(options: dict[str, Any], transcript: Transcript, part: str, value: float | None) -> None:
    parts = navigation_reward(transcript, **options).parts
    assert parts.get(part) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("transcript", "options", "most"),
    [
        (FOUR, {**PAPER, "stage": 1}, 4.1),
        (FOUR, {**PAPER, "stage": 2}, 2.6),
        (FOUR, {**CODE, "stage": 1}, 4.6),
        (FOUR, {**CODE, "stage": 2}, 2.6),
        (THREE, {**CODE_LP, "stage": 2}, 3.6),
    ],
)
def test_the_maximum(transcript: Transcript, options: dict[str, Any], most: float) -> None:
    assert navigation_reward(transcript, **options).total == pytest.approx(most)


TWO_SHORT = episode("1-hop", "2-hop", words=(40, 90), first=120)
FORGED = with_text(BARE, f"<think>{query('1-hop')}{query('2-hop')}so</think><answer>cs.AI</answer>")
CUT = Transcript((f"<think>{prose(40)}{query()}", prose(10)), (Search("1-hop", 5),), None, "cs.AI")
SILENT = Transcript(("",), (), None, "cs.AI")
NESTED = with_text(BARE, "<think>so<answer>cs.AI</answer></think>")
GOLDEN: list[tuple[str, Transcript, dict[str, Any], float]] = [
    # paper, stage 1: answer + no_answer + blocks + tags + coverage
    ("right after four pools", FOUR, {**PAPER, "stage": 1}, 1.5 + 0.5 + 0.1 + 2.0),
    ("right without search", BARE, {**PAPER, "stage": 1}, 1.5 + 0.5 + 0.1),
    ("wrong after four pools", replace(FOUR, gold="cs.CL"), {**PAPER, "stage": 1}, 0.5 + 0.1 + 2.0),
    ("two pools, one of them empty", episode("1-hop", "2-hop", empty=("2-hop",)), {**PAPER, "stage": 1}, 2.6),
    ("queries that nothing executed", FORGED, {**PAPER, "stage": 1}, 2.1),
    ("cut off after one search", CUT, {**PAPER, "stage": 1}, -1.0 - 0.5 + 0.1 + 0.5),
    ("silent", SILENT, {**PAPER, "stage": 1}, -1.0 - 0.5 + 0.1),
    ("answer inside the think block", NESTED, {**PAPER, "stage": 1}, 1.5 - 0.5 + 0.1),
    ("an essay for an answer", answered(prose(20)), {**PAPER, "stage": 1}, 0.5 + 0.1 - 0.2),
    # paper, stage 2: density instead of coverage
    ("long reasoning", TWO_SHORT, {**PAPER, "stage": 2}, 1.5 + 0.5 + 0.1 - 0.2),
    ("long reasoning per segment", TWO_SHORT, {**PAPER, "stage": 2, "depth": "per_segment"}, 2.1 - 0.4),
    ("all short per segment", episode(*POOLS, words=5), {**PAPER, "stage": 2, "depth": "per_segment"}, 2.1 - 0.8),
    ("right without search", BARE, {**PAPER, "stage": 2}, 2.1),
    ("bad item", replace(FOUR, bad_item=True), {**PAPER, "stage": 2}, -0.5 + 0.5 + 0.1 + 0.5),
    ("cut off after one search", CUT, {**PAPER, "stage": 2}, -1.0 - 0.5 + 0.1 - 0.2),
    ("lp as nc", replace(THREE, gold="no"), {**PAPER, "stage": 2, "task": "lp"}, 0.5 + 0.1 + 0.5),
    # code, stage 1: coverage and density
    ("right after four pools", FOUR, {**CODE, "stage": 1}, 1.5 + 0.5 + 0.1 + 2.0 + 0.5),
    ("right without search, short", BARE, {**CODE, "stage": 1}, 1.5 + 0.5 + 0.1 - 0.2),
    ("right without search, long", episode(), {**CODE, "stage": 1}, 1.5 + 0.5 + 0.1 + 0.5),
    ("queries that nothing executed", FORGED, {**CODE, "stage": 1}, 2.1 - 0.6),
    ("cut off after one search", CUT, {**CODE, "stage": 1}, -1.0 - 0.5 + 0.1 + 0.5 - 0.3),
    ("silent", SILENT, {**CODE, "stage": 1}, -1.0 - 0.5 + 0.1 - 0.3),
    ("pair, long-winded", with_text(LINK, prose(2100)), {**CODE_LP, "stage": 1}, 1.5 - 0.5 + 0.1 - 0.3 - 0.5),
    # code, stage 2
    ("one segment of three short", TWO_SHORT, {**CODE, "stage": 2}, 2.1 - 0.2),
    ("one segment short, flat", TWO_SHORT, {**CODE, "stage": 2, "depth": "flat"}, 2.1 - 0.2),
    ("all short", episode(*POOLS, words=5), {**CODE, "stage": 2}, 2.1 - 0.6),
    ("all short, flat", episode(*POOLS, words=5), {**CODE, "stage": 2, "depth": "flat"}, 2.1 - 0.2),
    ("bad item", replace(FOUR, bad_item=True), {**CODE, "stage": 2}, -0.5 + 0.5 + 0.1 + 0.5),
    ("link after three searches", THREE, {**CODE_LP, "stage": 2}, 1.5 + 0.6 + 0.2 + 0.5 + 0.8),
    ("link without search", LINK, {**CODE_LP, "stage": 2}, 1.5 + 0.6 + 0.2 - 0.15 - 0.2),
    ("wrong link after three", replace(THREE, gold="no"), {**CODE_LP, "stage": 2}, 0.6 + 0.2 + 0.5),
    ("unparsable link", replace(THREE, answer="perhaps"), {**CODE_LP, "stage": 2}, -1.0 + 0.6 + 0.2 + 0.5),
    ("bad pair", replace(THREE, bad_item=True), {**CODE_LP, "stage": 2}, -1.0 + 0.6 + 0.2 + 0.5),
]


@pytest.mark.parametrize(("transcript", "options", "total"), [pytest.param(*row[1:], id=row[0]) for row in GOLDEN])
def test_golden(transcript: Transcript, options: dict[str, Any], total: float) -> None:
    reward = navigation_reward(transcript, **options)
    assert reward.total == pytest.approx(total)
    assert reward.total == pytest.approx(sum(reward.parts.values()))


@pytest.mark.parametrize("profile", ["paper", "code"])
def test_both_profiles_have_a_dozen_golden_episodes(profile: str) -> None:
    assert sum(options["profile"] == profile for _, _, options, _ in GOLDEN) >= 12


def test_one_comparison_for_reward_and_evaluation_and_the_strict_one_beside() -> None:
    loose = navigation_reward(replace(BARE, answer=" CS. ai\n"), stage=1)
    assert (loose.correct, loose.strict, loose.parts["answer"]) == (True, False, 1.5)
    assert normalised(" CS. ai\n") == "cs.ai"
    strict = navigation_reward(BARE, stage=1)
    assert (strict.correct, strict.strict) == (True, True)
    part = navigation_reward(replace(BARE, answer="cs.AIR"), stage=1)
    assert (part.correct, part.parts["answer"]) == (False, 0.0)


def test_tokens_are_those_of_the_given_tokenizer() -> None:
    once = episode("1-hop", words=60)
    assert navigation_reward(once, stage=2).parts["density"] == -0.2
    assert navigation_reward(once, stage=2, count_tokens=lambda text: 2 * len(text.split())).parts["density"] == 0.5


def test_queries_and_forged_documents_are_no_reasoning() -> None:
    padded = f"{DOCUMENT_MARKS[0]}{prose(200)}{DOCUMENT_MARKS[1]}{QUERY_MARKS[0]}sim:{prose(200)}{QUERY_MARKS[1]}"
    forged = Transcript(("<think>" + query(), padded + "</think>"), (Search("1-hop", 5),), None, "cs.AI")
    assert navigation_reward(forged, stage=2).parts["density"] == -0.2


def test_what_follows_the_think_block_is_no_reasoning() -> None:
    late = Transcript(("<think>" + query(), f"</think>{prose(200)}"), (Search("1-hop", 5),), None, "cs.AI")
    assert navigation_reward(late, stage=2).parts["density"] == -0.2


@pytest.mark.parametrize("correct", [20.0, -20.0])
def test_clamp(correct: float) -> None:
    column = replace(terms(1, "code"), correct=correct)
    assert scored(FOUR, column).total == (15.0 if correct > 0 else -15.0)
    unclamped = scored(FOUR, replace(terms(1, "paper"), correct=correct))
    assert unclamped.total == pytest.approx(correct + 2.6)


PIECES = st.sampled_from(
    [
        *THINK_TAGS,
        *ANSWER_TAGS,
        *QUERY_MARKS,
        *DOCUMENT_MARKS,
        query(),
        prose(130),
        "cs.AI",
        "yes",
        "\x00",
        "<|",
        "\u2028",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=20), max_size=8).map("".join)
TRANSCRIPTS = st.builds(
    Transcript,
    spoken=st.lists(TEXTS, max_size=6).map(tuple),
    searches=st.lists(st.builds(Search, st.text(max_size=5), st.integers(-2, 9)), max_size=6).map(tuple),
    answer=st.none() | TEXTS,
    gold=st.sampled_from(["cs.AI", "yes", "no", ""]),
    bad_item=st.booleans(),
)


@pytest.mark.parametrize("options", [pytest.param(options, id=name) for name, options in COLUMNS.items()])
@pytest.mark.parametrize("depth", [None, "per_segment"])
@given(transcript=TRANSCRIPTS)
def test_whatever_a_policy_writes_is_scored_within_bounds(
    options: dict[str, Any], depth: Any, transcript: Transcript
) -> None:
    reward = navigation_reward(transcript, depth=depth, **options)
    assert isinstance(reward, NavigationReward)
    assert -1.0 - 0.6 - 0.4 - 0.5 - 0.2 - 0.3 - 1.2 - 0.5 <= reward.total <= 4.6 + 1e-9
    assert reward.total == pytest.approx(sum(reward.parts.values()))
    assert not reward.strict or reward.correct
    silent = navigation_reward(replace(transcript, answer=None), depth=depth, **options)
    assert silent.parts["answer"] == 0.0
    assert silent.parts["no_answer"] == -1.0
    fewer = navigation_reward(replace(transcript, searches=()), depth=depth, **options)
    assert fewer.parts.get("coverage", 0.0) == 0.0
