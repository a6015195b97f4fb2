"""The `agl` command, as a process of its own (with the envs of the tests registered) or in this one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from agl.cli import main

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


def agl_here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in this process: for what has no need of its own, in a fraction of the time."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(mock.patch.object(sys, "argv", ["agl", *arguments]))
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
