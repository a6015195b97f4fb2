"""The surroundings of a target in a large graph, small enough to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agl.graphs.text_graph import TextGraph
from eval.report.views import Drawing, Line, Node

MOST = 40
"""Nodes drawn, beside the targets and what was visited."""


def neighbourhood(graph: TextGraph, targets: Sequence[int], visited: Mapping[int, str], *, what: str) -> Drawing:
    """The targets, the `visited` rows with a word about each, then neighbours of the targets, and all edges among them.

    Args:
        what: names the visited nodes in the note.
    """
    chosen = dict.fromkeys([*targets, *list(visited)[: 2 * MOST]])
    around = [int(row) for target in targets for row in graph.neighbors(target)]
    for row in around:
        if len(chosen) >= len(targets) + max(MOST, len(visited)):
            break
        chosen.setdefault(row)
    place = {row: position for position, row in enumerate(chosen)}
    nodes = tuple(
        Node(
            label=graph.ids[row],
            visited=row in visited,
            role="target" if row in targets else "",
            tag=visited.get(row, ""),
        )
        for row in chosen
    )
    edges = tuple(
        Line(place[row], place[int(near)], gold=row in targets and int(near) in targets)
        for row in chosen
        for near in graph.neighbors(row)
        if int(near) in place and place[row] < place[int(near)]
    )
    left = len(set(around) - set(chosen))
    more = f"; {left:,} further neighbours are left out" if left else ""
    return Drawing(nodes, edges, note=f"the target with {what} and its neighbours{more}")
