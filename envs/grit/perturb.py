"""Naming perturbation of a user's own graphs: each told as GRIT questions under several naming schemes.

A view is an isomorphic renaming: the node order, edges, weights, question and answer stay, in indices; only names and
wording change. Beside the items stands, for each of them, the map from the user's names to the new ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from agl.errors import UserError
from agl.graphs.named import NamedGraph
from agl.graphs.naming import relabel
from agl.graphs.solve import SolveError
from agl.json_text import dumps
from agl.run_folder import write_atomic
from envs.grit.build import Base, Recipe, Split, answer, faults, tell
from envs.grit.graph_files import Refused, UserGraph
from envs.grit.graphs import WEIGHTED, hops
from envs.grit.items import FORMS, MEASURES, SCHEMES, TASKS, Form, GritTask, Query, Scheme, TaskName, line, named_graph
from envs.grit.names import pools
from envs.grit.scenarios import Scenario, scenarios

SPLIT = "perturb"
MAX_NODES = 300
MAX_LETTERS = 96_000
"""A question is shorter: 24,000 tokens at four characters each."""
CONNECTED = frozenset({"shortest_path", "bfs", "tsp", "centrality"})
"""Tasks whose graph must be connected."""


@dataclass(frozen=True)
class Settings:
    """What to make of each graph. `tasks` None: what the graph is fit for (a GRIT item: its own task). `domain` names a
    pool of names and stories, None any; `ood` takes the out-of-distribution names and stories; `seconds` bounds each
    exact solution."""

    tasks: tuple[TaskName, ...] | None = None
    schemes: tuple[Scheme, ...] = SCHEMES
    forms: tuple[Form, ...] = FORMS
    seed: int = 0
    domain: str | None = None
    ood: bool = False
    seconds: float = 60.0


@dataclass(frozen=True)
class Renamed:
    """One question, and the user's names of its nodes in index order."""

    item: GritTask
    own: tuple[str, ...]
    name: str
    where: str

    def record(self) -> dict[str, Any]:
        """What the file of names says: user's name -> new name, and alias -> user's name."""
        aliases = {alias: self.own[index] for alias, index in sorted(self.item.aliases.items())}
        return {
            "id": self.item.id,
            "graph": self.name,
            "source": self.where,
            "names": dict(zip(self.own, self.item.nodes, strict=True)),
            "aliases": aliases,
        }


@dataclass(frozen=True)
class Perturbed:
    """All questions; graphs that could not be used; and what was left out because no task was asked for by name."""

    renamed: tuple[Renamed, ...]
    refused: tuple[Refused, ...]
    left_out: tuple[str, ...]


def perturb(graphs: Iterable[UserGraph | Refused], settings: Settings) -> Perturbed:
    """Tell each graph in every scheme and form; a pure function of the graphs and the settings.

    Raises:
        UserError: an unknown domain, or one without a story for a task.
    """
    if settings.domain is not None and settings.domain not in pools():
        raise UserError(f"expected a domain ({', '.join(sorted(pools()))}), got {settings.domain!r}")
    renamed: list[Renamed] = []
    refused: list[Refused] = []
    left_out: list[str] = []
    for index, graph in enumerate(graphs):
        if isinstance(graph, Refused):
            refused.append(graph)
            continue
        own = (graph.asked[0],) if graph.asked is not None else None
        wanted = settings.tasks or own
        told: list[Renamed] = []
        missed: list[str] = []
        for task in wanted or TASKS:
            found = _views(graph, task, index, settings)
            if isinstance(found, str):
                missed.append(f"{task} {found}")
            else:
                told += found
        if missed and (wanted or not told):
            refused.append(Refused(graph.where, missed[0]))
            continue
        renamed += told
        left_out += [f"{graph.where}: {reason}" for reason in missed]
    return Perturbed(tuple(renamed), tuple(refused), tuple(left_out))


def write(renamed: Sequence[Renamed], out: Path) -> Path:
    """Write the items to `out` and their names beside it; returns the path of the latter.

    Raises:
        UserError: the folder of `out` does not exist.
    """
    if not out.parent.is_dir():
        raise UserError(f"expected a file in an existing folder, got {out}; make the folder, or choose another --out")
    names = names_file(out)
    write_atomic(names, "".join(f"{dumps(one.record())}\n" for one in renamed))
    write_atomic(out, "".join(f"{line(one.item)}\n" for one in renamed))
    return names


def names_file(out: Path) -> Path:
    """Where the names of the items in `out` stand."""
    return out.with_name(f"{out.stem}.names.jsonl")


def restored(item: GritTask, own: Sequence[str]) -> NamedGraph:
    """The graph of `item` under the user's names: the inverse of the perturbation.

    Raises:
        NamingError: `own` gives two nodes one name.
    """
    return relabel(named_graph(item), dict(zip(item.nodes, own, strict=True)))


