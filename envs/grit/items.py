"""The GRIT item: one question about one graph, the truth included. Files hold one item a line.

Items of other benchmarks (`envs.grit.external`) have the same type. They carry a `checker`, which says how their
answers are read and judged, and what the benchmark published as the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from agl.core import Frozen, Task
from agl.errors import DataError
from agl.graphs.named import NamedGraph
from agl.graphs.naming import NameTable, fold
from agl.json_text import JsonError, dumps, loads

TaskName = Literal[
    "shortest_path",
    "bfs",
    "tsp",
    "coloring",
    "vertex_cover",
    "centrality",
    "connectivity",
    "cycle",
    "edge_exists",
    "topological_order",
    "hamilton_path",
    "max_flow",
    "matching",
    "mst",
    "diameter",
    "triangles",
    "components",
    "component",
    "node_count",
    "edge_count",
    "degree",
    "neighbors",
    "common_neighbors",
    "clique",
    "independent_set",
    "nearest",
    "jaccard",
    "clustering",
]
Form = Literal["standard", "realistic", "published"]
Scheme = Literal["canonical", "random_id", "semantic", "mixed", "published"]

TASKS: tuple[TaskName, ...] = ("shortest_path", "bfs", "tsp", "coloring", "vertex_cover", "centrality")
"""The tasks of GRIT itself; the other names belong to items of other benchmarks."""
FORMS: tuple[Form, ...] = ("standard", "realistic")
SCHEMES: tuple[Scheme, ...] = ("canonical", "random_id", "semantic", "mixed")
MEASURES = ("degree", "closeness", "betweenness")
GENERATOR_VERSION = 1


class Query(Frozen):
    """What the question asks about, in node indices; fields that the task does not use are None."""

    start: int | None = None
    end: int | None = None
    measure: Literal["degree", "closeness", "betweenness"] | None = None
    candidates: tuple[int, ...] | None = None


class Gold(Frozen):
    """The right answer in node indices.

    `value`: cost, number of colours, size of the cover, or the highest centrality (an exact fraction as text); None for
    BFS. `witness`: path, tour, colour per node, cover, visit order, or the set of all top nodes.

    In items of other benchmarks `value` may also be `yes` or `no`, `no` for an object that does not exist as well, and
    the witness of `matching` and `mst` is the ends of its edges, one edge after the other.
    """

    value: int | float | str | None
    witness: tuple[int, ...]


class Checker(Frozen):
    r"""How the answer to an item of another benchmark is read and judged. `\boxed{}` is always read.

    `form` is the form that the benchmark itself asks for: none (`boxed`), `<<<...>>>` (`angle3`), the last feasible
    `[...]` (`bracket`), or plain text (`text`). `needs`: a number or yes/no alone (`value`), an object (`witness`), or
    the object and its number (`both`). `tolerance` is the relative error that a value may have.
    """

    benchmark: str
    form: Literal["boxed", "angle3", "bracket", "text"]
    needs: Literal["value", "witness", "both"]
    tolerance: float = Field(default=0.0, ge=0.0)


class Published(Frozen):
    """What the benchmark published beside the question. `answer_agrees`: it is right by our own exact solution;
    `graph_agrees`: a graph stored beside the text is the graph of the text. None where nothing was published."""

    answer: str | None = None
    answer_agrees: bool | None = None
    graph_agrees: bool | None = None


class GritTask(Task):
    """One question. Edges are (u, v, w) in indices, u < v where undirected; `nodes` holds the primary names in index
    order. `checker` and `published` are None in items of GRIT itself."""

    env: str = "grit"
    split: str
    task: TaskName
    graph_id: str
    form: Form
    scheme: Scheme
    scenario: str
    ood: bool = False
    n: int = Field(ge=1)
    m: int = Field(ge=0)
    question: str
    nodes: tuple[str, ...]
    aliases: dict[str, int] = Field(default_factory=dict)
    edges: tuple[tuple[int, int, int | float], ...]
    directed: bool = False
    weighted: bool = False
    query: Query
    gold: Gold
    certificate: dict[str, Any] = Field(default_factory=dict)
    generator_version: int = GENERATOR_VERSION
    checker: Checker | None = None
    published: Published | None = None

    @model_validator(mode="after")
    def _consistent(self) -> GritTask:
        if self.env != "grit":
            raise ValueError(f"env must be grit, got {self.env!r}")
        if not self.id.strip() or not self.graph_id.strip():
            raise ValueError("id and graph_id must not be blank")
        if len(self.nodes) != self.n or len(set(self.nodes)) != self.n:
            raise ValueError(f"nodes must hold n = {self.n} different names")
        if len(self.edges) != self.m:
            raise ValueError(f"edges must hold m = {self.m} edges, got {len(self.edges)}")
        used = [*self.gold.witness] if self.task != "coloring" else []
        used += [index for index in (self.query.start, self.query.end) if index is not None]
        used += [*self.aliases.values(), *(end for u, v, _ in self.edges for end in (u, v))]
        used += self.query.candidates or ()
        if used and not 0 <= min(used) <= max(used) < self.n:
            raise ValueError(f"an index lies outside 0..{self.n - 1}")
        for name in _NEEDED.get(self.task, ()):
            if getattr(self.query, name) is None:
                raise ValueError(f"a {self.task} item needs query.{name}")
        if self.checker is None and self.task not in TASKS:
            raise ValueError(f"a {self.task} item needs a checker")
        if self.checker is None and self.task in _NUMBERS and not isinstance(self.gold.value, int | float):
            raise ValueError(f"gold.value of a {self.task} item must be a number, got {self.gold.value!r}")
        if self.task == "coloring" and len(self.gold.witness) != self.n:
            raise ValueError(f"gold.witness must hold n = {self.n} colours, got {len(self.gold.witness)}")
        return self


_NUMBERS = ("shortest_path", "tsp", "coloring", "vertex_cover")
"""Tasks of GRIT whose gold value is a cost or a count."""
_NEEDED = {
    "shortest_path": ("start", "end"),
    "bfs": ("start",),
    "centrality": ("measure",),
    "connectivity": ("start", "end"),
    "edge_exists": ("start", "end"),
    "max_flow": ("start", "end"),
    "component": ("start",),
    "degree": ("start",),
    "neighbors": ("start",),
    "common_neighbors": ("start", "end"),
    "nearest": ("start", "candidates"),
    "jaccard": ("start", "end"),
    "clustering": ("start",),
}


def line(item: GritTask) -> str:
    """The item as one line of a GRIT file, without the line break."""
    hidden: dict[str, Any] = {"env": True}
    if item.checker is None:
        hidden |= {"checker": True, "published": True, "query": {"candidates"}}
    return dumps(item.model_dump(mode="json", exclude=hidden))


def write(items: Iterable[GritTask], path: Path) -> None:
    """Write a JSONL file, UTF-8, one item a line."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line(item) + "\n" for item in items)


