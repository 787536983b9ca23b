"""One segment: a file of batches and its indexes.

    00000000000000000000.log   .index   .timeindex   .txnindex      the number is the base offset

A suffix behind all of these names says that the segment is not, or no more, one of its log's:
    .cleaned   cleaning writes it      .swap   whole, about to take the place of others      .deleted   soon to go

What must hold: the file holds whole batches with rising offsets, the first at or above the base offset; an index entry
points at a batch. Appending trusts its caller: offsets have been assigned and bytes checked (validate.py).
Positions are bytes in the file, offsets those of records.
Not here: when to begin a new segment (partition_log.py), what to do after a crash (recovery.py).
"""

from __future__ import annotations

from struct import Struct as Layout
from weakref import ref

from minibroker.errors import CorruptCrc, InvalidLength, ProtocolError, StorageError
from minibroker.in_pieces import Pace, finish
from minibroker.log.batches import Batch, batches
from minibroker.log.formats import HEADER_BYTES, MESSAGE_BYTES_MIN, PREFIX_BYTES
from minibroker.log.index import (
    NO_TIMESTAMP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)
from minibroker.log.shared_file import OpenSlice, SharedFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence
    from typing import Final, TypeAlias, TypeVar

    from minibroker.in_pieces import InPieces
    from minibroker.log.storage import Chunk, File, Storage
    from minibroker.log.validate import AcceptedBatch

    T = TypeVar("T")

    Added: TypeAlias = Batch | AcceptedBatch  # to the log

KINDS: Final = ".log", ".index", ".timeindex", ".txnindex"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
# BASE.END.rolled.deleted: when the segment BASE began, the log ended with offset END, and that was not yet on the disk.
# Kafka removes what is called so when it opens a log: of what others wrote, nobody can know it any more.
ROLLED: Final = ".rolled.deleted"
OFFSET_DELTA_MAX: Final = 0x7FFFFFFF  # relative offsets are int32
OFFSET_MAX: Final = (1 << 63) - 1
SCAN_BYTES: Final = 4 * 1024  # read at once while hopping: an index interval
INDEX_INTERVAL_BYTES: Final = 4096
READ_BYTES: Final = 1 << 20  # read at once while whole batches are looked at; more if one is larger

# Up to the last offset delta of a v2 batch: base offset, size, leader epoch, magic, crc, attributes, delta.
_HOP: Final = Layout(">qiibIhi")


class Place:
    """Where a batch lies and which offsets it holds: what its first bytes say."""

    __slots__ = ("base_offset", "last_offset", "position", "size_bytes")

    def __init__(self, position: int, size_bytes: int, base_offset: int, last_offset: int):
        self.position = position
        self.size_bytes = size_bytes
        self.base_offset = base_offset  # of a v0 or v1 wrapper the last offset: nothing else is in front
        self.last_offset = last_offset

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


class Slice:
    """Some bytes of a segment, not read yet."""

    __slots__ = ("position", "segment", "size_bytes")

    def __init__(self, segment: Segment, position: int, size_bytes: int):
        self.segment = segment
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def view(self) -> memoryview:
        """Return the bytes: a copy, unless they are in memory."""
        return self.segment.view(self.position, self.size_bytes)

    def open(self) -> OpenSlice:
        """Return the bytes to be read later; StorageError if they are not all there now."""
        return OpenSlice(self.segment.share(), self.position, self.size_bytes)


