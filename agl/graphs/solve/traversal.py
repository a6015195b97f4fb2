"""Breadth-first search, connected components and topological order, all with index order as the tie rule."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, listed


def bfs_layers(out: Sequence[dict[int, int]], start: int, rank: Sequence[int]) -> list[list[int]]:
    """Breadth-first layers from `start`; each node visits its new neighbours by ascending `rank`."""
    seen, layers = {start}, [[start]]
    while True:
        layer: list[int] = []
        for u in layers[-1]:
            fresh = sorted((v for v in out[u] if v not in seen), key=rank.__getitem__)
            seen.update(fresh)
            layer.extend(fresh)
        if not layer:
            return layers
        layers.append(layer)


def bfs(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """Visit order from `start`. Ties go by `order`, then by the node order of the graph.

    The value is the number of nodes visited. Nodes that `order` leaves out come after it, in node order.
    """
    first = parameters.nodes("order") if "order" in parameters else []
    ranked = first + [node for node in range(len(graph)) if node not in set(first)]
    rank = [0] * len(graph)
    for place, node in enumerate(ranked):
        rank[node] = place
    layers = [graph.named(layer) for layer in bfs_layers(graph.out, parameters.node("start"), rank)]
    order = [name for layer in layers for name in layer]
    return Solution(
        problem_type="bfs",
        algorithm="bfs",
        value=len(order),
        witness=order,
        certificate={"layers": layers},
        note=f"order {listed(order, ' -> ')}; {len(order)} nodes in layers of {', '.join(str(len(x)) for x in layers)}",
    )


def components(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """Connected components; `kind` chooses weak or strong ones of a directed graph (Tarjan)."""
    kind = parameters.choice("kind", ("weak", "strong"), "weak")
    groups = _strong(graph) if graph.directed and kind == "strong" else _weak(graph)
    names = [graph.named(group) for group in groups]
    adjective = f"{kind} " if graph.directed else ""
    return Solution(
        problem_type="components",
        algorithm="tarjan" if graph.directed and kind == "strong" else "bfs",
        value=len(groups),
        witness=names,
        certificate={},
        note=f"{len(groups)} {adjective}components: "
        + listed(("{" + listed(x, ", ", 50) + "}" for x in names), " ", 50),
    )


def _weak(graph: Indexed) -> list[list[int]]:
    both = [graph.out[node] | graph.into[node] for node in range(len(graph))]
    label = [-1] * len(graph)
    groups: list[list[int]] = []
    for node in range(len(graph)):
        if label[node] < 0:
            group, stack = [], [node]
            label[node] = node
            while stack:
                u = stack.pop()
                group.append(u)
                for v in both[u]:
                    if label[v] < 0:
                        label[v] = node
                        stack.append(v)
            groups.append(sorted(group))
    return groups


def _strong(graph: Indexed) -> list[list[int]]:
    import networkx

    digraph: networkx.DiGraph[int] = networkx.DiGraph()
    digraph.add_nodes_from(range(len(graph)))
    digraph.add_edges_from((u, v) for u, row in enumerate(graph.out) for v in row)
    return sorted(sorted(group) for group in networkx.strongly_connected_components(digraph))


def topological_order(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """An order in which every edge points forward (Kahn); of several free nodes the first of the graph comes next.

    Raises:
        SolveError: `cyclic`, or `undirected_unsupported`.
    """
    if not graph.directed:
        raise SolveError("undirected_unsupported", "topological_order takes a directed graph; set directed to true")
    waiting = [len(row) for row in graph.into]
    free = [node for node, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while free:
        u = heapq.heappop(free)
        order.append(u)
        for v in graph.out[u]:
            waiting[v] -= 1
            if waiting[v] == 0:
                heapq.heappush(free, v)
    if len(order) < len(graph) or graph.loops:
        raise SolveError("cyclic", "the graph has a directed cycle, so no topological order exists")
    names = graph.named(order)
    return Solution(
        problem_type="topological_order",
        algorithm="kahn",
        value=len(order),
        witness=names,
        certificate={},
        note=f"order {listed(names, ' -> ')}",
    )
