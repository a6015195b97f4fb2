"""The tools dialect: calls as text, read back strictly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, create_model

from agl.core import Action, Answer, Malformed, Observation
from agl.dialects import dialect_for
from agl.dialects.tools import Tools, call_text
from tests.conftest import check_case, handed_cases
from tests.toy_env import Move, ToyEnv


class Note(Action):
    """Write something down."""

    tag: ClassVar[str] = "note"
    text: str = Field(description="What to write.")
    path: list[str] = Field(default_factory=list, description="Where.")


class Wait(Action):
    """Do nothing."""

    tag: ClassVar[str] = "wait"


TOOLS = Tools((Move, Note, Wait, Answer))
_MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "\\boxed{", "}", '"', "\\", "\n")
HOSTILE = st.lists(st.sampled_from(_MARKS) | st.text(max_size=5), max_size=8).map("".join)


def reasons(found: Sequence[Action | Malformed]) -> list[str]:
    return [item.reason if isinstance(item, Malformed) else item.name() for item in found]


def actions_of(specs: dict[str, dict[str, Any]]) -> list[type[Action]]:
    kinds: dict[str, Any] = {"string": str, "integer": int, "strings": list[str]}
    made = []
    for name, spec in specs.items():
        fields: dict[str, Any] = {}
        for argument, kind in spec.items():
            if isinstance(kind, list):
                fields[argument] = (Literal[tuple(kind)], ...)
            else:
                annotation = kinds[kind.rstrip("?")]
                fields[argument] = (annotation | None, None) if kind.endswith("?") else (annotation, ...)
        made.append(create_model(name, __base__=Action, **fields))
    return made


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "call"))
def test_handed_calls(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        found = Tools(actions_of(given["tools"])).parse(given["text"])
        bad = next((item for item in found if isinstance(item, Malformed)), None)
        if bad is not None:
            return {"status": "error", "code": bad.reason}
        calls = [
            {"name": item.name(), "arguments": item.model_dump(exclude_unset=True)}
            for item in found
            if isinstance(item, Action)
        ]
        return {"status": "ok", "calls": calls}

    check_case(case, run)


@given(text=HOSTILE, path=st.lists(HOSTILE, max_size=3), thought=st.sampled_from(["", "First this."]))
def test_what_is_written_is_read_back(text: str, path: list[str], thought: str) -> None:
    for action in (Note(text=text, path=path), Answer(text=text), Wait()):
        assert TOOLS.parse(TOOLS.write(action, thought)) == [action]


@given(HOSTILE)
def test_any_text_is_read_without_an_exception(text: str) -> None:
    assert TOOLS.parse(text)
    TOOLS.is_open(text, text)


@given(text=HOSTILE)
def test_sampling_goes_on_exactly_while_the_call_is_unfinished(text: str) -> None:
    whole = TOOLS.write(Note(text=text))
    stop = "</tool_call>"
    position = 0
    while (position := whole.find(stop, position)) >= 0:
        position += len(stop)
        assert TOOLS.is_open(whole[:position], whole) == (position < len(whole))


def test_a_stop_inside_the_think_part_does_not_halt() -> None:
    call = TOOLS.write(Wait())
    assert TOOLS.is_open(f"<think>maybe {call}", "")
    assert not TOOLS.is_open(f"<think>maybe {call}</think>{call}", "")
    assert TOOLS.parse(f"<think>maybe {call}</think>{call}") == [Wait()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I am done.", ["no_call"]),
        ("", ["no_call"]),
        ('<tool_call>{"name": "wait"}</tool_call>', ["wait"]),
        ('<tool_call>{"name": "note"}</tool_call>', ["missing_argument"]),
        ('<tool_call>{"name": "note", "arguments": {}}</tool_call>', ["missing_argument"]),
        ('<tool_call>{"name": "note", "arguments": null}</tool_call>', ["bad_type"]),
        ('<tool_call>{"name": "note", "text": "x"}</tool_call>', ["unknown_argument"]),
        ('<tool_call>{"name": "move", "arguments": {"direction": "up"}}</tool_call>', ["bad_enum"]),
        ('<tool_call>{"name": "move", "arguments": {"direction": "back", "steps": true}}</tool_call>', ["bad_type"]),
        ('<tool_call>{"name": ["wait"], "arguments": {}}</tool_call>', ["bad_type"]),
        ('<tool_call>["wait"]</tool_call>', ["bad_type"]),
        ('<tool_call>{"name": "wait", "arguments": "\\"{}\\""}</tool_call>', ["bad_type"]),
        ('<tool_call>{"name": "wait", "arguments": {"a": 1, "a": 2}}</tool_call>', ["duplicate_key"]),
        ('<tool_call>{"name": "wait", "arguments": {"a": NaN}}</tool_call>', ["non_finite"]),
        ("<tool_call>" + "[" * 100_000, ["too_deep"]),
        ("<tool_response>ok</tool_response>", ["wrote_result"]),
        ('<tool_call>nonsense</tool_call><tool_call>{"name": "wait"}</tool_call>', ["not_json", "wait"]),
        ('planning</think><tool_call>{"name": "wait"}</tool_call>', ["wait"]),
    ],
)
def test_codes(text: str, wanted: list[str]) -> None:
    assert reasons(TOOLS.parse(text)) == wanted


def test_an_unknown_tool_is_answered_with_the_legal_ones() -> None:
    (found,) = TOOLS.parse('<tool_call>{"name": "walk", "arguments": {}}</tool_call>')
    assert isinstance(found, Malformed)
    assert all(name in found.message for name in ("move", "note", "wait", "answer"))


def test_calls_of_an_api_take_the_same_way() -> None:
    assert TOOLS.parse(call_text("note", '{"text": "</tool_call>"}')) == [Note(text="</tool_call>")]
    assert reasons(TOOLS.parse(call_text("note", '{"text": '))) == ["truncated"]
    assert reasons(TOOLS.parse(call_text("note", ""))) == ["truncated"]


def test_schemas_stand_in_the_text_or_in_the_prompt() -> None:
    env, dialect = ToyEnv(), dialect_for(ToyEnv, "tools")
    first = env.reset(ToyEnv.tasks()[0])
    plain, native = dialect.prompt(env, first), dialect.prompt(env, first, native=True)
    assert not plain.tools
    assert "<tools>" in plain.messages[0].content
    assert [tool["function"]["name"] for tool in native.tools] == ["move", "answer"]
    assert native.messages[0].content == env.instructions().strip()
    assert native.messages[1:] == plain.messages[1:]


def test_a_demonstration_is_a_dialogue_with_tool_turns_that_replays() -> None:
    task = next(task for task in ToyEnv.tasks() if abs(task.start - task.goal) == 3)
    env, dialect = ToyEnv(), dialect_for(ToyEnv, "tools")
    messages = dialect.demonstrate(env, env.reset(task))
    assert env.score().total == 1.0
    assert [message.role for message in messages] == ["user", *["assistant", "tool"] * 3, "assistant"]
    again = ToyEnv()
    assert again.reset(task).text == messages[0].content
    for spoken, heard in zip(messages[1::2], [*messages[2::2], None], strict=True):
        (action,) = dialect.parse(spoken.content)
        step = again.step(action)
        assert heard is None or step.observation.text == heard.content
    assert again.is_over


def test_every_call_gets_its_reply() -> None:
    replies = [(Wait(), Observation(text="one")), (Wait(), Observation(text="two"))]
    injection = TOOLS.render(replies, turn_ended=True)
    assert injection.kind == "turn"
    assert [(message.role, message.content) for message in injection.messages] == [("tool", "one"), ("tool", "two")]
