"""ARPO: part of a group's episodes branch off others where the model becomes uncertain.

Source: "Agentic Reinforced Policy Optimization" (arXiv 2507.19849), as GRAIN (arXiv 2608.27142) uses it. What differs
from the public code, and why:

- Entropy is the mean over tokens (the code sums up to 20), with the probability outside the top k as one bucket.
- The baseline H_0 belongs to a trajectory and goes with it (the code keeps one dictionary by slot, never cleared).
- A branch may also begin at the end of a think block, before the tool call: branches after a result share the graph, so
  that a structure reward would see few independent samples.
- The budget goes to the highest rise of entropy, not to the lowest index, and the decision is P > tau, not a coin.
- A group that finds too few places is filled with fresh roots, never with copies.
- Hard advantages are implemented.

A group is played in waves: the initial trajectories to their end, then the branches that their places earned, and so
on. A wave adds at most (beam - 1) branches per trajectory, so a branch can branch again.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from agl.core import Answer, Malformed
from agl.messages import Injection, Prompt
from agl.policies.policy import Dialogue, Play, Policy, Sample
from agl.tokens import Span, TokenLog
from agl.trace import Episode
from train.options import Branching

if TYPE_CHECKING:
    import torch

Place = Literal["result", "think"]

_THINK_END = "</think>"


@dataclass(frozen=True)
class Window:
    """Tokens `[start, stop)` of one context of a trajectory, over which entropy is averaged."""

    context: int
    start: int
    stop: int


@dataclass(frozen=True)
class Point:
    """A place where a branch can begin.

    Attributes:
        dialogue: stands there; forked for each branch.
        state: of the env, before the turn that goes on from here.
        head: what the policy has said of that turn.
        tokens: of the trajectory up to here, all contexts one after another.
        samples: stretches sampled before the turn that goes on.
        events: actions applied before it.
        window: where entropy is measured.
    """

    place: Place
    dialogue: Dialogue
    state: bytes
    head: str
    tokens: int
    samples: int
    events: int
    window: Window


Measure = Callable[[Sequence[TokenLog], Sequence[Window]], Sequence[float]]
"""Mean normalised entropy of each window of some logs."""


class Watched(Dialogue):
    """A dialogue that notes where branches can begin; what it says is that of `inner`.

    Args:
        head: what was said of the running turn before `inner` goes on; repeated in front of its first sample.
        text_of: text of token ids.
        measured: tokens over which entropy is averaged.
    """

    def __init__(
        self,
        inner: Dialogue,
        play: Play,
        text_of: Callable[[Sequence[int]], str],
        *,
        places: Sequence[Place],
        measured: int,
        head: str = "",
        samples: int = 0,
        events: int = 0,
    ) -> None:
        self._inner = inner
        self._play = play
        self._text_of = text_of
        self._places = places
        self._measured = measured
        self._head = head
        self._turn = ""
        self._samples = self._before_turn = samples
        self._events = events
        self._after_result = False
        self._cut = False
        self.points: list[Point] = []

    @property
    def may_begin_inside_thinking(self) -> bool:  # type: ignore[override]
        return self._inner.may_begin_inside_thinking

    @property
    def logs(self) -> Sequence[TokenLog]:
        return self._inner.logs

    @property
    def opening(self) -> Window | None:
        """The first tokens that were sampled; None before there are any."""
        for context, log in enumerate(self.logs):
            for source, start, stop in log.spans:
                if source == "sampled":
                    return Window(context, start, min(stop, start + self._measured))
        return None

    async def sample(self, stops: Sequence[str]) -> Sample:
        return await self._watch(lambda: self._inner.sample(stops))

    async def choose(self, choices: Sequence[str], stops: Sequence[str]) -> Sample:
        return await self._watch(lambda: self._inner.choose(choices, stops))

    async def _watch(self, speak: Callable[[], Awaitable[Sample]]) -> Sample:
        noted = self._after_result and "result" in self._places
        before = (self._inner.fork(), self._play.env.snapshot()) if noted else None
        said = await speak()
        sampled = range(len(self.logs[-1]) - said.tokens, len(self.logs[-1]))
        if before is not None and said.tokens:
            self._note("result", *before, "", sampled.start, range(sampled.start, sampled.start + self._measured))
        if "think" in self._places and said.tokens:
            self._note_think(said, sampled)
        self._after_result = False
        self._samples += 1
        head, self._head = self._head, ""
        self._turn += head + said.text
        self._cut = said.finish == "length"
        return replace(said, text=head + said.text)

    def _note_think(self, said: Sample, sampled: range) -> None:
        """Note the end of a think block where a tool call follows in the same stretch."""
        end = said.text.find(_THINK_END)
        if end < 0 or not self._calls_tool(self._turn + self._head + said.text):
            return
        ids = self.logs[-1].ids[sampled.start : sampled.stop]
        kept = _tokens_until(ids, self._text_of, _THINK_END)
        # Where the last token of the block has some of what follows in it, so has the head.
        text = self._text_of(ids[:kept])
        if kept == len(ids) or not said.text.startswith(text):
            return
        twin = self._inner.fork()
        cut = sampled.start + kept
        shorten(twin.logs[-1], cut)
        first = max(sampled.start, cut - self._measured)
        head = self._turn + self._head + text
        self._note("think", twin, self._play.env.snapshot(), head, cut, range(first, cut))

    def _note(self, place: Place, twin: Dialogue, state: bytes, head: str, cut: int, window: range) -> None:
        earlier = sum(map(len, self.logs[:-1]))
        stop = min(window.stop, len(self.logs[-1]))
        found = Window(len(self.logs) - 1, window.start, stop)
        self.points.append(Point(place, twin, state, head, earlier + cut, self._before_turn, self._events, found))

    def _calls_tool(self, turn: str) -> bool:
        return any(not isinstance(action, Malformed | Answer) for action in self._parse(turn))

    def _parse(self, turn: str) -> list[Any]:
        return list(self._play.dialect.parse(turn, may_begin_inside_thinking=self.may_begin_inside_thinking))

    def inject(self, injection: Injection) -> None:
        dialect = self._play.dialect
        self._events += len(dialect.cut(self._turn) if self._cut else self._parse(self._turn))
        self._turn = ""
        self._before_turn = self._samples
        self._after_result = True
        self._inner.inject(injection)

    def recall(self, sample: Sample) -> None:
        self._inner.recall(sample)

    def fork(self) -> Dialogue:
        return self._inner.fork()


def shorten(log: TokenLog, length: int) -> None:
    """Cut a log to its first `length` tokens."""
    del log.ids[length:], log.logprobs[length:]
    log.spans[:] = [Span(source, start, min(stop, length)) for source, start, stop in log.spans if start < length]


def _tokens_until(ids: Sequence[int], text_of: Callable[[Sequence[int]], str], mark: str) -> int:
    """Fewest tokens whose text contains `mark`; all of them when none do."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if mark in text_of(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


