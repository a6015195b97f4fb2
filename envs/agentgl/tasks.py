"""Tasks of AgentGL: a node whose class, or a pair whose link is asked for; graph, index and pairs come from caches.

A source is a graph by name or folder, with the part of a split behind an `@`: `cora` (its test part), `cora@train`,
`cora@60-20-20/val`; or several of these with `+` between them, whose tasks come in turn. Tasks hold ids and
the hash of the data, so they are small and notice when the data have changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from agl.core import Task
from agl.errors import DataError, UserError
from agl.graphs.embeddings import embed
from agl.graphs.index import Index
from agl.graphs.sources import SOURCES, open_graph
from agl.graphs.sources.splits import with_standard_splits
from agl.graphs.text_graph import Split, TextGraph
from envs.agentgl.links import Links, link_split
from rewards.navigation import normalised

DEFAULT = "networkx-docs"
LINK_SEED = 0
"""Of all link-prediction splits: were it the seed of the run, one run would train on what another is tested on."""


class GraphTask(Task):
    """What both kinds have in common: `graph` is a name or folder, `data` the hash of what it held."""

    graph: str
    data: str
    part: Split

    @property
    def train_source(self) -> str:
        """Where the training targets of the same graph and split come from."""
        return f"{self.graph}@train"


GraphTaskT = TypeVar("GraphTaskT", bound=GraphTask)


class NcTask(GraphTask):
    """The class `gold` of `node` is asked for. `split` names the split, None the main one."""

    split: str | None = None
    node: str
    gold: str

    @property
    def train_source(self) -> str:
        return super().train_source if self.split is None else f"{self.graph}@{self.split}/train"


class LpTask(GraphTask):
    """Whether `u` and `v` are linked is asked for."""

    u: str
    v: str
    linked: bool

    @property
    def gold(self) -> str:
        return "yes" if self.linked else "no"


def node_tasks(source: str | None, seed: int, limit: int | None, env: str) -> list[NcTask]:
    """The labelled nodes of a part in an order drawn from `seed`; the first `limit` of them.

    Raises:
        DataError: no such graph or split, no labelled node in the part, or classes that differ by case or blanks only.
    """
    return _in_turn([_nodes(one, name, seed, limit, env) for one, name in _named_sources(source)], limit)


def _nodes(source: str, name: str, seed: int, limit: int | None, env: str) -> list[NcTask]:
    place, split, part = read_source(source)
    graph = graph_of(place)
    _check_classes(graph)
    rows = graph.nodes_in(part, split)
    rows = rows[graph.labels[rows] >= 0].tolist()
    if not rows:
        known = ", ".join(f"{place}@{name}/{part}" for name in graph.splits)
        cure = f"choose one of its splits: {known}" if known else "give label and split in its nodes.jsonl"
        raise DataError(f"expected labelled {part} nodes in {source}, got none; {cure}")
    random.Random(f"{env}:{seed}").shuffle(rows)
    return [
        NcTask(
            id=f"{env}/{name}/{f'{split}/' if split else ''}{part}/{graph.ids[row]}",
            env=env,
            seed=seed,
            graph=place,
            data=graph.content_hash,
            split=split,
            part=part,
            node=graph.ids[row],
            gold=str(graph.label_name(row)),
        )
        for row in rows[:limit]
    ]


def pair_tasks(source: str | None, seed: int, limit: int | None, env: str) -> list[LpTask]:
    """The pairs of a part, linked and unlinked in turn, in an order drawn from `seed`; the first `limit` of them.

    Raises:
        DataError: no such graph, or too few edges to split.
    """
    return _in_turn([_pairs(one, name, seed, limit, env) for one, name in _named_sources(source)], limit)


def _pairs(source: str, name: str, seed: int, limit: int | None, env: str) -> list[LpTask]:
    place, split, part = read_source(source)
    if split is not None:
        raise DataError(f"expected {place}@train, @val or @test: pairs have one split, got the split {split!r}")
    graph, links = graph_of(place), links_of(place)
    rng = random.Random(f"{env}:{seed}")
    linked = [(pair, True) for pair in links.positives[part]]
    unlinked = [(pair, False) for pair in links.negatives[part]]
    rng.shuffle(linked)
    rng.shuffle(unlinked)
    items = [item for two in zip(linked, unlinked, strict=True) for item in two]
    return [
        LpTask(
            id=f"{env}/{name}/{part}/{u}-{v}",
            env=env,
            seed=seed,
            graph=place,
            data=graph.content_hash,
            part=part,
            u=graph.ids[u],
            v=graph.ids[v],
            linked=answer,
        )
        for (u, v), answer in items[:limit]
    ]


def read_source(source: str | None) -> tuple[str, str | None, Split]:
    """Graph, named split (None: the main one) and part of `NAME`, `NAME@PART` or `NAME@SPLIT/PART`.

    Raises:
        DataError: what stands behind the `@` is no part, and the whole is no folder either.
    """
    text = source or DEFAULT
    place, at, behind = text.rpartition("@")
    split, slash, part = behind.rpartition("/")
    if at and place and part in get_args(Split) and bool(split) == bool(slash):
        found: Split = part  # type: ignore[assignment]
        return place, split or None, found
    if at and place and "+" not in behind and not Path(text).is_dir() and (place in SOURCES or Path(place).is_dir()):
        raise DataError(
            f"expected train, val or test behind {place}@, alone or as SPLIT/PART, got {behind!r}; "
            f"write for example {place}@test or {place}@20-per-class/test"
        )
    return text, None, "test"


def read_sources(source: str | None) -> list[str]:
    """The sources that `+` joins, in order; a folder may have a + in its name where it stands alone.

    Raises:
        DataError: nothing beside a `+`.
    """
    text = source or DEFAULT
    place = read_source(text)[0]
    if "+" not in text or place in SOURCES or Path(place).is_dir():
        return [text]
    found = [one.strip() for one in text.split("+")]
    if not all(found):
        raise DataError(f"expected graphs with + between them, got {text!r}; write for example cora@train+wikics@train")
    return found


def _named_sources(source: str | None) -> list[tuple[str, str]]:
    """Each source of a list, and what the ids of its tasks call its graph: the place where several have one name."""
    sources = read_sources(source)
    seen: dict[tuple[str, str | None, Split], str] = {}
    places: dict[str, set[str]] = {}
    for one in sources:
        place, split, part = read_source(one)
        graph = graph_of(place)
        key = graph.content_hash, split, part
        if key in seen:
            raise DataError(f"expected different graphs or parts in {source}, got {seen[key]} and {one}; leave one out")
        seen[key] = one
        places.setdefault(graph.name or place, set()).add(place)
    found = []
    for one in sources:
        place = read_source(one)[0]
        name = graph_of(place).name or place
        found.append((one, name if len(places[name]) == 1 else place))
    return found


def _in_turn(lists: Sequence[Sequence[GraphTaskT]], limit: int | None) -> list[GraphTaskT]:
    """The first of each list, then the second, and so on; a list that has ended is passed over."""
    return [task for turn in zip_longest(*lists) for task in turn if task is not None][:limit]


def _check_classes(graph: TextGraph) -> None:
    seen: dict[str, str] = {}
    for name in graph.class_names:
        other = seen.setdefault(normalised(name), name)
        if other != name:
            raise DataError(
                f"expected classes that differ by more than case and blanks, got {other!r} and {name!r}; rename one"
            )


@lru_cache(maxsize=8)
def graph_of(place: str) -> TextGraph:
    """The graph by name or folder, opened once per process; one without any split gets the standard ones.

    Raises:
        DataError: it cannot be opened.
    """
    try:
        graph = open_graph(place)
        bare = not graph.splits and not (graph.split >= 0).any() and bool((graph.labels >= 0).any())
        return (with_standard_splits(graph) if bare else graph).stored()
    except DataError:
        raise
    except UserError as error:
        raise DataError(str(error)) from None


@lru_cache(maxsize=8)
def index_of(place: str, embedding: str) -> Index:
    """The retrieval index over the texts of a graph, opened once per process and mapped from the cache."""
    return Index(embed(graph_of(place).texts(), embedding))


@lru_cache(maxsize=8)
def links_of(place: str) -> Links:
    """The link-prediction split of a graph."""
    return link_split(graph_of(place), LINK_SEED)


@lru_cache(maxsize=8)
def train_mask(place: str, split: str | None) -> NDArray[np.bool_]:
    """Which nodes [n] are training nodes of a split."""
    return np.asarray(graph_of(place).split_codes(split) == 0)


def checked_graph(task: GraphTask) -> TextGraph:
    """The graph of a task.

    Raises:
        DataError: it cannot be opened, or has changed since the task was made.
    """
    graph = graph_of(task.graph)
    if graph.content_hash != task.data:
        raise DataError(
            f"expected {task.graph} with the content {task.data[:12]} that {task.id} was made from, "
            f"got {graph.content_hash[:12]}; make the tasks anew"
        )
    return graph
