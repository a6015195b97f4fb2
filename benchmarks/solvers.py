"""How long the exact solvers and the checker take on GRIT-like graphs: `python benchmarks/solvers.py`.

Prints the median and the largest processor time in seconds (every solver runs on one thread), and the ratio of the
median to the promise where there is one: a proven tour of 60 nodes in 0.6 s, a proven colouring or cover of 60 nodes
with edge probability up to 0.3 in 0.1 s.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time

from agl.graphs.check import check
from agl.graphs.named import NamedGraph
from agl.graphs.solve import solve

PROMISES = {"tsp": 0.6, "coloring": 0.1, "vertex_cover": 0.1}
SIZES = (20, 40, 60)
REPEATS = 15
CASES: list[tuple[str, float, dict[str, object]]] = [
    ("tsp", 1.0, {}),
    ("coloring", 0.2, {}),
    ("coloring", 0.3, {}),
    ("coloring", 0.4, {}),
    ("vertex_cover", 0.1, {}),
    ("vertex_cover", 0.3, {}),
    ("vertex_cover", 0.4, {}),
    ("shortest_path", 0.3, {"start": "0", "end": "1"}),
    ("bfs", 0.3, {"start": "0"}),
    ("centrality", 0.3, {"measure": "degree"}),
    ("centrality", 0.3, {"measure": "closeness"}),
    ("centrality", 0.3, {"measure": "betweenness"}),
]


def graph(problem: str, n: int, p: float, seed: int) -> NamedGraph:
    """G(n, p) on a Hamiltonian path, weights 1..10 where the problem has weights."""
    rng = random.Random(seed)
    weighted = problem in ("tsp", "shortest_path")
    pairs = [(u, v) for u, v in itertools.combinations(range(n), 2) if v == u + 1 or rng.random() < p]
    edges = [(u, v, rng.randint(1, 10) if weighted else 1) for u, v in pairs]
    return NamedGraph.from_edges(range(n), edges, weighted=weighted)


def main() -> None:
    print(f"{'problem':24}{'n':>4}{'p':>6}{'solve':>10}{'max':>10}{'check':>10}{'max':>10}  of the promise")
    for problem, p, parameters in CASES:
        for n in SIZES:
            solving, checking = [], []
            for seed in range(REPEATS):
                instance = graph(problem, n, p, seed)
                began = time.process_time()
                found = solve(problem, instance, parameters)
                solved = time.process_time()
                faults = check(problem, instance, parameters, found.value, found.witness, found.certificate)
                checked = time.process_time()
                if faults:
                    raise SystemExit(f"{problem} with {n} nodes, seed {seed}: {faults}")
                solving.append(solved - began)
                checking.append(checked - solved)
            median = statistics.median(solving)
            promised = n == 60 and (problem == "tsp" or p <= 0.3)
            ratio = f"{median / PROMISES[problem]:.2f}" if promised and problem in PROMISES else ""
            name = f"{problem} {parameters.get('measure', '')}".strip()
            times = f"{median:10.4f}{max(solving):10.4f}{statistics.median(checking):10.4f}{max(checking):10.4f}"
            print(f"{name:24}{n:4}{p:6.1f}{times}  {ratio}")


if __name__ == "__main__":
    main()
