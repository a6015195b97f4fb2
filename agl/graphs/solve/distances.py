"""The diameter."""

from __future__ import annotations

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.paths import dijkstra
from agl.graphs.solve.solution import Solution, SolveError, jsonable, listed, shown


def diameter(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """The longest of all shortest distances, with a path that has it; in hops where the graph is unweighted.

    Raises:
        SolveError: `undefined` when some node does not reach another, or a weight is negative.
    """
    if any(weight < 0 for row in graph.out for weight in row.values()):
        raise SolveError("undefined", "the diameter is defined for weights of at least 0")
    everyone = range(len(graph))
    farthest: list[int] = []
    best, path = -1, [0]
    for u in everyone:
        distance, parent = dijkstra(graph.out, u, everyone, deadline)
        if len(distance) < len(graph):
            raise SolveError("undefined", "the diameter is infinite: some node cannot be reached from another")
        far = max(everyone, key=lambda v: (distance[v], -v))
        farthest.append(distance[far])
        if distance[far] > best:
            best, path = distance[far], [far]
            while path[-1] != u:
                path.append(parent[path[-1]])
    names = graph.named(path[::-1])
    value = graph.value(best)
    return Solution(
        problem_type="diameter",
        algorithm="dijkstra",
        value=value,
        witness=names,
        certificate={
            "eccentricities": {
                name: jsonable(graph.value(far)) for name, far in zip(graph.names, farthest, strict=True)
            }
        },
        note=f"diameter {shown(value)}; path {listed(names, ' -> ')}",
    )
