"""Graphs for the tests of ReaGAN, and a policy that says given texts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agl.core import OutcomeKind
from agl.json_text import dumps
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play, Policy
from agl.policies.scripted import ScriptedDialogue
from agl.rollout import Job, rollout, rollouts
from agl.trace import Episode
from agl.world import World
from envs.reagan.env import ReaganEnv
from envs.reagan.tasks import ReaganTask
from tests.text_graphs import node, write


def blocks(folder: Path, n: int = 60, classes: int = 3, *, hidden: str = "true", seed: int = 0) -> Path:
    """Classes that tell by neighbours and by words. Node 0 is isolated, node 1 has no text; both are test nodes.

    `hidden`: labels of all but training nodes are `true` ones or `permuted`.
    """
    draw = random.Random(seed)
    labels = [draw.randrange(classes) for _ in range(n)]
    split = ["test" if row < 2 else draw.choice(["train", "train", "val", "test"]) for row in range(n)]
    texts = [
        " ".join(draw.choices([f"word{label}x{k}" for k in range(6)], k=6)) + f" no{i}"
        for i, label in enumerate(labels)
    ]
    texts[1] = ""
    edges = [
        f"{i}\t{j}"
        for i in range(1, n)
        for j in range(1, i)
        if draw.random() < (0.25 if labels[i] == labels[j] else 0.03)
    ]
    if hidden == "permuted":
        rows = [row for row in range(n) if split[row] != "train"]
        moved = [labels[row] for row in rows]
        draw.shuffle(moved)
        labels = [dict(zip(rows, moved, strict=True)).get(row, label) for row, label in enumerate(labels)]
    nodes = [
        node(row, text, label=f"class {label}", split=part)
        for row, (text, label, part) in enumerate(zip(texts, labels, split, strict=True))
    ]
    names = [f"class {label}" for label in range(classes)]
    return write(folder, nodes, edges, {"name": "blocks", "class_names": names, "directed": False})


def plan(*actions: dict[str, Any]) -> str:
    """What a model writes for a plan; `act` is short for `action_type`."""
    return dumps([{("action_type" if key == "act" else key): value for key, value in one.items()} for one in actions])


class Says(Policy):
    """Says in turn n what `line(env, n)` returns."""

    name = "says"

    def __init__(self, line: Callable[[ReaganEnv, int], str]) -> None:
        self._line = line

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        count = iter(range(1000))
        return ScriptedDialogue(lambda: (self._line(play.env, next(count)), "eos"))  # type: ignore[arg-type]


def play(env: ReaganEnv, task: ReaganTask, texts: Sequence[str] | Policy) -> Episode:
    """One episode alone; after the last text nothing is said."""
    policy = texts if isinstance(texts, Policy) else Says(lambda _, turn: texts[turn] if turn < len(texts) else "")
    episode = asyncio.run(rollout(env, task, policy))
    assert episode.outcome.kind is not OutcomeKind.INFRA_FAILURE, episode.outcome.error
    return episode


def together(
    make: Callable[[], ReaganEnv], tasks: Iterable[ReaganTask], policy: Policy, concurrency: int = 4
) -> dict[str, Episode]:
    """Episodes of one run that may hear each other, by task id."""
    jobs = [Job(task, 0) for task in tasks]

    async def run() -> dict[str, Episode]:
        world = World([(job.task.id, 0) for job in jobs], slots=concurrency)
        return {
            episode.key[0]: episode
            async for episode in rollouts(make, jobs, policy, concurrency=concurrency, world=world)
        }

    found = asyncio.run(run())
    assert all(episode.outcome.error is None for episode in found.values())
    return found


def prompts(episode: Episode) -> list[str]:
    """What was shown turn by turn, instructions apart."""
    return [turn.text for turn in episode.transcript if turn.source == "prompt" and turn.role == "user"]


def parts(episode: Episode) -> dict[str, Any]:
    assert episode.score is not None
    return dict(episode.score.parts)
