"""Recorded runs as the tables of papers read them: the scored episodes of a folder, means over them, their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.errors import DataError
from agl.run_folder import CONFIG, EPISODES, read_object
from agl.stats import estimate
from agl.trace import Episode, counted_episodes
from eval.paper_table import Figure


@dataclass(frozen=True)
class ScoredRun:
    """What a run folder holds; `failures` counts the episodes that the machinery lost."""

    config: dict[str, Any]
    episodes: tuple[Episode, ...]
    failures: int


def run_folders(path: Path) -> list[Path]:
    """The run folder `path`, or all below it.

    Raises:
        DataError: there is none.
    """
    folders = [path] if (path / CONFIG).is_file() else sorted(found.parent for found in path.rglob(CONFIG))
    if not folders:
        raise DataError(f"expected a run folder, got {path}, which holds no {CONFIG}; check the path")
    return folders


def scored_run(folder: Path, envs: Collection[str], name: str) -> ScoredRun:
    """The run in `folder`, of one of `envs`, which are called `name` in messages.

    Raises:
        DataError: a run of another environment, or one without a scored episode.
    """
    config = read_object(folder / CONFIG)
    if config.get("env") not in envs:
        raise DataError(f"expected a run of {name} in {folder}, got one of {config.get('env')!r}; choose another")
    if not (folder / EPISODES).is_file():
        raise DataError(f"expected {EPISODES} in {folder}, got none; finish the run with --resume")
    episodes = list(counted_episodes(folder / EPISODES))
    scored = tuple(episode for episode in episodes if episode.score is not None)
    if not scored:
        raise DataError(f"expected scored episodes in {folder}, got none; finish the run with --resume")
    return ScoredRun(config, scored, len(episodes) - len(scored))


def mean(values: Sequence[float | None], clusters: Sequence[Hashable], *, bounded: bool = True) -> Figure | None:
    """Mean of the values that are not None, with its interval; None without any.

    Args:
        clusters: for each value, what it depends on, such as the id of a task whose attempts are no independent trials.
    """
    found = [(value, cluster) for value, cluster in zip(values, clusters, strict=True) if value is not None]
    if not found:
        return None
    known, owners = zip(*found, strict=True)
    return Figure(**estimate(known, owners, bounded=bounded)._asdict())


def distinct(names: Sequence[str]) -> list[str]:
    """`names` in order, those that come more than once told apart by a number."""
    counts, seen = Counter(names), Counter[str]()
    told = []
    for name in names:
        seen[name] += 1
        told.append(name if counts[name] == 1 else f"{name} #{seen[name]}")
    return told
