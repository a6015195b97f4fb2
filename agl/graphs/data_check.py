"""What is wrong with a text-attributed graph: counts, gaps, and texts that belong to other nodes.

The alignment probe asks two things of the texts as TF-IDF vectors: are linked nodes more alike than random ones, and
does the nearest class centroid name the label better than the largest class does. Texts numbered from 1 beside labels
numbered from 0 fail both, and one shift of the rows repairs both: the fault of a Citeseer in circulation, found here
as a repair by -1 or +1 that raises the similarity of linked nodes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agl.errors import UserError
from agl.graphs.text_graph import SPLITS, TextGraph, TextGraphError

LINKED_FACTOR = 1.5
"""Linked pairs must be this many times as alike as random pairs."""
LABEL_MARGIN = 0.10
"""The nearest centroid must beat the share of the largest class by this much."""
SHIFT_FACTOR = 1.5
"""A shift is proposed when it raises the similarity of linked pairs this many times."""
MAX_PAIRS = 20_000
MAX_NODES = 50_000
MAX_CHARS = 2_000
SHOWN = 5
"""Lines quoted for each kind of fault."""

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing worth saying; an error makes the graph unfit, a warning is to be known, a note is a fact."""

    level: Level
    code: str
    message: str


@dataclass(frozen=True)
class Alignment:
    """The probe under one shift of the texts. None stands where there is nothing to measure.

    `linked`, `random`: mean cosine of linked and of random pairs. `accuracy`: of the nearest centroid, each node left
    out of its own; `majority`: share of the largest class.
    """

    linked: float
    random: float
    accuracy: float | None
    majority: float | None

    @property
    def links_agree(self) -> bool:
        return self.linked > LINKED_FACTOR * self.random

    @property
    def labels_agree(self) -> bool | None:
        if self.accuracy is None or self.majority is None:
            return None
        return self.accuracy > self.majority + LABEL_MARGIN


@dataclass(frozen=True)
class Report:
    """Outcome of a check; `ok` when there is no error."""

    name: str
    counts: dict[str, Any] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    splits: dict[str, dict[str, int]] = field(default_factory=dict)
    homophily: float | None = None
    alignment: dict[int, Alignment] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def shift(self) -> int:
        """The proposed repair: node i should get the text of node i + shift; 0 is none."""
        return best_shift(self.alignment)

    def to_json(self) -> dict[str, Any]:
        """JSON with the derived values; stable field names."""
        return {
            "name": self.name,
            "ok": self.ok,
            "counts": self.counts,
            "classes": self.classes,
            "splits": self.splits,
            "homophily": self.homophily,
            "alignment": {str(k): asdict(probe) for k, probe in sorted(self.alignment.items())},
            "shift": self.shift,
            "findings": [asdict(finding) for finding in self.findings],
        }


def check(graph: TextGraph, *, shifts: tuple[int, ...] = (-1, 1), seed: int = 0) -> Report:
    """Counts, gaps and alignment of a graph. Deterministic; minutes at most on 170,000 nodes (samples beyond)."""
    counts = dict(graph.meta.get("counts", {}))
    counts |= {"nodes": graph.n, "undirected_edges": graph.num_edges, "arcs": graph.num_arcs, **_text_counts(graph)}
    sizes = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
    classes = dict(zip(graph.class_names, sizes.tolist(), strict=True))
    counts["unlabelled"] = int((graph.labels < 0).sum())
    probes = alignments(graph, (0, *shifts), seed)
    splits = {name: _split_counts(codes) for name, codes in {"split": graph.split, **graph.splits}.items()}
    findings = [*_count_findings(counts, classes, graph), *_alignment_findings(probes)]
    return Report(graph.name, counts, classes, splits, homophily(graph), probes, tuple(findings))


def card(graph: TextGraph) -> dict[str, Any]:
    """The data card: counts, classes, splits, homophily, SHA-256 of the content; JSON."""
    sizes = np.bincount(graph.labels[graph.labels >= 0], minlength=len(graph.class_names))
    return {
        "name": graph.name,
        "nodes": graph.n,
        "edges": graph.num_edges,
        "arcs": graph.num_arcs,
        "directed": graph.directed,
        "mean_degree": round(2 * graph.num_edges / max(graph.n, 1), 3),
        "max_degree": int(graph.degrees.max(initial=0)),
        "homophily": None if (share := homophily(graph)) is None else round(share, 4),
        "content_hash": graph.content_hash,
        "counts": dict(graph.meta.get("counts", {})),
        "meta": {key: value for key, value in graph.meta.items() if key not in ("counts", "name")},
        "classes": dict(zip(graph.class_names, sizes.tolist(), strict=True)),
        "splits": {name: _split_counts(codes) for name, codes in {"split": graph.split, **graph.splits}.items()},
    }


