"""Generation of GRIT items: determinism, counts, views, names, gold answers, scenario files."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import DataError
from agl.graphs.naming import fold
from envs.grit import build, graphs, items, names, scenarios
from envs.grit.items import FORMS, SCHEMES, TASKS, GritTask

MINI = build.Generated("mini", build.Recipe())


def graph_of(item: GritTask) -> nx.Graph[int]:
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(item.n))
    graph.add_weighted_edges_from(item.edges)
    return graph


def test_same_bytes_under_any_hash_seed() -> None:
    code = (
        "import hashlib; from envs.grit import build, items\n"
        "lines = [items.line(item) for item in build.Generated('mini', build.Recipe(seed=3), 96)]\n"
        "print(hashlib.sha256('\\n'.join(lines).encode()).hexdigest())"
    )
    here = [items.line(item) for item in build.Generated("mini", build.Recipe(seed=3), 96)]
    wanted = hashlib.sha256("\n".join(here).encode()).hexdigest()
    for hash_seed in ("0", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        assert said.strip() == wanted


def test_an_item_depends_on_seed_and_index_alone() -> None:
    recipe = build.Recipe(seed=1)
    assert build.Generated("mini", recipe, 5)[4] == build.Generated("mini", recipe)[4]
    assert build.Generated("mini", recipe)[4] != build.Generated("mini", build.Recipe(seed=2))[4]


def test_published_counts() -> None:
    per_split = {
        name: Counter(task for task, _, _ in build.order(split, False)) for name, split in build.SPLITS.items()
    }
    assert {name: sum(counts.values()) for name, counts in per_split.items() if name != "mini"} == {
        "train": 17_280,
        "test": 2_760,
        "large": 960,
        "ood": 1_440,
    }
    assert per_split["test"] == {task: 360 if task == "vertex_cover" else 480 for task in TASKS}
    dropped = Counter(view[1] for task, _, view in build.order(build.SPLITS["test"], False) if task == "vertex_cover")
    assert dropped == dict.fromkeys(SCHEMES, 90)
    assert len(build.order(build.SPLITS["test"], True)) == 2_880


def test_published_sizes() -> None:
    for name, task, wanted in (
        ("test", "bfs", [n for n in range(10, 40) for _ in range(2)]),
        ("test", "tsp", [n for n in range(11, 41) for _ in range(2)]),
        ("train", "tsp", [n for n in range(5, 41) for _ in range(10)]),
        ("train", "coloring", [n for n in range(4, 40) for _ in range(10)]),
        ("large", "tsp", list(range(41, 61))),
    ):
        assert sorted(build._sizes(build.SPLITS[name], 0, task)) == wanted  # type: ignore[arg-type]


def test_published_edge_statistics() -> None:
    """Questions, mean nodes, mean edges and mean density of the test split by size bucket, as in the paper's table."""
    split = build.SPLITS["test"]
    rows = []
    for task in TASKS:
        for graph, n in enumerate(build._sizes(split, 0, task)):
            m = n * (n - 1) // 2 if task == "tsp" else graphs.budget(task, n, "edge_budget")
            rows += [(n, m, 2 * m / (n * (n - 1)))] * len(build.views(split, task, graph))
    found = []
    for low, high in ((10, 15), (16, 20), (21, 30), (31, 40)):
        bucket = [row for row in rows if low <= row[0] <= high]
        means = [sum(row[k] for row in bucket) / len(bucket) for k in range(3)]
        found.append((len(bucket), round(means[0], 1), round(means[1], 1), round(means[2], 3)))
    assert found == [
        (536, 12.6, 34.3, 0.457),
        (460, 18.0, 71.9, 0.467),
        (920, 25.5, 146.3, 0.463),
        (844, 35.1, 284.6, 0.470),
    ]


@pytest.mark.parametrize("limit", [6, 12, 24, 48, 50, 97, 384])
def test_every_prefix_is_balanced(limit: int) -> None:
    sample = list(build.Generated("mini", build.Recipe(), limit))
    assert len(sample) == len({item.id for item in sample}) == limit
    for values, wanted in ((TASKS, "task"), (FORMS, "form"), (SCHEMES, "scheme")):
        counts = Counter(getattr(item, wanted) for item in sample)
        assert set(counts) == set(values) or limit < 4
        assert max(counts.values()) - min(counts.values()) <= 3


