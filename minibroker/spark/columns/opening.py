"""Batches opened side by side: unpacked where they are compressed, and read into rows.

What must hold: rows come in the order of their batches; behind the first batch in which anything is wrong there are
none, and `broken` names it. Its number is all that is said: `Batch.records` finds out the rest.
Not here: finding batches (batches.py), making columns of rows (columns.py).
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from minibroker.errors import ProtocolError
from minibroker.log.batches import crc32c
from minibroker.log.compression import decompress
from minibroker.log.formats import (
    CODEC_MASK,
    HEADER_BYTES,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
    RECORD_BYTES_MIN,
    BatchHeader,
    MessageV0,
    layout,
)
from minibroker.log.message_sets import single_message
from minibroker.spark.columns.batches import Units, unit_at
from minibroker.spark.columns.record_starts import find_starts
from minibroker.spark.columns.rows import Rows, fixed_fields, read_messages, read_records
from minibroker.spark.columns.varints import Bools, BufferView, Int64s

ROWS_MAX = 1 << 19  # opened at once: what is made on the way takes some 150 bytes a row, however short records are

# From where on the checksums count, by magic.
COVERED_FROM = (*[layout(MessageV0, end="magic").size] * 2, layout(BatchHeader, end="attributes").size)


class Opened:
    """Units whose records lie in one buffer: unit number `units[n]` from `begins[n]` to `ends[n]`."""

    __slots__ = ("begins", "broken", "buffer", "ends", "units", "upto")

    def __init__(self, buffer: BufferView, units: Int64s, begins: Int64s, ends: Int64s, upto: int, broken: bool):
        self.buffer = buffer
        self.units = units
        self.begins = begins
        self.ends = ends
        self.upto = upto  # units before this one are in the buffer, or not wanted
        self.broken = broken  # whether that one is


def open_units(
    view: memoryview, units: Units, shown: Bools, checked: Bools, limit_bytes: int, group_bytes: int
) -> Opened:
    """Open units from the first on until they unpack to `group_bytes`.

    shown: those whose records are wanted; checked: those whose checksum must be right.
    """
    are_packed = shown & (units.codecs != 0)
    # Messages that are not in a wrapper are looked at together, when they are read.
    checked = checked & ~(shown & (units.magics < 2) & ~are_packed)
    any_packed = bool(are_packed.any())
    upto, broken = _cut_by_rows(units, shown), False
    pieces: list[bytes | memoryview] = []
    size_bytes = 0
    if any_packed or checked.any():
        looked_at = np.flatnonzero((checked | shown if any_packed else checked)[:upto])
        of_each = units.positions, units.sizes, units.magics, units.crcs, checked, any_packed & shown, are_packed
        lists = [column[looked_at].tolist() for column in of_each]
        for index, position, size, magic, crc, is_checked, is_opened, is_packed in zip(looked_at.tolist(), *lists):
            if size_bytes >= group_bytes:
                upto = index
                break
            if is_checked and checksum(magic, view[position + COVERED_FROM[magic] : position + size]) != crc:
                upto, broken = index, True
                break
            if not is_opened:
                continue
            try:
                piece = _unpacked(view, units, index, limit_bytes) if is_packed else _section(view, units, index)
            except ProtocolError:
                upto, broken = index, True
                break
            if pieces and magic < 2 and len(piece) > MESSAGE_BYTES_MIN[0] * ROWS_MAX:
                upto = index  # it is to come alone
                break
            pieces.append(piece)
            size_bytes += len(piece)
    chosen = np.flatnonzero(shown[:upto])
    if any_packed:
        ends = np.cumsum(np.array([len(piece) for piece in pieces], np.int64))
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        return Opened(BufferView(b"".join(pieces)), chosen, begins, ends, upto, broken)
    # Nothing is copied: the buffer lies over the chunk.
    begin = end = 0
    if chosen.size:
        begin = int(units.positions[chosen[0]])
        end = int(units.positions[chosen[-1]] + units.sizes[chosen[-1]])
    begins = units.positions[chosen] - begin
    ends = begins + units.sizes[chosen]
    begins = begins + np.where(units.magics[chosen] == 2, HEADER_BYTES, 0)
    return Opened(BufferView(view[begin:end]), chosen, begins, ends, upto, broken)


def _cut_by_rows(units: Units, shown: Bools) -> int:
    """Return before which unit to stop, so that no more rows than ROWS_MAX are opened, but one unit at least."""
    rows = np.where(shown, np.clip(units.counts, 0, ROWS_MAX), 0)
    return max(1, int(np.searchsorted(np.cumsum(rows), ROWS_MAX, "right")))


def has_too_many(opened: Opened, units: Units) -> bool:
    """Whether there is but one unit, and it may hold more than ROWS_MAX records."""
    if len(opened.units) != 1 or opened.broken:
        return False
    magic, size = int(units.magics[opened.units[0]]), int(opened.ends[0] - opened.begins[0])
    most = int(units.counts[opened.units[0]]) if magic == 2 else size // MESSAGE_BYTES_MIN[magic]
    return most > ROWS_MAX and most <= size


def _section(view: memoryview, units: Units, index: int) -> memoryview:
    """Return where the records of an uncompressed unit are: behind the header, or the whole message."""
    position = int(units.positions[index])
    return view[position + (HEADER_BYTES if units.magics[index] == 2 else 0) : position + int(units.sizes[index])]


def _unpacked(view: memoryview, units: Units, index: int, limit_bytes: int) -> bytes | memoryview:
    magic, codec = int(units.magics[index]), int(units.codecs[index])
    if magic == 2:
        packed: bytes | memoryview | None = _section(view, units, index)
        if not packed:
            return b""  # an empty batch may name a codec
    else:
        packed = single_message(unit_at(view, units, index)).value
    return decompress(codec, packed or b"", limit_bytes, magic=magic)


def checksum(magic: int, covered: memoryview) -> int:
    """Return the checksum of what lies behind COVERED_FROM."""
    return crc32c(covered) if magic == 2 else crc32(covered)


def read_rows(opened: Opened, units: Units, check_crc: bool) -> tuple[Rows, int | None]:
    """Return the rows before the first broken unit, and that unit's number if there is one."""
    parts = []
    broken: list[int] = [opened.upto] if opened.broken else []
    magics = units.magics[opened.units]
    for magic in (2, 1, 0):
        of_magic = np.flatnonzero(magics == magic)
        if of_magic.size:
            read = _records if magic == 2 else _messages
            rows = read(opened, units, of_magic, broken)
            if magic < 2 and check_crc:
                _check_crcs(opened.buffer, rows)
            parts.append(rows)
    if not parts:
        return Rows.none(), min(broken, default=None)
    rows = Rows.joined(parts)
    broken += rows.units[rows.wrong][:1].tolist()
    if not broken:
        return rows, None
    first = min(broken)
    return rows[: int(np.searchsorted(rows.units, first))], first


