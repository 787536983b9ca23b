"""Headers of many batches side by side, and which of the batches readers see.

`find_units` hops over a chunk; a unit is what `batches` yields: a v2 batch, a v0 or v1 wrapper, or a single message.
What must hold: it finds the same units as `batches`, and fails where that fails; wherever a unit is in doubt, `batches`
itself is asked.
Not here: records (columns.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct as Layout
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minibroker.errors import ProtocolError
from minibroker.log.batches import Batch, batches, find_batch
from minibroker.log.formats import (
    ABORT,
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    MESSAGE_BYTES_MIN,
    NO_TIMESTAMP_TYPE,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    MessageV0,
    MessageV1,
)
from minibroker.log.records import control_type
from minibroker.schema.message import Message
from minibroker.spark.columns.rows import fixed_fields
from minibroker.spark.columns.varints import Bools, BufferView, Int64s

SPAN_BYTES_MAX = (1 << 31) - 1  # of units read at once: Arrow counts the bytes of a column in 31 bits


class Units:
    """Headers side by side. Fields that a format does not have are as in Batch."""

    __slots__ = (
        "attributes",
        "base_offsets",
        "base_timestamps",
        "counts",
        "crcs",
        "last_offsets",
        "leader_epochs",
        "magics",
        "max_timestamps",
        "positions",
        "producer_ids",
        "sizes",
    )

    def __init__(self, positions: Int64s):
        count = len(positions)
        self.positions = positions  # of the first byte in the chunk
        self.sizes = np.zeros(count, np.int64)  # with everything in front
        self.magics = np.zeros(count, np.int64)
        self.attributes = np.zeros(count, np.int64)
        self.base_offsets = np.zeros(count, np.int64)  # of a wrapper the last one, as in its message
        self.last_offsets = np.zeros(count, np.int64)
        self.base_timestamps = np.full(count, -1, np.int64)
        self.max_timestamps = np.full(count, -1, np.int64)
        self.producer_ids = np.full(count, -1, np.int64)
        self.leader_epochs = np.full(count, -1, np.int32)
        self.counts = np.ones(count, np.int64)
        self.crcs = np.zeros(count, np.uint32)

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, which: slice | Bools) -> Units:
        part = Units.__new__(Units)
        for name in Units.__slots__:
            setattr(part, name, getattr(self, name)[which])
        return part

    @property
    def codecs(self) -> Int64s:
        return np.asarray(self.attributes & CODEC_MASK)

    @property
    def append_times(self) -> Bools:
        return np.asarray((self.attributes & APPEND_TIME_BIT != 0) & (self.magics > 0))

    @property
    def timestamp_types(self) -> NDArray[np.int32]:
        return np.where(self.magics == 0, NO_TIMESTAMP_TYPE, self.append_times).astype(np.int32)

    @property
    def are_control(self) -> Bools:
        return np.asarray((self.magics == 2) & (self.attributes & CONTROL_BIT != 0))

    @property
    def are_wrappers(self) -> Bools:
        return np.asarray((self.magics < 2) & (self.codecs != 0))

    @property
    def are_transactional(self) -> Bools:
        return np.asarray((self.magics == 2) & (self.attributes & TRANSACTIONAL_BIT != 0))

    @property
    def end_before_they_begin(self) -> Bools:
        """Which batches of v2 say what cannot be."""
        return np.asarray((self.magics == 2) & (self.last_offsets < self.base_offsets))

    def outside(
        self, offsets: tuple[int | None, int | None], timestamps: tuple[int | None, int | None]
    ) -> tuple[Bools, Bools]:
        """Return which units hold nothing in these ranges, ends excluded, so need not be opened.

        And which of them say so by their place alone. The rest do by fields that the checksum covers: it must be right.
        """
        first, end = offsets
        by_place, out = np.zeros(len(self), np.bool_), np.zeros(len(self), np.bool_)
        if first is not None:
            # A wrapper that says 0 may have its true offsets within.
            below = (~self.are_wrappers | (self.last_offsets > 0)) & (self.last_offsets < first)
            out |= below & ~self.end_before_they_begin
            by_place |= below & (self.magics < 2)
        if end is not None:
            behind = ~self.are_wrappers & (self.base_offsets >= end)
            out |= behind
            # The first message may be a wrapper, of what is before the end, that has lost its codec.
            next_message = np.flatnonzero(behind & (self.magics < 2))[:1]
            by_place |= behind
            by_place[next_message] = False
        oldest, newest_end = timestamps
        if oldest is not None:
            out |= (self.magics == 2) & (self.max_timestamps < oldest)
        if newest_end is not None:
            out |= self.append_times & (self.max_timestamps >= newest_end)
        return out, by_place


def find_misplaced(units: Units, min_offset: int, limit_offset: int | None) -> Bools:
    """Return which units cannot be where they are by their offsets, which no checksum covers in format v2.

    Offsets rise. Of two neighbours that do not, the first is wrong if the second one follows what is before both; a
    batch that ends before it begins is wrong in any case.
    """
    wrong = units.end_before_they_begin
    # A wrapper that says 0 does not say where it is.
    known = np.flatnonzero(~(units.are_wrappers & (units.last_offsets <= 0)))
    first, last = units.base_offsets[known], np.maximum(units.base_offsets, units.last_offsets)[known]
    before = np.concatenate((np.array([min_offset - 1], np.int64), last[:-1]))[: len(known)]
    falls = first <= before
    jumped = falls[1:] & (first[1:] > before[:-1])
    falls[1:] &= ~jumped
    falls[:-1] |= jumped
    if limit_offset is not None:
        falls |= last >= limit_offset
    wrong[known] |= falls
    return wrong


def count_missing(units: Units, first_offset: int, end_offset: int | None) -> tuple[int, int]:
    """Return the offset behind the last unit, and how many have no record from the first on, and before the end.

    Those are counted by the headers of batches v2.
    """
    if not len(units):
        return first_offset, 0
    behind = units.last_offsets + 1
    before = np.maximum(np.concatenate((np.array([first_offset], np.int64), behind[:-1])), first_offset)
    missing = behind - units.counts - np.minimum(units.base_offsets, before)
    if end_offset is not None:
        # Of one that begins behind the end there is only the gap before it.
        missing = np.where(units.base_offsets < end_offset, missing, np.maximum(end_offset - before, 0))
    counted = (units.magics == 2) & (behind > first_offset)
    return max(int(behind[-1]), first_offset), int(missing[counted].sum())


def find_units(
    view: memoryview, position: int, end: int, bytes_max: int, strict: bool
) -> tuple[Units, int, ProtocolError | None]:
    """Return the units from `position` on, at most as many as reach over `bytes_max`, and where they end.

    Behind the last whole unit the place is `end`, or there is an error that says why not.
    """
    begin, read = position, _SIZE_AND_MAGIC.unpack_from
    found: list[int] = []
    error: ProtocolError | None = None
    while position < end and position - begin < bytes_max:
        left = end - position
        if left >= MESSAGE_BYTES_MIN[0]:
            size, magic = read(view, position + _SIZE_AT)
            size += PREFIX_BYTES
            if 0 <= magic <= 2 and _BYTES_MIN[magic] <= size <= left:
                if found and position + size - begin > SPAN_BYTES_MAX:
                    break
                found.append(position)
                position += size
                continue
        try:
            assert next(batches(view, position, end, strict=strict), None) is None, "a batch that was not recognised"
            position = end
        except ProtocolError as failure:
            error = failure
            break
    return _headers(view, begin, np.array(found, np.int64)), position, error


_SIZE_AT = 8
_SIZE_AND_MAGIC = Layout(">i4xb")
_BYTES_MIN = (*MESSAGE_BYTES_MIN, HEADER_BYTES)


def _headers(view: memoryview, begin: int, positions: Int64s) -> Units:
    units = Units(positions)
    if not len(positions):
        return units
    buffer = BufferView(view[begin : begin + int(positions[-1] - begin) + _BYTES_MIN[2]])
    places = positions - begin
    units.magics = buffer.bytes[places + 16].astype(np.int64)
    classes: tuple[type[Message], ...] = (MessageV0, MessageV1, BatchHeader)
    for magic, cls in enumerate(classes):
        which = np.flatnonzero(units.magics == magic)
        if not which.size:
            continue
        fields = buffer.at(fixed_fields(cls), places[which])

        def column(name: str, fields: NDArray[Any] = fields) -> Int64s:
            return np.asarray(fields[name], np.int64)

        units.sizes[which] = column("size") + PREFIX_BYTES
        units.attributes[which] = column("attributes")
        units.crcs[which] = fields["crc"]
        if magic < 2:
            units.base_offsets[which] = units.last_offsets[which] = column("offset")
            if magic:
                units.base_timestamps[which] = units.max_timestamps[which] = column("timestamp")
            continue
        units.base_offsets[which] = column("base_offset")
        units.last_offsets[which] = column("base_offset") + column("last_offset_delta")
        units.base_timestamps[which] = column("base_timestamp")
        units.max_timestamps[which] = column("max_timestamp")
        units.producer_ids[which] = column("producer_id")
        units.leader_epochs[which] = fields["partition_leader_epoch"]
        units.counts[which] = column("count")
    return units


def unit_at(view: memoryview, units: Units, index: int) -> Batch:
    """Return a unit as a batch of its own."""
    position = int(units.positions[index])
    batch = find_batch(view, position, position + int(units.sizes[index]))
    assert batch is not None
    return batch


class AbortedUnits:
    """Which batches belong to aborted transactions: as the client's filter, for many batches at once."""

    def __init__(self, aborted: Iterable[tuple[int, int]], check_crc: bool):
        """Take pairs of producer id and first offset; units must then come in their order."""
        self._waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)  # the next one last
        self._producers = np.array(sorted({producer for _, producer in self._waiting}), np.int64)
        self._open: set[int] = set()
        self._reached = -1  # the highest offset so far: what began up to there has begun
        self._check_crc = check_crc

    def of(self, view: memoryview, units: Units) -> tuple[Bools, int, ProtocolError | None]:
        """Return which units were aborted, and how many could be judged; an error says why the next cannot."""
        hidden = np.zeros(len(units), np.bool_)
        if not len(self._producers):
            return hidden, len(units), None
        are_control = units.are_control
        concerned = np.isin(units.producer_ids, self._producers) & (are_control | units.are_transactional)
        reached = np.maximum.accumulate(np.maximum(units.last_offsets, self._reached))
        self._reached = int(reached[-1]) if len(reached) else self._reached
        for index in np.flatnonzero(concerned).tolist():
            while self._waiting and self._waiting[-1][0] <= reached[index]:
                self._open.add(self._waiting.pop()[1])
            producer = int(units.producer_ids[index])
            if producer not in self._open:
                continue
            if not are_control[index]:
                hidden[index] = True
                continue
            batch = unit_at(view, units, index)
            try:
                # The cleaner may have left an empty batch.
                if any(control_type(record) == ABORT for record in batch.records(check_crc=self._check_crc)):
                    self._open.remove(producer)
            except ProtocolError as error:
                error.position = error.position or batch.position
                return hidden, index, error
        return hidden, len(units), None