def test_the_eight_views_tell_one_graph() -> None:
    by_graph: dict[str, list[GritTask]] = {}
    for item in MINI:
        by_graph.setdefault(item.graph_id, []).append(item)
    for told in by_graph.values():
        assert {(item.form, item.scheme) for item in told} == set(itertools.product(FORMS, SCHEMES))
        assert len({item.question for item in told}) == 8
        for field in ("edges", "query", "gold", "certificate", "n", "m", "scenario"):
            assert all(getattr(item, field) == getattr(told[0], field) for item in told)


@pytest.mark.parametrize("profile", ["edge_budget", "paper_text", "sparse"])
@pytest.mark.parametrize("task", TASKS)
def test_graphs_keep_the_model(task: Any, profile: Any) -> None:
    for n in (4, 5, 9, 16):
        for seed in range(5):
            edges = graphs.base_graph(task, n, random.Random(seed), profile=profile)
            graph: nx.Graph[int] = nx.Graph([(u, v) for u, v, _ in edges])
            assert nx.is_connected(graph)
            assert len(graph) == n
            assert [edge[:2] for edge in edges] == sorted({edge[:2] for edge in edges})
            assert all(0 <= u < v < n for u, v, _ in edges)
            assert all(1 <= w <= 10 if task in graphs.WEIGHTED else w == 1 for _, _, w in edges)
            if task == "tsp":
                assert len(edges) == n * (n - 1) // 2
            elif profile != "paper_text":
                assert len(edges) == graphs.budget(task, n, profile)
            if task == "shortest_path":
                u, v = graphs.far_pair(n, edges, random.Random(seed))
                assert nx.shortest_path_length(graph, u, v) >= 2
                assert graphs.hops(n, [edge[:2] for edge in edges], u)[v] == nx.shortest_path_length(graph, u, v)


def test_metric_tours_keep_the_triangle_inequality() -> None:
    edges = graphs.base_graph("tsp", 9, random.Random(0), metric=True)
    distance = {frozenset(edge[:2]): edge[2] for edge in edges}
    for a, b, c in itertools.permutations(range(9), 3):
        assert distance[frozenset((a, c))] <= distance[frozenset((a, b))] + distance[frozenset((b, c))]


def test_gold_is_right_by_other_means() -> None:
    """Small graphs, checked by networkx and brute force."""
    for item in MINI[:96]:
        graph, value, witness = graph_of(item), item.gold.value, item.gold.witness
        weight = {frozenset((u, v)): w for u, v, w in item.edges}
        if item.task == "shortest_path":
            assert nx.shortest_path_length(graph, item.query.start, item.query.end, weight="weight") == value
            assert sum(weight[frozenset(pair)] for pair in itertools.pairwise(witness)) == value
            assert (witness[0], witness[-1]) == (item.query.start, item.query.end)
        elif item.task == "bfs":
            start = item.query.start
            walk = nx.bfs_edges(graph, start, sort_neighbors=sorted)
            assert witness == (start, *(v for _, v in walk))
        elif item.task == "tsp":
            tours = ((0, *rest, 0) for rest in itertools.permutations(range(1, item.n)))
            costs = [sum(weight[frozenset(pair)] for pair in itertools.pairwise(tour)) for tour in tours]
            assert min(costs) == value
            assert sum(weight[frozenset(pair)] for pair in itertools.pairwise((*witness, witness[0]))) == value
            assert sorted(witness) == list(range(item.n))
        elif item.task == "coloring":
            assert all(witness[u] != witness[v] for u, v, _ in item.edges)
            assert len(set(witness)) == value
            fewer = itertools.product(range(int(value or 0) - 1), repeat=item.n)
            assert not any(all(colors[u] != colors[v] for u, v, _ in item.edges) for colors in fewer)
        elif item.task == "vertex_cover":
            assert len(witness) == value
            for size in range(item.n):
                covers = itertools.combinations(range(item.n), size)
                if any(all(u in cover or v in cover for u, v, _ in item.edges) for cover in covers):
                    assert size == value
                    break
        else:
            measure: Any = getattr(nx, f"{item.query.measure}_centrality")
            scores = measure(graph)
            top = {node for node in graph if abs(scores[node] - max(scores.values())) < 1e-9}
            assert set(witness) == top
            assert Fraction(str(value)) > 0


