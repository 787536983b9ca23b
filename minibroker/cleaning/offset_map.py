"""The offset map: key -> offset of its last record in the part of a log that is to be compacted, in bounded memory.

What one key takes, in bytes (CPython 3.11, 64 bits):

    key      its length and 33 more, in steps of 16: 48 up to a key of 15 bytes, 80 from 32 to 47; a digest 48
    offset   32
    table    30 to 60; it is doubled when it is two thirds full, and for a moment the old half is there too

All in all 120 to 160. 128 MiB x 0.9, the default, are 699,050 keys of any length: for more the table would have to be
doubled. Measured: 88 MB of memory with keys of 8 bytes, 111 with 36, no more in between.
Kafka: takes 24 for any key, so it has room for seven times as many. Tried: buckets of bytes, searched with `find`,
take 25 to 31, but 1.5 to 2.2 µs to put or to find a key instead of 0.3 to 0.4, and reading all else takes 0.6. So what
does not fit waits for the next pass, as it does there.
What must hold: `used_bytes` is never above bytes_max * load_factor, also while the table is doubled; no key is ever
lost or taken for another.
Not here: which batches count (transactions.py), what becomes of records (batch_filter.py).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice, repeat
from operator import gt
from sys import getsizeof

from minibroker.cleaning.keys import (
    CHUNK_RECORDS,
    EXACT_BYTES_MAX,
    NO_KEY,
    Unusual,
    chunks,
    map_key,
    stored_records,
    unpacked_records,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from minibroker.cleaning.keys import Chunk, MapKey
    from minibroker.log.batches import Batch

NOT_THERE = -1


class OffsetMap:
    """The last offset of each key below `end_offset`, from wherever the caller began."""

    def __init__(self, bytes_max: int, load_factor: float = 0.9):
        self.bytes_max = bytes_max  # log.cleaner.dedupe.buffer.size
        self._limit_bytes = int(bytes_max * load_factor)
        if self._limit_bytes < _table_bytes(_SLOTS_MIN) + ENTRY_BYTES_MAX:
            raise ValueError(
                f"an offset map of {bytes_max} bytes has no room for a single key, so nothing could ever be compacted: "
                "raise log.cleaner.dedupe.buffer.size"
            )
        self.clear()

    def clear(self) -> None:
        self._latest: dict[MapKey, int] = {}
        self._slots = _SLOTS_MIN  # of that table
        self._entries_bytes = 0  # what keys and offsets take, without the table
        self.end_offset = 0  # what is below is decided by the map (Kafka: latestOffset + 1)
        self.is_full = False  # a key did not fit

    @property
    def count(self) -> int:
        return len(self._latest)

    @property
    def used_bytes(self) -> int:
        """What the map takes in memory, counted."""
        return self._entries_bytes + _table_bytes(self._slots)

    def latest(self, key: bytes) -> int:
        """Return the last offset of a key, -1 if it is not there."""
        return self._latest.get(map_key(key), NOT_THERE)

    def superseded(self, keys: list[MapKey], offsets: list[int]) -> list[bool]:
        """Return of each of some records whether its key comes again; keys as `map_key` gives them."""
        return list(map(gt, map(self._latest.get, keys, repeat(NOT_THERE)), offsets))

    def put(self, key: bytes, offset: int) -> bool:
        """Note the last offset of a key, offsets rising; return False, and be full, if there is no room for it."""
        return self._put(map_key(key), offset)

    def cover(self, end_offset: int) -> None:
        """Note that up to here nothing has a key: a gap, a marker, what was aborted."""
        self.end_offset = max(self.end_offset, end_offset)

    def take(self, batch: Batch, start_offset: int = 0) -> Generator[None, None, None]:
        """Put the keys of a batch's records from `start_offset` on; yield after every 128 records.

        When the map gets full it ends behind the last record that had room, maybe within the batch.
        """
        if batch.magic == 2:
            try:
                data = (yield from unpacked_records(batch)) if batch.codec else stored_records(batch)
                for chunk in chunks(batch, data):
                    if not self._take_chunk(chunk, start_offset):
                        return
                    yield
                self.cover(batch.next_offset)
                return
            except Unusual:
                pass  # what is in the map already comes once more, with the same offsets
        for index, record in enumerate(batch.records(), 1):
            if record.key is not None and record.offset >= start_offset and not self.put(record.key, record.offset):
                return
            if index % CHUNK_RECORDS == 0:
                yield
        self.cover(batch.next_offset)

    def _take_chunk(self, chunk: Chunk, start_offset: int) -> bool:
        keys, offsets = chunk.keys, chunk.offsets
        if offsets[0] < start_offset:
            first = bisect_left(offsets, start_offset)
            keys, offsets = keys[first:], offsets[first:]
        pairs: Iterable[tuple[MapKey, int]] = zip(keys, offsets, strict=True)
        if chunk.has_keyless:
            pairs = [pair for pair in pairs if pair[0] != NO_KEY]
        if not self._has_room(len(keys)):
            return all(self._put(key, offset) for key, offset in pairs)
        count_before = len(self._latest)
        self._latest.update(pairs)
        self._count_new(len(self._latest) - count_before)
        return True

    def _put(self, key: MapKey, offset: int) -> bool:
        is_new = key not in self._latest
        if is_new and not self._has_room(1):
            self.is_full = True
            return False
        self._latest[key] = offset
        if is_new:
            self._count_new(1)
        self.cover(offset + 1)
        return True

    def _has_room(self, count: int) -> bool:
        """Return whether so many new keys fit for sure, with a table that may have to be doubled for them."""
        slots = _slots_for(len(self._latest) + count, self._slots)
        table_bytes = _table_bytes(slots) + (_table_bytes(slots >> 1) if slots > self._slots else 0)
        return self._entries_bytes + count * ENTRY_BYTES_MAX + table_bytes <= self._limit_bytes

    def _count_new(self, count: int) -> None:
        """Count the memory of the keys that came last: a dictionary keeps them in their order."""
        if count:
            keys_bytes = sum(map(getsizeof, islice(reversed(self._latest), count)))
            self._entries_bytes += keys_bytes + count * (OFFSET_BYTES + _ALIGNED - 1)
            self._slots = _slots_for(len(self._latest), self._slots)


_ALIGNED = 16  # addresses of objects, so at most 15 bytes are lost between two
OFFSET_BYTES = 32  # of a number up to 2**60
ENTRY_BYTES_MAX = getsizeof(bytes(EXACT_BYTES_MAX)) + _ALIGNED - 1 + OFFSET_BYTES

_SLOTS_MIN = 8


def _slots_for(count: int, slots: int) -> int:
    """Return how many slots a dictionary has that has been given `count` keys; it had `slots`."""
    while count > slots * 2 // 3:
        slots *= 2
    return slots


def _table_bytes(slots: int) -> int:
    """Return what the table takes: of each entry hash, key and value, of each slot the number of its entry."""
    return 128 + slots * 2 // 3 * 24 + slots * (1 if slots < 1 << 8 else 2 if slots < 1 << 16 else 4)
