"""A run that was killed, interrupted or torn is continued: every key exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agl.core import Outcome, OutcomeKind, StopReason
from agl.errors import UserError
from agl.policies.scripted import Oracle, Random
from agl.registry import register
from agl.rollout import Limits
from agl.run_folder import RunFolder
from agl.trace import EpisodeWriter, read_episodes
from eval.runner import evaluate
from tests.agl_process import agl, command, environment

LONG = ["eval", "toy", "--policy", "random", "--data", "train", "--attempts", "25", "--out", "run"]
KEYS = [(f"train-{task:03d}", attempt) for task in range(100) for attempt in range(25)]


@pytest.fixture(autouse=True)
def toy() -> None:
    register("toy", "tests.toy_env:ToyEnv")


def _stop_in_mid_run(folder: Path, sign: signal.Signals) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        command(*LONG), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    episodes = folder / "run" / "episodes.jsonl"
    for _ in range(3000):
        if episodes.exists() and episodes.stat().st_size > 20_000:
            break
        time.sleep(0.01)
    process.send_signal(sign)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _keys(run: Path) -> list[tuple[str, int]]:
    return [episode.key for episode in read_episodes(run / "episodes.jsonl")]


def test_kill_and_resume_gives_each_key_once(tmp_path: Path) -> None:
    killed = _stop_in_mid_run(tmp_path, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    before = _keys(tmp_path / "run")
    assert 0 < len(before) < len(KEYS)
    again = agl(*LONG, "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert f"{len(before)} kept from before" in again.stderr
    assert _keys(tmp_path / "run") == KEYS
    whole = agl(*LONG[:-1], "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert _without_time(tmp_path / "run") == _without_time(tmp_path / "whole")


def _without_time(run: Path) -> list[dict[str, object]]:
    lines = (run / "episodes.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def test_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    stopped = _stop_in_mid_run(tmp_path, signal.SIGINT)
    assert stopped.returncode == 130
    assert "Traceback" not in stopped.stderr
    assert f"continue with: agl {' '.join(LONG)} --resume" in stopped.stderr
    data = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    assert data.endswith(b"\n")
    keys = _keys(tmp_path / "run")
    assert len(keys) == len(set(keys)) == data.count(b"\n")


def test_a_torn_last_line_is_played_again(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    whole = (tmp_path / "episodes.jsonl").read_bytes()
    for cut in (1, 2, 300):
        (tmp_path / "episodes.jsonl").write_bytes(whole[:-cut])
        summary = evaluate("toy", Random(), out=tmp_path, resume=True)
        assert summary.n == 20
        assert _keys(tmp_path) == [(f"test-{task:03d}", 0) for task in range(20)]


def test_a_line_that_only_lacks_its_break_is_kept(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    lines = (tmp_path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_bytes(b"".join(lines[:7]).removesuffix(b"\n"))
    evaluate("toy", Random(), out=tmp_path, resume=True)
    assert _keys(tmp_path) == [(f"test-{task:03d}", 0) for task in range(20)]
    assert (tmp_path / "episodes.jsonl").read_bytes().splitlines(keepends=True)[:7] == lines[:7]


def test_a_failure_never_replaces_a_sample(tmp_path: Path) -> None:
    """As it may stand when two processes played the same key, one after the other."""
    evaluate("toy", Random(), limit=1, out=tmp_path)
    file = tmp_path / "episodes.jsonl"
    before = file.read_bytes()
    (sample,) = read_episodes(file)
    lost = Outcome(kind=OutcomeKind.INFRA_FAILURE, stop=StopReason.ERROR, error="down")
    with EpisodeWriter(file) as writer:
        writer.write(sample.model_copy(update={"score": None, "outcome": lost}))
    assert evaluate("toy", Random(), limit=1, out=tmp_path, resume=True).n == 1
    assert file.read_bytes() == before


def test_a_damaged_line_inside_is_named(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    lines = (tmp_path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_bytes(b"".join([*lines[:3], b"{oops\n", *lines[3:]]))
    with pytest.raises(UserError, match=r"line 4, got .*remove that line and use --resume"):
        evaluate("toy", Random(), out=tmp_path, resume=True)


def test_a_finished_run_plays_nothing_more(tmp_path: Path) -> None:
    first = evaluate("toy", Random(), out=tmp_path)
    assert evaluate("toy", Random(), out=tmp_path, resume=True) == first


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "its seed is 0, now 1"),
        ({"limit": 5}, "its limit is null, now 5"),
        ({"data": "train"}, 'its data is null, now "train"'),
        ({"shots": 2}, "its shots is 0, now 2"),
        ({"limits": Limits(max_turns=3)}, "its max_turns is 64, now 3"),
    ],
)
def test_another_config_is_refused_with_field_and_values(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    evaluate("toy", Random(), out=tmp_path)
    with pytest.raises(UserError, match=message):
        evaluate("toy", Random(), out=tmp_path, resume=True, **changed)  # type: ignore[arg-type]


def test_another_policy_is_refused(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    with pytest.raises(UserError, match='its policy is "random", now "oracle"'):
        evaluate("toy", Oracle(), out=tmp_path, resume=True)


def test_speed_and_patience_may_change(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    evaluate("toy", Random(), out=tmp_path, resume=True, concurrency=2, limits=Limits(deadline=5, retries=0))


def test_a_used_folder_needs_resume(tmp_path: Path) -> None:
    evaluate("toy", Random(), out=tmp_path)
    with pytest.raises(UserError, match="add --resume to continue that run, or choose another --out"):
        evaluate("toy", Random(), out=tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"no config\.json"):
        evaluate("toy", Random(), out=tmp_path / "other", resume=True)
    with pytest.raises(UserError, match="got the file"):
        evaluate("toy", Random(), out=tmp_path / "other" / "notes.txt")


def test_resume_without_a_run_is_a_fresh_start(tmp_path: Path) -> None:
    assert evaluate("toy", Random(), limit=2, out=tmp_path / "new", resume=True).n == 2


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    first = RunFolder(tmp_path, {"env": "toy"})
    with first.created():
        pass
    second = RunFolder(tmp_path, {"env": "toy"}, resume=True)
    with first.locked(), pytest.raises(UserError, match="another process is running there"), second.locked():
        pass
    with second.locked():
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="expected a folder to write to"):
        evaluate("toy", Random(), limit=1, out=tmp_path / "run")


def test_a_run_that_began_since_the_check_is_not_mixed_with(tmp_path: Path) -> None:
    late, early = (RunFolder(tmp_path / "run", {"seed": seed}) for seed in (0, 1))
    with early.created():
        pass
    with pytest.raises(UserError, match="expected an empty run folder"), late.created():
        pass


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema_version":1', '"schema_version":2', "line 1, got schema_version: "),
        ('"id":"test-000"', '"name":"test-000"', "line 1, got task: "),
        ('"id":"test-000"', '"id":"other"', "unknown task 'other'"),
    ],
)
def test_a_record_of_something_else_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    evaluate("toy", Random(), out=tmp_path)
    file = tmp_path / "episodes.jsonl"
    whole = file.read_text()
    assert old in whole
    file.write_text(whole.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        evaluate("toy", Random(), out=tmp_path, resume=True)


def test_an_interrupt_before_the_first_episode_is_said_too(tmp_path: Path) -> None:
    code = (
        "import agl.cli, eval.commands\n"
        "def interrupt(*_, **__): raise KeyboardInterrupt\n"
        "eval.commands.plan = interrupt\n"
        "agl.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "eval", "grit", "--policy", "oracle"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "agl: interrupted\n")
