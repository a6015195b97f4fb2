"""Centrality of every node, and the set of all nodes that share the highest score."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from fractions import Fraction

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.paths import dijkstra, reachable
from agl.graphs.solve.solution import SCORES_SHOWN, Exact, Solution, SolveError, exact, jsonable, listed, shown
from agl.graphs.solve.traversal import bfs_layers

MEASURES = ("degree", "closeness", "betweenness", "pagerank", "eigenvector")
DIRECTIONS = ("in", "out", "both")
TIE = 1e-9
"""Relative difference below which two floating-point scores share a rank. Exact scores tie only when equal."""


def centrality(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """Scores under `measure`; `weighted` (default: as the graph says) takes edge weights into account.

    degree: number of neighbours, never weighted. closeness: (reachable - 1) / sum of distances, times
    (reachable - 1) / (n - 1) under `component_scaling` (Wasserman and Faust), 0 for a node that reaches nothing.
    betweenness: share of shortest paths through the node, over the (n - 1)(n - 2) ordered pairs of others (half of
    them where undirected). These are exact rationals. pagerank (`damping` 0.85, dangling nodes spread evenly) and
    eigenvector (unit length) are floats of 12 digits; there a weight is the strength of a link, not its length.
    `direction` of a directed graph: closeness of `in`ward (default) or `out`ward distances, degree `in`, `out` or
    `both` (default). `top`: how many leading scores the text shows; the witness is always the whole set of ties.
    The measure may also be given as the `algorithm`.

    Raises:
        SolveError: `undefined` where the measure has no (unique) value.
    """
    measure = _measure(parameters)
    weighted = parameters.flag("weighted", graph.weighted) and graph.weighted
    shown_scores = min(parameters.count("top", SCORES_SHOWN), SCORES_SHOWN)
    directed = f" ({_direction(graph, parameters, measure)})" if graph.directed and measure in _DIRECTED else ""
    scores = _SCORERS[measure](graph, parameters, weighted, deadline)
    highest = max(scores)
    top = [node for node, score in enumerate(scores) if _ties(score, highest)]
    first = set(top)
    ranking = sorted(range(len(graph)), key=lambda node: (-scores[node] if node not in first else -highest, node))
    ranked = [f"{graph.names[node]}: {shown(scores[node])}" for node in ranking]
    names = graph.named(top)
    said = ("weighted " if weighted and measure != "degree" else "") + measure + directed
    return Solution(
        problem_type="centrality",
        algorithm=measure,
        value=highest,
        witness=names,
        certificate={"scores": {name: jsonable(score) for name, score in zip(graph.names, scores, strict=True)}},
        note=f"top {{{listed(names, ', ', 50)}}} with {shown(highest)}; {said} scores "
        + listed(ranked, ", ", shown_scores),
    )


def _measure(parameters: Parameters) -> str:
    if "measure" not in parameters and parameters.algorithm is None:
        raise SolveError("missing_parameter", f"centrality needs the parameter measure: one of {', '.join(MEASURES)}")
    measure = parameters.choice("measure", MEASURES, parameters.algorithm)
    if parameters.algorithm not in (None, measure):
        raise SolveError("bad_parameter", f"measure says {measure}, algorithm says {parameters.algorithm}; give one")
    return measure


_DIRECTED = ("degree", "closeness")


def _ties(score: Exact | float, highest: Exact | float) -> bool:
    if isinstance(score, float) and isinstance(highest, float):
        return score >= highest - TIE * abs(highest)
    return score == highest


def _direction(graph: Indexed, parameters: Parameters, measure: str) -> str:
    if measure == "degree":
        return parameters.choice("direction", DIRECTIONS, "both")
    return parameters.choice("direction", DIRECTIONS[:2], "in")


def _degree(graph: Indexed, parameters: Parameters, weighted: bool, deadline: Deadline) -> list[Exact]:
    if not graph.directed:
        return [len(row) for row in graph.out]
    chosen = _direction(graph, parameters, "degree")
    return [
        (len(graph.out[u]) if chosen != "in" else 0) + (len(graph.into[u]) if chosen != "out" else 0)
        for u in range(len(graph))
    ]


def _lengths(graph: Indexed, weighted: bool, positive: bool) -> None:
    """Refuse weights that are no distances."""
    if not weighted:
        return
    lowest = min((weight for row in graph.out for weight in row.values()), default=1)
    if lowest < 0 or (positive and lowest == 0):
        kind = "positive" if positive else "non-negative"
        raise SolveError("undefined", f"weights are distances here and must be {kind}; set weighted to false for hops")


def _closeness(graph: Indexed, parameters: Parameters, weighted: bool, deadline: Deadline) -> list[Exact]:
    _lengths(graph, weighted, positive=False)
    scaling = parameters.flag("component_scaling", True)
    rows = graph.into if graph.directed and _direction(graph, parameters, "closeness") == "in" else graph.out
    everyone = range(len(graph))
    scores: list[Exact] = []
    for u in everyone:
        deadline.check()
        if weighted:
            distances = dijkstra(rows, u, everyone, deadline)[0]
            reached, total = len(distances) - 1, Fraction(sum(distances.values()), graph.scale)
        else:
            layers = bfs_layers(rows, u, everyone)
            reached, total = sum(map(len, layers)) - 1, Fraction(sum(d * len(x) for d, x in enumerate(layers)))
        if reached and not total:
            raise SolveError("undefined", f"{graph.names[u]} is at distance 0 from every node it reaches")
        score = Fraction(reached) / total if reached else Fraction(0)
        scores.append(exact(score * Fraction(reached, len(graph) - 1) if scaling and reached else score))
    return scores


def _betweenness(graph: Indexed, parameters: Parameters, weighted: bool, deadline: Deadline) -> list[Exact]:
    """Brandes (2001) over the rationals."""
    _lengths(graph, weighted, positive=True)
    n = len(graph)
    total = [Fraction(0)] * n
    for source in range(n):
        deadline.check()
        order, paths, before = _shortest_path_counts(graph, source, weighted)
        dependency = [Fraction(0)] * n
        for v in reversed(order):
            share = (1 + dependency[v]) / paths[v]
            for u in before[v]:
                dependency[u] += paths[u] * share
            if v != source:
                total[v] += dependency[v]
    pairs = (n - 1) * (n - 2)
    return [exact(score / pairs) if pairs else 0 for score in total]


def _shortest_path_counts(graph: Indexed, source: int, weighted: bool) -> tuple[list[int], list[int], list[list[int]]]:
    """Nodes by distance from `source`, numbers of shortest paths, predecessors on them."""
    n = len(graph)
    distance: list[int | None] = [None] * n
    paths, before = [0] * n, [list[int]() for _ in range(n)]
    distance[source], paths[source] = 0, 1
    order: list[int] = []
    settled = [False] * n
    heap = [(0, source)]
    while heap:
        length, u = heapq.heappop(heap)
        if settled[u]:
            continue
        settled[u] = True
        order.append(u)
        for v, weight in graph.out[u].items():
            through = length + (weight if weighted else 1)
            known = distance[v]
            if known is None or through < known:
                distance[v], paths[v], before[v] = through, paths[u], [u]
                heapq.heappush(heap, (through, v))
            elif through == known:
                paths[v] += paths[u]
                before[v].append(u)
    return order, paths, before


def _strengths(graph: Indexed, weighted: bool) -> list[list[float]]:
    """Row u holds the strengths of the links from u."""
    matrix = [[0.0] * len(graph) for _ in range(len(graph))]
    for u, row in enumerate(graph.out):
        for v, weight in row.items():
            if weighted and weight < 0:
                raise SolveError("undefined", "weights are link strengths here and must be non-negative")
            matrix[u][v] = weight / graph.scale if weighted else 1.0
    return matrix


def _rounded(scores: Iterable[float]) -> list[float]:
    """Twelve digits: the last ones of a double depend on the number of threads and the machine."""
    return [float(f"{score:.12g}") for score in scores]


def _pagerank(graph: Indexed, parameters: Parameters, weighted: bool, deadline: Deadline) -> list[float]:
    """The stationary distribution, from the linear system itself."""
    import numpy as np

    n, damping = len(graph), parameters.fraction("damping", 0.85)
    matrix = np.array(_strengths(graph, weighted))
    sums = matrix.sum(axis=1, keepdims=True)
    step = np.where(sums > 0, matrix / np.where(sums > 0, sums, 1.0), 1.0 / n)
    scores = np.linalg.solve(np.eye(n) - damping * step.T, np.full(n, (1 - damping) / n))
    return _rounded(scores / scores.sum())


def _eigenvector(graph: Indexed, parameters: Parameters, weighted: bool, deadline: Deadline) -> list[float]:
    """The Perron vector of the (transposed) adjacency matrix: a node is important when important nodes point to it."""
    import numpy as np

    strengths = np.array(_strengths(graph, weighted))
    links = [{v: weight for v, weight in row.items() if weight or not weighted} for row in graph.out]
    sources = [{v: weight for v, weight in row.items() if weight or not weighted} for row in graph.into]
    if not len(reachable(links, 0)) == len(reachable(sources, 0)) == len(graph):
        kind = "strongly connected" if graph.directed else "connected"
        raise SolveError("undefined", f"the graph is not {kind}, so the eigenvector is not unique")
    if graph.directed:
        values, vectors = np.linalg.eig(strengths.T)
        vector = np.abs(vectors[:, int(np.argmax(values.real))].real)
    else:
        vector = np.abs(np.linalg.eigh(strengths)[1][:, -1])
    return _rounded(vector / np.linalg.norm(vector))


_Scorer = Callable[[Indexed, Parameters, bool, Deadline], "list[Exact] | list[float]"]
_SCORERS: dict[str, _Scorer] = {
    "degree": _degree,
    "closeness": _closeness,
    "betweenness": _betweenness,
    "pagerank": _pagerank,
    "eigenvector": _eigenvector,
}
