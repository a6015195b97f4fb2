"""An env for the mechanics of training: every word scores, so a model with random weights has something to learn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from agl.core import Action, Env, Malformed, Observation, Score, Step, StopReason, Task
from agl.dialects.dialect import Dialect, Reply
from agl.errors import InfraError
from agl.messages import Injection, Message

_TOPICS = ("rain", "stone", "bread", "glass", "smoke", "rope", "salt", "wool", "iron", "sand", "clay", "milk")


class WordTask(Task):
    """Say words about `topic`. With `sound` 2 the machinery fails at first words of even length, with 3 of odd."""

    topic: str
    sound: int = 1


class Say(Action):
    """Say some words."""

    tag: ClassVar[str] = "say"
    text: str = Field(description="the words")


class WordEnv(Env[WordTask]):
    """Three rounds; the reward is the share of vowels in what was said."""

    name: ClassVar[str] = "word"
    task_type: ClassVar[type[Task]] = WordTask
    actions: ClassVar[tuple[type[Action], ...]] = (Say,)

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[WordTask]:
        return [
            WordTask(id=f"word-{number}", env="word", topic=topic, sound=2 + number % 2 if source == "shaky" else 1)
            for number, topic in enumerate(_TOPICS[:limit])
        ]

    def instructions(self) -> str:
        return "Say words."

    def begin(self, task: WordTask) -> Observation:
        self._said: list[str] = []
        return Observation(text=f"About {task.topic}, please.")

    def act(self, action: Action | Malformed) -> Step:
        self._said.append(action.text if isinstance(action, Say | Malformed) else "")
        if self.task.sound > 1 and len(self._said[0]) % 2 == self.task.sound % 2:
            raise InfraError("the word server is down")
        over = len(self._said) == 3
        note = Observation(text=f"heard {len(self._said)}")
        return Step(observation=note, terminated=over, stop=StopReason.ANSWER if over else None)

    def score(self) -> Score:
        letters = "".join(self._said).lower()
        share = sum(letter in "aeiou" for letter in letters) / max(1, len(letters))
        return Score(total=float(share > 0.4), reward=share, parts={"letters": float(len(letters))})

    def oracle(self) -> Action:
        return Say(text="aeiou")

    def random_action(self, rng: random.Random) -> Action:
        return Say(text=rng.choice(_TOPICS))


class Words(Dialect):
    """A word ends at a blank, which a model with random weights writes soon enough."""

    name: ClassVar[str] = "words"

    @property
    def stops(self) -> tuple[str, ...]:
        return (" ",)

    def protocol(self) -> str:
        return "End each word with a blank."

    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        return [Say(text=text)]

    def write(self, action: Action, thought: str = "") -> str:
        return f"{action.text} " if isinstance(action, Say) else ""

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        text = "".join(f"[{observation.text}] " for _, observation in replies)
        if turn_ended:
            return Injection(kind="turn", messages=(Message(role="user", content=text),))
        return Injection(kind="continue", text=text)
