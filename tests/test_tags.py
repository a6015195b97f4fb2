"""The tags dialect: one element per action, results injected by the env alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.boxed import boxes, has_open_box
from agl.core import Action, Answer, Malformed, Observation
from agl.dialects import dialect_for
from agl.dialects.tags import Tags
from agl.errors import UserError
from tests.test_tools import HOSTILE, Note, Wait, reasons
from tests.toy_env import Move, ToyEnv

TAGS = Tags((Move, Note, Wait, Answer))
_MARKS = (
    "<answer>",
    "</answer>",
    "<note>",
    "</note>",
    "<result>",
    "</think>",
    "<think>",
    "\\boxed{",
    "{",
    "}",
    '"',
    "\n",
)
TEXTS = st.lists(st.sampled_from(_MARKS) | st.text(max_size=4), max_size=8).map("".join)


@given(text=TEXTS, path=st.lists(TEXTS, max_size=3), thought=st.sampled_from(["", "First this."]))
def test_what_is_written_is_read_back(text: str, path: list[str], thought: str) -> None:
    for action in (Note(text=text, path=path), Answer(text=text), Wait()):
        assert TAGS.parse(TAGS.write(action, thought)) == [action]


@given(TEXTS | HOSTILE)
def test_any_text_is_read_without_an_exception(text: str) -> None:
    assert TAGS.parse(text)
    TAGS.is_open(text, text)


@given(text=TEXTS)
def test_sampling_goes_on_exactly_while_the_element_is_unfinished(text: str) -> None:
    whole = TAGS.write(Note(text=text))
    for stop in TAGS.stops:
        position = 0
        while (position := whole.find(stop, position)) >= 0:
            position += len(stop)
            if whole[:position].endswith("</note>"):
                assert TAGS.is_open(whole[:position], whole) == (position < len(whole))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I am done.", ["no_action"]),
        ("5</answer>", ["unopened_tag"]),
        ("<answer>5", ["missing_close"]),
        ("<answer>5</answer>", ["answer"]),
        ("<answer>5</answer><answer>6</answer>", ["answer", "answer"]),
        ('<note>{"text": "a"}', ["missing_close"]),
        ('<note>{"text": "a', ["truncated"]),
        ('<note>{"text": a}</note>', ["not_json"]),
        ('<note>{"text": a}</note><answer>5</answer>', ["not_json", "answer"]),
        ('<note>{"text": "a"}{"text": "b"}</note>', ["extra_value"]),
        ('<note>["a"]</note>', ["bad_type"]),
        ('<note>{"text": "a", "when": 1}</note>', ["unknown_argument"]),
        ('<move>{"direction": "up"}</move>', ["bad_enum"]),
        ("<wait>{}</wait>", ["wait"]),
        ("<result>42</result><answer>42</answer>", ["wrote_result", "answer"]),
        ("<think><answer>4</answer>", ["unfinished_think"]),
        ("<think><answer>4</answer></think><answer>9</answer>", ["answer"]),
        ("so <answer>4</answer>?</think><answer>9</answer>", ["answer"]),
        ("<wait>{}</wait><think>hm", ["wait", "unfinished_think"]),
    ],
)
def test_codes(text: str, wanted: list[str]) -> None:
    assert reasons(TAGS.parse(text)) == wanted


@pytest.mark.parametrize("text", ["hm</think><answer>9</answer>", "</think><answer>9</answer>"])
def test_a_think_block_that_nothing_opened_is_malformed_where_the_prompt_is_known(text: str) -> None:
    assert reasons(TAGS.parse(text, may_begin_inside_thinking=False)) == ["unopened_tag", "answer"]
    whole = f"<think>{text}"
    assert TAGS.parse(whole, may_begin_inside_thinking=False) == TAGS.parse(whole) == [Answer(text="9")]


def test_bare_text_keeps_a_closing_tag_inside_a_box() -> None:
    text = '\\boxed{{"path": ["</answer>", "}"]}}'
    spoken = f"<answer>{text}</answer>"
    assert TAGS.parse(spoken) == [Answer(text=text)]
    cut = spoken.index("</answer>") + len("</answer>")
    assert TAGS.is_open(spoken[:cut], "the places are </answer> and }")
    assert not TAGS.is_open(spoken[:cut], "the places are A and B")
    assert not TAGS.is_open(spoken, "the places are </answer> and }")
    assert TAGS.parse("<answer>\\boxed{4</answer>") == [Answer(text="\\boxed{4")]


def test_bare_text_that_is_one_json_string_stands_for_it() -> None:
    assert TAGS.parse('<answer>"a\\n</answer>"</answer>') == [Answer(text="a\n</answer>")]
    assert TAGS.parse('<answer>"a" or "b"</answer>') == [Answer(text='"a" or "b"')]


def test_results_continue_the_turn_unless_the_policy_closed_it() -> None:
    replies = [(Wait(), Observation(text="one"))]
    going_on = TAGS.render(replies, turn_ended=False)
    assert (going_on.kind, going_on.text) == ("continue", "\n<result>one</result>\n")
    closed = TAGS.render(replies, turn_ended=True)
    assert closed.kind == "turn"
    assert [(message.role, message.content) for message in closed.messages] == [("user", "<result>one</result>")]


def test_a_demonstration_is_one_assistant_turn() -> None:
    env, dialect = ToyEnv(), dialect_for(ToyEnv)
    messages = dialect.demonstrate(env, env.reset(ToyEnv.tasks()[0]))
    assert [message.role for message in messages] == ["user", "assistant"]
    assert env.score().total == 1.0
    results = messages[1].content.count("<result>")
    assert results == messages[1].content.count("<move>") >= 1


def test_an_unknown_dialect_is_named_with_the_legal_ones() -> None:
    with pytest.raises(UserError, match="tags, tools"):
        dialect_for(ToyEnv, "xml")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\\boxed{3} then \\boxed{5}", ["3", "5"]),
        ("\\boxed{a{b}c}", ["a{b}c"]),
        ("\\boxed{\\boxed{1}}", ["\\boxed{1}"]),
        ('\\boxed{{"}": "{"}}', ['{"}": "{"}']),
        ('\\boxed{"}": "{"}', ['"}": "{"']),
        ('\\boxed{ "}" }', [' "}" ']),
        ("\\boxed{\\}}", ["\\}"]),
        ("\\boxed {7}", ["7"]),
        ("\\boxed{3} and \\boxed{5", ["3"]),
        ("\\boxed{3 and \\boxed{5}", ["5"]),
        ("boxed{3}", []),
    ],
)
def test_boxes(text: str, wanted: list[str]) -> None:
    assert boxes(text) == wanted


def test_an_open_box_is_seen() -> None:
    assert has_open_box("\\boxed{3")
    assert has_open_box('\\boxed{{"a": "}')
    assert not has_open_box("\\boxed{3} \\boxed{}")


def test_malformed_quotes_at_most_500_characters() -> None:
    (found,) = TAGS.parse("x" * 10_000)
    assert isinstance(found, Malformed)
    assert len(found.text) == 500


def test_actions_are_told_apart_by_tag() -> None:
    found: list[Action | Malformed] = TAGS.parse('<move>{"direction":"back"}</move>\n<wait>{}</wait>')
    assert found == [Move(direction="back"), Wait()]
