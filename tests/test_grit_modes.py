"""Text-only modes of GritEnv: same items, no tool, scored by the answer alone."""

from __future__ import annotations

import random

import pytest

from agl.core import Answer, Malformed, StopReason
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.policies.scripted import Oracle, Random, Silent
from agl.rollout import rollout
from agl.trl_env import environment_factory
from envs.grit import build
from envs.grit.actions import Solve
from envs.grit.answers import boxed, gold_answer
from envs.grit.env import GritEnv, Mode
from envs.grit.items import TASKS, GritTask
from eval.runner import plan

TEXT_MODES: tuple[Mode, ...] = ("cot", "direct")
SPLIT = build.Split("probe", 6, 9, 1, tsp_shift=0)
ITEMS = [build.item(SPLIT, build.Recipe(), task, 1, build.VIEWS[5]) for task in TASKS]


@pytest.mark.parametrize("mode", TEXT_MODES)
@pytest.mark.parametrize("dialect", ["tags", "tools"])
@pytest.mark.parametrize("task", ITEMS, ids=lambda task: task.task)
async def test_a_right_answer_alone_earns_everything(task: GritTask, mode: Mode, dialect: str) -> None:
    env = GritEnv(mode=mode)
    episode = await rollout(env, task, Oracle(), dialect=dialect_for(env, dialect), shots=1)
    assert episode.score is not None
    assert episode.score.total == episode.score.reward == episode.score.parts["valid"] == 1.0
    assert [event.action for event in episode.events] == ["answer"]
    assert episode.score.parts["tool_calls"] == 0
    assert episode.score.parts["rounds"] == 1
    assert all(episode.score.parts[name] is None for name in ("s_inv", "node_f1", "edge_f1", "exact", "parse"))
    assert "structure" not in episode.score.labels


@pytest.mark.parametrize("mode", TEXT_MODES)
async def test_silence_is_invalid_and_chance_stays_low(mode: Mode) -> None:
    silent = [await rollout(GritEnv(mode=mode), task, Silent()) for task in ITEMS]
    assert all(ep.score is not None and ep.score.total == 0 and ep.score.reward == -1 for ep in silent)
    lucky = [await rollout(GritEnv(mode=mode), task, Random(), seed=seed) for task in ITEMS for seed in range(20)]
    assert sum(ep.score.total for ep in lucky if ep.score) / len(lucky) <= GritEnv.random_bound


@pytest.mark.parametrize("mode", TEXT_MODES)
@pytest.mark.parametrize("name", ["tags", "tools"])
def test_the_prompt_offers_no_tool(mode: Mode, name: str) -> None:
    env = GritEnv(mode=mode)
    prompt = dialect_for(env, name).prompt(env, env.reset(ITEMS[0]))
    system = prompt.messages[0].content
    assert "graph tool" not in system
    assert "problem_type" not in system
    assert "<result>" not in system
    assert ("<think>" in system) == (mode == "cot")
    assert [schema["function"]["name"] for schema in env.json_schemas()] == ["answer"]
    assert prompt.messages[1].content == ITEMS[0].question


@pytest.mark.parametrize("mode", TEXT_MODES)
def test_a_call_is_no_action(mode: Mode) -> None:
    tools = GritEnv()
    tools.reset(ITEMS[0])
    for name in ("tags", "tools"):
        call = dialect_for(tools, name).write(tools.oracle())
        (read,) = dialect_for(GritEnv(mode=mode), name).parse(call)
        assert isinstance(read, Malformed)
    env = GritEnv(mode=mode)
    env.reset(ITEMS[0])
    action = tools.oracle()
    assert isinstance(action, Solve)
    assert env.step(action).observation.is_error
    assert env.score().total == 0
    step = env.step(Answer(text=boxed(gold_answer(ITEMS[0]))))
    assert step.stop is StopReason.ANSWER
    assert env.score().total == 1


def test_modes_reach_evaluation_and_trl() -> None:
    checked = plan("grit", limit=2, env_options={"mode": "cot"})
    assert checked.dialect.actions == (Answer,)
    assert checked.make_env().legal_actions() == (Answer,)
    assert plan("grit", limit=2).config["prompt_sha256"] != checked.config["prompt_sha256"]
    assert not hasattr(environment_factory("grit", mode="direct"), "solve")
    assert hasattr(environment_factory("grit"), "solve")
    with pytest.raises(UserError, match=r"mode.*'tools', 'cot' or 'direct', got 'chat'"):
        plan("grit", env_options={"mode": "chat"})


def test_snapshots_keep_the_mode() -> None:
    env = GritEnv(mode="cot")
    env.reset(ITEMS[0])
    state = env.snapshot()
    other = GritEnv(mode="cot")
    other.restore(state)
    assert isinstance(other.random_action(random.Random(0)), Answer)
    other.step(other.oracle())
    assert other.score().total == 1
