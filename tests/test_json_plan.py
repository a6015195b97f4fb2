"""Plans as JSON arrays: read whole, item by item, never an exception and never nothing."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from agl.core import Action, Malformed
from agl.dialects.json_plan import JsonPlan


class LocalAggregation(Action):
    """Look at neighbours."""

    tag: ClassVar[str] = "retrieve"
    target_nodes: list[str] = Field(description="ids")
    info_type: str = Field(default="both", description="what")


class Predict(Action):
    """Decide."""

    tag: ClassVar[str] = "update"
    predicted_label: str = Field(description="label")


class NoOp(Action):
    """Wait."""

    tag: ClassVar[str] = "no_op"


PLAN = JsonPlan((LocalAggregation, Predict, NoOp))
LOOK = LocalAggregation(target_nodes=["1", "2"])
actions = st.one_of(
    st.builds(LocalAggregation, target_nodes=st.lists(st.text(max_size=5), max_size=4), info_type=st.text(max_size=9)),
    st.builds(Predict, predicted_label=st.text(max_size=9)),
    st.just(NoOp()),
)


@given(st.lists(actions, min_size=1, max_size=5), st.sampled_from(["", "Sure! ", "```json\n"]))
def test_what_is_written_is_read_back(plan: list[Action], lead: str) -> None:
    text = PLAN.write_turn(plan)
    assert PLAN.parse(f"<think>[1] {{so}}</think>{text}") == plan
    if "`" not in text:
        assert PLAN.parse(lead + text + ("\n```" if "`" in lead else "")) == plan


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    assert PLAN.parse(text)


@given(st.lists(actions, min_size=1, max_size=4), st.data())
def test_a_cut_plan_keeps_its_whole_actions(plan: list[Action], data: st.DataObject) -> None:
    text = PLAN.write_turn(plan)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    read = PLAN.parse(cut)
    assert isinstance(read[-1], Malformed)
    assert read[:-1] == plan[: len(read) - 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"action_type": "no_op"}', [NoOp()]),
        ('{"actions": [{"action_type": "no_op"}, {"action_type": "NoOp"}]}', [NoOp(), NoOp()]),
        ('{"predicted_label": "Label_3"}', [Predict(predicted_label="Label_3")]),
        ('I choose: {"predicted_label": "Label_3"} because.', [Predict(predicted_label="Label_3")]),
        ('{"action_type": "no_op"}\n{"action_type": "no_op"}', [NoOp(), NoOp()]),
        (
            '[{"action_type": "Local Aggregation", "target_nodes": ["1", "2"], "reason": "close"}]',
            [LOOK],
        ),
        ('[{"action_type": "retrieve", "target_nodes": ["1", "2"]}, {"action_type": "no_op"}]', [LOOK, NoOp()]),
    ],
)
def test_forms(text: str, expected: list[Action]) -> None:
    assert PLAN.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("", ["no_json"]),
        ("I would look at the neighbours.", ["no_json"]),
        ("[]", ["empty_plan"]),
        ('{"actions": []}', ["empty_plan"]),
        ('[{"action_type": "fly"}]', ["unknown_action"]),
        ('[{"action_type": 3}, {"action_type": null}]', ["unknown_action", "unknown_action"]),
        ('[{"action_type": "update"}]', ["missing_argument"]),
        ('[{"action_type": "update", "predicted_label": 3}]', ["bad_type"]),
        ('[{"action_type": "no_op"}, "wait", [1]]', [None, "bad_type", "bad_type"]),
        ('[{"action_type": "no_op"}, {"action_type": "upd', [None, "truncated"]),
        ("<think>first", ["unfinished_think"]),
        ('[{"action_type": "no_op", "action_type": "update"}]', ["duplicate_key"]),
    ],
)
def test_faults(text: str, reasons: list[str | None]) -> None:
    read = PLAN.parse(text)
    assert [action.reason if isinstance(action, Malformed) else None for action in read] == reasons


def test_a_bad_action_costs_only_itself() -> None:
    text = '[{"action_type": "update", "predicted_label": "A"}, {"action_type": "fly"}, {"action_type": "no_op"}]'
    first, bad, last = PLAN.parse(text)
    assert (first, last) == (Predict(predicted_label="A"), NoOp())
    assert isinstance(bad, Malformed)