def sampled() -> list[GritTask]:
    """Of each split a few graphs of every task, the largest of `large` included."""
    found = []
    for split in build.SPLITS.values():
        for task in TASKS:
            sizes = build._sizes(split, 0, task)
            chosen = {0, 1, sizes.index(max(sizes))} if split.name == "large" else set(range(0, len(sizes), 25))
            found += [build.item(split, build.Recipe(), task, graph, build.VIEWS[0]) for graph in sorted(chosen)]
    return found


def test_stored_answers_are_proven_without_the_solver() -> None:
    for item in sampled():
        stored = GritTask.model_validate_json(items.line(item))
        assert not build.faults(stored), item.id


def test_a_wrong_stored_answer_is_noticed() -> None:
    for item in MINI[:48]:
        if isinstance(item.gold.value, int):
            worse = item.gold.model_copy(update={"value": item.gold.value + 1})
            assert build.faults(item.model_copy(update={"gold": worse})), item.id
        if item.task != "coloring":
            worse = item.gold.model_copy(update={"witness": item.gold.witness[:-1]})
            assert build.faults(item.model_copy(update={"gold": worse})), item.id


def test_centrality_cycles_through_the_measures() -> None:
    counts = Counter(item.query.measure for item in MINI if item.task == "centrality")
    assert max(counts.values()) - min(counts.values()) <= 8
    assert set(counts) == set(items.MEASURES)


def forms_of(item: GritTask) -> list[str]:
    return [*item.nodes, *item.aliases]


def test_names_cannot_be_confused() -> None:
    for item in MINI:
        folded = [fold(form) for form in forms_of(item)]
        assert len(set(folded)) == len(folded)
        if item.scheme != "canonical":
            assert not any(names.confusable(a, b) for a, b in itertools.combinations(folded, 2)), item.id
        assert item.question.isascii()


def test_naming_rules() -> None:
    for item in MINI:
        if item.scheme == "canonical":
            assert item.nodes in (
                tuple(f"Node {i}" for i in range(item.n)),
                tuple(f"v{i + 1}" for i in range(item.n)),
            )
        elif item.scheme == "random_id":
            ids = [int(name.rpartition(" ")[2]) for name in item.nodes]
            assert all(1 <= number <= 10_000 for number in ids)
            assert ids != sorted(ids)
        elif item.scheme == "semantic":
            assert all(len(name.split()) == 2 for name in item.nodes)
        if item.scheme == "mixed":
            aliased = Counter(item.aliases.values())
            assert len(aliased) == max(2, round(0.3 * item.n))
            assert set(aliased.values()) <= {1, 2}
        else:
            assert not item.aliases


def mentions(text: str, form: str) -> list[int]:
    """Offsets at which `form` stands in `text` as a whole name."""
    return [match.start() for match in re.finditer(rf"(?<![\w-]){re.escape(form)}(?![\w-])", text)]


def test_each_alias_is_declared_once_and_in_time() -> None:
    for item in MINI:
        for alias, index in item.aliases.items():
            name = re.escape(item.nodes[index])
            quoted = re.escape(alias)
            declared = list(
                re.finditer(
                    rf"{quoted} is another name for {name}\.|{name} is also called {quoted}\."
                    rf"|{quoted} and {name} are the same [a-z ]+\.",
                    item.question,
                )
            )
            assert len(declared) == 1, (item.id, alias)
            before = item.question[: declared[0].start()].rstrip()
            used = mentions(before, alias)
            if used:
                assert item.form == "realistic"
                between = before[used[0] :]
                sentences = [part for part in between.split(". ") if "name for" not in part and "called" not in part]
                assert len([part for part in sentences if "are the same" not in part]) == 1, (item.id, alias, between)


def test_questions_name_their_nodes_in_index_order() -> None:
    for item in MINI:
        assert ", ".join(item.nodes) in item.question
        asked = item.question.rsplit("\n\n", 2)[1]
        for index in (item.query.start, item.query.end):
            if index is not None:
                spelled = [item.nodes[index], *(alias for alias, at in item.aliases.items() if at == index)]
                assert any(mentions(asked, form) for form in spelled), item.id


