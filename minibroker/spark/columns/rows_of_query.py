"""Columns of a query: those of Spark's Kafka source, as Arrow has them, and record batches made of them.

What must hold: a query gets the columns that its schema names, in that order, or all that its options speak of.
Spark: timestamps that do not fit into its microseconds fail; here they are the largest that fit.
Not here: which rows (spark/files/rows.py, spark/brokers/rows.py), what Spark calls the types (source.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from minibroker.errors import ProtocolError
from minibroker.spark.columns.arrays import HEADERS, TIMESTAMP, microseconds
from minibroker.spark.columns.batch_rows import BATCHES_SCHEMA, Batches, BatchReader
from minibroker.spark.columns.reader import GROUP_BYTES, ColumnReader, Columns
from minibroker.spark.filters import Filters
from minibroker.spark.options import BATCHES, FAIL, QUARANTINE, Options

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


class Manner:
    """How tasks are read: what of the options and filters matters once a query is planned."""

    def __init__(self, options: Options, filters: Filters | None = None):
        self.mode = options.mode
        names = options.columns or columns_of(options).names
        self.schema = pa.schema([all_columns(options).field(name) for name in names])
        self.keys, self.values = "key" in names, "value" in names
        self.headers = "headers" in names or self.mode == QUARANTINE  # which shows batches with broken headers too
        self.fail_on_data_loss = options.fail_on_data_loss
        self.first_timestamp = filters.first_timestamp if filters else None
        self.end_timestamp = filters.end_timestamp if filters else None

    def reader(
        self,
        chunk: bytes | memoryview,
        first_offset: int,
        end_offset: int,
        aborted: Iterable[tuple[int, int]],
        *,
        is_strict: bool = False,
        group_bytes: int = GROUP_BYTES,
    ) -> ColumnReader | BatchReader:
        """Return the reader of some batches; aborted: producer ids and first offsets of transactions to leave out."""
        if self.mode == BATCHES:
            return BatchReader(chunk, first_offset, end_offset, is_strict=is_strict, group_bytes=group_bytes)
        return ColumnReader(
            chunk,
            first_offset=first_offset,
            end_offset=end_offset,
            first_timestamp=self.first_timestamp,
            end_timestamp=self.end_timestamp,
            aborted=aborted,
            keys=self.keys,
            values=self.values,
            headers=self.headers,
            strict=is_strict,
            group_bytes=group_bytes,
        )

    def broken(self, where: str, error: ProtocolError, size_bytes: int) -> str:
        """Return what to say of bytes that cannot be read, where the mode lets them be left out."""
        told = f"{where}: {error.reason}"
        if self.mode == FAIL:
            raise CorruptBatch(f"{told} ({error.path}); set mode to skip or quarantine to read the rest") from error
        return f"{told} ({size_bytes} bytes)"

    @property
    def shows_broken(self) -> bool:
        """Whether what cannot be read is a row; else it is left out, if it does not end the task."""
        return self.mode in (QUARANTINE, BATCHES)

    def broken_row(self, *row: object) -> pa.RecordBatch:
        """Return what is told of a broken batch, values as in BROKEN, as a row of the table."""
        told = dict(zip(BROKEN.names, row, strict=True))
        told |= {"baseOffset": told["firstOffset"]}
        columns = [pa.array([told.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def rows(
        self, found: Columns | Batches, topic: str, partition: int, file: str, position: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield what `reader` has found in a chunk, if that is wanted; `position` is the chunk's in its file."""
        if isinstance(found, Batches):
            yield found.rows(topic, partition, file, position, self.schema)
        elif self.mode != QUARANTINE:
            yield rows_of(found, topic, partition, self.schema)


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
