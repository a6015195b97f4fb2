"""GraphQA (google-research/graphqa, arXiv 2310.04560): small tasks over graphs in seven wordings.

Rules: a sentence that says "directed" or "undirected" decides, not an arrow. Incident sentences may name the first node
by its number while the others have names; the number is the place in the declared list. All declared nodes are nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agl.graphs.encodings import read_encoding
from agl.graphs.named import NamedGraph
from envs.grit.external.item import Parsed, Unfit
from envs.grit.external.judge import Given
from envs.grit.items import Checker, TaskName

_KINDS: tuple[tuple[str, TaskName, Any], ...] = (
    (r"Is there a cycle", "cycle", "value"),
    (r"Is there a path (?:from|between) (?:node )?(.+?) (?:to|and) (?:node )?(.+?)\?", "connectivity", "value"),
    (r"Is node (.+?) connected to node (.+?)\?", "edge_exists", "value"),
    (r"How many nodes", "node_count", "value"),
    (r"How many edges", "edge_count", "value"),
    (r"degree of node (.+?)\?", "degree", "value"),
    (r"List all the nodes connected to (.+?) in alphabetical", "neighbors", "witness"),
    (r"How many triangles", "triangles", "value"),
    (r"length of the shortest path from (?:node )?(.+?) to (?:node )?(.+?)\?", "shortest_path", "value"),
    (r"maximum capacity of the flow from (?:node )?(.+?) to (?:node )?(.+?)\?", "max_flow", "value"),
)
_ROSTER = re.compile(r"among (?:nodes )?(.+?)\.\s*(?:\n|$)")
_SOCIAL = re.compile(r"^(.+?) and (.+?) (?:are friends|wrote a paper together|are connected)\.", re.MULTILINE)


def matches(fields: Mapping[str, Any]) -> bool:
    text = fields.get("question")
    return isinstance(text, str) and "graph" in text and bool(re.search(r"\bG\b[^.\n]* among (?:nodes )?", text))


def read_text(text: str) -> NamedGraph:
    """The graph of a question.

    Raises:
        Unfit: no list of nodes.
        GraphError: an edge names what is no node, or has an unknown form.
    """
    story = text.rpartition("Q:")[0] or text
    roster = _ROSTER.search(story)
    if roster is None:
        raise Unfit("expected a list of nodes like 'G describes a graph among nodes 0, 1, and 2.'")
    names = [name.strip() for name in re.split(r",\s*(?:and\s+)?|\s+and\s+", roster[1]) if name.strip()]
    body = story[: roster.start()] + "\n" + story[roster.end() :]
    friends = _SOCIAL.findall(body)
    if friends:
        stray = sorted({end for pair in friends for end in pair} - set(names))
        if stray:
            raise Unfit(f"the question connects {stray[0]!r}, which it does not list")
        return NamedGraph.from_edges(names, friends)
    if not story[roster.end() :].strip(" .\n"):
        return NamedGraph.from_edges(names, [], bool(re.search(r"\bdirected\b", body, re.IGNORECASE)))
    return read_encoding(body, names)


def read(fields: Mapping[str, Any], name: str) -> tuple[Parsed, Checker]:
    """One record.

    Raises:
        Unfit: an unknown question, or as `read_text`.
        GraphError: as `read_text`.
    """
    text = fields.get("question")
    if not isinstance(text, str):
        raise Unfit("expected the question as text under 'question'")
    asked = text.rpartition("Q:")[2]
    found = [(match, task, needs) for words, task, needs in _KINDS if (match := re.search(words, asked))]
    if not found:
        raise Unfit(
            "expected a GraphQA question about a cycle, path, edge, degree, neighbours, triangles, shortest path, or a "
            f"count of nodes or edges, got {asked.strip()[:80]!r}"
        )
    match, task, needs = found[0]
    ends = [*match.groups(), None, None]
    label = fields.get("answer")
    graph = read_text(text)
    parsed = Parsed(
        id=str(fields.get("id", name)),
        task=task,
        text=text,
        graph=graph,
        start=ends[0],
        end=ends[1],
        aliases={f"node {node}": node for node in graph.nodes},
        published=None if label is None else str(label),
        given=None if label is None else _label(task, needs, str(label), graph),
    )
    return parsed, Checker(benchmark="graphqa", form="text", needs=needs)


def _label(task: TaskName, needs: str, label: str, graph: NamedGraph) -> Given | None:
    said = label.strip().rstrip(".")
    if needs == "witness":
        return Given(None, [] if said.casefold() == "no nodes" else [part.strip() for part in said.split(",")])
    says = re.match(r"(yes|no)\b", said, re.IGNORECASE)
    if says and task in ("cycle", "connectivity", "edge_exists"):
        return Given(says[1].casefold())
    if "no path" in said.casefold():
        return Given("no")
    number = re.fullmatch("-?[0-9]+", said)
    return Given(int(said)) if number else None
