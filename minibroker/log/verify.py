"""Verification: does a log directory keep what logs promise? Reads everything and changes nothing.

Every batch is read to its last record, and whatever else lies beside the batches is compared with what they say:

    batches    sizes, checksums, records, offsets rising, leader epochs never falling
    indexes    each entry against the batch that it names; aborted transactions against the markers
    snapshots  checksums, and the producers against a replay of the log
    epochs     each batch against the checkpoint; checkpoints of the directory against the ends of the logs

A problem names the file, the place in it and what is wrong there.
"""

from __future__ import annotations

from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_clean_shutdown,
    read_leader_epochs,
    read_offsets,
    read_topic_id,
)
from minibroker.log.directory import split_name
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.formats import CREATE_TIME
from minibroker.log.index import NO_TIMESTAMP
from minibroker.log.meta_properties import read_meta_properties
from minibroker.log.producers import ProducerStates
from minibroker.log.segment import Segment
from minibroker.log.snapshots import load_snapshot_file, snapshot_offsets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from minibroker.log.batches import Batch
    from minibroker.log.index import OffsetIndex, TimeIndex
    from minibroker.log.producer_entry import Producer
    from minibroker.log.storage import Storage
    from minibroker.stored.producers import AbortedTxn

SWAP_SUFFIXES = (".cleaned", ".swap", ".tmp")  # .deleted files wait a minute, and a clean stop leaves them


class Problem:
    """Something that is not as it should be."""

    __slots__ = ("path", "place", "reason")

    def __init__(self, path: str, place: str, reason: str):
        self.path = path
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.reason}" if self.place else f"{self.path}: {self.reason}"


class Verified:
    """How much has been looked at."""

    def __init__(self) -> None:
        self.logs = self.segments = self.batches = self.records = self.size_bytes = 0

    def __str__(self) -> str:
        counts = (self.logs, "log"), (self.segments, "segment"), (self.records, "record")
        logs, segments, records = (f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts)
        return f"{logs}, {segments}, {_shown_bytes(self.size_bytes)}, {records}"


def _shown_bytes(size_bytes: int) -> str:
    size, unit = float(size_bytes), "bytes"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size_bytes} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def verify_directory(
    storage: Storage, verified: Verified, progress: Callable[[str], object] = lambda name: None
) -> Iterator[Problem]:
    """Yield what is wrong with a log directory and all logs in it, or with the one log that it is."""
    names = storage.list("")
    if any(name.endswith(".log") for name in names):
        yield from LogVerifier(storage, "", verified).problems()
        return
    checkpoints: dict[str, dict[tuple[str, int], int]] = {}
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        try:
            checkpoints[name] = read_offsets(storage, name)
        except ProtocolError as error:
            yield Problem(name, "", str(error))
    ends: dict[tuple[str, int], int] = {}
    for name in names:
        key = split_name(name)
        if key is not None:
            progress(name)
            log = LogVerifier(storage, name, verified, checkpoints.get(LOG_STARTS, {}).get(key, 0))
            yield from log.problems()
            ends[key] = log.next_offset
    try:
        read_meta_properties(storage)
    except ProtocolError as error:
        yield Problem("meta.properties", "", str(error))
    try:
        was_clean = read_clean_shutdown(storage) is not None
    except ProtocolError as error:
        yield Problem(CLEAN_SHUTDOWN, "", str(error))
        was_clean = False
    for name, offsets in checkpoints.items():
        for key, offset in offsets.items():
            place = f"{key[0]}-{key[1]}"
            if key not in ends:
                yield Problem(name, place, "there is no such log")
            elif offset > ends[key]:
                yield Problem(name, place, f"{offset} is behind the log's end, {ends[key]}")
            elif was_clean and name == RECOVERY_POINTS and offset < ends[key]:
                yield Problem(name, place, f"{offset} is not the log's end, {ends[key]}, though the stop was clean")


