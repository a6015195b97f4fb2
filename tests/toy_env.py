"""A complete env in miniature: walk along a path of five named places to the goal, then name it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from agl.core import Action, Answer, Env, Malformed, Observation, Score, Step, StopReason, Task
from agl.errors import DataError

_PLACES = ("Alder", "Birch", "Cedar", "Elm", "Fir", "</answer>", "Zoë's «Ürün»", "北京", "A-1, B", 'quo"te\\')
_SPLITS = {"train": 100, "test": 20}
MAX_MOVES = 10


class ToyTask(Task):
    """Places in path order; the walker stands at `start` and must reach `goal`."""

    places: tuple[str, ...]
    start: int
    goal: int


class Move(Action):
    """Walk along the path."""

    tag: ClassVar[str] = "move"
    direction: Literal["back", "forward"] = Field(description="Which way along the path.")
    steps: int = Field(default=1, ge=1, description="How many places to walk.")


class ToyEnv(Env[ToyTask]):
    """Oracle: one step at a time, then the answer. Reward is 2 for success, 0 for anything else, -1 for nonsense."""

    name: ClassVar[str] = "toy"
    task_type: ClassVar[type[Task]] = ToyTask
    actions: ClassVar[tuple[type[Action], ...]] = (Move, Answer)
    metrics: ClassVar[tuple[str, ...]] = ("arrived", "moves")

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[ToyTask]:
        split = source or "test"
        if split not in _SPLITS:
            raise DataError(f"expected a split out of {', '.join(_SPLITS)}; got {split!r}; choose one of them")
        count = _SPLITS[split] if limit is None else min(limit, _SPLITS[split])
        return [cls._make(split, seed, index) for index in range(count)]

    @staticmethod
    def _make(split: str, seed: int, index: int) -> ToyTask:
        rng = random.Random(f"{split}:{seed}:{index}")
        places = tuple(rng.sample(_PLACES, 5))
        start, goal = rng.sample(range(5), 2)
        return ToyTask(id=f"{split}-{index:03d}", env="toy", seed=seed, places=places, start=start, goal=goal)

    @classmethod
    def facets(cls, task: ToyTask) -> dict[str, str]:
        return {"distance": str(abs(task.start - task.goal))}

    @classmethod
    def worked_examples(cls, task: ToyTask, count: int) -> Sequence[ToyTask]:
        return [cls._make("example", task.seed, index) for index in range(count)]

    def instructions(self) -> str:
        return "You walk along a path of named places. Go to the goal, then answer with its name in \\boxed{}."

    def begin(self, task: ToyTask) -> Observation:
        self._at = task.start
        self._moves = 0
        self._bad = 0
        self._answer: str | None = None
        path = " - ".join(task.places)
        return Observation(text=f"Path: {path}\nYou are at {task.places[task.start]}. Goal: {task.places[task.goal]}.")

    def act(self, action: Action | Malformed) -> Step:
        if isinstance(action, Malformed):
            self._bad += 1
            note = Observation(text=f"Error: {action.message}", is_error=True)
            if self._bad == 2:
                return Step(observation=note, truncated=True, stop=StopReason.INVALID)
            return Step(observation=note)
        self._bad = 0
        if isinstance(action, Answer):
            self._answer = action.text
            return Step(observation=Observation(text="Done."), terminated=True, stop=StopReason.ANSWER)
        if not isinstance(action, Move):
            raise TypeError(f"toy takes Move or Answer, got {type(action).__name__}")
        self._moves += 1
        last = self._moves == MAX_MOVES
        there = self._at + (action.steps if action.direction == "forward" else -action.steps)
        if 0 <= there < len(self.task.places):
            self._at = there
            note = Observation(text=f"You are at {self.task.places[there]}.")
        else:
            note = Observation(text="Error: the path ends before that.", is_error=True)
        return Step(observation=note, truncated=last, stop=StopReason.MAX_TURNS if last else None)

    def score(self) -> Score:
        arrived = self._at == self.task.goal
        named = self._answer == f"\\boxed{{{self.task.places[self.task.goal]}}}"
        total = float(arrived and named)
        reward = -1.0 if self._bad == 2 else 2.0 * total
        return Score(total=total, reward=reward, parts={"arrived": float(arrived), "moves": float(self._moves)})

    def oracle(self) -> Action:
        task = self.task
        if self._at == task.goal:
            return Answer(text=f"\\boxed{{{task.places[task.goal]}}}")
        return Move(direction="forward" if self._at < task.goal else "back")

    def oracle_thought(self) -> str:
        return "I compare where I am with where I must be."

    def random_action(self, rng: random.Random) -> Action:
        if rng.random() < 0.3:
            return Answer(text=f"\\boxed{{{rng.choice(self.task.places)}}}")
        return Move(direction=rng.choice(("back", "forward")), steps=rng.randint(1, 4))
