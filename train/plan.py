"""What a training run will do, worked out before any weights load: batch arithmetic, context and memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.config import read_yaml
from agl.errors import UserError
from train.groups import BatchPlan, batch_of
from train.memory import MemoryPlan, memory_plan, model_config
from train.options import EpisodeArguments, check_file, refuse_inert
from train.setting import evaluation_setting, prompt_lengths, setting, template_at_hand, with_curriculum
from train.vllm_options import refuse_unfit

PROBED = 64
"""Prompts that a plan measures; a run measures all."""


@dataclass(frozen=True)
class Plan:
    """A checked run. `prompt_tokens` is (shortest, longest), or None without a tokenizer at hand."""

    model: str
    environment: str
    batch: BatchPlan
    epochs: float
    total_steps: int
    prompt_tokens: tuple[int, int] | None
    max_prompt_tokens: int
    response_tokens: int
    model_context: int | None
    memory: MemoryPlan | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data, stable names."""
        out = dataclasses.asdict(self)
        out["context_tokens"] = self.max_prompt_tokens + self.response_tokens
        if self.memory is not None:
            out["memory"]["peak"] = self.memory.peak
        return out

    def lines(self) -> list[tuple[str, str]]:
        """(what, value) for people."""
        batch = self.batch
        rows = [
            ("model", self.model),
            ("environment", f"{self.environment}, {batch.prompts} prompts"),
            (
                "one generation",
                f"{batch.prompts_per_generation} prompts x {batch.group_size} = {batch.rows_per_generation} rows, "
                f"{batch.rows_per_rank} on each of {batch.ranks} ranks",
            ),
            ("one step", f"{batch.rows_per_step} rows = {batch.prompts_per_step:g} prompts"),
            (
                "one epoch",
                f"{batch.generations_per_epoch} generations, {batch.steps_per_epoch} steps, "
                f"{batch.dropped_prompts} prompts dropped",
            ),
            ("whole run", f"{self.total_steps} steps"),
        ]
        context = f"prompt {self.max_prompt_tokens} + response {self.response_tokens}"
        context += f" = {self.max_prompt_tokens + self.response_tokens} tokens"
        context += f"; the model holds {self.model_context}" if self.model_context else ""
        rows.append(("context", context))
        if self.prompt_tokens is not None:
            rows.append(("prompts", f"{self.prompt_tokens[0]} to {self.prompt_tokens[1]} tokens"))
        if self.memory is not None:
            rows.extend(self.memory.lines())
        rows.extend(("note", note) for note in self.notes)
        return rows


