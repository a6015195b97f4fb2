"""Expert traces for supervised fine-tuning: episodes of an expert, as prompt and completion, with who said what.

The expert is the environment's oracle; only the wording of its think blocks varies, and it says nothing that the
question or the tool has not said before. Episodes run through the same rollout as any policy's, so a prompt equals the
evaluation's byte for byte; each is then played back from its text alone and kept only at the full reward.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from agl.core import Frozen
from agl.dialects import dialect_for
from agl.errors import DataError, UserError
from agl.json_text import dumps
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play, Policy
from agl.policies.scripted import Line, ScriptedDialogue
from agl.rollout import rollout
from agl.trace import Episode, Turn
from envs.grit.env import MAX_RESULT, GritEnv
from envs.grit.items import GritTask

FULL_REWARD = 2.0


class Segment(Frozen):
    """A stretch of the completion. Only what was `sampled` is to be learned; results are `injected`."""

    source: Literal["sampled", "injected"]
    role: str
    text: str


class ChatMessage(Frozen):
    """One message of a chat."""

    role: str
    content: str


class Trace(Frozen):
    """One training row. `completion` is what follows `prompt` in the chat, `segments` the same text by origin: the
    segments of one role in a row add up to one message."""

    id: str
    dialect: str
    prompt: tuple[ChatMessage, ...]
    completion: tuple[ChatMessage, ...]
    segments: tuple[Segment, ...]
    reward: float


def expert_traces(
    source: str,
    *,
    max_nodes: int | None = None,
    limit: int | None = None,
    dialect: str = "tags",
    shots: int = 0,
    seed: int = 0,
) -> Iterator[Trace]:
    """Traces of the items of a generated split or a file, in order, with at most `max_nodes` nodes; a pure function of
    its arguments.

    Raises:
        UserError: no such dialect.
        DataError: no such split or file, or an item on which the expert does not earn 2.0.
    """
    count = 0
    for task in GritEnv.tasks(source, seed=seed):
        if limit is not None and count >= limit:
            return
        if max_nodes is None or task.n <= max_nodes:
            yield expert_trace(task, dialect=dialect, shots=shots)
            count += 1


def expert_trace(task: GritTask, *, dialect: str = "tags", shots: int = 0) -> Trace:
    """The trace of one item.

    Raises:
        UserError: no such dialect.
        DataError: the expert, or its text played back, does not earn 2.0; or the tool's result had to be cut.
    """
    first, again = asyncio.run(_played(task, dialect, shots))
    for episode, who in ((first, "the expert"), (again, "the text played back")):
        score = episode.score
        if score is None or score.total != 1.0 or score.reward != FULL_REWARD:
            earned = episode.outcome.error if score is None else f"{score.reward:g} ({dict(score.labels)})"
            raise DataError(
                f"expected {who} to earn {FULL_REWARD:g} on {task.id}, got {earned}; check it with agl grit verify"
            )
    if first.transcript != again.transcript or any(len(event.observation) > MAX_RESULT for event in first.events):
        raise DataError(f"expected the trace of {task.id} to play back unchanged and uncut; leave the item out")
    return _trace(task, first)


async def _played(task: GritTask, dialect: str, shots: int) -> tuple[Episode, Episode]:
    written = dialect_for(GritEnv, dialect)
    first = await rollout(GritEnv(), task, Expert(), dialect=written, shots=shots)
    lines = [(turn.text, turn.finish or "eos") for turn in first.transcript if turn.source == "sampled"]
    again = await rollout(GritEnv(), task, _Lines(lines), dialect=written, shots=shots)
    return first, again


def _trace(task: GritTask, episode: Episode) -> Trace:
    turns = episode.transcript
    prompt = tuple(ChatMessage(role=turn.role, content=turn.text) for turn in turns if turn.source == "prompt")
    segments = tuple(map(_segment, (turn for turn in turns if turn.source != "prompt")))
    messages: list[ChatMessage] = []
    for segment in segments:
        if messages and messages[-1].role == segment.role == "assistant":
            joined = messages.pop().content + segment.text
            messages.append(ChatMessage(role="assistant", content=joined))
        else:
            messages.append(ChatMessage(role=segment.role, content=segment.text))
    return Trace(
        id=task.id,
        dialect=episode.dialect,
        prompt=prompt,
        completion=tuple(messages),
        segments=segments,
        reward=FULL_REWARD,
    )


def _segment(turn: Turn) -> Segment:
    return Segment(source="sampled" if turn.source == "sampled" else "injected", role=turn.role, text=turn.text)


def write_traces(traces: Iterable[Trace], out: Path) -> int:
    """Write one trace a line and return how many; the file appears when all are done, and only if there are any.

    Raises:
        UserError: the folder of `out` does not exist.
    """
    if not out.parent.is_dir():
        raise UserError(f"expected a file in an existing folder, got {out}; make the folder, or choose another --out")
    partial = out.with_name(f"{out.name}.partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            for trace in traces:
                file.write(dumps(trace.model_dump(mode="json")) + "\n")
                count += 1
        if count:
            partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return count


class Expert(Policy):
    """The oracle of GritEnv with varied words."""

    name = "expert"

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        env = play.env
        if not isinstance(env, GritEnv):
            raise UserError(f"the expert plays grit, got {env.name}")
        rng = random.Random(f"{env.task.id}/expert")
        calls = 0

        def next_line() -> Line:
            nonlocal calls
            thought = before_call(env.task, rng) if calls == 0 else after_result(rng)
            calls += 1
            return play.dialect.write(env.oracle(), thought), "stop"

        return ScriptedDialogue(next_line)


class _Lines(Policy):
    """Says given lines."""

    name = "expert"

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        lines = iter(self._lines)
        return ScriptedDialogue(lambda: next(lines, ("", "eos")))


_PROBLEM = {
    "shortest_path": ("the cheapest way from {start} to {end}", "a shortest path from {start} to {end}"),
    "bfs": ("a breadth-first order from {start}", "the order of a breadth-first visit that begins at {start}"),
    "tsp": ("a cheapest round trip through all {many}", "a travelling-salesman tour over {n} {many}"),
    "coloring": (
        "a colouring with as few colours as possible",
        "the fewest groups without a conflict: graph colouring",
    ),
    "vertex_cover": ("a smallest vertex cover", "the smallest set of {many} that touches every edge: vertex cover"),
    "centrality": ("all {many} with the highest {measure} centrality", "{measure} centrality and who leads it"),
}
_OPENINGS = (
    "The question asks for {problem}.",
    "What is wanted: {problem}.",
    "So I have to find {problem}.",
    "This comes down to {problem}.",
)
_NODES = (
    "The nodes are listed: {n} of them, from {first} to {last}.",
    "There are {n} {many}; I keep their order, beginning with {first}.",
    "I take the {n} {many} in the order of the list, {first} first and {last} last.",
)
_EDGES = (
    "Now I go through the text and note each connection{weight} once.",
    "Each pair that the text connects becomes one edge{weight}; the rest is decoration.",
    "I read the connections sentence by sentence and write every edge down once{weight}.",
    "Sentences that connect nothing do not matter; the others give one edge each{weight}.",
)
_ALIAS = (
    "{alias} is only another name for {name}, so I write {name} throughout.",
    "Careful: {alias} and {name} are the same, I use {name}.",
    "{name} also appears as {alias}; in the graph it is {name}.",
)
_CALL = ("The tool can solve it as {task}.", "I pass it to the tool as {task}.", "Problem type: {task}.")
_ORDER = (
    "Ties go by the list, so I give the tool that order.",
    "Among neighbours the list decides; the parameter order holds it.",
)
_AFTER = (
    "The tool has solved it; I copy its result into the form that is asked for.",
    "That settles it. I write the result as the question wants it.",
    "The result is exact, so this is the answer.",
    "Good: I read the answer off the result.",
    "I only have to put the result into the box.",
)


def before_call(task: GritTask, rng: random.Random) -> str:
    """What the expert thinks before its call: what is asked, nodes, aliases, edges; all of it from the question."""
    fields = {
        "n": str(task.n),
        "many": "nodes",
        "first": task.nodes[0],
        "last": task.nodes[-1],
        "start": "" if task.query.start is None else task.nodes[task.query.start],
        "end": "" if task.query.end is None else task.nodes[task.query.end],
        "measure": str(task.query.measure),
        "weight": rng.choice((" with its weight", " and its weight")) if task.weighted else "",
        "task": task.task,
    }
    problem = rng.choice(_PROBLEM.get(task.task, ("the answer to a {task} question",))).format_map(fields)
    parts = [rng.choice(_OPENINGS).format(problem=problem)]
    if rng.random() < 0.7:
        parts.append(rng.choice(_NODES).format_map(fields))
    parts += [
        rng.choice(_ALIAS).format(alias=alias, name=task.nodes[index]) for alias, index in sorted(task.aliases.items())
    ]
    parts.append(rng.choice(_EDGES).format_map(fields))
    if task.task == "bfs":
        parts.append(rng.choice(_ORDER))
    if rng.random() < 0.6:
        parts.append(rng.choice(_CALL).format_map(fields))
    return " ".join(parts)


def after_result(rng: random.Random) -> str:
    """What the expert thinks once the tool has answered."""
    return rng.choice(_AFTER)
