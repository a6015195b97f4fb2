"""`agl reagan table`: runs of ReaGAN (arXiv 2508.00429) beside the baselines on exactly the same nodes.

Accuracy counts a right fallback, as the paper does; `decided` is the share of nodes that the policy decided itself.
Where the paper is silent: macro-F1 is over the classes that occur among the nodes; the action shares of a layer are of
the actions that were executed in it; seconds are those that one episode waited for the model, per prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from agl.errors import DataError, UserError
from agl.json_text import dumps
from agl.trace import Episode
from envs.reagan.tasks import BUCKETS, OpenSplit, ReaganTask, open_split
from eval.baselines.cells import MODELS, predict
from eval.baselines.references import references
from eval.metrics import classification
from eval.paper_table import Figure, Row, Table, as_json, print_tables
from eval.scored import distinct, mean, run_folders, scored_run

BASELINES = ("vote", "knn", "vote+knn")
app = typer.Typer(no_args_is_help=True, help="Tables of ReaGAN runs.")


@dataclass(frozen=True)
class Run:
    """The scored episodes of one run folder; `failures` counts those that the machinery lost."""

    name: str
    folder: Path
    policy: str
    tasks: tuple[ReaganTask, ...]
    episodes: tuple[Episode, ...]
    failures: int

    def parts(self, part: str) -> list[float | None]:
        """A part of the score, per episode; None where it does not apply."""
        return [None if episode.score is None else episode.score.parts.get(part) for episode in self.episodes]

    def total(self, part: str) -> float:
        return sum(value for value in self.parts(part) if value is not None)

    def mean(self, part: str, *, bounded: bool = True) -> Figure | None:
        return _mean(self.parts(part), self.tasks, bounded=bounded)

    def names(self, label: str) -> list[str]:
        return [episode.score.labels[label] for episode in self.episodes if episode.score is not None]


@app.callback()
def _app() -> None:
    """Keeps `table` a sub-command."""


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of them.")],
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help=f"{', '.join(MODELS)} or none; repeatable. Default: the votes."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead.")] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Lay runs of ReaGAN out as tables, with baselines on the same nodes.

    Example: agl reagan table runs/ablation --baseline vote --baseline gcn
    """
    wanted = [] if baseline == ["none"] else list(baseline or BASELINES)
    for model in wanted:
        if model not in MODELS:
            raise UserError(
                f"expected a baseline out of {', '.join(MODELS)} or none, got {model!r}; choose one of them"
            )
    found = _told_apart([run for folder in runs for run in read_runs(folder)])
    made = tables(found, wanted)
    if as_json_:
        told = {run.name: {"n": len(run.episodes), "infra_failures": run.failures} for run in found}
        print(dumps({"runs": told, "tables": as_json(made)}))
        return
    print_tables(made, markdown=markdown)
    for run in found:
        if run.failures:
            print(f"{run.name}: {run.failures} infrastructure failures are not scored")


def read_runs(path: Path) -> list[Run]:
    """The run in a folder, or all runs below it.

    Raises:
        DataError: no run there, a run of another environment, or one without a sample.
    """
    return [
        _read_run(folder, str(folder.relative_to(path)) if folder != path else folder.name)
        for folder in run_folders(path)
    ]


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """`runs`, with the path in the name where two have the same."""
    names = Counter(run.name for run in runs)
    told = [run.name if names[run.name] == 1 else _shown(str(run.folder), run.policy) for run in runs]
    return [replace(run, name=name) for run, name in zip(runs, distinct(told), strict=True)]


def _shown(name: str, policy: str) -> str:
    return name if policy in name else f"{name} ({policy})"


def _read_run(folder: Path, name: str) -> Run:
    found = scored_run(folder, ("reagan",), "reagan")
    tasks = tuple(ReaganTask.model_validate(episode.task) for episode in found.episodes)
    policy = str(found.config.get("policy"))
    return Run(_shown(name, policy), folder, policy, tasks, found.episodes, found.failures)


def tables(runs: Sequence[Run], baselines: Sequence[str] = BASELINES) -> list[Table]:
    """Accuracy beside `baselines`, actions by layer, fallbacks, and costs.

    Raises:
        DataError: the runs are not over the same nodes of one split.
    """
    first = runs[0]
    asked = {task.id for task in first.tasks}
    for run in runs[1:]:
        same = (run.tasks[0].data_hash, run.tasks[0].split, run.tasks[0].split_seed)
        if same != (first.tasks[0].data_hash, first.tasks[0].split, first.tasks[0].split_seed) or asked != {
            task.id for task in run.tasks
        }:
            raise DataError(
                f"expected runs over the same nodes, but {run.name} and {first.name} differ; finish them with --resume "
                "or show them one by one"
            )
    opened = open_split(first.tasks[0])
    return [_accuracy(runs, baselines, opened), _actions(runs), _fallbacks(runs, opened), _costs(runs)]


