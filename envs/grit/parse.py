"""Reads a GRIT question back into its graph, from the text alone.

Written against the published description of the questions and without the templates that made them: it shares no code
and no word list with the renderer, so that an error there shows here. What it relies on:

- paragraphs are separated by blank lines; the last one shows the boxed answer, the one before it asks;
- one sentence of the first paragraph ends in the list of all nodes, whose number is stated before it;
- a sentence that says that two names mean the same node declares an alias;
- every other sentence of the story names no node, or is an edge: two nodes and at most one number, or, in a
  travelling-salesman story, one node and its legs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


class ParseError(ValueError):
    """Text that does not state one graph; `code` names the kind."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Parsed:
    """What a question says: `nodes` in the order of the list, `aliases` alias -> index, `edges` (u, v, w) with u < v in
    ascending order (w = 1 where the text has no number), and what is asked."""

    task: str
    nodes: tuple[str, ...]
    aliases: dict[str, int]
    edges: tuple[tuple[int, int, int | float], ...]
    start: int | None = None
    end: int | None = None
    measure: str | None = None


_TASKS = {
    frozenset({"path", "cost"}): "shortest_path",
    frozenset({"tour", "cost"}): "tsp",
    frozenset({"colors", "assignment"}): "coloring",
    frozenset({"size", "nodes"}): "vertex_cover",
    frozenset({"order"}): "bfs",
    frozenset({"nodes"}): "centrality",
}

_SENTENCE_END = re.compile(r"(?<=[.?:])\s*\n|(?<=[.?]) +|(?<=[.]\)) +")
_ALIAS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?P<alias>\S+) is another name for (?P<name>.+)\.",
        r"(?P<name>.+) is also called (?P<alias>\S+)\.",
        r"(?P<alias>\S+) and (?P<name>.+) are the same [a-z -]+\.",
        r"\(Some say (?P<alias>\S+) instead of (?P<name>.+)\.\)",
        r"\((?P<alias>\S+) stands for (?P<name>.+)\.\)",
    )
)

_NODE = r"<(\d+)>"
_WEIGHT = r"\d+(?:\.\d+)?"
_LEGS = (
    re.compile(rf"(?<!\S)(?P<w>{_WEIGHT})(?: [A-Za-z]+)? to <(?P<v>\d+)>"),
    re.compile(rf"to <(?P<v>\d+)> \((?P<w>{_WEIGHT})(?: [A-Za-z]+)?\)"),
    re.compile(rf"to <(?P<v>\d+)>:? (?P<w>{_WEIGHT})(?!\S*<)"),
)
_MEASURES = ("degree", "closeness", "betweenness")


def parse(question: str) -> Parsed:
    """The graph and the query of a question.

    Raises:
        ParseError: `shape`, `task`, `roster`, `alias`, `edge`, `repeated_edge`, `weight`, `count` or `query`.
    """
    paragraphs = question.split("\n\n")
    if len(paragraphs) < 3:
        raise ParseError("shape", f"expected at least three paragraphs, got {len(paragraphs)}")
    *told, asked, answer = paragraphs
    sentences = [sentence for text in told for sentence in _sentences(text)]
    task = _task(answer)
    place, nodes = _roster(sentences)
    before, after = sentences[:place], sentences[place + 1 :]
    aliases = _aliases(after, nodes)
    mentions = _Mentions([*((name, index) for index, name in enumerate(nodes)), *aliases.items()])
    edges = tuple(sorted(_edges(task, after, mentions)))
    _check_counts(before, len(nodes), len(edges))
    start, end = _asked_nodes(task, asked, mentions)
    return Parsed(task, nodes, aliases, edges, start, end, _measure(asked) if task == "centrality" else None)


def _sentences(text: str) -> list[str]:
    pieces: list[str] = []
    for line in text.split("\n"):
        # Rows and edge lists of the formal statement are one sentence each; their punctuation separates edges.
        pieces += [line] if line.startswith(("Edges", "from ")) else _SENTENCE_END.split(line)
    return [piece.strip() for piece in pieces if piece.strip()]


def _task(answer: str) -> str:
    boxed = re.search(r"\\boxed\{\{(.*)\}\}", answer)
    keys = frozenset(re.findall(r'"(\w+)":', boxed[1])) if boxed else frozenset()
    if keys not in _TASKS:
        raise ParseError("task", f"no task has an answer with the keys {sorted(keys)}")
    return _TASKS[keys]


def _roster(sentences: list[str]) -> tuple[int, tuple[str, ...]]:
    """Where the list of nodes stands, and the nodes: the first sentence with as many names as were announced."""
    announced: set[int] = set()
    for place, sentence in enumerate(sentences):
        listed = re.search(r": (.+)\.$", sentence)
        if listed:
            names = tuple(listed[1].split(", "))
            if len(names) in announced:
                if len(set(names)) < len(names):
                    raise ParseError("roster", "the list of nodes names one of them twice")
                return place, names
        announced.update(int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]*\d)", sentence))
    raise ParseError("roster", f"no list has the announced number of names ({sorted(announced)[:5]})")


def _aliases(sentences: Iterable[str], nodes: tuple[str, ...]) -> dict[str, int]:
    """Declarations of other names. One that is used earlier must be declared before the next fact."""
    place = {name: index for index, name in enumerate(nodes)}
    aliases: dict[str, int] = {}
    for sentence in sentences:
        found = _declared(sentence, place)
        if found is None:
            continue
        alias, name = found
        if alias in place:
            raise ParseError("alias", f"{alias!r} is a node and cannot stand for {name!r} too")
        if alias in aliases:
            raise ParseError("alias", f"{alias!r} is declared twice")
        aliases[alias] = place[name]
    _check_declared_in_time(sentences, aliases, place)
    return aliases


