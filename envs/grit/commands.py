"""`agl grit`: build splits of the benchmark, prove them, describe them."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from agl.errors import UserError
from agl.json_text import dumps
from envs.grit.build import SPLITS, Recipe
from envs.grit.graphs import Profile
from envs.grit.perturb_commands import COMMANDS

app = typer.Typer(add_completion=False)

Workers = Annotated[int | None, typer.Option(min=1, help="Processes. Default: one per processor.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]


@app.command()
def build(
    split: Annotated[
        list[str], typer.Option(metavar="NAME", help=f"{', '.join(SPLITS)}; repeat it for several.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    graphs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Graphs per task. Default: all.", show_default=False)
    ] = None,
    full_views: Annotated[
        bool, typer.Option("--full-views", help="All 8 views of vertex cover in test, not the published 6.")
    ] = False,
    profile: Annotated[str, typer.Option(help=f"Graph model: {', '.join(get_args(Profile))}.")] = "edge_budget",
    metric: Annotated[bool, typer.Option("--metric", help="TSP with distances in the plane.")] = False,
    unicode: Annotated[bool, typer.Option("--unicode", help="Typographic apostrophes in names and texts.")] = False,
    workers: Workers = None,
    parquet: Annotated[bool, typer.Option(help="Write Parquet too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Generate splits of GRIT into a folder: JSONL, Parquet, manifest and datasheet.

    The bytes depend on the options alone, not on the number of processes. After an interruption the same command goes
    on; a split that is there already is left as it is.

    Example: agl grit build --split test --seed 0 --out data/grit

    Example: agl grit build --split train --split test --split large --split ood --out data/grit
    """
    from envs.grit.export import SplitPlan
    from envs.grit.export import build as build_split

    if profile not in get_args(Profile):
        raise UserError(f"expected --profile {', '.join(get_args(Profile))}, got {profile!r}")
    if unknown := [name for name in split if name not in SPLITS]:
        raise UserError(f"expected --split {', '.join(SPLITS)}, got {unknown[0]!r}")
    recipe = Recipe.model_validate(
        {"seed": seed, "profile": profile, "metric": metric, "full_views": full_views, "unicode": unicode}
    )
    screen = Console(stderr=True)
    written: dict[str, bool] = {}
    for name in dict.fromkeys(split):
        plan = SplitPlan(split=name, recipe=recipe, graphs=graphs)
        try:
            with _progress(f"grit {name}", "graphs", screen) as on_graphs:
                written[name] = build_split(
                    plan, out, workers=workers or _processors(), parquet=parquet, on_graphs=on_graphs
                )
        except KeyboardInterrupt:
            again = shlex.join(["agl", *sys.argv[1:]])
            print(f"agl: interrupted; finished parts are kept; continue with: {again}", file=sys.stderr)
            raise typer.Exit(130) from None
    _print_built(out, written, as_json)


def _print_built(out: Path, written: dict[str, bool], as_json: bool) -> None:
    from agl.run_folder import read_object
    from envs.grit.export import MANIFEST

    entries = read_object(out / MANIFEST)["splits"]
    if as_json:
        typer.echo(dumps({name: {"written": new, **entries[name]} for name, new in written.items()}))
        return
    for name, new in written.items():
        entry, (file, about) = entries[name], next(iter(entries[name]["files"].items()))
        state = "" if new else " (was there already, unchanged)"
        typer.echo(f"{name}: {entry['questions']:,} questions, {out / file}, SHA-256 {about['sha256']}{state}")
    files = " ".join(shlex.quote(str(out / f"{name}.jsonl")) for name in written)
    first = shlex.quote(str(out / f"{next(iter(written))}.jsonl"))
    typer.echo(f"next:\n  agl grit verify {files}\n  agl eval grit --policy oracle --data {first} --limit 12")


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSONL files of GRIT items.")],
    workers: Workers = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Also generate every item again and compare.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the ten invariants of a release on every item; exit code 1 if one is broken.

    Questions are read back by an independent parser, and optimality is proven without the solvers. Name all splits at
    once: that no graph is in two of them can only be seen then.

    Example: agl grit verify data/grit/train.jsonl data/grit/test.jsonl
    """
    from envs.grit.invariants import verify as verify_files

    twice = [path for path in files if files.count(path) > 1]
    if twice:
        raise UserError(f"expected different files, got {twice[0]} twice; remove one")
    try:
        with _progress("grit verify", "graphs", Console(stderr=True)) as on_graphs:
            report = verify_files(files, workers=workers or _processors(), rebuild=rebuild, on_graphs=on_graphs)
    except KeyboardInterrupt:
        print("agl: interrupted; not all graphs were checked", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(dumps(report.summary()))
    else:
        from envs.grit.invariants import table

        screen = Console(soft_wrap=True)
        screen.print(table(report))
        for number, finding in report.findings.items():
            for fault in finding.first:
                screen.print(f"{number}: {fault.where}: {fault.message}", markup=False, highlight=False)
            if finding.faults > len(finding.first):
                screen.print(f"{number}: and {finding.faults - len(finding.first):,} more", highlight=False)
        for note in report.notes:
            screen.print(f"note: {note}", markup=False, highlight=False)
        screen.print(f"{report.items:,} items: {'all invariants hold' if report.passed else 'FAILED'}", highlight=False)
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL file of GRIT items.")], as_json: AsJson = False
) -> None:
    """Print sizes, densities and counts of a file, for test beside the published figures.

    Example: agl grit stats data/grit/test.jsonl
    """
    from envs.grit.items import read
    from envs.grit.stats import describe, tables

    try:
        described = describe(read(file))
    except ValueError:
        raise UserError(f"expected GRIT items in {file}, got none; check the path") from None
    if as_json:
        typer.echo(dumps(described))
        return
    screen = Console(width=None if sys.stdout.isatty() else 160)
    for table in tables(described):
        screen.print(table)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def _progress(title: str, unit: str, screen: Console) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total): a bar on a terminal, now and then a line elsewhere."""
    if screen.is_terminal:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Left

        columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Left())
        with Progress(*columns, console=screen, transient=True) as bar:
            row = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(row, completed=done, total=total)
        return
    said = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said > _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            screen.print(f"{title}: {done:,} of {total:,} {unit}", markup=False, highlight=False)

    yield say


for command in COMMANDS:
    app.command()(command)
