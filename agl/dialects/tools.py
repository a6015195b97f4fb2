"""Function calling as text, in the form Hermes and Qwen models are trained on.

`<tool_call>{"name": ..., "arguments": {...}}</tool_call>` ends the turn; observations are `tool` messages.
Source: the chat template of Qwen2.5. Policies that call tools natively get the same functions as schemas instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from agl.core import Action, Env, Malformed, Observation, json_schemas
from agl.dialects.dialect import Dialect, Reply, escaped, json_element, malformed
from agl.json_text import JsonError, dumps, loads
from agl.messages import Injection, Message, Prompt
from agl.thinking import UNFINISHED_THINK, after_thinking

_TAG = re.compile(r"<(/?)(tool_call|tool_response|think)>")
_CLOSE = "</tool_call>"
_MAY_THINK = "\nYou may think first inside <think>...</think>; text inside it is not executed."


def call_text(name: str, arguments: str) -> str:
    """The text form of a call that an API returned; `arguments` is its raw argument string, read later by `parse`."""
    return f'<tool_call>\n{{"name": {dumps(name)}, "arguments": {escaped(arguments)}}}\n{_CLOSE}'


class Tools(Dialect):
    """Every call of a turn is read, in order. Arguments given as a JSON string are decoded once, never guessed.

    JSON is decoded from the opening tag before the closing tag is required, so an argument may contain any tag.
    """

    name: ClassVar[str] = "tools"

    def __init__(self, actions: Sequence[type[Action]]) -> None:
        super().__init__(actions)
        self._by_name = {action.name(): action for action in self.actions}

    @property
    def stops(self) -> tuple[str, ...]:
        return (_CLOSE,)

    def protocol(self) -> str:
        schemas = "\n".join(dumps(schema) for schema in json_schemas(self.actions))
        return (
            "# Tools\n\nYou act by calling functions. Their signatures are given within <tools></tools> XML tags:\n"
            f"<tools>\n{schemas}\n</tools>\n\n"
            "For each function call, return a json object with function name and arguments within "
            "<tool_call></tool_call> XML tags:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
            + (_MAY_THINK if self.thinking else "")
        )

    def prompt(
        self, env: Env[Any], first: Observation, examples: Sequence[Sequence[Message]] = (), *, native: bool = False
    ) -> Prompt:
        prompt = super().prompt(env, first, examples)
        if not native:
            return prompt
        system = Message(role="system", content=env.instructions().strip())
        return Prompt(messages=(system, *prompt.messages[1:]), tools=tuple(json_schemas(self.actions)))

    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        found: list[Action | Malformed] = []
        start = after_thinking(text, may_begin_inside=may_begin_inside_thinking)
        if start is None:
            return [malformed("unfinished_think", UNFINISHED_THINK, text)]
        while start >= 0 and (match := _TAG.search(text, start)) is not None:
            closing, tag = match.groups()
            start = match.end()
            if closing:
                found.append(malformed("unopened_tag", f"</{tag}> has no opening <{tag}>", text))
            elif tag == "tool_call":
                value, start = json_element(text, start, tag)
                found.append(value if isinstance(value, Malformed) else self._call(value, text))
            else:
                end = text.find(f"</{tag}>", start)
                start = end if end < 0 else end + len(tag) + 3
                if tag == "tool_response":
                    found.append(malformed("wrote_result", "only the environment writes <tool_response>", text))
                elif end < 0:
                    found.append(malformed("unfinished_think", UNFINISHED_THINK, text))
        if not found:
            legal = ", ".join(self._by_name)
            message = f"expected <tool_call>...</tool_call> with one of the functions {legal}; got no call"
            found.append(malformed("no_call", message, text))
        return found

    def _call(self, value: object, text: str) -> Action | Malformed:
        if not isinstance(value, dict):
            message = f"a call is a JSON object with name and arguments, got {type(value).__name__}"
            return malformed("bad_type", message, text)
        legal = ", ".join(self._by_name)
        name = value.get("name")
        if not isinstance(name, str):
            return malformed("bad_type", f"a call names its function as a string under name; legal are: {legal}", text)
        if name not in self._by_name:
            return malformed("unknown_tool", f"there is no function {name[:80]!r}; legal are: {legal}", text)
        extra = sorted(value.keys() - {"name", "arguments"})
        if extra:
            message = f"a call has only name and arguments; the parameters of {name} belong inside arguments"
            return malformed("unknown_argument", f"{message}, got {extra[0][:80]!r}", text)
        action = self._by_name[name]
        if "arguments" not in value:
            if action.model_fields:
                return malformed("missing_argument", f"the call of {name} has no arguments object", text)
            return action.read({}, text)
        arguments = value["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = loads(arguments)
            except JsonError as error:
                return malformed(error.code, f"the arguments of {name} cannot be read: {error}", text)
        return action.read(arguments, text)

    def is_open(self, text: str, seen: str) -> bool:
        if not text.endswith(_CLOSE):
            return False
        last = self.parse(text)[-1]
        if not isinstance(last, Malformed):
            return False
        return last.reason == "unfinished_think" or (last.reason == "truncated" and _CLOSE in seen)

    def write(self, action: Action, thought: str = "") -> str:
        lead = f"<think>{thought}</think>\n" if thought else ""
        arguments = escaped(action.model_dump(mode="json"))
        return f'{lead}<tool_call>\n{{"name": {dumps(action.name())}, "arguments": {arguments}}}\n{_CLOSE}'

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        messages = tuple(Message(role="tool", content=observation.text) for _, observation in replies)
        return Injection(kind="turn", messages=messages)
