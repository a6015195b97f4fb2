"""Recorded runs for the tests of the report, some of them hostile."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agl.core import Outcome, OutcomeKind, Score, StopReason
from agl.json_text import dumps
from agl.trace import Episode, EpisodeWriter, Event, Tokens, Turn

SCRIPT = "</script><script>document.title='owned'</script><img src=http://evil.test/x onerror=alert(1)>"
RTL = "שלום \u202egnp.exe\u202c \u2066مرحبا\u2069"
MEGABYTE = "word <b>bold</b> & \x1b[2J\u2028" * 42_000 + "the very end"
HOSTILE = f"{SCRIPT} {RTL} {{{{ 7 * 7 }}}} \ud800 &amp; \u2028"


def episode(task: str = "t-0", **changes: Any) -> Episode:
    """A finished episode of an env that nobody registered."""
    made = Episode(
        task={"id": task, "env": "unknown-env", "note": HOSTILE},
        attempt=0,
        policy="scripted",
        dialect="tags",
        transcript=(
            Turn(source="prompt", role="system", text="rules"),
            Turn(source="prompt", role="user", text=f"question {HOSTILE}"),
            Turn(source="sampled", role="assistant", text=f"<search>{HOSTILE}</search>", finish="stop"),
            Turn(source="injected", role="assistant", text=f"result {HOSTILE}"),
            Turn(source="sampled", role="assistant", text="<answer>B</answer>", finish="eos"),
        ),
        events=(
            Event(action="search", arguments={"query": HOSTILE}, observation=HOSTILE, is_error=True),
            Event(action="answer", arguments={"text": "B"}, observation="", is_error=False),
        ),
        score=Score(total=1.0, reward=2.0, parts={"depth": 0.25, "gap": None}, labels={"gold": "A", "predicted": "B"}),
        outcome=Outcome(kind=OutcomeKind.OK, stop=StopReason.ANSWER),
        tokens=Tokens(prompt=100, sampled=20, injected=7),
        seconds={"model": 1.0, "framework": 0.5, "total": 1.5},
    )
    return made.model_copy(update=changes)


def lost(task: str = "t-0", attempt: int = 0) -> Episode:
    """An episode that the machinery lost."""
    outcome = Outcome(kind=OutcomeKind.INFRA_FAILURE, stop=StopReason.TIMEOUT, error=f"server down {SCRIPT}")
    return episode(task, attempt=attempt, score=None, outcome=outcome)


def write_run(folder: Path, episodes: Iterable[Episode], **config: Any) -> Path:
    """A run folder as `agl eval` leaves it, without a summary."""
    folder.mkdir(parents=True, exist_ok=True)
    text = dumps({"env": "unknown-env", "policy": "scripted", "attempts": 1, **config})
    (folder / "config.json").write_text(text, encoding="utf-8")
    with EpisodeWriter(folder / "episodes.jsonl") as writer:
        for each in episodes:
            writer.write(each)
    return folder


def write_training(folder: Path) -> Path:
    """Two steps with two groups of three episodes on two ranks, and the log of a checkpoint."""
    (folder / "episodes").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for step in range(2):
        for rank in range(2):
            with EpisodeWriter(folder / "episodes" / f"{step:06d}-0-rank{rank}.jsonl") as writer:
                for attempt in range(3):
                    score = Score(total=0.0, reward=float(rank * attempt), parts={"format": 0.5})
                    said = Event(action="search", arguments={"q": attempt % (rank + 1)}, observation="", is_error=False)
                    writer.write(episode(f"t-{rank}", attempt=attempt, score=score, events=(said,)))
    log = [{"step": n, "reward": n / 2, "entropy": 1 / n, "parts/format": 0.5, "epoch": 0.1} for n in (1, 2)]
    (folder / "checkpoint-2").mkdir()
    (folder / "checkpoint-2" / "trainer_state.json").write_text(
        json.dumps({"log_history": [*log, {"train_loss": 1.0}]})
    )
    return folder
