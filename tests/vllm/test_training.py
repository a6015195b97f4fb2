"""Training whose episodes vLLM samples: one model in two engines, and they agree after every transfer of weights."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agl.policies import decoding
from agl.policies.embedded import smollm2_folder
from agl.rollout import Job
from agl.trace import Episode, read_episodes
from tests.test_distributed import UNEVEN, accelerate, launch
from tests.tiny_model import save_tiny
from tests.tiny_trainer import GROUP, steps, turns_trainer
from tests.turns_env import TurnsEnv
from tests.vllm.conftest import VllmServer
from train.rollouts import Player
from train.trainer import EpisodeTrainer
from train.vllm_rollouts import Colocated, CpuGeneration, Served

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

ROUNDING = 1e-4
"""Nats per token, float32 on both sides; weights of one step earlier are more than 0.1 away in these runs."""

COLOCATED: dict[str, Any] = {
    "use_vllm": True,
    "vllm_gpu_memory_utilization": 0.2,
    "vllm_max_model_length": 512,
    "vllm_importance_sampling_mode": "token_truncate",
    "learning_rate": 3e-2,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tied", hidden=64, head=32, tied=True, context=512)


@pytest.fixture
def colocated() -> Iterator[Callable[..., Any]]:
    """Makes trainers; afterwards their engines give their memory back."""
    before = dict(os.environ)
    made: list[Any] = []

    def make(model: str, output: Path, **options: Any) -> Any:
        made.append(turns_trainer(model, output, **{**COLOCATED, "max_steps": 3, **options}))
        return made[-1]

    yield make
    for trainer in made:
        generation = trainer.vllm_generation
        if generation.mode == "colocate":
            generation.llm.llm_engine.engine_core.shutdown()
            del generation.llm
    made.clear()
    gc.collect()
    # What TRL writes for a launched process would make later trainers believe in a launch.
    os.environ.clear()
    os.environ.update(before)


def with_lora(**lora: Any) -> type[EpisodeTrainer]:
    from peft import LoraConfig

    class Adapted(EpisodeTrainer):
        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, peft_config=LoraConfig(task_type="CAUSAL_LM", **lora), **others)

    return Adapted


def requests_of(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that reach the engine from now on; sampling by transformers is an error."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("transformers sampled")

    monkeypatch.setattr("agl.policies.hf.generate", never)
    engine, seen = trainer.vllm_generation.llm.llm_engine, []
    add: Callable[..., Any] = engine.add_request

    def watched(name: str, *arguments: Any, **others: Any) -> Any:
        seen.append(name)
        return add(name, *arguments, **others)

    monkeypatch.setattr(engine, "add_request", watched)
    return seen


def gaps(trainer: Any) -> list[float]:
    """Largest distance in each generation between the log-probabilities of vLLM and of the trainer's forward pass."""
    return [max(entry["sampling/gap_max"], entry["sampling/sampling_logp_difference/max"]) for entry in steps(trainer)]


def sampled_turns(trainer: Any) -> int:
    files = sorted(Path(trainer.args.output_dir, "episodes").glob("*.jsonl"))
    return sum(turn.source == "sampled" for file in files for e in read_episodes(file) for turn in e.transcript)


def greedy(trainer: Any) -> list[Episode]:
    jobs = [Job(task, 0) for task in TurnsEnv.tasks("1,2,3,2,4", seed=5)]
    with trainer._sampler(0.0, len(jobs)) as policy:
        player = Player(trainer._setting, trainer._episodes, policy, seed=1)
        episodes: list[Episode] = trainer._finish(player, jobs).episodes
    return episodes


@pytest.mark.parametrize("lora", [False, True])
def test_vllm_has_the_weights_of_the_trainer_in_every_generation(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any], lora: bool
) -> None:
    options: dict[str, Any] = {"trainer": with_lora(r=8, target_modules=["q_proj", "v_proj", "o_proj"])} if lora else {}
    trainer = colocated(tiny, tmp_path, evaluation="1,2", **options)
    assert isinstance(trainer._vllm, Colocated)
    seen = requests_of(trainer, monkeypatch)
    trainer.train()
    assert len(seen) == sampled_turns(trainer) > 30
    assert len(steps(trainer)) == 3
    assert max(gaps(trainer)) < ROUNDING
    for entry in steps(trainer):
        assert entry["grad_norm"] > 1e-2
        assert entry["outcome/infra_failure"] == 0
        assert entry["sampling/importance_sampling_ratio/mean"] == pytest.approx(1, abs=ROUNDING)

    # The weights of the last step are not in the engine yet: evaluation brings them.
    metrics = trainer.evaluate()
    by_vllm = greedy(trainer)
    monkeypatch.setattr("agl.policies.hf.generate", decoding.generate)
    trainer._vllm = None
    by_transformers = greedy(trainer)
    assert [e.transcript for e in by_vllm] == [e.transcript for e in by_transformers]
    assert [e.score for e in by_vllm] == [e.score for e in by_transformers]
    assert trainer.evaluate()["eval_reward"] == pytest.approx(metrics["eval_reward"], abs=1e-9)