def check_folder(path: str | Path, *, seed: int = 0) -> Report:
    """`check` of a folder, with all lines that cannot be used and stale counts and checksum of its `meta.json`.

    Raises:
        UserError: no folder, or none in a format that is known.
    """
    from agl.graphs.sources.folder import NODES, problems, read_folder, stated

    folder = Path(path)
    if not any((folder / name).is_file() for name in (NODES, "node_info.csv")):
        raise UserError(f"expected a folder with {NODES} and edges.tsv, got {folder} without {NODES}; see docs/data.md")
    if (folder / NODES).is_file() or not (folder / "node_info.csv").is_file():
        refused = problems(folder)
        if refused:
            findings: list[Finding] = []
            for code, times in Counter(error.code for error in refused).items():
                some = [error for error in refused if error.code == code][:SHOWN]
                findings += [Finding("error", code, str(error)) for error in some]
                if times > len(some):
                    findings.append(Finding("error", code, f"{times} lines in all have this fault ({code})"))
            return Report(folder.name, findings=tuple(findings))
        graph = read_folder(folder)
        report = check(graph, seed=seed)
        stale = tuple(_stale(graph, stated(folder)))
        return Report(**{**report.__dict__, "findings": report.findings + stale})
    from agl.graphs.sources import open_graph

    try:
        return check(open_graph(folder, allow_synthetic_text=True), seed=seed)
    except TextGraphError as error:
        return Report(folder.name, findings=(Finding("error", error.code, str(error)),))


def homophily(graph: TextGraph) -> float | None:
    """Share of edges between labelled nodes whose labels agree (edge homophily); None without such edges."""
    edges = graph.edges()
    left, right = graph.labels[edges[:, 0]], graph.labels[edges[:, 1]]
    both = (left >= 0) & (right >= 0)
    return float((left == right)[both].mean()) if both.any() else None


def alignment(graph: TextGraph, seed: int = 0) -> Alignment:
    """The probe of the texts as they stand."""
    return alignments(graph, (0,), seed)[0]


def alignments(graph: TextGraph, shifts: tuple[int, ...] = (-1, 0, 1), seed: int = 0) -> dict[int, Alignment]:
    """The probe for each shift k, where node i gets the text of node i + k.

    "Node i + k" goes by number where all ids are whole numbers, else by row; nodes that get no text are left out.
    """
    matrix = _tfidf(graph)
    order = _by_number(graph)
    rng = random.Random(f"alignment:{seed}")
    edges = graph.edges().astype(np.int64)
    if len(edges) > MAX_PAIRS:
        edges = edges[sorted(rng.sample(range(len(edges)), MAX_PAIRS))]
    strangers = np.array(
        [[rng.randrange(graph.n), rng.randrange(graph.n)] for _ in range(min(MAX_PAIRS, 50 * graph.n))]
    )
    strangers = strangers.reshape(-1, 2)
    strangers = strangers[strangers[:, 0] != strangers[:, 1]]
    return {k: _probe(graph, matrix, _shifted(order, k, graph.n), edges, strangers, rng) for k in shifts}


def join_alignments(
    graph: TextGraph, texts: Mapping[int, str], shifts: tuple[int, ...] = (-1, 0, 1)
) -> dict[int, Alignment]:
    """The probe for each shift k of a join where node number i (its id) gets `texts[i + k]`, before texts are lost.

    Raises:
        ValueError: an id of `graph` is no whole number.
    """
    numbers = [int(name) for name in graph.ids]
    return {k: alignment(_with_texts(graph, [texts.get(number + k, "") for number in numbers])) for k in shifts}


def best_shift(probes: Mapping[int, Alignment]) -> int:
    """The shift under which linked pairs are `SHIFT_FACTOR` times as alike as they stand and labels fit no worse; or 0.

    Both are asked for, since ids that follow the data's own order (place, topic) make neighbours by number alike.
    """
    if 0 not in probes:
        return 0
    now = probes[0]
    best = max(sorted(probes, key=abs), key=lambda k: probes[k].linked)
    there = probes[best]
    labels_fit = now.accuracy is None or there.accuracy is None or there.accuracy >= now.accuracy
    return best if there.linked > SHIFT_FACTOR * now.linked and labels_fit else 0


