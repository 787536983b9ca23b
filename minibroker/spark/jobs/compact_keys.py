"""Keys and offsets of the records of a segment, as columns: a compaction shuffles them by key.

What a task can see by itself, in the columns that it has at once, it says by itself: of a record whose key comes again
there the key is left out. So a key that comes very often is no burden to whoever brings equal keys together.
What must hold: records of aborted transactions are not among the rows.
Not here: the shuffle (compact_table.py), what becomes of the records (compact_segments.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.errors import ProtocolError
from minibroker.log.formats import PREFIX_BYTES
from minibroker.log.segment import Segment
from minibroker.spark.columns.reader import ColumnReader, Columns
from minibroker.spark.jobs.directory_in import opened

CHUNK_BYTES = 8 * 1024 * 1024
# `tells`: whether the record supersedes others, for it lies in the part that is dirty. No key: it is superseded.
SCHEMA = pa.schema([("log", pa.int32()), ("key", pa.binary()), ("offset", pa.int64()), ("tells", pa.bool_())])


class Keys:
    """A segment whose keys are read."""

    def __init__(self, log: int, root: str, directory: str, base_offset: int, first_dirty: int):
        self.log = log  # a number for it
        self.root = root
        self.directory = directory
        self.base_offset = base_offset
        self.first_dirty = first_dirty  # records from here on supersede others
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker


def keys_of(work: Keys) -> Iterator[pa.RecordBatch]:
    """Yield keys and offsets of a segment: what a task does."""
    segment = Segment(opened(work.root, work.directory), work.directory, work.base_offset)
    try:
        for columns in _columns(segment, work):
            yield from _told(columns, work)
    finally:
        segment.close()


def _columns(segment: Segment, work: Keys) -> Iterator[Columns]:
    file = segment.storage.open(segment.path)
    position, end, next_offset = 0, segment.size_bytes, segment.base_offset
    wanted_bytes = CHUNK_BYTES
    try:
        while position < end:
            chunk = file.read_at(position, min(wanted_bytes, end - position))
            reader = ColumnReader(
                chunk,
                # Transactions that have ended before would hide what their producers did later.
                aborted=[(producer, first) for producer, first, last in work.aborted if last >= next_offset],
                values=False,
                strict=position + len(chunk) >= end,
            )
            try:
                yield from reader
            except ProtocolError as error:
                error.position += position
                error.path = f"{segment.path}: {error.path}"
                raise
            position += reader.position
            next_offset = max(next_offset, reader.next_offset)
            wanted_bytes = CHUNK_BYTES
            if not reader.position:  # one batch is longer than a chunk
                wanted_bytes = int.from_bytes(chunk[8:12], "big") + PREFIX_BYTES
    finally:
        file.close()


def _told(columns: Columns, work: Keys) -> Iterator[pa.RecordBatch]:
    keys, offsets = columns.keys, columns.offsets
    assert keys is not None
    if keys.null_count:
        has_key = keys.is_valid()
        keys, offsets = keys.filter(has_key), offsets[has_key.to_numpy(zero_copy_only=False)]
    if not len(keys):
        return
    tells = offsets >= work.first_dirty
    # The last place of each key: of an index that comes again numpy keeps what is put there last.
    codes = keys.dictionary_encode().indices.to_numpy()
    places = np.arange(len(codes))
    last = np.zeros(int(codes.max()) + 1, np.int64)
    last[codes[tells]] = places[tells]
    is_superseded = (places < last[codes]) & (last[codes] > 0)
    shown = pc.call_function("if_else", [pa.array(is_superseded), pa.scalar(None, keys.type), keys])
    logs = pa.array(np.full(len(keys), work.log, np.int32))
    yield pa.RecordBatch.from_arrays([logs, shown, pa.array(offsets), pa.array(tells)], schema=SCHEMA)
