"""Random base graphs of GRIT: connected, simple, undirected, in indices 0..n-1.

The paper's text (arXiv 2608.27142) says Erdos-Renyi with p in [0.1, 0.3]; its own tables fit exactly floor(r * n^2)
edges instead. `edge_budget` follows the tables and is the default, `paper_text` follows the words, `sparse` has a
larger diameter. Travelling-salesman graphs are complete under every profile.
"""

from __future__ import annotations

import math
import random
from itertools import combinations
from typing import Literal

Profile = Literal["edge_budget", "paper_text", "sparse"]
Arc = tuple[int, int]
WeightedEdge = tuple[int, int, int]

MAX_WEIGHT = 10
EDGE_RATIO = {
    "shortest_path": 15,
    "bfs": 15,
    "centrality": 15,
    "coloring": 20,
    "vertex_cover": 20,
}
"""Hundredths of n^2 edges under `edge_budget`."""
WEIGHTED = frozenset({"shortest_path", "tsp"})
TRIALS = 1_000


def budget(task: str, n: int, profile: Profile) -> int:
    """Number of edges of a graph with `n` nodes under `edge_budget` or `sparse`."""
    wanted = 3 * n // 2 if profile == "sparse" else EDGE_RATIO[task] * n * n // 100
    most = n * (n - 1) // 2 - (task == "shortest_path")  # some pair has to be two hops apart
    return min(most, max(n - 1, wanted))


def base_graph(
    task: str, n: int, rng: random.Random, *, profile: Profile = "edge_budget", metric: bool = False
) -> tuple[WeightedEdge, ...]:
    """Edges (u, v, w), u < v, in ascending order, of a connected graph for `task`; weights 1..10, or 1 if unweighted.

    `metric` gives travelling-salesman graphs rounded plane distances closed under shortest paths.
    """
    pairs = list(combinations(range(n), 2))
    if task == "tsp":
        return _plane(n, rng) if metric else tuple((u, v, rng.randint(1, MAX_WEIGHT)) for u, v in pairs)
    chosen: list[Arc] = []
    for _ in range(TRIALS):
        if profile == "paper_text":
            p = rng.uniform(0.1, 0.3)
            chosen = [pair for pair in pairs if rng.random() < p]
        else:
            chosen = sorted(rng.sample(pairs, budget(task, n, profile)))
        if usable(task, n, chosen):
            break
    else:
        chosen = _spanning_tree_plus(n, max(n - 1, min(len(chosen), budget(task, n, "sparse"))), pairs, rng)
    weighted = task in WEIGHTED
    return tuple((u, v, rng.randint(1, MAX_WEIGHT) if weighted else 1) for u, v in chosen)


def usable(task: str, n: int, edges: list[Arc]) -> bool:
    """Connected, and for shortest path not complete, so that some pair is at least two hops apart."""
    if len(edges) < n - 1 or (task == "shortest_path" and len(edges) == n * (n - 1) // 2):
        return False
    return -1 not in hops(n, edges, 0)


def hops(n: int, edges: list[Arc], source: int) -> list[int]:
    """Hop distance of every node from `source`; -1 where there is no path."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        neighbours[u].append(v)
        neighbours[v].append(u)
    distance = [-1] * n
    distance[source] = 0
    queue = [source]
    for u in queue:
        for v in neighbours[u]:
            if distance[v] < 0:
                distance[v] = distance[u] + 1
                queue.append(v)
    return distance


def far_pair(n: int, edges: tuple[WeightedEdge, ...], rng: random.Random) -> Arc:
    """A uniform ordered pair of nodes at least two hops apart; the graph is connected and not complete."""
    adjacent = {(u, v) for u, v, _ in edges}
    apart = [(u, v) for u, v in combinations(range(n), 2) if (u, v) not in adjacent]
    u, v = rng.choice(apart)
    return (u, v) if rng.random() < 0.5 else (v, u)


def _spanning_tree_plus(n: int, m: int, pairs: list[Arc], rng: random.Random) -> list[Arc]:
    # A Prüfer sequence gives each labelled tree the same chance.
    sequence = [rng.randrange(n) for _ in range(n - 2)]
    degree = [1 + sequence.count(node) for node in range(n)]
    tree: set[Arc] = set()
    for node in sequence:
        leaf = degree.index(1)
        tree.add((min(leaf, node), max(leaf, node)))
        degree[leaf] -= 1
        degree[node] -= 1
    u, v = (node for node in range(n) if degree[node] == 1)
    tree.add((u, v))
    rest = [pair for pair in pairs if pair not in tree]
    return sorted([*tree, *rng.sample(rest, min(len(rest), m - len(tree)))])


def _plane(n: int, rng: random.Random) -> tuple[WeightedEdge, ...]:
    points = [(rng.uniform(0, 10), rng.uniform(0, 10)) for _ in range(n)]
    distance = [[max(1, round(math.dist(a, b))) if a is not b else 0 for b in points] for a in points]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                distance[i][j] = min(distance[i][j], distance[i][k] + distance[k][j])
    return tuple((u, v, distance[u][v]) for u, v in combinations(range(n), 2))
