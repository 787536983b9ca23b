"""Numbers read at many places of one buffer at once.

`BufferView` is a buffer as numpy sees it: as bytes, and as numbers that begin at every byte. Varints of one and two
bytes, nearly all there are, come out of a table with two bytes as the index; the rest is done byte by byte, still side
by side.
What must hold: a place behind the end is no error but a zero, so who reads must compare where reading ended with where
it had to end. Places only grow while a record is read, so one comparison at its end finds whatever ran over.
Not here: what the numbers mean (rows.py).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minibroker.schema.plan import VARINTS

Int64s = NDArray[np.int64]

Bools = NDArray[np.bool_]


PAIR_BYTES, WORD_BYTES = 2, 8
BYTES_MIN = 256  # a buffer is at least so long, so that every kind of number has a place in it


class BufferView:
    """A buffer, read at many places at once; `size` is how much of it counts."""

    __slots__ = ("bytes", "memory", "pairs", "size", "words")

    def __init__(self, buffer: bytes | memoryview):
        self.size = len(buffer)
        if self.size < BYTES_MIN:
            buffer = bytes(buffer) + bytes(BYTES_MIN - self.size)
        self.memory = buffer
        self.bytes: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        self.pairs: NDArray[np.uint16] = self.numbers("<u2")
        self.words: Int64s = self.numbers("<i8")

    def numbers(self, format: Any) -> NDArray[Any]:
        """Return an array whose item n is the number, or the struct, that begins at byte n. Nothing is copied."""
        dtype = np.dtype(format)
        return np.ndarray((len(self.bytes) - dtype.itemsize + 1,), dtype, self.memory, strides=(1,))

    def at(self, format: Any, places: Int64s) -> NDArray[Any]:
        """Return the numbers or structs at these places; they must lie within the buffer."""
        return self.numbers(format)[places]

    def bytes_at(self, places: Int64s) -> NDArray[np.uint8]:
        """Return the byte at each place, zeros behind the end."""
        last = len(self.bytes) - 1
        if not places.size or places.max() <= last:
            return self.bytes[places]
        return np.where(places <= last, self.bytes[np.minimum(places, last)], np.uint8(0))

    def words_at(self, places: Int64s) -> Int64s:
        """Return eight bytes from each place on, the first in the lowest bits, zeros behind the end."""
        last = len(self.bytes) - WORD_BYTES
        if not places.size or places.max() <= last:
            return self.words[places]
        missing = np.clip(places - last, 0, WORD_BYTES - 1) * 8
        found = self.words[np.minimum(places, last)].view(np.uint64) >> missing.view(np.uint64)
        return np.where(places < len(self.bytes), found.view(np.int64), 0)

    def pairs_at(self, places: Int64s) -> NDArray[np.uint16]:
        """Return two bytes from each place on, zeros behind the end."""
        last = len(self.bytes) - PAIR_BYTES
        if not places.size or places.max() <= last:
            return self.pairs[places]
        found = self.pairs[np.minimum(places, last)]
        at_last = places == last + 1
        found[at_last] = self.bytes[-1]
        found[places > last + 1] = 0
        return found


def varints(buffer: BufferView, places: Int64s, type: str, wrong: Bools) -> tuple[Int64s, Int64s]:
    """Read a zigzag varint at each place; return the values and the places behind them.

    type: Varint, Varlong or SizeVarint. Where a varint is too long or too large, `wrong` is set.
    """
    entries = short_varints()[buffer.pairs_at(places)]
    sizes = entries & SIZE_MASK
    values = (entries >> SIZE_BITS).astype(np.int64)
    behind = places + sizes
    if not sizes.all():
        longer = np.flatnonzero(sizes == 0)
        values[longer], behind[longer], failed = _long_varints(buffer, places[longer], VARINTS[type])
        wrong[longer[failed]] = True
    return values, behind


SIZE_BITS = 2
SIZE_MASK = (1 << SIZE_BITS) - 1


@cache
def short_varints() -> NDArray[np.int32]:
    """Return for every two bytes the value of the varint they begin with and, in the low bits, how many bytes it takes.

    0 bytes where it takes more than two.
    """
    pairs = np.arange(1 << 16, dtype=np.int32)
    first, second = pairs & 0xFF, pairs >> 8
    is_one = first < 0x80
    plain = np.where(is_one, first, first & 0x7F | second << 7)
    values = (plain >> 1) ^ -(plain & 1)
    sizes = np.where(is_one, 1, np.where(second < 0x80, 2, 0))
    return np.asarray(np.where(sizes > 0, values << SIZE_BITS | sizes, 0), np.int32)


def _long_varints(buffer: BufferView, places: Int64s, bytes_max: int) -> tuple[Int64s, Int64s, Bools]:
    """Read varints of any length; return also which are none."""
    words = buffer.words_at(places).view(np.uint64)
    # The lowest byte without its top bit is the last one; what is above it does not belong to the number.
    tops = ~words & np.uint64(0x8080808080808080)
    last_bit = tops & (~tops + np.uint64(1))
    words &= (last_bit << np.uint64(1)) - np.uint64(1)
    total = np.zeros(len(places), np.uint64)
    sizes = np.zeros(len(places), np.int64)
    for index in range(min(bytes_max, WORD_BYTES)):
        shift = np.uint64(8 * index)
        total |= (words >> shift & np.uint64(0x7F)) << np.uint64(7 * index)
        sizes[last_bit >> shift == 0x80] = index + 1
    if bytes_max == 5:
        wrong = (sizes == 0) | (total >> np.uint64(32) > 0)
    else:
        longer = np.flatnonzero(sizes == 0)
        wrong = np.zeros(len(places), np.bool_)
        ninth, tenth = (buffer.bytes_at(places[longer] + index).astype(np.uint64) for index in (8, 9))
        has_tenth = ninth >= 0x80
        total[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56) | np.where(has_tenth, tenth, 0) << np.uint64(63)
        sizes[longer] = 9 + has_tenth
        wrong[longer] = has_tenth & (tenth > 1)
    sizes[wrong] = bytes_max
    values = (total >> np.uint64(1)).view(np.int64) ^ -(total & np.uint64(1)).view(np.int64)
    return values, places + sizes, wrong
