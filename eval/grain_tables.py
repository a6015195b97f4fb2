"""Evaluation runs on GRIT laid out as the tables of the GRAIN paper (arXiv 2608.27142), its figures beside ours.

Formulas where the paper is silent or vague: Avg is the unweighted mean of the six tasks and given only when all six
were run; a naming variance takes the sample variance (ddof = 1) of the four scheme accuracies as fractions; a question
whose graph could not be read scores 0 in Node-F1, Edge-F1 and Exact; rounds are tool calls + 1, for a pipeline of
agents the calls of its model; tokens are those generated. Infrastructure failures are no samples and only counted.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import envs.grit
from agl.errors import DataError
from agl.json_text import dumps
from agl.policies.pipeline import model_calls
from agl.stats import Clustered, clustered
from agl.trace import Episode
from envs.grit.items import FORMS, SCHEMES, GritTask
from eval import paper_table, scored
from eval.paper_table import Figure, Row, Style, Table
from eval.scored import distinct, run_folders, scored_run
from rewards.structure import ErrorClass

PAPER_TASKS = ("shortest_path", "coloring", "tsp", "vertex_cover", "bfs", "centrality")
"""The six tasks in the order of the paper's columns."""
SIZES = ((1, 9), (10, 15), (16, 20), (21, 30), (31, 40), (41, 60))
"""Buckets of the number of nodes, both ends included; the middle four are the paper's."""
TERTILES = ("low", "mid", "high")
ERRORS = ("exact", *(error.value for error in ErrorClass if error is not ErrorClass.EXACT))


@dataclass(frozen=True)
class Sample:
    """One scored episode."""

    task: GritTask
    episode: Episode
    parts: Mapping[str, float | None]
    labels: Mapping[str, str]

    @property
    def density(self) -> float:
        """2|E| / (n(n-1)); 0 of a single node."""
        pairs = self.task.n * (self.task.n - 1)
        return (1 if self.task.directed else 2) * self.task.m / pairs if pairs else 0.0


@dataclass(frozen=True)
class Run:
    """The samples of one run folder; `failures` counts the episodes that the machinery lost."""

    name: str
    samples: tuple[Sample, ...]
    failures: int = 0

    def where(self, keep: Callable[[Sample], bool]) -> Run:
        """The part of the run whose samples satisfy `keep`."""
        return Run(self.name, tuple(sample for sample in self.samples if keep(sample)))


def read_runs(path: Path) -> list[Run]:
    """The run in a folder, or all runs below it.

    Raises:
        DataError: no run there, a run of another environment, or one without a sample.
    """
    return [_read_run(folder) for folder in run_folders(path)]


def _read_run(folder: Path) -> Run:
    found = scored_run(folder, ("grit",), "grit")
    samples = tuple(
        Sample(GritTask.model_validate(episode.task), episode, episode.score.parts, episode.score.labels)
        for episode in found.episodes
        if episode.score is not None
    )
    mode = (found.config.get("env_options") or {}).get("mode", "tools")
    shown = str(found.config.get("policy")) + ("" if mode == "tools" else f" ({mode})")
    return Run(shown, samples, found.failures)


def mean(run: Run, value: Callable[[Sample], float | None], *, bounded: bool = True) -> Figure | None:
    """The mean over the samples to which `value` applies, views of one graph as one cluster."""
    values = [value(sample) for sample in run.samples]
    return scored.mean(values, [sample.task.graph_id for sample in run.samples], bounded=bounded)


def part(name: str) -> Callable[[Sample], float | None]:
    """A part of the score, such as `acc` or `edge_f1`."""
    return lambda sample: sample.parts.get(name)


accuracy = part("acc")


def average(run: Run) -> Figure | None:
    """Avg: the unweighted mean of the six task accuracies; None unless all six were run."""
    found = [_clustered(run.where(_is("task", task))) for task in PAPER_TASKS]
    known = [task for task in found if task is not None]
    if len(known) < len(PAPER_TASKS):
        return None
    value = statistics.fmean(task.mean for task in known)
    error = math.sqrt(sum(max(task.se, task.naive_se) ** 2 for task in known)) / len(known)
    return _around(value, error, sum(task.n for task in known), lowest=0.0)


def _clustered(run: Run) -> Clustered | None:
    groups: dict[str, list[float]] = {}
    for sample in run.samples:
        if (value := accuracy(sample)) is not None:
            groups.setdefault(sample.task.graph_id, []).append(value)
    return clustered(list(groups.values())) if groups else None


def _around(value: float, error: float, n: int, lowest: float) -> Figure:
    """The normal 95 % interval of a figure in `lowest` .. 1; unknown where the standard error is 0."""
    if error == 0:
        return Figure(value=value, n=n)
    half = statistics.NormalDist().inv_cdf(0.975) * error
    return Figure(value=value, low=max(lowest, value - half), high=min(1.0, value + half), n=n)


