"""What `use_vllm` asks of the other options and of the machine; checked before weights load."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from agl.errors import UserError
from agl.policies.vllm_engine import set_environment


def refuse_unfit(grpo: Mapping[str, Any], tokens: int) -> None:
    """Refuse options that do not fit together, on whatever machine.

    Args:
        grpo: values of GRPOConfig fields.
        tokens: of the longest context, prompt and response.

    Raises:
        UserError: names the option and what it should be.
    """
    if not grpo["use_vllm"]:
        return
    mode, length = grpo["vllm_mode"], grpo["vllm_max_model_length"]
    if mode not in ("colocate", "server"):
        raise UserError(f"option vllm_mode: expected colocate or server, got {mode!r}; correct it")
    if mode == "server" and grpo["vllm_enable_sleep_mode"]:
        raise UserError("option vllm_enable_sleep_mode: a server does not sleep; leave it out")
    if mode == "colocate" and length is not None and length < tokens:
        raise UserError(
            f"option vllm_max_model_length: expected at least max_prompt_tokens + max_completion_length = {tokens}, "
            f"got {length}; raise it, or leave it out"
        )


def refuse_machine(args: Any) -> None:
    """Refuse what cannot be done here, and set the environment that vLLM reads.

    Args:
        args: GRPOConfig.

    Raises:
        UserError: no vLLM here, or a mode that needs a GPU.
    """
    if not args.use_vllm:
        return
    on_cpu = set_environment()
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "option use_vllm: expected vLLM, which is not installed; pip install 'agl[gpu]' on a machine with a GPU "
            "(scripts/vllm_env.sh for a CPU), or set use_vllm: false"
        )
    if on_cpu and args.vllm_mode == "server":
        raise UserError(
            "option vllm_mode: a server takes the weights in training through NCCL, which needs a GPU here, and there "
            "is none; set vllm_mode: colocate"
        )
    if on_cpu and args.vllm_enable_sleep_mode:
        raise UserError("option vllm_enable_sleep_mode: vLLM sleeps on GPUs only, and there is none; leave it out")
