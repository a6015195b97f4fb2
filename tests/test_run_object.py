"""`agl.evaluate` and `Run`: runs in Python, in scripts and in notebooks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agl
from agl.core import OutcomeKind, StopReason
from agl.errors import DataError, UserError
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play
from agl.policies.scripted import Oracle
from agl.trace import EpisodeWriter
from tests.agl_process import agl_here, environment
from tests.report_runs import SCRIPT

pytestmark = pytest.mark.usefixtures("toy")


def test_a_run_has_its_summary_and_its_episodes(tmp_path: Path) -> None:
    run = agl.evaluate("toy", "oracle", limit=5, attempts=2, out=tmp_path / "run", progress=False)
    assert run.summary.metrics["score"].value == 1.0
    assert (run.summary.n, run.config["policy"]) == (10, "oracle")
    episodes = list(run.episodes())
    assert [episode.key for episode in episodes] == [(f"test-00{task}", n) for task in range(5) for n in range(2)]
    assert run.episode("test-003", 1).line() == episodes[7].line()
    again = agl.Run(str(tmp_path / "run"))
    assert again.summary == run.summary
    assert repr(again) == f"Run({str(tmp_path / 'run')!r}): toy, oracle: score 1.000 [0.566, 1.000], n 10"


def test_python_and_the_command_play_the_same(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"limit": 6, "seed": 3, "dialect": "tools", "shots": 1}
    run = agl.evaluate("toy", "random", **settings, out=tmp_path / "a", progress=False)
    arguments = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    done = agl_here("eval", "toy", "--policy", "random", *arguments, "--out", "b", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["metrics"] == run.summary.model_dump(mode="json")["metrics"]
    assert agl.Run(tmp_path / "b").config == run.config


def test_a_data_frame_has_one_row_per_episode_with_facets_and_parts(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    run = agl.evaluate("toy", "random", limit=8, out=tmp_path / "run", progress=False)
    frame = run.to_pandas()
    assert frame["id"].tolist() == [episode.key[0] for episode in run.episodes()]
    assert frame["score"].mean() == pytest.approx(run.summary.metrics["score"].value)
    assert frame["parts.moves"].mean() == pytest.approx(run.summary.metrics["moves"].value)
    means = frame.groupby("facets.distance")["score"].mean()
    assert {name: group.metrics["score"].value for name, group in run.summary.groups["distance"].items()} == (
        pytest.approx(means.to_dict())
    )


def test_without_pandas_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = agl.evaluate("toy", "oracle", limit=1, out=tmp_path / "run", progress=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"needs pandas, which is not installed: pip install 'agl\[notebook\]'"):
        run.to_pandas()


def test_an_interrupted_run_can_be_read_and_its_last_samples_count(tmp_path: Path) -> None:
    run = agl.evaluate("toy", "oracle", limit=3, out=tmp_path / "run", progress=False)
    played = list(run.episodes())
    (tmp_path / "run" / "summary.json").unlink()
    failure = played[1].outcome.model_copy(update={"kind": OutcomeKind.INFRA_FAILURE, "stop": StopReason.ERROR})
    with EpisodeWriter(tmp_path / "run" / "episodes.jsonl") as writer:
        writer.write(played[1].model_copy(update={"outcome": failure, "score": None}))
    (tmp_path / "run" / "episodes.jsonl").open("ab").write(b'{"task": torn')
    run = agl.Run(tmp_path / "run")
    assert [episode.line() for episode in run.episodes()] == [episode.line() for episode in played]
    assert "not finished" in repr(run)
    assert "not finished" in run._repr_html_()
    with pytest.raises(DataError, match="resume=True"):
        _ = run.summary
    assert agl.evaluate("toy", "oracle", limit=3, out=run.path, resume=True, progress=False).summary.n == 3


def test_a_broken_run_is_shown_and_says_what_is_wrong(tmp_path: Path) -> None:
    run = agl.evaluate("toy", "oracle", limit=3, out=tmp_path / "run", progress=False)
    (run.path / "summary.json").write_text("{")
    broken = agl.Run(run.path)
    assert "no summary that can be read" in repr(broken)
    assert "expected JSON" in broken._repr_html_()
    with pytest.raises(DataError, match="expected JSON"):
        _ = broken.summary
    with pytest.raises(UserError, match="as text, got 0"):
        broken.episode(0)
    (run.path / "episodes.jsonl").unlink()
    with pytest.raises(DataError, match="no file"):
        list(broken.episodes())


def test_a_training_run_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text('{"env": "toy", "policy": "in-training"}')
    assert "a training run" in repr(agl.Run(tmp_path))
    with pytest.raises(DataError, match="evaluate its checkpoints"):
        _ = agl.Run(tmp_path).summary


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_table_of_a_notebook_shows_every_group_and_obeys_nothing(tmp_path: Path) -> None:
    run = agl.evaluate("toy", "oracle", limit=9, out=tmp_path / "run", progress=False)
    page = _Tags(run._repr_html_())
    assert page.names.count("tr") == 2 + len(run.summary.groups["distance"])
    assert page.names.count("meter") == 1 + len(run.summary.groups["distance"])
    assert "toy, oracle: score 1.000 [0.701, 1.000], n 9" in page.text
    assert all(word in page.text for word in ("arrived", "moves", "distance = 1", "outcomes: ok 9"))
    told = json.loads((run.path / "summary.json").read_text())
    told["groups"][SCRIPT] = {SCRIPT: told["groups"]["distance"]["1"]}
    (run.path / "summary.json").write_text(json.dumps({**told, "policy": SCRIPT}))
    hostile = _Tags(agl.Run(run.path)._repr_html_())
    assert not {"script", "img"} & set(hostile.names)
    assert SCRIPT in hostile.text


def test_default_folders_of_one_second_do_not_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [agl.evaluate("toy", "oracle", limit=1, progress=False) for _ in range(3)]
    assert len({run.path for run in runs}) == 3
    assert all(run.path.parent == Path("runs") for run in runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "tony"}, "did you mean 'toy'?"),
        ({"policy": "oracel"}, "did you mean 'oracle'?"),
        ({"policy": "Qwen/Qwen3-4B"}, "did you mean 'hf:Qwen/Qwen3-4B'?"),
        ({"limit": 0}, "at least 1, got 0"),
        ({"data": "none"}, "got 'none'"),
        ({"env_options": {"speed": 1}}, "got 'speed'"),
        ({"policy_options": {"speed": 1}}, "got 'speed'"),
        ({"policy_options": {"players": ["x"]}}, "got 'players'"),
        ({"policy": Oracle(), "policy_options": {"speed": 1}}, "leave them out"),
        ({"resume": True, "out": None}, "name the run folder"),
        ({"env": None}, "option env: input should be a valid string"),
        ({"policy": ["oracle", "random"]}, "option policy: expected the name of a policy or a policy object"),
        ({"limit": "3"}, "option limit: input should be a valid integer, got '3'"),
        ({"seed": None}, "option seed: input should be a valid integer"),
        ({"concurrency": 2.5}, "option concurrency: input should be a valid integer"),
        ({"sampling": {"temperature": 1}}, "option sampling: expected agl.Sampling(...)"),
        ({"sampling": agl.Sampling(temperature="hot")}, "option sampling.temperature: input should be a valid number"),
        ({"env_options": {1: 2}}, "got 1"),
        ({"env_options": "fast"}, "option env_options: expected a map"),
    ],
)
def test_a_wrong_argument_is_one_sentence(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    chosen = {"env": "toy", "policy": "oracle", "out": tmp_path / "run", "progress": False, **arguments}
    with pytest.raises(UserError) as caught:
        agl.evaluate(**chosen)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    run = agl.evaluate(
        "toy",
        "oracle",
        limit=np.int64(2),
        seed=np.int32(1),
        sampling=agl.Sampling(temperature=np.float32(0.5)),
        out=tmp_path / "run",
        progress=False,
    )
    assert (run.config["limit"], run.config["seed"], run.config["sampling"]["temperature"]) == (2, 1, 0.5)
    run = agl.evaluate(
        "grit", "oracle", limit=1, env_options={"rho_err": np.float32(-0.5)}, out=tmp_path / "grit", progress=False
    )
    assert run.config["env_options"] == {"rho_err": -0.5}


def test_what_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'evalute'") as caught:
        _ = agl.evalute
    assert caught.value.name == "evalute"
    assert {"evaluate", "Run", "Sampling", "Limits", "Env"} <= set(dir(agl))


class Counting(Oracle):
    """Counts what happens to it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = self.closed = 0

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        self.opened += 1
        return super().open(prompt, seed=seed, play=play)

    async def aclose(self) -> None:
        self.closed += 1


