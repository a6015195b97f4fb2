"""The tables of the GRIT paper (arXiv 2608.27142) for a file of items, beside the published figures.

The published table of sizes comes out for the `test` split when each question's mean degree 2m / n is rounded to two
decimals before it is averaged; without that the last bucket has 16.07 and not 16.08.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

from envs.grit.items import FORMS, SCHEMES, TASKS, GritTask

if TYPE_CHECKING:
    from rich.table import Table

BUCKETS = ((4, 9), (10, 15), (16, 20), (21, 30), (31, 40), (41, 60))
COLUMNS = {"questions": 0, "nodes": 1, "edges": 1, "density": 3, "degree": 2}
"""Column -> decimals printed."""
PUBLISHED_SIZES: dict[str, tuple[float, ...]] = {
    "10-15": (536, 12.6, 34.3, 0.457, 5.33),
    "16-20": (460, 18.0, 71.9, 0.467, 7.93),
    "21-30": (920, 25.5, 146.3, 0.463, 11.33),
    "31-40": (844, 35.1, 284.6, 0.470, 16.08),
}
PUBLISHED_DENSITIES: dict[str, tuple[float, ...]] = {"low": (912, 0.310), "middle": (920, 0.359), "high": (928, 0.722)}


@dataclass(frozen=True)
class _Question:
    task: str
    form: str
    scheme: str
    split: str
    n: int
    m: int

    @property
    def density(self) -> float:
        return 2 * self.m / (self.n * (self.n - 1)) if self.n > 1 else 0.0


def describe(items: Iterable[GritTask]) -> dict[str, Any]:
    """Counts and means as JSON.

    `sizes`: bucket of node counts -> questions and means over questions of nodes, edges, density 2m / (n (n - 1)) and
    degree. `densities`: thirds of the questions by density, questions on a border counted above it, with mean density
    and the border below. `tasks`, `forms`, `schemes`: questions; `views`: task -> form-scheme -> questions.

    Raises:
        ValueError: there are no items.
    """
    asked = [_Question(item.task, item.form, item.scheme, item.split, item.n, item.m) for item in items]
    if not asked:
        raise ValueError("no items to describe")
    return {
        "questions": len(asked),
        "splits": _counts(asked, lambda question: question.split),
        "sizes": _sizes(asked),
        "densities": _densities(asked),
        "tasks": _counts(asked, lambda question: question.task, TASKS),
        "forms": _counts(asked, lambda question: question.form, FORMS),
        "schemes": _counts(asked, lambda question: question.scheme, SCHEMES),
        "views": {
            task: _counts([question for question in asked if question.task == task], _view)
            for task in _counts(asked, lambda question: question.task, TASKS)
        },
    }


def _view(question: _Question) -> str:
    return f"{question.form}-{question.scheme}"


def _counts(asked: Sequence[_Question], key: Callable[[_Question], str], known: Sequence[str] = ()) -> dict[str, int]:
    """Known values first and in their order; those that do not occur are left out."""
    counts = Counter(map(key, asked))
    return {value: counts[value] for value in [*known, *sorted(counts.keys() - set(known))] if counts[value]}


def _sizes(asked: Sequence[_Question]) -> dict[str, dict[str, float]]:
    low, high = BUCKETS[0][0], BUCKETS[-1][1]
    buckets = {f"{a}-{b}": [question for question in asked if a <= question.n <= b] for a, b in BUCKETS}
    buckets[f"under {low}"] = [question for question in asked if question.n < low]
    buckets[f"over {high}"] = [question for question in asked if question.n > high]
    return {
        name: {
            "questions": len(bucket),
            "nodes": fmean(question.n for question in bucket),
            "edges": fmean(question.m for question in bucket),
            "density": fmean(question.density for question in bucket),
            "degree": fmean(round(2 * question.m / question.n, 2) for question in bucket),
        }
        for name, bucket in buckets.items()
        if bucket
    }


def _densities(asked: Sequence[_Question]) -> dict[str, dict[str, float]]:
    densities = [question.density for question in asked]
    borders = quantiles(densities, n=3, method="inclusive") if len(densities) > 1 else []
    thirds: list[list[float]] = [[], [], []]
    for density in densities:
        thirds[bisect_right(borders, density)].append(density)
    return {
        name: {"questions": len(third), "density": fmean(third), "from": min(third)}
        for name, third in zip(PUBLISHED_DENSITIES, thirds, strict=True)
        if third
    }


def tables(described: dict[str, Any]) -> list[Table]:
    """The description for a terminal; published figures in brackets where the items are the test split."""
    from rich.table import Table

    published = list(described["splits"]) == ["test"]
    note = " \\[published]" if published else ""
    sizes = Table(title=f"by number of nodes{note}", title_justify="left")
    for column in ("nodes", "questions", "mean nodes", "mean edges", "density", "mean degree"):
        sizes.add_column(column, justify="right")
    for name, row in described["sizes"].items():
        figures = PUBLISHED_SIZES.get(name) if published else None
        cells = [f"{row[column]:,.{digits}f}" for column, digits in COLUMNS.items()]
        sizes.add_row(name, *_beside(cells, figures, list(COLUMNS.values())))
    densities = Table(title=f"thirds by density{note}", title_justify="left")
    for column in ("third", "questions", "mean density", "lowest"):
        densities.add_column(column, justify="right")
    for name, row in described["densities"].items():
        figures = PUBLISHED_DENSITIES[name] if published else None
        cells = [f"{row['questions']:,}", f"{row['density']:.3f}"]
        densities.add_row(name, *_beside(cells, figures, [0, 3]), f"{row['from']:.5f}")
    views = Table(title="questions by task, form and scheme", title_justify="left")
    views.add_column("task")
    columns = [*described["forms"], *described["schemes"]]
    for column in ("all", *columns):
        views.add_column(column, justify="right")
    for task, row in described["views"].items():
        counts = {column: sum(count for view, count in row.items() if column in view.split("-")) for column in columns}
        views.add_row(task, f"{described['tasks'][task]:,}", *(f"{count:,}" for count in counts.values()))
    views.add_section()
    totals = [*described["forms"].values(), *described["schemes"].values()]
    views.add_row("all", f"{described['questions']:,}", *(f"{total:,}" for total in totals))
    return [sizes, densities, views]


def _beside(cells: Sequence[str], published: Sequence[float] | None, digits: Sequence[int]) -> list[str]:
    if published is None:
        return list(cells)
    return [f"{cell} \\[{figure:,.{d}f}]" for cell, figure, d in zip(cells, published, digits, strict=True)]
