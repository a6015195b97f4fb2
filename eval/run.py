"""Runs in Python: `agl.evaluate(...)` plays one and returns it as a `Run`, `agl.Run(folder)` opens a recorded one."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import jinja2
from pydantic import ValidationError

from agl.core import Env
from agl.errors import DataError, UserError
from agl.explain import explained
from agl.messages import Prompt
from agl.policies.build import build_policy
from agl.policies.policy import Dialogue, Play, Policy, Sampling
from agl.registry import ENVS, env_class
from agl.rollout import Limits
from agl.run_folder import EPISODES, SUMMARY, folder_name, read_object
from agl.trace import Episode, read_episodes
from eval.commands import check_policies
from eval.compare import run_config
from eval.runner import Progress, plan
from eval.runner import run as play
from eval.show import find
from eval.summary import Summary
from eval.tables import cell, notes
from eval.visible import visible

DEFAULT_LIMITS = Limits()
DEFAULT_SAMPLING = Sampling()


class Run:
    """A recorded run; nothing is read before it is asked for, and an interrupted run can be read too.

    Args:
        folder: what `agl eval --out` wrote.

    Raises:
        DataError: there is no run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self.config: dict[str, Any] = run_config(self.path)

    @cached_property
    def summary(self) -> Summary:
        """What the run came to: metrics with intervals, outcomes, tokens, seconds, and the same by group.

        Raises:
            DataError: the run is not finished, or its summary cannot be read.
        """
        if not self._is_finished:
            raise DataError(
                f"expected a finished run in {self.path}, got one without {SUMMARY}; evaluate it again with resume=True"
            )
        try:
            return Summary.model_validate(read_object(self.path / SUMMARY))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise DataError(
                f"expected a summary in {self.path / SUMMARY}, got {'.'.join(map(str, first['loc']))}: {first['msg']}; "
                "use the version of agl that made the run"
            ) from None

    @property
    def _is_finished(self) -> bool:
        return (self.path / SUMMARY).is_file()

    def episodes(self) -> Iterator[Episode]:
        """Every episode in file order, one in memory at a time; of several records of one the last sample counts.

        Raises:
            DataError: a record cannot be read.
        """
        file = self.path / EPISODES
        if not file.is_file():
            return
        places: dict[tuple[str, int], tuple[int, bool]] = {}
        for place, episode in enumerate(read_episodes(file)):
            if episode.is_sample or not places.get(episode.key, (0, False))[1]:
                places[episode.key] = place, episode.is_sample
        chosen = {place for place, _ in places.values()}
        yield from (episode for place, episode in enumerate(read_episodes(file)) if place in chosen)

    def episode(self, task_id: str, attempt: int | None = None) -> Episode:
        """The episode of one task; None is the first attempt.

        Raises:
            DataError: there is no such episode; the nearest ids are named.
        """
        return find(self.path, task_id, attempt)[0]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per episode, in file order.

        Columns: `id`, `attempt`, `score` and `reward` (NaN where the machinery failed), `outcome`, `stop`, `error`,
        `retries`, `turns`, `actions`, tokens and seconds, then `facets.*`, `parts.*` and `labels.*` as the environment
        has them.

        Raises:
            UserError: pandas is not installed.
            DataError: a record cannot be read.
        """
        try:
            pandas: Any = import_module("pandas")
        except ImportError:
            raise UserError("to_pandas() needs pandas, which is not installed: pip install pandas") from None
        env = env_class(self.config["env"]) if self.config.get("env") in ENVS else None
        rows = [_row(episode, env) for episode in self.episodes()]
        extra = dict.fromkeys(name for row in rows for name in row if "." in name)
        order = {kind: place for place, kind in enumerate(("facets", "parts", "labels"))}
        names = [*_COLUMNS, *sorted(extra, key=lambda name: order[name.partition(".")[0]])]
        return pandas.DataFrame(rows, columns=names)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}): {self._title}"

    @property
    def _title(self) -> str:
        found = "not finished; evaluate it again with resume=True"
        if self._is_finished:
            found = f"score {cell(self.summary.metrics.get('score'))}, n {self.summary.n:,}"
        return visible(f"{self.config.get('env')}, {self.config.get('policy')}: {found}")

    def _repr_html_(self) -> str:
        """The summary as an HTML table: everything, then each group, with a bar and a 95 % interval for the score."""
        where = visible(f"run folder: {self.path}")
        if not self._is_finished:
            return _HTML.render(title=self._title, names=(), rows=(), lines=(where,))
        summary = self.summary
        names = [name for name in self._metrics() if name in summary.metrics]
        rows = [("all", summary.n, summary.metrics)]
        for facet, groups in summary.groups.items():
            rows += [(f"{facet} = {visible(value)}", group.n, group.metrics) for value, group in groups.items()]
        return _HTML.render(
            title=self._title,
            names=names,
            rows=[
                {
                    "group": group,
                    "n": f"{n:,}",
                    "bar": metrics["score"].value if "score" in metrics else None,
                    "cells": [cell(metrics.get(name), with_interval=name == "score") for name in names],
                }
                for group, n, metrics in rows
            ],
            lines=[*map(visible, notes(summary)), where],
        )

    def _metrics(self) -> list[str]:
        """What the table shows: score, reward, the env's own, and what the evaluation adds."""
        env = env_class(self.summary.env) if self.summary.env in ENVS else None
        added = [name for name in self.summary.metrics if name.startswith(("pass@", "pass^", "macro_f1"))]
        return list(dict.fromkeys(["score", "reward", *(env.metrics if env else ()), *added]))


