"""What a report is made of: the episodes of a run in brief, their transcripts compressed, and the log of a training."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from agl.core import Env, Task
from agl.errors import DataError
from agl.graphs.naming import natural_key
from agl.json_text import dumps
from agl.registry import ENVS, env_class
from agl.run_folder import CONFIG, EPISODES, SUMMARY, read_object
from agl.trace import Episode, read_episodes
from eval.report.views import EnvView, view_of
from eval.summary import Summary, summarise

_CHUNK_CHARACTERS = 400_000
_STEP_FILE = re.compile(r"(?P<step>\d+)-(?P<draw>\d+)-rank\d+")


@dataclass(frozen=True)
class Row:
    """One episode in brief. `score` and `reward` are None where the machinery failed. `chunk` and `place` say where the
    rest is; episodes with one `group` are attempts at one task that belong side by side."""

    id: str
    attempt: int
    policy: str
    step: int | None
    group: str
    cluster: str
    score: float | None
    reward: float | None
    outcome: str
    stop: str
    parts: Mapping[str, float]
    labels: Mapping[str, str]
    facets: Mapping[str, str]
    actions: tuple[str, ...]
    """Names of the actions in order; what could not be read is `malformed`."""
    mistakes: tuple[str, ...]
    """`action: code` of every action that was answered by an error."""
    written: str | None
    turns: int
    tokens: int
    seconds: float
    chunk: int
    place: int


@dataclass(frozen=True)
class Player:
    """A policy of the report with the folder, config and summary of its run."""

    name: str
    folder: Path
    config: dict[str, Any]
    summary: Summary | None


@dataclass
class Records:
    """All that a report needs. `chunks` are gzipped JSON arrays of episodes; `history` is the log of a trainer, one
    mapping per logged step, empty for an evaluation."""

    folder: Path
    kind: Literal["evaluation", "training"]
    env: str
    rows: list[Row] = field(default_factory=list)
    players: list[Player] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)


def read(folder: Path) -> Records:
    """Everything recorded in `folder`: a run of `agl eval`, a folder of such runs (several policies), or the output
    folder of a training with its `episodes`.

    Of several records of one episode the last sample counts, else the last failure, as in the run itself.

    Raises:
        DataError: nothing of the kind is there, or a record cannot be read.
    """
    if not folder.is_dir():
        fault = "is no folder" if folder.exists() else "does not exist"
        raise DataError(f"expected a run folder, got {folder}, which {fault}; check the path")
    # The output folder of a training holds a model, whose config.json is none of ours.
    if steps := sorted((folder / "episodes").glob("*.jsonl")):
        return _training(folder, steps)
    if (folder / CONFIG).is_file():
        return _evaluation(folder, [folder])
    inner = sorted((found.parent for found in folder.glob(f"*/{CONFIG}")), key=lambda path: natural_key(path.name))
    if inner:
        return _evaluation(folder, inner)
    raise DataError(
        f"expected a run of agl eval or the output folder of a training in {folder}, got neither {CONFIG} nor "
        "episodes/*.jsonl; check the path, and train with save_episodes: true"
    )


def _evaluation(folder: Path, runs: Sequence[Path]) -> Records:
    configs = [read_object(run / CONFIG) for run in runs]
    envs = {str(config.get("env")) for config in configs}
    if len(envs) > 1:
        raise DataError(
            f"expected runs of one environment in {folder}, got {', '.join(sorted(envs))}; report one run at a time"
        )
    records = Records(folder, "evaluation", envs.pop())
    reader = _Reader(records)
    for run, config in zip(runs, configs, strict=True):
        name = str(config.get("policy"))
        reader.start(name)
        for episode in read_episodes(run / EPISODES):
            reader.add(episode)
        records.players.append(Player(name, run, config, reader.summary(run / SUMMARY, int(config.get("attempts", 1)))))
    reader.finish()
    return records


def _training(folder: Path, files: Sequence[Path]) -> Records:
    first = next((episode for file in files for episode in read_episodes(file)), None)
    if first is None:
        raise DataError(f"expected episodes in {folder / 'episodes'}, got empty files; train with save_episodes: true")
    records = Records(folder, "training", str(first.task.get("env")), history=_history(folder))
    reader = _Reader(records)
    reader.start(first.policy)
    for file in files:
        found = _STEP_FILE.fullmatch(file.stem)
        # Files carry the steps done before; the trainer logs the number of the step that these episodes make.
        step, draw = (int(found["step"]) + 1, int(found["draw"])) if found else (0, 0)
        for episode in read_episodes(file):
            reader.add(episode, step=step, draw=draw)
    records.players.append(Player(first.policy, folder, {}, None))
    reader.finish()
    return records


def _history(folder: Path) -> list[dict[str, float]]:
    """What the trainer logged, from the newest checkpoint."""
    states = [*folder.glob("checkpoint-*/trainer_state.json"), *folder.glob("trainer_state.json")]
    logs = [read_object(state).get("log_history", []) for state in states]
    longest: list[dict[str, Any]] = max(logs, key=len, default=[])
    numbers = [
        {name: float(value) for name, value in entry.items() if isinstance(value, int | float)} for entry in longest
    ]
    return [entry for entry in numbers if "step" in entry]


class _Reader:
    """Takes episodes one at a time, so that a long run never lies in memory as a whole."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._env: type[Env[Any]] | None = env_class(records.env) if records.env in ENVS else None
        self._view: EnvView = view_of(records.env)
        self._pending: list[str] = []
        self._size = 0
        self._policy = ""
        self._kept: dict[tuple[str, int, int, str, int], Row] = {}
        self._slim: dict[tuple[str, int], Episode] = {}
        self._tasks: dict[str, Task] = {}

    def start(self, policy: str) -> None:
        self._policy = policy
        self._slim.clear()

    def add(self, episode: Episode, *, step: int | None = None, draw: int = 0) -> None:
        key = (self._policy, -1 if step is None else step, draw, *episode.key)
        known = self._kept.get(key)
        if known is not None and known.score is not None and not episode.is_sample:
            return
        self._kept.pop(key, None)
        task = self._task(episode)
        look = self._view.look(task, episode)
        row = Row(
            id=episode.key[0],
            attempt=episode.attempt,
            policy=self._policy,
            step=step,
            group=episode.key[0] if step is None else f"{step}-{draw} {episode.key[0]}",
            cluster=self._env.cluster(task) if self._env and task else episode.key[0],
            score=episode.score.total if episode.score else None,
            reward=episode.score.reward if episode.score else None,
            outcome=episode.outcome.kind.value,
            stop=episode.outcome.stop.value,
            parts={n: float(v) for n, v in episode.score.parts.items() if v is not None} if episode.score else {},
            labels=dict(episode.score.labels) if episode.score else {},
            facets=self._facets(task),
            actions=tuple(event.action for event in episode.events),
            mistakes=tuple(_mistakes(episode)),
            written=look.written,
            turns=sum(turn.source == "sampled" for turn in episode.transcript),
            tokens=episode.tokens.sampled,
            seconds=episode.seconds.get("total", 0.0),
            chunk=len(self._records.chunks),
            place=len(self._pending),
        )
        self._kept[key] = row
        if step is None:
            slim = {"transcript": (), "events": (), "task": {"id": episode.task["id"]}}
            self._slim[episode.key] = episode.model_copy(update=slim)
        self._keep(dumps({**episode.model_dump(mode="json"), **look.as_json()}))

    def _keep(self, text: str) -> None:
        self._pending.append(text)
        self._size += len(text)
        if self._size >= _CHUNK_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            text = f"[{','.join(self._pending)}]"
            self._records.chunks.append(gzip.compress(text.encode("utf-8"), 6, mtime=0))
            self._pending, self._size = [], 0

    def _task(self, episode: Episode) -> Task | None:
        if self._env is None:
            return None
        known = self._tasks.get(episode.key[0])
        if known is None:
            try:
                known = self._env.task_type.model_validate(episode.task)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                raise DataError(
                    f"expected tasks of {self._records.env}, got {episode.key[0]!r} with "
                    f"{'.'.join(map(str, first['loc']))}: {first['msg']}; use the version of agl that made the run"
                ) from None
            self._tasks[episode.key[0]] = known
        return known

    def _facets(self, task: Task | None) -> dict[str, str]:
        if self._env is None or task is None:
            return {}
        return {**self._env.facets(task), **self._view.facets(task)}

    def summary(self, path: Path, attempts: int) -> Summary | None:
        """The summary that the run wrote, or one made now if that is missing or of fewer episodes."""
        if path.is_file():
            try:
                written = Summary.model_validate(read_object(path))
            except ValidationError:
                written = None
            if written is not None and written.n + written.outcomes.infra_failure == len(self._slim):
                return written
        if self._env is None:
            return None
        return summarise(self._env, self._policy, self._tasks, list(self._slim.values()), attempts)

    def finish(self) -> None:
        self._flush()
        self._records.rows = list(self._kept.values())


