"""Is a submitted witness right? Checked against the graph and the optimum, never by comparing text with one answer."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from agl.graphs.named import NamedGraph, Weight
from agl.graphs.naming import natural_key
from agl.graphs.solve import Exact, solve
from agl.graphs.solve.solution import exact, read_exact

CLOSE = Fraction(1, 10**9)
"""Relative difference within which a claimed total equals the real one."""


@dataclass(frozen=True)
class Verdict:
    """`code` says what is wrong with an invalid witness. `value` is its real cost, size or number of colours wherever
    it is a feasible object, optimal or not."""

    valid: bool
    code: str | None = None
    value: Exact | None = None


@dataclass(frozen=True)
class _Question:
    source: str | None = None
    target: str | None = None
    claimed: object = None
    max_colours: int | None = None
    measure: str | None = None
    optimum: Any = None


class _Wrong(Exception):
    """The witness is refused under `code`."""

    def __init__(self, code: str, value: Exact | None = None) -> None:
        super().__init__(code)
        self.code, self.value = code, value


def verify(
    task: str,
    graph: NamedGraph,
    answer: object,
    *,
    source: object = None,
    target: object = None,
    claimed: object = None,
    max_colours: int | None = None,
    measure: str | None = None,
    optimum: Any = None,
) -> Verdict:
    """Check the witness `answer`. Ids compare as strings, so 1 and "1" are one node; booleans and floats are no ids.

    `task` is one of `TASKS`. `claimed` is the total that the answer states beside the witness: cost, size or number of
    colours. `optimum` is the known best value (for top_node and top_nodes the list of top nodes); with it nothing is
    solved here. `coloring` with `max_colours` need not be optimal. A tour may repeat its first node at the end or not.

    Codes: `no_witness`, `unknown_node`, `repeated_node`, `incomplete`, `unknown_edge`, `repeated_edge`, `wrong_ends`,
    `wrong_order`, `wrong_total`, `uncovered_edge`, `conflict`, `too_many_colours`, `not_a_tree`, `not_top`,
    `not_optimal`.

    Raises:
        ValueError: `task` is unknown, or a field it needs is missing.
        SolveError: `optimum` was not given and the problem has no answer or hit a limit.
    """
    if task not in TASKS:
        raise ValueError(f"task is one of {', '.join(TASKS)}; got {task!r}")
    checker, needed = TASKS[task]
    question = _Question(
        source=None if source is None else str(source),
        target=None if target is None else str(target),
        claimed=claimed,
        max_colours=max_colours,
        measure=measure,
        optimum=optimum,
    )
    for name in needed:
        if getattr(question, name) is None:
            raise ValueError(f"verifying a {task} needs {name}")
    try:
        return Verdict(True, None, checker(graph, answer, question))
    except _Wrong as wrong:
        return Verdict(False, wrong.code, wrong.value)


def _name(item: object) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int):
        raise _Wrong("no_witness")
    return str(item)


def _nodes(graph: NamedGraph, answer: object) -> list[str]:
    if not isinstance(answer, list | tuple):
        raise _Wrong("no_witness")
    names = [_name(item) for item in answer]
    known = set(graph.nodes)
    if any(name not in known for name in names):
        raise _Wrong("unknown_node")
    return names


def _distinct(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise _Wrong("repeated_node")


def _every(graph: NamedGraph, names: Sequence[str]) -> None:
    _distinct(names)
    if len(names) < len(graph.nodes):
        raise _Wrong("incomplete")


def _weights(graph: NamedGraph) -> dict[tuple[str, str], Weight]:
    weights: dict[tuple[str, str], Weight] = {}
    for u, v, weight in graph.edges:
        weights[u, v] = weight if graph.weighted else 1
        if not graph.directed:
            weights[v, u] = weights[u, v]
    return weights


def _total(weights: Mapping[tuple[str, str], Weight], steps: Iterable[tuple[str, str]]) -> Exact:
    return exact(Fraction(sum(exact(weights[step]) for step in steps)))


def _cost(graph: NamedGraph, walk: Sequence[str]) -> Exact:
    weights = _weights(graph)
    if any(step not in weights for step in itertools.pairwise(walk)):
        raise _Wrong("unknown_edge")
    return _total(weights, itertools.pairwise(walk))


def _near(one: Exact, other: Exact) -> bool:
    return abs(Fraction(one) - Fraction(other)) <= CLOSE * max(Fraction(1), abs(Fraction(other)))


def _settle(value: Exact, question: _Question, best: Callable[[], object]) -> Exact:
    """Compare with the claimed total, then with the optimum."""
    if question.claimed is not None:
        try:
            claimed = read_exact(question.claimed)
        except ValueError:
            raise _Wrong("wrong_total", value) from None
        if not _near(claimed, value):
            raise _Wrong("wrong_total", value)
    optimum = read_exact(question.optimum if question.optimum is not None else best())
    if not _near(optimum, value):
        raise _Wrong("not_optimal", value)
    return value


def _path(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    path = _nodes(graph, answer)
    _distinct(path)
    if not path or path[0] != question.source or path[-1] != question.target:
        raise _Wrong("wrong_ends" if path else "no_witness")
    ends = {"start": question.source, "end": question.target}
    return _settle(_cost(graph, path), question, lambda: solve("shortest_path", graph, ends).value)


def _tour(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    tour = _nodes(graph, answer)
    if len(tour) > 1 and tour[0] == tour[-1]:
        tour.pop()
    _every(graph, tour)
    closed = [*tour, tour[0]] if len(tour) > 1 else tour
    return _settle(_cost(graph, closed), question, lambda: solve("tsp", graph).value)


def _vertex_cover(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    cover = _nodes(graph, answer)
    _distinct(cover)
    chosen = set(cover)
    if any(u not in chosen and v not in chosen for u, v, _ in graph.edges):
        raise _Wrong("uncovered_edge")
    return _settle(len(cover), question, lambda: solve("vertex_cover", graph).value)


def _coloring(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    if not isinstance(answer, dict) or not all(isinstance(color, str | int) for color in answer.values()):
        raise _Wrong("no_witness")
    named = _nodes(graph, list(answer))
    _every(graph, named)
    color = {name: str(value) for name, value in zip(named, answer.values(), strict=True)}
    if any(color[u] == color[v] for u, v, _ in graph.edges):
        raise _Wrong("conflict")
    used = len(set(color.values()))
    if question.max_colours is None:
        return _settle(used, question, lambda: solve("coloring", graph).value)
    if used > question.max_colours:
        raise _Wrong("too_many_colours", used)
    return _settle(used, question, lambda: used)


def _neighbours(graph: NamedGraph) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {node: [] for node in graph.nodes}
    for u, v, _ in graph.edges:
        if u != v:
            out[u].append(v)
            if not graph.directed:
                out[v].append(u)
    return out


def _bfs_any(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    order = _nodes(graph, answer)
    _distinct(order)
    source, out = str(question.source), _neighbours(graph)
    if order[:1] != [source]:
        raise _Wrong("wrong_order" if order else "no_witness")
    seen, queue, place = {source}, deque([source]), 1
    complete = True
    while queue:
        fresh = {v for v in out[queue.popleft()] if v not in seen}
        block = order[place : place + len(fresh)]
        if not fresh.issuperset(block):
            raise _Wrong("wrong_order")
        complete = complete and len(block) == len(fresh)
        place += len(block)
        seen |= fresh
        queue.extend(block)
    if not complete:
        raise _Wrong("incomplete")
    if place < len(order):
        raise _Wrong("wrong_order")
    return len(order)


def _bfs_index(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    return _bfs_exact(graph, answer, question, graph.nodes)


def _bfs_natural(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    return _bfs_exact(graph, answer, question, sorted(graph.nodes, key=natural_key))


def _bfs_exact(graph: NamedGraph, answer: object, question: _Question, order: Sequence[str]) -> Exact:
    value = _bfs_any(graph, answer, question)
    wanted = solve("bfs", graph, {"start": question.source, "order": list(order)}).witness
    if _nodes(graph, answer) != wanted:
        raise _Wrong("wrong_order")
    return value


def _top(graph: NamedGraph, question: _Question) -> set[str]:
    best = question.optimum
    if best is None:
        best = solve("centrality", graph, {"measure": question.measure}).witness
    return {str(node) for node in best}


def _top_node(graph: NamedGraph, answer: object, question: _Question) -> None:
    if isinstance(answer, list | tuple) and len(answer) != 1:
        raise _Wrong("no_witness")
    (node,) = _nodes(graph, answer if isinstance(answer, list | tuple) else [answer])
    if node not in _top(graph, question):
        raise _Wrong("not_top")


def _top_nodes(graph: NamedGraph, answer: object, question: _Question) -> None:
    nodes = _nodes(graph, answer)
    _distinct(nodes)
    top = _top(graph, question)
    if not top.issuperset(nodes):
        raise _Wrong("not_top")
    if len(nodes) < len(top):
        raise _Wrong("incomplete")


def _topological(graph: NamedGraph, answer: object, question: _Question) -> None:
    order = _nodes(graph, answer)
    _every(graph, order)
    place = {node: number for number, node in enumerate(order)}
    if any(place[u] >= place[v] for u, v, _ in graph.edges):
        raise _Wrong("wrong_order")


def _hamilton_path(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    path = _nodes(graph, answer)
    _every(graph, path)
    return _cost(graph, path)


def _edges(graph: NamedGraph, answer: object) -> list[tuple[str, str]]:
    """Pairs, or triples whose third part is a weight that must be the edge's."""
    if not isinstance(answer, list | tuple):
        raise _Wrong("no_witness")
    weights = _weights(graph)
    pairs: list[tuple[str, str]] = []
    for item in answer:
        if not isinstance(item, list | tuple) or len(item) not in (2, 3):
            raise _Wrong("no_witness")
        u, v = _nodes(graph, item[:2])
        if (u, v) not in weights:
            raise _Wrong("unknown_edge")
        if len(item) == 3:
            try:
                stated = read_exact(item[2])
            except ValueError:
                raise _Wrong("unknown_edge") from None
            if stated != exact(weights[u, v]):
                raise _Wrong("unknown_edge")
        pairs.append((u, v))
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise _Wrong("repeated_edge")
    return pairs


