"""The independent parser: it reads every kind of question back, and refuses text that does not state one graph."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from envs.grit import build, parse, scenarios
from envs.grit.items import TASKS, GritTask
from envs.grit.parse import Parsed, ParseError


def stored(item: GritTask) -> Parsed:
    query = item.query
    edges = tuple((u, v, int(w)) for u, v, w in item.edges)
    return Parsed(item.task, item.nodes, item.aliases, edges, query.start, query.end, query.measure)


@pytest.mark.parametrize("ood", [False, True])
def test_every_scenario_is_read_back_in_every_view(ood: bool) -> None:
    split = build.Split("probe", 5, 20, 2, ood=ood)
    seen = set()
    for task in TASKS:
        for graph in range(2 * len(scenarios.scenarios(task, ood))):
            for view in build.VIEWS:
                item = build.item(split, build.Recipe(seed=1), task, graph, view)
                assert parse.parse(item.question) == stored(item), item.id
                seen.add(item.scenario)
    assert seen == {scenario.key for task in TASKS for scenario in scenarios.scenarios(task, ood)}


@pytest.mark.parametrize("split", ["train", "test", "large", "ood"])
def test_published_splits_are_read_back(split: str) -> None:
    for item in build.Generated(split, build.Recipe())[::131]:
        assert parse.parse(item.question) == stored(item), item.id


def test_other_graph_models_are_read_back() -> None:
    for recipe in (build.Recipe(profile="sparse"), build.Recipe(profile="paper_text"), build.Recipe(metric=True)):
        for item in build.Generated("test", recipe)[::301]:
            assert parse.parse(item.question) == stored(item), item.id


def test_the_parser_knows_nothing_of_the_renderer() -> None:
    source = Path(parse.__file__).read_text(encoding="utf-8")
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert imported <= sys.stdlib_module_names | {"collections.abc"}


STORY = """Four huts stand on a hill, in all 4 huts. The huts are: Abo, Node 1, Node 11, 0xB3_q.

A path of {w} leads from Abo to Depot_A. Depot_A is another name for 0xB3_q. Node 1 and Node 11 are 3 km apart. \
Nobody counts the 17 sheep. One walks 2 km from Node 11 to Abo. No other paths exist.

Which way is shortest from Node 1 to Depot_A?

Finish with \\boxed{{{{"path": [...], "cost": ...}}}}."""


def test_a_story_by_hand() -> None:
    assert parse.parse(STORY.format(w="7 km")) == Parsed(
        task="shortest_path",
        nodes=("Abo", "Node 1", "Node 11", "0xB3_q"),
        aliases={"Depot_A": 3},
        edges=((0, 2, 2), (0, 3, 7), (1, 2, 3)),
        start=1,
        end=3,
    )


def test_the_end_may_be_named_first() -> None:
    asked = "How does one reach Depot_A from Node 1?"
    parsed = parse.parse(STORY.format(w="7 km").replace("Which way is shortest from Node 1 to Depot_A?", asked))
    assert (parsed.start, parsed.end) == (1, 3)


@pytest.mark.parametrize(
    "row",
    ["from A1: to B2 (7), to C3 (3)", "From A1 one needs 7 km to B2, 3 km to C3.", "A1 lies 7 to B2, 3 to C3."],
)
def test_rows_of_legs(row: str) -> None:
    text = f'A tour over 3 stops. Stops: A1, B2, C3.\n\n{row}\n\nTour?\n\n\\boxed{{{{"tour": [...], "cost": ...}}}}'
    assert parse.parse(text).edges == ((0, 1, 7), (0, 2, 3))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("Nobody", "Abo and Node 11 are 2 km apart. Nobody", "repeated_edge"),
        ("Nobody", "Node 11 and Abo are 5 km apart. Nobody", "repeated_edge"),
        ("Nobody", "0xB3_q and Depot_A are 5 km apart. Nobody", "edge"),
        ("Nobody", "Abo, Node 1 and 0xB3_q are 5 km apart. Nobody", "edge"),
        ("Nobody counts", "Abo counts", "edge"),
        ("are 3 km apart", "are near", "weight"),
        ("are 3 km apart", "are 3 km or 4 km apart", "weight"),
        (" Depot_A is another name for 0xB3_q.", "", "edge"),
        ("Depot_A is another name for 0xB3_q. Node", "Node 1 and Abo are 9 km apart. Node", "edge"),
        ("Nobody", "Depot_A is another name for Abo. Nobody", "alias"),
        ("Nobody", "Abo is another name for Node 11. Nobody", "alias"),
        ("0xB3_q. Node 1 and", "0xB3_q. Node 11 is also called N11. N11 and Node 1 and", "edge"),
        ("all 4 huts", "all 5 huts", "roster"),
        ("Abo, Node 1, Node 11, 0xB3_q.", "Abo, Node 1, Node 1, 0xB3_q.", "roster"),
        ("from Node 1 to Depot_A?", "from Node 1?", "query"),
        ('"path": [...], ', "", "task"),
        ("\n\n", "\n", "shape"),
    ],
)
def test_text_that_states_no_graph_is_refused(old: str, new: str, code: str) -> None:
    story = STORY.format(w="7 km")
    assert old in story
    with pytest.raises(ParseError) as caught:
        parse.parse(story.replace(old, new))
    assert caught.value.code == code, str(caught.value)


def test_an_alias_is_declared_directly_after_its_first_use() -> None:
    story = STORY.format(w="7 km")
    late = story.replace(" Depot_A is another name for 0xB3_q.", "").replace(
        "Nobody", "Depot_A is another name for 0xB3_q. Nobody"
    )
    with pytest.raises(ParseError) as caught:
        parse.parse(late)
    assert caught.value.code == "alias"


def test_announced_numbers_are_compared() -> None:
    text = (
        "Given is an undirected unweighted graph with 3 nodes and {m} edges.\nNodes: v1, v2, v3.\n"
        'Edges: (v1, v2); (v3, v2).\n\nOrder from v1?\n\n\\boxed{{{{"order": [...]}}}}'
    )
    assert parse.parse(text.format(m=2)).edges == ((0, 1, 1), (1, 2, 1))
    with pytest.raises(ParseError) as caught:
        parse.parse(text.format(m=3))
    assert caught.value.code == "count"
