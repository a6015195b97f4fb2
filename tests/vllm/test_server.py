"""openai: against a real vLLM server: exact tokens, log-probabilities, stops, native calls, and a killed server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from agl.core import OutcomeKind
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.messages import Injection, Message, Prompt
from agl.policies.build import build_policy
from agl.policies.hf import HfPolicy
from agl.policies.openai_api import OpenAIPolicy
from agl.policies.policy import Dialogue, Policy, Sampling
from agl.rollout import Limits, rollout
from agl.trace import read_episodes
from eval.runner import RunStoppedError, evaluate
from tests.toy_env import ToyEnv
from tests.vllm.conftest import CONTEXT, VllmServer

pytestmark = pytest.mark.vllm

PLAY: Any = None
GRAPH = Prompt(
    messages=(
        Message(role="system", content='Write <think>...</think><graph>{"entity": "NAME"}</graph> and nothing else.'),
        Message(role="user", content="What is the capital of Spain?"),
        Message(role="assistant", content='<think>I look up Spain.</think><graph>{"entity": "Spain"}</graph>'),
        Message(role="user", content="What is the capital of Japan?"),
    )
)


def policy(server: VllmServer, sampling: Sampling | None = None, **options: Any) -> OpenAIPolicy:
    made = build_policy(f"openai:smollm2@{server.url}", sampling or Sampling(max_tokens=40), retries=1, **options)
    assert isinstance(made, OpenAIPolicy)
    return made


async def play(made: Policy, seed: int = 1) -> Dialogue:
    """Three samples with each kind of injection that stays in the context."""
    await made.prepare()
    dialogue = made.open(GRAPH, seed=seed, play=PLAY)
    await dialogue.sample(["</graph>"])
    dialogue.inject(Injection(kind="continue", text="\n<result>Tōkyō</result>\n"))
    await dialogue.sample(["</graph>"])
    dialogue.inject(Injection(kind="turn", messages=(Message(role="user", content="And of Peru?"),)))
    await dialogue.sample(["</graph>"])
    return dialogue


async def test_tokens_equal_those_of_transformers(vllm_server: VllmServer) -> None:
    served = policy(vllm_server)
    local = HfPolicy("smollm2", Sampling(max_tokens=40))
    (log,), (wanted,) = (await play(served)).logs, (await play(local)).logs
    assert served.mode == "tokens"
    assert served.context == CONTEXT
    assert log.ids == wanted.ids
    assert log.spans == wanted.spans
    got, expected = log.row().logprobs, wanted.row().logprobs
    assert got is not None
    assert got == pytest.approx(expected, abs=5e-3)
    await served.aclose()
    await local.aclose()


async def test_sampled_logprobs_are_those_of_a_forward_pass(vllm_server: VllmServer) -> None:
    served = policy(vllm_server, Sampling(temperature=0.8, max_tokens=24))
    await served.prepare()
    dialogue = served.open(GRAPH, seed=3, play=PLAY)
    await dialogue.sample([])
    (log,) = dialogue.logs
    row = log.row()
    local = HfPolicy("smollm2", Sampling())
    with torch.no_grad():
        logits = local.model(torch.tensor([log.ids])).logits[0, len(row.prompt_ids) - 1 : -1] / 0.8
    wanted = torch.log_softmax(logits, -1).gather(-1, torch.tensor(row.completion_ids)[:, None])[:, 0].tolist()
    assert row.logprobs == pytest.approx(wanted, abs=5e-3)
    again = served.open(GRAPH, seed=3, play=PLAY)
    await again.sample([])
    assert again.logs[0].ids == log.ids
    await served.aclose()


async def test_a_stop_string_is_kept_and_an_end_token_is_not_said(vllm_server: VllmServer) -> None:
    served = policy(vllm_server)
    await served.prepare()
    sample = await served.open(GRAPH, seed=1, play=PLAY).sample(["</think>"])
    assert sample.finish == "stop"
    assert sample.text.endswith("</think>")
    dialogue = served.open(Prompt(messages=(Message(role="user", content="Say only: yes"),)), seed=1, play=PLAY)
    sample = await dialogue.sample(["</think>"])
    assert sample.finish == "eos"
    assert "<|im_end|>" not in sample.text
    assert sample.tokens == dialogue.logs[0].count("sampled")
    await served.aclose()


async def test_a_full_context_is_a_length_and_no_error(vllm_server: VllmServer) -> None:
    long = Prompt(messages=(Message(role="user", content="hi " * CONTEXT),))
    for mode in ("tokens", "messages"):
        served = policy(vllm_server, mode=mode)
        await served.prepare()
        assert (await served.open(long, seed=1, play=PLAY).sample([])).finish == "length"
        await served.aclose()


async def test_an_unknown_model_names_those_there_are(vllm_server: VllmServer) -> None:
    with pytest.raises(UserError, match="does not know the model 'other'; it has: smollm2"):
        await OpenAIPolicy("other", vllm_server.url, Sampling()).prepare()


@pytest.mark.parametrize("dialect", ["tags", "tools"])
@pytest.mark.parametrize("mode", ["tokens", "messages"])
async def test_episodes_run_in_both_modes_and_dialects(vllm_server: VllmServer, mode: str, dialect: str) -> None:
    served = policy(vllm_server, Sampling(max_tokens=16), mode=mode)
    env_dialect = dialect_for(ToyEnv(), dialect)
    episodes = await asyncio.gather(
        *(
            rollout(ToyEnv(), task, served, dialect=env_dialect, limits=Limits(max_turns=3, retries=0))
            for task in ToyEnv.tasks(limit=4)
        )
    )
    for episode in episodes:
        assert episode.outcome.kind is not OutcomeKind.INFRA_FAILURE, episode.outcome.error
        assert episode.tokens.sampled > 0
        assert bool(episode.logs) is (mode == "tokens")
    await served.aclose()


def test_a_run_survives_a_killed_server(vllm_server: VllmServer, tmp_path: Path) -> None:
    sampling, limits = Sampling(max_tokens=12), Limits(max_turns=2, retries=0)
    settings: dict[str, Any] = {"limit": 10, "concurrency": 2, "limits": limits, "sampling": sampling}
    out = tmp_path / "run"

    def kill_after_two(progress: Any) -> None:
        if progress.finished == 2:
            vllm_server.kill()

    try:
        with pytest.raises(RunStoppedError, match="infrastructure failures"):
            evaluate("grit", policy(vllm_server, sampling), out=out, on_episode=kill_after_two, **settings)
        before = {episode.key: episode for episode in read_episodes(out / "episodes.jsonl")}
        failed = [episode for episode in before.values() if not episode.is_sample]
        assert len(before) - len(failed) >= 2
        assert all(
            episode.score is None and "no server answers" in str(episode.outcome.error) for episode in failed[1:]
        )
    finally:
        vllm_server.start()
    summary = evaluate("grit", policy(vllm_server, sampling), out=out, resume=True, **settings)
    after = {episode.key: episode for episode in read_episodes(out / "episodes.jsonl")}
    assert summary.n == len(after) == 10
    assert all(episode.is_sample for episode in after.values())
    assert all(after[key] == episode for key, episode in before.items() if episode.is_sample)