def make_plan(
    arguments: EpisodeArguments,
    grpo: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    prompts: int,
    ranks: int,
    zero3: bool = False,
    lengths: Sequence[int] | None = None,
    hub: bool = True,
) -> Plan:
    """Check the arithmetic of a run.

    Args:
        grpo: values of GRPOConfig fields.
        model: values of ModelConfig fields.
        zero3: weights, gradients and optimiser are sharded over the ranks.
        lengths: tokens of each prompt; None when there is no tokenizer at hand.
        hub: it may be asked for the model's configuration.

    Raises:
        UserError: batches that are not whole groups, prompts or budgets that do not fit.
    """
    batch = batch_of(grpo, prompts, ranks)
    _check_groups(arguments, batch)
    response = grpo["max_completion_length"]
    if response is None:
        raise UserError("expected max_completion_length, the token budget of one episode's response; got none; set it")
    if not isinstance(response, int) or response < 1:
        raise UserError(f"option max_completion_length: expected at least 1 token, got {response!r}; correct it")
    if grpo["max_steps"] < 1 and grpo["max_steps"] != -1:
        raise UserError(
            f"option max_steps: expected at least 1, or -1 to go by num_train_epochs, got {grpo['max_steps']}"
        )
    if lengths and max(lengths) > arguments.max_prompt_tokens:
        over = sum(length > arguments.max_prompt_tokens for length in lengths)
        raise UserError(
            f"option max_prompt_tokens: {over} of {len(lengths)} prompts are longer than "
            f"{arguments.max_prompt_tokens} tokens; set it to at least {max(lengths)}"
        )
    if ranks > 1:
        waves = -(-batch.rows_per_rank // (arguments.concurrency or batch.rows_per_rank))
        branching = arguments.branching()
        if branching is not None:
            # A wave of branches waits for the one before it, and adds at least one episode to each group.
            waves += batch.group_size - branching.initial
        if arguments.zero_variance_groups == "refill":
            waves *= 1 + arguments.max_refills
        longest = arguments.episode_deadline * (arguments.episode_retries + 1) * waves
        if longest >= grpo["ddp_timeout"]:
            raise UserError(
                f"a rank may wait {longest:g} s for another one's episodes (episode_deadline x "
                f"{arguments.episode_retries + 1} attempts x {waves} waves), but ddp_timeout ends the run after "
                f"{grpo['ddp_timeout']} s; raise ddp_timeout or lower episode_deadline"
            )
    name = str(model["model_name_or_path"])
    found = model_config(name, model.get("model_revision"), hub=hub)
    context = None if found is None else found.get_text_config().max_position_embeddings
    wanted = arguments.max_prompt_tokens + response
    refuse_unfit(grpo, wanted)
    if context is not None and wanted > context:
        raise UserError(
            f"max_prompt_tokens {arguments.max_prompt_tokens} + max_completion_length {response} = {wanted} tokens, "
            f"but {name} holds {context}; lower one of them"
        )
    said = []
    if found is None:
        said.append(f"memory and context are not known: no configuration of {name} here (agl plan --hub asks the Hub)")
    if lengths is None:
        said.append("prompt lengths are not known: the tokenizer is not here (agl plan --hub asks the Hub)")
    elif len(lengths) < prompts:
        said.append(f"prompt lengths are those of {len(lengths)} tasks")
    memory = None
    if found is not None:
        memory = memory_plan(
            found,
            grpo,
            model,
            ranks=ranks,
            zero3=zero3,
            rows_generated=min(batch.rows_per_rank, arguments.concurrency or batch.rows_per_rank),
            tokens=min(wanted, (max(lengths) if lengths else arguments.max_prompt_tokens) + response),
        )
    steps = grpo["max_steps"] if grpo["max_steps"] > 0 else round(batch.steps_per_epoch * grpo["num_train_epochs"])
    return Plan(
        model=name,
        environment=arguments.environment,
        batch=batch,
        epochs=grpo["num_train_epochs"],
        total_steps=steps,
        prompt_tokens=(min(lengths), max(lengths)) if lengths else None,
        max_prompt_tokens=arguments.max_prompt_tokens,
        response_tokens=response,
        model_context=context,
        memory=memory,
        notes=tuple(said),
    )


def _check_groups(arguments: EpisodeArguments, batch: BatchPlan) -> None:
    """Refuse group options that the batch arithmetic cannot serve."""
    branching = arguments.branching()
    if branching is not None:
        if batch.rows_per_rank % batch.group_size:
            raise UserError(
                f"option arpo: expected whole groups on each rank, since a branch goes on from its sibling's state, "
                f"got {batch.rows_per_rank} rows per rank for groups of {batch.group_size}; set "
                "per_device_train_batch_size x steps_per_generation to a multiple of num_generations"
            )
        if branching.initial > batch.group_size:
            raise UserError(
                f"option arpo.initial: expected at most num_generations {batch.group_size}, got {branching.initial}"
            )
    if arguments.zero_variance_groups == "refill" and batch.prompts <= batch.prompts_per_generation:
        raise UserError(
            f"option zero_variance_groups: refill needs more than the {batch.prompts_per_generation} prompts of one "
            f"generation, got {batch.prompts}; add tasks, or set it to drop"
        )


def plan_file(file: Path, *, ranks: int | None = None, accelerate: Path | None = None, hub: bool = False) -> Plan:
    """Plan the run of a training config without loading weights or starting processes.

    Args:
        ranks: processes; None takes those of `accelerate`, else 1.
        accelerate: the file for `accelerate launch --config_file`.
        hub: it may be asked for the model's configuration and tokenizer.

    Raises:
        UserError: the run could not start as configured.
    """
    from trl.trainer.model_config import ModelConfig

    from train.grpo_config import GRPOConfig

    ranks, zero3 = launched(accelerate, ranks)
    episode, grpo_given, model_given = by_section(check_file(file), (EpisodeArguments, GRPOConfig, ModelConfig))
    arguments = EpisodeArguments(**episode)
    model = model_values(model_given, file)
    grpo = _grpo_values(grpo_given, ranks)
    refuse_inert(grpo)
    found = with_curriculum(arguments, setting(arguments), grpo, ranks)
    evaluation_setting(arguments, found, grpo)
    template = template_at_hand(arguments, model, hub=hub)
    lengths = None if template is None else prompt_lengths(found, template, at_most=PROBED)
    return make_plan(
        arguments,
        grpo,
        model,
        prompts=len(found.tasks),
        ranks=ranks,
        zero3=zero3,
        lengths=lengths,
        hub=hub,
    )


def _grpo_values(given: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """All values of GRPOConfig for `ranks` processes; the one process that stands for them takes the rows of all."""
    from train.grpo_config import GRPOConfig

    per_rank = given.get("per_device_train_batch_size", 8)
    assumed = {"num_generations": 8, "gradient_accumulation_steps": 1, "num_iterations": 1}
    batch_of({**assumed, "per_device_train_batch_size": per_rank, **given}, 10**9, ranks)
    values = trainer_values(GRPOConfig, given, per_device_train_batch_size=per_rank * ranks)
    return {**values, "per_device_train_batch_size": per_rank, "generation_batch_size": None}


def launched(accelerate: Path | None, ranks: int | None) -> tuple[int, bool]:
    """(processes, whether ZeRO-3 shards them) of a file for `accelerate launch --config_file`; `ranks` wins over it."""
    launch = read_yaml(accelerate) if accelerate is not None else {}
    zero3 = (launch.get("deepspeed_config") or {}).get("zero_stage") == 3
    return ranks or int(launch.get("num_processes") or 1), zero3


def by_section(values: Mapping[str, Any], sections: Sequence[type[Any]]) -> list[dict[str, Any]]:
    """The values of a config that are fields of each of the dataclasses `sections`."""
    names = [{field.name for field in dataclasses.fields(cls)} for cls in sections]
    return [{key: value for key, value in values.items() if key in part} for part in names]


def model_values(given: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """All values of ModelConfig.

    Raises:
        UserError: no model is named, or values that do not fit together.
    """
    from trl.trainer.model_config import ModelConfig

    try:
        model = dataclasses.asdict(ModelConfig(**given))
    except (ValueError, TypeError) as error:
        raise UserError(f"the options do not fit together: {' '.join(str(error).split())}") from None
    if not model["model_name_or_path"]:
        raise UserError(f"expected model_name_or_path in {file}, got none; set it to smollm2, a folder or a Hub id")
    return model


def trainer_values(config: type[Any], given: Mapping[str, Any], **instead: Any) -> dict[str, Any]:
    """All values of a trainer's config, checked by its class: on the CPU, so that bf16 needs no GPU here.

    Args:
        instead: values that this process takes in their place.

    Raises:
        UserError: values that do not fit together.
    """
    here = {"use_cpu": True, "bf16": False, "fp16": False, "tf32": None, "output_dir": "plan", "report_to": "none"}
    try:
        made = config(**{**given, **here, **instead})
    except (ValueError, TypeError) as error:
        raise UserError(f"the options do not fit together: {' '.join(str(error).split())}") from None
    values = {field.name: getattr(made, field.name) for field in dataclasses.fields(config)}
    precision = {name: given.get(name) for name in ("use_cpu", "fp16")}
    return {**values, **precision, "bf16": given.get("bf16", not given.get("fp16"))}
