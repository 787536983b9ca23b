"""Reports as one page of HTML that can be sent on: no script, nothing from the network, readable in light and dark.

    report("Profile of orders", "...", finds(...), tables, {"sizes": "Sizes"}, drawn, ["Every record was read once."])

Charts carry the table they were drawn from, folded under them: for those who cannot see them, and for copying.
What must hold: every text is escaped but what is named `html`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from minibroker.errors import StorageError
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.summary import Table
from minibroker.spark.option_values import OptionError

DAY_MS = 86_400_000
ROWS_MAX = 200  # of a table
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
body{margin:0 auto;max-width:1168px;padding:24px;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,
-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:28px;line-height:1.2;margin:0 0 6px}
h2{font-size:21px;margin:40px 0 12px;padding-top:14px;border-top:2px solid var(--line)}
h3{font-size:16px;margin:26px 0 8px}
p{margin:6px 0;max-width:76ch}
.soft,figcaption p,footer{color:var(--soft)}
a,summary{color:var(--accent)}
nav a{margin-right:18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}
.tiles div,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.tiles dt,.tiles small{color:var(--soft);font-size:13px;font-weight:400}
.tiles dd{margin:0;font-size:23px;font-weight:600}
.tiles small{display:block}
.finds{list-style:none;padding:0;margin:12px 0}
.finds li{padding:9px 14px;border-left:4px solid var(--warn);background:var(--warn-ground);margin:7px 0}
.finds li.good{border-color:var(--good);background:var(--good-ground)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px;margin:14px 0}
figure{margin:0;min-width:0}
figure.wide{grid-column:1/-1}
figcaption{font-weight:600;margin-bottom:10px}
figcaption p,details,.legend{font-weight:400;font-size:13px;margin:0}
.bars{display:grid;grid-template-columns:fit-content(40%) 1fr max-content;gap:6px 10px;font-size:13px;
align-items:center}
.bars span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;text-align:right}
.bars i{background:var(--track);height:18px}
.bars b{display:block;height:100%;min-width:1px}
.bars em{font-style:normal;font-variant-numeric:tabular-nums}
.columns small,.columns p{color:var(--soft);font-size:13px;margin:2px 0;max-width:none}
.columns div{display:flex;height:170px;border:solid var(--line);border-width:1px 0}
.columns i{flex:1;padding:0 min(8%,2px);display:flex;align-items:flex-end}
@media(max-width:600px){.columns i{padding:0 .4px}}
.columns i:hover{background:var(--track)}
.columns b{display:block;width:100%}
.columns .ends{display:flex;justify-content:space-between}
svg{display:block;width:100%;height:auto;max-width:640px}
svg text{fill:var(--soft);font:12px system-ui,sans-serif}
svg line{stroke:var(--line)}polyline{fill:none;stroke-width:2}
.s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}.s5{--c:var(--c5)}
b[class]{background:var(--c)}polyline{stroke:var(--c)}svg text[class]{fill:var(--c)}.legend span{color:var(--c)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;padding:0}
details{margin-top:8px}
.scroll{overflow-x:auto;margin:10px 0;max-height:480px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{padding:5px 9px 5px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:600}
.number{text-align:right}td.number{white-space:nowrap}
.text{min-width:16em}
footer{padding-top:40px;font-size:13px}
@media print{details{display:none}figure{break-inside:avoid}}
"""


Row = dict[str, Any]


