"""What every environment must keep, as checks that env authors run in their own tests.

    @pytest.mark.parametrize("check", agl.conformance.CHECKS, ids=lambda check: check.__name__)
    def test_my_env(check):
        check(MyEnv)

Each check plays a few tasks of `Env.tasks()` and raises AssertionError with one sentence. The same checks run over
the whole registry in AGL's own test suite.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from collections.abc import Callable
from typing import Any

from agl.core import Action, Env, Malformed, OutcomeKind, Step, StopReason, Task
from agl.dialects import dialect_for
from agl.errors import DataError
from agl.policies.policy import Policy
from agl.policies.scripted import Oracle, Player, Random, Silent
from agl.rollout import rollout
from agl.trace import Episode

EnvClass = type[Env[Any]]

HOSTILE = (
    "",
    "   ",
    "</answer>",
    "<answer>",
    "{" * 2000,
    "\x00\ud800",
    "<graph>{}</graph>",
    "🦊" * 600,
    "<think>",
    "null",
    "[]",
)
"""Texts that are no sensible action in any env."""


def _tasks(env_class: EnvClass, count: int = 6) -> list[Task]:
    tasks = list(env_class.tasks(seed=0, limit=count))
    assert tasks, f"{env_class.name}.tasks() gives no task"
    return tasks


def _play(env_class: EnvClass, task: Task, policy: Policy) -> Episode:
    episode = asyncio.run(rollout(env_class(), task, policy))
    assert episode.outcome.kind is not OutcomeKind.INFRA_FAILURE, f"{task.id}: {episode.outcome.error}"
    return episode


def _without_time(episode: Episode) -> dict[str, Any]:
    return episode.model_dump(mode="json", exclude={"seconds"})


def _dialects(env_class: EnvClass) -> list[str]:
    return list(dict.fromkeys((env_class.dialect, "tags", "tools")))


def _turn(env: Env[Any], action: Action | Malformed) -> Step:
    """A turn of one action; returns what the env said last."""
    step = env.step(action)
    return env.close_turn() or step


def _oracle_steps(env: Env[Any]) -> list[Step]:
    steps = []
    while not env.is_over:
        steps.append(_turn(env, env.oracle()))
        assert len(steps) < 1000, f"{env.task.id}: the oracle does not end the episode"
    return steps


def tasks_are_data(env_class: EnvClass) -> None:
    """Tasks survive JSON and pickle, refuse unknown fields, have unique ids and name their env."""
    tasks = _tasks(env_class)
    assert len({task.id for task in tasks}) == len(tasks), "two tasks share an id"
    for task in tasks:
        assert task.env == env_class.name, f"{task.id} names the env {task.env!r}"
        assert env_class.task_type.model_validate_json(task.model_dump_json()) == task
        assert pickle.loads(pickle.dumps(task)) == task


def tasks_do_not_depend_on_the_limit(env_class: EnvClass) -> None:
    """The same seed gives the same tasks again, and asking for fewer gives tasks of the larger draw."""
    few, again, more = _tasks(env_class, 3), _tasks(env_class, 3), _tasks(env_class, 6)
    assert few == again, "two calls with one seed differ"
    by_id = {task.id: task for task in more}
    assert all(by_id.get(task.id, task) == task for task in few), "a task changes with the limit"


def unknown_data_is_refused(env_class: EnvClass) -> None:
    """A misspelt split or file is one clear error, never a silent default."""
    try:
        env_class.tasks("no-such-split-or-file", seed=0, limit=1)
    except DataError:
        return
    raise AssertionError("tasks() must raise DataError for a source that does not exist")


def oracle_scores_one(env_class: EnvClass) -> None:
    for task in _tasks(env_class):
        for dialect in _dialects(env_class):
            episode = asyncio.run(rollout(env_class(), task, Oracle(), dialect=dialect_for(env_class, dialect)))
            assert episode.score is not None, f"{task.id}: {episode.outcome.error}"
            assert episode.score.total == 1.0, f"{task.id} under {dialect}: the oracle scores {episode.score.total}"


def silence_scores_nothing(env_class: EnvClass) -> None:
    for task in _tasks(env_class):
        score = _play(env_class, task, Silent()).score
        assert score is not None, f"{task.id}: no score"
        assert score.total == 0.0, f"{task.id}: silence scores {score.total}"


def random_stays_below_its_bound(env_class: EnvClass) -> None:
    scores = [_play(env_class, task, Random()).score for task in _tasks(env_class, 30)]
    mean = sum(score.total for score in scores if score is not None) / len(scores)
    assert mean <= env_class.random_bound, f"random play scores {mean:.2f}, above the stated {env_class.random_bound}"


def hostile_text_neither_crashes_nor_scores(env_class: EnvClass) -> None:
    """Malformed input is answered in bounded text, ends sometime, and earns nothing."""
    task = _tasks(env_class, 1)[0]
    for name in _dialects(env_class):
        dialect = dialect_for(env_class, name)
        for text in HOSTILE:
            env = env_class()
            env.reset(task)
            for action in dialect.parse(text):
                step = env.step(action)
                assert len(step.observation.text) < 20_000, f"{text[:20]!r} is answered by an unbounded observation"
            assert env.score().total == 0.0, f"{text[:20]!r} scores {env.score().total}"


def players_play(env_class: EnvClass) -> None:
    """Every player of the env plays to an end, the same way each time."""
    for player in env_class.players:
        for task in _tasks(env_class, 2):
            episode = _play(env_class, task, Player(player))
            assert episode.outcome.stop is not StopReason.MAX_TURNS, f"{player} does not end the episode"
            assert _without_time(episode) == _without_time(_play(env_class, task, Player(player)))


def malformed_forever_ends(env_class: EnvClass) -> None:
    env = env_class()
    env.reset(_tasks(env_class, 1)[0])
    for _ in range(1000):
        step = _turn(env, Malformed(reason="no_action", message="nothing"))
        if step.terminated or step.truncated:
            return
    raise AssertionError("an env must end after a bounded number of malformed actions")


def episodes_are_deterministic(env_class: EnvClass) -> None:
    """Equal task, policy and seed give equal records, and an episode leaves nothing behind for the next."""
    tasks = _tasks(env_class, 2)
    env = env_class()
    for policy in (Oracle(), Random()):
        alone = [_without_time(_play(env_class, task, policy)) for task in tasks]
        shared = [_without_time(asyncio.run(rollout(env, task, policy))) for task in tasks]
        assert alone == shared, "a reused env plays differently from a fresh one"


def snapshot_restores(env_class: EnvClass) -> None:
    """After `restore`, the rest of the episode is the same as without it."""
    task = _tasks(env_class, 1)[0]
    env = env_class()
    env.reset(task)
    state = env.snapshot()
    straight = _oracle_steps(env)
    score = env.score()
    other = env_class()
    other.reset(_tasks(env_class)[-1])
    for target in (env, other):
        target.restore(state)
        assert not target.is_over, "a restored env is over"
        assert _oracle_steps(target) == straight, "a restored env replies differently"
        assert target.score() == score, "a restored env scores differently"


def order_of_calls_is_guarded(env_class: EnvClass) -> None:
    """`step` before `reset` raises; after the end it changes nothing; `score` is pure."""
    env = env_class()
    try:
        env.step(Malformed(reason="no_action", message="nothing"))
    except RuntimeError:
        pass
    else:
        raise AssertionError("step before reset must raise RuntimeError")
    env.reset(_tasks(env_class, 1)[0])
    assert env.score().total == 0.0, "an episode that has not begun has a score"
    last = env.oracle()
    while not env.is_over:
        last = env.oracle()
        _turn(env, last)
    before = env.score()
    assert env.step(last).observation.is_error, "an action after the end must be answered by an error"
    assert env.score() == before == env.score(), "an action after the end changes the score"


def first_prompt_is_the_same_for_every_caller(env_class: EnvClass) -> None:
    """The rollout sends the bytes that `Dialect.prompt` gives for a freshly reset env."""
    task = _tasks(env_class, 1)[0]
    env = env_class()
    prompt = dialect_for(env).prompt(env, env.reset(task))
    sent = [turn for turn in _play(env_class, task, Silent()).transcript if turn.source == "prompt"]
    first = sent[: len(prompt.messages)]  # where every turn has a context of its own, more follow
    assert [(turn.role, turn.text) for turn in first] == [(said.role, said.content) for said in prompt.messages]


def actions_describe_themselves(env_class: EnvClass) -> None:
    """Every action and field has words for the model, a JSON schema, and survives being written and read."""
    schemas = env_class().json_schemas()
    json.dumps(schemas)
    for action, schema in zip(env_class.actions, schemas, strict=True):
        assert schema["function"]["description"], f"{action.__name__} has no docstring"
        for name, field in action.model_fields.items():
            assert field.description, f"{action.__name__}.{name} has no description"
    env, rng = env_class(), random.Random(0)
    for task in _tasks(env_class, 3):
        env.reset(task)
        for sample in [env.oracle(), *(env.random_action(rng) for _ in range(5))]:
            for name in _dialects(env_class):
                dialect = dialect_for(env, name)
                assert dialect.parse(dialect.write(sample)) == [sample], f"{sample!r} is lost under {name}"


def grouping_needs_no_episode(env_class: EnvClass) -> None:
    """`facets` and `cluster` are asked of the class, after all episodes are over."""
    for task in _tasks(env_class):
        try:
            facets, cluster = env_class.facets(task), env_class.cluster(task)
        except TypeError as error:
            raise AssertionError(f"facets and cluster must be class methods: (cls, task); got {error}") from None
        assert all(isinstance(text, str) for pair in facets.items() for text in pair), f"facets are texts: {facets!r}"
        assert isinstance(cluster, str), f"a cluster is a text: {cluster!r}"


CHECKS: tuple[Callable[[EnvClass], None], ...] = (
    tasks_are_data,
    grouping_needs_no_episode,
    tasks_do_not_depend_on_the_limit,
    unknown_data_is_refused,
    oracle_scores_one,
    silence_scores_nothing,
    random_stays_below_its_bound,
    hostile_text_neither_crashes_nor_scores,
    players_play,
    malformed_forever_ends,
    episodes_are_deterministic,
    snapshot_restores,
    order_of_calls_is_guarded,
    first_prompt_is_the_same_for_every_caller,
    actions_describe_themselves,
)
"""All checks, in a sensible order."""
