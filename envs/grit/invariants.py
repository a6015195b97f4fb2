"""The ten invariants of a GRIT release, checked on every item of its files.

Nothing of what made an item is trusted: questions are read back by an independent parser, optimality is proven by
`agl.graphs.check`, isomorphism is decided exactly. Only invariant 6 runs the solvers, because it is about the tool.

Of perturbed graphs of users what applies is checked: sizes, weights and views were theirs to choose.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agl.errors import DataError
from agl.graphs.named import GraphError, read_graph
from agl.graphs.naming import fold
from agl.graphs.solve import Limits, SolveError, solve
from agl.json_text import dumps, loads
from agl.run_folder import read_object
from envs.grit.answers import boxed, gold_answer, read_answer, tool_answer
from envs.grit.build import SPLITS, VIEWS, Recipe, faults, item, parameters
from envs.grit.export import MANIFEST, ignore_interrupts, sha256
from envs.grit.graphs import MAX_WEIGHT, WEIGHTED
from envs.grit.items import GritTask, line, named_graph, read, surfaces
from envs.grit.parse import ParseError, parse
from envs.grit.perturb import CONNECTED
from envs.grit.perturb import SPLIT as PERTURBED
from rewards.structure import compare

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {
    1: "the independent parser reads back nodes, edges, weights, query and aliases",
    2: "names and aliases stand for one node each, also after folding",
    3: "all views of a graph are equal in indices, and so are their answers",
    4: "graphs are simple, connected, of a legal size, with legal weights",
    5: "the answer is proven, scores 1.0, and wrong answers score 0.0",
    6: "the true graph has s_inv 1, and the tool answers the question with it",
    7: "files have the bytes that the manifest states",
    8: "no graph and no out-of-distribution name is in two splits",
    9: "questions are shorter than 24,000 tokens",
    10: "questions are plain ASCII, apart from apostrophes where the recipe says so",
}
MAX_TOKENS = 24_000
CHARACTERS_PER_TOKEN = 4
UNKNOWN = "no such node"
SHOWN = 5
"""Faults per invariant that a report quotes."""
SOLVER_SECONDS = 600.0
_GRAPHS_PER_JOB = 8


@dataclass(frozen=True)
class Fault:
    """What is wrong with one item, graph or file."""

    where: str
    message: str


@dataclass
class Finding:
    """Of one invariant: how many things were checked and what was wrong, the first few in words."""

    checked: int = 0
    faults: int = 0
    first: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        self.faults += 1
        if len(self.first) < SHOWN:
            self.first.append(fault)


@dataclass
class Report:
    """All findings by number of the invariant. `notes` says what could not be checked."""

    items: int = 0
    findings: dict[int, Finding] = field(default_factory=lambda: {number: Finding() for number in TITLES})
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(finding.faults for finding in self.findings.values())

    def summary(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "passed": self.passed,
            "items": self.items,
            "invariants": {
                str(number): {
                    "title": TITLES[number],
                    "checked": finding.checked,
                    "faults": finding.faults,
                    "first": [{"where": fault.where, "message": fault.message} for fault in finding.first],
                }
                for number, finding in self.findings.items()
            },
            "notes": self.notes,
        }


def table(report: Report) -> Table:
    """The findings for a terminal."""
    from rich.table import Table

    shown = Table()
    for name in ("", "invariant"):
        shown.add_column(name)
    for name in ("checked", "faults"):
        shown.add_column(name, justify="right")
    for number, finding in report.findings.items():
        shown.add_row(str(number), TITLES[number], f"{finding.checked:,}", f"{finding.faults:,}")
    return shown


@dataclass
class _GraphResult:
    """What one graph, told in all of its views, tells the checks across graphs."""

    items: int
    faults: list[tuple[int, Fault]]
    split: str
    graph_id: str
    n: int
    edges: tuple[tuple[int, int, int | float], ...]
    hash: str
    forms: frozenset[str]
    words: frozenset[str]
    scenarios: frozenset[str]


_PER_ITEM = (1, 2, 4, 5, 6, 9, 10)


def verify(
    paths: Sequence[Path],
    *,
    workers: int = 1,
    rebuild: bool = False,
    on_graphs: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Check all invariants on all items of `paths`; across files where splits are compared.

    `rebuild` also generates every item again and compares it.

    Raises:
        DataError: a file cannot be read, holds no items, or items of another benchmark.
    """
    report = Report()
    recipes = {path: _check_bytes(path, report) for path in paths}
    groups: dict[tuple[str, int, str], list[GritTask]] = {}
    made_by: dict[tuple[str, int, str], Recipe] = {}
    for path in paths:
        count = report.items
        for task in read(path):
            if task.checker is not None or task.split not in (*SPLITS, PERTURBED):
                known = ", ".join((*SPLITS, PERTURBED))
                raise DataError(f"expected items of GRIT's splits ({known}), got {task.split!r} in {path}")
            key = (task.split, task.seed, task.graph_id)
            groups.setdefault(key, []).append(task)
            made_by[key] = recipes[path] or Recipe(seed=task.seed)
            report.items += 1
        if report.items == count:
            raise DataError(f"expected GRIT items in {path}, got none; check the path")
    for number in _PER_ITEM:
        report.findings[number].checked = report.items
    report.findings[3].checked = len(groups)
    jobs = [(told, made_by[key], rebuild and key[0] in SPLITS) for key, told in groups.items()]
    results = _check_graphs(jobs, workers, on_graphs)
    for result in results:
        for number, fault in result.faults:
            report.findings[number].add(fault)
    released = [result for result in results if result.split in SPLITS]
    report.findings[7].checked += sum(result.items for result in released) if rebuild else 0
    report.findings[8].checked = len(released)
    for fault in _shared(released):
        report.findings[8].add(fault)
    splits = {result.split for result in released}
    if len(released) < len(results):
        report.notes.append(
            "perturbed graphs have the sizes, weights and views that were asked for; they were not compared across "
            "splits nor generated again"
        )
    if len(splits - {"mini"}) < 2:
        report.notes.append("fewer than two splits besides mini were given: nothing was compared across splits")
    if "mini" in splits:
        report.notes.append("mini is for demonstrations and may share graphs with train: it was not compared")
    return report


