"""AgentGL's pools: prefixes, what each pool may hold, fused ranking, the pair rules, no trace of the target edge."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agl.errors import DataError
from agl.graphs.embeddings import Embeddings, TfidfEncoder
from agl.graphs.index import Index
from agl.graphs.pagerank import exact_pagerank, personalized_pagerank
from agl.graphs.text_graph import TextGraph
from agl.graphs.view import GraphView, NodeTarget, PairTarget, ViewError, without_pairs
from envs.agentgl.links import Links, link_split
from envs.agentgl.pairs import search_pair, split_rest
from envs.agentgl.pools import Found, Pool, PoolOptions, prepare_similar, preview, read_pool, search

WORDS = [
    "graph",
    "neural",
    "network",
    "kernel",
    "genetic",
    "search",
    "bayes",
    "belief",
    "rule",
    "logic",
    "agent",
    "reward",
]
HOPS = (Pool.ONE_HOP, Pool.TWO_HOP)


def texts(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=6)) for _ in range(n)]


def index_of(corpus: list[str]) -> Index:
    encoder = TfidfEncoder.fit(corpus)
    return Index(Embeddings(encoder.encode(corpus), "tfidf", encoder, Path()))


def graph_of(n: int, edges: Any, **more: Any) -> TextGraph:
    return TextGraph.build(range(n), texts(n), edges, **more)


def random_graph(n: int, m: int, seed: int = 0) -> TextGraph:
    return graph_of(n, np.random.default_rng(seed).integers(0, n, (m, 2)))


def cosine(index: Index, query: str, targets: tuple[int, ...], node: int, weight: float = 0.5) -> float:
    """The formula of the paper, written out."""
    anchor = index.vectors[list(targets)].astype(float).mean(axis=0)
    fused = weight * index.encode(query) + (1 - weight) * anchor / np.linalg.norm(anchor)
    return float(index.vectors[node] @ fused / np.linalg.norm(fused))


ACCEPTED = {
    Pool.ONE_HOP: ["1-hop", "1 hop", "1hop", "one-hop", "one hop"],
    Pool.TWO_HOP: ["2-hop", "2 hop", "2hop", "two-hop", "two hop"],
    Pool.PAGERANK: ["pagerank", "page rank", "pr"],
    Pool.SIMILAR: ["similar", "sim", "similarity"],
}


@pytest.mark.parametrize(("pool", "prefix"), [(pool, name) for pool, names in ACCEPTED.items() for name in names])
def test_every_prefix_is_read(pool: Pool, prefix: str) -> None:
    for written in (prefix, prefix.upper(), prefix.title(), f"  {prefix}\n"):
        assert read_pool(written) is pool


@pytest.mark.parametrize("text", ["", "3-hop", "1-hops", "hop", "simil", "1-hop:", "page_rank", "prs", "0"])
def test_other_prefixes_name_no_pool(text: str) -> None:
    assert read_pool(text) is None


def test_hop_pools_of_a_node_are_ranked_by_the_fused_vector() -> None:
    graph = graph_of(9, [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (3, 6), (1, 2), (6, 7)])
    index = index_of(texts(9))
    view = GraphView(graph, NodeTarget(0), index=index)
    for pool, rows in ((Pool.ONE_HOP, [1, 2, 3]), (Pool.TWO_HOP, [4, 5, 6])):
        for weight in (0.0, 0.5, 1.0):
            wanted = sorted(rows, key=lambda node: -cosine(index, "bayes belief", (0,), node, weight))
            found = search(view, pool, "bayes belief", PoolOptions.for_nodes(lambda_=weight))
            assert list(found.nodes) == wanted
            scores = [cosine(index, "bayes belief", (0,), node, weight) for node in found.nodes]
            assert found.scores == pytest.approx(scores, abs=1e-5)
            assert found.total == 3
    assert search(view, Pool.TWO_HOP, "", PoolOptions.for_nodes(two_hop="upto")).total == 6
    first = search(view, Pool.ONE_HOP, "", PoolOptions.for_nodes(k=dict.fromkeys(Pool, 1)))
    assert (len(first), first.total, str(first)) == (1, 3, "1 of 3 shown")


def test_the_query_decides_in_the_hop_pools_only() -> None:
    graph = random_graph(40, 120)
    view = GraphView(graph, NodeTarget(3), index=index_of(texts(40)))
    options = PoolOptions.for_nodes()
    for pool in Pool:
        found = {search(view, pool, query, options).nodes for query in ("", "agent reward", "logic rule", "kernel")}
        assert (len(found) > 1) == (pool in HOPS)
    assert search(view, Pool.TWO_HOP, "", options) == search(view, Pool.TWO_HOP, "unheard-of zzz", options)


@pytest.mark.parametrize("profile", ["paper", "code"])
def test_no_pool_shows_the_target_or_more_than_k(profile: Any) -> None:
    graph = random_graph(60, 150)
    index = index_of(texts(60))
    for node in range(60):
        for pool in Pool:
            found = search(
                GraphView(graph, NodeTarget(node), index=index), pool, "graph", PoolOptions.for_nodes(profile)
            )
            assert node not in found.nodes
            assert len(found) == min(5, found.total)
            assert not any((found.labels, found.roles, found.pairs))


def test_salience_of_both_profiles() -> None:
    graph = random_graph(80, 240)
    index = index_of(texts(80))
    everywhere = exact_pagerank(GraphView(graph, NodeTarget(0)))
    lists = set()
    for node in range(10):
        view = GraphView(graph, NodeTarget(node), index=index)
        paper = search(view, Pool.PAGERANK, "", PoolOptions.for_nodes())
        assert list(paper.nodes) == [other for other, _ in personalized_pagerank(view).top(5, (node,))]
        code = search(view, Pool.PAGERANK, "", PoolOptions.for_nodes("code"))
        assert list(code.nodes) == [other for other, _ in everywhere.top(5, (node,))]
        assert search(view, Pool.PAGERANK, "", PoolOptions.for_nodes(salience="global")) == code
        lists.add(paper.nodes)
    assert len(lists) == 10


def test_a_node_alone_without_words_finds_nothing_it_should_not() -> None:
    graph = TextGraph.build(range(4), ["", "", "graph", "graph kernel"], [(0, 3), (0, 2)])
    index = index_of(["", "", "graph", "graph kernel"])
    options = PoolOptions.for_nodes()
    lone = GraphView(graph, NodeTarget(1), index=index)
    for pool in Pool:
        found = search(lone, pool, "", options)
        assert (found.nodes, len(found)) == ((), 0)
    # Neighbours do not vanish because no text can rank them.
    assert search(GraphView(graph, NodeTarget(0), index=index), Pool.ONE_HOP, "", options).nodes == (2, 3)
    assert search(GraphView(graph, NodeTarget(0), index=index), Pool.ONE_HOP, "kernel", options).nodes == (3, 2)


def test_many_targets_at_once_are_the_same_as_one_by_one() -> None:
    graph = random_graph(50, 100)
    at_once, single = index_of(texts(50)), index_of(texts(50))
    prepare_similar(at_once, [(node,) for node in range(50)])
    for node in range(50):
        both = [
            search(GraphView(graph, NodeTarget(node), index=index), Pool.SIMILAR, "", PoolOptions.for_nodes())
            for index in (at_once, single)
        ]
        assert both[0] == both[1]


def test_previews_are_cut_and_say_no_more_than_the_text() -> None:
    graph = TextGraph.build(["node-id", "b"], ["x" * 900, ""], [(0, 1)], labels=[0, 0], class_names=["the-class"])
    view = GraphView(graph, NodeTarget(1))
    assert preview(view, 0, PoolOptions.for_nodes()) == "x" * 500
    assert preview(view, 0, PoolOptions.for_pairs()) == "x" * 480
    assert preview(view, 1, PoolOptions.for_nodes()) == ""


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=15, max_size=15), st.integers(0, 14))
def test_hidden_labels_change_no_byte(hidden: list[int], target: int) -> None:
    """Labels of the target and of nodes outside train are replaced; every search stays the same."""
    rng = random.Random(5)
    split = [i % 3 for i in range(15)]
    labels = [rng.randrange(3) for _ in range(15)]
    other = [labels[i] if split[i] == 0 and i != target else hidden[i] for i in range(15)]
    edges = [(rng.randrange(15), rng.randrange(15)) for _ in range(40)]
    index = index_of(texts(15))
    shown = []
    for given_labels in (labels, other):
        graph = graph_of(15, edges, labels=given_labels, class_names=["a", "b", "c"], split=split)
        view = GraphView(graph, NodeTarget(target), index=index)
        shown.append([search(view, pool, "rule", PoolOptions.for_nodes(show_labels="train")) for pool in Pool])
    assert shown[0] == shown[1]
    for found in shown[0]:
        for node, label in zip(found.nodes, found.labels, strict=True):
            assert (label is not None) == (split[node] == 0)


@pytest.mark.parametrize(
    ("near_u", "near_v", "rest", "wanted"),
    [(1, 9, 5, (1, 4)), (9, 1, 5, (4, 1)), (9, 9, 5, (3, 2)), (1, 1, 5, (1, 1)), (0, 0, 5, (0, 0)), (9, 9, 0, (0, 0))],
)
def test_the_rest_is_split_as_by_hand(near_u: int, near_v: int, rest: int, wanted: tuple[int, int]) -> None:
    assert split_rest(near_u, near_v, rest) == wanted


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_the_rest_is_used_up_as_evenly_as_it_can_be(near_u: int, near_v: int, rest: int) -> None:
    k_u, k_v = split_rest(near_u, near_v, rest)
    assert 0 <= k_u <= near_u
    assert 0 <= k_v <= near_v
    assert k_u + k_v == min(rest, near_u + near_v)
    assert k_u <= (rest + 1) // 2 or k_v == near_v
    assert k_v <= (rest + 1) // 2 or k_u == near_u


def star_pair() -> TextGraph:
    """0 and 1 linked; 2, 3 near both; 4, 5, 6 near 0 only; 7 near 1 only."""
    return graph_of(9, [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (0, 5), (0, 6), (1, 7), (7, 8)])


def test_pairs_show_common_neighbours_first_then_either_side() -> None:
    index = index_of(texts(9))
    view = GraphView(star_pair(), PairTarget(0, 1), index=index)

    def score(node: int) -> float:
        return -cosine(index, "reward agent", (0, 1), node)

    for k, take_u, take_v in ((7, 3, 1), (5, 2, 1), (4, 1, 1), (3, 1, 0), (2, 0, 0)):
        options = PoolOptions.for_pairs(k=dict.fromkeys(Pool, k))
        found = search_pair(view, Pool.ONE_HOP, "reward agent", options)
        wanted = [*sorted([2, 3], key=score), *sorted([4, 5, 6], key=score)[:take_u], *[7][:take_v]]
        assert list(found.nodes) == wanted
        assert list(found.roles) == ["common"] * 2 + ["u"] * take_u + ["v"] * take_v
        assert found.total == 6
    one = search_pair(view, Pool.ONE_HOP, "reward agent", PoolOptions.for_pairs(k=dict.fromkeys(Pool, 1)))
    assert list(one.nodes) == sorted([2, 3], key=score)[:1]


def test_pairs_of_the_code_profile_ignore_the_query() -> None:
    view = GraphView(star_pair(), PairTarget(0, 1), index=index_of(texts(9)))
    options = PoolOptions.for_pairs("code")
    found = search_pair(view, Pool.ONE_HOP, "reward agent", options)
    assert found.nodes[:2] == (2, 3)
    assert found.roles == ("common", "common", "u", "u", "v")
    for query in ("", "kernel"):
        assert search_pair(view, Pool.ONE_HOP, query, options) == found
    graph = random_graph(60, 300)
    index = index_of(texts(60))
    hops = [
        [search_pair(GraphView(graph, PairTarget(u, u + 1), index=index), pool, "", options) for pool in HOPS]
        for u in range(0, 60, 7)
    ]
    assert all(len(found) == 5 for both in hops for found in both)


def visible_edges(view: GraphView) -> list[tuple[int, int]]:
    found = [(i, int(j)) for i in range(view.n) for j in view.neighbor_rows(i) if i < j]
    return [edge for edge in found if not set(edge) & set(view.targets)]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 14), st.data())
def test_salient_pairs_are_the_edges_of_highest_mean_score(n: int, data: Any) -> None:
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=60))
    k = data.draw(st.integers(1, 6))
    view = GraphView(graph_of(n, edges), PairTarget(0, 1))
    for salience in ("personalised", "global"):
        ranking = personalized_pagerank(view) if salience == "personalised" else exact_pagerank(view)
        scores = dict(zip(ranking.nodes.tolist(), ranking.scores.tolist(), strict=True))
        means = {edge: sum(scores.get(end, 0.0) for end in edge) / 2 for edge in visible_edges(view)}
        options = PoolOptions.for_pairs(k={Pool.PAGERANK: k}, salience=salience)
        found = search_pair(view, Pool.PAGERANK, "", options)
        best = sorted(means.values(), reverse=True)
        if salience == "personalised":
            # Edges out of reach of the walk have no score and are not shown.
            best = [mean for mean in best if mean > 0]
        assert list(found.scores) == pytest.approx(best[:k], abs=1e-7)
        assert [means[pair] for pair in found.pairs] == pytest.approx(list(found.scores), abs=1e-7)
        assert found.total == len(means)
        assert all(found.linked)


def test_salient_pairs_beyond_the_first_look() -> None:
    """The best edges that touch no end lie far down the ranking, behind the leaves of both ends."""
    leaves = [(end, 2 + 300 * end + i) for end in (0, 1) for i in range(300)]
    graph = graph_of(610, [*leaves, (0, 602), (602, 603), (603, 604)])
    found = search_pair(GraphView(graph, PairTarget(0, 1)), Pool.PAGERANK, "", PoolOptions.for_pairs())
    assert found.pairs == ((602, 603), (603, 604))


def everything(view: GraphView, links: Links | None) -> list[Found]:
    found = []
    for profile in ("paper", "code"):
        for two_hop in ("exact", "upto"):
            options = PoolOptions.for_pairs(profile, two_hop=two_hop, show_labels="train")
            found += [search_pair(view, pool, query, options, links) for pool in Pool for query in ("", "bayes agent")]
    return found


def toggled(graph: TextGraph, pair: tuple[int, int], linked: bool) -> TextGraph:
    edges = [edge for edge in graph.edges().tolist() if tuple(edge) != pair]
    return TextGraph.build(graph.ids, graph.texts(), [*edges, pair] if linked else edges)


def both_ways(graph: TextGraph, links: Links, pair: tuple[int, int], index: Index) -> list[list[Found]]:
    """What is found with the target edge in the graph and without it, the split being the same."""
    hidden = [*links.positives["val"], *links.positives["test"]]
    shown = []
    for linked in (True, False):
        other = toggled(graph, pair, linked)
        view = GraphView(other, PairTarget(*pair), adjacency=without_pairs(other, hidden), index=index)
        shown.append(everything(view, links))
    return shown


@settings(max_examples=15, deadline=None)
@given(st.integers(6, 16), st.integers(0, 2**32), st.data())
def test_the_target_edge_leaves_no_trace(n: int, seed: int, data: Any) -> None:
    node = st.integers(0, n - 1)
    graph = graph_of(n, data.draw(st.lists(st.tuples(node, node), min_size=n, max_size=3 * n)))
    try:
        links = link_split(graph, seed, train=6, val=2, test=2)
    except DataError:
        assume(False)
    index = index_of(texts(n))
    for split in ("train", "test"):
        for pair, _ in links.items(split)[:4]:
            shown = both_ways(graph, links, pair, index)
            assert shown[0] == shown[1]


@pytest.fixture(scope="module")
def cora(shared: Path) -> TextGraph:
    lines = (shared / "data" / "cora" / "edges.tsv").read_text(encoding="utf-8").split()
    ids = range(2708)
    edges = [(int(a), int(b)) for a, b in zip(lines[::2], lines[1::2], strict=True)]
    return TextGraph.build(ids, texts(2708), edges)


def test_the_target_edge_leaves_no_trace_on_cora(cora: TextGraph) -> None:
    links, index = link_split(cora, 3), index_of(cora.texts())
    for split in ("train", "test"):
        for pair, _ in links.items(split)[:4]:
            shown = both_ways(cora, links, pair, index)
            assert shown[0] == shown[1]
            leaky = everything(GraphView(cora, PairTarget(*pair), index=index, leaky=True), links)
            if cora.has_edge(*pair):
                assert leaky != shown[0]


def test_edges_of_validation_and_test_are_in_no_output(cora: TextGraph) -> None:
    links, index = link_split(cora, 1), index_of(cora.texts())
    hidden = {*links.positives["val"], *links.positives["test"]}
    held_out = hidden | {*links.negatives["val"], *links.negatives["test"]}
    options = PoolOptions.for_pairs()
    pairs = [item for split in ("train", "val", "test") for item in links.items(split)[:40]]
    for (u, v), _ in pairs:
        view = links.view(u, v, index)
        for pool in (Pool.PAGERANK, Pool.SIMILAR):
            found = search_pair(view, pool, "", options, links)
            assert len(found) == options.k[pool] or pool is Pool.PAGERANK
            assert not set(found.pairs) & held_out
            assert (u, v) not in found.pairs
            for pair, linked in zip(found.pairs, found.linked, strict=True):
                assert cora.has_edge(*pair) == linked
        found = search_pair(view, Pool.ONE_HOP, "", options, links)
        for node, role in zip(found.nodes, found.roles, strict=True):
            ends = {"common": (u, v), "u": (u,), "v": (v,)}[role]
            assert all(cora.has_edge(node, end) and tuple(sorted((node, end))) not in hidden for end in ends)


def test_similar_pairs_are_training_pairs_with_their_status() -> None:
    graph = random_graph(80, 240)
    links, index = link_split(graph, 0, train=60, val=10, test=10), index_of(texts(80))
    train = {**dict.fromkeys(links.positives["train"], True), **dict.fromkeys(links.negatives["train"], False)}
    whole = PoolOptions.for_pairs(k=dict.fromkeys(Pool, 1000))
    for split in ("train", "test"):
        (u, v), _ = links.items(split)[0]
        found = search_pair(links.view(u, v, index), Pool.SIMILAR, "ignored", whole, links)
        wanted = {pair: linked for pair, linked in train.items() if pair != (u, v)}
        assert dict(zip(found.pairs, found.linked, strict=True)) == wanted
        assert found.total == len(wanted)
        anchor = index.vectors[[u, v]].astype(float).mean(axis=0)
        for pair, score in zip(found.pairs, found.scores, strict=True):
            mean = index.vectors[list(pair)].astype(float).mean(axis=0)
            assert score == pytest.approx(mean @ anchor / np.linalg.norm(mean) / np.linalg.norm(anchor), abs=1e-5)
        assert list(found.scores) == sorted(found.scores, reverse=True)
        code = search_pair(links.view(u, v, index), Pool.SIMILAR, "", dataclasses.replace(whole, profile="code"), links)
        assert set(code.pairs) == {pair for pair, linked in wanted.items() if linked}
    assert search_pair(links.view(u, v, index), Pool.SIMILAR, "", whole, None) == Found(Pool.SIMILAR)


def test_code_lists_ten_salient_edges_for_all_targets() -> None:
    graph = random_graph(80, 240)
    links, index = link_split(graph, 0, train=60, val=10, test=10), index_of(texts(80))
    options = PoolOptions.for_pairs("code")
    lists = {
        search_pair(links.view(*pair, index), Pool.PAGERANK, "", options, links).pairs
        for pair, linked in links.items("test")
    }
    assert len(lists) == 1
    whole = dataclasses.replace(options, k=dict.fromkeys(Pool, 50))
    (u, v), _ = links.items("test")[0]
    assert len(search_pair(links.view(u, v, index), Pool.PAGERANK, "", whole, links)) == 10


def test_wrong_views_are_refused() -> None:
    graph = random_graph(30, 90)
    links, index = link_split(graph, train=10, val=5, test=5), index_of(texts(30))
    options = PoolOptions.for_pairs()
    (u, v), _ = links.items("test")[0]
    with pytest.raises(ValueError, match=r"Links\.view"):
        search_pair(GraphView(graph, PairTarget(u, v), index=index), Pool.ONE_HOP, "", options, links)
    with pytest.raises(TypeError, match="pair target"):
        search_pair(GraphView(graph, NodeTarget(u), index=index), Pool.ONE_HOP, "", options, links)
    with pytest.raises(TypeError, match="node target"):
        search(links.view(u, v, index), Pool.ONE_HOP, "", options)
    with pytest.raises(ViewError, match="no retrieval index"):
        search(GraphView(graph, NodeTarget(u)), Pool.SIMILAR, "", PoolOptions.for_nodes())
