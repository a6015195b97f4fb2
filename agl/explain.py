"""Faults that come from outside AGL, in one sentence: a package that is missing, memory that ran out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agl.errors import InfraError, UserError
from agl.packages import extra_of

_OURS = ("agl", "envs", "eval", "rewards", "train")
_NO_MEMORY = re.compile(r"out of memory|can(no|')t allocate memory|unable to allocate", re.I)


def explained(error: BaseException) -> UserError | InfraError | None:
    """The error to show in place of `error`; None when that is no such fault, so that its traceback is needed."""
    for each in _chain(error):
        if isinstance(each, ModuleNotFoundError) and each.name and each.name.partition(".")[0] not in _OURS:
            return _missing(each.name.partition(".")[0])
        # torch raises a RuntimeError of its own, which must not be imported to be recognised.
        if isinstance(each, MemoryError) or (isinstance(each, RuntimeError) and _NO_MEMORY.search(str(each))):
            return InfraError(
                f"out of memory ({_first_line(each)}); take a smaller model, or lower --concurrency, max_batch or the "
                "batch size; `agl doctor` says how much there is"
            )
    return None


def _missing(module: str) -> UserError:
    extra = extra_of(module)
    remedy = f"pip install 'agl[{extra}]'" if extra else f"pip install the package that has it, such as {module}"
    return UserError(f"expected the Python module {module}, which is not installed; {remedy}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0].rstrip(".")
