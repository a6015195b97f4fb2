"""The only agent loop: task -> env.reset -> (sample, parse, step, render)* -> score -> Episode."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from agl.core import Action, Env, Malformed, Observation, Outcome, OutcomeKind, Post, Score, StopReason, Task
from agl.dialects import dialect_for
from agl.dialects.dialect import Dialect, Reply
from agl.errors import DeadlineError, InfraError, UserError
from agl.messages import Injection
from agl.policies.policy import Dialogue, Finish, Play, Policy, Sample
from agl.tokens import TokenLog
from agl.trace import Episode, Event, Tokens, Turn
from agl.world import World

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Budgets of one episode outside the env's own rules."""

    max_turns: int = 64
    """Most samples; a backstop, since every env has its own round budget."""
    deadline: float = 600.0
    """Wall-clock seconds for the whole episode, reset and scoring included."""
    retries: int = 2
    """Fresh attempts after an infrastructure failure."""


class Job(NamedTuple):
    """One attempt at one task."""

    task: Task
    attempt: int


def derived_seed(*parts: object) -> int:
    """A 63-bit seed that is a pure function of `parts`, equal in every process."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass
class _Record:
    """What one run through the loop has gathered so far; survives an exception."""

    turns: list[Turn]
    events: list[Event]
    posts: list[Post] = field(default_factory=list)
    said: list[Sample] = field(default_factory=list)
    sampled: int = 0
    model: float = 0.0
    waited: float = 0.0
    dialogue: Dialogue | None = None
    stop: StopReason | None = None

    @property
    def logs(self) -> Sequence[TokenLog]:
        return self.dialogue.logs if self.dialogue is not None else ()

    def heard(self, sample: Sample) -> None:
        self.said.append(sample)
        self.sampled += sample.tokens
        self.turns.append(Turn(source="sampled", role="assistant", text=sample.text, finish=sample.finish))

    def injected(self, injection: Injection) -> None:
        if injection.kind == "continue":
            self.turns.append(Turn(source="injected", role="assistant", text=injection.text))
        source = "prompt" if injection.kind == "fresh" else "injected"
        for message in injection.messages:
            self.turns.append(Turn(source=source, role=message.role, text=message.content))


async def rollout(
    env: Env[Any],
    task: Task,
    policy: Policy,
    *,
    dialect: Dialect | None = None,
    limits: Limits = Limits(),
    shots: int = 0,
    seed: int = 0,
    attempt: int = 0,
    world: World | None = None,
) -> Episode:
    """Play one episode; never raises for what the policy, the backend or the env does wrong.

    Args:
        shots: worked examples in the prompt.
        seed: of the whole run; the episode's own seed is derived from it, the task id and the attempt.
        world: where the env exchanges posts with other episodes; alone without.

    Raises:
        UserError: the policy cannot be used as configured (unknown model, bad key): no episode would succeed.
    """
    dialect = dialect or dialect_for(env)
    started = time.perf_counter()
    record = _Record([], [])
    score: Score | None = None
    error: str | None = None
    clock = asyncio.timeout(limits.deadline)
    try:
        async with clock:
            table = _Table(world, (task.id, attempt), clock)
            await _play(env, task, policy, dialect, limits, shots, derived_seed(seed, *table.key), table, record)
        score = env.score()
        if not isinstance(score, Score):
            raise TypeError(f"expected a Score from {env.name}.score(), got {type(score).__name__}; correct the env")
        if time.perf_counter() - started - record.waited > limits.deadline:
            raise DeadlineError
        stop = record.stop or StopReason.ERROR
        kind = OutcomeKind.of(stop)
    except UserError:
        raise
    except Exception as caught:  # the one boundary where a fault of env or backend becomes an outcome
        late = clock.expired() or isinstance(caught, DeadlineError)  # a TimeoutError may also be a backend's own
        kind, stop = OutcomeKind.INFRA_FAILURE, StopReason.TIMEOUT if late else StopReason.ERROR
        error = f"deadline of {limits.deadline:g} s passed" if late else _describe(caught)
    finally:
        _close(env)
    total = time.perf_counter() - started - record.waited
    return Episode(
        task=task.model_dump(mode="json"),
        attempt=attempt,
        policy=policy.name,
        dialect=dialect.name,
        transcript=tuple(record.turns),
        events=tuple(record.events),
        score=score if kind is not OutcomeKind.INFRA_FAILURE else None,
        outcome=Outcome(kind=kind, stop=stop, error=error),
        tokens=_count(record),
        seconds={"model": record.model, "framework": total - record.model, "total": total},
        posts=tuple(record.posts),
        logs=tuple(record.logs),
    )


@dataclass(frozen=True)
class _Table:
    """Where an episode sits: its world, if it has one, its place there, and the clock that stops while it waits."""

    world: World | None
    key: tuple[str, int]
    clock: asyncio.Timeout

    async def end_turn(self, env: Env[Any], record: _Record) -> Observation | None:
        """Let the env close its turn, after an exchange where it has something to post; returns what opens the next."""
        post = env.post() if self.world is not None else None
        if self.world is not None and post is not None:
            record.posts.append(post)
            self.world.draft(self.key, [asdict(sample) for sample in record.said])
            env.receive(await self._exchange(self.world, post, record))
        step = env.close_turn()
        if step is None:
            return None
        record.stop = step.ended
        return step.observation

    async def _exchange(self, world: World, post: Post, record: _Record) -> Mapping[str, Post]:
        now = asyncio.get_running_loop().time
        due, before = self.clock.when(), now()
        self.clock.reschedule(None)
        posts = await world.exchange(self.key, post)
        waited = now() - before
        self.clock.reschedule(None if due is None else due + waited)
        record.waited += waited
        return posts


async def _play(
    env: Env[Any],
    task: Task,
    policy: Policy,
    dialect: Dialect,
    limits: Limits,
    shots: int,
    seed: int,
    table: _Table,
    record: _Record,
) -> None:
    await policy.prepare()
    first, prompt = dialect.open(env, task, shots, native=policy.native_tools)
    record.turns.extend(Turn(source="prompt", role=message.role, text=message.content) for message in prompt.messages)
    dialogue = record.dialogue = policy.open(prompt, seed=seed, play=Play(env, dialect, table.key[1]))
    drafted = [] if table.world is None or not dialect.fresh else table.world.drafted(table.key)
    for turn in range(limits.max_turns):
        if turn < len(drafted):
            again = Sample(**drafted[turn])
            dialogue.recall(again)
            record.heard(again)
            text, finish = again.text, again.finish
        else:
            choices = [dialect.write(action) for action in env.choices()]
            text, finish = await _speak(dialogue, dialect, first.text, choices, record)
        if finish == "length":
            actions = dialect.cut(text)
        else:
            actions = dialect.parse(text, may_begin_inside_thinking=dialogue.may_begin_inside_thinking)
        replies = _act(env, actions, record)
        if finish == "length" and not dialect.fresh:
            record.stop = StopReason.MAX_TOKENS
        opening = await table.end_turn(env, record) if record.stop is None else None
        if record.stop is not None:
            return
        injection = dialect.answer(env, replies, opening, turn_ended=finish == "eos", first=prompt)
        dialogue.inject(injection)
        record.injected(injection)
    record.stop = StopReason.MAX_TURNS


_MOST_STRETCHES = 16
"""A turn that runs into stop strings inside an open block more often than this is read as it stands."""


async def _speak(
    dialogue: Dialogue, dialect: Dialect, seen: str, choices: Sequence[str], record: _Record
) -> tuple[str, Finish]:
    """One turn of the policy. Sampling goes on when the stop string turns out to be data inside an action."""
    text = ""
    for _ in range(_MOST_STRETCHES):
        before = time.perf_counter()
        try:
            sample = await (dialogue.choose(choices, dialect.stops) if choices else dialogue.sample(dialect.stops))
        finally:
            record.model += time.perf_counter() - before
        record.heard(sample)
        text += sample.text
        if sample.finish != "stop" or not dialect.is_open(text, seen):
            break
    return text, sample.finish


def _act(env: Env[Any], actions: Sequence[Action | Malformed], record: _Record) -> list[Reply]:
    """Apply the actions of one turn in order until the env ends the episode."""
    replies: list[Reply] = []
    for action in actions:
        step = env.step(action)
        replies.append((action, step.observation))
        name = "malformed" if isinstance(action, Malformed) else action.name()
        record.events.append(
            Event(
                action=name,
                arguments=action.model_dump(mode="json"),
                observation=step.observation.text,
                is_error=step.observation.is_error,
            )
        )
        record.stop = step.ended
        if record.stop is not None:
            break
    return replies


def _count(record: _Record) -> Tokens:
    logs = record.logs
    if not logs:
        return Tokens(sampled=record.sampled)
    prompt, injected = (sum(log.count(source) for log in logs) for source in ("prompt", "injected"))
    return Tokens(prompt=prompt, sampled=record.sampled, injected=injected)


def _describe(error: Exception) -> str:
    said = str(error) if isinstance(error, InfraError) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())


def _close(env: Env[Any]) -> None:
    """Close the env; what it breaks by that comes after the episode and cannot change it."""
    try:
        env.close()
    except Exception:
        logger.warning("closing the environment %s failed", env.name, exc_info=True)


async def rollout_with_retries(
    make_env: Callable[[], Env[Any]],
    job: Job,
    policy: Policy,
    *,
    dialect: Dialect | None = None,
    limits: Limits = Limits(),
    shots: int = 0,
    seed: int = 0,
    world: World | None = None,
) -> Episode:
    """`rollout`, repeated in a fresh env after an infrastructure failure; the first error is kept in the outcome."""
    first_error: str | None = None
    for retries in range(limits.retries + 1):
        episode = await rollout(
            make_env(),
            job.task,
            policy,
            dialect=dialect,
            limits=limits,
            shots=shots,
            seed=seed,
            attempt=job.attempt,
            world=world,
        )
        first_error = first_error or episode.outcome.error
        if episode.is_sample or retries == limits.retries:
            break
        await asyncio.sleep(min(2.0, 0.2 * 2**retries))
    outcome = episode.outcome.model_copy(update={"retries": retries, "error": first_error})
    return episode.model_copy(update={"outcome": outcome}) if retries else episode


async def rollouts(
    make_env: Callable[[], Env[Any]],
    jobs: Iterable[Job],
    policy: Policy,
    *,
    dialect: Dialect | None = None,
    limits: Limits = Limits(),
    shots: int = 0,
    seed: int = 0,
    concurrency: int = 8,
    world: World | None = None,
) -> AsyncGenerator[Episode, None]:
    """Play many episodes, at most `concurrency` at once, and yield each as it finishes (in any order).

    Jobs are drawn lazily; those of a `world` all begin, and its slots say how many run at once. Closing the iterator
    cancels what is still running.
    """
    waiting = iter(jobs)
    running: set[asyncio.Task[Episode]] = set()

    async def play(job: Job) -> Episode:
        async with world.member((job.task.id, job.attempt)) if world is not None else nullcontext():
            return await rollout_with_retries(
                make_env, job, policy, dialect=dialect, limits=limits, shots=shots, seed=seed, world=world
            )

    def start() -> bool:
        job = next(waiting, None)
        if job is None:
            return False
        running.add(asyncio.create_task(play(job)))
        return True

    try:
        while (world is not None or len(running) < concurrency) and start():
            pass
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                start()
                yield finished.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


__all__ = ["Job", "Limits", "derived_seed", "rollout", "rollout_with_retries", "rollouts"]