def _joins(pairs: Iterable[tuple[str, str]]) -> bool:
    """Whether every edge joins two parts that the edges before it left apart."""
    part: dict[str, str] = {}

    def find(node: str) -> str:
        while (above := part.setdefault(node, node)) != node:
            node = above
        return node

    for u, v in pairs:
        one, other = find(u), find(v)
        if one == other:
            return False
        part[one] = other
    return True


def _spanning_tree(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    pairs = _edges(graph, answer)
    if not _joins(pairs):
        raise _Wrong("not_a_tree")
    if len(pairs) < len(graph.nodes) - 1:
        raise _Wrong("incomplete")
    return _settle(_total(_weights(graph), pairs), question, lambda: solve("mst", graph).value)


def _matching(graph: NamedGraph, answer: object, question: _Question) -> Exact:
    pairs = _edges(graph, answer)
    _distinct([node for pair in pairs for node in pair])
    return _settle(len(pairs), question, lambda: solve("matching", graph).value)


_Checker = Callable[[NamedGraph, object, _Question], "Exact | None"]
TASKS: dict[str, tuple[_Checker, tuple[str, ...]]] = {
    "path": (_path, ("source", "target")),
    "tour": (_tour, ()),
    "vertex_cover": (_vertex_cover, ()),
    "coloring": (_coloring, ()),
    "bfs_any": (_bfs_any, ("source",)),
    "bfs_natural": (_bfs_natural, ("source",)),
    "bfs_index": (_bfs_index, ("source",)),
    "top_node": (_top_node, ()),
    "top_nodes": (_top_nodes, ()),
    "topological": (_topological, ()),
    "hamilton_path": (_hamilton_path, ()),
    "spanning_tree": (_spanning_tree, ()),
    "matching": (_matching, ()),
}
"""Task -> (its checker, the fields it cannot do without)."""
