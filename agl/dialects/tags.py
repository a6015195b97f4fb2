"""The papers' tag protocols: `<think>..</think><graph>{json}</graph>`, the env appends `<result>..</result>`.

Source: GRAIN (arXiv 2608.27142), Eq. 2 and its prompt table. The whole episode is one assistant turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from agl.core import Action, Malformed
from agl.dialects.dialect import Dialect, Reply, after_thinking
from agl.json_text import JsonError, decode, dumps
from agl.messages import Injection, Message

RESULT = "result"


def is_plain(action: type[Action]) -> bool:
    """True for an action of one string field: its element holds the bare text, not JSON."""
    fields = list(action.model_fields.values())
    return len(fields) == 1 and fields[0].annotation is str


class Tags(Dialect):
    """Each action is one element named by `Action.tag`: a JSON object, or bare text when it has one string field.

    Only generated text is read, think blocks are skipped, JSON is decoded from the opening tag before the closing tag
    is required (so a name may contain `</graph>`), and what the env alone may write (`<result>`) is Malformed.
    """

    name: ClassVar[str] = "tags"

    def __init__(self, actions: Sequence[type[Action]]) -> None:
        super().__init__(actions)
        self._by_tag = {action.tag: action for action in self.actions}
        names = "|".join(re.escape(tag) for tag in [*self._by_tag, RESULT, "think"])
        self._any_tag = re.compile(rf"<(/?)({names})>")

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(f"</{tag}>" for tag in self._by_tag)

    def protocol(self) -> str:
        lines = ["Think first inside <think>...</think>, then write exactly one of these elements:"]
        for action in self.actions:
            lines.append(
                f"<{action.tag}>{self._content_hint(action)}</{action.tag}>: {' '.join((action.__doc__ or '').split())}"
            )
        lines.append(
            f"After an element that asks for something, its output appears between <{RESULT}> and </{RESULT}>; "
            "never write that yourself. You may then think and act again. Text inside <think> is not executed."
        )
        return "\n".join(lines)

    @staticmethod
    def _content_hint(action: type[Action]) -> str:
        if is_plain(action):
            (field,) = action.model_fields.values()
            return field.description or "text"
        return (
            "{"
            + ", ".join(f'"{name}": {field.description or "..."}' for name, field in action.model_fields.items())
            + "}"
        )

    def parse(self, text: str) -> list[Action | Malformed]:
        found: list[Action | Malformed] = []
        start = after_thinking(text)
        if isinstance(start, Malformed):
            return [start]
        while (match := self._any_tag.search(text, start)) is not None:
            closing, tag = match.groups()
            if closing:
                found.append(_bad("unopened_tag", f"</{tag}> has no opening <{tag}>", text))
                start = match.end()
            elif tag == RESULT:
                found.append(_bad("wrote_result", f"only the environment writes <{RESULT}>", text))
                close = text.find(f"</{RESULT}>", match.end())
                start = len(text) if close < 0 else close + len(RESULT) + 3
            elif tag == "think":
                end = text.find("</think>", match.end())
                if end < 0:
                    found.append(
                        _bad("unfinished_think", "the <think> block was not closed; close it before acting", text)
                    )
                    break
                start = end + len("</think>")
            else:
                action, start = self._element(self._by_tag[tag], text, match.end())
                found.append(action)
                if start < 0:
                    break
        if not found:
            legal = " or ".join(f"<{tag}>...</{tag}>" for tag in self._by_tag)
            found.append(_bad("no_action", f"expected {legal}, got none of them", text))
        return found

    def _element(self, action: type[Action], text: str, start: int) -> tuple[Action | Malformed, int]:
        """Read the element whose content begins at `start`; returns it and where to go on, -1 for nowhere."""
        close = f"</{action.tag}>"
        if is_plain(action):
            end = text.find(close, start)
            if end < 0:
                return _bad("missing_close", f"<{action.tag}> was not closed by {close}", text), -1
            (field,) = action.model_fields
            return action.read({field: text[start:end].strip()}, text), end + len(close)
        try:
            value, end = decode(text, start)
        except JsonError as error:
            end = text.find(close, start)
            message = f"the JSON in <{action.tag}> cannot be read: {error}"
            if error.code == "truncated" and end >= 0 and not self.is_open(text, text):
                return _bad("not_json", message, text), end + len(close)
            return _bad(error.code, message, text), -1 if end < 0 else end + len(close)
        rest = re.compile(r"\s*").match(text, end)
        end = rest.end() if rest else end
        if text.startswith(close, end):
            return action.read(value, text[start:end]), end + len(close)
        later = text.find(close, end)
        if later < 0 and not text[end:].strip():
            return _bad("missing_close", f"<{action.tag}> was not closed by {close}", text), -1
        message = f"<{action.tag}> takes one JSON object; more follows at character {end - start}"
        return _bad("extra_value", message, text), -1 if later < 0 else later + len(close)

    def is_open(self, text: str, seen: str) -> bool:
        stop = next((stop for stop in self.stops if text.endswith(stop)), None)
        if stop is None or stop not in seen:
            return False
        tag = stop[2:-1]
        opening = text.rfind(f"<{tag}>")
        if opening < 0 or is_plain(self._by_tag[tag]):
            return False
        try:
            decode(text, opening + len(tag) + 2)
        except JsonError as error:
            return error.code == "truncated"
        return False

    def write(self, action: Action, thought: str = "") -> str:
        content = (
            getattr(action, next(iter(type(action).model_fields)))
            if is_plain(type(action))
            else dumps(action.model_dump())
        )
        lead = f"<think>{thought}</think>\n" if thought else ""
        return f"{lead}<{action.tag}>{content}</{action.tag}>"

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        text = "".join(f"\n<{RESULT}>{observation.text}</{RESULT}>\n" for _, observation in replies)
        if turn_ended:
            return Injection(kind="turn", messages=(Message(role="user", content=text.strip()),))
        return Injection(kind="continue", text=text)


def _bad(reason: str, message: str, text: str) -> Malformed:
    return Malformed(reason=reason, message=message, text=text[:500])
