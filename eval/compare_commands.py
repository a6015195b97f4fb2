"""`agl compare` and `agl show`: recorded runs in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl.errors import UserError


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="Run folder.", show_default=False)],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Run folder on the same tasks.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Compare two runs pair by pair: B - A on the same (task, attempt), with clustered bootstrap 95 % intervals.

    Scores of 0 and 1 also get McNemar's exact test. Runs on different tasks are refused; options that differ (policy,
    dialect, shots, sampling, env options) are listed.

    Example: agl compare runs/before runs/after
    """
    from eval.compare import compare as compared
    from eval.compare import rendered
    from eval.tables import console
    from eval.visible import visible_json

    found = compared(run_a, run_b)
    if as_json:
        print(visible_json(found.model_dump_json()))
        return
    screen = console()
    for item in rendered(found):
        screen.print(item, soft_wrap=not screen.is_terminal)


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)],
    episode: Annotated[
        str | None, typer.Option(metavar="ID", help="Task id. Without it episodes are listed.", show_default=False)
    ] = None,
    attempt: Annotated[int | None, typer.Option(help="Which attempt. Default: the first.", show_default=False)] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Show the whole prompt.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most episodes to list.")] = 20,
    skip: Annotated[int, typer.Option(min=0, help="Episodes to leave out at the start of the list.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record, or the list, as one JSON object.")] = False,
) -> None:
    """Read one recorded episode, turn by turn, or list the episodes of a run.

    Example: agl show runs/first

    Example: agl show runs/first --episode mini-sp-0000-std-canonical --prompt
    """
    from eval.show import find, listed, listing, show_episode
    from eval.tables import console
    from eval.visible import visible_json

    screen = console()
    if episode is None:
        if attempt is not None or prompt:
            option = "--prompt" if attempt is None else "--attempt"
            raise UserError(f"expected --episode ID with {option}, got none; name the episode")
        found = listing(run, limit=limit, skip=skip)
        if as_json:
            print(visible_json(found.model_dump_json()))
            return
        for item in listed(found):
            screen.print(item)
        return
    record, attempts = find(run, episode, attempt)
    if as_json:
        print(visible_json(record.line()))
        return
    show_episode(screen, record, attempts, prompt=prompt)
