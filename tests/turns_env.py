"""An env whose tasks say how many turns they take, and a dialect that gives each turn a context of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from agl.core import Action, Env, Malformed, Observation, Score, Step, StopReason, Task
from agl.dialects.dialect import Reply
from agl.errors import InfraError
from agl.messages import Injection, Message
from tests.word_env import Say, WordEnv, Words, WordTask


class TurnsTask(WordTask):
    """`rounds` turns; with 0 the machinery fails before the first."""

    rounds: int


class TurnsEnv(WordEnv):
    """`source` lists the rounds of the tasks, such as `0,1,5`; the reward is dense in what was said."""

    name: ClassVar[str] = "turns"
    task_type: ClassVar[type[Task]] = TurnsTask

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[TurnsTask]:
        rounds = [int(word) for word in (source or "1,2,3,2").split(",")]
        return [
            TurnsTask(id=f"turns-{seed}-{number}", env="turns", seed=seed, topic=f"topic {number}", rounds=count)
            for number, count in enumerate(rounds[:limit])
        ]

    def begin(self, task: WordTask) -> Observation:
        if isinstance(task, TurnsTask) and task.rounds == 0:
            raise InfraError("no room left")
        return super().begin(task)

    def act(self, action: Action | Malformed) -> Step:
        self._said.append(action.text if isinstance(action, Say) else "")
        over = isinstance(self.task, TurnsTask) and len(self._said) >= self.task.rounds
        return Step(
            observation=Observation(text=f"heard {len(self._said)}"),
            terminated=over,
            stop=StopReason.ANSWER if over else None,
        )

    def score(self) -> Score:
        earned = sum(map(ord, "".join(self._said))) % 101 / 101
        return Score(total=earned, reward=earned, parts={"letters": float(len("".join(self._said)))})


class FreshWords(Words):
    """Words, and after each turn a prompt that is made anew."""

    name: ClassVar[str] = "fresh_words"
    fresh: ClassVar[bool] = True

    def cut(self, text: str) -> list[Action | Malformed]:
        return self.parse(text)

    def answer(self, env: Env[TurnsTask], replies: Sequence[Reply], opening: Observation | None, **_: Any) -> Injection:
        shown = " ".join(observation.text for _, observation in replies)
        system = Message(role="system", content=env.instructions())
        return Injection(kind="fresh", messages=(system, Message(role="user", content=shown)))
