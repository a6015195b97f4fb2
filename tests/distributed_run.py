"""What each rank of the distributed tests runs: a short training run, then one JSON line about it.

python -m tests.distributed_run MODEL OUTPUT [JSON of options]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def main(model: str, output: str, given: dict[str, Any]) -> None:
    import torch
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig

    from tests.turns_env import FreshWords, TurnsEnv
    from train.options import EpisodeArguments
    from train.plan import Setting
    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    source, resume = given.pop("source"), given.pop("resume", None)
    episode: Any = {"environment": "turns", "max_turn_tokens": 6, "episode_retries": 0, "max_infra_share": 1.0}
    episode |= {name: given.pop(name) for name in list(given) if name in EpisodeArguments.__dataclass_fields__}
    dialect = FreshWords(TurnsEnv.actions)
    evaluation = Setting(TurnsEnv, TurnsEnv.task_type, TurnsEnv.tasks("2,1,3", seed=1), dialect, 0)
    tasks: list[list[str]] = []

    class Watched(EpisodeTrainer):
        def _rows_of(self, episodes: Any, dropped: Any) -> Any:
            tasks.append([episode.task["id"] for episode in episodes])
            return super()._rows_of(episodes, dropped)

    fixed: dict[str, Any] = {"num_generations": 4, "max_completion_length": 64, "learning_rate": 1e-3}
    trainer = Watched(
        Setting(TurnsEnv, TurnsEnv.task_type, TurnsEnv.tasks(source), dialect, 0),
        EpisodeArguments(**episode),
        evaluation=evaluation,
        model=model,
        args=GRPOConfig(
            output_dir=output,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            logging_steps=1,
            disable_tqdm=True,
            num_generations_eval=1,
            **{**fixed, **given},
        ),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    trainer.train(resume_from_checkpoint=resume)
    engine = trainer.model_wrapped
    shards = [getattr(weight, "ds_tensor", weight) for weight in trainer.model.parameters()]
    facts = {
        "rank": trainer.accelerator.process_index,
        "engine": type(engine).__name__,
        "stage": engine.zero_optimization_stage() if hasattr(engine, "zero_optimization_stage") else 0,
        "local": sum(shard.numel() for shard in shards),
        "whole": sum(getattr(weight, "ds_numel", weight.numel()) for weight in trainer.model.parameters()),
        "tasks": tasks,
        "best": trainer.state.best_model_checkpoint,
        "history": trainer.state.log_history,
    }
    Path(output, f"facts-{facts['rank']}.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
