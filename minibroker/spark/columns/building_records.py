"""v2 records laid out side by side: what stands in front of keys and values is made by numpy, Arrow copies the rest.

    size, attributes, time, offset, key size | key | value size | value | headers        a record
    `---------------- front ---------------´       `- middle -´         `-tail -´        arrays that are made here

A front is a number of at most 12 bytes, nearly always, which is what a view of Arrow holds in itself; one that is
longer, and the header of a batch before its first record, lie in a buffer that the view points to. Arrow then joins the
five arrays row by row: a key or value is copied once, and what comes out is one buffer with all records.
What must hold: the bytes are those of build.py.
Not here: which record belongs to which batch, what is in the header of a batch (column_building.py).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from minibroker.errors import EncodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.spark.columns.varints import Bools, Int64s

    UInt64s = NDArray[np.uint64]

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
        raise EncodeError("a header has no key", "headers")
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
