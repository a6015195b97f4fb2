"""ReaGAN's plans: one JSON array of actions per turn, executed in order; every turn has a fresh context.

Source: ReaGAN (arXiv 2508.00429). Field names follow its public code: `action_type` is `Action.tag` there. That code
takes the first `{...}` it finds; here the whole array is read, item by item, so one bad action costs only itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from agl.core import Action, Env, Malformed, Observation
from agl.dialects.dialect import Dialect, Reply, escaped, malformed
from agl.json_text import JsonError, decode
from agl.messages import Injection, Message, Prompt
from agl.thinking import UNFINISHED_THINK, after_thinking

KIND = "action_type"
_FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)```", re.DOTALL)
_ARRAY_OF_OBJECTS = re.compile(r"\[\s*[{\]]")


class JsonPlan(Dialect):
    """A plan is an array of objects; a lone object, `{"actions": [...]}` and one code fence are read as well.

    An object without `action_type` stands for the one action that has these fields (`{"predicted_label": ...}`).
    Fields that an action does not have are passed over, as models like to add a reason. What is cut off or broken
    behind complete objects leaves these valid and adds one Malformed.
    """

    name: ClassVar[str] = "json_plan"
    fresh: ClassVar[bool] = True

    def __init__(self, actions: Sequence[type[Action]]) -> None:
        super().__init__(actions)
        self._by_kind = {
            _folded(word): action for action in self.actions for word in (action.__name__, action.name(), action.tag)
        }

    @property
    def stops(self) -> tuple[str, ...]:
        return ()

    def protocol(self) -> str:
        return _protocol(self.actions)

    def prompt(
        self, env: Env[Any], first: Observation, examples: Sequence[Sequence[Message]] = (), *, native: bool = False
    ) -> Prompt:
        """Instructions and the actions that are legal now, then what the env shows."""
        system = f"{env.instructions().strip()}\n\n{_protocol(env.legal_actions())}"
        shown = [message for example in examples for message in example]
        head = Message(role="system", content=system)
        return Prompt(messages=(head, *shown, Message(role="user", content=first.text)))

    def demonstrate(self, env: Env[Any], first: Observation) -> list[Message]:
        """The first turn alone: the others would need contexts of their own."""
        spoken = self.write(env.oracle(), env.oracle_thought())
        return [Message(role="user", content=first.text), Message(role="assistant", content=spoken)]

    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        start = after_thinking(text, may_begin_inside=may_begin_inside_thinking)
        if start is None:
            return [malformed("unfinished_think", UNFINISHED_THINK, text)]
        body = text[start:].strip()
        fenced = _FENCE.search(body)
        items, fault = _items(fenced.group(1) if fenced else body)
        found = [self._read(item, text) for item in items]
        if fault is not None:
            found.append(malformed(fault, _FAULTS.get(fault, f"the plan is no JSON array of actions: {fault}"), text))
        return found

    def cut(self, text: str) -> list[Action | Malformed]:
        """Actions that were complete before the limit count."""
        return self.parse(text)

    def _read(self, item: object, text: str) -> Action | Malformed:
        if not isinstance(item, dict):
            return malformed("bad_type", f"an action is a JSON object, got {type(item).__name__}", text)
        legal = ", ".join(action.tag for action in self.actions)
        given = item.keys() - {KIND}
        if KIND in item:
            action = self._by_kind.get(_folded(item[KIND])) if isinstance(item[KIND], str) else None
        else:
            fitting = [action for action in self.actions if action.model_fields and given == action.model_fields.keys()]
            action = fitting[0] if len(fitting) == 1 else None
        if action is None:
            message = f"expected {KIND} to be one of {legal}, got {str(item.get(KIND))[:80]!r}"
            return malformed("unknown_action", message, text)
        return action.read({name: item[name] for name in action.model_fields if name in item}, text)

    def write(self, action: Action, thought: str = "") -> str:
        return (f"<think>{thought}</think>\n" if thought else "") + self.write_turn([action])

    def write_turn(self, actions: Sequence[Action]) -> str:
        return escaped([{KIND: action.tag, **action.model_dump(mode="json")} for action in actions])

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        """What was said to the actions, for an env that does not open its turns itself."""
        text = "\n".join(observation.text for _, observation in replies)
        return Injection(kind="turn", messages=(Message(role="user", content=text),))

    def answer(
        self, env: Env[Any], replies: Sequence[Reply], opening: Observation | None, *, turn_ended: bool, first: Prompt
    ) -> Injection:
        """A new context, with the worked examples of the first one while the actions are still the same."""
        if opening is None:
            return self.render(replies, turn_ended=turn_ended)
        head, *_, last = self.prompt(env, opening).messages
        examples = first.messages[1:-1] if head == first.messages[0] else ()
        return Injection(kind="fresh", messages=(head, *examples, last))


_FAULTS = {
    "no_json": "expected one JSON array of actions, got text without any",
    "empty_plan": "the plan has no action",
    "truncated": "the plan ends before it is complete",
}


def _folded(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _protocol(actions: Sequence[type[Action]]) -> str:
    forms = [f"{_form(action)}: {' '.join((action.__doc__ or '').split())}" for action in actions]
    if len(actions) == 1:
        return f"Answer with one JSON object and nothing else:\n{forms[0]}"
    head = (
        "Answer with one JSON array of actions and nothing else; they are executed in the given order. Each is one of:"
    )
    return "\n".join([head, *forms])


def _form(action: type[Action]) -> str:
    fields = [f'"{KIND}": "{action.tag}"']
    fields += [f'"{name}": {field.description or "..."}' for name, field in action.model_fields.items()]
    return "{" + ", ".join(fields) + "}"


def _items(body: str) -> tuple[list[object], str | None]:
    """The items of the plan in `body`, and what is wrong with it: None when it is whole."""
    array = _ARRAY_OF_OBJECTS.search(body)
    brace = body.find("{")
    if array is not None and (brace < 0 or array.start() < brace):
        return _elements(body, array.start() + 1, inside=True)
    if brace < 0:
        return [], "no_json"
    items, fault = _elements(body, brace, inside=False)
    if len(items) == 1 and isinstance(items[0], dict) and isinstance(items[0].get("actions"), list):
        listed = items[0]["actions"]
        return listed, fault if listed else "empty_plan"
    return items, fault


def _elements(body: str, start: int, *, inside: bool) -> tuple[list[object], str | None]:
    """JSON values one after the other, up to the end of the array (`inside`) or of the objects."""
    items: list[object] = []
    while True:
        start += len(body[start:]) - len(body[start:].lstrip(" \t\r\n,"))
        if inside and body.startswith("]", start):
            return items, None if items else "empty_plan"
        if not inside and items and not body.startswith("{", start):
            return items, None
        try:
            item, start = decode(body, start)
        except JsonError as error:
            return items, error.code if body[start:].strip() else "truncated"
        items.append(item)
