"""What AGL adds to a GRPO step: `python benchmarks/training.py [--steps N] [--rounds N]`.

The embedded model with LoRA is trained on the same prompts and as many new tokens per row by plain TRL (GRPOTrainer,
`model.generate`, a reward function) and by AGL (episodes of GRIT, scored and written down). Each run has a process of
its own, in turns. Prints the median seconds of CPU and on the clock per step, the peak of resident memory, and their
ratios to plain TRL. The token that ends a turn is one that the model does not write, so that every row is full.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from transformers import TrainerCallback

ROWS = 4
NEW_TOKENS = 48
WARM_UP = 2
"""Steps that are not counted: caches and the optimizer's state are made in them."""


class Stopwatch(TrainerCallback):
    """Seconds of CPU and on the clock of each step."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.clock: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.process_time(), time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.cpu.append(time.process_time() - self._began[0])
        self.clock.append(time.perf_counter() - self._began[1])


def train(which: str, steps: int) -> dict[str, Any]:
    """Medians of one run: seconds per step, the peak of resident memory in MB, and the tokens of all steps."""
    import torch
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from agl.policies.hf import resolve_model
    from train.options import EpisodeArguments
    from train.setting import setting, tokenizer_template
    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    model = resolve_model("smollm2")
    episodes = EpisodeArguments(
        environment="grit", source="mini", dialect="tags", shots=0, task_limit=steps, max_turn_tokens=NEW_TOKENS
    )
    found = setting(episodes).read()
    tokenizer, _ = tokenizer_template(episodes, model)
    tokenizer.eos_token = "<file_sep>"
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    weights.generation_config.eos_token_id = tokenizer.eos_token_id
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        common: dict[str, Any] = {
            "model": weights,
            "processing_class": tokenizer,
            "peft_config": LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"),
            "callbacks": [watch],
        }
        args = {
            "output_dir": folder,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": ROWS,
            "num_generations": ROWS,
            "max_completion_length": NEW_TOKENS,
            "max_steps": steps,
            "shuffle_dataset": False,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "save_strategy": "no",
            "logging_steps": 1,
            "report_to": "none",
            "disable_tqdm": True,
        }
        trainer: Any
        if which == "agl":
            trainer = EpisodeTrainer(found, episodes, args=GRPOConfig(**args), **common)
        else:
            trainer = GRPOTrainer(
                args=GRPOConfig(**args), reward_funcs=letters, train_dataset=conversations(found), **common
            )
        trainer.train()
        log = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    return {
        "cpu s": statistics.median(watch.cpu[WARM_UP:]),
        "clock s": statistics.median(watch.clock[WARM_UP:]),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "tokens": [int(log[-1]["num_tokens"]), sum(int(ROWS * entry["completions/mean_length"]) for entry in log)],
    }


def conversations(found: Any) -> Any:
    """The prompts that AGL's episodes open with, as TRL takes them."""
    from datasets import Dataset

    env = found.make_env()
    rows = []
    for task in found.tasks:
        _, prompt = found.dialect.open(env, task, found.shots)
        rows.append({"prompt": [{"role": said.role, "content": said.content} for said in prompt.messages]})
    return Dataset.from_list(rows)


def letters(completions: list[Any], **_: Any) -> list[float]:
    """A reward with some spread, at no cost."""
    return [len(set(said[0]["content"])) / 26 for said in completions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=("trl", "agl"), help="one run, printed as JSON")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(train(given.only, given.steps)))
        return
    found: dict[str, list[dict[str, Any]]] = {"trl": [], "agl": []}
    for turn in range(given.rounds):
        for which in ("trl", "agl") if turn % 2 == 0 else ("agl", "trl"):
            command = [sys.executable, __file__, "--only", which, "--steps", str(given.steps)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[which].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {turn + 1}, {which}: {found[which][-1]}", flush=True)
    counts = {tuple(run["tokens"]) for runs in found.values() for run in runs}
    print(f"tokens (all, new): {', '.join(map(str, sorted(counts)))}" + ("" if len(counts) == 1 else "  NOT EQUAL"))
    print(f"{'per step':12}{'plain TRL':>12}{'AGL':>12}{'ratio':>9}")
    for name in ("cpu s", "clock s", "peak MB"):
        plain, ours = (statistics.median(run[name] for run in found[which]) for which in ("trl", "agl"))
        print(f"{name:12}{plain:12.2f}{ours:12.2f}{ours / plain:9.3f}")


if __name__ == "__main__":
    main()
