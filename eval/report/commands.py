"""`agl report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Default: report.html in RUN.", show_default=False)
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Also write each figure as SVG, and as PNG with resvg-py.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Write one self-contained HTML page about a run: figures, a list of episodes to filter, every episode to read.

    RUN is a run folder, a folder of runs (several policies side by side), or the output folder of a training. The page
    opens from the file system and loads nothing else.

    Example: agl report runs/first

    Example: agl report runs/first --out first.html --figures figures
    """
    from eval.report.page import write

    found = write(run, out, figures)
    if as_json:
        print(found.model_dump_json())
        return
    print(f"{found.file}: {found.episodes:,} episodes, {found.bytes / 1e6:.1f} MB")
    if figures is not None:
        drawn = any(name.endswith(".png") for name in found.figures)
        more = "" if drawn else "; for PNG as well: pip install resvg-py"
        print(f"{figures}: {len(found.figures)} files{more}")
