"""Tasks: the test nodes of a split of a text-attributed graph, and the graph as the episodes of a process share it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agl.core import Task
from agl.errors import DataError, UserError
from agl.graphs.data_check import check
from agl.graphs.embeddings import embed
from agl.graphs.index import Index
from agl.graphs.sources import SOURCES, open_graph
from agl.graphs.sources.splits import OWN, canonical, named_split
from agl.graphs.text_graph import SPLITS, Codes, TextGraph

DEFAULT = "networkx-docs"
BUCKETS = ("0", "1", "2-3", "4+")


class ReaganTask(Task):
    """Which class does `node` of the graph `data` belong to? `id` is the node's id, unique in a run."""

    data: str = Field(description="Name of a source, or a folder.")
    data_hash: str = Field(description="`TextGraph.content_hash` of the graph the task was made for.")
    split: str = Field(default=OWN, description="As in `named_split`.")
    split_seed: int = Field(default=0, description="Of a random split.")
    node: str
    gold: int = Field(description="Its class, an index into the class names of the graph. Hidden.")
    labelled_neighbours: int = Field(description="Number of its neighbours in the training part.")
    is_example: bool = Field(default=False, description="A training node that demonstrates a prediction.")

    @property
    def bucket(self) -> str:
        count = self.labelled_neighbours
        return BUCKETS[count if count < 2 else 2 if count < 4 else 3]


@dataclass(frozen=True, eq=False)
class OpenSplit:
    """A graph under one split. `train` [n] marks the nodes whose labels may be read."""

    graph: TextGraph
    codes: Codes

    @cached_property
    def train(self) -> NDArray[np.bool_]:
        return np.asarray((self.codes == SPLITS.index("train")) & (self.graph.labels >= 0))

    @cached_property
    def train_counts(self) -> tuple[int, ...]:
        """Number of training nodes of each class."""
        counts = np.bincount(self.graph.labels[self.train], minlength=len(self.graph.class_names))
        return tuple(int(count) for count in counts)

    @cached_property
    def test(self) -> NDArray[np.int64]:
        """Rows of the test nodes that have a label, ascending."""
        return np.flatnonzero((self.codes == SPLITS.index("test")) & (self.graph.labels >= 0))


def tasks(source: str | None, seed: int, limit: int | None) -> Sequence[ReaganTask]:
    """Test nodes in an order drawn from `seed`; `limit` takes the first ones.

    `source` is a name or folder, and after an `@` the split as in `named_split`, `own` by default. Random splits are
    drawn from `seed` as those of `agl baseline --seed`.

    Raises:
        DataError: no such graph or split, nothing to learn from or to ask for, or texts that belong to other nodes.
    """
    data, split = _parts(source or DEFAULT)
    try:
        graph = open_graph(data)
        if not (graph.labels >= 0).any():
            raise DataError(f"expected a graph whose nodes have labels, got {data} without any; choose another")
        opened = OpenSplit(graph, named_split(graph, split, seed, written="@"))
    except DataError:
        raise
    except UserError as error:
        raise DataError(str(error)) from None
    if not opened.train.any() or not len(opened.test):
        missing = "test" if opened.train.any() else "training"
        raise DataError(f"expected labelled train and test nodes in the split {split} of {data}, got no {missing} node")
    _check_alignment(graph, data)
    rows = opened.test.tolist()
    random.Random(f"reagan:{seed}").shuffle(rows)
    return [_task(opened, row, data, split, seed) for row in rows[:limit]]


def _task(opened: OpenSplit, row: int, data: str, split: str, seed: int) -> ReaganTask:
    graph = opened.graph
    return ReaganTask(
        id=graph.ids[row],
        env="reagan",
        seed=seed,
        data=data,
        data_hash=graph.content_hash,
        split=split,
        split_seed=seed,
        node=graph.ids[row],
        gold=int(graph.labels[row]),
        labelled_neighbours=int(opened.train[graph.neighbors(row)].sum()),
    )


def examples_for(task: ReaganTask, count: int) -> list[ReaganTask]:
    """`count` training nodes of the task's split, or as many as have two or three labelled neighbours."""
    return list(_examples(open_split(task), task.data, task.split, task.split_seed, count))


@lru_cache(maxsize=8)
def _examples(opened: OpenSplit, data: str, split: str, seed: int, count: int) -> tuple[ReaganTask, ...]:
    rows = np.flatnonzero(opened.train).tolist()
    random.Random(f"reagan-examples:{seed}").shuffle(rows)
    made = (_task(opened, row, data, split, seed) for row in rows)
    fitting = islice((one for one in made if one.bucket == "2-3"), count)
    return tuple(one.model_copy(update={"is_example": True}) for one in fitting)


def open_split(task: ReaganTask) -> OpenSplit:
    """The graph and split of a task, opened once in a process.

    Raises:
        DataError: the data changed since the task was made, or cannot be opened.
    """
    return _opened(task.data, task.data_hash, task.split, task.split_seed)


@lru_cache(maxsize=8)
def _opened(data: str, data_hash: str, split: str, seed: int) -> OpenSplit:
    graph = open_graph(data)
    if graph.content_hash != data_hash:
        raise DataError(
            f"expected the graph {data} as it was when the task was made ({data_hash[:12]}), got "
            f"{graph.content_hash[:12]}; make the tasks again"
        )
    return OpenSplit(graph, named_split(graph, split, seed))


@lru_cache(maxsize=4)
def index_of(opened: OpenSplit, embedding: str) -> Index:
    """The texts of the graph under `embedding` (see `agl.graphs.embeddings.embed`), made once in a process.

    Raises:
        UserError: as `embed`.
    """
    return Index(embed(opened.graph.texts(), embedding))


def _parts(source: str) -> tuple[str, str]:
    """Data and split. A folder may have an @ in its name."""
    data, at, split = source.rpartition("@")
    if source in SOURCES or Path(source).is_dir() or not (at and data and split):
        return source, OWN
    return data, canonical(split)


_checked: set[str] = set()


def _check_alignment(graph: TextGraph, data: str) -> None:
    if graph.content_hash in _checked:
        return
    for finding in check(graph).findings:
        if finding.level == "error" and finding.code in ("misaligned", "unaligned"):
            raise DataError(f"expected texts that belong to their nodes in {data}, got: {finding.message}")
    _checked.add(graph.content_hash)