def test_a_policy_object_stays_open_for_the_next_run(tmp_path: Path) -> None:
    policy = Counting()
    for number in range(2):
        agl.evaluate("toy", policy, limit=2, out=tmp_path / str(number), progress=False)
    assert (policy.opened, policy.closed) == (4, 0)


@pytest.mark.model
def test_a_loaded_model_plays_in_several_runs_and_loops(tmp_path: Path) -> None:
    from agl.policies.hf import HfPolicy

    policy = HfPolicy("smollm2", agl.Sampling(max_tokens=8))

    async def notebook() -> agl.Run:
        return agl.evaluate("toy", policy, limit=1, out=tmp_path / "b", progress=False)

    first = agl.evaluate("toy", policy, limit=1, out=tmp_path / "a", progress=False)
    second = asyncio.run(notebook())
    said = [[turn.text for turn in next(run.episodes()).transcript] for run in (first, second)]
    assert said[0] == said[1]
    assert first.config["sampling"]["max_tokens"] == 8


def test_it_runs_where_a_loop_runs_already(tmp_path: Path) -> None:
    async def cell() -> agl.Run:
        return agl.evaluate("toy", "oracle", limit=4, out=tmp_path / "run", progress=False)

    assert asyncio.run(cell()).summary.n == 4

    async def wrong() -> None:
        agl.evaluate("toy", "replay:none.jsonl", limit=4, out=tmp_path / "b", progress=False)

    with pytest.raises(UserError, match="which is no file"):
        asyncio.run(wrong())


