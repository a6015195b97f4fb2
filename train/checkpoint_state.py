"""What a checkpoint needs beyond transformers' own: where a generation stands, and its rows still to be trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from agl.errors import UserError

_STATE = "episodes-rank"


def save_state(trainer: Any, folder: Path) -> None:
    """Write the state of this rank's EpisodeTrainer into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    every = trainer.args.steps_per_generation * trainer.num_iterations
    torch.save(
        {
            "ranks": trainer.accelerator.num_processes,
            "step": trainer._step,
            "generations": trainer._generations,
            "drawn": list(trainer._drawn),
            "strikes": trainer._strikes,
            # Rows of a generation that are still to be trained on were sampled by weights that are gone.
            "rows": trainer._buffered_inputs if trainer._step % every else None,
        },
        folder / f"{_STATE}{trainer.accelerator.process_index}.pt",
    )


def load_state(trainer: Any, folder: Path) -> None:
    """Read it back.

    Raises:
        UserError: another number of processes wrote the checkpoint.
    """
    ranks = trainer.accelerator.num_processes
    file = folder / f"{_STATE}{trainer.accelerator.process_index}.pt"
    found = torch.load(file, map_location=trainer.accelerator.device, weights_only=True) if file.is_file() else None
    if found is None or found["ranks"] != ranks:
        wrote = len(list(folder.glob(f"{_STATE}*.pt")))
        raise UserError(
            f"expected a checkpoint that {ranks} processes wrote, got {folder} of {wrote}; resume with as many, or "
            f"start anew with model_name_or_path: {folder}"
        )
    trainer._step, trainer._generations = found["step"], found["generations"]
    trainer._drawn, trainer._strikes = tuple(found["drawn"]), found["strikes"]
    trainer._buffered_inputs = found["rows"]
