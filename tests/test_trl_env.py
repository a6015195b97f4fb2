"""Envs as TRL environments, seen with TRL's own way of finding tools."""

from __future__ import annotations

import inspect
import random
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, Field

from agl import registry
from agl.core import Action, Task
from agl.dialects import dialect_for
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


@pytest.mark.parametrize("name", sorted(registry.ENVS))
def test_every_registered_env_has_tools_with_schemas_and_rows(name: str) -> None:
    transformers = pytest.importorskip("transformers.utils")
    instance = environment_factory(name)()
    tools = tools_of(instance)
    assert sorted(tools) == sorted(action.name() for action in registry.env_class(name).actions)
    for tool in tools.values():
        properties = transformers.get_json_schema(tool)["function"]["parameters"]["properties"]
        assert all(schema["description"] for schema in properties.values())
    (item,) = dataset_rows(name, limit=1)
    assert instance.reset(**item)
    assert environment_reward(environments=[instance])[0] is not None


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


def test_the_trainer_of_trl_plays_and_scores_an_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only decoding is scripted: a random model cannot be expected to write the oracle's calls."""
    trl: Any = pytest.importorskip("trl")
    datasets: Any = pytest.importorskip("datasets")
    transformers: Any = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytewise = Tokenizer(models.BPE(vocab=letters, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
    )
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen2_5.jinja").read_text(encoding="utf-8")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes)
    model = transformers.Qwen2ForCausalLM(config)
    rewards: list[list[float | None]] = []

    def reward(**given: Any) -> list[float | None]:
        rewards.append(environment_reward(**given))
        return rewards[-1]

    trainer = trl.GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        environment_factory=environment_factory("toy"),
        train_dataset=datasets.Dataset.from_list(dataset_rows("toy", limit=2)),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            max_steps=1,
            num_generations=2,
            per_device_train_batch_size=2,
            max_completion_length=2000,
            report_to=[],
            save_strategy="no",
        ),
    )
    dialect = dialect_for(ToyEnv, "tools")
    prompts: list[str] = []

    def speak(prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        prompts.extend(map(tokenizer.decode, prompt_ids))
        envs = [environment._env for environment in trainer.environments]
        said = ["Done." if env.is_over else dialect.write(env.oracle()) for env in envs]
        return [tokenizer(f"{text}<|im_end|>", add_special_tokens=False)["input_ids"] for text in said], None

    monkeypatch.setattr(trainer, "_generate_single_turn", speak)
    trainer.train()
    assert rewards == [[2.0, 2.0]]
    assert sorted(tool.__name__ for tool in trainer.tools) == ["answer", "move"]
    assert "Path:" in prompts[0]
    assert '"direction"' in prompts[0]
    assert "You are at" in prompts[-1].partition("<tool_response>")[2]
