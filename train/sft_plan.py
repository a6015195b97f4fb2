"""What supervised fine-tuning will do, worked out before any weights load: rows, steps, tokens and memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl.errors import UserError
from agl.policies.chat_template import ChatTemplate
from agl.tokens import Row
from train.demonstrations import Demonstration, check_prompt, expert, read, token_rows
from train.memory import MemoryPlan, memory_plan, model_config
from train.options import EpisodeArguments
from train.plan import by_section, launched, model_values, trainer_values
from train.setting import setting, template_at_hand
from train.sft_options import SftArguments, check_file, check_numbers, refuse_inert


@dataclass(frozen=True)
class RowTokens:
    """Of the rows that are trained on. Pairs are (shortest, longest)."""

    total: int
    learned: int
    row: tuple[int, int]
    prompt: tuple[int, int]


@dataclass(frozen=True)
class SftPlan:
    """A checked run. `tokens` is None without a tokenizer at hand, and then no row is known to be too long."""

    model: str
    rows: int
    left_out: int
    max_length: int | None
    tokens: RowTokens | None
    rows_per_rank: int
    ranks: int
    accumulated: int
    packing: bool
    steps_per_epoch: int
    total_steps: int
    model_context: int | None
    memory: MemoryPlan | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data, stable names."""
        out = dataclasses.asdict(self)
        if self.memory is not None:
            out["memory"]["peak"] = self.memory.peak
        return out

    def lines(self) -> list[tuple[str, str]]:
        """(what, value) for people."""
        batch = self.rows_per_rank * self.ranks * self.accumulated
        over = f", {self.left_out} left out as longer than {self.max_length}" if self.tokens is not None else ""
        found = [("model", self.model), ("rows", f"{self.rows}{over}")]
        if (tokens := self.tokens) is not None:
            row, prompt = (f"{low} to {high}" for low, high in (tokens.row, tokens.prompt))
            said = f"{tokens.total:,}, of them {tokens.learned:,} learned; a row has {row}, its prompt {prompt}"
            found.append(("tokens", said))
        step = f"{self.rows_per_rank} rows x {self.ranks} ranks x {self.accumulated} accumulated = {batch} rows"
        packed = " or fewer, packed" if self.packing else ""
        found += [
            ("step", step),
            ("epoch", f"{self.rows} rows / {batch} = {self.steps_per_epoch} steps{packed}"),
            ("whole run", f"{self.total_steps} steps"),
        ]
        if self.memory is not None:
            found += self.memory.lines()
        return [*found, *(("note", note) for note in self.notes)]


def episode_arguments(arguments: SftArguments) -> EpisodeArguments:
    """The options that demonstrations share with the episodes of reinforcement learning."""
    source = "train" if arguments.recipe and arguments.source is None else arguments.source
    return EpisodeArguments(
        environment=arguments.environment,
        environment_options=arguments.environment_options,
        source=source,
        task_facets=arguments.task_facets,
        task_limit=None if arguments.recipe else 1,
        task_seed=arguments.task_seed,
        dialect=arguments.dialect,
        chat_template=arguments.chat_template,
        shots=arguments.shots,
    )


def demonstrations(arguments: SftArguments) -> list[Demonstration]:
    """What a run imitates, in order, its prompts checked against those of evaluation.

    Raises:
        UserError: unknown environment, dialect or data; no demonstration; a prompt that evaluation does not show.
        DataError: a file that holds no demonstrations.
    """
    found = setting(episode_arguments(arguments))
    env = found.make_env()
    shown: list[Demonstration] = []
    if arguments.recipe:
        shown += expert(
            found.tasks,  # type: ignore[arg-type]  # a recipe is of grit, whose tasks these are
            found.dialect,
            max_nodes=arguments.largest,
            limit=arguments.task_limit,
            shots=arguments.shots,
        )
    for path in arguments.traces or ():
        shown += list(read(Path(path), env, found.dialect, min_score=arguments.min_score))[: arguments.task_limit]
    if not shown:
        where = f"recipe {arguments.recipe}" if arguments.recipe else ", ".join(arguments.traces or ())
        raise UserError(f"expected demonstrations, got none from {where}; widen max_nodes, min_score or task_facets")
    for each in shown:
        check_prompt(each, env, found.dialect, arguments.shots)
    return shown


def demonstrated(arguments: SftArguments, template: ChatTemplate) -> list[Row]:
    """The rows of a run, in order.

    Raises:
        UserError, DataError: as `demonstrations`.
    """
    return [row for each in demonstrations(arguments) for row in token_rows(each, template)]


