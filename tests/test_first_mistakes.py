"""The mistakes that people make first: each ends in one sentence that says what to do, and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agl.errors import InfraError, UserError
from agl.explain import explained
from tests.agl_process import agl, agl_here, environment

GRIT = ["eval", "grit", "--policy", "oracle", "--limit", "2"]


def check(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("agl: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["eval", "Grit", "--policy", "oracle"], ["'Grit'", "did you mean 'grit'?"], id="wrong env"),
        pytest.param(["evaluate", "grit"], ["'evaluate'", "'eval'"], id="wrong command"),
        pytest.param(["eval", "grit"], ["policy"], id="no policy"),
        pytest.param(["eval", "grit", "--policy", "smollm"], ["did you mean 'smollm2'?"], id="wrong policy"),
        pytest.param(
            ["eval", "grit", "--policy", "Qwen/Qwen3-4B"], ["did you mean 'hf:Qwen/Qwen3-4B'?"], id="a bare Hub name"
        ),
        pytest.param(["eval", "grit", "--policy", "openai:gpt-4o"], ["@http://HOST:PORT/v1", "server"], id="no server"),
        pytest.param(["eval", "grit", "--policy", "hf:./nothing"], ["no folder ./nothing"], id="no model"),
        pytest.param(["eval", "grit", "--policy", "hf:empty"], ["holds no model"], id="no model in the folder"),
        pytest.param([*GRIT, "--data", "nothing.jsonl"], ["'nothing.jsonl'"], id="wrong path"),
        pytest.param([*GRIT, "--data", "empty.jsonl"], ["empty.jsonl", "got none", "--data"], id="empty data"),
        pytest.param([*GRIT, "--data", "other.jsonl"], ["line 1", "--format"], id="other data"),
        pytest.param(["eval", "reagan", "--policy", "vote", "--data", "empty"], ["nodes.jsonl"], id="no graph"),
        pytest.param(["report", "nothing"], ["nothing, which does not exist", "check the path"], id="no run"),
        pytest.param(["show", "empty"], ["config.json", "check the path"], id="no run in the folder"),
        pytest.param([*GRIT, "--out", "full"], ["--resume", "--out"], id="a run folder in use"),
        pytest.param([*GRIT, "--config", "nothing.yaml"], ["nothing.yaml", "check the path"], id="no config"),
    ],
)
def test_a_first_mistake_is_one_sentence(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.jsonl").write_text('{"question": "?"}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    check(agl_here(*arguments, cwd=tmp_path), 2, *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_closed_port_names_the_url(tmp_path: Path) -> None:
    policy = ["--policy", "openai:m@http://127.0.0.1:9/v1", "--set", "policy_options.retries=0"]
    check(agl_here("eval", "grit", *policy, "--limit", "2", cwd=tmp_path), 1, "http://127.0.0.1:9/v1", "start it")


def without(folder: Path, *modules: str) -> dict[str, str]:
    """Settings under which `modules` are not installed."""
    for module in modules:
        fault = f"ModuleNotFoundError(\"No module named '{module}'\", name={module!r})"
        (folder / f"{module}.py").write_text(f"raise {fault}\n")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"}


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    done = agl("eval", "grit", "--policy", "smollm2", cwd=tmp_path, settings=without(tmp_path, "torch"))
    check(done, 2, "torch", "pip install 'agl[local]'")


def test_planning_a_training_without_its_packages_names_the_extra(tmp_path: Path) -> None:
    config = Path(__file__).resolve().parent.parent / "configs" / "train" / "grit_tiny_cpu.yaml"
    done = agl("plan", str(config), cwd=tmp_path, settings=without(tmp_path, "trl"))
    check(done, 2, "trl", "pip install 'agl[train]'")


def test_vllm_that_is_not_installed_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    done = agl_here("eval", "grit", "--policy", "vllm:smollm2", cwd=tmp_path)
    check(done, 2, "pip install 'agl[vllm]'")


def test_a_model_that_is_nowhere_points_to_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = agl_here("eval", "grit", "--policy", "hf:owner/no-such-model", cwd=tmp_path)
    check(done, 2, "owner/no-such-model", "agl doctor --model owner/no-such-model")


@pytest.mark.model
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set from what Linux tells")
def test_a_model_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    import resource

    from agl.policies.embedded import smollm2_folder

    smollm2_folder()
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, before[1]))
    try:
        done = agl_here("eval", "grit", "--policy", "smollm2", "--limit", "1", cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    check(done, 1, "out of memory", "smaller model")


def test_what_torch_says_of_memory_is_understood() -> None:
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**56)
    assert isinstance(explained(caught.value), InfraError)
    assert isinstance(explained(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")), InfraError)


def test_faults_of_our_own_keep_their_traceback() -> None:
    assert explained(RuntimeError("await prepare() before open()")) is None
    assert explained(ModuleNotFoundError("No module named 'agl.nothing'", name="agl.nothing")) is None
    assert explained(ImportError("cannot import name 'x'")) is None


def test_the_cause_below_a_wrapped_import_is_found() -> None:
    outer = ImportError("could not import TrainingArguments")
    outer.__cause__ = ModuleNotFoundError("No module named 'torch'", name="torch")
    said = explained(outer)
    assert isinstance(said, UserError)
    assert "pip install 'agl[local]'" in str(said)