def _declared(sentence: str, place: dict[str, int]) -> tuple[str, str] | None:
    for pattern in _ALIAS:
        match = pattern.fullmatch(sentence)
        if match and match["name"] in place:
            return match["alias"], match["name"]
    return None


def _check_declared_in_time(sentences: Iterable[str], aliases: dict[str, int], place: dict[str, int]) -> None:
    mentions = _Mentions([*aliases.items()])
    known: set[str] = set()
    waiting: set[str] = set()
    for sentence in sentences:
        declared = _declared(sentence, place)
        if declared:
            known.add(declared[0])
            waiting.discard(declared[0])
            continue
        if waiting:
            raise ParseError("alias", f"{min(waiting)!r} is used and not declared directly after")
        waiting = set(mentions.spellings(sentence)) - known
    if waiting:
        raise ParseError("alias", f"{min(waiting)!r} is used and not declared directly after")


class _Mentions:
    """Finds known spellings as whole words, the longest first."""

    def __init__(self, spellings: Iterable[tuple[str, int]]) -> None:
        self._index = dict(spellings)
        longest = sorted(self._index, key=lambda name: (-len(name), name))
        # A name may end in a symbol, so `\b` would not do. "v1" is no mention in "v12", "xv1" or "v1-a".
        alternatives = "|".join(map(re.escape, longest)) or r"(?!)"
        self._pattern = re.compile(rf"(?<![\w/@#~=%+^-])(?:{alternatives})(?![\w/@#~=%+^-])")

    def spellings(self, text: str) -> list[str]:
        return self._pattern.findall(text)

    def marked(self, text: str) -> str:
        """`text` with every mention replaced by `<index>`."""
        return self._pattern.sub(lambda match: f"<{self._index[match[0]]}>", text)


def _edges(task: str, sentences: Iterable[str], mentions: _Mentions) -> Iterator[tuple[int, int, int | float]]:
    seen: set[tuple[int, int]] = set()
    for place, text in enumerate(_facts(sentences)):
        if any(pattern.fullmatch(text) for pattern in _ALIAS):
            continue
        for u, v, weight in _stated(task, text, mentions.marked(text)):
            if u == v:
                raise ParseError("edge", f"sentence {place} joins a node to itself: {text[:80]!r}")
            edge = (min(u, v), max(u, v))
            if edge in seen:
                raise ParseError("repeated_edge", f"the edge {edge} is stated twice, the second time in {text[:80]!r}")
            seen.add(edge)
            yield *edge, weight


def _facts(sentences: Iterable[str]) -> Iterator[str]:
    """Sentences, and the single edges of the formal edge list."""
    for sentence in sentences:
        listed = re.fullmatch(r"Edges(?: as \(node, node, weight\))?: (.+)\.", sentence)
        yield from listed[1].split("; ") if listed else [sentence]


def _stated(task: str, text: str, marked: str) -> list[tuple[int, int, int | float]]:
    ends = [int(index) for index in re.findall(_NODE, marked)]
    if not ends:
        return []
    if task == "tsp":
        return _row(text, marked, ends)
    if len(ends) != 2:
        raise ParseError("edge", f"expected a sentence with two nodes, got {len(ends)} in {text[:80]!r}")
    numbers = _numbers(marked)
    if len(numbers) != (task == "shortest_path"):
        raise ParseError("weight", f"a {task} edge with {len(numbers)} numbers: {text[:80]!r}")
    return [(ends[0], ends[1], numbers[0] if numbers else 1)]


def _row(text: str, marked: str, ends: list[int]) -> list[tuple[int, int, int | float]]:
    for pattern in _LEGS:
        legs = [(int(match["v"]), _number(match["w"])) for match in pattern.finditer(marked)]
        origins = list(ends)
        for v, _ in legs:
            origins.remove(v)
        if len(origins) == 1 and len(_numbers(marked)) == len(legs) > 0:
            return [(origins[0], v, weight) for v, weight in legs]
    raise ParseError("edge", f"expected one node and its legs, got {text[:80]!r}")


def _numbers(marked: str) -> list[int | float]:
    return [_number(text) for text in re.findall(rf"(?<![\w<.-]){_WEIGHT}(?![\w>]|\.\d)", marked)]


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _check_counts(before: list[str], n: int, m: int) -> None:
    for sentence in before:
        stated = re.search(r"with (\d+) nodes and (\d+) edges", sentence)
        if stated and (int(stated[1]), int(stated[2])) != (n, m):
            raise ParseError("count", f"{stated[0]!r} was announced, but {n} nodes and {m} edges are listed")


def _asked_nodes(task: str, asked: str, mentions: _Mentions) -> tuple[int | None, int | None]:
    marked = mentions.marked(asked)
    named = [int(index) for index in re.findall(_NODE, marked)]
    wanted = {"shortest_path": 2, "bfs": 1}.get(task, 0)
    if len(named) != wanted:
        raise ParseError("query", f"expected {wanted} nodes in the question, got {len(named)}: {asked[:80]!r}")
    if wanted == 0:
        return None, None
    if wanted == 1:
        return named[0], None
    first, last = named
    return (last, first) if re.search(rf"\bfrom <{last}>", marked) else (first, last)


def _measure(asked: str) -> str:
    found: list[str] = sorted(set(re.findall(r"\b(\w+) centrality\b", asked)))
    if len(found) != 1 or found[0] not in _MEASURES:
        raise ParseError("query", f"expected one of {', '.join(_MEASURES)} centrality, got {found}")
    return found[0]
