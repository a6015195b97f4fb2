"""`agl agentgl table`: runs of AgentGL (arXiv 2604.05846) by graph, searches per pool, transfer, and the leak probe.

The published rows are of other graphs, so they make a table of their own. A baseline is computed on exactly the nodes
of the runs of its graph; where the runs of a graph differ in their targets, they are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

import envs.agentgl
from agl.errors import DataError, UserError
from agl.json_text import dumps
from agl.run_folder import EPISODES, SUMMARY, TRAINING, read_object
from agl.trace import Episode, read_episodes
from envs.agentgl.pools import Pool
from envs.agentgl.tasks import NcTask, graph_of, read_source, read_sources
from eval.baselines.cells import MODELS, predict
from eval.paper_table import Figure, Row, Table, as_json, print_tables
from eval.scored import mean, run_folders, scored_run

NAMES = ("agentgl-nc", "agentgl-lp")
app = typer.Typer(no_args_is_help=True, help="Tables of AgentGL runs.")


@dataclass(frozen=True)
class Run:
    """The scored episodes of one run folder. `note` names settings that make a run another one than the rest."""

    env: str
    policy: str
    graph: str
    note: str
    episodes: tuple[Episode, ...]
    probe_auc: Figure | None

    @property
    def name(self) -> str:
        return f"{self.policy}{self.note}"

    def mean(self, part: str) -> Figure | None:
        values = [None if episode.score is None else episode.score.parts.get(part) for episode in self.episodes]
        bounded = all(0 <= value <= 1 for value in values if value is not None)
        return mean(values, [episode.task["id"] for episode in self.episodes], bounded=bounded)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(episode.task["id"] for episode in self.episodes)


@app.callback()
def _app() -> None:
    """Keeps `table` a sub-command."""


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of them.")],
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help=f"Beside node classification: {', '.join(MODELS)}; repeatable."),
    ] = None,
    published: Annotated[bool, typer.Option(help="Show the figures of the paper.")] = True,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead.")] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Lay runs of AgentGL out as tables: accuracy by graph, searches per pool, transfer, the leak probe.

    Example: agl agentgl table runs/nc-rules --baseline vote --baseline gcn
    """
    for model in baseline or ():
        if model not in MODELS:
            raise UserError(f"expected a baseline out of {', '.join(MODELS)}, got {model!r}; choose one of them")
    made = tables([run for folder in runs for run in read_runs(folder)], baseline or (), published=published)
    if as_json_:
        print(dumps(as_json(made)))
        return
    print_tables(made, markdown=markdown)


def read_runs(path: Path) -> list[Run]:
    """The run in a folder, or all runs below it; one over several graphs or splits is one for each.

    Raises:
        DataError: no run there, a run of another environment, or one without a sample.
    """
    return [run for folder in run_folders(path) for run in _read_runs(folder)]


def _read_runs(folder: Path) -> list[Run]:
    """The run in a folder, one for each of its graphs and their splits."""
    found = scored_run(folder, NAMES, "AgentGL")
    config, scored = found.config, found.episodes
    options = config.get("env_options") or {}
    told = [f"{name}={value}" for name, value in sorted(options.items())]
    by_source: dict[tuple[str, str | None, bool], list[Episode]] = {}
    for episode in scored:
        task = episode.task
        source = (str(task["graph"]), task.get("split"), task["part"] == "train")
        by_source.setdefault(source, []).append(episode)
    metric = read_object(folder / SUMMARY)["metrics"].get("probe_auc") if (folder / SUMMARY).is_file() else None
    # It is of all pairs of the run, so of no source where they are of several.
    auc = None if metric is None or len(by_source) > 1 else Figure(**metric)
    runs = []
    for (place, split, train), episodes in by_source.items():
        said = [*told, *([split] if split else []), *["train"] * train]
        note = f" ({', '.join(said)})" if said else ""
        runs.append(Run(str(config["env"]), str(config["policy"]), Path(place).name, note, tuple(episodes), auc))
    return runs


def tables(runs: Sequence[Run], baselines: Sequence[str] = (), *, published: bool = True) -> list[Table]:
    """Per task (node classification, link prediction): accuracy by graph, searches, and what the probe tells.

    Runs on one graph whose rows would have equal names are told apart by a number.

    Raises:
        DataError: two runs of one graph have other targets.
    """
    made: list[Table] = []
    for env, task in zip(NAMES, ("node classification", "link prediction"), strict=True):
        mine = _told_apart([run for run in runs if run.env == env])
        if not mine:
            continue
        graphs = list(dict.fromkeys(run.graph for run in mine))
        made.append(_accuracy(mine, graphs, baselines if env == "agentgl-nc" else (), task))
        made.append(_searches(mine, task))
        if transfer := _transfer(mine, graphs, task):
            made.append(transfer)
        if any(run.probe_auc for run in mine):
            made.append(_probe(mine, graphs))
        if published:
            made.append(_published(env, task))
    return made


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """`runs`, numbered where several of a name are on one graph; the first ones of all graphs share a row."""
    seen = Counter[tuple[str, str]]()
    numbers = []
    for run in runs:
        seen[run.name, run.graph] += 1
        numbers.append(seen[run.name, run.graph])
    repeated = {name for (name, _), count in seen.items() if count > 1}
    return [
        replace(run, note=f"{run.note} #{number}") if run.name in repeated else run
        for run, number in zip(runs, numbers, strict=True)
    ]


