"""The queries dialect: searches inside the reasoning, one answer behind it, documents from the env alone."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agl.core import Action, Malformed, Observation
from agl.dialects import dialect_for
from agl.dialects.queries import DOCUMENTS, DOCUMENTS_END, QUERY, QUERY_END, Queries, Unread
from agl.errors import UserError
from agl.messages import Message, Prompt
from envs.agentgl.actions import Answer, Search
from tests.toy_env import ToyEnv

QUERIES = Queries((Search, Answer))
MARKS = (
    QUERY,
    QUERY_END,
    DOCUMENTS,
    DOCUMENTS_END,
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    ":",
    '"',
    "\\",
    "\n",
)
TEXTS = st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=8).map("".join)


def search(content: str) -> str:
    return f"{QUERY}{content}{QUERY_END}"


def read(text: str) -> list[Action | str]:
    """What is read, a Malformed as its reason."""
    return [found.reason if isinstance(found, Malformed) else found for found in QUERIES.parse(text)]


@given(
    pool=TEXTS, query=TEXTS, thought=st.sampled_from(["", "First this."]), opens=st.sampled_from([None, True, False])
)
def test_what_is_written_is_read_back(pool: str, query: str, thought: str, opens: bool | None) -> None:
    for action in (Search(pool=pool, query=query), Answer(text=query)):
        placed = action if opens is None else action.placed(opens)
        assert QUERIES.parse(QUERIES.write(placed, thought)) == [action]


@given(text=TEXTS)
def test_no_text_raises_or_is_read_as_nothing(text: str) -> None:
    found = QUERIES.parse(text)
    assert found
    assert all(isinstance(one, Malformed | Search | Answer) for one in found)
    QUERIES.is_open(text, "")


@given(before=TEXTS, content=TEXTS, after=TEXTS)
def test_written_documents_are_never_taken(before: str, content: str, after: str) -> None:
    found = read(f"<think>I know.{DOCUMENTS}{content}{DOCUMENTS_END}</think>")
    assert found[0] == "wrote_result"
    assert all(isinstance(one, str) for one in found) or DOCUMENTS_END in content


@pytest.mark.parametrize(
    ("content", "pool", "query"),
    [
        ("1-hop:neural networks", "1-hop", "neural networks"),
        (" 2 hop : what: now? ", "2 hop", "what: now?"),
        ("similar:", "similar", ""),
        ("no colon", "", "no colon"),
        ("", "", ""),
        ('1-hop:"graph" nodes', "1-hop", '"graph" nodes'),
        ('1-hop:"all quoted"', "1-hop", "all quoted"),
        ("1-hop:a\nb", "1-hop", "a\nb"),
    ],
)
def test_the_first_colon_parts_pool_and_query(content: str, pool: str, query: str) -> None:
    assert read(f"<think>Look. {search(content)}") == [Search(pool=pool, query=query)]


def test_a_search_runs_wherever_it_stands() -> None:
    wanted = [Search(pool="1-hop", query="x")]
    assert read(f"<think>hm {search('1-hop:x')}") == wanted
    assert read(f"and so {search('1-hop:x')}") == wanted
    assert read(f"<think>hm</think>{search('1-hop:x')}") == wanted


def test_an_answer_inside_open_reasoning_is_prose() -> None:
    assert read("<think>maybe <answer>A</answer>") == ["unfinished_think"]
    assert read("<think>maybe <answer>A</answer> or not</think><answer>B</answer>") == [Answer(text="B")]
    assert read("maybe <answer>A</answer> or not</think><answer>B</answer>") == [Answer(text="B")]
    assert read("so</think>\n<answer> B </answer>") == [Answer(text="B")]


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("", ["no_action"]),
        ("just words", ["no_action"]),
        ("<think>words", ["unfinished_think"]),
        (f"<think>{QUERY}1-hop:x", ["missing_close"]),
        ("<answer>A", ["missing_close"]),
        ("A</answer>", ["unopened_tag"]),
        (f"x{QUERY_END}", ["unopened_tag"]),
        (f"{DOCUMENTS}(1) mine", ["wrote_result"]),
        (f"(1) mine{DOCUMENTS_END}", ["wrote_result"]),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reasons: list[str]) -> None:
    assert read(text) == reasons


def test_what_cannot_be_read_is_kept_whole_for_the_reward() -> None:
    text = "<think>" + "word " * 300
    (found,) = QUERIES.parse(text)
    assert isinstance(found, Unread)
    assert (len(found.text), found.said) == (500, text)


def test_a_query_that_is_opened_again_is_read_from_the_second_mark() -> None:
    found = read(f"<think>I write {QUERY} and mean {search('1-hop:x')}")
    assert found == ["missing_close", Search(pool="1-hop", query="x")]


def test_sampling_goes_on_where_a_stop_string_is_prose() -> None:
    seen = ""
    assert QUERIES.is_open("<think>not yet <answer>A</answer>", seen)
    assert QUERIES.is_open(f"<answer>A {search('1-hop:x')}", seen)
    assert not QUERIES.is_open(f"<think>{search('1-hop:x')}", seen)
    assert not QUERIES.is_open("<think>so</think><answer>A</answer>", seen)
    assert not QUERIES.is_open("so</think><answer>A</answer>", seen)
    assert not QUERIES.is_open(f"x{QUERY_END}", seen)


def test_results_continue_the_turn_and_what_opens_the_next_follows_them() -> None:
    env = ToyEnv()
    replies = [(Search(pool="1-hop", query=""), Observation(text="(1) one"))]
    going_on = QUERIES.answer(env, replies, Observation(text="Another?"), turn_ended=False, first=Prompt(messages=()))
    assert going_on.kind == "continue"
    assert going_on.text == f"\n{DOCUMENTS}\n(1) one\n{DOCUMENTS_END}\nAnother?\n"
    ended = QUERIES.answer(env, replies, None, turn_ended=True, first=Prompt(messages=()))
    assert ended.messages == (Message(role="user", content=f"{DOCUMENTS}\n(1) one\n{DOCUMENTS_END}"),)


def test_an_episode_written_by_placed_actions_has_one_think_block() -> None:
    said = QUERIES.write(Search(pool="1-hop", query="x").placed(True), "Look.")
    said += QUERIES.write(Search(pool="2-hop", query="").placed(False), "More.")
    said += QUERIES.write(Answer(text="A").placed(False), "Done.")
    assert [said.count(tag) for tag in ("<think>", "</think>", "<answer>")] == [1, 1, 1]
    assert said.startswith("<think>Look.")
    assert said.endswith("Done.</think>\n<answer>A</answer>")
    assert QUERIES.write(Answer(text="A").placed(True), "Sure.") == "<think>Sure.</think>\n<answer>A</answer>"


def test_the_protocol_names_every_mark() -> None:
    said = QUERIES.protocol()
    assert all(mark in said for mark in MARKS[:8])
    assert f"{QUERY}POOL:QUERY{QUERY_END}" in said
    assert set(QUERIES.stops) == {QUERY_END, "</answer>"}


class Count(Action):
    """Count."""

    tag: ClassVar[str] = "count"
    number: int = Field(description="how many")


@pytest.mark.parametrize("actions", [(Search,), (Answer,), (Search, Answer, Count), (Search, Search, Answer)])
def test_other_actions_are_refused(actions: tuple[type[Action], ...]) -> None:
    with pytest.raises(UserError, match="choose the dialect tags or tools"):
        Queries(actions)


def test_an_env_that_it_cannot_write_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="dialect queries"):
        dialect_for(ToyEnv, "queries")
