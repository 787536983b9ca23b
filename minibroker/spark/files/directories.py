"""Partitions in log directories: their segments, and from which offset to which they go.

A path is a broker's log directory, the directory of one partition, or several with commas between them: disks of one
broker, or brokers that hold the same partitions. Of replicas the one is read that knows of the highest high watermark.
What must hold: nothing is written, whatever state the files are in; what a cleaning or a crash has left beside the
segments counts as it would at the broker's next start. Of checkpoints and segments the checkpoints are read first, so
of a broker at work they never promise what is not there yet.
Kafka: a leader that starts alone takes all of its log for committed; here a log ends at the high watermark that was
noted, unless `endOfLog` says otherwise.
Not here: which offsets a query wants (planning.py), records (rows.py).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

from minibroker.errors import ProtocolError
from minibroker.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    BrokenFile,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
)
from minibroker.log.directory import split_name
from minibroker.log.producers import ProducerStates
from minibroker.log.read_only_segment import ReadOnlySegment, WholeSegment
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.recovery import finish_swaps
from minibroker.log.segment import DELETED, SWAP, Segment
from minibroker.log.snapshots import load_producers, load_snapshot_file, snapshot_offsets, snapshot_path
from minibroker.schema.types import NO_ID
from minibroker.spark.option_values import OptionError, TopicPartition
from minibroker.stored.producers import AbortedTxn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.batches import Batch
    from minibroker.log.records import Record

    class PartitionFilter(Protocol):
        """Which partitions a query reads; `Options` says it."""

        def wants(self, topic: str, partition: int) -> bool: ...


INDEXES = (".index", ".timeindex")
GONE = f".log{DELETED}"  # it is to go, and so are its indexes


class Unreadable(ProtocolError):
    """What planning must look at is broken; the reason says all."""

    def __str__(self) -> str:
        return self.reason


class Part:
    """A segment's file of batches."""

    __slots__ = ("base_offset", "size_bytes", "suffix")

    def __init__(self, base_offset: int, suffix: str, size_bytes: int):
        self.base_offset = base_offset
        self.suffix = suffix  # behind its name on the disk, `.swap` if a cleaning was cut short
        self.size_bytes = size_bytes


class Root:
    """A broker's log directory, and what it says about its logs."""

    def __init__(self, path: str):
        self.path = path
        self.storage = ReadOnlyStorage(path)
        self.was_clean = read_clean_shutdown(self.storage) is not None
        self.high_watermarks = self._read(HIGH_WATERMARKS)
        self.log_starts = self._read(LOG_STARTS)
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.cleaner_offsets = self._read(CLEANER_OFFSETS)
        self.has_cleaner_notes = self.storage.exists(CLEANER_OFFSETS)  # also without an entry

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.storage, name)
        except ProtocolError:
            return {}  # as at the start of a broker


