"""A folder of generated splits: JSONL, Parquet, `manifest.json` and a datasheet.

The files have the same bytes for any number of worker processes. Graphs are made in parts, each written whole or not at
all, so an interrupted build goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import agl
import agl.graphs
from agl.core import Frozen
from agl.errors import UserError
from agl.json_text import dumps
from agl.run_folder import difference, read_object, write_atomic
from envs.grit.build import SPLITS, Generated, Recipe, View, item, order, views
from envs.grit.items import GENERATOR_VERSION, TASKS, GritTask, TaskName, line

MANIFEST = "manifest.json"
DATASHEET = "README.md"
NESTED = ("nodes", "aliases", "edges", "query", "gold", "certificate")
"""Columns that are JSON text in Parquet: their keys or types differ from row to row."""
GRAPHS_PER_PART = 12
ROWS_PER_GROUP = 1_000
_LIBRARIES = ("highspy", "networkx", "numpy", "python-sat", "scipy")

Unit = tuple[TaskName, int]
OnGraphs = Callable[[int, int], None]
"""Called with the numbers of graphs done and wanted."""


class SplitPlan(Frozen):
    """One split to build: `graphs` per task, None for all."""

    split: str
    recipe: Recipe = Recipe()
    graphs: int | None = None

    @property
    def count(self) -> int:
        return SPLITS[self.split].graphs if self.graphs is None else self.graphs

    def units(self) -> list[Unit]:
        """(task, graph) of every graph; tasks alternate, so that parts take about equally long."""
        return [(task, graph) for graph in range(self.count) for task in TASKS]

    def parts(self) -> list[list[Unit]]:
        units = self.units()
        return [units[i : i + GRAPHS_PER_PART] for i in range(0, len(units), GRAPHS_PER_PART)]

    def views(self, unit: Unit) -> tuple[View, ...]:
        return views(SPLITS[self.split], *unit, self.recipe.full_views)


def build(
    wanted: SplitPlan,
    out: Path,
    *,
    workers: int = 1,
    parquet: bool = True,
    on_graphs: OnGraphs = lambda done, total: None,
) -> bool:
    """Write `out/SPLIT.jsonl`, `out/data/SPLIT.parquet`, and add the split to the manifest and the datasheet.

    Returns False when the split is there already, from the same recipe and unchanged.

    Raises:
        DataError: there is no such split, or it has fewer graphs.
        UserError: `out` holds something else, another recipe or a changed split; pyarrow is missing.
    """
    Generated(wanted.split, wanted.recipe, graphs=wanted.graphs)
    if parquet:
        _pyarrow()
    manifest = _open(wanted, out)
    if _finished(wanted, out, manifest, parquet):
        return False
    out.mkdir(parents=True, exist_ok=True)
    if not (out / MANIFEST).exists():
        write_atomic(out / MANIFEST, _pretty(manifest))
    parts = out / f".parts-{_fingerprint(wanted)}"
    parts.mkdir(exist_ok=True)
    _make_parts(wanted, parts, workers, on_graphs)
    manifest["splits"][wanted.split] = _merge(wanted, parts, out, parquet)
    manifest["splits"] = {name: manifest["splits"][name] for name in SPLITS if name in manifest["splits"]}
    write_atomic(out / DATASHEET, datasheet(manifest))
    write_atomic(out / MANIFEST, _pretty(manifest))
    shutil.rmtree(parts)
    return True


def from_row(row: Mapping[str, Any]) -> GritTask:
    """The item of a Parquet row."""
    return GritTask.model_validate({name: json.loads(row[name]) if name in NESTED else row[name] for name in row})


def sha256(path: Path) -> str:
    """Raises OSError where the file cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pretty(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "expected pyarrow to write Parquet, which is not installed; "
            "pip install pyarrow, or leave Parquet out with --no-parquet"
        ) from None
    return pyarrow