def read(path: Path, limit: int | None = None) -> Iterator[GritTask]:
    """Items of a JSONL file in file order, blank lines skipped.

    Raises:
        DataError: a line that is no item; the message says which line and what is wrong with it.
    """
    count = 0
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, 1):
                if limit is not None and count >= limit:
                    return
                if text.strip():
                    yield _item(path, number, text)
                    count += 1
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the GRIT items in {path}: {error}") from None


def _item(path: Path, number: int, text: str) -> GritTask:
    where = f"{path}, line {number}"
    try:
        fields = loads(text)
    except JsonError as error:
        raise DataError(f"{where}: expected one JSON object, got text that is none: {error}") from None
    if not isinstance(fields, dict):
        raise DataError(
            f"{where}: expected one JSON object with the fields of a GRIT item, got {json.dumps(fields)[:60]}"
        )
    try:
        return GritTask.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "item"
        message = first["msg"].removeprefix("Value error, ")
        said = "unknown field; remove it" if first["type"] == "extra_forbidden" else message
        raise DataError(f"{where}: {place}: {said}") from None


def named_graph(item: GritTask) -> NamedGraph:
    """The graph of `item` in primary names."""
    edges = tuple((item.nodes[u], item.nodes[v], w) for u, v, w in item.edges)
    return NamedGraph(item.nodes, edges, item.directed, item.weighted)


def surfaces(item: GritTask) -> NameTable:
    """All spellings that stand for a node of `item`: its names, its aliases, and of `Node 3` or `Router 6121` also the
    bare number, where nothing else is called that."""
    forms = dict(item.aliases)
    taken = {fold(form) for form in [*item.nodes, *forms]}
    if item.scheme in ("canonical", "random_id"):
        for index, name in enumerate(item.nodes):
            number = name.rpartition(" ")[2]
            if number != name and fold(number) not in taken:
                forms[number] = index
    return NameTable(item.nodes, forms)
