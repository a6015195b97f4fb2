"""The options of supervised fine-tuning: what they are, which are refused, and how a config and flags are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from agl.errors import UserError
from train import options
from train.options import read_sections, refuse_others, validate

WARM_NODES = 14
"""Largest graph of GRAIN's warm start."""


@dataclass
class SftArguments:
    """What is imitated. Everything else is an option of TRL's SFTConfig or ModelConfig."""

    environment: str = dataclasses.field(default="grit", metadata={"help": "Registered name of the environment."})
    environment_options: dict[str, Any] | str | None = dataclasses.field(
        default=None,
        metadata={"help": "Keyword arguments of the environment class, as a map (on the command line: JSON)."},
    )
    recipe: Literal["warm", "sft-tool"] | None = dataclasses.field(
        default=None,
        metadata={
            "help": (
                "Make GRAIN's expert traces: `warm` of graphs with at most 14 nodes, before reinforcement learning; "
                "`sft-tool` of the whole source, the paper's baseline."
            )
        },
    )
    source: str | None = dataclasses.field(
        default=None, metadata={"help": "Split or file of the recipe's tasks. Default: train."}
    )
    max_nodes: Annotated[int, Field(ge=1)] | None = dataclasses.field(
        default=None, metadata={"help": "Largest graph of the recipe. Default: 14 for warm, any for sft-tool."}
    )
    task_facets: dict[str, str] | str | None = dataclasses.field(
        default=None,
        metadata={"help": "Keep tasks with these values of the environment's facets, a map (command line: JSON)."},
    )
    task_limit: Annotated[int, Field(ge=1)] | None = dataclasses.field(
        default=None, metadata={"help": "Most tasks of the recipe, and most demonstrations of each file."}
    )
    task_seed: int = dataclasses.field(default=0, metadata={"help": "Seed of a generated split."})
    traces: list[str] | None = dataclasses.field(
        default=None,
        metadata={"help": "Instead of a recipe: files of `agl grit traces`, run folders or episodes.jsonl files."},
    )
    min_score: Annotated[float, Field(ge=0, le=1)] = dataclasses.field(
        default=1.0, metadata={"help": "Of runs in `traces`, episodes with at least this score are imitated."}
    )
    dialect: str | None = dataclasses.field(
        default=None, metadata={"help": "How actions are written; default: the paper's own."}
    )
    chat_template: str | None = dataclasses.field(
        default=None, metadata={"help": "Jinja file, or `training` for TRL's training template. Saved with the model."}
    )
    shots: Annotated[int, Field(ge=0)] = dataclasses.field(
        default=0, metadata={"help": "Worked examples in each prompt."}
    )
    over_length: Literal["error", "drop"] = dataclasses.field(
        default="error",
        metadata={"help": "Rows longer than max_length end the run before it starts, or are left out and counted."},
    )
    save_merged: bool = dataclasses.field(
        default=False,
        metadata={"help": "With LoRA, also write the whole model to OUTPUT_DIR/merged, where GRPO can start from."},
    )
    plan_only: bool = dataclasses.field(default=False, metadata={"help": "Print the plan and end before weights load."})

    def __post_init__(self) -> None:
        """Check types, ranges and what goes together.

        Raises:
            UserError: the first option that is wrong.
        """
        if isinstance(self.traces, str):
            self.traces = [self.traces]
        validate(self, maps=("environment_options", "task_facets"))
        if (self.recipe is None) == (self.traces is None):
            raise UserError(
                "expected one of recipe (warm, sft-tool) and traces (a file or run folder), got "
                + ("both" if self.recipe else "neither")
                + "; set one"
            )
        if self.recipe is not None and self.environment != "grit":
            raise UserError(
                f"recipe {self.recipe} makes traces of grit, got environment {self.environment}; let its oracle play "
                f"(agl eval {self.environment} --policy oracle --out RUN) and set traces: RUN"
            )
        for name in ("source", "task_facets", "max_nodes"):
            if self.traces is not None and getattr(self, name) is not None:
                raise UserError(f"option {name} belongs to recipe and does nothing with traces; leave it out")

    @property
    def largest(self) -> int | None:
        """Most nodes of a graph in the recipe."""
        return self.max_nodes if self.max_nodes is not None or self.recipe != "warm" else WARM_NODES


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "assistant_only_loss": ((False,), "what is learned follows from who wrote it; leave it out"),
    "completion_only_loss": ((None, True), "what is learned follows from who wrote it; leave it out"),
    "dataset_text_field": (("text",), "rows are made from demonstrations; leave it out"),
    "dataset_kwargs": ((None, {}), "rows are made from demonstrations; leave them out"),
    "chat_template_path": ((None,), "prompts are written by AGL; use chat_template instead"),
    "eos_token": ((None,), "the chat template says how a turn ends; leave it out"),
    "truncation_mode": (("keep_start",), "no row is ever cut; leave it out"),
    "eval_packing": ((None,), "nothing is evaluated inside the trainer; leave it out"),
    "eval_strategy": (("no",), "evaluate checkpoints with `agl eval ENV --policy hf:CHECKPOINT`; leave it out"),
    "do_eval": ((False,), "evaluate checkpoints with `agl eval ENV --policy hf:CHECKPOINT`; leave it out"),
}
"""Options of SFTConfig that would be read and do nothing: name -> (values allowed, what to do)."""

