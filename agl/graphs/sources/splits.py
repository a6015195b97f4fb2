"""Splits of labelled nodes by name: random ones by fractions or by training nodes per class, and those of the data."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import numpy as np

from agl.errors import UserError
from agl.graphs.text_graph import Codes, TextGraph

STANDARD: dict[str, tuple[float, float, float]] = {"60-20-20": (0.6, 0.2, 0.2), "79-1-20": (0.79, 0.01, 0.2)}
"""Named splits that every built source carries; 79/1/20 is the one of ReaGAN's public code."""

PER_CLASS = "20-per-class"
"""Planetoid's: 20 training nodes per class, 500 for validation and 1,000 for test."""

OWN = "own"
PLANETOID = "planetoid"
_FRACTIONS = re.compile(r"\d+(\.\d+)?([/-]\d+(\.\d+)?){2}")
_BY_CLASS = re.compile(r"(\d+)-per-class")


def canonical(kind: str) -> str:
    """One way to write a split: `A/B/C` for fractions, also where they are given as `A-B-C`; else `kind` itself."""
    return kind.replace("-", "/") if _FRACTIONS.fullmatch(kind) else kind


def is_random(kind: str) -> bool:
    """Whether `named_split` draws a split of this name from its seed."""
    return bool(_FRACTIONS.fullmatch(kind) or _BY_CLASS.fullmatch(kind))


def named_split(graph: TextGraph, kind: str, seed: int = 0, *, written: str = "") -> Codes:
    """Codes `[n]` of one split: a random one for `A/B/C` (percent of train, val and test) and `K-per-class`, the main
    split of the graph for `own`, and for `planetoid` where it is Planetoid's, or a further split of the graph by name.

    Args:
        seed: of random splits.
        written: what stands before a split where the caller's user writes it, such as `--split `; for messages.

    Raises:
        UserError: no such split, or numbers that make none.
    """
    name = graph.name or "a graph"
    if _FRACTIONS.fullmatch(kind):
        return random_split(graph, [float(part) / 100 for part in re.split("[/-]", kind)], seed=seed)
    if by_class := _BY_CLASS.fullmatch(kind):
        return random_split(graph, per_class=int(by_class[1]), seed=seed)
    if kind == PLANETOID:
        if not is_planetoid(graph):
            raise UserError(
                f"expected {name} with Planetoid's split (20 training nodes in each class), got another main split; "
                f"use {written}{OWN} for that one, or {written}{PER_CLASS}"
            )
        return graph.split
    if kind == OWN:
        if not (graph.split >= 0).any():
            raise UserError(f"expected {name} with a split of its own, got none; use {written}60/20/20")
        return graph.split
    if kind in graph.splits:
        return graph.splits[kind]
    known = dict.fromkeys([OWN, PLANETOID, "60/20/20", "79/1/20", PER_CLASS, *graph.splits])
    raise UserError(f"expected a split of {name} ({', '.join(known)}), got {kind!r}; choose one of them")


def is_planetoid(graph: TextGraph) -> bool:
    """Whether the main split has 20 training nodes in each class, and validation nodes."""
    train = graph.labels[(graph.split == 0) & (graph.labels >= 0)]
    counts = np.bincount(train, minlength=len(graph.class_names))
    return bool(len(counts)) and bool((counts == 20).all()) and bool((graph.split == 1).any())


def random_split(
    graph: TextGraph,
    fractions: Sequence[float] | None = None,
    *,
    per_class: int | None = None,
    val: int = 500,
    test: int = 1000,
    seed: int = 0,
) -> Codes:
    """Split codes `[n]` over the labelled nodes: by `fractions` (train, val, test), else `per_class` training nodes.

    A pure function of the number of nodes, the labels and the seed. Fractions are cut by rounding, and what they
    leave is in no split. A class with fewer than `per_class` nodes gives up to half of them (rounded down, at least
    one). Validation and test are drawn from the rest; when it is too small for both they share it in proportion.

    Raises:
        UserError: neither or both ways are given, or numbers that make no split; no node has a label.
    """
    if (fractions is None) == (per_class is None):
        raise UserError("expected fractions or per_class, one of the two")
    labelled = np.flatnonzero(graph.labels >= 0).tolist()
    if not labelled:
        raise UserError(f"expected a graph with labels to split, got {graph.name or 'one'} without any")
    draw = random.Random(f"split:{seed}")
    draw.shuffle(labelled)
    codes = np.full(graph.n, -1, dtype=np.int8)
    if fractions is not None:
        if len(fractions) != 3 or min(fractions) < 0 or not 0 < sum(fractions) <= 1 + 1e-9:
            raise UserError(
                f"expected fractions of train, val and test that add up to at most 1, got {list(fractions)}"
            )
        cuts = [round(sum(fractions[: k + 1]) * len(labelled)) for k in range(3)]
        for code, (start, stop) in enumerate(zip([0, *cuts[:2]], cuts, strict=True)):
            codes[labelled[start:stop]] = code
        return codes
    assert per_class is not None
    if per_class < 1 or val < 0 or test < 0:
        raise UserError(f"expected per_class of at least 1, val and test of at least 0, got {per_class}, {val}, {test}")
    sizes = np.bincount(graph.labels[labelled], minlength=len(graph.class_names))
    wanted = [per_class if size >= 2 * per_class else max(1, min(per_class, size // 2)) for size in sizes.tolist()]
    rest: list[int] = []
    for row in labelled:
        label = int(graph.labels[row])
        if wanted[label] > 0:
            wanted[label] -= 1
            codes[row] = 0
        else:
            rest.append(row)
    if val + test > len(rest):
        val = len(rest) * val // (val + test)
        test = len(rest) - val
    codes[rest[:val]] = 1
    codes[rest[val : val + test]] = 2
    return codes


def with_standard_splits(graph: TextGraph, seed: int = 0) -> TextGraph:
    """`graph` with the named splits of `STANDARD` and `PER_CLASS`; its main split, if it has none, is 60/20/20."""
    splits = {name: random_split(graph, fractions, seed=seed) for name, fractions in STANDARD.items()}
    splits[PER_CLASS] = random_split(graph, per_class=20, seed=seed)
    split = graph.split if (graph.split >= 0).any() else splits["60-20-20"]
    return graph.replaced(split=split, splits={**graph.splits, **splits})
