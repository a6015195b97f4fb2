"""How long one look at a graph of 60,000 nodes takes: `python benchmarks/graphs.py [--nodes N]`.

The graph is random, with a skewed degree distribution (preferential attachment to a few hubs) and about eight edges a
node; the vectors have 384 dimensions, as those of MiniLM. Prints the median and the largest time of a call in
milliseconds, and the ratio of the median to that of the plain alternative: copying the graph without the target edge,
power iteration, or exact search.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from agl.errors import UserError
from agl.graphs.index import Index
from agl.graphs.pagerank import exact_pagerank, personalized_pagerank
from agl.graphs.text_graph import TextGraph
from agl.graphs.view import GraphView, PairTarget, without_pairs

REPEATS = 40
DIMENSIONS = 384


def skewed_edges(n: int) -> NDArray[np.int64]:
    """About eight edges a node [8 n, 2]; row 0 is a hub of several thousand neighbours."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, n, 8 * n)
    # The cube of a uniform number prefers low rows.
    hubs = (n * rng.random(8 * n) ** 3).astype(np.int64)
    return np.stack([ends, hubs], axis=1)


def times(run: Callable[[int], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and largest wall-clock time of `run(i)` in milliseconds, after one call to warm up."""
    run(repeats)
    taken = []
    for i in range(repeats):
        began = time.perf_counter()
        run(i)
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken), max(taken)


def row(
    name: str, run: Callable[[int], object], against: float | None = None, repeats: int = REPEATS, digits: int = 4
) -> float:
    """Print the times of `run` and their ratio to the median `against`; returns its own median."""
    median, largest = times(run, repeats)
    ratio = "" if against is None else f"{median / against:.{digits}f}"
    print(f"{name:44}{median:11.3f}{largest:9.2f}  {ratio}", flush=True)
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=60_000)
    n = parser.parse_args().nodes
    built = TextGraph.build(range(n), [""] * n, skewed_edges(n))
    rng = np.random.default_rng(1)
    edges = built.edges()
    pairs = edges[rng.integers(0, len(edges), REPEATS + 1)].tolist()
    vectors = rng.standard_normal((n, DIMENSIONS), dtype=np.float32)
    queries = rng.standard_normal((REPEATS + 1, DIMENSIONS), dtype=np.float32)
    print(f"{n:,} nodes, {built.num_edges:,} edges, largest degree {int(built.degrees.max()):,}")
    print(f"{'call':44}{'median ms':>11}{'max ms':>9}  of the alternative")

    def view(i: int) -> GraphView:
        return GraphView(built, PairTarget(*pairs[i]))

    copy = row("graph without one edge, copied", lambda i: without_pairs(built, [pairs[i]]), repeats=5)
    row("view and page of neighbours", lambda i: view(i).neighbors(pairs[i][0]), copy)
    row("view and common neighbours", lambda i: view(i).common_neighbors(*pairs[i]), copy)
    row("view and two hops", lambda i: view(i).two_hop(pairs[i][0]), copy)
    row("view and two hops of the largest hub", lambda i: view(i).two_hop(int(built.degrees.argmax())), copy)
    power = row(
        "PageRank of a pair, power iteration to 1e-6", lambda i: exact_pagerank(view(i), tolerance=1e-6), repeats=3
    )
    for tolerance in (1e-4, 1e-5, 1e-6):
        row(
            f"PageRank of a pair, push to {tolerance:.0e}",
            lambda i, tolerance=tolerance: personalized_pagerank(view(i), tolerance=tolerance),  # type: ignore[misc]
            power,
        )
    row("PageRank of a pair, asked again", lambda i: personalized_pagerank(view(i)), power)

    exact = Index(vectors)
    search = row("search, exact", lambda i: exact.search(queries[i], 10))
    train = np.arange(n) % 2 == 0
    row("search, exact, half of the nodes", lambda i: exact.search(queries[i], 10, train), search)
    few = rng.choice(n, min(n, 1000), replace=False)
    row("search, exact, 1,000 nodes", lambda i: exact.search(queries[i], 10, few), search)
    batch, _ = times(lambda _: exact.search_many(queries[:32], 10), 3)
    print(f"{'search, exact, one of a batch of 32':44}{batch / 32:11.3f}{'':9}  {batch / 32 / search:.4f}")
    try:
        for kind in ("flat", "ivf"):
            began = time.perf_counter()
            index = Index(vectors, kind)
            print(f"{f'building faiss {kind}':44}{1000 * (time.perf_counter() - began):11.0f}")
            row(f"search, faiss {kind}", lambda i, index=index: index.search(queries[i], 10), search)  # type: ignore[misc]
    except UserError as error:
        print(f"faiss left out: {error}")


if __name__ == "__main__":
    main()
