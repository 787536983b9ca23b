"""Tables of a profile: the same for the summary, for scripts, and for the report.

Not here: counting (profile_counts.py), what the report looks like (profile_report.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.spark.jobs.page import iso_text
from minibroker.spark.jobs.profile_counts import HOUR_MS, Counts, PartitionCounts
from minibroker.spark.jobs.profile_keys import Keys, shown
from minibroker.spark.jobs.profile_stretch import Stretch
from minibroker.spark.jobs.summary import Table

KEYS_SHOWN = 10


class Profile:
    """Counts and what follows from them; what takes a while is found once."""

    def __init__(self, counts: Counts):
        self.counts = counts
        self.topics = dict(sorted(counts.topics.items()))
        self.keys: dict[str, Keys] = {name: topic.keys() for name, topic in self.topics.items()}
        self.stretches: dict[tuple[str, int], Stretch] = {
            (name, number): partition.stretch() for name, number, partition in self.partitions()
        }

    def partitions(self) -> Iterator[tuple[str, int, PartitionCounts]]:
        for name, topic in self.topics.items():
            for number, partition in sorted(topic.partitions.items()):
                yield name, number, partition

    def of_topic(self, name: str) -> list[Stretch]:
        return [stretch for (topic, _), stretch in self.stretches.items() if topic == name]

    def gaps(self, name: str, number: int) -> Gaps:
        return Gaps(self, name, number)

    def span(self, name: str | None = None) -> tuple[int | None, int | None]:
        """Return the oldest and the newest timestamp of a topic, or of all."""
        found = [stretch for (topic, _), stretch in self.stretches.items() if name in (None, topic)]
        oldest = min((each.oldest for each in found if each.oldest is not None), default=None)
        return oldest, max((each.newest for each in found if each.newest is not None), default=None)


class Gaps:
    """Offsets of a partition that no record has, and why."""

    def __init__(self, profile: Profile, name: str, number: int):
        partition = profile.topics[name].partitions[number]
        stretch = profile.stretches[name, number]
        self.first_offset, self.end_offset = stretch.span()
        self.missing = self.end_offset - self.first_offset - partition.records
        self.holes = stretch.holes
        self.largest = stretch.hole_offsets_max
        if stretch.first_seen is not None and stretch.last_seen is not None:
            for edge in (stretch.first_seen - self.first_offset, self.end_offset - 1 - stretch.last_seen):
                self.holes += edge > 0
                self.largest = max(self.largest, edge)
        elif self.missing:
            self.holes, self.largest = 1, self.missing
        self.control = partition.control_records
        self.hidden = partition.hidden
        self.removed = self.missing - self.control - self.hidden
        ended = [ending.ended() for ending in stretch.endings.values()]
        self.aborted = sum(each[1] for each in ended)
        self.open = sum(each[2] for each in ended)


def tables(profile: Profile) -> list[Table]:
    return [
        _topics(profile),
        _keys(profile),
        _top_keys(profile),
        _times(profile),
        _sizes(profile),
        _codecs(profile),
        _compressibility(profile),
        _partitions(profile),
        _gaps(profile),
        _producers(profile),
        _hours(profile),
    ]


def _topics(profile: Profile) -> Table:
    rows = []
    for name, topic in profile.topics.items():
        parts = topic.partitions.values()
        row: dict[str, Any] = {
            "topic": name,
            "partitions": len(parts),
            "records": sum(part.records for part in parts),
            "batches": sum(part.batches for part in parts),
            "stored_bytes": sum(part.batch_bytes for part in parts),
            "key_bytes": sum(part.key_bytes for part in parts),
            "value_bytes": sum(part.value_bytes for part in parts),
            "headers": topic.headers,
            "header_bytes": sum(part.header_bytes for part in parts),
        }
        rows.append(row)
    return _table("topics", rows)


def _keys(profile: Profile) -> Table:
    rows = []
    for name, topic in profile.topics.items():
        keys, counts = profile.keys[name], [part.records for part in topic.partitions.values()]
        top = keys.top(1)
        row: dict[str, Any] = {
            "topic": name,
            "distinct_keys": keys.distinct,
            "is_exact": keys.is_exact,
            "null_keys": keys.nulls,
            "null_values": topic.null_values,
            "largest_share": round(top[0][1] / keys.count, 6) if top else None,
            # Records of the largest partition against the mean of all.
            "partition_skew": round(max(counts) * len(counts) / sum(counts), 4) if any(counts) else None,
        }
        rows.append(row)
    return _table("keys", rows)


def _times(profile: Profile) -> Table:
    rows = []
    for name, topic in profile.topics.items():
        stretches = profile.of_topic(name)
        oldest, newest = profile.span(name)
        backward, timed = sum(each.backward for each in stretches), sum(each.timed for each in stretches)
        row: dict[str, Any] = {
            "topic": name,
            "oldest": iso_text(oldest),
            "newest": iso_text(newest),
            "create_time": topic.timestamp_types.get(CREATE_TIME, 0),
            "append_time": topic.timestamp_types.get(APPEND_TIME, 0),
            "none": topic.timeless,
            "in_the_future": topic.future,
            "out_of_order": backward,
            "out_of_order_share": round(backward / timed, 6) if timed else None,
            "late_ms_max": max((each.late_ms_max for each in stretches), default=0),
        }
        rows.append(row)
    return _table("timestamps", rows)


def _partitions(profile: Profile) -> Table:
    rows = []
    for name, number, partition in profile.partitions():
        stretch = profile.stretches[name, number]
        first_offset, end_offset = stretch.span()
        row: dict[str, Any] = {
            "topic": name,
            "partition": number,
            "first_offset": first_offset,
            "end_offset": end_offset,
            "records": partition.records,
            "batches": partition.batches,
            "stored_bytes": partition.batch_bytes,
            "key_bytes": partition.key_bytes,
            "value_bytes": partition.value_bytes,
            "distinct_keys": partition.keys.distinct,
            "null_keys": partition.keys.nulls,
            "oldest": iso_text(stretch.oldest),
            "newest": iso_text(stretch.newest),
            "out_of_order": stretch.backward,
            "late_ms_max": stretch.late_ms_max,
        }
        rows.append(row)
    return _table("partitions", rows, 40)


def _gaps(profile: Profile) -> Table:
    rows = []
    for name, number, _ in profile.partitions():
        gaps = profile.gaps(name, number)
        row: dict[str, Any] = {
            "topic": name,
            "partition": number,
            "offsets": gaps.end_offset - gaps.first_offset,
            "without_record": gaps.missing,
            "holes": gaps.holes,
            "largest_hole": gaps.largest,
            "control_records": gaps.control,
            "hidden": gaps.hidden,
            "removed": gaps.removed,
            "aborted": gaps.aborted,
            "in_open_transactions": gaps.open,
        }
        rows.append(row)
    return _table("gaps", rows, 40)


def _sizes(profile: Profile) -> Table:
    rows = []
    for name, topic in profile.topics.items():
        found = {"key_bytes": topic.key_sizes, "value_bytes": topic.value_sizes}
        found |= {"batch_bytes": topic.batch_sizes, "batch_records": topic.batch_records}
        for what, sizes in found.items():
            if sizes.count:
                ends = sizes.smallest, sizes.percentile(0.5), sizes.percentile(0.99), sizes.largest
                rows.append([name, what, sizes.count, round(sizes.mean or 0, 3), *ends])
    return Table("sizes", ["topic", "what", "count", "mean", "smallest", "median", "p99", "largest"], rows)


def _codecs(profile: Profile) -> Table:
    rows = [
        [name, magic, CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec), *counted]
        for name, topic in profile.topics.items()
        for (magic, codec), counted in sorted(topic.codecs.items())
    ]
    return Table("codecs", ["topic", "format", "codec", "batches", "stored_bytes", "records"], rows)


def _compressibility(profile: Profile) -> Table:
    rows = [
        [name, CODEC_NAMES[codec], topic.sampled_bytes, packed, round(topic.sampled_bytes / packed, 3)]
        for name, topic in profile.topics.items()
        for codec, packed in topic.sample.items()
        if packed
    ]
    return Table("compressibility", ["topic", "codec", "sampled_bytes", "compressed_bytes", "ratio"], rows)


def _top_keys(profile: Profile) -> Table:
    rows = []
    for name, keys in profile.keys.items():
        for rank, (key, count) in enumerate(keys.top(KEYS_SHOWN), 1):
            rows.append([name, rank, shown(key), count, round(count / keys.count, 6), keys.missed])
    return Table("top_keys", ["topic", "rank", "key", "records", "share", "missed_at_most"], rows)


def _producers(profile: Profile) -> Table:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name, number, partition in profile.partitions():
        for (producer_id, epoch), counted in partition.producers.items():
            row = found.setdefault((name, producer_id), _new_producer(name, producer_id))
            row["epochs"].add(epoch)
            row["partitions"].add(number)
            for column, value in (
                ("batches", counted.batches),
                ("records", counted.records),
                ("transactional", counted.transactional),
            ):
                row[column] += value
            times = [time for time in (row["oldest"], counted.oldest) if time is not None and time >= 0]
            row["oldest"] = min(times, default=None)
            row["newest"] = max(row["newest"] or -1, counted.newest) if counted.newest >= 0 else row["newest"]
        for producer_id, ending in profile.stretches[name, number].endings.items():
            row = found.setdefault((name, producer_id), _new_producer(name, producer_id))
            for column, value in zip(("committed", "aborted", "open"), ending.ended(), strict=True):
                row[column] += value
    rows = sorted(found.values(), key=lambda row: (row["topic"], -row["records"], row["producer_id"]))
    for row in rows:
        row["epochs"], row["partitions"] = len(row["epochs"]), len(row["partitions"])
        row["oldest"], row["newest"] = iso_text(row["oldest"]), iso_text(row["newest"])
    return _table("producers", rows, 20)


def _new_producer(topic: str, producer_id: int) -> dict[str, Any]:
    counted = dict.fromkeys(("batches", "records", "transactional", "committed", "aborted", "open"), 0)
    who: dict[str, Any] = {"topic": topic, "producer_id": producer_id, "epochs": set(), "partitions": set()}
    return {**who, **counted, "oldest": None, "newest": None}


def _hours(profile: Profile) -> Table:
    rows = [
        [name, number, iso_text(hour * HOUR_MS), *counted]
        for name, number, partition in profile.partitions()
        for hour, counted in sorted(partition.hours.items())
    ]
    return Table("hours", ["topic", "partition", "hour", "records", "bytes"], rows, 24)


def _table(name: str, rows: list[dict[str, Any]], text_rows: int | None = None) -> Table:
    columns = list(rows[0]) if rows else []
    return Table(name, columns, [list(row.values()) for row in rows], text_rows)
