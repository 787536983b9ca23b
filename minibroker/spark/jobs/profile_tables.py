"""Tables of a profile out of what its tasks and queries have found, and the limits of what they show.

What must hold: all of it is small: rows of partitions and topics, and of tables with a limit.
Not here: counting (profile_counting.py), what follows from it (profile_keys.py, profile_sql.py), the report's looks.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from minibroker.log.compression import CODEC_NAMES
from minibroker.spark.jobs.page import Row, iso_text
from minibroker.spark.jobs.profile_counting import Stretch
from minibroker.spark.jobs.profile_findings import findings
from minibroker.spark.jobs.profile_sql import BROKEN_MAX, ROWS_MAX
from minibroker.spark.jobs.summary import Table

Range = tuple[str, int, int, int]  # topic, partition, first and end offset
Columns = tuple[str, ...]
SUMS: Columns = ("records", "timed", "key_bytes", "value_bytes", "null_keys", "null_values", "headers", "header_bytes")
SUMS += ("in_the_future", "create_time", "append_time", "out_of_order", "batches", "stored_bytes")

# Table -> columns behind the topic, and how many rows people see.
TABLES = {
    "topics": ("partitions records batches stored_bytes key_bytes value_bytes headers header_bytes", None),
    "keys": (
        "distinct_keys keys_in_several_partitions null_keys null_values largest_share partition_skew",
        None,
    ),
    "top_keys": ("rank key records share", None),
    "timestamps": (
        "oldest newest create_time append_time none in_the_future out_of_order out_of_order_share late_ms_max",
        None,
    ),
    "sizes": ("what count mean smallest median p99 largest", None),
    "codecs": ("format codec batches stored_bytes records", None),
    "compressibility": ("codec sampled_bytes compressed_bytes ratio", None),
    "partitions": (
        "partition first_offset end_offset records batches stored_bytes key_bytes value_bytes distinct_keys null_keys "
        "oldest newest out_of_order late_ms_max",
        40,
    ),
    "gaps": (
        "partition offsets without_record holes largest_hole control_records hidden removed aborted "
        "in_open_transactions",
        40,
    ),
    "producers": (
        "producer_id epochs partitions batches records transactional committed aborted open oldest newest",
        20,
    ),
    "hours": ("partition hour records bytes", 24),
}
TIMES = ("oldest", "newest", "hour")
SIZES = ("key_bytes", "value_bytes", "batch_bytes", "batch_records")


class Counted:
    """What tasks and queries have found: a stretch for each partition, rows of queries."""

    def __init__(self, ranges: Sequence[Range], now_ms: int):
        self.ranges, self.now_ms = ranges, now_ms
        self.keys: list[Row] = []
        self.hours: list[Row] = []
        self.producers: list[Row] = []
        self.compressibility: list[Row] = []
        self._stretches = {each[:2]: Stretch(last={"offset": each[2] - 1}) for each in ranges}

    @property
    def records(self) -> int:
        return sum(stretch.sums["records"] for stretch in self._stretches.values())

    @property
    def key_bytes(self) -> int:
        return sum(stretch.sums["key_bytes"] for stretch in self._stretches.values())

    def join(self, rows: Iterable[Row]) -> None:
        """Take stretches of partitions, one behind the other, and their ends."""
        for row in sorted(rows, key=lambda row: int(row["chunk"])):
            self._stretches[row["topic"], row["partition"]].append(pickle.loads(row["stretch"]))
        for topic, partition, _, end_offset in self.ranges:
            self._stretches[topic, partition].append(Stretch(first={"offset": end_offset}))

    @property
    def broken(self) -> list[str]:
        return sorted(each for stretch in self._stretches.values() for each in stretch.broken)

    def parts(self, *, is_committed: bool) -> list[Row]:
        """Return a row for each partition, with all there is of it."""
        keys = {(row["topic"], row["partition"]): row["distinct_keys"] for row in self.keys if row["key"] is None}
        ends = {(row["topic"], row["partition"]): row for row in self.producers if row["producer_id"] is None}
        found = []
        for topic, partition, first_offset, end_offset in sorted(self.ranges):
            who, stretch = (topic, partition), self._stretches[topic, partition]
            sums, end = stretch.sums, ends.get(who, {"aborted": 0, "open": 0})
            row: Row = {"topic": topic, "partition": partition, "first_offset": first_offset, "end_offset": end_offset}
            row |= {name: sums[name] for name in (*SUMS, "holes", "control_records")}
            row |= {"distinct_keys": keys.get(who, 0), "aborted": end["aborted"], "in_open_transactions": end["open"]}
            row |= {"oldest": stretch.least.get("time"), "newest": stretch.most.get("time")}
            row |= {"late_ms_max": stretch.most.get("late_ms", 0), "largest_hole": stretch.most["hole"]}
            row |= {"promised": None if sums["vague"] else sums["promised"]}
            found.append(row | _gaps(row, is_committed=is_committed))
        return found

    def codecs(self) -> list[Row]:
        sums: Counter[Any] = Counter()
        for (topic, _), stretch in self._stretches.items():
            sums.update({(topic, *key): count for key, count in stretch.sums.items() if key[0] == "codec"})
        order = {codec: place for place, codec in enumerate(CODEC_NAMES)}  # "unknown 5" is behind them
        names = sorted({key[:4] for key in sums}, key=lambda key: (key[0], key[2], order.get(key[3], len(order)), key))
        return [
            {"topic": topic, "format": magic, "codec": codec}
            | {what: sums.get((topic, "codec", magic, codec, what)) for what in ("batches", "stored_bytes", "records")}
            for topic, _, magic, codec in names
        ]

    def bins(self) -> list[Row]:
        """Return how many sizes there are in each bin: keys, values, batches, records of batches."""
        sums: Counter[Any] = Counter()
        for (topic, _), stretch in self._stretches.items():
            sums.update({(topic, *key[1:]): count for key, count in stretch.sums.items() if key[0] == "bin"})
        order = sorted(sums, key=lambda key: (key[0], SIZES.index(key[1]), key[2]))
        return [{"topic": key[0], "what": key[1], "bin": key[2], "count": sums[key]} for key in order]

    def sizes(self) -> list[Row]:
        found = []
        by_topic: dict[str, list[Stretch]] = {}
        for (name, _), each in self._stretches.items():
            by_topic.setdefault(name, []).append(each)
        for (topic, what), group in groupby(self.bins(), key=lambda row: (row["topic"], row["what"])):
            mine = [each for each in by_topic[topic] if what in each.most]
            least, most = min(each.least[what] for each in mine), max(each.most[what] for each in mine)
            ends = {"smallest": least, "largest": most, "total": sum(each.sums[what] for each in mine)}
            found.append(
                {"topic": topic, "what": what} | size_row([(row["bin"], row["count"]) for row in group], **ends)
            )
        return found


def made(counted: Counted, *, is_committed: bool) -> tuple[dict[str, Any], list[Table], list[str]]:
    """Return the figures, the tables and the notes of the summary."""
    parts = counted.parts(is_committed=is_committed)
    of_topics = {row["topic"]: row for row in counted.keys if row["partition"] is None and row["key"] is None}
    top_keys = _top_keys([row for row in counted.keys if row["key"] is not None], of_topics)
    first_keys = {row["topic"]: row for row in top_keys if row["rank"] == 1}
    topics = [
        _topic(name, list(mine), of_topics.get(name, {}), first_keys.get(name, {}))
        for name, mine in groupby(parts, key=lambda part: part["topic"])
    ]
    found = {"topics": topics, "keys": topics, "timestamps": topics, "top_keys": top_keys, "codecs": counted.codecs()}
    found |= {"partitions": parts, "gaps": parts, "sizes": counted.sizes(), "hours": counted.hours}
    found["compressibility"] = counted.compressibility
    found["producers"] = [row for row in counted.producers if row["producer_id"] is not None]
    notes = []
    for name, order in (("hours", ("topic", "partition", "hour")), ("producers", ("topic",))):
        if len(found[name]) > ROWS_MAX:
            which = "newest" if name == "hours" else "those with the most records"
            notes.append(f"the table {name} has {ROWS_MAX:,} rows, the {which}; there are more")
        found[name] = sorted(found[name][:ROWS_MAX], key=lambda row: [row[column] for column in order])
    tables = []
    for name, (told, text_rows) in TABLES.items():
        columns = ["topic", *told.split()]
        rows = [[iso_text(row[each]) if each in TIMES else row[each] for each in columns] for row in found[name]]
        tables.append(Table(name, columns, rows, text_rows))
    figures = {
        "topic_count": len(topics),
        "partition_count": len(parts),
        "records": sum(row["records"] for row in topics),
        "key_and_value_bytes": sum(row["key_bytes"] + row["value_bytes"] for row in topics),
        "batches": sum(row["batches"] for row in topics),
        "stored_bytes": sum(row["stored_bytes"] for row in topics),
        "oldest": iso_text(_least(row["oldest"] for row in topics)),
        "newest": iso_text(_most(row["newest"] for row in topics)),
        "profiled_at": iso_text(counted.now_ms),
    }
    return figures, tables, findings(found) + notes


def _top_keys(keys: list[Row], of_topics: dict[str, Row]) -> list[Row]:
    """Return the most frequent keys of each topic, from the first."""
    keys = sorted(keys, key=lambda row: (row["topic"], -row["records"], bytes(row["key"])))
    found = []
    for topic, mine in groupby(keys, key=lambda row: row["topic"]):
        for rank, row in enumerate(mine, 1):
            share = round(row["records"] / of_topics[topic]["records"], 6)
            found.append(row | {"rank": rank, "key": key_text(bytes(row["key"])), "share": share})
    return found


def problems_of(counted: Counted, *, is_committed: bool) -> list[str]:
    """Return what is wrong with the data: broken batches, and records that batches hold and nobody has read."""
    found = counted.broken
    if len(found) > BROKEN_MAX:
        found[BROKEN_MAX:] = [f"there are more than {BROKEN_MAX} broken batches"]
    for part in counted.parts(is_committed=is_committed) if not is_committed else ():
        if part["promised"] not in (None, part["records"]):
            told = f"batches hold {part['promised']:,} records, and {part['records']:,} were read"
            found.append(f"{part['topic']}-{part['partition']}: {told}")
    return found


def _gaps(part: Row, *, is_committed: bool) -> Row:
    """Return which offsets have no record. Hidden is what batches hold and rows do not show; wrappers do not say it."""
    offsets = part["end_offset"] - part["first_offset"]
    missing, promised = offsets - part["records"], part["promised"]
    hidden = 0 if not is_committed else part["aborted"] if promised is None else promised - part["records"]
    removed = missing - part["control_records"] - hidden
    return {"offsets": offsets, "without_record": missing, "hidden": hidden, "removed": removed}


def _topic(name: str, parts: list[Row], keys: Row, top: Row) -> Row:
    """Return what is said of a topic: sums of its partitions, and of its keys."""
    row: Row = {column: sum(part[column] for part in parts) for column in SUMS}
    records = [part["records"] for part in parts]
    return row | {
        "topic": name,
        "partitions": len(parts),
        "oldest": _least(part["oldest"] for part in parts),
        "newest": _most(part["newest"] for part in parts),
        "none": row["records"] - row["timed"],
        "out_of_order_share": round(row["out_of_order"] / row["timed"], 6) if row["timed"] else None,
        "late_ms_max": max(part["late_ms_max"] for part in parts),
        "distinct_keys": keys.get("distinct_keys", 0),
        "keys_in_several_partitions": keys.get("in_several", 0),
        "largest_share": top.get("share"),
        # Records of the largest partition against the mean of all.
        "partition_skew": round(max(records) * len(records) / sum(records), 4) if any(records) else None,
    }


def size_row(bins: Sequence[tuple[int, int]], *, smallest: int, largest: int, total: int) -> Row:
    """Return what is said of sizes; bins: their ends and counts."""
    count = sum(number for _, number in bins)
    row = {"count": count, "smallest": smallest, "largest": largest, "mean": round(total / count, 3)}
    for name, share in (("median", 0.5), ("p99", 0.99)):
        upto = 0
        for end, number in bins:
            upto += number
            if upto >= share * count:
                row[name] = min(end, largest)
                break
    return row


def _least(values: Any) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


def key_text(key: bytes) -> str:
    """Return a key as text if it is, else as hexadecimal digits."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        text = f"0x{key.hex()}"
    return text if len(text) <= 50 else f"{text[:48]}…"
