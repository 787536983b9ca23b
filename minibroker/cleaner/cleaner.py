"""One pass over one log: older values of a key make way for the newest, in small pieces of work.

    1. the dirty part is read, and the last offset of each key noted, until the map is full
    2. every segment up to there is written anew without what has been superseded; small neighbours become one

What must hold: offsets never change and order stays; a segment takes the place of its sources in one step, after it is
on the disk; a pass that gives up leaves the log as it was, but for the segments that it had finished. Checksums are
looked at before anything is decided or copied, for what is written anew gets a new one that would hide the damage.
Nothing here waits, sleeps, or holds the loop: `clean` yields after each piece, and its caller says when the next comes.
Not here: which records stay (batch_filter.py), how files change places (log/pruning.py), who may be cleaned
(candidates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from minibroker.cleaner.batch_filter import BatchFilter, Filtered, last_batches
from minibroker.cleaner.candidates import Candidate, segments_between
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import InvalidValue, ProtocolError, StorageError, Truncated
from minibroker.log.aborted import aborted_between
from minibroker.log.batches import Batch, batches
from minibroker.log.checkpoints import sync_file
from minibroker.log.formats import PREFIX_BYTES
from minibroker.log.index import OFFSET_ENTRY, TIME_ENTRY
from minibroker.log.partition_log import PartitionLog
from minibroker.log.pruning import replace_segments
from minibroker.log.segment import CLEANED, OFFSET_DELTA_MAX, Segment
from minibroker.log.settings import LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Chunk

Step = int | Callable[[], object]
Work = Generator[Step, None, None]

# How much is done between two yields: a tenth of a millisecond.
PIECE_BYTES = 128 * 1024
PIECE_RECORDS = 64
BATCH_COST = 8  # a batch takes as long as so many records, were it empty
READ_BYTES = 64 * 1024
WRITE_BYTES = 32 * 1024  # what is kept is gathered and written at once
SYNC_BYTES = 4 * 1024 * 1024  # flushed now and then, so that the last flush does not wait for a gigabyte


class CleaningAborted(Exception):
    """Somebody cut the log or deleted from it meanwhile; what is left is as it was, and can be cleaned anew."""


class Cleaned:
    """What a pass has done."""

    __slots__ = (
        "bytes_after",
        "bytes_before",
        "end_offset",
        "paths",
        "records_after",
        "records_before",
        "segments_after",
        "segments_before",
    )

    def __init__(self, end_offset: int):
        self.end_offset = end_offset  # the first dirty offset from now on
        self.bytes_before = self.bytes_after = 0
        self.records_before = self.records_after = 0
        self.segments_before = self.segments_after = 0
        self.paths: list[str] = []  # of the files that can be removed after file.delete.delay.ms

    def __repr__(self) -> str:
        return (
            f"<Cleaned to {self.end_offset}: {self.segments_before} segments, {self.records_before} records, "
            f"{self.bytes_before} bytes; now {self.segments_after}, {self.records_after}, {self.bytes_after}>"
        )


def clean(
    log: PartitionLog,
    candidate: Candidate,
    *,
    now_ms: int,
    map_bytes_max: int,
    load_factor: float = 0.9,
    upgrades: bool = True,
) -> Generator[Step, None, Cleaned]:
    """Clean the log as far as the candidate says, or as the map has room; yield bytes read and written since before.

    Instead of a number it may yield a function to be called before the next piece: that waits for the disk, and may do
    so in a thread of its own.
    A candidate without a dirty part is cleaned too: tombstones and markers whose time is over go.
    Kafka: leaves such a log alone until something is written to it.
    upgrades: batches of v0 and v1 become v2, as in Kafka 4.x.
    Raises CleaningAborted, a ProtocolError that names the file for a batch that cannot be read, or StorageError.
    """
    work = _Pass(log, candidate, now_ms, OffsetMap(map_bytes_max, load_factor), upgrades)
    yield from work.run()
    return work.cleaned


class _Pass:
    """The state of a pass."""

    def __init__(self, log: PartitionLog, candidate: Candidate, now_ms: int, offsets: OffsetMap, upgrades: bool):
        self.log = log
        self.candidate = candidate
        self.now_ms = now_ms
        self.offsets = offsets
        self.upgrades = upgrades
        self.transactions = Transactions()
        self.cleaned = Cleaned(candidate.first_dirty)
        self._cuts = log.cuts
        self._spent_bytes = self._cost = 0
        self._chunks: list[Chunk] = []  # what is kept and not yet written
        self._chunk_bytes = self._unsynced_bytes = 0
        self._added: list[Batch] = []  # the same as batches, for the indexes

    def run(self) -> Work:
        log, candidate, offsets = self.log, self.candidate, self.offsets
        horizon_ms = self._legacy_horizon_ms()
        yield from self._note_keys()
        offsets.cover(candidate.first_dirty)
        for _ in offsets.settle():
            yield from self._pause()
        end_offset = min(offsets.end_offset, candidate.end)
        for group in grouped(segments_between(log, -1, end_offset), candidate.end, log.settings):
            yield from self._rewrite(group, horizon_ms)
        self.cleaned.end_offset = max(end_offset, candidate.first_dirty)

    def _legacy_horizon_ms(self) -> int:
        """Return up to which file time tombstones of v0 and v1 may go: they have no horizon of their own.

        The last segment that has been cleaned before was written by then, so its tombstones have been seen.
        """
        seen = segments_between(self.log, -1, self.candidate.first_dirty)
        return seen[-1].modified_ms - self.log.settings.delete_retention_ms if seen else 0

    # The first reading

    def _note_keys(self) -> Work:
        """Note the last offset of each key in the dirty part; data of aborted transactions supersedes nothing."""
        log, offsets = self.log, self.offsets
        start, end = self.candidate.first_dirty, self.candidate.end
        transactions = Transactions()
        transactions.add_aborted(aborted_between(log, start, end))
        dirty = segments_between(log, start, end)
        for segment, end_offset in zip(dirty, ends_of(dirty, end), strict=True):
            place = segment.find(start)
            scan = Scan(segment, place.position if place else segment.size_bytes)
            try:
                for batch in scan:
                    if transactions.see(batch) or batch.is_control:
                        offsets.cover(batch.next_offset)
                    else:
                        is_large = _is_large(batch)
                        for _ in offsets.take(batch, start):
                            if is_large:
                                yield from self._pause()
                        if offsets.is_full:
                            return
                    if self._is_due(batch.size_bytes, 0 if batch.is_wrapper else batch.count):
                        yield from self._pause()
            except ProtocolError as error:
                raise scan.placed(error) from None
            offsets.cover(end_offset)

    # The second

    def _rewrite(self, group: Sequence[Segment], horizon_ms: int) -> Work:
        """Write neighbouring segments anew, into one, and put it in their place."""
        log, transactions = self.log, self.transactions
        new = Segment(log.storage, log.directory, group[0].base_offset, suffix=CLEANED)
        try:
            new.create(log.settings.segment_index_bytes)
            keep = BatchFilter(
                self.offsets,
                transactions,
                now_ms=self.now_ms,
                delete_retention_ms=log.settings.delete_retention_ms,
                producers=last_batches(log.producers),
                uncleanable_offset=self.candidate.kept_end,
                upgrades=self.upgrades,
            )
            for segment, end_offset in zip(group, ends_of(group), strict=True):
                transactions.add_aborted(aborted_between(log, segment.base_offset, end_offset))
                keep.keeps_old_tombstones = segment.modified_ms > horizon_ms
                scan = Scan(segment)
                try:
                    yield from self._copy(scan, keep, new)
                except ProtocolError as error:
                    raise scan.placed(error) from None
            self._write(new)
            for entry in transactions.kept:
                new.transaction_index.add(entry)
            transactions.kept = []
            new.seal()
            yield from self._wait_for_disk(new.sync)
            self._replace(group, new)
        except BaseException:
            if log.offline is None:
                with suppress(StorageError):  # what is left is removed when the log is opened, or by the next pass
                    new.remove()
            raise

    def _copy(self, source: Iterable[Batch], keep: BatchFilter, new: Segment) -> Work:
        """Write what stays of a segment behind what is in the new one."""
        cleaned = self.cleaned
        for batch in source:
            work, is_large = keep.filter(batch), _is_large(batch)
            while True:
                try:
                    next(work)
                except StopIteration as stop:
                    filtered: Filtered = stop.value
                    break
                if is_large:
                    yield from self._pause()
            cleaned.records_before += filtered.records_read
            cleaned.records_after += filtered.records_kept
            data = filtered.data
            if data is not None:
                self._chunks.append(data)
                self._chunk_bytes += len(data)
                self._added += (batch,) if type(data) is memoryview else batches(data)
                if self._chunk_bytes >= WRITE_BYTES:
                    self._write(new)
                    if self._unsynced_bytes >= SYNC_BYTES:
                        self._unsynced_bytes = 0
                        yield from self._wait_for_disk(partial(sync_file, self.log.storage, new.path))
            if self._is_due(batch.size_bytes, filtered.records_read):
                yield from self._pause()

    def _write(self, new: Segment) -> None:
        """Write what has been gathered."""
        if self._chunks:
            new.append(self._chunks, self._added, self.log.settings.index_interval_bytes)
            self._spent_bytes += self._chunk_bytes
            self._unsynced_bytes += self._chunk_bytes
            self._chunks, self._added, self._chunk_bytes = [], [], 0

    def _replace(self, group: Sequence[Segment], new: Segment) -> None:
        cleaned = self.cleaned
        cleaned.segments_before += len(group)
        cleaned.bytes_before += sum(segment.size_bytes for segment in group)
        cleaned.paths += replace_segments(self.log, list(group), [new])
        cleaned.segments_after += 1
        cleaned.bytes_after += new.size_bytes

    # Pieces

    def _is_due(self, size_bytes: int, records: int) -> bool:
        """Count a batch, and return whether others should have their turn."""
        self._spent_bytes += size_bytes
        self._cost += BATCH_COST + records
        return self._cost >= PIECE_RECORDS or self._spent_bytes >= PIECE_BYTES

    def _pause(self) -> Work:
        """Let others work; then look whether the log is still the one that was read."""
        spent_bytes, self._spent_bytes, self._cost = self._spent_bytes, 0, 0
        yield spent_bytes
        self._look()

    def _wait_for_disk(self, sync: Callable[[], object]) -> Work:
        """Have something synced, then look as well."""
        yield from self._pause()
        if self.log.storage.is_slow:
            yield sync
            self._look()
        else:
            sync()

    def _look(self) -> None:
        self.log.check_online()
        if self.log.cuts != self._cuts:
            raise CleaningAborted(f"{self.log.directory} was cut while it was being cleaned")


def grouped(segments: Iterable[Segment], end: int, settings: LogSettings) -> list[list[Segment]]:
    """Return neighbours that fit into one segment together: their bytes, their indexes, their span of offsets.

    A new segment can only be smaller than its sources, so what fits before fits afterwards. (Nearly: a batch that gets
    a delete horizon, or moves from v0 to v2, may grow by some bytes; a segment may be a little larger than it should.)
    end: first offset that is not in any of them.
    """
    groups: list[list[Segment]] = []
    segments = list(segments)
    room = Room(settings)
    for segment, end_offset in zip(segments, ends_of(segments, end), strict=True):
        if not groups or not room.takes(segment, end_offset - 1 - groups[-1][0].base_offset):
            groups.append([])
            room = Room(settings)
        room.fill(segment)
        groups[-1].append(segment)
    return groups


class Room:
    """What is left of the limits of a segment."""

    def __init__(self, settings: LogSettings):
        self.size_bytes = settings.segment_bytes
        self.offset_index_bytes = self.time_index_bytes = settings.segment_index_bytes

    def takes(self, segment: Segment, offset_span: int) -> bool:
        return (
            segment.size_bytes <= self.size_bytes
            and segment.offset_index.count * OFFSET_ENTRY.size <= self.offset_index_bytes
            and segment.time_index.count * TIME_ENTRY.size <= self.time_index_bytes
            # One without bytes has no offsets either: it may always join, and a new one is not left behind for it.
            and (not segment.size_bytes or offset_span <= OFFSET_DELTA_MAX)
        )

    def fill(self, segment: Segment) -> None:
        self.size_bytes -= segment.size_bytes
        self.offset_index_bytes -= segment.offset_index.count * OFFSET_ENTRY.size
        self.time_index_bytes -= segment.time_index.count * TIME_ENTRY.size


def ends_of(segments: Sequence[Segment], end: int | None = None) -> list[int]:
    """Return for each of some neighbours where it ends: with the next, the last at `end` or behind its last batch."""
    if not segments:
        return []
    return [*(segment.base_offset for segment in segments[1:]), segments[-1].next_offset() if end is None else end]


class Scan:
    """The batches of a segment, or those from a position on; a ProtocolError at what is no good batch.

    Read in pieces and not mapped: to take back a mapping of many megabytes would hold the loop for milliseconds.
    Kafka: looks at no checksum while it cleans. And it splits a segment that reaches over more than 2^31 offsets, as
    brokers before 1.1 could leave them behind; here such a log cannot be cleaned.
    """

    def __init__(self, segment: Segment, position: int = 0):
        self.segment = segment
        self.position = position  # of the piece that is being read

    def __iter__(self) -> Iterator[Batch]:
        segment, end = self.segment, self.segment.size_bytes
        file = segment.storage.open(segment.path)
        size_bytes = READ_BYTES
        try:
            while self.position < end:
                left_bytes = end - self.position
                piece = file.read_at(self.position, min(size_bytes, left_bytes))
                read_bytes = 0
                for batch in batches(piece, strict=len(piece) == left_bytes):
                    batch.check_crc()
                    if batch.last_offset - segment.base_offset > OFFSET_DELTA_MAX:
                        reason = f"offset {batch.last_offset} does not fit into a segment from {segment.base_offset} on"
                        raise InvalidValue(reason, batch.position, "batch")
                    yield batch
                    read_bytes = batch.end_position
                size_bytes = READ_BYTES
                if not read_bytes:  # a batch that is larger than a piece
                    size_bytes = int.from_bytes(piece[8:12], "big") + PREFIX_BYTES
                    if size_bytes > left_bytes:
                        raise Truncated(f"needs {size_bytes} bytes, {left_bytes} are left", 0, "batch")
                self.position += read_bytes
        finally:
            file.close()

    def placed(self, error: ProtocolError) -> ProtocolError:
        """Complete an error in what has just been read."""
        error.position += self.position
        error.path = f"{self.segment.path}: {error.path}"
        return error


def _is_large(batch: Batch) -> bool:
    """Whether the batch is more than one piece of work; how many records a wrapper holds is not known beforehand."""
    return batch.is_wrapper or batch.count > PIECE_RECORDS
