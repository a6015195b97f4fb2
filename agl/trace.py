"""The JSONL record of an episode: one schema for evaluation, training and replay."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from agl.core import Frozen, Outcome, OutcomeKind, Post, Score
from agl.errors import DataError
from agl.json_text import dumps
from agl.tokens import TokenLog

SCHEMA: Literal[1] = 1


class Turn(Frozen):
    """A stretch of text and who produced it. `finish` is set on sampled text only."""

    source: Literal["prompt", "sampled", "injected"]
    role: str
    text: str
    finish: Literal["stop", "eos", "length"] | None = None


class Event(Frozen):
    """One action as the env saw it, and the env's reply. Malformed text has the name `malformed`."""

    action: str
    arguments: dict[str, Any]
    observation: str
    is_error: bool


class Tokens(Frozen):
    """Token counts of an episode; None where the backend does not tell."""

    prompt: int | None = None
    sampled: int = 0
    injected: int | None = None


def _has_id(task: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(task.get("id"), str):
        raise ValueError("expected a task with an id")
    return task


class Episode(Frozen):
    """Everything that happened in one attempt at one task.

    `seconds` is the only field that differs between two runs of a deterministic policy. `logs` stays in memory: it is
    what training rows are made of and is not part of the record.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    schema_version: Literal[1] = SCHEMA
    task: Annotated[dict[str, Any], AfterValidator(_has_id)]
    attempt: int
    policy: str
    dialect: str
    transcript: tuple[Turn, ...]
    events: tuple[Event, ...]
    score: Score | None
    outcome: Outcome
    tokens: Tokens
    seconds: dict[str, float]
    """Per phase, the time spent waiting for other episodes left out."""
    posts: tuple[Post, ...] = ()
    """What this episode let the others of its run know; see `Env.post`."""
    logs: tuple[TokenLog, ...] = Field(default=(), exclude=True, repr=False)

    @property
    def key(self) -> tuple[str, int]:
        return self.task["id"], self.attempt

    @property
    def is_sample(self) -> bool:
        """False when the machinery failed: such an episode is neither scored nor trained on."""
        return self.outcome.kind is not OutcomeKind.INFRA_FAILURE

    def line(self) -> str:
        rest = self.model_dump(mode="json", exclude={"task", "events"})
        # Both are JSON already; dumping them again would take a third of the time.
        return dumps({**rest, "task": self.task, "events": [dict(event) for event in self.events]})


def read_episodes(path: Path) -> Iterator[Episode]:
    """Episodes of a JSONL file, in file order. A torn last line (a killed writer) is skipped.

    Raises:
        DataError: there is no such file, or another line cannot be read.
    """
    if not path.is_file():
        raise DataError(f"expected the episodes.jsonl of a run, got {path}, which is no file; check the path")
    for episode, _ in _records(path):
        yield episode


def counted_episodes(path: Path) -> Iterator[Episode]:
    """Of each key the last sample, else the last failure, in file order; reads the file twice, a line at a time.

    Raises:
        DataError: as `read_episodes`.
    """
    counted: dict[tuple[str, int], tuple[int, bool]] = {}
    for place, episode in enumerate(read_episodes(path)):
        if episode.is_sample or not counted.get(episode.key, (0, False))[1]:
            counted[episode.key] = place, episode.is_sample
    places = {place for place, _ in counted.values()}
    yield from (episode for place, episode in enumerate(read_episodes(path)) if place in places)


def _records(path: Path) -> Iterator[tuple[Episode, int]]:
    """Each episode with the offset of its line; one line in memory at a time."""
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield Episode.model_validate(json.loads(line)), start
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return
                    reason = str(error)
                    if isinstance(error, ValidationError):
                        first = error.errors(include_url=False)[0]
                        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
                    raise DataError(
                        f"expected an episode in {path}, line {number}, got {reason}; "
                        "give the episodes.jsonl of a run; if it is one, remove that line and use --resume"
                    ) from None
            start += len(line)


class EpisodeWriter:
    """Appends episodes so that a kill at any moment loses at most the line being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mend_torn_end()
        self._file = path.open("ab")

    def _mend_torn_end(self) -> None:
        """Drop an unfinished last line, or end one that only lacks its line break; else the next would be glued on."""
        if not self._path.exists():
            return
        start, last = 0, b""
        with self._path.open("r+b") as file:
            for line in file:
                start, last = start + len(last), line
            if not last or last.endswith(b"\n"):
                return
            try:
                json.loads(last)
            except ValueError:
                file.truncate(start)
            else:
                file.write(b"\n")

    def write(self, episode: Episode) -> None:
        self._file.write(episode.line().encode("utf-8", "replace") + b"\n")
        self._file.flush()

    def close(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rewrite_sorted(path: Path, order: dict[str, int]) -> list[Episode]:
    """Keep the last sample of each key, else its last failure, in the order (`order` of the task id, attempt); atomic.

    Concurrency decides in which order episodes finish; after this the bytes no longer show it. The episodes that are
    returned have no transcript, no events and of the task its id: those of a long run would not fit into memory.
    """
    latest: dict[tuple[str, int], tuple[Episode, int]] = {}
    for episode, start in _records(path):
        if episode.key in latest and not episode.is_sample and latest[episode.key][0].is_sample:
            continue
        slim = {"transcript": (), "events": (), "task": {"id": episode.task["id"]}}
        latest[episode.key] = episode.model_copy(update=slim), start
    kept = sorted(latest.values(), key=lambda record: (order.get(record[0].key[0], len(order)), *record[0].key))
    partial = path.with_suffix(".partial")
    with path.open("rb") as source, partial.open("wb") as file:
        for _, start in kept:
            source.seek(start)
            file.write(source.readline().rstrip(b"\n") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return [episode for episode, _ in kept]
