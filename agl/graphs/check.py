"""Re-verification of answers and certificates, without the solver that made them.

`check` returns the faults it finds; an empty list means that the answer is proven. What the proof rests on:

- shortest_path: potentials d with d(v) <= d(u) + w on every edge that can lie on the way, and d(end) = cost.
- bfs, topological_order, components: the definition itself, run again.
- tsp: every leaf of the branching carries multipliers of the degree and subtour rows; their bound is added up in exact
  arithmetic here, so neither the LP solver nor its tolerances are trusted. (Weights of more than 9 digits: to 1e-9.)
- coloring: a clique as large as the number of colours; otherwise nothing short exists, and one colour less is refuted
  by another SAT solver under another encoding (trusted, but independent).
- vertex_cover: disjoint cliques that need as many nodes as the cover has; otherwise the search is repeated by another
  kind of solver (trusted, but independent): MaxSAT (RC2) where a clique search made the cover, and SAT with a counter
  where MaxSAT made it. The independent set only restates that the cover covers.
- centrality: every score computed again (networkx, to 1e-9); pagerank and eigenvector against their equations.
- mst: no edge outside the tree is lighter than one on its cycle. max_flow: a cut of the same capacity.
  matching: a Tutte-Berge barrier. diameter: all distances again (networkx, exact weights).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import networkx

from agl.graphs.named import NamedGraph
from agl.graphs.solve.solution import Exact, exact, jsonable, read_exact

CLOSE = 1e-9
REFUTER = "glucose42"
"""The SAT solver behind independent refutations; the solvers use CaDiCaL and RC2 over Glucose 4.1."""
SECONDS = 60.0
"""Wall clock for one independent refutation; beyond it the fault says that nothing was proven."""


def check(
    problem_type: str,
    graph: NamedGraph,
    parameters: Mapping[str, object],
    value: object,
    witness: Any,
    certificate: Any,
) -> list[str]:
    """Faults of one solved problem, in words; empty when witness, value and optimality are all verified.

    `value` and the numbers inside `certificate` may be numbers or `"p/q"` strings, so that stored JSON can be checked.

    Raises:
        KeyError: `problem_type` is none of `agl.graphs.solve.PROBLEMS`.
    """
    checker = _CHECKERS[problem_type]
    given = {name: item for name, item in parameters.items() if item is not None}
    try:
        # Some centralities are floats; a float among exact costs spells a decimal.
        number: Exact | float = (
            value if isinstance(value, float) and problem_type == "centrality" else read_exact(value)
        )
        return list(checker(_Arcs(graph), given, number, witness, certificate))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return [f"witness or certificate is malformed: {type(error).__name__}: {error}"]


class _Arcs:
    """Exact weights per ordered pair; undirected edges count in both directions. Loops apart."""

    def __init__(self, graph: NamedGraph) -> None:
        self.graph, self.nodes, self.directed = graph, graph.nodes, graph.directed
        self.weight: dict[tuple[str, str], Exact] = {}
        self.loops: set[str] = set()
        for u, v, weight in graph.edges:
            if u == v:
                self.loops.add(u)
                continue
            self.weight[u, v] = exact(weight) if graph.weighted else 1
            if not graph.directed:
                self.weight[v, u] = self.weight[u, v]
        self.out: dict[str, list[str]] = {u: [] for u in graph.nodes}
        for u, v in self.weight:
            self.out[u].append(v)

    def linked(self, u: str, v: str) -> bool:
        return (u, v) in self.weight or (v, u) in self.weight

    def cost(self, walk: list[str]) -> Exact:
        """Raises KeyError for a missing edge."""
        return sum(self.weight[u, v] for u, v in itertools.pairwise(walk))

    def edges(self) -> Iterator[tuple[str, str]]:
        """Each undirected edge once."""
        place = {node: number for number, node in enumerate(self.nodes)}
        return (pair for pair in self.weight if self.directed or place[pair[0]] < place[pair[1]])

    def reach(self, start: str, backwards: bool = False) -> set[str]:
        out = self.out
        if backwards:
            out = {u: [] for u in self.nodes}
            for u, v in self.weight:
                out[v].append(u)
        found, queue = {start}, deque([start])
        while queue:
            for v in out[queue.popleft()]:
                if v not in found:
                    found.add(v)
                    queue.append(v)
        return found

    def networkx(self) -> networkx.Graph[str]:
        plain: networkx.Graph[str] = networkx.DiGraph() if self.directed else networkx.Graph()
        plain.add_nodes_from(self.nodes)
        plain.add_edges_from((u, v, {"weight": weight}) for (u, v), weight in self.weight.items())
        return plain


_Faults = Iterator[str]
_Value = Exact | float


def _names(arcs: _Arcs, names: Any) -> list[str]:
    if not isinstance(names, list | tuple) or not set(names) <= set(arcs.nodes):
        raise ValueError("the witness is not a list of nodes of the graph")
    return list(names)


def _shortest_path(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    start, end = str(given["start"]), str(given["end"])
    path = _names(arcs, witness)
    if not path or path[0] != start or path[-1] != end:
        yield "the path does not lead from start to end"
    elif any((u, v) not in arcs.weight for u, v in itertools.pairwise(path)):
        yield "the path uses an edge that does not exist"
    elif arcs.cost(path) != value:
        yield f"the path costs {arcs.cost(path)}, not {value}"
    potentials = {node: read_exact(number) for node, number in certificate["potentials"].items()}
    if potentials[start] != 0 or potentials[end] != value:
        yield "the potentials do not rise from 0 to the cost"
    between = arcs.reach(start) & arcs.reach(end, backwards=True)
    if not between <= potentials.keys():
        yield "a node on the way has no potential"
    elif any(
        potentials[v] > potentials[u] + weight
        for (u, v), weight in arcs.weight.items()
        if u in between and v in between
    ):
        yield "a potential is larger than the way over an edge"


def _bfs(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    first = [str(name) for name in given.get("order") or ()]
    rank = {name: place for place, name in enumerate(dict.fromkeys([*first, *arcs.nodes]))}
    start = str(given["start"])
    depth, queue = {start: 0}, deque([start])
    while queue:
        u = queue.popleft()
        for v in sorted(arcs.out[u], key=rank.__getitem__):
            if v not in depth:
                depth[v] = depth[u] + 1
                queue.append(v)
    if witness != list(depth):
        yield "the order is not the breadth-first order"
    if value != len(depth):
        yield f"{len(depth)} nodes are reached, not {value}"
    layers = [[v for v in depth if depth[v] == d] for d in range(max(depth.values()) + 1)]
    if certificate["layers"] != layers:
        yield "the layers are wrong"


def _tsp(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    tour = _names(arcs, witness)
    n = len(arcs.nodes)
    if sorted(tour[: max(1, len(tour) - 1)]) != sorted(arcs.nodes) or tour[0] != tour[-1]:
        yield "the tour does not visit every node exactly once and return"
        return
    if "start" in given and tour[0] != str(given["start"]):
        yield "the tour does not begin at start"
    if any((u, v) not in arcs.weight for u, v in itertools.pairwise(tour)):
        yield "the tour uses an edge that does not exist"
    elif arcs.cost(tour) != value:
        yield f"the tour costs {arcs.cost(tour)}, not {value}"
    if read_exact(certificate["bound"]) != value:
        yield "the stated bound is not the cost"
    if n <= 3:
        return
    scale = math.lcm(*(weight.denominator for weight in arcs.weight.values()))
    proven = _tour_bound(arcs, certificate["cuts"], certificate["tree"], {})
    if not (proven > value - Fraction(1, scale) or value - proven <= Fraction(CLOSE) * abs(Fraction(value))):
        yield f"the multipliers prove only {float(proven):g}, not {value}"


def _tour_bound(arcs: _Arcs, cuts: list[list[str]], tree: Any, fixed: dict[tuple[str, str], int]) -> Fraction:
    """The least cost of a tour that agrees with `fixed`, as far as the proof tree shows.

    A branch shows the smaller of its two sides. A leaf shows, for multipliers y of the rows "degree of v = 2" (free)
    and "edges across cut S >= 2" (not negative), 2 sum(y) + the sum over edges of min(r x), r the weight less the
    multipliers of its rows and x in {0, 1} or fixed.
    """
    if "edge" in tree:
        u, v = tree["edge"]
        if (u, v) in fixed or (u, v) not in arcs.weight:
            raise ValueError(f"branching on ({u}, {v}) is void")
        sides = []
        for side, x in (("one", 1), ("zero", 0)):
            fixed[u, v] = fixed[v, u] = x
            sides.append(_tour_bound(arcs, cuts, tree[side], fixed))
        del fixed[u, v], fixed[v, u]
        return min(sides)
    denominator, multipliers = tree["denominator"], tree["nodes"]
    used = [(set(cuts[int(place)]), multiplier) for place, multiplier in tree["cuts"].items()]
    whole = [denominator, *multipliers, *(multiplier for _, multiplier in used)]
    if any(type(number) is not int for number in whole) or denominator < 1:
        raise ValueError("multipliers are whole numbers over a positive denominator")
    if any(multiplier < 0 or not 0 < len(side & set(arcs.nodes)) < len(arcs.nodes) for side, multiplier in used):
        raise ValueError("a cut is trivial or has a negative multiplier")
    y = dict(zip(arcs.nodes, multipliers, strict=True))
    bound = Fraction(2 * sum(multipliers) + 2 * sum(multiplier for _, multiplier in used))
    for u, v in arcs.edges():
        reduced = arcs.weight[u, v] * denominator - y[u] - y[v]
        reduced -= sum(multiplier for side, multiplier in used if (u in side) != (v in side))
        bound += reduced * fixed[u, v] if (u, v) in fixed else min(reduced, 0)
    return bound / int(denominator)


def _coloring(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    if sorted(witness) != sorted(arcs.nodes):
        yield "the assignment does not colour exactly the nodes of the graph"
        return
    if arcs.loops or any(witness[u] == witness[v] for u, v in arcs.edges()):
        yield "two linked nodes share a colour"
    if sorted(set(witness.values())) != list(range(1, len(set(witness.values())) + 1)):
        yield "colours are not numbered from 1"
    if len(set(witness.values())) != value:
        yield f"the assignment uses {len(set(witness.values()))} colours, not {value}"
    if "clique" in certificate:
        yield from _clique_faults(arcs, certificate["clique"])
        if len(certificate["clique"]) != value:
            yield "the clique is smaller than the number of colours"
    elif certificate["unsat"] != value - 1:
        yield "the refuted number of colours is not one less"
    else:
        yield from _refuted(_color_clauses(arcs, int(value) - 1), f"{int(value) - 1} colours")


def _clique_faults(arcs: _Arcs, clique: Any) -> _Faults:
    nodes = _names(arcs, clique)
    if len(set(nodes)) < len(nodes) or not all(arcs.linked(u, v) for u, v in itertools.combinations(nodes, 2)):
        yield f"{nodes} is no clique"


def _color_clauses(arcs: _Arcs, k: int) -> list[list[int]]:
    """Order encoding: variable (v, i) says that the colour of v is above i, for 1 <= i < k. A clique is fixed."""
    number = {v: place * (k - 1) for place, v in enumerate(arcs.nodes)}

    clauses = [[-(number[v] + i + 1), number[v] + i] for v in arcs.nodes for i in range(1, k - 1)]
    for u, v in arcs.edges():
        for color in range(1, k + 1):
            # Colour c means above c - 1 and not above c; the ends of the edge must not both say so.
            below = [-(number[w] + color - 1) for w in (u, v) if color > 1]
            clauses.append(below + [number[w] + color for w in (u, v) if color < k])
    for color, v in enumerate(_some_clique(arcs)[:k], 1):
        clauses += [[number[v] + i] for i in range(1, color)] + [[-(number[v] + i)] for i in range(color, k)]
    return clauses


def _some_clique(arcs: _Arcs) -> list[str]:
    around = {v: {u for u in arcs.nodes if u != v and arcs.linked(u, v)} for v in arcs.nodes}
    best: list[str] = []
    for start in arcs.nodes:
        clique = [start]
        for v in sorted(around[start], key=lambda v: -len(around[v] & around[start])):
            if around[v].issuperset(clique):
                clique.append(v)
        best = max(best, clique, key=len)
    return best


def _refuted(clauses: list[list[int]], what: str) -> _Faults:
    """A fault unless the clauses are unsatisfiable."""
    from pysat.solvers import Solver

    if any(not clause for clause in clauses):
        return
    end = time.monotonic() + SECONDS
    with Solver(name=REFUTER, bootstrap_with=clauses) as solver:
        answer = None
        while answer is None:
            if time.monotonic() > end:
                yield f"that {what} do not suffice was not verified within {SECONDS:g} seconds"
                return
            solver.conf_budget(5000)
            answer = solver.solve_limited()
    if answer:
        yield f"{what} suffice"


def _vertex_cover(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    cover = _names(arcs, witness)
    rest = _names(arcs, certificate["independent_set"])
    if len(set(cover)) < len(cover) or len(cover) != value:
        yield f"the cover has {len(set(cover))} different nodes, not {value}"
    if sorted(cover + rest) != sorted(arcs.nodes):
        yield "cover and independent set do not split the nodes"
    if not arcs.loops <= set(cover) or any(u not in cover and v not in cover for u, v in arcs.weight):
        yield "an edge is not covered"
    if "cliques" in certificate:
        inside = [node for clique in certificate["cliques"] for node in clique]
        if len(set(inside)) < len(inside) or arcs.loops & set(inside):
            yield "the cliques overlap or hold a node with a self-loop"
        for clique in certificate["cliques"]:
            yield from _clique_faults(arcs, clique)
        needed = len(arcs.loops) + sum(len(clique) - 1 for clique in certificate["cliques"])
        if needed != value:
            yield f"the cliques need {needed} nodes, not {value}"
    elif certificate["proof"] == "branch_and_bound":
        yield from _smallest_cover(arcs, len(cover))
    elif certificate["proof"] != "maxsat":
        yield "the certificate names no proof"
    else:
        yield from _refuted(_cover_clauses(arcs, len(cover) - 1), f"{len(cover) - 1} nodes")


def _smallest_cover(arcs: _Arcs, size: int) -> _Faults:
    from pysat.examples.rc2 import RC2
    from pysat.formula import WCNF

    number = {v: place + 1 for place, v in enumerate(arcs.nodes)}
    formula = WCNF()
    for u, v in [*arcs.edges(), *((v, v) for v in sorted(arcs.loops))]:
        formula.append([number[u], number[v]])
    for v in arcs.nodes:
        formula.append([-number[v]], weight=1)
    with RC2(formula, solver="g4", adapt=True) as solver:
        alarm = threading.Timer(SECONDS, solver.interrupt)
        alarm.start()
        model = solver.compute(expect_interrupt=True)
        alarm.cancel()
        alarm.join()
        if model is None:
            yield f"that {size - 1} nodes do not suffice was not verified within {SECONDS:g} seconds"
        elif solver.cost != size:
            yield f"{solver.cost} nodes suffice"


def _cover_clauses(arcs: _Arcs, most: int) -> list[list[int]]:
    from pysat.card import CardEnc, EncType

    number = {v: place + 1 for place, v in enumerate(arcs.nodes)}
    if most < 0:
        return [[]]
    limit = CardEnc.atmost(lits=list(number.values()), bound=most, encoding=EncType.totalizer)
    loops = [[number[v]] for v in sorted(arcs.loops)]
    return loops + [[number[u], number[v]] for u, v in arcs.edges()] + list(limit.clauses)


def _centrality(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    measure = given.get("measure", given.get("algorithm"))
    scores = {v: s if isinstance(s, float) else read_exact(s) for v, s in certificate["scores"].items()}
    if scores.keys() != set(arcs.nodes):
        yield "the scores do not belong to the nodes of the graph"
        return
    weighted = bool(given.get("weighted", True)) and arcs.graph.weighted
    if measure in ("pagerank", "eigenvector"):
        yield from _equation(arcs, measure, weighted, float(given.get("damping", 0.85)), scores)
    else:
        wanted = _scores_again(arcs, measure, weighted, given)
        wrong = [v for v in arcs.nodes if abs(float(scores[v]) - float(wanted[v])) > CLOSE]
        if wrong:
            yield f"the score of {wrong[0]} is {float(wanted[wrong[0]]):g}, not {jsonable(scores[wrong[0]])}"
    highest = max(scores.values())
    if value != highest:
        yield "the value is not the highest score"
    margin = CLOSE * abs(highest) if isinstance(highest, float) else 0
    if witness != [v for v in arcs.nodes if scores[v] >= highest - margin]:
        yield "the witness is not the set of nodes with the highest score"


def _scores_again(arcs: _Arcs, measure: str, weighted: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    plain = arcs.networkx()
    if measure == "betweenness":
        return networkx.betweenness_centrality(plain, weight="weight" if weighted else None)
    direction = given.get("direction")
    if measure == "degree":
        if not arcs.directed or direction in (None, "both"):
            return dict(plain.degree())
        return dict(plain.in_degree() if direction == "in" else plain.out_degree())  # type: ignore[attr-defined]
    if arcs.directed and direction == "out":
        plain = plain.reverse()  # type: ignore[attr-defined]
    scaling = given.get("component_scaling", True)
    return networkx.closeness_centrality(plain, distance="weight" if weighted else None, wf_improved=scaling)


def _equation(
    arcs: _Arcs, measure: str, weighted: bool, damping: float, scores: Mapping[str, Exact | float]
) -> _Faults:
    strength = {pair: float(weight) if weighted else 1.0 for pair, weight in arcs.weight.items()}
    score = {v: float(s) for v, s in scores.items()}
    n = len(arcs.nodes)
    received = dict.fromkeys(arcs.nodes, 0.0)
    if measure == "eigenvector":
        for (u, v), weight in strength.items():
            received[v] += score[u] * weight
        if min(score.values()) < -CLOSE or abs(sum(s * s for s in score.values()) - 1) > 1e-6:
            yield "the vector is not a non-negative one of length 1"
        value = sum(received[v] * score[v] for v in arcs.nodes)
        if any(abs(received[v] - value * score[v]) > 1e-6 * max(1.0, value) for v in arcs.nodes):
            yield "the scores are no eigenvector"
        return
    sent = dict.fromkeys(arcs.nodes, 0.0)
    for (u, _), weight in strength.items():
        sent[u] += weight
    for (u, v), weight in strength.items():
        if sent[u] > 0:
            received[v] += score[u] * weight / sent[u]
    dangling = sum(score[v] for v in arcs.nodes if sent[v] == 0) / n
    if any(abs(score[v] - (1 - damping) / n - damping * (received[v] + dangling)) > 1e-9 for v in arcs.nodes):
        yield "the scores do not satisfy the pagerank equation"


def _mst(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    pairs = [tuple(_names(arcs, edge)) for edge in witness]
    if any(len(pair) != 2 or pair not in arcs.weight for pair in pairs):
        yield "the tree uses an edge that does not exist"
        return
    tree: networkx.Graph[str] = networkx.Graph()
    tree.add_nodes_from(arcs.nodes)
    tree.add_edges_from((u, v, {"weight": arcs.weight[u, v]}) for u, v in pairs)
    if len(pairs) != len(arcs.nodes) - 1 or not networkx.is_connected(tree):
        yield "the edges do not form a spanning tree"
        return
    if (total := sum(arcs.weight[u, v] for u, v in pairs)) != value:
        yield f"the tree weighs {total}, not {value}"
    for root in arcs.nodes:
        heaviest: dict[str, Exact] = {}
        for u, v in networkx.bfs_edges(tree, root):
            weight = arcs.weight[u, v]
            heaviest[v] = max(heaviest[u], weight) if u in heaviest else weight
        if any(arcs.weight[root, v] < heaviest[v] for v in arcs.out[root]):
            yield f"a lighter edge at {root} could replace one of the tree"
            return


def _topological_order(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    place = {node: number for number, node in enumerate(_names(arcs, witness))}
    if sorted(witness) != sorted(arcs.nodes) or value != len(arcs.nodes):
        yield "the order does not hold every node once"
    elif arcs.loops or any(place[u] > place[v] for u, v in arcs.weight):
        yield "an edge points backwards"


def _components(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    if sorted(node for group in witness for node in group) != sorted(arcs.nodes) or len(witness) != value:
        yield "the components do not split the nodes into that many groups"
        return
    both = arcs if not arcs.directed else _Arcs(NamedGraph(arcs.nodes, arcs.graph.edges, False, False))
    strong = arcs.directed and given.get("kind") == "strong"
    for group in witness:
        whole = arcs.reach(group[0]) & arcs.reach(group[0], backwards=True) if strong else both.reach(group[0])
        if whole != set(group):
            yield f"the component of {group[0]} has {len(whole)} nodes, not {len(group)}"
            return


def _max_flow(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    source, target = str(given["source"]), str(given["target"])
    excess: dict[str, Exact] = dict.fromkeys(arcs.nodes, 0)
    seen: set[tuple[str, str]] = set()
    for u, v, sent in witness:
        amount = read_exact(sent)
        if (u, v) in seen or not 0 <= amount <= arcs.weight[u, v]:
            yield f"the flow from {u} to {v} is listed twice or not between 0 and its capacity"
        if not arcs.directed and (v, u) in seen:
            yield f"the edge ({u}, {v}) carries flow both ways"
        seen.add((u, v))
        excess[u] -= amount
        excess[v] += amount
    if any(amount for v, amount in excess.items() if v not in (source, target)):
        yield "flow is not conserved"
    if excess[target] != value:
        yield f"{excess[target]} arrives, not {value}"
    side = set(_names(arcs, certificate["cut"]))
    if source not in side or target in side:
        yield "the cut does not separate the ends"
    if sum(weight for (u, v), weight in arcs.weight.items() if u in side and v not in side) != value:
        yield "the capacity of the cut is not the value"


def _matching(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    ends = [node for u, v in witness for node in (u, v)]
    if any((u, v) not in arcs.weight for u, v in witness) or len(set(ends)) < len(ends) or len(witness) != value:
        yield "the edges are no matching of that size"
    barrier = set(_names(arcs, certificate["barrier"]))
    left = arcs.networkx()
    left.remove_nodes_from(barrier)
    odd = sum(len(part) % 2 for part in networkx.connected_components(left))
    if odd - len(barrier) != len(arcs.nodes) - len(ends):
        yield "the barrier does not prove the matching largest"


def _diameter(arcs: _Arcs, given: Mapping[str, Any], value: _Value, witness: Any, certificate: Any) -> _Faults:
    lengths = dict(networkx.all_pairs_dijkstra_path_length(arcs.networkx()))
    if any(len(row) < len(arcs.nodes) for row in lengths.values()):
        yield "some node cannot be reached from another"
        return
    far = {v: max(lengths[v].values()) for v in arcs.nodes}
    if {v: read_exact(number) for v, number in certificate["eccentricities"].items()} != far:
        yield "the eccentricities are wrong"
    if max(far.values()) != value:
        yield f"the diameter is {max(far.values())}, not {value}"
    path = _names(arcs, witness)
    if not path or arcs.cost(path) != value or lengths[path[0]][path[-1]] != value:
        yield "the path does not have the length of the diameter"


_CHECKERS = {
    "shortest_path": _shortest_path,
    "bfs": _bfs,
    "tsp": _tsp,
    "coloring": _coloring,
    "vertex_cover": _vertex_cover,
    "centrality": _centrality,
    "mst": _mst,
    "topological_order": _topological_order,
    "components": _components,
    "max_flow": _max_flow,
    "matching": _matching,
    "diameter": _diameter,
}