def _open(wanted: SplitPlan, out: Path) -> dict[str, Any]:
    """The manifest of `out`, a new one if there is nothing yet."""
    manifest = {
        "benchmark": "GRIT",
        "generator_version": GENERATOR_VERSION,
        "recipe": wanted.recipe.model_dump(mode="json"),
        "splits": {},
    }
    if out.exists() and not out.is_dir():
        raise UserError(f"expected a folder to write to, got the file {out}; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return manifest
    if not (out / MANIFEST).is_file():
        raise UserError(f"expected an empty folder or one of GRIT splits, got {out}, which holds other files")
    found = read_object(out / MANIFEST)
    for field in ("benchmark", "generator_version", "recipe"):
        if differs := difference(found.get(field), manifest[field], field):
            place, old, new = differs
            raise UserError(
                f"expected the recipe of the splits in {out}: their {place} is {dumps(old)}, now {dumps(new)}; "
                "build with the same recipe, or choose another --out"
            )
    return found


def _finished(wanted: SplitPlan, out: Path, manifest: Mapping[str, Any], parquet: bool) -> bool:
    entry = manifest["splits"].get(wanted.split)
    if entry is None:
        return False
    if entry["graphs_per_task"] != wanted.count:
        raise UserError(
            f"expected {entry['graphs_per_task']} graphs per task of {wanted.split}, as {out} already holds, "
            f"got {wanted.count}; build as many, or choose another --out"
        )
    for name, about in entry["files"].items():
        if not (out / name).is_file() or sha256(out / name) != about["sha256"]:
            raise UserError(
                f"expected {out / name} as it was built, but it was changed or removed since; choose another --out"
            )
    if parquet and _parquet_name(wanted.split) not in entry["files"]:
        raise UserError(f"expected {wanted.split} with Parquet, but {out} holds it without; choose another --out")
    return True


def _fingerprint(wanted: SplitPlan) -> str:
    """Names what the parts of a build depend on, the generator's own code and word lists included."""
    digest = hashlib.sha256(wanted.model_dump_json().encode())
    for folder in (Path(__file__).parent, Path(agl.graphs.__file__).parent):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".yaml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:04d}.jsonl"


def _make_parts(wanted: SplitPlan, parts: Path, workers: int, on_graphs: OnGraphs) -> None:
    total = len(wanted.units())
    missing = [(i, units) for i, units in enumerate(wanted.parts()) if not _part(parts, i).exists()]
    done = total - sum(len(units) for _, units in missing)
    on_graphs(done, total)
    if workers == 1 or len(missing) < 2:
        for number, units in missing:
            done += _make_part(wanted, _part(parts, number), units)
            on_graphs(done, total)
        return
    # A forked child would inherit the threads of whoever calls; solvers must not.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(missing)), context, initializer=ignore_interrupts) as pool:
        futures = [pool.submit(_make_part, wanted, _part(parts, number), units) for number, units in missing]
        try:
            for future in as_completed(futures):
                done += future.result()
                on_graphs(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def ignore_interrupts() -> None:
    """For worker processes: Ctrl-C reaches them too, but the parent decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make_part(wanted: SplitPlan, path: Path, units: Sequence[Unit]) -> int:
    """Write all questions of some graphs; returns how many graphs."""
    lines = [
        line(item(SPLITS[wanted.split], wanted.recipe, *unit, view)) for unit in units for view in wanted.views(unit)
    ]
    write_atomic(path, "".join(f"{text}\n" for text in lines))
    return len(units)


@dataclass
class _Tally:
    """Sums over the questions of one task."""

    questions: int = 0
    nodes: int = 0
    edges: int = 0
    density: float = 0.0
    smallest: int = 10**9
    largest: int = 0

    def add(self, n: int, m: int) -> None:
        self.questions += 1
        self.nodes += n
        self.edges += m
        self.density += 2 * m / (n * (n - 1))
        self.smallest, self.largest = min(self.smallest, n), max(self.largest, n)

    def summary(self) -> dict[str, Any]:
        return {
            "questions": self.questions,
            "nodes": [self.smallest, self.largest],
            "mean_nodes": round(self.nodes / self.questions, 2),
            "mean_edges": round(self.edges / self.questions, 2),
            "mean_density": round(self.density / self.questions, 3),
        }


def _merge(wanted: SplitPlan, parts: Path, out: Path, parquet: bool) -> dict[str, Any]:
    """Put the parts in the order of the split; returns the split's entry in the manifest."""
    tallies = {task: _Tally() for task in TASKS}
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("form", "scheme", "scenario")}
    longest = 0
    jsonl = out / f"{wanted.split}.jsonl"
    table = out / _parquet_name(wanted.split)
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(_ordered(wanted, parts))
        file = stack.enter_context(_replaced(jsonl).open("wb"))
        add_row = stack.enter_context(_parquet_rows(_replaced(table))) if parquet else None
        for text in lines:
            file.write(text)
            row = json.loads(text)
            tallies[row["task"]].add(row["n"], row["m"])
            for name, count in counts.items():
                count[row[name]] += 1
            longest = max(longest, len(row["question"]))
            if add_row is not None:
                add_row(row)
    names = [jsonl, table] if parquet else [jsonl]
    for path in names:
        _replaced(path).replace(path)
    return {
        "questions": sum(tally.questions for tally in tallies.values()),
        "graphs_per_task": wanted.count,
        "tasks": {task: tally.summary() for task, tally in tallies.items()},
        "forms": dict(sorted(counts["form"].items())),
        "schemes": dict(sorted(counts["scheme"].items())),
        "scenarios": len(counts["scenario"]),
        "longest_question": longest,
        "files": {
            path.relative_to(out).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in names
        },
        "made_with": {"agl": agl.__version__, **{name: version(name) for name in _LIBRARIES}},
    }


def _replaced(path: Path) -> Path:
    """Where `path` is written before it is complete."""
    return path.with_name(f"{path.name}.partial")


@contextlib.contextmanager
def _ordered(wanted: SplitPlan, parts: Path) -> Iterator[Iterator[bytes]]:
    """The lines of all parts in the order of the split."""
    places: dict[tuple[TaskName, int, View], tuple[int, int]] = {}
    with contextlib.ExitStack() as stack:
        files = []
        for number, units in enumerate(wanted.parts()):
            files.append(stack.enter_context(_part(parts, number).open("rb")))
            offset = 0
            keys = ((*unit, view) for unit in units for view in wanted.views(unit))
            for key, text in zip(keys, files[-1], strict=True):
                places[key] = (number, offset)
                offset += len(text)

        def lines() -> Iterator[bytes]:
            for key in order(SPLITS[wanted.split], wanted.recipe.full_views, wanted.graphs):
                number, offset = places[key]
                files[number].seek(offset)
                yield files[number].readline()

        yield lines()


def _parquet_name(split: str) -> str:
    return f"data/{split}.parquet"


@contextlib.contextmanager
def _parquet_rows(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that appends one item (its JSON object) to the Parquet file."""
    pyarrow = _pyarrow()
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), bool: pyarrow.bool_()}
    path.parent.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        writer: Any = None

        def flush() -> None:
            nonlocal writer
            if not rows:
                return
            if writer is None:
                schema = pyarrow.schema([(name, kinds[type(value)]) for name, value in rows[0].items()])
                writer = stack.enter_context(pyarrow.parquet.ParquetWriter(path, schema, compression="zstd"))
            writer.write_table(pyarrow.Table.from_pylist(rows, writer.schema))
            rows.clear()

        def add(row: dict[str, Any]) -> None:
            rows.append({name: dumps(value) if name in NESTED else value for name, value in row.items()})
            if len(rows) == ROWS_PER_GROUP:
                flush()

        yield add
        flush()


def datasheet(manifest: Mapping[str, Any]) -> str:
    """The README of a folder: a dataset card that `datasets.load_dataset(FOLDER)` understands."""
    splits, recipe = manifest["splits"], manifest["recipe"]
    files = {
        name: _parquet_name(name) if _parquet_name(name) in entry["files"] else f"{name}.jsonl"
        for name, entry in splits.items()
    }
    lines = [
        "---",
        "license: apache-2.0",
        "language: [en]",
        "task_categories: [question-answering]",
        "tags: [graphs, graph-reasoning, synthetic]",
        "pretty_name: GRIT (AGL rebuild)",
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(line for name in splits for line in (f"  - split: {name}", f"    path: {files[name]}")),
        "---",
        "",
        "# GRIT: the same graph told in eight ways",
        "",
        "Graph problems in six task families. Each graph is told in two forms (`standard`, a formal statement; "
        "`realistic`, a story with distractors) and under four naming schemes (`canonical`, `random_id`, `semantic`, "
        "`mixed`), and all of its questions have the same answer in node indices. Rebuilt by AGL after the description "
        "in arXiv 2608.27142, whose own data is not public: sizes, counts and views are the published ones, the "
        "answers are proven optimal.",
        "",
        "## Splits",
        "",
        "| split | task | questions | graphs | nodes | mean nodes | mean edges | mean density |",
        "|---|---|--:|--:|---|--:|--:|--:|",
    ]
    for name, entry in splits.items():
        for task, about in entry["tasks"].items():
            low, high = about["nodes"]
            lines.append(
                f"| {name} | {task} | {about['questions']:,} | {entry['graphs_per_task']:,} | {low}-{high} | "
                f"{about['mean_nodes']} | {about['mean_edges']} | {about['mean_density']} |"
            )
        graphs = len(TASKS) * entry["graphs_per_task"]
        lines.append(f"| {name} | all | {entry['questions']:,} | {graphs:,} | | | | |")
    lines += ["", "Means are over questions, density is 2m / (n (n - 1)).", "", "## Recipe", ""]
    lines += [f"- {name}: `{dumps(value)}`" for name, value in recipe.items()]
    lines += [f"- generator version: {manifest['generator_version']}"]
    if recipe["profile"] == "edge_budget":
        lines += [
            "- graphs: uniform among connected graphs with floor(0.20 n^2) edges (colouring, vertex cover) or "
            "floor(0.15 n^2) edges (shortest path, BFS, centrality), but at least n - 1; complete for TSP"
        ]
    lines += [
        "- weights (shortest path, TSP): whole numbers 1..10, uniform"
        + ("; TSP: rounded distances in the plane" if recipe["metric"] else ""),
        "- no graph of train, test, ood or large is isomorphic to one of another of these splits",
        "",
        "## Columns",
        "",
        "`id`, `seed`, `split`, `task`, `graph_id`, `form`, `scheme`, `scenario`, `ood`, `n`, `m`, `question`, `nodes` "
        "(names in index order), `aliases` (alias to index), `edges` (`[u, v, weight]`, u < v), `directed`, "
        "`weighted`, `query` (indices, measure), `gold` (value and witness in indices), `certificate` (what proves the "
        "answer), `generator_version`.",
        "",
        f"In Parquet, {', '.join(f'`{name}`' for name in NESTED)} are JSON text (`json.loads`); in JSONL they are "
        "plain JSON, which `datasets` reads from version 4.7 on.",
        "",
        "## How to read it",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'splits = load_dataset("DIR")  # this folder',
        *(f'{name} = load_dataset("json", data_files="DIR/{name}.jsonl")' for name in list(splits)[:1]),
        "```",
        "",
        "`agl eval grit --data DIR/SPLIT.jsonl` plays it, `agl grit verify DIR/*.jsonl` proves every answer and reads "
        "every question back.",
        "",
        "## Files",
        "",
        "| file | bytes | SHA-256 |",
        "|---|--:|---|",
    ]
    for entry in splits.values():
        lines += [f"| {name} | {about['bytes']:,} | `{about['sha256']}` |" for name, about in entry["files"].items()]
    lines += ["", "## Made with", ""]
    for name, entry in splits.items():
        lines.append(f"- {name}: {', '.join(f'{library} {number}' for library, number in entry['made_with'].items())}")
    lines += [
        "",
        "## Licence and content",
        "",
        "Apache-2.0, as AGL itself. Graphs are random, names are invented, texts come from templates; there is no "
        "third-party data, no model output and no real person in it. English only.",
    ]
    return "\n".join(lines) + "\n"
