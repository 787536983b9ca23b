"""Columns: the records of many batches at once, as arrays of numpy and Arrow.

    chunk of batches -> headers side by side -> where records begin -> fields side by side -> columns

`ColumnReader` takes a chunk as it lies in a segment or a fetch answer and yields `Columns`, each of so many batches as
`group_bytes` allow, unpacked. It does for analysis what `Batch.records` does for everything else, without a step of
Python per record.
What must hold: the rows are those that `batches` and `Batch.records` give, and broken bytes are refused as there: a
batch in doubt is given to them, which say what is wrong and where. Memory is bounded by the chunk, `group_bytes`, and
what one batch may unpack to.
Needs numpy and pyarrow, which only this module and its neighbours column_*.py import; nothing of the broker does.
Not here: reading segments, asking brokers; Spark's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.errors import InvalidValue, ProtocolError
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record
from minibroker.log.segment import Place
from minibroker.spark.columns.arrays import HEADERS as HEADERS
from minibroker.spark.columns.arrays import OFFSET_MAX, copied, copied_headers, headers_of, wrapped
from minibroker.spark.columns.batches import AbortedUnits, Units, count_missing, find_misplaced, find_units, unit_at
from minibroker.spark.columns.opening import has_too_many, open_units, read_rows
from minibroker.spark.columns.rows import Rows
from minibroker.spark.columns.varints import Bools, BufferView, Int64s

GROUP_BYTES = 4 * 1024 * 1024  # wide enough for numpy, and what belongs to it stays in the processor's cache
UNITS_AT_ONCE = 1 << 20  # none, really; few behind a broken one, as whatever is read beyond the next is in vain
CHUNK_ROWS = 16 * 1024  # read one by one


class Columns:
    """Rows in the order of their batches. Columns that were not asked for are None."""

    __slots__ = (
        "headers",
        "keys",
        "leader_epochs",
        "offsets",
        "positions",
        "producer_ids",
        "timestamp_types",
        "timestamps",
        "values",
    )

    offsets: Int64s
    timestamps: Int64s  # ms since 1970, -1 is none
    timestamp_types: NDArray[np.int32]  # 0: set by the producer, 1: by the broker on append, -1: none
    keys: pa.BinaryArray | None
    values: pa.BinaryArray | None
    headers: pa.ListArray | None  # of type HEADERS; a record without headers has an empty list
    leader_epochs: NDArray[np.int32] | None  # these three are of the batch
    producer_ids: Int64s | None
    positions: Int64s | None  # of the batch's first byte in the chunk

    def __len__(self) -> int:
        return len(self.offsets)


class ColumnReader:
    """Iterates over the rows of a chunk.

    Where a batch is broken, the rows before it come first, then its ProtocolError; asked for more, the reader goes on
    behind it, and `failed` says what was left out. Where even the next batch cannot be found, `failed` is None, and
    that was all.
    """

    def __init__(
        self,
        chunk: bytes | bytearray | memoryview,
        *,
        first_offset: int | None = None,
        end_offset: int | None = None,
        first_timestamp: int | None = None,
        end_timestamp: int | None = None,
        aborted: Iterable[tuple[int, int]] = (),
        keys: bool = True,
        values: bool = True,
        headers: bool = False,
        origins: bool = False,
        control: bool = False,
        check_crc: bool = True,
        strict: bool = False,
        limit_bytes: int = DECOMPRESSED_BYTES_MAX,
        group_bytes: int = GROUP_BYTES,
    ):
        """Read whole batches.

        aborted: producer id and first offset of the transactions to leave out; none is read_uncommitted. One that had
        ended before the chunk began must not be among them: its marker, which says that it is over, is not there.
        origins: whether leader epochs, producer ids and positions are wanted.
        control: whether records of control batches are to be among the rows.
        strict: whether a batch that is cut off at the end is an error; else `position` stays in front of it.
        Both ends are excluded. Batches that lie outside the ranges by their headers are not opened.
        """
        if limit_bytes + group_bytes > OFFSET_MAX:
            raise ValueError(f"limit_bytes and group_bytes together are above {OFFSET_MAX}, the end of Arrow's binary")
        self.position = 0  # everything before it has been read, or failed
        self.next_offset = first_offset or 0  # behind the last batch that was read, or failed
        self.failed: Place | None = None
        self.missing = 0  # offsets in the range without a record, up to the end of the last batch that was found
        self._counted_to = first_offset or 0
        self._view = memoryview(chunk)
        self._offsets = first_offset, end_offset
        self._min_offset: int | None = None  # None: nobody has said where the chunk lies
        self._limit_offset: int | None = None
        self._timestamps = first_timestamp, end_timestamp
        self._keys, self._values, self._headers, self._origins = keys, values, headers, origins
        self._control, self._check_crc, self._strict = control, check_crc, strict
        self._limit_bytes, self._group_bytes = limit_bytes, group_bytes
        self._aborted = AbortedUnits(aborted, check_crc)
        self._units = Units(np.empty(0, np.int64))  # found and not yet read
        self._at_once = UNITS_AT_ONCE
        self._misplaced: Bools = np.empty(0, np.bool_)  # which of them cannot be here
        self._shown: Bools = np.empty(0, np.bool_)  # which of them are to be opened
        self._checked: Bools = np.empty(0, np.bool_)  # of which the checksum must be right
        self._first_is_broken = False
        self._single: Iterator[Columns] | None = None  # of a unit that is read one by one
        self._scanned = 0  # where the next unit is to be looked for
        self._error: ProtocolError | None = None  # waits behind the units found
        self._is_over = False

    def lies_between(self, min_offset: int, limit_offset: int | None) -> None:
        """Say where the chunk lies in its log; a batch that lies elsewhere, or whose offsets do not rise, is broken.

        It could hide what it holds, as no checksum covers the base offset of a batch of v2.
        """
        self._min_offset, self._limit_offset = min_offset, limit_offset
        self._counted_to = max(self._counted_to, min_offset)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Columns:
        while True:
            if self._single is not None:
                columns = next(self._single, None)
                if columns is not None:
                    return columns
                self._single = None
                self._go_on(1)
            elif self._first_is_broken:
                raise self._failure()
            elif len(self._units) and self._misplaced[0]:
                raise self._misplacement()
            elif len(self._units):
                columns = self._read()
                if columns is not None:
                    return columns
            elif self._error is not None:
                error, self._error, self._is_over, self.failed = self._error, None, True, None
                raise error
            elif self._is_over or self._scanned >= len(self._view):
                raise StopIteration
            else:
                self._scan()

    def _scan(self) -> None:
        """Find the next units, and which of them are to be opened."""
        units, self._scanned, self._error = find_units(
            self._view, self._scanned, len(self._view), self._group_bytes, self._strict
        )
        aborted, judged, error = self._aborted.of(self._view, units)
        if error is not None:
            # Nobody can say which batches behind a broken marker were aborted.
            units, aborted, self._error = units[:judged], aborted[:judged], error
        self._counted_to, missing = count_missing(units, self._counted_to, self._offsets[1])
        self.missing += missing
        outside, by_place = units.outside(self._offsets, self._timestamps)
        self._units = units
        self._misplaced = np.zeros(len(units), np.bool_)
        if self._min_offset is not None:
            self._misplaced = find_misplaced(units, self._min_offset, self._limit_offset)
            self._min_offset = max([self._min_offset, *(units.last_offsets[~self._misplaced] + 1).tolist()[-1:]])
        # Not only of those that are shown: a flipped bit may be what hides one.
        self._checked = ~by_place & self._check_crc
        self._shown = ~outside & ~aborted
        if not self._control:
            self._shown &= ~units.are_control

    def _read(self) -> Columns | None:
        """Read some of the units that were found, None if no row of them is wanted."""
        few = slice(self._at_once)
        if self._misplaced[few].any():
            few = slice(int(self._misplaced[few].argmax()))
        units, shown, checked = self._units[few], self._shown[few], self._checked[few]
        opened = open_units(self._view, units, shown, checked, self._limit_bytes, self._group_bytes)
        if has_too_many(opened, units):
            self._go_on(int(opened.units[0]))
            self._start_single()
            return None
        rows, broken = read_rows(opened, units, self._check_crc)
        self._first_is_broken = broken is not None
        self._at_once = 1 if self._first_is_broken else min(4 * self._at_once, UNITS_AT_ONCE)
        self._go_on(opened.upto if broken is None else broken)
        wanted = self._inside(rows.offsets, rows.timestamps)
        if not wanted.all():
            rows = rows[wanted]
        return self._columns(opened.buffer, units, rows) if len(rows) else None

    def _start_single(self) -> None:
        """Begin to read the first unit one by one, if all of it is in order: side by side it would take much memory."""
        batch = unit_at(self._view, self._units, 0)
        try:
            for _ in batch.records(self._limit_bytes, check_crc=self._check_crc):
                pass
        except ProtocolError:
            self._first_is_broken = True
            return
        self._single = self._one_by_one(self._units[:1])

    def _one_by_one(self, unit: Units) -> Iterator[Columns]:
        records = unit_at(self._view, unit, 0).records(self._limit_bytes)
        while chunk := list(islice(records, CHUNK_ROWS)):
            offsets, timestamps = wrapped(r.offset for r in chunk), wrapped(r.timestamp for r in chunk)
            wanted = self._inside(offsets, timestamps)
            if not wanted.any():
                continue
            left: list[Record] = [record for record, is_wanted in zip(chunk, wanted.tolist()) if is_wanted]
            made = self._numbers(unit, np.zeros(len(left), np.int64), offsets[wanted], timestamps[wanted])
            made.keys = pa.array([record.key for record in left], pa.binary()) if self._keys else None
            made.values = pa.array([record.value for record in left], pa.binary()) if self._values else None
            made.headers = headers_of(left) if self._headers else None
            yield made

    def _go_on(self, count: int) -> None:
        """Leave this many units behind."""
        units = self._units
        if count:
            self.position = int(units.positions[count - 1] + units.sizes[count - 1])
            self.next_offset = int(units.last_offsets[count - 1]) + 1
        self._units, self._misplaced = units[count:], self._misplaced[count:]
        self._shown, self._checked = self._shown[count:], self._checked[count:]

    def _misplacement(self) -> ProtocolError:
        """Return that the first unit cannot be here, and pass over it."""
        batch, next_offset = unit_at(self._view, self._units, 0), self.next_offset
        self.failed = Place(batch.position, batch.size_bytes, int(self._units.base_offsets[0]), batch.last_offset)
        self._go_on(1)
        self.next_offset = next_offset
        reason = f"a batch with the offsets {self.failed.base_offset} to {self.failed.last_offset} cannot be here"
        return InvalidValue(reason, batch.position, "batch.base_offset")

    def _failure(self) -> ProtocolError:
        """Return what is wrong with the first unit, and pass over it."""
        batch = unit_at(self._view, self._units, 0)
        self.failed = Place(batch.position, batch.size_bytes, int(self._units.base_offsets[0]), batch.last_offset)
        self._first_is_broken = False
        self._go_on(1)
        try:
            for _ in batch.records(self._limit_bytes, check_crc=self._check_crc):
                pass
        except ProtocolError as error:
            return error
        raise AssertionError("records side by side failed where records one by one are in order")

    def _inside(self, offsets: Int64s, timestamps: Int64s) -> Bools:
        """Return which rows are in the ranges: a batch may begin before one and end behind it."""
        wanted = np.ones(len(offsets), np.bool_)
        for numbers, (first, end) in ((offsets, self._offsets), (timestamps, self._timestamps)):
            if first is not None:
                wanted &= numbers >= first
            if end is not None:
                wanted &= numbers < end
        return wanted

    def _columns(self, buffer: BufferView, units: Units, rows: Rows) -> Columns:
        made = self._numbers(units, rows.units, rows.offsets, rows.timestamps)
        made.keys = copied(buffer, rows.keys) if self._keys else None
        made.values = copied(buffer, rows.values) if self._values else None
        made.headers = copied_headers(buffer, rows) if self._headers else None
        return made

    def _numbers(self, units: Units, of_row: Int64s, offsets: Int64s, timestamps: Int64s) -> Columns:
        """Return rows without keys, values and headers; `of_row` is the number of each one's unit."""
        made = Columns()
        made.offsets, made.timestamps = offsets, timestamps
        made.timestamp_types = units.timestamp_types[of_row]
        made.leader_epochs = units.leader_epochs[of_row] if self._origins else None
        made.producer_ids = units.producer_ids[of_row] if self._origins else None
        made.positions = units.positions[of_row] if self._origins else None
        return made
