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


@pytest.mark.parametrize("name", ["", "my env", "My", "-x", "a/b"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="expected a name such as my-env"):
        registry.register(name, "tests.toy_env:ToyEnv")
    assert name not in registry.ENVS


def test_an_entry_point_without_a_class_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENVS, "none", "tests.toy_env:Missing")
    with pytest.raises(UserError, match=r"expected tests\.toy_env:Missing to be an Env class"):
        registry.env_class("none")


def test_a_misspelt_name_is_told_the_near_one() -> None:
    with pytest.raises(UserError, match="did you mean 'grit'"):
        registry.env_class("girt")


@pytest.mark.parametrize(("file", "named"), [("envs/__init__.py", "envs"), ("envs.py", "envs.py")])
def test_a_foreign_package_in_the_way_is_named(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, file: str, named: str
) -> None:
    import sys
    import types

    foreign = types.ModuleType("envs")
    foreign.__file__ = str(tmp_path / file)
    monkeypatch.setitem(sys.modules, "envs", foreign)
    with pytest.raises(UserError, match=f"{named}, which hides it"):
        registry.env_class("grit")