class LogVerifier:
    """One log, batch by batch from its start; what must be compared later is gathered on the way."""

    def __init__(self, storage: Storage, directory: str, verified: Verified, log_start: int | None = None):
        self.log_start = log_start  # by the checkpoint; None: the log lies alone
        self.storage = storage
        self.directory = directory
        self.verified = verified
        self.producers = ProducerStates()
        self.epochs: LeaderEpochs | None = None
        self.start_offset = self.next_offset = 0
        self.has_gaps = False
        self._epoch = -1

    def problems(self) -> Iterator[Problem]:
        names = self.storage.list(self.directory)
        self.verified.logs += 1
        for name in names:
            if name.endswith(SWAP_SUFFIXES):
                yield Problem(self._path(name), "", "is left of a crash; the next start finishes or drops it")
        try:
            self.epochs = read_leader_epochs(self.storage, self.directory)
        except ProtocolError as error:
            yield Problem(self._path(LEADER_EPOCHS), "", str(error))
        try:
            read_topic_id(self.storage, self.directory)
        except ProtocolError as error:
            yield Problem(self._path("partition.metadata"), "", str(error))
        bases = [int(name[:20]) for name in names if name.endswith(".log") and name[:20].isdigit()]
        if bases:
            self.start_offset = self.next_offset = bases[0]
        snapshots = snapshot_offsets(self.storage, self.directory)
        for base in bases:
            yield from self._check_snapshots(snapshots, base)
            yield from self._check_segment(Segment(self.storage, self.directory, base), base == bases[-1])
        yield from self._check_snapshots(snapshots, self.next_offset)
        for offset in snapshots:
            yield Problem(self._path(f"{offset:020}.snapshot"), "", f"is behind the log's end, {self.next_offset}")
        latest = self.epochs.latest if self.epochs else None
        if latest is not None and latest.start_offset > self.next_offset:
            yield Problem(
                self._path(LEADER_EPOCHS), "", f"epoch {latest.epoch} begins at {latest.start_offset}, behind the end"
            )

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}" if self.directory else name

    def _check_segment(self, segment: Segment, is_active: bool) -> Iterator[Problem]:
        self.verified.segments += 1
        self.verified.size_bytes += segment.size_bytes
        if segment.base_offset < self.next_offset:
            yield Problem(segment.path, "", f"begins before {self.next_offset}, where the segment before it ends")
        found: list[tuple[int, int, int]] = []  # position, last offset, largest timestamp
        aborted: list[AbortedTxn] = []
        try:
            for batch in batches(segment.view(0, segment.size_bytes), strict=True):
                yield from self._check_batch(segment, batch)
                found.append((batch.position, batch.last_offset, batch.max_timestamp))
                if batch.producer_id >= 0:
                    ended = self.producers.apply(batch)
                    if ended is not None:
                        aborted.append(ended)
        except ProtocolError as error:
            position = found[-1][0] if found else 0
            yield Problem(segment.path, f"behind the batch at byte {position}", str(error))
        yield from _check_offset_index(segment, found, is_active)
        yield from _check_time_index(segment, found, is_active)
        yield from _check_transaction_index(segment, aborted, exact=self.start_offset == 0 and not self.has_gaps)
        segment.close()

    def _check_batch(self, segment: Segment, batch: Batch) -> Iterator[Problem]:
        place = f"batch at byte {batch.position}"
        self.verified.batches += 1
        try:
            records = list(batch.records(check_crc=True))
        except ProtocolError as error:
            yield Problem(segment.path, place, str(error))
            records = []
        self.verified.records += len(records)
        first_offset = batch.base_offset if batch.magic == 2 or not records else records[0].offset
        if first_offset < max(self.next_offset, segment.base_offset):
            yield Problem(segment.path, place, f"offset {first_offset} comes where {self.next_offset} is due")
        self.has_gaps = self.has_gaps or first_offset > self.next_offset
        self.next_offset = batch.next_offset
        before = first_offset - 1
        for record in records:
            if not before < record.offset <= batch.last_offset:
                yield Problem(segment.path, place, f"offset {record.offset} comes behind {before}")
            before = record.offset
        if batch.timestamp_type == CREATE_TIME and records and batch.delete_horizon is None:
            newest = max(record.timestamp for record in records)
            if newest != batch.max_timestamp:
                yield Problem(
                    segment.path, place, f"largest timestamp is {newest}, the header says {batch.max_timestamp}"
                )
        epoch = batch.partition_leader_epoch
        if batch.magic == 2:
            if epoch < self._epoch:
                yield Problem(segment.path, place, f"leader epoch {epoch} comes behind {self._epoch}")
            self._epoch = epoch
            if epoch >= 0 and self.epochs is not None:
                # The checkpoint begins with the log's start, which may be within the batch.
                visible = max(first_offset, self.log_start or 0)
                known = self.epochs.epoch_for_offset(visible)
                is_visible, is_due = visible <= batch.last_offset, self.log_start is not None
                if known != epoch and is_visible and (known is not None or is_due):
                    told = "does not know it" if known is None else f"says {known}"
                    yield Problem(segment.path, place, f"leader epoch is {epoch}, {LEADER_EPOCHS} {told}")

    def _check_snapshots(self, snapshots: list[int], upto: int) -> Iterator[Problem]:
        """Compare the snapshots that were due before the segment at `upto` with the state that the log gives."""
        while snapshots and snapshots[0] <= upto:
            offset = snapshots.pop(0)
            path = self._path(f"{offset:020}.snapshot")
            try:
                kept = ProducerStates()
                load_snapshot_file(kept, self.storage, path)
            except ProtocolError as error:
                yield Problem(path, "", str(error))
                continue
            if offset == self.next_offset:
                yield from self._compare_producers(path, kept)

    def _compare_producers(self, path: str, kept: ProducerStates) -> Iterator[Problem]:
        """Who is missing has expired, perhaps. Where cleaning has taken records away, nothing can be said."""
        if self.has_gaps:
            return
        for producer_id, producer in kept.producers.items():
            replayed = self.producers.producers.get(producer_id)
            if replayed is None:
                if self.start_offset == 0:
                    yield Problem(path, f"producer {producer_id}", "has never written to this log")
            elif _shown(producer) != _shown(replayed) and (
                (producer.transaction_first_offset or 0) >= self.start_offset
                and (replayed.batches or self.start_offset == 0)
            ):
                yield Problem(path, f"producer {producer_id}", f"{_shown(producer)}; the log gives {_shown(replayed)}")


