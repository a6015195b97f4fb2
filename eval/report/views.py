"""What the report knows about one environment beyond the contract: a module per environment, found by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from agl.core import Task
from agl.trace import Episode

if TYPE_CHECKING:
    from eval.report.charts import Figure
    from eval.report.records import Row

VIEWS: dict[str, str] = {
    "agentgl-lp": "eval.report.agentgl:VIEW",
    "agentgl-nc": "eval.report.agentgl:VIEW",
    "grit": "eval.report.grit:VIEW",
    "reagan": "eval.report.reagan:VIEW",
}
"""Environment name -> "module:EnvView". An environment without an entry gets the plots that fit any."""

EdgeState = Literal["plain", "match", "missing", "extra", "weight"]


@dataclass(frozen=True)
class Node:
    """A node to draw. `gold` and `said`: part of the right and of the given answer; `tag` stands beside the name."""

    label: str
    gold: bool = False
    said: bool = False
    visited: bool = False
    role: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Line:
    """An edge between places in `Drawing.nodes`. `gold` and `said` as for nodes."""

    source: int
    target: int
    state: EdgeState = "plain"
    text: str = ""
    gold: bool = False
    said: bool = False


@dataclass(frozen=True)
class Drawing:
    """A graph small enough to draw, at most a few hundred nodes; `note` says what it shows."""

    nodes: tuple[Node, ...]
    edges: tuple[Line, ...]
    directed: bool = False
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        nodes = [[n.label, _bits(n.gold, n.said, n.visited), n.role, n.tag] for n in self.nodes]
        edges = [[e.source, e.target, e.state, e.text, _bits(e.gold, e.said)] for e in self.edges]
        return {"nodes": nodes, "edges": edges, "directed": self.directed, "note": self.note}


def _bits(*flags: bool) -> int:
    return sum(flag << place for place, flag in enumerate(flags))


@dataclass(frozen=True)
class Look:
    """One episode as its environment would show it. `written` is equal for two episodes exactly if the policy wrote the
    same thing (a graph, a sequence of actions); `gold` and `predicted` are answers as text."""

    drawing: Drawing | None = None
    gold: str | None = None
    predicted: str | None = None
    written: str | None = None

    def as_json(self) -> dict[str, Any]:
        drawing = self.drawing.as_json() if self.drawing is not None else None
        return {"drawing": drawing, "gold": self.gold, "predicted": self.predicted}


def plain_look(task: Task | None, episode: Episode) -> Look:
    """Any environment: the labels `gold` and `predicted`, else the last answer."""
    labels = episode.score.labels if episode.score is not None else {}
    answers = [str(event.arguments.get("text", "")) for event in episode.events if event.action == "answer"]
    said = labels.get("predicted", answers[-1] if answers else None)
    written = "\n".join(f"{event.action} {event.arguments}" for event in episode.events)
    return Look(gold=labels.get("gold"), predicted=said, written=written or None)


def _no_facets(task: Task) -> dict[str, str]:
    return {}


def _no_plots(rows: Sequence[Row]) -> list[Figure]:
    return []


@dataclass(frozen=True)
class EnvView:
    """`facets` adds columns to `Env.facets`; `plots` are the environment's own figures over scored episodes."""

    look: Callable[[Any, Episode], Look] = plain_look
    facets: Callable[[Any], dict[str, str]] = _no_facets
    plots: Callable[[Sequence[Row]], list[Figure]] = _no_plots
    written: str = "action sequences"
    """What `Look.written` tells apart, in the plural."""
    hidden_labels: frozenset[str] = field(default_factory=frozenset)
    """Labels whose counts `plots` already shows."""


def view_of(env: str) -> EnvView:
    if env not in VIEWS:
        return EnvView()
    module, _, name = VIEWS[env].partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, EnvView)
    return found
