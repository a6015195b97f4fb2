"""The report as a file: what it holds, what it escapes, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.errors import DataError
from agl.policies.scripted import Oracle, Player, Random
from agl.registry import env_class
from agl.trace import Episode, read_episodes
from envs.grit.actions import Solve
from envs.grit.env import GritEnv
from envs.grit.items import GritTask
from eval.report import grit
from eval.report.charts import Figure, Value, bars, forest, heat, histogram, lines
from eval.report.page import write
from eval.report.records import embedded, index, read
from eval.runner import evaluate
from tests.agl_process import agl
from tests.report_runs import HOSTILE, SCRIPT, episode, lost, write_run, write_training

pytestmark = pytest.mark.usefixtures("toy")


class Page(HTMLParser):
    """The elements of a page as a browser's tokenizer sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.scripts[-1] == "":
            self.scripts[-1] = data
        else:
            self.text += data


def page_of(run: Path) -> Page:
    return Page(Path(write(run).file).read_text(encoding="utf-8"))


def packed(page: Page) -> tuple[dict[str, Any], list[list[dict[str, Any]]]]:
    kinds = [attrs for tag, attrs in page.elements if tag == "script"]
    chunks = [text for attrs, text in zip(kinds, page.scripts, strict=True) if attrs.get("class") == "chunk"]
    return json.loads(page.scripts[0]), [json.loads(gzip.decompress(base64.b64decode(text))) for text in chunks]


def test_every_recorded_episode_can_be_read_back(tmp_path: Path) -> None:
    evaluate("toy", Random(), limit=6, attempts=2, out=tmp_path)
    found, chunks = packed(page_of(tmp_path))
    columns = found["columns"]
    recorded = list(read_episodes(tmp_path / "episodes.jsonl"))
    assert len(columns["id"]) == len(recorded) == 12
    for row, wanted in enumerate(recorded):
        kept = chunks[columns["chunk"][row]][columns["place"][row]]
        assert (columns["id"][row], columns["attempt"][row]) == wanted.key
        assert Episode.model_validate({k: v for k, v in kept.items() if k in Episode.model_fields}) == wanted
        assert columns["score"][row] == (wanted.score and wanted.score.total)
    assert set(found["texts"]) >= {"policy", "outcome", "stop", "facet:distance"}


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=4, out=tmp_path)
    first = write(tmp_path, tmp_path / "a.html")
    write(tmp_path, tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert first.bytes == (tmp_path / "a.html").stat().st_size
    assert first.episodes == 4


def test_the_page_needs_nothing_else_and_runs_no_other_script(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=4, out=tmp_path)
    page = page_of(tmp_path)
    for tag, attrs in page.elements:
        assert tag not in ("iframe", "object", "embed", "base", "img")
        for name, found in attrs.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "action", "data"):
                assert (found or "").startswith(("#", "data:,")), (tag, found)
    policy = next(attrs["content"] or "" for tag, attrs in page.elements if tag == "meta" and "http-equiv" in attrs)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", policy)


