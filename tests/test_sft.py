"""Supervised fine-tuning: rows are the tokens of a rollout, only what the expert wrote is learned, runs go on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import tokenizers
import transformers

from agl.core import Env
from agl.dialects import dialect_for
from agl.errors import DataError, UserError
from agl.messages import Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.policy import Dialogue, Finish, Play, Policy, Sampling
from agl.policies.scripted import Oracle, Random
from agl.policies.token_dialogue import Generated, LocalEncoder, Request, TokenDialogue
from agl.registry import register
from agl.rollout import rollout
from agl.tokens import Row
from agl.trace import Episode, EpisodeWriter, Turn
from envs.grit.env import GritEnv
from envs.grit.items import GritTask
from envs.grit.traces import expert_trace, write_traces
from tests.test_chat_template import CHATML, byte_tokenizer
from tests.toy_env import ToyEnv
from train.demonstrations import (
    IGNORED,
    Demonstration,
    check_prompt,
    expert,
    labelled,
    of_episode,
    of_trace,
    read,
    token_rows,
)
from train.sft import main
from train.sft_options import SftArguments, read_arguments, refuse_inert
from train.sft_plan import make_plan, steps

TASKS = [GritEnv.tasks("mini")[index] for index in (0, 1, 7)]
TOY = ToyEnv.tasks("test", limit=6)
BRACKETS = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] + '</s>' }}"
    "{% else %}{{ '[' + m['role'] + ']' + m['content'] + '[/]' }}{% endif %}{% endfor %}"
)


def merged_tokenizer() -> Any:
    """Byte pairs learned from the questions, under a template without a header for the assistant."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), special_tokens=["</s>"]
    )
    raw.train_from_iterator([task.question for task in TASKS], trainer)
    make: Any = transformers.PreTrainedTokenizerFast
    made = make(tokenizer_object=raw, eos_token="</s>", pad_token="</s>")
    made.chat_template = BRACKETS
    return made


def embedded_tokenizer() -> Any:
    from agl.policies.embedded import smollm2_folder

    return transformers.AutoTokenizer.from_pretrained(smollm2_folder())


TOKENIZERS = {
    "smollm2": pytest.param(embedded_tokenizer, id="smollm2", marks=pytest.mark.model),
    "bytes": pytest.param(byte_tokenizer, id="bytes"),
    "merged": pytest.param(merged_tokenizer, id="merged"),
}


class Spoken(Policy):
    """The oracle as a policy of tokens: what it says is encoded, and ended as `finish` says."""

    name = "spoken"

    def __init__(self, template: ChatTemplate, finish: Finish, end: int) -> None:
        self.template, self.finish, self.end = template, finish, end

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        async def speak(request: Request) -> Generated:
            text = play.dialect.write(play.env.oracle(), play.env.oracle_thought())
            ids = self.template.encode(text) + ([self.end] if self.finish == "eos" else [])
            return Generated(ids, [-1.0] * len(ids), self.finish, text)

        encoder = LocalEncoder(self.template)
        return TokenDialogue(prompt, encoder, speak, Sampling(max_tokens=9999), model_context=None, seed=seed)


def bare(row: Row) -> Row:
    return row._replace(logprobs=None)


