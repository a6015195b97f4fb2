"""Tables on narrow screens."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from eval.tables import fitting


def _table(columns: int) -> Table:
    table = Table()
    for number in range(columns):
        table.add_column(f"column {number}")
    table.add_row(*(f"{number}.000 [0.000, 1.000]" for number in range(columns)))
    return table


@pytest.mark.parametrize(("width", "shown"), [(200, 4), (80, 3), (60, 2), (10, 1)])
def test_what_does_not_fit_is_left_out_and_what_is_shown_is_whole(width: int, shown: int) -> None:
    screen = Console(width=width, file=io.StringIO())
    table = fitting(screen, _table, (4, 3, 2, 1))
    assert len(table.columns) == shown
    if width >= 60:
        screen.print(table)
        assert "..." not in screen.file.getvalue()  # type: ignore[attr-defined]
        assert "…" not in screen.file.getvalue()  # type: ignore[attr-defined]
        assert screen.file.getvalue().count("[0.000, 1.000]") == shown  # type: ignore[attr-defined]
