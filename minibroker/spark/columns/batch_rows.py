"""Batches as rows, the table of `mode` batches: what their headers say, and what is wrong with them.

`BatchReader` takes the place of ColumnReader, and gives batches instead of records.
What must hold: each batch is a row in the task in whose range its last offset lies, whoever sees its records; one that
cannot be here by its offsets is a row wherever its bytes are read. Nothing is unpacked but control batches, and v0 or
v1 wrappers whose header does not say where they end. Checksums are computed only if the column `error` is wanted.
Not here: bytes in which no batch can be found (broken_row in rows_of_query.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
import pyarrow as pa

from minibroker.errors import ProtocolError
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import CONTROL_NAMES, BatchHeader
from minibroker.log.records import control_type
from minibroker.log.segment import Place
from minibroker.spark.columns.arrays import TIMESTAMP, microseconds
from minibroker.spark.columns.batches import Units, find_misplaced, find_units, unit_at
from minibroker.spark.columns.opening import COVERED_FROM, checksum
from minibroker.spark.columns.rows import fixed_fields
from minibroker.spark.columns.varints import Bools, BufferView, Int64s

BATCHES_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("format", pa.int32()),
        ("codec", pa.string()),
        ("sizeBytes", pa.int32()),
        ("records", pa.int32()),
        ("crc", pa.int64()),
        ("error", pa.string()),
        ("timestampType", pa.int32()),
        ("baseTimestamp", TIMESTAMP),
        ("maxTimestamp", TIMESTAMP),
        ("leaderEpoch", pa.int32()),
        ("producerId", pa.int64()),
        ("producerEpoch", pa.int32()),
        ("baseSequence", pa.int32()),
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("control", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
    ]
)


class BatchReader:
    """Iterates over the batches of a chunk. Only where the next one cannot be found it raises, and that was all."""

    def __init__(
        self, chunk: bytes | memoryview, first_offset: int, end_offset: int, *, is_strict: bool, group_bytes: int
    ):
        """Take what ColumnReader takes; both ends are excluded."""
        self.position = 0  # everything before it has been read
        self.next_offset = first_offset
        self.failed: Place | None = None  # a broken batch is a row
        self.missing = 0  # whoever counts has the table
        self._view = memoryview(chunk)
        self._first_offset, self._end_offset = first_offset, end_offset
        self._min_offset = 0
        self._limit_offset: int | None = None
        self._is_strict, self._group_bytes = is_strict, group_bytes
        self._scanned = 0
        self._error: ProtocolError | None = None

    def lies_between(self, min_offset: int, limit_offset: int | None) -> None:
        self._min_offset, self._limit_offset = min_offset, limit_offset

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batches:
        if self._error is not None:
            error, self._error, self._scanned = self._error, None, len(self._view)
            raise error
        if self._scanned >= len(self._view):
            raise StopIteration
        units, self._scanned, self._error = find_units(
            self._view, self._scanned, len(self._view), self._group_bytes, self._is_strict
        )
        misplaced = find_misplaced(units, self._min_offset, self._limit_offset)
        _open_old_wrappers(self._view, units)
        if len(units):
            self.position = int(units.positions[-1] + units.sizes[-1])
        for last_offset in units.last_offsets[~misplaced][-1:].tolist():
            self.next_offset = self._min_offset = last_offset + 1
        wanted = (units.last_offsets >= self._first_offset) & (units.last_offsets < self._end_offset) | misplaced
        return Batches(self._view, units[wanted], misplaced[wanted])


class Batches:
    """Some batches of a chunk."""

    def __init__(self, view: memoryview, units: Units, misplaced: Bools):
        self.view = view
        self.units = units
        self.misplaced = misplaced  # which cannot be where they are

    def rows(self, topic: str, partition: int, file: str, position: int | None, schema: pa.Schema) -> pa.RecordBatch:
        """Return them in the columns of a schema; `position` is that of the chunk in its file, if it has one."""
        units, count = self.units, len(self.units)
        is_v2, is_v0 = units.magics == 2, units.magics == 0
        codecs = np.array(CODEC_NAMES + tuple(f"unknown {codec}" for codec in range(len(CODEC_NAMES), 8)), object)
        # Fields that are read for this table only.
        headers = np.zeros(count, fixed_fields(BatchHeader))
        headers[is_v2] = BufferView(self.view).at(fixed_fields(BatchHeader), units.positions[is_v2])
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), count),
            "partition": lambda: np.full(count, partition),
            "baseOffset": lambda: pa.array(units.base_offsets, mask=units.are_wrappers),
            "lastOffset": lambda: units.last_offsets,
            "format": lambda: units.magics,
            "codec": lambda: codecs[units.codecs],
            "sizeBytes": lambda: units.sizes,
            "records": lambda: pa.array(units.counts, mask=units.are_wrappers),
            "crc": lambda: units.crcs,
            "error": lambda: pa.array(self._errors(), pa.string()),
            "timestampType": lambda: pa.array(units.timestamp_types, mask=is_v0),
            "baseTimestamp": lambda: _times(units.base_timestamps, is_v2),
            "maxTimestamp": lambda: _times(units.max_timestamps, ~is_v0),
            "leaderEpoch": lambda: pa.array(units.leader_epochs, mask=~is_v2),
            "producerId": lambda: pa.array(units.producer_ids, mask=~is_v2),
            "producerEpoch": lambda: pa.array(headers["producer_epoch"].astype(np.int32), mask=~is_v2),
            "baseSequence": lambda: pa.array(headers["base_sequence"].astype(np.int32), mask=~is_v2),
            "isTransactional": lambda: units.are_transactional,
            "isControl": lambda: units.are_control,
            "control": lambda: pa.array(self._controls(), pa.string()),
            "file": lambda: pa.repeat(pa.scalar(file, pa.string()), count),
            "position": lambda: pa.nulls(count) if position is None else units.positions + position,
        }
        made = [(pa.array(makers[field.name]()).cast(field.type)) for field in schema]
        return pa.RecordBatch.from_arrays(made, schema=schema)

    def _errors(self) -> list[str | None]:
        """Return what is wrong with each: its checksum, its place, or what its header promises."""
        view, units = self.view, self.units
        found: list[str | None] = [None] * len(units)
        counts, spans = units.counts, units.last_offsets - units.base_offsets + 1
        of_each = (
            units.positions,
            units.sizes,
            units.magics,
            units.crcs,
            self.misplaced,
            (counts < 0) | (counts > spans),
        )
        lists = [column.tolist() for column in of_each]
        for index, (position, size, magic, crc, is_misplaced, is_odd) in enumerate(zip(*lists)):
            if checksum(magic, view[position + COVERED_FROM[magic] : position + size]) != crc:
                found[index] = f"{crc:#010x} is not the checksum of the bytes"
            elif is_misplaced or is_odd:
                promised = f"the offsets {units.base_offsets[index]} to {units.last_offsets[index]}"
                found[index] = (
                    f"a batch with {promised} cannot be here"
                    if is_misplaced
                    else f"a batch with {promised} cannot have {counts[index]} records"
                )
        return found

    def _controls(self) -> list[str | None]:
        found: list[str | None] = [None] * len(self.units)
        for index in np.flatnonzero(self.units.are_control).tolist():
            try:
                kinds = [control_type(record) for record in unit_at(self.view, self.units, index).records()]
            except ProtocolError:
                found[index] = "unreadable"
                continue
            names = (CONTROL_NAMES[kind] if 0 <= kind < len(CONTROL_NAMES) else f"unknown {kind}" for kind in kinds)
            found[index] = ", ".join(names) or None  # the cleaner may have left an empty batch
        return found


def _open_old_wrappers(view: memoryview, units: Units) -> None:
    """Find where wrappers end that say 0: clients of long ago left it to the broker, and some brokers left it so."""
    for index in np.flatnonzero(units.are_wrappers & (units.last_offsets <= 0)).tolist():
        try:
            for record in unit_at(view, units, index).records():
                units.last_offsets[index] = units.base_offsets[index] = record.offset
        except ProtocolError:
            continue  # what its header says must do


def _times(ms: Int64s, are_known: Bools) -> pa.Array:
    """Return times; -1 is none."""
    return pa.array(microseconds(ms).to_numpy(zero_copy_only=False), mask=~are_known | (ms == -1))