def _accuracy(runs: Sequence[Run], graphs: Sequence[str], baselines: Sequence[str], task: str) -> Table:
    rows: dict[str, Row] = {}
    for model in baselines:
        rows[f"baseline {model}"] = {
            graph: _baseline([run for run in runs if run.graph == graph], model) for graph in graphs
        }
    for run in runs:
        rows.setdefault(run.name, {})[run.graph] = run.mean("accuracy")
    counts = ", ".join(f"{graph} {len(next(run for run in runs if run.graph == graph).targets):,}" for graph in graphs)
    title = f"AgentGL, {task}: accuracy in % (targets: {counts})"
    return Table(key=f"{task.split()[0]}_accuracy", title=title, columns=tuple(graphs), ours=rows, digits=1)


def _baseline(runs: Sequence[Run], model: str) -> Figure | None:
    """Accuracy of `model` on the targets of `runs`, all of one graph."""
    if len({run.targets for run in runs}) > 1:
        raise DataError(
            f"expected runs over the same nodes of {runs[0].graph}, got others; evaluate and show them one by one"
        )
    asked = {episode.task["id"]: episode.task for episode in runs[0].episodes}
    tasks = [NcTask.model_validate(task) for task in asked.values()]
    graph = graph_of(tasks[0].graph)
    said = predict(graph, graph.split_codes(tasks[0].split), model)
    names = graph.class_names
    right = []
    for task in tasks:
        answer = int(said[graph.index_of(task.node)])
        right.append(float(answer >= 0 and names[answer] == task.gold))
    return mean(right, [task.id for task in tasks])


def _searches(runs: Sequence[Run], task: str) -> Table:
    columns = ("answered", "searches", *(pool.value for pool in Pool), "search errors", "reward")
    parts = ("answered", "searches", *(f"searches_{pool.value}" for pool in Pool), "search_errors")
    rows: dict[str, Row] = {}
    for run in runs:
        found = {name: run.mean(part) for name, part in zip(columns, parts, strict=False)}
        row: Row = {name: figure and Figure(value=figure.value, n=figure.n) for name, figure in found.items()}
        rewards = [episode.score.reward for episode in run.episodes if episode.score is not None]
        row["reward"] = Figure(value=sum(rewards) / len(rewards), n=len(rewards))
        rows[f"{run.name}, {run.graph}"] = row
    title = f"AgentGL, {task}: searches per query, all and by pool"
    return Table(key=f"{task.split()[0]}_searches", title=title, columns=columns, ours=rows, scale=1)


def trained_graphs(policy: str) -> tuple[str, ...]:
    """The graphs that a policy `hf:FOLDER` was trained on, by the config and the episodes that train/grpo.py left in
    FOLDER or, for a checkpoint, above it; none where there are no such episodes."""
    kind, _, name = policy.partition(":")
    folder = Path(name).expanduser()
    files = [place / EPISODES for place in (folder, folder.parent)] if kind == "hf" and name else []
    file = next((file for file in files if file.is_file()), None)
    played = read_episodes(file) if file is not None else ()
    graphs = {Path(str(episode.task["graph"])).name for episode in played if "graph" in episode.task}
    if file is not None and file.with_name(TRAINING).is_file():
        config = read_object(file.with_name(TRAINING))
        if config.get("env") in NAMES:
            graphs |= {Path(read_source(one)[0]).name for one in read_sources(config.get("data"))}
    return tuple(sorted(graphs))


def _transfer(runs: Sequence[Run], graphs: Sequence[str], task: str) -> Table | None:
    """Rows: what was trained on; columns: what was tested on; None where no run is of a trained policy."""
    rows: dict[str, Row] = {}
    known: dict[str, tuple[str, ...]] = {}
    for run in runs:
        if seen := trained_graphs(run.policy):
            name = f"{', '.join(seen)}: {run.name}"
            known[name] = seen
            rows.setdefault(name, {})[run.graph] = run.mean("accuracy")
    for name, row in rows.items():
        unseen = [figure.value for graph, figure in row.items() if figure is not None and graph not in known[name]]
        row["zero-shot"] = Figure(value=sum(unseen) / len(unseen)) if unseen else None
    if not rows:
        return None
    return Table(
        key=f"{task.split()[0]}_transfer",
        title=f"AgentGL, {task}: accuracy in %, trained on (row) and tested on (column)",
        columns=(*graphs, "zero-shot"),
        ours=rows,
        digits=1,
        note="zero-shot: unweighted mean over the graphs that were not trained on.",
    )


def _probe(runs: Sequence[Run], graphs: Sequence[str]) -> Table:
    rows: dict[str, Row] = {}
    for run in runs:
        if run.probe_auc is not None:
            rows.setdefault(run.name, {})[run.graph] = run.probe_auc
    return Table(
        key="probe",
        title="What a trivial rule on the results of the two hop pools tells about links: AUC",
        columns=tuple(graphs),
        ours=rows,
        scale=1,
        digits=3,
        note="Leak-free, it stays near its value on training pairs; with leaky=True the target edge is in the graph.",
    )


def _published(env: str, task: str) -> Table:
    raw: Any = yaml.safe_load((Path(envs.agentgl.__path__[0]) / "published.yaml").read_text(encoding="utf-8"))
    rows: dict[str, Row] = {
        method: {name: Figure(value=value / 100) for name, value in zip(raw["columns"], values, strict=True)}
        for method, values in raw[env].items()
    }
    title = f"AgentGL, {task}, as published: accuracy in %, Arxiv and Products in domain, the rest zero-shot"
    key = f"{task.split()[0]}_published"
    return Table(key=key, title=title, columns=tuple(raw["columns"]), ours={}, published=rows, digits=1)
