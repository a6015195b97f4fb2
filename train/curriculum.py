"""From easy to hard: which tasks a stage trains on, in which order, and what keeps the trainer to that order.

AgentGL (arXiv 2604.05846) scores nodes and pairs, cuts the scores into tertiles and draws a quota from each; GRAIN
(arXiv 2608.27142) goes by the size of the graph. Inside a bucket a seed shuffles; buckets follow one another.

What decides the order of prompts: the trainer's sampler (`train.prompt_order`, as TRL 1.16's `RepeatSampler`) walks the
data set as it stands when `shuffle_dataset` is false, and at random otherwise (the default of TRL); neither `data_seed`
nor accelerate's seedable sampler touch it. Each generation is one slice of that order, split over the ranks; rows are
shuffled inside a generation only. A resumed run skips the batches it has seen unless `ignore_data_skip`. The last
prompts of an epoch that do not fill a generation are dropped: without shuffling always the same ones, and here the
hardest, which is why `whole_generations` thins all of the order instead. Every epoch begins anew with the easy ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from agl.core import Frozen, Task
from agl.errors import UserError
from agl.rollout import derived_seed
from train.ease import Profile, node_scores, pair_scores

TaskT = TypeVar("TaskT", bound=Task)


def _rising(sizes: tuple[int, int]) -> tuple[int, int]:
    if sizes[0] > sizes[1]:
        raise ValueError("expected the smaller number first")
    return sizes


BUCKETS = ("easy", "medium", "hard")
Count = Annotated[int, Field(ge=0)]
Quota = tuple[Count, Count, Count]
"""Tasks of one training graph: easy, medium, hard."""

Range = Annotated[tuple[Count, Count], AfterValidator(_rising)]

NODE_QUOTAS: dict[Profile, tuple[Quota, Quota]] = {
    "paper": ((800, 500, 500), (200, 500, 500)),
    "code": ((1000, 500, 500), (0, 500, 500)),
}
"""Nodes in stage 1 and stage 2, which have none in common: 3,000 together."""
PAIR_QUOTAS: tuple[Quota, Quota] = ((1000, 1000, 0), (0, 1000, 1000))
"""Pairs in stage 1 and stage 2, half of them linked. Both stages see the same medium ones: 1,500 + 1,500 together."""


class Stages(Frozen):
    """The curriculum of AgentGL. `quotas`: those of stage 1 and of stage 2; None takes the published ones."""

    by: Literal["ease"] = "ease"
    stage: Literal[1, 2] = 1
    profile: Profile = "paper"
    quotas: tuple[Quota, Quota] | None = None
    seed: int = 0


class Phases(Frozen):
    """The curriculum of GRAIN: smallest and largest number of nodes in each phase, both included."""

    by: Literal["size"] = "size"
    phases: Annotated[tuple[Range, ...], Field(min_length=1)] = ((4, 14), (10, 40))
    seed: int = 0


_BY = ("ease", "size")
_OPTIONS: TypeAdapter[Stages | Phases] = TypeAdapter(Annotated[Stages | Phases, Field(discriminator="by")])


def read_curriculum(options: Mapping[str, Any]) -> Stages | Phases:
    """The curriculum that a config describes: `{by: ease, stage: 2}` or `{by: size, phases: [[4, 10], [8, 16]]}`.

    Raises:
        UserError: an unknown key or a value out of range.
    """
    if options.get("by") not in _BY:
        raise UserError(
            "option curriculum.by: expected ease (AgentGL's scores) or size (GRAIN's phases), "
            f"got {options.get('by')!r}; set it"
        )
    try:
        return _OPTIONS.validate_python(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["curriculum", *(str(part) for part in first["loc"][1:])])
        said = first["msg"][0].lower() + first["msg"][1:]
        raise UserError(f"option {place}: {said}, got {first['input']!r}; correct it") from None


def tertiles(scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Index into `BUCKETS` of each score, three parts as equal as can be; equal scores go by their place."""
    values = np.asarray(scores, dtype=np.float64)
    buckets = np.empty(len(values), dtype=np.int64)
    for bucket, rows in enumerate(np.array_split(np.argsort(-values, kind="stable"), len(BUCKETS))):
        buckets[rows] = bucket
    return buckets


# Orders.


