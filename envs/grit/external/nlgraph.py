"""NLGraph (https://github.com/Arthur-Heng/NLGraph, arXiv 2305.10037): short questions, told in edge sentences or pairs.

The published checks look for fixed phrases; here the boxed value is read and the witness is verified. The task is told
from the question itself. The GNN task is no graph problem in this sense and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agl.graphs.named import NamedGraph
from agl.graphs.naming import natural_key
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

NEEDS: Mapping[TaskName, Any] = {
    "connectivity": "value",
    "cycle": "value",
    "topological_order": "witness",
    "shortest_path": "both",
    "max_flow": "value",
    "matching": "both",
    "hamilton_path": "witness",
}

_NUMBERED = re.compile(r"numbered from ([0-9]+) to ([0-9]+)")
_WEIGHTED = re.compile(r"an edge between node ([0-9]+) and node ([0-9]+) with weight (-?[0-9]+)")
_CAPACITY = re.compile(r"an edge from node ([0-9]+) to node ([0-9]+) with capacity ([0-9]+)")
_BEFORE = re.compile(r"node ([0-9]+) should be visited before node ([0-9]+)")
_PAIR = re.compile(r"\(([0-9]+),\s?([0-9]+)\)")
_WISH = re.compile(r"Applicant ([0-9]+) is interested in job ([0-9]+)")
_ROLES = re.compile(r"There are ([0-9]+) job applicants numbered .*? and ([0-9]+) jobs")
_ASKED = re.compile(r"(?:from|between) node ([0-9]+) (?:to|and) node ([0-9]+)")


def matches(fields: Mapping[str, Any]) -> bool:
    return {"question", "answer", "difficulty"} <= fields.keys() and not fields.keys() & {"graph", "nodes", "graph_nl"}


def read_text(text: str) -> tuple[TaskName, NamedGraph]:
    """Task and graph of a question.

    Raises:
        Unfit: no pattern of NLGraph stands in the text.
    """
    story, _, question = text.rpartition("Q:")
    if roles := _ROLES.search(story):
        nodes = [f"applicant {i}" for i in range(int(roles[1]))] + [f"job {i}" for i in range(int(roles[2]))]
        wishes = [(f"applicant {u}", f"job {v}") for u, v in _WISH.findall(story)]
        return "matching", NamedGraph.from_edges(nodes, wishes)
    between = _NUMBERED.search(story)
    nodes = [str(i) for i in range(int(between[1]), int(between[2]) + 1)] if between else []
    if "maximum flow" in question:
        caps = [(u, v, int(w)) for u, v, w in _CAPACITY.findall(story)]
        return "max_flow", NamedGraph.from_edges(nodes, caps, directed=True, weighted=True)
    if "shortest path" in question:
        weights = [(u, v, int(w)) for u, v, w in _WEIGHTED.findall(story)]
        return "shortest_path", NamedGraph.from_edges(nodes, weights, weighted=True)
    if "all the nodes be visited" in question:
        return "topological_order", NamedGraph.from_edges(nodes, _BEFORE.findall(story), directed=True)
    kinds: dict[str, TaskName] = {
        "every node exactly once": "hamilton_path",
        "a cycle": "cycle",
        "a path between": "connectivity",
    }
    task = next((kind for words, kind in kinds.items() if words in question), None)
    pairs = _PAIR.findall(story)
    if task is None or not (pairs or nodes):
        raise Unfit(
            "expected a question about a path, cycle, order, flow, matching or shortest path over edges like (0,4) or "
            "'an edge between node 0 and node 4 with weight 1'; the GNN task is not supported"
        )
    asked = [node for ends in _ASKED.findall(question) for node in ends]
    if not nodes:
        every: set[str] = {*asked, *(end for pair in pairs for end in pair)}
        nodes = sorted(every, key=natural_key)
    return task, NamedGraph.from_edges(nodes, pairs)


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: as `read_text`.
    """
    text = fields.get("question")
    if not isinstance(text, str):
        raise Unfit("expected the question as text under 'question'")
    task, graph = read_text(text)
    ends: tuple[str | None, str | None] = (None, None)
    if task in ("connectivity", "shortest_path", "max_flow"):
        asked = _ASKED.search(text.rpartition("Q:")[2])
        if asked is None:
            raise Unfit(f"expected a {task} question from one node to another")
        ends = (asked[1], asked[2])
    label = fields.get("answer")
    parsed = Parsed(
        id=str(fields.get("id", name)),
        task=task,
        text=text,
        graph=graph,
        start=ends[0],
        end=ends[1],
        aliases={} if task == "matching" else {f"node {node}": node for node in graph.nodes},
        published=label if isinstance(label, str) else None,
        given=_label(task, label) if isinstance(label, str) else None,
    )
    return parsed, Checker(benchmark="nlgraph", form="boxed", needs=NEEDS[task])


def _label(task: TaskName, label: str) -> Given | None:
    """The published sentence in parts; None for a wording that is not known."""
    listed = re.search(r"([0-9]+(?:\s*,\s*[0-9]+)+)", label)
    path = re.split(r"\s*,\s*", listed[1]) if listed else None
    last = re.findall(r"[0-9]+", label)[-1:]
    says = re.search(r"\b(yes|no)\b", label, re.IGNORECASE)
    if task in ("connectivity", "cycle"):
        return Given(says[1].casefold()) if says else None
    if task == "shortest_path":
        return Given(int(last[0]), path) if path and last else None
    if task == "max_flow":
        return Given(int(last[0])) if last else None
    if task == "matching":
        pairs = [[f"applicant {u}", f"job {v}"] for u, v in re.findall(r"applicant ([0-9]+): job ([0-9]+)", label)]
        total = re.search(r"([0-9]+) applicants? can find", label)
        return Given(int(total[1]), pairs) if total else None
    if path is None:
        return Given("no") if says and says[1].casefold() == "no" else None
    return Given(None, path)
