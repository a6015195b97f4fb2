"""Read the submitted value out of text: wrappers, numbers, names, lists of names, labels.

Nothing is guessed: what has no single reading is an `AnswerError` with a stable code. Answers are searched behind the
think block only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal

from agl.boxed import boxes
from agl.graphs.naming import NameTable, NamingError, fold
from agl.json_text import JsonError, loads
from agl.thinking import UNFINISHED_THINK, after_thinking

AnswerCode = Literal[
    "no_answer",
    "unopened_tag",
    "missing_close",
    "unfinished_think",
    "bad_number",
    "ambiguous_number",
    "unknown_name",
    "ambiguous_name",
    "unknown_label",
    "ambiguous_label",
    "not_json",
    "truncated",
    "duplicate_key",
    "non_finite",
    "too_deep",
    "extra_value",
]
Form = Literal["text", "tag", "boxed", "angle3", "bracket"]
Kind = Literal["int", "float", "total", "node", "nodes", "tour", "label"]


class AnswerError(ValueError):
    """Text that holds no readable answer; `code` names the kind."""

    def __init__(self, code: AnswerCode, message: str) -> None:
        super().__init__(message)
        self.code: AnswerCode = code


def spoken(text: str) -> str:
    """`text` behind its leading think block.

    Raises:
        AnswerError: `unfinished_think`.
    """
    start = after_thinking(text)
    if start is None:
        raise AnswerError("unfinished_think", UNFINISHED_THINK)
    return text[start:]


# Wrappers


def boxed(text: str) -> str:
    r"""Content of the last balanced `\boxed{}`.

    Raises:
        AnswerError: `no_answer`.
    """
    found = boxes(text)
    if not found:
        raise AnswerError("no_answer", "expected \\boxed{...}, found none")
    return found[-1]


def boxed_json(text: str) -> Any:
    r"""The JSON value in the last `\boxed{}`: an object or a bare number, for example.

    Content that begins with a quote (`\boxed{"cost": 16}`) lacks its own braces and is wrapped in them once.

    Raises:
        AnswerError: `no_answer`, or the code of the JSON reader.
    """
    content = boxed(text).strip()
    if content.startswith('"'):
        content = f"{{{content}}}"
    try:
        return loads(content)
    except JsonError as error:
        raise AnswerError(error.code, f"the boxed value is not JSON: {error}") from None


def tagged(text: str, tag: str = "answer") -> str:
    """Content of the last closed element `<tag>`.

    Raises:
        AnswerError: `no_answer`, `unopened_tag` or `missing_close`.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = text.rfind(closing)
    if end < 0:
        if opening in text:
            raise AnswerError("missing_close", f"{opening} was not closed by {closing}")
        raise AnswerError("no_answer", f"expected {opening}...{closing}, found none")
    start = text.rfind(opening, 0, end)
    if start < 0:
        raise AnswerError("unopened_tag", f"{closing} has no opening {opening}")
    return text[start + len(opening) : end].strip()


def angled(text: str) -> str:
    """Content of the last `<<<...>>>`; more marks than three belong to the content, as in `<<<<3>>>>`.

    Raises:
        AnswerError: `no_answer`.
    """
    openings = list(re.finditer("<{3,}", text))
    for closing in reversed(list(re.finditer(">{3,}", text))):
        before = [opening for opening in openings if opening.end() <= closing.start()]
        if before:
            return text[before[-1].start() + 3 : closing.end() - 3].strip()
    raise AnswerError("no_answer", "expected <<<...>>>, found none")


def bracketed(text: str) -> list[str]:
    """Contents of all balanced `[...]`, in the order in which they close."""
    opened: list[int] = []
    found = []
    for match in re.finditer(r"[\[\]]", text):
        if match.group() == "[":
            opened.append(match.end())
        elif opened:
            found.append(text[opened.pop() : match.start()])
    return found


