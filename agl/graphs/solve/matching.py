"""Maximum matchings with the barrier of Tutte and Berge that proves them."""

from __future__ import annotations

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, listed


def matching(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """A matching with the most edges (Edmonds' blossoms, from networkx); weights are ignored.

    The certificate is a barrier B: removing it leaves `odd` components of odd size, so at least odd - |B| nodes stay
    unmatched in any matching (the nodes next to those that some maximum matching misses; Gallai and Edmonds).

    Raises:
        SolveError: `directed_unsupported`.
    """
    graph.undirected_only("matching")
    neighbours = [set(row) for row in graph.out]
    size, mates = _largest(neighbours, None)
    missable = set()
    for node in range(len(graph)):
        deadline.check()
        if node not in mates or _largest(neighbours, node)[0] == size:
            missable.add(node)
    barrier = sorted({v for u in missable for v in neighbours[u]} - missable)
    edges = [graph.named([u, v]) for u, v in sorted(mates.items()) if u < v]
    return Solution(
        problem_type="matching",
        algorithm="blossom",
        value=size,
        witness=edges,
        certificate={"barrier": graph.named(barrier)},
        note=f"size {size}; edges {listed((f'{u} - {v}' for u, v in edges), ', ')}",
    )


def _largest(neighbours: list[set[int]], without: int | None) -> tuple[int, dict[int, int]]:
    import networkx

    plain: networkx.Graph[int] = networkx.Graph()
    plain.add_nodes_from(u for u in range(len(neighbours)) if u != without)
    plain.add_edges_from((u, v) for u in plain.nodes for v in sorted(neighbours[u]) if u < v and v != without)
    pairs = networkx.max_weight_matching(plain, maxcardinality=True, weight="none")
    return len(pairs), {u: v for pair in pairs for u, v in (pair, pair[::-1])}
