"""Frozen evaluation: play every task, keep each episode as it finishes, sum up. Interrupted runs can be continued."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import agl
from agl.config import checked_options
from agl.core import Env, Post, Task
from agl.dialects import Dialect, dialect_for
from agl.errors import DataError, InfraError, UserError
from agl.policies.policy import Policy, Sampling
from agl.registry import env_class
from agl.rollout import Job, Limits, rollouts
from agl.run_folder import RunFolder, write_atomic
from agl.trace import Episode, EpisodeWriter, read_episodes, rewrite_sorted
from agl.world import World
from eval.summary import Summary, summarise

LIMITS = Limits()
_MOST_INFRA_SHARE = 0.05
_LEAST_INFRA_FAILURES = 5


class RunStoppedError(InfraError):
    """Too many infrastructure failures: going on would waste time. What is done is kept."""


@dataclass
class Progress:
    """Where a run stands. `episode` is the one that finished last, None before the first."""

    total: int
    resumed: int
    finished: int = 0
    infra_failures: int = 0
    score_sum: float = 0.0
    episode: Episode | None = None
    posts: Counter[int] = field(default_factory=Counter)
    """Round -> how many episodes of a shared world have come to its end."""

    @property
    def mean_score(self) -> float | None:
        """Mean score of the samples of this session; None before the first."""
        samples = self.finished - self.infra_failures
        return self.score_sum / samples if samples else None

    def add(self, episode: Episode) -> None:
        self.episode = episode
        self.finished += 1
        if episode.score is None:
            self.infra_failures += 1
        else:
            self.score_sum += episode.score.total


@dataclass(frozen=True)
class Plan:
    """A run that has been checked and not started: everything that can be wrong with the arguments has been seen."""

    env: type[Env[Any]]
    env_options: Mapping[str, Any]
    tasks: Sequence[Task]
    dialect: Dialect
    limits: Limits
    concurrency: int
    config: dict[str, Any]
    """What defines the run, the policy aside. How fast and how patiently it is played is no part of that."""

    exchanges: bool
    """The episodes know of each other, see `Env.exchanges`."""

    def make_env(self) -> Env[Any]:
        return self.env(**self.env_options)

    def folder(self, policy: str, out: Path, *, resume: bool) -> RunFolder:
        """The run folder of `policy`; nothing is written yet.

        Raises:
            UserError: the folder may not be written to, see `RunFolder`.
        """
        return RunFolder(out, {"policy": policy, **self.config}, resume=resume)


def plan(
    env_name: str,
    *,
    data: str | None = None,
    limit: int | None = None,
    attempts: int = 1,
    seed: int = 0,
    dialect: str | None = None,
    concurrency: int = 8,
    shots: int = 0,
    limits: Limits = LIMITS,
    sampling: Sampling | None = None,
    env_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Check the arguments of `evaluate` before any model loads.

    Raises:
        UserError: an unknown env, dialect or option, a number out of range, or unusable data.
    """
    _check_numbers(limit, attempts, concurrency, shots, limits, sampling)
    env = env_class(env_name)
    options = checked_options(env, env_options or {}, f"the environment {env_name}")
    instance = env(**options)
    chosen = dialect_for(instance, dialect)
    tasks = list(env.tasks(data, seed=seed, limit=limit))
    source = data or "its default data"
    if not tasks:
        raise DataError(f"expected tasks of {env_name} in {source}, got none; choose another --data")
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise DataError(f"expected unique task ids in {source}, got {task.id!r} twice; correct the data")
        seen.add(task.id)
    config = {
        "env": env_name,
        "env_options": options,
        "sampling": asdict(sampling) if sampling is not None else None,
        "data": data,
        "limit": limit,
        "seed": seed,
        "attempts": attempts,
        "shots": shots,
        "dialect": chosen.name,
        "max_turns": limits.max_turns,
        "tasks": len(tasks),
        "data_sha256": _sha256(task.model_dump_json() for task in tasks),
        "prompt_sha256": _sha256(_first_prompt(instance, tasks[0], chosen, shots)),
        "versions": _versions(),
    }
    return Plan(env, options, tasks, chosen, limits, concurrency, config, instance.exchanges)


def _check_numbers(
    limit: int | None, attempts: int, concurrency: int, shots: int, limits: Limits, sampling: Sampling | None
) -> None:
    bounds: list[tuple[str, float | None, float]] = [
        ("--limit", limit, 1),
        ("--attempts", attempts, 1),
        ("--concurrency", concurrency, 1),
        ("--shots", shots, 0),
        ("--deadline", limits.deadline, 0.001),
        ("limits.max_turns", limits.max_turns, 1),
        ("limits.retries", limits.retries, 0),
    ]
    if sampling is not None:
        bounds += [("--max-tokens", sampling.max_tokens, 1), ("--temperature", sampling.temperature, 0)]
    for name, value, least in bounds:
        if value is not None and not least <= value < float("inf"):
            raise UserError(f"expected {name} of at least {least:g}, got {value}; choose another number")
    if sampling is not None and not 0 < sampling.top_p <= 1:
        raise UserError(f"expected sampling.top_p above 0 and up to 1, got {sampling.top_p}; choose another number")


def _first_prompt(env: Env[Any], task: Task, dialect: Dialect, shots: int) -> list[str]:
    try:
        if (most := len(env.worked_examples(task, shots))) < shots:
            raise UserError(f"expected at most {most} worked examples for {env.name}, got --shots {shots}; lower it")
        _, prompt = dialect.open(env, task, shots)
    finally:
        env.close()
    return [f"{message.role}\n{message.content}" for message in prompt.messages]


