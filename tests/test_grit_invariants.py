"""`verify` finds each kind of planted fault, under its number, and nothing in a good release."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import DataError
from agl.graphs.solve import solve
from envs.grit import build, invariants
from envs.grit.answers import Reading
from envs.grit.export import SplitPlan
from envs.grit.export import build as build_folder
from envs.grit.graph_files import UserGraph
from envs.grit.invariants import Report, isomorphic, isomorphism_hash, mutants, verify
from envs.grit.items import TASKS, Gold, GritTask, Query, TaskName, line, write
from envs.grit.perturb import Settings, perturb

MINI = list(build.Generated("mini", build.Recipe(), graphs=2))
Edges = list[tuple[int, int, int]]


def broken(report: Report) -> set[int]:
    return {number for number, finding in report.findings.items() if finding.faults}


def check(items: list[GritTask], folder: Path) -> Report:
    write(items, folder / "items.jsonl")
    return verify([folder / "items.jsonl"])


def graph(task: TaskName, number: int = 0) -> list[GritTask]:
    """The eight views of one graph."""
    return [item for item in MINI if item.task == task and item.graph_id.endswith(f"{number:04d}")]


def changed(told: list[GritTask], at: int | None = None, **fields: Any) -> list[GritTask]:
    """`told` with fields of one view, or of all, replaced; nothing is validated."""
    return [item.model_copy(update=fields) if at is None or i == at else item for i, item in enumerate(told)]


def retold(told: list[GritTask], pattern: str, by: str) -> list[GritTask]:
    """`told` with the first match in the first view that has one replaced."""
    for i, item in enumerate(told):
        text, count = re.subn(pattern, by, item.question, count=1)
        if count and text != item.question:
            return changed(told, i, question=text)
    raise AssertionError(f"no view matches {pattern}")


def test_a_release_keeps_all_invariants(tmp_path: Path) -> None:
    for name, graphs in (("train", 3), ("test", 2), ("large", 1), ("ood", 1)):
        build_folder(SplitPlan(split=name, graphs=graphs), tmp_path)
    files = [tmp_path / f"{name}.jsonl" for name in ("train", "test", "large", "ood")]
    report = verify(files, rebuild=True)
    assert report.passed, report.summary()
    assert not report.notes
    assert report.items == 6 * 8 * 7 - 4
    assert all(finding.checked >= 42 for finding in report.findings.values())


def test_workers_change_nothing(tmp_path: Path) -> None:
    items = changed(MINI, 5, question="nonsense")
    alone = check(items, tmp_path)
    assert verify([tmp_path / "items.jsonl"], workers=2).summary() == alone.summary()
    assert broken(alone) == {1}
    assert alone.findings[1].first[0].where == items[5].id


@pytest.mark.parametrize(
    ("task", "pattern", "by"),
    [
        ("shortest_path", r", \d+\); ", ", 11); "),
        ("shortest_path", r"(\([^()]*\)); ", r"\1; \1; "),
        ("bfs", r"(\([^()]*\)); ", r""),
        ("bfs", r"from (.*?) visits", r"from nowhere visits"),
        ("coloring", r"Nodes: ([^,]*), ([^,]*),", r"Nodes: \2, \1,"),
        ("tsp", r"to ([^(]*) \(\d+\)", r"to \1 (0)"),
        ("centrality", r"highest (degree|closeness|betweenness) centrality", "highest eigenvector centrality"),
        ("vertex_cover", r" is another name for [^.]*\.| is also called [^.]*\.| are the same [a-z ]*\.", " is odd."),
    ],
)
def test_a_text_that_states_another_graph(tmp_path: Path, task: TaskName, pattern: str, by: str) -> None:
    assert broken(check(retold(graph(task), pattern, by), tmp_path)) == {1}


def test_names_that_are_one_after_folding(tmp_path: Path) -> None:
    told = graph("bfs")
    at = next(i for i, item in enumerate(told) if item.scheme == "semantic" and item.form == "standard")
    first, second, *rest = told[at].nodes
    item = told[at].model_copy(
        update={"nodes": (first, first.upper(), *rest), "question": told[at].question.replace(second, first.upper())}
    )
    report = check([*told[:at], item, *told[at + 1 :]], tmp_path)
    assert 2 in broken(report)
    assert "one name after folding" in report.findings[2].first[0].message


def test_an_alias_that_is_also_a_node(tmp_path: Path) -> None:
    told = graph("bfs")
    at = next(i for i, item in enumerate(told) if item.scheme == "mixed")
    assert 2 in broken(
        check(changed(told, at, aliases={**told[at].aliases, told[at].nodes[0].swapcase(): 1}), tmp_path)
    )


def test_a_name_that_begins_another(tmp_path: Path) -> None:
    told = graph("coloring")
    at = next(i for i, item in enumerate(told) if item.scheme == "random_id")
    nodes = (told[at].nodes[1] + "7", *told[at].nodes[1:])
    report = check(changed(told, at, nodes=nodes), tmp_path)
    assert "is the beginning of" in report.findings[2].first[0].message


def test_views_that_differ(tmp_path: Path) -> None:
    told = graph("centrality")
    assert broken(check(told[:-1], tmp_path)) == {3}
    assert broken(check([*told, told[0]], tmp_path)) == {3}
    for fields in ({"gold": Gold(value="1/7", witness=(0,))}, {"edges": told[0].edges[:-1], "m": told[0].m - 1}):
        assert 3 in broken(check(changed(told, 3, **fields), tmp_path))


def without_last_node(told: list[GritTask]) -> dict[str, Any]:
    edges = tuple(edge for edge in told[0].edges if told[0].n - 1 not in edge[:2])
    return {"edges": edges, "m": len(edges)}


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        ("bfs", without_last_node),
        ("bfs", lambda told: {"edges": ((1, 0, 1), *told[0].edges[1:])}),
        ("bfs", lambda told: {"edges": (*told[0].edges, told[0].edges[0]), "m": told[0].m + 1}),
        ("bfs", lambda told: {"edges": ((*told[0].edges[0][:2], 2), *told[0].edges[1:])}),
        ("tsp", lambda told: {"edges": ((0, 1, 11), *told[0].edges[1:])}),
        ("tsp", lambda told: {"edges": ((0, 1, 2.5), *told[0].edges[1:])}),
        ("tsp", lambda told: {"edges": told[0].edges[1:], "m": told[0].m - 1}),
        ("tsp", lambda told: {"weighted": False}),
        ("bfs", lambda told: {"split": "test"}),
        ("bfs", lambda told: {"ood": True}),
    ],
)
def test_graphs_that_break_the_model(
    tmp_path: Path, task: TaskName, fields: Callable[[list[GritTask]], dict[str, Any]]
) -> None:
    told = graph(task)
    assert 4 in broken(check(changed(told, **fields(told)), tmp_path))


def test_a_wrong_answer(tmp_path: Path) -> None:
    for task in TASKS:
        told = graph(task, 1)
        gold = told[0].gold
        wrong = [gold.model_copy(update={"witness": gold.witness[:-1]})] if task != "coloring" else []
        if isinstance(gold.value, int):
            wrong.append(gold.model_copy(update={"value": gold.value + 1}))
        for worse in wrong:
            assert 5 in broken(check(changed(told, gold=worse), tmp_path)), (task, worse)


def worse_tour(item: GritTask) -> Gold:
    weight = {frozenset((u, v)): w for u, v, w in item.edges}
    for seed in range(100):
        tour = random.Random(seed).sample(range(item.n), item.n)
        cost = sum(weight[frozenset(step)] for step in pairwise([*tour, tour[0]]))
        if isinstance(item.gold.value, int) and cost > item.gold.value:
            return Gold(value=int(cost), witness=tuple(tour))
    raise AssertionError("every tour costs the same")


def test_a_tour_that_is_not_the_cheapest(tmp_path: Path) -> None:
    told = graph("tsp", 1)
    gold = worse_tour(told[0])
    forged = {**told[0].certificate, "bound": gold.value}
    for certificate in (told[0].certificate, forged):
        report = check(changed(told, gold=gold, certificate=certificate), tmp_path)
        assert broken(report) == {5, 6}
        assert any("the multipliers prove only" in fault.message for fault in report.findings[5].first) or (
            certificate is not forged
        )


def test_a_certificate_that_proves_nothing(tmp_path: Path) -> None:
    for task in TASKS:
        assert 5 in broken(check(changed(graph(task), certificate={}), tmp_path)), task


def test_a_judge_that_takes_wrong_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        invariants, "read_answer", lambda *_: Reading(readable=True, right=True, value_right=True, code="ok")
    )
    report = check(graph("vertex_cover"), tmp_path)
    assert broken(report) == {5}
    kinds = ("wrong_value", "missing_element", "swapped_nodes", "extra_node", "empty")
    assert [re.search(r"\((\w+)\)", fault.message)[1] for fault in report.findings[5].first]  # type: ignore[index]
    assert report.findings[5].faults == sum(len(mutants(item)) for item in graph("vertex_cover"))
    assert set(mutants(graph("vertex_cover", 1)[0])) == set(kinds)


def test_a_judge_that_refuses_the_right_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "read_answer", lambda *_: Reading(readable=True, code="strict"))
    assert broken(check(graph("coloring"), tmp_path)) == {5, 6}


def test_the_five_wrong_answers_are_wrong() -> None:
    """By the definition of each task, without the code that judges."""
    kinds: Counter[str] = Counter()
    for item in build.Generated("mini", build.Recipe(seed=5))[::2]:
        for kind, answer in mutants(item).items():
            kinds[kind] += 1
            assert not is_right(item, answer), (item.id, kind, answer)
    assert kinds["missing_element"] == kinds["extra_node"] == kinds["empty"] == 192
    assert kinds["wrong_value"] > 185
    assert kinds["swapped_nodes"] > 150


def is_right(item: GritTask, answer: dict[str, Any]) -> bool:
    place = {name: index for index, name in enumerate(item.nodes)}
    weight = {frozenset((u, v)): w for u, v, w in item.edges}
    names = next(value for value in answer.values() if not isinstance(value, int))
    if not set(names) <= place.keys():
        return False
    if item.task == "coloring":
        colors = [names.get(name) for name in item.nodes]
        proper = None not in colors and all(colors[u] != colors[v] for u, v, _ in item.edges)
        return proper and len(set(colors)) == answer["colors"] == item.gold.value
    found = [place[name] for name in names]
    if item.task == "vertex_cover":
        covered = all(u in found or v in found for u, v, _ in item.edges)
        return covered and len(found) == len(set(found)) == answer["size"] == item.gold.value
    if item.task == "bfs":
        return tuple(found) == item.gold.witness
    if item.task == "centrality":
        return sorted(found) == sorted(item.gold.witness)
    if item.task == "tsp":
        if sorted(found) != list(range(item.n)):
            return False
        found.append(found[0])
    elif found[:1] != [item.query.start] or found[-1:] != [item.query.end]:
        return False
    steps = [frozenset(step) for step in pairwise(found)]
    return all(step in weight for step in steps) and (
        sum(weight[step] for step in steps) == answer["cost"] == item.gold.value
    )


def test_a_tool_that_solves_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(problem: str, told: Any, parameters: Any, **options: Any) -> Any:
        solution = solve(problem, told, parameters, **options)
        return replace(solution, witness=solution.witness[1:])

    monkeypatch.setattr(invariants, "solve", turned)
    assert broken(check(graph("bfs"), tmp_path)) == {6}


def test_bytes_that_the_manifest_does_not_know(tmp_path: Path) -> None:
    build_folder(SplitPlan(split="mini", graphs=1), tmp_path)
    path = tmp_path / "mini.jsonl"
    assert verify([path]).passed
    good = path.read_bytes()
    path.write_bytes(good + b"\n")
    assert broken(verify([path])) == {7}
    path.write_bytes(good)
    table = tmp_path / "data" / "mini.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    assert broken(verify([path])) == {7}
    table.unlink()
    assert broken(verify([path])) == {7}
    other = tmp_path / "other.jsonl"
    other.write_bytes(good)
    assert broken(verify([other])) == {7}


def test_rebuilding_finds_what_nothing_else_can(tmp_path: Path) -> None:
    told = graph("bfs")
    at = next(i for i, item in enumerate(told) if item.form == "realistic")
    write(changed(told, at, question=told[at].question.replace("\n\n", "\n\nIt rains. ", 1)), tmp_path / "items.jsonl")
    assert verify([tmp_path / "items.jsonl"]).passed
    assert broken(verify([tmp_path / "items.jsonl"], rebuild=True)) == {7}


def test_one_graph_in_two_splits(tmp_path: Path) -> None:
    """Under other indices and in another task, so that only an isomorphism test can see it."""
    split = build.SPLITS["test"]
    number = build._sizes(split, 0, "bfs").index(10)
    told = [build.item(split, build.Recipe(), "bfs", number, view) for view in build.VIEWS]
    order = random.Random(1).sample(range(10), 10)
    edges = sorted((*sorted((order[u], order[v])), w) for u, v, w in told[0].edges)
    copies = changed(told, split="train", graph_id="train-cen-0000", task="centrality", edges=tuple(edges))
    write(told, tmp_path / "test.jsonl")
    write(changed(copies, query=Query(measure="degree")), tmp_path / "train.jsonl")
    report = verify([tmp_path / "test.jsonl", tmp_path / "train.jsonl"])
    assert [fault.message for fault in report.findings[8].first] == [f"is the same graph as {told[0].graph_id}"]
    assert report.findings[8].faults == 1


@pytest.mark.parametrize("field", ["nodes", "aliases", "scenario"])
def test_known_names_and_stories_out_of_distribution(tmp_path: Path, field: str) -> None:
    split = build.Split("ood", 4, 6, 1, ood=True)
    strange = [build.item(split, build.Recipe(), "bfs", 0, view) for view in build.VIEWS]
    told = graph("bfs")
    write(told, tmp_path / "mini.jsonl")
    write(strange, tmp_path / "ood.jsonl")
    assert not verify([tmp_path / "mini.jsonl", tmp_path / "ood.jsonl"]).findings[8].faults
    known = next(item for item in told if item.scheme == "mixed")
    at = next(i for i, item in enumerate(strange) if item.scheme == "semantic")
    values = {
        "nodes": (known.nodes[0].lower(), *strange[at].nodes[1:]),
        "aliases": {next(iter(known.aliases)): 0},
        "scenario": known.scenario,
    }
    write(changed(strange, at, **{field: values[field]}), tmp_path / "ood.jsonl")
    assert verify([tmp_path / "mini.jsonl", tmp_path / "ood.jsonl"]).findings[8].faults == 1


def test_long_and_odd_questions(tmp_path: Path) -> None:
    told = graph("bfs")
    assert broken(check(changed(told, 2, question=f"{'Hello. ' * 14_000}\n\n{told[2].question}"), tmp_path)) == {9}
    assert broken(check(changed(told, 2, question=f"It\u2019s late.\n\n{told[2].question}"), tmp_path)) == {10}


def test_typographic_apostrophes_need_the_option(tmp_path: Path) -> None:
    for unicode in (True, False):
        plan = SplitPlan(split="mini", graphs=2, recipe=build.Recipe(unicode=unicode))
        build_folder(plan, tmp_path / str(unicode), parquet=False)
    noisy, plain = tmp_path / "True" / "mini.jsonl", tmp_path / "False" / "mini.jsonl"
    assert "\u2019" in noisy.read_text(encoding="utf-8")
    assert plain.read_text(encoding="utf-8").isascii()
    assert verify([noisy], rebuild=True).passed
    assert verify([plain], rebuild=True).passed
    plain.write_bytes(noisy.read_bytes())
    assert broken(verify([plain])) == {7, 10}


ROADS = UserGraph(
    "roads", "here", tuple("abcde"), ((0, 1, 2.5), (0, 2, 120), (1, 2, 0.1), (1, 3, 0.2), (2, 4, 40)), weighted=True
)
PLACES = UserGraph("places", "here", tuple("abc"), ((0, 1, 0.1), (0, 2, 0.2), (1, 2, 0.7)), weighted=True)


def perturbed(**options: Any) -> list[GritTask]:
    return [one.item for one in perturb([ROADS, PLACES], Settings(**options)).renamed]


def test_perturbed_graphs_keep_what_applies(tmp_path: Path) -> None:
    for options in ({}, {"ood": True, "schemes": ("mixed", "canonical")}, {"tasks": ("coloring",)}):
        told = perturbed(**options)
        write(told, tmp_path / "items.jsonl")
        report = verify([tmp_path / "items.jsonl"], rebuild=True)
        assert report.passed, report.summary()
        assert report.findings[1].checked == report.findings[5].checked == len(told)
        assert report.findings[7].checked == report.findings[8].checked == 0
        assert any("perturbed graphs" in note for note in report.notes)
    assert verify([tmp_path / "items.jsonl"], workers=2).summary() == verify([tmp_path / "items.jsonl"]).summary()
    write(MINI, tmp_path / "mini.jsonl")
    both = verify([tmp_path / "mini.jsonl", tmp_path / "items.jsonl"])
    assert both.passed, both.summary()


def test_faults_in_perturbed_graphs_are_found(tmp_path: Path) -> None:
    told = [item for item in perturbed(tasks=("shortest_path",)) if item.graph_id.endswith("0")]
    at = next(i for i, item in enumerate(told) if (item.form, item.scheme) == ("standard", "semantic"))
    item = told[at]
    assert broken(check(changed(told, at, question=item.question.replace(" 2.5)", " 2.6)")), tmp_path)) == {1}
    assert 2 in broken(check(changed(told, at, aliases={item.nodes[0].upper(): 1}), tmp_path))
    assert 3 in broken(check([*told, told[0]], tmp_path))
    assert 3 in broken(check(changed(told, at, scenario="another"), tmp_path))
    assert 4 in broken(check(changed(told, edges=((0, 1, -2.5), *item.edges[1:])), tmp_path))
    assert 4 in broken(check(changed(told, edges=item.edges[:-1], m=4), tmp_path))
    assert isinstance(item.gold.value, int | float)
    worse = item.gold.model_copy(update={"value": item.gold.value + 1})
    assert 5 in broken(check(changed(told, gold=worse), tmp_path))


def test_a_manifest_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my app"}')
    report = check(graph("bfs"), tmp_path)
    assert report.passed
    assert any("no manifest.json of GRIT" in note for note in report.notes)
    (tmp_path / "manifest.json").write_text('{"benchmark": "GRIT", "splits": []}')
    with pytest.raises(DataError, match="got a broken one"):
        check(graph("bfs"), tmp_path)


def test_files_that_hold_no_items_of_grit(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="got none"):
        verify([tmp_path / "empty.jsonl"])
    with pytest.raises(DataError, match="got 'foreign'"):
        check(changed(MINI, split="foreign"), tmp_path)
    (tmp_path / "broken.jsonl").write_text(line(MINI[0]) + "\n{\n")
    with pytest.raises(DataError, match="line 2"):
        verify([tmp_path / "broken.jsonl"])


@st.composite
def weighted_graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    n = draw(st.integers(2, 8))
    chosen = draw(st.sets(st.sampled_from(list(combinations(range(n), 2))), min_size=1))
    return n, [(u, v, draw(st.integers(1, 3))) for u, v in sorted(chosen)]


@settings(max_examples=60, deadline=None)
@given(weighted_graphs(), st.randoms(use_true_random=False))
def test_isomorphic_graphs_are_in_one_eighth(told: tuple[int, Edges], rng: random.Random) -> None:
    n, edges = told
    place = rng.sample(range(n), n)
    other = [(*sorted((place[u], place[v])), w) for u, v, w in rng.sample(edges, len(edges))]
    same: Edges = [(u, v, w) for u, v, w in other]
    assert isomorphism_hash(n, same) == isomorphism_hash(n, edges)
    assert build.eighth(n, same) == build.eighth(n, edges)
    assert isomorphic(n, same, edges)
    (u, v, w), *rest = same
    assert not isomorphic(n, [(u, v, w + 1), *rest], edges)


def test_isomorphism_is_decided_exactly() -> None:
    """Colour refinement cannot tell one hexagon from two triangles."""
    hexagon: Edges = [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 1), (0, 5, 1)]
    triangles: Edges = [(0, 1, 1), (1, 2, 1), (0, 2, 1), (3, 4, 1), (4, 5, 1), (3, 5, 1)]
    assert isomorphism_hash(6, hexagon) == isomorphism_hash(6, triangles)
    assert not isomorphic(6, hexagon, triangles)


def test_splits_draw_from_their_own_eighths() -> None:
    for recipe in (build.Recipe(), build.Recipe(seed=3, profile="sparse")):
        for name in ("train", "test", "ood"):
            split = build.SPLITS[name]
            assert split.eighths is not None
            for item in build.Generated(name, recipe, graphs=8)[:48]:
                assert item.n < build.SHARED_SIZES or build.eighth(item.n, item.edges) in split.eighths  # type: ignore[arg-type]
    drawn = [split.eighths for split in build.SPLITS.values() if split.eighths is not None]
    assert sum(map(len, drawn)) == len({eighth for eighths in drawn for eighth in eighths}) == 8


def test_a_report_is_json(tmp_path: Path) -> None:
    told = json.loads(json.dumps(check(graph("bfs")[:-1], tmp_path).summary()))
    assert told["passed"] is False
    assert told["invariants"]["3"]["faults"] == 1
    assert "bfs" in told["invariants"]["3"]["first"][0]["where"]
    assert told["notes"]
