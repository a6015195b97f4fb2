"""A training config is checked before weights load: names, values, arithmetic, context, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl")

from agl.cli import build
from agl.errors import UserError
from train.memory import MemoryPlan, count_parameters, memory_plan, model_config
from train.options import EpisodeArguments, read_arguments, refuse_inert
from train.plan import make_plan, plan_file
from train.setting import setting
from train.vllm_options import refuse_machine

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
TINY = CONFIGS / "train" / "grit_tiny_cpu.yaml"


def changed(tmp_path: Path, **values: Any) -> Path:
    """The tiny config with other values."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(TINY.read_text()), **values}))
    return file


def test_tiny_config_reads_as_the_program_reads_it() -> None:
    episodes, grpo, model = read_arguments(["--config", str(TINY), "--num_generations", "2", "--shots", "2"])
    assert episodes.environment == "grit"
    assert episodes.shots == 2
    assert grpo.num_generations == 2
    assert model.model_name_or_path == "smollm2"
    refuse_inert(vars(grpo))


@pytest.mark.model
def test_plan_of_the_tiny_config() -> None:
    plan = plan_file(TINY)
    assert plan.batch.rows_per_generation == plan.batch.prompts_per_generation * plan.batch.group_size
    assert plan.prompt_tokens is not None
    assert plan.prompt_tokens[1] <= plan.max_prompt_tokens
    assert plan.memory is not None
    assert plan.memory.parameters == 134_515_008
    assert plan.model_context == 8192