def _records(opened: Opened, units: Units, of_magic: Int64s, broken: list[int]) -> Rows:
    """Read v2 batches."""
    which, begins, ends = opened.units[of_magic], opened.begins[of_magic], opened.ends[of_magic]
    counts = units.counts[which]
    believable = (counts >= 0) & (counts * RECORD_BYTES_MIN <= ends - begins)
    found = find_starts(opened.buffer, 2, begins, ends, np.where(believable, counts, 0))
    fails = ~believable | found.broken | (found.counts != counts)
    of_row, places = _cut(which, found.counts, found.places, fails, broken)
    append_times = units.append_times
    base_timestamps = np.where(append_times, units.max_timestamps, units.base_timestamps)[of_row]
    rows = read_records(opened.buffer, places, of_row, units.base_offsets[of_row], base_timestamps)
    if append_times.any():
        rows.timestamps = np.where(append_times[of_row], base_timestamps, rows.timestamps)
    return rows


def _messages(opened: Opened, units: Units, of_magic: Int64s, broken: list[int]) -> Rows:
    """Read v0 or v1 messages, single ones and those in wrappers."""
    buffer = opened.buffer
    which, begins, ends = opened.units[of_magic], opened.begins[of_magic], opened.ends[of_magic]
    magic = int(units.magics[which[0]])
    packed = units.are_wrappers[which]
    # A single message is its own start; of the message sets in wrappers they must be found.
    found = find_starts(buffer, magic, begins[packed], ends[packed])
    counts = np.ones(len(which), np.int64)
    counts[packed] = found.counts
    fails = counts == 0
    fails[packed] |= found.broken
    of_row, places = _cut(which, counts, np.sort(np.concatenate([begins[~packed], found.places])), fails, broken)
    rows = read_messages(buffer, magic, places, of_row)
    are_within = units.are_wrappers[of_row]
    if are_within.any():
        fields = buffer.at(fixed_fields(MessageV0), places)
        rows.wrong |= are_within & ((fields["magic"] != magic) | (fields["attributes"] & CODEC_MASK != 0))
        last = np.flatnonzero(np.diff(of_row, append=-1))
        if magic:
            _count_from_the_wrapper(rows, units, last, are_within)
            append_times = units.append_times[of_row] & are_within
            rows.timestamps = np.where(append_times, units.max_timestamps[of_row], rows.timestamps)
    return rows


def _count_from_the_wrapper(rows: Rows, units: Units, last: Int64s, are_within: Bools) -> None:
    """Offsets within a v1 wrapper count from a base: the wrapper carries the last one's; not if it carries 0."""
    of_last = rows.units[last]
    wrapper_offsets = units.last_offsets[of_last]
    bases = np.where(wrapper_offsets == 0, 0, wrapper_offsets - rows.offsets[last])
    below = (wrapper_offsets != 0) & (wrapper_offsets < rows.offsets[last])
    row_counts = np.diff(last, prepend=-1)
    rows.wrong |= are_within & np.repeat(below, row_counts)
    rows.offsets = np.where(are_within, rows.offsets + np.repeat(bases, row_counts), rows.offsets)


def _cut(which: Int64s, counts: Int64s, places: Int64s, fails: Bools, broken: list[int]) -> tuple[Int64s, Int64s]:
    """Return unit and place of each row, up to the first unit that fails."""
    if fails.any():
        first = int(np.argmax(fails))
        broken.append(int(which[first]))
        which, counts = which[:first], counts[:first]
    of_row = np.repeat(which, counts)
    return of_row, places[: len(of_row)]


def _check_crcs(buffer: BufferView, rows: Rows) -> None:
    """Mark messages whose checksum is not that of their bytes."""
    if not len(rows):
        return
    fields = buffer.at(fixed_fields(MessageV0), rows.starts)
    begins = rows.starts + COVERED_FROM[0]
    ends = rows.starts + PREFIX_BYTES + fields["size"]
    memory = memoryview(buffer.memory)
    pieces = map(memory.__getitem__, map(slice, begins.tolist(), ends.tolist()))
    found = np.fromiter(map(crc32, pieces), np.uint32, len(rows))
    rows.wrong |= found != fields["crc"]
