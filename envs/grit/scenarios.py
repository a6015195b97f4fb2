"""Scenarios: the stories that graphs are told in, as data files that a domain expert can edit.

One YAML file per scenario in the folder `scenarios/`; its name is the scenario's key. Templates hold placeholders in
braces: `{a}`, `{b}` two nodes, `{w}` a weight with its unit, `{legs}` the rest of a travelling-salesman row, `{names}`
the node list, `{n}` the number of nodes, `{start}`, `{end}`, `{measure}` what the question asks about.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import yaml
from pydantic import Field, ValidationError, model_validator

from agl.core import Frozen
from agl.errors import DataError
from envs.grit.graphs import WEIGHTED
from envs.grit.items import TASKS, TaskName
from envs.grit.names import pools

FOLDER = Path(__file__).parent / "scenarios"


class Kind(Frozen):
    """What a node is: one `router`, many `routers`, and the `label` written before a bare number (`Router 6121`)."""

    one: str
    many: str
    label: str = Field(pattern=r"^[A-Z][A-Za-z]*( [A-Z][A-Za-z]*)*$")


class Unit(Frozen):
    """A unit that changes in the plural: 1 `minute`, 7 `minutes`."""

    one: str
    many: str


class Scenario(Frozen):
    """One story. `domain` names a pool of names.yaml; `closing` says that no other edges exist and that edges have no
    direction. In-domain and out-of-distribution (`ood`) scenarios share no pool, no content word and no sentence
    skeleton."""

    key: str
    title: str
    task: TaskName
    ood: bool = False
    domain: str
    kind: Kind
    unit: str | Unit | None = None
    opening: tuple[str, ...] = Field(min_length=2)
    roster: str
    edges: tuple[str, ...] = Field(min_length=3)
    closing: str
    question: tuple[str, ...] = Field(min_length=2)
    distractors: tuple[str, ...] = Field(min_length=4)

    def amount(self, weight: int) -> str:
        """A weight with its unit."""
        if isinstance(self.unit, Unit):
            return f"{weight} {self.unit.one if weight == 1 else self.unit.many}"
        return f"{weight} {self.unit}"

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        if self.task not in TASKS:
            raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {self.task!r}")
        edge = {"tsp": {"a", "legs"}, "shortest_path": {"a", "b", "w"}}.get(self.task, {"a", "b"})
        asked = {"shortest_path": {"start", "end"}, "bfs": {"start"}, "centrality": {"measure"}}.get(self.task, set())
        for place, texts, wanted in (
            ("opening", self.opening, {"n"}),
            ("roster", (self.roster,), {"names"}),
            ("edges", self.edges, edge),
            ("closing", (self.closing,), set()),
            ("question", self.question, asked),
            ("distractors", self.distractors, set()),
        ):
            for text in texts:
                _check(place, text, wanted)
                if place != "question" and re.search(r"\d", text):
                    raise ValueError(f"{place}: write no digits, they could be read as a weight: {text!r}")
            if len(set(texts)) < len(texts):
                raise ValueError(f"{place}: expected different texts, got one of them twice")
        self._check_graph_texts()
        self._check_distractors()
        if (self.unit is not None) != (self.task in WEIGHTED):
            raise ValueError(f"unit must be given exactly for the weighted tasks {', '.join(sorted(WEIGHTED))}")
        known = sorted(domain for domain, pool in pools().items() if pool.ood == self.ood)
        if self.domain not in known:
            part = "ood" if self.ood else "in_domain"
            raise ValueError(
                f"domain: expected a pool of the part {part} of names.yaml ({', '.join(known)}), got {self.domain!r}"
            )
        return self

    def _check_graph_texts(self) -> None:
        if not self.roster.endswith(": {names}."):
            raise ValueError(f"roster: expected a sentence that ends with ': {{names}}.', got {self.roster!r}")
        for text in self.edges:
            if re.search(r"[.?!] ", text):
                raise ValueError(f"edges: expected one sentence, got more: {text!r}")
            if self.task == "tsp" and not text.endswith("{legs}."):
                raise ValueError(f"edges: expected a sentence that ends with '{{legs}}.', got {text!r}")

    def _check_distractors(self) -> None:
        for text in self.distractors:
            for word in (self.kind.one, self.kind.many, self.kind.label):
                if re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE):
                    raise ValueError(f"distractors: name no node; {word!r} stands for the nodes here: {text!r}")


def _check(place: str, text: str, wanted: set[str]) -> None:
    try:
        found = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise ValueError(f"{place}: unbalanced braces in {text!r} ({error})") from None
    if sorted(found) != sorted(wanted):
        names = ", ".join(f"{{{name}}}" for name in sorted(wanted))
        raise ValueError(f"{place}: expected {f'exactly once {names}' if wanted else 'no placeholder'} in {text!r}")
    if re.search(r"\ban? \{w\}", text, re.IGNORECASE):
        raise ValueError(f"{place}: write no article before {{w}} ('a 8 ms' is wrong): {text!r}")
    if not text.isascii():
        raise ValueError(f"{place}: write plain ASCII (straight quotes, hyphens): {text!r}")
    if not re.match(r"[A-Z{]", text):
        raise ValueError(f"{place}: expected a sentence that begins with a capital letter or a placeholder: {text!r}")
    if re.search(r"\s\s|\n", text) or not text.endswith((".", "?")):
        raise ValueError(
            f"{place}: expected whole sentences, single blanks, and a full stop or question mark at the end: {text!r}"
        )


def read_scenario(path: Path) -> Scenario:
    """Read and check one scenario file.

    Raises:
        DataError: names the file, the field and what it should be.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"cannot read the scenario {path}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise DataError(f"{path.name}: expected a map of fields, got {type(raw).__name__}")
    try:
        return Scenario.model_validate({"key": path.stem, **raw})
    except ValidationError as error:
        raise DataError(f"{path.name}: {_said(error.errors(include_url=False)[0])}") from None


