"""The contract suite over every registered environment, and over one added from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agl import registry
from agl.conformance import CHECKS
from agl.core import Env
from agl.errors import UserError

registry.register("toy", "tests.toy_env:ToyEnv")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(registry.ENVS))
def test_contract(name: str, check: Callable[[type[Env[Any]]], None]) -> None:
    check(registry.env_class(name))


def test_a_name_is_registered_once() -> None:
    registry.register("toy", "tests.toy_env:ToyEnv")
    with pytest.raises(UserError, match="free environment name"):
        registry.register("grit", "tests.toy_env:ToyEnv")


def test_a_misspelt_name_is_told_the_near_one() -> None:
    with pytest.raises(UserError, match="did you mean 'grit'"):
        registry.env_class("girt")


def test_a_foreign_package_in_the_way_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    foreign = types.ModuleType("envs")
    foreign.__file__ = str(tmp_path / "envs" / "__init__.py")
    monkeypatch.setitem(sys.modules, "envs", foreign)
    with pytest.raises(UserError, match="hides it"):
        registry.env_class("grit")
