"""The four naming schemes of GRIT, in an in-domain and an out-of-distribution (OOD) variant.

Within one item all surface forms (primary names and aliases) are different after folding. Outside `canonical`, where
`Node 1` and `Node 11` cannot be avoided, no surface form is a prefix of another or a whole word within another.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agl.errors import DataError
from agl.graphs.naming import fold
from envs.grit.items import Scheme

POOLS = Path(__file__).parent / "names.yaml"
MIN_POOL = 60


@dataclass(frozen=True)
class Names:
    """`primary` names in index order, and `aliases` (alias -> index)."""

    primary: tuple[str, ...]
    aliases: dict[str, int] = field(default_factory=dict)

    def surfaces(self) -> tuple[tuple[str, ...], ...]:
        """All forms of each node, the primary name first."""
        forms: list[list[str]] = [[name] for name in self.primary]
        for alias, index in self.aliases.items():
            forms[index].append(alias)
        return tuple(map(tuple, forms))


def draw(
    scheme: Scheme,
    n: int,
    rng: random.Random,
    *,
    kind: str,
    domain: str,
    asked: Sequence[int] = (),
    ood: bool = False,
) -> Names:
    """Names for `n` nodes; `kind` is the word written before bare numbers (`Router 6121`), `domain` a name pool.

    Under `mixed` the nodes in `asked` are among those with aliases.
    """
    if scheme == "canonical":
        return Names(_canonical(n, rng, ood))
    if scheme == "random_id":
        return Names(_random_ids(n, rng, kind, ood))
    if scheme == "semantic":
        return Names(_semantic(n, rng, domain, ood))
    return _mixed(n, rng, kind, domain, asked, ood)


def _canonical(n: int, rng: random.Random, ood: bool) -> tuple[str, ...]:
    if ood:
        letter = rng.choice("bcdfghjkmnpqrstwxz")
        return tuple(f"{letter}{index:02d}" for index in range(n))
    if rng.random() < 0.5:
        return tuple(f"Node {index}" for index in range(n))
    return tuple(f"v{index + 1}" for index in range(n))


def _random_ids(n: int, rng: random.Random, kind: str, ood: bool) -> tuple[str, ...]:
    if ood:
        chosen = _Distinct()
        while len(chosen.forms) < n:
            code = _hex(rng, 6)
            if re.search("[a-f]", code) and not re.fullmatch(r"\d+e\d+", code):
                chosen.add(code)
        return tuple(chosen.forms)
    chosen = _Distinct()
    while len(chosen.forms) < n:
        chosen.add(f"{kind} {rng.randint(1, 10_000)}")
    names = list(chosen.forms)
    # Two ascending ids in a row are chance, a sorted list would be canonical naming again.
    if names == sorted(names, key=lambda name: int(name.rsplit(" ", 1)[1])):
        names.reverse()
    return tuple(names)


def _semantic(n: int, rng: random.Random, domain: str, ood: bool) -> tuple[str, ...]:
    pool = pools()[domain]
    chosen = _Distinct()
    while len(chosen.forms) < n:
        chosen.add(_domain_name(rng, pool, ood))
    return tuple(chosen.forms)


def _domain_name(rng: random.Random, pool: dict[str, tuple[str, ...]], ood: bool) -> str:
    if not ood:
        return f"{rng.choice(pool['first'])} {rng.choice(pool['second'])}"
    word = rng.choice(pool["ood_first"])
    return word if rng.random() < 0.5 else f"{rng.choice(pool['ood_second'])} {word}"


_SYMBOLS = "_#~@"
_OOD_SYMBOLS = "=%+^"


def _mixed(n: int, rng: random.Random, kind: str, domain: str, asked: Sequence[int], ood: bool) -> Names:
    pool = pools()[domain]
    chosen = _Distinct()
    while len(chosen.forms) < n:
        chosen.add(_odd_name(rng, pool, ood))
    primary = tuple(chosen.forms)
    others = [index for index in range(n) if index not in asked]
    count = min(n, max(2, round(0.3 * n))) - len(asked)
    aliases: dict[str, int] = {}
    for index in sorted([*asked, *rng.sample(others, max(0, count))]):
        for _ in range(rng.choice((1, 1, 2))):
            while not chosen.add(alias := _alias(rng, kind, ood)):
                pass
            aliases[alias] = index
    return Names(primary, aliases)


def _odd_name(rng: random.Random, pool: dict[str, tuple[str, ...]], ood: bool) -> str:
    symbols = _OOD_SYMBOLS if ood else _SYMBOLS
    form = rng.randrange(5)
    if form == 0:
        return f"h{_hex(rng, 7)}" if ood else f"0x{_hex(rng, 5).upper()}"
    if form == 1:
        a, b = rng.choice(symbols), rng.choice(symbols)
        return f"{_letters(rng, 2)}{a}{_hex(rng, 2)}{b}{_letters(rng, 1)}{rng.randint(0, 9)}"
    if form == 2:
        letters = _letters(rng, 2)
        return f"{letters}{rng.randint(10, 99)}" if ood else f"{letters}-loc-{rng.randint(1, 99)}"
    if form == 3:
        return _typo(rng, _domain_name(rng, pool, ood))
    return str(rng.randint(100_000, 999_999) if ood else rng.randint(100, 9_999))


def _typo(rng: random.Random, name: str) -> str:
    """One letter dropped, doubled or swapped with the next, never the first or last of the name."""
    place = rng.choice([i for i in range(1, len(name) - 2) if name[i].isalpha() and name[i + 1].isalpha()])
    kind = rng.randrange(3)
    if kind == 0:
        return name[:place] + name[place + 1 :]
    if kind == 1:
        return name[:place] + name[place] + name[place:]
    return name[:place] + name[place + 1] + name[place] + name[place + 2 :]


def _alias(rng: random.Random, kind: str, ood: bool) -> str:
    word = kind.replace(" ", "")
    if ood:
        return f"{word.lower()}/{_letters(rng, 2)}{rng.randint(0, 9)}"
    letters = _letters(rng, 2).upper()
    return f"{word}_{letters}" if rng.random() < 0.5 else f"{word}-{rng.randint(100, 999)}{_letters(rng, 1)}"


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("bcdfghjkmnpqrstvwxz") for _ in range(count))


def _hex(rng: random.Random, digits: int) -> str:
    return "".join(rng.choice("0123456789abcdef") for _ in range(digits))


class _Distinct:
    """Names in order of arrival; `add` refuses one that could be mistaken for an earlier one."""

    def __init__(self) -> None:
        self.forms: dict[str, None] = {}
        self._folded: list[str] = []

    def add(self, name: str) -> bool:
        folded = fold(name)
        if any(confusable(folded, other) for other in self._folded):
            return False
        self.forms[name] = None
        self._folded.append(folded)
        return True


def confusable(a: str, b: str) -> bool:
    """True when two folded names are equal, one begins with the other, or one holds the other as a whole word."""
    short, long = sorted((a, b), key=len)
    place = long.find(short)
    while place > 0:
        end = place + len(short)
        if not _in_word(long[place - 1]) and (end == len(long) or not _in_word(long[end])):
            return True
        place = long.find(short, place + 1)
    return place == 0


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


@cache
def pools() -> dict[str, dict[str, tuple[str, ...]]]:
    """Domain -> the word lists `first`, `second`, `ood_first`, `ood_second`.

    Raises:
        DataError: names.yaml breaks a rule; the message names the list and the rule.
    """
    return read_pools(POOLS)


def read_pools(path: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Read and check a file of name pools.

    Raises:
        DataError: see `pools`.
    """
    raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for domain, lists in raw.items():
        wanted = {"first", "second", "ood_first", "ood_second"}
        if not isinstance(lists, dict) or set(lists) != wanted:
            raise DataError(f"{path.name}: domain {domain!r} must have exactly the lists {sorted(wanted)}")
        found[domain] = {key: _words(path, f"{domain}.{key}", value) for key, value in lists.items()}
        seen = set(found[domain]["first"]) & set(found[domain]["ood_first"])
        if seen:
            raise DataError(f"{path.name}: {domain}: {sorted(seen)[0]!r} stands in first and ood_first; remove one")
    return found


def _words(path: Path, where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, dict) and set(value) == {"heads", "tails"}:
        words = [head + tail for head in str(value["heads"]).split() for tail in str(value["tails"]).split()]
    elif isinstance(value, str):
        words = value.split()
    else:
        raise DataError(f"{path.name}: {where} must be words separated by blanks, or a map of heads and tails")
    least = 1 if where.endswith("ood_second") else MIN_POOL
    if len({fold(word) for word in words}) != len(words):
        raise DataError(f"{path.name}: {where} holds the same word twice")
    if len(words) < least:
        raise DataError(f"{path.name}: {where} needs at least {least} words, got {len(words)}")
    return tuple(words)