def test_plan_of_grain_is_the_arithmetic_of_the_paper() -> None:
    plan = plan_file(CONFIGS / "train" / "grain_grpo_qwen3_4b.yaml", accelerate=CONFIGS / "accelerate" / "zero3.yaml")
    assert plan.batch.ranks == 4
    assert plan.batch.prompts_per_generation == 16
    assert plan.batch.prompts_per_step == 4
    assert plan.batch.group_size == 8
    assert plan.batch.prompts == 17_280
    assert (plan.max_prompt_tokens, plan.response_tokens) == (24_000, 12_000)
    assert plan.epochs == 2
    assert plan.total_steps == 2 * 4 * (17_280 // 16)
    assert plan.memory is not None
    assert plan.memory.engine_share == 0.35
    assert any(name == "vLLM (estimate)" for name, _ in plan.lines())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_prompt_token": 5}, "did you mean 'max_prompt_tokens'"),
        ({"num_generation": 5}, "did you mean 'num_generations'"),
        ({"zzz": 5}, "unknown option 'zzz'"),
        ({"env": "grit"}, "write environment: grit"),
        ({"environment": "gritt"}, "did you mean 'grit'"),
        ({"environment_options": {"nope": 1}}, "environment_options: .*nope"),
        ({"task_facets": {"form": "odd"}}, "its values are realistic, standard"),
        ({"task_facets": {"colour": "red"}}, "the facets are task, form, scheme"),
        ({"truncated_episodes": "drop"}, "option truncated_episodes: input should be 'train', 'mask' or 'abstain'"),
        ({"shots": -1}, "option shots: .*greater than or equal to 0, got -1"),
        ({"episode_deadline": "soon"}, "option episode_deadline"),
        ({"dialect": "runes"}, "expected a dialect out of"),
        ({"num_generations": 5}, r"per_device_train_batch_size\) to 5, or the group size"),
        ({"top_p": 0.9}, "option top_p: expected 1.0, got 0.9"),
        ({"ds3_gather_for_generation": False}, "wait for ever"),
        ({"mask_truncated_completions": True}, "truncated_episodes: mask"),
        ({"temperature": 0.0}, "option temperature"),
        ({"max_completion_length": 8000}, "smollm2 holds 8192; lower one of them"),
        ({"max_completion_length": 0}, "option max_completion_length: expected at least 1 token, got 0"),
        ({"max_steps": 0}, "option max_steps: expected at least 1, or -1"),
        ({"max_prompt_tokens": 100}, "option max_prompt_tokens: .*set it to at least"),
        ({"model_name_or_path": "./no/such"}, "there is no folder"),
        ({"loss_type": 7, "num_iterations": 0}, "iterations of at least 1"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 2}, "option vllm_tensor_parallel_size: expected 1, got 2"),
        ({"use_vllm": True, "vllm_mode": "far"}, "option vllm_mode: expected colocate or server, got 'far'"),
        ({"use_vllm": True, "vllm_max_model_length": 99}, r"max_prompt_tokens \+ max_completion_length = \d+, got 99"),
        (
            {"use_vllm": True, "vllm_mode": "server", "vllm_enable_sleep_mode": True},
            "option vllm_enable_sleep_mode: a server does not sleep",
        ),
    ],
)
@pytest.mark.model
def test_wrong_option_is_one_sentence_with_the_cure(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        plan_file(changed(tmp_path, **values))
    assert "\n" not in str(refused.value)


def test_wrong_flag_is_one_sentence_with_the_cure() -> None:
    with pytest.raises(UserError, match="did you mean 'max_turn_tokens'"):
        read_arguments(["--config", str(TINY), "--max_turn_token", "5"])
    with pytest.raises(UserError, match="environment_options"):
        read_arguments(["--config", str(TINY), "--environment_options", "[1]"])
    with pytest.raises(UserError, match="does not exist"):
        read_arguments(["--config", "nowhere.yaml"])
    with pytest.raises(UserError, match="argument --shots: invalid int value: 'many'; correct it"):
        read_arguments(["--config", str(TINY), "--shots", "many"])
    with pytest.raises(UserError, match="--truncated_episodes"):
        read_arguments(["--config", str(TINY), "--truncated_episodes", "drop"])
    with pytest.raises(UserError, match="expected options"):
        read_arguments(["--config", str(TINY), "stray"])


def test_ranks_that_wait_longer_than_the_launcher_are_refused() -> None:
    _, grpo, model = read_arguments(["--config", str(TINY)])
    slow = EpisodeArguments(episode_deadline=1000.0, episode_retries=1)
    with pytest.raises(UserError, match=r"a rank may wait 2000 s .* raise ddp_timeout"):
        make_plan(slow, vars(grpo), vars(model), prompts=64, ranks=2)


def test_facets_choose_tasks_in_order() -> None:
    wanted = {"form": "standard", "task": "bfs"}
    found = setting(EpisodeArguments(task_facets=wanted, task_limit=3))
    every = setting(EpisodeArguments()).tasks
    cls = type(found.make_env())
    assert list(found.tasks) == [task for task in every if wanted.items() <= cls.facets(task).items()][:3]


def test_parameters_are_counted_without_weights() -> None:
    base = model_config("Qwen/Qwen3-4B-Base", hub=False)
    plain = {"use_peft": False}
    assert count_parameters(base, plain) == (4_022_468_096, 4_022_468_096)
    lora = {"use_peft": True, "lora_r": 16, "lora_target_modules": ["q_proj"], "lora_task_type": "CAUSAL_LM"}
    whole, trained = count_parameters(base, lora)
    assert trained == 36 * 16 * (2560 + 4096)
    assert whole == 4_022_468_096 + trained


def test_memory_grows_with_what_it_should() -> None:
    base = model_config("Qwen/Qwen3-4B-Base", hub=False)
    grpo = {"bf16": True, "per_device_train_batch_size": 1, "gradient_checkpointing": True, "use_vllm": False}
    model = {"use_peft": False, "dtype": "bfloat16"}
    one = memory_plan(base, grpo, model, ranks=1, zero3=False, rows_generated=4, tokens=2000)
    four = memory_plan(base, grpo, model, ranks=4, zero3=True, rows_generated=4, tokens=2000)
    open_ = memory_plan(
        base, {**grpo, "gradient_checkpointing": False}, model, ranks=1, zero3=False, rows_generated=4, tokens=2000
    )
    assert one.states == 4 * four.states == 16 * one.parameters
    assert four.sampling > one.sampling
    assert open_.backward > one.backward
    # 2 x 36 layers x 8 heads x 128 numbers of 2 bytes for each of 8,000 tokens
    assert one.sampling == 8000 * 2 * 36 * 8 * 128 * 2


def test_memory_counts_a_colocated_engine_and_what_it_leaves() -> None:
    base = model_config("Qwen/Qwen3-4B-Base", hub=False)
    grpo: dict[str, Any] = {"bf16": True, "per_device_train_batch_size": 1, "gradient_checkpointing": True}
    grpo |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.25}

    def plan(**options: Any) -> MemoryPlan:
        given = {**grpo, **options}
        model = {"use_peft": False, "dtype": "bfloat16"}
        return memory_plan(base, given, model, ranks=4, zero3=True, rows_generated=4, tokens=2000)

    awake = plan()
    # bfloat16 weights and one row of 2,000 tokens; the trainer gets the three quarters that are left.
    assert awake.engine == 2 * awake.parameters + 2000 * 2 * 36 * 8 * 128 * 2
    assert awake.smallest_gpu == max(awake.peak / 0.75, awake.engine / 0.25)
    asleep = plan(vllm_enable_sleep_mode=True)
    assert asleep.smallest_gpu == max(asleep.peak, asleep.states / 0.75, asleep.engine / 0.25)
    on_cpu = plan(use_cpu=True)
    assert on_cpu.peak == on_cpu.states + on_cpu.backward + on_cpu.engine
    assert on_cpu.engine == 4 * on_cpu.parameters + 2**30
    served = plan(vllm_mode="server")
    assert served.engine == served.sampling == 0
    assert served.smallest_gpu == served.peak


