r"""Reading and judging answers to items of other benchmarks.

Every such item is answered in `\boxed{}`; the form that its benchmark asks for is read as well when there is no box.
What counts is the value, the witness or both (`Checker.needs`); a witness is verified against the graph, so any optimal
one is right and no phrase is looked for.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from agl.boxed import boxes
from agl.graphs.named import NamedGraph
from agl.graphs.naming import NameTable, NamingError
from agl.graphs.solve import SolveError
from agl.graphs.solve.solution import read_exact
from agl.json_text import JsonError, loads
from envs.grit.items import Checker, GritTask, TaskName
from rewards.answers import AnswerError, angled, bracketed, node_list, spoken, stated_number
from rewards.verify import Verdict, verify


@dataclass(frozen=True)
class Problem:
    """Keys of value and witness in the JSON answer (None: the task has none), their kinds, and the tool that helps."""

    value: str | None
    witness: str | None = None
    kind: Literal["number", "yes_no"] = "number"
    shape: Literal["names", "map", "pairs"] = "names"
    tool: str | None = None


PROBLEMS: Mapping[TaskName, Problem] = {
    "shortest_path": Problem("cost", "path", tool="shortest_path"),
    "bfs": Problem(None, "order", tool="bfs"),
    "tsp": Problem("cost", "tour", tool="tsp"),
    "coloring": Problem("colors", "assignment", shape="map", tool="coloring"),
    "vertex_cover": Problem("size", "nodes", tool="vertex_cover"),
    "centrality": Problem(None, "nodes", tool="centrality"),
    "connectivity": Problem("connected", kind="yes_no", tool="components"),
    "cycle": Problem("cycle", kind="yes_no", tool="components"),
    "edge_exists": Problem("connected", kind="yes_no"),
    "topological_order": Problem(None, "order", tool="topological_order"),
    "hamilton_path": Problem(None, "path"),
    "max_flow": Problem("flow", tool="max_flow"),
    "matching": Problem("size", "pairs", shape="pairs", tool="matching"),
    "mst": Problem("weight", "edges", shape="pairs", tool="mst"),
    "diameter": Problem("diameter", "path", tool="diameter"),
    "triangles": Problem("triangles"),
    "components": Problem("components", "nodes", tool="components"),
    "component": Problem(None, "nodes", tool="components"),
    "node_count": Problem("nodes"),
    "edge_count": Problem("edges"),
    "degree": Problem("degree", tool="centrality"),
    "neighbors": Problem(None, "nodes"),
    "common_neighbors": Problem(None, "nodes"),
    "clique": Problem("size", "nodes"),
    "independent_set": Problem("size", "nodes", tool="vertex_cover"),
    "nearest": Problem(None, "nodes", tool="shortest_path"),
    "jaccard": Problem("value"),
    "clustering": Problem("value"),
}


@dataclass(frozen=True)
class Given:
    """What an answer submits: a number, `yes` or `no`; and a list of names, a map of names or a list of pairs."""

    value: int | float | str | Fraction | None = None
    witness: Any = None


@dataclass(frozen=True)
class Judged:
    """`feasible`: the witness is an object of the right kind, optimal or not."""

    right: bool = False
    value_right: bool = False
    readable: bool = True
    feasible: bool = False
    code: str = "no_answer"


class Unreadable(ValueError):
    """An answer that holds nothing of the right shape; `code` names the kind."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


MAX_TEXT = 20_000
"""Characters of an answer without a box that are searched, from its end."""
MAX_LISTS = 100
"""Bracketed lists that are tried, from the last one."""


def request(task: TaskName, checker: Checker) -> str:
    """The sentence that asks for the box."""
    problem = PROBLEMS[task]
    none = ", or with \\boxed{no} where none exists" if task in _MAY_NOT_EXIST else ""
    if checker.needs == "value":
        body = "\\boxed{yes} or \\boxed{no}" if problem.kind == "yes_no" else f"\\boxed{{...}}, a number{none}"
        return f"Finish your answer with {body}."
    listed = {"names": '["...", "..."]', "map": '{"...": 1}', "pairs": '[["...", "..."]]'}[problem.shape]
    said = {
        "names": f"{problem.witness} lists names",
        "map": f"{problem.witness} maps every name to its number",
        "pairs": f"{problem.witness} lists pairs of names",
    }[problem.shape]
    finish = "Finish your answer with \\boxed"
    if checker.needs == "both":
        return f'{finish}{{{{"{problem.value}": ..., "{problem.witness}": {listed}}}}}, where {said}{none}.'
    pairs = "pairs of " if problem.shape == "pairs" else ""
    return f"{finish}{{{listed}}}, a JSON list of {pairs}names{none}."


