"""Naming perturbation: isomorphic views with exact answers of users' graphs, and what unusable files are told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agl.errors import DataError, UserError
from agl.graphs.naming import fold
from envs.grit import build, items
from envs.grit.answers import gold_answer
from envs.grit.env import GritEnv
from envs.grit.graph_files import Refused, UserGraph, read_graphs
from envs.grit.items import FORMS, SCHEMES, TASKS, GritTask, Query
from envs.grit.parse import parse
from envs.grit.perturb import MAX_NODES, Settings, names_file, perturb, restored
from envs.grit.perturb_commands import perturb as command
from tests.conftest import check_case, handed_cases

ROADS = [("Ölmühle", "B-2", 2), ("B-2", "#3", 3.5), ("#3", "Ölmühle", 1), ("#3", '"quoted" name', 4)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One graph in every format."""
    graph = nx.Graph(name="roads")
    graph.add_weighted_edges_from(ROADS)
    found = {suffix: tmp_path / f"roads.{suffix}" for suffix in ("graphml", "tsv", "csv", "json", "jsonl")}
    nx.write_graphml(graph, found["graphml"])
    found["tsv"].write_text("".join(f"{u}\t{v}\t{w}\n" for u, v, w in ROADS), encoding="utf-8")
    quoted = ["weight,target,source", *(f'{w},"{v}","{u}"'.replace('"quoted"', '""quoted""') for u, v, w in ROADS)]
    found["csv"].write_text("\n".join(quoted), encoding="utf-8")
    found["json"].write_text(json.dumps(nx.node_link_data(graph, edges="links"), indent=1), encoding="utf-8")
    adjacency: dict[str, dict[str, float]] = {}
    for u, v, w in ROADS:
        adjacency.setdefault(u, {})[v] = w
    lines = [
        nx.node_link_data(graph, edges="edges"),
        {"type": "adjacency_list", "data": adjacency, "directed": False, "weighted": True, "name": "roads"},
    ]
    found["jsonl"].write_text("\n\n".join(json.dumps(one, ensure_ascii=False) for one in lines), encoding="utf-8")
    return found


def named_edges(graph: UserGraph) -> set[tuple[frozenset[str], float]]:
    return {(frozenset((graph.nodes[u], graph.nodes[v])), w) for u, v, w in graph.edges}


def test_all_formats_say_the_same(files: dict[str, Path]) -> None:
    for path in files.values():
        for graph in read_graphs(path):
            assert isinstance(graph, UserGraph), graph
            assert graph.name == "roads"
            assert graph.weighted
            assert named_edges(graph) == {(frozenset((u, v)), w) for u, v, w in ROADS}
            assert all(u < v for u, v, _ in graph.edges)
    assert len(read_graphs(files["jsonl"])) == 2


@st.composite
def graphs(draw: st.DrawFn) -> UserGraph:
    """Any simple graph with awkward names."""
    n = draw(st.integers(2, 7))
    letters = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zs", "Cf"]), min_size=1, max_size=6)
    names = draw(st.lists(letters.filter(lambda name: bool(fold(name))), min_size=n, max_size=n, unique_by=fold))
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    weighted = draw(st.booleans())
    weights = st.one_of(st.integers(1, 50), st.decimals("0.01", 99, places=2).map(float))
    rows = [(u, v, draw(weights) if weighted else 1) for u, v in sorted(chosen)]
    return UserGraph("g", "g", tuple(names), tuple(rows), weighted)