_Job = list[tuple[list[GritTask], Recipe, bool]]
"""Views of a graph, how they were made, and whether to make them again."""


def _check_graphs(groups: _Job, workers: int, on_graphs: Callable[[int, int], None]) -> list[_GraphResult]:
    jobs = [groups[i : i + _GRAPHS_PER_JOB] for i in range(0, len(groups), _GRAPHS_PER_JOB)]
    results: list[_GraphResult] = []
    on_graphs(0, len(groups))
    if workers == 1:
        for job in jobs:
            results += _check_job(job)
            on_graphs(len(results), len(groups))
        return results
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, initializer=ignore_interrupts) as pool:
        waiting: deque[Future[list[_GraphResult]]] = deque()
        try:
            for job in jobs:
                # Few at a time: a job holds all texts of its graphs.
                waiting.append(pool.submit(_check_job, job))
                if len(waiting) > 4 * workers:
                    results += waiting.popleft().result()
                    on_graphs(len(results), len(groups))
            while waiting:
                results += waiting.popleft().result()
                on_graphs(len(results), len(groups))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results


def _check_job(job: _Job) -> list[_GraphResult]:
    return [_check_graph(*graph) for graph in job]


def _check_graph(told: list[GritTask], recipe: Recipe, rebuild: bool) -> _GraphResult:
    found: list[tuple[int, Fault]] = []
    proven: dict[str, list[str]] = {}
    for task in told:
        for number, messages in (
            (1, _read_back(task)),
            (2, _names(task)),
            (4, _graph(task)),
            (5, _proof(task, proven)),
            (5, _scores(task)),
            (6, _tool(task)),
            (7, _rebuilt(task, recipe) if rebuild else ()),
            (9, _length(task)),
            (10, _letters(task, recipe.unicode)),
        ):
            found += [(number, Fault(task.id, message)) for message in messages]
    found += [(3, Fault(told[0].graph_id, message)) for message in _views(told)]
    first = told[0]
    forms = {fold(form) for task in told for form in (*task.nodes, *task.aliases)}
    words = {fold(word) for task in told if task.scheme == "semantic" for name in task.nodes for word in name.split()}
    return _GraphResult(
        items=len(told),
        faults=found,
        split=first.split,
        graph_id=first.graph_id,
        n=first.n,
        edges=first.edges,
        hash=isomorphism_hash(first.n, first.edges),
        forms=frozenset(forms),
        words=frozenset(words),
        scenarios=frozenset(task.scenario for task in told),
    )


