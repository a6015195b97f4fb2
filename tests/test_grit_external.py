"""Items of other benchmarks: loading, parse-back, exact gold, reading of answers, and what hostile answers get."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agl.core import Action, Answer, Malformed, Score
from agl.dialects import dialect_for
from agl.errors import DataError
from agl.graphs.named import NamedGraph
from agl.json_text import dumps
from envs.grit import build, items
from envs.grit.answers import boxed, gold_answer, tool_call
from envs.grit.build import VIEWS
from envs.grit.env import GritEnv
from envs.grit.external import grapharena, graphinstruct, graphomni, graphqa, greal, nlgraph
from envs.grit.external.formats import FORMATS, detect
from envs.grit.external.item import Parsed, hamilton_path
from envs.grit.external.item import build as build_item
from envs.grit.external.judge import PROBLEMS, request
from envs.grit.items import Checker, GritTask
from tests.agl_process import agl
from tests.conftest import check_case, handed_cases

FIXTURES = Path(__file__).parent / "external_fixtures"
ITEMS = {name: GritEnv.tasks(str(FIXTURES / f"{name}.jsonl")) for name in FORMATS}
EACH = [item for found in ITEMS.values() for item in found]
WRONG_LABELS = {
    "greal": {"tsp-fixture-9"},
    "nlgraph": {"fixture-1"},
    "graphinstruct": {"fire_station-7"},
    "grapharena": {"fixture-1"},
    "graphomni": {"shortest_path-easy-none-Adjacency List-4"},
    "graphqa": set(),
}
"""Fixture items whose published answer is wrong on purpose."""

TOLD: Mapping[str, Callable[[GritTask], NamedGraph]] = {
    "greal": lambda item: greal.read_text(item.question)[1],
    "nlgraph": lambda item: nlgraph.read_text(item.question)[1],
    "graphinstruct": lambda item: graphinstruct.read_text(item.question, item.directed, item.nodes),
    "grapharena": lambda item: grapharena.read_text(item.question)[1],
    "graphomni": lambda item: graphomni.read_text(item.question)[0],
    "graphqa": lambda item: graphqa.read_text(item.question),
}


def checker_of(item: GritTask) -> Checker:
    assert item.checker is not None
    return item.checker


def stored(item: GritTask) -> NamedGraph:
    ends = tuple((item.nodes[u], item.nodes[v], w) for u, v, w in item.edges)
    return NamedGraph(item.nodes, ends, item.directed, item.weighted)


def name_of(item: GritTask) -> str:
    return f"{checker_of(item).benchmark}/{item.id}"


def score(item: GritTask, *actions: Action | Malformed, **options: Any) -> Score:
    env = GritEnv(**options)
    env.reset(item)
    for action in actions:
        env.step(action)
    return env.score()


def said(item: GritTask, text: str) -> Score:
    return score(item, Answer(text=text))


def play_oracle(item: GritTask, mode: Any = "tools") -> Score:
    env = GritEnv(mode=mode)
    env.reset(item)
    while not env.is_over:
        assert not env.step(env.oracle()).observation.is_error
    return env.score()


# Loading


def test_every_format_has_ten_fixture_items() -> None:
    assert {name: len(found) for name, found in ITEMS.items()} == dict.fromkeys(FORMATS, 10)
    assert {item.task for item in EACH} >= PROBLEMS.keys() - {"centrality", "clustering"}


@pytest.mark.parametrize("name", FORMATS)
def test_detection_and_naming_give_the_same_items(name: str) -> None:
    path = FIXTURES / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {detect(fields) for fields in lines} == {name}
    assert GritEnv.tasks(f"{name}:{path}") == ITEMS[name]
    assert GritEnv.tasks(str(path), limit=3) == ITEMS[name][:3]
    assert GritEnv.tasks(str(path), seed=5) == ITEMS[name]


@pytest.mark.parametrize("item", EACH, ids=name_of)
def test_parse_back(item: GritTask) -> None:
    assert TOLD[checker_of(item).benchmark](item).canonical() == stored(item).canonical()


@pytest.mark.parametrize("name", FORMATS)
def test_the_question_is_kept_as_published(name: str) -> None:
    for line, item in zip(
        (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(), ITEMS[name], strict=True
    ):
        fields = json.loads(line)
        published = next(fields[key] for key in ("question", "Q", "query", "problem_text") if key in fields)
        asked = request(item.task, checker_of(item))
        assert published.strip() in item.question
        assert item.question.endswith(f"\n\n{asked}")
        assert asked.count("\\boxed") == (2 if "yes" in asked or " or " in asked else 1)
        if name != "graphinstruct":
            assert item.question == f"{published.rstrip()}\n\n{asked}"


@pytest.mark.parametrize("item", EACH, ids=name_of)
def test_items_survive_their_own_file(item: GritTask, tmp_path: Path) -> None:
    items.write([item], tmp_path / "own.jsonl")
    assert list(GritEnv.tasks(str(tmp_path / "own.jsonl"))) == [item]


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_published_answers_are_flagged(name: str) -> None:
    assert {item.id for item in ITEMS[name] if item.published and item.published.answer_agrees is not True} == (
        WRONG_LABELS[name]
    )


def test_a_stored_graph_that_is_not_the_one_told_is_flagged_or_refused(tmp_path: Path) -> None:
    told = {item.id: item.published.graph_agrees for item in ITEMS["graphomni"] if item.published}
    assert [agrees for agrees in told.values() if agrees is not None] == [True, False]
    fields = json.loads((FIXTURES / "greal.jsonl").read_text(encoding="utf-8").splitlines()[0])
    fields["edges"] = fields["edges"][1:]
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match=r"line 1.*is not the stored one"):
        GritEnv.tasks(str(path))


def test_published_files_of_one_json_value_and_csv(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (FIXTURES / "nlgraph.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        line.pop("id")
    (tmp_path / "main.json").write_text(json.dumps({str(i): line for i, line in enumerate(lines)}, indent=1))
    (tmp_path / "list.json").write_text(json.dumps(lines))
    (tmp_path / "one.json").write_text(json.dumps({"7": lines[0]}))
    whole, listed = GritEnv.tasks(str(tmp_path / "main.json")), GritEnv.tasks(str(tmp_path / "list.json"))
    assert [item.id for item in whole] == [str(i) for i in range(10)]
    assert (
        [item.edges for item in whole] == [item.edges for item in listed] == [item.edges for item in ITEMS["nlgraph"]]
    )
    assert [item.id for item in GritEnv.tasks(str(tmp_path / "one.json"))] == ["7"]
    rows = [json.loads(line) for line in (FIXTURES / "graphinstruct.jsonl").read_text(encoding="utf-8").splitlines()]
    columns = list(rows[0])

    def cell(value: Any) -> str:
        return '"' + str(value).replace('"', '""') + '"'

    table = [",".join(columns), *(",".join(cell(row.get(key, "")) for key in columns) for row in rows)]
    (tmp_path / "small.csv").write_text("\n".join(table), encoding="utf-8")
    assert list(GritEnv.tasks(str(tmp_path / "small.csv"))) == list(ITEMS["graphinstruct"])


def test_published_layout_of_greal(tmp_path: Path) -> None:
    """Matrices and name lists; of the results only the exact algorithm's counts."""
    item = fixture("greal", "tsp")
    matrix = [[0] * item.n for _ in item.nodes]
    for u, v, w in item.edges:
        matrix[u][v] = matrix[v][u] = int(w)
    names = [item.nodes[index] for index in item.gold.witness]
    block = {"ans_path_text": [*names, names[0]], "ans_distance": item.gold.value, "cost_time": 0.0}
    record = {
        "graph_index": 0,
        "adj": matrix,
        "name_list": list(item.nodes),
        "Q": item.question.rpartition("\n\n")[0],
        "result": {"greedy_algorithm": {**block, "ans_distance": 99}, "dynamic_programming": block},
    }
    path = tmp_path / "graph_4.json"
    path.write_text(json.dumps([record, record], indent=1), encoding="utf-8")
    found = GritEnv.tasks(str(path))
    assert [other.id for other in found] == ["greal-00000", "greal-00001"]
    assert [other.edges for other in found] == [item.edges] * 2
    assert all(other.published == item.published for other in found)
    record["result"] = {"greedy_algorithm": block}
    path.write_text(json.dumps([record]), encoding="utf-8")
    (other,) = GritEnv.tasks(str(path))
    assert other.published is not None
    assert (other.published.answer, other.published.answer_agrees) == (None, None)


