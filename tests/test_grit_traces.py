"""Expert traces: the rollout's own prompt, varied words without the truth, and text that earns the full reward."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agl.dialects import dialect_for
from agl.errors import DataError, UserError
from agl.graphs.solve import Solution
from envs.grit import build, items
from envs.grit.env import GritEnv
from envs.grit.items import TASKS, GritTask
from envs.grit.perturb_commands import traces as command
from envs.grit.traces import expert_trace, expert_traces, write_traces

SPLIT = build.Split("probe", 6, 9, 1, tsp_shift=0)
EACH = [build.item(SPLIT, build.Recipe(), task, 2, view) for task in TASKS for view in build.VIEWS]


@pytest.mark.parametrize("dialect", ["tags", "tools"])
@pytest.mark.parametrize("task", EACH, ids=lambda task: task.id)
def test_a_trace_replays_to_the_full_reward(task: GritTask, dialect: str) -> None:
    trace = expert_trace(task, dialect=dialect, shots=1)
    env = GritEnv()
    written = dialect_for(env, dialect)
    examples = [written.demonstrate(env, env.reset(one)) for one in env.worked_examples(task, 1)]
    prompt = written.prompt(env, env.reset(task), examples)
    assert [(message.role, message.content) for message in trace.prompt] == [
        (message.role, message.content) for message in prompt.messages
    ]
    for segment in trace.segments:
        if segment.source == "sampled":
            for action in written.parse(segment.text):
                assert not env.step(action).observation.is_error
    assert env.score().reward == trace.reward == 2.0
    assert [segment.source for segment in trace.segments] == ["sampled", "injected", "sampled"]
    assert "".join(segment.text for segment in trace.segments) == "".join(m.content for m in trace.completion)
    roles = [message.role for message in trace.completion]
    assert roles == (["assistant"] if dialect == "tags" else ["assistant", "tool", "assistant"])
    shown = [segment.text for segment in trace.segments if segment.source == "injected"]
    assert all(("<result>" in text) == (dialect == "tags") for text in shown)


def thoughts(task: GritTask) -> list[str]:
    text = "".join(segment.text for segment in expert_trace(task).segments if segment.source == "sampled")
    return re.findall(r"<think>(.*?)</think>", text, re.DOTALL)


def test_thoughts_vary_and_say_nothing_but_the_question() -> None:
    first = {thoughts(task)[0] for task in EACH}
    assert len(first) > 0.9 * len(EACH)
    assert len({thoughts(task)[1] for task in EACH}) >= 4
    for task in EACH:
        before, after = thoughts(task)
        for name in re.findall("|".join(map(re.escape, sorted(task.nodes, key=len, reverse=True))), before):
            assert name in task.question
        allowed = {str(task.n)} | {name for name in (*task.nodes, *task.aliases) if name in before}
        left = before
        for name in sorted(allowed, key=len, reverse=True):
            left = left.replace(name, "")
        assert not re.search(r"\d", left), before  # no cost, no count of colours, no weight
        assert not re.search(r"\d", after)
        assert all(f"{alias}" in before for alias in task.aliases)


def test_same_traces_every_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for out in (one, two):
        assert write_traces(expert_traces("mini", max_nodes=5, limit=12, dialect="tools"), out) == 12
    assert one.read_bytes() == two.read_bytes()
    rows = [json.loads(line) for line in one.read_text(encoding="utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == 12
    sizes = {task.id: task.n for task in GritEnv.tasks("mini")}
    assert all(sizes[row["id"]] <= 5 for row in rows)
    assert set(rows[0]) == {"id", "dialect", "prompt", "completion", "segments", "reward"}


def test_an_item_whose_answer_is_wrong_is_refused(tmp_path: Path) -> None:
    good = build.item(SPLIT, build.Recipe(), "tsp", 1, build.VIEWS[0])
    assert isinstance(good.gold.value, int)
    bad = good.model_copy(
        update={"id": "bad", "gold": good.gold.model_copy(update={"value": good.gold.value + 1})}, deep=True
    )
    path, out = tmp_path / "items.jsonl", tmp_path / "out.jsonl"
    items.write([good, bad], path)
    with pytest.raises(DataError, match=r"expected the expert to earn 2 on bad, got .*; check it with"):
        write_traces(expert_traces(str(path)), out)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cut_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Solution.text
    monkeypatch.setattr(Solution, "text", lambda self: whole(self) + " ..." * 2000)
    with pytest.raises(DataError, match="uncut"):
        expert_trace(EACH[0])


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    done = run("--split", "mini", "--limit", "3", "--dialect", "tools", "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"traces": 3, "out": str(out)}
    for arguments, said in (
        (("--split", "mini", "--max-nodes", "2"), "items of at most 2 nodes in mini, got none"),
        (("--split", "mini", "--limit", "0"), "--limit of at least 1, got 0"),
        (("--split", "midi"), "expected a GRIT split"),
    ):
        failed = run(*arguments, "--out", str(tmp_path / "none.jsonl"))
        assert isinstance(failed.exception, UserError), failed.output
        assert said in str(failed.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["traces.jsonl"]
