"""The exact solvers: handed cases, brute force on small graphs, independent solvers on larger ones, limits."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.graphs.edge_rows import read_rows
from agl.graphs.named import GraphError, NamedGraph
from agl.graphs.solve import PROBLEMS, Limits, Solution, SolveError, solve
from rewards.verify import verify
from tests.conftest import check_case, handed_cases


def graph_of(given: dict[str, Any], *, weighted: bool | None = None) -> NamedGraph:
    """The graph of a handed case; weighted when its rows carry weights and nothing else is said."""
    rows = given["edges"]
    carries = any(len(row) > 2 for row in rows) if weighted is None else weighted
    directed = given.get("directed", False)
    edges: Any = [row[:2] for row in rows]
    if carries:
        rule = given.get("policy", "error")
        edges = read_rows(rows, directed=directed, default=given.get("default"), duplicates=rule)
    nodes = given.get("nodes", ())
    return NamedGraph.from_edges(nodes, edges, directed, carries, self_loops=given.get("loops") != "drop")


def outcome(problem: str, graph: NamedGraph, parameters: dict[str, object], name: str) -> dict[str, Any]:
    value = solve(problem, graph, parameters).value
    return {"status": "ok", name: value if isinstance(value, int) else float(value)}


def typed(run: Any) -> dict[str, Any]:
    try:
        result: dict[str, Any] = run()
    except (SolveError, GraphError) as error:
        return {"status": "error", "code": error.code}
    return result


def run_path(given: dict[str, Any]) -> dict[str, Any]:
    ends = {"start": given["source"], "end": given["target"]}
    return typed(lambda: outcome("shortest_path", graph_of(given, weighted=True), ends, "cost"))


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "merge_directions"))
def test_merged_directions(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        merged = typed(lambda: {"status": "ok", "edges": read_rows(given["edges"], duplicates=given["rule"])})
        if merged["status"] == "ok":
            NamedGraph.from_edges((), merged["edges"], weighted=True)
        return merged

    check_case(case, run)


def run_centrality(given: dict[str, Any]) -> dict[str, Any]:
    def run() -> dict[str, Any]:
        graph = graph_of(given, weighted=given.get("weighted", False))
        names = ("measure", "direction", "component_scaling")
        found = solve("centrality", graph, {name: given[name] for name in names if name in given})
        scores = {node: float(Fraction(score)) for node, score in found.certificate["scores"].items()}
        return {"status": "ok", "values": scores, "top": found.witness}

    return typed(run)


@pytest.mark.parametrize("case", handed_cases("solver.jsonl", "tsp"))
def test_handed_tours(case: dict[str, Any]) -> None:
    check_case(case, lambda given: typed(lambda: outcome("tsp", graph_of(given, weighted=True), {}, "cost")))


@pytest.mark.parametrize("case", handed_cases("solver.jsonl", "vertex_cover"))
def test_handed_covers(case: dict[str, Any]) -> None:
    check_case(case, lambda given: typed(lambda: outcome("vertex_cover", graph_of(given), {}, "size")))


@pytest.mark.parametrize("case", handed_cases("solver.jsonl", "chromatic"))
def test_handed_colourings(case: dict[str, Any]) -> None:
    check_case(case, lambda given: typed(lambda: outcome("coloring", graph_of(given), {}, "colours")))


@pytest.mark.parametrize("case", handed_cases("solver.jsonl", "centrality"))
def test_handed_centralities(case: dict[str, Any]) -> None:
    check_case(case, run_centrality)


@pytest.mark.parametrize("case", [*handed_cases("solver.jsonl", "path"), *handed_cases("graphs.jsonl", "path")])
def test_handed_paths(case: dict[str, Any]) -> None:
    check_case(case, run_path)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "flow"))
def test_handed_flows(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        ends = {"source": given["source"], "target": given["target"]}
        return typed(lambda: outcome("max_flow", graph_of(given), ends, "value"))

    check_case(case, run)


def run_property(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("loops") == "drop":
        given = given | {"edges": [row for row in given["edges"] if str(row[0]) != str(row[1])]}
    graph = graph_of(given)
    name = given["name"]
    if name == "mst_weight":
        return outcome("mst", graph, {}, "value")
    if name == "diameter":
        return outcome("diameter", graph, {}, "value")
    if name == "reachable":
        reached = solve("bfs", graph, {"start": given["source"]}).witness
        return {"status": "ok", "value": str(given["target"]) in reached}
    if name == "weak_strong":
        counts = {kind: solve("components", graph, {"kind": kind}).value for kind in ("weak", "strong")}
        return {"status": "ok", **counts}
    if name == "bfs_order":
        order = sorted(graph.nodes)
        return {"status": "ok", "order": solve("bfs", graph, {"start": given["source"], "order": order}).witness}
    if name == "topological_orders":
        orders = [p for p in itertools.permutations(graph.nodes) if verify("topological", graph, list(p)).valid]
        return {"status": "ok", "value": len(orders)}
    if name == "is_tree":
        whole = solve("components", graph).value == 1
        return {"status": "ok", "value": whole and len(graph.edges) == len(graph.nodes) - 1}
    layers = solve("bfs", graph, {"start": given["node"]}).certificate["layers"]
    near = layers[1] if len(layers) > 1 else []
    return {"status": "ok", "value": sorted(near) if name == "neighbours" else len(near)}


@pytest.mark.parametrize("case", [*handed_cases("solver.jsonl", "property"), *handed_cases("graphs.jsonl", "property")])
def test_handed_properties(case: dict[str, Any]) -> None:
    check_case(case, lambda given: typed(lambda: run_property(given)))


LABELS = {"tsp": ("tsp", True), "chromatic": ("coloring", False), "vertex_cover": ("vertex_cover", False)}


@pytest.mark.parametrize("case", handed_cases("labels.jsonl", "check_label"))
def test_handed_labels(case: dict[str, Any]) -> None:
    given = case["input"]
    if given["task"] in LABELS:
        problem, weighted = LABELS[given["task"]]
        right: Any = solve(problem, graph_of(given["graph"], weighted=weighted)).value
    elif given["task"] == "hops":
        graph = graph_of(given["graph"], weighted=False)
        right = solve("shortest_path", graph, {"start": given["source"], "end": given["target"]}).value
    elif given["task"] == "nearest":
        graph = graph_of(given["graph"])
        ends = [{"start": given["source"], "end": end} for end in given["candidates"]]
        costs = {end["end"]: solve("shortest_path", graph, end).value for end in ends}
        right = [node for node in given["candidates"] if costs[node] == min(costs.values())]
    else:
        graph = graph_of(given["graph"])
        right = sum(u != v for u, v, _ in graph.edges)
    good = given["published"] in right if isinstance(right, list) else given["published"] == right
    check_case(case, lambda _: {"status": "ok", "label_ok": good, "right": right})


@pytest.mark.parametrize("case", handed_cases("labels.jsonl", "optimal_paths"))
def test_handed_ties(case: dict[str, Any]) -> None:
    given = case["input"]
    found = solve("shortest_path", graph_of(given), {"start": given["source"], "end": given["target"]})
    assert found.value == case["accept"][0]["cost"]
    assert found.witness in case["accept"][0]["paths"]


@st.composite
def graphs(draw: st.DrawFn, most: int = 7, directed: bool | None = False, low: int = 0) -> NamedGraph:
    n = draw(st.integers(1, most))
    names = [f"v{i}" for i in range(n)]
    directions = draw(st.booleans()) if directed is None else directed
    pairs = list(itertools.permutations(names, 2) if directions else itertools.combinations(names, 2))
    listed = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    kept = listed if draw(st.booleans()) else [pair for pair in pairs if pair not in listed]
    weights = st.integers(low, 9) | st.sampled_from([0.5, 1.25, 2.1])
    return NamedGraph.from_edges(names, [(u, v, draw(weights)) for u, v in kept], directions, True)


def weights_of(graph: NamedGraph) -> dict[tuple[str, str], Fraction]:
    found = {(u, v): Fraction(str(w)) for u, v, w in graph.edges}
    return found if graph.directed else found | {(v, u): w for (u, v), w in found.items()}


def cheapest(graph: NamedGraph, walks: Any) -> Fraction | None:
    weights = weights_of(graph)
    costs = [
        sum((weights[step] for step in itertools.pairwise(walk)), Fraction(0))
        for walk in walks
        if all(step in weights for step in itertools.pairwise(walk))
    ]
    return min(costs, default=None)


def solved(problem: str, graph: NamedGraph, parameters: dict[str, object], no: str) -> Any:
    try:
        return solve(problem, graph, parameters).value
    except SolveError as error:
        return None if error.code == no else error


@settings(max_examples=150, deadline=None)
@given(graphs(low=-3))
def test_tours_are_the_cheapest(graph: NamedGraph) -> None:
    first, *rest = graph.nodes
    walks = ([first, *middle, first] for middle in itertools.permutations(rest)) if rest else [[first]]
    assert solved("tsp", graph, {}, "no_tour") == cheapest(graph, walks)


@settings(max_examples=150, deadline=None)
@given(graphs(directed=None), st.data())
def test_paths_are_the_cheapest(graph: NamedGraph, data: st.DataObject) -> None:
    start, end = data.draw(st.sampled_from(graph.nodes)), data.draw(st.sampled_from(graph.nodes))
    others = [node for node in graph.nodes if node not in (start, end)]
    middles = (m for size in range(len(others) + 1) for m in itertools.permutations(others, size))
    walks = ([start, *middle, end] for middle in middles) if start != end else [[start]]
    wanted = cheapest(graph, walks)
    for algorithm in ("dijkstra", "bellman_ford"):
        assert solved("shortest_path", graph, {"start": start, "end": end, "algorithm": algorithm}, "no_path") == wanted


@settings(max_examples=100, deadline=None)
@given(graphs(most=8))
def test_covers_are_the_smallest(graph: NamedGraph) -> None:
    pairs = [(u, v) for u, v, _ in graph.edges]
    sizes = range(len(graph.nodes) + 1)
    subsets = (set(chosen) for size in sizes for chosen in itertools.combinations(graph.nodes, size))
    smallest = next(chosen for chosen in subsets if all(u in chosen or v in chosen for u, v in pairs))
    assert solve("vertex_cover", graph).value == len(smallest)


@settings(max_examples=100, deadline=None)
@given(graphs(most=6))
def test_colourings_use_the_fewest_colours(graph: NamedGraph) -> None:
    def works(k: int) -> bool:
        choices = itertools.product(range(k), repeat=len(graph.nodes))
        maps = (dict(zip(graph.nodes, colors, strict=True)) for colors in choices)
        return any(all(color[u] != color[v] for u, v, _ in graph.edges) for color in maps)

    assert solve("coloring", graph).value == next(k for k in itertools.count(1) if works(k))


@settings(max_examples=60, deadline=None)
@given(graphs(most=6, directed=None, low=1))
def test_betweenness_counts_shortest_paths(graph: NamedGraph) -> None:
    weights = weights_of(graph)
    n = len(graph.nodes)
    total = dict.fromkeys(graph.nodes, Fraction(0))
    for s, t in itertools.permutations(graph.nodes, 2):
        others = [v for v in graph.nodes if v not in (s, t)]
        middles = (m for size in range(n - 1) for m in itertools.permutations(others, size))
        paths = [p for p in ((s, *m, t) for m in middles) if all(step in weights for step in itertools.pairwise(p))]
        best = cheapest(graph, paths)
        shortest = [p for p in paths if cheapest(graph, [p]) == best]
        for v in others:
            if shortest:
                total[v] += Fraction(sum(v in p for p in shortest), len(shortest))
    scores = solve("centrality", graph, {"measure": "betweenness"}).certificate["scores"]
    pairs = (n - 1) * (n - 2)
    assert {v: Fraction(s) for v, s in scores.items()} == {v: s / pairs if pairs else 0 for v, s in total.items()}


def random_graph(seed: int, n: int, p: float, weights: int = 1) -> NamedGraph:
    rng = random.Random(seed)
    names = [f"v{i}" for i in range(n)]
    kept = [pair for pair in itertools.combinations(names, 2) if rng.random() < p]
    return NamedGraph.from_edges(names, [(u, v, rng.randint(1, weights)) for u, v in kept], weighted=weights > 1)


@pytest.mark.parametrize("seed", range(3))
def test_cp_sat_agrees_on_tours(seed: int) -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    graph = random_graph(seed, 18, 0.6, 30)
    model = cp_model.CpModel()
    place = {node: i for i, node in enumerate(graph.nodes)}
    arcs = [(place[u], place[v], model.new_bool_var(""), w) for (u, v), w in weights_of(graph).items()]
    model.add_circuit([(u, v, chosen) for u, v, chosen, _ in arcs])
    model.minimize(sum(int(w) * chosen for _, _, chosen, w in arcs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    assert solve("tsp", graph).value == solver.objective_value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", [0.1, 0.3])
def test_cp_sat_agrees_on_covers_and_colourings(seed: int, p: float) -> None:
    cp_model = pytest.importorskip("ortools.sat.python.cp_model")
    graph = random_graph(seed, 30, p)
    model = cp_model.CpModel()
    chosen = {v: model.new_bool_var("") for v in graph.nodes}
    for u, v, _ in graph.edges:
        model.add_bool_or(chosen[u], chosen[v])
    model.minimize(sum(chosen.values()))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    assert solve("vertex_cover", graph).value == solver.objective_value

    colors = solve("coloring", graph).value
    for k, feasible in ((colors, True), (colors - 1, False)):
        model = cp_model.CpModel()
        color = {v: model.new_int_var(1, int(k), "") for v in graph.nodes}
        for u, v, _ in graph.edges:
            model.add(color[u] != color[v])
        assert (solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)) is feasible


def test_maxsat_takes_over_when_the_clique_search_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(5, 30, 0.2)
    wanted = solve("vertex_cover", graph).value
    monkeypatch.setattr("agl.graphs.solve.covers.BRANCHES", 0)
    assert solve("vertex_cover", graph).value == wanted


def test_a_negative_cycle_beside_the_way_does_no_harm() -> None:
    edges = [("a", "b", -2), ("b", "c", 3), ("x", "y", -1), ("y", "x", -1), ("a", "x", 1)]
    found = solve("shortest_path", NamedGraph.from_edges([], edges, True, True), {"start": "a", "end": "c"})
    assert (found.value, found.algorithm) == (1, "bellman_ford")


def test_decimal_weights_add_up_exactly() -> None:
    graph = NamedGraph.from_edges([], [("a", "b", 0.1), ("b", "c", 0.2)], weighted=True)
    found = solve("shortest_path", graph, {"start": "a", "end": "c"})
    assert found.value == Fraction(3, 10)
    assert found.text() == "dijkstra: path a -> b -> c; cost 0.3"


def test_tours_with_many_digits_are_proven() -> None:
    rng = random.Random(3)
    names = [f"v{i}" for i in range(12)]
    edges = [(u, v, rng.uniform(1, 100)) for u, v in itertools.combinations(names, 2)]
    graph = NamedGraph.from_edges(names, edges, weighted=True)
    assert solve("tsp", graph).value == pytest.approx(float(held_karp(graph)), rel=1e-9)


def held_karp(graph: NamedGraph) -> Fraction:
    weights, nodes = weights_of(graph), graph.nodes
    best = {(frozenset([v]), v): weights[nodes[0], v] for v in nodes[1:]}
    for size in range(2, len(nodes)):
        for chosen in map(frozenset, itertools.combinations(nodes[1:], size)):
            for v in chosen:
                best[chosen, v] = min(best[chosen - {v}, u] + weights[u, v] for u in chosen - {v})
    return min(best[frozenset(nodes[1:]), v] + weights[v, nodes[0]] for v in nodes[1:])


def hostile(kind: str) -> tuple[str, NamedGraph]:
    if kind == "prism":
        ring = range(41)
        edges = [(f"o{i}", f"o{(i + 1) % 41}") for i in ring] + [(f"o{i}", f"i{i}") for i in ring]
        return "tsp", NamedGraph.from_edges([], edges + [(f"i{i}", f"i{(i + 2) % 41}") for i in ring])
    if kind == "dense colouring":
        return "coloring", random_graph(1, 200, 0.5)
    return "vertex_cover", random_graph(1, 200, 0.1)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["prism", "dense colouring", "wide cover"])
def test_hostile_graphs_end_in_time(kind: str) -> None:
    problem, graph = hostile(kind)
    with pytest.raises(SolveError) as raised:
        solve(problem, graph, limits=Limits(seconds=1.0))
    assert raised.value.code == "timeout"


@pytest.mark.parametrize(("problem", "n"), [("coloring", 2000), ("tsp", 200), ("vertex_cover", 500)])
def test_large_graphs_are_refused_at_once(problem: str, n: int) -> None:
    graph = NamedGraph.from_edges([f"v{i}" for i in range(n)], [])
    with pytest.raises(SolveError, match="at most") as raised:
        solve(problem, graph)
    assert raised.value.code == "too_large"


@pytest.mark.parametrize(
    ("problem", "parameters", "code"),
    [
        ("tps", {}, "unknown_problem"),
        (["tsp"], {}, "unknown_problem"),
        ("tsp", {"algorithm": "quantum"}, "unknown_algorithm"),
        ("tsp", {"algorithm": ["exact"]}, "unknown_algorithm"),
        ("tsp", {"begin": "a"}, "unknown_parameter"),
        ("tsp", {"start": "zz"}, "unknown_node"),
        ("tsp", {"start": True}, "bad_parameter"),
        ("shortest_path", {"start": "a"}, "missing_parameter"),
        ("shortest_path", {"start": "a", "end": None}, "missing_parameter"),
        ("shortest_path", {"start": "a", "end": {"x": 1}}, "bad_parameter"),
        ("bfs", {"start": "a", "order": "abc"}, "bad_parameter"),
        ("bfs", {"start": "a", "order": ["a", "a"]}, "bad_parameter"),
        ("centrality", {}, "missing_parameter"),
        ("centrality", {"measure": "fame"}, "bad_parameter"),
        ("centrality", {"measure": "degree", "top": 0}, "bad_parameter"),
        ("centrality", {"measure": "closeness", "weighted": "yes"}, "bad_parameter"),
        ("topological_order", {}, "undirected_unsupported"),
    ],
)
def test_misuse_is_typed(problem: Any, parameters: dict[str, object], code: str) -> None:
    graph = NamedGraph.from_edges([], [("a", "b"), ("b", "c"), ("a", "c")])
    with pytest.raises(SolveError) as raised:
        solve(problem, graph, parameters)
    assert raised.value.code == code


def test_texts_are_bounded() -> None:
    graph = random_graph(2, 400, 0.05)
    for problem, parameters in (("bfs", {"start": "v0"}), ("centrality", {"measure": "degree"}), ("mst", {})):
        text = solve(problem, graph, parameters).text()
        assert len(text) < 4000
        assert "of 400 shown" in text or "of 399 shown" in text


def test_long_names_do_not_fill_the_text() -> None:
    names = [f"{i}" * 3000 for i in range(1, 8)]
    text = solve("bfs", NamedGraph.from_edges([], itertools.pairwise(names)), {"start": names[0]}).text()
    assert len(text) < 10_000
    assert "2 of 7 shown" in text


def test_the_measure_may_be_named_as_the_algorithm() -> None:
    graph = random_graph(1, 8, 0.5)
    by_algorithm = solve("centrality", graph, {"algorithm": "closeness"})
    assert by_algorithm == solve("centrality", graph, {"measure": "closeness", "algorithm": "closeness"})
    with pytest.raises(SolveError, match="give one"):
        solve("centrality", graph, {"measure": "closeness", "algorithm": "degree"})


def test_integer_names_are_read_as_text() -> None:
    graph = NamedGraph.from_edges([], [(1, 2), (2, 3)])
    assert solve("shortest_path", graph, {"start": 1, "end": 3}).witness == ["1", "2", "3"]


PROGRAM = """
import json, sys
from tests.test_solve import random_graph, shown
from agl.graphs.solve import solve
print(json.dumps([shown(random_graph(seed, 24, 0.4, 3)) for seed in range(3)]))
"""


def shown(graph: NamedGraph) -> list[Any]:
    ends: dict[str, object] = {"start": "v0", "end": "v9"}
    calls: dict[str, dict[str, object]] = {problem: {} for problem in PROBLEMS}
    calls |= {"shortest_path": ends, "bfs": {"start": "v0"}, "max_flow": {"source": "v0", "target": "v9"}}
    calls |= {"centrality": {"measure": "betweenness"}}
    del calls["topological_order"]
    found: list[Solution] = [solve(problem, graph, parameters) for problem, parameters in calls.items()]
    return [[one.text(), one.witness, dict(one.certificate)] for one in found]


def test_solutions_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert outputs == {json.dumps([shown(random_graph(seed, 24, 0.4, 3)) for seed in range(3)]) + "\n"}