_Count = Annotated[int, Field(ge=1)]
_NUMBERS: tuple[tuple[str, Any, str], ...] = (
    ("per_device_train_batch_size", _Count, "a whole number of at least 1"),
    ("gradient_accumulation_steps", _Count, "a whole number of at least 1"),
    ("max_steps", _Count | Literal[-1], "a whole number of at least 1, or -1 to go by num_train_epochs"),
    ("num_train_epochs", Annotated[float, Field(gt=0, allow_inf_nan=False)], "a number above 0"),
    ("max_length", _Count | None, "a whole number of at least 1, or null for no limit"),
)

_FLASH = ("flash_attention", "kernels-community")


def refuse_inert(sft: Mapping[str, Any], attention: str | None) -> None:
    """Refuse options that would do nothing, or let packed rows see each other.

    Args:
        sft: values of SFTConfig fields.
        attention: `attn_implementation` of the model.

    Raises:
        UserError: names the option, its legal value and the remedy.
    """
    refuse_others(REFUSED, sft)
    for name in ("packing", "padding_free"):
        if sft[name] and not str(attention).startswith(_FLASH):
            raise UserError(
                f"option {name}: rows in one sequence are kept apart by flash attention alone, got attn_implementation "
                f"{attention}; set attn_implementation: flash_attention_2, or leave {name} out"
            )
    if sft["packing"] and sft["max_length"] is None:
        raise UserError("option packing: expected max_length, the length of a packed sequence, got none; set it")


def check_numbers(sft: Mapping[str, Any]) -> None:
    """Refuse numbers with which no step could be counted.

    Args:
        sft: values of SFTConfig fields.

    Raises:
        UserError: names the option and what it may be.
    """
    for name, legal, said in _NUMBERS:
        try:
            TypeAdapter(legal).validate_python(sft[name], strict=True)
        except ValidationError:
            raise UserError(f"option {name}: expected {said}, got {sft[name]!r}; correct it") from None


def read_arguments(argv: Sequence[str]) -> tuple[SftArguments, Any, Any]:
    """(SftArguments, SFTConfig, ModelConfig) out of `--config FILE` and flags; flags win.

    Raises:
        UserError: an unreadable file, an unknown option, a value out of range.
    """
    arguments, sft, model = read_sections(argv, _sections())
    return arguments, sft, model


def check_file(file: Path) -> dict[str, Any]:
    """The options in a config of supervised fine-tuning, their names checked.

    Raises:
        UserError: an unreadable file or an unknown option.
    """
    return options.check_file(file, _sections())


def _sections() -> tuple[type[Any], ...]:
    from trl.trainer.model_config import ModelConfig
    from trl.trainer.sft_config import SFTConfig

    return SftArguments, SFTConfig, ModelConfig