def shifted(graph: TextGraph, shift: int) -> TextGraph:
    """`graph` with the text of node i + `shift` at node i, as proposed by `check`; empty where there is none."""
    rows = _shifted(_by_number(graph), shift, graph.n).tolist()
    moved = _with_texts(graph, ["" if row < 0 else graph.text(row) for row in rows])
    return moved.replaced(meta={**graph.meta, "text_shift": shift})


def _with_texts(graph: TextGraph, texts: list[str]) -> TextGraph:
    return TextGraph.build(
        graph.ids,
        texts,
        graph.arcs() if graph.directed else graph.edges(),
        labels=graph.labels,
        class_names=graph.class_names,
        split=graph.split,
        splits=graph.splits,
        directed=graph.directed,
        meta=graph.meta,
    )


def _probe(
    graph: TextGraph,
    matrix: Any,
    rows: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    strangers: npt.NDArray[np.int64],
    rng: random.Random,
) -> Alignment:
    labelled = np.flatnonzero((rows >= 0) & (graph.labels >= 0))
    if len(labelled) > MAX_NODES:
        labelled = labelled[sorted(rng.sample(range(len(labelled)), MAX_NODES))]
    labels = graph.labels[labelled]
    classes = len(np.unique(labels))
    return Alignment(
        linked=_mean_cosine(matrix, rows, edges),
        random=_mean_cosine(matrix, rows, strangers),
        accuracy=_centroid_accuracy(matrix[rows[labelled]], labels) if classes > 1 else None,
        majority=float(np.bincount(labels).max() / len(labels)) if classes > 1 else None,
    )


def _mean_cosine(matrix: Any, rows: npt.NDArray[np.int64], pairs: npt.NDArray[np.int64]) -> float:
    left, right = rows[pairs[:, 0]], rows[pairs[:, 1]]
    keep = (left >= 0) & (right >= 0)
    if not keep.any():
        return 0.0
    return float(matrix[left[keep]].multiply(matrix[right[keep]]).sum(axis=1).mean())


def _centroid_accuracy(matrix: Any, labels: npt.NDArray[np.int32]) -> float:
    """Accuracy of the nearest class centroid by cosine, each node left out of the centroid of its own class."""
    from scipy import sparse

    names, codes = np.unique(labels, return_inverse=True)
    nodes = np.arange(len(codes))
    members = sparse.csr_matrix((np.ones(len(codes)), (codes, nodes)), shape=(len(names), len(codes)))
    sums = members @ matrix
    dots = np.asarray((matrix @ sums.T).todense())
    norms = np.asarray(sums.multiply(sums).sum(axis=1)).ravel()
    own = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
    cosines = dots / np.sqrt(np.maximum(norms, 1e-12))
    mine = dots[nodes, codes] - own
    rest = norms[codes] - 2 * dots[nodes, codes] + own
    cosines[nodes, codes] = np.where(rest > 1e-9, mine / np.sqrt(np.maximum(rest, 1e-9)), 0.0)
    return float((cosines.argmax(axis=1) == codes).mean())


def _tfidf(graph: TextGraph) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = (graph.text(row)[:MAX_CHARS] for row in range(graph.n))
    try:
        return TfidfVectorizer(sublinear_tf=True, stop_words="english", dtype=np.float32).fit_transform(texts).tocsr()
    except ValueError:  # no text holds a word
        from scipy import sparse

        return sparse.csr_matrix((graph.n, 1), dtype=np.float32)


def _by_number(graph: TextGraph) -> npt.NDArray[np.int64]:
    """Number of each node: its id where all ids are whole numbers, else its row."""
    if all(name.lstrip("-").isdecimal() and len(name) < 18 for name in graph.ids):
        return np.array([int(name) for name in graph.ids], dtype=np.int64)
    return np.arange(graph.n, dtype=np.int64)


def _shifted(order: npt.NDArray[np.int64], shift: int, n: int) -> npt.NDArray[np.int64]:
    """Row whose text node i gets: that of the node numbered `shift` higher; -1 where there is none."""
    row_of = {int(number): row for row, number in enumerate(order)}
    return np.array([row_of.get(int(number) + shift, -1) for number in order], dtype=np.int64).reshape(n)


