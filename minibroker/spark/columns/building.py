"""Record batches out of columns: the bytes that log/build.py makes of single records, with no step of Python for each.

    columns -> where batches begin -> records side by side -> headers of the batches -> checksums, codecs

    size, attributes, time, offset, key size | key | value size | value | headers        a record
    `---------------- front ---------------´       `- middle -´         `-tail -´        arrays that are made here

`build_batches` cuts rows into batches by bytes, as a producer does, and yields them in order. A front is a number of at
most 12 bytes, nearly always, which is what a view of Arrow holds in itself; one that is longer, and the header of a
batch before its first record, lie in a buffer that the view points to. Arrow then joins the five arrays row by row: a
key or value is copied once, and what comes out is one buffer with all records.
What must hold: a batch has the same bytes as `build_batch` gives for its records. Without a codec a batch is at most
`batch_bytes` long, but for one that has a single record; a codec makes it shorter.
Not here: assigning partitions (partitions.py), files and requests.
Kafka: a producer guesses what a codec will make of a batch and takes more records into one; here bytes are counted
before compression, so that batches do not depend on what was sent before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.errors import EncodeError
from minibroker.log.batches import COVERED_POSITION, SEQUENCE_MAX, crc32c
from minibroker.log.compression import NONE, check_level, compress
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    CREATE_TIME,
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from minibroker.spark.columns.rows import fixed_fields
from minibroker.spark.columns.varints import Bools, Int64s

UInt64s = NDArray[np.uint64]


BATCH_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30
BATCH_RECORDS = 1 << 20
RECORD_BYTES_MAX = 1 << 30
GROUP_BYTES = 8 * 1024 * 1024  # built at once: enough for numpy, and what belongs to it stays in the processor's cache
CRC_POSITION = 17


class RowColumns:
    """Records side by side."""

    __slots__ = ("headers", "keys", "order", "timestamps", "values")

    def __init__(
        self,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps: Int64s,
        headers: pa.ListArray | None = None,
        *,
        order: Int64s | None = None,
    ):
        """Take arrays of the same length.

        keys, values: binary, or what Arrow casts to it; no keys at all are nulls.
        timestamps: ms since 1970, -1 is none.
        headers: lists of structs of key and value, as HEADERS of columns.py; null and an empty list are none.
        order: which rows are records, and in which order; None is all of them.
        """
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers
        self.order = order

    def __len__(self) -> int:
        return len(self.values) if self.order is None else len(self.order)

    def part(self, first: int, count: int) -> RowColumns:
        """Return some of the records, which lie behind one another."""
        order = np.arange(len(self.values)) if self.order is None else self.order
        some = order[first : first + count]
        return RowColumns(self.keys, self.values, self.timestamps, self.headers, order=some)


class BuiltBatch:
    """A whole batch, and what those who store or send it want to know of it."""

    __slots__ = ("base_offset", "count", "data", "first_row", "max_timestamp", "section")

    def __init__(self, data: memoryview, first_row: int, count: int, max_timestamp: int, base_offset: int):
        self.data = data  # views keep all batches of their group in memory
        self.first_row = first_row
        self.count = count
        self.max_timestamp = max_timestamp
        self.base_offset = base_offset
        self.section = 0  # which one of those that were given

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1


class Section(NamedTuple):
    """Rows behind one another that go to the same log."""

    row_count: int
    base_offset: int = 0  # of the first batch
    leader_epoch: int = -1
    base_sequence: int = 0  # for what a producer sends


HEADER = fixed_fields(BatchHeader)


def build_batches(
    rows: RowColumns,
    sections: Sequence[Section] | None = None,
    *,
    codec: int = NONE,
    level: int | None = None,
    batch_bytes: int = BATCH_BYTES,
    is_sent: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    timestamp_type: int = CREATE_TIME,
    append_time: int | None = None,
) -> Iterator[BuiltBatch]:
    """Yield the batches of all sections, one section after another: many at once are much faster than each alone.

    sections: by default all rows are one. level: of the codec, Kafka's default if None.
    is_sent: to a broker, which gives offsets; each batch begins at 0 then.
    append_time: with timestamp_type APPEND_TIME the time of all records.
    """
    check_level(codec, level)
    if not 0 < batch_bytes <= BATCH_BYTES_MAX:
        raise ValueError(f"batches of {batch_bytes} bytes: 1 to {BATCH_BYTES_MAX}")
    if (timestamp_type == APPEND_TIME) != (append_time is not None):
        raise EncodeError("append time is what APPEND_TIME needs, and nothing else does", "append_time")
    if not len(rows):
        return
    sections = [Section(len(rows))] if sections is None else sections
    cells = Cells(rows)
    begins, sizes, counts = cells.cut(batch_bytes, [section.row_count for section in sections])
    row_counts, base_offsets, epochs, sequences = np.array(sections).T
    behind = begins[:-1] - np.repeat(np.cumsum(row_counts) - row_counts, counts)  # rows of the section before
    headers = np.zeros(len(sizes), HEADER)
    headers["magic"] = 2
    headers["attributes"] = codec | timestamp_type * APPEND_TIME_BIT | transactional * TRANSACTIONAL_BIT
    headers["producer_id"], headers["producer_epoch"] = producer_id, producer_epoch
    headers["base_sequence"] = -1 if producer_id < 0 else np.repeat(sequences, counts) + behind & SEQUENCE_MAX
    headers["partition_leader_epoch"] = np.repeat(epochs, counts)
    headers["base_offset"] = 0 if is_sent else np.repeat(base_offsets, counts) + behind
    numbers = iter(np.repeat(np.arange(len(sections)), counts).tolist())
    for first, end in _grouped(sizes.tolist()):
        for batch in _Group(cells, begins[first : end + 1], headers[first:end], append_time).batches(codec, level):
            batch.section = next(numbers)
            yield batch


class Cells:
    """What is known of the records before they are cut into batches."""

    def __init__(self, rows: RowColumns):
        count = len(rows.values)
        if len(rows.timestamps) != count or any(
            each is not None and len(each) != count for each in (rows.keys, rows.headers)
        ):
            raise EncodeError("columns are not of the same length", "rows")
        self.order = rows.order
        self.timestamps: Int64s = self._ordered(np.asarray(rows.timestamps, np.int64))
        self.values = Part(rows.values)
        self.keys = None if rows.keys is None or rows.keys.null_count == count else Part(rows.keys)
        self.tails: pa.BinaryArray | None = None
        if rows.headers is not None and len(rows.headers.flatten()):
            self.tails = headers_array(rows.headers)
        self.value_sizes = self._ordered(self.values.written)
        self.key_sizes = None if self.keys is None else self._ordered(self.keys.written)
        self.fixed = self._ordered(self._fixed())

    def _fixed(self) -> Int64s:
        """Return how many bytes of each record do not depend on its batch: all but its size and the two deltas."""
        sizes = 1 + self.values.sizes + varint_sizes(self.values.written)
        sizes += 1 if self.keys is None else self.keys.sizes + varint_sizes(self.keys.written)
        return sizes + (1 if self.tails is None else np.diff(offsets_of(self.tails)))

    def _ordered(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return numbers if self.order is None else numbers[self.order]

    def arrays(self, first: int, end: int) -> tuple[pa.Array | None, pa.Array, pa.Array | bytes]:
        """Return keys, values and headers of some records."""
        some = slice(first, end)
        parts = [None if self.keys is None else self.keys.array, self.values.array, self.tails]
        if self.order is None:
            keys, values, tails = (None if part is None else part[some] for part in parts)
        else:
            # Only now: what has been copied is still in the processor's cache when it is copied again.
            places = pa.array(self.order[some])
            keys, values, tails = (None if part is None else part.take(places) for part in parts)
        return keys, values, b"\0" if tails is None else tails

    def cut(self, batch_bytes: int, section_counts: list[int]) -> tuple[Int64s, Int64s, list[int]]:
        """Return where batches begin and the last one ends, how many bytes each may have, and how many a section has.

        Records are counted with the longest deltas of time and offset that there can be.
        """
        room = batch_bytes - HEADER_BYTES
        oldest, newest = int(self.timestamps.min()), int(self.timestamps.max())
        if newest - oldest >= 1 << 63:
            raise EncodeError(f"{oldest} and {newest} are too far apart for one batch", "timestamps")
        count = len(self.fixed)
        assert sum(section_counts) == count, (section_counts, count)
        deltas = varint_size(2 * (newest - oldest)) + varint_size(2 * min(count, BATCH_RECORDS))
        sizes = self.fixed + deltas
        sizes += varint_sizes(sizes.view(np.uint64) << np.uint64(1))
        if int(sizes.max()) > RECORD_BYTES_MAX:
            raise EncodeError(f"{sizes.max()} bytes are too many for one record", f"records[{sizes.argmax()}]")
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(sizes, out=ends[1:])
        begins, found = [0], []
        first = section_end = 0
        for section_count in section_counts:
            before, section_end = len(begins), section_end + section_count
            while first < section_end:
                fitting = int(ends.searchsorted(ends[first] + room, "right")) - 1
                first = min(max(fitting, first + 1), first + BATCH_RECORDS, section_end)
                begins.append(first)
            found.append(len(begins) - before)
        borders = np.array(begins, np.int64)
        return borders, np.diff(ends[borders]) + HEADER_BYTES, found


class _Group:
    """Neighbouring batches, laid out together."""

    def __init__(self, cells: Cells, begins: Int64s, headers: NDArray[Any], append_time: int | None):
        """Take where batches begin and the last one ends, and their headers, which are filled in."""
        self.begins = begins.tolist()
        self.headers = headers
        first, end = self.begins[0], self.begins[-1]
        counts, starts = np.diff(begins), begins[:-1] - first
        timestamps = cells.timestamps[first:end]
        bases = timestamps[starts]
        newest = np.maximum(np.maximum.reduceat(timestamps, starts), -1)
        time_deltas = zigzag(timestamps - np.repeat(bases, counts))
        offset_deltas = (np.arange(end - first) - np.repeat(starts, counts)).view(np.uint64) << np.uint64(1)
        bodies = cells.fixed[first:end] + varint_sizes(time_deltas) + varint_sizes(offset_deltas)
        written = bodies.view(np.uint64) << np.uint64(1)
        front = Front(end - first)
        front.add(written)
        front.add_zero()  # attributes
        front.add(time_deltas)
        front.add(offset_deltas)
        if cells.key_sizes is None:
            front.add(np.full(end - first, NULL_SIZE, np.uint64))
        else:
            front.add(cells.key_sizes[first:end])
        sizes = np.add.reduceat(bodies + varint_sizes(written), starts)
        headers["size"] = sizes + HEADER_BYTES - PREFIX_BYTES
        headers["last_offset_delta"] = counts - 1
        headers["base_timestamp"] = bases
        headers["max_timestamp"] = newest if append_time is None else append_time
        headers["count"] = counts
        self.counts: list[int] = counts.tolist()
        self.base_offsets: list[int] = headers["base_offset"].tolist()
        self.max_timestamps: list[int] = headers["max_timestamp"].tolist()
        self.front, self.starts, self.cells = front, starts.tolist(), cells
        # Where each batch begins if its header stands before it.
        self.positions = [0, *np.cumsum(sizes + HEADER_BYTES).tolist()]

    def _laid_out(self) -> memoryview:
        """Return the batches as they will be, all but their checksums."""
        heads = self.headers.tobytes()
        before = {
            start: heads[index * HEADER_BYTES : (index + 1) * HEADER_BYTES] for index, start in enumerate(self.starts)
        }
        first, end = self.begins[0], self.begins[-1]
        keys, values, tails = self.cells.arrays(first, end)
        parts = [self.front.array(before), *(() if keys is None else (keys,))]
        whole = joined(*parts, sizes_array(self.cells.value_sizes[first:end]), values, tails)
        return memoryview(whole.buffers()[2]).cast("B")[: self.positions[-1]]

    def batches(self, codec: int, level: int | None) -> Iterator[BuiltBatch]:
        """Yield the batches, as they lie there or with their records compressed, with checksums."""
        laid_out = self._laid_out()
        assert not laid_out.readonly, "Arrow hands out what it has just made"
        for index, count in enumerate(self.counts):
            data = laid_out[self.positions[index] : self.positions[index + 1]]
            if codec != NONE:
                records = compress(codec, data[HEADER_BYTES:], level=level)
                self.headers["size"][index] = HEADER_BYTES - PREFIX_BYTES + len(records)
                data = memoryview(bytearray().join((self.headers[index].tobytes(), records)))
            data[CRC_POSITION:COVERED_POSITION] = crc32c(data[COVERED_POSITION:]).to_bytes(4, "big")
            yield BuiltBatch(data, self.begins[index], count, self.max_timestamps[index], self.base_offsets[index])


def _grouped(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield from which batch to which are built at once."""
    first = total = 0
    for index, size in enumerate(sizes):
        if total and total + size > GROUP_BYTES:
            yield first, index
            first, total = index, 0
        total += size
    if total:
        yield first, len(sizes)


