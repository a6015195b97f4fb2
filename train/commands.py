"""`agl plan`: what a config amounts to, before any model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    config: Annotated[Path, typer.Argument(help="A training or evaluation config.")],
    accelerate: Annotated[
        Path | None, typer.Option(help="The file for `accelerate launch --config_file`; tells ranks and sharding.")
    ] = None,
    ranks: Annotated[int | None, typer.Option(min=1, help="Processes, whatever the accelerate file says.")] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Ask the Hub for a model that is not on this machine.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An option of an evaluation config.")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(metavar="READ,WRITE", help="Tokens per second that the model of an evaluation reads and writes."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Check a config and say what it amounts to; loads no weights.

    Of training: rows, steps, tokens and memory; of reinforcement learning its groups and context budget, too. Of an
    evaluation: prompts and tokens of each run, from a few episodes of the oracle.

    Example: agl plan configs/train/grit_tiny_cpu.yaml

    Example: agl plan configs/eval/reagan_ablation.yaml --set data=data/cora --rates 20000,2000
    """
    from agl.config import read_yaml
    from agl.errors import UserError
    from agl.json_text import dumps
    from agl.registry import guarded_import
    from train.program import require_libraries

    values = read_yaml(config)
    # Training configs name a model; their environment stands in `environment`.
    if "policy" in values or ("env" in values and "model_name_or_path" not in values):
        guarded_import("eval.cost").show(config, set_ or (), _rates(rates), as_json=as_json)
        return
    if set_ or rates:
        raise UserError("expected --set and --rates with an evaluation config, got a training config; drop them")
    require_libraries()
    # What is imitated is told by one of these two, and of reinforcement learning they are no options.
    module = "train.sft_plan" if {"recipe", "traces"} & values.keys() else "train.plan"
    found = guarded_import(module).plan_file(config, ranks=ranks, accelerate=accelerate, hub=hub)
    if as_json:
        typer.echo(dumps(found.as_json()))
        return
    print_plan(found.lines())


def _rates(text: str | None) -> tuple[float, float] | None:
    from agl.errors import UserError

    if text is None:
        return None
    try:
        read, write = (float(part) for part in text.split(","))
    except ValueError:
        read = write = 0.0
    if not (0 < read < float("inf") and 0 < write < float("inf")):
        raise UserError(f"expected --rates READ,WRITE such as 20000,2000, got {text!r}")
    return read, write


def print_plan(lines: list[tuple[str, str]]) -> None:
    """Print what and value in two columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for what, value in lines:
        table.add_row(what, value)
    Console(soft_wrap=True).print(table)
