"""Exact travelling-salesman tours by branch and bound over the subtour relaxation, with a proof anyone can add up.

The relaxation is the classic one (Dantzig, Fulkerson, Johnson 1954): degree 2 at every node, at least 2 edges across
every cut; HiGHS solves it and violated cuts are added as they are found. HiGHS is trusted for nothing: each leaf of the
branching is closed by dual multipliers, rounded to rationals, whose bound is added up in integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agl.graphs.solve.indexed import Indexed
from agl.graphs.solve.limits import Deadline
from agl.graphs.solve.parameters import Parameters
from agl.graphs.solve.solution import Exact, Solution, SolveError, jsonable, listed, shown

LARGEST = 10**9
"""Scaled weights beyond this are proven to a relative 1e-9 instead of exactly."""
DEEPEST = 400
ROUNDINGS = (1, 2, 12, 1000, 10**6)
"""Denominators tried for the multipliers of a leaf; the first that proves it is kept, so certificates stay short."""


def tsp(graph: Indexed, parameters: Parameters, deadline: Deadline) -> Solution:
    """The cheapest closed tour through every node exactly once, from `start` (default: the first node).

    Two nodes go there and back over their one edge; a single node costs nothing.

    Raises:
        SolveError: `no_tour`, `directed_unsupported`.
    """
    graph.undirected_only("tsp")
    start = parameters.node("start") if "start" in parameters else 0
    if len(graph) <= 3:
        tour, certificate = _only_tour(graph), {"only_tour": True}
    else:
        _refuse_hopeless(graph)
        tour, certificate = _Search(graph, deadline).run()
    cost = sum(graph.out[u][v] for u, v in zip(tour, tour[1:] + tour[:1], strict=True) if u != v)
    tour = _oriented(tour, start)
    names = graph.named(tour + tour[:1] if len(tour) > 1 else tour)
    value: Exact = graph.value(cost)
    return Solution(
        problem_type="tsp",
        algorithm="exact",
        value=value,
        witness=names,
        certificate=certificate | {"bound": jsonable(value)},
        note=f"tour {listed(names, ' -> ')}; cost {shown(value)}; proven optimal",
    )


def _no_tour(why: str) -> SolveError:
    return SolveError("no_tour", f"no closed tour visits every node exactly once: {why}")


def _only_tour(graph: Indexed) -> list[int]:
    tour = list(range(len(graph)))
    for u, v in zip(tour, tour[1:] + tour[:1], strict=True):
        if u != v and v not in graph.out[u]:
            raise _no_tour(f"{graph.names[u]} and {graph.names[v]} are not linked")
    return tour


def _refuse_hopeless(graph: Indexed) -> None:
    import networkx

    for node, row in enumerate(graph.out):
        if len(row) < 2:
            raise _no_tour(f"{graph.names[node]} has fewer than two neighbours")
    plain: networkx.Graph[int] = networkx.Graph((u, v) for u, v, _ in graph.pairs())
    if not networkx.is_connected(plain):
        raise _no_tour("the graph is not connected")
    cut = min(networkx.articulation_points(plain), default=None)
    if cut is not None:
        raise _no_tour(f"removing {graph.names[cut]} disconnects the graph")


def _oriented(tour: list[int], start: int) -> list[int]:
    at = tour.index(start)
    turned = tour[at:] + tour[:at]
    backwards = turned[:1] + turned[:0:-1]
    return min(turned, backwards)


class _Search:
    """Branch and bound for n >= 4. Edges are numbered in sorted order; `cuts` hold the side without node 0."""

    def __init__(self, graph: Indexed, deadline: Deadline) -> None:
        self.graph, self.deadline = graph, deadline
        self.n = len(graph)
        pairs = graph.pairs()
        self.ends = np.array([(u, v) for u, v, _ in pairs])
        self.costs = [weight for _, _, weight in pairs]
        largest = max(map(abs, self.costs))
        # LP units: `unit` scaled weights make one LP cost, so that doubles keep enough digits.
        self.unit = 1 if largest <= LARGEST else -(-largest // 10**6)
        self.cuts: list[NDArray[np.bool_]] = []
        self.known: set[bytes] = set()
        self.fixed: dict[int, int] = {}
        self.leaves: list[dict[str, Any]] = []
        self.best: list[int] | None = None
        self.best_cost = 0
        self.worst_cost = sum(sorted(self.costs)[-self.n :])
        penalty = 10.0 * self.n * (largest / self.unit + 1)
        self.lp = _Relaxation(self.n, self.ends, [cost / self.unit for cost in self.costs], penalty, deadline)

    def run(self) -> tuple[list[int], dict[str, Any]]:
        """The best tour and its certificate.

        Raises:
            SolveError: `no_tour`, `timeout`.
        """
        tree = self._close()
        if self.best is None:
            raise _no_tour("an exhaustive search found none")
        used = sorted({int(cut) for leaf in self.leaves for cut in leaf["cuts"]})
        place = {str(cut): str(new) for new, cut in enumerate(used)}
        for leaf in self.leaves:
            leaf["cuts"] = {place[cut]: multiplier for cut, multiplier in leaf["cuts"].items()}
        cuts = [self.graph.named(np.flatnonzero(self.cuts[cut]).tolist()) for cut in used]
        return self.best, {"cuts": cuts, "tree": tree}

    def _close(self) -> dict[str, Any]:
        """The proof tree of the subproblem in which the edges `fixed` are in or out."""
        edge = self._work()
        if edge is None:
            return self.leaves[-1]
        if len(self.fixed) >= DEEPEST:
            raise SolveError("timeout", "the proof has too many levels; try a smaller graph")
        one, zero = self._fix(edge, 1), self._fix(edge, 0)
        return {"edge": self.graph.named(self.ends[edge].tolist()), "one": one, "zero": zero}

    def _fix(self, edge: int, value: int) -> dict[str, Any]:
        self.fixed[edge] = value
        self.lp.bound(edge, value)
        tree = self._close()
        self.lp.bound(edge, None)
        del self.fixed[edge]
        return tree

    def _work(self) -> int | None:
        """Close the subproblem with a leaf (None), or say on which edge to branch."""
        while True:
            objective, x, slack, duals = self.lp.solve()
            threshold = (self.best_cost - self._gap()) if self.best is not None else self.worst_cost
            if objective * self.unit > threshold - 1e-3 * self.unit:
                leaf = self._leaf(duals, threshold)
                if leaf is not None:
                    self.leaves.append(leaf)
                    return None
            fresh = [cut for cut in _violated_cuts(self.n, self.ends, x) if cut.tobytes() not in self.known]
            for cut in fresh:
                self.known.add(cut.tobytes())
                self.cuts.append(cut)
                self.lp.add_cut(cut)
            if fresh:
                continue
            off = np.abs(x - 0.5)
            if off.min() > 0.499 and slack < 1e-6:
                tour = _cycle(self.n, self.ends[x > 0.5])
                cost = sum(self.costs[edge] for edge in np.flatnonzero(x > 0.5))
                if len(tour) == self.n and (self.best is None or cost < self.best_cost):
                    self.best, self.best_cost = tour, cost
                    continue
            free = [edge for edge in range(len(self.costs)) if edge not in self.fixed]
            if not free:
                raise SolveError("timeout", "the weights have too many digits for a proof; round them")
            return min(free, key=lambda edge: (round(float(off[edge]), 6), self.costs[edge], edge))

    def _gap(self) -> int:
        return 1 if self.unit == 1 else 1 + abs(self.best_cost) // LARGEST

    def _leaf(self, duals: NDArray[np.float64], threshold: int) -> dict[str, Any] | None:
        """Multipliers that prove every tour of the subproblem to cost more than `threshold`, if rounding allows."""
        for denominator in ROUNDINGS:
            node = [round(float(dual) * denominator) * self.unit for dual in duals[: self.n]]
            cut = {
                str(place): rounded * self.unit
                for place, dual in enumerate(duals[self.n :])
                if (rounded := round(float(dual) * denominator)) > 0
            }
            if self._bound(node, cut, denominator) > threshold * denominator:
                return {"denominator": denominator * self.graph.scale, "nodes": node, "cuts": cut}
        return None

    def _bound(self, node: list[int], cut: dict[str, int], denominator: int) -> int:
        weights = np.array(node, dtype=object)
        reduced = np.array(self.costs, dtype=object) * denominator - weights[self.ends[:, 0]] - weights[self.ends[:, 1]]
        for place, multiplier in cut.items():
            side = self.cuts[int(place)]
            reduced[side[self.ends[:, 0]] ^ side[self.ends[:, 1]]] -= multiplier
        forced = sum(int(reduced[edge]) for edge, value in self.fixed.items() if value)
        free = sum(value for edge, value in enumerate(reduced.tolist()) if value < 0 and edge not in self.fixed)
        bound: int = 2 * sum(node) + 2 * sum(cut.values()) + forced + free
        return bound


class _Relaxation:
    """The LP. Every row has a penalised slack, so that it stays feasible and an infeasible branch shows as a cost."""

    def __init__(self, n: int, ends: NDArray[np.int64], costs: list[float], penalty: float, deadline: Deadline) -> None:
        import highspy

        self.n, self.m, self.ends, self.penalty, self.deadline = n, len(costs), ends, penalty, deadline
        self.optimal = highspy.HighsModelStatus.kOptimal
        # The public subclass prints a banner from its constructor, before any option can silence it.
        self.highs = highspy._Highs()  # type: ignore[attr-defined]
        self.highs.setOptionValue("output_flag", False)
        self.highs.setOptionValue("presolve", "off")
        self.highs.setOptionValue("solver", "simplex")
        self.highs.setOptionValue("parallel", "off")
        self.highs.setOptionValue("random_seed", 0)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.m + 2 * n, n
        lp.col_cost_ = np.array(costs + [penalty] * (2 * n))
        lp.col_lower_ = np.zeros(self.m + 2 * n)
        lp.col_upper_ = np.concatenate([np.ones(self.m), np.full(2 * n, highspy.kHighsInf)])
        lp.row_lower_ = lp.row_upper_ = np.full(n, 2.0)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate([2 * np.arange(self.m + 1), 2 * self.m + 1 + np.arange(2 * n)])
        lp.a_matrix_.index_ = np.concatenate([ends.ravel(), np.repeat(np.arange(n), 2)])
        lp.a_matrix_.value_ = np.concatenate([np.ones(2 * self.m), np.tile([1.0, -1.0], n)])
        self.highs.passModel(lp)
        self.rows = n

    def bound(self, edge: int, value: int | None) -> None:
        low, high = (0.0, 1.0) if value is None else (float(value), float(value))
        self.highs.changeColBounds(edge, low, high)

    def add_cut(self, side: NDArray[np.bool_]) -> None:
        crossing = np.flatnonzero(side[self.ends[:, 0]] ^ side[self.ends[:, 1]]).astype(np.int32)
        self.highs.addRow(2.0, float("inf"), len(crossing), crossing, np.ones(len(crossing)))
        self.highs.addCol(self.penalty, 0.0, float("inf"), 1, np.array([self.rows], dtype=np.int32), np.ones(1))
        self.rows += 1

    def solve(self) -> tuple[float, NDArray[np.float64], float, NDArray[np.float64]]:
        """Objective, edge values, total slack, row duals.

        Raises:
            SolveError: `timeout`.
        """
        self.deadline.check()
        self.highs.setOptionValue("time_limit", self.highs.getRunTime() + max(0.1, self.deadline.left()))
        self.highs.run()
        if self.highs.getModelStatus() != self.optimal:
            self.deadline.check()
            raise SolveError("timeout", f"the relaxation was not solved: {self.highs.getModelStatus()}")
        solution = self.highs.getSolution()
        columns = np.array(solution.col_value)
        return (
            float(self.highs.getInfo().objective_function_value),
            columns[: self.m],
            float(columns[self.m :].sum()),
            np.array(solution.row_dual),
        )


def _violated_cuts(n: int, ends: NDArray[np.int64], x: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Node sets (without node 0) that fewer than 2 edges leave: the minimum-cut phases of Stoer and Wagner (1997)."""
    matrix = np.zeros((n, n))
    support = x > 1e-9
    matrix[ends[support, 0], ends[support, 1]] = x[support]
    matrix += matrix.T
    merged = np.eye(n, dtype=bool)
    alive = np.ones(n, dtype=bool)
    cuts: dict[bytes, NDArray[np.bool_]] = {}
    for left in range(n, 1, -1):
        weight = matrix[0].copy()
        waiting = alive.copy()
        waiting[0] = False
        before = last = 0
        for _ in range(left - 1):
            before, last = last, int(np.argmax(np.where(waiting, weight, -1.0)))
            waiting[last] = False
            if waiting.any():
                weight = weight + matrix[last]
        if weight[last] < 2 - 1e-4:
            side = ~merged[last] if merged[last, 0] else merged[last].copy()
            cuts[side.tobytes()] = side
        merged[before] |= merged[last]
        matrix[before] += matrix[last]
        matrix[:, before] += matrix[:, last]
        matrix[before, before] = 0.0
        matrix[last] = matrix[:, last] = 0.0
        alive[last] = False
    return list(cuts.values())


def _cycle(n: int, edges: NDArray[np.int64]) -> list[int]:
    """The cycle through node 0 of a graph in which every node has degree 2."""
    beside: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges.tolist():
        beside[u].append(v)
        beside[v].append(u)
    tour, before = [0], -1
    while True:
        here = tour[-1]
        following = beside[here][0] if beside[here][0] != before else beside[here][1]
        if following == 0:
            return tour
        tour.append(following)
        before = here
