"""How long one search of an AgentGL agent takes: `python benchmarks/retrieval.py [--nodes N] [--graph NAME|DIR]`.

Without `--graph`: a random graph of 60,000 nodes with a skewed degree distribution and about eight edges a node,
random texts, and `debian` too where this machine has an apt index. Embeddings are TF-IDF, so nothing is downloaded.
Prints the median and the largest time of a call in milliseconds, and the ratio of the median to that of one exact
search over all nodes: the dense product that a pool should not need. Then searches per second of eight episodes that
take turns, as the rollout loop runs them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import time
from collections.abc import Callable

import numpy as np
from graphs import REPEATS, skewed_edges
from graphs import row as measured

from agl.errors import UserError
from agl.graphs.embeddings import embed
from agl.graphs.index import Index
from agl.graphs.pagerank import exact_pagerank
from agl.graphs.sources import open_graph
from agl.graphs.text_graph import TextGraph
from agl.graphs.view import GraphView, NodeTarget
from envs.agentgl.links import link_split
from envs.agentgl.pairs import search_pair
from envs.agentgl.pools import Pool, PoolOptions, prepare_similar, search

EPISODES = 8
VOCABULARY = 2_000


def random_graph(n: int) -> TextGraph:
    words = random.Random(0)
    texts = [" ".join(f"word{int(VOCABULARY * words.random() ** 2)}" for _ in range(20)) for _ in range(n)]
    return TextGraph.build(range(n), texts, skewed_edges(n), meta={"name": "random, skewed degrees"}).stored()


def measure(graph: TextGraph) -> None:
    print(f"\n{graph.name}: {graph.n:,} nodes, {graph.num_edges:,} edges, largest degree {int(graph.degrees.max()):,}")
    began = time.perf_counter()
    texts = graph.texts()
    index = Index(embed(texts, "tfidf"))
    print(f"texts embedded or mapped from the cache in {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    links = link_split(graph)
    print(f"links split in {time.perf_counter() - began:.2f} s")
    began = time.perf_counter()
    for _ in range(1000):
        GraphView(graph, NodeTarget(0), index=index)
    print(f"a view: {1000 * (time.perf_counter() - began):.1f} microseconds")
    print(f"{'call':44}{'median ms':>11}{'max ms':>9}  of one exact search over all nodes")

    rng = random.Random(1)
    targets = rng.sample(np.flatnonzero(graph.degrees).tolist(), REPEATS + 1)
    queries = [" ".join(rng.choice(texts).split()[:4]) for _ in range(REPEATS + 1)]
    pairs = [pair for pair, _ in links.items("test")][: REPEATS + 1]
    nodes, twos = PoolOptions.for_nodes(), PoolOptions.for_pairs()

    row = functools.partial(measured, digits=3)

    def view(i: int) -> GraphView:
        return GraphView(graph, NodeTarget(targets[i]), index=index)

    def of_node(pool: Pool) -> Callable[[int], object]:
        return lambda i: search(view(i), pool, queries[i], nodes)

    def of_pair(pool: Pool) -> Callable[[int], object]:
        return lambda i: search_pair(links.view(*pairs[i], index), pool, queries[i], twos, links)

    whole = row("exact search over all nodes", lambda i: index.search(index.fused(None, (targets[i],)), 5))
    row("encoding a query", lambda i: index.encode(queries[i]), whole)
    first = {pool: row(f"node, {pool}, first time", of_node(pool), whole) for pool in Pool}
    largest = GraphView(graph, NodeTarget(int(graph.degrees.argmax())), index=index)
    row("node, 2-hop, largest hub", lambda i: search(largest, Pool.TWO_HOP, queries[i], nodes), whole)
    for pool in (Pool.PAGERANK, Pool.SIMILAR):
        row(f"node, {pool}, again", of_node(pool), whole)
    for pool in Pool:
        row(f"pair, {pool}, first time", of_pair(pool), whole)
    power = row(
        "PageRank by power iteration to 1e-6", lambda i: exact_pagerank(view(i), tolerance=1e-6), whole, repeats=2
    )
    print(f"{'the pool pagerank, of power iteration':44}{'':20}  {first[Pool.PAGERANK] / power:.3f}")
    fresh = Index(embed(texts, "tfidf"))
    began = time.perf_counter()
    prepare_similar(fresh, [(node,) for node in targets])
    each = 1000 * (time.perf_counter() - began) / len(targets)
    print(f"{'node, similar, one of a batch of ' + str(len(targets)):44}{each:11.3f}{'':9}  {each / whole:.3f}")
    print(f"{episodes(graph, texts, index):,.0f} searches per second of {EPISODES} episodes in turns, each search new")


def episodes(graph: TextGraph, texts: list[str], index: Index, seconds: float = 3.0) -> float:
    """Searches per second of `EPISODES` episodes that take turns, four pools each, no target or query seen before."""
    rng = random.Random(2)
    options = PoolOptions.for_nodes()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = rng.sample(range(graph.n), EPISODES)
        prepare_similar(index, [(node,) for node in batch])
        views = [GraphView(graph, NodeTarget(node), index=index) for node in batch]
        for pool, view in itertools.product(Pool, views):
            search(view, pool, " ".join(rng.choice(texts).split()[:4]), options)
            done += 1
    return done / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=60_000)
    parser.add_argument("--graph", help="a source by name or a folder, instead of the two default graphs")
    given = parser.parse_args()
    if given.graph:
        measure(open_graph(given.graph))
        return
    measure(random_graph(given.nodes))
    try:
        measure(open_graph("debian"))
    except UserError as error:
        print(f"debian left out: {error}")


if __name__ == "__main__":
    main()
