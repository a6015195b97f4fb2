"""Reading and judging the boxed answer of a GRIT item: any optimal witness is right, never string equality.

Items of other benchmarks are read and judged by `envs.grit.external.judge`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from agl.boxed import boxes
from agl.graphs.named import NamedGraph
from agl.graphs.naming import NameTable, NamingError
from agl.graphs.solve import Solution
from agl.json_text import dumps
from envs.grit.build import parameters
from envs.grit.external import judge
from envs.grit.items import TASKS, GritTask
from rewards.answers import AnswerError, boxed_json
from rewards.verify import Verdict, verify

_SHAPES: dict[str, dict[str, str]] = {
    "shortest_path": {"path": "names", "cost": "number"},
    "tsp": {"tour": "names", "cost": "number"},
    "coloring": {"colors": "number", "assignment": "map"},
    "vertex_cover": {"size": "number", "nodes": "names"},
    "bfs": {"order": "names"},
    "centrality": {"nodes": "names"},
}
_VALUE = {"shortest_path": "cost", "tsp": "cost", "coloring": "colors", "vertex_cover": "size"}


@dataclass(frozen=True)
class Reading:
    """What an answer is worth. `readable`: it has the shape that was asked for; `right`: headline `acc`;
    `value_right`: its number alone is the optimum; `code`: `ok` or what is wrong; `parts`: task-specific numbers."""

    readable: bool = False
    right: bool = False
    value_right: bool = False
    code: str = "no_answer"
    parts: Mapping[str, float | None] = field(default_factory=dict)


def read_answer(task: GritTask, gold: NamedGraph, names: NameTable, text: str) -> Reading:
    """Judge the boxed value in `text` against the stored optimum of `task`; `gold` is its graph in primary names."""
    if task.checker is not None:
        return _external(judge.judge(task, task.checker, gold, names, text), task)
    try:
        value = boxed_json(text)
    except AnswerError as error:
        return Reading(code=error.code)
    key = _VALUE.get(task.task)
    if _is_number(value) and key is not None:
        return Reading(readable=True, value_right=_equals(value, task.gold.value), code="value_only")
    shape = _SHAPES[task.task]
    if not isinstance(value, dict) or not all(name in value and _fits(value[name], shape[name]) for name in shape):
        return Reading(code="bad_shape")
    value_right = key is not None and _equals(value[key], task.gold.value)
    try:
        named = {name: _named(value[name], names) for name in shape}
    except NamingError as error:
        return Reading(readable=True, value_right=value_right, code=error.code)
    return _judge(task, gold, named, value_right)


def _external(judged: judge.Judged, task: GritTask) -> Reading:
    parts: dict[str, float | None] = {}
    if task.checker is not None and task.checker.needs != "value":
        parts = {"feasible": float(judged.feasible), "hallucinated": float(judged.readable and not judged.feasible)}
    return Reading(judged.readable, judged.right, judged.value_right, judged.code, parts)


def count_answers(task: GritTask, text: str) -> int:
    """How many values `text` submits: its boxes, or for other benchmarks 1 for an answer in their own form."""
    return len(boxes(text)) if task.checker is None else judge.count_answers(task.checker, text)


def tool_call(task: GritTask) -> tuple[str, dict[str, Any]] | None:
    """Problem type and parameters of the call that helps most; None where no solver of the tool does.

    In items of other benchmarks the result need not be the answer itself: components settle a connection, the
    complement of a vertex cover is an independent set.
    """
    if task.checker is None:
        return task.task, parameters(task.task, task.query, task.nodes)
    tool = judge.PROBLEMS[task.task].tool
    if task.gold.value == "no" and tool in ("shortest_path", "topological_order"):
        tool = "components"
    if tool == "shortest_path" and task.query.end is None:
        return tool, {**_parameters(task, tool), "end": task.nodes[task.gold.witness[0]]}
    return None if tool is None else (tool, _parameters(task, tool))


def _parameters(task: GritTask, tool: str) -> dict[str, Any]:
    """What the question of another benchmark says about a call; nothing of its answer."""
    start, end = (None if index is None else task.nodes[index] for index in (task.query.start, task.query.end))
    if tool == "components":
        strong = task.directed and task.task not in ("connectivity", "shortest_path")
        return {"kind": "strong"} if strong else {}
    given: dict[str, dict[str, Any]] = {
        "shortest_path": {"start": start, "end": end},
        "max_flow": {"source": start, "target": end},
        "bfs": {"start": start},
        "centrality": {"measure": task.query.measure or "degree"},
    }
    return given.get(tool, {})


def tool_hint(task: GritTask) -> str:
    """How to call the tool for an item of another benchmark whose problem the general instructions do not list. It is
    part of the prompt, so the answer does not matter to it."""
    tool = None if task.checker is None else judge.PROBLEMS[task.task].tool
    if tool is None or tool in TASKS:
        return ""
    parameters = _parameters(task, tool)
    given = f" with parameters {dumps(parameters)}" if parameters else ""
    return f"\n\nThe graph tool also takes problem_type {tool}{given}."


def random_answer(task: GritTask, rng: random.Random) -> Any:
    """A random answer of the right shape to an item of another benchmark.

    Raises:
        ValueError: an item of GRIT itself.
    """
    if task.checker is None:
        raise ValueError("expected an item of another benchmark")
    return judge.guess(task, task.checker, rng)


def gold_answer(task: GritTask) -> Any:
    """The right answer in primary names, in the shape that the question asks for; an object in items of GRIT itself."""
    if task.checker is not None:
        return judge.right(task, task.checker)
    if task.task == "coloring":
        return {"colors": task.gold.value, "assignment": dict(zip(task.nodes, task.gold.witness, strict=True))}
    return _shaped(task.task, task.gold.value, [task.nodes[index] for index in task.gold.witness])


def tool_answer(solution: Solution) -> dict[str, Any]:
    """What the tool found, in the shape that a question of that task asks for; a fraction as a decimal."""
    value = solution.value
    return _shaped(solution.problem_type, value if isinstance(value, int) else float(value), solution.witness)


def _shaped(task: str, value: int | float | str | None, witness: Any) -> dict[str, Any]:
    kinds = {"number": value, "names": witness, "map": witness}
    return {name: kinds[kind] for name, kind in _SHAPES[task].items()}


def boxed(value: Any) -> str:
    """The answer as the question asks for it: JSON in a box, yes and no as plain words."""
    return f"\\boxed{{{value if value in ('yes', 'no') else dumps(value)}}}"


def _fits(value: Any, kind: str) -> bool:
    if kind == "number":
        return _is_number(value)
    if kind == "names":
        return isinstance(value, list) and all(map(judge.is_name, value))
    return isinstance(value, dict) and all(_is_number(item) or isinstance(item, str) for item in value.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equals(value: int | float, optimum: int | float | str | None) -> bool:
    return optimum is not None and Fraction(str(value)) == Fraction(str(optimum))


def _named(value: Any, names: NameTable) -> Any:
    """`value` with every mention of a node replaced by its primary name.

    Raises:
        NamingError: an unknown or ambiguous name, or two keys that name one node.
    """
    if isinstance(value, list):
        return [names.name(str(item)) for item in value]
    if isinstance(value, dict):
        renamed = {names.name(node): color for node, color in value.items()}
        if len(renamed) < len(value):
            raise NamingError("ambiguous_name", "two keys name one node")
        return renamed
    return value


def _judge(task: GritTask, gold: NamedGraph, named: Mapping[str, Any], value_right: bool) -> Reading:
    optimum = task.gold.value
    best = [task.nodes[index] for index in task.gold.witness] if task.task != "coloring" else []
    parts: dict[str, float | None] = {}
    if task.task == "shortest_path" and task.query.start is not None and task.query.end is not None:
        source, target = task.nodes[task.query.start], task.nodes[task.query.end]
        verdict = verify(
            "path", gold, named["path"], source=source, target=target, claimed=named["cost"], optimum=optimum
        )
    elif task.task == "tsp":
        verdict = verify("tour", gold, named["tour"], claimed=named["cost"], optimum=optimum)
        if verdict.value is not None and isinstance(optimum, int | float):
            parts["gap"] = float(verdict.value) / optimum - 1
    elif task.task == "coloring":
        verdict = verify("coloring", gold, named["assignment"], claimed=named["colors"], optimum=optimum)
    elif task.task == "vertex_cover":
        verdict = verify("vertex_cover", gold, named["nodes"], claimed=named["size"], optimum=optimum)
    elif task.task == "bfs" and task.query.start is not None:
        verdict = verify("bfs_any", gold, named["order"], source=task.nodes[task.query.start])
        parts["acc_valid"] = float(verdict.valid)
        if verdict.valid and named["order"] != best:
            verdict = Verdict(False, "wrong_order")
        value_right = verdict.valid
    else:
        verdict = verify("top_nodes", gold, named["nodes"], measure=task.query.measure, optimum=best)
        parts["contains_one"] = float(not set(best).isdisjoint(named["nodes"]))
        value_right = verdict.valid
    return Reading(
        readable=True,
        right=verdict.valid,
        value_right=verdict.valid or value_right,
        code="ok" if verdict.code is None else verdict.code,
        parts=parts,
    )