def _sha256(texts: Any) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    found = {"agl": agl.__version__, "python": ".".join(map(str, sys.version_info[:2]))}
    for name in ("torch", "transformers", "vllm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def evaluate(
    env_name: str,
    policy: Policy,
    *,
    data: str | None = None,
    limit: int | None = None,
    attempts: int = 1,
    seed: int = 0,
    dialect: str | None = None,
    concurrency: int = 8,
    shots: int = 0,
    limits: Limits = LIMITS,
    sampling: Sampling | None = None,
    env_options: Mapping[str, Any] | None = None,
    out: Path,
    resume: bool = False,
    on_episode: Callable[[Progress], None] | None = None,
) -> Summary:
    """Play `attempts` episodes of every task and write the run folder `out`; the policy is closed at the end.

    Args:
        data: name of a split of the env, or a file or folder; None is the env's default.
        sampling: the decoding settings of `policy`, recorded in `config.json`.
        resume: continue the run in `out`: keys (task id, attempt) with a sample are kept, infrastructure failures
            are played again. With no run there it is a fresh start.
        on_episode: called once before the first episode, after each, and where episodes wait for each other after each
            of their rounds.

    Raises:
        UserError: as `plan`; the policy cannot be used as configured.
        RunStoppedError: at least 5 infrastructure failures that are over 5 % of the finished episodes, or no sample.
        InfraError: the policy's backend cannot be reached at the start.
        KeyboardInterrupt: after all finished episodes were written.
    """
    checked = plan(
        env_name,
        data=data,
        limit=limit,
        attempts=attempts,
        seed=seed,
        dialect=dialect,
        concurrency=concurrency,
        shots=shots,
        limits=limits,
        sampling=sampling,
        env_options=env_options,
    )
    return run(checked, checked.folder(policy.name, out, resume=resume), lambda: policy, on_episode=on_episode)


def run(
    checked: Plan,
    folder: RunFolder,
    make_policy: Callable[[], Policy],
    *,
    on_episode: Callable[[Progress], None] | None = None,
) -> Summary:
    """Carry out a plan in its folder. `make_policy` is called when there is something left to play.

    Raises:
        UserError, RunStoppedError, InfraError, KeyboardInterrupt: as `evaluate`.
    """
    tasks, attempts = checked.tasks, checked.config["attempts"]
    recorded = read_episodes(folder.episodes) if folder.episodes.exists() else ()
    known = {task.id for task in tasks}
    done: dict[tuple[str, int], tuple[Post, ...]] = {}
    for episode in recorded:
        if episode.task["id"] not in known:
            raise DataError(
                f"expected episodes of this run in {folder.episodes}, got one of the unknown task "
                f"{episode.task['id']!r}; remove its lines and use --resume"
            )
        if episode.is_sample:
            done[episode.key] = episode.posts
    jobs = [Job(task, attempt) for task in tasks for attempt in range(attempts) if (task.id, attempt) not in done]
    progress = Progress(total=len(jobs), resumed=len(done))
    if jobs:
        asyncio.run(_play(checked, folder, jobs, done, make_policy(), progress, on_episode))
    folder.drafts.unlink(missing_ok=True)
    with folder.locked():
        episodes = rewrite_sorted(folder.episodes, {task.id: index for index, task in enumerate(tasks)})
    policy = folder.config["policy"]
    summary = summarise(checked.env, policy, {task.id: task for task in tasks}, episodes, attempts)
    if not summary.n:
        raise RunStoppedError(f"no episode of {len(episodes)} could be played: {episodes[0].outcome.error}")
    write_atomic(folder.summary, summary.model_dump_json(indent=2) + "\n")
    return summary


async def _play(
    checked: Plan,
    folder: RunFolder,
    jobs: Sequence[Job],
    done: Mapping[tuple[str, int], Sequence[Post]],
    policy: Policy,
    progress: Progress,
    on_episode: Callable[[Progress], None] | None,
) -> None:
    try:
        await policy.prepare()
        with folder.created(), EpisodeWriter(folder.episodes) as writer:
            if on_episode is not None:
                on_episode(progress)

            def on_post(post: Post) -> None:
                progress.posts[post.round] += 1
                if on_episode is not None:
                    on_episode(progress)

            world = _world(checked, folder, done, on_post) if checked.exchanges else None
            playing = rollouts(
                checked.make_env,
                jobs,
                policy,
                dialect=checked.dialect,
                limits=checked.limits,
                shots=checked.config["shots"],
                seed=checked.config["seed"],
                concurrency=checked.concurrency,
                world=world,
            )
            first_error: str | None = None
            async with aclosing(playing):
                async for episode in playing:
                    writer.write(episode)
                    progress.add(episode)
                    if on_episode is not None:
                        on_episode(progress)
                    first_error = first_error or (episode.outcome.error if episode.score is None else None)
                    if _is_hopeless(progress):
                        raise RunStoppedError(
                            f"stopped after {progress.infra_failures} infrastructure failures in "
                            f"{progress.finished} episodes, the first: {first_error}"
                        )
    finally:
        await policy.aclose()


def _world(
    checked: Plan,
    folder: RunFolder,
    done: Mapping[tuple[str, int], Sequence[Post]],
    on_post: Callable[[Post], None],
) -> World:
    """What the episodes of this run share, with what earlier sessions left."""
    keys = [(task.id, attempt) for attempt in range(checked.config["attempts"]) for task in checked.tasks]
    world = World(keys, slots=checked.concurrency, journal=folder.drafts, on_post=on_post)
    for key, posts in done.items():
        world.recall(key, posts)
    return world


def _is_hopeless(progress: Progress) -> bool:
    failures = progress.infra_failures
    return failures >= _LEAST_INFRA_FAILURES and failures > _MOST_INFRA_SHARE * progress.finished
