"""`agl plan` for evaluation configs: how many prompts and tokens a run amounts to, from episodes of the oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from agl.config import load_config
from agl.json_text import dumps
from agl.policies.scripted import Oracle
from agl.rollout import Job, rollouts
from agl.trace import Episode
from agl.world import World
from eval.commands import EvalConfig, checked
from eval.runner import Plan

_CHARACTERS = 4
"""Per token: about right for English prose."""
_SAMPLE = 8
"""Most tasks of which the rest is extrapolated."""


@dataclass(frozen=True)
class Cost:
    """One run. Tokens are for all its episodes; `written` is the most that may be, `read` counts each context once.

    `seconds` at the given rates; None without them.
    """

    name: str
    episodes: int
    prompts: int
    read: int
    written: int
    seconds: float | None


def costs(config: EvalConfig, *, rates: tuple[float, float] | None = None) -> list[Cost]:
    """The cost of each variant of `config`, extrapolated from the first tasks that the oracle plays.

    Args:
        rates: tokens read and written per second, over all episodes at once.

    Raises:
        UserError: as `eval.runner.plan`.
    """
    return [_cost(name or one.env, one, checked(one), rates) for name, one in config.each().items()]


def _cost(
    name: str,
    config: EvalConfig,
    plan: Plan,
    rates: tuple[float, float] | None,
) -> Cost:
    played = asyncio.run(_play(plan))
    share = len(plan.tasks) * config.attempts * max(1, len(config.policies)) / len(played)
    turns = sum(turn.source == "sampled" for episode in played for turn in episode.transcript)
    read = sum(
        -(-len(turn.text) // _CHARACTERS)
        for episode in played
        for turn in episode.transcript
        if turn.source != "sampled"
    )
    prompts, reads = round(turns * share), round(read * share)
    written = prompts * config.sampling.max_tokens
    seconds = None if rates is None else reads / rates[0] + written / rates[1]
    return Cost(name, round(len(played) * share), prompts, reads, written, seconds)


async def _play(plan: Plan) -> list[Episode]:
    tasks = plan.tasks[:_SAMPLE]
    world = World([(task.id, 0) for task in tasks], slots=plan.concurrency) if plan.exchanges else None
    shots = plan.config["shots"]
    jobs = [Job(task, 0) for task in tasks]
    playing = rollouts(plan.make_env, jobs, Oracle(), dialect=plan.dialect, shots=shots, world=world)
    async with aclosing(playing):
        return [episode async for episode in playing]


def show(file: Path, overrides: Sequence[str], rates: tuple[float, float] | None, *, as_json: bool) -> None:
    """Print the costs of a config file."""
    found = costs(load_config(EvalConfig, file, values={}, overrides=overrides), rates=rates)
    if as_json:
        print(dumps([asdict(cost) for cost in found]))
        return
    from rich.table import Table

    from eval.tables import console

    table = Table(title="What a run amounts to", title_justify="left")
    table.add_column("run")
    for column in ("episodes", "prompts", "tokens read", "tokens written, at most", "hours, at most"):
        table.add_column(column, justify="right")
    for cost in found:
        hours = "-" if cost.seconds is None else f"{cost.seconds / 3600:,.2f}"
        table.add_row(
            cost.name, *(f"{number:,}" for number in (cost.episodes, cost.prompts, cost.read, cost.written)), hours
        )
    screen = console()
    screen.print(table)
    screen.print(
        f"Extrapolated from {_SAMPLE} episodes of the oracle, {_CHARACTERS} characters a token; each context is read "
        "once."
    )
    if rates is None:
        screen.print("Give --rates READ,WRITE (tokens per second over all episodes) for the time.")
