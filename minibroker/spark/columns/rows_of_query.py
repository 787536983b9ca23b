"""Columns of a query: those of Spark's Kafka source, as Arrow has them, and record batches made of them.

A broken batch ends the task, is left out and told, or is a row itself, as `mode` says.
What must hold: a query gets the columns that its schema names, in that order, or all that its options speak of.
Spark: timestamps that do not fit into its microseconds fail; here they are the largest that fit.
Not here: where batches come from (spark/files/rows.py, spark/brokers/rows.py), what Spark calls the types (source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

import numpy as np
import pyarrow as pa

from minibroker.errors import ProtocolError
from minibroker.log.segment import Place
from minibroker.spark.columns.arrays import HEADERS, TIMESTAMP, microseconds
from minibroker.spark.columns.batch_rows import BATCHES_SCHEMA, Batches, BatchReader
from minibroker.spark.columns.reader import GROUP_BYTES, ColumnReader, Columns
from minibroker.spark.filters import Filters
from minibroker.spark.options import BATCHES, FAIL, QUARANTINE, SKIP, Options
from minibroker.spark.ranges import Task

BROKEN_BYTES_MAX = 16 * 1024 * 1024  # of a broken batch that are shown
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
# What stands for a batch that cannot be read. Offsets are null where nothing can be said of them.
BROKEN = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("error", pa.string()),
        ("bytes", pa.binary()),
    ]
)


class CorruptBatch(Exception):
    """A batch cannot be read, and `mode` is fail."""


def columns_of(options: Options) -> pa.Schema:
    """Return the columns of a query that does not say which it wants."""
    found = all_columns(options)
    if options.include_headers or found is not ROWS:
        return found
    return found.remove(found.get_field_index("headers"))


def all_columns(options: Options) -> pa.Schema:
    """Return the columns that a query may name."""
    return {QUARANTINE: BROKEN, BATCHES: BATCHES_SCHEMA}.get(options.mode, ROWS)


class RowReader:
    """Reads one task, of files or of brokers: what both have in common, once there are batches in memory.

    `left_out` tells what was passed over, `noticed` what looks odd, in words for people.
    """

    def __init__(self, task: Task, options: Options, filters: Filters | None = None, *, group_bytes: int = GROUP_BYTES):
        names = options.columns or columns_of(options).names
        self.schema = pa.schema([all_columns(options).field(name) for name in names])
        self.task = task
        self.left_out: list[str] = []
        self.noticed: list[str] = []
        self._missing = 0  # offsets that have no record
        self._options, self._filters, self._group_bytes = options, filters or Filters(), group_bytes

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows."""
        raise NotImplementedError

    def _reader(
        self,
        chunk: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        aborted: Iterable[tuple[int, int]],
        /,
        *,
        next_offset: int,
        is_strict: bool = False,
    ) -> ColumnReader | BatchReader:
        """Return the reader of a chunk; aborted: producer ids and first offsets of transactions to leave out.

        next_offset: batches that end before it have been read.
        """
        mode, names = self._options.mode, self.schema.names
        if mode == BATCHES:
            return BatchReader(chunk, first_offset, end_offset, is_strict=is_strict, group_bytes=self._group_bytes)
        return ColumnReader(
            chunk,
            first_offset=first_offset,
            end_offset=end_offset,
            first_timestamp=self._filters.first_timestamp,
            end_timestamp=self._filters.end_timestamp,
            aborted=aborted,
            keys="key" in names,
            values="value" in names,
            headers="headers" in names or mode == QUARANTINE,  # which shows batches with broken headers too
            strict=is_strict,
            group_bytes=self._group_bytes,
        )

    def _decoded(
        self, reader: ColumnReader | BatchReader, chunk: bytes | memoryview, file: str, position: int | None
    ) -> Generator[pa.RecordBatch, None, ProtocolError | None]:
        """Yield the rows of a chunk, which lies there in its file; return why the next batch cannot be found."""
        while True:
            try:
                for found in reader:
                    if isinstance(found, Batches):
                        yield found.rows(self.task.topic, self.task.partition, file, position, self.schema)
                    elif self._options.mode != QUARANTINE:
                        yield rows_of(found, self.task.topic, self.task.partition, self.schema)
                self._missing += reader.missing
                return None
            except ProtocolError as error:
                if reader.failed is None:
                    self._missing += reader.missing
                    return error
                yield from self._broken_batch(error, reader.failed, chunk, file, position)

    def _notice_missing(self, why: str) -> None:
        first, last = self.task.first_offset, self.task.end_offset - 1
        self.noticed.append(f"{self.task}: {self._missing} of the offsets {first} to {last} have no record, {why}")

    def _broken_batch(
        self, error: ProtocolError, place: Place, chunk: bytes | memoryview, file: str, position: int | None
    ) -> Iterator[pa.RecordBatch]:
        at = None if position is None else position + place.position
        offsets = f"offsets {place.base_offset} to {place.last_offset}"
        data, span = chunk[place.position : place.end_position], (place.base_offset, place.last_offset)
        yield from self._broken(error, offsets, data, place.size_bytes, file, at, span)

    def _broken(
        self,
        error: ProtocolError,
        offsets: str,
        data: bytes | memoryview,
        size_bytes: int,
        file: str,
        position: int | None,
        span: tuple[int | None, int | None] = (None, None),
    ) -> Iterator[pa.RecordBatch]:
        """Fail, tell of bytes that cannot be read and are left out, or show them, as `mode` wants it."""
        place = f"from {file}" if position is None else f"byte {position} of {file}"
        told = f"{self.task}, {offsets}, {place}: {error.reason}"
        if self._options.mode == FAIL:
            raise CorruptBatch(f"{told} ({error.path}); set mode to skip or quarantine to read the rest") from error
        if self._options.mode == SKIP:
            self.left_out.append(f"{told} ({size_bytes} bytes)")
            return
        row: dict[str, object] = {"topic": self.task.topic, "partition": self.task.partition}
        row |= {"firstOffset": span[0], "lastOffset": span[1], "baseOffset": span[0]}
        row |= {"file": file, "position": position, "error": error.reason, "bytes": bytes(data[:BROKEN_BYTES_MAX])}
        columns = [pa.array([row.get(field.name)], field.type) for field in self.schema]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def rows_of(columns: Columns, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return records in the columns of a schema, which are some of ROWS."""
    count = len(columns)
    makers: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: columns.keys,
        "value": lambda: columns.values,
        "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": lambda: pa.array(np.full(count, partition, np.int32)),
        "offset": lambda: pa.array(columns.offsets),
        "timestamp": lambda: microseconds(columns.timestamps),
        "timestampType": lambda: pa.array(columns.timestamp_types),
        "headers": lambda: _null_if_empty(columns.headers),
    }
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def _null_if_empty(lists: pa.ListArray) -> pa.ListArray:
    """Spark has no list for a record without headers."""
    offsets = lists.offsets.to_numpy()
    return pa.ListArray.from_arrays(
        lists.offsets, lists.values, type=lists.type, mask=pa.array(offsets[1:] == offsets[:-1])
    )
