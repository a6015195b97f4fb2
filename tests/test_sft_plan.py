"""`agl plan` of supervised fine-tuning, and what both programs say where training is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("trl")

from agl.cli import build
from agl.errors import UserError
from tests.tiny_model import save_tiny
from train.sft_plan import plan_file

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "configs" / "train" / "grit_sft_tiny_cpu.yaml"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny", context=16384)


def changed(tmp_path: Path, **values: Any) -> Path:
    """The tiny config on the tasks that need no file, with other values; None leaves one out."""
    file = tmp_path / "config.yaml"
    merged = {**yaml.safe_load(TINY.read_text()), "source": "mini", "task_limit": 10, "max_length": 12_000, **values}
    file.write_text(yaml.safe_dump({name: value for name, value in merged.items() if value is not None}))
    return file


def test_rows_steps_tokens_and_memory_are_told(tiny: str, tmp_path: Path) -> None:
    plan = plan_file(changed(tmp_path, model_name_or_path=tiny), ranks=2)
    assert (plan.rows, plan.left_out, plan.ranks, plan.accumulated) == (10, 0, 2, 3)
    assert (plan.steps_per_epoch, plan.total_steps) == (2, 2)
    assert plan.tokens is not None
    assert plan.tokens.row[0] > plan.tokens.prompt[0]
    assert 0 < plan.tokens.learned < plan.tokens.total <= 10 * plan.tokens.row[1]
    assert plan.memory is not None
    assert plan.memory.sampling == 0
    whole = plan_file(changed(tmp_path, model_name_or_path=tiny, use_peft=False, save_merged=False)).memory
    assert whole is not None
    assert whole.trained == plan.memory.parameters - plan.memory.trained == whole.parameters
    limit = plan.tokens.row[1] - 1
    shorter = plan_file(changed(tmp_path, model_name_or_path=tiny, max_length=limit, over_length="drop"))
    assert 0 < shorter.left_out == 10 - shorter.rows
    with pytest.raises(UserError, match=r"option max_length: .* longer than"):
        plan_file(changed(tmp_path, model_name_or_path=tiny, max_length=limit))


def test_a_model_that_is_not_here_is_planned_as_far_as_can_be(tmp_path: Path) -> None:
    plan = plan_file(changed(tmp_path, model_name_or_path="Qwen/Qwen3-4B-Base"))
    assert (plan.rows, plan.tokens, plan.model_context) == (10, None, 40960)
    assert plan.memory is not None
    assert [note for note in plan.notes if "tokenizer is not here" in note]
    assert [note for note in plan.notes if "max_length 12000" in note]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"max_lenght": 5}, "did you mean 'max_length'"),
        ({"traces": "runs/x"}, "expected one of recipe .* got both"),
        ({"packing": True}, "option packing: rows in one sequence"),
        ({"learning_rate": -1, "per_device_train_batch_size": 1, "assistant_only_loss": True}, "option assistant_only"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path: Path, tiny: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        plan_file(changed(tmp_path, model_name_or_path=tiny, **values))
    assert "\n" not in str(refused.value)


def test_the_command_knows_a_config_of_fine_tuning(
    tmp_path: Path, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(changed(tmp_path, model_name_or_path=tiny))
    build("plan")(args=["plan", file, "--json"], prog_name="agl", standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 10
    assert found["memory"]["peak"] > found["memory"]["states"]
    build("plan")(args=["plan", file], prog_name="agl", standalone_mode=False)
    assert "whole run" in capsys.readouterr().out


_WITHOUT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "trl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize("program", ["train/grpo.py", "train/sft.py", "agl plan"])
def test_without_its_libraries_training_says_what_to_install(tmp_path: Path, program: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT)
    grpo = str(ROOT / "configs" / "train" / "grit_tiny_cpu.yaml")
    words = (
        ["-c", "from agl.cli import main; main()", "plan", grpo]
        if program == "agl plan"
        else [str(ROOT / program), "--config", grpo]
    )
    paths = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.strip().splitlines()
    assert said.endswith("training needs torch, trl, which this Python lacks: pip install 'agl[train]'")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("per_device_train_batch_size", 0),
        ("gradient_accumulation_steps", 1.5),
        ("max_steps", 0),
        ("num_train_epochs", 0),
        ("num_train_epochs", float("inf")),
        ("max_length", "long"),
    ],
)
def test_numbers_without_a_step_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"option {name}: expected a .*number.* got {value!r}"):
        plan_file(changed(tmp_path, model_name_or_path="Qwen/Qwen3-4B-Base", **{name: value}))


def test_rows_that_fill_no_batch_are_refused(tmp_path: Path) -> None:
    given = {"model_name_or_path": "Qwen/Qwen3-4B-Base", "dataloader_drop_last": True}
    assert plan_file(changed(tmp_path, **given, per_device_train_batch_size=5), ranks=2).steps_per_epoch == 1
    with pytest.raises(UserError, match="a batch takes 12 rows, got 10"):
        plan_file(changed(tmp_path, **given, per_device_train_batch_size=6), ranks=2)
