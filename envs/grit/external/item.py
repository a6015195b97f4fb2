"""From a parsed question to a GRIT item: exact gold, aliases, and whether the published answer agrees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

from agl.graphs.named import NamedGraph
from agl.graphs.solve import Limits, SolveError, solve
from agl.graphs.solve.solution import jsonable
from envs.grit.external.judge import Given, judge_given, request
from envs.grit.items import Checker, Gold, GritTask, Published, Query, TaskName

SECONDS = 600.0
"""Wall clock for one exact solution."""


class Unfit(ValueError):
    """A line that cannot become an item; the message says what was expected."""


@dataclass(frozen=True)
class Parsed:
    """A question of another benchmark, understood: its text as published, its graph, and what it asks, in names.

    `published` is its answer as text, `given` the same read into parts; None where there is none.
    """

    id: str
    task: TaskName
    text: str
    graph: NamedGraph
    start: str | None = None
    end: str | None = None
    candidates: tuple[str, ...] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    published: str | None = None
    given: Given | None = None
    graph_agrees: bool | None = None


def build(parsed: Parsed, checker: Checker) -> GritTask:
    """The item: the question as published and a sentence that asks for the box, the gold from our exact solvers.

    Raises:
        Unfit: the question asks about what is no node, or its problem has no answer.
    """
    graph = parsed.graph
    place = {name: index for index, name in enumerate(graph.nodes)}

    def index(name: str | None) -> int | None:
        if name is not None and name not in place:
            raise Unfit(f"the question asks about {name!r}, which is no node of its graph")
        return None if name is None else place[name]

    query = Query(
        start=index(parsed.start),
        end=index(parsed.end),
        candidates=None if parsed.candidates is None else tuple(place[name] for name in parsed.candidates),
    )
    try:
        value, witness = solved(parsed)
    except SolveError as error:
        raise Unfit(f"no exact answer to this {parsed.task} question: {error}") from None
    ends = [(place[u], place[v], w) for u, v, w in graph.edges]
    item = GritTask(
        id=parsed.id,
        split=checker.benchmark,
        task=parsed.task,
        graph_id=parsed.id,
        form="published",
        scheme="published",
        scenario=checker.benchmark,
        n=len(graph.nodes),
        m=len(graph.edges),
        question=f"{parsed.text.rstrip()}\n\n{request(parsed.task, checker)}",
        nodes=graph.nodes,
        aliases={alias: place[name] for alias, name in parsed.aliases.items() if alias not in place},
        edges=tuple(ends if graph.directed else ((min(u, v), max(u, v), w) for u, v, w in ends)),
        directed=graph.directed,
        weighted=graph.weighted,
        query=query,
        gold=Gold(value=value, witness=_indices(parsed, place, witness)),
        checker=checker,
    )
    agrees = None if parsed.given is None else judge_given(item, checker, graph, parsed.given).right
    published = Published(answer=parsed.published, answer_agrees=agrees, graph_agrees=parsed.graph_agrees)
    return item.model_copy(update={"published": published})


def _indices(parsed: Parsed, place: Mapping[str, int], witness: Any) -> tuple[int, ...]:
    if isinstance(witness, dict):
        return tuple(witness[name] for name in parsed.graph.nodes)
    return tuple(place[name] for item in witness for name in ([item] if isinstance(item, str) else item))


Value = int | float | str | None


def solved(parsed: Parsed) -> tuple[Value, Any]:
    """Exact value and witness; `no` where a connection or an order does not exist.

    Raises:
        SolveError: the problem has no answer of another kind, or hit a limit.
    """
    graph, task = parsed.graph, parsed.task
    if task in _SOLVED:
        return _by_solver(parsed)
    if task == "hamilton_path":
        path = hamilton_path(graph)
        return (None, path) if path is not None else ("no", [])
    if task in ("clique", "independent_set"):
        group = _largest_group(graph, task)
        return len(group), group
    return _by_definition(parsed)


_SOLVED = (
    "shortest_path",
    "bfs",
    "tsp",
    "coloring",
    "vertex_cover",
    "topological_order",
    "max_flow",
    "matching",
    "mst",
    "diameter",
)


def _by_solver(parsed: Parsed) -> tuple[Value, Any]:
    start, end = parsed.start, parsed.end
    given = {"shortest_path": {"start": start, "end": end}, "bfs": {"start": start}}.get(parsed.task, {})
    if parsed.task == "max_flow":
        given = {"source": start, "target": end}
    try:
        solution = solve(parsed.task, parsed.graph, given, limits=Limits(seconds=SECONDS))
    except SolveError as error:
        if error.code in ("no_path", "cyclic"):
            return "no", []
        raise
    witness = solution.witness
    if parsed.task == "tsp" and len(witness) > len(parsed.graph.nodes):
        witness = witness[:-1]
    if parsed.task == "max_flow":
        witness = []
    return None if parsed.task in ("bfs", "topological_order") else jsonable(solution.value), witness


def _largest_group(graph: NamedGraph, task: str) -> list[str]:
    """A largest clique, or a largest independent set, in node order."""
    import networkx

    plain = graph.to_networkx()
    if task == "clique":
        found, _ = networkx.max_weight_clique(plain, weight=None)
        return [name for name in graph.nodes if name in set(found)]
    cover = set(solve("vertex_cover", graph, limits=Limits(seconds=SECONDS)).witness)
    return [name for name in graph.nodes if name not in cover]


def _by_definition(parsed: Parsed) -> tuple[Value, Any]:
    import networkx

    graph, task = parsed.graph, parsed.task
    plain: Any = graph.to_networkx()
    start, end = str(parsed.start), str(parsed.end)
    near = set(plain[start]) if parsed.start is not None else set()
    if task == "connectivity":
        return "yes" if networkx.has_path(plain, start, end) else "no", []
    if task == "cycle":
        if graph.directed:
            return "no" if networkx.is_directed_acyclic_graph(plain) else "yes", []
        return "no" if networkx.is_forest(plain) else "yes", []
    if task == "edge_exists":
        return "yes" if plain.has_edge(start, end) or plain.has_edge(end, start) else "no", []
    if task == "triangles":
        corners: Any = networkx.triangles(networkx.Graph(plain))
        return sum(corners.values()) // 3, []
    if task == "node_count":
        return len(graph.nodes), []
    if task == "edge_count":
        return len(graph.edges), []
    if task == "degree":
        return int(plain.degree[start]), []
    if task == "neighbors":
        return None, [name for name in graph.nodes if name in near]
    if task == "common_neighbors":
        return None, [name for name in graph.nodes if name in near and name in plain[end]]
    if task == "component":
        if graph.directed:
            groups = networkx.strongly_connected_components(plain)
        else:
            groups = networkx.connected_components(plain)
        (group,) = [found for found in groups if start in found]
        return None, [name for name in graph.nodes if name in group]
    if task == "components":
        parts = list(networkx.connected_components(plain))
        return len(parts), [next(name for name in graph.nodes if name in part) for part in parts]
    if task == "jaccard":
        both, either = near & set(plain[end]), near | set(plain[end])
        return _plain(Fraction(len(both), len(either)) if either else Fraction(0)), []
    if task == "clustering":
        pairs = len(near) * (len(near) - 1)
        links = sum(plain.has_edge(u, v) for u in sorted(near) for v in sorted(near) if u != v)
        return _plain(Fraction(links, pairs) if pairs else Fraction(0)), []
    if task == "nearest":
        costs = networkx.single_source_dijkstra_path_length(plain, start)
        reached = {name: costs[name] for name in parsed.candidates or () if name in costs}
        if not reached:
            raise SolveError("no_path", "no candidate can be reached")
        best = min(reached.values())
        return None, [name for name in reached if reached[name] == best]
    raise SolveError("unknown_problem", f"there is no exact solver for {task}")


def _plain(value: Fraction) -> int | str:
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def hamilton_path(graph: NamedGraph) -> list[str] | None:
    """A path that visits every node once, or None.

    Undirected: a tour of n + 1 nodes, the extra one tied to all, in which missing edges cost 1 and all others nothing.
    Directed: dynamic programming over sets of nodes, up to 20 nodes.

    Raises:
        SolveError: code `too_large`.
    """
    nodes = list(graph.nodes)
    if len(nodes) < 2:
        return nodes
    if graph.directed:
        return _hamilton_directed(graph)
    linked = {frozenset((u, v)) for u, v, _ in graph.edges}
    extra = "/".join(["", *nodes])
    ends: list[tuple[str, str, int]] = [(extra, node, 0) for node in nodes]
    ends += [(u, v, 0 if frozenset((u, v)) in linked else 1) for u, v in combinations(nodes, 2)]
    complete = NamedGraph.from_edges([extra, *nodes], ends, weighted=True)
    solution = solve("tsp", complete, {"start": extra}, limits=Limits(seconds=SECONDS))
    # The closed tour begins and ends at the extra node.
    return list(solution.witness[1:-1]) if solution.value == 0 else None


def _hamilton_directed(graph: NamedGraph) -> list[str] | None:
    n = len(graph.nodes)
    if n > 20:
        raise SolveError("too_large", f"hamilton_path takes at most 20 nodes in a directed graph, got {n}")
    place = {name: i for i, name in enumerate(graph.nodes)}
    into = [0] * n
    for u, v, _ in graph.edges:
        into[place[v]] |= 1 << place[u]
    ends = [0] * (1 << n)
    for i in range(n):
        ends[1 << i] = 1 << i
    for group in range(1, 1 << n):
        for last in range(n):
            rest = group & ~(1 << last)
            if rest != group and rest and ends[rest] & into[last]:
                ends[group] |= 1 << last
    chosen, path = (1 << n) - 1, []
    allowed = chosen
    if not ends[chosen]:
        return None
    while chosen:
        last = next(i for i in range(n) if ends[chosen] & allowed & (1 << i))
        path.append(graph.nodes[last])
        chosen, allowed = chosen & ~(1 << last), into[last]
    return path[::-1]