def report(
    title: str,
    about: str,
    said: str,
    tables: Sequence[Table],
    titles: Mapping[str, str],
    drawn: Callable[[str, dict[str, list[Row]]], str],
    manner: Sequence[str],
) -> str:
    """Return a page: what is to be said first, each topic in charts and tables, how it was done.

    said, what `drawn` makes of the tables of a topic: HTML. tables: their first column is the topic.
    titles: headings of the tables that are shown, by their names.
    """
    topics: dict[str, dict[str, list[Row]]] = {}
    for each in tables:
        for topic, *row in each.rows:
            mine = topics.setdefault(topic, {table.name: [] for table in tables})
            mine[each.name].append(dict(zip(each.columns[1:], row, strict=True)))
    sections = {"At a glance": said}
    for name, mine in topics.items():
        below = [f"<h3>{escape(text)}</h3>{_rows(mine[key])}" for key, text in titles.items() if mine[key]]
        sections[name] = drawn(name, mine) + "".join(below)
    sections["How it was done"] = "".join(f"<p>{escape(each)}</p>" for each in manner)
    links = "".join(f'<a href="#part-{n}">{escape(name)}</a>' for n, name in enumerate(sections))
    parts = "\n".join(
        f'<section id="part-{n}"><h2>{escape(name)}</h2>{html}</section>'
        for n, (name, html) in enumerate(sections.items())
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><header><h1>{escape(title)}</h1>"
        f'<p class="soft">{escape(about)}</p><nav aria-label="Contents">{links}</nav></header>\n<main>{parts}</main>\n'
        "<footer>Made by minibroker; this file needs nothing but itself.</footer></body></html>\n"
    )


def _rows(rows: Sequence[Row]) -> str:
    more = f'<p class="soft">and {len(rows) - ROWS_MAX:,} more; --json has all of them.</p>'
    names = [re.sub("_s$", "/s", name).replace("_", " ").replace("mb/", "MB/") for name in rows[0]]
    shown = table(names, [list(row.values()) for row in rows[:ROWS_MAX]])
    return shown + (more if len(rows) > ROWS_MAX else "")


class ReportFile:
    """Where a report goes: a path of this machine, or a URL that PyArrow opens. A bad one is refused before the job."""

    def __init__(self, path: str):
        above, slash, self._name = path.rpartition("/")
        if not self._name:
            raise OptionError(f"--html {path}: name a file, as {path}report.html")
        is_url = "://" in path or path.startswith("file:")
        self._folder = open_folder(above) if is_url else Folder(os.path.abspath(above or slash or "."))
        self._path = path

    def write(self, text: str, notes: list[str], problems: list[str]) -> None:
        """Write it, and say so; if that fails, the summary is still there to say why."""
        try:
            self._folder.write(self._name, text.encode())
        except StorageError as failure:
            problems.append(f"the report could not be written: {failure}")
        else:
            notes.append(f"the report is {self._path}")


def tiles(values: Sequence[tuple[str, str, str]]) -> str:
    """Return figures to be seen first: name, value, and what to add in small letters."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in values
    )
    return f'<dl class="tiles">{inside}</dl>'


def finds(texts: Sequence[str], otherwise: str) -> str:
    """Return what stands out, or that nothing does."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts) or f'<li class="good">{escape(otherwise)}</li>'
    return f'<ul class="finds">{items}</ul>'


def charts(*figures: str) -> str:
    return f'<div class="charts">{"".join(figures)}</div>'


def figure(chart: str, title: str, *, about: str = "", table: str = "", is_wide: bool = False) -> str:
    """Return a chart with its title and, folded, its table."""
    note = f"<p>{escape(about)}</p>" if about else ""
    folded = f"<details><summary>Table</summary>{table}</details>" if table else ""
    kind = ' class="wide"' if is_wide else ""
    return f"<figure{kind}><figcaption>{escape(title)}{note}</figcaption>{chart}{folded}</figure>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; columns of numbers are set to the right."""
    kinds = [_kind_of([row[place] for row in rows]) for place in range(len(columns))]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{_shown(cell)}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind_of(values: Sequence[Any]) -> str:
    texts = [str(value) for value in values if value is not None]
    if all(text[:1].isdigit() and len(text) < 25 for text in texts):
        return ' class="number"'
    return ' class="text"' if max(map(len, texts), default=0) > 60 else ""


def _shown(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    text = "–" if value is None else str(value)
    return escape(text[:-5].replace("T", " ") if _ISO.fullmatch(text) else text)  # nobody looks for milliseconds here


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


def some_of(topics: Collection[str]) -> str:
    return ", ".join(topics) if len(topics) < 4 else f"{len(topics)} topics"


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
