"""The sparse indexes beside a segment: from an offset or a timestamp to a place not far before it.

.index       offset -> byte position        8 bytes an entry: relative offset int32, position int32
.timeindex   timestamp -> offset           12 bytes an entry: timestamp int64, relative offset int32
.txnindex    transactions that were aborted 34 bytes an entry, in the order of their markers (stored/producers.py)

What must hold: both columns of both indexes rise (`OffsetIndex` strictly, `TimeIndex` at least), relative offsets count
from the base offset in the file's name. Sparse: a lookup is a floor and never an exact hit; who asks scans on from
there. An index is derived data: it can be thrown away and made again from the segment.

The active segment's files are as long as they may become, with zeros behind the last entry; `trim` cuts them. Files are
opened when they are first needed: a thousand idle partitions hold no handles.
Not here: when an entry is due (segment.py), rebuilding (recovery.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from struct import Struct as Layout

from minibroker.errors import InvalidLength, InvalidValue, ProtocolError
from minibroker.stored.producers import AbortedTxn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from minibroker.log.storage import File, Storage

OFFSET_ENTRY: Final = Layout(">ii")
TIME_ENTRY: Final = Layout(">qi")
TXN_ENTRY: Final = Layout(">hqqqq")
TXN_VERSION: Final = 0
PRODUCER_ID: Final = 1  # columns of .txnindex, behind the version: three of offsets
FIRST: Final = 2
LAST: Final = 3
LAST_STABLE: Final = 4
NO_TIMESTAMP: Final = -1
WINDOW_ENTRIES: Final = 256  # read at once


class _SparseIndex:
    """What both sparse indexes are: a file of entries of one size, searched without reading it all."""

    entry: Layout

    def __init__(self, storage: Storage, path: str, base_offset: int):
        self.storage = storage
        self.path = path
        self.base_offset = base_offset
        self._file: File | None = None
        self._window, self._window_start = b"", 0  # entries that were read last, and the number of the first
        self._count = -1  # not yet known: nothing is read before somebody asks

    @property
    def count(self) -> int:
        """How many entries there are."""
        if self._count < 0:
            self._count = self._count_entries()
        return self._count

    def _count_entries(self) -> int:
        """Find how many entries the file has: all, or if it is preallocated those before the zeros."""
        # A piece of an entry at the end is no entry; whoever appends writes over it.
        count = self.storage.size_bytes(self.path) // self.entry.size
        if count and self._is_zero(count - 1):
            # Entries rise, so none but the first can be zero before the end.
            count = bisect_left(range(count), True, lo=1, key=self._is_zero)
            if count == 1 and self._is_zero(0):
                count = 0
        return count

    def _count_below(self, column: int, value: int) -> int:
        """Return how many entries have less than `value` in a column, by binary search.

        The last steps are taken in a window, and that is kept: who reads on asks for what comes soon behind.
        """
        count = self.count
        if not count:
            return 0  # and leave a file that may not be there alone
        found = self._search_window(column, value)
        if found is not None:
            return found
        low, high = 0, count
        while high - low > WINDOW_ENTRIES:
            middle = (low + high) // 2
            if self.entry.unpack(self._bytes(middle))[column] < value:
                low = middle + 1
            else:
                high = middle
        # One before: it shows to the next search that what is looked for does not come earlier.
        low = max(low - 1, 0)
        self._window_start, self._window = low, self._read(low, min(WINDOW_ENTRIES + 1, count - low))
        return low + self._below_in_window(column, value)

    def _search_window(self, column: int, value: int) -> int | None:
        """Return how many entries are below a value, if the window can tell."""
        size_bytes, window = self.entry.size, self._window
        if not window:
            return None
        end = self._window_start + len(window) // size_bytes
        if self.entry.unpack_from(window)[column] >= value and self._window_start:
            return None
        if end < self.count and self.entry.unpack_from(window, len(window) - size_bytes)[column] < value:
            return None
        return self._window_start + self._below_in_window(column, value)

    def _below_in_window(self, column: int, value: int) -> int:
        entries, size_bytes, unpack_from = self._window, self.entry.size, self.entry.unpack_from
        count = len(entries) // size_bytes
        return bisect_left(range(count), value, key=lambda index: unpack_from(entries, index * size_bytes)[column])

    def _is_zero(self, index: int) -> bool:
        return not any(self._bytes(index))

    def _bytes(self, index: int) -> bytes:
        return self._read(index, 1)

    def _read(self, start: int, count: int) -> bytes:
        """Return entries; InvalidLength if they are not there any more: another program has cut the file."""
        size_bytes = self.entry.size
        data = self._opened().read_at(start * size_bytes, count * size_bytes)
        if len(data) < count * size_bytes:
            raise InvalidLength(f"ends before entry {start + count}", start * size_bytes + len(data), self.path)
        return data

    def _opened(self) -> File:
        if self._file is None:
            self._file = self.storage.open(self.path, create=True)
        return self._file

    def every(self, step: int) -> list[tuple[int, ...]]:
        """Return the first of each so many entries, as they are stored."""
        return [self.entry.unpack(self._bytes(index)) for index in range(0, self.count, step)]

    @property
    def open_file(self) -> File | None:
        """The file, if it is open."""
        return self._file

    def _forget(self) -> None:
        """What has been read of the file need not be so any more."""
        self._window = b""

    @property
    def exists(self) -> bool:
        return self.storage.exists(self.path)

    def preallocate(self, size_bytes: int) -> None:
        """Make the file as long as it may become, in whole entries; in memory that would only be a waste of it."""
        if not self.storage.is_durable:
            return
        self._opened().truncate(max(size_bytes // self.entry.size, self.count) * self.entry.size)

    def _add(self, entry: bytes) -> None:
        self._opened().write_at(self.count * self.entry.size, entry)
        self._count += 1

    def keep(self, count: int) -> None:
        """Forget all entries but the first `count`; a preallocated file has zeros in their place."""
        if count < self.count:
            file = self._opened()
            size_bytes = file.size_bytes
            self._forget()
            file.truncate(count * self.entry.size)
            if size_bytes > self.count * self.entry.size:
                file.truncate(size_bytes)
            self._count = count

    def holds(self, entries: bytes | bytearray) -> bool:
        """Return whether these are the entries."""
        try:
            return self.exists and self._read(0, self.count) == bytes(entries)
        except ProtocolError:
            return False

    def replace(self, entries: bytes | bytearray) -> bool:
        """Make these the entries; return whether they were not, for then they are to be synced."""
        if self.holds(entries):
            return False
        self._forget()
        self._opened().truncate(0)
        self._opened().append([entries])
        self._count = len(entries) // self.entry.size
        return True

    def trim(self) -> None:
        """Cut the file behind the last entry."""
        count = self.count
        self._forget()
        self._opened().truncate(count * self.entry.size)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        self._forget()
        if self._file is not None:
            self._file.close()
            self._file = None

    def check(self) -> None:
        """Raise unless the entries rise and none lies before the segment."""
        before: tuple[int, ...] = ()
        for index, entry in enumerate(self.entry.iter_unpack(self._read(0, self.count))):
            if entry[-2] < 0 or entry[-1] < 0 or (before and not self._rises(before, entry)):
                raise InvalidValue(f"entry {index} is {entry} behind {before}", index * self.entry.size, self.path)
            before = entry

    @staticmethod
    def _rises(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
        raise NotImplementedError


class OffsetIndex(_SparseIndex):
    """From an offset to the position of a batch at or before it. An entry names the LAST offset of its batch."""

    entry = OFFSET_ENTRY

    def add(self, last_offset: int, position: int) -> None:
        """Note where the batch lies that ends with `last_offset`."""
        self._add(OFFSET_ENTRY.pack(last_offset - self.base_offset, position))

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Return the last entry whose offset is not above `offset`: that offset and a position.

        The batch at the position, or one soon behind it, ends with exactly that offset; nothing else proves that the
        entry is right. Without such an entry the start of the segment: the offset before its base, and 0.
        """
        found = self._count_below(0, offset + 1 - self.base_offset)
        if not found:
            return self.base_offset - 1, 0
        relative, position = OFFSET_ENTRY.unpack(self._bytes(found - 1))
        return self.base_offset + relative, max(position, 0)  # below 0 is damage; from the start on all is found

    def offset_at(self, position: int) -> int | None:
        """Return the offset of the first entry that does not lie before `position`; None if all do."""
        found = self._count_below(1, position)
        return self.base_offset + self._relative(found) if found < self.count else None

    def truncate_to(self, offset: int) -> None:
        """Forget every entry that names `offset` or more."""
        self.keep(self._count_below(0, offset - self.base_offset))

    def last_offset(self) -> int:
        """Return the offset of the last entry; without entries the base offset."""
        return self.base_offset + (self._relative(self.count - 1) if self.count else 0)

    def entries(self) -> list[tuple[int, int]]:
        """Return every entry as offset and position."""
        unpacked = OFFSET_ENTRY.iter_unpack(self._read(0, self.count))
        return [(self.base_offset + relative, position) for relative, position in unpacked]

    def _relative(self, index: int) -> int:
        return int.from_bytes(self._bytes(index)[:4], "big")

    @staticmethod
    def _rises(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
        return entry[0] > before[0] and entry[1] > before[1]


class TimeIndex(_SparseIndex):
    """The largest timestamp so far and where it was, each time that it had grown."""

    entry = TIME_ENTRY
    _last: int | None = None  # timestamp of the last entry, if it has been looked at

    def _forget(self) -> None:
        super()._forget()
        self._last = None

    def add(self, timestamp: int, offset: int) -> None:
        """Note that `timestamp`, the largest so far, is that of the batch that ends with `offset`."""
        if self._last is None:
            try:
                self._last = self.last()[0]
            except InvalidLength:
                self._last = NO_TIMESTAMP  # who searches finds that out, and makes the index anew
        if timestamp > self._last:
            self._last = timestamp
            self._add(TIME_ENTRY.pack(timestamp, offset - self.base_offset))

    def last(self) -> tuple[int, int]:
        """Return timestamp and offset of the last entry; without entries none at the base offset."""
        return self._entry(self.count - 1) if self.count else (NO_TIMESTAMP, self.base_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry that is older than `timestamp`, as timestamp and offset: no record before is younger.

        Without such an entry none at the base offset.
        """
        found = self._count_below(0, timestamp)
        return self._entry(found - 1) if found else (NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget every entry that names `offset` or more."""
        self.keep(self._count_below(1, offset - self.base_offset))

    def entries(self) -> list[tuple[int, int]]:
        """Return every entry as timestamp and offset."""
        return [self._entry(index) for index in range(self.count)]

    def _entry(self, index: int) -> tuple[int, int]:
        timestamp, relative = TIME_ENTRY.unpack(self._bytes(index))
        return timestamp, self.base_offset + relative

    @staticmethod
    def _rises(before: tuple[int, ...], entry: tuple[int, ...]) -> bool:
        return entry[0] > before[0] and entry[1] >= before[1]


class TransactionIndex(_SparseIndex):
    """The transactions whose abort marker lies in this segment. Most segments have none, and then no file.

    There may be millions, so they stay in the file, and what is looked for is found by halves as in the other indexes:
    entries are in the order of their markers, and what was stable at each of them does not fall either.
    Whatever is handed out is compared with what precedes it, and so is what lies around the place where it begins.
    """

    entry = TXN_ENTRY

    def __init__(self, storage: Storage, path: str):
        super().__init__(storage, path, 0)
        self.is_trusted = False  # whether somebody has made sure that nothing is missing
        self._last_offset: int | None = None  # of the last entry, -1 without one; None: nobody has looked yet
        self._unwritten = b""  # entries that come behind those of the file: the disk has refused them

    def _count_entries(self) -> int:
        size_bytes = self.storage.size_bytes(self.path)
        if size_bytes % TXN_ENTRY.size:
            raise InvalidLength(f"{size_bytes} bytes are no whole number of entries", size_bytes, self.path)
        return size_bytes // TXN_ENTRY.size

    def add(self, aborted: AbortedTxn) -> None:
        """If the disk refuses it, it counts all the same, and is to be written later (`write`)."""
        count, last_offset = self.count, self._last_offset
        if last_offset is None:
            last = self._unwritten[-TXN_ENTRY.size :] or (self._bytes(count - 1) if count else b"")
            last_offset = TXN_ENTRY.unpack(last)[LAST] if last else -1
        if aborted.last_offset <= last_offset:
            raise InvalidValue(f"{aborted.last_offset} is not behind {last_offset}", 0, self.path)
        self._unwritten += stored_entry(aborted)
        self._last_offset = aborted.last_offset
        self.write()

    def write(self) -> None:
        """Write what the disk has refused so far, if anything."""
        if not self._unwritten:
            return
        file, count, entries, size_bytes = self._opened(), self.count, self._unwritten, TXN_ENTRY.size
        if file.size_bytes > count * size_bytes:
            file.truncate(count * size_bytes)  # a part of one
        file.append([entries])
        self._unwritten, self._count = b"", count + len(entries) // size_bytes
        if self._window_start + len(self._window) // size_bytes == count:
            # Consumers that keep up look at the end, and it is another one each time.
            self._window = (self._window + entries)[-(WINDOW_ENTRIES + 1) * size_bytes :]
            self._window_start = self._count - len(self._window) // size_bytes

    def between(self, start_offset: int, end_offset: int) -> tuple[bytes, bool]:
        """Return the entries that end at `start_offset` or behind, as they are stored, to be read by `rows`.

        Up to the first at which all before `end_offset` was stable: what comes later began behind that. And whether
        there is such a one.
        """
        first, entries, is_over = self._count_below(LAST, start_offset), b"", False
        if first < self.count:
            last = self._count_below(LAST_STABLE, end_offset)
            count, is_over = min(last + 1, self.count) - first, last < self.count
            if count > 0:
                entries = super()._read(first, count)
        if self._unwritten and not is_over:
            late = [row for row in self.rows(self._unwritten) if row[LAST] >= start_offset]
            entries += b"".join(TXN_ENTRY.pack(*row) for row in late)
            is_over = any(row[LAST_STABLE] >= end_offset for row in late)
        return entries, is_over

    def rows(self, entries: bytes, position: int = 0) -> Iterator[tuple[int, ...]]:
        """Yield what entries say, by columns; InvalidValue if they are not in order. position: in the file."""
        before = -1
        for row in TXN_ENTRY.iter_unpack(entries):
            version, _, first_offset, last_offset, _ = row
            if version != TXN_VERSION:
                raise InvalidValue(f"entry has version {version}", position, self.path)
            if not first_offset <= last_offset > before:
                raise InvalidValue(f"entry {row[1:]} is out of order", position, self.path)
            yield row
            before = last_offset
            position += TXN_ENTRY.size

    def _read(self, start: int, count: int) -> bytes:
        entries = super()._read(start, count)
        deque(self.rows(entries, start * TXN_ENTRY.size), 0)
        return entries

    def entries(self) -> list[AbortedTxn]:
        """Return what is in the file; broken content raises a ProtocolError."""
        entries = super()._read(0, self.count) if self.count else b""
        return [aborted_of(row) for row in self.rows(entries + self._unwritten)]

    def remove(self) -> None:
        """Remove the file, whatever is in it."""
        self.close()
        self.storage.remove(self.path)
        self._count, self._unwritten = 0, b""

    def replace(self, entries: bytes | bytearray) -> bool:
        self._unwritten = b""
        if entries:
            return super().replace(entries)
        had_entries = self.storage.size_bytes(self.path) > 0
        self.remove()
        return had_entries

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions that ended at `offset` or later."""
        kept = [row for row in self.rows(self._unwritten) if row[LAST] < offset]
        self._unwritten, self._last_offset = b"".join(TXN_ENTRY.pack(*row) for row in kept), None
        self.keep(self._count_below(LAST, offset))

    def sync(self) -> None:
        self.write()
        # What a process has written that is no more may not be on the disk either, and nobody has opened it since.
        if self.exists:
            self._opened().sync()

    def _forget(self) -> None:
        super()._forget()
        self._last_offset = None


def stored_entry(aborted: AbortedTxn) -> bytes:
    """Return an entry of .txnindex."""
    return TXN_ENTRY.pack(
        TXN_VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
    )


def aborted_of(row: tuple[int, ...]) -> AbortedTxn:
    """Return what an entry of .txnindex says."""
    _, producer_id, first_offset, last_offset, last_stable_offset = row
    return AbortedTxn(
        producer_id=producer_id,
        first_offset=first_offset,
        last_offset=last_offset,
        last_stable_offset=last_stable_offset,
    )