def make_plan(
    rows: Sequence[Row] | int,
    sft: Mapping[str, Any],
    model: Mapping[str, Any],
    *,
    ranks: int,
    over_length: str,
    zero3: bool = False,
    hub: bool = True,
) -> tuple[list[Row], SftPlan]:
    """(rows to train on, the arithmetic of the run).

    Args:
        rows: or their number, where no tokenizer is at hand.
        sft: values of SFTConfig fields.
        model: values of ModelConfig fields.
        zero3: weights, gradients and optimiser are sharded over the ranks.
        hub: it may be asked for the model's configuration.

    Raises:
        UserError: rows that fit neither max_length nor the model, or too few of them.
    """
    name, limit = str(model["model_name_or_path"]), sft["max_length"]
    config = model_config(name, model.get("model_revision"), hub=hub)
    context = None if config is None else config.get_text_config().max_position_embeddings
    notes = [] if config is not None else [f"memory and context are not known: no configuration of {name} here"]
    kept: list[Row] = []
    tokens: RowTokens | None = None
    if isinstance(rows, int):
        count = all_rows = rows
        notes.append("lengths are not known: the tokenizer is not here (agl plan --hub asks the Hub)")
    else:
        kept, tokens = _fitting(rows, limit, over_length, context, name)
        count, all_rows = len(kept), len(rows)
    longest = limit if sft["packing"] or tokens is None else tokens.row[1]
    memory = None
    if config is not None and longest is not None:
        memory = memory_plan(config, sft, model, ranks=ranks, zero3=zero3, rows_generated=0, tokens=longest)
        if tokens is None:
            notes.append(f"memory is that of rows of max_length {limit}")
    per_epoch, total = steps(count, sft, ranks=ranks)
    plan = SftPlan(
        model=name,
        rows=count,
        left_out=all_rows - count,
        max_length=limit,
        tokens=tokens,
        rows_per_rank=sft["per_device_train_batch_size"],
        ranks=ranks,
        accumulated=sft["gradient_accumulation_steps"],
        packing=bool(sft["packing"]),
        steps_per_epoch=per_epoch,
        total_steps=total,
        model_context=context,
        memory=memory,
        notes=tuple(notes),
    )
    return kept, plan


def _fitting(
    rows: Sequence[Row], limit: int | None, over_length: str, context: int | None, model: str
) -> tuple[list[Row], RowTokens]:
    kept = [row for row in rows if limit is None or size(row) <= limit]
    over = len(rows) - len(kept)
    longest = max(rows, key=size)
    need = f"{size(longest)} = {len(longest.prompt_ids)} prompt + {len(longest.completion_ids)} response"
    if over and over_length == "error":
        raise UserError(
            f"option max_length: {over} of {len(rows)} rows are longer than {limit} tokens, the longest has {need}; "
            f"set it to {size(longest)}, take smaller graphs (max_nodes), or leave them out (over_length: drop)"
        )
    if not kept:
        raise UserError(f"option max_length: all {len(rows)} rows are longer than {limit} tokens; set it to {need}")
    longest = max(kept, key=size)
    if context is not None and size(longest) > context:
        need = f"{size(longest)} = {len(longest.prompt_ids)} prompt + {len(longest.completion_ids)} response"
        raise UserError(
            f"the longest row has {need} tokens, but {model} holds {context}; take smaller graphs, or set max_length: "
            f"{context} and over_length: drop"
        )
    sizes, prompts = [size(row) for row in kept], [len(row.prompt_ids) for row in kept]
    learned = sum(sum(row.mask) for row in kept)
    return kept, RowTokens(sum(sizes), learned, (min(sizes), max(sizes)), (min(prompts), max(prompts)))


def steps(rows: int, sft: Mapping[str, Any], *, ranks: int) -> tuple[int, int]:
    """(steps of an epoch, of the run), as the trainer counts them.

    Raises:
        UserError: too few rows for one batch.
    """
    batch = sft["per_device_train_batch_size"] * ranks
    whole = rows // batch if sft["dataloader_drop_last"] else math.ceil(rows / batch)
    if not whole:
        raise UserError(
            f"option dataloader_drop_last: a batch takes {batch} rows, got {rows}, so all would be dropped; leave it "
            "out, or lower per_device_train_batch_size"
        )
    per_epoch = math.ceil(whole / sft["gradient_accumulation_steps"])
    total = sft["max_steps"] if sft["max_steps"] > 0 else math.ceil(sft["num_train_epochs"] * per_epoch)
    return per_epoch, total


def size(row: Row) -> int:
    """Tokens of a row."""
    return len(row.prompt_ids) + len(row.completion_ids)


def plan_file(file: Path, *, ranks: int | None = None, accelerate: Path | None = None, hub: bool = False) -> SftPlan:
    """Plan the run of a config of supervised fine-tuning without loading weights or starting processes.

    Args:
        ranks: processes; None takes those of `accelerate`, else 1.
        accelerate: the file for `accelerate launch --config_file`.
        hub: it may be asked for the model's configuration and tokenizer.

    Raises:
        UserError: the run could not start as configured.
        DataError: its demonstrations cannot be read.
    """
    from trl.trainer.model_config import ModelConfig
    from trl.trainer.sft_config import SFTConfig

    ranks, zero3 = launched(accelerate, ranks)
    ours, given, model_given = by_section(check_file(file), (SftArguments, SFTConfig, ModelConfig))
    arguments = SftArguments(**ours)
    model = model_values(model_given, file)
    sft = trainer_values(SFTConfig, given)
    refuse_inert(sft, model["attn_implementation"])
    check_numbers(sft)
    template = template_at_hand(episode_arguments(arguments), model, hub=hub)
    rows: list[Row] | int
    rows = len(demonstrations(arguments)) if template is None else demonstrated(arguments, template)
    return make_plan(rows, sft, model, ranks=ranks, over_length=arguments.over_length, zero3=zero3, hub=hub)[1]