@pytest.mark.parametrize("make_tokenizer", TOKENIZERS.values())
@pytest.mark.parametrize("finish", ["stop", "eos"])
@pytest.mark.parametrize(
    ("env", "dialect", "shots"), [(GritEnv, "tags", 0), (GritEnv, "tools", 1), (ToyEnv, "tags", 1)]
)
def test_a_row_is_the_token_log_of_the_rollout(
    env: type[Env[Any]], dialect: str, shots: int, finish: Finish, make_tokenizer: Any
) -> None:
    """Whatever the tokenizer: the ids a policy is shown, the mask of who wrote them, byte for byte."""
    tokenizer = make_tokenizer()
    template, written = ChatTemplate(tokenizer), dialect_for(env, dialect)
    policy = Spoken(template, finish, tokenizer.eos_token_id)
    for task in TASKS if env is GritEnv else TOY[:3]:
        played = asyncio.run(rollout(env(), task, policy, dialect=written, shots=shots))
        shown = of_episode(Episode.model_validate_json(played.line()), env.task_type)
        check_prompt(shown, env(), written, shots)
        (row,) = token_rows(shown, template)
        assert row == bare(played.logs[0].row())
        ids, labels = labelled(row).values()
        assert len(ids) == len(labels)
        assert ids == played.logs[0].ids
        said = "".join(turn.text for turn in shown.turns if turn.source == "sampled")
        learned = [label for label in labels if label != IGNORED]
        assert tokenizer.decode([label for label in learned if label != tokenizer.eos_token_id]) == said
        assert learned.count(tokenizer.eos_token_id) == (
            sum(turn.source == "sampled" for turn in shown.turns) if finish == "eos" else 0
        )


