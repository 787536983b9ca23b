"""Records read side by side: where in a buffer each one's key, value and headers lie, and its numbers.

Three readers, one for each way in which records lie there: v2 records, v0 and v1 messages. All return `Rows`, whose
arrays have an item per record. Nothing is copied out of the buffer.
What must hold: a record is right or `wrong` says it is not; then its other columns mean nothing, and who wants to know
more asks the reader for single records (records.py). Offsets and timestamps are 64 bits wide.
Kafka: sums that leave 64 bits wrap around, and so do they here.
Not here: where records begin (record_starts.py), which batch they belong to (columns.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minibroker.log.formats import PREFIX_BYTES, MessageV0, MessageV1, layout
from minibroker.schema.message import Message
from minibroker.schema.plan import FIXED, message_plan
from minibroker.schema.varint import read_uvarint
from minibroker.spark.columns.varints import (
    SIZE_BITS,
    SIZE_MASK,
    WORD_BYTES,
    Bools,
    BufferView,
    Int64s,
    short_varints,
    varints,
)

NARROW = 64  # so few records with headers left are quicker one by one
HEADER_BYTES_MIN = 2  # of a header in a record: a byte for the size of each part


def fixed_fields(cls: type[Message]) -> np.dtype[Any]:
    """Return the fields in front, up to the first that is not of fixed width, as a type of numpy."""
    names, formats = [], []
    for field in message_plan(cls, 0).fields:
        if field.type.name not in FIXED:
            break
        names.append(field.name)
        formats.append(">" + FIXED[field.type.name][0])
    fields = np.dtype(list(zip(names, formats)))
    assert fields.itemsize == layout(cls).size
    return fields


class Span:
    """Where something lies: from `begins` on so many bytes; -1 is null."""

    __slots__ = ("begins", "sizes")

    def __init__(self, begins: Int64s, sizes: Int64s):
        self.begins = begins
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, which: Any) -> Span:
        return Span(self.begins[which], self.sizes[which])

    @staticmethod
    def joined(spans: list[Span]) -> Span:
        return Span(np.concatenate([s.begins for s in spans]), np.concatenate([s.sizes for s in spans]))


class Rows:
    """Records side by side, in the order of their places."""

    __slots__ = ("headers_at", "keys", "offsets", "starts", "timestamps", "units", "values", "wrong")

    def __init__(
        self,
        starts: Int64s,
        units: Int64s,
        offsets: Int64s,
        timestamps: Int64s,
        keys: Span,
        values: Span,
        headers_at: Int64s,
        wrong: Bools,
    ):
        self.starts = starts
        self.units = units  # number of the batch it is in
        self.offsets = offsets
        self.timestamps = timestamps
        self.keys = keys
        self.values = values
        self.headers_at = headers_at  # where the count of headers is, -1 if the format has none
        self.wrong = wrong

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: Any) -> Rows:
        columns: list[Any] = [getattr(self, name)[which] for name in _COLUMNS]
        return Rows(*columns)

    @staticmethod
    def none() -> Rows:
        numbers = np.empty(0, np.int64)
        span = Span(numbers, numbers)
        return Rows(numbers, numbers, numbers, numbers, span, span, numbers, np.empty(0, np.bool_))

    @staticmethod
    def joined(parts: list[Rows]) -> Rows:
        """Return the rows of all, in the order of their places."""
        if len(parts) == 1:
            return parts[0]
        columns: list[Any] = []
        for name in _COLUMNS:
            pieces = [getattr(part, name) for part in parts]
            columns.append(Span.joined(pieces) if type(pieces[0]) is Span else np.concatenate(pieces))
        whole = Rows(*columns)
        return whole[np.argsort(whole.starts, kind="stable")]


_COLUMNS = ("starts", "units", "offsets", "timestamps", "keys", "values", "headers_at", "wrong")


def read_records(
    buffer: BufferView, starts: Int64s, units: Int64s, base_offsets: Int64s, base_timestamps: Int64s
) -> Rows:
    """Read v2 records; the bases are those of each record's batch."""
    count = len(starts)
    wrong = np.zeros(count, np.bool_)
    fields = np.empty((len(_RECORD_FIELDS), count), np.int64)
    for begin in range(0, count, CHUNK_ROWS):
        which = slice(begin, begin + CHUNK_ROWS)
        _read_fields(buffer, starts[which], fields[:, which], wrong[which])
    offset_deltas, timestamp_deltas, keys_at, key_sizes, values_at, value_sizes, headers_at = fields
    # New arrays: who keeps these two is not to keep all the others.
    offsets, timestamps = base_offsets + offset_deltas, base_timestamps + timestamp_deltas
    keys, values = Span(keys_at, key_sizes), Span(values_at, value_sizes)
    return Rows(starts, units, offsets, timestamps, keys, values, headers_at, wrong)