def naming_variance(accuracies: Sequence[float]) -> float:
    """Sample variance (ddof = 1) of the accuracies of the naming schemes, as fractions.

    Raises:
        ValueError: fewer than two accuracies.
    """
    if len(accuracies) < 2:
        raise ValueError(f"expected the accuracies of at least two naming schemes, got {len(accuracies)}")
    return statistics.variance(accuracies)


def variance(run: Run) -> Figure | None:
    """Var over the four naming schemes; None unless all four were run."""
    found = [mean(run.where(_is("scheme", scheme)), accuracy) for scheme in SCHEMES]
    known = [figure.value for figure in found if figure is not None]
    return Figure(value=naming_variance(known), n=len(run.samples)) if len(known) == len(SCHEMES) else None


def form_gap(run: Run) -> Figure | None:
    """|Standard - Realistic| of the accuracies over all questions of a form."""
    found = [mean(run.where(_is("form", form)), accuracy) for form in FORMS]
    return _difference(*found, absolute=True)


def _difference(a: Figure | None, b: Figure | None, *, absolute: bool = False) -> Figure | None:
    if a is None or b is None:
        return None
    gap = a.value - b.value
    return Figure(value=abs(gap) if absolute else gap)


def _is(name: str, value: str) -> Callable[[Sample], bool]:
    return lambda sample: getattr(sample.task, name) == value


def size_buckets(run: Run) -> dict[str, Run]:
    """Non-empty parts of the run by number of nodes, such as `10-15`."""
    buckets = {f"{low}-{high}": run.where(lambda s, a=low, b=high: a <= s.task.n <= b) for low, high in SIZES}  # type: ignore[misc]
    buckets[f">{SIZES[-1][1]}"] = run.where(lambda sample: sample.task.n > SIZES[-1][1])
    return {name: part for name, part in buckets.items() if part.samples}


