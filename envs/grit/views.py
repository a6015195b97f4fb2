"""The two forms of a question: Standard (formal) and Realistic (a story with distractors).

Node lists stand in index order in every view; edge order, edge direction and wording are drawn per view. All texts come
from templates.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.grit.graphs import WEIGHTED, WeightedEdge
from envs.grit.items import Form, Query, TaskName
from envs.grit.names import Names
from envs.grit.scenarios import Kind, Scenario

NODE = Kind(one="node", many="nodes", label="Node")

_ANSWER = {
    "shortest_path": '\\boxed{{"path": [...], "cost": ...}}, where path lists the @many from the first to the last, '
    "both ends included, and cost is the total",
    "tsp": '\\boxed{{"tour": [...], "cost": ...}}, where tour lists the @many in order and cost is the total of the '
    "closed tour",
    "coloring": '\\boxed{{"colors": ..., "assignment": {...}}}, where assignment maps every @one to its number and '
    "colors is how many different numbers occur",
    "vertex_cover": '\\boxed{{"size": ..., "nodes": [...]}}, where nodes lists the chosen @many and size is how many '
    "they are",
    "bfs": '\\boxed{{"order": [...]}}, where order lists all @many in the order of the visit, the starting one '
    "included",
    "centrality": '\\boxed{{"nodes": [...]}}, where nodes lists every @one that has the highest value',
}

_TASK = {
    "shortest_path": "Find a path from {start} to {end} with the smallest total weight.",
    "bfs": "Give the order in which a breadth-first search from {start} visits the nodes.",
    "tsp": "Find a closed tour of smallest total weight that visits every node exactly once and returns to its first "
    "node.",
    "coloring": "Colour the nodes with the numbers 1, 2, 3, ... so that the two ends of every edge have different "
    "colours and as few colours as possible are used.",
    "vertex_cover": "Find a smallest set of nodes that contains at least one end of every edge.",
    "centrality": "Which nodes have the highest {measure}?",
}

_MEASURE = {
    "degree": "The degree centrality of @a @one is the number of @many that are directly connected to it.",
    "closeness": "The closeness centrality of @a @one is the number of other @many divided by the sum of its distances "
    "to all of them; a distance is the number of connections on a shortest route.",
    "betweenness": "The betweenness centrality of @a @one is the sum, over all pairs of other @many, of the share of "
    "the shortest routes between the two that pass through it; the length of a route is its number of connections.",
}

_BREADTH_FIRST = (
    "Breadth first means: take the @many in the order in which they were reached, and from each of them visit all "
    "directly connected @many that were not visited yet; among these, the one that comes first in the list above is "
    "visited first."
)

_ALSO = (
    "{alias} is another name for {name}.",
    "{name} is also called {alias}.",
    "{alias} and {name} are the same {kind}.",
)
_ALSO_OOD = ("(Some say {alias} instead of {name}.)", "({alias} stands for {name}.)")


def question(
    form: Form,
    task: TaskName,
    names: Names,
    edges: Sequence[WeightedEdge],
    query: Query,
    scenario: Scenario,
    rng: random.Random,
    *,
    unicode: bool = False,
) -> str:
    """The text of one view; `unicode` sets typographic apostrophes."""
    also = _ALSO_OOD if scenario.ood else _ALSO
    teller = _Teller(names, NODE if form == "standard" else scenario.kind, rng, also)
    shuffled = [(u, v, w) if rng.random() < 0.5 else (v, u, w) for u, v, w in edges]
    rng.shuffle(shuffled)
    parts = (
        _standard(task, teller, shuffled, query)
        if form == "standard"
        else _realistic(task, teller, shuffled, query, scenario)
    )
    answer = f"Finish your answer with {_ANSWER[task]}."
    text = "\n\n".join([*parts, teller.worded(answer)])
    return text.replace("'", "\u2019") if unicode else text


class _Teller:
    """Picks mentions of nodes and sees to it that each alias is declared exactly once."""

    def __init__(self, names: Names, kind: Kind, rng: random.Random, also: Sequence[str]) -> None:
        self.names, self.kind, self.rng, self._also = names, kind, rng, also
        self.forms = names.surfaces()
        self._undeclared = dict(names.aliases)
        self._used: dict[str, None] = {}

    def worded(self, text: str) -> str:
        article = "an" if self.kind.one[0] in "aeio" else "a"
        return text.replace("@a ", f"{article} ").replace("@one", self.kind.one).replace("@many", self.kind.many)

    def roster(self) -> str:
        return ", ".join(self.names.primary)

    def mention(self, index: int) -> str:
        form = self.rng.choice(self.forms[index])
        self._used[form] = None
        return form

    def asked(self, index: int) -> str:
        """A query node: by an alias half of the time, if it has one."""
        primary, *aliases = self.forms[index]
        return self.rng.choice(aliases) if aliases and self.rng.random() < 0.5 else primary

    def declare(self, *, share: float = 1.0, used_only: bool = False) -> list[str]:
        """Sentences for aliases not declared so far: each with chance `share`, or only those already used."""
        due = [
            alias
            for alias in self._undeclared
            if (alias in self._used if used_only else share >= 1 or self.rng.random() < share)
        ]
        return [
            self.rng.choice(self._also).format(
                alias=alias, name=self.names.primary[self._undeclared.pop(alias)], kind=self.kind.one
            )
            for alias in due
        ]


def _rows(edges: Sequence[WeightedEdge], rng: random.Random) -> list[tuple[int, list[tuple[int, int]]]]:
    """Group edges by one end so that each stands once: (node, [(other node, weight), ...])."""
    nodes = sorted({end for u, v, _ in edges for end in (u, v)})
    rng.shuffle(nodes)
    place = {node: i for i, node in enumerate(nodes)}
    rows: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    for u, v, w in edges:
        first, second = (u, v) if place[u] < place[v] else (v, u)
        rows[first].append((second, w))
    return [(node, legs) for node, legs in rows.items() if legs]


def _rules(task: TaskName, query: Query) -> str:
    if task == "bfs":
        return _BREADTH_FIRST
    if task == "centrality":
        return f"{_MEASURE[str(query.measure)]} If several @many share the highest value, name all of them."
    return ""


def _asked(text: str, teller: _Teller, query: Query) -> str:
    fields = {"measure": f"{query.measure} centrality"}
    if query.start is not None:
        fields["start"] = teller.asked(query.start)
    if query.end is not None:
        fields["end"] = teller.asked(query.end)
    return text.format_map(fields)


def _standard(task: TaskName, teller: _Teller, edges: Sequence[WeightedEdge], query: Query) -> list[str]:
    weighted = task in WEIGHTED
    shape = "complete undirected" if task == "tsp" else "undirected"
    lines = [
        f"Given is {'a' if task == 'tsp' else 'an'} {shape} {'weighted' if weighted else 'unweighted'} graph "
        f"with {len(teller.names.primary)} nodes and {len(edges)} edges.",
        f"Nodes: {teller.roster()}.",
        *teller.declare(),
    ]
    if task == "tsp":
        lines.append("Weights in brackets, each edge written once:")
        for node, legs in _rows(edges, teller.rng):
            told = ", ".join(f"to {teller.mention(other)} ({w})" for other, w in legs)
            lines.append(f"from {teller.mention(node)}: {told}")
    else:
        ends = "; ".join(
            f"({teller.mention(u)}, {teller.mention(v)}{f', {w}' if weighted else ''})" for u, v, w in edges
        )
        lines.append(f"Edges{' as (node, node, weight)' if weighted else ''}: {ends}.")
    asked = " ".join(filter(None, [_asked(_TASK[task], teller, query), teller.worded(_rules(task, query))]))
    return ["\n".join(lines), asked]


def _realistic(
    task: TaskName, teller: _Teller, edges: Sequence[WeightedEdge], query: Query, scenario: Scenario
) -> list[str]:
    rng = teller.rng
    opening = [
        rng.choice(scenario.opening).format(n=len(teller.names.primary)),
        scenario.roster.format(names=teller.roster()),
        *teller.declare(share=0.0 if scenario.ood else 0.5),
    ]
    told: list[list[str]] = []
    if task == "tsp":
        for node, legs in _rows(edges, rng):
            row = ", ".join(f"{scenario.amount(w)} to {teller.mention(other)}" for other, w in legs)
            told.append([rng.choice(scenario.edges).format(a=teller.mention(node), legs=row)])
            told[-1] += teller.declare(used_only=True)
    else:
        for u, v, w in edges:
            fields = {"a": teller.mention(u), "b": teller.mention(v)}
            if task in WEIGHTED:
                fields["w"] = scenario.amount(w)
            told.append([rng.choice(scenario.edges).format_map(fields), *teller.declare(used_only=True)])
    told.append(teller.declare())
    for sentence in rng.sample(scenario.distractors, rng.randint(2, min(4, len(scenario.distractors)))):
        told.insert(rng.randrange(len(told)), [sentence])
    story = " ".join(sentence for group in told for sentence in group)
    asked = [_asked(rng.choice(scenario.question), teller, query), teller.worded(_rules(task, query))]
    return [" ".join(opening), f"{story} {scenario.closing}", " ".join(filter(None, asked))]
