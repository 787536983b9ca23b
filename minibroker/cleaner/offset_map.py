"""The offset map: key -> offset of its last record in the part of a log that is to be compacted, in bounded memory.

Few keys, up to 43,690, are in a dictionary; that is fastest. What one of them takes there, in bytes (CPython 3.11):

    key      its length and 33 more, in steps of 16: 48 up to a key of 15 bytes, 80 from 32 to 47; a digest 48
    offset   32
    table    30 to 60; it is doubled when it is two thirds full, and for a moment the old half is there too

More are in a table of slots (key_table.py), 25.5 bytes for each; it grows fourfold when it is 0.6 full, the old one
beside the new, and is full at 0.8. All keys move in pieces, between which others have their turn. An eighth of the
memory is for marks of what stays (survivors.py). 128 MiB x 0.9, the default, are 2.2 million keys of any length.
Kafka: takes 24 for any key, and has its whole table from the beginning, so it has room for 5 million. What does not fit
waits for the next pass, as it does there.
What must hold: `used_bytes` is never above bytes_max * load_factor, also while all keys move; no key is ever lost, or
taken for another whose digest of 128 bits is not the same; what is full and when depends on no hash.
Not here: which batches count (transactions.py), what becomes of records (batch_filter.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress, islice, repeat
from operator import gt
from sys import getsizeof

from minibroker.cleaner.key_table import PIECE_SLOTS, SLOT_BYTES, KeyTable, can_be_trusted
from minibroker.cleaner.keys import (
    CHUNK_RECORDS,
    CHUNK_US,
    EXACT_BYTES_MAX,
    NO_KEY,
    Chunk,
    MapKey,
    Unusual,
    chunks,
    map_key,
    read_dense_keys,
    stored_records,
    unpacked_records,
)
from minibroker.cleaner.survivors import Survivors
from minibroker.log.batches import Batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces


NOT_THERE = -1


class OffsetMap:
    """The last offset of each key below `end_offset`, from wherever the caller began."""

    def __init__(self, bytes_max: int, load_factor: float = 0.9):
        self.bytes_max = bytes_max  # log.cleaner.dedupe.buffer.size
        limit_bytes = int(bytes_max * load_factor)
        least_bytes = _table_bytes(_SLOTS_MIN) + ENTRY_BYTES_MAX
        self._marks_bytes_max = min(limit_bytes >> 3, limit_bytes - least_bytes)
        self._keys_bytes_max = limit_bytes - self._marks_bytes_max
        if limit_bytes < least_bytes:
            raise ValueError(
                f"an offset map of {bytes_max} bytes has no room for a single key, so nothing could ever be compacted: "
                "raise log.cleaner.dedupe.buffer.size"
            )
        self.clear()

    def clear(self) -> None:
        self._few: dict[MapKey, int] = {}
        self._slots = _SLOTS_MIN  # of that dictionary
        self._entries_bytes = 0  # what its keys and offsets take
        self._many: KeyTable | None = None  # in its place
        self._many_count = 0
        self._moving_bytes = 0  # what is about to take the place of what is there
        self.survivors = Survivors(self._marks_bytes_max)
        self.end_offset = 0  # what is below is decided by the map (Kafka: latestOffset + 1)
        self.is_full = False  # a key did not fit

    @property
    def count(self) -> int:
        return self._many_count if self._many else len(self._few)

    @property
    def used_bytes(self) -> int:
        """What the map takes in memory, counted."""
        return self._keys_bytes + self._moving_bytes + self.survivors.used_bytes

    @property
    def _keys_bytes(self) -> int:
        return self._many.used_bytes if self._many else self._entries_bytes + _table_bytes(self._slots)

    def latest(self, key: bytes) -> int:
        """Return the last offset of a key, -1 if it is not there."""
        return self._latest(map_key(key))

    def _latest(self, key: MapKey) -> int:
        return self._many.offsets((key,))[0] if self._many else self._few.get(key, NOT_THERE)

    def superseded(self, keys: list[MapKey], offsets: list[int]) -> list[bool]:
        """Return of each of some records whether its key comes again; keys as `map_key` gives them."""
        latest = self._many.offsets(keys) if self._many else map(self._few.get, keys, repeat(NOT_THERE))
        return list(map(gt, latest, offsets))

    def put(self, key: bytes, offset: int) -> bool:
        """Note the last offset of a key, offsets rising; return False, and be full, if there is no room for it."""
        return self._put(map_key(key), offset)

    def cover(self, end_offset: int) -> None:
        """Note that up to here nothing has a key: a gap, a marker, what was aborted."""
        self.end_offset = max(self.end_offset, end_offset)

    def take(self, batch: Batch, start_offset: int = 0) -> InPieces[None]:
        """Put the keys of a batch's records from `start_offset` on; yield after every 128 records.

        When the map gets full it ends behind the last record that had room, maybe within the batch.
        """
        if batch.magic == 2:
            try:
                yield from self._take_keys(batch, start_offset)
                return
            except Unusual:
                pass  # what is in the map already comes once more, with the same offsets
        for index, record in enumerate(batch.records(), 1):
            if record.key is not None and record.offset >= start_offset:
                if self._is_tight(1):
                    yield from self._grow()
                if not self.put(record.key, record.offset):
                    return
            if index % CHUNK_RECORDS == 0:
                yield CHUNK_US
        self.cover(batch.next_offset)

    def _take_keys(self, batch: Batch, start_offset: int) -> InPieces[None]:
        """Take a batch of format v2."""
        data = (yield from unpacked_records(batch)) if batch.codec else stored_records(batch)
        if batch.base_offset >= start_offset and batch.base_offset + batch.count == batch.next_offset:
            try:
                yield from self._take_dense(batch, data)
                return
            except Unusual:
                pass
        for chunk in chunks(batch, data):
            if self._is_tight(len(chunk.keys)):
                yield from self._grow()
            if not self._take_chunk(chunk, start_offset):
                return
            yield CHUNK_US
        self.cover(batch.next_offset)

    def _take_dense(self, batch: Batch, data: bytes) -> InPieces[None]:
        """Take a batch all of whose records have keys, and offsets that follow each other; else raise Unusual."""
        base_offset, end, position = batch.base_offset, batch.count, 0
        tombstones: list[int] = []
        for first in range(0, end, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, end - first)
            keys, position = read_dense_keys(data, position, first, count, tombstones)
            if self._is_tight(count):
                yield from self._grow()
            if not self._put_all(keys, range(base_offset + first, base_offset + first + count)):
                return
            yield CHUNK_US
        if position != len(data):
            raise Unusual
        self.survivors.note(batch, tombstones)
        self.cover(batch.next_offset)

    def _take_chunk(self, chunk: Chunk, start_offset: int) -> bool:
        keys, offsets = chunk.keys, chunk.offsets
        if offsets[0] < start_offset:
            first = bisect_left(offsets, start_offset)
            keys, offsets = keys[first:], offsets[first:]
        if chunk.has_keyless:
            has_key = [key != NO_KEY for key in keys]
            keys, offsets = list(compress(keys, has_key)), list(compress(offsets, has_key))
        return self._put_all(keys, offsets)

    def _put_all(self, keys: list[MapKey], offsets: Sequence[int]) -> bool:
        if not self._has_room(len(keys)):
            return all(map(self._put, keys, offsets))
        if self._many:
            self._many_count += self._many.put(keys, offsets)
        else:
            count_before = len(self._few)
            self._few.update(zip(keys, offsets, strict=True))
            self._count_new(len(self._few) - count_before)
        return True

    def _put(self, key: MapKey, offset: int) -> bool:
        if self._is_tight(1):
            deque(self._grow(), 0)
        if not self._has_room(1) and self._latest(key) == NOT_THERE:
            self.is_full = True
            return False
        if self._many:
            self._many_count += self._many.put((key,), (offset,))
        else:
            count_before = len(self._few)
            self._few[key] = offset
            self._count_new(len(self._few) - count_before)
        self.cover(offset + 1)
        return True

    def _has_room(self, count: int) -> bool:
        """Return whether so many new keys fit for sure, with a dictionary that may have to be doubled for them."""
        if self._many:
            return self._many_count + count <= self._many.slots * _FILL_MAX
        slots = _slots_for(len(self._few) + count, self._slots)
        table_bytes = _table_bytes(slots) + (_table_bytes(slots >> 1) if slots > self._slots else 0)
        return self._entries_bytes + count * ENTRY_BYTES_MAX + table_bytes <= self._keys_bytes_max

    def _count_new(self, count: int) -> None:
        """Count the memory of the keys that came last: a dictionary keeps them in their order."""
        if count:
            keys_bytes = sum(map(getsizeof, islice(reversed(self._few), count)))
            self._entries_bytes += keys_bytes + count * (OFFSET_BYTES + _ALIGNED - 1)
            self._slots = _slots_for(len(self._few), self._slots)

    # From few keys to many

    def _is_tight(self, count: int) -> bool:
        """Return whether so many new keys should find a larger table, and one is to be had."""
        if self._many:
            return self._many_count + count > self._many.slots * _FILL and self._more_slots() > 0
        return len(self._few) + count > FEW_KEYS_MAX and self._more_slots() > 0

    def _more_slots(self) -> int:
        """Return how many slots the next table may have beside what is there now; 0 if that would hardly be more."""
        if not can_be_trusted:
            return 0
        slots = self._many.slots if self._many else FEW_KEYS_MAX
        more = min(slots * 4, int((self._keys_bytes_max - self._keys_bytes) / SLOT_BYTES) - 16)
        return more if more >= slots * 3 // 2 else 0

    def _grow(self) -> Iterator[int]:
        """Move all keys into a larger table; yield after each piece."""
        more = KeyTable(self._more_slots())
        self._moving_bytes = more.used_bytes
        count = self.count
        yield from more.clear()
        if self._many:
            yield from self._many.move(more)
        else:
            few = self._few
            while few:
                some = [few.popitem() for _ in range(min(len(few), CHUNK_RECORDS))]  # all at once would take longer
                more.put([key for key, _ in some], [offset for _, offset in some])
                yield CHUNK_US
        self._few, self._many, self._many_count, self._moving_bytes = {}, more, count, 0

    # From the first reading to the second

    def settle(self) -> InPieces[None]:
        """Mark what stays, when all has been taken; yield after each piece."""
        if self._many:
            pieces = self._many.all_offsets()
        else:
            last_offsets = iter(self._few.values())
            pieces = iter(lambda: list(islice(last_offsets, PIECE_SLOTS)), [])
        for piece in pieces:
            self.survivors.settle(piece)
            yield CHUNK_US
        self.survivors.is_settled = True


_ALIGNED = 16  # addresses of objects, so at most 15 bytes are lost between two
OFFSET_BYTES = 32  # of a number up to 2**60
ENTRY_BYTES_MAX = getsizeof(bytes(EXACT_BYTES_MAX)) + _ALIGNED - 1 + OFFSET_BYTES

_SLOTS_MIN = 8
FEW_KEYS_MAX = 43_690  # as many as 65,536 slots have room for: doubled for more, it would hold the loop for too long
_FILL, _FILL_MAX = 0.6, 0.8  # how full a table may be: before it grows, and when it cannot


def _slots_for(count: int, slots: int) -> int:
    """Return how many slots a dictionary has that has been given `count` keys; it had `slots`."""
    while count > slots * 2 // 3:
        slots *= 2
    return slots


def _table_bytes(slots: int) -> int:
    """Return what the table takes: of each entry hash, key and value, of each slot the number of its entry."""
    return 128 + slots * 2 // 3 * 24 + slots * (1 if slots < 1 << 8 else 2 if slots < 1 << 16 else 4)
