"""Gymnasium's view of an env: five-tuple, seeds, spaces and lazy registration."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any, cast

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from agl import gym_registration, registry
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.gym_env import TextEnv
from tests.toy_env import ToyEnv

TOY = "tests.toy_env:ToyEnv"


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry.ENVS, "toy", TOY)
    gym_registration.announce("toy")
    yield
    gymnasium.registry.pop("agl/Toy-v0", None)


def play(env: gymnasium.Env[str, str], spoken: list[str]) -> list[tuple[str, float, bool, bool, dict[str, Any]]]:
    return [cast(tuple[str, float, bool, bool, dict[str, Any]], env.step(text)) for text in spoken]


def oracle_texts(task: Any, dialect: str | None = None) -> list[str]:
    env, written = ToyEnv(), []
    env.reset(task)
    while not env.is_over:
        action = env.oracle()
        written.append(dialect_for(env, dialect).write(action))
        env.step(action)
    return written


@pytest.mark.parametrize("dialect", ["tags", "tools"])
def test_check_env_is_clean(dialect: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("agl/Toy-v0", dialect=dialect).unwrapped)


@pytest.mark.parametrize("name", sorted(registry.ENVS))
def test_check_env_is_clean_for_every_registered_env(name: str) -> None:
    gym_registration.announce(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(gym_registration.gym_id(name), limit=2).unwrapped)


@pytest.mark.parametrize("dialect", ["tags", "tools"])
def test_the_oracle_is_rewarded_at_the_end_only(dialect: str) -> None:
    env = gymnasium.make("agl/Toy-v0", dialect=dialect)
    task = ToyEnv.tasks()[3]
    first, info = env.reset(options={"task": task})
    assert first == ToyEnv().reset(task).text
    assert info["task"] == task.id
    assert ("<tool_call>" in info["system"]) == (dialect == "tools")
    steps = play(env, oracle_texts(task, dialect))
    assert [step[1] for step in steps] == [0.0] * (len(steps) - 1) + [2.0]
    assert [step[2] for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1][4] | {"parts": {}} == {
        "task": task.id,
        "malformed": [],
        "total": 1.0,
        "parts": {},
        "labels": {},
        "outcome": "ok",
        "stop": "answer",
    }
    assert steps[-1][4]["parts"]["arrived"] == 1.0


def test_nonsense_is_answered_then_ends_as_a_policy_failure() -> None:
    env = TextEnv("toy")
    env.reset(options={"task": 0})
    (first, second) = play(env, ["hello", "hello"])
    assert first[1:4] == (0.0, False, False)
    assert first[4]["malformed"] == ["no_action"]
    assert second[1:4] == (-1.0, False, True)
    assert (second[4]["outcome"], second[4]["stop"]) == ("policy_failure", "invalid")


def test_after_the_end_nothing_changes_and_nothing_is_paid() -> None:
    env = TextEnv("toy")
    env.reset(options={"task": 0})
    (last, after) = play(env, ["<answer>x</answer>", "<answer>x</answer>"])
    assert last[2]
    assert after[1] == 0.0
    assert "over" in after[0]
    assert "total" not in after[4]


def test_several_actions_of_one_turn_run_in_order() -> None:
    env = TextEnv("toy")
    task = next(task for task in ToyEnv.tasks() if abs(task.start - task.goal) > 1)
    env.reset(options={"task": task})
    (step,) = play(env, ["\n".join(oracle_texts(task))])
    assert (step[1], step[2]) == (2.0, True)
    assert step[0].count("\n") == abs(task.start - task.goal)


def test_a_seed_picks_the_task() -> None:
    env, other = TextEnv("toy"), TextEnv("toy")
    seeds = range(20)
    ids = [env.reset(seed=seed)[1]["task"] for seed in seeds]
    assert ids == [other.reset(seed=seed)[1]["task"] for seed in seeds]
    assert len(set(ids)) > 5
    assert env.reset(seed=1)[1]["task"] == ids[1]
    following = [env.reset()[1]["task"] for _ in range(20)]
    assert len(set(following)) > 5


def test_tasks_come_as_task_index_or_json_object() -> None:
    env = TextEnv("toy", source="train", limit=5)
    task = ToyEnv.tasks("train")[4]
    for chosen in (task, 4, task.model_dump(mode="json")):
        assert env.reset(options={"task": chosen})[1]["task"] == task.id
    for wrong in (5, -1, "train-004", 1.5, {"id": "x"}):
        with pytest.raises(UserError, match="expected a"):
            env.reset(options={"task": wrong})


def test_any_text_is_in_the_spaces() -> None:
    env = TextEnv("toy")
    for text in ("", "北京 → Zoë\u0000", "x" * 100_000):
        assert text in env.observation_space
        assert text in env.action_space
    assert 3 not in env.observation_space
    assert env.action_space.sample() in env.action_space


def test_render_shows_the_dialogue() -> None:
    env = gymnasium.make("agl/Toy-v0", render_mode="ansi")
    first, _ = env.reset(options={"task": 0})
    env.step("hello")
    shown = cast(str, env.render())
    assert shown.startswith(first)
    assert "hello" in shown


def test_ids_of_names() -> None:
    assert [gym_registration.gym_id(name) for name in ("grit", "agentgl-nc")] == ["agl/Grit-v0", "agl/AgentglNc-v0"]


@pytest.mark.parametrize(
    "program",
    [
        "import agl.gym_registration as g; g.announce_all(); assert 'gymnasium' not in sys.modules\nimport gymnasium",
        "import gymnasium; import agl.gym_registration as g; g.announce_all()",
        "import agl.gym_registration as g; g.announce_all(); g.announce_all()\nfrom gymnasium import envs\n"
        "import gymnasium",
    ],
)
def test_registration_waits_for_gymnasium(program: str) -> None:
    head = f"import sys\nfrom agl import registry\nregistry.register('toy', {TOY!r})\n"
    tail = "\nenv = gymnasium.make('agl/Toy-v0')\nprint(env.reset(seed=1)[1]['task'])"
    done = subprocess.run([sys.executable, "-c", head + program + tail], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == TextEnv("toy").reset(seed=1)[1]["task"]
    assert done.stderr == ""


def test_a_misspelt_option_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"environment reagan, got 'layer'; did you mean 'layers'\?"):
        gymnasium.make("agl/Reagan-v0", layer=3)
    with pytest.raises(UserError, match="option layers of the environment reagan"):
        TextEnv("reagan", layers="three")
