"""What one node can reach: its neighbours and similar texts, read through a view that hides what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agl.graphs.index import RetrievalError
from agl.graphs.view import GraphView, NodeTarget, Pool
from envs.reagan.actions import InfoType
from envs.reagan.memory import Entry, SourceType
from envs.reagan.tasks import OpenSplit, index_of

Heard = Mapping[str, Mapping[str, Any]]
"""Neighbour -> what it posted last: `label` (its provisional class or None) and `memory` (its local examples)."""


class Neighbourhood:
    """Row `row` of a graph under a split; similarities are cosines to its text.

    `cap` is the most neighbours that are listed or read at once: the most similar ones. Texts are cut to `chars`.
    """

    def __init__(self, opened: OpenSplit, row: int, embedding: str, cap: int, chars: int) -> None:
        self.opened, self.row, self.cap, self.chars = opened, row, cap, chars
        self._index = index_of(opened, embedding)
        self.view = GraphView(opened.graph, NodeTarget(row), opened.train, index=self._index)

    @cached_property
    def id(self) -> str:
        return self.view.id(self.row)

    @cached_property
    def text(self) -> str:
        return cut(self.view.text(self.row), self.chars)

    @cached_property
    def neighbours(self) -> dict[str, int]:
        """Id -> row, most similar first, ties by row."""
        return {self.view.id(row): row for row in self.ranked(self.view.neighbor_rows(self.row))}

    @cached_property
    def labelled(self) -> list[str]:
        """Neighbours whose gold label may be seen, most similar first."""
        return [name for name, row in self.neighbours.items() if self.view.label(row) is not None]

    @cached_property
    def unlabelled(self) -> list[str]:
        """The other neighbours, most similar first."""
        known = set(self.labelled)
        return [name for name in self.neighbours if name not in known]

    @cached_property
    def is_train(self) -> bool:
        return self.view.is_train(self.row)

    def ranked(self, rows: NDArray[Any] | Sequence[int]) -> list[int]:
        given = np.asarray(rows, dtype=np.int64)
        order = np.lexsort((given, -self._similarities(given)))
        return [int(row) for row in given[order]]

    def similarity(self, row: int) -> float:
        return float(self._similarities(np.array([row]))[0])

    def _similarities(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        own = self._index.vectors[self.row].astype(np.float64)
        # Row by row, so that a similarity does not depend on what else is asked; + 0.0 makes -0.0 plain.
        found: NDArray[np.float64] = (self._index.vectors[rows].astype(np.float64) * own).sum(axis=1)
        return found.round(6) + 0.0

    def read(self, names: Sequence[str], info: InfoType, layer: int, heard: Heard) -> list[Entry]:
        """Entries from the neighbours `names`, at most `cap`; with `all` their own local examples too.

        A label is gold, or what the neighbour let others know. An entry that would say nothing is left out.
        """
        rows = self.ranked([self.neighbours[name] for name in dict.fromkeys(names)])[: self.cap]
        found = []
        for row in rows:
            name = self.view.id(row)
            post = heard.get(name, {})
            entry = self.entry(
                row,
                "local",
                layer,
                text=info != "label",
                label=info != "text",
                predicted=post.get("label"),
            )
            if entry.text or entry.label is not None:
                found.append(entry)
            if info == "all":
                found += self._second_hand(post.get("memory", ()), layer)
        return found

    def _second_hand(self, examples: Sequence[Mapping[str, Any]], layer: int) -> list[Entry]:
        """A neighbour's local examples as own entries; never about this node, and gold only where the view agrees."""
        found = []
        for example in examples:
            row = self.opened.graph.index_of(example["source"])
            if row == self.row or (example["label_status"] == "gold") != (self.view.label(row) is not None):
                continue
            found.append(self.entry(row, "local_hop", layer, predicted=example["label"]))
        return found

    def search(self, query: str, k: int, everywhere: bool, layer: int) -> list[Entry]:
        """The `k` most similar other nodes: labelled training nodes, or with `everywhere` any; labels of train alone.

        The query is the node's own id (or nothing), then its text counts, or words.

        Raises:
            RetrievalError: the query has no words that the index knows.
        """
        own = query in ("", self.id)
        if own and not self._index.vectors[self.row].any():
            raise RetrievalError("zero_vector", "your node has no text to look for; give words")
        pool: Pool = "all" if everywhere else "train"
        hits = self.view.search(self._index.vectors[self.row] if own else query, k, pool)
        return [self.entry(hit.node, "global", layer) for hit in hits]

    def entry(
        self,
        row: int,
        source_type: SourceType,
        layer: int,
        *,
        text: bool = True,
        label: bool = True,
        predicted: int | None = None,
    ) -> Entry:
        seen = self.view.label(row, None if predicted is None else {row: predicted}) if label else None
        return Entry(
            text=cut(self.view.text(row), self.chars) if text else "",
            label=None if seen is None else seen.index,
            source=self.view.id(row),
            source_type=source_type,
            layer=layer,
            similarity=self.similarity(row),
            label_status=None if seen is None else seen.source,
        )


@lru_cache(maxsize=256)
def neighbourhood(opened: OpenSplit, row: int, embedding: str, cap: int, chars: int) -> Neighbourhood:
    """`Neighbourhood`, kept for the turns of an episode; it holds nothing that an episode changes."""
    return Neighbourhood(opened, row, embedding, cap, chars)


def cut(text: str, chars: int) -> str:
    """One line of at most `chars` characters, cut at the end of a word where there is one."""
    line = " ".join(text.split())
    if len(line) <= chars:
        return line
    room = line[: chars - 3]
    space = room.rfind(" ") if line[chars - 3] != " " else len(room)
    room = room[:space] if space > 0 else room
    # No joiner or variation mark without the letter it belongs to.
    return room.rstrip(" \u200d\ufe0f") + "..."