# Errors


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("{", "line 2: expected one JSON object"),
        ("[1]", "line 2: expected one JSON object"),
        ('{"question": 7, "answer": "", "difficulty": ""}', "line 2, format nlgraph: expected the question as text"),
        (
            '{"question": "Q: who?", "answer": "", "difficulty": ""}',
            "line 2, format nlgraph: .*GNN task is not supported",
        ),
        (
            '{"question": "In an undirected graph, the nodes are numbered from 0 to 1, and the edges are:\\nan edge '
            'between node 0 and node 1 with weight 2.\\nQ: Give the shortest path from node 0 to node 9.", '
            '"answer": "", "difficulty": ""}',
            "line 2, format nlgraph: the question asks about '9', which is no node",
        ),
        (
            '{"question": "In an undirected graph, (i,j) means an edge. The nodes are numbered from 0 to 3, and the '
            'edges are: (2,2)\\nQ: Is there a cycle in this graph?", "answer": "", "difficulty": ""}',
            "line 2, format nlgraph: '2' is its own neighbour",
        ),
    ],
)
def test_unreadable_lines_are_named(line: str, wanted: str, tmp_path: Path) -> None:
    first = (FIXTURES / "nlgraph.jsonl").read_text(encoding="utf-8").splitlines()[0]
    path = tmp_path / "broken.jsonl"
    path.write_text(f"{first}\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=wanted):
        GritEnv.tasks(str(path))


def test_wrong_field_shapes_are_data_errors(tmp_path: Path) -> None:
    """Any field of any fixture replaced by a value of another shape: an item or a DataError, nothing else."""
    junk = itertools.cycle((None, 7, "x", [], [[1]], {"a": 1}, True))
    refused = 0
    for name in FORMATS:
        for line in (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            for key in json.loads(line):
                path = tmp_path / "junk.jsonl"
                path.write_text(json.dumps({**json.loads(line), key: next(junk)}), encoding="utf-8")
                with contextlib.suppress(DataError):
                    GritEnv.tasks(f"{name}:{path}")
                    continue
                refused += 1
    assert refused > 100


def test_unknown_and_ambiguous_formats(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"question": "Which node?", "answer": 1}\n')
    with pytest.raises(DataError, match=r"line 1 fits no known format; name one with --format \(grit, greal, nlgraph"):
        GritEnv.tasks(str(path))
    mixed = {"question": "x", "answer": "", "difficulty": "", "optimum": 1, "witness": []}
    path.write_text(json.dumps(mixed))
    with pytest.raises(DataError, match=r"line 1 fits several formats \(greal, nlgraph\)"):
        GritEnv.tasks(str(path))
    with pytest.raises(DataError, match=r"expected a format \(grit, greal, .*graphqa\), got 'gracore'"):
        GritEnv.tasks(f"gracore:{path}")
    with pytest.raises(DataError, match=r"expected a file of items, got 'nowhere\.jsonl'"):
        GritEnv.tasks("greal:nowhere.jsonl")
    with pytest.raises(DataError, match="expected a GRIT split"):
        GritEnv.tasks("nowhere.jsonl")
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match="cannot read the items"):
        GritEnv.tasks(f"greal:{path}")


def test_format_on_the_command_line(tmp_path: Path) -> None:
    data = ("--data", str(FIXTURES / "grapharena.jsonl"))
    play = ("eval", "grit", "--policy", "oracle", "--json", "--out")
    named = agl(*play, "a", *data, "--format", "grapharena", cwd=tmp_path)
    detected = agl(*play, "b", *data, cwd=tmp_path)
    for done in (named, detected):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["metrics"]["score"]["value"] == 1.0
    refused = agl(*play, "c", *data, "--format", "grapharina", cwd=tmp_path)
    assert refused.returncode == 2
    assert "expected a format (grit, greal," in refused.stderr
    assert "expected --data FILE" in agl(*play, "d", "--format", "greal", cwd=tmp_path).stderr


# Oracle and mutants


@pytest.mark.parametrize("item", EACH, ids=name_of)
def test_oracle_earns_everything(item: GritTask) -> None:
    full = 2.0 if tool_call(item) is not None else 1.0
    found = play_oracle(item)
    assert (found.total, found.reward, found.labels["flaw"]) == (1.0, full, "none")
    assert play_oracle(item, "cot").total == 1.0
    assert GritEnv.worked_examples(item, 2) == ()


def mutants(item: GritTask) -> dict[str, Any]:
    """Wrong answers: five kinds as far as the task has them."""
    gold = gold_answer(item)
    if gold in ("yes", "no"):
        return {"wrong value": "no" if gold == "yes" else "yes", "empty": ""}
    if isinstance(gold, int | float):
        return {"wrong value": gold + 1, "empty": "", "text": "many"}
    if isinstance(gold, str):
        return {"wrong value": "2/3", "empty": ""}
    checker = checker_of(item)
    problem = PROBLEMS[item.task]
    witness = gold[problem.witness] if checker.needs == "both" else gold
    others = [node for node in item.nodes if node not in witness]
    changed: dict[str, Any] = {"empty": type(witness)()}
    if isinstance(witness, dict):
        changed["missing element"] = dict(list(witness.items())[1:])
        changed["extra node"] = {**witness, "Nowhere": 1}
        for u, v, _ in item.edges[:1]:
            changed["swapped nodes"] = {**witness, item.nodes[u]: witness[item.nodes[v]]}
    elif problem.shape == "pairs":
        changed["missing element"] = witness[1:]
        changed["extra node"] = [*witness, ["Nowhere", item.nodes[0]]]
        changed["swapped nodes"] = [[pair[0], witness[0][1]] for pair in witness]
    else:
        changed["missing element"] = witness[1:]
        changed["extra node"] = [*witness, "Nowhere"]
        swapped = [witness[1], witness[0], *witness[2:]] if len(witness) > 1 else others[:1]
        changed["swapped nodes"] = [*others[:1], *witness[1:]] if problem.value == "size" else swapped
    found = {
        kind: {**gold, problem.witness: value} if checker.needs == "both" else value for kind, value in changed.items()
    }
    if checker.needs == "both":
        found["wrong value"] = {**gold, problem.value: gold[problem.value] + 1}
    return found


def is_right(item: GritTask, value: Any) -> bool:
    """By definition, with networkx: independent of the verifiers. Only for the mutants that can happen to be right."""
    graph: Any = stored(item).to_networkx()
    problem, gold = PROBLEMS[item.task], gold_answer(item)
    if value == gold:
        return True
    if isinstance(value, dict) and isinstance(gold, dict) and value[problem.value] != gold[problem.value]:
        return False
    witness = value[problem.witness] if isinstance(value, dict) else value
    if not isinstance(witness, list) or any(isinstance(node, list) or node not in graph for node in witness):
        return False
    pairs = list(itertools.pairwise(witness))
    once = len(set(witness)) == len(witness)
    best = item.gold.value
    match item.task:
        case "vertex_cover":
            return once and len(witness) == best and all(u in witness or v in witness for u, v in graph.edges)
        case "independent_set":
            return once and len(witness) == best and not graph.subgraph(witness).edges
        case "clique":
            return (
                once
                and len(witness) == best
                and all(graph.has_edge(*pair) for pair in itertools.combinations(witness, 2))
            )
        case "diameter":
            ends = all(graph.has_edge(*pair) for pair in pairs) and len(pairs) == networkx.diameter(graph)
            return ends and networkx.shortest_path_length(graph, witness[0], witness[-1]) == len(pairs)
        case "bfs":
            place = {node: i for i, node in enumerate(witness)}
            parents = [min((place[u] for u, v in graph.to_directed().edges if v == node and u in place), default=99)
                       for node in witness[1:]]  # fmt: skip
            reached = networkx.descendants(graph, item.nodes[item.query.start or 0])
            first = witness[:1] == [item.nodes[item.query.start or 0]]
            ordered = parents == sorted(parents) and all(parent <= i for i, parent in enumerate(parents))
            return once and first and ordered and len(witness) == len(reached) + 1
        case "tsp":
            closed = [*pairs, (witness[-1], witness[0])] if len(witness) == len(graph) and once else []
            return bool(closed) and sum(graph.edges[pair]["weight"] for pair in closed) == best
        case "topological_order":
            place = {node: i for i, node in enumerate(witness)}
            return once and len(witness) == len(graph) and all(place[u] < place[v] for u, v in graph.edges)
        case "hamilton_path":
            return once and len(witness) == len(graph) and all(graph.has_edge(u, v) for u, v in pairs)
        case "neighbors" | "common_neighbors" | "component":
            return once and set(witness) == {item.nodes[index] for index in item.gold.witness}
        case "components":
            parts = list(networkx.connected_components(graph))
            return [len(part.intersection(witness)) for part in parts] == [1] * len(parts)
    return False


def check_mutants(item: GritTask) -> int:
    wrong = 0
    for kind, value in mutants(item).items():
        if is_right(item, value):
            continue
        wrong += 1
        found = score(item, Answer(text="\\boxed{}" if value == "" else boxed(value)))
        assert found.total == 0.0, (item.id, kind, value)
        assert found.labels["answer"] != "ok"
        if kind != "wrong value":
            assert found.parts["acc_value"] in (0.0, 1.0)
    return wrong


@pytest.mark.parametrize("item", EACH, ids=name_of)
def test_mutants_score_nothing(item: GritTask) -> None:
    assert check_mutants(item) >= 2


@pytest.mark.parametrize(("name", "count"), [("greal", 60), ("nlgraph", 50)])
def test_published_samples(name: str, count: int, shared: Path) -> None:
    path = shared / "data" / f"{name}_sample.jsonl"
    found = GritEnv.tasks(str(path))
    assert len(found) == count
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    kinds: set[str] = set()
    for fields, item in zip(lines, found, strict=True):
        assert item.id == fields["id"]
        assert TOLD[name](item).canonical() == stored(item).canonical()
        assert item.published is not None
        assert item.published.answer_agrees is True
        if name == "greal":
            assert item.gold.value == fields["optimum"]
            assert item.nodes == tuple(fields["nodes"])
        assert play_oracle(item).total == 1.0
        assert check_mutants(item) >= (4 if checker_of(item).needs == "both" else 2)
        kinds.update(mutants(item))
    assert kinds >= {"wrong value", "missing element", "swapped nodes", "extra node", "empty"}


def test_random_play_is_legal() -> None:
    rng = random.Random(3)
    for item in EACH:
        env = GritEnv()
        env.reset(item)
        while not env.is_over:
            env.step(env.random_action(rng))
        assert env.score().labels["answer"] != "bad_shape"


# Reading


def fixture(benchmark: str, task: str, place: int = 0) -> GritTask:
    return [item for item in ITEMS[benchmark] if item.task == task][place]


READINGS = [
    # The boxed forms that all benchmarks share.
    ("nlgraph", "connectivity", "\\boxed{yes}", 1.0),
    ("nlgraph", "connectivity", "\\boxed{Yes.}", 1.0),
    ("nlgraph", "connectivity", '\\boxed{"yes"}', 1.0),
    ("nlgraph", "connectivity", "\\boxed{true}", 1.0),
    ("nlgraph", "connectivity", '\\boxed{{"connected": true}}', 1.0),
    ("nlgraph", "connectivity", "\\boxed{yes or no}", 1.0),  # the first word decides
    ("nlgraph", "connectivity", "\\boxed{either yes or no}", 0.0),
    ("nlgraph", "connectivity", "\\boxed{1}", 0.0),
    ("nlgraph", "connectivity", "The answer is yes.", 0.0),  # no phrases: only the box is read
    ("nlgraph", "connectivity", "\\boxed{yes} \\boxed{yes}", 0.0),
    ("nlgraph", "max_flow", "\\boxed{6}", 1.0),
    ("nlgraph", "max_flow", "\\boxed{6.0}", 1.0),
    ("nlgraph", "max_flow", '\\boxed{{"flow": 6}}', 1.0),
    ("nlgraph", "max_flow", "\\boxed{16}", 0.0),
    ("nlgraph", "shortest_path", '\\boxed{{"path": [0, 1, 3, 4], "cost": 7}}', 1.0),
    ("nlgraph", "shortest_path", '\\boxed{{"path": ["node 0", "0", "1"], "cost": 7}}', 0.0),
    ("nlgraph", "shortest_path", '\\boxed{{"path": ["0", "2", "3", "4"], "cost": 7}}', 1.0),  # a tie
    ("nlgraph", "shortest_path", '\\boxed{{"path": ["0", "1", "3", "4"], "cost": 8}}', 0.0),
    ("nlgraph", "shortest_path", '\\boxed{{"path": ["0", "1", "3", "4"]}}', 0.0),
    ("nlgraph", "shortest_path", "\\boxed{7}", 0.0),
    ("nlgraph", "topological_order", "\\boxed{3,0,1,2,4}", 1.0),
    ("nlgraph", "topological_order", "\\boxed{1 -> 3 -> 4 -> 0 -> 2}", 1.0),
    ("nlgraph", "topological_order", "\\boxed{3,0,2,1,4}", 0.0),
    ("nlgraph", "matching", '\\boxed{{"size": 2, "pairs": [["applicant 0", "job 1"], ["Applicant 2", "Job 2"]]}}', 1.0),
    ("nlgraph", "matching", '\\boxed{{"size": 2, "pairs": {"applicant 0": "job 1", "applicant 1": "job 2"}}}', 1.0),
    ("nlgraph", "matching", '\\boxed{{"size": 2, "pairs": [["applicant 0", "job 1"], ["applicant 1", "job 1"]]}}', 0.0),
    ("nlgraph", "hamilton_path", "\\boxed{[4, 2, 1, 3, 0]}", 1.0),
    ("nlgraph", "hamilton_path", "\\boxed{yes}", 0.0),
    ("greal", "tsp", '\\boxed{{"cost": 14, "tour": ["Dale Foot", "Crow Hill", "Brook End", "Warehouse"]}}', 1.0),
    (
        "greal",
        "coloring",
        '\\boxed{{"colors": 3, "assignment": {"Heron Quay": "red", "Miller\'s Bridge": "blue", '
        '"Old Kiln": "green", "Larch Hill": "red"}}}',
        1.0,
    ),
    # <<<...>>>, ids with their own brackets, the full number grammar
    ("graphinstruct", "shortest_path", "First <<<4>>>, in fact <<<12>>>", 1.0),
    ("graphinstruct", "shortest_path", "<<<1.2e1>>>", 1.0),
    ("graphinstruct", "shortest_path", "<<<12>>> then <<<13>>>", 0.0),
    ("graphinstruct", "shortest_path", "12", 0.0),
    ("graphinstruct", "jaccard", "<<<0.25>>>", 1.0),
    ("graphinstruct", "jaccard", "<<<.2575>>>", 1.0),  # exactly 3 % off
    ("graphinstruct", "jaccard", "<<<0.2576>>>", 0.0),
    ("graphinstruct", "jaccard", "<<<+2.5E-1>>>", 1.0),
    ("graphinstruct", "jaccard", "<<<-0.25>>>", 0.0),
    ("graphinstruct", "bfs", "<<<[<2>, <3>, <1>, <4>, <0>]>>>", 1.0),
    ("graphinstruct", "bfs", "<<<[<2>, <3>, <1>, <0>, <4>]>>>", 1.0),
    ("graphinstruct", "bfs", "<<<[<2>, <1>, <3>, <4>, <0>]>>>", 0.0),  # right layers, wrong order
    ("graphinstruct", "bfs", "<<<[<2>, <1>, <3>]>>>", 0.0),
    ("graphinstruct", "bfs", '\\boxed{["<2>", "<1>", "<3>", "<0>", "<4>"]}', 1.0),
    ("graphinstruct", "bfs", "\\boxed{2, 1, 3, 0, 4}", 1.0),
    ("graphinstruct", "nearest", "<<<<2>>>>", 1.0),
    ("graphinstruct", "nearest", "<<<<1>>>>", 0.0),
    ("graphinstruct", "nearest", "\\boxed{2}", 1.0),
    # the last bracket that is a feasible object
    ("grapharena", "tsp", "I tried [QAL, RUV] and then [QAL, SEW, TOX, RUV, QAL]; units in [km]", 1.0),
    ("grapharena", "tsp", "[QAL → SEW → TOX → RUV → QAL]", 1.0),
    ("grapharena", "tsp", "[QAL,\nSEW,\nTOX,\nRUV,\nQAL]", 1.0),
    ("grapharena", "tsp", "[QAL, SEW, TOX, RUV, QAL] or rather [QAL, RUV, SEW, TOX, QAL]", 0.0),
    ("grapharena", "tsp", "[QAL, SEW, TOX, RUV, XXX]", 0.0),
    ("grapharena", "tsp", "QAL, SEW, TOX, RUV, QAL", 0.0),
    ("grapharena", "vertex_cover", "[Ida Fell, Nobody]", 0.0),
    ("grapharena", "vertex_cover", "[Ida Fell]", 1.0),
    ("grapharena", "shortest_path", "The path: [Harbour, Harbour (old), Salt and Iron Museum].", 1.0),
    ("grapharena", "shortest_path", "[Harbour, North Dyke, Mill, Salt and Iron Museum]", 0.0),
    ("grapharena", "components", "[Vic Hale, Wes Ivor, Tia Fox]", 1.0),
    ("grapharena", "components", "[Vic Hale, Uma Gray, Tia Fox]", 0.0),
    ("grapharena", "diameter", "[Ford, Weir, Lock]", 1.0),
    ("grapharena", "diameter", "[Ford, Weir]", 0.0),
    # plain words
    ("graphomni", "cycle", "Yes, there is one.", 1.0),
    ("graphomni", "cycle", "No, there is no cycle.", 0.0),
    ("graphomni", "cycle", "There is a cycle: true", 1.0),
    ("graphomni", "bfs", "The order is: 4, 7, 3, 8", 1.0),
    ("graphomni", "bfs", "4,3,8,7", 0.0),
    ("graphomni", "triangles", "There are 2 triangles.", 1.0),
    ("graphomni", "triangles", "12", 0.0),
    ("graphqa", "neighbors", "Di Thorn.", 1.0),
    ("graphqa", "neighbors", "The nodes are: Di Thorn", 1.0),
    ("graphqa", "neighbors", "Di Thorn, Bo Reed", 0.0),
    ("graphqa", "edge_exists", "No.", 1.0),
    ("graphqa", "degree", "<think>3</think>The degree is 2.", 1.0),
    ("graphqa", "degree", "<think>2</think>", 0.0),
    ("graphqa", "degree", "<think>2", 0.0),
]


@pytest.mark.parametrize(("benchmark", "task", "text", "wanted"), READINGS)
def test_readings(benchmark: str, task: str, text: str, wanted: float) -> None:
    assert said(fixture(benchmark, task), text).total == wanted


def test_three_way_score() -> None:
    tour = fixture("grapharena", "tsp")
    for text, feasible, hallucinated in (
        ("[QAL, SEW, TOX, RUV, QAL]", 1.0, 0.0),
        ("[QAL, RUV, SEW, TOX, QAL]", 1.0, 0.0),
        ("[QAL, RUV, SEW]", 0.0, 1.0),
        ("[QAL, RUV, SEW, TOX, ZZZ]", 0.0, 1.0),
        ("none", 0.0, 0.0),
    ):
        parts = said(tour, text).parts
        assert (parts["feasible"], parts["hallucinated"]) == (feasible, hallucinated), text


def test_values_alone_are_logged() -> None:
    item = fixture("greal", "tsp")
    for text, value in (("\\boxed{14}", 1.0), ("\\boxed{16}", 0.0)):
        found = said(item, text)
        assert (found.total, found.parts["acc_value"], found.labels["answer"]) == (0.0, value, "value_only")


def test_the_prompt_names_a_tool_that_the_instructions_do_not_list() -> None:
    env = GritEnv()
    shown = env.reset(fixture("nlgraph", "max_flow")).text
    assert 'problem_type max_flow with parameters {"source":"0","target":"3"}' in shown
    for item in (fixture("nlgraph", "shortest_path"), fixture("nlgraph", "hamilton_path")):
        assert env.reset(item).text == item.question
    assert GritEnv(mode="cot").reset(fixture("nlgraph", "max_flow")).text == fixture("nlgraph", "max_flow").question


def test_the_prompt_is_the_same_whatever_the_answer() -> None:
    """Components settle that there is no path or order, but to name them in the prompt would give that away."""
    checker = Checker(benchmark="own", form="boxed", needs="both")
    parts = NamedGraph.from_edges("abcd", [("a", "b"), ("c", "d")])
    near, apart = (
        build_item(Parsed(id="p", task="shortest_path", text="Which?", graph=parts, start="a", end=end), checker)
        for end in "bd"
    )
    ring = NamedGraph.from_edges("abc", [("a", "b"), ("b", "c"), ("c", "a")], directed=True)
    line = NamedGraph.from_edges("abc", [("a", "b"), ("b", "c")], directed=True)
    orders = Checker(benchmark="own", form="boxed", needs="witness")
    cyclic, ordered = (
        build_item(Parsed(id="o", task="topological_order", text="Order?", graph=graph), orders)
        for graph in (ring, line)
    )
    assert (near.gold.value, apart.gold.value, cyclic.gold.value, ordered.gold.value) == (1, "no", "no", None)
    shown = [GritEnv().reset(item).text for item in (near, apart, cyclic, ordered)]
    assert shown[0] == shown[1]
    assert shown[2] == shown[3]
    assert shown[2].endswith("The graph tool also takes problem_type topological_order.")
    assert play_oracle(apart).reward == play_oracle(near).reward == 2.0


@pytest.mark.parametrize("needs", ["value", "witness", "both"])
def test_a_path_that_does_not_exist_can_be_answered(needs: Any) -> None:
    checker = Checker(benchmark="own", form="boxed", needs=needs)
    parts = NamedGraph.from_edges("abcd", [("a", "b"), ("c", "d")])
    near, apart = (
        build_item(Parsed(id="p", task="shortest_path", text="Which?", graph=parts, start="a", end=end), checker)
        for end in "bd"
    )
    assert "\\boxed{no} where none exists" in apart.question
    assert play_oracle(apart).total == play_oracle(near).total == 1.0
    assert [said(item, "\\boxed{no}").total for item in (near, apart)] == [0.0, 1.0]


@pytest.mark.parametrize("case", handed_cases("labels.jsonl", "text_vs_matrix"))
def test_handed_texts_beside_matrices(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        told = ", ".join(f"({u}, {v})" for u, v in data["text_edges"])
        record = {
            "query": f"Graph: Edge Set is {{{told}}}\nQ: How many triangles are in this graph?",
            "task_type": "triangle",
            "graph_info": str(data["matrix"]),
        }
        parsed, _ = graphomni.read(record, "case")
        text, stored = (
            {tuple(sorted(edge[:2])) for edge in graph.edges}
            for graph in (parsed.graph, graphomni.matrix_graph(record["graph_info"]))
        )
        only = {"only_text": sorted(text - stored), "only_matrix": sorted(stored - text)}
        return {"status": "ok", "agree": parsed.graph_agrees, **only}

    check_case(case, run)


# Gold


@given(st.integers(1, 7), st.data(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_hamilton_path_against_all_permutations(n: int, data: st.DataObject, directed: bool) -> None:
    nodes = [f"v{i}" for i in range(n)]
    legal = [(u, v) for u in nodes for v in nodes if (u != v if directed else u < v)]
    ends = data.draw(st.lists(st.sampled_from(legal), unique=True)) if legal else []
    graph = NamedGraph.from_edges(nodes, ends, directed)
    linked = {*ends, *(() if directed else ((v, u) for u, v in ends))}
    exists = any(all(step in linked for step in itertools.pairwise(order)) for order in itertools.permutations(nodes))
    path = hamilton_path(graph)
    assert (path is not None) == exists
    if path is not None:
        assert sorted(path) == nodes
        assert all(step in linked for step in itertools.pairwise(path))


def test_no_such_object_is_an_answer() -> None:
    star = NamedGraph.from_edges("abcd", [("a", "b"), ("a", "c"), ("a", "d")])
    checker = Checker(benchmark="own", form="boxed", needs="witness")
    item = build_item(Parsed(id="star", task="hamilton_path", text="Is there one?", graph=star), checker)
    assert item.gold.value == "no"
    assert said(item, "\\boxed{no}").total == 1.0
    assert said(item, "\\boxed{yes}").total == 0.0
    assert said(item, '\\boxed{["b", "a", "c", "d"]}').total == 0.0
    assert said(item, "\\boxed{[]}").total == 0.0
    ring = NamedGraph.from_edges("abc", [("a", "b"), ("b", "c"), ("c", "a")], directed=True)
    item = build_item(Parsed(id="ring", task="topological_order", text="Order?", graph=ring), checker)
    assert item.gold.value == "no"
    assert play_oracle(item).reward == 2.0


# Hostile text

HOSTILE = settings(
    max_examples=1250,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
    database=None,
)
"""Four tests of 1,250 examples with two texts each make 10,000 texts."""

SPLIT = build.Split("probe", 5, 5, 1, tsp_shift=0)
OWN = [build.item(SPLIT, build.Recipe(), task, 0, VIEWS[i]) for i, task in enumerate(items.TASKS)]
STRICT = [item for item in EACH if checker_of(item).needs != "value" and item.gold.value != "no"]
"""Items whose answer is an object: no text without it can be right by chance."""

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
marks = st.text(alphabet='{}[]()<>"\\:,0123456789abnulyesN/-.eE \n\u2028\ud800é', max_size=60)
wrapped = st.sampled_from(
    ("{}", "\\boxed{{{}}}", "\\boxed{{{{{}}}}}", "<<<{}>>>", "[{}]", "<think>{}", "yes {}", "\\boxed{{{}")
)


def json_text(value: Any) -> str:
    try:
        return dumps(value)
    except ValueError:
        return "NaN"


@given(st.sampled_from(OWN), values, marks)
@HOSTILE
def test_hostile_graph_bodies_earn_nothing(item: GritTask, value: Any, text: str) -> None:
    env = GritEnv(solver_seconds=2.0)
    dialect = dialect_for(env, "tags")
    for body in (text, json_text({"problem_type": item.task, "graph": value, "parameters": {"start": value}})):
        env.reset(item)
        for action in dialect.parse(f"<graph>{body}</graph>"):
            assert len(env.step(action).observation.text) < 10_000
        assert (env.score().total, env.score().reward, env.score().parts["s_inv"]) == (0.0, -1.0, 0.0)


@given(st.sampled_from(OWN), st.dictionaries(st.text(max_size=6), values, max_size=4), values, values)
@HOSTILE
def test_hostile_adjacencies_earn_nothing(item: GritTask, data: dict[str, Any], flag: Any, parameter: Any) -> None:
    env = GritEnv(solver_seconds=2.0)
    dialect = dialect_for(env, "tags")
    for weighted in (True, flag):
        graph = {"type": "adjacency_list", "data": data, "directed": False, "weighted": weighted}
        call = {"problem_type": item.task, "graph": graph, "parameters": {"start": parameter, "measure": parameter}}
        env.reset(item)
        for action in dialect.parse(f"<graph>{json_text(call)}</graph>"):
            assert len(env.step(action).observation.text) < 10_000
        found = env.score()
        assert found.total == 0.0
        assert found.reward == -1.0


@given(st.sampled_from(OWN), values, marks, wrapped)
@HOSTILE
def test_hostile_answers_earn_nothing(item: GritTask, value: Any, text: str, wrapper: str) -> None:
    keyed = json_text(dict.fromkeys(gold_answer(item), value))
    for body in (wrapper.format(text), f"\\boxed{{{keyed}}}"):
        found = said(item, body)
        assert found.total == 0.0
        assert found.reward == -1.0


@given(st.sampled_from(EACH), values, marks, wrapped)
@HOSTILE
def test_hostile_answers_to_other_benchmarks_earn_nothing(item: GritTask, value: Any, text: str, wrapper: str) -> None:
    gold = gold_answer(item)
    keyed = json_text(dict.fromkeys(gold, value) if isinstance(gold, dict) else value)
    for body in (wrapper.format(text), wrapper.format(keyed)):
        found = said(item, body)
        if item in STRICT:
            assert found.total == 0.0, body
        elif found.total:
            # A number or yes/no can be hit by chance, but only by text that says it.
            assert gold in ("yes", "no") or str(gold) in body or any(letter.isdigit() for letter in body)


@pytest.mark.parametrize(
    "body",
    [
        "[" * 5000,
        "]" * 5000,
        "[[]" * 3000,
        "<" * 9000,
        "<<<>>>" * 3000,
        "\\boxed{" * 500,
        "9" * 6000,
        "1e999",
        "yes no " * 3000,
        "a, " * 6000,
        " and " * 4000,
        "(" * 9000,
        "\ud800",
        "\x00" * 50,
        "1/0",
        "0/0",
        "-" * 9000,
        "{" * 900,
    ],
)
def test_large_and_odd_answers_are_data(body: str) -> None:
    for item in EACH[::3]:
        for text in (body, f"\\boxed{{{body}}}", f"[{body}]", f"<<<{body}>>>", f"\\boxed{{{body}"):
            found = said(item, text)
            assert found.total == 0.0 or not isinstance(gold_answer(item), list | dict), (item.id, text[:40])
