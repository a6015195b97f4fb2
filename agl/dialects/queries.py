"""The search protocol of AgentGL: queries inside the reasoning, `<|begin_of_query|>POOL:QUERY<|end_of_query|>`.

The env appends `<|begin_of_documents|>..<|end_of_documents|>` to the same assistant turn. An episode is one think block
with all reasoning and searches, then one `<answer>..</answer>`. Source: AgentGL (arXiv 2604.05846).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import PrivateAttr

from agl.core import Action, Env, Malformed, Observation
from agl.dialects.dialect import TRUNCATED, Dialect, Reply
from agl.dialects.tags import is_plain
from agl.errors import UserError
from agl.json_text import JsonError, decode, dumps
from agl.messages import Injection, Message, Prompt
from agl.thinking import UNFINISHED_THINK

QUERY, QUERY_END = "<|begin_of_query|>", "<|end_of_query|>"
DOCUMENTS, DOCUMENTS_END = "<|begin_of_documents|>", "<|end_of_documents|>"
THINK, THINK_END = "<think>", "</think>"


class Unread(Malformed):
    """A Malformed that remembers all of the turn, for rewards that look at how the policy writes."""

    _said: str = PrivateAttr("")

    @property
    def said(self) -> str:
        return self._said


class _Scan(NamedTuple):
    found: list[Action | Malformed]
    open: Literal["query", "answer", "think"] | None
    """The element that the text leaves open; a think block only if no search in it was read."""


class Queries(Dialect):
    """For envs with one action of two texts (written `FIRST:SECOND`) and one of a single text (the answer's element).

    Searches are read wherever they stand, an answer only outside an open think block: there it is prose. A think
    block may be open from an earlier turn, so text may begin inside one. A part that cannot be written as it is (it
    holds marks, or blanks at its ends) is written as a JSON string. A query without a colon has an empty first part.

    An action may know its place (`opens`: it is the first of its episode, or it is not); then its text opens the think
    block or goes on in it.
    """

    name: ClassVar[str] = "queries"

    def __init__(self, actions: Sequence[type[Action]]) -> None:
        super().__init__(actions)
        pairs = [action for action in self.actions if _texts(action) == 2]
        plain = [action for action in self.actions if is_plain(action)]
        if len(pairs) != 1 or len(plain) != 1 or len(self.actions) != 2:
            names = ", ".join(action.name() for action in self.actions)
            raise UserError(
                f"expected one action of two texts and one of a single text for the dialect {self.name}, got {names}; "
                "choose the dialect tags or tools"
            )
        self._search, self._answer = pairs[0], plain[0]
        self._answer_tag, self._answer_end = f"<{self._answer.tag}>", f"</{self._answer.tag}>"
        marks = [QUERY, QUERY_END, DOCUMENTS, DOCUMENTS_END, THINK, THINK_END, self._answer_tag, self._answer_end]
        self._marks = re.compile("|".join(map(re.escape, marks)))

    @property
    def stops(self) -> tuple[str, ...]:
        return QUERY_END, self._answer_end

    def protocol(self) -> str:
        first, second = (name.upper() for name in self._search.model_fields)
        (answer,) = self._answer.model_fields.values()
        return (
            f"Reason inside one {THINK}...{THINK_END} block. To search, write inside that block\n"
            f"{QUERY}{first}:{second}{QUERY_END}\n"
            f"and stop: {' '.join((self._search.__doc__ or '').split())} The result appears between {DOCUMENTS} and "
            f"{DOCUMENTS_END}; never write that yourself. Then go on reasoning. One search at a time.\n"
            f"When you are done, close the block with {THINK_END} and write exactly one\n"
            f"{self._answer_tag}{answer.description or 'text'}{self._answer_end}\n"
            "with nothing else in it and nothing after it."
        )

    def parse(self, text: str, *, may_begin_inside_thinking: bool = True) -> list[Action | Malformed]:
        return self._scan(text).found

    def _scan(self, text: str) -> _Scan:
        found: list[Action | Malformed] = []
        start = 0
        inside = _begins_inside(text)
        left_open: Literal["query", "answer"] | None = None
        while (match := self._marks.search(text, start)) is not None:
            mark, start = match.group(), match.end()
            if mark in (THINK, THINK_END):
                inside = mark == THINK
            elif mark == QUERY:
                end, again = text.find(QUERY_END, start), text.find(QUERY, start)
                if end < 0 or start <= again < end:
                    found.append(_unread("missing_close", f"{QUERY} was not closed by {QUERY_END}", text))
                    left_open = "query" if end < 0 else None
                else:
                    found.append(self._read_search(text[start:end], text))
                    start = end + len(QUERY_END)
            elif mark in (DOCUMENTS, DOCUMENTS_END):
                found.append(_unread("wrote_result", f"only the environment writes {DOCUMENTS}", text))
                end = text.find(DOCUMENTS_END, start) if mark == DOCUMENTS else start
                start = len(text) if end < 0 else max(start, end)
                start += len(DOCUMENTS_END) if text.startswith(DOCUMENTS_END, start) and mark == DOCUMENTS else 0
            elif inside and mark != QUERY_END:
                continue
            elif mark != self._answer_tag:
                found.append(_unread("unopened_tag", f"{mark} closes nothing that was opened", text))
            else:
                end = text.find(self._answer_end, start)
                if end < 0:
                    found.append(
                        _unread("missing_close", f"{self._answer_tag} was not closed by {self._answer_end}", text)
                    )
                    left_open = "answer"
                    break
                (field,) = self._answer.model_fields
                found.append(self._answer.read({field: _from_text(text[start:end])}, text))
                start = end + len(self._answer_end)
        if found:
            return _Scan(found, left_open)
        if inside:
            return _Scan([_unread("unfinished_think", UNFINISHED_THINK, text)], "think")
        legal = f"{QUERY}...{QUERY_END} or {self._answer_tag}...{self._answer_end}"
        return _Scan([_unread("no_action", f"expected {legal}, got none of them", text)], None)

    def _read_search(self, content: str, text: str) -> Action | Malformed:
        first, second = self._search.model_fields
        left, right = _halves(content)
        return self._search.read({first: _from_text(left), second: _from_text(right)}, text)

    def is_open(self, text: str, seen: str) -> bool:
        """Also where the policy, in its reasoning, names the answer's element, or a query's inside an answer."""
        if text.endswith(self._answer_end):
            return self._scan(text).open in ("query", "think")
        return text.endswith(QUERY_END) and self._scan(text).open == "answer"

    def write(self, action: Action, thought: str = "") -> str:
        opens: bool | None = getattr(action, "opens", None)
        first = opens is True or (opens is None and bool(thought))
        if isinstance(action, self._search):
            left, right = (getattr(action, name) for name in self._search.model_fields)
            body = f"{QUERY}{_as_text(left, stop=':')}:{_as_text(right)}{QUERY_END}"
            lead = f"{thought}\n" if thought else ""
            return f"{THINK if first else ''}{lead}{body}"
        (field,) = type(action).model_fields
        body = f"{self._answer_tag}{_as_text(getattr(action, field))}{self._answer_end}"
        if first:
            return f"{THINK}{thought}{THINK_END}\n{body}"
        return body if opens is None else f"{thought}{THINK_END}\n{body}"

    def cut(self, text: str) -> list[Action | Malformed]:
        return [_unread("truncated", TRUNCATED, text)]

    def render(self, replies: Sequence[Reply], *, turn_ended: bool) -> Injection:
        return _injection([observation.text for _, observation in replies], "", turn_ended)

    def answer(
        self, env: Env[Any], replies: Sequence[Reply], opening: Observation | None, *, turn_ended: bool, first: Prompt
    ) -> Injection:
        """What opens the next turn stands behind the documents, not among them."""
        texts = [observation.text for _, observation in replies]
        return _injection(texts, "" if opening is None else opening.text, turn_ended)


def _injection(texts: Sequence[str], opening: str, turn_ended: bool) -> Injection:
    text = "".join(f"\n{DOCUMENTS}\n{text}\n{DOCUMENTS_END}\n" for text in texts)
    text += f"{opening}\n" if opening else ""
    if turn_ended:
        return Injection(kind="turn", messages=(Message(role="user", content=text.strip()),))
    return Injection(kind="continue", text=text)


def _texts(action: type[Action]) -> int:
    """Number of fields of an action that has nothing but texts, else 0."""
    fields = action.model_fields.values()
    return len(fields) if all(field.annotation is str for field in fields) else 0


def _begins_inside(text: str) -> bool:
    """Whether the first think tag of `text` closes a block that was opened before."""
    opened, closed = text.find(THINK), text.find(THINK_END)
    return closed >= 0 and not 0 <= opened < closed


def _unread(reason: str, message: str, text: str) -> Malformed:
    found = Unread(reason=reason, message=message, text=text[:500])
    found._said = text
    return found


def _halves(content: str) -> tuple[str, str]:
    """The parts of a query around its first colon, or around the one behind a JSON string."""
    end = _json_end(content)
    colon = content.find(":", max(end, 0))
    if end >= 0 and content[end:colon].strip():
        colon = content.find(":")
    return (content[:colon], content[colon + 1 :]) if colon >= 0 else ("", content)


def _json_end(text: str) -> int:
    """Offset behind the JSON string that `text` begins with, or -1."""
    if not text.lstrip().startswith('"'):
        return -1
    try:
        return decode(text)[1]
    except JsonError:
        return -1


def _from_text(part: str) -> str:
    end = _json_end(part)
    if end >= 0 and not part[end:].strip():
        return str(decode(part)[0])
    return part.strip()


def _as_text(value: str, stop: str = "<") -> str:
    """`value` as it is, or where that would be read otherwise as a JSON string without marks in it."""
    if _from_text(value) == value and "<" not in value and stop not in value and not value.startswith('"'):
        return value
    return dumps(value).replace("<", "\\u003c")