def _mistakes(episode: Episode) -> Iterator[str]:
    for event in episode.events:
        if event.action == "malformed":
            yield f"malformed: {event.arguments.get('reason')}"
        elif event.is_error:
            code = re.match(r"Error \((\w+)\)", event.observation)
            yield f"{event.action}: {code[1] if code else 'error'}"


def index(records: Records) -> dict[str, Any]:
    """The list of episodes by column, as the page reads it; texts that repeat are stored once."""
    rows = records.rows
    columns: dict[str, Any] = {
        "id": [row.id for row in rows],
        "attempt": [row.attempt for row in rows],
        "group": _coded([row.group for row in rows]),
        "score": [_short(row.score) for row in rows],
        "reward": [_short(row.reward) for row in rows],
        "turns": [row.turns for row in rows],
        "tokens": [row.tokens for row in rows],
        "seconds": [_short(row.seconds) for row in rows],
        "chunk": [row.chunk for row in rows],
        "place": [row.place for row in rows],
    }
    if records.kind == "training":
        columns["step"] = [row.step for row in rows]
    texts: dict[str, list[str | None]] = {
        "policy": [row.policy for row in rows],
        "outcome": [row.outcome for row in rows],
        "stop": [row.stop for row in rows],
    }
    for kind, found in (("facet", [row.facets for row in rows]), ("label", [row.labels for row in rows])):
        for name in dict.fromkeys(name for each in found for name in each):
            texts[f"{kind}:{name}"] = [each.get(name) for each in found]
    parts = sorted({name for row in rows for name in row.parts})
    return {
        "folder": records.folder.name,
        "kind": records.kind,
        "env": records.env,
        "columns": columns,
        "texts": {name: _coded(values) for name, values in texts.items()},
        "parts": {name: [_short(row.parts.get(name)) for row in rows] for name in parts},
    }


def _coded(values: Sequence[str | None]) -> dict[str, Any]:
    places: dict[str, int] = {}
    codes = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "codes": codes}


def _short(value: float | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


def embedded(value: object) -> str:
    """JSON that may stand inside a `<script>` element of any type: nothing in it can end the element or a line."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
