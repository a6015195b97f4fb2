"""What both training programs do: choose the checkpoint, pass the model's settings on, and end in one sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agl.errors import AglError, UserError

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
"""What both programs import; optional dependencies of AGL."""


def run(main: Callable[[list[str]], None], name: str) -> None:
    """Call `main` with the command line; a failure is one sentence on stderr and exit 2 (the user's) or 1."""
    try:
        require_libraries()
        main(sys.argv[1:])
    except AglError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)


def require_libraries() -> None:
    """Raises:
    UserError: a library that training needs is not installed.
    """
    missing = [name for name in LIBRARIES if not _is_installed(name)]
    if missing:
        raise UserError(f"training needs {', '.join(missing)}, which this Python lacks: pip install 'agl[train]'")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def init_kwargs(model: Any, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the weights are loaded with: the settings of a ModelConfig, where `given` does not say otherwise."""
    return {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(given or {}),
    }


def checkpoint(given: str | None, output_dir: str) -> str | None:
    """The folder to resume from: `last` and `true` mean the newest checkpoint of `output_dir`.

    Raises:
        UserError: there is none yet.
    """
    from transformers.trainer_utils import get_last_checkpoint

    if given is None or given.lower() not in ("last", "true"):
        return given
    found: str | None = None
    if Path(output_dir).is_dir():
        found = get_last_checkpoint(output_dir)  # type: ignore[no-untyped-call]
    if found is None:
        raise UserError(f"expected a checkpoint in {output_dir}, got none; start without --resume_from_checkpoint")
    return found


def refuse_finished(checkpoint: str | None, total_steps: int) -> None:
    """Refuse to resume a run that has no step left; the trainer would end at once and look successful.

    Raises:
        UserError: nothing is left, or there is no checkpoint.
    """
    if checkpoint is None:
        return
    state = Path(checkpoint, "trainer_state.json")
    if not state.is_file():
        raise UserError(f"expected a checkpoint folder, got {checkpoint}, which has no trainer_state.json")
    done = json.loads(state.read_text(encoding="utf-8"))["global_step"]
    if done >= total_steps:
        raise UserError(
            f"expected steps left to train, got a checkpoint at step {done} of {total_steps}; "
            "raise max_steps or num_train_epochs"
        )