class Branch(Policy):
    """`policy` from the start of a dialogue or from a point of another one; for one episode and its retries."""

    def __init__(
        self, policy: Policy, text_of: Callable[[Sequence[int]], str], options: Branching, point: Point | None = None
    ) -> None:
        self.name = policy.name
        self.native_tools = policy.native_tools
        self._policy = policy
        self._text_of = text_of
        self._options = options
        self._point = point
        self.dialogue: Watched | None = None
        """Of the last attempt."""

    async def prepare(self) -> None:
        await self._policy.prepare()

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        point = self._point
        head, samples, events = ("", 0, 0) if point is None else (point.head, point.samples, point.events)
        if point is None:
            inner = self._policy.open(prompt, seed=seed, play=play)
        else:
            play.env.restore(point.state)
            inner = point.dialogue.fork()
        self.dialogue = Watched(
            inner,
            play,
            self._text_of,
            places=self._options.places,
            measured=self._options.entropy_tokens,
            head=head,
            samples=samples,
            events=events,
        )
        return self.dialogue


def spliced(parent: Episode, branch: Episode, point: Point) -> Episode:
    """A branch as the whole episode it is: what happened before `point` is its parent's."""
    shared: list[Any] = []
    for turn in parent.transcript:
        if turn.source == "sampled" and sum(one.source == "sampled" for one in shared) == point.samples:
            break
        shared.append(turn)
    prompt = next((place for place, turn in enumerate(branch.transcript) if turn.source != "prompt"), None)
    own = branch.transcript[prompt:] if prompt is not None else ()
    if branch.logs:
        sampled = sum(log.count("sampled") for log in branch.logs)
        branch = branch.model_copy(update={"tokens": branch.tokens.model_copy(update={"sampled": sampled})})
    events = parent.events[: point.events] + branch.events
    return branch.model_copy(update={"transcript": (*shared, *own), "events": events})


@dataclass
class Member:
    """One episode of a group: a root (`parent` is None), or a branch of `parent` that has its first `shared` tokens."""

    episode: Episode
    parent: int | None = None
    shared: int = 0
    place: Place | None = None
    open: list[tuple[float, Point]] = field(default_factory=list)
    """Places where branches can still begin, with the rise of entropy there."""


