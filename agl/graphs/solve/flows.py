"""Maximum flow with the minimum cut that proves it."""

from __future__ import annotations

import itertools
from collections import deque

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, jsonable, listed, shown


def max_flow(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """The largest flow from `source` to `target`; weights are capacities, usable both ways where undirected.

    Shortest augmenting paths (Edmonds and Karp 1972). The witness lists [from, to, flow]; the certificate is the source
    side of a cut with the same capacity.

    Raises:
        SolveError: `missing_capacity` for an unweighted graph, `bad_capacity` for a negative one, `bad_parameter`
            when both ends are the same node.
    """
    source, target = parameters.node("source"), parameters.node("target")
    if source == target:
        raise SolveError("bad_parameter", "source and target are the same node")
    if not graph.weighted:
        raise SolveError("missing_capacity", "max_flow needs a capacity on every edge: set weighted to true")
    if any(weight < 0 for row in graph.out for weight in row.values()):
        raise SolveError("bad_capacity", "capacities must be at least 0")
    rest = [dict.fromkeys({**graph.out[u], **graph.into[u]}, 0) | graph.out[u] for u in range(len(graph))]
    total = 0
    while True:
        deadline.check()
        parent = _augmenting(rest, source, target)
        if target not in parent:
            break
        path = [target]
        while path[-1] != source:
            path.append(parent[path[-1]])
        pushed = min(rest[u][v] for v, u in itertools.pairwise(path))
        total += pushed
        for v, u in itertools.pairwise(path):
            rest[u][v] -= pushed
            rest[v][u] += pushed
    arcs = [
        (u, v, sent)
        for u, row in enumerate(graph.out)
        for v, capacity in row.items()
        if (sent := capacity - rest[u][v]) > 0
    ]
    flow = [[graph.names[u], graph.names[v], jsonable(graph.value(sent))] for u, v, sent in arcs]
    value = graph.value(total)
    said = (f"{graph.names[u]} -> {graph.names[v]}: {shown(graph.value(sent))}" for u, v, sent in arcs)
    return Solution(
        problem_type="max_flow",
        algorithm="edmonds_karp",
        value=value,
        witness=flow,
        certificate={"cut": graph.named(sorted(parent))},
        note=f"value {shown(value)}; flow {listed(said, ', ')}",
    )


def _augmenting(rest: list[dict[int, int]], source: int, target: int) -> dict[int, int]:
    """Parents of a breadth-first search over arcs with capacity left; stops once `target` is reached."""
    parent = {source: source}
    queue = deque([source])
    while queue and target not in parent:
        u = queue.popleft()
        for v, left in rest[u].items():
            if left > 0 and v not in parent:
                parent[v] = u
                queue.append(v)
    return parent
