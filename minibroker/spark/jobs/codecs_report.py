"""The report of codecs: what to take, first; then ratio, throughput, sizes of batches, costs, the articles.

Not here: what pages and charts look like (page.py, charts.py), the figures (codecs_advice.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from minibroker.log.compression import CODEC_NAMES
from minibroker.spark.jobs.charts import Bar, Line, bars, lines
from minibroker.spark.jobs.codecs_advice import ARTICLES, EXPECTED, Advice, pair
from minibroker.spark.jobs.page import Row, charts, figure, report, size_text, table, tiles
from minibroker.spark.jobs.summary import Table

TITLES = {"articles": "What the articles say", "costs": "What it costs", "measured": "All that was measured"}
MANNER = (
    "Batches were built from records that follow each other in the topic, as a producer would lay them out. A batch's "
    "size is that before compression; Kafka's producers guess what a codec will make of a batch and put more records "
    "into one, so with batch.size=16384 and a ratio of 4 look at the row of 64 KiB.",
    "Ratio is the bytes of whole batches without compression by those with it. Throughput is MB of uncompressed "
    "records by CPU time of one thread; all settings were taken in turn in each of several rounds, the figure is the "
    "median of the rounds, and spread is how far they lay apart.",
    "Costs are in cores. A broker of Kafka unpacks a batch once to validate it; it compresses again only if the "
    "topic's compression.type is another codec than the producer's. The network carries each batch to the leader, to "
    "the other replicas, and to each group of consumers.",
    "The libraries are those of C that the Java clients use as well, with Kafka's framing; what a JVM adds, and what "
    "building and checking batches costs, is not in it. Only at its default level zstd keeps its tables from batch to "
    "batch here, so batches of few KiB look cheaper than they are in a Java client; level 1 shows by how much.",
)


def codecs_report(title: str, about: str, advice: Mapping[str, Advice], tables: Sequence[Table]) -> str:
    said = "".join(_advice(name, each) for name, each in advice.items())
    said += "<p>Set it in the producers (levels from Kafka 3.8 on), and leave the topic compression.type=producer.</p>"
    sources = "".join(f'<li><a href="{escape(url)}">{escape(what)}</a></li>' for what, url in ARTICLES)
    said += f"<h3>Articles</h3><p>What was measured stands beside the first of them.</p><ul>{sources}</ul>"
    return report(title, about, said, tables, TITLES, _drawn, MANNER)


def _advice(name: str, advice: Advice) -> str:
    best = advice.best
    shown = [
        (f"compression.type for {name}", best.setting.label, ""),
        ("Ratio", f"{best.ratio:.2f}", f"in batches of {size_text(best.batch_bytes)}"),
    ]
    for what, mb_s in (("Compress", best.compress_mb_s), ("Decompress", best.decompress_mb_s)):
        shown += [(what, f"{mb_s:,.0f} MB/s", "a core")] if mb_s else []
    setting = "\n".join(f"{key}={value}" for key, value in advice.properties.items())
    reason = advice.reason[0].upper() + advice.reason[1:]
    return f"{tiles(shown)}<p>{escape(reason)}.</p><pre><code>{escape(setting)}</code></pre>"


def _drawn(_topic: str, tables: dict[str, list[Row]]) -> str:
    """Return the charts of a topic. The size of batches to judge by comes first among what was measured."""
    rows = tables["measured"]
    here = [row for row in rows if row["batch_bytes"] == rows[0]["batch_bytes"]]
    about = f"In batches of {size_text(here[0]['batch_bytes'])}."
    figures = []
    for column, title in (("ratio", "Ratio: times smaller"), ("compress_mb_s", "Compression: MB/s a core")):
        high = sorted((row for row in here if row[column]), key=lambda row: -row[column])
        drawn = [Bar(_label(row), row[column], _number(row[column]), CODEC_NAMES.index(row["codec"])) for row in high]
        figures.append(figure(bars(drawn, title), title, about=about))
        figures.append(_by_size(f"{title}, by size of batches", rows, column))
    reasons = "".join(
        f"<li>{row['figure']}, {escape(row['expected'])}: {escape(reason)}</li>"
        for row in tables["articles"]
        for key, reason in EXPECTED.items()
        if (row["figure"], row["expected"]) == (key[0], pair(*key[1:])) and row["measured"] != "holds"
    )
    return charts(*figures) + (
        f"<h3>Why it may be otherwise than in articles</h3><ul>{reasons}</ul>" if reasons else ""
    )


def _by_size(title: str, rows: Sequence[Row], column: str) -> str:
    sizes = sorted({row["batch_bytes"] for row in rows})
    found: dict[str, dict[int, Any]] = {}
    for row in sorted(rows, key=lambda row: row["level"] is None):  # the default goes last, and counts
        found.setdefault(row["codec"], {})[row["batch_bytes"]] = row[column]
    series = [
        Line(name, [by_size.get(size) for size in sizes], CODEC_NAMES.index(name))
        for name, by_size in sorted(found.items(), key=lambda item: CODEC_NAMES.index(item[0]))
        if name != "none"
    ]
    labels = [size_text(size) for size in sizes]
    cells = [[label, *(each.values[place] for each in series)] for place, label in enumerate(labels)]
    return figure(
        lines(series, labels, title, "a batch without compression", _number),
        title,
        about="At the default levels.",
        table=table(["batch", *(each.name for each in series)], cells),
    )


def _label(row: Row) -> str:
    return str(row["codec"] if row["level"] is None else f"{row['codec']} {row['level']}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
