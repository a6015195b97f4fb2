"""A recorded episode to read in the terminal, and the list of episodes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from agl.core import Frozen
from agl.errors import DataError
from agl.json_text import dumps
from agl.run_folder import EPISODES
from agl.trace import Episode, Turn, read_episodes
from eval.compare import run_config
from eval.visible import visible

_STYLES = {"prompt": "dim", "sampled": "green", "injected": "cyan"}
_GUTTER = "| "
"""Stands before every line of recorded text, so that no such line can pass for one of ours."""


class Listed(Frozen):
    """One episode of a run in brief; `score` is None where the machinery failed."""

    id: str
    attempt: int
    score: float | None
    reward: float | None
    outcome: str
    stop: str


class Listing(Frozen):
    """What `agl show --json` prints without `--episode`: `episodes` from number `skipped` on, out of `total`."""

    total: int
    skipped: int
    episodes: list[Listed]


def listing(run: Path, *, limit: int, skip: int = 0) -> Listing:
    """Episodes of the run in file order, of each key the last record.

    Raises:
        DataError: no run in the folder, or an unreadable record.
    """
    run_config(run)
    latest: dict[tuple[str, int], Listed] = {}
    for episode in read_episodes(run / EPISODES):
        score = episode.score
        latest[episode.key] = Listed(
            id=episode.key[0],
            attempt=episode.attempt,
            score=score.total if score is not None else None,
            reward=score.reward if score is not None else None,
            outcome=episode.outcome.kind.value,
            stop=episode.outcome.stop.value,
        )
    return Listing(total=len(latest), skipped=skip, episodes=list(latest.values())[skip : skip + limit])


def find(run: Path, task_id: str, attempt: int | None = None) -> tuple[Episode, list[int]]:
    """The last record of an episode, and all attempts at its task that the run holds; None is the first attempt.

    Raises:
        DataError: no run in the folder, or no such episode; the nearest ids are named.
    """
    run_config(run)
    found: dict[int, Episode] = {}
    ids: dict[str, None] = {}
    for episode in read_episodes(run / EPISODES):
        ids[episode.key[0]] = None
        if episode.key[0] == task_id:
            found[episode.attempt] = episode
    if not found:
        inside = [known for known in ids if task_id and task_id in known]
        near = inside[:3] or get_close_matches(task_id, ids, n=3, cutoff=0.4) or list(ids)[:3]
        hint = f"nearest: {', '.join(map(repr, near))}" if near else "the run has no episodes yet"
        raise DataError(f"expected the id of an episode in {run}, got {task_id!r}; {hint}")
    attempts = sorted(found)
    if attempt is not None and attempt not in found:
        raise DataError(
            f"expected an attempt at {task_id!r} in {run}, got --attempt {attempt}; "
            f"choose one of: {', '.join(map(str, attempts))}"
        )
    return found[attempts[0] if attempt is None else attempt], attempts


def listed(found: Listing) -> list[RenderableType]:
    """The listing as a table for the terminal, and where it stands in the whole."""
    table = Table()
    for name in ("episode", "attempt", "score", "reward", "outcome", "stop"):
        table.add_column(name, justify="left" if name in ("episode", "outcome", "stop") else "right", overflow="fold")
    for row in found.episodes:
        score, reward = ("-" if value is None else f"{value:.3f}" for value in (row.score, row.reward))
        table.add_row(Text(visible(row.id)), str(row.attempt), score, reward, row.outcome, row.stop)
    end = found.skipped + len(found.episodes)
    where = f"{found.skipped + 1:,} to {end:,}" if found.episodes else "none"
    line = f"episodes: {where} of {found.total:,}"
    if end < found.total:
        line += f"; go on with --skip {end}, or show more with --limit"
    return [table, Text(line)]


def show_episode(screen: Console, episode: Episode, attempts: list[int], *, prompt: bool = False) -> None:
    """Print one episode; `prompt` also shows the prompt messages, of which else only the question is seen."""

    def say(line: str, style: str = "") -> None:
        screen.print(Text(visible(line), style=style), soft_wrap=True)

    def quote(text: str, style: str = "") -> None:
        for line in _lines(text, screen):
            screen.print(Text.assemble((_GUTTER, "dim"), (line, style)), soft_wrap=True)

    for line in _head(episode, attempts):
        say(line)
    turns = [(source, list(group)) for source, group in groupby(episode.transcript, key=lambda turn: turn.source)]
    for number, (source, group) in enumerate(turns, 1):
        if source == "prompt" and not prompt:
            size = sum(len(turn.text) for turn in group)
            say(f"{number}. [prompt] {len(group)} messages, {size:,} characters; --prompt shows them", "bold")
            if number == 1 and (question := _question(group)):
                say("question:", "bold")
                quote(question)
            continue
        for turn in group:
            finish = f", finish {turn.finish}" if turn.finish else ""
            say(f"{number}. [{source}] {turn.role}{finish}", "bold")
            quote(turn.text, _STYLES[source])
    say(f"actions: {len(episode.events)}", "bold")
    for number, event in enumerate(episode.events, 1):
        say(f"{number}. {event.action} {dumps(event.arguments, sort_keys=False)}")
        say("observation (error):" if event.is_error else "observation:", "red" if event.is_error else "")
        quote(event.observation)


def _head(episode: Episode, attempts: list[int]) -> Iterator[str]:
    others = f" of {', '.join(map(str, attempts))} (--attempt N)" if len(attempts) > 1 else ""
    yield f"episode: {episode.key[0]}, attempt {episode.attempt}{others}"
    yield f"env: {episode.task.get('env')}, policy: {episode.policy}, dialect: {episode.dialect}"
    outcome = episode.outcome
    retried = f", retries {outcome.retries}" if outcome.retries else ""
    yield f"outcome: {outcome.kind.value}, stopped by {outcome.stop.value}{retried}"
    if outcome.error is not None:
        yield f"error: {outcome.error}"
    if (score := episode.score) is not None:
        yield f"score: {score.total:.3f}, reward: {score.reward:.3f}"
        parts = (f"{name} {'-' if value is None else f'{value:.4g}'}" for name, value in sorted(score.parts.items()))
        yield f"parts: {', '.join(parts) or 'none'}"
        yield f"labels: {', '.join(f'{name} {value}' for name, value in sorted(score.labels.items())) or 'none'}"
    else:
        yield "score: none (the machinery failed, so this is no sample)"
    tokens = episode.tokens
    counts = {"prompt": tokens.prompt, "sampled": tokens.sampled, "injected": tokens.injected}
    yield "tokens: " + ", ".join(f"{name} {'-' if count is None else f'{count:,}'}" for name, count in counts.items())
    yield "seconds: " + ", ".join(f"{name} {value:.3g}" for name, value in sorted(episode.seconds.items()))


def _question(prompt: list[Turn]) -> str | None:
    return next((turn.text for turn in reversed(prompt) if turn.role == "user"), None)


def _lines(text: str, screen: Console) -> Iterator[str]:
    """Lines that a terminal does not wrap itself, since what it wraps would lose its gutter."""
    for line in visible(text, lines=True).expandtabs(4).split("\n"):
        if not screen.is_terminal or not line:
            yield line
        else:
            yield from (part.plain for part in Text(line).wrap(screen, max(8, screen.width - len(_GUTTER) - 1)))
