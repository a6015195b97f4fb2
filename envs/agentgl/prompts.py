"""What the agent reads: instructions, the question, results of a search, and the sentence that asks whether to go on.

Own wording throughout; AgentGL's (arXiv 2604.05846) says the same things. Texts of nodes are data: marks in them that a
protocol could take for its own are broken up, so that no text closes a result or opens a query.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import jinja2

from agl.graphs.text_graph import TextGraph
from agl.graphs.view import GraphView
from envs.agentgl.pools import Found, Pool, PoolOptions, Role
from rewards.navigation import TaskKind

_MARK = re.compile(r"<(?=\||/?[A-Za-z_][\w-]*>)")
_ARXIV = re.compile(r"(cs|math|stat|eess)[.\- ][A-Za-z]{2}")
_ROLES: dict[Role, str] = {"common": "near both", "u": "near the first only", "v": "near the second only"}
_SALIENT = {"personalised": "that matter most around", "global": "that matter most in the whole graph, whatever is"}
_TWO = {"exact": "two steps away from", "upto": "one or two steps away from"}


def plain(text: str, most: int) -> str:
    """The first `most` characters of a node's text as one line without protocol marks (`<|..` and `<name>` get a
    blank behind the bracket)."""
    return _MARK.sub("< ", " ".join(text[: 4 * most].split())[:most])


def instructions(task: TaskKind, options: PoolOptions, budget: int, *, listed: bool, arxiv: bool) -> str:
    """The system prompt; `listed`: the question lists the classes."""
    pools = tuple((pool.value, meaning, options.k[pool]) for pool, meaning in _meanings(task, options).items())
    return _template().render(
        task=task,
        pools=pools,
        preview=options.preview_chars,
        budget=budget,
        show_labels=options.show_labels,
        listed=listed,
        arxiv=arxiv,
    )


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True).get_template(
        "instructions.jinja"
    )


def _meanings(task: TaskKind, options: PoolOptions) -> dict[Pool, str]:
    two = _TWO[options.two_hop]
    if task == "nc":
        return {
            Pool.ONE_HOP: "neighbours of the target, ranked by how well they fit query and target",
            Pool.TWO_HOP: f"nodes {two} the target, ranked likewise",
            Pool.PAGERANK: f"nodes {_SALIENT[options.salience]} the target by PageRank; the query is ignored",
            Pool.SIMILAR: "nodes of the whole graph whose texts are most like that of the target; the query is ignored",
        }
    status = "with a link" if options.profile == "code" else "with and without a link, which is stated"
    return {
        Pool.ONE_HOP: "neighbours of both nodes, then of one of them only, ranked by how well they fit query and pair",
        Pool.TWO_HOP: f"nodes {two} both nodes, then one of them only, ranked likewise",
        Pool.PAGERANK: f"linked pairs {_SALIENT[options.salience]} the two nodes by PageRank; the query is ignored",
        Pool.SIMILAR: f"pairs {status}, whose texts are most like those of the two nodes; the query is ignored",
    }


def names_arxiv(graph: TextGraph) -> bool:
    """Whether the classes are categories of arXiv."""
    return bool(graph.class_names) and all(_ARXIV.fullmatch(name) for name in graph.class_names)


def node_question(view: GraphView, options: PoolOptions, *, listed: bool) -> str:
    """The target's text and the classes; nothing else of the target."""
    (node,) = view.targets
    lines = [*_about(view.graph), "Text of the target node:", _text(view, node, options)]
    if listed:
        lines += ["", "Classes:", *(f"- {name}" for name in view.graph.class_names)]
    return "\n".join([*lines, "", "To which class does the target node belong?"])


def pair_question(view: GraphView, options: PoolOptions) -> str:
    """The two texts."""
    first, second = view.targets
    lines = [*_about(view.graph), "Text of the first node:", _text(view, first, options), ""]
    lines += ["Text of the second node:", _text(view, second, options)]
    return "\n".join([*lines, "", "Are the two nodes linked?"])


def _about(graph: TextGraph) -> list[str]:
    edge = graph.meta.get("edge")
    return [f"A link in this graph means: {edge}.", ""] if edge else []


def _text(view: GraphView, node: int, options: PoolOptions) -> str:
    return plain(view.text(node), options.preview_chars) or "(no text)"


def results(view: GraphView, found: Found, options: PoolOptions) -> str:
    """One line for each result, `(rank) text`; no ids and no degrees. `None` where there are none."""
    lines = []
    for place, node in enumerate(found.nodes):
        notes = [_ROLES[found.roles[place]]] if found.roles else []
        label = found.labels[place] if found.labels else None
        notes += [f"class {plain(label.name, 200)}"] if label is not None else []
        lines.append(_line(place, notes, _text(view, node, options)))
    for place, (u, v) in enumerate(found.pairs):
        notes = ["linked" if found.linked[place] else "not linked"]
        lines.append(_line(place, notes, f"{_text(view, u, options)} || {_text(view, v, options)}"))
    return "\n".join(lines) or "None"


def _line(place: int, notes: list[str], text: str) -> str:
    said = f"[{', '.join(notes)}] " if notes else ""
    return f"({place + 1}) {said}{text}"


def reflect(pool: Pool) -> str:
    """The retrospective termination trigger of stage 2, after the result of a search."""
    return (
        f"Look first at what the {pool.value} pool has just returned and at what it says about the question; then "
        "decide whether another search is really needed or the answer can be given now."
    )


def last(budget: int) -> str:
    """After the last search of the budget."""
    return f"The budget of {budget} search{'' if budget == 1 else 'es'} is used up; give the answer now."
