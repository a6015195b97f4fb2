"""Minimum vertex cover, as the complement of a maximum independent set."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Solution, SolveError, listed

BRANCHES = 20_000
"""Branches after which the clique search gives up and MaxSAT takes over; a count, so that results never depend on
the speed of the machine."""


def vertex_cover(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """A smallest set of nodes that touches every edge; directions are ignored, a self-loop forces its node.

    The certificate holds the independent set of the other nodes and, when one was found, a partition of the nodes into
    cliques whose sizes less one add up to the cover (a clique of q nodes needs q - 1 of them). Otherwise `proof` names
    the exact search that closed the gap.
    """
    forced = set(graph.loops)
    neighbours = {u: (set(graph.out[u]) | set(graph.into[u])) - forced for u in range(len(graph)) if u not in forced}
    chosen, kernel = _reduced(neighbours)
    proof = "branch_and_bound"
    for part in _parts(kernel):
        found = _clique_search(part, deadline)
        if found is None:
            found, proof = independent_by_maxsat(part, deadline), "maxsat"
        chosen += found
    independent = set(chosen)
    cover = [u for u in range(len(graph)) if u not in independent]
    names = graph.named(cover)
    certificate: dict[str, Any] = {"independent_set": graph.named(sorted(independent))}
    cliques = _clique_partition(neighbours, independent)
    if cliques is None:
        certificate["proof"] = proof
    else:
        certificate["cliques"] = [graph.named(clique) for clique in cliques if len(clique) > 1]
    return Solution(
        problem_type="vertex_cover",
        algorithm="exact",
        value=len(cover),
        witness=names,
        certificate=certificate,
        note=f"cover {{{listed(names, ', ')}}}; size {len(cover)}",
    )


def _reduced(neighbours: dict[int, set[int]]) -> tuple[list[int], dict[int, set[int]]]:
    """Take nodes with at most one neighbour into the independent set until none is left: (taken, the rest)."""
    left = {u: set(around) for u, around in neighbours.items()}
    taken: list[int] = []
    small = sorted(u for u, around in left.items() if len(around) <= 1)
    while small:
        u = small.pop()
        if u not in left or len(left[u]) > 1:
            continue
        taken.append(u)
        for gone in (u, *left[u]):
            for v in sorted(left.pop(gone)):
                if v in left:
                    left[v].discard(gone)
                    if len(left[v]) <= 1:
                        small.append(v)
    return taken, left


def _parts(neighbours: dict[int, set[int]]) -> list[dict[int, set[int]]]:
    parts: list[dict[int, set[int]]] = []
    seen: set[int] = set()
    for start in sorted(neighbours):
        if start in seen:
            continue
        part, stack = {start}, [start]
        while stack:
            fresh = neighbours[stack.pop()] - part
            part |= fresh
            stack.extend(fresh)
        seen |= part
        parts.append({u: neighbours[u] for u in sorted(part)})
    return parts


def _clique_search(neighbours: dict[int, set[int]], deadline: Deadline) -> list[int] | None:
    """Maximum clique of the complement with colour bounds (Tomita and Seki 2003), or None when it takes too long."""
    nodes = sorted(neighbours, key=lambda u: (len(neighbours[u]), u))
    bit = {u: 1 << place for place, u in enumerate(nodes)}
    linked = [sum(bit[v] for v in neighbours[u]) for u in nodes]
    apart = [~linked[place] & ~bit[u] for place, u in enumerate(nodes)]
    best: list[int] = []
    branches = 0

    def expand(chosen: list[int], candidates: int) -> bool:
        nonlocal best, branches
        branches += 1
        if branches > BRANCHES:
            return False
        if branches % 256 == 0:
            deadline.check()
        # A clique holds at most one node of the independent set: the classes bound it from above.
        ordered: list[tuple[int, int]] = []
        classes, left = 0, candidates
        while left:
            classes += 1
            clique = left
            while clique:
                place = (clique & -clique).bit_length() - 1
                clique &= linked[place]
                left &= ~(1 << place)
                ordered.append((place, classes))
        for place, bound in reversed(ordered):
            if len(chosen) + bound <= len(best):
                return True
            grown = [*chosen, place]
            rest = candidates & apart[place]
            if rest:
                if not expand(grown, rest):
                    return False
            elif len(grown) > len(best):
                best = grown
            candidates &= ~(1 << place)
        return True

    if not expand([], (1 << len(nodes)) - 1):
        return None
    return [nodes[place] for place in best]


def independent_by_maxsat(neighbours: dict[int, set[int]], deadline: Deadline) -> list[int]:
    """A maximum independent set by core-guided MaxSAT (RC2).

    Raises:
        SolveError: `timeout`.
    """
    from pysat.examples.rc2 import RC2
    from pysat.formula import WCNF

    nodes = sorted(neighbours)
    number = {u: place + 1 for place, u in enumerate(nodes)}
    formula = WCNF()
    for u in nodes:
        formula.append([-number[u]], weight=1)
        for v in sorted(neighbours[u]):
            if u < v:
                formula.append([number[u], number[v]])
    with RC2(formula, solver="g4", adapt=True) as solver:
        alarm = threading.Timer(max(0.0, deadline.left()), solver.interrupt)
        alarm.start()
        try:
            model = solver.compute(expect_interrupt=True)
        finally:
            alarm.cancel()
            alarm.join()
    if model is None:
        deadline.check()
        raise SolveError("timeout", "the search for a minimum cover was interrupted")
    true = set(model)
    return [u for u in nodes if number[u] not in true]


def _clique_partition(neighbours: dict[int, set[int]], independent: set[int]) -> list[list[int]] | None:
    """Disjoint cliques over all nodes, one per independent node, if greedy growth finds them."""

    def grown(order: Iterable[int]) -> list[list[int]] | None:
        cliques = [[u] for u in sorted(independent)]
        for u in order:
            home = next((clique for clique in cliques if neighbours[u].issuperset(clique)), None)
            if home is None:
                return None
            home.append(u)
        return [sorted(clique) for clique in cliques]

    others = [u for u in neighbours if u not in independent]
    choices = {u: len(neighbours[u] & independent) for u in others}
    return grown(sorted(others, key=lambda u: (choices[u], u))) or _by_matching(neighbours, independent, others)


def _by_matching(neighbours: dict[int, set[int]], independent: set[int], others: list[int]) -> list[list[int]] | None:
    """A partition into edges and single nodes (König): every covered node matched into the independent set."""
    partner: dict[int, int] = {}

    def augment(u: int, tried: set[int]) -> bool:
        for v in sorted(neighbours[u] & independent):
            if v not in tried:
                tried.add(v)
                if v not in partner or augment(partner[v], tried):
                    partner[v] = u
                    return True
        return False

    if not all(augment(u, set()) for u in others):
        return None
    return [sorted([v, partner[v]]) if v in partner else [v] for v in sorted(independent)]
