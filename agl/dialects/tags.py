"""The papers' tag protocols: `<think>..</think><graph>{json}</graph>`, the env appends `<result>..</result>`.

Source: GRAIN (arXiv 2608.27142), Eq. 2 and its prompt table. The whole episode is one assistant turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from agl.boxed import has_open_box
from agl.core import Action, Answer, Malformed
from agl.dialects.dialect import Dialect, Reply, escaped, json_element, malformed
from agl.messages import Injection, Message
from agl.thinking import UNFINISHED_THINK, after_thinking

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
        only_answer = self.actions == (Answer,)
        write = "rite exactly this element:" if only_answer else "rite exactly one of these elements:"
        lines = [f"Think first inside <think>...</think>, then w{write}" if self.thinking else f"W{write}"]
        for action in self.actions:
            lines.append(
                f"<{action.tag}>{self._content_hint(action)}</{action.tag}>: {' '.join((action.__doc__ or '').split())}"
            )
        if only_answer:
            return "\n".join(lines)
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

    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        found: list[Action | Malformed] = []
        start = after_thinking(text, may_begin_inside=may_begin_inside_thinking)
        if start is None:
            return [malformed("unfinished_think", UNFINISHED_THINK, text)]
        while (match := self._any_tag.search(text, start)) is not None:
            closing, tag = match.groups()
            if closing:
                found.append(malformed("unopened_tag", f"</{tag}> has no opening <{tag}>", text))
                start = match.end()
            elif tag in (RESULT, "think"):
                end = text.find(f"</{tag}>", match.end())
                start = len(text) if end < 0 else end + len(tag) + 3
                if tag == RESULT:
                    found.append(malformed("wrote_result", f"only the environment writes <{RESULT}>", text))
                elif end < 0:
                    found.append(malformed("unfinished_think", UNFINISHED_THINK, text))
            else:
                action, start = self._element(self._by_tag[tag], text, match.end())
                found.append(action)
                if start < 0:
                    break
        if not found:
            legal = " or ".join(f"<{tag}>...</{tag}>" for tag in self._by_tag)
            found.append(malformed("no_action", f"expected {legal}, got none of them", text))
        return found

    def _element(self, action: type[Action], text: str, start: int) -> tuple[Action | Malformed, int]:
        """Read the element whose content begins at `start`; returns it and where to go on, -1 for nowhere."""
        if is_plain(action):
            value, end = _plain_element(text, start, action.tag)
        else:
            value, end = json_element(text, start, action.tag)
        if isinstance(value, Malformed):
            return value, end
        return action.read({next(iter(action.model_fields)): value} if is_plain(action) else value, text), end

    def is_open(self, text: str, seen: str) -> bool:
        stop = next((stop for stop in self.stops if text.endswith(stop)), None)
        if stop is None:
            return False
        if stop not in seen and text.rfind("<think>") <= text.rfind("</think>"):
            return False
        last = self.parse(text)[-1]
        if isinstance(last, Malformed):
            return last.reason == "unfinished_think" or (last.reason == "truncated" and stop in seen)
        return stop in seen and is_plain(type(last)) and has_open_box(_plain_text(last))

    def write(self, action: Action, thought: str = "") -> str:
        lead = f"<think>{thought}</think>\n" if thought else ""
        return f"{lead}<{action.tag}>{_content(action)}</{action.tag}>"

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        text = "".join(f"\n<{RESULT}>{observation.text}</{RESULT}>\n" for _, observation in replies)
        if turn_ended:
            return Injection(kind="turn", messages=(Message(role="user", content=text.strip()),))
        return Injection(kind="continue", text=text)


def _plain_text(action: Action) -> str:
    text: str = getattr(action, next(iter(type(action).model_fields)))
    return text


def _content(action: Action) -> str:
    if not is_plain(type(action)):
        return escaped(action.model_dump(mode="json"))
    text = _plain_text(action)
    bare = f"{text}</{action.tag}>"
    if "</think>" not in text and _plain_element(bare, 0, action.tag) == (text, len(bare)):
        return text
    return escaped(text)


def _plain_element(text: str, start: int, tag: str) -> tuple[str | Malformed, int]:
    """Read bare text up to the closing tag, outer blanks dropped.

    A closing tag inside an unfinished box is part of the text. Content that is exactly one JSON string stands for that
    string: so any text can be written.
    """
    close = f"</{tag}>"
    if text[start:].lstrip().startswith('"'):
        value, end = json_element(text, start, tag)
        if isinstance(value, str):
            return value, end
    first = end = text.find(close, start)
    while end >= 0 and has_open_box(text[start:end]):
        end = text.find(close, end + 1)
    end = first if end < 0 else end
    if end < 0:
        return malformed("missing_close", f"<{tag}> was not closed by {close}", text), -1
    return text[start:end].strip(), end + len(close)