def test_hostile_text_is_data_everywhere(tmp_path: Path) -> None:
    hostile = episode(HOSTILE, policy=HOSTILE)
    score = (
        hostile.score.model_copy(update={"labels": {HOSTILE: HOSTILE, "gold": SCRIPT}, "parts": {HOSTILE: 0.5}})
        if hostile.score
        else None
    )
    run = write_run(
        tmp_path / "run", [hostile.model_copy(update={"score": score}), lost()], policy=HOSTILE, **{HOSTILE: SCRIPT}
    )
    calm = page_of(write_run(tmp_path / "calm", [episode()]))
    page = page_of(run)
    assert {tag for tag, _ in page.elements} - {tag for tag, _ in calm.elements} <= {"title"}
    assert sum(tag == "script" for tag, _ in page.elements) == sum(tag == "script" for tag, _ in calm.elements)
    assert "owned" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert "\u202e" not in page.text
    found, chunks = packed(page)
    assert found["columns"]["id"] == [HOSTILE, "t-0"]
    assert chunks[0][0]["events"][0]["observation"] == HOSTILE


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters())
    | st.sampled_from([SCRIPT, "\u2028<!--", "]]>"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_embedded_json_cannot_leave_its_element(value: Any) -> None:
    text = embedded(value)
    assert not set(text) & set("<>&\u2028\u2029\ud800")
    assert text.isascii()
    assert json.loads(text) == value


@given(st.text(st.characters(), max_size=60), st.floats(-1e9, 1e9), st.integers(0, 10**9))
def test_charts_are_well_formed_whatever_their_names(name: str, value: float, count: int) -> None:
    charts = [
        forest("f", name, {name: {name: Value(value, value - 1, value + 1)}, "b": {"c": Value(0.5)}}),
        bars("b", name, {name: {name: float(count), "x": 1.0}}, share=True),
        lines("l", name, {name: {0.0: Value(value), 1.0: Value(0.0, -1.0, 1.0)}}, x_title=name),
        histogram("h", name, {name: [value, 0.0, float(count)]}, x_title=name),
        heat("m", name, {(name, name): float(count)}, rows=[name], columns=[name], row_title=name, column_title=name),
    ]
    for chart in charts:
        root = ElementTree.fromstring(chart.standalone())
        assert root.tag.endswith("svg")
        assert "nan" not in chart.svg.replace(name, "").lower() or "nan" in name.lower()
        assert len(list(root.iter())) < 400


def test_the_last_sample_of_a_key_counts(tmp_path: Path) -> None:
    first, again = episode(policy="first"), episode(policy="again")
    records = read(write_run(tmp_path, [first, again, lost(), lost("t-1"), lost("t-1")]))
    assert [(row.id, row.outcome) for row in records.rows] == [("t-0", "ok"), ("t-1", "infra_failure")]
    kept = json.loads(gzip.decompress(records.chunks[records.rows[0].chunk]))[records.rows[0].place]
    assert kept["policy"] == "again"


def test_policies_stand_side_by_side(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=5, out=tmp_path / "oracle")
    evaluate("toy", Random(), limit=5, out=tmp_path / "random")
    records = read(tmp_path)
    assert [player.name for player in records.players] == ["oracle", "random"]
    assert [player.summary.n for player in records.players if player.summary] == [5, 5]
    groups = index(records)["columns"]["group"]
    assert groups["codes"] == [0, 1, 2, 3, 4] * 2
    text = page_of(tmp_path).text
    assert "score, oracle" in text
    assert "score, random" in text


def test_the_summary_is_made_where_the_run_wrote_none(tmp_path: Path) -> None:
    summary = evaluate("toy", Random(), limit=5, out=tmp_path)
    (tmp_path / "summary.json").unlink()
    (player,) = read(tmp_path).players
    assert player.summary is not None
    assert player.summary.metrics == summary.metrics


def test_a_training_has_curves_and_groups(tmp_path: Path) -> None:
    run = write_training(tmp_path / "training")
    report = write(run, figures=tmp_path / "figures")
    assert report.episodes == 12
    names = {Path(name).stem for name in report.figures}
    assert {"training-reward", "training-entropy", "training-parts0", "training-distinct"} <= names
    found, _ = packed(Page(Path(report.file).read_text(encoding="utf-8")))
    assert found["columns"]["step"] == [1] * 6 + [2] * 6
    assert len(set(found["columns"]["group"]["codes"])) == 4


def test_without_a_checkpoint_the_episodes_speak(tmp_path: Path) -> None:
    run = write_training(tmp_path / "training")
    (run / "checkpoint-2" / "trainer_state.json").unlink()
    (svg,) = (
        tmp_path / "f" / name for name in write(run, figures=tmp_path / "f").figures if name == "training-flat.svg"
    )
    # of two groups in each step the one with reward 0 throughout is flat
    assert svg.read_text().count("0.500") == 2


def test_figures_are_files(tmp_path: Path) -> None:
    evaluate("grit", Random(), limit=24, out=tmp_path / "run")
    report = write(tmp_path / "run", figures=tmp_path / "figures")
    vectors = [name for name in report.figures if name.endswith(".svg")]
    assert {"metrics.svg", "grit-structure.svg", "outcomes.svg", "score-by-scheme.svg"} <= set(vectors)
    for name in vectors:
        assert ElementTree.parse(tmp_path / "figures" / name).getroot().tag.endswith("svg")


def test_figures_are_pictures_where_a_renderer_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="needs resvg-py to draw PNG")
    report = write(write_run(tmp_path / "run", [episode(HOSTILE)]), figures=tmp_path / "figures")
    pictures = [name for name in report.figures if name.endswith(".png")]
    assert len(pictures) == len(report.figures) / 2
    assert all((tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def grit_item() -> GritTask:
    return next(t for t in GritEnv.tasks("mini", limit=24) if t.task == "shortest_path" and t.weighted)


def grit_episode(tmp_path: Path, task: GritTask, change: Any) -> Episode:
    """The oracle's episode with its written graph changed."""
    env = env_class("grit")()
    env.reset(task)
    call = env.oracle()
    assert isinstance(call, Solve)
    data = {node: dict(near) for node, near in call.graph["data"].items()}
    change(data)
    arguments = {**call.model_dump(mode="json"), "graph": {**call.graph, "data": data}}
    solved = [{"action": "solve", "arguments": arguments, "observation": "", "is_error": False}]
    return episode(task.id).model_copy(
        update={"events": Episode.model_validate({**episode().model_dump(), "events": solved}).events}
    )


def test_the_written_graph_is_drawn_over_the_true_one(tmp_path: Path) -> None:
    task = grit_item()
    (a, b, weight), (c, d, _) = task.edges[0], task.edges[1]
    absent = next(
        (u, v) for u in range(task.n) for v in range(u + 1, task.n) if all({u, v} != {x, y} for x, y, _ in task.edges)
    )
    names = task.nodes

    def change(data: dict[str, dict[str, Any]]) -> None:
        data[names[a]][names[b]] = weight + 1
        data[names[c]].pop(names[d])
        data[names[absent[0]]][names[absent[1]]] = 1
        data[SCRIPT] = {names[0]: 1}

    drawing = grit.look(task, grit_episode(tmp_path, task, change)).drawing
    assert drawing is not None
    states = {(edge.source, edge.target): edge.state for edge in drawing.edges}
    assert states[a, b] == "weight"
    assert states[c, d] == "missing"
    assert states[absent] == "extra"
    assert states[0, task.n] == "extra"
    assert list(states.values()).count("match") == task.m - 2
    assert [node.label for node in drawing.nodes] == [*names, SCRIPT]
    assert drawing.nodes[-1].role == "unknown"
    gold = {frozenset((e.source, e.target)) for e in drawing.edges if e.gold}
    assert gold == {frozenset(pair) for pair in pairwise(task.gold.witness)}


def test_equal_graphs_have_equal_fingerprints_whatever_their_order(tmp_path: Path) -> None:
    task = grit_item()

    def reverse(data: dict[str, dict[str, Any]]) -> None:
        for node in list(data):
            data[node] = data.pop(node)

    def drop(data: dict[str, dict[str, Any]]) -> None:
        next(near for near in data.values() if near).popitem()

    same, moved, other = (grit.look(task, grit_episode(tmp_path, task, c)).written for c in (dict, reverse, drop))
    assert same == moved
    assert other not in (None, same)


def test_reagan_has_its_figures_and_the_neighbours_that_were_read(tmp_path: Path) -> None:
    for player in ("oracle-planner", "no-op"):
        evaluate("reagan", Player(player), limit=12, out=tmp_path / player)
    report = write(tmp_path, figures=tmp_path / "figures")
    assert {"reagan-accuracy.svg", "reagan-actions.svg", "reagan-fallback.svg", "reagan-faults.svg"} <= set(
        report.figures
    )
    found, chunks = packed(Page(Path(report.file).read_text(encoding="utf-8")))
    seen = 0
    for row, policy in enumerate(found["texts"]["policy"]["codes"]):
        kept = chunks[found["columns"]["chunk"][row]][found["columns"]["place"][row]]
        names = {label for label, marks, _, _ in kept["drawing"]["nodes"] if marks & 4}
        read_ = {name for event in kept["events"] for name in event["arguments"].get("target_nodes", ())}
        assert names == read_
        assert [label for label, _, role, _ in kept["drawing"]["nodes"] if role == "target"] == [kept["task"]["node"]]
        assert not names or found["texts"]["policy"]["values"][policy] == "oracle-planner"
        seen += len(names)
    assert seen


@pytest.mark.parametrize("env", ["agentgl-nc", "agentgl-lp"])
def test_agentgl_has_its_figures_and_the_nodes_that_were_found(env: str, tmp_path: Path) -> None:
    evaluate(env, Player("all-tools"), limit=8, env_options={"stage": 2}, out=tmp_path)
    report = write(tmp_path, figures=tmp_path / "figures")
    assert {"agentgl-searches.svg", "agentgl-reward.svg", "confusion.svg"} <= set(report.figures)
    _, chunks = packed(Page(Path(report.file).read_text(encoding="utf-8")))
    for kept in chunks[0]:
        tags = [tag for _, marks, _, tag in kept["drawing"]["nodes"] if marks & 4]
        pools = {pool for tag in tags for pool in tag.split(", ")}
        answered = {event["arguments"]["pool"] for event in kept["events"] if event["observation"].startswith("(1) ")}
        assert pools <= answered
        assert len(tags) >= 3


def test_without_its_data_a_run_is_reported_without_drawings(tmp_path: Path) -> None:
    evaluate("reagan", Player("vote"), limit=3, out=tmp_path)
    path = tmp_path / "episodes.jsonl"
    path.write_text(path.read_text().replace('"data":"networkx-docs"', '"data":"not-here"'))
    _, chunks = packed(page_of(tmp_path))
    assert [kept["drawing"] for kept in chunks[0]] == [None] * 3
    assert all(kept["gold"] for kept in chunks[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "none", "does not exist; check the path"),
        (lambda path: path, "got neither config.json nor"),
        (lambda path: write_run(path / "run", []), "expected at least one episode"),
        (
            lambda path: (write_run(path / "a", [episode()]), write_run(path / "b", [episode()], env="toy"), path)[2],
            "expected runs of one environment",
        ),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        write(make(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_command(tmp_path: Path) -> None:
    evaluate("toy", Oracle(), limit=3, out=tmp_path / "run")
    told = agl("report", "run", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "run" / "report.html").is_file()
    report = json.loads(agl("report", "run", "--out", "x.html", "--figures", "f", "--json", cwd=tmp_path).stdout)
    assert (report["file"], report["episodes"]) == ("x.html", 3)
    assert all((tmp_path / "f" / name).is_file() for name in report["figures"])
    assert "Example: agl report" in agl("report", "--help", cwd=tmp_path).stdout
    refused = agl("report", "nothing", cwd=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    blocked = agl("report", "run", "--out", "missing/x.html", cwd=tmp_path)
    assert blocked.returncode == 2
    assert "choose another path" in blocked.stderr


def test_a_figure_stands_alone_on_white() -> None:
    figure = Figure("x", "t", "", '<svg xmlns="http://www.w3.org/2000/svg"><g /></svg>', 1.0)
    (style, ground, _) = ElementTree.fromstring(figure.standalone())
    assert style.tag.endswith("style")
    assert ground.get("fill") == "#ffffff"
