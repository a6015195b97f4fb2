"""AgentGL in the report: searches per pool, parts of the reward, what the searches found around the target."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from agl.errors import UserError
from agl.graphs.naming import natural_key
from agl.graphs.text_graph import TextGraph
from agl.trace import Episode
from envs.agentgl.pools import Pool
from envs.agentgl.prompts import plain
from envs.agentgl.tasks import GraphTask, LpTask, NcTask, checked_graph, graph_of
from eval.report.charts import Figure, Value, bars, forest
from eval.report.neighbourhood import neighbourhood
from eval.report.plots import mean, mean_part
from eval.report.records import Row
from eval.report.views import Drawing, EnvView, Look, plain_look

_LINE = re.compile(r"^\(\d+\) (.*)$", re.MULTILINE)
_NOTES = re.compile(r"^\[[^\]]*\] ")
_KEY = 24
_MOST_INDEXED = 50_000
_WHOLE = 1_000_000


def look(task: GraphTask | None, episode: Episode) -> Look:
    """The target with the nodes that its searches returned, each marked with the pools that returned it."""
    found = plain_look(task, episode)
    drawing = _drawing(task, episode) if task is not None else None
    written = "\n".join(
        f"{e.arguments.get('pool')} {e.arguments.get('query')}" for e in episode.events if e.action == "search"
    )
    return Look(drawing, found.gold, found.predicted, written)


def _drawing(task: GraphTask, episode: Episode) -> Drawing | None:
    try:
        graph = checked_graph(task)
        ids = [task.node] if isinstance(task, NcTask) else [task.u, task.v] if isinstance(task, LpTask) else []
        targets = [graph.index_of(node) for node in ids]
    except UserError:  # the report is made where the data are not, or have changed
        return None
    pools: dict[int, list[str]] = {}
    if len(graph) <= _MOST_INDEXED:
        for event in episode.events:
            if event.action == "search" and not event.is_error:
                for row in _returned(task.graph, graph, event.observation):
                    pools.setdefault(row, []).append(str(event.arguments.get("pool")))
    visited = {row: ", ".join(dict.fromkeys(names)) for row, names in pools.items() if row not in targets}
    return neighbourhood(graph, targets, visited, what="the nodes that searches returned, told by their texts,")


def _returned(place: str, graph: TextGraph, observation: str) -> Iterator[int]:
    """Rows of the nodes that a result shows. It holds no ids, so they are told by their texts, the first of equals."""
    known = _by_text(place)
    for line in _LINE.findall(observation):
        for text in _NOTES.sub("", line).split(" || "):
            rows = known.get(text[:_KEY], ())
            row = next((row for row in rows if plain(graph.text(row), _WHOLE).startswith(text)), None)
            if row is not None:
                yield row


@lru_cache(maxsize=4)
def _by_text(place: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row, text in enumerate(graph_of(place).texts()):
        found.setdefault(plain(text, 2 * _KEY)[:_KEY], []).append(row)
    return found


def plots(rows: Sequence[Row]) -> list[Figure]:
    """Searches per pool, score by number of searches, reward parts, and gold against given class."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    by_policy = {policy: [row for row in rows if row.policy == policy] for policy in policies}
    searches = {
        policy: {pool.value: sum(r.parts.get(f"searches_{pool.value}", 0.0) for r in mine) / len(mine) for pool in Pool}
        for policy, mine in by_policy.items()
    }
    found = [bars("agentgl-searches", "Searches per episode by pool", searches)]
    counts = sorted({row.parts.get("searches", 0.0) for row in rows})
    table = {
        f"{count:g} searches": {
            policy: mean(chosen)
            for policy, mine in by_policy.items()
            if (chosen := [row for row in mine if row.parts.get("searches", 0.0) == count])
        }
        for count in counts
    }
    if len(counts) > 1:
        found.append(forest("agentgl-by-searches", "Score by number of searches", table, series=policies))
    parts = sorted({part for row in rows for part in row.parts if part.startswith("reward_")}, key=natural_key)
    earned: dict[str, dict[str, Value]] = {}
    for part in parts:
        for policy, mine in by_policy.items():
            value = mean_part(mine, part)
            if value is not None:
                earned.setdefault(part.removeprefix("reward_"), {})[policy] = value
    earned = {part: row for part, row in earned.items() if any(value.value for value in row.values())}
    if earned:
        found.append(
            forest(
                "agentgl-reward",
                "Reward parts that struck",
                earned,
                series=policies,
                domain=None,
                caption="Means over episodes.",
            )
        )
    return found


VIEW = EnvView(
    look=look, plots=plots, written="search sequences", hidden_labels=frozenset({"answer", "show_labels", "leak"})
)
