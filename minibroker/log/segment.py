"""One segment: a file of batches and its indexes.

    00000000000000000000.log   .index   .timeindex   .txnindex      the number is the base offset

What must hold: the file holds whole batches with rising offsets, the first at or above the base offset; an index entry
points at a batch. Appending trusts its caller: offsets have been assigned and bytes checked (validate.py).
Positions are bytes in the file, offsets those of records.
Not here: when to begin a new segment (partition_log.py), what to do after a crash (recovery.py).
"""

from __future__ import annotations

from struct import Struct as Layout

from minibroker.errors import CorruptCrc, InvalidLength, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.formats import HEADER_BYTES, MESSAGE_BYTES_MIN, PREFIX_BYTES
from minibroker.log.index import NO_TIMESTAMP, OffsetIndex, TimeIndex, TransactionIndex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minibroker.log.storage import Chunk, File, Storage

OFFSET_DELTA_MAX = 0x7FFFFFFF  # relative offsets are int32
SCAN_BYTES = 16 * 1024  # read at once while hopping: a few index intervals
MAP_BYTES_MIN = 256 * 1024  # from here on a mapping is cheaper than a copy

# Up to the last offset delta of a v2 batch: base offset, size, leader epoch, magic, crc, attributes, delta.
_HOP = Layout(">qiibIhi")


class Slice:
    """Some bytes of a segment, not read yet: for sendfile, or as a view."""

    __slots__ = ("position", "segment", "size_bytes")

    def __init__(self, segment: Segment, position: int, size_bytes: int):
        self.segment = segment
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def view(self) -> memoryview:
        """Return the bytes: a mapping of the file if they are many, a copy if they are few."""
        return self.segment.view(self.position, self.size_bytes)


class Appended:
    """What the indexes must know of a batch that goes into the log."""

    __slots__ = ("first_offset", "last_offset", "max_timestamp", "size_bytes")

    def __init__(self, first_offset: int, last_offset: int, max_timestamp: int, size_bytes: int):
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.size_bytes = size_bytes


