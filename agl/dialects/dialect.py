"""Dialect: how an env's typed actions are written as text for a model, and read back."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from agl.core import Action, Env, Malformed, Observation
from agl.messages import Injection, Message, Prompt

Reply = tuple[Action | Malformed, Observation]
"""One action of the policy and what the env said to it."""


class Dialect(ABC):
    """Stateless, so one instance serves any number of concurrent episodes of its env."""

    name: ClassVar[str]

    def __init__(self, actions: Sequence[type[Action]]) -> None:
        self.actions = tuple(actions)

    @property
    @abstractmethod
    def stops(self) -> tuple[str, ...]:
        """Strings at which sampling halts; the stop string itself is kept in the sample."""

    @abstractmethod
    def protocol(self) -> str:
        """The part of the system prompt that explains how to write actions."""

    @abstractmethod
    def parse(self, text: str) -> list[Action | Malformed]:
        """Read what the policy wrote since the last injection. Never raises, never returns an empty list."""

    @abstractmethod
    def write(self, action: Action, thought: str = "") -> str:
        """What a policy would have to write for `action`; `parse(write(a)) == [a]`."""

    @abstractmethod
    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        """Show the env's replies. `turn_ended`: the policy closed its turn, so it cannot be continued."""

    def is_open(self, text: str, seen: str) -> bool:
        """True when sampling halted at a stop string that is data inside an unfinished action.

        `seen` is what the policy was shown: only a stop string that stands there can be data.
        """
        return False

    def prompt(
        self, env: Env[Any], first: Observation, examples: Sequence[Sequence[Message]] = (), *, native: bool = False
    ) -> Prompt:
        """The first prompt: instructions and protocol, worked examples, then the first observation."""
        system = f"{env.instructions().strip()}\n\n{self.protocol().strip()}".strip()
        messages = [Message(role="system", content=system)]
        for example in examples:
            messages.extend(example)
        messages.append(Message(role="user", content=first.text))
        return Prompt(messages=tuple(messages))

    def demonstrate(self, env: Env[Any], first: Observation) -> list[Message]:
        """Play the freshly reset `env` with its oracle and write the episode down as a worked example."""
        messages = [Message(role="user", content=first.text)]
        spoken = ""
        while not env.is_over:
            action = env.oracle()
            spoken += self.write(action, env.oracle_thought())
            step = env.step(action)
            if env.is_over:
                break
            injection = self.render([(action, step.observation)], turn_ended=False)
            if injection.kind == "continue":
                spoken += injection.text
            else:
                messages.append(Message(role="assistant", content=spoken))
                messages.extend(injection.messages)
                spoken = ""
        messages.append(Message(role="assistant", content=spoken))
        return messages


_THINK = re.compile(r"<think>|</think>")


def after_thinking(text: str) -> int | Malformed:
    """Offset just behind the leading think block of `text`, 0 when there is none.

    A leading `</think>` without its opening tag counts as the end of a block that the chat template opened.
    """
    depth_open = re.match(r"\s*<think>", text)
    first = _THINK.search(text)
    if first is None:
        return 0
    if depth_open is None and first.group() == "<think>":
        return 0
    end = text.find("</think>")
    if end < 0:
        return Malformed(
            reason="unfinished_think",
            message="the <think> block was not closed; close it before acting",
            text=text[:500],
        )
    return end + len("</think>")
