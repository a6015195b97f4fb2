"""EpisodeTrainer: TRL's GRPOTrainer, its generations AGL episodes, its loss rows their contexts.

TRL hands `rollout_func` the prompts of a generation, already repeated; each becomes one `agl.rollout` episode of the
model in training, and its token logs the rows of the loss. What the policy did wrong is scored and trained on. What the
machinery did wrong abstains: its row has an all-zero mask, and its reward enters neither mean nor spread of its group.
Loss types that average over rows (grpo, dr_grpo) still count the empty row; those over tokens (dapo, bnpo) do not.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from accelerate.utils import gather_object

from agl.core import OutcomeKind
from agl.errors import InfraError, UserError
from agl.rollout import Job, derived_seed
from agl.trace import Episode, EpisodeWriter
from train.branching import Tree, mean_metrics, tree_advantages
from train.checkpoint_state import load_state, save_state
from train.earned import Earned, earned, flat_groups, mean_reward, summary, treatment
from train.episode_dataset import dataset_of
from train.loss_rows import LossRow, draw, rows_of
from train.options import EpisodeArguments
from train.prompt_order import PromptOrder
from train.rollouts import Played, Player
from train.sampling_trainer import SamplingTrainer
from train.setting import Setting

STRIKES = 3
"""Generations in a row with too many infrastructure failures that end the run."""


def training_reward(
    prompts: Sequence[Any], completions: Sequence[Any], *, episode_reward: list[float | None], **_: Any
) -> list[float | None]:
    """The reward function TRL calls: what the episodes earned; None abstains."""
    return episode_reward


class EpisodeTrainer(SamplingTrainer):
    """GRPOTrainer whose generations are AGL episodes.

    Args:
        setting: environment and tasks; the dataset is made from it.
        episodes: options of the episodes.
        evaluation: tasks that `eval_strategy` plays.
        others: arguments of GRPOTrainer but `rollout_func`, `reward_funcs` and the datasets.
    """

    num_generations: int
    num_generations_eval: int
    shuffle_dataset: Any
    train_dataset: Any

    def __init__(
        self, setting: Setting, episodes: EpisodeArguments, *, evaluation: Setting | None = None, **others: Any
    ) -> None:
        self._setting = setting
        self._episodes = episodes
        self._evaluation = evaluation
        self._jobs: list[Job] = []
        self._rows = []
        self._trees: list[Tree] | None = None
        self._drawn = (-1, 0)
        self._generations = 0
        self._strikes = 0
        super().__init__(
            rollout_func=self._play,
            reward_funcs=training_reward,
            train_dataset=dataset_of(setting),
            eval_dataset=dataset_of(evaluation) if evaluation is not None else None,
            **others,
        )

    # Which prompts, in which order.

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        """TRL's order, but a pure function of seed and epoch, so that a resumed run goes on with the same prompts."""
        return PromptOrder(
            len(self.train_dataset if dataset is None else dataset),
            repeats=self.num_generations,
            prompts_per_generation=self.args.generation_batch_size // self.num_generations,
            uses=self.num_iterations * self.args.steps_per_generation,
            shuffled=self.shuffle_dataset,
            seed=self.args.seed,
            epoch=lambda: int((self.state.epoch or 0.0) + 1e-6),
        )

    # A generation: from inputs to loss rows.

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        # rollout_func sees prompts only; the tasks behind them are kept for it here.
        first = self.accelerator.process_index * len(inputs)
        read = self._setting.task_type.model_validate_json
        self._jobs = [
            Job(read(row["task"]), (first + place) % self.num_generations) for place, row in enumerate(inputs)
        ]
        self._sync()
        scored = cast("dict[str, Any]", super()._generate_and_score_completions(inputs))
        return self._with_rows(scored)

    def _play(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """One episode per job, in order; one row of each, as TRL wants it."""
        step = self.state.global_step
        draw_number = self._drawn[1] + 1 if self._drawn[0] == step else 0
        self._drawn = (step, draw_number)
        seed = derived_seed(self.args.seed, "train", step, draw_number)
        started = time.perf_counter()
        branching = self._episodes.branching() is not None
        with self._sampler(self.args.temperature, len(self._jobs), branching=branching) as policy:
            player = Player(self._setting, self._episodes, policy, seed=seed)
            played = self._finish(player, self._jobs)
            everyone = self._everyone(played)
            flat, refills = flat_groups(everyone, self.num_generations), 0
            if self._episodes.zero_variance_groups == "refill":
                everyone, flat, refills = self._refill(player, played, everyone, flat, seed)
        seconds = time.perf_counter() - started
        self._write(played.episodes, step, draw_number)
        metrics = summary(everyone, self.num_generations, shaped=self._episodes.format_credit > 0)
        metrics |= {"episode/seconds_of_generation": seconds, "groups/refilled": float(refills)}
        if branching:
            metrics |= mean_metrics(gather_object([tree.metrics() for tree in played.trees or []]))
        self._watch(everyone)
        dropped = set(flat) if self._episodes.zero_variance_groups != "keep" else set()
        metrics["groups/dropped"] = float(len(dropped))
        self._rows = self._rows_of(played.episodes, dropped)
        self._trees = played.trees
        self._record(metrics)
        self._generations += 1
        shown = [rows[-1] for rows in self._rows]
        mine = self._mine(everyone)
        return {
            "prompt_ids": [row.prompt_ids for row in shown],
            "completion_ids": [row.completion_ids for row in shown],
            "logprobs": [row.logprobs for row in shown],
            "env_mask": [row.mask for row in shown],
            "episode_reward": [each.reward for each in mine],
        }

    def _finish(self, player: Player, jobs: Sequence[Job]) -> Played:
        return asyncio.run(player.play(jobs, self.num_generations))

    def _everyone(self, played: Played) -> list[Earned]:
        """What the episodes of all ranks earned, in the order of the groups."""
        found: list[Earned] = gather_object([self._earned(episode) for episode in played.episodes])
        return found

    def _earned(self, episode: Episode) -> Earned:
        return earned(episode, self._episodes.format_credit, self._treatment(episode))

    def _treatment(self, episode: Episode) -> Any:
        options = self._episodes
        return treatment(episode, truncated=options.truncated_episodes, unanswered=options.unanswered_episodes)

    def _mine(self, everyone: Sequence[Earned]) -> Sequence[Earned]:
        first = self.accelerator.process_index * len(self._jobs)
        return everyone[first : first + len(self._jobs)]

    def _refill(
        self, player: Player, played: Played, everyone: list[Earned], flat: list[int], seed: int
    ) -> tuple[list[Earned], list[int], int]:
        """Play other tasks in place of groups without spread, a bounded number of times; `played` is changed.

        Every rank sees all scores and draws the same tasks, so all take part in each round, some with no episode.
        """
        rng = random.Random(derived_seed(seed, "refill"))
        size, first = self.num_generations, self.accelerator.process_index * len(self._jobs)
        used = set(gather_object([job.task.id for job in self._jobs]))
        refills = 0
        for _ in range(self._episodes.max_refills):
            free = [task for task in self._setting.tasks if task.id not in used]
            fresh = dict(zip(flat, rng.sample(free, min(len(free), len(flat))), strict=False))
            if not fresh:
                break
            used |= {task.id for task in fresh.values()}
            refills += len(fresh)
            places = [place for place in range(len(self._jobs)) if (first + place) // size in fresh]
            for place in places:
                self._jobs[place] = Job(fresh[(first + place) // size], self._jobs[place].attempt)
            again = self._finish(player, [self._jobs[place] for place in places])
            for place, episode in zip(places, again.episodes, strict=True):
                played.episodes[place] = episode
            if played.trees is not None and again.trees is not None:
                for place, tree in zip(places[::size], again.trees, strict=True):
                    played.trees[place // size] = tree
            everyone = self._everyone(played)
            flat = flat_groups(everyone, size)
        return everyone, flat, refills

    def _rows_of(self, episodes: Sequence[Episode], dropped: set[int]) -> list[list[LossRow]]:
        first = self.accelerator.process_index * len(episodes)
        out = []
        for place, episode in enumerate(episodes):
            mute = self._treatment(episode) != "train" or (first + place) // self.num_generations in dropped
            rows = rows_of(episode, filler=self.eos_token_ids[0], mute=mute)
            if self._episodes.decisions == "one":
                rows = [draw(rows, derived_seed(self.args.seed, "decision", *self._drawn, *episode.key))]
            out.append(rows)
        return out

    def _credits(self, advantages: list[float]) -> list[list[float]]:
        """Advantage of each real row: one number, or one per completion token."""
        branching = self._episodes.branching()
        if branching is None or branching.advantage == "soft" or self._trees is None:
            return super()._credits(advantages)
        out: list[list[float]] = []
        size = self.num_generations
        for number, tree in enumerate(self._trees):
            places = range(number * size, (number + 1) * size)
            own = [
                advantages[place] if self._treatment(member.episode) != "abstain" else None
                for place, member in zip(places, tree.members, strict=True)
            ]
            lengths = [sum(map(len, member.episode.logs)) for member in tree.members]
            for place, values in zip(places, tree_advantages(own, tree.lineage, lengths), strict=True):
                for row in self._rows[place]:
                    width = len(row.mask)
                    out.append((values[row.start : row.start + width] + [0.0] * width)[:width])
        return out

    # What is written down.

    def _write(self, episodes: Sequence[Episode], step: int, draw_number: int) -> None:
        if self._episodes.save_episodes:
            folder = Path(self.args.output_dir, "episodes")
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{step:06d}-{draw_number}-rank{self.accelerator.process_index}.jsonl"
            file.unlink(missing_ok=True)
            with EpisodeWriter(file) as writer:
                for episode in episodes:
                    writer.write(episode)
        count = min(self._episodes.sample_episodes, len(episodes))
        if count and self.accelerator.is_main_process:
            Path(self.args.output_dir).mkdir(parents=True, exist_ok=True)
            with EpisodeWriter(Path(self.args.output_dir, "episodes.jsonl")) as writer:
                for place in range(count):
                    episode = episodes[place * len(episodes) // count]
                    # Attempts count on over the generations, so that no record hides an earlier one.
                    attempt = self._generations * self.num_generations + episode.attempt
                    writer.write(episode.model_copy(update={"attempt": attempt}))

    def _watch(self, everyone: Sequence[Earned]) -> None:
        """End the run when infrastructure failures are no accident any more; every rank decides alike."""
        failed = [each for each in everyone if each.outcome == OutcomeKind.INFRA_FAILURE]
        over = len(failed) > self._episodes.max_infra_share * len(everyone)
        self._strikes = self._strikes + 1 if over else 0
        if self._strikes >= STRIKES:
            error, _ = Counter(each.error for each in failed).most_common(1)[0]
            raise InfraError(
                f"{len(failed)} of {len(everyone)} episodes failed for the machinery's fault, the {STRIKES}rd "
                f"generation in a row above max_infra_share {self._episodes.max_infra_share:g}; most often: {error}"
            )

    # Evaluation.

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Play the evaluation set, its tasks spread over the ranks; the same seeds each time.

        Returns:
            `eval_reward`, `eval_score` and all that is logged of a generation, as means over the whole set.

        Raises:
            InfraError: no episode could be scored.
        """
        if self._evaluation is None:
            raise UserError("expected an evaluation set (option eval_source), got none; set eval_strategy: no")
        attempts = self.num_generations_eval
        jobs = [Job(task, attempt) for task in self._evaluation.tasks for attempt in range(attempts)]
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        started = time.perf_counter()
        was_training = self.model.training
        self.model.eval()
        mine = jobs[rank::ranks]
        with self._sampler(self._episodes.eval_temperature, len(mine)) as policy:
            plain = replace(self._episodes, arpo=None)
            player = Player(self._evaluation, plain, policy, seed=derived_seed(self.args.seed, "eval"))
            played = self._finish(player, mine)
        places = gather_object(list(range(rank, len(jobs), ranks)))
        by_place = dict(zip(places, gather_object([earned(episode) for episode in played.episodes]), strict=True))
        everyone = [by_place[place] for place in range(len(jobs))]
        reward = mean_reward(everyone)
        if reward is None:
            raise InfraError(f"all {len(jobs)} episodes of the evaluation failed; most often: {_commonest(everyone)}")
        found = {**summary(everyone, attempts), "reward": reward, "seconds": time.perf_counter() - started}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        self.log(metrics)
        self.model.train(was_training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # Checkpoints.

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # First, so that a checkpoint with a trainer_state.json is whole.
        folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
        save_state(self, folder)
        super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[no-untyped-call]
        if checkpoint is not None:
            load_state(self, Path(checkpoint))


def _commonest(everyone: Sequence[Earned]) -> str | None:
    return Counter(each.error for each in everyone).most_common(1)[0][0]
