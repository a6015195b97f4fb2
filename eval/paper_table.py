"""Tables in the layout of a paper: figures with intervals, published rows above ours; terminal, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agl.core import Frozen

Style = Literal["terminal", "markdown", "json"]


class Figure(Frozen):
    """A figure with its 95 % interval where that is known; `n` questions stand behind it."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


Row = dict[str, Figure | None]


@dataclass(frozen=True)
class Table:
    """Rows of figures by method. `scale` turns fractions into what is printed (100 for per cent), `scales` differs for
    single columns."""

    key: str
    title: str
    columns: tuple[str, ...]
    ours: dict[str, Row]
    published: dict[str, Row] = field(default_factory=dict)
    scale: float = 100.0
    scales: Mapping[str, float] = field(default_factory=dict)
    digits: int = 2
    note: str = ""

    def printed(self, column: str, value: float) -> str:
        """The value in the unit of its column."""
        return f"{value * self.scales.get(column, self.scale):,.{self.digits}f}"


def as_json(made: Sequence[Table]) -> dict[str, Any]:
    """`{key: {"title", "ours", "published"}}`; figures are unscaled (percentages are fractions)."""

    def rows(found: Mapping[str, Row]) -> dict[str, Any]:
        return {
            name: {key: None if figure is None else figure.model_dump() for key, figure in row.items()}
            for name, row in found.items()
        }

    return {
        table.key: {"title": table.title, "ours": rows(table.ours), "published": rows(table.published)}
        for table in made
    }


def as_markdown(table: Table) -> str:
    """A Markdown table; rows of the paper are in italics."""
    head = ["method", *table.columns]
    lines = [f"**{table.title}**", "", f"| {' | '.join(head)} |", f"| --- |{' ---: |' * len(table.columns)}"]
    for name, row in table.published.items():
        lines.append(f"| *{name}* | {' | '.join(_cell(table, key, row) for key in table.columns)} |")
    for name, row in table.ours.items():
        told = name.replace("|", "\\|")
        lines.append(f"| {told} | {' | '.join(_cell(table, key, row, wide=True) for key in table.columns)} |")
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def print_tables(made: Sequence[Table], *, markdown: bool = False) -> None:
    """Print them for the terminal, or as Markdown."""
    if markdown:
        print("\n\n".join(map(as_markdown, made)))
        return
    from rich.table import Table as Grid

    from eval.tables import console

    screen = console()
    for table in made:
        grid = Grid(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
        grid.add_column("method")
        for name in table.columns:
            grid.add_column(name, justify="right")
        for name, row in table.published.items():
            grid.add_row(name, *(_cell(table, key, row) for key in table.columns), style="dim")
        grid.add_section()
        for name, row in table.ours.items():
            grid.add_row(name, *(_cell(table, key, row, wide=len(table.columns) < 6) for key in table.columns))
        screen.print(grid)


def _cell(table: Table, column: str, row: Row, *, wide: bool = False) -> str:
    """`95.76`, or with its interval `95.76 [94.90, 96.50]`; `-` where there is none."""
    figure = row.get(column)
    if figure is None:
        return "-"
    shown = table.printed(column, figure.value)
    if not wide or figure.low is None or figure.high is None:
        return shown
    return f"{shown} [{table.printed(column, figure.low)}, {table.printed(column, figure.high)}]"