def test_long_episodes_are_not_dropped_unless_asked() -> None:
    _, grpo, _ = read_arguments(["--config", str(TINY)])
    assert grpo.vllm_importance_sampling_mode == "token_truncate"
    _, grpo, _ = read_arguments(["--config", str(TINY), "--vllm_importance_sampling_mode", "sequence_mask"])
    assert grpo.vllm_importance_sampling_mode == "sequence_mask"


def test_what_this_machine_cannot_do_ends_before_weights_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(*, gpu: bool, vllm: bool) -> None:
        monkeypatch.setattr("train.vllm_options.set_environment", lambda: not gpu)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if vllm else None)

    _, grpo, _ = read_arguments(["--config", str(TINY), "--use_vllm", "true"])
    machine(gpu=True, vllm=False)
    with pytest.raises(
        UserError, match=r"option use_vllm: expected vLLM, which is not installed; pip install 'agl\[gpu\]'"
    ):
        refuse_machine(grpo)
    machine(gpu=False, vllm=True)
    refuse_machine(grpo)
    grpo.vllm_enable_sleep_mode = True
    with pytest.raises(UserError, match="sleeps on GPUs only"):
        refuse_machine(grpo)
    grpo.vllm_mode = "server"
    with pytest.raises(UserError, match="through NCCL, which needs a GPU here"):
        refuse_machine(grpo)
    machine(gpu=True, vllm=True)
    refuse_machine(grpo)


@pytest.mark.model
def test_command_prints_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    build("plan")(args=["plan", str(TINY), "--json"], prog_name="agl", standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["batch"]["ranks"] == 1
    assert found["context_tokens"] == found["max_prompt_tokens"] + found["response_tokens"]
    assert found["memory"]["peak"] > 0
    build("plan")(args=["plan", str(TINY)], prog_name="agl", standalone_mode=False)
    assert "one generation" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["agentgl_tiny_cpu.yaml", "agentgl_qwen2.5_7b.yaml"])
def test_the_configs_of_agentgl_are_sound(name: str) -> None:
    ranks = 1 if "tiny" in name else 8
    assert plan_file(CONFIGS / "train" / name, ranks=ranks).lines()
