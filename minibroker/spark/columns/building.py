"""Record batches out of columns: the bytes that log/build.py makes of single records, with no step of Python for each.

    columns -> where batches begin -> records side by side -> headers of the batches -> checksums, codecs

    size, attributes, time, offset, key size | key | value size | value | headers        a record
    `---------------- front ---------------´       `- middle -´         `-tail -´        arrays that are made here

`build_batches` cuts rows into batches by bytes, as a producer does, and yields them in order. Arrow joins the five
arrays row by row, and before them the headers of batches, which stand before the first record of each: a key or value
is copied once, and what comes out is one buffer with all records.
What must hold: a batch has the same bytes as `build_batch` gives for its records. Without a codec a batch is at most
`batch_bytes` long, but for one that has a single record; a codec makes it shorter.
Not here: assigning partitions (partitions.py), files and requests.
Kafka: a producer guesses what a codec will make of a batch and takes more records into one; here bytes are counted
before compression, so that batches do not depend on what was sent before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def __init__(
        self, data: memoryview, first_row: int, count: int, max_timestamp: int, base_offset: int, section: int
    ):
        self.data = data  # views keep all batches of their group in memory
        self.first_row = first_row
        self.count = count
        self.max_timestamp = max_timestamp
        self.base_offset = base_offset
        self.section = section  # which one of those that were given

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
    numbers = np.repeat(np.arange(len(sections)), counts)
    for first, end in _grouped(sizes.tolist()):
        group = headers[first:end]
        laid_out, positions = _laid_out(cells, begins[first : end + 1], group, append_time)
        facts = (begins[first:end], group["count"], group["max_timestamp"], group["base_offset"], numbers[first:end])
        for index, told in enumerate(zip(*(column.tolist() for column in facts), strict=True)):
            data = laid_out[positions[index] : positions[index + 1]]
            if codec != NONE:
                records = compress(codec, data[HEADER_BYTES:], level=level)
                group["size"][index] = HEADER_BYTES - PREFIX_BYTES + len(records)
                data = memoryview(bytearray().join((group[index].tobytes(), records)))
            data[CRC_POSITION:COVERED_POSITION] = crc32c(data[COVERED_POSITION:]).to_bytes(4, "big")
            yield BuiltBatch(data, *told)


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


def _laid_out(
    cells: Cells, begins: Int64s, headers: NDArray[Any], append_time: int | None
) -> tuple[memoryview, list[int]]:
    """Return neighbouring batches as they will be, without checksums, and where each begins and the last ends.

    begins: their first rows, and the end of the last one's. headers: theirs, which are filled in.
    """
    first, end = int(begins[0]), int(begins[-1])
    counts, starts = np.diff(begins), begins[:-1] - first
    timestamps = cells.timestamps[first:end]
    bases = timestamps[starts]
    newest = np.maximum(np.maximum.reduceat(timestamps, starts), -1)
    time_deltas = zigzag(timestamps - np.repeat(bases, counts))
    offset_deltas = (np.arange(end - first) - np.repeat(starts, counts)).view(np.uint64) << np.uint64(1)
    bodies = cells.fixed[first:end] + varint_sizes(time_deltas) + varint_sizes(offset_deltas)
    written = bodies.view(np.uint64) << np.uint64(1)
    sizes = np.add.reduceat(bodies + varint_sizes(written), starts) + HEADER_BYTES
    headers["size"] = sizes - PREFIX_BYTES
    headers["last_offset_delta"] = counts - 1
    headers["base_timestamp"] = bases
    headers["max_timestamp"] = newest if append_time is None else append_time
    headers["count"] = counts
    zeros = np.broadcast_to(np.uint64(0), end - first)
    nulls = np.broadcast_to(np.uint64(NULL_SIZE), end - first)
    key_sizes = nulls if cells.key_sizes is None else cells.key_sizes[first:end]
    front = varint_array(written, zeros, time_deltas, offset_deltas, key_sizes)
    keys, values, tails = cells.arrays(first, end)
    middle = varint_array(cells.value_sizes[first:end])
    head_sizes = np.zeros(end - first, np.int64)
    head_sizes[starts] = HEADER_BYTES
    whole = joined(
        binary_array(head_sizes, headers.tobytes()), front, *(() if keys is None else (keys,)), middle, values, tails
    )
    positions = [0, *np.cumsum(sizes).tolist()]
    laid_out = memoryview(whole.buffers()[2]).cast("B")[: positions[-1]]
    assert not laid_out.readonly, "Arrow hands out what it has just made"
    return laid_out, positions


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


NULL_SIZE = 1  # the size of null, -1, as it is written


# Varints


def zigzag(numbers: Int64s) -> UInt64s:
    """Return signed numbers as varints write them."""
    return np.asarray(((numbers << 1) ^ (numbers >> 63)).view(np.uint64))


def varint_size(number: int) -> int:
    """Return how many bytes an unsigned varint takes."""
    return max(1, -(-number.bit_length() // 7))


def _largest(numbers: UInt64s) -> int:
    return int(numbers.max()) if len(numbers) else 0


def varint_sizes(numbers: UInt64s) -> Int64s:
    """Return how many bytes each unsigned varint takes."""
    sizes = np.ones(len(numbers), np.int64)
    for count in range(1, varint_size(_largest(numbers))):
        sizes += numbers >= np.uint64(1 << 7 * count)
    return sizes


def varint_array(*columns: UInt64s) -> pa.BinaryArray:
    """Return the unsigned varints of each row, one behind another, as values of Arrow."""
    count = len(columns[0])
    widths = [varint_size(_largest(numbers)) for numbers in columns]
    cells = np.empty((sum(widths), count), np.uint8)  # the first byte of each row, the second, ...
    are_there = np.ones(cells.shape, np.bool_)
    place = 0
    for numbers, width in zip(columns, widths, strict=True):
        for left in range(width - 1, -1, -1):
            np.copyto(cells[place], numbers, casting="unsafe")
            if left:
                numbers = numbers >> np.uint64(7)
                goes_on = np.greater(numbers, 0, out=are_there[place + 1])
                cells[place] &= 0x7F
                cells[place] |= goes_on.view(np.uint8) << 7
            place += 1
    return binary_array(np.count_nonzero(are_there, axis=0), cells.T[are_there.T])


def binary_array(sizes: Int64s, data: Any) -> pa.BinaryArray:
    """Return values that lie one behind another."""
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(ends), pa.py_buffer(data)])


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
    each = joined(varint_array(names.written), names.array, varint_array(contents.written), contents.array)
    ends = offsets_of(each)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    buffers = [None, pa.py_buffer(ends[offsets]), each.buffers()[2]]
    together = pa.Array.from_buffers(pa.binary(), len(counts), buffers)
    return joined(varint_array(counts.view(np.uint64) << np.uint64(1)), together)
