"""A recorded run as an object: `agl.Run(folder)` opens what `agl eval` or `agl.evaluate` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from pydantic import ValidationError

from agl.core import Env
from agl.errors import DataError, UserError
from agl.registry import ENVS, env_class
from agl.run_folder import EPISODES, SUMMARY, TRAINING, read_object
from agl.trace import Episode, counted_episodes
from eval.compare import run_config
from eval.frame import frame
from eval.show import find
from eval.summary import Summary
from eval.tables import cell, notes
from eval.visible import visible


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
            cure = "evaluate its checkpoints" if self._is_training else "evaluate it again with resume=True"
            raise DataError(f"expected a finished run in {self.path}, got one without {SUMMARY}; {cure}")
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

    @property
    def _is_training(self) -> bool:
        return (self.path / TRAINING).is_file()

    def episodes(self) -> Iterator[Episode]:
        """Every episode in file order, one in memory at a time; of several records of one the last sample counts.

        Raises:
            DataError: a record cannot be read, or the records of a finished run are gone.
        """
        file = self.path / EPISODES
        if file.is_file() or self._is_finished:
            yield from counted_episodes(file)

    def episode(self, task_id: str, attempt: int | None = None) -> Episode:
        """The episode of one task; None is the first attempt.

        Raises:
            UserError: `task_id` is no text.
            DataError: there is no such episode; the nearest ids are named.
        """
        if not isinstance(task_id, str):
            raise UserError(f"expected the id of a task as text, got {task_id!r}; take one of run.to_pandas()['id']")
        return find(self.path, task_id, attempt)[0]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per episode, in file order; `eval.frame` names the columns.

        Raises:
            UserError: pandas is not installed.
            DataError: a record cannot be read.
        """
        return frame(self.episodes(), _known_env(self.config.get("env")))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}): {self._title}"

    @property
    def _title(self) -> str:
        return visible(f"{self.config.get('env')}, {self.config.get('policy')}: {self._found}")

    @property
    def _found(self) -> str:
        try:
            return f"score {cell(self.summary.metrics.get('score'))}, n {self.summary.n:,}"
        except DataError:  # to show a run is no place to fail; `summary` says why
            if self._is_training:
                return "a training run"
            return "no summary that can be read" if self._is_finished else "not finished"

    def _repr_html_(self) -> str:
        """The summary as an HTML table: everything, then each group, with a bar and a 95 % interval for the score."""
        where = visible(f"run folder: {self.path}")
        try:
            summary = self.summary
        except DataError as error:
            return _HTML.render(title=self._title, names=(), rows=(), lines=(visible(str(error)), where))
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
        env = _known_env(self.summary.env)
        added = [name for name in self.summary.metrics if name.startswith(("pass@", "pass^", "macro_f1"))]
        return list(dict.fromkeys(["score", "reward", *(env.metrics if env else ()), *added]))


def _known_env(name: object) -> type[Env[Any]] | None:
    return env_class(name) if isinstance(name, str) and name in ENVS else None


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
