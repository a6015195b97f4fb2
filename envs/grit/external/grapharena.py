"""GraphArena style (https://github.com/squareRoot3/GraphArena, arXiv 2407.00379), written anew from its description.

Text under `problem_text` or `question`; only what follows the last "Problem to Solve" counts, the part before it is a
solved example. Answers are a list in square brackets: the last one that is a feasible object, arrows and line breaks
allowed; an unknown name makes a list infeasible. Beside `acc` items log `feasible` and `hallucinated`. Graph edit
distance and common subgraph ask about two graphs and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agl.graphs.named import NamedGraph
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

CHECKER = Checker(benchmark="grapharena", form="bracket", needs="witness")

_KINDS: tuple[tuple[str, TaskName], ...] = (
    ("shortest tour", "tsp"),
    ("vertex cover", "vertex_cover"),
    ("shortest path between", "shortest_path"),
    ("independent set", "independent_set"),
    ("clique", "clique"),
    ("connected components", "components"),
    ("common neighbors", "common_neighbors"),
    ("diameter", "diameter"),
)
"""Words of the question -> task; the first that occurs counts."""

_ROSTER = re.compile(
    r"^\s*-\s*(?:Names|Users|Authors|Entities|Airports) (?:in the network|in this knowledge graph|to visit):"
    r"\s*(.+?)\.?\s*$",
    re.MULTILINE,
)
_LISTED = re.compile(
    r"^\s*-\s*(?:Fr?iendship connections|Research collaborations between these authors):\s*(.*?)\.?\s*$", re.MULTILINE
)
_RELATION = re.compile(r"^\s*-\s*(.+?) is connected to (.+?) via the relationship .*$", re.MULTILINE)
_LEG = re.compile(r"^\s*(\S.*?) to (\S.*?):\s*([0-9]+(?:\.[0-9]+)?)\s*$", re.MULTILINE)
_BETWEEN = re.compile(r"(?:shortest path between|common neighbors of) (.+) in this network", re.DOTALL)


def matches(fields: Mapping[str, Any]) -> bool:
    text = fields.get("problem_text", fields.get("question"))
    return isinstance(text, str) and ("problem_text" in fields or "Problem to Solve" in text)


def read_text(text: str) -> tuple[TaskName, NamedGraph, list[str]]:
    """Task, graph, and the nodes that the question names.

    Raises:
        Unfit: no pattern of GraphArena stands behind "Problem to Solve".
    """
    body = text.rpartition("Problem to Solve")[2]
    roster = _ROSTER.search(body)
    if roster is None:
        raise Unfit("expected a line like '- Names in the network: ...' behind 'Problem to Solve'")
    names = [name.strip() for name in roster[1].split(", ")]
    rest = body[roster.end() :]
    words = rest.casefold()
    task = next((kind for said, kind in _KINDS if said in words), None)
    if task is None:
        raise Unfit(f"expected a GraphArena question about one of: {', '.join(said for said, _ in _KINDS)}")
    if task == "tsp":
        legs = [(u, v, float(w) if "." in w else int(w)) for u, v, w in _LEG.findall(rest)]
        return task, _over(names, legs, weighted=True), []
    listed = _LISTED.search(rest)
    pairs: list[tuple[str, str]] = []
    if listed is not None:
        pairs = [_ends(pair, names) for pair in listed[1].split(", ") if pair.strip()]
    else:
        pairs = [(u.strip(), v.strip()) for u, v in _RELATION.findall(rest)]
    asked = _BETWEEN.search(rest)
    named = list(_ends(asked[1], names)) if asked and task in ("shortest_path", "common_neighbors") else []
    return task, _over(names, pairs), named


def _over(names: list[str], ends: list[Any], weighted: bool = False) -> NamedGraph:
    for edge in ends:
        for end in edge[:2]:
            if end not in names:
                raise Unfit(f"the question connects {end!r}, which it does not list")
    return NamedGraph.from_edges(names, ends, weighted=weighted)


def _ends(text: str, names: list[str]) -> tuple[str, str]:
    """The two names that `text` joins by "and" or "to"; names may hold these words themselves."""
    known = set(names)
    found = [
        (text[: word.start()].strip(), text[word.end() :].strip())
        for word in re.finditer(r"\s(?:and|to)\s", text)
        if text[: word.start()].strip() in known and text[word.end() :].strip() in known
    ]
    if len(found) != 1:
        raise Unfit(f"expected two listed names joined by 'and' or 'to', got {text.strip()[:80]!r}")
    return found[0]


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: as `read_text`.
    """
    text = fields.get("problem_text", fields.get("question"))
    if not isinstance(text, str):
        raise Unfit("expected the question as text under 'problem_text' or 'question'")
    task, graph, asked = read_text(text)
    if task in ("shortest_path", "common_neighbors") and len(asked) != 2:
        raise Unfit(f"expected a {task} question that names two nodes")
    label = fields.get("answer", fields.get("exact_answer"))
    given = None
    if isinstance(label, list):
        given = Given(None, label)
    elif isinstance(label, str) and "[" in label:
        given = Given(None, [part.strip() for part in label.partition("[")[2].rpartition("]")[0].split(", ")])
    if given is not None and task == "tsp" and len(given.witness) > 1 and given.witness[0] == given.witness[-1]:
        given = Given(None, given.witness[:-1])
    parsed = Parsed(
        id=str(fields.get("id", name)),
        task=task,
        text=text,
        graph=graph,
        start=asked[0] if asked else None,
        end=asked[1] if asked else None,
        published=None if label is None else str(label),
        given=given,
    )
    return parsed, CHECKER
