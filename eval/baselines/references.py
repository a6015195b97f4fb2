"""Figures of others to stand beside ours: accuracy in percent on random 79/1/20 splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agl.graphs.text_graph import TextGraph

RECOMPUTED = "recomputed on the files that ReaGAN's public code links to, 5 random splits, standard error about 1.5"
PUBLISHED = "ReaGAN, arXiv 2508.00429"


@dataclass(frozen=True)
class Reference:
    """`model` is a baseline of ours or the name of another method."""

    model: str
    split: str
    accuracy: float
    source: str


def _at(source: str, note: str = "", **figures: float) -> tuple[Reference, ...]:
    names = {"vote_knn": "vote+knn", "reagan": "ReaGAN"}
    said = f"{source}; {note}" if note else source
    return tuple(Reference(names.get(name, name), "79/1/20", figure, said) for name, figure in figures.items())


REFERENCES: dict[str, tuple[Reference, ...]] = {
    "cora": (
        *_at(RECOMPUTED, vote=84.9, knn=78.0, vote_knn=85.8),
        *_at(PUBLISHED, gcn=84.71, sage=84.35, reagan=84.95),
    ),
    "citeseer": (
        *_at(RECOMPUTED, "text and label ids one apart, repaired", vote=77.1, knn=73.8, vote_knn=78.3),
        *_at(PUBLISHED, "ids one apart as released", reagan=60.25),
    ),
    "chameleon": _at(RECOMPUTED, "texts generated from features", vote=23.4, knn=36.9, vote_knn=33.6),
}


def references(graph: TextGraph, data: str) -> tuple[Reference, ...]:
    """Those of the graph's name, or of the name it was opened by; `cora_text` and `Cora` are `cora`."""
    for name in (Path(data).name, graph.name):
        for known, found in REFERENCES.items():
            if name.lower().replace("-", "_").split("_")[0] == known:
                return found
    return ()
