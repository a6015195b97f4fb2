"""The command line: exit codes, one-sentence errors, quick help, config files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from agl.config import load_config
from agl.errors import UserError
from agl.rollout import Limits
from tests.agl_process import agl, environment

EVAL = ["eval", "toy", "--policy", "oracle", "--limit", "3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "tony", "--policy", "oracle"], "got 'tony'; did you mean 'toy'?"),
        (["eval", "toy", "--policy", "oracel"], "got 'oracel'; did you mean 'oracle'?"),
        (["eval", "toy", "--policy", "replay:"], "got 'replay:'"),
        (["eval", "toy", "--policy", "replay:none.jsonl"], "got none.jsonl, which is no file"),
        (["eval", "toy"], "expected the option policy"),
        (["eval", "--policy", "oracle"], "expected the option env"),
        ([*EVAL, "--policy", "oracle"], "--policy oracle twice"),
        ([*EVAL, "--data", "none.jsonl"], "'none.jsonl'"),
        ([*EVAL, "--config", "none.yaml"], "none.yaml, which does not exist"),
        ([*EVAL, "--set", "limts.retries=1"], "unknown option 'limts'"),
        ([*EVAL, "--set", "limits.retires=1"], "did you mean 'limits.retries'?"),
        ([*EVAL, "--set", "limits.retries=lots"], "option limits.retries: "),
        ([*EVAL, "--set", "limits"], "expected --set key=value, got 'limits'"),
        ([*EVAL, "--set", "env_options.speed=2"], "got 'speed'"),
        ([*EVAL, "--set", "policy_options.speed=2"], "got 'speed'"),
        ([*EVAL, "--set", "policy_options.sampling=2"], "got 'sampling'"),
        (["eval", "grit", "--policy", "oracle", "--set", "env_options.counted=x"], "option counted of the environment"),
        (["eval", "grit", "--policy", "oracle", "--set", "env_options.rho_err=x"], "option rho_err of the environment"),
        ([*EVAL, "--resume"], "expected --out RUN with --resume"),
        ([*EVAL, "--dialect", "morse"], "got 'morse'"),
        ([*EVAL, "--shots", "-1"], "--shots of at least 0, got -1"),
        ([*EVAL, "--limit", "many"], "--limit"),
        ([*EVAL, "--polcy", "x"], "--polcy"),
        (["evl"], "evl"),
        (["envs", "--jsn"], "--jsn"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = agl(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("agl: ")
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_answer_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    policy = "openai:model@http://127.0.0.1:9/v1"
    done = agl("eval", "toy", "--policy", policy, "--set", "policy_options.retries=0", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "http://127.0.0.1:9/v1" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_prints_tables_and_writes_where_it_says(tmp_path: Path) -> None:
    done = agl(*EVAL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("toy-oracle-")
    assert f"run folder: runs/{run.name}" in done.stdout
    assert "1.000 [0.439, 1.000]" in done.stdout
    assert "infrastructure failure 0" in done.stdout
    assert "toy, oracle: 3/3 score 1.000" in done.stderr


def test_json_is_the_summary_and_nothing_else(tmp_path: Path) -> None:
    done = agl(*EVAL, "--json", "--out", "run", cwd=tmp_path)
    assert json.loads(done.stdout) == json.loads((tmp_path / "run" / "summary.json").read_text())


def test_several_policies_are_compared(tmp_path: Path) -> None:
    done = agl(*EVAL, "--policy", "silent", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["oracle", "silent"]
    head = next(line for line in done.stdout.splitlines() if "group" in line)
    assert "oracle" in head
    assert "silent" in head
    both = agl(*EVAL, "--policy", "silent", "--out", "run", "--resume", "--json", cwd=tmp_path)
    assert [summary["policy"] for summary in json.loads(both.stdout)] == ["oracle", "silent"]


def test_a_recorded_run_can_be_replayed(tmp_path: Path) -> None:
    first = agl("eval", "toy", "--policy", "random", "--limit", "6", "--out", "run", "--json", cwd=tmp_path)
    again = agl("eval", "toy", "--policy", "replay:run/episodes.jsonl", "--limit", "6", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["metrics"] == json.loads(first.stdout)["metrics"]


def test_a_config_file_holds_the_options_and_flags_win(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("env: toy\npolicy: [oracle]\nlimit: 9\nlimits: {deadline: 1e2}\n")
    done = agl("eval", "--config", "run.yaml", "--limit", "4", "--set", "seed=7", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["env"], config["limit"], config["seed"]) == ("toy", 4, 7)


@pytest.mark.parametrize("arguments", [["--help"], ["eval", "--help"], ["envs", "--help"], []])
def test_help_has_an_example(tmp_path: Path, arguments: list[str]) -> None:
    done = agl(*arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "Example: agl" in done.stdout


def test_version_and_envs(tmp_path: Path) -> None:
    assert agl("--version", cwd=tmp_path).stdout.startswith("agl ")
    listed = agl("envs", cwd=tmp_path).stdout.splitlines()
    assert any(line.startswith("toy ") for line in listed)
    assert set(json.loads(agl("envs", "--json", cwd=tmp_path).stdout)) >= {"toy", "grit"}


HEAVY = (
    *(
        "torch",
        "transformers",
        "trl",
        "vllm",
        "peft",
        "datasets",
        "accelerate",
        "torch_geometric",
        "faiss",
        "gymnasium",
    ),
    *("numpy", "scipy", "networkx", "pysat", "highspy", "openai", "jinja2"),
)


@pytest.mark.parametrize("code", ["import agl", "from agl.cli import _run; _run(['--help'])"])
def test_import_and_help_load_nothing_heavy(code: str) -> None:
    code = f"import sys\n{code}\nheavy = {set(HEAVY)} & set(sys.modules)\nsys.exit(str(heavy) if heavy else 0)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rate: float = 1.0
    steps: int = 1
    quick: bool = False
    limits: Limits = Limits()


def test_later_sources_win_and_nested_ones_merge(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("rate: 1e-5\nlimits:\n  max_turns: 3\n  retries: 1\n")
    loaded = load_config(_Model, file, values={"steps": 2, "limits": {"retries": 0}}, overrides=["limits.max_turns=5"])
    assert loaded == _Model(rate=1e-5, steps=2, limits=Limits(max_turns=5, retries=0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rat: 1", "did you mean 'rate'"),
        ("limits: {deadlin: 1}", "did you mean 'limits.deadline'"),
        ("steps: true", "option steps"),
        ("steps: 1.5", "option steps"),
        ("quick: 'False'", "option quick"),
        ("steps: 1\nsteps: 2", "'steps' stands twice"),
        ("limits: 3", "option limits"),
        ("[1]", "got list"),
        ("a: [", "expected YAML"),
        ("", "got NoneType"),
    ],
)
def test_a_wrong_config_file_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message.replace("[", r"\[")) as caught:
        load_config(_Model, file)
    assert "\n" not in str(caught.value)
