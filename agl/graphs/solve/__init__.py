"""Deterministic exact solvers over small named graphs.

`solve` poses one problem of `PROBLEMS` and returns a `Solution` with a witness and a certificate, or raises a
`SolveError` whose `code` is stable. Equal graphs and parameters give equal solutions, the choice among several optimal
witnesses included, in any process and under any hash seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from agl.graphs.named import NamedGraph
from agl.graphs.solve import (
    centrality,
    coloring,
    covers,
    distances,
    flows,
    matching,
    paths,
    tours,
    traversal,
    trees,
)
from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline, Limits
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Exact, Solution, SolveError

__all__ = ["PROBLEMS", "Exact", "Limits", "Problem", "Solution", "SolveError", "solve"]


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Problem:
    """What a problem type asks and takes. `parameters` describes each parameter but `algorithm`, for prompts."""

    summary: str
    run: Callable[[Indexed, Parameters, Deadline], Solution] = field(repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("exact",)
    """Legal values of `algorithm`; the first is the default."""


PROBLEMS: Mapping[str, Problem] = MappingProxyType(
    {
        "shortest_path": Problem(
            summary="cheapest path between two nodes",
            run=paths.shortest_path,
            parameters={"start": "name of the first node", "end": "name of the last node"},
            required=("start", "end"),
            algorithms=("dijkstra", "bellman_ford"),
        ),
        "bfs": Problem(
            summary="breadth-first visit order from a node",
            run=traversal.bfs,
            parameters={
                "start": "name of the first node",
                "order": "list of names: among several unvisited neighbours the one that stands first is visited first",
            },
            required=("start",),
            algorithms=("bfs",),
        ),
        "coloring": Problem(summary="proper node colouring with the fewest colours", run=coloring.coloring),
        "tsp": Problem(
            summary="cheapest closed tour that visits every node exactly once",
            run=tours.tsp,
            parameters={"start": "name of the node the tour is written from (default: the first node)"},
        ),
        "vertex_cover": Problem(summary="smallest set of nodes that touches every edge", run=covers.vertex_cover),
        "centrality": Problem(
            summary="importance scores and all nodes with the highest score",
            run=centrality.centrality,
            parameters={
                "measure": "degree, closeness, betweenness, pagerank or eigenvector (required)",
                "top": "how many leading scores to show (default 20)",
                "weighted": "true or false (default: as the graph says)",
                "direction": "in, out or both, for degree and closeness of directed graphs",
                "component_scaling": "true (default) or false: scale closeness by the reachable share",
                "damping": "damping of pagerank (default 0.85)",
            },
            algorithms=centrality.MEASURES,
        ),
        "mst": Problem(summary="minimum spanning tree", run=trees.mst, algorithms=("kruskal",)),
        "topological_order": Problem(
            summary="order in which every directed edge points forward",
            run=traversal.topological_order,
            algorithms=("kahn",),
        ),
        "components": Problem(
            summary="connected components",
            run=traversal.components,
            parameters={"kind": "weak (default) or strong, for directed graphs"},
            algorithms=("bfs", "tarjan"),
        ),
        "max_flow": Problem(
            summary="largest flow between two nodes, weights as capacities",
            run=flows.max_flow,
            parameters={"source": "name of the node the flow leaves", "target": "name of the node it goes to"},
            required=("source", "target"),
            algorithms=("edmonds_karp",),
        ),
        "matching": Problem(summary="matching with the most edges", run=matching.matching, algorithms=("blossom",)),
        "diameter": Problem(
            summary="longest of all shortest distances", run=distances.diameter, algorithms=("dijkstra",)
        ),
    }
)


def solve(
    problem_type: str,
    graph: NamedGraph,
    parameters: Mapping[str, object] = MappingProxyType({}),
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Solution:
    """Solve one problem exactly. A parameter that is None counts as absent.

    Raises:
        SolveError: with the code `unknown_problem`, `unknown_algorithm`, `unknown_parameter`, `missing_parameter`,
            `bad_parameter`, `unknown_node`, `empty_graph`, `bad_weight`, `too_large`, `timeout`, or one that the
            problem's own solver names.
    """
    problem = PROBLEMS.get(problem_type) if isinstance(problem_type, str) else None
    if problem is None:
        legal = ", ".join(PROBLEMS)
        raise SolveError("unknown_problem", f"problem_type is one of {legal}; got {str(problem_type)[:60]!r}")
    given = {name: value for name, value in parameters.items() if value is not None}
    algorithm = given.pop("algorithm", None)
    if algorithm is not None and algorithm not in problem.algorithms:
        legal = ", ".join(problem.algorithms)
        raise SolveError(
            "unknown_algorithm", f"{problem_type} knows the algorithm {legal}; got {str(algorithm)[:60]!r}"
        )
    for name in given:
        if name not in problem.parameters:
            legal = ", ".join([*problem.parameters, "algorithm"])
            raise SolveError("unknown_parameter", f"{problem_type} takes {legal}; got {str(name)[:60]!r}")
    for name in problem.required:
        if name not in given:
            raise SolveError(
                "missing_parameter", f"{problem_type} needs the parameter {name}: {problem.parameters[name]}"
            )
    limits.admit(problem_type, len(graph.nodes))
    deadline = Deadline(limits.seconds)
    indexed = Indexed(graph)
    return problem.run(indexed, Parameters(indexed, given, algorithm), deadline)
