"""ReaGAN in the report: actions per layer, what the fallback said, accuracy against the rules that ask no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from agl.errors import UserError
from agl.graphs.naming import natural_key
from agl.trace import Episode
from envs.reagan.faults import FAULTS
from envs.reagan.tasks import ReaganTask, open_split
from eval.report.charts import Figure, bars, forest
from eval.report.neighbourhood import neighbourhood
from eval.report.plots import mean_part
from eval.report.records import Row
from eval.report.views import Drawing, EnvView, Look, plain_look

_LAYER = re.compile(r"layer(\d+)_(\w+)")


def look(task: ReaganTask | None, episode: Episode) -> Look:
    """The node among its neighbours, those marked that it read or wrote to."""
    found = plain_look(task, episode)
    drawing = _drawing(task, episode) if task is not None else None
    return Look(drawing, found.gold, found.predicted, found.written)


def _drawing(task: ReaganTask, episode: Episode) -> Drawing | None:
    try:
        graph = open_split(task).graph
        target = graph.index_of(task.node)
    except UserError:  # the report is made where the data are not, or have changed
        return None
    words: dict[int, list[str]] = {}
    for event in episode.events:
        for name in event.arguments.get("target_nodes", ()) if not event.is_error else ():
            if name in graph.ids:
                word = "sent to" if event.action == "broadcast" else "read"
                words.setdefault(graph.index_of(name), []).append(word)
    visited = {row: ", ".join(dict.fromkeys(found)) for row, found in words.items() if row != target}
    return neighbourhood(graph, [target], visited, what="the neighbours it read or wrote to")


def plots(rows: Sequence[Row]) -> list[Figure]:
    """Accuracy as the paper counts it (fallback included), actions per layer, fallbacks, mistakes."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    buckets = sorted({row.facets["labelled_neighbours"] for row in rows if row.facets}, key=natural_key)
    chosen = {"all": list(rows)} | {
        f"{bucket} labelled": [row for row in rows if row.facets.get("labelled_neighbours") == bucket]
        for bucket in buckets
    }
    accuracy = {
        name: {policy: mean_part([row for row in group if row.policy == policy], "accuracy") for policy in policies}
        for name, group in chosen.items()
    }
    found = [
        forest(
            "reagan-accuracy",
            "Accuracy by labelled neighbours",
            {name: {p: value for p, value in row.items() if value is not None} for name, row in accuracy.items()},
            caption="Right labels, those of the fallback included, as in the paper; clustered 95 % intervals.",
        )
    ]
    layers = sorted({part for row in rows for part in row.parts if _LAYER.fullmatch(part)}, key=natural_key)
    table: dict[str, dict[str, float]] = {}
    for policy in policies:
        mine = [row for row in rows if row.policy == policy]
        for part in layers:
            layer, action = part.removeprefix("layer").split("_", 1)
            name = f"layer {layer}{f', {policy}' if len(policies) > 1 else ''}"
            table.setdefault(name, {})[action] = sum(row.parts.get(part, 0.0) for row in mine) / len(mine)
    if table:
        ordered = {name: table[name] for name in sorted(table, key=natural_key)}
        found.append(bars("reagan-actions", "Executed actions per layer and node", ordered))
    said = Counter((row.labels["fallback_label"], row.policy) for row in rows if "fallback_label" in row.labels)
    labels = Counter({name: 0 for name, _ in said})
    for (name, _), count in said.items():
        labels[name] += count
    ranked = [name for name, _ in labels.most_common(24) if name != "none"]
    if ranked:
        histogram = {name: {policy: float(said[name, policy]) for policy in policies} for name in ranked}
        found.append(bars("reagan-fallback", "Labels given by the fallback", histogram))
    faults = {
        fault: {policy: sum(r.parts.get(fault, 0.0) for r in rows if r.policy == policy) for policy in policies}
        for fault in FAULTS
    }
    if used := {fault: counts for fault, counts in faults.items() if any(counts.values())}:
        found.append(bars("reagan-faults", "Mistakes in plans and predictions", used))
    return found


VIEW = EnvView(look=look, plots=plots, hidden_labels=frozenset({"fallback_label", "labelled_neighbours"}))