def _said(error: Any) -> str:
    """One clear message for what pydantic found: the field, what was expected, what came."""
    place, kind, value = ".".join(str(part) for part in error["loc"]), error["type"], error["input"]
    if kind == "value_error":
        return str(error["msg"].removeprefix("Value error, "))
    if place.startswith("unit."):
        return f"unit: expected a text like km, or a map with one and many, got {value!r}"
    if place.startswith("kind.label") and kind == "string_pattern_mismatch":
        return f"kind.label: expected capitalised words like Access Point, got {value!r}"
    said = {
        "extra_forbidden": f"unknown field; the fields are {', '.join(Scenario.model_fields)}",
        "missing": "this field is missing",
        "literal_error": f"expected one of {', '.join(TASKS)}, got {value!r}",
        "tuple_type": f"expected a list of texts, got {value!r}",
        "string_type": f"expected a text, got {value!r}",
        "bool_type": f"expected true or false, got {value!r}",
        "bool_parsing": f"expected true or false, got {value!r}",
    }.get(kind, error["msg"])
    if kind == "too_short":
        said = f"expected at least {error['ctx']['min_length']} texts, got {error['ctx']['actual_length']}"
    return f"{place}: {said}"


def read_scenarios(folder: Path) -> tuple[Scenario, ...]:
    """All scenarios of a folder, by task and then by key.

    Raises:
        DataError: a file breaks a rule, two files have one title, or the folder holds none.
    """
    found = [read_scenario(path) for path in sorted(folder.glob("*.yaml"))]
    if not found:
        raise DataError(f"expected scenario files (*.yaml) in {folder}, found none")
    titles: dict[str, str] = {}
    for scenario in found:
        other = titles.setdefault(scenario.title, scenario.key)
        if other != scenario.key:
            raise DataError(
                f"{scenario.key}.yaml: title: expected a title of its own, got {scenario.title!r} as in {other}.yaml"
            )
    return tuple(sorted(found, key=lambda scenario: (TASKS.index(scenario.task), scenario.key)))


@cache
def scenarios(task: TaskName, ood: bool = False) -> tuple[Scenario, ...]:
    """The scenarios of one task that come with AGL.

    Raises:
        DataError: there is none of that kind.
    """
    found = tuple(scenario for scenario in _shipped() if scenario.task == task and scenario.ood == ood)
    if not found:
        raise DataError(f"expected {'out-of-distribution' if ood else 'in-domain'} scenarios for {task}, found none")
    return found


@cache
def _shipped() -> tuple[Scenario, ...]:
    return read_scenarios(FOLDER)
