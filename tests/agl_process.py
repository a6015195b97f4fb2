"""The `agl` command as a process of its own, with the toy env registered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_MAIN = "from agl.registry import register; register('toy', 'tests.toy_env:ToyEnv'); from agl.cli import main; main()"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", _MAIN, *arguments]


def environment(hash_seed: int = 0) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(_ROOT)}


def agl(*arguments: str, cwd: Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=cwd, env=environment(hash_seed), capture_output=True, text=True, timeout=120
    )
