"""`agl eval` with an env's own players, and with variants of one config in one table."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agl_process import agl


def test_a_player_of_the_env_is_a_policy(tmp_path: Path) -> None:
    done = agl("eval", "ring", "--policy", "echo", "--json", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["score"]["value"] == 1.0
    wrong = agl("eval", "ring", "--policy", "ecko", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'echo'?" in wrong.stderr


def test_variants_run_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "ablation.yaml").write_text(
        "env: ring\npolicy: [echo, oracle]\n"
        "variants:\n  all: {}\n  few: {limit: 2}\n  hot: {sampling.temperature: 1.0}\n"
    )
    done = agl("eval", "--config", "ablation.yaml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for row in ("all, echo", "few, oracle", "hot, echo"):
        assert row in done.stdout
    assert json.loads((tmp_path / "run" / "few" / "echo" / "summary.json").read_text())["n"] == 2
    config = json.loads((tmp_path / "run" / "hot" / "oracle" / "config.json").read_text())
    assert config["sampling"]["temperature"] == 1.0


def test_a_misspelt_variant_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "ablation.yaml").write_text("env: ring\npolicy: echo\nvariants:\n  a: {}\n  b: {limits.trns: 3}\n")
    done = agl("eval", "--config", "ablation.yaml", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "limits.trns" in done.stderr
    assert not (tmp_path / "run").exists()
