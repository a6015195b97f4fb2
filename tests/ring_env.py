"""An env whose episodes know of each other: six places on a ring, each hears in a round what both sides said before."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from agl.core import Action, Answer, Env, Malformed, Observation, Post, Score, Step, Task
from agl.errors import DataError

PLACES = 6
ROUNDS = 2


class RingTask(Task):
    """One place; the answer is what was heard, in order."""

    place: int


class Say(Action):
    """Say a word to both sides."""

    tag: ClassVar[str] = "say"
    word: str = Field(description="The word.")


class RingEnv(Env[RingTask]):
    name: ClassVar[str] = "ring"
    task_type: ClassVar[type[Task]] = RingTask
    actions: ClassVar[tuple[type[Action], ...]] = (Say, Answer)
    dialect: ClassVar[str] = "json_plan"
    players: ClassVar[tuple[str, ...]] = ("echo",)

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[RingTask]:
        if source is not None:
            raise DataError(f"expected no source, got {source!r}; leave it out")
        return [RingTask(id=f"place-{i}", env="ring", place=i) for i in range(min(PLACES, limit or PLACES))]

    def instructions(self) -> str:
        return "Say words, then answer with all you heard."

    @property
    def exchanges(self) -> bool:
        return True

    def legal_actions(self) -> tuple[type[Action], ...]:
        return self.actions if self._task is None else (Answer,) if self._round == ROUNDS else (Say,)

    def begin(self, task: RingTask) -> Observation:
        self._round, self._words, self._heard, self._answer = 0, list[str](), list[str](), ""
        return Observation(text=f"You are at place {task.place}.")

    def act(self, action: Action | Malformed) -> Step:
        if isinstance(action, Say) and self._round < ROUNDS:
            self._words.append(action.word)
            return Step(observation=Observation(text="Said."))
        if isinstance(action, Answer) and self._round == ROUNDS:
            self._answer = action.text
            return Step(observation=Observation(text="Done."), terminated=True)
        return Step(observation=Observation(text="Not now.", is_error=True))

    def post(self) -> Post | None:
        if self._round == ROUNDS:
            return None
        return Post(round=self._round, notes={"words": list(self._words), "heard": list(self._heard)})

    def receive(self, posts: Mapping[str, Post]) -> None:
        for place in ((self.task.place - 1) % PLACES, (self.task.place + 1) % PLACES):
            post = posts.get(f"place-{place}")
            if post is not None and post.round == self._round:
                self._heard += [f"{place}:{word}" for word in post.notes["words"]]

    def end_turn(self) -> Step | None:
        if self._round == ROUNDS:
            return Step(observation=Observation(text="No answer."), truncated=True)
        self._round, self._words = self._round + 1, []
        return Step(observation=Observation(text=f"Round {self._round}. Heard: {self._heard}"))

    def score(self) -> Score:
        right = self._round == ROUNDS and self._answer == " ".join(self._heard)
        return Score(total=float(right), reward=float(right), parts={"heard": len(self._heard)})

    def choices(self) -> Sequence[Action]:
        return [Answer(text=f"guess {i}") for i in range(3)] if self._round == ROUNDS else ()

    def oracle(self) -> Action:
        if self._round == ROUNDS:
            return Answer(text=" ".join(self._heard))
        return Say(word=f"w{self._round}")

    def player_actions(self, player: str) -> Sequence[Action]:
        if self._round == ROUNDS:
            return [Answer(text=" ".join(self._heard))]
        return [Say(word=word.partition(":")[2]) for word in self._heard] or [Say(word=f"from-{self.task.place}")]

    def random_action(self, rng: random.Random) -> Action:
        return Say(word=str(rng.random())) if self._round < ROUNDS else Answer(text=str(rng.random()))