_MAY_NOT_EXIST = ("hamilton_path", "topological_order", "shortest_path")


def count_answers(checker: Checker, text: str) -> int:
    """Boxes in `text`; without any, 1 when the text may answer in the benchmark's own form, else 0."""
    found = len(boxes(text))
    if found or checker.form == "boxed":
        return found
    marks = {"angle3": "<<<", "bracket": "[", "text": ""}
    return int(bool(text.strip()) and marks[checker.form] in text)


def judge(task: GritTask, checker: Checker, graph: NamedGraph, names: NameTable, text: str) -> Judged:
    """Judge the answer in `text`; `graph` is the graph of the question in primary names. Never raises."""
    found = boxes(text)
    if len(found) > 1:
        return Judged(readable=False, code="several_answers")
    try:
        if found:
            return judge_given(task, checker, graph, read(task, checker, names, found[0]))
        if checker.form == "angle3":
            return judge_given(task, checker, graph, read(task, checker, names, angled(spoken(text)[-MAX_TEXT:])))
        if checker.form == "bracket":
            return _last_feasible(task, checker, graph, names, spoken(text)[-MAX_TEXT:])
        if checker.form == "text":
            return judge_given(task, checker, graph, _read_plain(task, checker, names, spoken(text)[-MAX_TEXT:]))
    except (AnswerError, Unreadable) as error:
        return Judged(readable=error.code in _NAMING, code=error.code)
    return Judged(readable=False)


_NAMING = ("unknown_name", "ambiguous_name")
"""Codes of answers that have the right shape but name what is no node."""


def _last_feasible(task: GritTask, checker: Checker, graph: NamedGraph, names: NameTable, text: str) -> Judged:
    last: Judged | None = None
    failed = "no_answer"
    for content in bracketed(text)[: -MAX_LISTS - 1 : -1]:
        if len(content) > MAX_TEXT // 2:
            continue
        try:
            judged = judge_given(task, checker, graph, read(task, checker, names, content))
        except (AnswerError, Unreadable) as error:
            failed = error.code if failed == "no_answer" else failed
            continue
        if judged.feasible or judged.right:
            return judged
        last = last or judged
    if last is None:
        raise Unreadable(failed)
    return last


# Reading


def read(task: GritTask, checker: Checker, names: NameTable, content: str) -> Given:
    """What stands in a wrapper: JSON, or a number, yes/no or names as plain text.

    Raises:
        AnswerError: the text cannot be read.
        Unreadable: it has another shape, or names what is no node.
    """
    try:
        value = loads(content)
    except JsonError:
        return _read_text(task, checker, names, content)
    problem = PROBLEMS[task.task]
    if isinstance(value, dict):
        keys = [key for key in (problem.value, problem.witness) if key is not None]
        if any(key in value for key in keys):
            number = value.get(problem.value) if problem.value is not None else None
            witness = value.get(problem.witness) if problem.witness is not None else None
            return Given(_scalar(number, problem), _named(witness, problem, names))
        if problem.shape == "names":
            raise Unreadable("bad_shape")
        return Given(None, _named(value, problem, names))
    if isinstance(value, list):
        if problem.witness is None:
            raise Unreadable("bad_shape")
        return Given(None, _named(value, problem, names))
    if checker.needs == "witness" and is_name(value):
        return _read_text(task, checker, names, str(value))
    if isinstance(value, str) and checker.needs == "value":
        return _read_text(task, checker, names, value)
    return Given(_scalar(value, problem))


def _read_text(task: GritTask, checker: Checker, names: NameTable, text: str) -> Given:
    problem, bare = PROBLEMS[task.task], text.strip()
    if not bare:
        raise Unreadable("no_answer")
    if bare.strip(" .!").casefold() == "no":
        return Given("no")
    if checker.needs != "witness":
        return Given(_yes_no(bare) if problem.kind == "yes_no" else stated_number(bare))
    if problem.shape == "names":
        return Given(None, node_list(bare, names))
    pairs = [re.split(r"\s*(?::|->|→|=)\s*", part) for part in re.split(r"\s*[,;\n]\s*", bare) if part.strip()]
    return Given(None, _named(pairs, problem, names))


def _read_plain(task: GritTask, checker: Checker, names: NameTable, text: str) -> Given:
    """An answer in plain words: all of it, else what stands in its last brackets or behind its last colon."""
    if checker.needs != "witness":
        return _read_text(task, checker, names, text)
    parts = [text, *bracketed(text)[-1:], *text.rpartition(":")[2:]]
    failed: AnswerError | Unreadable | None = None
    for part in parts:
        try:
            return _read_text(task, checker, names, part)
        except (AnswerError, Unreadable) as error:
            failed = failed or error
    raise failed or Unreadable("no_answer")