CHUNK_ROWS = 4096  # read at once: enough for numpy, and what is read and made stays in the processor's cache
_RECORD_FIELDS = ("offset delta", "timestamp delta", "key at", "key size", "value at", "value size", "headers at")


def _read_fields(buffer: BufferView, starts: Int64s, fields: Int64s, wrong: Bools) -> None:
    """Fill in the fields of some records, offsets and timestamps still without their bases."""
    offset_deltas, timestamp_deltas, keys_at, key_sizes, values_at, value_sizes, headers_at = fields
    # A word has the size, the attributes, in which no bit is in use, and three numbers, if none of them is large.
    words = buffer.words_at(starts)
    table = short_varints()
    entries = table[words & 0xFFFF]
    width = entries & SIZE_MASK
    ends = starts + width + (entries >> SIZE_BITS)
    is_short = width > 0
    bits = (width << 3) + 8
    for column in (timestamp_deltas, offset_deltas, key_sizes):
        entries = table[words >> bits & 0xFFFF]
        width = entries & SIZE_MASK
        np.right_shift(entries, SIZE_BITS, out=column)
        is_short &= width > 0
        bits += width << 3
    is_short &= bits <= 8 * WORD_BYTES
    behind = starts + (bits >> 3)
    if not is_short.all():
        longer = np.flatnonzero(~is_short)
        failed = np.zeros(len(longer), np.bool_)
        sizes, at = varints(buffer, starts[longer], "SizeVarint", failed)
        ends[longer] = at + sizes
        timestamp_deltas[longer], at = varints(buffer, at + 1, "Varlong", failed)
        offset_deltas[longer], at = varints(buffer, at, "Varint", failed)
        key_sizes[longer], behind[longer] = varints(buffer, at, "Varint", failed)
        wrong[longer] |= failed
    keys_at[:] = behind
    # Any size below 0 is null.
    value_sizes[:], values_at[:] = varints(buffer, behind + np.maximum(key_sizes, 0), "Varint", wrong)
    headers_at[:] = values_at + np.maximum(value_sizes, 0)
    if buffer.bytes_at(headers_at).any():
        counts, behind = varints(buffer, headers_at, "Varint", wrong)
        behind, _ = _walk_headers(buffer, counts, behind, ends, wrong)
    else:
        behind = headers_at + 1
    wrong |= behind != ends


def read_messages(buffer: BufferView, magic: int, starts: Int64s, units: Int64s) -> Rows:
    """Read v0 or v1 messages that lie within the buffer; offsets and timestamps are as written in them."""
    cls: type[Message] = MessageV1 if magic else MessageV0
    fields = buffer.at(fixed_fields(cls), starts)
    ends = starts + PREFIX_BYTES + fields["size"]
    at = starts + fields.dtype.itemsize
    last = len(buffer.bytes) - 4
    sizes_of = buffer.numbers(">i4")
    spans = []
    for _ in ("key", "value"):
        sizes = sizes_of[np.minimum(at, last)].astype(np.int64)
        at = at + 4
        spans.append(Span(at, sizes))
        at = at + np.maximum(sizes, 0)
    return Rows(
        starts,
        units,
        fields["offset"].astype(np.int64),
        fields["timestamp"].astype(np.int64) if magic else np.full(len(starts), -1, np.int64),
        spans[0],
        spans[1],
        np.full(len(starts), -1, np.int64),
        at != ends,
    )


