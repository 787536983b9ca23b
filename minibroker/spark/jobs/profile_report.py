"""The report of a profile: a page with what stands out first, then each topic in charts and tables.

Not here: what pages and charts look like (page.py, charts.py), the figures (profile_sql.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from minibroker.log.compression import CODEC_NAMES
from minibroker.spark.jobs.charts import Bar, bars, columns
from minibroker.spark.jobs.page import (
    Row,
    bytes_text,
    charts,
    count_text,
    duration_text,
    figure,
    finds,
    report,
    share_text,
    size_text,
    some_of,
    some_text,
    table,
    tiles,
    time_text,
)
from minibroker.spark.jobs.summary import Table

COLUMNS_MAX = 96  # of a chart over time
STEPS_HOURS = (1, 2, 3, 6, 12, 24, 48, 7 * 24, 28 * 24, 91 * 24, 365 * 24, 3650 * 24)
EDGE = 0.001  # of the records at either end that may be left out of a chart over time: one record of 1970 hides all
BARS_MAX = 16
HOUR_MS = 3_600_000

TITLES = {
    "timestamps": "Timestamps",
    "sizes": "Sizes",
    "partitions": "Partitions",
    "gaps": "Offsets without a record",
    "producers": "Producers",
}
MANNER = (
    "Records, bytes, keys, times, offsets and producers are counted, not estimated; medians and percentiles are at "
    "most an eighth too high.",
    "A record is out of order if it is older than the one before it in its partition, and late by how much it is older "
    "than the newest before it.",
    "Keys and values are the bytes of records; what is stored has batch headers, headers of records and codecs on top. "
    "A batch counts where it ends.",
)
SIZES = {
    "value_bytes": ("Sizes of values", size_text, "records"),
    "batch_bytes": ("Sizes of batches, as stored", size_text, "batches"),
    "batch_records": ("Records in a batch", count_text, "batches"),
}


def profile_report(
    figures: dict[str, Any],
    problems: Sequence[str],
    findings: Sequence[str],
    tables: Sequence[Table],
    bins: Sequence[Row],
    hours: Sequence[Row],
) -> str:
    """Return the page; tables are those of the summary, bins the distributions of sizes, hours those of the records."""
    topics = next(each for each in tables if each.name == "topics")
    records, content, batches = (figures[name] for name in ("records", "key_and_value_bytes", "batches"))
    shown = [
        ("Records", count_text(records), f"in {some_text(figures['partition_count'], 'partition')}"),
        ("Keys and values", bytes_text(content), f"{bytes_text(content / records)} a record" if records else ""),
        ("Stored", bytes_text(figures["stored_bytes"]), ""),
        ("Batches", count_text(batches), f"{records / batches:.1f} records each" if batches else ""),
        ("From", str(figures["oldest"])[:10], f"to {str(figures['newest'])[:10]}"),
    ]
    said = tiles(shown) + (f"<h3>Problems</h3>{finds(problems, '')}" if problems else "")
    said += f"<h3>What stands out</h3>{finds(findings, 'Nothing: no figure is out of the usual.')}"
    sums = sorted(((row[0], row[2]) for row in topics.rows), key=lambda each: -each[1])
    if len(sums) > 1:
        said += charts(_bars("Records by topic", [Bar(name, count, count_text(count)) for name, count in sums]))
    names = [name for name, _ in sums]
    bins_of, hours_of = _by_topic(bins), _by_topic(hours)
    about = f"Read on {figures['profiled_at'][:19].replace('T', ' ')} UTC. All times are UTC."

    def drawn(topic: str, mine: dict[str, list[Row]]) -> str:
        return _topic(mine, bins_of.get(topic, []), hours_of.get(topic, []))

    return report(f"Profile of {some_of(names) if names else 'nothing'}", about, said, tables, TITLES, drawn, MANNER)


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row)
    return found


def _topic(tables: dict[str, list[Row]], bins: Sequence[Row], hours: Sequence[Row]) -> str:
    (topic,), (keys,), (times,) = tables["topics"], tables["keys"], tables["timestamps"]
    records, gaps = topic["records"], sum(row["without_record"] for row in tables["gaps"])
    late = f"at most {duration_text(times['late_ms_max'])} late" if times["out_of_order"] else ""
    nulls = share_text(keys["null_keys"], records)
    shown = [
        ("Records", count_text(records), f"in {some_text(topic['partitions'], 'partition')}"),
        ("Different keys", count_text(keys["distinct_keys"]), f"{nulls} of the records have none"),
        ("Null values", share_text(keys["null_values"], records), some_text(keys["null_values"], "record")),
        ("Out of order", share_text(times["out_of_order"], records), late),
        ("Without a record", count_text(gaps), "offsets"),
        ("Headers", count_text(topic["headers"]), bytes_text(topic["header_bytes"])),
    ]
    parts = [Bar(str(row["partition"]), row["records"], count_text(row["records"])) for row in tables["partitions"]]
    top = [Bar(row["key"] or "(empty)", row["records"], share_text(row["share"], 1)) for row in tables["top_keys"]]
    codecs = [
        Bar(f"{row['codec']} v{row['format']}", row["stored_bytes"], bytes_text(row["stored_bytes"]), _colour(row))
        for row in tables["codecs"]
    ]
    packed = [Bar(row["codec"], row["ratio"], f"{row['ratio']:.2f}", _colour(row)) for row in tables["compressibility"]]
    figures = [
        _over_time(hours) if hours else "",
        _bars("Records by partition", parts) if len(parts) > 1 else "",
        _bars("Most frequent keys", top, "The share is that of the records with a key."),
        *(_histogram(tables, bins, what, *how) for what, how in SIZES.items()),
        _bars("Stored bytes by codec", codecs),
        _bars("What codecs make of a sample of the values: times smaller", packed),
    ]
    return tiles(shown) + charts(*figures)


def _colour(row: Row) -> int:
    return CODEC_NAMES.index(row["codec"]) if row["codec"] in CODEC_NAMES else 5


def _bars(title: str, rows: Sequence[Bar], about: str = "") -> str:
    """Return bars; columns where there are too many."""
    if not rows:
        return ""
    most = max(rows, key=lambda row: row.value)
    chart = bars(rows, title) if len(rows) <= BARS_MAX else columns(rows, title, most.shown)
    return figure(chart, title, about=about, table=table(["", "value"], [[row.label, row.value] for row in rows]))


def _histogram(
    tables: dict[str, list[Row]], found: Sequence[Row], what: str, title: str, text: Callable[[float], str], of: str
) -> str:
    """Return sizes by powers of two, finer if there are few."""
    bins = {row["bin"]: row["count"] for row in found if row["what"] == what}
    if not bins:
        return ""
    (row,) = (row for row in tables["sizes"] if row["what"] == what)
    for step in (8, 4, 2, 1):
        counts: dict[int, int] = {}
        for end, count in bins.items():
            unit = 1 << max(end.bit_length() - 4, 0)  # of eight bins that lie between two powers of two
            edge = -(-(end + 1) // (unit * step)) * unit * step - 1
            counts[edge] = counts.get(edge, 0) + count
        if len(counts) > 6:
            break
    rows = [Bar(f"≤ {text(end)}", count, f"{count:,} {of}") for end, count in sorted(counts.items())]
    ends = f"99 % up to {text(row['p99'])}, largest {text(row['largest'])}"
    return figure(
        columns(rows, title, f"{count_text(max(counts.values()))} {of}"),
        title,
        about=f"Mean {text(row['mean'])}, median about {text(row['median'])}, {ends}.",
        table=table(["up to", of], sorted(counts.items())),
    )


def _over_time(hours: Sequence[Row]) -> str:
    counts: dict[int, int] = {}
    for row in hours:
        hour = row["hour"] // HOUR_MS
        counts[hour] = counts.get(hour, 0) + row["records"]
    first, last = _middle(counts)
    step = next((each for each in STEPS_HOURS if (last - first) // each < COLUMNS_MAX), 0)
    step = step or -(-(last - first) // (STEPS_HOURS[-1] * COLUMNS_MAX)) * STEPS_HOURS[-1]  # times that are broken
    sums = dict.fromkeys(range(first // step, last // step + 1), 0)
    for hour, count in counts.items():
        if first <= hour <= last:
            sums[hour // step] += count
    rows = [Bar(_label(place * step, step), count, f"{count:,} records") for place, count in sums.items()]
    left_out = sum(counts.values()) - sum(sums.values())
    more = f"; {left_out:,} records of other times are not shown" if left_out else ""
    title = f"Records per {'hour' if step == 1 else f'{step} hours' if step < 24 else some_text(step // 24, 'day')}"
    return figure(
        columns(rows, title, f"{count_text(max(sums.values()))} records"),
        title,
        about=f"By the timestamps of records, UTC{more}.",
        table=table(["from", "records"], [[row.label, int(row.value)] for row in rows if row.value]),
        is_wide=True,
    )


def _label(hour: int, step: int) -> str:
    text = time_text(hour * HOUR_MS)
    return text[:10] if step >= 24 else text[:16]


def _middle(counts: dict[int, int]) -> tuple[int, int]:
    """Return the first and the last hour to show."""
    names = sorted(counts)
    if names[-1] - names[0] < 100 * len(names):
        return names[0], names[-1]
    total, ends = sum(counts.values()), list(accumulate(counts[hour] for hour in names))
    first = next(hour for hour, end in zip(names, ends, strict=True) if end > EDGE * total)
    return first, next(hour for hour, end in zip(names, ends, strict=True) if end >= (1 - EDGE) * total)
