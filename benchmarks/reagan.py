"""Model calls per node, nodes per second with a scripted policy, the framework's share beside a real model, and batched
against one-at-a-time evaluation of the same nodes in one run.

    python benchmarks/reagan.py [--no-model]

Promised: under 3 % of a node's time outside the model. `networkx-docs` is the graph, since it needs nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agl.policies.policy import Policy, Sampling
from agl.policies.scripted import Player
from agl.rollout import Limits
from agl.run_folder import EPISODES
from agl.trace import Episode, read_episodes
from eval.runner import evaluate

PROMISED_SHARE = 0.03
SMALL: dict[str, Any] = {"layers": 1, "top_k": 2, "text_chars": 60, "neighbours": 4}


def _play(folder: Path, policy: Policy, **settings: Any) -> tuple[list[Episode], float]:
    began = time.perf_counter()
    evaluate("reagan", policy, out=folder, limits=Limits(deadline=3600), **settings)
    return list(read_episodes(folder / EPISODES)), time.perf_counter() - began


def calls(folder: Path) -> None:
    """Model calls per node under the options that decide them."""
    for name, options in {
        "L = 1": {"layers": 1},
        "L = 2": {},
        "L = 4": {"layers": 4},
        "planning off": {"planning": False},
    }.items():
        player = Player("oracle-planner")
        episodes, _ = _play(folder / name, player, limit=50, env_options=options)
        turns = sum(turn.source == "sampled" for episode in episodes for turn in episode.transcript)
        print(f"model calls per node, {name:14} {turns / len(episodes):8.2f}")
    _play(folder / "warm", Player("vote"), limit=8)
    for name in ("oracle-planner", "no-op"):
        episodes, seconds = _play(folder / f"rate-{name}", Player(name), limit=400, concurrency=64)
        print(f"nodes per second, player {name:15} {len(episodes) / seconds:8.0f}")


def model(folder: Path) -> None:
    """Share of the framework, and batched against one at a time."""
    from agl.policies.hf import HfPolicy

    taken = {}
    answers = {}
    for concurrency in (1, 16):
        policy = HfPolicy("smollm2", Sampling(max_tokens=24, constrained=True))
        episodes, taken[concurrency] = _play(
            folder / f"model-{concurrency}", policy, limit=8, concurrency=concurrency, env_options=SMALL
        )
        answers[concurrency] = {
            episode.task["id"]: episode.score.labels["predicted"] for episode in episodes if episode.score is not None
        }
        if concurrency == 1:
            outside = sum(episode.seconds["framework"] for episode in episodes)
            whole = sum(episode.seconds["total"] for episode in episodes)
            print(f"share outside the model: {outside / whole:.4f} (promised {PROMISED_SHARE})")
    same = sum(answers[16].get(node) == label for node, label in answers[1].items())
    print(
        f"8 nodes one at a time {taken[1]:.1f} s, batched {taken[16]:.1f} s: {taken[1] / taken[16]:.2f} times as fast"
    )
    print(f"same label in {same} of 8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        calls(Path(name))
        if "--no-model" not in sys.argv:
            model(Path(name))


if __name__ == "__main__":
    main()
