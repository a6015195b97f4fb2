"""Structure recovery: the written graph against the true one, as label-aligned edge sets.

GRAIN (arXiv 2608.27142) calls its reward "isomorphism-aware"; what it computes is the Jaccard index of edge tuples once
the names are aligned. So do we: an isomorphism test would accept swapped names or weights, and a colour-refinement hash
cannot tell one 8-cycle from two 4-cycles.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from agl.graphs.named import NamedGraph, Weight
from agl.graphs.naming import NameTable, NamingError, fold


class ErrorClass(StrEnum):
    """What is wrong with a recovered graph, the first that applies in this order."""

    PARSE_FAILURE = "parse_failure"
    NODE_SET = "node_set"
    EXTRA_EDGES = "extra_edges"
    MISSING_EDGES = "missing_edges"
    WEIGHT = "weight"
    MIXED = "mixed"
    EXACT = "exact"


@dataclass(frozen=True)
class Structure:
    """All numbers in [0, 1]. `jaccard` and `edge_f1` are over (source, target, weight); isolated nodes count only in
    `node_f1` and `exact`."""

    jaccard: float
    node_f1: float
    edge_f1: float
    exact: bool
    error_class: ErrorClass


FAILED = Structure(0.0, 0.0, 0.0, False, ErrorClass.PARSE_FAILURE)
"""What a graph that could not be read scores."""

_Node = tuple[int, str]
_Ends = tuple[_Node, _Node]
_Tuple = tuple[_Ends, Weight | None]


def compare(predicted: NamedGraph | None, gold: NamedGraph, names: NameTable | None = None) -> Structure:
    """Compare after aligning the names of both graphs through `names` (None: the names of `gold`).

    Names that the table does not know, or knows twice, stay as extra nodes; predicted nodes with the same id are
    merged. If one graph is directed and the other is not, both are compared as arcs. Weights are compared as exact
    rationals; the `weighted` flags do not matter. `predicted` may be a `NamedGraph` made directly from logged edges:
    contradictory duplicates then contribute one tuple each. None is a parse failure.

    Raises:
        ValueError: a node of `gold` is not in `names`.
    """
    if predicted is None:
        return FAILED
    table = names if names is not None else NameTable(gold.nodes)
    wanted_ids = {node: (_declared(node, table), "") for node in gold.nodes}
    found_ids = {node: _align(node, table) for node in predicted.nodes}
    for u, v, _ in predicted.edges:
        for end in (u, v):
            if end not in found_ids:
                found_ids[end] = _align(end, table)
    arcs = predicted.directed or gold.directed
    wanted, found = _tuples(gold, wanted_ids, arcs), _tuples(predicted, found_ids, arcs)
    wanted_nodes, found_nodes = set(wanted_ids.values()), set(found_ids.values())
    shared = len(wanted & found)
    union = len(wanted | found)
    error = _classify(found_nodes == wanted_nodes, found, wanted)
    return Structure(
        jaccard=shared / union if union else 1.0,
        node_f1=_f1(found_nodes, wanted_nodes),
        edge_f1=_f1(found, wanted),
        exact=error is ErrorClass.EXACT,
        error_class=error,
    )


def _declared(node: str, table: NameTable) -> int:
    try:
        return table.resolve(node)
    except NamingError as error:
        raise ValueError(f"the true graph does not fit the name table: {error}") from None


def _align(node: str, table: NameTable) -> _Node:
    try:
        return table.resolve(node), ""
    except NamingError:
        return len(table), fold(node)


def _tuples(graph: NamedGraph, ids: dict[str, _Node], arcs: bool) -> set[_Tuple]:
    found: set[_Tuple] = set()
    for u, v, weight in graph.edges:
        ends, number = (ids[u], ids[v]), _exact(weight)
        if not arcs:
            found.add((ends if ends[0] <= ends[1] else (ends[1], ends[0]), number))
            continue
        found.add((ends, number))
        if not graph.directed:
            found.add(((ends[1], ends[0]), number))
    return found


def _exact(weight: Weight) -> Weight | None:
    # Python compares int and float as exact rationals and hashes equal numbers alike; only NaN needs help.
    return weight if weight == weight else None


def _f1(found: Collection[object], wanted: Collection[object]) -> float:
    size = len(found) + len(wanted)
    return 2 * len(set(found) & set(wanted)) / size if size else 1.0


def _classify(same_nodes: bool, found: set[_Tuple], wanted: set[_Tuple]) -> ErrorClass:
    if not same_nodes:
        return ErrorClass.NODE_SET
    if found == wanted:
        return ErrorClass.EXACT
    found_ends, wanted_ends = {ends for ends, _ in found}, {ends for ends, _ in wanted}
    extra, missing = bool(found_ends - wanted_ends), bool(wanted_ends - found_ends)
    both = found_ends & wanted_ends
    reweighted = any(ends in both for ends, _ in found ^ wanted)
    match extra, missing, reweighted:
        case True, False, False:
            return ErrorClass.EXTRA_EDGES
        case False, True, False:
            return ErrorClass.MISSING_EDGES
        case False, False, True:
            return ErrorClass.WEIGHT
    return ErrorClass.MIXED
