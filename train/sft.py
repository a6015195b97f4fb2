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
import os
from collections.abc import Sequence
from pathlib import Path

from agl.errors import UserError
from agl.tokens import Row

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

RECORD = "demonstrations.json"
"""What a run was trained on: counts and a digest of its rows."""


def main(argv: list[str]) -> None:
    # 1. Options. Whatever is unknown or would do nothing ends here, before weights load.
    from agl.policies.hf import read_template, resolve_model
    from train.commands import print_plan
    from train.demonstrations import labelled
    from train.program import checkpoint, init_kwargs, refuse_finished
    from train.setting import tokenizer_template
    from train.sft_options import check_numbers, read_arguments, refuse_inert
    from train.sft_plan import demonstrated, episode_arguments, make_plan

    arguments, sft, model = read_arguments(argv)
    values = {field.name: getattr(sft, field.name) for field in dataclasses.fields(sft)}
    refuse_inert(values, model.attn_implementation)
    check_numbers(values)
    if arguments.save_merged and not model.use_peft:
        raise UserError("option save_merged: without use_peft there is nothing to merge; leave it out")

    # 2. Tokenizer, demonstrations, rows, and the arithmetic of the run.
    name = model.model_name_or_path
    tokenizer, template = tokenizer_template(episode_arguments(arguments), name, model.model_revision)
    rows = demonstrated(arguments, template)
    plugin = getattr(sft, "deepspeed_plugin", None)
    kept, plan = make_plan(
        rows,
        values,
        dataclasses.asdict(model),
        ranks=sft.world_size,
        over_length=arguments.over_length,
        zero3=plugin is not None and plugin.zero_stage == 3,
    )
    if sft.process_index == 0:
        print_plan(plan.lines())
    sft.resume_from_checkpoint = checkpoint(sft.resume_from_checkpoint, sft.output_dir)
    refuse_finished(sft.resume_from_checkpoint, plan.total_steps)
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


def record(output: Path, rows: Sequence[Row]) -> None:
    """Write down what a run is trained on."""
    from train.demonstrations import digest
    from train.sft_plan import size

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
