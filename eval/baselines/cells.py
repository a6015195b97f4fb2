"""Predictions of one baseline on one split: computed once, then read from the cache (`baselines` under `$AGL_CACHE`).

A cell is keyed by everything that decides it: texts, edges, labels, classes, split, features, model with its settings,
seed, and the versions of the libraries that compute it. It is written whole, so a run that is stopped goes on after
its last finished cell.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from agl.errors import InfraError, UserError
from agl.graphs.text_graph import Codes, Labels, TextGraph
from agl.json_text import dumps
from agl.policies.embedded import cache_folder
from eval.baselines import networks, votes
from eval.baselines.problem import Features, NodeProblem, TextsOf

VERSION = 1
"""Of the baselines as computed here; a change of results needs another."""
STARTS = 3
MODELS: tuple[str, ...] = (*votes.VOTES, *networks.GRID)


@dataclass(frozen=True)
class Cell:
    """Attributes:
    predictions: int32 `[starts, n]`; -1 is unanswered. Training nodes are not asked: -1. Votes have one start.
    chosen: settings of a network and its validation loss; empty for votes.
    cached: whether it was read.
    """

    predictions: Labels
    chosen: dict[str, float]
    cached: bool


def predict(graph: TextGraph, split: Codes, model: str, *, features: Features = "tfidf", seed: int = 0) -> Labels:
    """Class [n] that baseline `model` gives each node under the split codes `split` [n]; -1 is unanswered.

    Only labels of training nodes are read, and by networks those of validation nodes. Training nodes are not asked:
    -1. A network is the one trained from start `seed`.

    Raises:
        UserError: as `cell`.
    """
    found: Labels = cell(graph, split, model, features=features, seed=seed).predictions[0]
    return found


def cell(graph: TextGraph, split: Codes, model: str, *, features: Features = "tfidf", seed: int = 0) -> Cell:
    """The cell out of the cache, or computed.

    Raises:
        UserError: unknown model or features, a split that the model cannot use, or a package that is missing.
        OSError: the cache cannot be written.
    """
    return _Maker(graph, features).cell(Asked(split, model, seed))


@dataclass(frozen=True, eq=False)
class Asked:
    """One cell of a table."""

    split: Codes
    model: str
    seed: int


def cells(
    graph: TextGraph,
    asked: Sequence[Asked],
    features: Features = "tfidf",
    *,
    jobs: int = 1,
    progress: Callable[[Asked, Cell], None] | None = None,
) -> list[Cell]:
    """As `cell` for each of `asked`; networks are trained in up to `jobs` processes, which changes no figure.

    With more than one process the caller's module must be importable (guard a script with `if __name__ == ...`).

    Raises:
        UserError, OSError: as `cell`.
    """
    maker = _Maker(graph, features)
    found: dict[int, Cell] = {}

    def keep(place: int, made: Cell) -> None:
        found[place] = made
        if progress is not None:
            progress(asked[place], made)

    later = []
    for place, one in enumerate(asked):
        ready = maker.read(one)
        if ready is not None:
            keep(place, ready)
        elif jobs > 1 and one.model in networks.GRID:
            later.append(place)
        else:
            keep(place, maker.cell(one))
    if later:
        maker.problem(asked[later[0]]).inputs  # noqa: B018  embedded here, read by the processes
        pool = ProcessPoolExecutor(
            min(jobs, len(later)), multiprocessing.get_context("spawn"), _start, (graph.stored(), features)
        )
        try:
            places = {pool.submit(_make, asked[place]): place for place in later}
            for done in as_completed(places):
                keep(places[done], done.result())
        except BrokenExecutor:
            raise InfraError("a process that trained a network died; is there memory enough? try --jobs 1") from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return [found[place] for place in range(len(asked))]


class _Maker:
    """A graph with its vectors, from which cells are made."""

    def __init__(self, graph: TextGraph, features: Features) -> None:
        self.graph, self.features = graph, features
        self.texts, self.content = TextsOf(graph), content_of(graph)

    def problem(self, asked: Asked) -> NodeProblem:
        if asked.model not in MODELS:
            raise UserError(f"expected a baseline ({', '.join(MODELS)}), got {asked.model!r}")
        return NodeProblem.of(self.graph, asked.split, self.features, self.texts)

    def path(self, asked: Asked) -> Path:
        key = _key(self.content, asked.split, asked.model, self.features, asked.seed)
        return cache_folder() / "baselines" / f"{key}.npz"

    def read(self, asked: Asked) -> Cell | None:
        self.problem(asked)
        return _read(self.path(asked))

    def cell(self, asked: Asked) -> Cell:
        problem = self.problem(asked)
        ready = _read(self.path(asked))
        if ready is not None:
            return ready
        if asked.model in votes.VOTES:
            made = Cell(votes.VOTES[asked.model](problem)[None, :], {}, cached=False)
        else:
            fit = networks.fit(problem, asked.model, asked.seed, STARTS)
            made = Cell(fit.predictions, fit.chosen(), cached=False)
        _write(self.path(asked), made)
        return made


_makers: list[_Maker] = []
"""That of a process of `cells`."""


def _start(graph: TextGraph, features: Features) -> None:
    _makers.append(_Maker(graph, features))


def _make(asked: Asked) -> Cell:
    return _makers[0].cell(asked)


def content_of(graph: TextGraph) -> str:
    """SHA-256 of the graph without its splits, so that a split can be looked up in any copy of the graph."""
    bare = graph.replaced(split=np.full(graph.n, -1, dtype=np.int8), splits={})
    return bare.content_hash


def split_hash(split: Codes) -> str:
    return hashlib.sha256(np.ascontiguousarray(split, dtype=np.int8).tobytes()).hexdigest()


def versions(model: str | None = None) -> dict[str, str]:
    """Versions of the libraries that decide the figures of `model`, or of all models."""
    names = ["numpy", "scikit-learn", "scipy"]
    names += [] if model in votes.VOTES else ["torch", "torch-geometric"]
    return {"baselines": str(VERSION)} | {name: _version(name) for name in names}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _key(content: str, split: Codes, model: str, features: str, seed: int) -> str:
    how: Any
    if model in votes.VOTES:
        how = [votes.K, votes.DAMPING, votes.ROUNDS]
    else:
        grid = [[s.lr, s.decay, s.dropout] for s in networks.GRID[model]]
        fixed = [networks.EPOCHS, networks.PATIENCE, networks.HIDDEN, networks.HEADS, networks.HOPS, networks.TELEPORT]
        how = [grid, fixed, STARTS, seed]
    return hashlib.sha256(
        dumps([content, split_hash(split), model, features, how, versions(model)]).encode()
    ).hexdigest()[:40]


def _read(path: Path) -> Cell | None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return Cell(stored["predictions"], json.loads(str(stored["chosen"])), cached=True)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(path: Path, made: Cell) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    np.savez(draft, predictions=made.predictions, chosen=np.array(dumps(made.chosen)))
    draft.replace(path)