class PartitionFiles:
    """The log of one partition."""

    def __init__(self, root: Root, directory: str, topic: str, partition: int):
        self.root = root
        self.storage = root.storage
        self.directory = directory
        self.topic = topic
        self.partition = partition
        names = self.storage.list(directory)
        if any(name.endswith(SWAP) for name in names):
            finish_swaps(self.storage, directory)
            names = self.storage.list(directory)
        self.parts = list(self._parts(names))
        self._aborting = {int(name[:20]) for name in names if name[20:] == ".txnindex" and name[:20].isdigit()}
        self._bases = [part.base_offset for part in self.parts]
        # Of segments of which only indexes are left.
        self.index_bases = {int(name[:20]) for name in names if name[20:] in INDEXES and name[:20].isdigit()}
        self.index_bases -= {*self._bases, *(int(name[:20]) for name in names if name.endswith(GONE))}
        start = root.log_starts.get((topic, partition), 0)
        self.start_offset = max(start, self._bases[0]) if self._bases else start
        self.high_watermark = root.high_watermarks.get((topic, partition))  # None: nobody has noted it
        self._topic_id: bytes | None = None
        self._end_offset: int | None = None
        self._end_position = 0  # where that is in the last segment

    @property
    def topic_id(self) -> bytes:
        if self._topic_id is None:
            self._topic_id = topic_id_in(self.storage, self.directory)
        return self._topic_id

    @property
    def was_never_cleaned(self) -> bool:
        """Whether the cleaner has notes, and none of this log."""
        return self.root.has_cleaner_notes and not self.cleaned_to

    @property
    def cleaned_to(self) -> int:
        """Up to which offset the cleaner has been, by its notes."""
        return self.root.cleaner_offsets.get((self.topic, self.partition), 0)

    def _parts(self, names: list[str]) -> Iterable[Part]:
        for name in names:
            if name.endswith(".log") and len(name) == 24 and name[:20].isdigit():
                origin = self.storage.origin(f"{self.directory}/{name}")
                suffix = SWAP if origin.endswith(SWAP) else ""
                yield Part(int(name[:20]), suffix, self.storage.size_bytes(f"{self.directory}/{name}"))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def segment(self, index: int) -> Segment:
        """Return a segment to look into; whoever does closes it."""
        return ReadOnlySegment(self.storage, self.directory, self.parts[index].base_offset)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that would hold an offset."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base(self, index: int) -> int | None:
        """Return where the segment behind this one begins, None if it is the last."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    @property
    def end_offset(self) -> int:
        """The offset behind the last whole batch.

        What was written when the broker stopped without order may be torn; checksums say where it ends. Elsewhere a
        broken batch is none of the end's business: who reads it is told.
        """
        if self._end_offset is None:
            self._end_offset = self._find_end() if self.parts else self.start_offset
        return self._end_offset

    def _find_end(self) -> int:
        segment = self.segment(len(self.parts) - 1)
        try:
            named, position = segment.offset_index.entry_before(segment.base_offset + 0x7FFFFFFF)
            if not self._walk(segment, position, named):
                self._walk(segment, 0, -1)
            return max(self._end_offset or 0, self.start_offset)
        finally:
            segment.close()

    def _walk(self, segment: Segment, position: int, named: int) -> bool:
        """Go from batch to batch to the end; return whether one ended with `named`, so that the start was one's."""
        may_be_torn = self.high_watermark is None and not self.root.was_clean
        is_proven = position == 0
        self._end_offset, self._end_position = segment.base_offset, position
        try:
            for place in segment.hop(position):
                if may_be_torn:
                    segment.check_batch(place)
                # One that ends before it begins is broken, and to be read by somebody who finds that.
                self._end_offset = max(place.last_offset, place.base_offset) + 1
                self._end_position = place.end_position
                is_proven = is_proven or place.last_offset == named
        except ProtocolError:
            pass  # a batch that is being written, or was
        return is_proven

    @property
    def bytes_behind(self) -> int:
        """How many bytes lie behind the last whole batch."""
        return self.parts[-1].size_bytes - self._end_position if self.parts and self.end_offset >= 0 else 0

    def missing_end(self) -> str:
        """Say that the log ends before its high watermark; nothing if it does not."""
        promised = self.high_watermark
        if promised is None or promised <= self.end_offset:
            return ""
        return (
            f"{self} in {self.root.path} should reach to {promised}, its high watermark, and ends at "
            f"{self.end_offset}: the directory was copied while it changed, or has been cut"
        )

    def missing_segments(self, first_offset: int, end_offset: int) -> Iterator[str]:
        """Say of which segments in a range the batches have gone for certain: their indexes lie there, with entries.

        Of those that the cleaner made into one with the segment before it a crash may have left indexes.
        """
        empty = {part.base_offset for part in self.parts[:-1] if not part.size_bytes}
        for base in sorted(self.index_bases | empty):
            index = self.index_of(base)
            behind = self.next_base(index)
            if behind is None or base >= end_offset or behind <= max(first_offset, self.start_offset):
                continue
            if base in empty:
                what = "is empty, and its indexes are not"
            elif base < max(self._bases[0], self.cleaned_to) or self._reach(index) > base:
                continue
            else:
                what = "is not there, and its indexes are"
            paths = [f"{self.directory}/{base:020}{suffix}" for suffix in INDEXES]
            if any(self.storage.exists(path) and self.storage.size_bytes(path) for path in paths):
                yield f"{self} in {self.root.path}: the segment that begins at {base} {what}"

    def _reach(self, index: int) -> int:
        """Return where a segment ends; somewhere behind it if that cannot be told."""
        segment = self.segment(index)
        try:
            return segment.next_offset()
        except ProtocolError:
            return 1 << 62
        finally:
            segment.close()

    def is_older(self, index: int, timestamp: int) -> bool:
        """Return whether all of a segment is older; False also if only its batches could say.

        When a segment ends its largest timestamp is noted last in its time index, and the file is cut to its length.
        One that was copied before that is longer, and one that names a batch that is not there is broken.
        """
        if index == len(self.parts) - 1:
            return False
        segment = self.segment(index)
        times = segment.time_index
        try:
            if not times.count or self.storage.size_bytes(times.path) != times.count * times.entry.size:
                return False
            newest, offset = times.last()
            if newest >= timestamp:
                return False
            place = segment.find(offset)
            return place is not None and segment.batch_at(place).max_timestamp == newest
        except ProtocolError:
            return False
        finally:
            segment.close()

    def find_time(self, timestamp: int, limit_offset: int) -> int | None:
        """Return the offset of the first record by position that is not older; None if there is none."""
        for index in range(self.index_of(self.start_offset), len(self.parts)):
            if self.is_older(index, timestamp):
                continue
            segment = self.segment(index)
            try:
                record = next(
                    (
                        record
                        for batch in segment.batches_near(timestamp, self.start_offset)
                        for record in _records_from(batch, timestamp)
                        if record.timestamp >= timestamp and record.offset >= self.start_offset
                    ),
                    None,
                )
            except ProtocolError as error:
                path = self.storage.real_path(segment.path)
                raise Unreadable(
                    f"{self}: cannot look for the time {timestamp} in {path}, {error}; say offsets instead"
                ) from error
            finally:
                segment.close()
            if record is not None:
                return record.offset if record.offset < limit_offset else None
        return None

    # Transactions

    def transactions(self, first_offset: int, limit_offset: int) -> tuple[int, list[AbortedTxn]]:
        """Return the last stable offset, at most the limit, and the aborted transactions that end between the two.

        Up to where the log was flushed the indexes of transactions are believed; behind it batches are replayed, from
        the newest snapshot of the producers on. Without any snapshot that is all of them.
        """
        if not self.parts:
            return limit_offset, []
        last = len(self.parts) - 1
        replayed_from = len(self.parts)
        if not self.root.was_clean:
            flushed = self.root.recovery_points.get((self.topic, self.partition), self._bases[last])
            replayed_from = min(self.index_of(flushed), last)
        aborted: list[AbortedTxn] = []
        for index in range(self.index_of(first_offset), replayed_from):
            if self._bases[index] in self._aborting and self._bases[index] < limit_offset:
                aborted += self._aborted_in(index)
        producers = ProducerStates(str(self))
        if replayed_from <= last:
            self.replay(producers, limit_offset, self._bases[replayed_from], aborted)
        else:
            self.replay(producers, limit_offset, None, [])
        producers.on_high_watermark_updated(limit_offset)
        wanted = [entry for entry in aborted if entry.last_offset >= first_offset]
        return producers.last_stable_offset(limit_offset, self.start_offset), wanted

    def _aborted_in(self, index: int) -> list[AbortedTxn]:
        segment = self.segment(index)
        try:
            return segment.transaction_index.entries()
        except ProtocolError:
            found: list[AbortedTxn] = []
            end = self.next_base(index) or self.end_offset
            self.replay(ProducerStates(str(self)), end, segment.base_offset, found)
            return found
        finally:
            segment.close()

    def replay(
        self, producers: ProducerStates, end_offset: int, from_offset: int | None, aborted: list[AbortedTxn]
    ) -> None:
        """Make `producers` the state before `end_offset`; note transactions that end aborted behind `from_offset`."""
        newest = end_offset if from_offset is None else min(from_offset, end_offset)
        first = self.index_of(self._newest_snapshot(newest))
        # Segments before the snapshot are not even looked at: there may be very many.
        bases = self._bases[first : self.index_of(end_offset) + 1]
        segments: list[Segment] = [WholeSegment(self.storage, self.directory, base) for base in bases]
        if segments[-1].base_offset == self._bases[-1] and self.end_offset >= end_offset:
            segments[-1].size_bytes = self._end_position  # what is behind may be half written
        try:
            load_producers(
                producers,
                self.storage,
                self.directory,
                segments,
                end_offset,
                from_offset=None if from_offset is None else newest,
                on_abort=lambda _, entry: aborted.append(entry),
            )
        except ProtocolError as error:
            raise Unreadable(
                f"{self} in {self.root.path}: cannot tell which transactions have ended, {error}; "
                "kafka.isolation.level read_uncommitted reads what is there"
            ) from error
        finally:
            for segment in segments:
                segment.close()

    def _newest_snapshot(self, newest: int) -> int:
        for offset in reversed(snapshot_offsets(self.storage, self.directory)):
            if self._bases[0] <= offset <= newest:
                try:
                    load_snapshot_file(ProducerStates(), self.storage, snapshot_path(self.directory, offset))
                except ProtocolError:
                    continue
                return offset
        return 0


