"""GRPO end to end: a model with random weights and a real tokenizer learns from AGL episodes."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agl.core import OutcomeKind
from agl.policies.policy import Sampling
from agl.rollout import Limits, rollout
from agl.trace import Episode, read_episodes
from tests.tiny_model import save_tiny
from tests.tiny_trainer import quiet_config
from tests.word_env import WordEnv, Words
from train.groups import group

pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.model]

GROUP = 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Qwen3 of two layers with random weights, under the tokenizer of the embedded model."""
    from transformers import AutoTokenizer

    from agl.policies.embedded import smollm2_folder

    folder = tmp_path_factory.mktemp("model") / "tiny"
    return save_tiny(folder, AutoTokenizer.from_pretrained(smollm2_folder()), context=512)


@dataclass
class Run:
    """A finished run and what passed through it: outputs of each generation, inputs of each loss."""

    output: Path
    generations: list[dict[str, Any]]
    played: list[list[Episode]]
    losses: list[tuple[dict[str, Any], float]]
    history: list[dict[str, Any]]
    changed: int
    parameters: int


def train(model: str, output: Path, *, source: str | None = None, **options: Any) -> Run:
    """Three steps on one thread."""
    import torch
    from peft import LoraConfig
    from transformers import AutoTokenizer

    from train.options import EpisodeArguments
    from train.setting import Setting
    from train.trainer import EpisodeTrainer

    torch.set_num_threads(1)
    lora, scale = options.pop("lora", False), options.pop("scale_rewards", "group")
    fixed: dict[str, Any] = {"max_turn_tokens": 12, "max_infra_share": 1.0, "episode_retries": 0}
    episodes = EpisodeArguments(environment="word", **{**fixed, **options})
    setting = Setting(WordEnv, WordEnv.task_type, WordEnv.tasks(source), Words(WordEnv.actions), 0)
    generations: list[dict[str, Any]] = []
    played: list[list[Episode]] = []
    losses: list[tuple[dict[str, Any], float]] = []

    class Watched(EpisodeTrainer):
        def _rows_of(self, episodes: Any, dropped: Any) -> Any:
            played.append(list(episodes))
            return super()._rows_of(episodes, dropped)

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            generations.append(super()._generate_and_score_completions(inputs))
            return generations[-1]

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            loss = super()._compute_loss(model, inputs)
            losses.append((dict(inputs), loss.item()))
            return loss

    trainer = Watched(
        setting,
        episodes,
        model=model,
        args=quiet_config(
            output,
            per_device_train_batch_size=2 * GROUP,
            num_generations=GROUP,
            scale_rewards=scale,
            max_completion_length=64,
            max_steps=3,
            learning_rate=1e-3,
            save_strategy="steps",
            save_steps=3,
        ),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if lora else None,
    )
    trained = [(name, weight) for name, weight in trainer.model.named_parameters() if weight.requires_grad]
    before = {name: weight.detach().clone() for name, weight in trained}
    trainer.train()
    return Run(
        output=output,
        generations=generations,
        played=played,
        losses=losses,
        history=[entry for entry in trainer.state.log_history if "loss" in entry],
        changed=sum(not torch.equal(weight, before[name]) for name, weight in trained),
        parameters=len(trained),
    )


