"""Rows to be written: columns of a DataFrame in pieces, in the order of their topics and partitions.

    record batches of Spark -> pieces of some MB -> rows of one topic -> a partition for each row

Partitions are chosen as Kafka's producer does: what the column `partition` says, else murmur2 of the key, else any:
rows without a key go to one partition for the length of a batch, then to the next, so that batches are filled.
What must hold: rows of a partition stay in their order. The same rows in the same order go to the same partitions, in
whatever record batches they come.
Spark: a column `timestamp` is passed over there, and records get the time at which they are written; here only rows
without one do.
Not here: batches, requests (sender.py), segments (bulk_load/segments.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.log.batches import crc32c
from minibroker.spark.columns.arrays import by_value
from minibroker.spark.columns.building import Part, RowColumns
from minibroker.spark.columns.partitions import NO_PARTITION, partitions_of
from minibroker.spark.columns.varints import Int64s

RECORD_BYTES_EXTRA = 24  # about what a record needs besides key and value


class BadRow(ValueError):
    """A row that cannot be a record."""


class Rows(RowColumns):
    """Rows for one topic."""

    __slots__ = ("partitions", "topic")

    def __init__(self, topic: str, batch: pa.RecordBatch, now_ms: int):
        """now_ms: the time of rows without one."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        super().__init__(
            columns.get("key"),
            columns["value"],
            times_of(columns.get("timestamp"), batch.num_rows, now_ms),
            columns.get("headers"),
        )
        self.topic = topic
        self.partitions: pa.Array | None = columns.get("partition")

    def sizes(self) -> Int64s:
        """Return about how long each record is."""
        sizes = Part(self.values).sizes + RECORD_BYTES_EXTRA
        return sizes if self.keys is None else sizes + Part(self.keys).sizes


def times_of(column: pa.Array | None, count: int, now_ms: int) -> Int64s:
    """Return ms since 1970 out of times or numbers; `now_ms` where there is none."""
    if column is None:
        return np.full(count, now_ms, np.int64)
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(now_ms).to_numpy(), np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(now_ms * 1000)
    return np.asarray(np.floor_divide(micros.to_numpy(), 1000), np.int64)


# Out of Spark


def pieces(
    batches: Iterable[pa.RecordBatch], topic: str | None, now_ms: int, *, size_bytes: int
) -> Iterator[list[Rows]]:
    """Yield rows to be written at once, together about `size_bytes`, each time one `Rows` for each topic.

    topic: of all rows; None: a column says it.
    """
    for batch in _gathered(batches, size_bytes):
        yield [Rows(name, some, now_ms) for name, some in _by_topic(batch, topic)]


def _gathered(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut batches that are too large, and put small ones together."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        row_count = max(1, -(-batch.num_rows // max(1, batch.nbytes // size_bytes)))
        for start in range(0, batch.num_rows, row_count):
            held.append(batch.slice(start, row_count))
            held_bytes += held[-1].nbytes
            if held_bytes >= size_bytes:
                yield from _joined(held)
                held, held_bytes = [], 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic and its rows."""
    if topic is not None:
        yield topic, batch
        return
    if batch.column("topic").null_count:
        raise BadRow("a row has no topic: fill the column topic, or set the option topic")
    yield from by_value(batch, "topic")


# Partitions


class Spread:
    """Chooses partitions for rows of one topic."""

    def __init__(self, partition_count: int, run_bytes: int, *, ignore_keys: bool = False):
        self._partition_count = partition_count
        self._run_bytes = max(run_bytes, 1)
        # Differs from task to task, so that not all begin with the same partition, and depends on the rows alone.
        self._first_run: int | None = None
        self._ignore_keys = ignore_keys
        self._bytes = 0  # of rows that any partition would have done for

    def place(self, rows: Rows) -> tuple[list[int], list[int]]:
        """Give rows the order of their partitions; return which these are, and how many rows each has."""
        partitions = self._chosen(rows)
        first = int(partitions[0])
        if (partitions == first).all():
            return [first], [len(partitions)]
        narrow = partitions.astype(np.uint16) if self._partition_count <= 1 << 16 else partitions
        rows.order = np.argsort(narrow, kind="stable")  # of 16 bits in one pass
        counts = np.bincount(partitions)
        found = np.flatnonzero(counts)
        return found.tolist(), counts[found].tolist()

    def _chosen(self, rows: Rows) -> NDArray[np.int32]:
        partition_count = self._partition_count
        if rows.keys is None or self._ignore_keys or partition_count == 1:
            chosen = np.full(len(rows), NO_PARTITION if partition_count > 1 else 0, np.int32)
        else:
            chosen = partitions_of(rows.keys, partition_count)
        named = rows.partitions
        if named is not None and named.null_count < len(named):
            numbers = np.asarray(named.fill_null(0))
            least, most = int(numbers.min()), int(numbers.max())
            if least < 0:
                raise BadRow(f"partition {least}: partitions are counted from 0; null lets the key decide")
            if most >= partition_count:
                raise BadRow(
                    f"partition {most}: topic {rows.topic} has {partition_count}, counted from 0: one that is made in "
                    "a directory gets as many as --partitions or the option partitions says"
                )
            chosen = np.where(np.asarray(named.is_valid()), numbers, chosen)
        free = np.flatnonzero(chosen == NO_PARTITION)
        if len(free):
            if self._first_run is None:
                self._first_run = crc32c(rows.values[int(free[0])].cast(pa.binary()).as_py() or b"")
            sizes = rows.sizes()[free]
            ends = np.cumsum(sizes) + self._bytes
            chosen[free] = (self._first_run + (ends - sizes) // self._run_bytes) % partition_count
            self._bytes = int(ends[-1])
        return chosen