@dataclass
class Tree:
    """A group in play."""

    members: list[Member] = field(default_factory=list)
    entropies: dict[str, list[float]] = field(default_factory=dict)

    def add(self, member: Member, dialogue: Watched | None, measure: Measure) -> None:
        """Take a member in and measure the places it offers."""
        self.members.append(member)
        first = None if dialogue is None or not member.episode.is_sample else dialogue.opening
        if dialogue is None or first is None:
            return
        initial, *found = measure(dialogue.logs, [first, *(point.window for point in dialogue.points)])
        self.entropies.setdefault("initial", []).append(initial)
        for entropy, point in zip(found, dialogue.points, strict=True):
            self.entropies.setdefault(point.place, []).append(entropy)
            member.open.append((entropy - initial, point))

    def choose(self, free: int, options: Branching) -> list[tuple[int, Point]]:
        """The branches of the next wave: (member, point), none when no place qualifies; used places are used up."""
        offers = [(rise, number, point) for number, member in enumerate(self.members) for rise, point in member.open]
        room = min(free, (options.beam - 1) * len(self.members))
        picked = allocate([rise for rise, *_ in offers], room, options)
        for place, _ in picked:
            rise, number, point = offers[place]
            self.members[number].open.remove((rise, point))
        return [offers[place][1:] for place, count in picked for _ in range(count)]

    def close(self) -> None:
        """Let go of states, dialogues and baselines."""
        for member in self.members:
            member.open.clear()

    @property
    def lineage(self) -> list[tuple[int, int] | None]:
        """Of each member (parent, shared tokens); None for a root."""
        return [None if member.parent is None else (member.parent, member.shared) for member in self.members]

    def metrics(self) -> dict[str, float]:
        """Branches by place, mean entropy by place, and the share of sampled tokens that a parent had sampled."""
        places = [member.place for member in self.members]
        out = {f"branching/from_{place}": float(places.count(place)) for place in ("result", "think")}
        out["branching/roots"] = float(sum(member.parent is None for member in self.members))
        for place, values in self.entropies.items():
            out[f"branching/entropy_{place}"] = sum(values) / len(values)
        inherited = total = 0
        for member in self.members:
            mask = [sampled for log in member.episode.logs for sampled in log.mask]
            inherited += sum(mask[: member.shared])
            total += sum(mask)
        out["branching/prefix_share"] = inherited / max(1, total)
        return out


def allocate(rises: Sequence[float], budget: int, options: Branching) -> list[tuple[int, int]]:
    """(place, branches there) for the places with P = alpha + beta * rise > tau, the highest rise first.

    Each takes beam - 1 branches, since the trajectory it lies on is one of its beam paths, until `budget` is spent.
    Equal rises go by their order.
    """
    qualified = [place for place, rise in enumerate(rises) if options.alpha + options.beta * rise > options.tau]
    picked = []
    for place in sorted(qualified, key=lambda place: -rises[place]):
        count = min(options.beam - 1, budget)
        if count < 1:
            break
        picked.append((place, count))
        budget -= count
    return picked


def top_entropy(logits: torch.Tensor, top: int) -> torch.Tensor:
    """Normalised entropy of each row of `logits` (n x vocabulary), in [0, 1], from its `top` likeliest tokens.

    The probability of all others counts as one more outcome; the sum is divided by ln V.
    """
    import torch

    size = logits.shape[-1]
    logs = torch.log_softmax(logits.float(), dim=-1).topk(min(top, size), dim=-1).values
    shares = logs.exp()
    rest = (1.0 - shares.sum(dim=-1)).clamp(min=0.0)
    return (-(shares * logs).sum(dim=-1) - torch.xlogy(rest, rest)) / math.log(size)


def tree_advantages(
    own: Sequence[float | None], lineage: Sequence[tuple[int, int] | None], lengths: Sequence[int]
) -> list[list[float]]:
    """Hard advantages of ARPO (arXiv 2507.19849, section 3.3): per token, the mean over all episodes that share it.

    Args:
        own: advantage of each episode; None abstains and counts in no mean.
        lineage: (parent, shared tokens) of each; None for a root. A parent stands before its branches.
        lengths: tokens of each, prompts and results included.

    Returns:
        One number per token of each episode; 0 where all that share a token abstain.
    """
    # A token belongs to the episode that sampled it; `paths` lists the owners along each episode.
    paths: list[list[tuple[int, int, int]]] = []
    for number, (origin, length) in enumerate(zip(lineage, lengths, strict=True)):
        inherited: list[tuple[int, int, int]] = []
        begin = 0
        if origin is not None:
            parent, begin = origin
            inherited = [(owner, start, min(stop, begin)) for owner, start, stop in paths[parent] if start < begin]
        paths.append([*inherited, (number, begin, length)])
    sharers: dict[int, list[tuple[int, float]]] = {}
    for value, path in zip(own, paths, strict=True):
        for owner, _, stop in path:
            if value is not None:
                sharers.setdefault(owner, []).append((stop, value))
    out: list[list[float]] = []
    for path in paths:
        row: list[float] = []
        for owner, start, stop in path:
            found = sharers.get(owner, [])
            for token in range(start, stop):
                values = [value for reach, value in found if reach > token]
                row.append(math.fsum(values) / len(values) if values else 0.0)
        out.append(row)
    return out


def mean_metrics(groups: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each metric averaged over the groups that have it."""
    names = sorted({name for each in groups for name in each})
    return {
        name: sum(values) / len(values) for name in names if (values := [each[name] for each in groups if name in each])
    }
