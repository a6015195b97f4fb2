"""`agl grit perturb`, `agl grit traces` and `agl grit table`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agl.errors import DataError, UserError
from agl.json_text import dumps
from agl.registry import guarded_import
from envs.grit.graph_files import FORMATS, Refused, read_graphs
from envs.grit.items import FORMS, SCHEMES, TASKS, Form
from envs.grit.perturb import Settings, write
from envs.grit.perturb import perturb as perturbed

_SHOWN = 20


def perturb(
    graphs: Annotated[list[Path], typer.Argument(metavar="GRAPHS...", help=f"Files of graphs: {', '.join(FORMATS)}.")],
    out: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="Where the questions go.")],
    schemes: Annotated[str, typer.Option(help="Naming schemes, separated by commas.")] = ",".join(SCHEMES),
    task: Annotated[
        list[str] | None,
        typer.Option(help="Task; repeat it for several. Default: all that a graph is fit for.", show_default=False),
    ] = None,
    form: Annotated[str, typer.Option(help="standard, realistic or both.")] = "both",
    domain: Annotated[str | None, typer.Option(help="Domain of names and stories. Default: any.")] = None,
    ood: Annotated[bool, typer.Option("--ood", help="Out-of-distribution names and stories.")] = False,
    seed: Annotated[int, typer.Option(help="Of names, wording and questions.")] = 0,
    seconds: Annotated[float, typer.Option(help="Most seconds for one exact answer.")] = 60.0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out graphs that cannot be used.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Tell your own graphs as GRIT questions under several naming schemes, answers proven.

    Graphs are undirected. Beside FILE.jsonl stands FILE.names.jsonl: for each question the map from your names to the
    new ones. Without --skip-bad one unusable graph stops everything before a file is written.

    Example: agl grit perturb roads.graphml --schemes canonical,semantic --task shortest_path --out roads.jsonl
    """
    settings = Settings(
        tasks=_chosen("--task", task, TASKS) if task else None,
        schemes=_chosen("--schemes", [schemes], SCHEMES),
        forms=_forms(form),
        seed=seed,
        domain=domain,
        ood=ood,
        seconds=seconds,
    )
    if not seconds > 0:
        raise UserError(f"expected --seconds above 0, got {seconds:g}")
    if out.resolve() in {path.resolve() for path in graphs}:
        raise UserError(f"expected an --out that is none of the inputs, got {out}; choose another name")
    read = [graph for path in graphs for graph in read_graphs(path)]
    made = perturbed(read, settings)
    if made.refused and not skip_bad:
        raise DataError(_refusal(made.refused, len(read)))
    if not made.renamed:
        raise DataError(f"expected at least one usable graph, got none; the first: {made.refused[0]}")
    names = write(made.renamed, out)
    if as_json:
        told = {"questions": len(made.renamed), "graphs": len(read) - len(made.refused), "out": str(out)}
        skipped = [{"where": bad.where, "reason": bad.reason} for bad in made.refused]
        typer.echo(dumps({**told, "names": str(names), "refused": skipped, "left_out": list(made.left_out)}))
        return
    for bad in made.refused:
        print(f"agl: left out {bad}", file=sys.stderr)
    for index, reason in enumerate(made.left_out):
        if index == _SHOWN:
            print(f"agl: and {len(made.left_out) - _SHOWN} more", file=sys.stderr)
            break
        print(f"agl: no question: {reason}", file=sys.stderr)
    typer.echo(f"{len(made.renamed):,} questions about {len(read) - len(made.refused):,} graphs: {out}")
    typer.echo(f"your names and the new ones: {names}")
    typer.echo(f"next: agl eval grit --policy oracle --data {out}")


def _refusal(refused: tuple[Refused, ...], count: int) -> str:
    first, *rest = refused
    if count == 1:
        return str(first)
    others = "".join(f"; {bad}" for bad in rest[: _SHOWN - 1])
    more = f"; and {len(rest) - _SHOWN + 1} more" if len(rest) >= _SHOWN else ""
    remedy = "correct them, or add --skip-bad to leave them out"
    return f"{len(refused)} of {count} graphs cannot be used, nothing was written; {remedy}: {first}{others}{more}"


def _chosen(option: str, given: list[str], legal: tuple[Any, ...]) -> tuple[Any, ...]:
    """Names out of `legal`, each once, in the order of `legal`."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in names:
        if name not in legal:
            raise UserError(f"expected {option} out of {', '.join(legal)}, got {name!r}")
    if not names:
        raise UserError(f"expected {option} out of {', '.join(legal)}, got none")
    return tuple(name for name in legal if name in names)


def _forms(form: str) -> tuple[Form, ...]:
    if form == "both":
        return FORMS
    chosen: tuple[Form, ...] = _chosen("--form", [form], (*FORMS, "both"))
    return chosen


def traces(
    out: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="Where the traces go.")],
    split: Annotated[str, typer.Option(metavar="NAME|FILE", help="Generated split or file of items.")] = "train",
    max_nodes: Annotated[
        int | None, typer.Option(help="Largest graph. Default: any; the paper warms up on 14.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Most traces.")] = None,
    dialect: Annotated[Literal["tags", "tools"], typer.Option(help="How actions are written.")] = "tags",
    shots: Annotated[int, typer.Option(help="Worked examples in the prompt.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the generated split.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Write expert traces for supervised fine-tuning; each was played back and earned the full reward of 2.0.

    Example: agl grit traces --split train --max-nodes 14 --limit 500 --dialect tags --out warm.jsonl
    """
    from envs.grit.traces import expert_traces, write_traces

    for option, value, least in (("--max-nodes", max_nodes, 1), ("--limit", limit, 1), ("--shots", shots, 0)):
        if value is not None and value < least:
            raise UserError(f"expected {option} of at least {least}, got {value}")
    count = write_traces(
        expert_traces(split, max_nodes=max_nodes, limit=limit, dialect=dialect, shots=shots, seed=seed), out
    )
    if not count:
        raise DataError(f"expected items of at most {max_nodes} nodes in {split}, got none; raise --max-nodes")
    typer.echo(dumps({"traces": count, "out": str(out)}) if as_json else f"{count:,} traces: {out}")


def table(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN [RUN_OOD]", help="Run folder, and one on the split ood for the gap.")
    ],
    beside: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="Another run for further rows; repeatable.")
    ] = None,
    published: Annotated[bool, typer.Option(help="Show the figures of the paper beside.")] = True,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Lay evaluation runs on GRIT out as the tables of the GRAIN paper.

    Example: agl grit table runs/test runs/ood --beside runs/magts --markdown
    """
    if not 1 <= len(runs) <= 2:
        raise UserError(f"expected RUN and perhaps RUN_OOD, got {len(runs)} folders; give others as --beside")
    show = guarded_import("eval.grain_tables").show
    style = "json" if as_json else "markdown" if markdown else "terminal"
    show(runs[0], runs[1] if len(runs) > 1 else None, beside or (), published=published, style=style)


COMMANDS = (perturb, traces, table)
"""What the `agl grit` app registers."""
