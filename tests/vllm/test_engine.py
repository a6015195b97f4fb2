"""vllm: in this process: the same tokens as transformers, many dialogues at once, and a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agl.core import OutcomeKind
from agl.errors import InfraError, UserError
from agl.policies import hf
from agl.policies.build import build_policy
from agl.policies.hf import HfPolicy
from agl.policies.policy import Sampling
from agl.policies.vllm_engine import VllmPolicy
from agl.rollout import Limits, rollout
from tests.toy_env import ToyEnv
from tests.vllm.test_server import GRAPH, play

pytestmark = pytest.mark.vllm

PLAY: Any = None


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmPolicy]:
    made = build_policy("vllm:smollm2", Sampling(max_tokens=40), max_model_len=2048)
    assert isinstance(made, VllmPolicy)
    yield made
    asyncio.run(made.aclose())


async def test_tokens_equal_those_of_transformers(engine: VllmPolicy) -> None:
    local = HfPolicy("smollm2", Sampling(max_tokens=40))
    (log,), (wanted,) = (await play(engine)).logs, (await play(local)).logs
    assert log.ids == wanted.ids
    assert log.spans == wanted.spans
    assert log.row().logprobs == pytest.approx(wanted.row().logprobs, abs=5e-3)
    await local.aclose()


async def test_episodes_run_together(engine: VllmPolicy) -> None:
    episodes = await asyncio.gather(
        *(rollout(ToyEnv(), task, engine, limits=Limits(max_turns=2)) for task in ToyEnv.tasks(limit=6))
    )
    for episode in episodes:
        assert episode.outcome.kind is not OutcomeKind.INFRA_FAILURE, episode.outcome.error
        assert episode.tokens.sampled == sum(log.count("sampled") for log in episode.logs) > 0


async def test_a_cancelled_dialogue_leaves_the_engine_to_the_others(engine: VllmPolicy) -> None:
    leaves = engine.open(GRAPH, seed=1, play=PLAY)
    stays = engine.open(GRAPH, seed=2, play=PLAY)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(leaves.sample([]), 0.05)
    assert (await stays.sample(["</graph>"])).finish == "stop"


def test_one_engine_serves_one_loop_after_another(engine: VllmPolicy) -> None:
    async def once() -> str:
        return (await engine.open(GRAPH, seed=1, play=PLAY).sample(["</think>"])).text

    assert asyncio.run(once()) == asyncio.run(once())


def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="vLLM cannot run"):
        VllmPolicy(str(tmp_path), Sampling())


def test_an_adapter_is_served_on_its_base(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = hf.load("smollm2", device="cpu")[0]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.fill_(0.02)
    adapted.save_pretrained(tmp_path)

    async def logs(made: VllmPolicy | HfPolicy) -> Any:
        dialogue = made.open(GRAPH, seed=1, play=PLAY)
        await dialogue.sample([])
        await made.aclose()
        return dialogue.logs[0].row()

    sampling = Sampling(max_tokens=8)
    got = asyncio.run(logs(VllmPolicy(str(tmp_path), sampling, max_model_len=1024)))
    wanted = asyncio.run(logs(HfPolicy(str(tmp_path), sampling)))
    assert got.completion_ids == wanted.completion_ids
    assert got.logprobs == pytest.approx(wanted.logprobs, abs=2e-2)


async def test_a_broken_engine_is_an_infrastructure_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    made = VllmPolicy("smollm2", Sampling(max_tokens=40), max_model_len=512)

    def step() -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(made._llm.llm_engine, "step", step)
    for _ in range(2):
        with pytest.raises(InfraError, match="the vLLM engine stopped: out of memory"):
            await asyncio.wait_for(made.open(GRAPH, seed=1, play=PLAY).sample([]), 60)
    await made.aclose()