def _records_from(batch: Batch, timestamp: int) -> Iterable[Record]:
    """Return the records of a batch, none if all are older by its header; that is believed if its checksum is right."""
    batch.check_crc()
    return batch.records() if batch.max_timestamp >= timestamp else ()


def has_been_cut(root: str, segment: Segment, reach: int) -> bool:
    """Return whether a segment that ends there ended elsewhere once: its index names a batch behind its end.

    That on the disk is asked: who has read the segment may have made it anew in memory.
    """
    found = ReadOnlySegment(ReadOnlyStorage(root), segment.directory, segment.base_offset, suffix=segment.suffix)
    try:
        last = found.offset_index.entries()[-1:]
        return any(offset >= reach and position >= segment.size_bytes for offset, position in last)
    finally:
        found.close()


def topic_id_in(storage: ReadOnlyStorage, directory: str) -> bytes:
    """Return the id that a partition's directory notes; 16 zeros if it notes none, or none that can be read."""
    try:
        return read_topic_id(storage, directory) or NO_ID
    except BrokenFile:
        return NO_ID


def find_partitions(paths: list[str], wanted: PartitionFilter) -> dict[TopicPartition, PartitionFiles]:
    """Return the partitions that a query wants, each from one directory; raise OptionError for a path without logs."""
    found: dict[TopicPartition, PartitionFiles] = {}
    roots: dict[str, Root] = {}
    seen: set[str] = set()
    for path in paths:
        for root_path, directory in logs_in(path):
            key = split_name(directory)
            place = os.path.realpath(f"{root_path}/{directory}")
            if key is None or not wanted.wants(*key) or place in seen:
                continue
            seen.add(place)
            root = roots.get(root_path) or roots.setdefault(root_path, Root(root_path))
            files = PartitionFiles(root, directory, *key)
            if key not in found or _rank(files) > _rank(found[key]):
                found[key] = files
    return dict(sorted(found.items()))