_COLUMNS = (
    *("id", "attempt", "score", "reward", "outcome", "stop", "error", "retries", "turns", "actions"),
    *("tokens_prompt", "tokens_sampled", "tokens_injected", "seconds", "seconds_model"),
)


def _row(episode: Episode, env: type[Env[Any]] | None) -> dict[str, Any]:
    score, outcome, tokens = episode.score, episode.outcome, episode.tokens
    row: dict[str, Any] = {
        "id": episode.key[0],
        "attempt": episode.attempt,
        "score": score.total if score is not None else None,
        "reward": score.reward if score is not None else None,
        "outcome": outcome.kind.value,
        "stop": outcome.stop.value,
        "error": outcome.error,
        "retries": outcome.retries,
        "turns": sum(turn.source == "sampled" for turn in episode.transcript),
        "actions": len(episode.events),
        "tokens_prompt": tokens.prompt,
        "tokens_sampled": tokens.sampled,
        "tokens_injected": tokens.injected,
        "seconds": episode.seconds.get("total"),
        "seconds_model": episode.seconds.get("model"),
    }
    if env is not None:
        try:
            facets = env.facets(env.task_type.model_validate(episode.task))
        except ValidationError:  # a task of another version: its facets are not known, all else is
            facets = {}
        row |= {f"facets.{name}": value for name, value in facets.items()}
    if score is not None:
        row |= {f"parts.{name}": value for name, value in sorted(score.parts.items())}
        row |= {f"labels.{name}": value for name, value in sorted(score.labels.items())}
    return row


_HTML = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True).from_string(
    """<div><strong>{{ title }}</strong>
{% if rows %}
<table><thead><tr><th style="text-align:left">group</th><th>n</th><th></th>
{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr><td style="text-align:left">{{ row.group }}</td><td>{{ row.n }}</td>
<td>{% if row.bar is not none %}<meter min="0" max="1" value="{{ row.bar }}"></meter>{% endif %}</td>
{% for text in row.cells %}<td>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table>
{% endif %}
<small>{% for line in lines %}{{ line }}<br>{% endfor %}</small></div>"""
)


