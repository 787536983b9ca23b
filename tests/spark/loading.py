"""Loads without Spark: its tasks one after another, in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from minibroker.clock.steered import SteeredClock
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.spark.bulk_load.commit import LoadedPartition
from minibroker.spark.bulk_load.directory import LoadDirectory
from minibroker.spark.bulk_load.options import parse_load
from minibroker.spark.bulk_load.plans import Piece, Plan
from minibroker.spark.bulk_load.segments import load_segments
from minibroker.spark.columns.reader import HEADERS

NOW_MS = 1_795_278_882_000
Row = tuple[int, int, bytes | None, bytes | None, tuple[Any, ...]]  # offset, timestamp, key, value, headers


def batch_of(records: Sequence[Record], **columns: Any) -> pa.RecordBatch:
    """Return records as Spark would send them, and more columns."""
    arrays = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "timestamp": pa.array(
            np.array([record.timestamp for record in records], np.int64) * 1000, pa.timestamp("us", "UTC")
        ),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in records], HEADERS
        ),
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


class Load:
    """One load, step by step."""

    def __init__(self, root: Path, **options: object):
        told = {name.replace("__", "."): str(value) for name, value in options.items()}
        self.directory = LoadDirectory(
            parse_load({"path": str(root), **told}), SteeredClock(NOW_MS, source_ms=lambda: 0.0)
        )
        self._lock = ExitStack()
        self.pieces: list[Piece] = []
        self.tasks = 0
        self.plan: Plan | None = None

    def lock(self) -> None:
        self._lock.enter_context(self.directory)

    def unlock(self) -> None:
        self._lock.close()

    def begin(self) -> Load:
        self.lock()
        try:
            self.plan = self.directory.look()
        except BaseException:
            self.unlock()
            raise
        return self

    def task(self, batches: Iterable[pa.RecordBatch], attempt: int = 0) -> list[Piece]:
        """Write rows as the next task; whoever drops the result has repeated it."""
        assert self.plan is not None
        pieces = load_segments(iter(batches), self.plan, self.tasks, attempt)
        self.tasks += 1
        self.pieces += pieces
        return pieces

    def commit(self) -> list[LoadedPartition]:
        assert self.plan is not None
        try:
            return self.directory.commit(self.plan, self.pieces)
        finally:
            self.unlock()


def loaded(root: Path, tasks: Sequence[Sequence[pa.RecordBatch]], **options: object) -> list[LoadedPartition]:
    load = Load(root, **options).begin()
    for batches in tasks:
        load.task(batches)
    return load.commit()


@contextmanager
def opened(root: Path, directory: str) -> Iterator[PartitionLog]:
    log = open_log(OsStorage(str(root)), directory, LogSettings(), was_clean=True)
    try:
        yield log
    finally:
        log.release()


def rows_of(root: Path, directory: str) -> list[Row]:
    """Return all records of a log, one by one, checksums checked."""
    with opened(root, directory) as log:
        return [
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for segment in log.segments
            for batch in segment.batches()
            for record in batch.records(check_crc=True)
        ]
