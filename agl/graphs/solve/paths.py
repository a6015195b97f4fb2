"""Shortest paths: Dijkstra, and Bellman-Ford where a directed graph has negative weights."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, jsonable, listed, shown


def shortest_path(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """The cheapest walk from `start` to `end`, which is a path when no negative cycle lies on the way.

    Raises:
        SolveError: `no_path`, `negative_cycle`, or `negative_weight` when Dijkstra was asked for by name.
    """
    start, end = parameters.node("start"), parameters.node("end")
    # Only these nodes can lie on a walk from start to end; a negative cycle elsewhere does no harm.
    between = reachable(graph.out, start)
    if graph.directed:
        between &= reachable(graph.into, end)
    if end not in between:
        raise SolveError("no_path", f"there is no path from {graph.names[start]} to {graph.names[end]}")
    negative = any(weight < 0 for u in between for v, weight in graph.out[u].items() if v in between)
    negative = negative or any(graph.loops.get(u, 0) < 0 for u in between)
    if negative and not graph.directed:
        raise SolveError("negative_cycle", "an undirected negative edge can be walked back and forth without end")
    if negative and parameters.algorithm == "dijkstra":
        raise SolveError("negative_weight", "dijkstra needs weights of at least 0; use the algorithm bellman_ford")
    algorithm = parameters.algorithm or ("bellman_ford" if negative else "dijkstra")
    if algorithm == "dijkstra":
        distance, parent = dijkstra(graph.out, start, between, deadline)
    else:
        distance, parent = _bellman_ford(graph, start, between, deadline)
    path = [end]
    while path[-1] != start:
        path.append(parent[path[-1]])
    names = graph.named(path[::-1])
    cost = graph.value(distance[end])
    potentials = {graph.names[node]: jsonable(graph.value(distance[node])) for node in sorted(distance)}
    return Solution(
        problem_type="shortest_path",
        algorithm=algorithm,
        value=cost,
        witness=names,
        certificate={"potentials": potentials},
        note=f"path {listed(names, ' -> ')}; cost {shown(cost)}",
    )


def reachable(out: list[dict[int, int]], start: int) -> set[int]:
    """The nodes that walks from `start` reach, `start` included."""
    found, stack = {start}, [start]
    while stack:
        fresh = [node for node in out[stack.pop()] if node not in found]
        found.update(fresh)
        stack.extend(fresh)
    return found


def dijkstra(
    out: list[dict[int, int]], start: int, inside: Collection[int], deadline: Deadline
) -> tuple[dict[int, int], dict[int, int]]:
    """Distances and parents from `start` over the nodes `inside`; equal distances settle in index order."""
    distance, parent, settled = {start: 0}, {}, set()
    heap = [(0, start)]
    while heap:
        length, u = heapq.heappop(heap)
        if u in settled:
            continue
        deadline.check()
        settled.add(u)
        for v, weight in out[u].items():
            if v in inside and v not in settled and (v not in distance or length + weight < distance[v]):
                distance[v], parent[v] = length + weight, u
                heapq.heappush(heap, (length + weight, v))
    return distance, parent


def _bellman_ford(
    graph: Indexed, start: int, inside: set[int], deadline: Deadline
) -> tuple[dict[int, int], dict[int, int]]:
    nodes = sorted(inside)
    distance, parent = {start: 0}, {}
    if any(graph.loops.get(u, 0) < 0 for u in nodes):
        raise SolveError("negative_cycle", "a negative self-loop makes the cost unbounded")
    for _ in nodes:
        changed = False
        for u in nodes:
            deadline.check()
            if u not in distance:
                continue
            for v, weight in graph.out[u].items():
                if v in inside and (v not in distance or distance[u] + weight < distance[v]):
                    distance[v], parent[v], changed = distance[u] + weight, u, True
        if not changed:
            return distance, parent
    raise SolveError("negative_cycle", "a cycle of negative total weight makes the cost unbounded")
