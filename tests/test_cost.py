"""`agl plan` on evaluation configs: prompts and tokens before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agl.config import load_config
from agl.registry import register
from eval.commands import EvalConfig
from eval.cost import costs
from tests.agl_process import agl


@pytest.fixture(autouse=True)
def envs() -> None:
    register("ring", "tests.ring_env:RingEnv")
    register("toy", "tests.toy_env:ToyEnv")


def test_prompts_and_tokens_of_each_variant() -> None:
    config = load_config(
        EvalConfig,
        None,
        values={
            "env": "ring",
            "policy": ["echo", "oracle"],
            "attempts": 2,
            "sampling": {"max_tokens": 10},
            "variants": {"all": {}, "few": {"limit": 3}},
        },
    )
    every, few = costs(config, rates=(100.0, 10.0))
    assert (every.name, every.episodes, every.prompts, every.written) == ("all", 24, 72, 720)
    assert (few.episodes, few.prompts) == (12, 36)
    assert every.seconds == pytest.approx(every.read / 100 + 72)


def test_what_is_read_grows_with_the_prompt() -> None:
    config = load_config(EvalConfig, None, values={"env": "toy", "policy": "oracle", "limit": 20})
    (plain,) = costs(config)
    (shown,) = costs(config.model_copy(update={"shots": 2}))
    assert plain.seconds is None
    assert shown.read > plain.read
    assert shown.prompts == plain.prompts


def test_the_command_tells_configs_apart(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("env: ring\npolicy: []\nlimit: 2\n")
    done = agl("plan", "run.yaml", "--json", "--rates", "10,10", "--set", "sampling.max_tokens=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["written"] == 30
    for wrong in ("10", "0,1", "a,b"):
        refused = agl("plan", "run.yaml", "--rates", wrong, cwd=tmp_path)
        assert refused.returncode == 2
        assert "READ,WRITE" in refused.stderr