_SAYS = re.compile(r"\b(yes|no|true|false)\b", re.IGNORECASE)


def _yes_no(text: str) -> str:
    """The first word decides; otherwise all such words must say the same."""
    said = ["yes" if word.casefold() in ("yes", "true") else "no" for word in _SAYS.findall(text)]
    if not said:
        raise Unreadable("no_answer")
    if _SAYS.match(text.lstrip("*_\"'` ")) or len(set(said)) == 1:
        return said[0]
    raise Unreadable("ambiguous_label")


def is_name(value: Any) -> bool:
    """Whether a JSON value can name a node: a string, or a number that is an id."""
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18)


def _scalar(value: Any, problem: Problem) -> int | float | str | Fraction | None:
    if problem.kind == "yes_no":
        if isinstance(value, bool):
            return "yes" if value else "no"
        return _yes_no(value) if isinstance(value, str) else None
    if isinstance(value, str):
        return "no" if value.strip().casefold() == "no" else stated_number(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _named(value: Any, problem: Problem, names: NameTable) -> Any:
    if value is None:
        return None
    try:
        if problem.shape == "map":
            if not isinstance(value, dict) or not all(is_name(color) for color in value.values()):
                raise Unreadable("bad_shape")
            renamed = {names.name(node): color for node, color in value.items()}
            if len(renamed) < len(value):
                raise Unreadable("ambiguous_name")
            return renamed
        if isinstance(value, dict) and problem.shape == "pairs":
            value = [[one, other] for one, other in value.items()]
        if not isinstance(value, list):
            raise Unreadable("bad_shape")
        if problem.shape == "pairs":
            if not all(isinstance(pair, list) and len(pair) == 2 and all(map(is_name, pair)) for pair in value):
                raise Unreadable("bad_shape")
            return [[names.name(str(end)) for end in pair] for pair in value]
        if not all(map(is_name, value)):
            raise Unreadable("bad_shape")
        return [names.name(str(item)) for item in value]
    except NamingError as error:
        raise Unreadable(error.code) from None


# Judging


def judge_given(task: GritTask, checker: Checker, graph: NamedGraph, given: Given) -> Judged:
    """Judge what was read."""
    gold = task.gold.value
    value_right = given.value is not None and gold is not None and _equal(given.value, gold, checker.tolerance)
    if checker.needs == "value":
        code = "ok" if value_right else "no_answer" if given.value is None else "wrong_value"
        return Judged(value_right, value_right, given.value is not None, value_right, code)
    if gold == "no":
        right = given.value == "no" and given.witness is None
        return Judged(right, right, True, right, "ok" if right else "no_such_object")
    if given.witness is None:
        return Judged(value_right=value_right, readable=given.value is not None, code="value_only")
    claimed = given.value if checker.needs == "both" else None
    if checker.needs == "both" and claimed is None:
        return Judged(readable=False, code="bad_shape")
    verdict = _verified(task, graph, given.witness, claimed)
    return Judged(
        right=verdict.valid,
        value_right=verdict.valid or value_right,
        feasible=verdict.valid or verdict.code in ("not_optimal", "wrong_total"),
        code="ok" if verdict.code is None else verdict.code,
    )


def _equal(value: int | float | str | Fraction, gold: int | float | str, tolerance: float) -> bool:
    if isinstance(value, str) or gold in ("yes", "no"):
        return value == gold
    right = Fraction(read_exact(gold))
    return abs(Fraction(str(value)) - right) <= Fraction(str(tolerance)) * abs(right)


def _verified(task: GritTask, graph: NamedGraph, witness: Any, claimed: Any) -> Verdict:
    asked = [None if index is None else task.nodes[index] for index in (task.query.start, task.query.end)]
    best = task.gold.value
    known = _KNOWN.get(task.task)
    if known is not None:
        return verify(known, graph, witness, source=asked[0], target=asked[1], claimed=claimed, optimum=best)
    if task.task in _SETS or task.task == "centrality":
        wanted = {task.nodes[index] for index in task.gold.witness}
        if len(set(witness)) < len(witness):
            return Verdict(False, "repeated_node")
        if not wanted.issuperset(witness):
            return Verdict(False, "wrong_node")
        return Verdict(True) if len(witness) == len(wanted) else Verdict(False, "incomplete")
    return _OTHERS[task.task](task, graph, witness, claimed)


_KNOWN = {
    "shortest_path": "path",
    "tsp": "tour",
    "coloring": "coloring",
    "vertex_cover": "vertex_cover",
    "bfs": "bfs_any",
    "topological_order": "topological",
    "hamilton_path": "hamilton_path",
    "matching": "matching",
    "mst": "spanning_tree",
}
"""Tasks whose witness `rewards.verify` checks."""
_SETS = ("neighbors", "common_neighbors", "component")


def _settled(value: int, claimed: Any, best: Any) -> Verdict:
    if claimed is not None and not _equal(claimed, value, 0.0):
        return Verdict(False, "wrong_total", value)
    return Verdict(True, None, value) if value == best else Verdict(False, "not_optimal", value)


def _group(edges_wanted: bool) -> Callable[[GritTask, NamedGraph, Any, Any], Verdict]:
    """A clique (all pairs are edges) or an independent set (none is)."""

    def check(task: GritTask, graph: NamedGraph, witness: Sequence[str], claimed: Any) -> Verdict:
        if len(set(witness)) < len(witness):
            return Verdict(False, "repeated_node")
        chosen = set(witness)
        inside = sum(u in chosen and v in chosen for u, v, _ in graph.edges)
        if inside != (len(chosen) * (len(chosen) - 1) // 2 if edges_wanted else 0):
            return Verdict(False, "unknown_edge" if edges_wanted else "conflict")
        return _settled(len(chosen), claimed, task.gold.value)

    return check


def _diameter(task: GritTask, graph: NamedGraph, witness: Sequence[str], claimed: Any) -> Verdict:
    """A shortest path between two nodes that lie farthest apart."""
    if not witness:
        return Verdict(False, "no_witness")
    try:
        verdict = verify("path", graph, witness, source=witness[0], target=witness[-1], claimed=claimed)
    except SolveError as error:
        return Verdict(False, error.code)
    if verdict.valid and verdict.value != task.gold.value:
        return Verdict(False, "not_optimal", verdict.value)
    return verdict


def _representatives(task: GritTask, graph: NamedGraph, witness: Sequence[str], claimed: Any) -> Verdict:
    """One node of every connected component."""
    import networkx

    if len(set(witness)) < len(witness):
        return Verdict(False, "repeated_node")
    groups = list(networkx.connected_components(graph.to_networkx()))
    counts = [len(group.intersection(witness)) for group in groups]
    if max(counts) > 1:
        return Verdict(False, "same_component")
    return Verdict(True) if min(counts) == 1 else Verdict(False, "incomplete")


def _nearest(task: GritTask, graph: NamedGraph, witness: Sequence[str], claimed: Any) -> Verdict:
    """Any one of the candidates at the smallest distance."""
    if len(witness) != 1:
        return Verdict(False, "no_witness")
    legal = {task.nodes[index] for index in task.query.candidates or ()}
    if witness[0] not in legal:
        return Verdict(False, "wrong_node")
    return Verdict(True) if witness[0] in {task.nodes[i] for i in task.gold.witness} else Verdict(False, "not_optimal")


_OTHERS: Mapping[str, Callable[[GritTask, NamedGraph, Any, Any], Verdict]] = {
    "clique": _group(edges_wanted=True),
    "independent_set": _group(edges_wanted=False),
    "diameter": _diameter,
    "components": _representatives,
    "nearest": _nearest,
}


# Answers to play with


def right(task: GritTask, checker: Checker) -> Any:
    """The right answer as the JSON value in the box."""
    problem, gold = PROBLEMS[task.task], task.gold
    if checker.needs == "value" or gold.value == "no":
        return gold.value
    witness: Any = [task.nodes[index] for index in gold.witness] if problem.shape != "map" else None
    if problem.shape == "map":
        witness = dict(zip(task.nodes, gold.witness, strict=True))
    elif problem.shape == "pairs":
        witness = [witness[i : i + 2] for i in range(0, len(witness), 2)]
    elif task.task == "nearest":
        witness = witness[:1]
    return {problem.value: gold.value, problem.witness: witness} if checker.needs == "both" else witness


def guess(task: GritTask, checker: Checker, rng: random.Random) -> Any:
    """A random answer of the right shape."""
    problem, nodes = PROBLEMS[task.task], list(task.nodes)
    value: Any = rng.choice(("yes", "no")) if problem.kind == "yes_no" else rng.randint(0, 3 * len(nodes))
    if checker.needs == "value":
        return value
    witness: Any = rng.sample(nodes, rng.randint(1, len(nodes)))
    if task.task in ("bfs", "tsp", "topological_order", "hamilton_path"):
        witness = rng.sample(nodes, len(nodes))
    elif problem.shape == "map":
        witness = {node: rng.randint(1, 3) for node in nodes}
    elif problem.shape == "pairs":
        witness = [[nodes[u], nodes[v]] for u, v, _ in rng.sample(task.edges, rng.randint(0, len(task.edges)))]
    return {problem.value: value, problem.witness: witness} if checker.needs == "both" else witness