def unfit(task: TaskName, graph: UserGraph) -> str | None:
    """Why no question of `task` can be asked about `graph`; None when one can."""
    n, m = len(graph.nodes), len(graph.edges)
    if n > MAX_NODES:
        return f"takes at most {MAX_NODES} nodes, the graph has {n:,}"
    if n < (3 if task == "tsp" else 2) or m == 0:
        return f"needs at least {3 if task == 'tsp' else 2} nodes and an edge, the graph has {n} and {m}"
    if task in CONNECTED and -1 in (reach := hops(n, [(u, v) for u, v, _ in graph.edges], 0)):
        return f"needs a connected graph, but nothing leads from {graph.nodes[0]!r} to {graph.nodes[reach.index(-1)]!r}"
    if task == "tsp" and m < n * (n - 1) // 2:
        pairs = {(u, v) for u, v, _ in graph.edges}
        u, v = next((u, v) for u in range(n) for v in range(u + 1, n) if (u, v) not in pairs)
        return f"needs an edge between every two nodes, but ({graph.nodes[u]}, {graph.nodes[v]}) have none"
    if task in WEIGHTED:
        if not graph.weighted:
            return "needs a weight on every edge, the graph has none"
        for u, v, w in graph.edges:
            if w <= 0 or "e" in str(w):
                return (
                    f"needs weights above 0 and written without exponent, but ({graph.nodes[u]}, {graph.nodes[v]}) "
                    f"has {w}"
                )
    return None


def _views(graph: UserGraph, task: TaskName, index: int, settings: Settings) -> list[Renamed] | str:
    """The questions of `task`, or why there are none."""
    if (reason := unfit(task, graph)) is not None:
        return reason
    n, stem = len(graph.nodes), f"{SPLIT}-{task}-{index:04d}"
    edges: Any = graph.edges if task in WEIGHTED else tuple((u, v, 1) for u, v, _ in graph.edges)
    rng = random.Random(f"{settings.seed}/{stem}/query")
    query = _query(graph, task, index, rng)
    try:
        gold, certificate = answer(task, n, edges, query, seconds=settings.seconds)
    except SolveError as error:
        return f"has no proven answer: {error}"
    if task in WEIGHTED and isinstance(gold.value, str):
        cost = Fraction(gold.value)
        if Fraction(str(float(cost))) != cost:
            return f"has the cost {gold.value}, which is no decimal number; round the weights"
        gold = gold.model_copy(update={"value": float(cost)})
    base = Base(edges, query, gold, certificate, _story(task, settings, rng))
    split = Split(SPLIT, n, n, 1, ood=settings.ood)
    found = []
    for form in FORMS:
        for scheme in SCHEMES:
            if form not in settings.forms or scheme not in settings.schemes:
                continue
            item = tell(base, Recipe(seed=settings.seed), stem, split, task, n, (form, scheme))
            if len(item.question) >= MAX_LETTERS:
                return (
                    f"has a question of {len(item.question):,} characters, the limit is {MAX_LETTERS:,}; "
                    "use a smaller graph"
                )
            if wrong := faults(item):
                return f"has an answer that could not be proven: {wrong[0]}"
            found.append(Renamed(item, graph.nodes, graph.name, graph.where))
    return found


def _query(graph: UserGraph, task: TaskName, index: int, rng: random.Random) -> Query:
    """What the graph's own item asks; else drawn. The ends of a path are at least two hops apart where any are."""
    if graph.asked is not None and graph.asked[0] == task:
        return graph.asked[1]
    n = len(graph.nodes)
    if task == "shortest_path":
        adjacent = {(u, v) for u, v, _ in graph.edges}
        pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
        ends = list(rng.choice([pair for pair in pairs if pair not in adjacent] or pairs))
        rng.shuffle(ends)
        return Query(start=ends[0], end=ends[1])
    if task == "bfs":
        return Query(start=rng.randrange(n))
    if task == "centrality":
        return Query.model_validate({"measure": MEASURES[index % len(MEASURES)]})
    return Query()


def _story(task: TaskName, settings: Settings, rng: random.Random) -> Scenario:
    known = scenarios(task, settings.ood)
    domain = settings.domain
    if domain is None:
        return rng.choice(known)
    fitting = [scenario for scenario in known if scenario.domain == domain]
    if fitting:
        return rng.choice(fitting)
    if "realistic" in settings.forms:
        told = ", ".join(sorted({scenario.domain for scenario in known}))
        raise UserError(
            f"expected a domain with a story for {task} ({told}), got {domain!r}; choose one, or use --form standard"
        )
    return rng.choice(known).model_copy(update={"domain": domain})