class Segment:
    """A file of batches with its indexes; the files are opened when they are first needed."""

    def __init__(self, storage: Storage, directory: str, base_offset: int, created_ms: int = 0):
        self.storage = storage
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        name = self.path_of("")
        self.path = name + ".log"
        self._file: File | None = None
        self._map = memoryview(b"")
        self.size_bytes = storage.size_bytes(self.path)
        self.offset_index = OffsetIndex(storage, name + ".index", base_offset)
        self.time_index = TimeIndex(storage, name + ".timeindex", base_offset)
        self.transaction_index = TransactionIndex(storage, name + ".txnindex")
        # Of the batch with the largest timestamp: that timestamp, and the batch's last offset.
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, base_offset
        self.bytes_since_entry = 0
        self._first_timestamp: int | None = None

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020}{suffix}"

    def _opened(self) -> File:
        if self._file is None:
            self._file = self.storage.open(self.path, create=True)
        return self._file

    # Writing

    def append(self, chunks: Sequence[Chunk], added: Sequence[Appended], index_interval_bytes: int) -> None:
        """Append batches: their bytes in one write, then the index entries that fall due."""
        position = self.size_bytes
        self._opened().append(chunks)
        for batch in added:
            self.note(batch, position, index_interval_bytes)
            position += batch.size_bytes
        self.size_bytes = position

    def note(self, batch: Appended, position: int, index_interval_bytes: int) -> None:
        """Keep the indexes up with a batch at `position`."""
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = batch.max_timestamp
        # Kafka: up to 3.9 looks at this once per append call, 4.x once per batch; so do all rebuilds.
        if self.bytes_since_entry > index_interval_bytes:
            self.offset_index.add(batch.last_offset, position)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += batch.size_bytes

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that holds `offset` or more; return how many bytes went."""
        found = self.find(offset)
        position = found.position if found else self.size_bytes
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        cut_bytes = self.size_bytes - position
        if cut_bytes:
            self._map = memoryview(b"")
            self._opened().truncate(position)
            self.size_bytes = position
        self.load_max_timestamp()
        self.bytes_since_entry = 0
        if position == 0:
            self._first_timestamp = None
        return cut_bytes

    def seal(self) -> None:
        """End writing: the last timestamp goes into its index, files are cut to their length."""
        self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.trim()
        self.time_index.trim()

    def sync(self) -> None:
        for file in (self._opened(), self.offset_index, self.time_index, self.transaction_index):
            file.sync()

    def close(self) -> None:
        self._map = memoryview(b"")
        for file in (self._file, self.offset_index, self.time_index, self.transaction_index):
            if file is not None:
                file.close()
        self._file = None

    # Reading

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes of the file, at most up to its end."""
        size_bytes = min(size_bytes, self.size_bytes - position)
        if position + size_bytes > len(self._map):
            if size_bytes < MAP_BYTES_MIN:
                return memoryview(self._opened().read_at(position, size_bytes))
            self._map = self._opened().map()
        return self._map[position : position + size_bytes]

    def find(self, offset: int) -> Place | None:
        """Return the first batch that ends at `offset` or behind it; None if the segment ends before."""
        for place in self.hop(self.offset_index.position_before(offset)):
            if place.last_offset >= offset:
                return place
        return None

    def hop(self, position: int = 0) -> Iterator[Place]:
        """Go from batch to batch, looking only at where each begins and ends."""
        end, start, chunk = self.size_bytes, 0, memoryview(b"")
        while position < end:
            if end - position < MESSAGE_BYTES_MIN[0]:
                raise InvalidLength(f"{end - position} bytes are no batch", position, self.path)
            if not start <= position <= start + len(chunk) - _HOP.size:
                start = position
                chunk = self.view(position, SCAN_BYTES)
                if position + len(chunk) == end:
                    # What is read at once is a byte longer than the shortest message of v0.
                    chunk = memoryview(bytes(chunk) + b"\0")
            base_offset, size, _, magic, _, _, delta = _HOP.unpack_from(chunk, position - start)
            size_bytes = size + PREFIX_BYTES
            least = MESSAGE_BYTES_MIN[magic] if magic in (0, 1) else HEADER_BYTES
            if not least <= size_bytes <= end - position or not 0 <= magic <= 2:
                raise InvalidLength(f"size {size}, magic {magic} cannot be", position, self.path)
            yield Place(position, size_bytes, base_offset, base_offset + delta if magic == 2 else base_offset)
            position += size_bytes

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Go from batch to batch with whole headers, able to read records."""
        stop = self.size_bytes if end is None else end
        return batches(self.view(position, stop - position))

    def next_offset(self) -> int:
        """Return the offset behind the last record; the base offset if there is none."""
        last = None
        for place in self.hop(self.offset_index.position_before(self.offset_index.last_offset())):
            last = place
        return last.last_offset + 1 if last else self.base_offset

    def first_timestamp(self) -> int:
        """Return the timestamp by which the segment's age is judged: the largest of its first batch, or -1."""
        if self._first_timestamp is None and self.size_bytes:
            first = next(self.hop())
            (batch,) = batches(self.view(0, first.size_bytes))
            self._first_timestamp = batch.max_timestamp
        return NO_TIMESTAMP if self._first_timestamp is None else self._first_timestamp

    def load_max_timestamp(self) -> None:
        """Find the largest timestamp again: the last entry of its index, and what came behind it."""
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        position = self.offset_index.position_before(self.max_timestamp_offset)
        for batch in self.batches(position):
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset

    def check_batch(self, place: Place) -> Batch:
        """Return the batch at a place if its bytes are in order, else raise a ProtocolError that names the file."""
        try:
            (batch,) = batches(self.view(place.position, place.size_bytes), strict=True)
            batch.check_crc()
        except ProtocolError as error:
            error.position += place.position
            error.path = f"{self.path}: {error.path}"
            raise
        except ValueError:
            raise CorruptCrc("is not one batch", place.position, self.path) from None
        return batch


class Place:
    """Where a batch lies and which offsets it holds."""

    __slots__ = ("base_offset", "last_offset", "position", "size_bytes")

    def __init__(self, position: int, size_bytes: int, base_offset: int, last_offset: int):
        self.position = position
        self.size_bytes = size_bytes
        self.base_offset = base_offset  # of a v0 or v1 wrapper the last offset: nothing else is in front
        self.last_offset = last_offset

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes
