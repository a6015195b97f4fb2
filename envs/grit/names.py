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
    unicode: bool = False,
) -> Names:
    """Names for `n` nodes; `kind` is the word written before bare numbers (`Router 6121`), `domain` a name pool, which
    has to be one of the same variant (`ood` or not).

    Under `mixed` the nodes in `asked` are among those with aliases. `unicode` writes some semantic names with a
    typographic apostrophe (`Orvane\u2019s Terrace`); they fold to the straight one.
    """
    if scheme == "canonical":
        return Names(_canonical(n, rng, ood))
    if scheme == "random_id":
        return Names(_random_ids(n, rng, kind, ood))
    if scheme == "semantic":
        return Names(_semantic(n, rng, pools()[domain], unicode))
    return _mixed(n, rng, kind, pools()[domain], asked, ood)


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


def _semantic(n: int, rng: random.Random, pool: Pool, unicode: bool) -> tuple[str, ...]:
    chosen = _Distinct()
    while len(chosen.forms) < n:
        name = pool.name(rng)
        if unicode and rng.random() < 0.25:
            name = name.replace(" ", "\u2019s ")
        chosen.add(name)
    return tuple(chosen.forms)


_SYMBOLS = "_#~@"
_OOD_SYMBOLS = "=%+^"


def _mixed(n: int, rng: random.Random, kind: str, pool: Pool, asked: Sequence[int], ood: bool) -> Names:
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


def _odd_name(rng: random.Random, pool: Pool, ood: bool) -> str:
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
        return _typo(rng, pool.name(rng))
    return str(rng.randint(100_000, 999_999) if ood else rng.randint(100, 9_999))


def _typo(rng: random.Random, name: str) -> str:
    """One inner letter of a word dropped, doubled, or swapped with the next one."""
    inner = [i for i in range(1, len(name) - 1) if name[i - 1 : i + 2].isalpha() and name[i] != name[i + 1]]
    place = rng.choice(inner)
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
    """Names in order of arrival; `add` refuses one that is `confusable` with an earlier one."""

    def __init__(self) -> None:
        self.forms: dict[str, None] = {}
        self._folded: set[str] = set()
        self._within: set[str] = set()

    def add(self, name: str) -> bool:
        folded = fold(name)
        within = _within(folded)
        if folded in self._within or not self._folded.isdisjoint(within):
            return False
        self.forms[name] = None
        self._folded.add(folded)
        self._within |= within
        return True


def _within(name: str) -> set[str]:
    """Everything that is `confusable` with `name` and not longer: its prefixes and the whole words in it."""
    found = {name[:end] for end in range(1, len(name) + 1)}
    starts = [i for i in range(1, len(name)) if not _in_word(name[i - 1])]
    ends = [j for j in range(1, len(name) + 1) if j == len(name) or not _in_word(name[j])]
    found.update(name[i:j] for i in starts for j in ends if i < j)
    return found


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


@dataclass(frozen=True)
class Pool:
    """Words for the names of one domain: `first second` in domain, `word` or `before word` out of distribution."""

    ood: bool
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()
    word: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def name(self, rng: random.Random) -> str:
        """One name; two draws may be equal."""
        if not self.ood:
            return f"{rng.choice(self.first)} {rng.choice(self.second)}"
        word = rng.choice(self.word)
        return word if rng.random() < 0.5 else f"{rng.choice(self.before)} {word}"


@cache
def pools() -> dict[str, Pool]:
    """The pools that come with AGL, by domain.

    Raises:
        DataError: names.yaml breaks a rule; the message names the list and the rule.
    """
    return read_pools(POOLS)


_PARTS = {"in_domain": ("first", "second"), "ood": ("word", "before")}


def read_pools(path: Path) -> dict[str, Pool]:
    """Read and check a file of name pools.

    Raises:
        DataError: see `pools`.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"cannot read the name pools {path}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict) or set(raw) != set(_PARTS) or not all(isinstance(part, dict) for part in raw.values()):
        raise DataError(f"{path.name}: expected the two parts in_domain and ood, each a map of domains")
    found: dict[str, Pool] = {}
    known: dict[str, str] = {}
    for part, wanted in _PARTS.items():
        heard: dict[str, str] = {}
        for domain, lists in raw[part].items():
            if domain in found:
                raise DataError(f"{path.name}: the domain {domain!r} stands in in_domain and in ood; rename one")
            if not isinstance(lists, dict) or set(lists) != set(wanted):
                raise DataError(f"{path.name}: {part}.{domain} must have exactly the lists {' and '.join(wanted)}")
            words = {key: _words(path, f"{part}.{domain}.{key}", lists[key]) for key in wanted}
            for key, listed in words.items():
                heard.update(dict.fromkeys(map(fold, listed), f"{part}.{domain}.{key}"))
            found[str(domain)] = Pool(part == "ood", **words)
        if shared := sorted(known.keys() & heard.keys()):
            word = shared[0]
            raise DataError(f"{path.name}: {word!r} stands in {known[word]} and in {heard[word]}; remove one")
        known = heard
    return found


def _words(path: Path, where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, dict) and set(value) == {"heads", "tails"}:
        words = [head + tail for head in str(value["heads"]).split() for tail in str(value["tails"]).split()]
    elif isinstance(value, str):
        words = value.split()
    else:
        raise DataError(f"{path.name}: {where} must be words separated by blanks, or a map of heads and tails")
    for word in words:
        if not re.fullmatch(r"[A-Z][a-z]+", word):
            raise DataError(f"{path.name}: {where}: expected a plain capitalised word, got {word!r}")
    if len({fold(word) for word in words}) != len(words):
        raise DataError(f"{path.name}: {where} holds the same word twice")
    if len(words) < MIN_POOL:
        raise DataError(f"{path.name}: {where} needs at least {MIN_POOL} words, got {len(words)}")
    return tuple(words)
