"""`agl plan`: what a training config amounts to, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    config: Annotated[Path, typer.Argument(help="A training config, such as configs/train/grit_tiny_cpu.yaml.")],
    accelerate: Annotated[
        Path | None, typer.Option(help="The file for `accelerate launch --config_file`; tells ranks and sharding.")
    ] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Processes, whatever the accelerate file says.")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Ask the Hub for a model that is not on this machine.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Check a training config and print its batch arithmetic, context budget and memory; loads no weights.

    Example: agl plan configs/train/grit_tiny_cpu.yaml
    """
    from agl.errors import UserError
    from agl.json_text import dumps

    try:
        from train.plan import plan_file
    except ImportError as error:
        raise UserError(f"training needs torch, TRL and peft: pip install 'agl[train]' ({error})") from None

    found = plan_file(config, ranks=ranks, accelerate=accelerate, hub=hub)
    if as_json:
        typer.echo(dumps(found.as_json()))
        return
    print_plan(found.lines())


def print_plan(lines: list[tuple[str, str]]) -> None:
    """Print what and value in two columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for what, value in lines:
        table.add_row(what, value)
    Console(soft_wrap=True).print(table)
