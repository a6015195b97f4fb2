"""GRPOConfig: TRL's, with the one default that does not suit episodes changed."""

from __future__ import annotations

import dataclasses

from trl.trainer import grpo_config


@dataclasses.dataclass
class GRPOConfig(grpo_config.GRPOConfig):
    """TRL's GRPOConfig, but `vllm_importance_sampling_mode` is `token_truncate` unless it is given.

    TRL's default multiplies the ratios of all tokens of a row and drops the row when the product leaves its bounds.
    Over the turns of a long episode tiny differences multiply, so long episodes would be dropped whole.
    """

    vllm_importance_sampling_mode: str = dataclasses.field(
        default="token_truncate",
        metadata={
            "help": (
                "How the difference between vLLM and trainer is corrected: token_truncate (default), token_mask, "
                "sequence_truncate, or sequence_mask, which drops long episodes whole."
            )
        },
    )