def density_tertiles(run: Run) -> dict[str, Run]:
    """The run by density in three parts of about equal size; equal densities stay together, at a border in the upper
    part. On the generated test split this gives the paper's 912, 920 and 928 questions."""
    values = sorted(sample.density for sample in run.samples)
    if not values:
        return {}
    low, high = values[len(values) // 3], values[2 * len(values) // 3]
    return {
        "low": run.where(lambda sample: sample.density < low),
        "mid": run.where(lambda sample: low <= sample.density < high),
        "high": run.where(lambda sample: sample.density >= high),
    }


def errors(run: Run) -> Row:
    """How many graphs fall into each error class; None without a tool, where no graph is written."""
    counts = Counter(sample.labels["structure"] for sample in run.samples if "structure" in sample.labels)
    total = sum(counts.values())
    return {name: Figure(value=counts[name], n=total) if total else None for name in ERRORS}


def efficiency(run: Run) -> Row:
    """Rounds, generated tokens and seconds per question; the 90th percentile as in `summary.json`."""
    seconds = sorted(sample.episode.seconds["total"] for sample in run.samples)
    tokens = [sample.episode.tokens.sampled for sample in run.samples]
    p90 = seconds[min(len(seconds) - 1, int(0.9 * len(seconds)))]
    return {
        "rounds": mean(run, _rounds, bounded=False),
        "tool_calls": mean(run, part("tool_calls"), bounded=False),
        "tokens": mean(run, lambda sample: sample.episode.tokens.sampled, bounded=False) if any(tokens) else None,
        "seconds": mean(run, lambda sample: sample.episode.seconds["total"], bounded=False),
        "seconds_p90": Figure(value=p90, n=len(seconds)),
    }


def _rounds(sample: Sample) -> float | None:
    calls = model_calls(sample.episode)
    return sample.parts.get("rounds") if calls is None else float(calls)


def tables(runs: Sequence[Run], ood: Sequence[Run] = (), *, published: bool = True) -> list[Table]:
    """All tables of the paper for `runs`; `ood` holds runs on out-of-distribution items, in the order of `runs`.

    Rows of runs with equal names are told apart by a number.
    """
    named = dict(zip(distinct([run.name for run in runs]), runs, strict=True))
    sizes = {name: size_buckets(run) for name, run in named.items()}
    tertiles = {name: density_tertiles(run) for name, run in named.items()}
    shown_sizes = [f"{a}-{b}" for a, b in SIZES] + [f">{SIZES[-1][1]}"]
    shown_sizes = [size for size in shown_sizes if any(size in found for found in sizes.values())]
    made = [
        Table(
            "accuracy",
            "Accuracy, %",
            (*PAPER_TASKS, "average", "micro"),
            {
                name: {
                    **{task: mean(run.where(_is("task", task)), accuracy) for task in PAPER_TASKS},
                    "average": average(run),
                    "micro": mean(run, accuracy),
                }
                for name, run in named.items()
            },
            note="average: unweighted mean of the six tasks; micro: over all questions",
        ),
        Table(
            "ood",
            "Out of distribution, average accuracy, %",
            ("test", "ood", "gap"),
            {
                name: {
                    "test": average(run),
                    "ood": average(shifted),
                    "gap": _difference(average(run), average(shifted)),
                }
                for (name, run), shifted in zip(named.items(), ood, strict=False)
            },
        ),
        Table(
            "robustness",
            "Robustness to form and naming",
            ("gap", "variance", "accuracy", *FORMS, *SCHEMES),
            {
                name: {
                    "gap": form_gap(run),
                    "variance": variance(run),
                    "accuracy": mean(run, accuracy),
                    **{form: mean(run.where(_is("form", form)), accuracy) for form in FORMS},
                    **{scheme: mean(run.where(_is("scheme", scheme)), accuracy) for scheme in SCHEMES},
                }
                for name, run in named.items()
            },
            scales={"variance": 1e5},
            note="gap: |standard - realistic| in points; variance of the four naming schemes (ddof = 1), times 1e5",
        ),
        Table(
            "structure",
            "Structure recovery, %",
            ("node_f1", "edge_f1", "exact"),
            {
                name: {key: mean(run, part(key)) for key in ("node_f1", "edge_f1", "exact")}
                for name, run in named.items()
            },
        ),
        Table(
            "errors",
            "Graphs by first error",
            ERRORS,
            {name: errors(run) for name, run in named.items()},
            scale=1.0,
            digits=0,
        ),
        Table(
            "size",
            "Exact by number of nodes, %",
            tuple(shown_sizes),
            {name: {size: mean(run, part("exact")) for size, run in found.items()} for name, found in sizes.items()},
        ),
        Table(
            "size_accuracy",
            "Accuracy by number of nodes, %",
            tuple(shown_sizes),
            {name: {size: mean(run, accuracy) for size, run in found.items()} for name, found in sizes.items()},
        ),
        Table(
            "density",
            "Parsed, Edge-F1 and Exact by density tertile, %",
            tuple(f"{tertile} {key}" for tertile in TERTILES for key in ("parse", "edge_f1", "exact")),
            {
                name: {
                    f"{tertile} {key}": mean(run, part(key))
                    for tertile, run in found.items()
                    for key in ("parse", "edge_f1", "exact")
                }
                for name, found in tertiles.items()
            },
        ),
        Table(
            "efficiency",
            "Efficiency per question",
            ("rounds", "tool_calls", "tokens", "seconds", "seconds_p90"),
            {name: efficiency(run) for name, run in named.items()},
            scale=1.0,
            note="rounds: tool calls + 1, for a pipeline of agents its model calls; tokens: generated",
        ),
    ]
    return [_beside(table) if published else table for table in made if table.ours]


@cache
def paper() -> dict[str, dict[str, dict[str, float | None]]]:
    """Table -> method -> column -> the figure that the paper prints, in its unit."""
    raw: Any = yaml.safe_load((Path(envs.grit.__path__[0]) / "published.yaml").read_text(encoding="utf-8"))
    return {
        key: {method: dict(zip(table["columns"], row, strict=True)) for method, row in table["rows"].items()}
        for key, table in raw.items()
    }


def _beside(table: Table) -> Table:
    known = paper().get(table.key, {})
    rows: dict[str, Row] = {
        method: {
            name: None if value is None else Figure(value=value / table.scales.get(name, table.scale))
            for name, value in figures.items()
        }
        for method, figures in known.items()
    }
    columns = tuple(dict.fromkeys([*table.columns, *(name for row in rows.values() for name in row)]))
    if table.key == "size":
        columns = tuple(sorted(columns, key=lambda name: int(name.lstrip(">").partition("-")[0])))
    return replace(table, columns=columns, published=rows)


def show(
    run: Path, ood: Path | None, beside: Sequence[Path], *, published: bool = True, style: Style = "terminal"
) -> None:
    """Print the tables of run folders.

    Raises:
        DataError: a folder that holds no run of grit, or an `ood` folder that does not pair up with `run`.
    """
    runs = read_runs(run)
    shifted = read_runs(ood) if ood is not None else []
    if ood is not None and [one.name for one in shifted] != [one.name for one in runs]:
        raise DataError(
            f"expected the same policies in {run} and {ood}, got {', '.join(one.name for one in runs)} and "
            f"{', '.join(one.name for one in shifted)}; evaluate both splits alike"
        )
    runs += [one for folder in beside for one in read_runs(folder)]
    made = tables(runs, shifted, published=published)
    if style == "json":
        print(dumps(as_json(made, runs)))
    else:
        paper_table.print_tables(made, markdown=style == "markdown")
        for one in [*runs, *shifted]:
            if one.failures:
                print(f"{one.name}: {one.failures} infrastructure failures are not scored")


def as_json(made: Sequence[Table], runs: Sequence[Run]) -> dict[str, Any]:
    """`{"runs": {name: {"n", "infra_failures"}}, "tables": ...}`, see `eval.paper_table.as_json`; the variance is not
    scaled."""
    return {
        "runs": {
            name: {"n": len(run.samples), "infra_failures": run.failures}
            for name, run in zip(distinct([run.name for run in runs]), runs, strict=True)
        },
        "tables": paper_table.as_json(made),
    }
