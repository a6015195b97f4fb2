"""Two processes on the CPU: the engine is what the file says, unequal ranks end, and the numbers are the same."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiny_model import save_tiny

pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parent.parent
UNEVEN: dict[str, Any] = {
    # Rank 0: episodes that fail before their first turn, and episodes of 1 turn; rank 1: of 5 turns.
    "source": "0,1,5,5",
    "shuffle_dataset": False,
    "max_steps": 2,
    "save_strategy": "no",
    "save_only_model": False,
}
RESUMABLE: dict[str, Any] = {
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 2,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "reward",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


def launch(launcher: list[str], model: str, output: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Run tests.distributed_run; returns what each rank wrote down. A run that hangs is a failed test."""
    given = [model, str(output), json.dumps(options)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}
    ended = subprocess.run(
        [*launcher, "-m", "tests.distributed_run", *given],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads(file.read_text()) for file in sorted(output.glob("facts-*.json"))]


def accelerate(config: str) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = ROOT / "configs" / "accelerate" / config
    program = [sys.executable, "-m", "accelerate.commands.accelerate_cli"]
    return [*program, "launch", "--config_file", str(file), "--main_process_port", str(port)]


def steps(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for entry in facts["history"] if "loss" in entry]


@pytest.fixture(scope="module")
def alone(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    options = {**UNEVEN, "per_device_train_batch_size": 16}
    (facts,) = launch([sys.executable], tiny, tmp_path_factory.mktemp("alone"), options)
    return facts


@pytest.fixture(scope="module")
def zero3(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    output = tmp_path_factory.mktemp("zero3")
    options = {**UNEVEN, **RESUMABLE, "per_device_train_batch_size": 8}
    return output, launch(accelerate("zero3_cpu.yaml"), tiny, output, options)


def check_same(facts: dict[str, Any], other: dict[str, Any]) -> None:
    """The first two steps: same episodes, and numbers that differ by rounding."""
    for mine, theirs in zip(steps(facts)[:2], steps(other)[:2], strict=True):
        for name in ("reward", "score", "episode/rows", "outcome/infra_failure", "episode/tokens_sampled"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-6)
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
        assert mine["grad_norm"] > 1e-2
        assert mine["sampling/gap_max"] < 1e-3


def test_zero3_is_zero3_and_uneven_ranks_end(zero3: tuple[Path, list[dict[str, Any]]]) -> None:
    _, ranks = zero3
    assert [facts["rank"] for facts in ranks] == [0, 1]
    for facts in ranks:
        assert facts["engine"] == "DeepSpeedEngine"
        assert facts["stage"] == 3
        assert facts["whole"] > 0
        assert facts["local"] == facts["whole"] // 2
    assert {task for step in ranks[0]["tasks"] for task in step} == {"turns-0-0", "turns-0-1"}
    assert {task for step in ranks[1]["tasks"] for task in step} == {"turns-0-2", "turns-0-3"}
    for entry in steps(ranks[0]):
        assert entry["outcome/infra_failure"] == 0.25
        # 4 failed episodes stand as an empty row each, 4 are one row, 8 are five.
        assert entry["episode/rows"] == (4 + 4 + 8 * 5) / 16


def test_zero3_has_the_loss_of_one_process(zero3: tuple[Path, list[dict[str, Any]]], alone: dict[str, Any]) -> None:
    for facts in zero3[1]:
        check_same(facts, alone)


def test_ddp_has_the_loss_of_one_process(tiny: str, tmp_path: Path, alone: dict[str, Any]) -> None:
    options = {**UNEVEN, "per_device_train_batch_size": 8}
    ranks = launch(accelerate("ddp_cpu.yaml"), tiny, tmp_path, options)
    assert [facts["engine"] for facts in ranks] == ["DistributedDataParallel"] * 2
    for facts in ranks:
        check_same(facts, alone)


def test_zero3_evaluates_on_all_ranks_and_keeps_the_best(zero3: tuple[Path, list[dict[str, Any]]]) -> None:
    output, ranks = zero3
    evaluations = [[entry for entry in facts["history"] if "eval_reward" in entry] for facts in ranks]
    assert [entry["eval_episodes"] for entry in evaluations[0]] == [3.0, 3.0]
    names = ("eval_reward", "eval_score", "eval_episode/turns")
    assert [[entry[name] for name in names] for entry in evaluations[0]] == [
        [entry[name] for name in names] for entry in evaluations[1]
    ]
    best = max(evaluations[0], key=lambda entry: entry["eval_reward"])["step"]
    assert ranks[0]["best"] == str(output / f"checkpoint-{best}")


def test_zero3_resumes_to_the_same_steps(zero3: tuple[Path, list[dict[str, Any]]], tiny: str, tmp_path: Path) -> None:
    output, whole = zero3
    options = {**UNEVEN, **RESUMABLE, "per_device_train_batch_size": 8, "resume": str(output / "checkpoint-2")}
    resumed = launch(accelerate("zero3_cpu.yaml"), tiny, tmp_path, options)
    for facts, before in zip(resumed, whole, strict=True):
        assert facts["tasks"] == before["tasks"][2:]
        for mine, theirs in zip(steps(facts)[-2:], steps(before)[-2:], strict=True):
            assert mine["step"] == theirs["step"]
            for name in ("reward", "episode/tokens_sampled", "learning_rate"):
                assert mine[name] == pytest.approx(theirs[name], abs=1e-9)
            assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)


def _sharded(rank: int, port: int, folder: str) -> None:
    """One rank: forward passes inside `unsharded` that the other rank does not make, then a training step together."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    from train.sharding import unsharded

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    auto: Any = AutoModelForCausalLM
    model = auto.from_pretrained(folder)
    ids = torch.arange(8)[None]
    wanted = model(ids).logits
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for _ in range(2):
        with unsharded(model), torch.no_grad():
            for _ in range(1 + 4 * rank):
                assert torch.allclose(model(ids).logits, wanted, atol=1e-5)
        whole = sum(weight.numel() for weight in model.parameters())
        assert sum(weight.to_local().numel() for weight in model.parameters()) <= whole // 2 + 64
        model(ids).logits.mean().backward()
        assert all(weight.grad is not None for weight in model.parameters())
    torch.distributed.destroy_process_group()


def test_fsdp2_weights_are_whole_while_ranks_play_and_sharded_after(tiny: str) -> None:
    import torch.multiprocessing as processes

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = processes.spawn(_sharded, args=(port, tiny), nprocs=2, join=False)
    assert context is not None
    for _ in range(24):
        if context.join(timeout=10):
            return
    for process in context.processes:
        process.kill()
    pytest.fail("a rank waited for another one")


def test_fsdp_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import DistributedType

    from agl.errors import UserError
    from train.sharding import check_engine

    def trainer(version: int | None) -> Any:
        plugin = None if version is None else SimpleNamespace(fsdp_version=version)
        state = SimpleNamespace(fsdp_plugin=plugin)
        return SimpleNamespace(accelerator=SimpleNamespace(state=state, distributed_type=DistributedType.MULTI_GPU))

    check_engine(trainer(None))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    check_engine(trainer(2))
    with pytest.raises(UserError, match=r"accelerate has no FSDP on CPUs; use .*zero3_cpu.yaml"):
        check_engine(trainer(None))
    with pytest.raises(UserError, match="expected FSDP version 2, got 1"):
        check_engine(trainer(1))
