"""A node's memory: entries, what makes two of them equal, and which are shown as examples."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

from agl.core import Frozen
from agl.graphs.index import Hit, diversify
from agl.graphs.naming import fold

SourceType = Literal["self", "local", "local_hop", "global", "broadcast"]
LabelStatus = Literal["gold", "predicted"]
Part = Literal["self", "local", "global"]

_PARTS: dict[SourceType, Part] = {
    "self": "self",
    "local": "local",
    "local_hop": "local",
    "broadcast": "local",
    "global": "global",
}


class Entry(Frozen):
    """One thing a node knows: the first five fields are the paper's schema.

    `label` is a class number; `label_status` says whose word it is. `similarity` is the cosine of the source's text to
    the node's own. A label and its status are both None or both given.
    """

    text: str
    label: int | None = None
    source: str
    source_type: SourceType
    layer: int
    similarity: float | None = None
    label_status: LabelStatus | None = None

    @property
    def part(self) -> Part:
        return _PARTS[self.source_type]

    @property
    def closeness(self) -> float:
        return 0.0 if self.similarity is None else self.similarity


def normalised(text: str) -> str:
    """NFKC, lower case, without punctuation, blanks collapsed."""
    return " ".join("".join(" " if unicodedata.category(c)[0] == "P" else c for c in fold(text)).split())


def deduplicated(entries: Iterable[Entry]) -> list[Entry]:
    """Without repetitions, in the order of layers; idempotent.

    Two entries of one part are equal if source, label and status agree, or text (as `normalised`, not empty) and
    label; the earlier layer wins. A source has one label in a part: gold replaces predicted, and of predictions the
    latest stands. An unlabelled entry counts by its text alone, and is dropped where it says nothing that a labelled
    one of its source does not. The words of a message outlive its label.
    """
    ordered = sorted(entries, key=lambda entry: entry.layer)
    word: dict[tuple[Part, str], tuple[LabelStatus | None, int]] = {}
    for entry in ordered:
        place = entry.part, entry.source
        if entry.label is not None and (place not in word or word[place][0] != "gold"):
            word[place] = entry.label_status, entry.label
    kept: list[Entry] = []
    seen: set[tuple[object, ...]] = set()
    for entry in ordered:
        if not _is_new(entry, word, seen):
            if entry.source_type != "broadcast" or entry.label is None:
                continue
            entry = entry.model_copy(update={"label": None, "label_status": None})
            if not _is_new(entry, word, seen):
                continue
        seen |= _keys(entry)
        kept.append(entry)
    told = {(entry.part, entry.source, normalised(entry.text)) for entry in kept if entry.label is not None}
    return [
        entry
        for entry in kept
        if entry.label is not None or (entry.part, entry.source, normalised(entry.text)) not in told
    ]


def _is_new(
    entry: Entry, word: dict[tuple[Part, str], tuple[LabelStatus | None, int]], seen: set[tuple[object, ...]]
) -> bool:
    if entry.label is not None and word[entry.part, entry.source] != (entry.label_status, entry.label):
        return False
    keys = _keys(entry)
    return bool(keys) and not keys & seen


def _keys(entry: Entry) -> set[tuple[object, ...]]:
    keys: set[tuple[object, ...]] = set()
    if text := normalised(entry.text):
        keys.add((entry.part, "text", text, entry.label))
    if entry.label is not None or entry.part == "self":
        keys.add((entry.part, "source", entry.source, entry.label, entry.label_status))
    return keys


def labelled(entries: Iterable[Entry], part: Part) -> list[Entry]:
    """Entries of `part` that carry a label, most similar first; ties in the given order."""
    found = [entry for entry in entries if entry.part == part and entry.label is not None]
    return sorted(found, key=lambda entry: -entry.closeness)


def examples(
    entries: Sequence[Entry], k: int, mu: float, strategy: Literal["A", "B"], min_local: int
) -> tuple[list[Entry], list[Entry]]:
    """Local and global examples for a prompt, at most `k` of each.

    Local ones by similarity, global ones with the label-diversity rerank of strength `mu`. Strategy A shows both, B
    global ones only when there are fewer than `min_local` local ones. No node is shown twice.
    """
    near = labelled(entries, "local")[:k]
    if strategy == "B" and len(near) >= min_local:
        return near, []
    shown = {entry.source for entry in near}
    far = [entry for entry in labelled(entries, "global") if entry.source not in shown]
    hits = [Hit(place, entry.closeness) for place, entry in enumerate(far)]
    return near, [far[hit.node] for hit in diversify(hits, [entry.label for entry in far], k, mu)]


def messages(entries: Iterable[Entry], k: int) -> list[Entry]:
    """The newest `k` messages that carry words and no label of their own, older ones first."""
    found = [entry for entry in entries if entry.source_type == "broadcast" and entry.label is None]
    return found[-k:]


def summary(entries: Iterable[Entry], shown: Iterable[Entry], k: int) -> dict[Part, list[str]]:
    """Texts behind the aggregated summary of each part: its `k` most similar entries that are not shown otherwise."""
    used = {entry.source for entry in shown}
    found: dict[Part, list[str]] = {}
    for entry in sorted(entries, key=lambda entry: -entry.closeness):
        if entry.part == "self" or entry.source_type == "broadcast" or entry.source in used:
            continue
        texts = found.setdefault(entry.part, [])
        if entry.text and len(texts) < k:
            texts.append(entry.text)
    return {part: texts for part, texts in found.items() if texts}
