"""Training on a server that fails, hangs or dies: each fault is counted once, and the run goes on or ends clearly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from agl.core import OutcomeKind
from agl.errors import InfraError
from agl.trace import Episode, read_episodes
from tests.completions_server import CompletionsServer, Fault, completions_server
from tests.tiny_model import save_tiny
from tests.tiny_trainer import GROUP, steps, turns_trainer
from train.vllm_rollouts import Served

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def server(tiny: str) -> Iterator[CompletionsServer]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(tiny)
    with completions_server(model.eval(), AutoTokenizer.from_pretrained(tiny)) as made:
        yield made


def served_trainer(tiny: str, output: Path, server: CompletionsServer, *, timeout: float = 30, **options: Any) -> Any:
    """A trainer whose turns go to the server, and its weights in memory instead of through NCCL."""
    trainer = turns_trainer(tiny, output, **options)
    trainer._vllm = Served(server.url, "tiny", lambda: server.take(trainer.model.state_dict()), timeout=timeout)
    return trainer


def played(trainer: Any) -> list[list[Episode]]:
    """Episodes of each generation."""
    files = sorted(Path(trainer.args.output_dir, "episodes").glob("*.jsonl"))
    return [list(read_episodes(file)) for file in files]


def failed(episodes: list[Episode]) -> list[Episode]:
    return [episode for episode in episodes if episode.outcome.kind is OutcomeKind.INFRA_FAILURE]


def test_a_sound_server_gives_the_rows_of_transformers(tiny: str, tmp_path: Path, server: CompletionsServer) -> None:
    trainer = served_trainer(tiny, tmp_path / "served", server)
    trainer.train()
    local = turns_trainer(tiny, tmp_path / "local")
    local.train()
    for ours, theirs in zip(played(trainer), played(local), strict=True):
        assert [episode.transcript for episode in ours] == [episode.transcript for episode in theirs]
    assert server.transfers == 2
    assert [entry["grad_norm"] for entry in steps(trainer)] == pytest.approx(
        [entry["grad_norm"] for entry in steps(local)], rel=1e-3
    )
    assert max(entry["sampling/gap_max"] for entry in steps(trainer)) < 1e-4


def test_errors_are_retried_then_abstain_and_the_counts_add_up(
    tiny: str, tmp_path: Path, server: CompletionsServer
) -> None:
    met: set[int] = set()

    def fault(prompt: str, seed: int) -> Fault:
        """Topic 0 always fails, topic 1 in the first attempt of each episode (a retry has the same seed)."""
        first = seed not in met
        met.add(seed)
        return "error" if "topic 0" in prompt or ("topic 1" in prompt and first) else None

    server.fault = fault
    trainer = served_trainer(tiny, tmp_path, server, source="1,2,3,2", max_steps=2, episode_retries=1)
    trainer.train()
    generations = played(trainer)
    episodes = [episode for generation in generations for episode in generation]
    lost = failed(episodes)
    assert len(episodes) == 4 * GROUP
    assert {str(episode.task["topic"]) for episode in lost} == {"topic 0"}
    assert len(lost) == GROUP
    # Each failed attempt met one error: the last one of an episode that was lost, or one that was tried again.
    assert server.failed == len(lost) + sum(episode.outcome.retries for episode in episodes) == 3 * GROUP
    assert server.answered == sum(turn.source == "sampled" for episode in episodes for turn in episode.transcript)
    for entry, generation in zip(steps(trainer), generations, strict=True):
        assert entry["episodes"] == len(generation) == 2 * GROUP
        assert entry["outcome/infra_failure"] * entry["episodes"] == len(failed(generation))
        assert entry["outcome/ok"] + entry["outcome/policy_failure"] + entry["outcome/infra_failure"] == 1
        assert entry["episode/retries"] * entry["episodes"] == sum(e.outcome.retries for e in generation)
        assert entry["grad_norm"] > 1e-4
        assert entry["sampling/gap_max"] < 1e-4
    assert all("status 500: CUDA out of memory" in str(episode.outcome.error) for episode in lost)
    assert all(episode.score is None for episode in lost)


def test_a_request_that_hangs_costs_its_episode_the_deadline_and_no_more(
    tiny: str, tmp_path: Path, server: CompletionsServer
) -> None:
    server.fault = lambda prompt, seed: "hang" if "topic 1" in prompt else None
    trainer = served_trainer(tiny, tmp_path, server, timeout=4, episode_deadline=4.0, max_steps=2)
    trainer.train()
    episodes = [episode for generation in played(trainer) for episode in generation]
    lost = failed(episodes)
    assert server.hung == len(lost) == GROUP
    assert all("4 s" in str(episode.outcome.error) for episode in lost)
    assert sum(entry["outcome/infra_failure"] * entry["episodes"] for entry in steps(trainer)) == len(lost)
    assert all(entry["grad_norm"] > 1e-4 for entry in steps(trainer))


def test_a_server_that_dies_ends_the_run_after_three_generations(
    tiny: str, tmp_path: Path, server: CompletionsServer
) -> None:
    trainer = served_trainer(tiny, tmp_path, server, max_steps=6, max_infra_share=0.05)
    # The weights still find their way; only the requests do not.
    trainer._vllm = Served(server.url, "tiny", lambda: None, timeout=30)

    def fault(prompt: str, seed: int) -> Fault:
        if server.answered >= 30:
            threading.Thread(target=server.die).start()
        return None

    server.fault = fault
    with pytest.raises(InfraError) as caught:
        trainer.train()
    said = str(caught.value)
    assert "8 of 8 episodes failed for the machinery's fault, the 3rd generation in a row" in said
    assert f"no server answers at {server.url}" in said
    assert "\n" not in said
    lost = [len(failed(generation)) for generation in played(trainer)]
    sound = lost.index(next(filter(None, lost)))
    assert 1 <= sound == len(lost) - 3
    assert [entry["outcome/infra_failure"] * 8 for entry in steps(trainer)] == lost[:-1]


def test_weights_that_a_dead_server_does_not_take_end_the_run_at_once(
    tiny: str, tmp_path: Path, server: CompletionsServer
) -> None:
    trainer = served_trainer(tiny, tmp_path, server, max_steps=3)
    server.die()
    with pytest.raises(InfraError, match=f"the vLLM server at {server.url} did not take the weights: conn"):
        trainer.train()
