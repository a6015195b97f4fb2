"""Baselines on many splits of one graph: a row for each model, a column for each kind of split."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from pydantic import BaseModel
from rich.table import Table

from agl.errors import UserError
from agl.graphs.sources.splits import PLANETOID, canonical, is_planetoid, is_random, named_split
from agl.graphs.text_graph import Codes, IntArray, Labels, TextGraph
from eval.baselines.cells import Asked, Cell, cells, content_of, split_hash, versions
from eval.baselines.problem import Features, NodeProblem
from eval.baselines.references import references

RANDOM: tuple[str, ...] = ("60/20/20", "79/1/20")


class SplitKind(BaseModel):
    """Splits of one kind: their number, SHA-256 of each one's codes, and the means of what they hold."""

    name: str
    n: int
    hashes: list[str]
    train: float
    val: float
    test: float
    without_labelled_neighbour: float
    """Share of test nodes."""


class Row(BaseModel):
    """A model on the test nodes of `n` splits, mean over starts, then over splits.

    `accuracy` and `macro_f1` are shares and count an unanswered node as wrong; `se` is the standard error of the
    accuracy over splits, None for one split; `by_split` the accuracies behind it. `starts_sd` is the standard
    deviation over the starts of a network, averaged over splits. `chosen` are a network's settings by split.
    """

    model: str
    split: str
    n: int
    accuracy: float
    se: float | None
    macro_f1: float
    unanswered: float
    by_split: list[float]
    starts: int
    starts_sd: float | None
    chosen: list[dict[str, float]]


class Quoted(BaseModel):
    """Someone else's accuracy, a share, and where it is from."""

    model: str
    split: str
    accuracy: float
    source: str


class Baselines(BaseModel):
    data: str
    content_hash: str
    """Of the graph without its splits."""
    nodes: int
    features: str
    seed: int
    versions: dict[str, str]
    splits: list[SplitKind]
    rows: list[Row]
    references: list[Quoted]


def baselines(
    graph: TextGraph,
    models: Sequence[str],
    splits: Sequence[str] = (),
    *,
    count: int = 5,
    features: Features = "tfidf",
    seed: int = 0,
    data: str = "",
    jobs: int = 1,
    progress: Callable[[Asked, Cell], None] | None = None,
) -> Baselines:
    """Every model on every split; `splits` as in `split_codes`, none: Planetoid's where the graph has it, and `RANDOM`.

    `jobs` processes train the networks, see `cells`; `progress` is told of each cell.

    Raises:
        UserError: as `split_codes` and `cells`; a split without test nodes that have a label.
    """
    kinds = list(dict.fromkeys(map(canonical, splits))) or default_splits(graph)
    drawn = {kind: split_codes(graph, kind, count, seed) for kind in kinds}
    about = [_kind(graph, kind, codes) for kind, codes in drawn.items()]
    wanted = [
        (model, kind, Asked(split, model, seed + number))
        for kind, codes in drawn.items()
        for number, split in enumerate(codes)
        for model in dict.fromkeys(models)
    ]
    made = cells(graph, [asked for *_, asked in wanted], features, jobs=jobs, progress=progress)
    found: dict[tuple[str, str], list[Cell]] = {}
    for (model, kind, _), one in zip(wanted, made, strict=True):
        found.setdefault((model, kind), []).append(one)
    return Baselines(
        data=data or graph.name,
        content_hash=content_of(graph),
        nodes=graph.n,
        features=features,
        seed=seed,
        versions=versions(),
        splits=about,
        rows=[
            _row(graph, model, kind, drawn[kind], found[model, kind])
            for model in dict.fromkeys(models)
            for kind in kinds
        ],
        references=[
            Quoted(
                model=quoted.model, split=quoted.split, accuracy=round(quoted.accuracy / 100, 6), source=quoted.source
            )
            for quoted in references(graph, data)
            if quoted.split in kinds
        ],
    )


def default_splits(graph: TextGraph) -> list[str]:
    return [*([PLANETOID] if is_planetoid(graph) else []), *RANDOM]


def split_codes(graph: TextGraph, kind: str, count: int, seed: int) -> list[Codes]:
    """The splits of a kind, see `named_split`: `count` random ones with seeds from `seed` on, or the one of the graph.

    Raises:
        UserError: no such split, or numbers that make none.
    """
    seeds = range(seed, seed + count) if is_random(kind) else [seed]
    return [named_split(graph, kind, one, written="--split ") for one in seeds]