VIEW_BYTES = 12  # of what fits into a view of Arrow
NULL_SIZE = 1  # the size of null, -1, as it is written


# Varints


def zigzag(numbers: Int64s) -> UInt64s:
    """Return signed numbers as varints write them."""
    return np.asarray(((numbers << 1) ^ (numbers >> 63)).view(np.uint64))


def varint_size(number: int) -> int:
    """Return how many bytes an unsigned varint takes."""
    return max(1, -(-number.bit_length() // 7))


def varint_sizes(numbers: UInt64s) -> Int64s:
    """Return how many bytes each unsigned varint takes."""
    sizes = np.ones(len(numbers), np.int64)
    for count in range(1, varint_size(_largest(numbers))):
        sizes += numbers >= np.uint64(1 << 7 * count)
    return sizes


@cache
def short_words() -> UInt64s:
    """Return for every number of 14 bits its varint and, above 16 bits, how many bits that takes."""
    numbers = np.arange(1 << 14, dtype=np.uint64)
    of_two = numbers & 0x7F | 0x80 | numbers >> 7 << 8 | 16 << 16
    return np.asarray(np.where(numbers < 1 << 7, numbers | 8 << 16, of_two))


def _largest(numbers: UInt64s) -> int:
    return int(numbers.max()) if len(numbers) else 0


class Front:
    """Varints one behind another, for many rows side by side."""

    def __init__(self, count: int):
        self.count = count
        self.words = [np.zeros(count, np.uint64)]  # eight bytes of each row, the next eight, ...; lowest byte first
        self.bits: UInt64s | np.uint64 = np.uint64(0)  # how many are taken; one number if all rows are alike

    @property
    def sizes(self) -> Int64s:
        """How many bytes each row has."""
        return np.broadcast_to(np.asarray(self.bits >> np.uint64(3), np.int64), (self.count,))

    def add_zero(self) -> None:
        """Add a byte that is 0."""
        self.bits = self.bits + np.uint64(8)

    def add(self, values: UInt64s) -> None:
        """Add unsigned varints."""
        largest = _largest(values)
        if largest < 1 << 7:
            self._put(values, self.bits)
            self.bits = self.bits + np.uint64(8)
        elif largest < 1 << 14:
            entries = short_words()[values]
            self._put(entries & np.uint64(0xFFFF), self.bits)
            self.bits = self.bits + (entries >> np.uint64(16))
        else:
            self._add_long(values, varint_size(largest))

    def _add_long(self, values: UInt64s, bytes_max: int) -> None:
        low, high = np.zeros(self.count, np.uint64), np.zeros(self.count, np.uint64)
        bits = np.full(self.count, 8, np.uint64)
        for index in range(bytes_max):
            piece = values & np.uint64(0x7F)
            values = values >> np.uint64(7)
            goes_on = (values > 0).astype(np.uint64)
            piece |= goes_on << np.uint64(7)
            bits += goes_on << np.uint64(3)
            if index < 8:
                low |= piece << np.uint64(8 * index)
            else:
                high |= piece << np.uint64(8 * index - 64)
        self._put(low, self.bits)
        if bytes_max > 8:
            self._put(high, self.bits + np.uint64(64))
        self.bits = self.bits + bits

    def _put(self, words: UInt64s, at: UInt64s | np.uint64) -> None:
        """Set the bits of each row from `at` on, at most 64, which are still 0."""
        last = int(np.max(at) + 63) // 64 if self.count else 0
        places = np.asarray(at)  # where one is lower than another differences wrap around, arrays do so in silence
        self.words += [np.zeros(self.count, np.uint64) for _ in range(last + 1 - len(self.words))]
        self.words[0] |= words << places
        for index in range(1, last + 1):
            # A shift by 64 and more leaves 0: of the two only one is below, or both are 0.
            start = np.full(1, 64 * index, np.uint64)
            self.words[index] |= words << (places - start) | words >> (start - places)

    def array(self, before: dict[int, bytes] | None = None) -> pa.BinaryArray:
        """Return the rows as values of Arrow; `before` are bytes to stand in front of some."""
        views = np.empty((self.count, 2), np.uint64)
        sizes = self.sizes
        # A view: its size; then its bytes, or four of them, which buffer and where in it.
        views[:, 0] = sizes.view(np.uint64) | self.words[0] << np.uint64(32)
        views[:, 1] = self.words[0] >> np.uint64(32)
        if len(self.words) > 1:
            views[:, 1] |= self.words[1] << np.uint64(32)
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self._elsewhere(views, sizes, before or {}))]
        return pa.Array.from_buffers(pa.binary_view(), self.count, buffers).cast(pa.binary())

    def _elsewhere(self, views: UInt64s, sizes: Int64s, before: dict[int, bytes]) -> bytes:
        """Return what does not fit into views, and let them point at it."""
        rows = np.flatnonzero(sizes > VIEW_BYTES) if len(self.words) > 1 else np.empty(0, np.int64)
        whole = np.stack([column[rows] for column in self.words], axis=1).astype("<u8", copy=False).view(np.uint8)
        part = whole[np.arange(whole.shape[1]) < sizes[rows, None]].tobytes()
        views[rows, 1] = (np.cumsum(sizes[rows]) - sizes[rows]).view(np.uint64) << np.uint64(32)
        parts, position = [part], len(part)
        for row, bytes_before in before.items():
            own = b"".join(int(column[row]).to_bytes(8, "little") for column in self.words)[: sizes[row]]
            parts.append(bytes_before + own)
            views[row] = len(parts[-1]) | int.from_bytes(bytes_before[:4], "little") << 32, position << 32
            position += len(parts[-1])
        return b"".join(parts)


