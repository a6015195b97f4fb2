"""Tables for the terminal: one run by group, several policies side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from agl.graphs.naming import natural_key
from eval.summary import Metric, Summary

ALL = "all"
T = TypeVar("T")


def fitting(screen: Console, make: Callable[[T], Table], choices: Iterable[T]) -> Table:
    """The first table of `choices`, widest first, that fits the screen: a cut figure would be a wrong one."""
    table = Table()
    for choice in choices:
        table = make(choice)
        if Measurement.get(screen, screen.options.update(max_width=10_000), table).maximum <= screen.width:
            break
    return table


def result_table(summary: Summary, metrics: Sequence[str]) -> Table:
    """Rows: everything, then each value of each facet. Columns: n, score and reward, then `metrics` of the env."""
    found = {name for name in summary.metrics if any(name in row for row in _rows(summary).values())}
    extra = [name for name in summary.metrics if name.startswith(("pass@", "pass^", "score_", "macro_", "unanswered"))]
    names = [name for name in ("score", "reward", *metrics, *extra) if name in found]
    table = Table(title=f"{summary.env}, {summary.policy}: mean [95 % interval]", title_justify="left")
    table.add_column("group")
    table.add_column("n", justify="right")
    for name in dict.fromkeys(names):
        table.add_column(name, justify="right")
    last = ALL
    for (facet, value), row in _rows(summary).items():
        if facet != last:
            table.add_section()
            last = facet
        n = summary.n if facet == ALL else summary.groups[facet][value].n
        cells = [cell(row.get(name), with_interval=name not in metrics) for name in dict.fromkeys(names)]
        table.add_row(_label(facet, value), f"{n:,}", *cells)
    return table


def comparison_table(summaries: Mapping[str, Summary], *, with_interval: bool = True) -> Table:
    """Rows: groups. Columns: policies. Cells: score."""
    title = "score by policy: mean [95 % interval]" if with_interval else "score by policy: mean"
    table = Table(title=title, title_justify="left")
    table.add_column("group")
    table.add_column("n", justify="right")
    for policy in summaries:
        table.add_column(policy, justify="right")
    keys = dict.fromkeys(key for summary in summaries.values() for key in _rows(summary))
    last = ALL
    for facet, value in keys:
        if facet != last:
            table.add_section()
            last = facet
        rows = [_rows(summary).get((facet, value), {}) for summary in summaries.values()]
        counts = {row["score"].n for row in rows if "score" in row}
        n = " / ".join(f"{count:,}" for count in sorted(counts))
        table.add_row(_label(facet, value), n, *(cell(row.get("score"), with_interval=with_interval) for row in rows))
    return table


def notes(summary: Summary) -> list[str]:
    """Outcomes, tokens and seconds as lines of text."""
    found = summary.outcomes
    stops = ", ".join(f"{name} {count:,}" for name, count in sorted(found.stop.items()))
    lines = [
        f"outcomes: ok {found.ok:,}, policy failure {found.policy_failure:,}, "
        f"infrastructure failure {found.infra_failure:,} (not scored), retried {found.retried:,}",
        f"stopped by: {stops or 'nothing'}",
    ]
    for name, counts in sorted(found.labels.items()):
        listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        more = f", and {len(listed) - 12} more" if len(listed) > 12 else ""
        lines.append(f"{name}: " + ", ".join(f"{value} {count:,}" for value, count in listed[:12]) + more)
    tokens = summary.tokens
    told = {"prompt": tokens.prompt, "sampled": tokens.sampled, "injected": tokens.injected}
    lines.append("tokens: " + ", ".join(f"{name} {count:,}" for name, count in told.items() if count is not None))
    seconds = summary.seconds
    lines.append(
        f"seconds per episode: mean {seconds.mean:.3g}, p90 {seconds.p90:.3g}; "
        f"outside the policy {100 * seconds.framework_share:.1f} %"
    )
    return lines


def console(*, stderr: bool = False) -> Console:
    """A console that is never so narrow that a table loses its figures when output goes to a file."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = 200
    return made


def cell(metric: Metric | None, *, with_interval: bool = True) -> str:
    """`0.750 [0.610, 0.850]`; `-` where the metric does not apply."""
    if metric is None:
        return "-"
    if not with_interval or metric.low is None or metric.high is None:
        return f"{metric.value:.3f}"
    return f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}]"


def _rows(summary: Summary) -> dict[tuple[str, str], Mapping[str, Metric]]:
    rows: dict[tuple[str, str], Mapping[str, Metric]] = {(ALL, ""): summary.metrics}
    for facet, groups in summary.groups.items():
        for value in sorted(groups, key=natural_key):
            rows[facet, value] = groups[value].metrics
    return rows


def _label(facet: str, value: str) -> str:
    return ALL if facet == ALL else f"{facet} = {value}"
