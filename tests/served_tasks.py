"""Which tasks a training run served, and when: read from the episodes that it left in OUTPUT_DIR/episodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agl.errors import DataError
from agl.trace import read_episodes

_FILE = re.compile(r"(?P<step>\d+)-(?P<draw>\d+)-rank(?P<rank>\d+)\.jsonl")


@dataclass(frozen=True)
class Served:
    """One generation. `step`: optimiser steps done before it; `tasks`: ids of its tasks in order, each once."""

    step: int
    tasks: tuple[str, ...]


def served(output: Path) -> list[Served]:
    """The generations of a run in the order in which they were sampled, those of all ranks together.

    A run that resumed amid a generation has sampled that one again, and it is listed twice.

    Raises:
        DataError: no such episodes, or a file that cannot be read.
    """
    files: dict[tuple[int, int], dict[int, Path]] = {}
    for file in (output / "episodes").glob("*.jsonl"):
        if found := _FILE.fullmatch(file.name):
            step, draw, rank = (int(found[name]) for name in ("step", "draw", "rank"))
            files.setdefault((step, draw), {})[rank] = file
    if not files:
        raise DataError(
            f"expected the output folder of a training, got {output}, which has no episodes/STEP-DRAW-rankR.jsonl; "
            "train with save_episodes: true"
        )
    generations = []
    for (step, _), ranks in sorted(files.items()):
        ids = (episode.task["id"] for _, file in sorted(ranks.items()) for episode in read_episodes(file))
        generations.append(Served(step, tuple(dict.fromkeys(ids))))
    return generations
