"""Reinforcement learning of an agent with GRPO.

    accelerate launch train/grpo.py --config configs/train/grit_tiny_cpu.yaml [any TRL / HF flag]

Source: GRPO as in DeepSeekMath (arXiv 2402.03300) in TRL's implementation; GRAIN (arXiv 2608.27142) for the
environment, its reward (Eq. 3) and the values in configs/train/grain_*.yaml.

Deviations from GRAIN:
- Plain GRPO unless the config has `arpo`; what is ours in ARPO stands in train/branching.py (the paper's own ablation
  finds the two 0.25 points apart).
- An episode that failed for the machinery's fault abstains; the paper does not say what happens to those.
- The loss is TRL's `dapo` form unless the config says otherwise: mean over all sampled tokens of a step.
- Rollouts are sampled by transformers with the weights in training, or by vLLM (`use_vllm`, train/vllm_rollouts.py).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def main(argv: list[str]) -> None:
    # 1. Options. Whatever is unknown or would do nothing ends here, before weights load.
    from agl.policies.hf import resolve_model
    from train.commands import print_plan
    from train.options import read_arguments, refuse_inert
    from train.plan import make_plan
    from train.program import checkpoint, init_kwargs, refuse_finished
    from train.setting import evaluation_setting, prompt_lengths, setting, tokenizer_template, with_curriculum
    from train.vllm_options import refuse_machine

    episodes, grpo, model = read_arguments(argv)
    if grpo.metric_for_best_model in ("loss", "eval_loss"):
        # What transformers sets when nothing is; the loss of GRPO says nothing about progress.
        grpo.metric_for_best_model, grpo.greater_is_better = "reward", True
    values = {field.name: getattr(grpo, field.name) for field in dataclasses.fields(grpo)}
    refuse_inert(values)
    refuse_machine(grpo)

    # 2. Environment, tasks, tokenizer, and the arithmetic of the run.
    name = model.model_name_or_path
    found = with_curriculum(episodes, setting(episodes).read(), values, grpo.world_size)
    evaluation = evaluation_setting(episodes, found, values)
    tokenizer, template = tokenizer_template(episodes, name, model.model_revision)
    plan = make_plan(
        episodes,
        values,
        dataclasses.asdict(model),
        prompts=len(found.tasks),
        ranks=grpo.world_size,
        zero3=is_zero3(grpo),
        lengths=prompt_lengths(found, template) + (prompt_lengths(evaluation, template) if evaluation else []),
    )
    if grpo.process_index == 0:
        print_plan(plan.lines())
        print("The loss is no sign of progress: it is near 0 by construction. Watch score, reward and parts/*.")

    # The engine reserves a cache for its longest context; it need not be that of the model.
    grpo.vllm_max_model_length = grpo.vllm_max_model_length or episodes.max_prompt_tokens + plan.response_tokens
    grpo.resume_from_checkpoint = checkpoint(grpo.resume_from_checkpoint, grpo.output_dir)
    refuse_finished(grpo.resume_from_checkpoint, plan.total_steps)

    # 3. The trainer; weights load here.
    from trl.trainer.utils import get_peft_config, get_quantization_config

    from train.trainer import EpisodeTrainer

    grpo.model_init_kwargs = init_kwargs(model, grpo.model_init_kwargs)
    trainer = EpisodeTrainer(
        found,
        episodes,
        evaluation=evaluation,
        model=resolve_model(name),
        args=grpo,
        processing_class=tokenizer,
        peft_config=get_peft_config(model),
        quantization_config=get_quantization_config(model),
    )

    if grpo.process_index == 0:
        record_config(Path(grpo.output_dir), episodes, values, name)

    # 4. Train; the last weights go to OUTPUT_DIR, where `agl eval ENV --policy hf:OUTPUT_DIR` finds them.
    trainer.train(resume_from_checkpoint=grpo.resume_from_checkpoint)
    trainer.save_model(grpo.output_dir)
    if grpo.process_index == 0:
        print(f"saved to {grpo.output_dir}; evaluate: agl eval {episodes.environment} --policy hf:{grpo.output_dir}")


def record_config(folder: Path, episodes: object, grpo: Mapping[str, object], model: str) -> None:
    """Write down what is trained in training.json; config.json there is the model's."""
    from agl.json_text import dumps
    from agl.run_folder import TRAINING, write_atomic
    from train.options import EpisodeArguments

    assert isinstance(episodes, EpisodeArguments)
    config = {
        "env": episodes.environment,
        "policy": "in-training",
        "env_options": episodes.environment_options or {},
        "data": episodes.source,
        "limit": episodes.task_limit,
        "seed": episodes.task_seed,
        "dialect": episodes.dialect,
        "shots": episodes.shots,
        "max_turns": episodes.max_turns,
        "attempts": grpo["num_generations"],
        "sampling": {"temperature": grpo["temperature"], "max_tokens": episodes.max_turn_tokens},
        "training": {"model": model, "episodes": dataclasses.asdict(episodes)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / TRAINING, dumps(config) + "\n")


def is_zero3(grpo: object) -> bool:
    """Whether accelerate was launched with DeepSpeed ZeRO stage 3."""
    plugin = getattr(grpo, "deepspeed_plugin", None)
    return plugin is not None and plugin.zero_stage == 3


if __name__ == "__main__":
    from train.program import run

    run(main, "train/grpo.py")
