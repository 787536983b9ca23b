"""The report of a profile: a page with what stands out first, then each topic in charts and tables.

Not here: what pages and charts look like (page.py, charts.py), the figures (profile_tables.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import accumulate

from minibroker.log.compression import CODEC_NAMES
from minibroker.spark.jobs import charts, page
from minibroker.spark.jobs.charts import Axis, Bar
from minibroker.spark.jobs.page import (
    bytes_text,
    count_text,
    duration_text,
    figure,
    share_text,
    size_text,
    some_text,
    time_text,
)
from minibroker.spark.jobs.profile_counts import HOUR_MS, TopicCounts
from minibroker.spark.jobs.profile_keys import shown
from minibroker.spark.jobs.profile_sizes import Sizes
from minibroker.spark.jobs.profile_tables import Profile
from minibroker.spark.jobs.summary import Table

COLUMNS_MAX = 96  # of a chart over time
STEPS_HOURS = (1, 2, 3, 6, 12, 24, 48, 7 * 24, 14 * 24, 28 * 24, 91 * 24, 365 * 24)
EDGE = 0.001  # of the records at either end that may be left out of a chart over time: one record of 1970 hides all
BARS_MAX = 16
ROWS_MAX = 200
WIDE = 1080


def report(profile: Profile, findings: Sequence[str], tables: Sequence[Table], now_ms: int) -> str:
    """Return the page."""
    names = list(profile.topics)
    title = f"Profile of {names[0]}" if len(names) == 1 else f"Profile of {len(names)} topics"
    found = page.Page(title, f"Read on {time_text(now_ms)} UTC. All times are UTC.")
    found.add("At a glance", _overview(profile, findings))
    for name in names:
        found.add(name, _topic(profile, name, {table.name: table for table in tables}))
    if profile.counts.left_out:
        found.add("Broken batches", page.finds(profile.counts.left_out[:ROWS_MAX], ""))
    return found.add("How it was counted", _manner(profile)).html()


def _overview(profile: Profile, findings: Sequence[str]) -> str:
    parts = [partition for _, _, partition in profile.partitions()]
    records = sum(part.records for part in parts)
    content = sum(part.key_bytes + part.value_bytes for part in parts)
    oldest, newest = profile.span()
    tiles = [
        ("Records", count_text(records), f"{records:,}"),
        ("Keys and values", bytes_text(content), f"{bytes_text(content / records)} a record" if records else ""),
    ]
    stored, batches = sum(part.batch_bytes for part in parts), sum(part.batches for part in parts)
    tiles.append(("Stored", bytes_text(stored), f"{stored / content:.2f} of the content" if content else ""))
    tiles.append(("Batches", count_text(batches), f"{records / batches:.1f} records each" if batches else ""))
    tiles.append(("Topics", f"{len(profile.topics):,}", some_text(len(parts), "partition")))
    if oldest is not None and newest is not None:
        tiles.append(("Times", duration_text(newest - oldest), f"{time_text(oldest)} to {time_text(newest)}"))
    html = (
        page.tiles(tiles) + "<h3>What stands out</h3>" + page.finds(findings, "Nothing: no figure is out of the usual.")
    )
    if len(profile.topics) > 1:
        sums = {name: sum(part.records for part in topic.partitions.values()) for name, topic in profile.topics.items()}
        largest = dict(sorted(sums.items(), key=lambda item: -item[1]))
        html += page.charts(_bars("Records by topic", largest, count_text))
    return html


def _topic(profile: Profile, name: str, tables: dict[str, Table]) -> str:
    topic = profile.topics[name]
    figures = [_over_time(profile, name), _by_partition(topic), _top_keys(profile, name)]
    figures.append(_sizes("Sizes of values", topic.value_sizes, size_text, "records"))
    figures.append(_sizes("Sizes of batches, as stored", topic.batch_sizes, size_text, "batches"))
    figures.append(_sizes("Records in a batch", topic.batch_records, count_text, "batches"))
    figures.append(_codecs(topic))
    figures.append(_compressibility(topic))
    html = _tiles(profile, name) + page.charts(*(each for each in figures if each))
    titles = {
        "timestamps": "Timestamps",
        "sizes": "Sizes",
        "partitions": "Partitions",
        "gaps": "Offsets without a record",
        "producers": "Producers",
    }
    for key, title in titles.items():
        rows = [row[1:] for row in tables[key].rows if row[0] == name]
        if not rows:
            continue
        names = [column.replace("_", " ") for column in tables[key].columns[1:]]
        used = [place for place in range(len(names)) if any(row[place] is not None for row in rows)]
        shown_rows = [[row[place] for place in used] for row in rows[:ROWS_MAX]]
        html += f"<h3>{title}</h3>{page.table([names[place] for place in used], shown_rows)}"
        if len(rows) > ROWS_MAX:
            html += f'<p class="soft">and {len(rows) - ROWS_MAX:,} more; --json has all of them.</p>'
    return html


def _tiles(profile: Profile, name: str) -> str:
    topic, keys = profile.topics[name], profile.keys[name]
    parts = topic.partitions.values()
    records = sum(part.records for part in parts)
    about = "" if keys.is_exact else "about, ±0.8 %"
    nulls = f"{share_text(keys.nulls, records)} of the records have none" if keys.nulls else "every record has one"
    stretches = profile.of_topic(name)
    backward, timed = sum(each.backward for each in stretches), sum(each.timed for each in stretches)
    late = max((each.late_ms_max for each in stretches), default=0)
    missing = sum(profile.gaps(name, number).missing for number in topic.partitions)
    found = [
        ("Records", count_text(records), f"in {some_text(len(parts), 'partition')}"),
        ("Different keys", count_text(keys.distinct), about or (nulls if records else "")),
        ("Null values", share_text(topic.null_values, records), some_text(topic.null_values, "record")),
        ("Out of order", share_text(backward, timed), f"at most {duration_text(late)} late" if backward else ""),
        ("Without a record", count_text(missing), "offsets"),
    ]
    if topic.headers:
        found.append(("Headers", count_text(topic.headers), f"{topic.headers / records:.1f} a record"))
    return page.tiles(found)


def _over_time(profile: Profile, name: str) -> str:
    hours: dict[int, int] = {}
    for partition in profile.topics[name].partitions.values():
        for hour, (records, _) in partition.hours.items():
            hours[hour] = hours.get(hour, 0) + records
    if not hours:
        return ""
    first, last, left_out = _middle(hours)
    step = next((each for each in STEPS_HOURS if (last - first) // each < COLUMNS_MAX), STEPS_HOURS[-1])
    counts: dict[int, int] = {}
    for hour, records in hours.items():
        if first <= hour <= last:
            counts[hour // step] = counts.get(hour // step, 0) + records
    places = range(first // step, last // step + 1) if (last - first) // step < 4 * COLUMNS_MAX else sorted(counts)
    is_day = step >= 24
    rows = []
    for place in places:
        text = time_text(place * step * HOUR_MS)
        label = text[:10] if is_day else text[5:16]
        rows.append(Bar(label, counts.get(place, 0), f"{counts.get(place, 0):,} records"))
    of_step = "hour" if step == 1 else "day" if step == 24 else f"{step} hours" if step < 24 else f"{step // 24} days"
    more = f"; {left_out:,} records of other times are not shown" if left_out else ""
    table = page.table(["from", "records"], [[row.label, int(row.value)] for row in rows if row.value])
    title = f"Records per {of_step}"
    chart = charts.columns(rows, f"{title} of {name}", Axis("records", count_text), width=WIDE)
    return figure(chart, title, about=f"By the timestamps of records, UTC{more}.", table=table, is_wide=True)


def _middle(hours: dict[int, int]) -> tuple[int, int, int]:
    """Return the first and the last hour to show, and how many records are outside."""
    total, names = sum(hours.values()), sorted(hours)
    if names[-1] - names[0] < 100 * len(names):
        return names[0], names[-1], 0
    ends = list(accumulate(hours[hour] for hour in names))
    first = next(hour for hour, end in zip(names, ends, strict=True) if end > EDGE * total)
    last = next(hour for hour, end in zip(names, ends, strict=True) if end >= (1 - EDGE) * total)
    return first, last, total - sum(count for hour, count in hours.items() if first <= hour <= last)


def _by_partition(topic: TopicCounts) -> str:
    counts = {f"{number}": part.records for number, part in sorted(topic.partitions.items())}
    if len(counts) < 2:
        return ""
    if len(counts) <= BARS_MAX:
        return _bars("Records by partition", counts, count_text)
    rows = [Bar(number, count, f"{count:,} records") for number, count in counts.items()]
    chart = charts.columns(rows, "Records by partition", Axis("records", count_text))
    return figure(chart, "Records by partition", table=page.table(["partition", "records"], list(counts.items())))


def _top_keys(profile: Profile, name: str) -> str:
    keys = profile.keys[name]
    top = keys.top(10)
    if not top:
        return ""
    counts = {shown(key) or "(empty)": count for key, count in top}
    about = f"{share_text(sum(counts.values()), keys.count)} of the records with a key have one of these."
    if keys.missed:
        about += f" Each may have up to {keys.missed:,} more."
    return _bars("Most frequent keys", counts, lambda count: share_text(count, keys.count), about)


def _bars(title: str, counts: dict[str, int], text: Callable[[float], str], about: str = "") -> str:
    rows = [Bar(name, count, text(count)) for name, count in list(counts.items())[:BARS_MAX]]
    table = page.table(["", "records"], [[f"`{name}", count] for name, count in counts.items()])
    return figure(charts.bars(rows, title), title, about=about, table=table)


def _sizes(title: str, sizes: Sizes, text: Callable[[float], str], what: str) -> str:
    if not sizes.count:
        return ""
    bins = sizes.histogram()
    rows = [Bar(text(low), count, f"{text(low)} to {text(high)}: {count:,} {what}") for low, high, count in bins]
    middle, high = sizes.percentile(0.5) or 0, sizes.percentile(0.99) or 0
    ends = f"99 % up to {text(high)}, largest {text(sizes.largest)}"
    chart = charts.columns(rows, f"{title}: {what} by size", Axis(what, count_text))
    return figure(
        chart,
        title,
        about=f"Mean {text(sizes.mean or 0)}, median about {text(middle)}, {ends}.",
        table=page.table(["from", "to", what], [list(row) for row in bins]),
    )


def _codecs(topic: TopicCounts) -> str:
    stored = sum(counted[1] for counted in topic.codecs.values())
    if not stored:
        return ""
    rows, cells = [], []
    for (magic, codec), (batches, size_bytes, records) in sorted(topic.codecs.items()):
        name = CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"
        label = name if magic == 2 else f"{name}, v{magic}"
        rows.append(Bar(label, size_bytes, f"{bytes_text(size_bytes)}, {share_text(size_bytes, stored)}", codec))
        cells.append([name, f"v{magic}", batches, size_bytes, records])
    table = page.table(["codec", "format", "batches", "bytes", "records"], cells)
    return figure(charts.bars(rows, "Stored bytes by codec"), "Stored bytes by codec", table=table)


def _compressibility(topic: TopicCounts) -> str:
    if not topic.sampled_bytes:
        return ""
    rows = [
        Bar(CODEC_NAMES[codec], topic.sampled_bytes / packed, f"{topic.sampled_bytes / packed:.2f} times", codec)
        for codec, packed in topic.sample.items()
        if packed
    ]
    about = (
        f"A sample of {bytes_text(topic.sampled_bytes)} of values, in pieces of up to 64 KiB: how many times smaller."
    )
    cells = [[CODEC_NAMES[codec], packed] for codec, packed in topic.sample.items()]
    table = page.table(["codec", "bytes of the sample"], [["none", topic.sampled_bytes], *cells])
    return figure(
        charts.bars(rows, "Compressibility of values"), "What codecs make of the values", about=about, table=table
    )


def _manner(profile: Profile) -> str:
    exact = all(keys.is_exact for keys in profile.keys.values())
    said = [
        "Every record was read once. Records, bytes, times, offsets and producers are counted, not estimated; medians "
        "and percentiles are at most an eighth too high.",
        "Different keys are counted one by one."
        if exact
        else "Up to 100,000 different keys are counted one by one, more are estimated (HyperLogLog, standard error "
        "0.8 %); then the most frequent keys have at least what is shown.",
        "A record is out of order if it is older than the one before it in its partition, and late by how much it is "
        "older than the newest before it.",
        "Keys and values are the bytes of records; what is stored has batch headers, headers of records and codecs on "
        "top. A batch counts where it ends.",
    ]
    return "".join(f"<p>{escape(each)}</p>" for each in said)
