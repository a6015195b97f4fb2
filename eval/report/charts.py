"""Charts as SVG: 420 units wide, so that one fits a telephone and a column of a paper; their colours are CSS classes.

Every text passes through `visible` and an XML writer: names come from models and data, and may be hostile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from eval.visible import visible

WIDTH = 420
_LABEL, _FIGURE = 142, 52
_PLOT = WIDTH - _LABEL - _FIGURE
_ROW = 20
SERIES = 8
"""So many colours there are; further series begin again."""

STYLE = """
text { font: 11px system-ui, "DejaVu Sans", "Helvetica Neue", Arial, sans-serif; fill: #1c2430 }
.quiet { fill: #5b6675 } .grid { stroke: #dfe3e8 } .axis { stroke: #8a94a3 } .end { text-anchor: end }
.middle { text-anchor: middle } .line { fill: none; stroke-width: 1.8 }
.whisker { stroke-width: 1.6 } .faint { stroke-opacity: 0.45 }
.f0 { fill: #2563b8 } .f1 { fill: #d9730d } .f2 { fill: #188a55 } .f3 { fill: #b4337f }
.f4 { fill: #6d51c7 } .f5 { fill: #8a6d00 } .f6 { fill: #0f8a9d } .f7 { fill: #7d8794 }
.s0 { stroke: #2563b8 } .s1 { stroke: #d9730d } .s2 { stroke: #188a55 } .s3 { stroke: #b4337f }
.s4 { stroke: #6d51c7 } .s5 { stroke: #8a6d00 } .s6 { stroke: #0f8a9d } .s7 { stroke: #7d8794 }
.on { fill: #ffffff }
"""
"""Of a chart that stands alone; the page brings its own, for light and dark."""


@dataclass(frozen=True)
class Figure:
    """A finished chart. `name` is the stem of its file."""

    name: str
    title: str
    caption: str
    svg: str
    height: float

    def standalone(self) -> str:
        """The same as a file of its own, on white."""
        style = f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>'
        head, bracket, rest = self.svg.partition(">")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{bracket}{style}{rest}\n'


@dataclass(frozen=True)
class Value:
    """A number with its interval, None where that is unknown."""

    value: float
    low: float | None = None
    high: float | None = None


class _Canvas:
    def __init__(self, title: str) -> None:
        self.root = ElementTree.Element(
            "svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": visible(title)}
        )

    def text(self, x: float, y: float, text: str, style: str = "", *, room: int = 0, turn: int = 0) -> None:
        """Text at its baseline; cut to `room` letters, with all of it in the tooltip."""
        whole = visible(text)
        found = self.put("text", style, x=x, y=y)
        if turn:
            found.set("transform", f"rotate({turn} {_n(x)} {_n(y)})")
        found.text = whole if not room or len(whole) <= room else whole[: room - 1] + "…"
        if found.text != whole:
            ElementTree.SubElement(found, "title").text = whole

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.put("line", style, x1=x1, y1=y1, x2=x2, y2=y2)

    def put(self, tag: str, style: str, /, tip: str = "", **numbers: float) -> ElementTree.Element:
        found = ElementTree.SubElement(self.root, tag, {name: _n(value) for name, value in numbers.items()})
        if style:
            found.set("class", style)
        if tip:
            ElementTree.SubElement(found, "title").text = visible(tip)
        return found

    def legend(self, names: Sequence[str], y: float = 12) -> float:
        """Coloured names, wrapped; the y below them."""
        x = 2.0
        for place, name in enumerate(names):
            shown = visible(name)
            width = 18 + 7.2 * min(len(shown), 34)
            if x > 2 and x + width > WIDTH:
                x, y = 2.0, y + 16
            self.put("rect", f"f{place % SERIES}", x=x, y=y - 9, width=10, height=10, rx=2)
            self.text(x + 14, y, name, "quiet", room=34)
            x += width + 8
        return y + 10

    def figure(self, name: str, title: str, caption: str, height: float) -> Figure:
        self.root.set("viewBox", f"0 0 {WIDTH} {_n(height)}")
        self.root.set("width", str(WIDTH))
        self.root.set("height", _n(height))
        return Figure(name, title, caption, ElementTree.tostring(self.root, encoding="unicode"), height)


def _n(value: float) -> str:
    return f"{round(value, 2):g}" if abs(value) < 1e5 else f"{value:.0f}"


def figure_text(value: float) -> str:
    """A number as short as its size allows."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 1e5 else f"{value:.2e}"


def forest(
    name: str, title: str, rows: Mapping[str, Mapping[str, Value]], *, caption: str = "",
    series: Sequence[str] | None = None, domain: tuple[float, float] | None = (0.0, 1.0),
) -> Figure:  # fmt: skip
    """Points with whiskers: row -> series -> value. `series` gives their colours an order; a `domain` of
    None is that of the values, 0 included."""
    canvas = _Canvas(title)
    present = dict.fromkeys(each for row in rows.values() for each in row)
    series = list(dict.fromkeys([*(series or ()), *present]))
    top = canvas.legend(series) if len(series) > 1 else 4.0
    height = sum(_ROW if len(row) < 2 else 6 + 13 * len(row) for row in rows.values())
    ends = [end for row in rows.values() for v in row.values() for end in (v.value, v.low, v.high) if end is not None]
    low, high = domain or _span([0.0, *ends])
    scale = _PLOT / ((high - low) or 1.0)
    for tick in _ticks(low, high):
        x = _LABEL + (tick - low) * scale
        canvas.line(x, top, x, top + height, "grid")
        canvas.text(x, top + height + 13, f"{tick:g}", "quiet middle")
    y = top
    for label, row in rows.items():
        step = _ROW if len(row) < 2 else 13
        canvas.text(0, y + 14, label, room=23)
        y += 0 if len(row) < 2 else 3
        for which, value in row.items():
            place = series.index(which) % SERIES
            middle = y + step / 2
            x = _LABEL + (min(max(value.value, low), high) - low) * scale
            if value.low is not None and value.high is not None:
                left, right = (_LABEL + (min(max(end, low), high) - low) * scale for end in (value.low, value.high))
                canvas.line(left, middle, right, middle, f"whisker s{place}")
            canvas.put("circle", f"f{place}", tip=_told(label, which, value), cx=x, cy=middle, r=4)
            canvas.text(WIDTH, middle + 4, figure_text(value.value), "end")
            y += step
        y += 0 if len(row) < 2 else 3
    return canvas.figure(name, title, caption, top + height + 18)


def _told(label: str, series: str, value: Value) -> str:
    told = f"{label}{f', {series}' if series else ''}: {figure_text(value.value)}"
    if value.low is None or value.high is None:
        return told
    return f"{told} [{figure_text(value.low)}, {figure_text(value.high)}]"


def bars(
    name: str, title: str, rows: Mapping[str, Mapping[str, float]], *, caption: str = "", share: bool = False
) -> Figure:
    """Horizontal bars, row -> series -> count, stacked where there are several series. `share`: each row fills the
    width, and the figure beside it is its total."""
    canvas = _Canvas(title)
    series = list(dict.fromkeys(each for row in rows.values() for each in row))
    y = canvas.legend(series) if len(series) > 1 else 4.0
    widest = max((sum(row.values()) for row in rows.values()), default=0.0) or 1.0
    for label, row in rows.items():
        total = sum(row.values())
        scale = _PLOT / ((total if share else widest) or 1.0)
        canvas.text(0, y + 14, label, room=23)
        x = float(_LABEL)
        for which, count in row.items():
            if not count:
                continue
            tip = f"{label}{f', {which}' if which else ''}: {figure_text(count)}"
            tip += f" ({100 * count / total:.1f} %)" if share and total else ""
            place = series.index(which) % SERIES
            canvas.put("rect", f"f{place}", tip=tip, x=x, y=y + 3, width=max(count * scale, 0.75), height=_ROW - 6)
            if share and count * scale >= 30:
                canvas.text(x + count * scale / 2, y + 14, f"{100 * count / total:.0f} %", "on middle")
            x += count * scale
        canvas.text(WIDTH, y + 14, figure_text(total), "end")
        y += _ROW
    return canvas.figure(name, title, caption, y + 4)


def lines(
    name: str, title: str, series: Mapping[str, Mapping[float, Value]], *, x_title: str, caption: str = "",
    x_names: Mapping[float, str] | None = None, domain: tuple[float, float] | None = None,
) -> Figure:  # fmt: skip
    """Values over x, one line for each series, whiskers where there is an interval. `x_names` replaces the numbers."""
    canvas = _Canvas(title)
    top = canvas.legend(list(series)) + 4 if len(series) > 1 else 10.0
    left, height = 46.0, 170.0
    width = WIDTH - left - 12
    xs = sorted({x for line in series.values() for x in line})
    low, high = domain or _span([v.value for line in series.values() for v in line.values()])
    first, last = (xs[0], xs[-1]) if xs else (0.0, 1.0)
    pad = 14.0 if x_names else 4.0

    def across(x: float) -> float:
        return left + pad + (width - 2 * pad) * ((x - first) / (last - first) if last > first else 0.5)

    def up(y: float) -> float:
        return top + height * (1 - (min(max(y, low), high) - low) / (high - low))

    for tick in _ticks(low, high):
        canvas.line(left, up(tick), left + width, up(tick), "grid")
        canvas.text(left - 5, up(tick) + 4, f"{tick:g}", "quiet end")
    if x_names:
        room = max(3, int(width / max(len(xs), 1) / 6.2))
        for x in xs:
            canvas.text(across(x), top + height + 15, x_names[x], "quiet middle", room=room)
    else:
        for tick in _ticks(first, last, whole=True):
            canvas.text(across(tick), top + height + 15, f"{tick:g}", "quiet middle")
    canvas.line(left, top + height, left + width, top + height, "axis")
    canvas.text(left + width / 2, top + height + 31, x_title, "quiet middle")
    for place, (label, line) in enumerate(series.items()):
        shift = (place - (len(series) - 1) / 2) * 6 if x_names else 0.0
        points = [(across(x) + shift, up(value.value), x, value) for x, value in sorted(line.items())]
        path = canvas.put("polyline", f"line s{place % SERIES}")
        path.set("points", " ".join(f"{_n(x)},{_n(y)}" for x, y, _, _ in points))
        for x, y, at, value in points:
            if value.low is not None and value.high is not None:
                canvas.line(x, up(value.low), x, up(value.high), f"whisker faint s{place % SERIES}")
            if len(points) <= 60:
                where = x_names[at] if x_names else f"{at:g}"
                canvas.put("circle", f"f{place % SERIES}", tip=_told(where, label, value), cx=x, cy=y, r=3)
    return canvas.figure(name, title, caption, top + height + 38)


def histogram(
    name: str, title: str, values: Mapping[str, Sequence[float]], *, x_title: str, caption: str = ""
) -> Figure:
    """How often values fall into equal bins, one step line for each series where there are several."""
    found = [value for each in values.values() for value in each]
    whole = all(value == int(value) for value in found)
    step = _step(min(found, default=0.0), max(found, default=1.0), 16, whole)
    whole = whole and step == 1.0
    first = math.floor(min(found, default=0.0) / step)
    counts: dict[str, dict[int, int]] = {}
    for label, each in values.items():
        bins = counts.setdefault(label, {})
        for value in each:
            place = math.floor(value / step + 1e-9) - first
            bins[place] = bins.get(place, 0) + 1
    many = 1 + max((place for bins in counts.values() for place in bins), default=0)
    canvas = _Canvas(title)
    top = canvas.legend(list(values)) + 4 if len(values) > 1 else 10.0
    left, height = 46.0, 130.0
    width = WIDTH - left - 12
    most = max((count for bins in counts.values() for count in bins.values()), default=1)
    for tick in _ticks(0, most, about=4, whole=True):
        y = top + height * (1 - tick / most)
        canvas.line(left, y, left + width, y, "grid")
        canvas.text(left - 5, y + 4, f"{tick:g}", "quiet end")
    room = width / many
    each_width = max(1.0, (room - 2) / max(len(values), 1))
    for series, (label, bins) in enumerate(counts.items()):
        for place, count in bins.items():
            tall = height * count / most
            start, end = (first + place) * step, (first + place + 1) * step
            bin_name = f"{start:g}" if whole else f"{start:g} to {end:g}"
            canvas.put(
                "rect", f"f{series % SERIES}", tip=f"{label + ', ' if label else ''}{bin_name}: {count:,}",
                x=left + place * room + 1 + series * each_width, y=top + height - tall, width=each_width, height=tall,
            )  # fmt: skip
    canvas.line(left, top + height, left + width, top + height, "axis")
    every = max(1, math.ceil(many / 6))
    for place in range(0, many + (not whole), every):
        x = left + (place + 0.5 * whole) * room
        canvas.text(x, top + height + 15, f"{(first + place) * step:g}", "quiet middle")
    canvas.text(left + width / 2, top + height + 31, x_title, "quiet middle")
    return canvas.figure(name, title, caption, top + height + 38)


def heat(
    name: str, title: str, cells: Mapping[tuple[str, str], float], *, rows: Sequence[str], columns: Sequence[str],
    row_title: str, column_title: str, caption: str = "",
) -> Figure:  # fmt: skip
    """A table of counts by colour, each row against its own sum."""
    canvas = _Canvas(title)
    left, top = 128.0, 96.0
    size = min(34.0, (WIDTH - left - 48) / max(len(columns), 1))
    canvas.text(0, 12, f"{row_title} (rows), {column_title} (columns)", "quiet")
    for place, column in enumerate(columns):
        canvas.text(left + (place + 0.6) * size, top - 6, column, room=13, turn=-50)
    for y, row in enumerate(rows):
        canvas.text(left - 6, top + (y + 0.5) * size + 4, row, "end", room=17)
        total = sum(cells.get((row, column), 0.0) for column in columns)
        for x, column in enumerate(columns):
            count = cells.get((row, column), 0.0)
            at = {"x": left + x * size + 0.5, "y": top + y * size + 0.5, "width": size - 1, "height": size - 1}
            share = count / total if total else 0.0
            tip = f"{row_title} {row}, {column_title} {column}: {figure_text(count)} ({100 * share:.0f} %)"
            canvas.put("rect", "f0", tip=tip, **at).set("fill-opacity", f"{0.06 + 0.94 * share:.2f}")
            if count and size >= 16 and count < 1000:
                style = "on middle" if share > 0.45 else "middle"
                canvas.text(left + (x + 0.5) * size, top + (y + 0.5) * size + 4, figure_text(count), style)
    return canvas.figure(name, title, caption, top + len(rows) * size + 6)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low >= 0 and low <= 0.4 * high:
        low = 0.0
    if high - low < 1e-9 * max(1.0, abs(high)):
        return (0.0, 1.0) if low == 0.0 else (low - abs(low) / 2, high + abs(high) / 2)
    return low, high + 0.04 * (high - low)


def _ticks(low: float, high: float, *, about: int = 5, whole: bool = False) -> list[float]:
    """Round numbers within `low` and `high`."""
    step = _step(low, high, about, whole)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{place * step:.10g}") for place in range(first, last + 1)]


def _step(low: float, high: float, about: int, whole: bool) -> float:
    """A round distance that about `about` of fill the way from `low` to `high`; 1 where there is no way to speak of."""
    rough = (high - low) / about
    if rough <= 1e-12 * max(abs(low), abs(high), 1e-3):
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    return max(1.0, step) if whole else step