@given(graphs(), st.integers(0, 5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_views_are_isomorphic_and_right(graph: UserGraph, seed: int, ood: bool) -> None:
    made = perturb([graph], Settings(seed=seed, ood=ood))
    assert not made.refused
    assert not any("could not be proven" in reason for reason in made.left_out)
    assert len(made.left_out) + len({one.item.task for one in made.renamed}) == len(TASKS)
    for task in {one.item.task for one in made.renamed}:
        views = [one.item for one in made.renamed if one.item.task == task]
        assert {(view.form, view.scheme) for view in views} == {(form, scheme) for form in FORMS for scheme in SCHEMES}
        assert len({(view.edges, view.query, view.gold.model_dump_json()) for view in views}) == 1
    for one in made.renamed:
        surfaces = [fold(form) for form in (*one.item.nodes, *one.item.aliases)]
        assert len(set(surfaces)) == len(surfaces)
        own = restored(one.item, one.own)
        assert own.nodes == graph.nodes
        weighted = one.item.weighted
        assert {(frozenset((u, v)), w) for u, v, w in own.edges} == {
            (frozenset((graph.nodes[u], graph.nodes[v])), w if weighted else 1) for u, v, w in graph.edges
        }
        assert build.faults(one.item) == []
        record = one.record()
        assert list(record["names"]) == list(graph.nodes)
        assert {record["names"][name]: name for name in record["names"]} == dict(
            zip(one.item.nodes, graph.nodes, strict=True)
        )
        env = GritEnv()
        env.reset(one.item)
        while not env.is_over:
            env.step(env.oracle())
        score = env.score()
        assert (score.total, score.reward, score.parts["tool_calls"]) == (1.0, 2.0, 1.0)


@given(graphs(), st.integers(0, 5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_text_says_the_graph(graph: UserGraph, seed: int, ood: bool) -> None:
    """The parser that was written without the renderer's code reads every view back."""
    for one in perturb([graph], Settings(seed=seed, ood=ood)).renamed:
        read = parse(one.item.question)
        assert (read.task, read.nodes, read.aliases) == (one.item.task, one.item.nodes, one.item.aliases)
        assert read.edges == one.item.edges
        assert (read.start, read.end) == (one.item.query.start, one.item.query.end)


def test_answers_agree_with_networkx(files: dict[str, Path]) -> None:
    made = perturb(read_graphs(files["tsv"]), Settings(tasks=("shortest_path",), schemes=("semantic",)))
    graph = nx.Graph()
    graph.add_weighted_edges_from(ROADS)
    for one in made.renamed:
        assert one.item.query.start is not None
        assert one.item.query.end is not None
        ends = one.own[one.item.query.start], one.own[one.item.query.end]
        assert one.item.gold.value == nx.dijkstra_path_length(graph, *ends)
        assert gold_answer(one.item)["cost"] == one.item.gold.value
        path = [one.own[index] for index in one.item.gold.witness]
        assert nx.path_weight(graph, path, "weight") == one.item.gold.value


def test_grit_items_keep_their_question(tmp_path: Path) -> None:
    split = build.Split("probe", 6, 8, 1, tsp_shift=0)
    told = [build.item(split, build.Recipe(), task, 1, view) for task in TASKS for view in build.VIEWS[:3]]
    path = tmp_path / "items.jsonl"
    items.write(told, path)
    read = read_graphs(path)
    assert len(read) == len(TASKS)
    made = perturb(read, Settings(schemes=("random_id",), forms=("standard",), seed=4))
    assert not made.refused
    assert [one.item.task for one in made.renamed] == list(TASKS)
    for one, first in zip(made.renamed, told[::3], strict=True):
        assert (one.item.edges, one.item.query, one.item.gold) == (first.edges, first.query, first.gold)
        assert one.own == first.nodes
        assert one.name == first.graph_id


def test_views_that_disagree_are_refused(tmp_path: Path) -> None:
    item = build.item(build.Split("probe", 6, 8, 1), build.Recipe(), "bfs", 1, build.VIEWS[0])
    other = item.model_copy(update={"query": Query(start=(item.query.start or 0) + 1)})
    path = tmp_path / "items.jsonl"
    items.write([item, other], path)
    first, second = read_graphs(path)
    assert isinstance(first, UserGraph)
    assert isinstance(second, Refused)
    assert second.where.endswith("line 2")


FLAGS = '"directed": false, "multigraph": false'
NODES = '"nodes": [{"id": 1}, {"id": "2"}, {"id": "c"}]'
BAD: dict[str, tuple[str, str, str]] = {
    "self-loop": ("tsv", "a\tb\nb\tb\n", r"line 2: the edge \(b, b\) is a self-loop"),
    "duplicate": ("tsv", "a\tb\t1\nb\ta\t1\n", r"line 2: the edge \(b, a\) stands twice, first at .*line 1"),
    "contradiction": ("csv", "a,b,1\nb,a,2\n", r"line 2: contradictory weights for \(b, a\): 1 at .*line 1, now 2"),
    "nan": ("tsv", "a\tb\t1\nb\tc\tnan\n", r"line 2: the weight of \(b, c\) is nan, not a finite number"),
    "infinite": ("csv", "a,b,1e999\n", r"line 1: .*not a finite number"),
    "unit": ("tsv", "a\tb\t7 km\n", r"line 1: .*'7 km'; write a bare number"),
    "columns": (
        "tsv",
        "a b\nb c\n",
        r"line 1: expected source, target and perhaps a weight, separated by a tab, got 1",
    ),
    "some weights": ("tsv", "a\tb\t1\nb\tc\n", r"line 2: expected 3 columns as before, got 2"),
    "fold": ("tsv", "New York\tb\nNEW  YORK\tc\n", r"'New York' and 'NEW  YORK' are one name"),
    "blank name": ("csv", "a,\n", r"line 1: a node name is a string that is not blank"),
    "empty": ("tsv", "\n", r"no nodes"),
    "flag": ("json", f'{{{NODES}, "directed": false, "edges": []}}', r"needs the flag 'multigraph'.* got none"),
    "odd flag": ("json", f'{{{NODES}, "directed": "no", "multigraph": false, "edges": []}}', r"'directed'.*got 'no'"),
    "directed": ("json", f'{{{NODES}, "directed": true, "multigraph": false, "edges": []}}', r"is directed"),
    "unknown": (
        "json",
        f'{{{NODES}, {FLAGS}, "edges": [{{"source": 1, "target": 2}}, {{"source": "1", "target": "x"}}]}}',
        r"edges\[1\]: .*ends at 'x', which is no node",
    ),
    "twice declared": (
        "json",
        f'{{"nodes": [{{"id": 1}}, {{"id": " 1"}}], {FLAGS}, "edges": []}}',
        r"nodes\[1\].*twice",
    ),
    "bad id": ("json", f'{{"nodes": [{{"id": 1.5}}], {FLAGS}, "links": []}}', r"nodes\[0\]: a node name is a string"),
    "no edges": ("json", f"{{{NODES}, {FLAGS}}}", r"'edges' or under 'links', got none"),
    "null": (
        "json",
        f'{{{NODES}, {FLAGS}, "links": [{{"source": 1, "target": 2, "weight": null}}]}}',
        r"links\[0\]: the weight is null",
    ),
    "partial": (
        "json",
        f'{{{NODES}, {FLAGS}, "links": [{{"source": 1, "target": 2, "weight": 3}}, {{"source": 1, "target": "c"}}]}}',
        r"the edge \(1, c\) has no weight while others have",
    ),
    "json nan": ("json", '{"nodes": [],\n"edges": [NaN]}', r"expected JSON.*NaN"),
    "adjacency": (
        "json",
        '{"data": {"a": {"b": 1}, "b": {"a": 2}}, "directed": false, "weighted": true}',
        r"contradict",
    ),
    "shape": ("json", '{"vertices": []}', r"expected a GRIT item, a node-link graph"),
    "no xml": ("graphml", "<graphml><graph>", r"line 1: expected GraphML"),
}


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "node_link"))
def test_handed_node_link_graphs(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case["input"]["data"]), encoding="utf-8")
    (graph,) = read_graphs(path)
    if case["input"]["data"].get("directed"):
        # Read as directed, and therefore refused: questions are about undirected graphs.
        assert isinstance(graph, Refused)
        assert "is directed" in graph.reason
        return
    said = {"which is no node": "dangling_endpoint", "needs the flag": "missing_flag"}

    def run(_: dict[str, Any]) -> dict[str, Any]:
        if isinstance(graph, Refused):
            return {"status": "error", "code": next(code for words, code in said.items() if words in graph.reason)}
        return {"status": "ok", "nodes": len(graph.nodes), "edges": len(graph.edges)}

    check_case(case, run)


XML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n{}</graphml>'
KEY = '<key id="w" for="edge" attr.name="weight" attr.type="double"/>\n'


@pytest.mark.parametrize("case", BAD)
def test_what_breaks_a_rule_is_said_in_a_sentence(case: str, tmp_path: Path) -> None:
    suffix, text, said = BAD[case]
    path = tmp_path / f"bad.{suffix}"
    path.write_text(text, encoding="utf-8")
    (bad,) = read_graphs(path)
    assert isinstance(bad, Refused)
    assert bad.where.startswith(str(path))
    assert re.search(said, str(bad)), str(bad)
    assert "\n" not in str(bad)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<edge source="a" target="a"/>', "line 6: .*self-loop"),
        ('<edge source="a" target="x"/>', "line 6: .*ends at 'x'"),
        ('<edge source="a" target="b"/>\n<edge source="b" target="a"/>', "line 7: .*stands twice, first at .*line 6"),
        (
            '<edge source="a" target="b"><data key="w">1</data></edge>\n'
            '<edge id="e" source="b" target="a"><data key="w">2</data></edge>',
            "line 7: contradictory weights .*1 at .*line 6, now 2",
        ),
        ('<edge source="a" target="b"><data key="w">NaN</data></edge>', "line 6: .*not a finite number"),
    ],
)
def test_graphml_errors_have_lines(body: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.graphml"
    head = f'{KEY}<graph edgedefault="undirected">\n<node id="a"/>\n<node id="b"/>\n'
    path.write_text(XML.format(f"{head}{body}\n</graph>\n"), encoding="utf-8")
    (bad,) = read_graphs(path)
    assert isinstance(bad, Refused)
    assert re.search(said, str(bad)), str(bad)
    path.write_text(XML.format(f"{head}\n</graph>\n".replace("undirected", "directed")), encoding="utf-8")
    (bad,) = read_graphs(path)
    assert isinstance(bad, Refused)
    assert "is directed" in bad.reason


def graph(n: int, edges: list[tuple[int, int, float]], weighted: bool = True) -> UserGraph:
    return UserGraph("g", "here", tuple(f"n{i}" for i in range(n)), tuple(edges), weighted)


@pytest.mark.parametrize(
    ("task", "bad", "said"),
    [
        ("bfs", graph(3, [(0, 1, 1)]), "bfs needs a connected graph, but nothing leads from 'n0' to 'n2'"),
        ("tsp", graph(3, [(0, 1, 1), (1, 2, 1)]), r"every two nodes, but \(n0, n2\) have none"),
        ("tsp", graph(2, [(0, 1, 1)]), "at least 3 nodes"),
        ("shortest_path", graph(2, [(0, 1, 1)], weighted=False), "needs a weight on every edge"),
        ("shortest_path", graph(2, [(0, 1, -1)]), r"weights above 0 .*\(n0, n1\) has -1"),
        ("shortest_path", graph(2, [(0, 1, 1e-7)]), "without exponent"),
        ("coloring", graph(3, []), "at least 2 nodes and an edge"),
        ("coloring", graph(MAX_NODES + 1, [(0, 1, 1)]), f"at most {MAX_NODES} nodes"),
    ],
)
def test_tasks_say_what_they_need(task: Any, bad: UserGraph, said: str) -> None:
    made = perturb([bad, graph(3, [(0, 1, 1), (0, 2, 2), (1, 2, 3)])], Settings(tasks=(task,)))
    assert len(made.refused) == 1
    assert made.refused[0].where == "here"
    assert re.search(said, made.refused[0].reason)
    assert {one.item.graph_id for one in made.renamed} == {f"perturb-{task}-0001"}


def test_a_large_graph_can_be_named(tmp_path: Path) -> None:
    cycle = graph(MAX_NODES, [(i, i + 1, 1) for i in range(MAX_NODES - 1)], weighted=False)
    made = perturb([cycle], Settings(tasks=("bfs",), forms=("standard",)))
    assert len(made.renamed) == len(SCHEMES)


def test_domains() -> None:
    one = graph(3, [(0, 1, 1), (0, 2, 2), (1, 2, 3)])
    made = perturb([one], Settings(tasks=("coloring",), domain="people", forms=("standard",), schemes=("semantic",)))
    assert len(made.renamed) == 1
    with pytest.raises(UserError, match=r"expected a domain .*got 'sea'"):
        perturb([one], Settings(domain="sea"))
    with pytest.raises(UserError, match="with a story for coloring"):
        perturb([one], Settings(tasks=("coloring",), domain="people"))


APP = typer.Typer()
APP.command()(command)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(APP, list(arguments))


def test_a_bad_graph_among_many(tmp_path: Path) -> None:
    path, out = tmp_path / "many.jsonl", tmp_path / "out.jsonl"
    good = f'{{{NODES}, {FLAGS}, "edges": [{{"source": 1, "target": 2}}]}}'
    path.write_text("\n".join([good, good.replace('"target": 2', '"target": 9'), "{", good]), encoding="utf-8")
    options = (str(path), "--out", str(out), "--task", "coloring", "--form", "standard", "--schemes", "canonical,mixed")
    failed = run(*options)
    assert isinstance(failed.exception, DataError)
    assert re.search(r"2 of 4 graphs cannot be used.*line 2, edges\[0\]: .*; .*line 3: ", str(failed.exception))
    assert not out.exists()
    assert not names_file(out).exists()
    done = run(*options, "--skip-bad", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["questions"], told["graphs"], len(told["refused"])) == (4, 2, 2)
    read = list(items.read(out))
    assert [item.graph_id for item in read] == ["perturb-coloring-0000"] * 2 + ["perturb-coloring-0003"] * 2
    names = [json.loads(line) for line in names_file(out).read_text(encoding="utf-8").splitlines()]
    assert [one["id"] for one in names] == [item.id for item in read]
    assert [tuple(one["names"].values()) for one in names] == [item.nodes for item in read]
    assert names[-1]["source"].endswith("line 4")


def test_wrong_arguments(files: dict[str, Path], tmp_path: Path) -> None:
    source, out = str(files["tsv"]), ("--out", str(tmp_path / "o.jsonl"))
    for arguments, said in (
        ((source, *out, "--schemes", "canonical,plain"), "--schemes out of .*got 'plain'"),
        ((source, *out, "--task", "path"), "--task out of .*got 'path'"),
        ((source, *out, "--form", "prose"), "--form out of .*got 'prose'"),
        ((source, "--out", source), "none of the inputs"),
        ((source, "--out", str(tmp_path / "no" / "o.jsonl")), "existing folder"),
        ((str(tmp_path / "x.gml"), *out), "expected a file of graphs"),
        ((str(tmp_path / "x.tsv"), *out), "cannot read the graphs"),
    ):
        result = run(*arguments)
        assert isinstance(result.exception, UserError), result.output
        assert re.search(said, str(result.exception)), str(result.exception)


def test_same_bytes_in_any_process(files: dict[str, Path], tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from envs.grit.graph_files import read_graphs; "
        "from envs.grit.perturb import Settings, perturb, write; "
        "write(perturb(read_graphs(Path(sys.argv[1])), Settings(seed=3)).renamed, Path(sys.argv[2]))"
    )
    written = []
    for salt in ("0", "1"):
        out = tmp_path / f"out{salt}.jsonl"
        environment = {"PYTHONHASHSEED": salt, "PATH": ""}
        subprocess.run([sys.executable, "-c", script, str(files["graphml"]), str(out)], check=True, env=environment)
        written.append((out.read_bytes(), names_file(out).read_bytes()))
    assert written[0] == written[1]
    assert GritTask.model_validate_json(written[0][0].splitlines()[0])
