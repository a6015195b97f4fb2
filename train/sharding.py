"""Weights that are spread over ranks: whole while episodes are played, and really spread when a config says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agl.errors import UserError


@contextmanager
def unsharded(model: Any) -> Iterator[None]:
    """Gather the weights of an FSDP2 model once, so that forward passes inside need no other rank; else nothing.

    FSDP2 gathers a layer in each forward pass and drops it afterwards; ranks whose episodes differ in length would wait
    for one another for ever. Gathering is collective, so all ranks must come here together. Gathered weights need the
    memory of the whole model, as they do under ZeRO-3.
    """
    from torch.distributed.fsdp import FSDPModule

    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            # The outermost part stays whole after its forward pass, as fully_shard leaves it by itself.
            part.set_reshard_after_forward(part is not model, recurse=False)
            part.reshard()


def check_engine(trainer: Any) -> None:
    """Refuse a launch that is not what its file says, which would otherwise show in no exit code.

    Raises:
        UserError: FSDP was asked for and is not there (as on CPUs), or is its first version.
    """
    wanted = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    version = getattr(getattr(trainer.accelerator.state, "fsdp_plugin", None), "fsdp_version", None)
    if wanted and version is None:
        raise UserError(
            f"expected FSDP, as the accelerate file says, got {trainer.accelerator.distributed_type.value}: accelerate "
            "has no FSDP on CPUs; use configs/accelerate/ddp_cpu.yaml or zero3_cpu.yaml"
        )
    if version == 1:
        raise UserError("expected FSDP version 2, got 1, which cannot gather all weights for a rollout; set it to 2")
