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
    from tests.tiny_trainer import turns_trainer
    from train.trainer import EpisodeTrainer

    resume = given.pop("resume", None)
    tasks: list[list[str]] = []

    class Watched(EpisodeTrainer):
        def _rows_of(self, episodes: Any, dropped: Any) -> Any:
            tasks.append([episode.task["id"] for episode in episodes])
            return super()._rows_of(episodes, dropped)

    trainer = turns_trainer(
        model, Path(output), trainer=Watched, **{"evaluation": "2,1,3", "max_completion_length": 64, **given}
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
