"""The `agl` command as a process of its own, with the envs of the tests registered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_MAIN = """
from agl.registry import register
register("toy", "tests.toy_env:ToyEnv")
register("ring", "tests.ring_env:RingEnv")
from agl.cli import main
main()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _MAIN, *arguments]


def environment(hash_seed: int = 0) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(_ROOT)}


def agl(
    *arguments: str, cwd: Path, hash_seed: int = 0, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    env = {**environment(hash_seed), **(settings or {})}
    return subprocess.run(command(*arguments), cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