@pytest.fixture(scope="module")
def run(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny, tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def shaky(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny, tmp_path_factory.mktemp("shaky"), source="shaky")


def test_each_step_has_a_gradient_and_moves_the_weights(run: Run) -> None:
    assert len(run.history) == 3
    for entry in run.history:
        assert math.isfinite(entry["grad_norm"])
        assert entry["grad_norm"] > 1e-4
    assert run.changed == run.parameters > 0


def test_rows_come_in_the_order_of_the_prompts_and_members_of_a_group_differ(run: Run) -> None:
    for episodes in run.played:
        for start in range(0, len(episodes), GROUP):
            members = episodes[start : start + GROUP]
            assert len({episode.task["id"] for episode in members}) == 1
            assert [episode.attempt for episode in members] == list(range(GROUP))
            assert len({tuple(episode.logs[0].ids) for episode in members}) > 1


def test_mask_that_reaches_the_loss_is_provenance(run: Run) -> None:
    logs = {}
    for episode in (episode for episodes in run.played for episode in episodes):
        row = episode.logs[0].row()
        logs[tuple(row.prompt_ids), tuple(row.completion_ids)] = row
        assert episode.logs[0].count("injected") > 0 or len(episode.events) == 1
    seen = 0
    for inputs, _ in run.losses:
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        for place in range(len(mask)):
            prompt = inputs["prompt_ids"][place][inputs["prompt_mask"][place].bool()].tolist()
            real = inputs["completion_mask"][place].bool()
            row = logs[tuple(prompt), tuple(inputs["completion_ids"][place][real].tolist())]
            assert mask[place][real].tolist() == row.mask
            assert mask[place][~real].sum() == 0
            seen += row.mask.count(0)
    assert seen > 0


def test_loss_is_that_of_the_sampled_tokens_alone(run: Run) -> None:
    """On-policy all ratios are 1, so the loss is minus the advantages, weighted by sampled tokens."""
    for inputs, loss in run.losses:
        trained = (inputs["completion_mask"] * inputs["tool_mask"]).sum(-1)
        expected = -(inputs["advantages"] * trained).sum() / trained.sum()
        assert loss == pytest.approx(expected.item(), abs=1e-5)


def test_trainer_and_sampler_agree_about_every_sampled_token(run: Run) -> None:
    for entry in run.history:
        assert entry["sampling/gap_max"] < 1e-3


def check_advantages(run: Run, scale: str = "group") -> None:
    """What abstains has no advantage; all others have that of a group, or a batch, without it."""
    for episodes, output in zip(run.played, run.generations, strict=True):
        every = [episode.score.reward for episode in episodes if episode.score]
        for start in range(0, len(episodes), GROUP):
            rewards = [e.score.reward if e.score else None for e in episodes[start : start + GROUP]]
            found = group(rewards)
            spread = _deviation(every if scale == "batch" else [reward for reward in rewards if reward is not None])
            unit = 1.0 if scale == "none" else spread + 1e-4
            expected = [0.0 if value is None else value / unit for value in found.centred]
            assert output["advantages"][start : start + GROUP].tolist() == pytest.approx(expected, abs=1e-3)


def survivors(run: Run) -> set[int]:
    """How many members of a group were samples, for all groups."""
    return {
        sum(episode.is_sample for episode in episodes[start : start + GROUP])
        for episodes in run.played
        for start in range(0, len(episodes), GROUP)
    }


def _deviation(rewards: list[float]) -> float:
    return statistics.stdev(rewards) if len(rewards) > 1 else 0.0


def test_advantages_are_those_of_the_group(run: Run) -> None:
    check_advantages(run)


def test_failed_machinery_abstains(shaky: Run) -> None:
    check_advantages(shaky)
    assert 1 in survivors(shaky)
    assert survivors(shaky) & {2, 3}
    failed = 0
    for episodes, output in zip(shaky.played, shaky.generations, strict=True):
        mask = output["completion_mask"] * output["tool_mask"]
        for place, episode in enumerate(episodes):
            if episode.outcome.kind is OutcomeKind.INFRA_FAILURE:
                failed += 1
                assert episode.score is None
                assert mask[place].sum() == 0
                assert output["advantages"][place] == 0
            else:
                assert mask[place].sum() > 0
    assert failed > 0
    total = sum(len(episodes) for episodes in shaky.played)
    assert sum(entry["outcome/infra_failure"] for entry in shaky.history) / 3 == pytest.approx(failed / total)
    assert all(math.isfinite(entry["grad_norm"]) for entry in shaky.history)


@pytest.mark.parametrize("scale", ["batch", "none"])
def test_what_abstains_counts_nowhere_however_rewards_are_scaled(tiny: str, tmp_path: Path, scale: str) -> None:
    found = train(tiny, tmp_path, source="shaky", scale_rewards=scale)
    check_advantages(found, scale)
    assert survivors(found) & {1, 2, 3}


def test_machinery_that_keeps_failing_ends_the_run() -> None:
    from agl.errors import InfraError
    from train.earned import earned
    from train.options import EpisodeArguments
    from train.trainer import EpisodeTrainer

    episode = Episode.model_validate_json(_FAILED)
    trainer = EpisodeTrainer.__new__(EpisodeTrainer)
    trainer._episodes = EpisodeArguments(max_infra_share=0.5)
    trainer._strikes = 0
    trainer._watch([earned(episode)])
    trainer._watch([earned(episode)])
    with pytest.raises(InfraError, match="the word server is down"):
        trainer._watch([earned(episode)])


_FAILED = """{"task": {"id": "a"}, "attempt": 0, "policy": "p", "dialect": "words", "transcript": [], "events": [],
"score": null, "outcome": {"kind": "infra_failure", "stop": "error", "error": "the word server is down"},
"tokens": {}, "seconds": {"model": 0, "framework": 0, "total": 0}}"""


def test_cut_episodes_can_be_left_out_of_the_gradient(tiny: str, tmp_path: Path) -> None:
    found = train(tiny, tmp_path, truncated_episodes="mask", max_turn_tokens=2)
    check_advantages(found)
    cut = 0
    for episodes, output in zip(found.played, found.generations, strict=True):
        mask = output["completion_mask"] * output["tool_mask"]
        for place, episode in enumerate(episodes):
            if episode.outcome.stop == "max_tokens":
                cut += 1
                assert mask[place].sum() == 0
    assert cut > 0


def test_episodes_are_on_disk(run: Run) -> None:
    files = sorted((run.output / "episodes").iterdir())
    assert [file.name for file in files] == [f"{step:06d}-0-rank0.jsonl" for step in range(3)]
    for file, episodes in zip(files, run.played, strict=True):
        assert [episode.key for episode in read_episodes(file)] == [episode.key for episode in episodes]


async def play(model: Path, task: Any) -> Episode:
    """One episode of the model in a folder, as evaluation plays it."""
    from agl.policies.hf import HfPolicy

    policy = HfPolicy(str(model), Sampling(max_tokens=12), device="cpu")
    episode = await rollout(WordEnv(), task, policy, dialect=Words(WordEnv.actions), limits=Limits(deadline=60))
    await policy.aclose()
    return episode


async def test_prompt_is_that_of_evaluation_and_the_checkpoint_plays(run: Run) -> None:
    trained = run.played[0][0]
    played = await play(run.output / "checkpoint-3", WordEnv.task_type.model_validate(trained.task))
    assert played.is_sample
    shown = [turn for turn in trained.transcript if turn.source == "prompt"]
    assert [turn for turn in played.transcript if turn.source == "prompt"] == shown
    assert played.logs[0].row().prompt_ids == trained.logs[0].row().prompt_ids


def test_planned_prompt_lengths_are_those_of_the_rows(run: Run) -> None:
    from transformers import AutoTokenizer

    from agl.policies.chat_template import ChatTemplate
    from train.setting import Setting, prompt_lengths

    setting = Setting(WordEnv, WordEnv.task_type, WordEnv.tasks(), Words(WordEnv.actions), 0)
    template = ChatTemplate(AutoTokenizer.from_pretrained(run.output / "checkpoint-3"))
    planned = dict(zip([task.id for task in setting.tasks], prompt_lengths(setting, template), strict=True))
    for episode in (episode for episodes in run.played for episode in episodes):
        assert planned[episode.task["id"]] == len(episode.logs[0].row().prompt_ids)


def test_a_finished_run_is_not_resumed(run: Run) -> None:
    from agl.errors import UserError
    from train.program import refuse_finished

    checkpoint = str(run.output / "checkpoint-3")
    refuse_finished(checkpoint, 4)
    with pytest.raises(UserError, match="at step 3 of 3; raise max_steps"):
        refuse_finished(checkpoint, 3)
    with pytest.raises(UserError, match="expected a checkpoint folder"):
        refuse_finished(str(run.output), 3)


@pytest.fixture(scope="module")
def adapter(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny, tmp_path_factory.mktemp("lora"), lora=True)


async def test_adapter_trains_and_loads(adapter: Run) -> None:
    assert all(entry["grad_norm"] > 1e-6 for entry in adapter.history)
    assert adapter.changed > 0
    assert (adapter.output / "checkpoint-3" / "adapter_config.json").is_file()
    assert (await play(adapter.output / "checkpoint-3", WordEnv.tasks()[0])).is_sample


def test_program_trains_saves_and_says_what_it_does(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM

    from agl.registry import register
    from train.grpo import main

    register("word", "tests.word_env:WordEnv")
    output = tmp_path / "out"
    flags = {
        "environment": "word",
        "model_name_or_path": tiny,
        "num_generations": "4",
        "per_device_train_batch_size": "4",
        "max_prompt_tokens": "256",
        "max_turn_tokens": "8",
        "max_completion_length": "32",
        "max_steps": "1",
        "use_cpu": "true",
        "bf16": "false",
        "report_to": "none",
        "save_strategy": "no",
        "output_dir": str(output),
    }
    main([word for name, value in flags.items() for word in (f"--{name}", value)])
    said = capsys.readouterr().out
    assert "1 prompts x 4 = 4 rows, 4 on each of 1 ranks" in " ".join(said.split())
    assert f"agl eval word --policy hf:{output}" in said
    auto: Any = AutoModelForCausalLM
    assert auto.from_pretrained(output).num_parameters() > 0
    assert len(list((output / "episodes").iterdir())) == 1


def test_wrong_flag_ends_the_program_in_one_sentence() -> None:
    import subprocess
    import sys

    program = Path(__file__).resolve().parent.parent / "train" / "grpo.py"
    ended = subprocess.run(
        [sys.executable, str(program), "--model_name_or_path", "smollm2", "--shotz", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2
    assert "unknown option 'shotz' given; did you mean 'shots'?" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_newest_checkpoint_is_meant_by_last(tmp_path: Path) -> None:
    from agl.errors import UserError
    from train.program import checkpoint

    for step in (2, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert checkpoint("last", str(tmp_path)) == str(tmp_path / "checkpoint-10")
    assert checkpoint(None, str(tmp_path)) is None
    assert checkpoint("elsewhere", str(tmp_path)) == "elsewhere"
    with pytest.raises(UserError, match="got none"):
        checkpoint("true", str(tmp_path / "empty"))