def _kind(graph: TextGraph, kind: str, splits: Sequence[Codes]) -> SplitKind:
    sizes = [[int((codes == code).sum()) for code in range(3)] for codes in splits]
    alone = []
    for codes in splits:
        test = _test(graph, codes, kind)
        problem = NodeProblem.of(graph, codes)
        linked = np.zeros(graph.n, dtype=bool)
        linked[problem.asked[problem.labelled_arcs()[0]]] = True
        alone.append(float((~linked[test]).mean()))
    train, val, test_size = (statistics.fmean(column) for column in zip(*sizes, strict=True))
    return SplitKind(
        name=kind,
        n=len(splits),
        hashes=[split_hash(codes) for codes in splits],
        train=train,
        val=val,
        test=test_size,
        without_labelled_neighbour=statistics.fmean(alone),
    )


def _test(graph: TextGraph, codes: Codes, kind: str) -> IntArray:
    test = np.flatnonzero((codes == 2) & (graph.labels >= 0))
    if not len(test):
        raise UserError(f"expected test nodes with labels in the split {kind}, got none; use another split")
    return test


def _row(graph: TextGraph, model: str, kind: str, splits: Sequence[Codes], found: Sequence[Cell]) -> Row:
    accuracies, f1, unanswered, spreads = [], [], [], []
    for codes, made in zip(splits, found, strict=True):
        test = _test(graph, codes, kind)
        gold, said = graph.labels[test], made.predictions[:, test]
        right = [float((start == gold).mean()) for start in said]
        accuracies.append(statistics.fmean(right))
        f1.append(statistics.fmean(_macro_f1(gold, start) for start in said))
        unanswered.append(float((said < 0).mean()))
        spreads.append(statistics.stdev(right) if len(right) > 1 else 0.0)
    n, starts = len(accuracies), len(found[0].predictions)
    return Row(
        model=model,
        split=kind,
        n=n,
        accuracy=statistics.fmean(accuracies),
        se=statistics.stdev(accuracies) / math.sqrt(n) if n > 1 else None,
        macro_f1=statistics.fmean(f1),
        unanswered=statistics.fmean(unanswered),
        by_split=accuracies,
        starts=starts,
        starts_sd=statistics.fmean(spreads) if starts > 1 else None,
        chosen=[made.chosen for made in found if made.chosen],
    )


def _macro_f1(gold: Labels, said: Labels) -> float:
    """Mean F1 of the classes that occur in `gold`."""
    scores = []
    for label in np.unique(gold).tolist():
        hit = int(((gold == label) & (said == label)).sum())
        scores.append(2 * hit / int((gold == label).sum() + (said == label).sum()))
    return statistics.fmean(scores)


def rendered(found: Baselines) -> list[Table | str]:
    """The table and the lines under it."""
    table = Table(
        title=f"{found.data}, {found.features}: accuracy in % +- standard error over n splits, then by others",
        title_justify="left",
    )
    table.add_column("model")
    quoted = {(item.model, item.split): item for item in found.references}
    for kind in found.splits:
        table.add_column(f"{kind.name} (n={kind.n})", justify="right")
        if any(split == kind.name for _, split in quoted):
            table.add_column("by others", justify="right")
    own = list(dict.fromkeys(row.model for row in found.rows))
    rows = {(row.model, row.split): row for row in found.rows}
    for model in dict.fromkeys([*own, *(model for model, _ in quoted)]):
        line = []
        for kind in found.splits:
            row = rows.get((model, kind.name))
            line.append("" if row is None else _cell(row))
            if any(split == kind.name for _, split in quoted):
                item = quoted.get((model, kind.name))
                line.append("" if item is None else f"{100 * item.accuracy:.1f}")
        table.add_row(model, *line)
    return [table, *_notes(found)]


def _cell(row: Row) -> str:
    mean = f"{100 * row.accuracy:.1f}"
    return mean if row.se is None else f"{mean} +- {100 * row.se:.1f}"


def _notes(found: Baselines) -> list[str]:
    lines = []
    for kind in found.splits:
        sizes = f"{kind.train:,.0f} train, {kind.val:,.0f} val, {kind.test:,.0f} test"
        alone = f"{100 * kind.without_labelled_neighbour:.1f} % of test nodes have no labelled neighbour"
        lines.append(f"{kind.name}: {sizes}; {alone}")
    silent = [row for row in found.rows if row.unanswered > 0]
    if silent:
        each = (f"{row.model} on {row.split} {100 * row.unanswered:.1f} %" for row in silent)
        lines.append(f"unanswered, counted as wrong: {', '.join(each)}")
    sources: dict[str, list[str]] = {}
    for item in found.references:
        sources.setdefault(item.source, []).append(item.model)
    lines += [f"by others: {', '.join(models)}: {source}" for source, models in sources.items()]
    return lines