@pytest.mark.parametrize(("fault", "mode"), [("no head", "token_truncate"), ("late", "sequence_mask")])
def test_the_gap_shows_weights_that_did_not_arrive_and_is_corrected_as_trl_does(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any], fault: str, mode: str
) -> None:
    whole = CpuGeneration._weights

    def faulty(self: Any) -> Iterator[tuple[str, Any]]:
        if fault == "late":  # adapters are taken out again before vLLM reads
            return iter(list(self._iter_named_params()))
        return ((name, weight) for name, weight in whole(self) if name != "lm_head.weight")

    monkeypatch.setattr(CpuGeneration, "_weights", faulty)
    options: dict[str, Any] = {}
    if fault == "late":
        options["trainer"] = with_lora(r=8, target_modules=["q_proj", "v_proj", "o_proj"])
    options |= {"source": "1,1", "vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": 1.05}
    trainer = colocated(tiny, tmp_path, max_steps=2, **options)
    ratios = []

    def watched(scored: dict[str, Any]) -> dict[str, Any]:
        # One row per episode: TRL's own ratios are those that several rows would get from us.
        ratios.append((scored["importance_sampling_ratio"], trainer._correction(scored)))
        return with_rows(scored)

    with_rows: Callable[[dict[str, Any]], dict[str, Any]] = trainer._with_rows
    monkeypatch.setattr(trainer, "_with_rows", watched)
    trainer.train()
    first, second = gaps(trainer)
    assert first < ROUNDING
    assert second > 100 * ROUNDING
    for theirs, ours in ratios:
        assert theirs.tolist() == ours.tolist()
    late = ratios[-1][0]
    assert late.max() <= 1.05
    assert (late - 1).abs().max() > 0.04


def test_arpo_measures_entropy_in_the_trainer(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any]
) -> None:
    trainer = colocated(tiny, tmp_path, max_steps=1, arpo={"initial": 2})
    seen = requests_of(trainer, monkeypatch)
    trainer.train()
    (entry,) = steps(trainer)
    assert seen
    assert 0 < entry["branching/entropy_initial"] <= 1
    assert gaps(trainer)[0] < ROUNDING


def test_smollm2_learns_as_lora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any]) -> None:
    trainer = colocated(
        str(smollm2_folder()),
        tmp_path,
        source="2",
        max_steps=2,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        trainer=with_lora(r=8, target_modules=["q_proj", "v_proj"]),
    )
    seen = requests_of(trainer, monkeypatch)
    trainer.train()
    assert len(seen) == sampled_turns(trainer) > 0
    assert max(gaps(trainer)) < 1e-3
    assert all(entry["grad_norm"] > 1e-3 for entry in steps(trainer))


def test_an_engine_that_breaks_is_counted_and_the_next_generation_goes_on(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any]
) -> None:
    trainer = colocated(tiny, tmp_path, max_steps=2)
    engine = trainer.vllm_generation.llm.llm_engine
    step, calls = engine.step, []

    def breaks_once() -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return step()

    monkeypatch.setattr(engine, "step", breaks_once)
    trainer.train()
    first, second = steps(trainer)
    assert first["outcome/infra_failure"] == 1
    assert second["outcome/infra_failure"] == 0
    assert second["sampling/gap_max"] < ROUNDING


def test_two_ranks_have_an_engine_each_and_different_numbers_of_turns(tiny: str, tmp_path: Path) -> None:
    options = {
        **UNEVEN,
        **COLOCATED,
        "per_device_train_batch_size": GROUP,
        "source": "0,1,5,2",
        "eval_strategy": "steps",
        "eval_steps": 1,
    }
    first, second = launch(accelerate("ddp_cpu.yaml"), tiny, tmp_path, options)
    assert (first["engine"], second["engine"]) == ("DistributedDataParallel", "DistributedDataParallel")
    assert first["tasks"] != second["tasks"]
    logged = [entry for entry in first["history"] if "loss" in entry]
    assert len(logged) == 2
    for entry in logged:
        assert entry["episodes"] == 2 * GROUP
        assert entry["grad_norm"] > 1e-2
        assert max(entry["sampling/gap_max"], entry["sampling/sampling_logp_difference/max"]) < ROUNDING
    assert sum("eval_reward" in entry for entry in first["history"]) == 2


def test_episodes_of_a_server_are_rows_of_the_trainer(
    vllm_server: VllmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colocated: Callable[..., Any]
) -> None:
    # The weights of the first step are those of the server; there is no NCCL here that could bring later ones.
    sent: list[int] = []
    monkeypatch.setattr("trl.generation.vllm_client.VLLMClient.init_communicator", lambda *_, **__: None)
    monkeypatch.setattr(CpuGeneration, "sync_weights", lambda _: sent.append(1))
    trainer = colocated(
        str(smollm2_folder()),
        tmp_path,
        source="1",
        max_steps=1,
        per_device_train_batch_size=4,
        trainer=with_lora(r=4, target_modules=["q_proj"]),
        vllm_mode="server",
        vllm_server_base_url=vllm_server.url.removesuffix("/v1"),
    )
    assert isinstance(trainer._vllm, Served)
    assert not hasattr(trainer.vllm_generation, "llm")
    trainer.train()
    (entry,) = steps(trainer)
    assert sent == [1]
    assert entry["outcome/infra_failure"] == 0
    assert entry["grad_norm"] > 1e-3
    assert gaps(trainer)[0] < 5e-3


def test_a_policy_on_a_handed_engine_leaves_it_alive(tiny: str, tmp_path: Path, colocated: Callable[..., Any]) -> None:
    trainer = colocated(tiny, tmp_path)
    llm = trainer.vllm_generation.llm
    first = greedy(trainer)
    assert trainer.vllm_generation.llm is llm
    assert [e.transcript for e in greedy(trainer)] == [e.transcript for e in first]
