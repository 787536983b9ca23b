"""Rows to be written: columns of a DataFrame in pieces, sorted into topics and partitions.

    record batches of Spark -> pieces of about PIECE_BYTES -> rows of one topic -> a partition for each row

Partitions are chosen as Kafka's producer does: what the column `partition` says, else murmur2 of the key, else any:
rows without a key go to one partition for `batch.size` bytes, then to the next, so that batches are filled.
What must hold: rows of a partition stay in their order. The same rows in the same order go to the same partitions, in
whatever record batches they come.
Spark: a column `timestamp` is passed over there, and records get the time at which they are written; here only rows
without one do.
Not here: batches, requests (sender.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.log.batches import crc32c
from minibroker.spark.columns.building import Part, RowColumns
from minibroker.spark.columns.partitions import partitions_of
from minibroker.spark.columns.reader import HEADERS
from minibroker.spark.sink.options import WriteOptions

Int32s = NDArray[np.int32]

Int64s = NDArray[np.int64]

Bools = NDArray[np.bool_]


PIECE_BYTES = 8 * 1024 * 1024
RECORD_BYTES_EXTRA = 24  # about what a record needs besides key and value
ANY = -1  # a partition that nobody has chosen


class BadRow(ValueError):
    """A row that cannot be a record."""


class Rows:
    """Rows for one topic."""

    __slots__ = ("headers", "keys", "partitions", "timestamps", "topic", "values")

    def __init__(
        self,
        topic: str,
        keys: pa.BinaryArray | None,
        values: pa.BinaryArray,
        headers: pa.ListArray | None,
        timestamps: Int64s,
        partitions: Int32s,
    ):
        self.topic = topic
        self.keys = keys  # None: no row has one
        self.values = values
        self.headers = headers  # of type HEADERS; None: no row has any
        self.timestamps = timestamps
        self.partitions = partitions  # ANY where it is still to be chosen

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """Return about how much memory the rows take."""
        arrays = (self.keys, self.values, self.headers)
        return int(sum(array.nbytes for array in arrays if array is not None)) + RECORD_BYTES_EXTRA * len(self)

    def largest_bytes(self) -> int:
        """Return about how long the longest record is."""
        sizes = Part(self.values).sizes
        if self.keys is not None:
            sizes = sizes + Part(self.keys).sizes
        return RECORD_BYTES_EXTRA + int(max(sizes.tolist(), default=0))

    def columns(self) -> RowColumns:
        return RowColumns(self.keys, self.values, self.timestamps, self.headers)

    def take(self, which: Int64s | slice) -> Rows:
        """Return some of the rows, given their places or a slice."""
        if isinstance(which, slice):
            start, stop, _ = which.indices(len(self))

            def taken(array: pa.Array | None) -> pa.Array | None:
                return None if array is None else array.slice(start, stop - start)
        else:
            places = pa.array(which)

            def taken(array: pa.Array | None) -> pa.Array | None:
                return None if array is None else array.take(places)

        return Rows(
            self.topic,
            taken(self.keys),
            taken(self.values),
            taken(self.headers),
            self.timestamps[which],
            self.partitions[which],
        )


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows of one topic as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        parts[0].topic,
        _concatenated([part.keys for part in parts], [len(part) for part in parts], pa.binary()),
        pa.concat_arrays([part.values for part in parts]),
        _concatenated([part.headers for part in parts], [len(part) for part in parts], HEADERS),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.partitions for part in parts]),
    )


def _concatenated(arrays: list[pa.Array | None], counts: list[int], kind: pa.DataType) -> pa.Array | None:
    if all(array is None for array in arrays):
        return None
    return pa.concat_arrays([pa.nulls(count, kind) if array is None else array for array, count in zip(arrays, counts)])


# Out of Spark


def pieces(batches: Iterable[pa.RecordBatch], options: WriteOptions, now_ms: int) -> Iterator[list[Rows]]:
    """Yield rows for sending, together about PIECE_BYTES, each time one `Rows` for each topic."""
    waiting: dict[str, list[Rows]] = {}
    size_bytes = 0
    for batch in batches:
        for rows in _of_batch(batch, options, now_ms):
            for part in _cut(rows):
                waiting.setdefault(part.topic, []).append(part)
                size_bytes += part.size_bytes
                if size_bytes >= PIECE_BYTES:
                    yield [joined(parts) for parts in waiting.values()]
                    waiting, size_bytes = {}, 0
    if waiting:
        yield [joined(parts) for parts in waiting.values()]


def _cut(rows: Rows) -> Iterator[Rows]:
    count = max(1, len(rows) * PIECE_BYTES // max(1, rows.size_bytes))
    for start in range(0, len(rows), count):
        yield rows if count >= len(rows) else rows.take(slice(start, start + count))


def _of_batch(batch: pa.RecordBatch, options: WriteOptions, now_ms: int) -> Iterator[Rows]:
    """Yield the rows of a batch, by topics."""
    if not batch.num_rows:
        return
    columns = dict(zip(batch.schema.names, batch.columns))
    headers = columns.get("headers") if options.include_headers else None
    rows = Rows(
        options.topic or "",
        as_binary(columns["key"]) if "key" in columns else None,
        as_binary(columns["value"]),
        None if headers is None else _headers(headers),
        times_of(columns.get("timestamp"), batch.num_rows, now_ms),
        _partitions(columns.get("partition"), batch.num_rows),
    )
    if rows.keys is not None and rows.keys.null_count == len(rows):
        rows.keys = None
    if options.topic is not None:
        yield rows
        return
    topics = columns["topic"]
    if topics.null_count:
        raise BadRow("a row has no topic: its column topic is null; set the option topic to have one for all rows")
    named = topics.cast(pa.string()).dictionary_encode()
    codes = named.indices.to_numpy()
    for code, topic in enumerate(named.dictionary.to_pylist()):
        part = rows if len(named.dictionary) == 1 else rows.take(np.flatnonzero(codes == code))
        part.topic = topic
        yield part


def as_binary(column: pa.Array) -> pa.BinaryArray:
    """Return texts or bytes as bytes."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: pa.ListArray) -> pa.ListArray | None:
    """Return headers as HEADERS; null is none, as an empty list."""
    pairs = column.flatten()
    if not len(pairs):
        return None
    if pairs.null_count or pairs.field(0).null_count:
        raise BadRow("a header has no key: in the column headers each has one, only its value may be null")
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(column.value_lengths().fill_null(0).to_numpy(), out=offsets[1:])
    key, value = pairs.field(0).cast(pa.string()), as_binary(pairs.field(1))
    made = pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), made, type=HEADERS)


