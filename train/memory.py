"""A memory estimate for one rank: what is held all the time, and the peaks of sampling and of the backward pass.

Sources: 16 bytes per trained parameter for mixed-precision Adam are from ZeRO (arXiv 1910.02054, section 3.1); the
activations of a transformer layer follow "Reducing Activation Recomputation" (arXiv 2205.05198, section 4).
Python, its libraries (0.6 GB) and what the allocator keeps back are not in it. The run of
configs/train/grit_tiny_cpu.yaml, estimated at 7.1 GB, took 7.8 GB of resident memory; no other estimate was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agl.errors import UserError
from agl.policies.hf import resolve_model

GB = 1e9
CPU_CACHE = 2**30
"""Key-value cache of vLLM on a CPU: VLLM_CPU_KVCACHE_SPACE as agl.policies.vllm_engine sets it."""
TILE_TOKENS, TILE_VOCABULARY = 4096, 32768
"""Tile of logits in TRL 1.16 (`trl/kernels/chunked_logprob.py`)."""

_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-4B-Base": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
}
"""Published sizes of models that shipped configs name, so that a plan can be made without the Hub."""


def model_config(name: str, revision: str | None = None, *, hub: bool = True) -> Any | None:
    """The transformers configuration of a model; None when it is neither on this machine, known, nor on the `hub`.

    Raises:
        UserError: `name` looks like a folder and is none.
    """
    from transformers import AutoConfig

    source = resolve_model(name)
    try:
        return AutoConfig.from_pretrained(source, revision=revision, local_files_only=True)
    except (OSError, ValueError):
        pass
    if name in _ARCHITECTURES:
        known = dict(_ARCHITECTURES[name])
        return AutoConfig.for_model(known.pop("model_type"), **known)
    if not hub:
        return None
    try:
        return AutoConfig.from_pretrained(source, revision=revision)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on one rank.

    Attributes:
        parameters: of the whole model, and how many of them are trained.
        states: weights, gradients and Adam's moments.
        sampling: key-value cache and, under ZeRO-3, the gathered weights; nothing when vLLM samples.
        backward: activations and logits of one forward and backward pass.
        engine: least that a colocated vLLM needs: its weights, and on a GPU the key-value cache of one longest row, on
            a CPU the cache it reserves.
        engine_share: of a GPU's memory that it takes; 0 without one.
        engine_sleeps: while the weights are trained it takes nothing.
    """

    parameters: int
    trained: int
    states: float
    sampling: float
    backward: float
    engine: float = 0.0
    engine_share: float = 0.0
    engine_sleeps: bool = False

    @property
    def peak(self) -> float:
        """Of the trainer; on a CPU with the engine."""
        return self.states + max(self.sampling, self.backward) + (0 if self.engine_share else self.engine)

    @property
    def smallest_gpu(self) -> float:
        """That holds the trainer and the share of vLLM, and in that share what vLLM needs."""
        beside = self.states if self.engine_sleeps else self.peak
        return max(self.peak, beside / (1 - self.engine_share), self.engine / (self.engine_share or 1))

    def lines(self) -> list[tuple[str, str]]:
        """(what, value) for people."""
        backward = f"{self.backward / GB:.1f} backward"
        passing = f"the larger of {self.sampling / GB:.1f} sampling and {backward}" if self.sampling else backward
        rows = [
            ("parameters", f"{self.parameters / 1e6:,.1f} M, {self.trained / 1e6:,.1f} M trained"),
            (
                "memory per rank (estimate)",
                f"{self.peak / GB:.1f} GB at peak = {self.states / GB:.1f} weights, gradients, optimiser + {passing}"
                + (f" + {self.engine / GB:.1f} vLLM" if self.engine and not self.engine_share else ""),
            ),
        ]
        if self.engine_share:
            sleeping = " (asleep while the weights are trained)" if self.engine_sleeps else ""
            rows.append(
                (
                    "vLLM (estimate)",
                    f"{self.engine_share:.0%} of the GPU{sleeping}, of which it needs {self.engine / GB:.1f} GB at "
                    f"least: a GPU of {self.smallest_gpu / GB:.0f} GB or more",
                )
            )
        return rows


def memory_plan(
    config: Any,
    grpo: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    ranks: int,
    zero3: bool,
    rows_generated: int,
    tokens: int,
) -> MemoryPlan:
    """Estimate the memory of a run from the model's configuration alone.

    Args:
        config: of transformers.
        grpo: values of GRPOConfig or SFTConfig fields.
        model: values of ModelConfig fields.
        rows_generated: episodes that are sampled together on one rank; 0 where training samples none.
        tokens: longest row, prompt and response.
    """
    parameters, trained = count_parameters(config, model)
    text = config.get_text_config()
    half = bool(grpo.get("bf16") or grpo.get("fp16"))
    width = 2 if half or model.get("dtype") in ("bfloat16", "float16") else 4
    frozen_width = 2 if model.get("dtype") in ("bfloat16", "float16") or (zero3 and half) else 4
    states = (16 * trained + frozen_width * (parameters - trained)) / (ranks if zero3 else 1)

    heads = text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    key_values = tokens * 2 * text.num_hidden_layers * kv_heads * head
    cache = rows_generated * key_values * (width if zero3 else frozen_width)
    gathered = parameters * frozen_width if zero3 else 0
    sampling = 0 if grpo.get("use_vllm") or not rows_generated else cache + gathered

    rows = grpo["per_device_train_batch_size"]
    # Kept by a layer for its backward pass: two norms, the residuals, q k v before and after rotation, the SwiGLU.
    attention = (2 * heads + 3 * kv_heads) * head
    layer = rows * tokens * (8 * text.hidden_size + attention + 4 * text.intermediate_size) * width
    # On the CPU scaled-dot-product attention stores its scores; the GPU kernels do not.
    layer += rows * heads * tokens**2 * width if grpo.get("use_cpu") else 0
    layers = text.num_hidden_layers
    kept = (
        rows * tokens * text.hidden_size * width * layers + layer if grpo["gradient_checkpointing"] else layer * layers
    )
    # TRL's head is fused with the log-probabilities: it sees a tile of logits at a time, never all of them.
    logits = 2 * min(rows * tokens, TILE_TOKENS) * min(text.vocab_size, TILE_VOCABULARY) * 4
    engine, share = 0.0, 0.0
    if grpo.get("use_vllm") and grpo["vllm_mode"] == "colocate":
        on_cpu = bool(grpo.get("use_cpu"))
        share = 0.0 if on_cpu else grpo["vllm_gpu_memory_utilization"]
        engine = 4.0 * parameters + CPU_CACHE if on_cpu else 2.0 * (parameters + key_values)
    sleeps = bool(grpo.get("vllm_enable_sleep_mode"))
    return MemoryPlan(parameters, trained, states, sampling, kept + logits, engine, share, sleeps)


def count_parameters(config: Any, model: Mapping[str, Any]) -> tuple[int, int]:
    """(all, trained) parameters, counted on a model without storage.

    Raises:
        UserError: `use_peft` and peft is not installed, or the adapter does not fit the model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        auto: Any = AutoModelForCausalLM
        net = auto.from_config(config)
        if model.get("use_peft"):
            from peft import LoraConfig, get_peft_model

            lora = LoraConfig(
                r=model["lora_r"],
                target_modules=model.get("lora_target_modules"),
                modules_to_save=model.get("lora_modules_to_save"),
                task_type=model["lora_task_type"],
            )
            try:
                net = get_peft_model(net, lora)
            except ValueError as error:
                raise UserError(f"option lora_target_modules: {error}") from None
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in net.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, needs in sizes if needs)
