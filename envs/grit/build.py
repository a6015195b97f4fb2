"""Generated GRIT splits: item i is a pure function of (split, recipe, i), the recipe holding the seed.

Sizes and counts are those of the paper's tables (arXiv 2608.27142). Items are ordered so that every prefix is balanced
over tasks, forms and schemes: tasks alternate, and each task goes through all of its graphs before it shows a second
view of any.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, overload

from agl.core import Frozen
from agl.errors import DataError
from agl.graphs.check import check
from agl.graphs.named import GraphError, NamedGraph
from agl.graphs.solve import Limits, Solution, solve
from envs.grit.graphs import WEIGHTED, Profile, WeightedEdge, base_graph, far_pair
from envs.grit.items import FORMS, MEASURES, SCHEMES, TASKS, Form, Gold, GritTask, Query, Scheme, TaskName
from envs.grit.names import draw
from envs.grit.scenarios import Scenario, scenarios
from envs.grit.views import NODE, question


@dataclass(frozen=True)
class Split:
    """Graphs of sizes `smallest..largest`, `per_size` of each, for every task; TSP sizes are larger by `tsp_shift`.

    `drops_views`: vertex-cover graphs leave out one naming scheme each, which gives the published question count.
    `eighths`: the parts of the space of graphs that it draws from (`eighth`), None for all.
    """

    name: str
    smallest: int
    largest: int
    per_size: int
    tsp_shift: int = 1
    ood: bool = False
    drops_views: bool = False
    eighths: range | None = None

    @property
    def graphs(self) -> int:
        """Number of graphs per task."""
        return (self.largest - self.smallest + 1) * self.per_size


SPLITS = {
    split.name: split
    for split in (
        Split("mini", 4, 7, 2, tsp_shift=0),
        Split("train", 4, 39, 10, eighths=range(6)),
        Split("test", 10, 39, 2, drops_views=True, eighths=range(6, 7)),
        Split("large", 41, 60, 1, tsp_shift=0),
        Split("ood", 10, 39, 1, ood=True, eighths=range(7, 8)),
    )
}
"""`mini` is ours, for demonstrations and tests; the others are the paper's. No graph is in two of the paper's splits,
whatever their seeds: `large` has its own sizes, and the others share no eighth. `mini` shares graphs with `train`,
because there are so few of four nodes."""

SHARED_SIZES = 10
"""Nodes from which on a size is in several splits; smaller graphs are drawn from all eighths."""

EXAMPLE_NODES = 4


class Recipe(Frozen):
    """How to generate: the seed, the graph profile, plane distances for TSP, all eight views of vertex cover,
    typographic apostrophes (`unicode`) in names and texts."""

    seed: int = 0
    profile: Profile = "edge_budget"
    metric: bool = False
    full_views: bool = False
    unicode: bool = False


@dataclass(frozen=True)
class Base:
    """A graph with its problem, answer and story, before it is told in any view."""

    edges: tuple[WeightedEdge, ...]
    query: Query
    gold: Gold
    certificate: dict[str, Any]
    scenario: Scenario


View = tuple[Form, Scheme]
VIEWS: tuple[View, ...] = tuple((FORMS[(v + v // 4) % 2], SCHEMES[v % 4]) for v in range(8))
"""All eight views; each four in a row hold every scheme, each two in a row both forms."""


class Generated(Sequence[GritTask]):
    """The items of a generated split, made when they are asked for; `graphs` per task, or all, and the first `limit`.

    Raises:
        DataError: there is no split of that name, no scenario for it, or it has fewer graphs.
    """

    def __init__(self, split: str, recipe: Recipe, limit: int | None = None, *, graphs: int | None = None) -> None:
        if split not in SPLITS:
            raise DataError(f"expected a GRIT split ({', '.join(SPLITS)}), got {split!r}")
        self.split, self.recipe = SPLITS[split], recipe
        for task in TASKS:
            scenarios(task, self.split.ood)
        if graphs is not None and not 1 <= graphs <= self.split.graphs:
            raise DataError(f"expected 1 to {self.split.graphs} graphs per task in {split}, got {graphs}")
        self._order = order(self.split, recipe.full_views, graphs)
        self._count = len(self._order) if limit is None else max(0, min(limit, len(self._order)))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> GritTask: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GritTask]: ...
    def __getitem__(self, index: int | slice) -> GritTask | Sequence[GritTask]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"item {index} of {self._count}")
        task, graph, view = self._order[index % self._count]
        return item(self.split, self.recipe, task, graph, view)


@cache
def order(split: Split, full_views: bool, graphs: int | None = None) -> tuple[tuple[TaskName, int, View], ...]:
    """(task, graph, view) of every item of a split, or of its first `graphs` graphs per task."""
    columns: list[list[tuple[TaskName, int, View]]] = []
    count = split.graphs if graphs is None else graphs
    for offset, task in enumerate(TASKS):
        told = [views(split, task, graph, full_views) for graph in range(count)]
        columns.append(
            [
                (task, graph, told[graph][(turn + graph + offset) % len(told[graph])])
                for turn in range(max(map(len, told)))
                for graph in range(count)
                if turn < len(told[graph])
            ]
        )
    longest = max(map(len, columns))
    return tuple(column[i] for i in range(longest) for column in columns if i < len(column))


def views(split: Split, task: TaskName, graph: int, full_views: bool = False) -> tuple[View, ...]:
    """The views in which a graph is told."""
    if task == "vertex_cover" and split.drops_views and not full_views:
        return tuple(view for view in VIEWS if view[1] != SCHEMES[graph % len(SCHEMES)])
    return VIEWS


def item(split: Split, recipe: Recipe, task: TaskName, graph: int, view: View) -> GritTask:
    """One question of a split."""
    n = _sizes(split, recipe.seed, task)[graph]
    stem = f"{split.name}-{_SHORT[task]}-{graph:04d}"
    return tell(base(task, n, split, f"{recipe.seed}/{stem}", recipe, graph), recipe, stem, split, task, n, view)


def example(task: TaskName, view: View, index: int) -> GritTask:
    """A worked example, an item of no split: a graph of four nodes from a seed of its own."""
    split = Split("example", EXAMPLE_NODES, EXAMPLE_NODES, 1)
    stem = f"example-{_SHORT[task]}-{index:04d}"
    recipe = Recipe()
    return tell(base(task, EXAMPLE_NODES, split, stem, recipe, index), recipe, stem, split, task, EXAMPLE_NODES, view)


_SHORT = {
    "shortest_path": "sp",
    "bfs": "bfs",
    "tsp": "tsp",
    "coloring": "col",
    "vertex_cover": "vc",
    "centrality": "cen",
}
_SHORT_FORM = {"standard": "std", "realistic": "real"}


@lru_cache(maxsize=64)
def _sizes(split: Split, seed: int, task: TaskName) -> tuple[int, ...]:
    """The size of each graph, shuffled so that prefixes are not all small."""
    shift = split.tsp_shift if task == "tsp" else 0
    sizes = [n + shift for n in range(split.smallest, split.largest + 1) for _ in range(split.per_size)]
    random.Random(f"{seed}/{split.name}/{task}/sizes").shuffle(sizes)
    return tuple(sizes)


@lru_cache(maxsize=4096)
def base(task: TaskName, n: int, split: Split, key: str, recipe: Recipe, graph: int) -> Base:
    """The graph that `key` stands for, solved exactly. `graph` is its place in the cycles of scenarios and measures."""
    rng = random.Random(f"{key}/graph")
    edges = base_graph(task, n, rng, profile=recipe.profile, metric=recipe.metric)
    while n >= SHARED_SIZES and split.eighths is not None and eighth(n, edges) not in split.eighths:
        edges = base_graph(task, n, rng, profile=recipe.profile, metric=recipe.metric)
    query = Query()
    if task == "shortest_path":
        start, end = far_pair(n, edges, rng)
        query = Query(start=start, end=end)
    elif task == "bfs":
        query = Query(start=rng.randrange(n))
    elif task == "centrality":
        query = Query.model_validate({"measure": MEASURES[graph % len(MEASURES)]})
    told = scenarios(task, split.ood)
    offset = random.Random(f"{recipe.seed}/{task}/{split.ood}/scenarios").randrange(len(told))
    gold, certificate = answer(task, n, edges, query)
    return Base(edges, query, gold, certificate, told[(graph + offset) % len(told)])


def eighth(n: int, edges: Sequence[WeightedEdge]) -> int:
    """The part, 0..7, of the space of weighted graphs that holds this one; isomorphic graphs are in the same part."""
    strength = [0] * n
    for u, v, w in edges:
        strength[u] += w
        strength[v] += w
    shape = sorted((*sorted((strength[u], strength[v])), w) for u, v, w in edges)
    return hashlib.sha256(repr((n, shape)).encode()).digest()[0] % 8


def answer(
    task: TaskName, n: int, edges: Sequence[tuple[int, int, int | float]], query: Query, *, seconds: float = 600.0
) -> tuple[Gold, dict[str, Any]]:
    """The exact answer and the certificate of it, both over node indices (as strings within the certificate).

    Raises:
        SolveError: the problem has no answer, or none was proven within `seconds`.
    """
    graph = _numbered(task, n, edges)
    names = graph.nodes
    solution = solve(task, graph, parameters(task, query, names), limits=Limits(seconds=seconds))
    return Gold(value=_value(task, solution), witness=_witness(task, n, solution)), dict(solution.certificate)


def _numbered(task: TaskName, n: int, edges: Sequence[tuple[int, int, int | float]]) -> NamedGraph:
    """The graph with its indices as names."""
    rows = [(str(u), str(v), w) for u, v, w in edges]
    return NamedGraph.from_edges(range(n), rows, weighted=task in WEIGHTED)


def faults(item: GritTask) -> list[str]:
    """What is wrong with the stored answer and certificate, in words; empty when both are proven without the solver."""
    gold = item.gold
    try:
        graph = _numbered(item.task, item.n, item.edges)
    except GraphError as error:
        return [f"the graph cannot be used: {error}"]
    named: Any = [str(index) for index in gold.witness]
    if item.task == "tsp":
        named = [*named, *named[:1]] if item.n > 1 else named
    elif item.task == "coloring":
        named = dict(zip(graph.nodes, gold.witness, strict=True))
    value = len(named) if gold.value is None else gold.value
    return check(item.task, graph, parameters(item.task, item.query, graph.nodes), value, named, item.certificate)


def parameters(task: TaskName, query: Query, names: Sequence[str]) -> dict[str, Any]:
    """The parameters of the tool call that answers the question, with nodes by `names`."""
    if task == "shortest_path" and query.start is not None and query.end is not None:
        return {"start": names[query.start], "end": names[query.end]}
    if task == "bfs" and query.start is not None:
        return {"start": names[query.start], "order": list(names)}
    return {"measure": query.measure} if task == "centrality" else {}


def _value(task: TaskName, solution: Solution) -> int | float | str | None:
    if task == "bfs":
        return None
    value = solution.value
    return value if isinstance(value, int | float) else str(value)


def _witness(task: TaskName, n: int, solution: Solution) -> tuple[int, ...]:
    if task == "coloring":
        return tuple(solution.witness[str(index)] for index in range(n))
    found = [int(name) for name in solution.witness]
    if task == "tsp" and len(found) > n:
        found.pop()
    return tuple(found)


def tell(base: Base, recipe: Recipe, stem: str, split: Split, task: TaskName, n: int, view: View) -> GritTask:
    """Tell a graph in one view."""
    form, scheme = view
    asked = [index for index in (base.query.start, base.query.end) if index is not None]
    names = draw(
        scheme,
        n,
        random.Random(f"{recipe.seed}/{stem}/{scheme}/names"),
        kind=(NODE if form == "standard" else base.scenario.kind).label,
        domain=base.scenario.domain,
        asked=asked,
        ood=split.ood,
        unicode=recipe.unicode,
    )
    rng = random.Random(f"{recipe.seed}/{stem}/{scheme}/{form}/text")
    return GritTask(
        id=f"{stem}-{_SHORT_FORM[form]}-{scheme}",
        seed=recipe.seed,
        split=split.name,
        task=task,
        graph_id=stem,
        form=form,
        scheme=scheme,
        scenario=base.scenario.key,
        ood=split.ood,
        n=n,
        m=len(base.edges),
        question=question(form, task, names, base.edges, base.query, base.scenario, rng, unicode=recipe.unicode),
        nodes=names.primary,
        aliases=names.aliases,
        edges=base.edges,
        weighted=task in WEIGHTED,
        query=base.query,
        gold=base.gold,
        certificate=base.certificate,
    )