def times_of(column: pa.Array | None, count: int, now_ms: int) -> Int64s:
    """Return ms since 1970 out of times or numbers; `now_ms` where there is none."""
    if column is None:
        return np.full(count, now_ms, np.int64)
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(now_ms).to_numpy(), np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(now_ms * 1000)
    return np.asarray(np.floor_divide(micros.to_numpy(), 1000), np.int64)


def _partitions(column: pa.Array | None, count: int) -> Int32s:
    if column is None:
        return np.full(count, ANY, np.int32)
    least = int(column.fill_null(0).to_numpy().min(initial=0))
    if least < 0:
        raise BadRow(f"partition {least}: partitions are counted from 0; null lets the key decide")
    return np.asarray(column.cast(pa.int32()).fill_null(ANY).to_numpy(), np.int32)


# Partitions


class Spread:
    """Chooses partitions for rows of one topic."""

    def __init__(self, run_bytes: int, *, ignore_keys: bool = False):
        self._run_bytes = max(run_bytes, 1)
        # Differs from task to task, so that not all begin with the same partition, and depends on the rows alone.
        self._first_run: int | None = None
        self._ignore_keys = ignore_keys
        self._bytes = 0  # of rows that any partition would have done for

    def place(self, rows: Rows, partition_count: int) -> Rows:
        """Return the rows sorted by partition, each with one."""
        chosen = rows.partitions
        most = int(chosen.max(initial=ANY))
        if most >= partition_count:
            raise BadRow(f"partition {most}: topic {rows.topic} has {partition_count}, counted from 0")
        partitions = chosen.copy()
        if rows.keys is not None and not self._ignore_keys:
            by_key = partitions_of(rows.keys, partition_count)
            np.copyto(partitions, by_key, where=partitions == ANY)
        free: Bools = np.asarray(partitions == ANY)
        if free.any():
            self._spread(rows, partitions, free, partition_count)
        order = np.argsort(partitions, kind="stable")
        rows.partitions = partitions
        return rows if (np.diff(partitions) >= 0).all() else rows.take(order)

    def _spread(self, rows: Rows, partitions: Int32s, free: Bools, partition_count: int) -> None:
        sizes = Part(rows.values).sizes + RECORD_BYTES_EXTRA
        if self._first_run is None:
            self._first_run = crc32c(rows.values[int(free.argmax())].as_py() or b"")
        ends = np.cumsum(sizes[free]) + self._bytes
        runs = (ends - sizes[free]) // self._run_bytes
        partitions[free] = (self._first_run + runs) % partition_count
        self._bytes = int(ends[-1])


def by_partition(rows: Rows) -> Iterator[Rows]:
    """Yield the rows of each partition, of rows that are sorted by it."""
    borders = np.flatnonzero(np.diff(rows.partitions)) + 1
    begins = [0, *borders.tolist(), len(rows)]
    for begin, end in pairwise(begins):
        yield rows.take(slice(begin, end))