def test_query_nodes_are_asked_for_by_alias_half_of_the_time() -> None:
    picked = [item for seed in range(6) for item in build.Generated("mini", build.Recipe(seed=seed))]
    by_alias = []
    for item in picked:
        if item.scheme == "mixed" and item.query.start is not None:
            asked = item.question.rsplit("\n\n", 2)[1]
            by_alias.append(not mentions(asked, item.nodes[item.query.start]))
    assert len(by_alias) > 150
    assert 0.4 < sum(by_alias) / len(by_alias) < 0.6


def test_standard_text_states_exactly_the_edges() -> None:
    for item in MINI:
        if item.form != "standard":
            continue
        known = {form: index for index, form in enumerate(item.nodes)} | item.aliases
        told = set()
        if item.task == "tsp":
            for row in re.findall(r"^from (.+?): (.+)$", item.question, re.M):
                for other, weight in re.findall(r"to (.+?) \((\d+)\)", row[1]):
                    u, v = sorted((known[row[0]], known[other]))
                    told.add((u, v, int(weight)))
        else:
            (text,) = re.findall(r"^Edges[^:]*: (.*)\.$", item.question, re.M)
            for edge in text.split("; "):
                a, b, *weight = edge.strip("()").split(", ")
                u, v = sorted((known[a], known[b]))
                told.add((u, v, int(weight[0]) if weight else 1))
        assert told == set(item.edges), item.id


def test_realistic_text_states_exactly_the_edges() -> None:
    """Each edge once; no sentence outside the templates of the scenario is needed to read it."""
    told = {
        scenario.key: scenario for task in TASKS for ood in (False, True) for scenario in scenarios.scenarios(task, ood)
    }
    small_ood = build.Split("probe", 5, 8, 1, ood=True)
    for item in [*MINI, *(build.item(small_ood, build.Recipe(), *key) for key in build.order(small_ood, True))]:
        if item.form != "realistic":
            continue
        known = {form: index for index, form in enumerate(item.nodes)} | item.aliases
        name = "|".join(re.escape(form) for form in sorted(known, key=len, reverse=True))
        weight = r"(?P<w>\d+) [A-Za-z]+"
        fields = {"a": rf"(?P<a>{name})", "b": rf"(?P<b>{name})", "w": weight, "legs": r"(?P<legs>[^.]+)"}
        story = item.question.split("\n\n")[1]
        found = []
        for template in told[item.scenario].edges:
            pattern = re.sub(r"\\{(\w+)\\}", lambda match, fields=fields: fields[match[1]], re.escape(template))
            for match in re.finditer(pattern, story):
                if item.task == "tsp":
                    legs = re.findall(rf"(\d+) \w+ to ({name})(?=, \d|$)", match["legs"])
                    found += [(*sorted((known[match["a"]], known[other])), int(w)) for w, other in legs]
                else:
                    w = int(match["w"]) if item.weighted else 1
                    found.append((*sorted((known[match["a"]], known[match["b"]])), w))
        assert sorted(found) == sorted(item.edges), item.id


def test_no_question_is_too_long_for_the_prompt() -> None:
    """24,000 tokens at four characters each, on the largest graphs."""
    split = build.SPLITS["large"]
    sizes = build._sizes(split, 0, "tsp")
    item = build.item(split, build.Recipe(), "tsp", sizes.index(60), ("realistic", "mixed"))
    assert item.n == 60
    assert len(item.question) < 96_000


