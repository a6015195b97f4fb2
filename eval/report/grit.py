"""GRIT in the report: accuracy by scheme, form and size, structure errors, the written graph over the true one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from agl.boxed import boxes
from agl.graphs.named import GraphError, NamedGraph, Weight, read_graph
from agl.graphs.naming import NameTable, NamingError, fold, natural_key
from agl.json_text import JsonError, dumps, loads
from agl.stats import estimate
from agl.trace import Episode
from envs.grit.answers import gold_answer
from envs.grit.items import GritTask, surfaces
from eval.report.charts import Figure, Value, bars, lines
from eval.report.records import Row
from eval.report.views import Drawing, EdgeState, EnvView, Line, Look, Node
from rewards.structure import ErrorClass

_BUCKET = 10
_MOST_DRAWN = 150
"""Nodes; a larger graph would be a grey disc."""

Pair = tuple[int, int]


def facets(task: GritTask) -> dict[str, str]:
    low = (task.n - 1) // _BUCKET * _BUCKET + 1
    return {"nodes": f"{low}–{low + _BUCKET - 1}"}


def look(task: GritTask | None, episode: Episode) -> Look:
    """The last graph that the tool could read, over the true graph, with both answers marked."""
    if task is None:
        return Look()
    said = next((str(e.arguments.get("text", "")) for e in reversed(episode.events) if e.action == "answer"), None)
    written = _written(episode)
    return Look(
        drawing=_drawing(task, written, said) if task.n <= _MOST_DRAWN else None,
        gold=_text(gold_answer(task)),
        predicted=(boxes(said) or [said])[-1] if said is not None else None,
        written=_fingerprint(written) if written is not None else None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value, sort_keys=False)


def _written(episode: Episode) -> NamedGraph | None:
    for event in reversed(episode.events):
        if event.action == "solve" and not event.is_error:
            try:
                return read_graph(event.arguments.get("graph"))
            except GraphError:
                continue
    return None


def _fingerprint(graph: NamedGraph) -> str:
    return hashlib.sha256(dumps(graph.canonical().to_json()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _drawing(task: GritTask, written: NamedGraph | None, said: str | None) -> Drawing:
    table = surfaces(task)
    labels = list(task.nodes)
    wanted: dict[Pair, Weight] = {_pair(u, v, task.directed): w for u, v, w in task.edges}
    found: dict[Pair, Weight] = {}
    if written is not None:
        extra: dict[str, int] = {}

        def place(name: str) -> int:
            try:
                return table.resolve(name)
            except NamingError:
                key = fold(name)
                if key not in extra:
                    extra[key] = len(labels)
                    labels.append(name)
                return extra[key]

        for name in written.nodes:
            place(name)
        for u, v, w in written.edges:
            a, b = place(u), place(v)
            found[_pair(a, b, task.directed)] = w
            if task.directed and not written.directed:
                found[b, a] = w
    right, given = _gold_marks(task), _said_marks(task, table, said)
    edges = []
    for pair in [*wanted, *(pair for pair in found if pair not in wanted)]:
        state: EdgeState = "plain"
        if written is not None:
            state = (
                "missing" if pair not in found
                else "extra" if pair not in wanted
                else "match" if wanted[pair] == found[pair]
                else "weight"
            )  # fmt: skip
        edges.append(
            Line(*pair, state, _weight(task, wanted.get(pair), found.get(pair), state), pair in right.edges,
                 pair in given.edges)
        )  # fmt: skip
    nodes = [
        Node(
            label,
            gold=index in right.nodes,
            said=index in given.nodes,
            role={task.query.start: "start", task.query.end: "end"}.get(index, "") if index < task.n else "unknown",
            tag=" / ".join(dict.fromkeys(mark.tags[index] for mark in (right, given) if index in mark.tags)),
        )
        for index, label in enumerate(labels)
    ]
    note = "the written graph over the true one" if written is not None else "the true graph; none was written"
    return Drawing(tuple(nodes), tuple(edges), task.directed, note)


def _pair(u: int, v: int, directed: bool) -> Pair:
    return (u, v) if directed or u < v else (v, u)


def _weight(task: GritTask, wanted: Weight | None, found: Weight | None, state: EdgeState) -> str:
    if state == "weight":
        return f"{wanted} → {found}"
    return f"{wanted if wanted is not None else found}" if task.weighted else ""


class _Marks:
    """Parts of the graph that an answer names; `tags` are colours or places in an order."""

    def __init__(self, task: GritTask, kind: str, value: Any) -> None:
        self.nodes: set[int] = set()
        self.edges: set[Pair] = set()
        self.tags: dict[int, str] = {}
        if kind == "assignment":
            self.tags = {index: str(color) for index, color in value.items()}
        elif kind == "order":
            self.tags = {index: str(place) for place, index in enumerate(value, 1)}
        else:
            self.nodes = set(value)
        if kind in ("path", "tour"):
            round_trip = [*value, value[0]] if kind == "tour" and value and value[0] != value[-1] else value
            self.edges = {_pair(u, v, task.directed) for u, v in pairwise(round_trip)}


_KINDS = {
    "shortest_path": "path",
    "tsp": "tour",
    "coloring": "assignment",
    "vertex_cover": "nodes",
    "bfs": "order",
    "centrality": "nodes",
}


def _gold_marks(task: GritTask) -> _Marks:
    kind = _KINDS.get(task.task)
    if kind is None:
        return _Marks(task, "nodes", ())
    return _Marks(task, kind, dict(enumerate(task.gold.witness)) if kind == "assignment" else list(task.gold.witness))


def _said_marks(task: GritTask, table: NameTable, said: str | None) -> _Marks:
    """What the last box names; nothing where it names anything that is not there."""
    kind = _KINDS.get(task.task)
    nothing = _Marks(task, "nodes", ())
    if kind is None or said is None or not (found := boxes(said)):
        return nothing
    try:
        value = loads(found[-1])
        named = value[kind] if isinstance(value, dict) else None
        if isinstance(named, dict) and kind == "assignment":
            return _Marks(task, kind, {table.resolve(str(name)): color for name, color in named.items()})
        if isinstance(named, list) and kind != "assignment":
            return _Marks(task, kind, [table.resolve(str(name)) for name in named])
    except (JsonError, NamingError, KeyError):
        return nothing
    return nothing


_CLASSES = [error.value for error in (ErrorClass.EXACT, *(e for e in ErrorClass if e is not ErrorClass.EXACT))]


def plots(rows: Sequence[Row]) -> list[Figure]:
    """Accuracy over size by scheme for each form, and the classes of structure errors by scheme."""
    found = []
    for policy in dict.fromkeys(row.policy for row in rows):
        mine = [row for row in rows if row.policy == policy]
        suffix = f", {policy}" if len(mine) < len(rows) else ""
        # All of them in each figure, so that a scheme has one colour.
        schemes = sorted({row.facets["scheme"] for row in mine if "form" in row.facets})
        for form in sorted({row.facets["form"] for row in mine if "form" in row.facets}):
            chosen = [row for row in mine if row.facets.get("form") == form]
            found.append(_by_size(chosen, form, schemes, suffix))
        recovered = [row for row in mine if "structure" in row.labels]
        if recovered:
            found.append(_structure(recovered, suffix))
    return found


def _by_size(rows: Sequence[Row], form: str, schemes: Sequence[str], suffix: str) -> Figure:
    sizes = sorted({row.facets["nodes"] for row in rows}, key=natural_key)
    series = {
        scheme: {
            float(place): _mean(chosen)
            for place, size in enumerate(sizes)
            if (chosen := [r for r in rows if r.facets.get("scheme") == scheme and r.facets["nodes"] == size])
        }
        for scheme in schemes
    }
    return lines(
        f"grit-accuracy-{form}{suffix.replace(', ', '-')}",
        f"Accuracy by naming scheme and size, {form}{suffix}",
        series,
        x_title="nodes of the graph",
        x_names={float(place): size for place, size in enumerate(sizes)},
        domain=(0.0, 1.0),
        caption="Mean score with clustered 95 % intervals.",
    )


def _mean(rows: Sequence[Row]) -> Value:
    found = estimate([row.score or 0.0 for row in rows], [row.cluster for row in rows], bounded=True)
    return Value(found.value, found.low, found.high)


def _structure(rows: Sequence[Row], suffix: str) -> Figure:
    def counted(chosen: Iterable[Row]) -> dict[str, float]:
        counts = Counter(row.labels["structure"] for row in chosen)
        return {name: float(counts[name]) for name in _CLASSES if name in used}

    used = {row.labels["structure"] for row in rows}
    schemes = sorted({row.facets["scheme"] for row in rows if "scheme" in row.facets})
    table = {"all": counted(rows)}
    table |= {scheme: counted(r for r in rows if r.facets.get("scheme") == scheme) for scheme in schemes}
    return bars(
        f"grit-structure{suffix.replace(', ', '-')}",
        f"Structure of the written graph by naming scheme{suffix}",
        table,
        share=True,
        caption="The first class of error that applies; the right column counts episodes.",
    )


VIEW = EnvView(look=look, facets=facets, plots=plots, written="graphs", hidden_labels=frozenset({"structure"}))
