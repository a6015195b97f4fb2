"""Dialect: how an env's typed actions are written as text for a model, and read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from agl.core import Action, Env, Malformed, Observation, Task
from agl.json_text import JsonError, decode, dumps
from agl.messages import Injection, Message, Prompt

Reply = tuple[Action | Malformed, Observation]
"""One action of the policy and what the env said to it."""


TRUNCATED = "the output was cut at the token limit before an action was complete"


class Dialect(ABC):
    """Stateless, so one instance serves any number of concurrent episodes of its env."""

    name: ClassVar[str]
    fresh: ClassVar[bool] = False
    """True: every turn has a context of its own, made of what the env shows next."""
    thinking: bool = True
    """False: the protocol does not invite the policy to think before it acts."""

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
    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        """Read what the policy wrote since the last injection. Never raises, never returns an empty list.

        Args:
            may_begin_inside_thinking: the prompt may have opened a think block; without it a `</think>` that nothing
                opened is Malformed.
        """

    def cut(self, text: str) -> list[Action | Malformed]:
        """What a turn that a token limit cut off comes to: nothing in it is done."""
        return [malformed("truncated", TRUNCATED, text)]

    @abstractmethod
    def write(self, action: Action, thought: str = "") -> str:
        """What a policy would have to write for `action`; `parse(write(a)) == [a]`."""

    def write_turn(self, actions: Sequence[Action]) -> str:
        """All actions of one turn; `parse` reads them back in order."""
        return "".join(self.write(action) for action in actions)

    @abstractmethod
    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        """Show the env's replies. `turn_ended`: the policy closed its turn, so it cannot be continued."""

    def answer(
        self, env: Env[Any], replies: Sequence[Reply], opening: Observation | None, *, turn_ended: bool, first: Prompt
    ) -> Injection:
        """What follows a turn: the replies to its actions, and what the env shows to open the next turn, if it does.

        `first` is the first prompt of the episode.
        """
        if opening is not None:
            *others, (action, last) = replies
            shown = "\n\n".join(text for text in (last.text, opening.text) if text)
            replies = [*others, (action, Observation(text=shown, is_error=last.is_error))]
        return self.render(replies, turn_ended=turn_ended)

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

    def open(self, env: Env[Any], task: Task, shots: int = 0, *, native: bool = False) -> tuple[Observation, Prompt]:
        """Reset `env` to `task`; returns what it shows first and the prompt, after at most `shots` worked examples."""
        shown = env.worked_examples(task, shots) if shots else ()
        examples = [self.demonstrate(env, env.reset(example)) for example in shown]
        first = env.reset(task)
        return first, self.prompt(env, first, examples, native=native)

    def demonstrate(self, env: Env[Any], first: Observation) -> list[Message]:
        """Play the freshly reset `env` with its oracle and write the episode down as a worked example."""
        messages = [Message(role="user", content=first.text)]
        spoken = ""
        while not env.is_over:
            action = env.oracle()
            spoken += self.write(action, env.oracle_thought())
            step = env.step(action)
            closing = env.close_turn()
            if env.is_over:
                break
            opening = None if closing is None else closing.observation
            shown = Prompt(messages=tuple(messages))
            injection = self.answer(env, [(action, step.observation)], opening, turn_ended=False, first=shown)
            if injection.kind == "continue":
                spoken += injection.text
            else:
                messages.append(Message(role="assistant", content=spoken))
                messages.extend(injection.messages)
                spoken = ""
        messages.append(Message(role="assistant", content=spoken))
        return messages


def malformed(reason: str, message: str, text: str) -> Malformed:
    """A Malformed that quotes the beginning of `text`."""
    return Malformed(reason=reason, message=message, text=text[:500])


def json_element(text: str, start: int, tag: str) -> tuple[Any, int]:
    """Read the one JSON value of the element `<tag>` whose content begins at `start`.

    The value is decoded before the closing tag is looked for, so a string in it may contain that tag.

    Returns:
        The value, or a Malformed: `truncated` when the text ends inside the value, `missing_close`, `extra_value`, or
        what the JSON reader says. Then the offset behind the element, -1 when there is nothing more to read.
    """
    close = f"</{tag}>"
    try:
        value, end = decode(text, start)
    except JsonError as error:
        after = -1 if error.code == "truncated" else _behind(text, close, start)
        return malformed(error.code, f"the JSON in <{tag}> cannot be read: {error}", text), after
    end += len(text[end:]) - len(text[end:].lstrip())
    if text.startswith(close, end):
        return value, end + len(close)
    if end == len(text):
        return malformed("missing_close", f"<{tag}> was not closed by {close}", text), -1
    message = f"<{tag}> takes one JSON value; more follows at character {end - start}"
    return malformed("extra_value", message, text), _behind(text, close, end)


def escaped(value: Any) -> str:
    r"""JSON of `value` in its own order, with `</think>` as `<\/think>` so that it does not end a think block."""
    return dumps(value, sort_keys=False).replace("</think>", "<\\/think>")


def _behind(text: str, mark: str, start: int) -> int:
    found = text.find(mark, start)
    return -1 if found < 0 else found + len(mark)