def _read_back(task: GritTask) -> Iterator[str]:
    try:
        parsed = parse(task.question)
    except ParseError as error:
        yield f"{error.code}: {error}"
        return
    pairs = {
        "task": (parsed.task, task.task),
        "nodes": (parsed.nodes, task.nodes),
        "aliases": (parsed.aliases, task.aliases),
        "edges": (parsed.edges, task.edges),
        "start": (parsed.start, task.query.start),
        "end": (parsed.end, task.query.end),
        "measure": (parsed.measure, task.query.measure),
    }
    for name, (said, stored) in pairs.items():
        if said == stored:
            continue
        if name == "edges":
            extra = sorted(set(parsed.edges) - set(task.edges))
            missing = sorted(set(task.edges) - set(parsed.edges))
            yield f"edges of the text but not stored: {extra[:3]}; stored but not in the text: {missing[:3]}"
        else:
            yield f"{name} of the text: {str(said)[:80]}; stored: {str(stored)[:80]}"


def _names(task: GritTask) -> Iterator[str]:
    owners: dict[str, str] = {}
    for spelling in (*task.nodes, *task.aliases):
        folded = fold(spelling)
        if folded in owners:
            yield f"{spelling!r} and {owners[folded]!r} are one name after folding"
        owners.setdefault(folded, spelling)
    if task.scheme != "canonical":  # there, Node 1 and Node 11 are the definition
        # Everything between a prefix and what it begins also begins with it, so neighbours show one if there is one.
        for short, long in pairwise(sorted(owners)):
            if long.startswith(short) and (long[len(short)].isalnum() or long[len(short)] == "_"):
                yield f"{owners[short]!r} is the beginning of {owners[long]!r}"


def _views(told: Sequence[GritTask]) -> Iterator[str]:
    first = told[0]
    for name in ("task", "n", "m", "edges", "query", "gold", "certificate", "weighted", "directed", "scenario", "ood"):
        for task in told[1:]:
            if getattr(task, name) != getattr(first, name):
                yield f"{name} of {task.id} differs from that of {first.id}"
                break
    counts = Counter((task.form, task.scheme) for task in told)
    if twice := [view for view, count in counts.items() if count > 1]:
        yield f"the view {'-'.join(twice[0])} is there {counts[twice[0]]} times"
    if first.split == PERTURBED:
        return
    missing = set(VIEWS) - counts.keys()
    drops = SPLITS[first.split].drops_views and first.task == "vertex_cover"
    if missing and not (drops and len(missing) == 2 and len({scheme for _, scheme in missing}) == 1):
        absent = ", ".join(sorted("-".join(view) for view in missing))
        yield f"told in {len(counts)} views; missing: {absent}"


