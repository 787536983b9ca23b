"""Charts for reports in HTML: horizontal bars, columns, lines.

Bars and columns are boxes whose sizes are shares of the largest, so that browsers fit them to any width; lines are SVG.
Colours, light and dark, are the style sheet's (page.py), by classes: `s0` to `s5` are those of series. No script; what
a mark stands for is its title, which browsers show beside the pointer.
What must hold: every text is escaped, and a chart of nothing, of one value or of equal values can be drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, log10
from typing import NamedTuple

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 30, 12, 42  # beside the lines: room for numbers and names
SERIES = 6
MARKS = "●■▲◆▼★"  # another one for each series, as not everybody sees the colours


class Bar(NamedTuple):
    label: str
    value: float
    shown: str  # the value, for people
    series: int = 0


class Line(NamedTuple):
    name: str
    values: Sequence[float | None]  # one for each label of the axis
    series: int = 0


def bars(rows: Sequence[Bar], about: str) -> str:
    """Return horizontal bars from 0 on, one below the other."""
    most = max((row.value for row in rows), default=0) or 1
    inside = "".join(
        f'<span title="{escape(row.label)}">{escape(row.label)}</span><i><b class="s{row.series % SERIES}" '
        f'style="width:{100 * row.value / most:.2f}%"></b></i><em>{escape(row.shown)}</em>'
        for row in rows
    )
    return f'<div class="bars" role="img" aria-label="{escape(about)}">{inside}</div>'


def columns(rows: Sequence[Bar], about: str, top: str) -> str:
    """Return columns side by side, as of a histogram; `top` says how much the highest is."""
    most = max((row.value for row in rows), default=0) or 1
    inside = "".join(
        f'<i title="{escape(f"{row.label}: {row.shown}")}"><b class="s{row.series % SERIES}" '
        f'style="height:{100 * row.value / most:.2f}%"></b></i>'
        for row in rows
    )
    ends = [rows[place].label for place in sorted({0, len(rows) // 2, len(rows) - 1})] if rows else []
    below = "".join(f"<span>{escape(each)}</span>" for each in ends)
    return (
        f'<div class="columns" role="img" aria-label="{escape(about)}"><small>{escape(top)}</small>'
        f'<div>{inside}</div><p class="{"ends" if len(ends) > 1 else "end"}">{below}</p></div>'
    )


def lines(series: Sequence[Line], labels: Sequence[str], about: str, name: str, shown: Callable[[float], str]) -> str:
    """Return a line for each series, over labels that lie evenly; `name` is that of their axis."""
    marks = ticks(max((value for each in series for value in each.values if value is not None), default=0))
    bottom = HEIGHT - BOTTOM

    def x(place: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (place / (len(labels) - 1) if len(labels) > 1 else 0.5)

    def y(value: float) -> float:
        return bottom - (bottom - TOP) * value / marks[-1]

    parts = [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>'
        f"{_text(LEFT - 7, y(mark) + 4, shown(mark), 'end')}"
        for mark in marks
    ]
    parts += [_text(x(place), bottom + 17, label, "middle") for place, label in enumerate(labels)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, name, "middle"))
    for each in series:
        colour = each.series % SERIES
        there = [(x(place), y(value), value) for place, value in enumerate(each.values) if value is not None]
        path = " ".join(f"{at_x:.1f},{at_y:.1f}" for at_x, at_y, _ in there)
        parts.append(f'<polyline class="s{colour}" points="{path}"/>')
        parts += [
            f'<text class="s{colour}" x="{at_x:.1f}" y="{at_y + 4:.1f}" text-anchor="middle">{MARKS[colour]}'
            f"<title>{escape(f'{each.name}: {shown(value)}')}</title></text>"
            for at_x, at_y, value in there
        ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">{"".join(parts)}</svg>'
        f'<ul class="legend">{"".join(map(_legend, series))}</ul>'
    )


def _legend(line: Line) -> str:
    colour = line.series % SERIES
    return f'<li><span class="s{colour}">{MARKS[colour]}</span> {escape(line.name)}</li>'


def ticks(most: float) -> list[float]:
    """Return round numbers from 0 up to and above the largest value; at least two."""
    rough = (most if most > 0 else 1) / 4
    unit = 10.0 ** ceil(log10(rough) - 1)
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    return [step * number for number in range(ceil(most / step - 1e-9 if most > 0 else 1) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