_NOTEBOOK = """
import asyncio, agl
from agl.policies.scripted import Oracle
from agl.registry import register
register("toy", "tests.toy_env:ToyEnv")

class Slow(Oracle):
    async def prepare(self):
        await asyncio.sleep(0.05)

async def cell():
    agl.evaluate("toy", Slow(), data="train", concurrency=1, out="run", progress=False)

try:
    asyncio.get_event_loop_policy().new_event_loop().run_until_complete(cell())
except KeyboardInterrupt:
    print("stopped", sum(1 for _ in agl.Run("run").episodes()))
"""


def test_an_interruption_of_a_notebook_keeps_what_is_finished(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _NOTEBOOK], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    file = tmp_path / "run" / "episodes.jsonl"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    word, count = said.split()
    assert word == "stopped"
    assert 1 <= int(count) < 100
    assert int(count) == len(file.read_text().splitlines())
    run = agl.evaluate("toy", "oracle", data="train", out=tmp_path / "run", resume=True, progress=False)
    assert run.summary.n == 100


def test_an_interruption_ends_the_run_before_it_is_told(tmp_path: Path) -> None:
    class Slow(Oracle):
        is_ready = False

        async def prepare(self) -> None:
            time.sleep(1.0)
            self.is_ready = True

    policy = Slow()

    async def cell() -> None:
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        agl.evaluate("toy", policy, limit=2, out=tmp_path / "run", progress=False)

    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(cell())
    loop.close()
    assert policy.is_ready


def test_import_stays_light() -> None:
    code = (
        "import sys, agl\nassert 'eval' not in sys.modules and 'asyncio' not in sys.modules\n"
        "agl.evaluate\nheavy = {'torch', 'transformers', 'pandas', 'datasets', 'vllm'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
