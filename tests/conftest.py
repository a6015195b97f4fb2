"""Fixtures that every test module may use."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agl.registry import ENVS, register

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and tests of interruptions would wait in vain.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of handed inputs beside the checkout; tests that need it skip without it."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder of handed inputs beside the checkout")
    return SHARED


@pytest.fixture
def toy() -> Iterator[None]:
    """The toy env is registered for one test, and whatever that test registers is forgotten."""
    known = dict(ENVS)
    register("toy", "tests.toy_env:ToyEnv")
    yield
    ENVS.clear()
    ENVS.update(known)


def handed_cases(file: str, *ops: str) -> list[Any]:
    """Parametrise over the handed cases of `file` with one of `ops`; one skipped case where they are absent."""
    path = SHARED / "cases" / file
    if not path.is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason="handed cases absent"), id="absent")]
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [pytest.param(case, id=case["id"]) for case in cases if case["op"] in ops]


def close(value: Any, wanted: Any) -> bool:
    """Equality of outcomes with numbers compared at 1e-6 and ids as strings."""
    if isinstance(wanted, bool) or wanted is None:
        return value is wanted
    if isinstance(wanted, int | float) and isinstance(value, int | float):
        return abs(value - wanted) <= 1e-6
    if isinstance(wanted, dict):
        same = isinstance(value, dict) and value.keys() == wanted.keys()
        return same and all(close(value[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(value, list | tuple) and len(value) == len(wanted) and all(map(close, value, wanted))
    return str(value) == str(wanted)


def check_case(case: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Assert that `run(case input)` is one of the accepted outcomes and none of the forbidden ones."""
    outcome = run(case["input"])
    wanted = case["accept"]
    assert any(close(outcome, accepted) for accepted in wanted), f"{outcome!r} is none of {wanted!r}"
    assert not any(close(outcome, never) for never in case.get("never", ()))
