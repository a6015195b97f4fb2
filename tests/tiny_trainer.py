"""EpisodeTrainer on TurnsEnv with the model of tiny_model: what several test modules train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.turns_env import FreshWords, TurnsEnv

GROUP = 4


def quiet_config(output: Path, **options: Any) -> Any:
    """A GRPOConfig for the CPU that logs every step and prints nothing."""
    from trl.trainer.grpo_config import GRPOConfig

    return GRPOConfig(
        output_dir=str(output),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        **options,
    )


def turns_trainer(model: str, output: Path, *, source: str = "1,2,3,2", env: Any = TurnsEnv, **options: Any) -> Any:
    """Two groups of 4 in one generation, two steps, unless `options` (episode options or GRPOConfig's) say otherwise.

    `options["evaluation"]` lists the rounds of evaluation tasks.
    """
    import torch
    from transformers import AutoTokenizer

    from train.options import EpisodeArguments
    from train.setting import Setting
    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    dialect = FreshWords(TurnsEnv.actions)
    evaluation = options.pop("evaluation", None)
    watched = options.pop("trainer", EpisodeTrainer)
    fixed: dict[str, Any] = {
        "per_device_train_batch_size": 2 * GROUP,
        "num_generations": GROUP,
        "max_completion_length": 32,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "save_strategy": "no",
    }
    episodes: Any = {"environment": "turns", "max_turn_tokens": 6, "episode_retries": 0, "max_infra_share": 1.0}
    episodes |= {name: options.pop(name) for name in list(options) if name in EpisodeArguments.__dataclass_fields__}
    return watched(
        Setting(env, TurnsEnv.task_type, TurnsEnv.tasks(source), dialect, 0),
        EpisodeArguments(**episodes),
        evaluation=evaluation and Setting(env, TurnsEnv.task_type, TurnsEnv.tasks(evaluation, seed=1), dialect, 0),
        model=model,
        args=quiet_config(output, num_generations_eval=1, **{**fixed, **options}),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )


def steps(trainer: Any) -> list[dict[str, Any]]:
    """What was logged of each step."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]
