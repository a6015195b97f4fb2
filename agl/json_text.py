"""The one JSON reader and writer: what models read and write, and what traces store.

The writer never escapes non-ASCII letters (a model pays tokens for `\\u` escapes and copies them), never
writes NaN, and sorts keys so that equal values have equal bytes. The reader is strict and says where and
why it failed; it never repairs. `literal` is its lenient sibling for Python-style text, used where a caller says so.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterable
from typing import Any, Literal

JsonCode = Literal["not_json", "truncated", "duplicate_key", "non_finite", "too_deep", "extra_value"]


class JsonError(ValueError):
    """Text that is not one strict JSON value.

    `code` names the kind; `position` is the character offset in the text that was given, or None when the
    decoder does not know it.
    """

    def __init__(self, code: JsonCode, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.code: JsonCode = code
        self.position = position


def dumps(value: Any, *, sort_keys: bool = True) -> str:
    """One line of JSON, letters as they are; only half a surrogate pair, which is no letter, is escaped.

    `sort_keys=False` keeps the order in which `value` was built, for text whose order says something to a reader.

    Raises:
        ValueError: a NaN or an infinity is somewhere in `value`.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _merge(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key, value in pairs:
        merged[key] = _compatible(key, merged[key], value) if key in merged else value
    return merged


def _compatible(key: str, old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        for inner, value in new.items():
            old[inner] = _compatible(inner, old[inner], value) if inner in old else value
        return old
    if _kind(old) is _kind(new) and old == new:
        return old
    raise JsonError("duplicate_key", f"key {str(key)[:80]!r} stands twice with different values")


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError("non_finite", f"{text[:40]} is not a finite number")
    return value


def _constant(text: str) -> float:
    raise JsonError("non_finite", f"{text} is not a JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_merge, parse_float=_number, parse_constant=_constant)


_CUT = re.compile(r"(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?)?\s*")
"""What may be left behind the place of an error when the text was cut inside a word or a number."""
_CUT_ESCAPE = re.compile(r"u[0-9a-fA-F]{0,3}\s*")


def decode(text: str, start: int = 0) -> tuple[Any, int]:
    """Decode the JSON value that begins at `start` (leading blanks skipped); returns (value, end offset).

    Two equal keys are accepted when their values agree or are maps that merge without conflict.

    Raises:
        JsonError: with the code `truncated` when the text ends inside the value.
    """
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    try:
        value, end = _decoder.raw_decode(text, start)
        if "\\u" in text[start:end] and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            raise JsonError("not_json", "a \\u escape is half of a surrogate pair", start)
        return value, end
    except json.JSONDecodeError as error:
        open_string = error.msg.startswith("Unterminated string") and "\n" not in text[error.pos :]
        open_escape = "escape" in error.msg and _CUT_ESCAPE.fullmatch(text, error.pos)
        if open_string or open_escape or _CUT.fullmatch(text, error.pos):
            raise JsonError("truncated", "the text ends inside a JSON value", error.pos) from None
        near = text[error.pos : error.pos + 20]
        raise JsonError("not_json", f"{error.msg} at character {error.pos} near {near!r}", error.pos) from None
    except RecursionError:
        raise JsonError("too_deep", "the JSON value is nested too deeply") from None
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError("not_json", str(error)) from None


def loads(text: str) -> Any:
    """Decode exactly one JSON value.

    Raises:
        JsonError: as `decode`; `extra_value` when something other than blanks follows.
    """
    value, end = decode(text)
    if text[end:].strip():
        raise JsonError("extra_value", f"unexpected text after the JSON value at character {end}", end)
    return value


MAX_LITERAL = 200_000
"""Most characters `literal` reads."""


def literal(text: str) -> Any:
    """Read one Python literal (containers, text, numbers, True, False, None) as the JSON value it stands for.

    Tuples and sets become lists in written order; keys stay as they are (`0` is no text). The text is parsed, never
    evaluated: names, calls and operators are refused. Equal keys are treated as in `decode`.

    Raises:
        JsonError: `not_json`, `too_deep`, `non_finite`, `duplicate_key`.
    """
    if len(text) > MAX_LITERAL:
        raise JsonError("not_json", f"the Python literal is longer than {MAX_LITERAL:,} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
        return _literal(tree.body)
    except SyntaxError as error:
        raise JsonError("not_json", f"not a Python literal: {error.msg} in line {error.lineno}") from None
    except (RecursionError, MemoryError):
        raise JsonError("too_deep", "the Python literal is nested too deeply") from None
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError("not_json", str(error)) from None


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | None | str() | int()):
            return node.value
        case ast.Constant(value=float() as number):
            if not math.isfinite(number):
                raise JsonError("non_finite", "a number is not finite")
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if not isinstance(
            number, bool
        ):
            return -_literal(node.operand)
        case ast.List() | ast.Tuple() | ast.Set():
            return [_literal(item) for item in node.elts]
        case ast.Dict():
            pairs: list[tuple[Any, Any]] = []
            for key, value in zip(node.keys, node.values, strict=True):
                if not isinstance(key, ast.Constant) or type(key.value) not in (str, int):
                    raise JsonError("not_json", f"a key in line {node.lineno} is neither text nor a whole number")
                pairs.append((key.value, _literal(value)))
            return _merge(pairs)
    raise JsonError("not_json", f"{type(node).__name__} in line {node.lineno} is not a literal")
