"""Time of `import agl`, episodes per second with a scripted policy, and the framework's share beside a real model.

    python benchmarks/episodes.py [--no-model]

Promised: `import agl` in under 0.3 s; at least 1,000 oracle shortest-path episodes per second and core (parse, solve,
reward, trace), both counted in CPU seconds so that other load does not decide; under 3 % of a model episode's time
outside the model.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agl.dialects import dialect_for
from agl.policies.policy import Sampling
from agl.policies.scripted import Oracle
from agl.rollout import Job, rollouts
from agl.trace import EpisodeWriter
from envs.grit.env import GritEnv
from eval.runner import evaluate

PROMISED_IMPORT = 0.3
PROMISED_RATE = 1000.0
PROMISED_SHARE = 0.03


def import_seconds() -> float:
    """CPU seconds of `import agl` in a fresh process; best of five."""
    code = "import time; began = time.process_time(); import agl; print(time.process_time() - began)"
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


async def _oracle(jobs: list[Job], trace: Path) -> float:
    """CPU seconds for `jobs`, each through the full rollout and written to `trace`."""
    before = time.process_time()
    with EpisodeWriter(trace) as writer:
        async for episode in rollouts(GritEnv, jobs, Oracle(), dialect=dialect_for(GritEnv)):
            if episode.score is None or episode.score.total != 1.0:
                raise AssertionError(f"the oracle failed on {episode.key}: {episode.outcome.error}")
            writer.write(episode)
    return time.process_time() - before


def oracle_rate(folder: Path) -> float:
    """Best of five passes over the 60 shortest-path graphs of the test split (10 to 39 nodes), one view each."""
    tasks = {task.graph_id: task for task in GritEnv.tasks("test") if task.task == "shortest_path"}
    jobs = [Job(task, 0) for task in tasks.values()]
    asyncio.run(_oracle(jobs[:10], folder / "warm.jsonl"))
    seconds = [asyncio.run(_oracle(jobs, folder / f"{turn}.jsonl")) for turn in range(5)]
    return len(jobs) / min(seconds)


def model_share(folder: Path) -> tuple[float, float]:
    """Share of the episode time outside the model, and seconds per episode, of SmolLM2 one at a time."""
    from agl.policies.build import build_policy

    policy = build_policy("smollm2", Sampling(max_tokens=64))
    summary = evaluate("grit", policy, limit=4, shots=1, concurrency=1, out=folder / "smollm2")
    return summary.seconds.framework_share, summary.seconds.mean


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds = import_seconds()
        print(f"import agl: {seconds:.2f} s, {seconds / PROMISED_IMPORT:.0%} of the promise")
        print(f"  promised: under {PROMISED_IMPORT:g} s: {_verdict(seconds < PROMISED_IMPORT)}")
        rate = oracle_rate(folder)
        print(f"oracle shortest-path episodes: {rate:,.0f} per second and core")
        print(f"  promised: at least {PROMISED_RATE:,.0f}: {_verdict(rate >= PROMISED_RATE)}")
        if "--no-model" not in sys.argv[1:]:
            share, seconds = model_share(folder)
            print(f"framework share of a SmolLM2 episode of {seconds:.1f} s: {share:.2%}")
            print(f"  promised: under {PROMISED_SHARE:.0%}: {_verdict(share < PROMISED_SHARE)}")


def _verdict(kept: bool) -> str:
    return "kept" if kept else "NOT kept on this machine now"


if __name__ == "__main__":
    main()
