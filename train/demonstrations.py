"""Demonstrations for supervised fine-tuning, and the token rows they become.

A demonstration is an episode as text with its origin: what the prompt, the policy and the environment wrote. Its rows
are made by `TokenDialogue`, the token record of evaluation and reinforcement learning, so that a row starts with the
very tokens a policy will be shown, and learns exactly what stands in the record as sampled.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agl.core import Env, Observation, OutcomeKind, Task
from agl.dialects.dialect import Dialect
from agl.errors import DataError, UserError
from agl.messages import Injection, Message, Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.policy import Finish, Sampling
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue
from agl.run_folder import EPISODES
from agl.tokens import Row
from agl.trace import Episode, Turn, read_episodes
from envs.grit.items import GritTask
from envs.grit.traces import Trace, expert_trace

IGNORED = -100
"""Label of a token that is not learned."""


@dataclass(frozen=True)
class Demonstration:
    """One episode to imitate. `task` is None where the record does not hold it."""

    id: str
    dialect: str
    turns: tuple[Turn, ...]
    task: Task | None = None


def of_episode(episode: Episode, task_type: type[Task]) -> Demonstration:
    """The demonstration that a recorded episode is.

    Raises:
        DataError: the task is not one of `task_type`.
    """
    try:
        task = task_type.model_validate(episode.task)
    except ValidationError as error:
        raise DataError(
            f"expected a {task_type.__name__} in the episode of {episode.task['id']}, got {_first_fault(error)}; "
            "name the environment that the run was made with"
        ) from None
    return Demonstration(episode.task["id"], episode.dialect, episode.transcript, task)


def of_trace(trace: Trace, stops: Sequence[str], task: Task | None = None) -> Demonstration:
    """The demonstration that an expert trace is; text that ends in none of `stops` ended its turn by itself."""
    turns = [Turn(source="prompt", role=message.role, text=message.content) for message in trace.prompt]
    for segment in trace.segments:
        finish: Finish | None = None
        if segment.source == "sampled":
            finish = "stop" if segment.text.endswith(tuple(stops)) else "eos"
        turns.append(Turn(source=segment.source, role=segment.role, text=segment.text, finish=finish))
    return Demonstration(trace.id, trace.dialect, tuple(turns), task)


def expert(
    tasks: Iterable[GritTask], dialect: Dialect, *, max_nodes: int | None, limit: int | None, shots: int
) -> Iterator[Demonstration]:
    """Expert traces of the tasks with at most `max_nodes` nodes, in order, at most `limit`."""
    small = (task for task in tasks if max_nodes is None or task.n <= max_nodes)
    for task in itertools.islice(small, limit):
        yield of_trace(expert_trace(task, dialect=dialect.name, shots=shots), dialect.stops, task)


def read(path: Path, env: Env[Any], dialect: Dialect, *, min_score: float) -> Iterator[Demonstration]:
    """Demonstrations of a file of `agl grit traces`, of a run folder, or of its episodes.

    Of a run come the episodes that ended by themselves, without a malformed action, at a score of `min_score` or more.

    Raises:
        DataError: no such file, or a line that is neither.
    """
    file = path / EPISODES if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"expected a file of traces or the folder of a run, got {path}, which holds neither")
    with file.open(encoding="utf-8") as lines:
        first = lines.readline()
    try:
        is_trace = "segments" in json.loads(first)
    except (ValueError, TypeError):
        raise DataError(f"expected JSON lines in {file}, got {first[:60]!r}; give what agl grit traces wrote") from None
    if is_trace:
        yield from _read_traces(file, dialect)
        return
    for episode in read_episodes(file):
        score = episode.score
        flawed = any(event.action == "malformed" for event in episode.events)
        if score is not None and score.total >= min_score and episode.outcome.kind is OutcomeKind.OK and not flawed:
            yield of_episode(episode, env.task_type)


def _read_traces(file: Path, dialect: Dialect) -> Iterator[Demonstration]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield of_trace(Trace.model_validate_json(line), dialect.stops)
            except ValidationError as error:
                raise DataError(
                    f"expected a trace in {file}, line {number}, got {_first_fault(error)}; "
                    "write the file anew with agl grit traces"
                ) from None


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{first['msg'].lower()} at {'.'.join(map(str, first['loc'])) or 'its start'}"


def check_prompt(shown: Demonstration, env: Env[Any], dialect: Dialect, shots: int) -> None:
    """Refuse a demonstration whose prompt is not the one evaluation and reinforcement learning show, byte for byte.

    Without its task the worked examples cannot be made again; then instructions and question alone are compared.

    Raises:
        UserError: names the first difference.
    """
    if shown.dialect != dialect.name:
        raise UserError(
            f"{shown.id} is written in the dialect {shown.dialect}, but option dialect asks for {dialect.name}; "
            f"set dialect: {shown.dialect}, or make the traces anew"
        )
    prompt = [(turn.role, turn.text) for turn in itertools.takewhile(_is_prompt, shown.turns)]
    if not prompt:
        raise UserError(f"expected a prompt at the start of {shown.id}, got none; make the traces anew")
    if shown.task is not None:
        _, made = dialect.open(env, shown.task, shots)
    else:
        made = dialect.prompt(env, Observation(text=prompt[-1][1]))
    wanted = [(message.role, message.content) for message in made.messages]
    seen = prompt
    if shown.task is None and shots:
        seen = [prompt[0], prompt[-1]] if len(prompt) > len(wanted) else prompt[:1]
    if len(seen) != len(wanted):
        raise UserError(
            f"the prompt of {shown.id} has {len(prompt)} messages where training and evaluation show {len(wanted)} "
            f"(shots: {shots}); set shots as they were made with, or make the traces anew"
        )
    for (role, text), (wanted_role, wanted_text) in zip(seen, wanted, strict=True):
        if (role, text) != (wanted_role, wanted_text):
            place = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text, wanted_text)))  # noqa: B905
            raise UserError(
                f"the {wanted_role} message of {shown.id} differs from what training and evaluation show at character "
                f"{place}: {text[place : place + 40]!r} against {wanted_text[place : place + 40]!r}; make the traces "
                "anew, or set environment_options as they were made with"
            )


def _is_prompt(turn: Turn) -> bool:
    return turn.source == "prompt"


def _origin(turn: Turn) -> tuple[str, bool]:
    """Who produced a turn, and whether it goes on in the turn of the assistant without being its own."""
    return turn.source, turn.source == "injected" and turn.role == "assistant"


def token_rows(shown: Demonstration, template: ChatTemplate) -> list[Row]:
    """The rows of a demonstration: one, or one per context where it rebuilt its context.

    Raises:
        DataError: it does not begin with a prompt.
    """
    return asyncio.run(_token_rows(shown, template))


async def _token_rows(shown: Demonstration, template: ChatTemplate) -> list[Row]:
    closing = template.turn((Message(role="user", content="a"),), None)[0]
    said: list[Turn] = []

    async def recorded(request: Request) -> Generated:
        turn = said.pop()
        ids = template.encode(turn.text)
        if turn.finish == "eos":
            ids = [*ids, closing]
        return Generated(ids, None, turn.finish or "stop", turn.text)

    dialogue: TokenDialogue | None = None
    for (source, continues), stretch in itertools.groupby(shown.turns, _origin):
        turns = list(stretch)
        messages = tuple(Message.model_validate({"role": turn.role, "content": turn.text}) for turn in turns)
        if source == "prompt" and dialogue is None:
            budget = Sampling(max_tokens=1 << 30)
            dialogue = TokenDialogue(
                Prompt(messages=messages), LocalEncoder(template), recorded, budget, model_context=None, seed=0
            )
        elif dialogue is None:
            raise DataError(f"expected a prompt at the start of {shown.id}, got {source} text; make the traces anew")
        elif source == "prompt":
            dialogue.inject(Injection(kind="fresh", messages=messages))
        elif continues:
            for turn in turns:
                dialogue.inject(Injection(kind="continue", text=turn.text))
        elif source == "injected":
            dialogue.inject(Injection(kind="turn", messages=messages))
        else:
            for turn in turns:
                said.append(turn)
                await dialogue.sample(())
    return [log.row() for log in dialogue.logs] if dialogue is not None else []


def labelled(row: Row) -> dict[str, list[int]]:
    """A row as SFTTrainer takes it: all ids, and labels that ignore whatever was not sampled."""
    learned = [token if mask else IGNORED for token, mask in zip(row.completion_ids, row.mask, strict=True)]
    return {"input_ids": [*row.prompt_ids, *row.completion_ids], "labels": [IGNORED] * len(row.prompt_ids) + learned}


def digest(rows: Sequence[Row]) -> str:
    """SHA-256 over ids and masks of all rows, in order."""
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps([row.prompt_ids, row.completion_ids, row.mask]).encode())
    return found.hexdigest()
