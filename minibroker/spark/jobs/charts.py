"""Charts as SVG, for reports in HTML: horizontal bars, columns, lines, points.

What they look like says the style sheet of the page (page.py) by classes, so they follow light and dark: `s0` to `s5`
are the colours of series. No script; what a mark stands for is its <title>, which browsers show beside the pointer.
What must hold: every text is escaped, and a chart of nothing, of one value or of equal values can be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 26, 42  # beside what is drawn: room for numbers and names
BAR = 26  # from one bar to the next
COLUMN_MAX = 96  # from one column to the next
CHARACTER = 6.6  # about the width of one
SERIES = 6


class Bar(NamedTuple):
    label: str
    value: float
    shown: str  # the value, for people
    series: int = 0


class Dot(NamedTuple):
    x: float
    y: float
    shown: str
    label: str = ""
    low: float | None = None  # of x: how far it was spread
    high: float | None = None


class Series(NamedTuple):
    name: str
    dots: Sequence[Dot]
    colour: int = 0


class Axis(NamedTuple):
    name: str
    shown: Callable[[float], str]
    is_log: bool = False
    ticks: Sequence[float] = ()  # where to draw lines, rising; by default at round numbers


def bars(rows: Sequence[Bar], about: str) -> str:
    """Return horizontal bars from 0 on, one below the other."""
    left = min(max((len(row.label) for row in rows), default=0) * CHARACTER + 12, 0.42 * WIDTH)
    right = max((len(row.shown) for row in rows), default=0) * CHARACTER + 14
    room = WIDTH - left - right
    most = max((row.value for row in rows), default=0) or 1
    fits = int((left - 8) / CHARACTER)
    parts = []
    for index, row in enumerate(rows):
        y = index * BAR + 4
        width = max(row.value / most * room, 1.5 if row.value else 0)
        label = row.label if len(row.label) <= fits else row.label[: fits - 1] + "…"
        parts.append(
            f"<g>{_title(row.label, row.shown)}{_text(left - 8, y + 13, label, 'end')}"
            f'<rect class="track" x="{_n(left)}" y="{y}" width="{_n(room)}" height="18" rx="3"/>'
            f'<rect class="s{row.series % SERIES}" x="{_n(left)}" y="{y}" width="{_n(width)}" height="18" rx="3"/>'
            f"{_text(left + width + 6, y + 13, row.shown, 'start', 'value')}</g>"
        )
    return _svg("".join(parts), about, len(rows) * BAR + 4)


def columns(rows: Sequence[Bar], about: str, axis: Axis, *, width: int = WIDTH) -> str:
    """Return columns side by side, as of a histogram; under them as many labels as there is room for."""
    most = max((row.value for row in rows), default=0)
    frame = Frame(width, HEIGHT, Axis("", str), axis, (0, max(len(rows), 1)), (0, most))
    step = min(frame.room_x / max(len(rows), 1), COLUMN_MAX)
    gap = min(step * 0.18, 4)
    parts = [frame.drawn(x_ticks=False)]
    longest = max((len(row.label) for row in rows), default=1) * CHARACTER + 10
    every = max(ceil(longest / step), 1)
    for index, row in enumerate(rows):
        x, y = LEFT + index * step, frame.y(row.value)
        height = max(frame.bottom - y, 1.5 if row.value else 0)
        parts.append(
            f'<g>{_title(row.label, row.shown)}<rect class="hit" x="{_n(x)}" y="{TOP}" width="{_n(step)}" '
            f'height="{_n(frame.bottom - TOP)}"/><rect class="s{row.series % SERIES}" x="{_n(x + gap / 2)}" '
            f'y="{_n(frame.bottom - height)}" width="{_n(step - gap)}" height="{_n(height)}"/></g>'
        )
        if index % every == 0:
            parts.append(_text(x + step / 2, frame.bottom + 16, row.label, "middle"))
    return _svg("".join(parts), about, HEIGHT, width)


def lines(series: Sequence[Series], about: str, x: Axis, y: Axis, *, width: int = WIDTH) -> str:
    """Return a line for each series, its points by rising x."""
    return _points(series, about, x, y, width, is_joined=True)


def scatter(series: Sequence[Series], about: str, x: Axis, y: Axis, *, width: int = WIDTH) -> str:
    """Return points with their labels; where a dot says how far it was spread, with a bar from end to end."""
    return _points(series, about, x, y, width, is_joined=False)


def legend(names: Sequence[tuple[str, int]]) -> str:
    """Return names beside the colours of their series, as HTML."""
    items = "".join(
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true">{_mark(6, 6, colour, 5)}</svg>{escape(name)}</li>'
        for name, colour in names
    )
    return f'<ul class="legend">{items}</ul>'


def _points(series: Sequence[Series], about: str, x: Axis, y: Axis, width: int, *, is_joined: bool) -> str:
    dots = [dot for each in series for dot in each.dots]
    ends = [end for dot in dots for end in (dot.x, dot.low, dot.high) if end is not None]
    frame = Frame(width, HEIGHT + 60, x, y, _range(ends, x), _range([dot.y for dot in dots], y))
    parts = [frame.drawn()]
    labels = Labels(width)
    for each in series:
        colour = each.colour % SERIES
        if is_joined and len(each.dots) > 1:
            path = " ".join(f"{_n(frame.x(dot.x))},{_n(frame.y(dot.y))}" for dot in each.dots)
            parts.append(f'<polyline class="line c{colour}" points="{path}"/>')
        for dot in each.dots:
            at_x, at_y = frame.x(dot.x), frame.y(dot.y)
            spread = ""
            if dot.low is not None and dot.high is not None:
                ends_at = f'x1="{_n(frame.x(dot.low))}" x2="{_n(frame.x(dot.high))}"'
                spread = f'<line class="spread c{colour}" {ends_at} y1="{_n(at_y)}" y2="{_n(at_y)}"/>'
            label = labels.placed(at_x, at_y, dot.label)
            parts.append(f"<g>{_title(each.name, dot.shown)}{spread}{_mark(at_x, at_y, colour)}{label}</g>")
    return _svg("".join(parts), about, HEIGHT + 60, width)


class Labels:
    """Names of dots: each where no other one is yet, if there is such a place beside its dot."""

    def __init__(self, width: int):
        self._width = width
        self._taken: list[tuple[float, float, float]] = []  # from, to, and the line of the text

    def placed(self, x: float, y: float, text: str) -> str:
        if not text:
            return ""
        length = len(text) * CHARACTER
        for down, anchor in (
            (-11, "middle"),
            (20, "middle"),
            (4, "start"),
            (4, "end"),
            (-24, "middle"),
            (33, "middle"),
        ):
            begin = {"start": x + 9, "end": x - 9 - length, "middle": x - length / 2}[anchor]
            at = begin, begin + length, y + down
            is_inside = begin >= LEFT and at[1] <= self._width
            if is_inside and not any(
                at[0] < end and start < at[1] and abs(at[2] - line) < 12 for start, end, line in self._taken
            ):
                break
        else:
            at, anchor = (x + 9, x + 9 + length, y + 4), "start"
        self._taken.append(at)
        return _text(at[0], at[2], text, "start")


class Frame:
    """Two axes and what lies between them."""

    def __init__(
        self, width: int, height: int, x: Axis, y: Axis, x_range: tuple[float, float], y_range: tuple[float, float]
    ):
        self.bottom = height - BOTTOM
        self.room_x = width - LEFT - RIGHT
        self._axes = x, y
        self._ticks = list(x.ticks) or ticks(*x_range, x.is_log), list(y.ticks) or ticks(*y_range, y.is_log)
        self._ends = [
            (min(found[0], low), max(found[-1], high))
            for found, (low, high) in zip(self._ticks, (x_range, y_range), strict=True)
        ]
        self._right = width - RIGHT

    def x(self, value: float) -> float:
        return LEFT + self._share(value, 0) * self.room_x

    def y(self, value: float) -> float:
        return self.bottom - self._share(value, 1) * (self.bottom - TOP)

    def _share(self, value: float, which: int) -> float:
        low, high = self._ends[which]
        if self._axes[which].is_log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        return (value - low) / (high - low) if high > low else 0.5

    def drawn(self, *, x_ticks: bool = True) -> str:
        x, y = self._axes
        parts = []
        for tick in self._ticks[1]:
            at = _n(self.y(tick))
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{self._right}" y1="{at}" y2="{at}"/>')
            parts.append(_text(LEFT - 7, self.y(tick) + 4, y.shown(tick), "end"))
        for tick in self._ticks[0] if x_ticks else ():
            at = _n(self.x(tick))
            parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{_n(self.bottom)}"/>')
            parts.append(_text(self.x(tick), self.bottom + 16, x.shown(tick), "middle"))
        parts.append(_text(LEFT + self.room_x / 2, self.bottom + 34, x.name, "middle", "name"))
        if y.name:
            parts.append(_text(4, 11, y.name, "start", "name"))
        return "".join(parts)


def ticks(low: float, high: float, is_log: bool = False) -> list[float]:
    """Return round numbers around a range, rising; at least two."""
    if is_log:
        first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
        powers = [10.0**power for power in range(first, max(last, first + 1) + 1)]
        if len(powers) > 3:
            return powers
        found = [power * step for power in powers[:-1] for step in (1, 2, 5)] + [powers[-1]]
        begin = max((tick for tick in found if tick <= low * 1.0001), default=found[0])
        end = min((tick for tick in found if tick >= high * 0.9999), default=found[-1])
        return [tick for tick in found if begin <= tick <= end] if begin < end else powers
    if high <= low:
        low, high = (0, high or 1) if high >= 0 else (low, 0)
    rough = (high - low) / 4
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [step * number for number in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1)]


def _range(values: Sequence[float], axis: Axis) -> tuple[float, float]:
    values = [value for value in values if isfinite(value) and (value > 0 or not axis.is_log)]
    if not values:
        return (1, 10) if axis.is_log else (0, 1)
    return (min(values), max(values)) if axis.is_log else (min(0, *values, 0), max(values))


def _mark(x: float, y: float, colour: int, size: float = 5.5) -> str:
    """Return the mark of a series: another shape for each, as not everybody sees the colours."""
    shapes: dict[int, list[tuple[float, float]]] = {
        1: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        2: [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
        3: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        4: [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
        5: [(-1.2, -0.4), (0, -1.3), (1.2, -0.4), (0.75, 1.1), (-0.75, 1.1)],
    }
    if colour not in shapes:
        return f'<circle class="s{colour}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(size)}"/>'
    corners = " ".join(f"{_n(x + dx * size * 0.9)},{_n(y + dy * size * 0.9)}" for dx, dy in shapes[colour])
    return f'<polygon class="s{colour}" points="{corners}"/>'


def _svg(inside: str, about: str, height: float, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {_n(height)}" role="img" aria-label="{escape(about)}">'
        f"<title>{escape(about)}</title>{inside}</svg>"
    )


def _title(name: str, shown: str) -> str:
    return f"<title>{escape(f'{name}: {shown}' if name else shown)}</title>"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{escape(text)}</text>' if text else ""


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