def _model(task: GritTask) -> Iterator[str]:
    """What the graph model of a split fixes."""
    split = SPLITS[task.split]
    shift = split.tsp_shift if task.task == "tsp" else 0
    if not split.smallest + shift <= task.n <= split.largest + shift:
        yield f"{task.n} nodes, but {task.split} has {split.smallest + shift} to {split.largest + shift}"
    if task.ood != split.ood:
        yield f"ood is {task.ood} in {task.split}"
    heaviest = MAX_WEIGHT if task.weighted else 1
    if wrong := [w for _, _, w in task.edges if type(w) is not int or not 1 <= w <= heaviest]:
        yield f"the weight {wrong[0]} is no whole number from 1 to {heaviest}"


def _graph(task: GritTask) -> Iterator[str]:
    if task.split in SPLITS:
        yield from _model(task)
    elif wrong := [w for _, _, w in task.edges if w <= 0 or (w != 1 and not task.weighted)]:
        yield f"the weight {wrong[0]} is not above 0, or not 1 in an unweighted graph"
    if task.directed or task.weighted != (task.task in WEIGHTED):
        yield "the flags directed and weighted do not fit the task"
    ends = [(u, v) for u, v, _ in task.edges]
    if any(u >= v for u, v in ends) or len(set(ends)) < len(ends):
        yield "an edge is a loop, stands twice, or does not have u < v"
    if task.task == "tsp" and len(ends) != task.n * (task.n - 1) // 2:
        yield "the graph is not complete"
    reached, queue = {0}, deque([0])
    around: list[list[int]] = [[] for _ in range(task.n)]
    for u, v in ends:
        around[u].append(v)
        around[v].append(u)
    while queue:
        fresh = [v for v in around[queue.popleft()] if v not in reached]
        reached.update(fresh)
        queue.extend(fresh)
    if len(reached) < task.n and (task.split in SPLITS or task.task in CONNECTED):
        yield f"only {len(reached)} of {task.n} nodes are connected"


def _proof(task: GritTask, proven: dict[str, list[str]]) -> list[str]:
    """Faults of answer and certificate; views with equal content are proven once."""
    content = dumps(
        [task.task, task.n, task.edges, task.query.model_dump(), task.gold.model_dump(), dict(task.certificate)]
    )
    if content not in proven:
        proven[content] = faults(task)
    return proven[content]


def _scores(task: GritTask) -> Iterator[str]:
    graph, names = named_graph(task), surfaces(task)
    right = gold_answer(task)
    reading = read_answer(task, graph, names, boxed(right))
    if not (reading.readable and reading.right and reading.value_right):
        yield f"the right answer is judged {reading.code}"
    wanted = {"gap": 0.0, "acc_valid": 1.0, "contains_one": 1.0}
    for part, number in reading.parts.items():
        if number != wanted.get(part, number):
            yield f"{part} of the right answer is {number}"
    for kind, wrong in mutants(task).items():
        if read_answer(task, graph, names, boxed(wrong)).right:
            yield f"a wrong answer ({kind}) is judged right: {boxed(wrong)[:80]}"


def mutants(task: GritTask) -> dict[str, dict[str, Any]]:
    """Answers that are certainly wrong, by kind: `wrong_value`, `missing_element`, `swapped_nodes`, `extra_node`,
    `empty`. A kind is left out where the graph is so small or regular that no such answer is wrong."""
    right = gold_answer(task)
    if task.task == "coloring":
        return _wrong_colorings(task, right)
    (key,) = right.keys() - {"cost", "size"}
    names: list[str] = right[key]
    found = {
        "missing_element": right | {key: names[:-1]},
        "extra_node": right | {key: [*names, UNKNOWN]},
        "empty": right | {key: []},
    }
    for value in right.keys() & {"cost", "size"}:
        found["wrong_value"] = right | {value: right[value] + 1}
    others = [name for name in task.nodes if name not in names]
    if task.task == "bfs" and len(names) > 1:
        found["wrong_value"] = right | {key: [*names[1:], names[0]]}
    elif task.task == "centrality" and others:
        found["wrong_value"] = right | {key: others}
    swapped = _swapped(task, names, others)
    return found if swapped is None else found | {"swapped_nodes": right | {key: swapped}}


