"""Which records of the dirty part stay, by their offsets: a byte for each, noted while the offset map is filled.

The last offsets that are in the map at the end of the first reading are the records that stay. With these marks the
second reading needs neither keys nor map: batches of which all or nothing stays are not even unpacked.
What must hold: marks are given only for batches whose records have all been put into the map, each with the offset that
its place says; nothing is known of any other, nor before all is settled. What has no room is not known either, and is
looked up by key.
Not here: the map (offset_map.py), what becomes of a batch (batch_filter.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from minibroker.log.batches import Batch

STAYS, TOMBSTONE, UNKNOWN = 1, 2, 0x80  # bits
PAGE_BYTES = 128 * 1024  # one array that grows to many megabytes would hold the loop when it is moved
GAP_MAX = 256  # offsets without known batch that are worth filling


class Survivors:
    """Marks in pages, each of which has those of some neighbouring batches."""

    def __init__(self, bytes_max: int):
        self.bytes_max = bytes_max
        self.is_settled = False
        self._starts: list[int] = []  # the first offset of each page
        self._pages: list[bytearray] = []
        self._full_bytes = 0  # of all but the last

    @property
    def used_bytes(self) -> int:
        return self._full_bytes + (_allocated(self._pages[-1]) if self._pages else 0)

    def note(self, batch: Batch, tombstones: Iterable[int]) -> None:
        """Note that the map has all records of a batch; `tombstones` are places of those without value."""
        base_offset, gap = batch.base_offset, 0
        if self._pages:
            gap = base_offset - self._starts[-1] - len(self._pages[-1])
            if gap < 0:
                return
        marks = self._pages[-1] if self._pages and gap <= GAP_MAX else bytearray()
        if len(marks) >= PAGE_BYTES:
            marks = bytearray()
        size_bytes = len(marks) + gap * bool(marks) + batch.count
        others_bytes = self._full_bytes if marks else self.used_bytes
        if others_bytes + size_bytes + (size_bytes >> 3) + _PAGE_COST_BYTES > self.bytes_max:
            return
        if marks:
            marks += bytes((UNKNOWN,)) * gap
        else:
            self._full_bytes = others_bytes
            self._starts.append(base_offset)
            self._pages.append(marks)
        start = len(marks)
        marks += bytes(batch.count)
        for place in tombstones:
            marks[start + place] = TOMBSTONE

    def settle(self, last_offsets: Iterable[int]) -> None:
        """Mark what stays: some of the offsets in the map."""
        starts, pages = self._starts, self._pages
        for offset in last_offsets:
            number = bisect_right(starts, offset) - 1
            if number >= 0:
                place = offset - starts[number]
                marks = pages[number]
                if place < len(marks):
                    marks[place] |= STAYS

    def find_marks(self, batch: Batch) -> bytes | None:
        """Return a mark for each record of a batch; None if nothing is known of it."""
        base_offset = batch.base_offset
        number = bisect_right(self._starts, base_offset) - 1
        if number < 0 or not self.is_settled:
            return None
        start, marks = base_offset - self._starts[number], self._pages[number]
        if start >= len(marks) or marks[start] & UNKNOWN:
            return None
        return bytes(marks[start : start + batch.count])


def _allocated(page: bytearray) -> int:
    return page.__alloc__() + _PAGE_COST_BYTES


_PAGE_COST_BYTES = 128  # of the object and its places in the lists, and what an array may have to spare
