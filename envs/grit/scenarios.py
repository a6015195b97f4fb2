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
    """One story. `closing` says that no other edges exist and that edges have no direction."""

    key: str
    title: str
    task: TaskName
    ood: bool = False
    domain: str
    kind: Kind
    unit: str | Unit | None = None
    opening: tuple[str, ...] = Field(min_length=1)
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
    def _templates(self) -> Scenario:
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
        if (self.unit is not None) != (self.task in WEIGHTED):
            raise ValueError(f"unit must be given exactly for the weighted tasks {', '.join(sorted(WEIGHTED))}")
        for text in self.distractors:
            if re.search(r"\d", text):
                raise ValueError(f"distractors: write no digits, they could be read as a weight: {text!r}")
        return self


def _check(place: str, text: str, wanted: set[str]) -> None:
    try:
        found = {name for _, name, _, _ in Formatter().parse(text) if name is not None}
    except ValueError as error:
        raise ValueError(f"{place}: unbalanced braces in {text!r} ({error})") from None
    if found != wanted:
        names = ", ".join(f"{{{name}}}" for name in sorted(wanted)) or "no placeholder"
        raise ValueError(f"{place}: expected {names} in {text!r}")
    if re.search(r"\ban? \{w\}", text, re.IGNORECASE):
        raise ValueError(f"{place}: write no article before {{w}} ('a 8 ms' is wrong): {text!r}")
    if not text.isascii():
        raise ValueError(f"{place}: write plain ASCII (straight quotes, hyphens): {text!r}")
    if not text.rstrip().endswith((".", "?")):
        raise ValueError(f"{place}: expected a whole sentence that ends with a full stop: {text!r}")


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
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise DataError(f"{path.name}: {place + ': ' if place else ''}{message}") from None


def read_scenarios(folder: Path) -> tuple[Scenario, ...]:
    """All scenarios of a folder, by task and then by key.

    Raises:
        DataError: a file breaks a rule, or the folder holds none.
    """
    found = [read_scenario(path) for path in sorted(folder.glob("*.yaml"))]
    if not found:
        raise DataError(f"expected scenario files (*.yaml) in {folder}, found none")
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