class Headers:
    """Headers side by side, record after record; `counts` says how many each record has."""

    __slots__ = ("counts", "keys", "values")

    def __init__(self, counts: Int64s, keys: Span, values: Span):
        self.counts = counts
        self.keys = keys
        self.values = values


def read_headers(buffer: BufferView, rows: Rows) -> Headers:
    """Read the headers of records that are in order."""
    counts = np.zeros(len(rows), np.int64)
    have = np.flatnonzero(rows.headers_at >= 0)
    wrong = np.zeros(len(have), np.bool_)
    counts[have], at = varints(buffer, rows.headers_at[have], "Varint", wrong)
    _, (keys, values) = _walk_headers(buffer, counts[have], at, None, wrong)
    assert not wrong.any(), "headers were read before, and in order"
    # Found number by number; their places bring them into the order of the records.
    order = np.argsort(keys.begins, kind="stable")
    return Headers(counts, keys[order], values[order])


def _walk_headers(
    buffer: BufferView, counts: Int64s, at: Int64s, ends: Int64s | None, wrong: Bools
) -> tuple[Int64s, tuple[Span, Span]]:
    """Go over the headers of all records together, the first of each, the second, ...

    Return the places behind them, and keys and values. Where something is wrong, or goes on beyond `ends`, `wrong` says
    so.
    """
    behind = at.copy()
    if ends is not None:
        wrong |= (counts < 0) | (counts * HEADER_BYTES_MIN > ends - at)
    which = np.flatnonzero((counts > 0) & ~wrong)
    left, place = counts[which], at[which]
    keys, values = [], []
    empty = np.empty(0, np.int64)
    while which.size > NARROW:
        failed = np.zeros(len(which), np.bool_)
        key_sizes, place = varints(buffer, place, "Varint", failed)
        failed |= key_sizes < 0
        keys.append(Span(place, key_sizes))
        value_sizes, place = varints(buffer, place + np.maximum(key_sizes, 0), "Varint", failed)
        values.append(Span(place, value_sizes))
        place = place + np.maximum(value_sizes, 0)
        if ends is not None:
            failed |= place > ends[which]
        left = left - 1
        behind[which] = place
        wrong[which] |= failed
        goes_on = (left > 0) & ~failed
        if not goes_on.all():
            which, left, place = which[goes_on], left[goes_on], place[goes_on]
    alone: list[tuple[int, int, int, int]] = []
    for record, count, start in zip(which.tolist(), left.tolist(), place.tolist()):
        end = int(ends[record]) if ends is not None else buffer.size
        behind_it = _walk_alone(buffer, count, start, end, alone)
        wrong[record] |= behind_it < 0
        behind[record] = behind_it
    if alone:
        columns = np.array(alone, np.int64).T
        keys.append(Span(columns[0], columns[1]))
        values.append(Span(columns[2], columns[3]))
    if not keys:
        return behind, (Span(empty, empty), Span(empty, empty))
    return behind, (Span.joined(keys), Span.joined(values))


def _walk_alone(buffer: BufferView, count: int, place: int, end: int, found: list[tuple[int, int, int, int]]) -> int:
    """Go over `count` headers of one record; return the place behind them, -1 if that is not within `end`."""
    memory = memoryview(buffer.memory)
    try:
        for _ in range(count):
            size, key_at = read_uvarint(memory, place)
            key_size = (size >> 1) ^ -(size & 1)
            if key_size < 0:
                return -1
            size, value_at = read_uvarint(memory, key_at + key_size)
            value_size = (size >> 1) ^ -(size & 1)
            place = value_at + max(value_size, 0)
            if place > end:
                return -1
            found.append((key_at, key_size, value_at, value_size))
    except (IndexError, ValueError):
        return -1
    return place