def _shown(producer: Producer) -> str:
    first_offset = producer.transaction_first_offset
    transaction = "no transaction" if first_offset is None else f"a transaction since offset {first_offset}"
    return f"epoch {producer.epoch}, last sequence {producer.last_sequence}, {transaction}"


def _check_offset_index(segment: Segment, found: list[tuple[int, int, int]], is_active: bool) -> Iterator[Problem]:
    index = segment.offset_index
    entries = yield from _check_form(segment, index, is_active)
    at_position = {position: at for at, (position, _, _) in enumerate(found)}
    ends = {last_offset: at for at, (_, last_offset, _) in enumerate(found)}
    for number, (offset, position) in enumerate(entries):
        if position not in at_position:
            yield Problem(index.path, f"entry {number}", f"no batch begins at byte {position}")
        # Kafka up to 3.9 names the last offset of all batches that were appended together.
        elif offset not in ends or ends[offset] < at_position[position]:
            yield Problem(index.path, f"entry {number}", f"no batch from byte {position} on ends with offset {offset}")


def _check_time_index(segment: Segment, found: list[tuple[int, int, int]], is_active: bool) -> Iterator[Problem]:
    index = segment.time_index
    entries = yield from _check_form(segment, index, is_active)
    at, newest = 0, NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(entries):
        held = NO_TIMESTAMP
        while at < len(found) and (at == 0 or found[at - 1][1] < offset):
            held = found[at][2]
            newest = max(newest, held)
            at += 1
        if at and found[at - 1][1] < offset:
            yield Problem(index.path, f"entry {number}", f"offset {offset} is behind the segment's end")
        elif timestamp != newest or (held != NO_TIMESTAMP and held != timestamp):
            yield Problem(
                index.path, f"entry {number}", f"{timestamp} at offset {offset}; the largest so far is {newest}"
            )


def _check_form(
    segment: Segment, index: OffsetIndex | TimeIndex, is_active: bool
) -> Generator[Problem, None, list[tuple[int, int]]]:
    """Check an index by itself, its length and that its entries go up; return them, none if there is no file."""
    yield from _check_length(segment, index.path, index.count * index.entry.size, index.entry.size, is_active)
    if not index.exists:
        return []
    try:
        index.check()
    except ProtocolError as error:
        yield Problem(index.path, "", str(error))
    return index.entries()


def _check_length(segment: Segment, path: str, used_bytes: int, entry_bytes: int, is_active: bool) -> Iterator[Problem]:
    """Only the active segment's indexes are longer than their entries, and only by zeros."""
    if not segment.storage.exists(path):
        if segment.size_bytes:
            yield Problem(path, "", "is missing; the next start makes it")
        return
    size_bytes = segment.storage.size_bytes(path)
    if size_bytes % entry_bytes:
        yield Problem(path, f"byte {size_bytes}", f"ends within an entry of {entry_bytes} bytes")
    elif size_bytes > used_bytes and not is_active:
        yield Problem(path, f"byte {used_bytes}", f"{size_bytes - used_bytes} bytes of zeros at the end")
    elif size_bytes > used_bytes:
        file = segment.storage.open(path)
        try:
            if any(file.read_at(used_bytes, size_bytes - used_bytes)):
                yield Problem(path, f"byte {used_bytes}", "entries behind zeros")
        finally:
            file.close()


def _check_transaction_index(segment: Segment, aborted: list[AbortedTxn], *, exact: bool) -> Iterator[Problem]:
    """Compare with the markers in the log. Where cleaning took them or their records away, nothing can be said."""
    path = segment.transaction_index.path
    try:
        entries = segment.transaction_index.entries()
    except ProtocolError as error:
        yield Problem(path, "", str(error))
        return
    if exact:
        for number, entry in enumerate(entries):
            if entry not in aborted:
                yield Problem(path, f"entry {number}", f"{entry} is not what the log gives")
        for missing in aborted:
            if missing not in entries:
                yield Problem(path, "", f"{missing} is missing")