@pytest.mark.parametrize("dialect", ["tags", "tools"])
@pytest.mark.parametrize("make_tokenizer", TOKENIZERS.values())
def test_results_are_in_the_row_and_not_learned(dialect: str, make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer()
    written = dialect_for(GritEnv, dialect)
    for shown in expert(TASKS, written, max_nodes=None, limit=None, shots=0):
        (row,) = token_rows(shown, ChatTemplate(tokenizer))
        results = [turn.text.strip() for turn in shown.turns if turn.source == "injected"]
        assert len(results) == 1
        ids, labels = labelled(row).values()
        assert results[0] in tokenizer.decode(ids)
        learned = tokenizer.decode([label for label in labels if label != IGNORED])
        masked = tokenizer.decode([token for token, label in zip(ids, labels, strict=True) if label == IGNORED])
        assert results[0] in masked
        assert results[0] not in learned
        assert learned == "".join(turn.text for turn in shown.turns if turn.source == "sampled")
        assert set(labels[: len(row.prompt_ids)]) == {IGNORED}


def test_traces_and_their_tasks_give_the_same_rows(tmp_path: Path) -> None:
    """A file of traces knows no tasks; its rows are those of the recipe all the same."""
    written, template = dialect_for(GritEnv, "tags"), ChatTemplate(byte_tokenizer())
    file = tmp_path / "warm.jsonl"
    write_traces((expert_trace(task) for task in TASKS), file)
    from_file = list(read(file, GritEnv(), written, min_score=1.0))
    made = list(expert(TASKS, written, max_nodes=None, limit=None, shots=0))
    assert [shown.task for shown in from_file] == [None] * 3
    for shown in from_file:
        check_prompt(shown, GritEnv(), written, 0)
    assert [token_rows(shown, template) for shown in from_file] == [token_rows(shown, template) for shown in made]


def test_a_rebuilt_context_is_a_row_of_its_own() -> None:
    turns = (
        Turn(source="prompt", role="user", text="one"),
        Turn(source="sampled", role="assistant", text="first", finish="stop"),
        Turn(source="prompt", role="system", text="again"),
        Turn(source="prompt", role="user", text="two"),
        Turn(source="sampled", role="assistant", text="second", finish="eos"),
    )
    tokenizer = byte_tokenizer()
    rows = token_rows(Demonstration("x", "tags", turns), ChatTemplate(tokenizer))
    assert [tokenizer.decode(row.completion_ids) for row in rows] == ["first", "second<|im_end|>"]
    assert "one" not in tokenizer.decode(rows[1].prompt_ids)


def trace(task: GritTask = TASKS[0], **changes: Any) -> Demonstration:
    made = expert_trace(task, **changes)
    return of_trace(made, dialect_for(GritEnv, made.dialect).stops)


def test_a_prompt_that_evaluation_does_not_show_is_refused() -> None:
    tags = dialect_for(GritEnv, "tags")
    shown = trace()
    known = Demonstration(shown.id, shown.dialect, shown.turns, TASKS[0])
    for each in (shown, known):
        check_prompt(each, GritEnv(), tags, 0)
        with pytest.raises(UserError, match=r"system message of .* at character .*'6 calls.*'2 calls"):
            check_prompt(each, GritEnv(max_rounds=2), tags, 0)
        with pytest.raises(UserError, match="dialect tags, but option dialect asks for tools"):
            check_prompt(each, GritEnv(), dialect_for(GritEnv, "tools"), 0)
    with pytest.raises(UserError, match="has 2 messages where training and evaluation show"):
        check_prompt(known, GritEnv(), tags, 1)
    with pytest.raises(UserError, match="has 2 messages"):
        check_prompt(shown, GritEnv(), tags, 1)
    with pytest.raises(UserError, match="user message"):
        check_prompt(Demonstration(shown.id, shown.dialect, shown.turns, TASKS[1]), GritEnv(), tags, 0)
    shot = trace(shots=1)
    check_prompt(shot, GritEnv(), tags, 1)
    with pytest.raises(UserError, match="set shots"):
        check_prompt(shot, GritEnv(), tags, 0)


async def runs(folder: Path, *policies: Policy, env: type[Env[Any]] = ToyEnv, tasks: Any = TOY) -> Path:
    """A run folder with an episode of each policy at each task."""
    folder.mkdir()
    with EpisodeWriter(folder / "episodes.jsonl") as writer:
        for attempt, policy in enumerate(policies):
            for task in tasks:
                writer.write(await rollout(env(), task, policy, attempt=attempt))
    return folder


async def test_of_a_run_the_good_episodes_are_imitated(tmp_path: Path) -> None:
    folder = await runs(tmp_path / "run", Oracle(), Random())
    tags = dialect_for(ToyEnv)
    good = list(read(folder, ToyEnv(), tags, min_score=1.0))
    assert [shown.id for shown in good[: len(TOY)]] == [task.id for task in TOY]
    assert len(good) < 2 * len(TOY)
    assert good == list(read(folder / "episodes.jsonl", ToyEnv(), tags, min_score=1.0))
    with pytest.raises(DataError, match="GritTask in the episode"):
        list(read(folder, GritEnv(), tags, min_score=1.0))


def test_a_file_that_holds_neither_is_refused(tmp_path: Path) -> None:
    for text, said in (("", "JSON lines"), ("[1]\n", "episode"), ('{"segments": 1}\n', "line 1")):
        file = tmp_path / "file.jsonl"
        file.write_text(text)
        with pytest.raises(DataError, match=said):
            list(read(file, GritEnv(), dialect_for(GritEnv), min_score=1.0))
    with pytest.raises(DataError, match="holds neither"):
        list(read(tmp_path, GritEnv(), dialect_for(GritEnv), min_score=1.0))


def test_recipes_differ_in_size() -> None:
    assert SftArguments(recipe="warm").largest == 14
    assert SftArguments(recipe="warm", max_nodes=5).largest == 5
    assert SftArguments(recipe="sft-tool").largest is None
    tasks = GritEnv.tasks("mini", limit=48)
    found = list(expert(tasks, dialect_for(GritEnv), max_nodes=5, limit=4, shots=0))
    assert [shown.task for shown in found] == [task for task in tasks if task.n <= 5][:4]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "got neither"),
        ({"recipe": "warm", "traces": ["x"]}, "got both"),
        ({"recipe": "cold"}, "option recipe"),
        ({"traces": "x", "source": "train"}, "option source belongs to recipe"),
        ({"recipe": "warm", "environment": "toy"}, "agl eval toy --policy oracle"),
        ({"recipe": "warm", "min_score": 2.0}, "option min_score"),
        ({"recipe": "warm", "environment_options": "[1]"}, "option environment_options: expected a map"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        SftArguments(**options)


BASE = ["--model_name_or_path", "smollm2", "--recipe", "warm", "--use_cpu", "true", "--bf16", "false"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--shotz", "1"], "did you mean 'shots'"),
        (["--assistant_only_loss", "true"], "option assistant_only_loss"),
        (["--eval_strategy", "steps", "--eval_steps", "5"], "option eval_strategy"),
        (["--packing", "true"], "flash attention alone"),
        (["--learning_rate", "fast"], "learning_rate"),
    ],
)
def test_options_without_effect_are_refused(flags: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read_and_refuse([*BASE, "--output_dir", str(tmp_path), *flags])


def read_and_refuse(argv: list[str]) -> SftArguments:
    arguments, sft, model = read_arguments(argv)
    refuse_inert(vars(sft), model.attn_implementation)
    return arguments


def test_shipped_configs_are_read(tmp_path: Path) -> None:
    configs = Path(__file__).resolve().parent.parent / "configs" / "train"
    here = ["--use_cpu", "true", "--bf16", "false", "--output_dir", str(tmp_path)]
    for name in ("grit_sft_tiny_cpu", "grain_sft_qwen3_4b"):
        arguments, sft, model = read_arguments(["--config", str(configs / f"{name}.yaml"), *here])
        refuse_inert(vars(sft), model.attn_implementation)
        assert arguments.recipe == "warm"
    # The paper: global batch 8 over 2 GPUs with accumulation 2, 3 epochs.
    assert sft.per_device_train_batch_size * 2 * sft.gradient_accumulation_steps == 8
    assert (sft.num_train_epochs, sft.learning_rate, sft.max_length) == (3, 7e-6, 15000)


def row(prompt: int, response: int) -> Row:
    return Row([1] * prompt, [2] * response, [1] * response, None)


def plan(rows: list[Row], model: str, over_length: str = "error", **options: Any) -> tuple[list[Row], dict[str, str]]:
    values = {
        "max_length": None,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "dataloader_drop_last": False,
        "max_steps": -1,
        "num_train_epochs": 3.0,
        "packing": False,
        "gradient_checkpointing": False,
        **options,
    }
    settings = {"model_name_or_path": model, "dtype": "float32", "use_peft": False}
    kept, found = make_plan(rows, values, settings, ranks=1, over_length=over_length)
    return kept, dict(found.lines())


def test_the_arithmetic_is_shown(tiny: str) -> None:
    rows = [row(10, 5)] * 9 + [row(20, 15)]
    kept, lines = plan(rows, tiny)
    assert kept == rows
    assert lines["step"] == "2 rows x 1 ranks x 2 accumulated = 4 rows"
    assert lines["epoch"] == "10 rows / 4 = 3 steps"
    assert lines["whole run"] == "9 steps"
    assert lines["tokens"].startswith("170, of them 60 learned; a row has 15 to 35")
    with pytest.raises(UserError, match="1 of 10 rows are longer than 30 tokens, the longest has 35 = 20 prompt"):
        plan(rows, tiny, max_length=30)
    kept, lines = plan(rows, tiny, "drop", max_length=30)
    assert kept == rows[:9]
    assert lines["rows"] == "9, 1 left out as longer than 30"
    with pytest.raises(UserError, match="all 10 rows"):
        plan(rows, tiny, "drop", max_length=3)
    with pytest.raises(UserError, match="holds 4096"):
        plan([row(4000, 200)], tiny)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Llama of two layers with random weights over bytes."""
    import torch

    folder = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = byte_tokenizer(CHATML)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    make: Any = transformers.LlamaForCausalLM
    make(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    register("toy", "tests.toy_env:ToyEnv")
    return str(asyncio.run(runs(tmp_path_factory.mktemp("runs") / "oracle", Oracle())))


def flags(tiny: str, toy_run: str, output: Path, **options: object) -> list[str]:
    given = {
        "environment": "toy",
        "traces": toy_run,
        "model_name_or_path": tiny,
        "max_length": 4096,
        "per_device_train_batch_size": 3,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 4,
        "output_dir": output,
        **options,
    }
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def weights(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    return loaded


def history(folder: Path) -> list[dict[str, Any]]:
    state = json.loads((folder / "checkpoint-4" / "trainer_state.json").read_text())
    return [entry for entry in state["log_history"] if "loss" in entry]


async def played(folder: Path) -> Episode:
    from agl.policies.hf import HfPolicy

    policy = HfPolicy(str(folder), Sampling(max_tokens=6), device="cpu")
    episode = await rollout(ToyEnv(), TOY[0], policy)
    await policy.aclose()
    return episode


@pytest.mark.slow
def test_a_run_learns_resumes_and_plays(
    tiny: str, toy_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first loss is the mean over what the oracle wrote; four steps are two, and two more after a resume."""
    import torch

    torch.set_num_threads(1)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    main(flags(tiny, toy_run, whole, per_device_train_batch_size=6))
    assert f"agl eval toy --policy hf:{whole}" in capsys.readouterr().out

    env, tags = ToyEnv(), dialect_for(ToyEnv)
    template = ChatTemplate(transformers.AutoTokenizer.from_pretrained(tiny))
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    total, count = 0.0, 0
    for shown in read(Path(toy_run), env, tags, min_score=1.0):
        (made,) = token_rows(shown, template)
        ids, labels = (torch.tensor(column) for column in labelled(made).values())
        with torch.no_grad():
            logits = model(ids[None]).logits[0, :-1]
        total += torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=IGNORED, reduction="sum").item()
        count += int((labels[1:] != IGNORED).sum())
    losses = [entry["loss"] for entry in history(whole)]
    assert losses[0] == pytest.approx(total / count, abs=1e-3)
    assert losses[-1] < losses[0]
    assert asyncio.run(played(whole)).is_sample

    straight, broken = tmp_path / "straight", flags(tiny, toy_run, parts, lr_scheduler_type="constant")
    main(flags(tiny, toy_run, straight, lr_scheduler_type="constant"))
    main([*broken, "--max_steps", "2"])
    main([*broken, "--resume_from_checkpoint", str(parts / "checkpoint-2")])
    wanted, found = weights(straight), weights(parts)
    assert all(torch.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    with pytest.raises(UserError, match="at step 4 of 4; raise max_steps"):
        main([*broken, "--resume_from_checkpoint", str(parts / "checkpoint-4")])
    with pytest.raises(UserError, match="got 5 that differ"):
        main([*broken, "--task_limit", "5", "--resume_from_checkpoint", str(parts / "checkpoint-2")])


@pytest.mark.slow
async def test_an_adapter_is_saved_alone_and_merged(tiny: str, toy_run: str, tmp_path: Path) -> None:
    import torch

    from agl.policies.hf import load

    options = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear", "save_merged": True}
    arguments = flags(tiny, toy_run, tmp_path, **options)
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "adapter_config.json").is_file()
    merged, _ = load(str(tmp_path / "merged"), device="cpu")
    adapted, _ = load(str(tmp_path), device="cpu")
    before, _ = load(tiny, device="cpu")
    pairs = [(merged.state_dict()[name], adapted.state_dict()[name]) for name in before.state_dict()]
    assert all(torch.equal(left, right) for left, right in pairs)
    assert any(not torch.equal(merged.state_dict()[name], value) for name, value in before.state_dict().items())
    assert (await played(tmp_path)).is_sample
    assert (await played(tmp_path / "merged")).is_sample


_PROGRAM = """
import sys
from agl.registry import register
from train.sft import main
register("toy", "tests.toy_env:ToyEnv")
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_wrong_options_end_the_program_in_one_sentence(tmp_path: Path) -> None:
    program = Path(__file__).resolve().parent.parent / "train" / "sft.py"
    ended = subprocess.run(
        [sys.executable, str(program), *BASE, "--output_dir", str(tmp_path), "--save_merged", "true"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].startswith("train/sft.py: option save_merged: without use_peft")


def test_steps_are_those_of_the_trainer() -> None:
    values = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "dataloader_drop_last": False,
        "max_steps": -1,
        "num_train_epochs": 1.5,
    }
    assert steps(13, values, ranks=1) == (3, 5)
    assert steps(13, {**values, "dataloader_drop_last": True}, ranks=1) == (2, 3)
    assert steps(13, {**values, "max_steps": 7}, ranks=2) == (2, 7)