class Segment:
    """A file of batches with its indexes; the files are opened when they are first needed."""

    def __init__(self, storage: Storage, directory: str, base_offset: int, created_ms: int = 0, suffix: str = ""):
        self.storage = storage
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.suffix = suffix
        self.path = self.path_of(".log")
        self._file: File | None = None
        self._shared: ref[SharedFile] | None = None  # by answers; its file is this one
        self.size_bytes = storage.size_bytes(self.path)
        self.offset_index = OffsetIndex(storage, self.path_of(".index"), base_offset)
        self.time_index = TimeIndex(storage, self.path_of(".timeindex"), base_offset)
        self.transaction_index = TransactionIndex(storage, self.path_of(".txnindex"))
        self._latest = None if self.size_bytes else (NO_TIMESTAMP, base_offset)
        self.bytes_since_entry = 0
        self._first_timestamp: int | None = None
        self._index_bytes: int | None = None
        # Of the batch appended last: the offset behind which it is found, where it lies, and its last offset. Followers
        # and consumers that keep up ask for it, and need no walk from the index entry before it.
        self._tail: tuple[int, int, int] | None = None

    def path_of(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020}{kind}{self.suffix}"

    def rename(self, suffix: str) -> None:
        """Put another suffix behind the names, that of the batches first; who reads the files opens them again.

        What has not been synced must not matter any more: a later sync knows nothing of it.
        """
        self.close()
        renamed = [(self.path_of(kind), kind) for kind in KINDS]
        self.suffix = suffix
        for path, kind in renamed:
            if self.storage.exists(path):
                self.storage.rename(path, self.path_of(kind))
        self.path, *indexes = map(self.path_of, KINDS)
        self.offset_index.path, self.time_index.path, self.transaction_index.path = indexes

    def _opened(self) -> File:
        if self._file is None:
            self._file = self.storage.open(self.path, create=True)
        return self._file

    def share(self) -> SharedFile:
        """Return the file for answers that are sent from it piece by piece."""
        shared = self._find_shared()
        if shared is None:
            shared = SharedFile(self.path, self._opened())
            self._shared = ref(shared)
        return shared

    def _find_shared(self) -> SharedFile | None:
        return None if self._shared is None else self._shared()

    # Writing

    def append(self, chunks: Sequence[Chunk], added: Sequence[Added], index_interval_bytes: int) -> None:
        """Append batches: their bytes in one write, then the index entries that fall due."""
        position = self.size_bytes
        if self._latest is None:
            self._latest = self._find_latest()  # before anything is written: then nothing but the write can fail
        self._opened().append(chunks)
        tail = self._tail
        behind = self.base_offset - 1 if position == 0 else added[0].last_offset - 1 if tail is None else tail[2]
        for batch in added:
            self.note(batch, position, index_interval_bytes)
            tail = behind, position, batch.last_offset
            behind = batch.last_offset
            position += batch.size_bytes
        self._tail = tail
        self.size_bytes = position

    def note(self, batch: Added, position: int, index_interval_bytes: int) -> None:
        """Keep the indexes up with a batch at `position`."""
        if batch.max_timestamp > self.latest[0]:
            self._latest = batch.max_timestamp, batch.last_offset
        if position == 0:
            self._first_timestamp = batch.max_timestamp
        # Kafka: up to 3.9 looks at this once per append call, 4.x once per batch; so do all rebuilds.
        if self.bytes_since_entry > index_interval_bytes:
            self.offset_index.add(batch.last_offset, position)
            self.time_index.add(*self.latest)
            self.bytes_since_entry = 0
            self._index_bytes = None
        self.bytes_since_entry += batch.size_bytes

    @property
    def index_bytes(self) -> int:
        """How long the longer one of the indexes becomes with another entry; in that of times the last one has room."""
        if self._index_bytes is None:
            offset_bytes = (self.offset_index.count + 1) * OFFSET_ENTRY.size
            self._index_bytes = max(offset_bytes, (self.time_index.count + 2) * TIME_ENTRY.size)
        return self._index_bytes

    def create(self, index_bytes: int) -> None:
        """Begin empty files; the indexes are as long as they may become."""
        self._opened().truncate(0)
        for index in (self.offset_index, self.time_index):
            index.keep(0)
            index.preallocate(index_bytes)
        self._index_bytes = None
        self.transaction_index.remove()
        self.transaction_index.is_trusted = True
        self.close()

    def remove(self) -> None:
        """Remove the files, that of the batches first: indexes without it are nothing."""
        self.close()
        for kind in KINDS:
            self.storage.remove(self.path_of(kind))

    def undo_append(self) -> None:
        """Cut off what an append left behind that failed half way; the indexes only ever miss something."""
        file = self._opened()
        if file.size_bytes > self.size_bytes or self.storage.size_bytes(self.path) > self.size_bytes:
            file.truncate(self.size_bytes)

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that holds `offset` or more; return how many bytes went."""
        found = self.find(offset)
        position = found.position if found else self.size_bytes
        self._indexed(lambda: self.offset_index.truncate_to(offset))
        self._indexed(lambda: self.time_index.truncate_to(offset))
        self.transaction_index.truncate_to(offset)
        self._index_bytes = None
        cut_bytes = self.size_bytes - position
        if cut_bytes:
            self.cut(position)
        self._latest = None
        self.bytes_since_entry = 0
        return cut_bytes

    def cut(self, position: int) -> None:
        """Cut the file of batches at a position and see to it that what was behind never comes back."""
        file = self._opened()
        file.truncate(position)
        file.sync()
        shared = self._find_shared()
        if shared is not None:
            shared.end_position = position
            self._shared = self._file = None  # who reads what is appended from now on does so through another file
        self.size_bytes = position
        self._tail = None
        if position == 0:
            self._first_timestamp = None

    def rebuild_indexes(self) -> bool:
        """Make both sparse indexes what the batches say, now."""
        return finish(self.rebuilding_indexes())

    def rebuilding_indexes(
        self, index_interval_bytes: int = INDEX_INTERVAL_BYTES, *, is_sealed: bool = False
    ) -> InPieces[bool]:
        """Make both sparse indexes what the batches say, up to the first that is none; return whether they were not.

        is_sealed: the segment has ended, so the last timestamp is in its index.
        """
        offsets, times = bytearray(), bytearray()
        latest, noted, size_bytes = (NO_TIMESTAMP, self.base_offset), NO_TIMESTAMP, 0
        pace = Pace()
        try:
            for position, batch in self.placed_batches():
                if pace.is_over(batch.size_bytes):
                    yield pace.take_us()
                if batch.last_offset - self.base_offset > OFFSET_DELTA_MAX:
                    break  # broken, and in the eyes of an index nowhere
                if batch.max_timestamp > latest[0]:
                    latest = batch.max_timestamp, batch.last_offset
                if size_bytes > index_interval_bytes:
                    offsets += OFFSET_ENTRY.pack(batch.last_offset - self.base_offset, position)
                    if latest[0] > noted:
                        times += TIME_ENTRY.pack(latest[0], latest[1] - self.base_offset)
                        noted = latest[0]
                    size_bytes = 0
                size_bytes += batch.size_bytes
        except ProtocolError:
            pass  # whoever reads there is told
        end = TIME_ENTRY.pack(latest[0], latest[1] - self.base_offset) if latest[0] > noted else b""
        self._latest, self.bytes_since_entry, self._index_bytes = latest, size_bytes, None
        changed = self.offset_index.replace(offsets)
        if self.time_index.holds(times + end):
            return changed  # the last timestamp may be there before the end: a clean stop puts it there
        return self.time_index.replace(times + end if is_sealed else times) or changed

    def seal(self) -> None:
        """End writing: the last timestamp goes into its index, files are cut to their length."""
        self.time_index.add(*self.latest)
        self.offset_index.trim()
        self.time_index.trim()
        self.transaction_index.write()

    def sync(self) -> None:
        for file in (self._opened(), *self._indexes):
            file.sync()

    def open_files(self) -> dict[str, File]:
        """Return the files that are open, by path."""
        found = {index.path: index.open_file for index in self._indexes}
        found[self.path] = self._file
        return {path: file for path, file in found.items() if file is not None}

    def close(self, keep: Container[str] = ()) -> None:
        """Close the files but those of some paths."""
        for index in self._indexes:
            if index.path not in keep:
                index.close()
        if self.path not in keep:
            if self._file is not None and self._find_shared() is None:
                self._file.close()  # a shared one closes when nobody reads it any more
            self._file = self._shared = None

    @property
    def _indexes(self) -> tuple[OffsetIndex, TimeIndex, TransactionIndex]:
        return self.offset_index, self.time_index, self.transaction_index

    # Reading

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes of the file, at most up to its end.

        StorageError if they are not all there: another program has cut the file.
        """
        size_bytes = min(size_bytes, self.size_bytes - position)
        found = self._opened().view(position, size_bytes)
        if len(found) < size_bytes:
            end = position + len(found)
            raise StorageError(f"read {self.path}: it ends at byte {end}, and {self.size_bytes} were written")
        return found

    def find(self, offset: int) -> Place | None:
        """Return the first batch that ends at `offset` or behind it; None if the segment ends before.

        An index entry is believed only if the batch that it names is where it says. If not, the index is made anew.
        Kafka: believes what an index says once its size and last entry have been looked at, when it is opened.
        """
        tail = self._tail
        if tail is not None and offset > tail[0]:
            return next(self.hop(tail[1])) if offset <= tail[2] else None
        proven = False
        try:
            named, position = self.offset_index.entry_before(offset)
            proven = position == 0
            for place in self.hop(position):
                proven = proven or place.last_offset == named
                if place.last_offset >= offset and proven:
                    return place
                if place.last_offset >= offset:
                    break
            else:
                if proven:
                    return None
        except ProtocolError:
            if proven:
                raise
        self.rebuild_indexes()
        return next((place for place in self.hop() if place.last_offset >= offset), None)

    def batches_from_time(self, timestamp: int, start_offset: int) -> Iterator[Batch]:
        """Yield batches that have a record not older than `timestamp`, from the one that holds `start_offset` on."""
        return (batch for batch in self.batches_near(timestamp, start_offset) if batch.max_timestamp >= timestamp)

    def batches_near(self, timestamp: int, start_offset: int) -> Iterator[Batch]:
        """Yield all batches from there on, but few of those before the first that has such a record."""
        _, offset = self._time_entry_before(timestamp)
        place = self.find(max(offset, start_offset))
        if place is not None:
            for _, batch in self.placed_batches(place.position, strict=True):
                yield batch

    def _time_entry_before(self, timestamp: int) -> tuple[int, int]:
        """Return an entry of the time index that has been compared with the batch that it names."""
        found = self._indexed(lambda: self.time_index.entry_before(timestamp))
        if found[0] != NO_TIMESTAMP and not self._holds_timestamp(*found):
            self.rebuild_indexes()
            found = self.time_index.entry_before(timestamp)
        return found

    def _indexed(self, ask: Callable[[], T]) -> T:
        """Ask an index; one that has lost entries that it had is made anew."""
        try:
            return ask()
        except ProtocolError:
            self.rebuild_indexes()
            return ask()

    def _holds_timestamp(self, timestamp: int, offset: int) -> bool:
        place = self.find(offset)
        return place is not None and self.batch_at(place).max_timestamp == timestamp

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

    def placed_batches(
        self, position: int = 0, end: int | None = None, *, strict: bool = False
    ) -> Iterator[tuple[int, Batch]]:
        """Go from batch to batch with whole headers, able to read records; yield where each begins in the file.

        A batch that is cut off at the end is left out; with `strict` it raises Truncated. Errors name the place in the
        file, batches know of theirs only what lies before them in the piece that was read.
        """
        stop = self.size_bytes if end is None else end
        wanted_bytes = READ_BYTES
        while position < stop:
            piece = self.view(position, min(wanted_bytes, stop - position))
            is_last = position + len(piece) == stop
            read_bytes = 0
            try:
                for batch in batches(piece, strict=strict and is_last):
                    yield position + batch.position, batch
                    read_bytes = batch.end_position
            except ProtocolError as error:
                error.position += position
                raise
            if is_last:
                return
            position += read_bytes
            size_bytes = int.from_bytes(piece[read_bytes + 8 : read_bytes + PREFIX_BYTES], "big", signed=True)
            # A size that leads beyond the end is damage, and no reason to read all of it.
            fits = size_bytes + PREFIX_BYTES <= stop - position
            if len(piece) - read_bytes >= PREFIX_BYTES and not fits:
                stop = position + HEADER_BYTES if strict else position
            wanted_bytes = max(READ_BYTES, size_bytes + PREFIX_BYTES if fits else 0)

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[Batch]:
        """Go from batch to batch with whole headers, able to read records."""
        return (batch for _, batch in self.placed_batches(position, end))

    def batch_at(self, place: Place) -> Batch:
        """Return the batch at a place with its whole header."""
        return next(self.batches(place.position, place.end_position))

    def next_offset(self) -> int:
        """Return the offset behind the last record; the base offset if there is none."""
        last = self.find(self._indexed(self.offset_index.last_offset))
        for place in self.hop(last.end_position if last else 0):
            last = place
        return last.last_offset + 1 if last else self.base_offset

    def first_timestamp(self) -> int:
        """Return the timestamp by which the segment's age is judged: the largest of its first batch, or -1.

        Kafka: appends nothing to a segment whose first batch is damaged; here such a segment is as old as its file.
        """
        if self._first_timestamp is None and self.size_bytes:
            try:
                self._first_timestamp = self.batch_at(next(self.hop())).max_timestamp
            except ProtocolError:
                self._first_timestamp = NO_TIMESTAMP
        return NO_TIMESTAMP if self._first_timestamp is None else self._first_timestamp

    @property
    def latest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the first batch that has it; -1 and the base if none has."""
        if self._latest is None:
            self._latest = self._find_latest()
        return self._latest

    def _find_latest(self) -> tuple[int, int]:
        """Take the last entry of the time index, and look at what came behind it, up to what cannot be read.

        It is asked for by whoever appends and by retention: neither needs what lies behind the damage.
        """
        found = self._indexed(self.time_index.last)
        try:
            if found[0] != NO_TIMESTAMP and not self._holds_timestamp(*found):
                self.rebuild_indexes()
                return self.latest
            place = self.find(found[1])
            if place is not None:
                for batch in self.batches(place.position):
                    if batch.max_timestamp > found[0]:
                        found = batch.max_timestamp, batch.last_offset
        except ProtocolError:
            pass  # whoever reads there is told
        return found

    @property
    def age_timestamp(self) -> int:
        """The time that retention judges the segment by: the largest timestamp, else when the file was written."""
        was_open = self._file is not None
        timestamp = self.latest[0]
        if not was_open:
            self.close()  # a thousand idle logs hold no files
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """When the batches were written; cleaned ones keep the time of those that they came from."""
        return self.storage.modified_ms(self.path)

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
