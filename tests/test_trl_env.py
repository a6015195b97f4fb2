"""Envs as TRL environments, seen with TRL's own way of finding tools."""

from __future__ import annotations

import inspect
import random
from enum import StrEnum
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from agl import registry
from agl.core import Action, Task
from agl.errors import UserError
from agl.trl_env import dataset_rows, environment_factory, environment_reward
from tests.toy_env import ToyEnv, ToyTask


class Scope(StrEnum):
    NEAR = "near"
    FAR = "far"


class Place(BaseModel):
    x: int


class Everything(Action):
    """Use every kind of argument.

    Returns: what you asked for. Args: are below.
    """

    tag: ClassVar[str] = "everything"
    limit: int = Field(default=3, description="At most so many.\n\nnote: not an argument")
    scope: Scope = Field(description="Where. Returns: nothing.")
    names: tuple[str, ...] = Field(description="Names.")
    weights: dict[str, float] = Field(default_factory=dict, description="By name.")
    place: Place | None = Field(default=None, description="A point.")
    rows: list[list[int]] = Field(default_factory=list, description="Rows.")
    kind: Literal["a", "b"] = "a"


class WideEnv(ToyEnv):
    actions: ClassVar[tuple[type[Action], ...]] = (*ToyEnv.actions, Everything)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENVS, "toy", "tests.toy_env:ToyEnv")
    monkeypatch.setitem(registry.ENVS, "wide", "tests.test_trl_env:WideEnv")


def tools_of(instance: Any) -> dict[str, Any]:
    """As `GRPOTrainer.__init__` of TRL 1.16 finds them."""
    found = {}
    for name, _ in inspect.getmembers(type(instance), predicate=inspect.isfunction):
        if name not in ("reset", "get_reward") and not name.startswith("_"):
            found[name] = getattr(instance, name)
    return found


def play(instance: Any, task: ToyTask) -> list[str]:
    env, shown = ToyEnv(), []
    env.reset(task)
    while not env.is_over:
        action = env.oracle()
        shown.append(tools_of(instance)[action.name()](**action.model_dump()))
        assert shown[-1] == env.step(action).observation.text
    return shown


def row(task: Task) -> dict[str, Any]:
    return {"prompt": [], "task": task.model_dump_json(), "other": None}


def test_only_actions_are_tools_on_class_and_instance() -> None:
    instance = environment_factory("toy")()
    instance.reset(**row(ToyEnv.tasks()[0]))
    assert sorted(tools_of(instance)) == ["answer", "move"]
    public = [name for name, member in inspect.getmembers(instance, callable) if not name.startswith("_")]
    assert public == ["answer", "move", "reset"]


def test_schemas_of_transformers_agree_with_ours() -> None:
    transformers = pytest.importorskip("transformers.utils")
    instance = environment_factory("toy")()
    for ours in ToyEnv().json_schemas():
        theirs = transformers.get_json_schema(tools_of(instance)[ours["function"]["name"]])["function"]
        assert theirs["description"] == ours["function"]["description"]
        wanted, got = ours["function"]["parameters"], theirs["parameters"]
        assert got.get("required", []) == wanted.get("required", [])
        assert got["properties"].keys() == wanted["properties"].keys()
        for name, schema in wanted["properties"].items():
            for key in ("type", "enum", "description"):
                assert got["properties"][name].get(key) == schema.get(key)


def test_schemas_of_all_kinds_of_arguments() -> None:
    transformers = pytest.importorskip("transformers.utils")
    schema = transformers.get_json_schema(tools_of(environment_factory("wide")())["everything"])["function"]
    assert schema["parameters"]["required"] == ["scope", "names"]
    kinds = {name: value["type"] for name, value in schema["parameters"]["properties"].items()}
    assert kinds == {
        "scope": "string",
        "names": "array",
        "limit": "integer",
        "weights": "object",
        "place": "object",
        "rows": "array",
        "kind": "string",
    }
    properties = schema["parameters"]["properties"]
    assert properties["scope"]["enum"] == ["near", "far"]
    assert properties["names"]["items"] == {"type": "string"}
    assert properties["rows"]["items"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["limit"]["description"] == "At most so many. note: not an argument"
    assert "what you asked for" in schema["description"]


def test_an_episode_is_the_env_s_and_earns_its_reward() -> None:
    factory = environment_factory("toy")
    right, silent, fresh = factory(), factory(), factory()
    task = ToyEnv.tasks()[0]
    assert right.reset(**row(task)) == ToyEnv().reset(task).text
    silent.reset(**row(task))
    play(right, task)
    assert environment_reward(prompts=[], completions=[], environments=[right, silent, fresh]) == [2.0, 0.0, None]


def test_calls_after_the_end_change_nothing() -> None:
    instance: Any = environment_factory("toy")()
    task = ToyEnv.tasks()[0]
    instance.reset(**row(task))
    play(instance, task)
    assert "over" in instance.answer(text="something else")
    assert "over" in instance.move(direction="back")
    assert environment_reward(environments=[instance]) == [2.0]


def test_wrong_arguments_are_malformed_actions_not_exceptions() -> None:
    instance: Any = environment_factory("toy")()
    instance.reset(**row(ToyEnv.tasks()[0]))
    assert "direction" in instance.move(way="back")
    assert environment_reward(environments=[instance]) == [0.0]
    assert instance.move(direction=float("nan")).startswith("Error")
    assert environment_reward(environments=[instance]) == [-1.0]


def test_a_reset_starts_from_nothing() -> None:
    instance = environment_factory("toy")()
    first, second = ToyEnv.tasks()[:2]
    instance.reset(**row(first))
    play(instance, first)
    instance.reset(**row(second))
    assert environment_reward(environments=[instance]) == [0.0]
    assert play(instance, second)[-1] == "Done."


@pytest.mark.parametrize("columns", [{}, {"task": None}, {"task": "{"}, {"task": '{"id": "x"}'}])
def test_a_row_without_a_task_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="'task'"):
        environment_factory("toy")().reset(**columns)


def test_rows_survive_a_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    rows = dataset_rows("toy", "train", seed=3, limit=8)
    random.Random(0).shuffle(rows)
    stored = datasets.Dataset.from_list(rows)
    for item in stored:
        assert [message["role"] for message in item["prompt"]] == ["system", "user"]
        assert "Path:" in environment_factory("toy")().reset(**item)
    assert len({item["task"] for item in stored}) == 8
