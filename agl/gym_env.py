"""Every env as a Gymnasium env: text in (what a model writes), text out (what the env shows).

`gymnasium.make("agl/Grit-v0")` after `import agl`, or `gymnasium.make("agl:agl/Grit-v0")`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
from gymnasium import spaces

from agl.config import checked_options
from agl.core import Env, Malformed, OutcomeKind, Task
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.json_text import dumps
from agl.registry import env_class


class AnyText(spaces.Text):
    """All strings of any length and alphabet; samples are printable ASCII of at most `max_length` characters."""

    def __init__(self, max_length: int = 200) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and self.max_length == other.max_length

    __hash__ = spaces.Text.__hash__

    def __repr__(self) -> str:
        return "AnyText()"


class TextEnv(gymnasium.Env[str, str]):
    """One registered env behind Gymnasium's interface.

    An action is one turn of a model in the env's dialect; all actions in it run in order until the episode ends. The
    reward is 0 until then and `Score.reward` at the end. `info` at reset holds `task` (its id), `system` (the system
    prompt) and `stops`; after each step `task`, `malformed` (reason codes of this turn) and, where every turn has a
    context of its own, the next `system`; at the end also `total`,
    `parts`, `labels`, `outcome` and `stop`.

    Args:
        name: Registry name.
        source: Split, file or folder, as for `Env.tasks`.
        task_seed: Seed of a generated split.
        limit: Use only the first tasks.
        dialect: Name of the dialect; the env's own by default.
        options: Keyword arguments of the env class.

    Raises:
        UserError: unknown name, dialect, source or option.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        name: str,
        *,
        source: str | None = None,
        task_seed: int = 0,
        limit: int | None = None,
        dialect: str | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        cls = env_class(name)
        self.render_mode = render_mode
        self.action_space = AnyText()
        self.observation_space = AnyText()
        self._env: Env[Any] = cls(**checked_options(cls, options, f"the environment {name}"))
        self._dialect = dialect_for(self._env, dialect)
        self._source = (source, task_seed, limit)
        self._tasks: Sequence[Task] | None = None
        self._begun = False
        self._said: list[str] = []

    @property
    def tasks(self) -> Sequence[Task]:
        """What `reset` draws from."""
        if self._tasks is None:
            source, seed, limit = self._source
            self._tasks = self._env.tasks(source, seed=seed, limit=limit)
        return self._tasks

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode; `options={"task": ...}` takes a Task, its JSON object, or an index instead of a draw.

        Raises:
            UserError: the task cannot be used.
        """
        super().reset(seed=seed)
        task = self._pick((options or {}).get("task"))
        self.close()
        first = self._env.reset(task)
        self._begun = True
        system = self._dialect.prompt(self._env, first).messages[0].content
        self._said = [first.text]
        return first.text, {"task": task.id, "system": system, "stops": list(self._dialect.stops)}

    def _pick(self, chosen: Any) -> Task:
        count = len(self.tasks)
        if chosen is None:
            if count == 0:
                raise UserError(f"expected at least one task of {self._env.name}, got none; choose another source")
            return self.tasks[int(self.np_random.integers(count))]
        if isinstance(chosen, int):
            if not 0 <= chosen < count:
                raise UserError(f"expected a task index in 0..{count - 1}, got {chosen}; choose one of them")
            return self.tasks[chosen]
        if isinstance(chosen, dict):
            try:
                chosen = self._env.task_type.model_validate_json(dumps(chosen))
            except ValueError as error:
                raise UserError(f"expected a task of {self._env.name} as a JSON object: {error}") from None
        if not isinstance(chosen, self._env.task_type):
            wanted = self._env.task_type.__name__
            raise UserError(f"expected a {wanted}, its JSON object or an index, got {type(chosen).__name__}")
        return chosen

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply what a model wrote in one turn. After the end nothing changes and the reward is 0."""
        was_over = self._env.is_over
        self._said.append(action)
        shown, malformed = [], []
        for parsed in self._dialect.parse(action):
            if isinstance(parsed, Malformed):
                malformed.append(parsed.reason)
            step = self._env.step(parsed)
            shown.append(step.observation.text)
            if step.ended is not None:
                break
        closing = None if was_over else self._env.close_turn()
        if closing is not None:
            step = closing
            shown = [step.observation.text] if self._dialect.fresh else [*shown, step.observation.text]
        observation = "\n".join(shown)
        self._said.append(observation)
        info: dict[str, Any] = {"task": self._env.task.id, "malformed": malformed}
        if self._dialect.fresh:
            info["system"] = self._dialect.prompt(self._env, step.observation).messages[0].content
        if step.ended is None or was_over:
            return observation, 0.0, step.terminated, step.truncated, info
        score = self._env.score()
        info |= {"total": score.total, "parts": dict(score.parts), "labels": dict(score.labels)}
        info |= {"outcome": OutcomeKind.of(step.ended).value, "stop": step.ended.value}
        return observation, score.reward, step.terminated, step.truncated, info

    def render(self) -> str | None:
        """Everything said in this episode, with `render_mode="ansi"`."""
        return "\n".join(self._said) if self.render_mode == "ansi" else None

    def close(self) -> None:
        if self._begun:
            self._begun = False
            self._env.close()
