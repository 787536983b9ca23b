"""Verification of a log directory: everything is read, nothing is changed.

Every batch is read to its last record, and whatever else lies beside the batches is compared with what they say:

    batches    sizes, checksums, records, offsets rising, leader epochs never falling, sequence numbers in their order
    indexes    each entry against the batch that it names; aborted transactions against the markers
    snapshots  checksums, and the producers against a replay of the log
    epochs     each batch against the checkpoint; checkpoints of the directory against the ends of the logs

A problem names the file, the place in it and what is wrong there.
Not here: what can be said of a segment by itself (segment_findings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from minibroker.errors import ProtocolError
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
from minibroker.log.meta_properties import read_meta_properties
from minibroker.log.producers import Producer, ProducerStates
from minibroker.log.segment import Segment
from minibroker.log.snapshots import load_snapshot_file, snapshot_offsets
from minibroker.tools.verify.segment_findings import (
    Findings,
    Problem,
    aborted_in,
    are_numbered,
    epoch_problem,
    read_segment,
    sequence_problem,
)
from minibroker.tools.verify.transaction_findings import NOTHING, row_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Storage
    from minibroker.stored.producers import AbortedTxn

    Offsets = dict[tuple[str, int], int]

INDEXES = (".index", ".timeindex", ".txnindex")
SWAP_SUFFIXES = (".cleaned", ".swap", ".tmp")  # .deleted files wait a minute, and a clean stop leaves them


class VerifiedCounts:
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
    storage: Storage,
    verified: VerifiedCounts,
    progress: Callable[[str], object] = lambda name: None,
    *,
    own_name: str = "",
) -> Iterator[Problem]:
    """Yield what is wrong with a log directory and all logs in it, or with the one log that it is.

    own_name: of the directory, in case that it is a log.
    """
    yield from DirectoryVerifier(storage, verified, own_name=own_name).problems(progress=progress)


def everything(topic: str, partition: int) -> bool:
    return True


class DirectoryVerifier:
    """A log directory and all logs in it that are wanted, or the one log that it is."""

    def __init__(
        self,
        storage: Storage,
        verified: VerifiedCounts | None = None,
        *,
        own_name: str = "",
        wants: Callable[[str, int], bool] = everything,
    ):
        """verified: what counts for all logs; without it each has its own."""
        names = storage.list("")
        self.storage = storage
        self.is_log = any(name.endswith(".log") for name in names)
        self.checkpoints, self._problems = ({}, []) if self.is_log else read_checkpoints(storage)
        self.checkpoints = {
            name: {key: offset for key, offset in offsets.items() if wants(*key)}
            for name, offsets in self.checkpoints.items()
        }
        self.logs: list[LogVerifier] = []
        for name in [own_name] if self.is_log else names:
            key = split_name(name)
            if wants(*key) if key else self.is_log:
                start = None if self.is_log else self.checkpoints.get(LOG_STARTS, {}).get(key or ("", 0), 0)
                directory = "" if self.is_log else name
                self.logs.append(LogVerifier(storage, directory, verified or VerifiedCounts(), start, name=name))

    def problems(
        self,
        read: Callable[[LogVerifier, int], Findings] | None = None,
        progress: Callable[[str], object] = lambda name: None,
    ) -> Iterator[Problem]:
        """Yield what is wrong. read: gives what is in a segment of a log, if that has been read elsewhere."""
        yield from self._problems
        for log in self.logs:
            progress(log.name)
            yield from log.problems(read or LogVerifier.read)
        if not self.is_log:
            ends = {split_name(log.name) or ("", 0): log.next_offset for log in self.logs}
            yield from check_root(self.storage, self.checkpoints, ends)


def read_checkpoints(storage: Storage) -> tuple[dict[str, Offsets], list[Problem]]:
    """Return the checkpoints of a log directory by their names, and what is wrong with those that are left out."""
    found: dict[str, Offsets] = {}
    problems = []
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        try:
            found[name] = read_offsets(storage, name)
        except ProtocolError as error:
            problems.append(Problem(name, "", str(error)))
    return found, problems


def check_root(storage: Storage, checkpoints: dict[str, Offsets], ends: Offsets) -> Iterator[Problem]:
    """Compare the files of a log directory with where its logs end."""
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
    """One log, put together from its segments, from its start on.

    `problems` is all of it; who reads a segment elsewhere begins there, too.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        verified: VerifiedCounts,
        log_start: int | None = None,
        *,
        name: str = "",
    ):
        self.log_start = log_start  # by the checkpoint; None: the log lies alone
        self.name = directory or name
        self.has_sequences = are_numbered(self.name)
        self.storage = storage
        self.directory = directory
        self.verified = verified
        self.producers = ProducerStates()
        self.epochs: LeaderEpochs | None = None  # None: the checkpoint cannot be read
        self._names = storage.list(directory)
        self.bases = [int(name[:20]) for name in self._names if name.endswith(".log") and name[:20].isdigit()]
        self.start_offset = self.next_offset = self.bases[0] if self.bases else 0
        self._snapshots: list[int] = []
        self._gap_end = NOTHING  # the first offset behind the last gap
        self._epoch = -1

    @property
    def has_gaps(self) -> bool:
        return self._gap_end != NOTHING

    def problems(self, read: Callable[[LogVerifier, int], Findings]) -> Iterator[Problem]:
        yield from self.begin()
        for base in self.bases:
            yield from self.add(base, read(self, base))
        yield from self.finish()

    def read(self, base: int, sound: Callable[[memoryview], Container[int]] = lambda view: ()) -> Findings:
        """Return what is in a segment; wherever that is done, `begin` comes before. sound: see `read_segment`."""
        segment = Segment(self.storage, self.directory, base)
        found = read_segment(
            segment,
            self.epochs,
            self.log_start,
            is_active=base == self.bases[-1],
            has_sequences=self.has_sequences,
            sound=sound(segment.view(0, segment.size_bytes)),
        )
        segment.close()
        return found

    def begin(self) -> Iterator[Problem]:
        self.verified.logs += 1
        segments = {name[:20] for name in self._names if name[20:].startswith(".log")}  # also those that are to go
        for name in self._names:
            if name.endswith(SWAP_SUFFIXES):
                yield Problem(self._path(name), "", "is left of a crash; the next start finishes or drops it")
            elif name[20:] in INDEXES and name[:20].isdigit() and name[:20] not in segments:
                yield Problem(self._path(name), "", f"there is no {name[:20]}.log; the next start drops its indexes")
        try:
            self.epochs = read_leader_epochs(self.storage, self.directory)
        except ProtocolError as error:
            yield Problem(self._path(LEADER_EPOCHS), "", str(error))
        try:
            read_topic_id(self.storage, self.directory)
        except ProtocolError as error:
            yield Problem(self._path("partition.metadata"), "", str(error))
        self._snapshots = snapshot_offsets(self.storage, self.directory)

    def finish(self) -> Iterator[Problem]:
        if self.bases and self.next_offset < self.bases[-1]:
            # The log ends where its last segment begins: that is empty, and what was before it has been taken away.
            self.next_offset = self._gap_end = self.bases[-1]
        yield from self._check_snapshots(self.next_offset)
        for offset in self._snapshots:
            yield Problem(self._path(f"{offset:020}.snapshot"), "", f"is behind the log's end, {self.next_offset}")
        latest = self.epochs.latest if self.epochs else None
        if latest is not None and latest.start_offset > self.next_offset:
            yield Problem(
                self._path(LEADER_EPOCHS), "", f"epoch {latest.epoch} begins at {latest.start_offset}, behind the end"
            )

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}" if self.directory else name

    def add(self, base: int, found: Findings) -> Iterator[Problem]:
        """Take what is in the next segment."""
        segment = Segment(self.storage, self.directory, base)
        yield from self._check_snapshots(base)
        self.verified.segments += 1
        self.verified.size_bytes += segment.size_bytes
        if base < self.next_offset:
            yield Problem(segment.path, "", f"begins before {self.next_offset}, where the segment before it ends")
        self.verified.batches += found.batches
        self.verified.records += found.records
        before = {producer_id: first_offset for first_offset, producer_id in self.producers.open_transactions.items()}
        yield from self._join(segment, found)
        yield from found.problems
        yield from found.index_problems
        # Where cleaning took markers or their records away, nothing can be said.
        is_whole = self.start_offset == 0 and not self.has_gaps
        if is_whole and found.transactions is not None and not found.transactions.agrees(before):
            yield from _transaction_problems(segment, aborted_in(segment, before))
        segment.close()

    def _join(self, segment: Segment, found: Findings) -> Iterator[Problem]:
        """Compare where a segment begins with what came before it."""
        if found.first is not None:
            first_offset, position = found.first
            if first_offset < max(self.next_offset, segment.base_offset):
                reason = f"offset {first_offset} comes where {self.next_offset} is due"
                yield Problem(segment.path, f"batch at byte {position}", reason)
            if first_offset > self.next_offset:
                self._gap_end = first_offset
            self.next_offset = found.next_offset
        if found.first_epoch is not None:
            epoch, position = found.first_epoch
            if epoch < self._epoch:
                yield Problem(segment.path, f"batch at byte {position}", epoch_problem(epoch, self._epoch))
            self._epoch = found.last_epoch
        for batch in found.told:
            known = self.producers.producers.get(batch.producer_id)
            if batch.is_first and known is not None and self.has_sequences:
                reason = sequence_problem(known, batch, max(self._gap_end, batch.gap_end))
                if reason:
                    yield Problem(segment.path, f"batch at byte {batch.position}", reason)
            self.producers.apply(batch)
        self.producers.on_high_watermark_updated(self.next_offset)  # nobody waits for replicas here
        self._gap_end = max(self._gap_end, found.gap_end)

    def _check_snapshots(self, upto: int) -> Iterator[Problem]:
        """Compare the snapshots that were due before the segment at `upto` with the state that the log gives."""
        snapshots = self._snapshots
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


def _transaction_problems(segment: Segment, aborted: list[AbortedTxn]) -> Iterator[Problem]:
    """Yield where an index is not what the log gives."""
    path, entries = segment.transaction_index.path, segment.transaction_index.entries()
    due, there = set(map(row_of, aborted)), set(map(row_of, entries))
    for number, entry in enumerate(entries):
        if row_of(entry) not in due:
            yield Problem(path, f"entry {number}", f"{entry} is not what the log gives")
    for missing in aborted:
        if row_of(missing) not in there:
            yield Problem(path, "", f"{missing} is missing")