@given(st.integers(0, 10_000), st.sampled_from(SCHEMES), st.integers(2, 60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_names_are_distinct_at_any_size(seed: int, scheme: Any, n: int, ood: bool) -> None:
    for domain in (domain for domain, pool in names.pools().items() if pool.ood == ood):
        drawn = names.draw(scheme, n, random.Random(seed), kind="Access Point", domain=domain, asked=(1,), ood=ood)
        folded = [fold(form) for forms in drawn.surfaces() for form in forms]
        assert len(drawn.primary) == n
        assert len(set(folded)) == len(folded)
        if scheme != "canonical":
            assert not any(names.confusable(a, b) for a, b in itertools.combinations(folded, 2))


def test_files_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    items.write(MINI[:20], path)
    assert list(items.read(path)) == list(MINI[:20])
    assert list(items.read(path, 3)) == list(MINI[:3])
    assert set(json.loads(path.read_text().splitlines()[0])) == {
        *("id", "split", "task", "graph_id", "form", "scheme", "scenario", "ood", "n", "m", "question", "nodes"),
        *("aliases", "edges", "directed", "weighted", "query", "gold", "certificate", "seed", "generator_version"),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields | {"colour": 1}, "line 2: colour: unknown field"),
        (lambda fields: {k: v for k, v in fields.items() if k != "gold"}, "line 2: gold: Field required"),
        (lambda fields: fields | {"m": 1}, "line 2: .*edges must hold m = 1"),
        (lambda fields: fields | {"aliases": {"x": 99}}, "line 2: .*outside"),
        (lambda fields: fields | {"query": {}}, "line 2: .*needs query.start"),
        (lambda fields: fields | {"env": "word"}, "line 2: item: env must be grit, got 'word'"),
        (lambda fields: fields | {"id": " "}, "line 2: item: id and graph_id must not be blank"),
        (lambda fields: fields | {"graph_id": ""}, "line 2: item: id and graph_id must not be blank"),
        (lambda fields: fields | {"gold": {"value": "8", "witness": [0]}}, "line 2: .*must be a number, got '8'"),
        (lambda fields: fields | {"gold": {"value": None, "witness": [0]}}, "line 2: .*must be a number, got None"),
        (lambda fields: [fields], "line 2: expected one JSON object"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "items.jsonl"
    good = items.line(MINI[0])
    path.write_text(f"{good}\n{json.dumps(change(json.loads(good)))}\n")
    with pytest.raises(DataError, match=message):
        list(items.read(path))


def test_a_colouring_has_a_colour_for_every_node(tmp_path: Path) -> None:
    item = next(item for item in MINI if item.task == "coloring")
    fields = json.loads(items.line(item))
    fields["gold"]["witness"].pop()
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match=rf"line 1: .*must hold n = {item.n} colours, got {item.n - 1}"):
        list(items.read(path))


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(items.line(MINI[0])[:200])
    with pytest.raises(DataError, match="line 1: expected one JSON object"):
        list(items.read(path))


def test_every_task_has_scenarios() -> None:
    for task in TASKS:
        told = scenarios.scenarios(task)
        assert len(told) >= 2
        assert all(scenario.domain in names.pools() for scenario in told)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ("router 28", "router 287", True),
        ("vaareth", "captain vaareth", True),
        ("captain vaareth", "vaareth", True),
        ("same", "same", True),
        ("east", "northeast quay", False),
        ("stop-53z", "stop-531z", False),
        ("bel quay", "bel quays", True),
        ("77", "a77 77b 77", True),
        ("77", "a77 77b 7", False),
    ],
)
def test_confusable(a: str, b: str, wanted: bool) -> None:
    assert names.confusable(a, b) is wanted


def test_out_of_distribution_words_are_new() -> None:
    ood = list(build.Generated("ood", build.Recipe(), 48))
    known = {item.scenario for item in MINI}
    assert {item.scenario for item in ood}.isdisjoint(known)
    for item in ood:
        if item.scheme == "random_id":
            assert all(re.fullmatch("[0-9a-f]{6}", name) and re.search("[a-f]", name) for name in item.nodes)
        if item.scheme == "canonical":
            assert all(re.fullmatch(r"[a-z]\d\d", name) for name in item.nodes)
        if item.scheme == "mixed" and item.form == "realistic":
            roster = item.question.split("\n\n")[0]
            assert not any(mentions(roster, alias) for alias in item.aliases)
        for alias in item.aliases:
            assert len(re.findall(rf"\((?:Some say )?{re.escape(alias)} [^()]*\.\)", item.question)) == 1


def test_unknown_split_is_named() -> None:
    with pytest.raises(DataError, match="expected a GRIT split"):
        build.Generated("tset", build.Recipe())


def test_examples_lie_outside_every_split() -> None:
    shown = build.example("tsp", ("standard", "semantic"), 0)
    assert shown.n == 4
    assert shown.split not in build.SPLITS
    assert shown == build.example("tsp", ("standard", "semantic"), 0)