def _swapped(task: GritTask, names: list[str], others: list[str]) -> list[str] | None:
    """`names` with two of its nodes exchanged, or one exchanged for a node outside, such that it is wrong."""
    place = {name: index for index, name in enumerate(task.nodes)}
    weight = {frozenset((u, v)): Fraction(str(w)) for u, v, w in task.edges}
    if task.task in ("shortest_path", "bfs"):
        return [names[-1], *names[1:-1], names[0]] if len(names) > 1 else None
    if task.task == "centrality":
        return [others[0], *names[1:]] if others else None
    if task.task == "tsp":
        for i, j in combinations(range(len(names)), 2):
            tour = list(names)
            tour[i], tour[j] = tour[j], tour[i]
            steps = pairwise([place[name] for name in (*tour, tour[0])])
            if sum(weight[frozenset(step)] for step in steps if frozenset(step) in weight) != Fraction(
                str(task.gold.value)
            ):
                return tour
        return None
    for i in range(len(names)):
        for other in others:
            cover = {place[name] for name in [*names[:i], other, *names[i + 1 :]]}
            if any(u not in cover and v not in cover for u, v, _ in task.edges):
                return [*names[:i], other, *names[i + 1 :]]
    return None


def _wrong_colorings(task: GritTask, right: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    colors: dict[str, int] = right["assignment"]
    found: dict[str, dict[str, Any]] = {
        "wrong_value": {**right, "colors": right["colors"] + 1},
        "missing_element": {**right, "assignment": dict(list(colors.items())[:-1])},
        "extra_node": {**right, "assignment": colors | {UNKNOWN: 1}},
        "empty": {**right, "assignment": {}},
    }
    edges = [(task.nodes[u], task.nodes[v]) for u, v, _ in task.edges]
    for a, b in edges:
        exchanged = colors | {a: colors[b], b: colors[a]}
        if any(exchanged[u] == exchanged[v] for u, v in edges):
            return found | {"swapped_nodes": {**right, "assignment": exchanged}}
    return found


def _tool(task: GritTask) -> Iterator[str]:
    gold = named_graph(task)
    try:
        graph = read_graph(loads(dumps(gold.to_json())))
        structure = compare(graph, gold, surfaces(task))
        if structure.jaccard != 1.0 or not structure.exact:
            yield f"the true graph has s_inv {structure.jaccard:g} ({structure.error_class.value})"
        told = parameters(task.task, task.query, task.nodes)
        solution = solve(task.task, graph, told, limits=Limits(seconds=SOLVER_SECONDS))
    except (GraphError, SolveError) as error:
        yield f"the tool refuses the true graph: {error.code}: {error}"
        return
    reading = read_answer(task, gold, surfaces(task), boxed(tool_answer(solution)))
    if not reading.right:
        yield f"the tool's answer is judged {reading.code}"


def _rebuilt(task: GritTask, recipe: Recipe) -> Iterator[str]:
    number = int(task.graph_id.rpartition("-")[2])
    if number >= SPLITS[task.split].graphs:
        yield f"{task.split} has no graph number {number}"
    elif line(item(SPLITS[task.split], recipe, task.task, number, (task.form, task.scheme))) != line(task):
        yield "generated again, the item is another one"


def _length(task: GritTask) -> Iterator[str]:
    if (tokens := len(task.question) / CHARACTERS_PER_TOKEN) >= MAX_TOKENS:
        yield f"about {tokens:,.0f} tokens"


def _letters(task: GritTask, unicode: bool) -> Iterator[str]:
    allowed = "\u2019" if unicode else ""
    if odd := sorted({letter for letter in task.question if not letter.isascii() and letter not in allowed}):
        yield f"the question holds {odd[0]!r} (U+{ord(odd[0]):04X})"


def _check_bytes(path: Path, report: Report) -> Recipe | None:
    """Compare a file with the manifest beside it; returns the recipe of the manifest."""
    place = path.parent / MANIFEST
    manifest = read_object(place) if place.is_file() else {}
    if manifest.get("benchmark") != "GRIT":
        report.notes.append(f"no {MANIFEST} of GRIT beside {path}: its bytes were not compared")
        return None
    try:
        digests = {
            name: str(about["sha256"])
            for split in manifest["splits"].values()
            for name, about in split["files"].items()
        }
        recipe = Recipe.model_validate(manifest["recipe"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(
            f"expected the manifest of a GRIT folder in {place}, got a broken one; build it again"
        ) from None
    finding = report.findings[7]
    names = [path.name, *(name for name in digests if name != path.name and Path(name).stem == path.stem)]
    for name in names:
        finding.checked += 1
        where = str(path.parent / name)
        if name not in digests:
            finding.add(Fault(where, "the manifest does not know this file"))
        elif not (path.parent / name).is_file():
            finding.add(Fault(where, "the manifest knows this file, but it is gone"))
        elif (got := sha256(path.parent / name)) != digests[name]:
            finding.add(Fault(where, f"SHA-256 is {got[:12]}..., the manifest says {digests[name][:12]}..."))
    return recipe


def isomorphism_hash(n: int, edges: Sequence[tuple[int, int, int | float]]) -> str:
    """Equal for isomorphic weighted graphs: colour refinement over weights. The converse does not hold."""
    around: list[list[tuple[int, int | float]]] = [[] for _ in range(n)]
    for u, v, w in edges:
        around[u].append((v, w))
        around[v].append((u, w))
    color = [""] * n
    for _ in range(3):
        color = [_digest([color[u], sorted((w, color[v]) for v, w in around[u])]) for u in range(n)]
    return _digest([n, sorted(color)])


def _digest(value: Any) -> str:
    return hashlib.sha256(dumps(value).encode()).hexdigest()[:24]


def isomorphic(
    n: int, first: Sequence[tuple[int, int, int | float]], second: Sequence[tuple[int, int, int | float]]
) -> bool:
    """Exact isomorphism of two weighted graphs with `n` nodes each."""
    import networkx

    graphs = []
    for edges in (first, second):
        graph: networkx.Graph[int] = networkx.Graph()
        graph.add_nodes_from(range(n))
        graph.add_weighted_edges_from(edges)
        graphs.append(graph)
    same_weight = networkx.algorithms.isomorphism.numerical_edge_match("weight", 1)
    return bool(networkx.is_isomorphic(graphs[0], graphs[1], edge_match=same_weight))


def _shared(results: Sequence[_GraphResult]) -> Iterator[Fault]:
    """Graphs, names, name words and scenarios that are in two splits and should not."""
    by_hash: dict[str, list[_GraphResult]] = {}
    for result in results:
        if result.split == "mini":
            continue
        for other in by_hash.setdefault(result.hash, []):
            if other.split != result.split and isomorphic(result.n, other.edges, result.edges):
                yield Fault(result.graph_id, f"is the same graph as {other.graph_id}")
                break
        by_hash[result.hash].append(result)
    kinds = {"name": "forms", "name word": "words", "scenario": "scenarios"}
    for kind, attribute in kinds.items():
        known: dict[str, str] = {}
        for result in results:
            if not _is_ood(result):
                known.update(dict.fromkeys(getattr(result, attribute), result.graph_id))
        for result in results:
            if _is_ood(result) and (both := sorted(getattr(result, attribute) & known.keys())):
                yield Fault(result.graph_id, f"the {kind} {both[0]!r} is also in {known[both[0]]}")


def _is_ood(result: _GraphResult) -> bool:
    return SPLITS[result.split].ood
