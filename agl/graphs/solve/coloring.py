"""Exact graph colouring: DSATUR from above, a clique from below, CaDiCaL in between."""

from __future__ import annotations

from typing import Any

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, listed

SOLVER = "cadical195"
CONFLICTS = 1000
"""Conflicts between two looks at the clock."""


def coloring(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """A proper colouring with the fewest colours, numbered from 1 in order of first use.

    Directions are ignored. The certificate is a clique of the same size, or the statement that the SAT encoding with
    one colour less is unsatisfiable.

    Raises:
        SolveError: `self_loop`.
    """
    if graph.loops:
        node = graph.names[min(graph.loops)]
        raise SolveError("self_loop", f"{node} is linked to itself, so it can have no colour")
    neighbours = [set(graph.out[u]) | set(graph.into[u]) for u in range(len(graph))]
    clique = greedy_clique(neighbours, deadline)
    colors = dsatur(neighbours)
    certificate: dict[str, Any] = {"clique": graph.named(clique)}
    while (fewer := max(colors)) >= len(clique):
        better = _sat_coloring(neighbours, clique, fewer, deadline)
        if better is None:
            certificate = {"unsat": fewer, "solver": SOLVER}
            break
        colors = better
    canonical: dict[int, int] = {}
    assignment = {graph.names[u]: canonical.setdefault(color, len(canonical) + 1) for u, color in enumerate(colors)}
    used = len(canonical)
    return Solution(
        problem_type="coloring",
        algorithm="exact",
        value=used,
        witness=assignment,
        certificate=certificate,
        note=f"{used} colors; assignment {listed((f'{name}: {color}' for name, color in assignment.items()), ', ')}",
    )


def greedy_clique(neighbours: list[set[int]], deadline: Deadline) -> list[int]:
    """A maximal clique: the largest that greedy growth finds from any node. Sorted."""
    best: list[int] = []
    for start in range(len(neighbours)):
        if len(neighbours[start]) < len(best):
            continue
        deadline.check()
        clique, candidates = [start], neighbours[start]
        while candidates:
            node = max(candidates, key=lambda v: (len(neighbours[v] & candidates), -v))
            clique.append(node)
            candidates = candidates & neighbours[node]
        if len(clique) > len(best):
            best = clique
    return sorted(best)


def dsatur(neighbours: list[set[int]]) -> list[int]:
    """Brelaz' greedy colouring (1979): most saturated node first, then highest degree, then lowest index."""
    colors = [-1] * len(neighbours)
    around: list[set[int]] = [set() for _ in neighbours]
    left = set(range(len(neighbours)))
    while left:
        u = max(left, key=lambda v: (len(around[v]), len(neighbours[v]), -v))
        left.remove(u)
        color = next(c for c in range(len(neighbours)) if c not in around[u])
        colors[u] = color
        for v in neighbours[u]:
            around[v].add(color)
    return colors


def _sat_coloring(neighbours: list[set[int]], clique: list[int], k: int, deadline: Deadline) -> list[int] | None:
    """Colours 0..k-1 per node, or None when `k` colours are too few. The clique's colours are fixed."""
    from pysat.solvers import Solver

    count = len(neighbours)
    with Solver(name=SOLVER) as solver:
        for u in range(count):
            deadline.check()
            solver.add_clause([u * k + c + 1 for c in range(k)])
            for v in sorted(neighbours[u]):
                if u < v:
                    for c in range(k):
                        solver.add_clause([-(u * k + c + 1), -(v * k + c + 1)])
        for color, node in enumerate(clique):
            solver.add_clause([node * k + color + 1])
        answer = None
        while answer is None:
            deadline.check()
            solver.conf_budget(CONFLICTS)
            answer = solver.solve_limited()
        if not answer:
            return None
        true = {literal for literal in solver.get_model() if literal > 0}
    return [next(c for c in range(k) if u * k + c + 1 in true) for u in range(count)]