def _rank(files: PartitionFiles) -> tuple[int, int]:
    """Return by what one of several replicas is chosen."""
    return files.high_watermark if files.high_watermark is not None else -1, files.end_offset


def topics_in(paths: list[str]) -> list[str]:
    """Return the topics that there are, to name them to somebody who asked for another one."""
    keys = (split_name(directory) for path in paths for _, directory in logs_in(path))
    return sorted({key[0] for key in keys if key is not None})


def logs_in(path: str) -> list[tuple[str, str]]:
    """Return the logs at a path as a broker's directory and a name in it."""
    whole = os.path.abspath(path)
    storage = ReadOnlyStorage(whole)
    if not storage.exists(""):
        raise OptionError(f"path: there is no directory {path}")
    names = storage.list("")
    if any(_is_segment(name) for name in names):
        root, _, directory = whole.rpartition("/")
        if split_name(directory) is None:
            raise OptionError(f"path: {path} holds segments; name it as a log is named, TOPIC-PARTITION")
        return [(root or "/", directory)]
    logs = [(whole, name) for name in names if split_name(name) is not None]
    if not logs:
        raise OptionError(
            f"path: there is no log in {path}; it must be a directory of a broker, with directories in it that are "
            "named TOPIC-PARTITION"
        )
    return logs


def _is_segment(name: str) -> bool:
    return len(name) == 24 and name.endswith(".log") and name[:20].isdigit()
