"""Training runs as a whole: resuming, choosing the best checkpoint, flat groups, faults, and what is written down."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("trl")

from agl.core import Action, Malformed, Observation, Score, Step
from agl.errors import InfraError, UserError
from agl.trace import read_episodes
from tests.tiny_model import save_tiny
from tests.tiny_trainer import GROUP, steps, turns_trainer
from tests.turns_env import FreshWords, TurnsEnv, TurnsTask
from tests.word_env import WordTask
from train.options import EpisodeArguments
from train.prompt_order import PromptOrder
from train.setting import Setting, evaluation_setting

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def noting() -> type[Any]:
    """A trainer that keeps the task ids of its generations."""
    from train.trainer import EpisodeTrainer

    class Noting(EpisodeTrainer):
        def _rows_of(self, episodes: Any, dropped: Any) -> Any:
            self.seen = [*getattr(self, "seen", []), [episode.task["id"] for episode in episodes]]
            self.last_dropped = set(dropped)
            return super()._rows_of(episodes, dropped)

    return Noting


# Resume.


def test_order_of_an_epoch_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int, shuffled: bool = True) -> list[int]:
        return list(
            PromptOrder(
                7, repeats=2, prompts_per_generation=3, uses=2, shuffled=shuffled, seed=seed, epoch=lambda: epoch
            )
        )

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(seed, epoch)) for seed in range(2) for epoch in range(3)}) == 6
    assert order(0, 5, shuffled=False) == [0, 0, 1, 1, 2, 2] * 2 + [3, 3, 4, 4, 5, 5] * 2
    found = order(3, 2)
    assert found[:6] == found[6:12]
    assert Counter(found) == dict.fromkeys(set(found), 4)
    assert len(set(found)) == 6


EPOCHS: dict[str, Any] = {"max_steps": 6, "save_strategy": "steps", "save_steps": 1, "learning_rate": 1e-2}


@pytest.mark.parametrize(
    ("options", "at"),
    [
        # 4 prompts, 2 in a generation: an epoch ends after steps 2 and 4.
        ({}, [2, 3]),
        # A generation feeds two steps: 3 lies inside one, whose rows older weights sampled.
        ({"steps_per_generation": 2, "per_device_train_batch_size": GROUP}, [3, 4]),
    ],
)
def test_six_steps_are_three_and_three(tiny: str, tmp_path: Path, options: dict[str, Any], at: list[int]) -> None:
    whole = turns_trainer(tiny, tmp_path / "whole", trainer=noting(), **EPOCHS, **options)
    whole.train()
    per_generation = options.get("steps_per_generation", 1)
    for done in at:
        again = turns_trainer(tiny, tmp_path / f"from-{done}", trainer=noting(), **EPOCHS, **options)
        again.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{done}"))
        assert getattr(again, "seen", []) == whole.seen[-(-done // per_generation) :]
        mine, theirs = steps(again)[done:], steps(whole)[done:]
        assert [entry["step"] for entry in mine] == list(range(done + 1, 7))
        for one, other in zip(mine, theirs, strict=True):
            for name in ("loss", "grad_norm", "learning_rate", "reward", "episode/tokens_sampled"):
                assert one.get(name) == pytest.approx(other.get(name), abs=1e-6), name
    assert len({tuple(sorted(set(ids))) for ids in whole.seen}) > 1


def test_a_checkpoint_of_another_number_of_processes_is_refused(tiny: str, tmp_path: Path) -> None:
    trainer = turns_trainer(tiny, tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    checkpoint = tmp_path / "checkpoint-1"
    (checkpoint / "episodes-rank0.pt").unlink()
    again = turns_trainer(tiny, tmp_path, max_steps=2)
    with pytest.raises(UserError, match=r"expected a checkpoint that 1 processes wrote, got .* of 0; resume with"):
        again.train(resume_from_checkpoint=str(checkpoint))


# Evaluation.


def test_best_checkpoint_is_that_of_the_evaluation_reward(tiny: str, tmp_path: Path) -> None:
    trainer = turns_trainer(
        tiny,
        tmp_path,
        evaluation="2,3,1",
        eval_strategy="steps",
        eval_steps=1,
        max_steps=3,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="reward",
        learning_rate=5e-2,
        eval_temperature=1.0,
    )
    trainer.train()
    found = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    assert [entry["step"] for entry in found] == [1, 2, 3]
    assert {entry["eval_episodes"] for entry in found} == {3.0}
    best = max(found, key=lambda entry: entry["eval_reward"])
    assert len({entry["eval_reward"] for entry in found}) > 1
    assert trainer.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best['step']}")
    # The best weights are loaded: they earn what they earned.
    assert trainer.evaluate()["eval_reward"] == pytest.approx(best["eval_reward"])
    # What training logs is not mixed into it.
    assert all("eval_reward" not in entry and "reward" in entry for entry in steps(trainer))


def setting_of(source: str, seed: int = 0) -> Setting:
    tasks = TurnsEnv.tasks(source, seed=seed)
    return Setting(TurnsEnv, TurnsEnv.task_type, tasks, FreshWords(TurnsEnv.actions), 0)


@pytest.mark.parametrize(
    ("options", "strategy", "said"),
    [
        ({}, "steps", "option eval_source: expected the split or file"),
        ({"eval_source": "1,2"}, "no", "option eval_source: nothing would be evaluated; set eval_strategy"),
        ({"eval_source": "1,2,3"}, "steps", "2 of 3 evaluation tasks are trained on as well, such as 'turns-0-0'"),
    ],
)
def test_an_evaluation_that_would_mislead_is_refused(options: dict[str, Any], strategy: str, said: str) -> None:
    from agl.registry import register

    register("turns", "tests.turns_env:TurnsEnv")
    arguments = EpisodeArguments(environment="turns", **options)
    with pytest.raises(UserError, match=said):
        evaluation_setting(arguments, setting_of("1,2"), {"eval_strategy": strategy})


def test_an_evaluation_set_of_its_own_is_taken() -> None:
    from agl.registry import register

    register("turns", "tests.turns_env:TurnsEnv")
    arguments = EpisodeArguments(environment="turns", eval_source="1,2", eval_seed=7)
    found = evaluation_setting(arguments, setting_of("1,2"), {"eval_strategy": "steps"})
    assert found is not None
    assert [task.id for task in found.tasks] == ["turns-7-0", "turns-7-1"]


# Flat groups.


class Flat(TurnsEnv):
    """Tasks of one turn are all solved alike; the rewards differ all the same."""

    def score(self) -> Score:
        found = super().score()
        flat = isinstance(self.task, TurnsTask) and self.task.rounds == 1
        return Score(total=1.0, reward=found.reward) if flat else found


def test_flat_groups_are_dropped_by_the_task_score(tiny: str, tmp_path: Path) -> None:
    for how, dropped in (("keep", 0.0), ("drop", 1.0)):
        trainer = turns_trainer(
            tiny,
            tmp_path,
            env=Flat,
            source="1,3",
            zero_variance_groups=how,
            trainer=noting(),
            max_steps=1,
            shuffle_dataset=False,
        )
        trainer.train()
        (entry,) = steps(trainer)
        assert entry["groups/zero_variance_score"] == 0.5
        assert entry["groups/zero_variance_reward"] == 0.0
        assert entry["groups/dropped"] == dropped
        rows = [sum(row.tokens for row in rows) for rows in trainer._rows]
        assert (sum(rows[:GROUP]) == 0) == bool(dropped)
        assert sum(rows[GROUP:]) > 0


def test_flat_groups_are_refilled_with_other_tasks_within_a_bound(tiny: str, tmp_path: Path) -> None:
    def run(source: str, **options: Any) -> tuple[Any, dict[str, Any]]:
        trainer = turns_trainer(
            tiny,
            tmp_path,
            env=Flat,
            source=source,
            zero_variance_groups="refill",
            trainer=noting(),
            max_steps=1,
            shuffle_dataset=False,
            **options,
        )
        trainer.train()
        return trainer, steps(trainer)[0]

    trainer, entry = run("1,3,2")
    assert trainer.seen[0] == ["turns-0-2"] * GROUP + ["turns-0-1"] * GROUP
    assert (entry["groups/refilled"], entry["groups/dropped"]) == (1.0, 0.0)
    assert entry["groups/zero_variance_score"] == 0.0
    assert entry["grad_norm"] > 1e-4
    # Nothing but flat tasks: two groups are replaced, once and once more, then training goes on with nothing.
    trainer, entry = run("1,1,1,1,1,1,1,1", max_refills=2)
    assert (entry["groups/refilled"], entry["groups/dropped"]) == (4.0, 2.0)
    assert entry["grad_norm"] == 0.0
    # The tasks run out before the bound does.
    _, entry = run("1,1,1", max_refills=9)
    assert (entry["groups/refilled"], entry["groups/dropped"]) == (1.0, 2.0)


def test_refill_without_spare_tasks_is_refused() -> None:
    from train.groups import batch_plan
    from train.plan import _check_groups

    arguments = EpisodeArguments(zero_variance_groups="refill")
    with pytest.raises(UserError, match="refill needs more than the 2 prompts of one generation, got 2"):
        _check_groups(arguments, batch_plan(prompts=2, group_size=4, ranks=1, per_rank=8))


@pytest.mark.parametrize("how", ["train", "mask", "abstain"])
def test_unanswered_episodes_are_treated_as_the_config_says(tiny: str, tmp_path: Path, how: str) -> None:
    """Of two tasks one needs more turns than there are."""
    trainer = turns_trainer(
        tiny, tmp_path, source="4,2", max_turns=2, unanswered_episodes=how, max_steps=1, shuffle_dataset=False
    )
    trainer.train()
    (entry,) = steps(trainer)
    assert entry["stop/max_turns"] == 0.5
    assert entry["outcome/abstained"] == (0.5 if how == "abstain" else 0.0)
    assert entry["groups/survivors"] == (GROUP / 2 if how == "abstain" else GROUP)
    tokens = [sum(row.tokens for row in rows) for rows in trainer._rows]
    assert (sum(tokens[:GROUP]) > 0) == (how == "train")
    assert sum(tokens[GROUP:]) > 0


# Faults.


class Faulty(TurnsEnv):
    """Raises what is no AglError in one of its methods, for tasks of two turns."""

    where: ClassVar[str] = ""

    def _fail(self, where: str) -> None:
        if where == self.where and isinstance(self.task, TurnsTask) and self.task.rounds == 2:
            raise ZeroDivisionError(f"in {where}")

    def begin(self, task: WordTask) -> Observation:
        self._fail("reset")
        return super().begin(task)

    def act(self, action: Action | Malformed) -> Step:
        self._fail("step")
        return super().act(action)

    def score(self) -> Score:
        self._fail("score")
        return super().score()


def check_counts(trainer: Any, output: Path) -> Counter[str]:
    """The shares that were logged are those of the episodes on disk, and add up; returns the outcomes."""
    total: Counter[str] = Counter()
    files = sorted((output / "episodes").iterdir())
    for entry, file in zip(steps(trainer), files, strict=True):
        kinds = Counter(episode.outcome.kind.value for episode in read_episodes(file))
        stops = Counter(episode.outcome.stop.value for episode in read_episodes(file))
        assert entry["episodes"] == kinds.total()
        for prefix, found in (("outcome/", kinds), ("stop/", stops)):
            shares = {
                name.removeprefix(prefix): share
                for name, share in entry.items()
                if name.startswith(prefix) and name != "outcome/abstained"
            }
            assert sum(shares.values()) == pytest.approx(1.0)
            assert {name: share * kinds.total() for name, share in shares.items() if share} == dict(found)
        assert entry["outcome/abstained"] * kinds.total() == kinds["infra_failure"]
        total += kinds
    return total


@pytest.mark.parametrize("where", ["reset", "step", "score"])
def test_an_env_that_raises_fails_its_episodes_and_no_others(tiny: str, tmp_path: Path, where: str) -> None:
    env = type("Faulty", (Faulty,), {"where": where})
    trainer = turns_trainer(tiny, tmp_path, env=env, source="2,3", episode_retries=1)
    trainer.train()
    assert check_counts(trainer, tmp_path) == {"infra_failure": 2 * GROUP, "ok": 2 * GROUP}
    for entry in steps(trainer):
        assert entry["grad_norm"] > 1e-4
        assert entry["episode/retries"] == 0.5
    errors = {episode.outcome.error for file in (tmp_path / "episodes").iterdir() for episode in read_episodes(file)}
    assert errors == {None, f"ZeroDivisionError: in {where}"}


class Wordlist:
    """A server that an env asks at each step; `mood` says what it does."""

    def __init__(self) -> None:
        self.mood = "well"
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer.mood == "hangs":
                    time.sleep(30)
                self.send_response(500 if outer.mood == "500" else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def die(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def wordlist() -> Iterator[Wordlist]:
    found = Wordlist()
    yield found
    found.die()


def served(wordlist: Wordlist) -> type[TurnsEnv]:
    """An env without any patience or error handling of its own."""
    port = wordlist.server.server_port

    class Served(TurnsEnv):
        def act(self, action: Action | Malformed) -> Step:
            line = http.client.HTTPConnection("127.0.0.1", port)
            line.request("GET", "/")
            status = line.getresponse().status
            line.close()
            if status != 200:
                raise InfraError(f"the word list answered {status}")
            return super().act(action)

    return Served


def after_step(trainer: Any, step: int, act: Any) -> None:
    from transformers import TrainerCallback

    class Then(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == step:
                act()

    trainer.add_callback(Then())


def test_a_server_that_answers_500_for_a_while_costs_those_episodes(
    tiny: str, tmp_path: Path, wordlist: Wordlist
) -> None:
    trainer = turns_trainer(tiny, tmp_path, env=served(wordlist), source="2,1,2,1", max_steps=4, max_infra_share=0.05)
    after_step(trainer, 1, lambda: setattr(wordlist, "mood", "500"))
    after_step(trainer, 3, lambda: setattr(wordlist, "mood", "well"))
    trainer.train()
    assert check_counts(trainer, tmp_path) == {"ok": 4 * GROUP, "infra_failure": 4 * GROUP}
    assert [entry["outcome/infra_failure"] for entry in steps(trainer)] == [0.0, 1.0, 1.0, 0.0]
    assert steps(trainer)[3]["grad_norm"] > 1e-4


def test_a_server_that_dies_ends_the_run_with_one_message(tiny: str, tmp_path: Path, wordlist: Wordlist) -> None:
    trainer = turns_trainer(tiny, tmp_path, env=served(wordlist), source="2,1,2,1", max_steps=9, max_infra_share=0.05)
    after_step(trainer, 1, wordlist.die)
    with pytest.raises(
        InfraError, match="8 of 8 episodes failed for the machinery's fault, the 3rd generation in a row"
    ):
        trainer.train()
    assert trainer.state.global_step == 3
    wordlist.__init__()  # type: ignore[misc]


def test_a_call_that_hangs_fails_its_episode(tiny: str, tmp_path: Path, wordlist: Wordlist) -> None:
    """The env waits without a limit in the thread that plays all episodes; the run goes on."""
    wordlist.mood = "hangs"
    started = time.perf_counter()
    trainer = turns_trainer(
        tiny, tmp_path, env=served(wordlist), source="1,1", max_steps=1, num_generations=2,
        per_device_train_batch_size=4, call_deadline=0.5,
    )  # fmt: skip
    trainer.train()
    assert time.perf_counter() - started < 25
    assert check_counts(trainer, tmp_path) == {"infra_failure": 4}
    (file,) = (tmp_path / "episodes").iterdir()
    (error,) = {episode.outcome.error for episode in read_episodes(file)}
    assert error == "a call of the environment blocked for 0.5 s (option call_deadline)"


# What is written down.


def test_sample_episodes_are_a_run_that_can_be_shown(tiny: str, tmp_path: Path) -> None:
    from eval.show import find, listing
    from train.grpo import record_config

    trainer = turns_trainer(tiny, tmp_path, source="2,3", sample_episodes=3, max_steps=3)
    record_config(tmp_path, trainer._episodes, {"num_generations": GROUP, "temperature": 1.0}, "tiny")
    trainer.train()
    found = listing(tmp_path, limit=50)
    assert found.total == 9
    assert all(row.outcome == "ok" and row.reward is not None for row in found.episodes)
    episode, attempts = find(tmp_path, found.episodes[0].id)
    assert len(attempts) > 1
    assert [turn.source for turn in episode.transcript].count("sampled") == int(episode.task["rounds"])
    config = json.loads((tmp_path / "training.json").read_text())
    assert (config["env"], config["policy"]) == ("turns", "in-training")
