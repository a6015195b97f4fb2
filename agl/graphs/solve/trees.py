"""Minimum spanning trees."""

from __future__ import annotations

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, listed, shown


def mst(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """A spanning tree of least total weight (Kruskal); equal weights in the order of their nodes.

    The tree certifies itself: no edge outside it is lighter than an edge of the cycle it closes.

    Raises:
        SolveError: `no_tree` when the graph is not connected, `directed_unsupported`.
    """
    graph.undirected_only("mst")
    root = list(range(len(graph)))

    def find(u: int) -> int:
        while root[u] != u:
            root[u] = root[root[u]]
            u = root[u]
        return u

    tree: list[tuple[int, int, int]] = []
    for u, v, weight in sorted(graph.pairs(), key=lambda edge: (edge[2], edge)):
        one, other = find(u), find(v)
        if one != other:
            root[one] = other
            tree.append((u, v, weight))
    if len(tree) < len(graph) - 1:
        raise SolveError("no_tree", "the graph is not connected, so no tree spans it")
    tree.sort()
    edges = [graph.named([u, v]) for u, v, _ in tree]
    total = graph.value(sum(weight for _, _, weight in tree))
    return Solution(
        problem_type="mst",
        algorithm="kruskal",
        value=total,
        witness=edges,
        certificate={},
        note=f"edges {listed((f'{u} - {v}' for u, v in edges), ', ')}; total weight {shown(total)}",
    )
