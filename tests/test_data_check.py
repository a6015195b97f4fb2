"""The check of graphs, the alignment probe, and `agl data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agl.graphs.data_check import alignments, best_shift, check, check_folder, homophily, join_alignments, shifted
from agl.graphs.sources import open_graph
from agl.graphs.sources.folder import read_folder, write_folder
from agl.graphs.text_graph import TextGraph
from tests.agl_process import agl
from tests.conftest import check_case, handed_cases
from tests.test_sources import tables
from tests.text_graphs import node, write


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))


def codes(report: Any) -> dict[str, str]:
    return {finding.code: finding.level for finding in report.findings}


def moved(graph: TextGraph, texts: list[str]) -> TextGraph:
    return TextGraph.build(
        graph.ids, texts, graph.arcs(), labels=graph.labels, class_names=graph.class_names, directed=True
    )


def test_cora_passes(shared: Path) -> None:
    report = check_folder(shared / "data" / "cora")
    assert report.ok
    assert report.shift == 0
    assert report.homophily == pytest.approx(0.81, abs=0.001)
    assert report.counts["nodes"] == 2708
    assert report.counts["undirected_edges"] == 5278
    assert report.counts["duplicate_texts"] == 16
    assert sorted(report.classes.values()) == [180, 217, 298, 351, 418, 426, 818]
    assert report.splits["split"] == {"train": 140, "val": 500, "test": 1000}
    assert codes(report)["aligned"] == "note"


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_planted_shift_of_cora_is_found_and_repaired(shared: Path, shift: int) -> None:
    graph = read_folder(shared / "data" / "cora")
    texts = graph.texts()
    wrong = moved(graph, texts[shift:] + texts[:shift])
    report = check(wrong)
    assert not report.ok
    assert codes(report)["misaligned"] == "error"
    assert report.shift == -shift
    assert check(shifted(wrong, report.shift)).ok


def test_shuffled_texts_of_cora_fit_nothing(shared: Path) -> None:
    graph = read_folder(shared / "data" / "cora")
    texts = graph.texts()
    report = check(moved(graph, [texts[(k * 1009) % graph.n] for k in range(graph.n)]))
    assert codes(report)["unaligned"] == "error"
    assert report.shift == 0


@pytest.mark.parametrize("name", ["wikispeedia_mini", "openflights150"])
def test_other_graphs_are_not_accused_of_a_shift(shared: Path, name: str) -> None:
    report = check_folder(shared / "data" / name)
    assert report.ok
    assert report.shift == 0


def test_a_planted_shift_of_the_networkx_docs() -> None:
    graph = open_graph("networkx-docs")
    texts = graph.texts()
    # neighbours in the file are of one topic, so only a shift within shuffled rows tells anything
    order = [(k * 389) % graph.n for k in range(graph.n)]
    place = {row: k for k, row in enumerate(order)}
    edges = [(place[a], place[b]) for a, b in graph.arcs().tolist()]
    mixed = [texts[row] for row in order]
    labels = [int(graph.labels[row]) for row in order]
    right = TextGraph.build(range(graph.n), mixed, edges, labels=labels, directed=True)
    wrong = TextGraph.build(range(graph.n), mixed[1:] + mixed[:1], edges, labels=labels, directed=True)
    assert check(right).shift == 0
    assert check(wrong).shift == -1


@pytest.mark.parametrize("case", handed_cases("labels.jsonl", "shifted_join"))
def test_handed_shifts(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        labels = {int(key): value for key, value in data["label_by_id"].items()}
        texts = {int(key): value for key, value in data["text_by_id"].items()}
        graph = TextGraph.build(list(labels), [""] * len(labels), data["edges"], labels=list(labels.values()))
        return {"status": "ok", "shift": best_shift(join_alignments(graph, texts, tuple(data["shift_candidates"])))}

    check_case(case, run)


def test_numbers_decide_what_a_shift_is() -> None:
    texts = {10: "solar panel", 11: "whale reef", 12: "solar panel", 13: "whale reef"}
    graph = TextGraph.build([13, 10, 12, 11], [texts[k] for k in (13, 10, 12, 11)], [(1, 2), (0, 3)])
    probes = alignments(graph, (0, 1, 2))
    assert probes[0].linked == pytest.approx(1.0)
    assert shifted(graph, 1).texts() == ["", "whale reef", "whale reef", "solar panel"]
    assert probes[0].accuracy is None


def test_gaps_are_reported() -> None:
    graph = TextGraph.build(
        ["a", "b", "c", "d"],
        ["panel", "panel", " ", "𝕏 🚉 שלום"],
        [(0, 1), (1, 0), (0, 0)],
        labels=[0, 0, -1, -1],
        class_names=["one", "unused"],
        split=[0, 1, 2, -1],
    )
    found = codes(check(graph))
    assert found == {
        "empty_text": "warning",
        "duplicate_text": "note",
        "isolated_nodes": "note",
        "self_loops": "note",
        "duplicate_edges": "note",
        "one_class": "warning",
        "unlabelled": "note",
        "empty_class": "warning",
        "small_class": "note",
        "split_without_label": "warning",
        "aligned": "note",
    }


@pytest.mark.parametrize(
    ("graph", "code", "ok"),
    [
        (TextGraph.build(["a"], ["x"]), "no_edges", True),
        (TextGraph.build(["a", "b"], ["", ""], [(0, 1)]), "empty_text", False),
        (TextGraph.build(["a", "b"], ["the", "of"], [(0, 1)]), "not_probed", True),
        (TextGraph.build(["a", "b"], ["x y", "z"], labels=[0, 1]), "no_edges", True),
    ],
)
def test_graphs_with_nothing_to_measure(graph: TextGraph, code: str, ok: bool) -> None:
    report = check(graph)
    assert code in codes(report)
    assert report.ok is ok
    json.dumps(report.to_json(), allow_nan=False)


def test_homophily_counts_edges_between_labelled_nodes() -> None:
    graph = TextGraph.build("abcd", ["t"] * 4, [(0, 1), (1, 2), (2, 3)], labels=[0, 0, 1, -1])
    assert homophily(graph) == 0.5
    assert homophily(graph.replaced(labels=[-1, -1, -1, 0])) is None


def test_all_lines_at_fault_are_named(tmp_path: Path) -> None:
    nodes = [node("a"), node("a"), node(True), "{", node("b", label="z")]
    folder = write(tmp_path / "g", nodes, ["a\tb", *["a\tx"] * 9, "a"], {"class_names": ["y"]})
    report = check_folder(folder)
    assert not report.ok
    assert set(codes(report)) == {"duplicate_id", "bad_id", "bad_line", "bad_label", "unknown_endpoint"}
    endpoints = [finding.message for finding in report.findings if finding.code == "unknown_endpoint"]
    assert len(endpoints) == 6
    assert endpoints[-1] == "9 lines in all have this fault (unknown_endpoint)"


def test_a_stale_card_is_named(tmp_path: Path) -> None:
    write_folder(TextGraph.build("ab", ["x", "y"], [(0, 1)]), tmp_path / "g")
    assert not {"stale_checksum", "stale_counts"} & set(codes(check_folder(tmp_path / "g")))
    with (tmp_path / "g" / "nodes.jsonl").open("a") as file:
        file.write('{"id": "c", "text": "z"}\n')
    found = codes(check_folder(tmp_path / "g"))
    assert found["stale_checksum"] == found["stale_counts"] == "warning"


def test_the_command_lists_describes_and_builds(tmp_path: Path) -> None:
    listed = json.loads(agl("data", "list", "--json", cwd=tmp_path).stdout)
    assert {"networkx-docs", "debian", "cora", "ogbn-arxiv"} <= set(listed)
    folder = write(tmp_path / "g", [node("a", label="x"), node("b", label="y")], ["a\tb"])
    facts = json.loads(agl("data", "info", str(folder), "--json", cwd=tmp_path).stdout)
    assert (facts["nodes"], facts["edges"], facts["classes"]) == (2, 1, {"x": 1, "y": 1})
    assert "homophily: 0.0" in agl("data", "info", str(folder), cwd=tmp_path).stdout
    built = agl("data", "build", str(folder), "--out", "out", cwd=tmp_path)
    assert built.returncode == 0
    assert built.stdout == "out: 2 nodes, 1 edges, 2 classes\n"
    again = json.loads(agl("data", "info", "out", "--json", cwd=tmp_path).stdout)
    assert again["content_hash"] == facts["content_hash"]


def test_the_command_checks_and_repairs(tmp_path: Path) -> None:
    write_folder(open_graph(tables(tmp_path / "toy")), tmp_path / "right")
    assert agl("data", "check", "right", cwd=tmp_path).returncode == 0
    wrong = shifted(read_folder(tmp_path / "right"), 1)
    write_folder(wrong, tmp_path / "wrong")
    done = agl("data", "check", "wrong", "--repair", "repaired", "--json", cwd=tmp_path)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["ok"], report["shift"]) == (False, -1)
    assert agl("data", "check", "repaired", cwd=tmp_path).returncode == 0
    refused = agl("data", "check", str(tables(tmp_path / "shifted", first=1)), cwd=tmp_path)
    assert refused.returncode == 1
    assert "build it with --shift 1" in refused.stdout
    done = agl("data", "build", "shifted", "--shift", "1", "--out", "by-shift", cwd=tmp_path)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["info", "nonesuch"], "expected the name of a graph or a folder"),
        (["check", "nonesuch"], "expected a folder with a graph or a name"),
        (["build", "g", "--out", "g"], "expected an empty or new folder as --out"),
        (["build", "g"], "--out"),
        (["info", "empty"], "expected nodes.jsonl and edges.tsv"),
        (["build", "g", "--shift", "1", "--out", "o"], "expected node_info.csv"),
    ],
)
def test_wrong_arguments_are_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    write(tmp_path / "g", [node("a")])
    (tmp_path / "empty").mkdir()
    done = agl("data", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
