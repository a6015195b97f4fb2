"""What a solver returns: the value, a witness, a certificate, and the short text a model reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from agl.graphs.named import Weight

Exact = int | Fraction
"""An exact number; integral values are always `int`."""

NAMES_SHOWN = 200
LETTERS_SHOWN = 8000
"""At most so many names, and about so many characters of them, stand in a result text."""
SCORES_SHOWN = 20
"""At most so many scores stand in the result text of a centrality."""


class SolveError(ValueError):
    """A problem that has no answer or cannot be posed; `code` names the kind, the message is for the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Solution:
    """A proven answer.

    `value` is exact (`int` or `Fraction`) except for pagerank and eigenvector scores; `witness` and `certificate` are
    JSON-able, with non-integral rationals as `"p/q"` strings. `agl.graphs.check` says what each certificate proves.
    """

    problem_type: str
    algorithm: str
    value: Exact | float
    witness: Any
    certificate: Mapping[str, Any]
    note: str
    """The witness and value in words, as `text` prints them."""

    def text(self) -> str:
        """The deterministic, bounded result text: algorithm, witness, value."""
        return f"{self.algorithm}: {self.note}"


def exact(number: Weight | Fraction) -> Exact:
    """The rational a JSON number spells: 0.1 is 1/10, not the nearest double.

    Raises:
        SolveError: code `bad_weight` for a NaN or an infinity.
    """
    if isinstance(number, int):
        return number
    try:
        value = number if isinstance(number, Fraction) else Fraction(str(number))
    except ValueError:
        raise SolveError("bad_weight", f"{number} is not a finite number") from None
    return value.numerator if value.denominator == 1 else value


def jsonable(number: Exact | float) -> int | float | str:
    """Integers and floats as they are, other rationals as `"p/q"`."""
    return f"{number.numerator}/{number.denominator}" if isinstance(number, Fraction) else number


def read_exact(number: object) -> Exact:
    """Undo `jsonable`.

    Raises:
        ValueError: `number` is neither a finite number nor a `"p/q"` string.
    """
    if isinstance(number, bool) or not isinstance(number, int | float | str | Fraction):
        raise ValueError(f"{number!r} is not a number")
    try:
        value = Fraction(str(number))
    except ZeroDivisionError:
        raise ValueError(f"{number!r} is not a number") from None
    return value.numerator if value.denominator == 1 else value


def shown(number: Exact | float) -> str:
    """A number for people: integers and short decimals exactly, other values with six significant digits."""
    if isinstance(number, int):
        return str(number)
    brief = f"{float(number):.6g}"
    if isinstance(number, Fraction) and Fraction(brief) != number:
        precise = repr(float(number))
        if Fraction(precise) == number:
            return precise
    return brief


def listed(items: Iterable[str], separator: str, most: int = NAMES_SHOWN) -> str:
    """Join at most `most` items and about `LETTERS_SHOWN` characters; says how many of how many when it had to cut."""
    every = list(items)
    lengths = itertools.accumulate(len(item) + len(separator) for item in every[:most])
    kept = sum(length <= LETTERS_SHOWN for length in lengths)
    cut = "" if kept == len(every) else f" ({kept} of {len(every)} shown)"
    return separator.join(every[:kept]) + cut
