"""Measurements -> a table in Markdown: a row for each figure, a column for each broker, and ratios beside their marks.

The marks are what the project asks of itself. Ours on a disk is judged against Kafka, ours in memory against kfake in
memory, and where it was measured the compiled one in the same way. A ratio is the median of the ratios within each
round; one that misses its mark is bold.

    python -m bench.broker.table FILE...
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

DISK, MEMORY, KAFKA, KFAKE = "minibroker", "minibroker memory", "Kafka", "kfake"
COMPILED, COMPILED_MEMORY = "compiled", "compiled memory"
NOTHING = "–"


class Mark(NamedTuple):
    """The figure of a load: how it is shown, and the ratios or the value that are asked for; None: nothing is."""

    load: str  # how the name of the load begins
    figure: str
    words: str
    to_kafka: float | None = None
    to_kfake: float | None = None
    value: float | None = None  # of ours on a disk, at most
    more_is_better: bool = False


MARKS = (
    Mark("start", "first_answer_ms", "ms from the start of the process to its first answer", value=120),
    Mark("start", "first_record_ms", "ms to a topic created, a record produced and fetched"),
    Mark("idle", "rss_mb", "MB resident", value=40),
    Mark("idle", "anonymous_mb", "MB of it not page cache"),
    Mark("produce", "records_s", "records/s", 1.0, 1.0, more_is_better=True),
    Mark("produce", "cpu_s_per_million", "CPU s per million", 0.4, 1.0),
    Mark("fetch", "records_s", "records/s", 1.0, 1.0, more_is_better=True),
    Mark("fetch", "cpu_s_per_million", "CPU s per million", 0.4, 0.5),
    Mark("round trip", "p50_us", "p50 µs", 1.0),
    Mark("round trip", "p99_us", "p99 µs", 1.0),
    Mark("round trip", "cpu_us", "CPU µs a request"),
    Mark("pipelined", "requests_s", "requests/s", 3.0, 1.0, more_is_better=True),
    Mark("pipelined", "cpu_us", "CPU µs a request", to_kfake=1.0),
    Mark("commits", "requests_s", "commits/s", 1.5, more_is_better=True),
    Mark("commits", "cpu_us", "CPU µs a commit"),
    Mark("1 MiB", "mb_s", "MB/s", 1.0, more_is_better=True),
    Mark("1 MiB", "cpu_s_per_gb", "CPU s per GB"),
    Mark("after load", "rss_mb", "MB resident", value=120),
    Mark("after load", "anonymous_mb", "MB of it not page cache"),
)


class Measured:
    """All the measurements of some runs, by load, figure and broker."""

    def __init__(self, rows: Iterable[dict[str, Any]]):
        self.loads: dict[str, None] = {}  # in the order in which they came
        self.brokers: dict[str, None] = {}
        self._values: dict[tuple[str, str, str], dict[int, float]] = {}
        self._failed: set[tuple[str, str]] = set()
        for row in rows:
            load, broker = row["what"], row["broker"]
            self.loads.setdefault(load)
            self.brokers.setdefault(broker)
            if "failed" in row:
                self._failed.add((load, broker))
            for figure, value in row["figures"].items():
                self._values.setdefault((load, figure, broker), {})[row["round"]] = value

    def median(self, load: str, figure: str, broker: str) -> float | None:
        values = self._values.get((load, figure, broker))
        return statistics.median(values.values()) if values else None

    def ratio(self, load: str, figure: str, ours: str, theirs: str) -> float | None:
        """Return the median of the ratios within each round that both have."""
        mine, other = (self._values.get((load, figure, each), {}) for each in (ours, theirs))
        ratios = [mine[each] / other[each] for each in mine.keys() & other.keys() if other[each]]
        return statistics.median(ratios) if ratios else None

    def cell(self, load: str, figure: str, broker: str) -> str:
        value = self.median(load, figure, broker)
        if value is None:
            return "failed" if (load, broker) in self._failed else NOTHING
        return shown(value) + (" *" if (load, broker) in self._failed else "")


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Return the table. A figure with a star is that of the rounds that did not fail."""
    measured = Measured(rows)
    brokers = list(measured.brokers)
    pairs = [(DISK, MEMORY, "")]
    if COMPILED in brokers or COMPILED_MEMORY in brokers:
        pairs.append((COMPILED, COMPILED_MEMORY, "compiled "))
    ratios = [f"{which}{to}" for _, _, which in pairs for to in ("to Kafka", "to kfake")]
    lines = [
        "| load | figure | " + " | ".join([*brokers, *ratios]) + " |",
        "|---|---|" + "---:|" * (len(brokers) + len(ratios)),
    ]
    for load in measured.loads:
        for mark in MARKS:
            if not load.startswith(mark.load):
                continue
            cells = [measured.cell(load, mark.figure, broker) for broker in brokers]
            if mark.value is not None and DISK in brokers:
                ours = measured.median(load, mark.figure, DISK)
                cells[brokers.index(DISK)] = judged(ours, mark.value, more_is_better=False)
            for disk, memory, _ in pairs:
                to_kafka = measured.ratio(load, mark.figure, disk, KAFKA)
                to_kfake = measured.ratio(load, mark.figure, memory, KFAKE)
                cells.append(judged(to_kafka, mark.to_kafka, mark.more_is_better))
                cells.append(judged(to_kfake, mark.to_kfake, mark.more_is_better))
            lines.append(f"| {load} | {mark.words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def judged(value: float | None, mark: float | None, more_is_better: bool) -> str:
    """Return a figure beside its mark, bold if it misses it."""
    if value is None:
        return NOTHING
    if mark is None:
        return shown(value)
    reached = value >= mark if more_is_better else value <= mark
    text = shown(value) if reached else f"**{shown(value)}**"
    return f"{text} ({'≥' if more_is_better else '≤'} {mark:g})"


def shown(value: float) -> str:
    """Return a number with three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def main(names: list[str]) -> None:
    rows = [json.loads(line) for name in names for line in Path(name).read_text().splitlines()]
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
