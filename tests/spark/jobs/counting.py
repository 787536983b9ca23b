"""What a profile must say of a partition: found record by record, in another way than the profile's."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.records import control_type
from minibroker.spark.jobs.page import iso_text
from minibroker.spark.jobs.profile_tables import key_text
from tests.spark.logs import every_batch

HOUR_MS = 3_600_000
Tables = dict[str, list[dict[str, Any]]]


class Truth:
    """One partition, read batch by batch from its files."""

    def __init__(self, directory: Path, now_ms: int, start_offset: int = 0):
        self.codecs: dict[tuple[int, str], list[Any]] = defaultdict(lambda: [0, 0, 0])
        self.producers: dict[int, dict[str, Any]] = {}
        self.endings: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # committed, aborted, open
        self.keys: Counter[bytes] = Counter()
        self.hours: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self.types: Counter[int] = Counter()
        self.found: Counter[str] = Counter()
        self.sizes: dict[str, list[int]] = defaultdict(list)
        self.offsets: list[int] = []
        self.times: list[int] = []
        self.end_offset = start_offset
        for batch in every_batch(directory):
            if batch.last_offset < start_offset:
                continue
            self.end_offset = batch.last_offset + 1
            self._batch(batch, [record for record in batch.records() if record.offset >= start_offset], now_ms)

    def _batch(self, batch: Any, records: list[Any], now_ms: int) -> None:
        self.found["stored_bytes"] += batch.size_bytes
        if batch.is_control:
            self.found["control_records"] += batch.count
            for record in records:
                if control_type(record) in (ABORT, COMMIT):
                    ending = self.endings[batch.producer_id]
                    ending[0 if control_type(record) == COMMIT else 1] += ending[2]
                    ending[2] = 0
            return
        self.found["batches"] += 1
        self.sizes["batch_bytes"].append(batch.size_bytes)
        if batch.magic == 2 or not batch.codec:
            self.sizes["batch_records"].append(batch.count)
        of_codec = self.codecs[batch.magic, CODEC_NAMES[batch.codec]]
        of_codec[0] += 1
        of_codec[1] += batch.size_bytes
        # How many records a wrapper of v0 or v1 holds, only they say; a batch that a range cuts counts whole.
        of_codec[2] = None if batch.magic < 2 and batch.codec else of_codec[2] + batch.count
        if batch.magic == 2:
            self._producer(batch)
        for record in records:
            self._record(record, batch.timestamp_type, now_ms)

    def _producer(self, batch: Any) -> None:
        who = self.producers.setdefault(
            batch.producer_id, {"epochs": set(), "batches": 0, "records": 0, "transactional": 0, "times": []}
        )
        who["epochs"].add(batch.producer_epoch)
        who["batches"] += 1
        who["records"] += batch.count
        who["transactional"] += batch.count if batch.is_transactional else 0
        who["times"] += [batch.max_timestamp] if batch.max_timestamp >= 0 else []
        if batch.is_transactional:
            self.endings[batch.producer_id][2] += batch.count

    def _record(self, record: Any, timestamp_type: int, now_ms: int) -> None:
        key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
        self.offsets.append(record.offset)
        self.types[timestamp_type] += 1
        self.found["key_bytes"] += key_bytes
        self.found["value_bytes"] += value_bytes
        self.found["null_keys"] += record.key is None
        self.found["null_values"] += record.value is None
        self.found["headers"] += len(record.headers)
        self.found["header_bytes"] += sum(len(key) + len(value or b"") for key, value in record.headers)
        self.found["in_the_future"] += record.timestamp > now_ms
        if record.key is not None:
            self.keys[record.key] += 1
            self.sizes["key_bytes"].append(key_bytes)
        if record.value is not None:
            self.sizes["value_bytes"].append(value_bytes)
        if record.timestamp >= 0:
            self.times.append(record.timestamp)
            hour = self.hours[record.timestamp // HOUR_MS]
            hour[0] += 1
            hour[1] += key_bytes + value_bytes

    @property
    def late_ms_max(self) -> int:
        newest, late = -1, 0
        for time in self.times:
            late = max(late, newest - time)
            newest = max(newest, time)
        return late

    @property
    def out_of_order(self) -> int:
        return sum(later < earlier for earlier, later in pairwise(self.times))

    def holes(self, start_offset: int) -> list[int]:
        """Return how long each row of offsets without a record is."""
        there = [start_offset - 1, *self.offsets, self.end_offset]
        return [later - earlier - 1 for earlier, later in pairwise(there) if later > earlier + 1]


def expected(topic: str, truths: dict[int, Truth], starts: dict[int, int]) -> Tables:
    """Return the tables of a profile of one topic, but for medians and samples."""
    keys: Counter[bytes] = sum((truth.keys for truth in truths.values()), Counter())
    counts = [len(truth.offsets) for truth in truths.values()]
    total: Counter[str] = sum((truth.found for truth in truths.values()), Counter())
    times = [time for truth in truths.values() for time in truth.times]
    types: Counter[int] = sum((truth.types for truth in truths.values()), Counter())
    backward = sum(truth.out_of_order for truth in truths.values())
    names = ("batches", "stored_bytes", "key_bytes", "value_bytes", "headers", "header_bytes")
    ranked = sorted(keys.items(), key=lambda item: (-item[1], item[0]))
    made: Tables = {
        "topics": [
            {"topic": topic, "partitions": len(truths), "records": sum(counts), **{name: total[name] for name in names}}
        ],
        "keys": [
            {
                "topic": topic,
                "distinct_keys": len(keys),
                "keys_in_several_partitions": sum(
                    sum(key in truth.keys for truth in truths.values()) > 1 for key in keys
                ),
                "null_keys": total["null_keys"],
                "null_values": total["null_values"],
                "largest_share": round(ranked[0][1] / sum(keys.values()), 6) if keys else None,
                "partition_skew": round(max(counts) * len(counts) / sum(counts), 4) if any(counts) else None,
            }
        ],
        "top_keys": [
            {"topic": topic, "rank": rank, "key": key_text(key), "records": count}
            | {"share": round(count / sum(keys.values()), 6)}
            for rank, (key, count) in enumerate(ranked[:10], 1)
        ],
        "timestamps": [
            {
                "topic": topic,
                "oldest": iso_text(min(times, default=None)),
                "newest": iso_text(max(times, default=None)),
                "create_time": types[0],
                "append_time": types[1],
                "none": sum(counts) - len(times),
                "in_the_future": total["in_the_future"],
                "out_of_order": backward,
                "out_of_order_share": round(backward / len(times), 6) if times else None,
                "late_ms_max": max(truth.late_ms_max for truth in truths.values()),
            }
        ],
    }
    made["partitions"], made["gaps"], made["hours"] = [], [], []
    for number, truth in truths.items():
        holes = truth.holes(starts.get(number, 0))
        offsets = truth.end_offset - starts.get(number, 0)
        ends = truth.endings.values()
        who = {"topic": topic, "partition": number}
        made["partitions"].append(
            {**who, "first_offset": starts.get(number, 0), "end_offset": truth.end_offset}
            | {"records": len(truth.offsets), **{name: truth.found[name] for name in names[:4]}}
            | {"distinct_keys": len(truth.keys), "null_keys": truth.found["null_keys"]}
            | {"oldest": iso_text(min(truth.times, default=None)), "newest": iso_text(max(truth.times, default=None))}
            | {"out_of_order": truth.out_of_order, "late_ms_max": truth.late_ms_max}
        )
        control = truth.found["control_records"]
        made["gaps"].append(
            {**who, "offsets": offsets, "without_record": sum(holes), "holes": len(holes)}
            | {"largest_hole": max(holes, default=0), "control_records": control, "hidden": 0}
            | {"removed": sum(holes) - control, "aborted": sum(each[1] for each in ends)}
            | {"in_open_transactions": sum(each[2] for each in ends)}
        )
        for hour, (records, size_bytes) in sorted(truth.hours.items()):
            made["hours"].append({**who, "hour": iso_text(hour * HOUR_MS), "records": records, "bytes": size_bytes})
    made["codecs"] = _codecs(topic, truths)
    made["producers"] = _producers(topic, truths)
    return made


def _codecs(topic: str, truths: dict[int, Truth]) -> list[dict[str, Any]]:
    whole: dict[tuple[int, str], list[Any]] = defaultdict(lambda: [0, 0, 0])
    for truth in truths.values():
        for key, counted in truth.codecs.items():
            whole[key] = [
                None if more is None else before + more for before, more in zip(whole[key], counted, strict=True)
            ]
    order = sorted(whole, key=lambda key: (key[0], CODEC_NAMES.index(key[1])))
    return [
        {"topic": topic, "format": magic, "codec": name}
        | dict(zip(("batches", "stored_bytes", "records"), whole[magic, name], strict=True))
        for magic, name in order
    ]


def _producers(topic: str, truths: dict[int, Truth]) -> list[dict[str, Any]]:
    ids = {producer for truth in truths.values() for producer in (*truth.producers, *truth.endings)}
    rows = []
    for producer in ids:
        mine = [truth.producers[producer] for truth in truths.values() if producer in truth.producers]
        ends = [truth.endings[producer] for truth in truths.values() if producer in truth.endings]
        times = [time for each in mine for time in each["times"]]
        rows.append(
            {"topic": topic, "producer_id": producer}
            | {"epochs": len(set().union(*(each["epochs"] for each in mine))), "partitions": len(mine)}
            | {name: sum(each[name] for each in mine) for name in ("batches", "records", "transactional")}
            | {name: sum(each[index] for each in ends) for index, name in enumerate(("committed", "aborted", "open"))}
            | {"oldest": iso_text(min(times, default=None)), "newest": iso_text(max(times, default=None))}
        )
    return sorted(rows, key=lambda row: (-row["records"], row["producer_id"]))
