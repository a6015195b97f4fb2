"""The episodes of a run as a pandas data frame. pandas is optional and imported here alone."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from agl.core import Env
from agl.errors import UserError
from agl.trace import Episode

_COLUMNS = (
    *("id", "attempt", "score", "reward", "outcome", "stop", "error", "retries", "turns", "actions"),
    *("tokens_prompt", "tokens_sampled", "tokens_injected", "seconds", "seconds_model"),
)
"""In every frame; `facets.*`, `parts.*` and `labels.*` follow as the environment has them."""


def frame(episodes: Iterable[Episode], env: type[Env[Any]] | None) -> Any:
    """A pandas DataFrame with one row per episode.

    Columns: `id`, `attempt`, `score` and `reward` (NaN where the machinery failed), `outcome`, `stop`, `error`,
    `retries`, `turns`, `actions`, tokens and seconds, then `facets.*`, `parts.*` and `labels.*`.

    Args:
        env: knows the facets of its tasks; None leaves them out.

    Raises:
        UserError: pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ImportError:
        raise UserError("to_pandas() needs pandas, which is not installed: pip install 'agl[notebook]'") from None
    rows = [_row(episode, env) for episode in episodes]
    extra = dict.fromkeys(name for row in rows for name in row if "." in name)
    order = {kind: place for place, kind in enumerate(("facets", "parts", "labels"))}
    names = [*_COLUMNS, *sorted(extra, key=lambda name: order[name.partition(".")[0]])]
    return pandas.DataFrame(rows, columns=names)


def _row(episode: Episode, env: type[Env[Any]] | None) -> dict[str, Any]:
    score, outcome, tokens = episode.score, episode.outcome, episode.tokens
    row: dict[str, Any] = {
        "id": episode.key[0],
        "attempt": episode.attempt,
        "score": score.total if score is not None else None,
        "reward": score.reward if score is not None else None,
        "outcome": outcome.kind.value,
        "stop": outcome.stop.value,
        "error": outcome.error,
        "retries": outcome.retries,
        "turns": sum(turn.source == "sampled" for turn in episode.transcript),
        "actions": len(episode.events),
        "tokens_prompt": tokens.prompt,
        "tokens_sampled": tokens.sampled,
        "tokens_injected": tokens.injected,
        "seconds": episode.seconds.get("total"),
        "seconds_model": episode.seconds.get("model"),
    }
    if env is not None:
        try:
            facets = env.facets(env.task_type.model_validate(episode.task))
        except ValidationError:  # a task of another version: its facets are not known, all else is
            facets = {}
        row |= {f"facets.{name}": value for name, value in facets.items()}
    if score is not None:
        row |= {f"parts.{name}": value for name, value in sorted(score.parts.items())}
        row |= {f"labels.{name}": value for name, value in sorted(score.labels.items())}
    return row