# Parts of records


class Part:
    """A key, value or name of each row, and how its size is written."""

    __slots__ = ("are_null", "array", "sizes", "written")

    def __init__(self, array: pa.Array):
        self.array = array if array.type == pa.binary() else array.cast(pa.binary())
        self.sizes: Int64s = np.diff(offsets_of(self.array)).astype(np.int64)
        self.are_null: Bools | None = None
        if array.null_count:
            self.are_null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
            self.sizes[self.are_null] = 0
        self.written = self.sizes.view(np.uint64) << np.uint64(1)
        if self.are_null is not None:
            self.written[self.are_null] = NULL_SIZE


def offsets_of(array: pa.BinaryArray) -> NDArray[np.int32]:
    """Return where values begin in their buffer, and the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def joined(*parts: pa.Array | bytes) -> pa.BinaryArray:
    """Join arrays row by row; null is nothing."""
    join = pc.binary_join_element_wise  # pyright: ignore[reportAttributeAccessIssue]  # made when it is imported
    return join(*parts, b"", null_handling="replace", null_replacement=b"")


def headers_array(headers: pa.ListArray) -> pa.BinaryArray:
    """Return the headers of each row as they stand in its record, with their count in front."""
    counts = headers.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    keys, values = headers.flatten().flatten()
    if keys.null_count:
        raise EncodeError("a header has no key: each has one, only its value may be null", "headers")
    names, contents = Part(keys), Part(values)
    each = joined(sizes_array(names.written), names.array, sizes_array(contents.written), contents.array)
    ends = offsets_of(each)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    buffers = [None, pa.py_buffer(ends[offsets]), each.buffers()[2]]
    together = pa.Array.from_buffers(pa.binary(), len(counts), buffers)
    return joined(sizes_array(counts.view(np.uint64) << np.uint64(1)), together)


def sizes_array(written: UInt64s) -> pa.BinaryArray:
    """Return numbers as values of Arrow."""
    front = Front(len(written))
    front.add(written)
    return front.array()
