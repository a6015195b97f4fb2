"""Supervised fine-tuning of an agent on expert traces, or on its own best episodes.

    accelerate launch train/sft.py --config configs/train/grit_sft_tiny_cpu.yaml [any TRL / HF flag]

Source: GRAIN (arXiv 2608.27142), the SFT column of its training table, in TRL's SFTTrainer.

Deviations from GRAIN:
- One section of the paper warms up on graphs of at most 14 nodes, another trains on the full split: two recipes, `warm`
  and `sft-tool`.
- The loss is the mean over what the expert itself writes. The paper does not say whether tool results are learned; here
  they never are, as in reinforcement learning.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agl.errors import UserError
from agl.tokens import Row

if TYPE_CHECKING:
    from agl.policies.chat_template import ChatTemplate
    from train.demonstrations import Demonstration
    from train.options import EpisodeArguments
    from train.sft_options import SftArguments

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

RECORD = "demonstrations.json"
"""What a run was trained on: counts and a digest of its rows."""


def main(argv: list[str]) -> None:
    # 1. Options. Whatever is unknown or would do nothing ends here, before weights load.
    from agl.policies.hf import read_template, resolve_model
    from train.commands import print_plan
    from train.demonstrations import labelled
    from train.plan import tokenizer_template
    from train.program import checkpoint, init_kwargs, refuse_finished
    from train.sft_options import read_arguments, refuse_inert

    arguments, sft, model = read_arguments(argv)
    values = {field.name: getattr(sft, field.name) for field in dataclasses.fields(sft)}
    refuse_inert(values, model.attn_implementation)
    if arguments.save_merged and not model.use_peft:
        raise UserError("option save_merged: without use_peft there is nothing to merge; leave it out")

    # 2. Tokenizer, demonstrations, rows, and the arithmetic of the run.
    name = model.model_name_or_path
    tokenizer, template = tokenizer_template(episode_arguments(arguments), name, model.model_revision)
    rows = demonstrated(arguments, template)
    kept, plan = make_plan(
        rows, values, name, model.model_revision, ranks=sft.world_size, over_length=arguments.over_length
    )
    if sft.process_index == 0:
        print_plan(plan)
    total_steps = steps(len(kept), values, ranks=sft.world_size)[1]
    sft.resume_from_checkpoint = checkpoint(sft.resume_from_checkpoint, sft.output_dir)
    refuse_finished(sft.resume_from_checkpoint, total_steps)
    refuse_other_rows(sft.resume_from_checkpoint, Path(sft.output_dir), kept)
    if arguments.plan_only:
        return

    # 3. The trainer; weights load here.
    from datasets import Dataset
    from trl.trainer.sft_trainer import SFTTrainer
    from trl.trainer.utils import get_peft_config, get_quantization_config

    sft.model_init_kwargs = init_kwargs(model, sft.model_init_kwargs)
    tokenizer.chat_template = read_template(arguments.chat_template, tokenizer) or tokenizer.chat_template
    tokenizer.padding_side = "right"
    trainer = SFTTrainer(
        model=resolve_model(name),
        args=sft,
        train_dataset=Dataset.from_list([labelled(row) for row in kept]),
        processing_class=tokenizer,
        peft_config=get_peft_config(model),
        quantization_config=get_quantization_config(model),
    )
    if sft.process_index == 0:
        record(Path(sft.output_dir), kept)

    # 4. Train; the last weights go to OUTPUT_DIR, where `agl eval ENV --policy hf:OUTPUT_DIR` finds them.
    trainer.train(resume_from_checkpoint=sft.resume_from_checkpoint)
    trainer.save_model(sft.output_dir)
    trainer.accelerator.wait_for_everyone()
    if sft.process_index == 0:
        if arguments.save_merged:
            save_merged(Path(sft.output_dir), None if model.dtype == "auto" else model.dtype)
        print(f"saved to {sft.output_dir}; evaluate: agl eval {arguments.environment} --policy hf:{sft.output_dir}")


def episode_arguments(arguments: SftArguments) -> EpisodeArguments:
    """The options that demonstrations share with the episodes of reinforcement learning."""
    from train.options import EpisodeArguments

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


def demonstrated(arguments: SftArguments, template: ChatTemplate) -> list[Row]:
    """The rows of a run, in order, their prompts checked against those of evaluation.

    Raises:
        UserError: unknown environment, dialect or data; no demonstration; a prompt that evaluation does not show.
        DataError: a file that holds no demonstrations.
    """
    from train.demonstrations import check_prompt, expert, read, token_rows
    from train.plan import setting

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
    rows: list[Row] = []
    for each in shown:
        check_prompt(each, env, found.dialect, arguments.shots)
        rows += token_rows(each, template)
    return rows


def make_plan(
    rows: Sequence[Row], sft: dict[str, Any], model: str, revision: str | None, *, ranks: int, over_length: str
) -> tuple[list[Row], list[tuple[str, str]]]:
    """(rows to train on, (what, value) for people).

    Args:
        sft: values of SFTConfig fields.

    Raises:
        UserError: rows that fit neither max_length nor the model, or too few of them.
    """
    from train.memory import model_config

    limit = sft["max_length"]
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
    config = model_config(model, revision)
    context = None if config is None else config.get_text_config().max_position_embeddings
    longest = max(kept, key=size)
    if context is not None and size(longest) > context:
        raise UserError(
            f"the longest row has {need} tokens, but {model} holds {context}; take smaller graphs, or set max_length: "
            f"{context} and over_length: drop"
        )
    per_epoch, total = steps(len(kept), sft, ranks=ranks)
    batch = sft["per_device_train_batch_size"] * ranks * sft["gradient_accumulation_steps"]
    tokens, learned = sum(map(size, kept)), sum(sum(row.mask) for row in kept)
    lines = [
        ("model", model),
        ("rows", f"{len(kept)}, {over} left out as longer than {limit}"),
        (
            "tokens",
            f"{tokens:,}, of them {learned:,} learned; a row has {min(map(size, kept))} to {size(longest)}, "
            f"its prompt {min(len(row.prompt_ids) for row in kept)} to {max(len(row.prompt_ids) for row in kept)}",
        ),
        (
            "step",
            f"{sft['per_device_train_batch_size']} rows x {ranks} ranks x {sft['gradient_accumulation_steps']} "
            f"accumulated = {batch} rows",
        ),
        ("epoch", f"{len(kept)} rows / {batch} = {per_epoch} steps" + (" or fewer, packed" if sft["packing"] else "")),
        ("whole run", f"{total} steps"),
    ]
    return kept, lines


def steps(rows: int, sft: dict[str, Any], *, ranks: int) -> tuple[int, int]:
    """(steps of an epoch, of the run), as the trainer counts them."""
    batches = rows / (sft["per_device_train_batch_size"] * ranks)
    whole = math.floor(batches) if sft["dataloader_drop_last"] else math.ceil(batches)
    per_epoch = max(1, math.ceil(whole / sft["gradient_accumulation_steps"]))
    total = sft["max_steps"] if sft["max_steps"] > 0 else math.ceil(sft["num_train_epochs"] * per_epoch)
    return per_epoch, total


def size(row: Row) -> int:
    """Tokens of a row."""
    return len(row.prompt_ids) + len(row.completion_ids)


def record(output: Path, rows: Sequence[Row]) -> None:
    """Write down what a run is trained on."""
    from train.demonstrations import digest

    output.mkdir(parents=True, exist_ok=True)
    found = {"rows": len(rows), "tokens": sum(map(size, rows)), "sha256": digest(rows)}
    (output / RECORD).write_text(json.dumps(found) + "\n", encoding="utf-8")


def refuse_other_rows(checkpoint: str | None, output: Path, rows: Sequence[Row]) -> None:
    """Refuse to resume on rows other than those the run began with: the order it goes on with would mean nothing.

    Raises:
        UserError: the rows differ.
    """
    from train.demonstrations import digest

    file = output / RECORD
    if checkpoint is None or not file.is_file():
        return
    known = json.loads(file.read_text(encoding="utf-8"))
    if known["sha256"] != digest(rows):
        raise UserError(
            f"expected the {known['rows']} rows that {output} began with, got {len(rows)} that differ; "
            "resume with the same data and options, or start anew in another output_dir"
        )


def save_merged(folder: Path, dtype: str | None) -> None:
    """Merge the adapter in `folder` into its base and write the whole model to `folder`/merged."""
    from agl.policies.hf import load

    model, tokenizer = load(str(folder), device="cpu", dtype=dtype)
    model.save_pretrained(folder / "merged")
    tokenizer.save_pretrained(folder / "merged")


if __name__ == "__main__":
    from train.program import run

    run(main, "train/sft.py")
