"""Measurements -> tables in Markdown: three replicas beside one and beside Kafka's, and watched beside unwatched.

A ratio is the median of the ratios within each round. Bold is what misses its mark.

    python -m bench.cluster.tables FILE...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench.broker.table import Measured, judged
from bench.cluster.kinds import EVERYTHING, KAFKA, NOBODY, ONE, ONE_KIND, ONE_MEMORY, THREE, THREE_MEMORY, UNREPLICATED


class Row(NamedTuple):
    """The figure of a load, how it is shown, and what is asked for."""

    load: str  # how the name of the load begins
    figure: str
    words: str
    marks: dict[str, float] = {}  # column -> value or ratio
    more_is_better: bool = False


class Table(NamedTuple):
    """Rows, a column for each broker, and one for each ratio: its title, above and below the line."""

    brokers: tuple[str, ...]
    ratios: tuple[tuple[str, str, str], ...]
    rows: tuple[Row, ...]


TO_ONE, TO_ONE_MEMORY, TO_KAFKA = "RF 3 to one", "memory, RF 3 to one", "RF 3 to Kafka"
TO_KAFKA_MEMORY = "memory, RF 3 to Kafka"
ONE_KIND_TO_NONE, ALL_TO_NONE = "leader to nobody", "all to nobody"
ALL = (ONE, ONE_MEMORY, UNREPLICATED, THREE, THREE_MEMORY, KAFKA)
RATIOS = (
    (TO_ONE, THREE, ONE),
    (TO_ONE_MEMORY, THREE_MEMORY, ONE_MEMORY),
    (TO_KAFKA, THREE, KAFKA),
    (TO_KAFKA_MEMORY, THREE_MEMORY, KAFKA),
)
START_MARK = {THREE: 400.0, THREE_MEMORY: 400.0}
IDLE_MARK = {THREE: 2.0, THREE_MEMORY: 2.0}
DELIVERY_MARKS = {THREE: 5.0, THREE_MEMORY: 5.0, TO_KAFKA: 1.0}
KEPT = {ONE_KIND_TO_NONE: 0.95, ALL_TO_NONE: 0.95}

TABLES = (
    Table(
        ALL,
        RATIOS,
        (
            Row("start", "first_answer_ms", "ms until all brokers have answered"),
            Row("start", "first_topic_ms", "ms until a topic is there"),
            Row("start", "first_record_ms", "ms until a record is acknowledged and fetched", START_MARK),
            Row("start", "rss_mb", "MB resident one second later"),
            Row("produce", "records_s", "records/s", more_is_better=True),
            Row("produce", "cpu_s_per_million", "CPU s per million"),
            Row("fetch", "records_s", "records/s", more_is_better=True),
            Row("fetch", "cpu_s_per_million", "CPU s per million"),
            Row("round trip", "p50_us", "p50 µs"),
            Row("round trip", "p99_us", "p99 µs"),
            Row("round trip", "cpu_us", "CPU µs a request"),
            Row("pipelined", "requests_s", "requests/s", more_is_better=True),
            Row("pipelined", "cpu_us", "CPU µs a request"),
            Row("delivery", "p50_ms", "p50 ms until a consumer has it", DELIVERY_MARKS),
            Row("delivery", "p99_ms", "p99 ms"),
            Row("after load", "rss_mb", "MB resident"),
            Row("after load", "anonymous_mb", "MB of it not page cache"),
        ),
    ),
    Table(
        (THREE, THREE_MEMORY, KAFKA),
        (),
        tuple(
            Row("", figure, words, marks)
            for figure, words, marks in (
                ("create_s", "s until every broker knows all leaders", {}),
                ("create_cpu_s", "CPU s until some seconds later", {}),
                ("before_mb", "MB resident before", {}),
                ("after_mb", "MB resident with them", {}),
                ("before_percent", "% of a core while idle, before", {}),
                ("idle_percent", "% of a core while idle, with them", IDLE_MARK),
            )
        ),
    ),
    Table(
        (NOBODY, ONE_KIND, EVERYTHING),
        ((ONE_KIND_TO_NONE, ONE_KIND, NOBODY), (ALL_TO_NONE, EVERYTHING, NOBODY)),
        (
            Row("produce", "records_s", "records/s", KEPT, more_is_better=True),
            Row("produce", "cpu_us", "CPU µs a request"),
            Row("produce", "events", "events a request"),
        ),
    ),
    Table(
        ("inside",),
        (),
        (
            Row("append", "p50_us", "p50 µs"),
            Row("append", "p99_us", "p99 µs"),
            Row("append", "looks", "looks whether anybody watches"),
            Row("append", "looks_us", "µs for all of them"),
        ),
    ),
)


def tables(rows: Iterable[dict[str, Any]]) -> str:
    """Return the tables of what was measured."""
    kept = list(rows)
    found = []
    for each in TABLES:
        own = Measured(row for row in kept if row["broker"] in each.brokers)
        lines = lines_of(each, own)
        if lines:
            titles = [*each.brokers, *(title for title, _, _ in each.ratios)]
            head = ["| load | figure | " + " | ".join(titles) + " |", "|---|---|" + "---:|" * len(titles)]
            found.append("\n".join(head + lines))
    return "\n\n".join(found)


def lines_of(table: Table, measured: Measured) -> list[str]:
    lines = []
    for load in measured.loads:
        for row in table.rows:
            cells = [
                cell if broker not in row.marks else judged(value, row.marks[broker], row.more_is_better)
                for broker in table.brokers
                for value in [measured.median(load, row.figure, broker)]
                for cell in [measured.cell(load, row.figure, broker)]
            ]
            if not load.startswith(row.load) or not any(cell[:1].isdigit() or cell[:1] == "*" for cell in cells):
                continue
            for title, ours, theirs in table.ratios:
                ratio = measured.ratio(load, row.figure, ours, theirs)
                cells.append(judged(ratio, row.marks.get(title), row.more_is_better))
            lines.append(f"| {load} | {row.words} | " + " | ".join(cells) + " |")
    return lines


def main(names: list[str]) -> None:
    print(tables(json.loads(line) for name in names for line in Path(name).read_text().splitlines()))


if __name__ == "__main__":
    main(sys.argv[1:])
