"""Findings of a profile, in sentences: each with its figure, and what one may do about it.

They are drawn from the tables. Nothing here is an error of the data; what is one are `problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minibroker.spark.jobs.page import bytes_text, count_text, duration_text, share_text, time_text

Row = dict[str, Any]
Tables = dict[str, list[Row]]

SECONDS_MAX = 100_000_000_000  # a time below it would be before March 1973; in seconds it is of today
RECORDS_MIN = 1000  # of fewer nothing follows
HOT_SHARE = 0.1  # of a topic's records with one key
HOT_TIMES = 3  # as many as it would be if all keys had the same
SKEW = 2.0  # the largest partition against the mean
SMALL_BATCH_BYTES = 2048
PACKED_RATIO = 1.5
BIG_RECORD_BYTES = 1_000_000


USED = ("keys", "top_keys", "timestamps", "sizes", "codecs", "compressibility", "partitions", "gaps", "producers")


def findings(tables: Tables) -> list[str]:
    """Return what stands out; rows are those of the tables, times in ms."""
    by_topic: dict[str, Tables] = {row["topic"]: {key: [] for key in USED} for row in tables["topics"]}
    for key in USED:
        for row in tables[key]:
            by_topic[row["topic"]][key].append(row)
    found = []
    for topic in tables["topics"]:
        mine = by_topic[topic["topic"]]
        for sentence in (*_records(topic, mine), *_batches(topic, mine), *_times(mine["timestamps"][0])):
            is_one = len(by_topic) == 1
            found.append(sentence[0].upper() + sentence[1:] if is_one else f"{topic['topic']}: {sentence}")
    return found


def _records(topic: Row, tables: Tables) -> Iterator[str]:
    (keys,), records, parts = tables["keys"], topic["records"], tables["partitions"]
    if records < RECORDS_MIN:
        return
    if tables["top_keys"]:
        top, distinct, twice = tables["top_keys"][0], keys["distinct_keys"], keys["keys_in_several_partitions"]
        if top["share"] > HOT_SHARE and top["share"] * distinct > HOT_TIMES:
            yield (
                f"the key {top['key']} has {share_text(top['share'], 1)} of the records that have a key: one "
                "partition, and one task of whoever groups by key, gets all of them."
            )
        if twice:
            yield (
                f"{count_text(twice)} of {count_text(distinct)} keys are in more than one partition: there are more "
                "partitions than there were, or producers do not choose them by key, so a key's order is not kept."
            )
    largest = max(parts, key=lambda row: row["records"])
    if keys["partition_skew"] > SKEW:
        yield (
            f"partition {largest['partition']} holds {share_text(largest['records'], records)} of the records, "
            f"{keys['partition_skew']:.1f} times the mean."
        )
    if removed := sum(row["removed"] for row in tables["gaps"]):
        share = share_text(removed, removed + records)
        yield f"{count_text(removed)} offsets ({share}) have no record any more: compaction has removed them."
    biggest = max((row["largest"] for row in tables["sizes"] if row["what"] == "value_bytes"), default=0)
    if biggest > BIG_RECORD_BYTES:
        yield f"the largest value has {bytes_text(biggest)}: near or above 1 MiB, the usual limit of brokers."


def _batches(topic: Row, tables: Tables) -> Iterator[str]:
    codecs, packed = tables["codecs"], {row["codec"]: row["ratio"] for row in tables["compressibility"]}
    of_batches = next((row for row in tables["sizes"] if row["what"] == "batch_bytes"), None)
    if topic["records"] >= RECORDS_MIN and of_batches:
        if of_batches["mean"] < SMALL_BATCH_BYTES:
            yield (
                f"batches are small, {bytes_text(of_batches['mean'])} with {topic['records'] / topic['batches']:.1f} "
                "records in the mean: a larger linger.ms and batch.size of the producers save requests, and compress "
                "better."
            )
        stored, plain = (
            sum(row["stored_bytes"] for row in codecs if row["codec"] in each)
            for each in (("none", "gzip", "snappy", "lz4", "zstd"), ("none",))
        )
        if plain > stored / 2 and packed.get("zstd", 0) > PACKED_RATIO:
            yield (
                f"{share_text(plain, stored)} of the bytes are stored without compression; of a sample of the values "
                f"zstd makes {packed['zstd']:.1f} times less, lz4 {packed['lz4']:.1f} times (minibroker spark codecs "
                "says which to take)."
            )
        if len(names := list(dict.fromkeys(row["codec"] for row in codecs))) > 1:
            yield f"batches have different codecs: {', '.join(names)}."
        if old := sorted({row["format"] for row in codecs if row["format"] < 2}):
            yield (
                f"there are messages of format {' and '.join(f'v{each}' for each in old)}: brokers of today read them, "
                "and have no headers, producers and transactions for them."
            )
    producers = tables["producers"]
    committed, aborted, is_open = (sum(row[name] for row in producers) for name in ("committed", "aborted", "open"))
    if aborted:
        yield (
            f"{count_text(aborted)} records, {share_text(aborted, committed + aborted)} of those in transactions that "
            "have ended, were aborted: readers of read_committed get them and throw them away."
        )
    if is_open:
        yield (
            f"{count_text(is_open)} records are in transactions without an end: readers of read_committed stop before "
            "the first of them."
        )


def _times(times: Row) -> Iterator[str]:
    if times["in_the_future"]:
        yield (
            f"{count_text(times['in_the_future'])} records have a time in the future, up to "
            f"{time_text(times['newest'])}: retention by time keeps their segments until then."
        )
    if times["oldest"] is not None and times["oldest"] < SECONDS_MAX:
        yield (
            f"the oldest time is {time_text(times['oldest'])}: one that was never set, or seconds where milliseconds "
            "belong."
        )
    if times["create_time"] + times["append_time"] >= RECORDS_MIN and (times["out_of_order_share"] or 0) > 0.05:
        yield (
            f"{share_text(times['out_of_order_share'], 1)} of the records are older than the one before them, the "
            f"latest by {duration_text(times['late_ms_max'])}: a watermark must wait as long, or leave them out."
        )
    if times["none"]:
        yield f"{count_text(times['none'])} records have no timestamp."
