"""Reports as one page of HTML that can be sent on: no script, nothing from the network, readable in light and dark.

    Page("Profile of orders", "...").add(section("Keys", figure(chart, "...", table(...)))).html()

Charts carry the table they were drawn from, folded under them: for those who cannot see them, and for copying.
What must hold: every text is escaped but what is named `html`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Self

DAY_MS = 86_400_000
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
YEAR_10000_MS = 253_402_300_800_000

STYLE = """
:root{color-scheme:light dark;--ground:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#5b6470;--line:#e2e4e8;--track:#f0f1f3;
--accent:#2563a8;--warn:#8a4b00;--warn-ground:#fff5e5;--good:#1d6b45;--good-ground:#ebf7f0;
--c0:#3b78bd;--c1:#d9822b;--c2:#3f9b6c;--c3:#b4508f;--c4:#8a73c9;--c5:#7d8792}
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--card:#1c2024;--ink:#e8eaed;--soft:#a2abb6;--line:#31373e;
--track:#262b31;--accent:#7fb2e6;--warn:#f2c078;--warn-ground:#33291a;--good:#86d1a8;--good-ground:#1a2c22;
--c0:#6ea6de;--c1:#eda35a;--c2:#6cc095;--c3:#d580b5;--c4:#ae9be3;--c5:#a2abb6}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main,header,footer{max-width:1120px;margin:0 auto;padding:0 24px}
header{padding-top:36px}
h1{font-size:28px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:21px;margin:44px 0 12px;padding-top:14px;border-top:2px solid var(--line)}
h3{font-size:16px;margin:26px 0 8px}
p{margin:6px 0;max-width:76ch}
.soft,figcaption p,footer{color:var(--soft)}
a{color:var(--accent)}
nav ul{list-style:none;padding:0;margin:14px 0 0;display:flex;flex-wrap:wrap;gap:6px 18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0;padding:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.tiles dt{color:var(--soft);font-size:13px}
.tiles dd{margin:0;font-size:23px;font-weight:600;letter-spacing:-.01em;font-variant-numeric:tabular-nums}
.tiles dd small{display:block;font-size:12.5px;font-weight:400;color:var(--soft);letter-spacing:0}
.finds{list-style:none;padding:0;margin:12px 0}
.finds li{padding:9px 14px;border-left:4px solid var(--warn);background:var(--warn-ground);margin:7px 0;
border-radius:0 8px 8px 0}
.finds li.good{border-color:var(--good);background:var(--good-ground)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px;margin:14px 0}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}
figure.wide{grid-column:1/-1}
figcaption{font-weight:600;margin-bottom:8px}
figcaption p{font-weight:400;font-size:13px;margin:0}
svg{display:block;width:100%;height:auto}
figure:not(.wide)>svg{max-width:640px}
svg text{fill:var(--ink);font-size:11.5px;font-family:inherit}
svg .tick{fill:var(--soft)}svg .name{fill:var(--soft);font-weight:600}svg .value{font-variant-numeric:tabular-nums}
.grid{stroke:var(--line);stroke-width:1}.track{fill:var(--track)}.hit{fill:transparent}
.line{fill:none;stroke-width:2}.spread{stroke-width:2;opacity:.45}
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}.s4{fill:var(--c4)}.s5{fill:var(--c5)}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}
.c5{stroke:var(--c5)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;padding:0;margin:6px 0 0;font-size:13px}
.legend svg{display:inline-block;width:12px;height:12px;margin-right:6px;vertical-align:-1px}
details{margin-top:8px;font-size:13px}
summary{cursor:pointer;color:var(--accent)}
.scroll{overflow-x:auto;margin:10px 0}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;background:var(--card)}
caption{text-align:left;font-weight:600;padding:4px 0 6px}
th,td{padding:5px 12px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
th{color:var(--soft);font-weight:600}thead th{border-bottom:2px solid var(--line)}
td.number,th.number{text-align:right}
td.text{white-space:normal;min-width:16em}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.93em}
footer{padding:40px 24px;font-size:13px}
@media print{body{background:#fff}figure,.tiles div{break-inside:avoid}details{display:none}}
"""


class Page:
    """A report."""

    def __init__(self, title: str, about: str):
        self._title = title
        self._about = about
        self._sections: list[tuple[str, str]] = []

    def add(self, name: str, html: str) -> Self:
        self._sections.append((name, html))
        return self

    def html(self) -> str:
        links = "".join(
            f'<li><a href="#part-{n}">{escape(name)}</a></li>' for n, (name, _) in enumerate(self._sections)
        )
        parts = "\n".join(
            f'<section id="part-{n}"><h2>{escape(name)}</h2>{html}</section>'
            for n, (name, html) in enumerate(self._sections)
        )
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
            '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
            f"<title>{escape(self._title)}</title><style>{STYLE}</style></head>\n<body>"
            f'<header><h1>{escape(self._title)}</h1><p class="soft">{escape(self._about)}</p>'
            f'<nav aria-label="Contents"><ul>{links}</ul></nav></header>\n<main>{parts}</main>\n'
            "<footer>Made by minibroker; this file needs nothing but itself.</footer></body></html>\n"
        )


def tiles(values: Sequence[tuple[str, str, str]]) -> str:
    """Return figures to be seen first: name, value, and what to add in small letters."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f'<small>{escape(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in values
    )
    return f'<dl class="tiles">{inside}</dl>'


def finds(texts: Sequence[str], otherwise: str) -> str:
    """Return what stands out, or that nothing does."""
    if not texts:
        return f'<ul class="finds"><li class="good">{escape(otherwise)}</li></ul>'
    return f'<ul class="finds">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def charts(*figures: str) -> str:
    return f'<div class="charts">{"".join(figures)}</div>'


def figure(chart: str, title: str, *, about: str = "", table: str = "", below: str = "", is_wide: bool = False) -> str:
    """Return a chart with its title and, folded, its table."""
    note = f"<p>{escape(about)}</p>" if about else ""
    folded = f"<details><summary>Table</summary>{table}</details>" if table else ""
    kind = ' class="wide"' if is_wide else ""
    return f"<figure{kind}><figcaption>{escape(title)}{note}</figcaption>{chart}{below}{folded}</figure>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Return a table; columns of numbers are set to the right. Text that begins with ` is code."""
    right = [all(_is_number(row[place]) for row in rows) for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_class(is_right)}>{escape(name)}</th>' for name, is_right in zip(columns, right, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(value, is_right) for value, is_right in zip(row, right, strict=True)) + "</tr>"
        for row in rows
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _is_number(value: Any) -> bool:
    text = str(value)
    return value is None or isinstance(value, int | float) or (text[:1].isdigit() and len(text) < 16)


def _class(is_right: bool) -> str:
    return ' class="number"' if is_right else ""


def _cell(value: Any, is_right: bool) -> str:
    text = "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    if _ISO.fullmatch(text):
        text = text[:-5].replace("T", " ")  # nobody looks for milliseconds in a table
    if text.startswith("`"):
        return f"<td><code>{escape(text[1:])}</code></td>"
    kind = ' class="text"' if len(text) > 60 else _class(is_right)
    return f"<td{kind}>{escape(text)}</td>"


# Values, for people


def count_text(number: float) -> str:
    """Return a number in few digits: 950, 1.2 k, 34 M."""
    return _scaled(number, 1000, ("", " k", " M", " G", " T", " P", " E"))


def bytes_text(number: float) -> str:
    return _scaled(number, 1000, (" B", " kB", " MB", " GB", " TB", " PB", " EB"))


def size_text(number: float) -> str:
    """Return a size that is a power of two, or near one, as people name it: 16 KiB."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"))


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    value, place = float(number), 0
    while abs(value) >= base * 0.9995 and place < len(units) - 1:
        value, place = value / base, place + 1
    digits = 0 if abs(value) >= 99.5 or (place == 0 and value == int(value)) else 1 if abs(value) >= 9.95 else 2
    text = f"{value:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + units[place]


def some_text(number: int, what: str) -> str:
    """Return how many there are of what has a plural with s."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def share_text(part: float, whole: float) -> str:
    if not whole:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.01:
        return "<0.01 %"
    return f"{share:.2g} %" if share < 1 else f"{share:.1f} %" if share < 99.95 or part == whole else ">99.9 %"


def time_text(ms: int | None) -> str:
    """Return a time of day in UTC; what no calendar has as a number."""
    if ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def iso_text(ms: int | None) -> str | None:
    """Return a time as scripts read it."""
    if ms is None:
        return None
    return f"{time_text(ms).replace(' ', 'T')}.{ms % 1000:03d}Z" if 0 <= ms < YEAR_10000_MS else f"{ms} ms"


def duration_text(ms: int) -> str:
    if ms < 1000:
        return f"{ms} ms"
    for unit_ms, name in ((365 * DAY_MS, "years"), (DAY_MS, "days"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * unit_ms:
            return f"{ms / unit_ms:.1f} {name}"
    return f"{ms / 1000:.1f} s"
