"""Labels: the one table where class numbers, real names and shown names meet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from agl.graphs.naming import fold


@dataclass(frozen=True)
class Labels:
    """Class i is `names[i]` in the data and `shown[i]` in prompts: `Label_i` when anonymised (ReaGAN's default)."""

    names: tuple[str, ...]
    anonymise: bool = True

    @cached_property
    def shown(self) -> tuple[str, ...]:
        return tuple(f"Label_{i}" for i in range(len(self.names))) if self.anonymise else self.names

    def find(self, said: str | int) -> int | None:
        """The class that is meant, or None.

        An allowed string comes first, exact, then without regard to case, blanks and punctuation. Where names are
        anonymised the bare number and the real name are understood too. What fits two classes is refused.
        """
        text = str(said)
        if text in self.shown:
            return self.shown.index(text)
        for table in self._tables:
            for form in _forms(text):
                if form in table:
                    return table[form]
        return None

    @cached_property
    def _tables(self) -> Sequence[dict[str, int]]:
        if not self.anonymise:
            return (_table(self.names),)
        return _table(self.shown), _table(str(i) for i in range(len(self.names))), _table(self.names)


def _forms(text: str) -> tuple[str, str]:
    folded = fold(text)
    # Separators go between letters and digits only, so that -1 stays -1 and C++ is not C.
    return folded, re.sub(r"(?<=[^\W_])([\s_]+|-)(?=[^\W_])", "", folded.strip(" .,:;!\"'`"))


def _table(names: Iterable[str]) -> dict[str, int]:
    """Form -> class; forms of two classes are left out, but a full spelling stands above a shortened one."""
    full: dict[str, set[int]] = {}
    short: dict[str, set[int]] = {}
    for i, name in enumerate(names):
        folded, stripped = _forms(name)
        full.setdefault(folded, set()).add(i)
        short.setdefault(stripped, set()).add(i)
    return {form: min(found) for form, found in {**short, **full}.items() if len(found) == 1}
