"""Episodes become rows and metrics: who abstains, what is masked, what is counted on which score."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from agl.core import Env, OutcomeKind, Score, StopReason
from agl.policies.policy import Policy
from agl.policies.scripted import Oracle, Random, Silent
from agl.rollout import Limits, rollout
from agl.tokens import TokenLog
from agl.trace import Episode
from tests.toy_env import ToyEnv
from train.earned import earned, summary, treatment
from train.episode_dataset import dataset_of
from train.groups import RewardError
from train.loss_rows import LossRow, rows_of
from train.options import EpisodeArguments
from train.setting import setting
from train.shaping import format_credit

TASK = ToyEnv.tasks("test", limit=1)[0]


async def play(policy: Policy, env: Env[Any] | None = None, *logs: TokenLog, attempt: int = 0) -> Episode:
    """An episode of a scripted policy, as if it had these token logs."""
    episode = await rollout(env or ToyEnv(), TASK, policy, limits=Limits(retries=0), attempt=attempt)
    return episode.model_copy(update={"logs": logs})


def log(*parts: tuple[str, list[int]]) -> TokenLog:
    made = TokenLog()
    for source, ids in parts:
        made.append(source, ids, [-1.0] * len(ids) if source == "sampled" else None)  # type: ignore[arg-type]
    return made


class Broken(ToyEnv):
    """Its reward is no number."""

    def score(self) -> Score:
        return Score(total=0.0, reward=math.nan)


async def test_row_is_the_token_log() -> None:
    episode = await play(
        Oracle(), None, log(("prompt", [1, 2]), ("sampled", [3]), ("injected", [4, 5]), ("sampled", [6]))
    )
    (row,) = rows_of(episode, filler=0)
    assert (row.prompt_ids, row.completion_ids) == ([1, 2], [3, 4, 5, 6])
    assert (row.mask, row.logprobs) == ([1, 0, 0, 1], [-1.0, 0.0, 0.0, -1.0])


async def test_an_episode_without_sampled_tokens_trains_nothing_but_counts() -> None:
    episode = await play(Silent(), None, log(("prompt", [1, 2])))
    assert rows_of(episode, filler=9) == [LossRow([1, 2], [9], [0], [0.0])]
    assert earned(episode).reward == -1.0


async def test_failed_machinery_abstains_and_keeps_its_place() -> None:
    episode = await play(Oracle(), Broken(), log(("prompt", [1, 2]), ("sampled", [3])))
    assert episode.outcome.kind is OutcomeKind.INFRA_FAILURE
    assert "finite" in (episode.outcome.error or "")
    assert rows_of(episode, filler=9) == [LossRow([9], [9], [0], [0.0])]
    found = earned(episode, credit=1.0)
    assert found.reward is None
    assert found.score is None
    assert found.parts == {}


async def test_each_end_of_an_episode_is_treated_as_the_config_says() -> None:
    done = await play(Oracle(), None, log(("prompt", [1]), ("sampled", [3])))
    assert treatment(done, truncated="abstain", unanswered="abstain") == "train"
    for stop, wanted in ((StopReason.MAX_TOKENS, "mask"), (StopReason.MAX_TURNS, "abstain")):
        outcome = done.outcome.model_copy(update={"stop": stop, "kind": OutcomeKind.POLICY_FAILURE})
        cut = done.model_copy(update={"outcome": outcome})
        assert treatment(cut, truncated="mask", unanswered="abstain") == wanted
        assert rows_of(cut, filler=9, mute=True)[0].mask == [0]
        assert rows_of(cut, filler=9)[0].mask == [1]
        assert earned(cut).reward == 2.0
        assert earned(cut, treated="abstain").reward is None
    failed = await play(Oracle(), Broken())
    assert treatment(failed, truncated="train", unanswered="train") == "abstain"


async def test_summary_counts_variance_on_the_task_score() -> None:
    """Shaping alone can make an all-wrong group vary; that group still teaches nothing about the task."""
    silent = [await play(Silent(), attempt=attempt) for attempt in range(2)]
    wanderer = [await play(Random(), attempt=attempt) for attempt in range(20)]
    wrong = next(e for e in wanderer if e.score and e.score.total == 0 and e.score.reward == 0)
    shaped = [earned(silent[0], credit=0.5), earned(silent[1], credit=0.5)]
    found = summary(shaped, 2, shaped=True)
    assert found["groups/zero_variance_score"] == found["groups/zero_variance_reward"] == 1
    tried = earned(wrong, credit=0.5).parts["format_credit"]
    assert tried is not None
    assert tried > 0
    mixed = [earned(wrong, credit=0.5), earned(wrong.model_copy(update={"events": ()}), credit=0.5)]
    found = summary(mixed, 2, shaped=True)
    assert found["groups/zero_variance_score"] == 1
    assert found["groups/zero_variance_reward"] == 0
    assert found["groups/only_shaping_varies"] == 1
    assert found["parts/format_credit"] == pytest.approx(tried / 2)


async def test_summary_names_outcomes_stops_and_parts() -> None:
    episodes = [await play(Oracle()), await play(Silent()), await play(Oracle(), Broken()), await play(Oracle())]
    found = summary([earned(episode) for episode in episodes], 4)
    assert found["outcome/ok"] == 0.5
    assert found["outcome/policy_failure"] == found["outcome/infra_failure"] == 0.25
    assert sum(value for name, value in found.items() if name.startswith("stop/")) == 1
    assert found["score"] == pytest.approx(2 / 3)
    assert found["parts/arrived"] == pytest.approx(2 / 3)
    assert found["groups/survivors"] == 3
    assert found["groups/zero_variance_score"] == 0


async def test_a_reward_that_is_no_number_is_an_error() -> None:
    good = earned(await play(Oracle()))
    bad = good.__class__(**{**vars(good), "reward": math.inf})
    with pytest.raises(RewardError, match="finite"):
        summary([good, bad], 2)


async def test_credit_follows_the_protocol_not_the_answer() -> None:
    oracle, silent = await play(Oracle()), await play(Silent())
    assert format_credit(oracle) == 1.0
    assert format_credit(silent) == 0.0
    wanderer = [format_credit(await play(Random(), attempt=attempt)) for attempt in range(10)]
    assert all(0 < credit < 1 for credit in wanderer)


def test_dataset_keeps_each_task_whole() -> None:
    found = setting(EpisodeArguments(task_limit=4)).read()
    rows = dataset_of(found)
    assert [found.task_type.model_validate_json(row["task"]) for row in rows] == list(found.tasks)
    assert all(row["prompt"] for row in rows)


def test_no_program_file_hides_an_installed_module() -> None:
    """A program launched by its path puts train/ first on sys.path."""
    folder = Path(__file__).resolve().parent.parent / "train"
    assert str(folder) not in sys.path
    names = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {name for name in names if importlib.util.find_spec(name) is not None} == set()
