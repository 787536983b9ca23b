"""Batches that are sound to the last record, found with columns: verification need not read them one by one.

What must hold: a batch that is named here has the checksum it says, as many records as it says, with offsets that rise
within its own, and the largest timestamp that it says. Of any other nothing is said: whoever wants to know what is
wrong reads its records (tools/verify/segment_findings.py). Only batches of v2 are named, and none without records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.log.formats import CREATE_TIME, PREFIX_BYTES
from minibroker.spark.columns.reader import ColumnReader, Columns
from minibroker.spark.columns.varints import Int64s

CHUNK_BYTES = 8 * 1024 * 1024
UNCHECKED = np.iinfo(np.int64).min  # in the place of a largest timestamp that says nothing of the records


class SoundBatches:
    """The positions of the sound batches; asked for as they rise, for those of one chunk are known at a time."""

    def __init__(self, view: memoryview):
        self._view = view
        self._end = 0  # of the chunk
        self._found: set[int] = set()

    def __contains__(self, position: object) -> bool:
        assert isinstance(position, int)
        if position >= self._end:
            self._read(position)
        return position in self._found

    def _read(self, start: int) -> None:
        """Look at the batches from a position on, which is that of one."""
        view = self._view
        chunk = view[start : start + CHUNK_BYTES]
        reader = _Chunk(chunk)
        if not reader.position and len(chunk) >= PREFIX_BYTES and start + len(chunk) < len(view):
            # One batch is longer than a chunk.
            size_bytes = int.from_bytes(chunk[8:12], "big") + PREFIX_BYTES
            reader = _Chunk(view[start : start + size_bytes])
        self._found = {start + position for position in reader.sound}
        # Where there is no batch all behind it is left to others.
        self._end = start + reader.position if reader.position else len(view)


class _Chunk:
    """What is sound in a chunk, and where the last whole batch in it ends."""

    def __init__(self, chunk: memoryview):
        self.sound: list[int] = []
        rows = ColumnReader(chunk, headers=True, origins=True, control=True)
        headers = _Headers(chunk)
        for columns in _all(rows):
            if len(columns):
                self.sound += headers.sound(columns)
        self.position = rows.position


def _all(reader: ColumnReader) -> Iterator[Columns]:
    """Yield the rows of all batches that can be read."""
    while True:
        try:
            yield from reader
            return
        except ProtocolError:
            if reader.failed is None:
                return


class _Headers:
    """What the headers of batches promise, one row each."""

    def __init__(self, chunk: memoryview):
        rows: list[tuple[int, int, int, int, int]] = []
        try:
            for batch in batches(chunk):
                if batch.magic == 2:
                    is_told = batch.timestamp_type == CREATE_TIME and batch.delete_horizon is None
                    newest = batch.max_timestamp if is_told else UNCHECKED
                    rows.append((batch.position, batch.base_offset, batch.last_offset, batch.count, newest))
        except ProtocolError:
            pass  # the batches before it may be sound
        self._rows: Int64s = np.array(rows, np.int64).reshape(-1, 5)

    def sound(self, columns: Columns) -> list[int]:
        """Return the positions of those that keep their promises, of the batches that some rows are all records of."""
        positions, offsets = columns.positions, columns.offsets
        assert positions is not None
        starts = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1])))
        ends = np.append(starts[1:], len(positions))
        rises = np.ones(len(offsets), bool)
        rises[1:] = offsets[1:] > offsets[:-1]
        rises[starts] = True
        rows = self._rows
        at = np.searchsorted(rows[:, 0], positions[starts])
        at[at == len(rows)] = 0
        if not len(rows):
            return []
        position, base, last, count, newest = rows[at].T
        is_sound = (position == positions[starts]) & (count == ends - starts)
        is_sound &= (offsets[starts] >= base) & (offsets[ends - 1] <= last) & np.logical_and.reduceat(rises, starts)
        is_sound &= (newest == UNCHECKED) | (np.maximum.reduceat(columns.timestamps, starts) == newest)
        found: list[int] = positions[starts][is_sound].tolist()
        return found
