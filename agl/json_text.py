"""The one JSON reader and writer: what models read and write, and what traces store.

The writer never escapes non-ASCII letters (a model pays tokens for `\\u` escapes and copies them), never
writes NaN, and sorts keys so that equal values have equal bytes. The reader is strict and says where and
why it failed; it never repairs.
"""

from __future__ import annotations

import json
import math
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


def dumps(value: Any) -> str:
    """One line of JSON, keys sorted, letters as they are.

    Raises:
        ValueError: a NaN or an infinity is somewhere in `value`.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _merge(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key, value in pairs:
        merged[key] = _compatible(key, merged[key], value) if key in merged else value
    return merged


def _compatible(key: str, old: Any, new: Any) -> Any:
    if type(old) is type(new) and old == new:
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return _merge([*old.items(), *new.items()])
    raise JsonError("duplicate_key", f"key {key!r} stands twice with different values")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError("non_finite", f"{text[:40]} is not a finite number")
    return value


def _constant(text: str) -> float:
    raise JsonError("non_finite", f"{text} is not a JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_merge, parse_float=_number, parse_constant=_constant)


def decode(text: str, start: int = 0) -> tuple[Any, int]:
    """Decode the JSON value that begins at `start` (leading blanks skipped); returns (value, end offset).

    Two equal keys are accepted when their values agree or are maps that merge without conflict.

    Raises:
        JsonError: with the code `truncated` when the text ends inside the value.
    """
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    try:
        return _decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        open_string = error.msg.startswith("Unterminated string") and "\n" not in text[error.pos :]
        if open_string or error.pos >= len(text.rstrip()):
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