def evaluate(
    env: str,
    policy: str | Policy,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    attempts: int = 1,
    seed: int = 0,
    dialect: str | None = None,
    concurrency: int = 8,
    shots: int = 0,
    sampling: Sampling = DEFAULT_SAMPLING,
    limits: Limits = DEFAULT_LIMITS,
    env_options: Mapping[str, Any] | None = None,
    policy_options: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Run:
    """Evaluate a policy on an environment, as `agl eval` does; nothing is trained. Works in notebooks too.

    Args:
        env: a name that `agl envs` lists.
        policy: what `--policy` takes, such as `oracle`, `smollm2` or `hf:NAME`; or a policy object, which stays open
            and can be evaluated again (`sampling` is then its own).
        data: name of a split, or a file or folder of tasks; None is the env's default.
        limit: most tasks.
        attempts: episodes per task.
        seed: of generated tasks and of sampling.
        dialect: None is the paper's own.
        concurrency: most episodes at once.
        shots: worked examples in the prompt.
        sampling: temperature, most tokens per turn, and the like.
        limits: turns, deadline and retries of one episode.
        env_options: keyword arguments of the environment.
        policy_options: keyword arguments of the policy that `policy` names.
        out: run folder; None is runs/ENV-POLICY-TIME.
        resume: continue the run in `out`.
        progress: say on stderr how far it is.

    Raises:
        UserError: an argument that cannot be used; nothing was played.
        InfraError: the machinery failed; finished episodes are kept, `resume` goes on.
        KeyboardInterrupt: after all finished episodes were written.
    """
    if resume and out is None:
        raise UserError("expected out=RUN with resume=True, got none; name the run folder to continue")
    if isinstance(policy, Policy):
        sampling = getattr(policy, "sampling", sampling)
        if policy_options:
            raise UserError("expected policy_options with the name of a policy, got a policy object; leave them out")
    else:
        check_policies([policy], env_class(env).players)
    checked = plan(
        env,
        data=None if data is None else str(data),
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
    name = policy if isinstance(policy, str) else policy.name
    folder = checked.folder(name, Path(out) if out is not None else _new_folder(env, name), resume=resume)

    def make() -> Policy:
        if isinstance(policy, Policy):
            return _Lent(policy)
        return build_policy(policy, sampling, players=checked.env.players, **(policy_options or {}))

    from eval.progress import shown
    from eval.tables import console

    try:
        with shown(f"{env}, {name}", console(stderr=True)) if progress else nullcontext() as on_episode:
            _off_the_loop(lambda told: play(checked, folder, make, on_episode=told), on_episode)
    except (ImportError, MemoryError, RuntimeError) as error:
        if (said := explained(error)) is None:
            raise
        raise said from error
    return Run(folder.path)


class _Lent(Policy):
    """A policy that its owner closes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name

    @property
    def native_tools(self) -> bool:  # type: ignore[override]
        return self._policy.native_tools

    async def prepare(self) -> None:
        await self._policy.prepare()

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return self._policy.open(prompt, seed=seed, play=play)


def _new_folder(env: str, policy: str) -> Path:
    stem = f"{env}-{folder_name(policy)}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path("runs", stem if number == 1 else f"{stem}-{number}") for number in itertools.count(1))
    return next(path for path in candidates if not path.exists())


def _off_the_loop(
    run: Callable[[Callable[[Progress], None] | None], object], on_episode: Callable[[Progress], None] | None
) -> None:
    """Call `run`, which starts an event loop, in a thread of its own where one runs here already (as in a notebook).

    An interruption there reaches the main thread alone, so it cancels the run, which keeps what is finished.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run(on_episode)
        return
    playing: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
    faults: list[BaseException] = []
    stopped = threading.Event()

    def told(progress: Progress) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        task = asyncio.current_task()
        if not playing and task is not None:
            playing.append((asyncio.get_running_loop(), task))
        if on_episode is not None:
            on_episode(progress)

    def work() -> None:
        try:
            run(told)
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=work, name="agl-evaluate", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        stopped.set()
        for loop, task in playing:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if faults:
        raise faults[0]