def ordered(
    tasks: Sequence[TaskT],
    scores: npt.ArrayLike,
    options: Stages,
    *,
    linked: Sequence[bool] | None = None,
    graphs: Sequence[str] | None = None,
) -> list[TaskT]:
    """The tasks of a stage from easy to hard; the order of `tasks` does not matter.

    Each training graph has its own tertiles and its own quota. Of pairs each half has: the linked and the others. Where
    a bucket holds less than both stages want, they share it in proportion.

    Args:
        scores: S of each task, high is easy; a task with NaN is left out.
        linked: for each pair, whether it is linked; None: tasks are nodes.
        graphs: name of the graph of each task; None: all are of one.

    Raises:
        UserError: no task is left, or columns of different length.
    """
    values = np.asarray(scores, dtype=np.float64).tolist()
    links = linked if linked is not None else [False] * len(tasks)
    names = graphs if graphs is not None else [""] * len(tasks)
    _same_length(tasks, values, links, names)
    groups: dict[tuple[str, bool], list[int]] = {}
    for row in sorted(range(len(tasks)), key=lambda row: tasks[row].id):
        if not math.isnan(values[row]):
            groups.setdefault((names[row], bool(links[row])), []).append(row)
    shared = linked is not None
    quotas = options.quotas or (PAIR_QUOTAS if shared else NODE_QUOTAS[options.profile])
    buckets: list[list[int]] = [[] for _ in BUCKETS]
    for (graph, link), rows in sorted(groups.items()):
        found = tertiles([values[row] for row in rows])
        for bucket, name in enumerate(BUCKETS):
            members = [row for row, own in zip(rows, found, strict=True) if own == bucket]
            _rng(options.seed, name, graph, link).shuffle(members)
            wanted = (quotas[0][bucket], quotas[1][bucket])
            if shared:
                # An odd one goes to the linked.
                wanted = ((wanted[0] + link) // 2, (wanted[1] + link) // 2)
            buckets[bucket] += members[_cut(len(members), wanted, options.stage, shared)]
    for name, rows in zip(BUCKETS, buckets, strict=True):
        _rng(options.seed, name, f"stage {options.stage}").shuffle(rows)
    return _kept(tasks, [row for rows in buckets for row in rows], "a score in a bucket with a quota")


def _cut(size: int, wanted: tuple[int, int], stage: int, shared: bool) -> slice:
    """Which of `size` members a stage takes: the same for both when `shared`, else one behind the other."""
    if shared:
        return slice(wanted[stage - 1])
    both = sum(wanted)
    border = wanted[0] if size >= both else round(size * wanted[0] / both)
    return slice(border) if stage == 1 else slice(border, min(size, both))


def phased(
    tasks: Sequence[TaskT], sizes: Sequence[int], options: Phases, *, graphs: Sequence[str] | None = None
) -> list[TaskT]:
    """The tasks of all phases, small graphs first; those of no phase are left out. The order of `tasks` is no matter.

    Phases may overlap. Graphs of a size that several have are dealt out to them in turn, so that no task comes twice.

    Args:
        sizes: number of nodes of each task's graph.
        graphs: id of each task's graph: tasks of one graph stay in one phase; None: each task has its own.

    Raises:
        UserError: no task is left, or columns of different length.
    """
    owner = graphs if graphs is not None else [task.id for task in tasks]
    _same_length(tasks, sizes, owner)
    by_size: dict[int, list[str]] = {}
    for graph, size in sorted(set(zip(owner, sizes, strict=True))):
        by_size.setdefault(size, []).append(graph)
    phase_of: dict[tuple[str, int], int] = {}
    for size, names in sorted(by_size.items()):
        fitting = [phase for phase, (low, high) in enumerate(options.phases) if low <= size <= high]
        _rng(options.seed, "size", size).shuffle(names)
        for place, graph in enumerate(names):
            if fitting:
                phase_of[graph, size] = fitting[place % len(fitting)]
    phases: list[list[int]] = [[] for _ in options.phases]
    for row in sorted(range(len(tasks)), key=lambda row: tasks[row].id):
        phase = phase_of.get((owner[row], sizes[row]))
        if phase is not None:
            phases[phase].append(row)
    for phase, rows in enumerate(phases):
        _rng(options.seed, "phase", phase).shuffle(rows)
    legal = ", ".join(f"{low} to {high}" for low, high in options.phases)
    return _kept(tasks, [row for rows in phases for row in rows], f"graphs of {legal} nodes")


def arranged(tasks: Sequence[TaskT], options: Stages | Phases, *, embedding: str = "minilm") -> list[TaskT]:
    """The tasks of a run as the curriculum wants them: scores or sizes are read from the tasks and their graphs.

    Args:
        embedding: of the texts, for the similarity of pairs.

    Raises:
        UserError: tasks of an environment, or of a part of its data, to which the curriculum does not apply.
    """
    from envs.agentgl.tasks import LpTask, NcTask, graph_of, index_of, train_mask
    from envs.grit.items import GritTask

    kinds = sorted({type(task).__name__ for task in tasks})
    if isinstance(options, Phases):
        items = [task for task in tasks if isinstance(task, GritTask)]
        if len(items) < len(tasks):
            raise UserError(f"option curriculum.by: size expects tasks of grit, got {', '.join(kinds)}; leave it out")
        return phased(tasks, [item.n for item in items], options, graphs=[item.graph_id for item in items])
    nodes = [task for task in tasks if isinstance(task, NcTask)]
    pairs = [task for task in tasks if isinstance(task, LpTask)]
    for task in (*nodes, *pairs):
        if task.part != "train":
            raise UserError(
                f"option source: expected training tasks for a curriculum, got {task.id}; set {task.graph}@train"
            )
    if nodes and len(nodes) == len(tasks):
        by_node = {
            (place, split): node_scores(graph_of(place), train_mask(place, split), profile=options.profile)
            for place, split in {(task.graph, task.split) for task in nodes}
        }
        scores = [by_node[task.graph, task.split][graph_of(task.graph).index_of(task.node)] for task in nodes]
        return ordered(tasks, scores, options, graphs=[task.graph for task in nodes])
    if pairs and len(pairs) == len(tasks):
        scores = []
        for task in pairs:
            graph, vectors = graph_of(task.graph), index_of(task.graph, embedding).vectors
            ends = [graph.index_of(task.u), graph.index_of(task.v)]
            scores.append(pair_scores(vectors, [ends], [task.linked])[0])
        return ordered(
            tasks, scores, options, linked=[task.linked for task in pairs], graphs=[task.graph for task in pairs]
        )
    raise UserError(f"option curriculum.by: ease expects tasks of agentgl-nc or agentgl-lp, got {', '.join(kinds)}")


def whole_generations(tasks: Sequence[TaskT], prompts_per_generation: int) -> list[TaskT]:
    """`tasks` without so many as do not fill a generation, taken evenly from the whole order instead of its end."""
    count = len(tasks) - len(tasks) % prompts_per_generation
    return [tasks[(2 * place + 1) * len(tasks) // (2 * count)] for place in range(count)]


def _rng(*parts: object) -> random.Random:
    return random.Random(derived_seed("curriculum", *parts))


def _same_length(tasks: Sequence[Task], *columns: Sequence[Any]) -> None:
    for column in columns:
        if len(column) != len(tasks):
            raise UserError(f"expected one value for each of {len(tasks)} tasks, got {len(column)}; correct the scores")


def _kept(tasks: Sequence[TaskT], rows: Sequence[int], wanted: str) -> list[TaskT]:
    if not rows:
        raise UserError(f"option curriculum: expected tasks with {wanted}, got none among {len(tasks)}; correct it")
    return [tasks[row] for row in rows]


# What would spoil the order.

_KEEPS_ORDER: dict[str, tuple[tuple[Any, ...], str]] = {
    "shuffle_dataset": ((False,), "TRL shuffles the tasks; set shuffle_dataset: false"),
    "ignore_data_skip": ((False,), "a resumed run would begin anew with easy tasks; set ignore_data_skip: false"),
    "zero_variance_groups": (("keep", "drop"), "a refill draws from all tasks, hard ones too; choose keep or drop"),
    "dataloader_in_order": ((True,), "workers would overtake one another; set dataloader_in_order: true"),
}


def refuse_disorder(options: Mapping[str, Any]) -> None:
    """Refuse options under which training leaves the order of the tasks.

    Args:
        options: values of GRPOConfig and EpisodeArguments fields.

    Raises:
        UserError: names the option, its legal value and the remedy.
    """
    for name, (allowed, remedy) in _KEEPS_ORDER.items():
        if name in options and options[name] not in allowed:
            got = options[name]
            raise UserError(f"option {name}: expected {allowed[0]!r} with a curriculum, got {got!r}: {remedy}")
    loader = options.get("accelerator_config")
    split = loader.get("split_batches") if isinstance(loader, Mapping) else getattr(loader, "split_batches", False)
    if split:
        raise UserError(
            "option accelerator_config.split_batches: expected False with a curriculum, got True: each rank would take "
            "a part of what it repeats, so that prompts come back later; leave it out"
        )