def _accuracy(runs: Sequence[Run], baselines: Sequence[str], opened: OpenSplit) -> Table:
    task, graph = runs[0].tasks[0], opened.graph
    nodes = {one.id: one for one in runs[0].tasks}
    rows: dict[str, Row] = {}
    for model in baselines:
        said = predict(graph, opened.codes, model)
        answers = {node: int(said[graph.index_of(one.node)]) for node, one in nodes.items()}
        rows[f"baseline {model}"] = _scores(
            list(nodes.values()),
            [None if answers[node] < 0 else graph.class_names[answers[node]] for node in nodes],
            [float(answers[node] == one.gold) for node, one in nodes.items()],
            opened,
        )
    for run in runs:
        rows[run.name] = _scores(run.tasks, run.names("predicted"), run.parts("accuracy"), opened)
        rows[run.name]["decided"] = run.mean("decided")
    published: dict[str, Row] = {}
    for reference in references(graph, task.data):
        if reference.split == task.split:
            published[f"{reference.model} (by others)"] = {"accuracy": Figure(value=reference.accuracy / 100)}
    return Table(
        key="accuracy",
        title=f"ReaGAN on {len(nodes):,} test nodes of {graph.name or task.data}, split {task.split}: accuracy in %, "
        "and by the number of labelled neighbours",
        columns=("accuracy", "macro-F1", "decided", *BUCKETS),
        ours=rows,
        published=published,
        digits=1,
    )


def _scores(
    tasks: Sequence[ReaganTask], said: Sequence[str | None], right: Sequence[float | None], opened: OpenSplit
) -> Row:
    names = opened.graph.class_names
    gold = [names[task.gold] for task in tasks]
    row: Row = {
        "accuracy": _mean(right, tasks),
        "macro-F1": Figure(value=classification(gold, said, names).macro_f1, n=len(tasks)),
    }
    for bucket in BUCKETS:
        inside = [value if task.bucket == bucket else None for value, task in zip(right, tasks, strict=True)]
        row[bucket] = _mean(inside, tasks)
    return row


def _mean(values: Sequence[float | None], tasks: Sequence[ReaganTask], *, bounded: bool = True) -> Figure | None:
    """With an interval in which the attempts at one node are no independent trials."""
    return mean(values, [task.id for task in tasks], bounded=bounded)


def _actions(runs: Sequence[Run]) -> Table:
    counts = {run.name: _summed(run, lambda part: part.startswith("layer")) for run in runs}
    columns = list(dict.fromkeys(part for found in counts.values() for part in found))
    rows: dict[str, Row] = {}
    for name, found in counts.items():
        totals = Counter[str]()
        for part, count in found.items():
            totals[part.partition("_")[0]] += count
        shares = {part: count / (totals[part.partition("_")[0]] or 1) for part, count in found.items()}
        rows[name] = {
            _step(part): Figure(value=shares[part], n=totals[part.partition("_")[0]]) if part in found else None
            for part in columns
        }
    title = "Actions of each layer, in % of those executed in it"
    return Table(key="actions", title=title, columns=tuple(map(_step, columns)), ours=rows, digits=1)


def _step(part: str) -> str:
    layer, _, tag = part.partition("_")
    return f"{layer.removeprefix('layer')} {tag}"


def _summed(run: Run, keep: Callable[[str], bool]) -> dict[str, int]:
    parts = run.episodes[0].score.parts if run.episodes[0].score is not None else {}
    return {part: round(run.total(part)) for part in parts if keep(part)}


def _fallbacks(runs: Sequence[Run], opened: OpenSplit) -> Table:
    rows: dict[str, Row] = {}
    for run in runs:
        rules, labels = Counter(run.names("fallback_rule")), Counter(run.names("fallback_label"))
        row: Row = {"fallbacks": Figure(value=len(run.episodes) - rules["none"])}
        row |= {f"by {rule}": Figure(value=rules[rule]) for rule in ("local", "global", "train")}
        row |= {name: Figure(value=labels[name]) for name in opened.graph.class_names if labels[name]}
        rows[run.name] = row
    columns = tuple(
        dict.fromkeys(["fallbacks", "by local", "by global", "by train", *(c for r in rows.values() for c in r)])
    )
    note = "After the rules: how often each label was given by a fallback."
    return Table(
        key="fallbacks",
        title="Labels that the policy did not decide",
        columns=columns,
        ours=rows,
        scale=1,
        digits=0,
        note=note,
    )


def _costs(runs: Sequence[Run]) -> Table:
    rows: dict[str, Row] = {}
    for run in runs:
        prompts = run.total("prompts")
        read = [episode.tokens.prompt for episode in run.episodes]
        written = [episode.tokens.sampled for episode in run.episodes]
        rows[run.name] = {
            "prompts": run.mean("prompts", bounded=False),
            "faulty": run.mean("faulty", bounded=False),
            "tokens read": _mean(read, run.tasks, bounded=False),
            "tokens written": _mean(written, run.tasks, bounded=False),
            "s/prompt": Figure(value=sum(episode.seconds["model"] for episode in run.episodes) / max(1.0, prompts)),
        }
    columns = ("prompts", "faulty", "tokens read", "tokens written", "s/prompt")
    return Table(key="costs", title="Cost of a node", columns=columns, ours=rows, scale=1, digits=2)