# Numbers

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = rf"[+\-−]?{_DIGITS}(?:\s*/\s*{_DIGITS})?"
_WHOLE = re.compile(_NUMBER)
_INSIDE = re.compile(rf"(?<![\w.)\]])(?<![^\W\d]-){_NUMBER}(?!\w|\.\d)")
_CUE = re.compile(
    r"\b(?:cost|total|sum|length|distance|weight|value|size|answer|result)\b[^\n.;\d+\-−]{0,30}?"
    rf"(?P<first>(?<![\w.]){_NUMBER})(?P<sum>(?:\s*[+*×·\-−]\s*{_DIGITS})*)(?:\s*=\s*(?P<result>{_NUMBER}))?(?!\w|\.\d)",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_MAX_DIGITS = 400


def number(text: str) -> Fraction:
    r"""The exact value of `text` when all of it is one number: sign, decimals, exponent, thousands, `a/b`, `\frac`.

    Raises:
        AnswerError: `bad_number`.
    """
    whole = _FRACTION.sub(r"\1/\2", text.strip().strip("$")).strip()
    if len(whole) > _MAX_DIGITS or not _WHOLE.fullmatch(whole):
        raise AnswerError("bad_number", f"{text.strip()[:40]!r} is not a number")
    upper, _, lower = whole.replace(",", "").replace("−", "-").partition("/")
    try:
        if any(abs(int(re.split("[eE]", part)[1])) > 300 for part in (upper, lower) if "e" in part.lower()):
            raise AnswerError("bad_number", f"{text.strip()[:40]!r} is out of range")
        return Fraction(upper.strip()) / Fraction(lower.strip() or 1)
    except (ValueError, ZeroDivisionError):
        raise AnswerError("bad_number", f"{text.strip()[:40]!r} is not a number") from None


def stated_number(text: str) -> Fraction:
    """The one number that `text` states: all of it, its only number, or the one named as cost, total, answer, ...

    Of a sum that is written out the number behind `=` counts.

    Raises:
        AnswerError: `bad_number` for no number, `ambiguous_number` for several.
    """
    try:
        return number(text)
    except AnswerError as error:
        failed = error
    every = {number(match.group()) for match in _INSIDE.finditer(text) if len(match.group()) <= _MAX_DIGITS}
    if not every:
        raise failed
    if len(every) == 1:
        return every.pop()
    named = set()
    for match in _CUE.finditer(text):
        if match["sum"] and not match["result"]:
            raise AnswerError("ambiguous_number", f"the result of {match.group()[:60]!r} is not stated")
        named.add(number(match["result"] or match["first"]))
    if len(named) != 1:
        raise AnswerError("ambiguous_number", f"expected one number, got several in {text.strip()[:60]!r}")
    return named.pop()


# Names

_MARKS = "\"'`*“”«»"
_MOST_PARTS = 12
"""Most pieces between separators that one name may be made of."""
_LIST_ENDS = {"[": "]", "(": ")", "{": "}"}
_STRONG = re.compile(r"(?:\s*(?:,\s+(?:and|then)\s|,|;|\n|\||->|-->|=>|→|⟶|⇒|➔|\s[-–—]\s|\s>\s|\sand\s|\sthen\s)\s*)+")
_WEAK = re.compile(r"(?:\s*(?:,|;|\n|\||->|-->|=>|→|⟶|⇒|➔|[-–—]|\s)\s*)+")


def node(text: str, names: NameTable) -> str:
    """The declared name that all of `text` mentions, quotes and a final stop aside.

    Raises:
        AnswerError: `unknown_name` or `ambiguous_name`.
    """
    bare = text.strip()
    mentions = dict.fromkeys([bare, bare.strip(_MARKS), bare.rstrip(".!"), bare.rstrip(".!").strip(_MARKS)])
    failed = AnswerError("unknown_name", f"no node is named {bare[:80]!r}")
    for mention in mentions:
        try:
            return names.name(mention)
        except NamingError as error:
            if error.code == "ambiguous_name":
                raise AnswerError("ambiguous_name", str(error)) from None
    raise failed


def node_list(text: str, names: NameTable) -> list[str]:
    """The declared names that `text` lists: a JSON array, or names between commas, arrows, dashes or line breaks.

    Names may themselves contain separators; the split into declared names has to be the only one.

    Raises:
        AnswerError: `unknown_name`, `ambiguous_name`, or `no_answer` for an empty text (`[]` is an empty list).
    """
    whole = text.strip()
    try:
        items = loads(whole)
    except JsonError:
        items = None
    if isinstance(items, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        return [node(str(item), names) for item in items]
    inner = whole
    if len(whole) > 1 and _LIST_ENDS.get(whole[0]) == whole[-1]:
        inner = whole[1:-1]
    if not inner.strip():
        raise AnswerError("no_answer", "expected names, got nothing")
    for candidate in dict.fromkeys([whole, inner]):
        for separator in (_STRONG, _WEAK):
            found = _split(candidate, separator, lambda piece: node(piece, names))
            if found is not None:
                return found
    for piece in _STRONG.split(inner):
        if piece.strip():
            node(piece, names)
    raise AnswerError("unknown_name", f"expected a list of declared names, got {inner.strip()[:80]!r}")


def _split(text: str, separator: re.Pattern[str], read: Callable[[str], str]) -> list[str] | None:
    """Cut `text` at some of the separators so that every piece can be read; None if that cannot be done.

    Raises:
        AnswerError: `ambiguous_name` when there are several ways.
    """
    text = re.sub(r"\s{4,}", lambda blanks: "\n" if "\n" in blanks.group() else " ", text)
    cuts = [(0, 0), *((match.start(), match.end()) for match in separator.finditer(text)), (len(text), len(text))]
    ways = [1] + [0] * (len(cuts) - 1)
    best: list[list[str]] = [[] for _ in cuts]
    for right in range(1, len(cuts)):
        for left in range(max(0, right - _MOST_PARTS), right):
            piece = text[cuts[left][1] : cuts[right][0]]
            at_border = left == 0 or right == len(cuts) - 1
            if not ways[left] or not (piece.strip() or (at_border and left == right - 1)):
                continue
            try:
                value = [read(piece)] if piece.strip() else []
            except AnswerError as error:
                if error.code.startswith("ambiguous"):
                    raise
                continue
            ways[right] += ways[left]
            best[right] = best[left] + value
    if ways[-1] > 1:
        raise AnswerError("ambiguous_name", f"{text.strip()[:80]!r} can be read as several lists")
    return best[-1] if ways[-1] else None


# Labels


def label(text: str, labels: Sequence[str]) -> str:
    """The legal label that all of `text` is; blank and underscore are the same, a part of a label is none.

    Raises:
        AnswerError: `unknown_label`, or `ambiguous_label` when several labels stand in the text or match equally well.
    """
    bare = text.strip()
    for mention in (bare, bare.strip(_MARKS), bare.strip(_MARKS + ".! ")):
        if mention in labels:
            return mention
        found = [legal for legal in labels if _folded(legal) == _folded(mention)]
        if len(found) == 1:
            return found[0]
        if found:
            raise AnswerError("ambiguous_label", f"{bare[:80]!r} may be any of {', '.join(found[:5])}")
    mentioned = [
        legal for legal in labels if re.search(rf"(?<!\w){re.escape(_folded(legal))}(?!\w)", _folded(bare[:10_000]))
    ]
    if len(mentioned) > 1:
        raise AnswerError("ambiguous_label", f"expected one label, got several: {', '.join(mentioned[:5])}")
    raise AnswerError("unknown_label", f"{bare[:80]!r} is no legal label")


def _folded(text: str) -> str:
    return fold(text.replace("_", " "))


def label_list(text: str, labels: Sequence[str]) -> list[str]:
    """The set of legal labels that `text` lists, in declared order.

    Raises:
        AnswerError: `no_answer`, `unknown_label` or `ambiguous_label`.
    """
    inner = text.strip()
    if len(inner) > 1 and _LIST_ENDS.get(inner[0]) == inner[-1]:
        inner = inner[1:-1]
    if not inner.strip(_MARKS + " "):
        raise AnswerError("no_answer", "expected labels, got nothing")
    found = None
    try:
        found = _split(inner, _STRONG, lambda piece: label(piece, labels))
    except AnswerError as error:
        if error.code == "ambiguous_name":
            raise AnswerError("ambiguous_label", str(error)) from None
    if found is None:
        found = [label(piece, labels) for piece in _STRONG.split(inner) if piece.strip()]
    return [legal for legal in labels if legal in found]


# All together


def answer(text: str, form: Form, kind: Kind, *, nodes: Sequence[str] = (), labels: Sequence[str] = ()) -> Any:
    """Read the value of type `kind` that `text` submits in the wrapper `form`.

    `text` is the whole text, `tag` is `<answer>`, `angle3` is `<<<...>>>`; `bracket` takes the last `[...]` that can be
    read, for a tour the last that visits every node once.

    Returns:
        int, float (`float` and `total`), a declared name (`node`), a list of them (`nodes`, `tour`), or a legal label.

    Raises:
        AnswerError: no single value can be read.
    """
    body = spoken(text)
    names = NameTable(nodes)
    if form == "bracket":
        return _from_brackets(body, kind, names, labels)
    wrappers: dict[str, Callable[[str], str]] = {"text": str.strip, "tag": tagged, "boxed": boxed, "angle3": angled}
    content = wrappers[form](body)
    try:
        return _value(content, kind, names, labels)
    except AnswerError as error:
        if form != "text" or kind not in ("nodes", "tour") or error.code != "unknown_name":
            raise
        if bracketed(body):
            return _from_brackets(body, kind, names, labels)
        if ":" not in body:
            raise
        return _value(body.rpartition(":")[2], kind, names, labels)


def _from_brackets(text: str, kind: Kind, names: NameTable, labels: Sequence[str]) -> Any:
    readable = []
    failed: AnswerError | None = None
    for content in reversed(bracketed(text)):
        try:
            readable.append(_value(content, kind, names, labels))
        except AnswerError as error:
            failed = failed or error
    if not readable:
        raise failed or AnswerError("no_answer", "expected [...], found none")
    if kind == "tour":
        every = sorted(names.names)
        for tour in readable:
            once = tour[:-1] if len(tour) > 1 and tour[0] == tour[-1] else tour
            if sorted(once) == every:
                return tour
    return readable[0]


_LATEX_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf)\{([^{}]*)\}")


def _value(content: str, kind: Kind, names: NameTable, labels: Sequence[str]) -> Any:
    if not content.strip():
        raise AnswerError("no_answer", "the answer is empty")
    content = _LATEX_TEXT.sub(r"\1", content)
    if kind in ("int", "float", "total"):
        value = stated_number(content)
        if kind != "int":
            return float(value)
        if value.denominator != 1:
            raise AnswerError("bad_number", f"expected a whole number, got {content.strip()[:40]!r}")
        return int(value)
    if kind == "node":
        return node(content, names)
    if kind == "label":
        return label(content, labels)
    return node_list(content, names)
