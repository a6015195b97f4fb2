"""Envs as TRL's `environment_factory` classes, for people with their own TRL script.

    trainer = GRPOTrainer(
        environment_factory=environment_factory("grit"),
        reward_funcs=environment_reward,
        train_dataset=Dataset.from_list(dataset_rows("grit", limit=100)),
        ...
    )

Written against TRL 1.16: every public function of the class except `reset` and `get_reward` becomes a tool, tools are
called with the model's arguments as keywords (each call is a turn of its own), and the text that `reset` returns is
added to the last user message.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agl.core import Action, Env, Score, Task
from agl.errors import UserError
from agl.json_text import dumps
from agl.registry import env_class


class _Environment:
    """What the generated classes share; nothing public but `reset`, since TRL makes tools of public functions."""

    _env_type: type[Env[Any]]
    _options: Mapping[str, Any]

    def __init__(self) -> None:
        self._env = self._env_type(**self._options)
        self._begun = False

    def reset(self, **row: Any) -> str:
        """Start the episode of a dataset row, whose `task` is the task's JSON; returns the first observation."""
        text = row.get("task")
        if not isinstance(text, str):
            raise UserError(
                f"expected a column 'task' with the task as JSON text, got {type(text).__name__}; "
                "build the rows with agl.trl_env.dataset_rows"
            )
        try:
            task = self._env_type.task_type.model_validate_json(text)
        except ValueError as error:
            raise UserError(f"expected the JSON of a {self._env_type.name} task in column 'task': {error}") from None
        if self._begun:
            self._env.close()
        self._begun = True
        return self._env.reset(task).text

    def _act(self, action: type[Action], arguments: dict[str, Any]) -> str:
        said = self._env.step(action.read(arguments, repr(arguments))).observation.text
        closing = self._env.close_turn()
        return said if closing is None else f"{said}\n\n{closing.observation.text}"

    def _score(self) -> Score | None:
        return self._env.score() if self._begun else None


def environment_factory(env_name: str, **options: Any) -> type[_Environment]:
    """A class for TRL's `environment_factory`: one tool per action of the env, and `reset`.

    Wrong arguments are shown to the env as a malformed action; a call after the end returns an error text and changes
    nothing.

    Args:
        env_name: Registry name.
        options: Keyword arguments of the env class.

    Raises:
        UserError: unknown name.
    """
    cls = env_class(env_name)
    members: dict[str, Any] = {action.name(): _tool(action) for action in cls(**options).legal_actions()}
    members |= {"_env_type": cls, "_options": options, "__doc__": f"The env {env_name!r} as an environment of TRL."}
    return type(f"{cls.__name__}Tools", (_Environment,), members)


def environment_reward(*, environments: Sequence[_Environment], **_: Any) -> list[float | None]:
    """A reward function for TRL: `Score.reward` of each environment; None for one that was never reset."""
    scores = [environment._score() for environment in environments]
    return [None if score is None else score.reward for score in scores]


def dataset_rows(
    env_name: str, source: str | None = None, *, seed: int = 0, limit: int | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Rows for a `datasets.Dataset`: `prompt` (instructions and an empty user message, which `reset` fills), `task`.

    Raises:
        UserError: unknown name or source.
    """
    cls = env_class(env_name)
    env, rows = cls(**options), []
    for task in cls.tasks(source, seed=seed, limit=limit):
        rows.append({"prompt": _prompt(env, task), "task": dumps(task.model_dump(mode="json"))})
    return rows


def _prompt(env: Env[Any], task: Task) -> list[dict[str, str]]:
    env.reset(task)
    system = {"role": "system", "content": env.instructions().strip()}
    env.close()
    return [system, {"role": "user", "content": ""}]


def _tool(action: type[Action]) -> Callable[..., str]:
    """A method for `action` whose signature and docstring `transformers.utils.get_json_schema` can read."""
    fields = sorted(action.model_fields.items(), key=lambda item: not item[1].is_required())
    hints = {name: _hint(field.annotation) for name, field in fields}

    def tool(self: _Environment, **arguments: Any) -> str:
        return self._act(action, arguments)

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, field in fields:
        default = inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hints[name]))
    tool.__name__ = tool.__qualname__ = action.name()
    tool.__doc__ = _docstring(action, fields)
    tool.__annotations__ = {**hints, "return": str}
    tool.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return tool


def _docstring(action: type[Action], fields: Sequence[tuple[str, FieldInfo]]) -> str:
    lines = [_one_line(action.__doc__ or action.name())]
    if fields:
        lines += ["", "Args:"]
        lines += [f"    {name}: {_one_line(field.description or name)}" for name, field in fields]
    return "\n".join([*lines, "", "Returns:", "    What the environment shows."])


def _one_line(text: str) -> str:
    """`text` without line breaks and without what reads as the head of a docstring section."""
    return re.sub(r"\b(Args|Returns|Raises):", r"\1 -", " ".join(text.split()))


def _hint(annotation: Any) -> Any:
    """`annotation` in the types that TRL and transformers make schemas of; the action itself validates exactly."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is None:
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return Literal[tuple(member.value for member in annotation)]
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return dict
        return annotation
    if origin in (Union, types.UnionType):
        return reduce(or_, map(_hint, inner))
    if origin in (tuple, set, frozenset, Sequence):
        parts = {part for part in inner if part is not Ellipsis}
        return list[_hint(parts.pop())] if len(parts) == 1 else list  # type: ignore[misc]
    if origin is list:
        return list[_hint(inner[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, _hint(inner[1])]  # type: ignore[misc]
    return annotation
