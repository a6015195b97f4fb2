"""`agl data`: list, describe, check and build text-attributed graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agl.errors import UserError
from agl.json_text import dumps

app = typer.Typer(add_completion=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]
Graph = Annotated[str, typer.Argument(metavar="NAME|DIR", help="Name of a source, or a folder with a graph.")]
Texts = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Texts of a downloaded graph: a table by id, or a folder.", show_default=False),
]
Synthetic = Annotated[bool, typer.Option("--allow-synthetic-text", help="Take graphs whose texts nobody wrote.")]


@app.command("list")
def list_sources(as_json: AsJson = False) -> None:
    """List the graphs that can be opened by name, and what each needs.

    Example: agl data list
    """
    from agl.graphs.sources import SOURCES

    if as_json:
        typer.echo(dumps({name: {"about": source.about, "needs": source.needs} for name, source in SOURCES.items()}))
        return
    width = max(map(len, SOURCES))
    for name, source in SOURCES.items():
        typer.echo(f"{name:<{width}}  {source.about} Needs {source.needs}.")


@app.command()
def info(graph: Graph, texts: Texts = None, allow_synthetic_text: Synthetic = False, as_json: AsJson = False) -> None:
    """Describe a graph: counts, classes, splits, homophily, checksum.

    Example: agl data info networkx-docs

    Example: agl data info data/cora --json
    """
    from agl.graphs.data_check import card
    from agl.graphs.sources import open_graph

    facts = card(open_graph(graph, texts=texts, allow_synthetic_text=allow_synthetic_text))
    if as_json:
        typer.echo(dumps(facts))
        return
    for line in _lines(facts):
        typer.echo(line)


@app.command()
def check(
    graph: Graph,
    texts: Texts = None,
    repair: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the graph with the proposed shift of texts here.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a graph: lines that cannot be used, gaps, stale counts, and texts that belong to other nodes.

    Exits 0 when there is no error and 1 when there is one.

    Example: agl data check data/cora

    Example: agl data check data/citeseer --repair data/citeseer-repaired
    """
    from agl.graphs.data_check import check as check_graph
    from agl.graphs.data_check import check_folder, shifted
    from agl.graphs.sources import SOURCES, open_graph
    from agl.graphs.sources.folder import write_folder

    if graph in SOURCES:
        report = check_graph(open_graph(graph, texts=texts, allow_synthetic_text=True))
    elif not Path(graph).is_dir():
        raise UserError(f"expected a folder with a graph or a name of `agl data list`, got {graph!r}")
    else:
        report = check_folder(graph)
    if repair is not None and report.shift:
        write_folder(shifted(open_graph(graph, texts=texts, allow_synthetic_text=True), report.shift), repair)
    if as_json:
        typer.echo(dumps(report.to_json()))
    else:
        for finding in report.findings:
            typer.echo(f"{finding.level}: {finding.message}")
        typer.echo(f"{report.name}: {'fit for use' if report.ok else 'not fit for use'}")
        if repair is not None:
            typer.echo(f"repaired graph written to {repair}" if report.shift else "nothing to repair by a shift")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def build(
    name: Annotated[str, typer.Argument(metavar="NAME|DIR", help="Name of a source, or a folder with a graph.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder to write to.", show_default=False)],
    texts: Texts = None,
    shift: Annotated[int, typer.Option(help="Give node i the text of node i + SHIFT (PromptGFM tables).")] = 0,
    allow_synthetic_text: Synthetic = False,
    as_json: AsJson = False,
) -> None:
    """Write a graph as a folder: nodes.jsonl, edges.tsv, meta.json, splits.json.

    Example: agl data build networkx-docs --out data/networkx-docs

    Example: agl data build ogbn-arxiv --out data/arxiv
    """
    from agl.graphs.data_check import card
    from agl.graphs.sources import open_graph
    from agl.graphs.sources.folder import write_folder
    from agl.graphs.sources.promptgfm import read_tables

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"expected an empty or new folder as --out, got {out}, which holds something")
    if shift:
        graph = read_tables(Path(name), shift)
    else:
        graph = open_graph(name, texts=texts, allow_synthetic_text=allow_synthetic_text)
    write_folder(graph, out)
    facts = card(graph)
    typer.echo(
        dumps({"out": str(out), **facts})
        if as_json
        else f"{out}: {facts['nodes']} nodes, {facts['edges']} edges, {len(facts['classes'])} classes"
    )


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{key}: {value}" for key, value in facts.items() if not isinstance(value, dict) and value is not None]
    for key in ("counts", "meta", "classes"):
        lines.append(f"{key}:")
        lines += [f"  {name}: {value}" for name, value in facts[key].items()]
    for name, parts in facts["splits"].items():
        lines.append(f"split {name}: " + ", ".join(f"{part} {size}" for part, size in parts.items()))
    return lines
