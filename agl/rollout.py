"""The only agent loop: task -> env.reset -> (sample, parse, step, render)* -> score -> Episode."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agl.core import Action, Env, Malformed, Outcome, OutcomeKind, Score, StopReason, Task
from agl.dialects import dialect_for
from agl.dialects.dialect import Dialect, Reply
from agl.errors import DeadlineError, InfraError, UserError
from agl.messages import Injection
from agl.policies.policy import Dialogue, Play, Policy
from agl.tokens import TokenLog
from agl.trace import Episode, Event, Tokens, Turn

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
    sampled: int = 0
    model: float = 0.0
    dialogue: Dialogue | None = None
    stop: StopReason | None = None

    @property
    def logs(self) -> Sequence[TokenLog]:
        return self.dialogue.logs if self.dialogue is not None else ()

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
) -> Episode:
    """Play one episode; never raises for what the policy, the backend or the env does wrong.

    Args:
        shots: worked examples in the prompt.
        seed: of the whole run; the episode's own seed is derived from it, the task id and the attempt.

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
            await _play(
                env, task, policy, dialect, limits, shots, derived_seed(seed, task.id, attempt), attempt, record
            )
        score = env.score()
        if not isinstance(score, Score):
            raise TypeError(f"expected a Score from {env.name}.score(), got {type(score).__name__}; correct the env")
        if time.perf_counter() - started > limits.deadline:
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
    total = time.perf_counter() - started
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
        logs=tuple(record.logs),
    )


async def _play(
    env: Env[Any],
    task: Task,
    policy: Policy,
    dialect: Dialect,
    limits: Limits,
    shots: int,
    seed: int,
    attempt: int,
    record: _Record,
) -> None:
    await policy.prepare()
    first, prompt = dialect.open(env, task, shots, native=policy.native_tools)
    record.turns.extend(Turn(source="prompt", role=message.role, text=message.content) for message in prompt.messages)
    dialogue = record.dialogue = policy.open(prompt, seed=seed, play=Play(env, dialect, attempt))
    for _ in range(limits.max_turns):
        text, finish = await _speak(dialogue, dialect, first.text, record)
        actions: Sequence[Action | Malformed] = [_TRUNCATED]
        if finish != "length":
            actions = dialect.parse(text, may_begin_inside_thinking=dialogue.may_begin_inside_thinking)
        replies = _act(env, actions, record)
        if finish == "length":
            record.stop = StopReason.MAX_TOKENS
        if record.stop is not None:
            return
        injection = dialect.render(replies, turn_ended=finish == "eos")
        dialogue.inject(injection)
        record.injected(injection)
    record.stop = StopReason.MAX_TURNS


_MOST_STRETCHES = 16
"""A turn that runs into stop strings inside an open block more often than this is read as it stands."""

_TRUNCATED = Malformed(
    reason="truncated", message="the output was cut at the token limit before an action was complete"
)


async def _speak(dialogue: Dialogue, dialect: Dialect, seen: str, record: _Record) -> tuple[str, str]:
    """One turn of the policy. Sampling goes on when the stop string turns out to be data inside an action."""
    text = ""
    for _ in range(_MOST_STRETCHES):
        before = time.perf_counter()
        try:
            sample = await dialogue.sample(dialect.stops)
        finally:
            record.model += time.perf_counter() - before
        record.sampled += sample.tokens
        record.turns.append(Turn(source="sampled", role="assistant", text=sample.text, finish=sample.finish))
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
) -> Episode:
    """`rollout`, repeated in a fresh env after an infrastructure failure; the first error is kept in the outcome."""
    first_error: str | None = None
    for retries in range(limits.retries + 1):
        episode = await rollout(
            make_env(), job.task, policy, dialect=dialect, limits=limits, shots=shots, seed=seed, attempt=job.attempt
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
) -> AsyncGenerator[Episode, None]:
    """Play many episodes, at most `concurrency` at once, and yield each as it finishes (in any order).

    Jobs are drawn lazily. Closing the iterator cancels what is still running.
    """
    waiting = iter(jobs)
    running: set[asyncio.Task[Episode]] = set()

    def start() -> bool:
        job = next(waiting, None)
        if job is None:
            return False
        play = rollout_with_retries(make_env, job, policy, dialect=dialect, limits=limits, shots=shots, seed=seed)
        running.add(asyncio.create_task(play))
        return True

    try:
        while len(running) < concurrency and start():
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
