"""G-REAL (MA-GTS, https://github.com/ZIKEYUAN/MA-GTS): worded colouring, vertex cover and tour problems.

Two layouts are read: `question`, `nodes`, `edges`, `optimum`, `witness`; and the published one with `Q`, `adj`,
`name_list`, `result`, of which only the exact algorithm's block counts (the others are heuristics). An edge stands once
in the text, under the node of lower index; names may be prefixes of other names, so lists are split, never searched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agl.graphs.named import NamedGraph
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

CHECKER = Checker(benchmark="greal", form="boxed", needs="both")

_ROSTER = re.compile(r"(?:locations in the city|computers are named): (.+?)\.\s*(?:\n|$)")
_SIGNAL = re.compile(r"^The (.+?) has overlapping signal areas with (.+?)\.\s*$", re.MULTILINE)
_LINK = re.compile(r"^(.+?) is connected with (.+?)\.\s*$", re.MULTILINE)
_LEG = re.compile(r"(?:: |, )([^:,\n]+?) to ([^:,\n]+?) is ([0-9]+(?:\.[0-9]+)?) km")


def matches(fields: Mapping[str, Any]) -> bool:
    return {"Q", "adj", "name_list"} <= fields.keys() or {"question", "optimum", "witness"} <= fields.keys()


def read_text(text: str) -> tuple[TaskName, NamedGraph]:
    """Task and graph of a question.

    Raises:
        Unfit: no sentence pattern of G-REAL stands in the text.
    """
    legs = _LEG.findall(text)
    if legs:
        weights = [(u, v, float(w) if "." in w else int(w)) for u, v, w in legs]
        nodes = dict.fromkeys(end for u, v, _ in weights for end in (u, v))
        return "tsp", NamedGraph.from_edges(nodes, weights, weighted=True)
    roster = _ROSTER.search(text)
    if roster is None:
        raise Unfit("expected a list of places or computers, or distances in km, in the question")
    *first, last = roster[1].rsplit(" and ", 1)
    nodes = dict.fromkeys([*(first[0].split(", ") if first else ()), last])
    task: TaskName = "coloring" if "frequenc" in text else "vertex_cover"
    lines = (_SIGNAL if task == "coloring" else _LINK).findall(text)
    ends = [(u, v) for u, listed in lines for v in listed.split(", ")]
    stray = sorted({end for pair in ends for end in pair} - nodes.keys())
    if stray:
        raise Unfit(f"the question connects {stray[0]!r}, which it does not list")
    return task, NamedGraph.from_edges(nodes, ends)


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: the text tells no graph, or another than the stored one.
    """
    text = fields.get("question", fields.get("Q"))
    if not isinstance(text, str):
        raise Unfit("expected the question as text under 'question' or 'Q'")
    task, graph = read_text(text)
    stored = _stored(fields, graph)
    if stored is not None and stored.canonical() != graph.canonical():
        raise Unfit("the graph of the question is not the stored one")
    value, witness = fields.get("optimum"), fields.get("witness")
    if "result" in fields:
        value, witness = _exact_block(fields["result"])
    given = None if value is None else Given(value, _open(witness) if task == "tsp" else witness)
    parsed = Parsed(
        id=str(fields.get("id", name)),
        task=task,
        text=text,
        graph=stored or graph,
        published=None if value is None else str(value),
        given=given,
        graph_agrees=None if stored is None else True,
    )
    return parsed, CHECKER


def _stored(fields: Mapping[str, Any], told: NamedGraph) -> NamedGraph | None:
    if "adj" in fields:
        rows, names = fields["adj"], list(fields["name_list"])
        if told.weighted and len(rows) == len(names) + 1:
            names = [told.nodes[0], *names]
        if not isinstance(rows, list) or len(rows) != len(names) or any(len(row) != len(names) for row in rows):
            raise Unfit(f"expected adj to be a square matrix over {len(names)} names")
        ends = [
            (names[i], names[j], rows[i][j]) for i in range(len(names)) for j in range(i + 1, len(names)) if rows[i][j]
        ]
        return NamedGraph.from_edges(names, ends, weighted=told.weighted)
    if "nodes" in fields and "edges" in fields:
        return NamedGraph.from_edges(fields["nodes"], [tuple(edge) for edge in fields["edges"]], weighted=told.weighted)
    return None


_EXACT = ("brute_force", "backtracking", "dynamic_programming")


def _exact_block(result: Any) -> tuple[Any, Any]:
    """Number and witness of the exact algorithm's block; (None, None) without one."""
    blocks = [result[key] for key in _EXACT if isinstance(result, dict) and isinstance(result.get(key), dict)]
    if not blocks:
        return None, None
    fields = {key: value for key, value in blocks[0].items() if key != "cost_time"}
    numbers = [value for value in fields.values() if isinstance(value, int | float) and not isinstance(value, bool)]
    objects = [
        value
        for value in fields.values()
        if isinstance(value, dict) or (isinstance(value, list) and all(isinstance(name, str) for name in value))
    ]
    return next(iter(numbers), None), next(iter(objects), None)


def _open(tour: Any) -> Any:
    return tour[:-1] if isinstance(tour, list) and len(tour) > 1 and tour[0] == tour[-1] else tour
