"""What a running evaluation shows: a live bar on a terminal, now and then a line elsewhere. All on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from eval.runner import Progress

_SECONDS_BETWEEN_LINES = 15.0
_FEWEST_FOR_ETA = 16


@contextmanager
def shown(title: str, console: Console) -> Iterator[Callable[[Progress], None]]:
    """A callback for `evaluate(on_episode=...)` that shows the run under `title`."""
    if not console.is_terminal:
        yield _Lines(title, console)
        return
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        row = bar.add_task(title, total=None, figures="getting ready")

        def update(progress: Progress) -> None:
            bar.update(row, total=progress.total, completed=progress.finished, figures=_figures(progress))

        yield update


class _Lines:
    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._next = 0.0
        self._start: float | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if self._start is None:
            self._start = now
            kept = f", {progress.resumed} kept from before" if progress.resumed else ""
            self._say(f"{progress.total} episodes to play{kept}")
        elif now < self._next and progress.finished < progress.total:
            return
        elif not progress.finished:
            self._say(_figures(progress))
        else:
            left = (now - self._start) / progress.finished * (progress.total - progress.finished)
            # Episodes of one batch, or that waited for each other, finish together: the first tell nothing.
            is_known = _FEWEST_FOR_ETA <= progress.finished < progress.total and not progress.posts
            eta = f", about {left:.0f} s left" if is_known else ""
            self._say(f"{progress.finished}/{progress.total} {_figures(progress)}{eta}")
        self._next = now + _SECONDS_BETWEEN_LINES

    def _say(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", markup=False, highlight=False, soft_wrap=True)


def _figures(progress: Progress) -> str:
    score = f"score {progress.mean_score:.3f}" if progress.mean_score is not None else "score -"
    failed = f", {progress.infra_failures} infrastructure failures" if progress.infra_failures else ""
    newest = max(progress.posts, default=None)
    if newest is not None and not progress.finished:
        return f"round {newest}: {progress.posts[newest]}/{progress.total}{failed}"
    return score + failed