def _text_counts(graph: TextGraph) -> dict[str, int]:
    seen: Counter[str] = Counter()
    empty = 0
    for row in range(graph.n):
        text = graph.text(row)
        if text.strip():
            seen[text] += 1
        else:
            empty += 1
    return {"empty_texts": empty, "duplicate_texts": seen.total() - len(seen)}


def _split_counts(codes: npt.NDArray[np.int8]) -> dict[str, int]:
    return {split: int((codes == code).sum()) for code, split in enumerate(SPLITS)}


def _count_findings(counts: Mapping[str, int], classes: Mapping[str, int], graph: TextGraph) -> list[Finding]:
    n = graph.n
    found: list[Finding] = []

    def say(level: Level, code: str, message: str) -> None:
        found.append(Finding(level, code, message))

    if graph.meta.get("synthetic_text"):
        say("warning", "synthetic_text", "the texts are generated from features; nobody wrote them")
    if empty := counts["empty_texts"]:
        say("error" if empty == n else "warning", "empty_text", f"{empty} of {n} nodes have no text")
    if counts["duplicate_texts"]:
        say("note", "duplicate_text", f"{counts['duplicate_texts']} texts repeat the text of another node")
    if not graph.num_edges:
        say("warning", "no_edges", "the graph has no edges")
    elif isolated := int((graph.degrees == 0).sum()):
        say("note", "isolated_nodes", f"{isolated} of {n} nodes have no neighbour")
    if loops := counts.get("self_loops", 0):
        say("note", "self_loops", f"{loops} self-loops were dropped")
    if repeats := counts.get("duplicate_edges", 0):
        say("note", "duplicate_edges", f"{repeats} repeated edges were kept once")
    used = [size for size in classes.values() if size]
    if not used:
        say("note", "no_labels", "no node has a label")
    elif len(used) == 1:
        say("warning", "one_class", "all labelled nodes have one class, so there is nothing to classify")
    if used and counts["unlabelled"]:
        say("note", "unlabelled", f"{counts['unlabelled']} of {n} nodes have no label")
    if used and len(used) < len(classes):
        say("warning", "empty_class", f"{len(classes) - len(used)} of {len(classes)} classes have no node")
    if small := sum(1 for size in used if size < 3):
        say("note", "small_class", f"{small} classes have fewer than 3 nodes")
    unlabelled_in_split = int(((graph.split >= 0) & (graph.labels < 0)).sum())
    if unlabelled_in_split:
        say("warning", "split_without_label", f"{unlabelled_in_split} nodes are in a split and have no label")
    return found


def _alignment_findings(probes: Mapping[int, Alignment]) -> list[Finding]:
    now = probes[0]
    shift = best_shift(probes)
    figures = f"similarity of linked nodes {now.linked:.3f}, of random nodes {now.random:.3f}"
    if now.accuracy is not None and now.majority is not None:
        figures += f"; label accuracy of the text {now.accuracy:.3f}, largest class {now.majority:.3f}"
    if shift:
        after = f"shifted by {shift:+d} the similarity is {probes[shift].linked:.3f}"
        message = (
            f"the texts belong to other nodes ({figures}); {after}: node i should get the text of node i{shift:+d}"
        )
        return [Finding("error", "misaligned", message)]
    measurable = now.linked > 0 or now.random > 0
    if not measurable:
        return [Finding("note", "not_probed", "text and links cannot be compared: too few edges or words")]
    failed = [verdict for verdict in (now.links_agree, now.labels_agree) if verdict is False]
    if not failed:
        return [Finding("note", "aligned", f"texts belong to their nodes ({figures})")]
    if now.links_agree or now.labels_agree:
        return [Finding("warning", "weakly_aligned", f"texts fit the links or the labels, not both ({figures})")]
    return [Finding("error", "unaligned", f"texts fit neither links nor labels ({figures}); join them by id again")]


def _stale(graph: TextGraph, stated: Mapping[str, Any]) -> list[Finding]:
    found: list[Finding] = []
    if (checksum := stated.get("checksum")) is not None and checksum != graph.content_hash:
        found.append(
            Finding("warning", "stale_checksum", f"meta.json states another checksum than {graph.content_hash[:12]}…")
        )
    counts = stated.get("counts")
    for key, real in (("nodes", graph.n), ("undirected_edges", graph.num_edges)):
        value = counts.get(key) if isinstance(counts, dict) else stated.get(key)
        if isinstance(value, int) and value != real:
            found.append(Finding("warning", "stale_counts", f"meta.json states {value} {key}, the files hold {real}"))
    return found
