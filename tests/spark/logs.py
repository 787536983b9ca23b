"""Log directories to read by path, and what must come out: records one by one, transactions by their markers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import HIGH_WATERMARKS, format_offsets
from minibroker.log.formats import COMMIT
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record, control_type
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.spark.brokers.rows import WireTaskReader
from minibroker.spark.files.planning import FileTask
from minibroker.spark.files.rows import TaskReader
from minibroker.spark.filters import Filters
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import plan
from tests.goldens import log_files, log_times

START_MS = 1_700_000_000_000
Row = tuple[int, int, int, bytes | None, bytes | None, Any]  # offset, timestamp, its type, key, value, headers


def golden_directory(root: Path, name: str) -> Path:
    """Put what Kafka left behind into a directory."""
    for path, data in log_files(name).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        os.utime(root / path, ns=(log_times(name)[path] * 1_000_000,) * 2)
    return root


def open_at(root: Path, name: str = "orders-0", **settings: Any) -> PartitionLog:
    return open_log(
        OsStorage(str(root)), name, LogSettings(**{"segment_bytes": 1000, "index_interval_bytes": 100} | settings)
    )


def written(
    root: Path, count: int, name: str = "orders-0", *, per_batch: int = 1, codec: int = 0, **settings: Any
) -> PartitionLog:
    """Write a log of records "0", "1", ... a second apart, and close it."""
    log = open_at(root, name, **settings)
    for start in range(log.log_end_offset, log.log_end_offset + count, per_batch):
        records = [
            Record(b"k%d" % (offset % 7), b"%d" % offset, (), START_MS + 1000 * offset, offset)
            for offset in range(start, start + per_batch)
        ]
        log.append_as_follower(build_batch(2, records, base_offset=start, codec=codec), now_ms=START_MS)
    log.close()
    return log


def promise(root: Path, high_watermarks: dict[tuple[str, int], int]) -> None:
    (root / HIGH_WATERMARKS).write_bytes(format_offsets(high_watermarks))


def asked(root: Path | str, topic: str = "orders", **options: object) -> Options:
    """Return options; an underscore stands for a dot, numbers are those of partition 0."""
    told = {"path": str(root)} if "path" not in options else {}
    if not any(name in options for name in ("assign", "subscribePattern")):
        told["subscribe"] = topic
    for name, value in options.items():
        is_number = isinstance(value, int) and name.startswith(("starting", "ending")) and "OffsetsBy" in name
        is_offset = isinstance(value, int) and name in ("startingOffsets", "endingOffsets")
        word = json.dumps({topic: {"0": value}}) if is_number or is_offset else str(value)
        told[name.replace("_", ".")] = word
    return parse(told)


def tasks_of(
    root: Path | str, topic: str = "orders", filters: Filters | None = None, **options: object
) -> list[FileTask]:
    return plan(asked(root, topic, **options), filters)


def read(
    root: Path | str,
    topic: str = "orders",
    filters: Filters | None = None,
    chunk_bytes: int = 8 << 20,
    group_bytes: int = 8 << 20,
    **options: object,
) -> list[Row]:
    """Return the rows that a query gives, one task after the other."""
    told = asked(root, topic, **options)
    return [
        row
        for task in tasks_of(root, topic, filters, **options)
        for row in rows_of(TaskReader(task, told, filters, chunk_bytes=chunk_bytes, group_bytes=group_bytes))
    ]


def rows_of(reader: TaskReader | WireTaskReader) -> Iterator[Row]:
    for batch in reader.batches():
        batch.validate(full=True)
        assert batch.schema.equals(reader.schema)
        columns = batch.drop_columns(["timestamp"]).to_pydict()
        assert set(columns["topic"]) == {reader.task.topic}
        assert set(columns["partition"]) == {reader.task.partition}
        times = batch.column("timestamp").cast("int64").to_pylist()
        headers = columns.get("headers", [None] * len(times))
        for index, timestamp in enumerate(times):
            shown = headers[index] and tuple((each["key"], each["value"]) for each in headers[index])
            yield (
                columns["offset"][index],
                timestamp // 1000,
                columns["timestampType"][index],
                columns["key"][index],
                columns["value"][index],
                shown,
            )


def offsets(rows: list[Row]) -> list[int]:
    return [row[0] for row in rows]


def one_by_one(directory: Path, *, read_committed: bool = False) -> list[Row]:
    """Return what is in the files of a partition. Transactions are decided by their markers, not by any index."""
    found: list[tuple[Row, int]] = []  # and the producer whose transaction it is part of, -1: none
    open_since: dict[int, int] = {}
    for batch in every_batch(directory):
        if batch.is_control:
            record = next(batch.records(), None)
            kind = None if record is None else control_type(record)
            if kind is not None:
                if open_since.pop(batch.producer_id, None) is not None and kind != COMMIT and read_committed:
                    found = [each for each in found if each[1] != batch.producer_id]
                found = [(row, -1 if producer == batch.producer_id else producer) for row, producer in found]
            continue
        producer = batch.producer_id if batch.magic == 2 and batch.is_transactional else -1
        if producer >= 0:
            open_since.setdefault(producer, batch.base_offset)
        for key, value, headers, timestamp, offset in batch.records():
            row = offset, timestamp, batch.timestamp_type, key, value, tuple(headers) or None
            found.append((row, producer))
    stable = min(open_since.values(), default=1 << 62) if read_committed else 1 << 62
    return [row for row, _ in found if row[0] < stable]


def every_batch(directory: Path) -> Iterator[Batch]:
    for path in sorted(directory.glob("*.log")):
        yield from batches(path.read_bytes())


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that reading could have changed."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
