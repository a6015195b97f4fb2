"""Reading recorded episodes in the terminal, hostile ones included."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agl.core import Outcome, OutcomeKind, Score, StopReason
from agl.errors import DataError
from agl.policies.scripted import Oracle, Random
from agl.trace import Episode, Event, Tokens, Turn, read_episodes
from eval.runner import evaluate
from eval.show import find, listed, listing, show_episode
from eval.visible import visible, visible_json
from tests.agl_process import agl

SGR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]hi[/] :smile:\r\u202eevil\x9b1m\ud800\x00\n3. [injected] user\n\tend"


pytestmark = pytest.mark.usefixtures("toy")


def shown(episode: Episode, *, prompt: bool = False, terminal: bool = False, width: int = 60) -> str:
    out = io.StringIO()
    screen = Console(
        file=out, force_terminal=terminal, highlight=False, width=width, color_system="standard" if terminal else "auto"
    )
    show_episode(screen, episode, [episode.attempt], prompt=prompt)
    return out.getvalue()


def hostile(text: str = HOSTILE) -> Episode:
    return Episode(
        task={"id": text, "env": "toy"},
        attempt=0,
        policy=text,
        dialect="tags",
        transcript=(
            Turn(source="prompt", role="system", text="rules"),
            Turn(source="prompt", role="user", text=text),
            Turn(source="sampled", role="assistant", text=text, finish="stop"),
            Turn(source="injected", role="user", text=text),
        ),
        events=(Event(action="move", arguments={"to": text}, observation=text, is_error=True),),
        score=Score(total=0.5, reward=-1.0, parts={"moves": 2.0, "gap": None}, labels={text: text}),
        outcome=Outcome(kind=OutcomeKind.OK, stop=StopReason.ANSWER, error=text, retries=1),
        tokens=Tokens(sampled=1234),
        seconds={"model": 1.0, "framework": 0.5, "total": 1.5},
    )


@given(st.text(st.characters()) | st.text(st.sampled_from("\x1b\x9b\u202e\ud800\r\n\t ab\\")))
def test_nothing_a_terminal_obeys_is_left(text: str) -> None:
    assert visible(text).isprintable()
    assert all(line.isprintable() for line in re.split("[\n\t]", visible(text, lines=True)))
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        assert visible_json(written).isprintable()
        assert json.loads(visible_json(written)) == text


def test_readable_text_stays_as_it_is() -> None:
    text = "Zoë's «Ürün» 北京 [bold] \\boxed{1}"
    assert visible(text) == visible_json(text) == text
    assert visible("a\tb\nc", lines=True) == "a\tb\nc"
    assert visible("a\x1b[0m\nb") == "a\\x1b[0m\\nb"


@pytest.mark.parametrize("terminal", [False, True])
def test_hostile_text_reaches_no_terminal(terminal: bool) -> None:
    plain = SGR.sub("", shown(hostile(), prompt=True, terminal=terminal))
    assert all(line.isprintable() for line in plain.split("\n"))
    assert "[bold red]hi[/] :smile:" in plain
    plain.encode()
    assert plain.count("\n| 3. [injected] user") == 4
    assert [line for line in plain.splitlines() if line.startswith("3. ")] == ["3. [injected] user"]


def test_no_line_of_a_terminal_is_longer_than_it() -> None:
    text = "word " * 40 + "x" * 200 + "北京" * 60
    lines = SGR.sub("", shown(hostile(text), terminal=True, width=50)).splitlines()
    quoted = [line for line in lines if line.startswith("| ")]
    assert len(quoted) > 40
    assert all(len(line) + sum(ord(c) > 0x2E80 for c in line) <= 50 for line in quoted)
    assert "".join(quoted).count("北") == 60 * 4


def test_colours_are_for_terminals_only() -> None:
    assert "\x1b[" in shown(hostile("x"), terminal=True)
    assert "\x1b[" not in shown(hostile("x"))


def test_an_episode_is_shown_in_full(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=3, out=tmp_path)
    episode, attempts = find(tmp_path, "test-001")
    assert attempts == [0]
    text = shown(episode)
    assert episode.score is not None
    for line in (
        "episode: test-001, attempt 0",
        "env: toy, policy: oracle, dialect: tags",
        "outcome: ok, stopped by answer",
        "score: 1.000, reward: 2.000",
        f"parts: arrived 1, moves {episode.score.parts['moves']:.4g}",
        "labels: none",
        "tokens: prompt -, sampled 0, injected -",
        f"actions: {len(episode.events)}",
    ):
        assert line in text.splitlines()
    assert "| You are at" in text.partition("question:")[2]
    for turn in episode.transcript:
        if turn.source != "prompt":
            assert all(f"| {visible(line)}" in text for line in turn.text.split("\n"))
    instructions = "You walk along a path of named places."
    assert instructions not in text
    assert instructions in shown(episode, prompt=True)


def test_what_the_machinery_lost_has_an_error_and_no_score() -> None:
    lost = Outcome(kind=OutcomeKind.INFRA_FAILURE, stop=StopReason.TIMEOUT, error="deadline of 600 s passed")
    text = shown(hostile("x").model_copy(update={"score": None, "outcome": lost}))
    assert "outcome: infra_failure, stopped by timeout" in text
    assert "error: deadline of 600 s passed" in text
    assert "score: none" in text


def test_attempts_are_told_apart(tmp_path: Path) -> None:
    evaluate("toy", Random(), limit=2, attempts=3, out=tmp_path)
    first, attempts = find(tmp_path, "test-001")
    assert (first.key, attempts) == (("test-001", 0), [0, 1, 2])
    assert find(tmp_path, "test-001", 2)[0].key == ("test-001", 2)
    with pytest.raises(DataError, match="got --attempt 3; choose one of: 0, 1, 2"):
        find(tmp_path, "test-001", 3)


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=2, out=tmp_path)
    path = tmp_path / "episodes.jsonl"
    again = next(read_episodes(path)).model_copy(update={"policy": "again"})
    with path.open("a") as file:
        file.write(again.line() + "\n" + '{"torn')
    assert find(tmp_path, "test-000")[0].policy == "again"
    assert listing(tmp_path, limit=9).total == 2


@pytest.mark.parametrize(
    ("wanted", "near"), [("test-00", "'test-000', 'test-001', 'test-002'"), ("tset-004", "test-004"), ("", "test-000")]
)
def test_an_unknown_id_names_the_nearest(tmp_path: Path, wanted: str, near: str) -> None:
    evaluate("toy", Oracle(), limit=5, out=tmp_path)
    with pytest.raises(DataError, match=f"got {wanted!r}; nearest: .*{near}") as caught:
        find(tmp_path, wanted)
    assert "\n" not in str(caught.value)


def test_a_listing_has_pages(tmp_path: Path) -> None:
    evaluate("toy", Random(), limit=7, attempts=2, out=tmp_path)
    pages = [listing(tmp_path, limit=4, skip=skip) for skip in range(0, 16, 4)]
    keys = [(row.id, row.attempt) for page in pages for row in page.episodes]
    recorded = list(read_episodes(tmp_path / "episodes.jsonl"))
    assert keys == [episode.key for episode in recorded]
    assert [row.score for page in pages for row in page.episodes] == [ep.score and ep.score.total for ep in recorded]
    assert str(listed(pages[0])[1]) == "episodes: 1 to 4 of 14; go on with --skip 4, or show more with --limit"
    assert str(listed(pages[3])[1]) == "episodes: 13 to 14 of 14"
    assert str(listed(listing(tmp_path, limit=4, skip=99))[1]) == "episodes: none of 14"


def test_the_command(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=30, out=tmp_path / "run")
    told = agl("show", "run", "--episode", "test-002", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "episode: test-002, attempt 0" in told.stdout
    record = agl("show", "run", "--episode", "test-002", "--json", cwd=tmp_path)
    lines = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    assert json.loads(record.stdout) == json.loads(lines[2])
    table = agl("show", "run", "--limit", "2", cwd=tmp_path)
    assert "episodes: 1 to 2 of 20" in table.stdout
    found = json.loads(agl("show", "run", "--skip", "19", "--json", cwd=tmp_path).stdout)
    assert (found["total"], [row["id"] for row in found["episodes"]]) == (20, ["test-019"])
    assert "Example: agl show" in agl("show", "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--episode", "test-20"], "expected the id of an episode in run, got 'test-20'"),
        (["run", "--attempt", "1"], "expected --episode ID with --attempt, got none"),
        (["run", "--prompt"], "expected --episode ID with --prompt"),
        (["run", "--limit", "0"], "--limit"),
        (["none"], "got none, which does not exist"),
        (["file"], "got file, which is no folder"),
        (["."], "whose sub-folders hold runs; name one, such as run"),
        ([], "RUN"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    evaluate("toy", Oracle(), limit=1, out=tmp_path / "run")
    (tmp_path / "file").touch()
    done = agl("show", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("agl: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
