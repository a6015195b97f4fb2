"""A team of agents over one model: each role is asked once, with its own prompt, and reads what earlier roles wrote.

Some roles act: what they write goes to the environment as the episode's actions. All others write notes, which stand
in the transcript as a think block before the next action: recorded, never executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import jinja2

from agl.messages import Injection, Message, Prompt
from agl.policies.policy import Dialogue, Play, Policy, Sample
from agl.thinking import after_thinking
from agl.tokens import TokenLog
from agl.trace import Episode

QUESTION, RESULT = "question", "result"
"""What a role may read besides earlier notes: the first observation, and what the environment said last."""

_HEADING = "[agent: {}]"
_HEADINGS = re.compile(r"^\[agent: [^\]\n]+\]$", re.MULTILINE)


@dataclass(frozen=True)
class Role:
    """An agent. `prompt` is a Jinja template of its system prompt and may use `protocol`, the episode's own system
    prompt; `reads` names earlier roles, `question` or `result`. An `acts` role writes actions in the episode's dialect;
    the last role goes on until the episode is over."""

    name: str
    prompt: str
    reads: tuple[str, ...]
    acts: bool = False

    @cached_property
    def template(self) -> jinja2.Template:
        return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(self.prompt)


class Pipeline(Policy):
    """Plays `roles` in order with the policy `inner`. Functions are described as text, never offered natively.

    Args:
        title: of the team; the policy is named `title(inner)`.

    Raises:
        ValueError: no role, a last role that does not act, or a role that reads what no earlier role wrote.
    """

    def __init__(self, title: str, inner: Policy, roles: Sequence[Role]) -> None:
        if not roles or not roles[-1].acts:
            raise ValueError("expected roles of which the last one acts")
        known = {QUESTION}
        for role in roles:
            if stray := set(role.reads) - known:
                raise ValueError(f"the role {role.name!r} reads {sorted(stray)[0]!r}, which no earlier role wrote")
            known |= {role.name, RESULT} if role.acts else {role.name}
        self.name = f"{title}({inner.name})"
        self.inner = inner
        self.roles = tuple(roles)

    async def prepare(self) -> None:
        await self.inner.prepare()

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        return PipelineDialogue(self, prompt, seed, play)

    async def aclose(self) -> None:
        await self.inner.aclose()


class PipelineDialogue(Dialogue):
    """Asks one role after the other, each in a dialogue of its own; an injection hands over to the next acting role,
    and the last role keeps its dialogue."""

    def __init__(self, pipeline: Pipeline, prompt: Prompt, seed: int, play: Play) -> None:
        self._pipeline, self._seed, self._play = pipeline, seed, play
        self._protocol = "\n\n".join(message.content for message in prompt.messages if message.role == "system")
        self._read = {QUESTION: prompt.messages[-1].content}
        self._next = 0
        self._current: Dialogue | None = None
        self._logs: list[TokenLog] = []
        self._given = False

    @property
    def logs(self) -> Sequence[TokenLog]:
        return [*self._logs, *(self._current.logs if self._current is not None else ())]

    async def sample(self, stops: Sequence[str]) -> Sample:
        """The next action, the notes of the roles before it as its think block; without an injection since the last
        sample, the same role goes on."""
        if self._current is not None and not self._given:
            return await self._current.sample(stops)
        self._given = False
        roles = self._pipeline.roles
        notes: list[str] = []
        tokens = 0
        while self._next < len(roles):
            role = roles[self._next]
            self._next += 1
            self._hand_over(role)
            assert self._current is not None
            said = await self._current.sample(stops if role.acts else ())
            tokens += said.tokens
            if role.acts:
                text = _after(notes, said.text)
                self._read[role.name] = said.text
                return Sample(text=text, finish=said.finish, tokens=tokens)
            self._read[role.name] = _note(said.text)
            notes.append(f"{_HEADING.format(role.name)}\n{self._read[role.name]}")
        assert self._current is not None
        return await self._current.sample(stops)

    def _hand_over(self, role: Role) -> None:
        if self._current is not None:
            self._logs.extend(self._current.logs)
        material = "\n\n".join(f"## {name}\n{self._read[name]}" for name in role.reads)
        system = role.template.render(protocol=self._protocol).strip()
        prompt = Prompt(messages=(Message(role="system", content=system), Message(role="user", content=material)))
        self._current = self._pipeline.inner.open(prompt, seed=self._seed + self._next, play=self._play)
        self.may_begin_inside_thinking = self._current.may_begin_inside_thinking

    def inject(self, injection: Injection) -> None:
        self._given = True
        said = injection.text or "\n".join(message.content for message in injection.messages)
        self._read[RESULT] = said.strip()
        if self._next == len(self._pipeline.roles) and self._current is not None:
            self._current.inject(injection)

    def fork(self) -> Dialogue:
        twin = copy(self)
        twin._read = dict(self._read)
        twin._logs = [log.fork() for log in self._logs]
        twin._current = self._current.fork() if self._current is not None else None
        return twin


def _note(text: str) -> str:
    """What a role said, its own thinking dropped and nothing left that would end a think block or fake a heading."""
    said = text[after_thinking(text) or 0 :]
    return _HEADINGS.sub("", re.sub(r"</?think>", "", said)).strip()


def _after(notes: Sequence[str], text: str) -> str:
    """`text` with the notes before it, its own leading thoughts among them."""
    if not notes:
        return text
    start = after_thinking(text) or 0
    thought = _HEADINGS.sub("", re.sub(r"</?think>", "", text[:start])).strip()
    inside = "\n".join([*notes, *([thought] if thought else [])])
    return f"<think>\n{inside}\n</think>\n{text[start:]}"


def model_calls(episode: Episode) -> int | None:
    """How often a pipeline asked its model: one call for each note and each stretch of action; None for others."""
    if not re.fullmatch(r"\w+\(.+\)", episode.policy):
        return None
    spoken = [turn.text for turn in episode.transcript if turn.source == "sampled"]
    return len(spoken) + sum(len(_HEADINGS.findall(text)) for text in spoken)
