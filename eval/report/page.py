"""Puts records, figures and the page's own script together into one HTML file that needs no server and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from agl.core import Frozen
from agl.errors import DataError, UserError
from agl.json_text import dumps
from agl.run_folder import write_atomic
from eval.report import plots, training
from eval.report.charts import Figure, figure_text
from eval.report.records import Player, Records, embedded, index, read
from eval.report.views import view_of
from eval.tables import cell
from eval.visible import visible

_HERE = Path(__file__).parent
_SCRIPTS = ("text.js", "data.js", "list.js", "graph.js", "episode.js", "page.js")


class Report(Frozen):
    """What `agl report --json` prints. `bytes` is the size of the page; `figures` the files written beside it."""

    file: str
    bytes: int
    episodes: int
    figures: tuple[str, ...] = ()


def write(run: Path, out: Path | None = None, figures: Path | None = None) -> Report:
    """Write the report of `run` to `out` (default: `report.html` in it), and its figures into the folder `figures`.

    Raises:
        DataError: nothing to report, see `eval.report.records.read`.
        UserError: a place that cannot be written to.
    """
    records = read(run)
    if not records.rows:
        raise DataError(f"expected at least one episode in {run}, got none; continue the run with agl eval --resume")
    drawn = _figures(records)
    out = run / "report.html" if out is None else out
    page = render(records, drawn)
    try:
        write_atomic(out, page)
        written = write_figures(drawn, figures) if figures is not None else []
    except OSError as error:
        raise UserError(
            f"expected a place to write to, got {error.filename or out}: {error.strerror}; choose another path"
        ) from None
    return Report(file=str(out), bytes=len(page.encode()), episodes=len(records.rows), figures=tuple(written))


def _figures(records: Records) -> list[Figure]:
    view = view_of(records.env)
    found = training.figures(records, view) if records.kind == "training" else []
    return [*found, *plots.figures(records, view)]


def write_figures(figures: Sequence[Figure], folder: Path) -> list[str]:
    """Each figure as SVG, and as PNG at three times its size where `resvg-py` is installed; the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for figure in figures:
        stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in figure.name)[:100]
        path = folder / f"{stem}.svg"
        write_atomic(path, figure.standalone())
        names.append(path.name)
        if (picture := _png(figure)) is not None:
            path.with_suffix(".png").write_bytes(picture)
            names.append(f"{stem}.png")
    return names


def _png(figure: Figure) -> bytes | None:
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=figure.standalone(), zoom=3))


def render(records: Records, figures: Sequence[Figure]) -> str:
    """The page as text; equal records give equal bytes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), undefined=jinja2.StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["visible"] = visible
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    return environment.get_template("page.html.j2").render(
        records=records,
        policy="default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        style=Markup(style),
        script=Markup(script),
        tiles=_tiles(records),
        metrics=_metric_rows(records.players),
        totals=_total_rows(records.players),
        figures=[(figure, Markup(figure.svg)) for figure in figures],
        configs=_config_rows(records.players),
        index=Markup(embedded(index(records))),
        chunks=[Markup(base64.b64encode(chunk).decode()) for chunk in records.chunks],
    )


def _hash(text: str) -> str:
    """For the content security policy: the page runs this script and no other, whatever a name smuggles in."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _tiles(records: Records) -> list[tuple[str, str, str]]:
    """Headline figures: (title, value, note)."""
    rows = records.rows
    scored = [row for row in rows if row.score is not None]
    tiles = []
    for player in records.players:
        metric = player.summary.metrics.get("score") if player.summary is not None else None
        if metric is not None:
            note = "" if metric.low is None else f"{metric.low:.3f} to {metric.high:.3f}"
            title = "score" if len(records.players) == 1 else f"score, {player.name}"
            tiles.append((title, f"{metric.value:.3f}", note))
    if not tiles and scored:
        tiles.append(("mean score", f"{sum(row.score or 0.0 for row in scored) / len(scored):.3f}", "kept episodes"))
    if records.kind == "training":
        tiles.append(("steps", f"{len({row.step for row in rows}):,}", "with kept episodes"))
    failures = sum(row.outcome == "policy_failure" for row in rows)
    tiles.append(("episodes", f"{len(rows):,}", f"{len({row.id for row in rows}):,} tasks"))
    tiles.append(("policy failures", f"{failures:,}", f"{100 * failures / len(rows):.1f} %" if rows else ""))
    lost = len(rows) - len(scored)
    tiles.append(("infra failures", f"{lost:,}", "not scored"))
    tokens, seconds = sum(row.tokens for row in rows), sum(row.seconds for row in rows)
    tiles.append(("sampled tokens", f"{tokens:,}", f"{figure_text(tokens / len(rows))} per episode"))
    tiles.append(("episode seconds", figure_text(seconds), f"{seconds / len(rows):.3g} per episode"))
    return tiles


def _metric_rows(players: Sequence[Player]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Metric -> (value with interval, n) per policy."""
    summaries = [player.summary for player in players]
    names = dict.fromkeys(name for summary in summaries if summary is not None for name in summary.metrics)
    rows = []
    for name in names:
        found = [summary.metrics.get(name) if summary is not None else None for summary in summaries]
        rows.append((name, [(cell(metric), f"{metric.n:,}" if metric is not None else "") for metric in found]))
    return rows


def _total_rows(players: Sequence[Player]) -> list[tuple[str, list[str]]]:
    """Tokens, time and retries of each policy."""
    if not any(player.summary for player in players):
        return []

    def told(value: float | None) -> str:
        return "–" if value is None else figure_text(value)

    table: dict[str, list[str]] = {}
    for player in players:
        found = player.summary
        values: dict[str, float | None] = {
            "scored episodes": found.n if found else None,
            "retried after an infrastructure failure": found.outcomes.retried if found else None,
            "prompt tokens": found.tokens.prompt if found else None,
            "sampled tokens": found.tokens.sampled if found else None,
            "injected tokens": found.tokens.injected if found else None,
            "seconds per episode, mean": found.seconds.mean if found else None,
            "seconds per episode, 90th percentile": found.seconds.p90 if found else None,
            "seconds, sum": found.seconds.total if found else None,
            "seconds in the model": found.seconds.model if found else None,
        }
        for name, value in values.items():
            table.setdefault(name, []).append(told(value))
    return list(table.items())


def _config_rows(players: Sequence[Player]) -> list[tuple[str, list[str]]]:
    """Options of each policy's run, those first that differ."""
    names = dict.fromkeys(name for player in players for name in player.config)
    rows = [(name, [_option(player.config.get(name)) for player in players]) for name in names]
    return sorted(rows, key=lambda row: len(set(row[1])) < 2)


def _option(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)
