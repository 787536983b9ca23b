"""The log of one partition: what a leader, a follower and a reader do with it.

    log start offset                                       next offset (log end, LEO)
          |                                                       |
    [ segment 0 ........ ][ segment 1 ............ ][ active segment ...>
                                       |
                          recovery point: flushed up to here

What must hold: offsets only rise; exactly the last segment is written to; log start <= recovery point <= next offset;
the producers' state and the leader epochs are those of the bytes up to the next offset.
One owner at a time: nothing in here waits or locks. Time enters as `now_ms`.
After a failed write or flush that could not be undone the log is offline: every call raises LogOffline until it is
opened anew, for nobody knows what the disk holds then.
Reading is in reading.py, opening in recovery.py, the checks of produced bytes in validate.py, taking old segments away
and putting cleaned ones in their place in pruning.py.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress

from minibroker.errors import Error, KafkaError, LogOffline, ProtocolError, StorageError
from minibroker.in_pieces import finish
from minibroker.log.append_conversion import look, place
from minibroker.log.checkpoints import LEADER_EPOCHS, path_in, sync_file, write_leader_epochs
from minibroker.log.segment import KINDS, OFFSET_DELTA_MAX, OFFSET_MAX, ROLLED, Segment
from minibroker.log.snapshots import forget_snapshots, load_producers, snapshot_path, write_snapshot
from minibroker.log.validate import CLIENT, validate_in_place, validate_replicated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from typing import Final

    from minibroker.in_pieces import InPieces
    from minibroker.log.append_conversion import Looked
    from minibroker.log.epochs import LeaderEpochs
    from minibroker.log.producers import ProducerStates, Verification
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Chunk, File, Storage
    from minibroker.log.validate import AcceptedBatch, Allowance, Validated


NOTHING_OPEN: Final[Mapping[str, File]] = {}


def _nobody(*_: int) -> None:
    """Nobody wants to know."""


class Recovery:
    """What opening had to do, for whoever tells people."""

    __slots__ = ("cut_bytes", "reason", "scanned_bytes")

    def __init__(self) -> None:
        self.scanned_bytes = 0
        self.cut_bytes = 0  # thrown away behind the first byte that is no good batch
        self.reason = ""  # what was wrong with it


def no_jitter(most_ms: int) -> int:
    return 0


class Appended:
    """Where produced records went; -1 if there were none."""

    __slots__ = ("append_time_ms", "first_offset", "is_duplicate", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, append_time_ms: int, is_duplicate: bool = False):
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms  # -1: the records keep the producer's times
        self.is_duplicate = is_duplicate  # they were there before


class _OfflineOnFailure:
    """Around what must not fail half way: a disk that refuses there takes the log offline."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog):
        self._log = log

    def __enter__(self) -> None:
        self._log.check_online()

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: object) -> None:
        if isinstance(failure, StorageError):
            self._log.fail(failure)


class PartitionLog:
    """Segments in a directory, and what is known of them."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        settings: LogSettings,
        segments: list[Segment],
        producers: ProducerStates,
        epochs: LeaderEpochs,
        *,
        log_start_offset: int,
        next_offset: int,
        recovery_point: int,
        recovery: Recovery | None = None,
        jitter: Callable[[int], int] = no_jitter,
        is_settled: bool = False,
        rolls: Sequence[tuple[int, str]] = (),
    ):
        self.storage = storage
        self.directory = directory
        self.settings = settings
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = next_offset
        self.recovery_point = recovery_point
        self.recovery = recovery or Recovery()
        self.offline: StorageError | None = None
        self.on_offline: Callable[[], object] | None = None  # told when that happens
        self.cuts = 0  # how often segments or parts of them went: who is at work on some of them looks whether it moved
        # Called before records from an offset on go: what the disk says of the log must not go beyond it any more.
        self.before_cut: Callable[[int], object] = _nobody
        self.has_rolled: Callable[[], object] = _nobody  # called when a segment has ended: it is to be flushed
        self._bases = [segment.base_offset for segment in segments]
        self._rolls = [*rolls]  # base offsets of segments before which not all is flushed, and the files that say so
        self._jitter = jitter  # picks how much earlier than others a segment ends, so that not all end at once
        self._jitter_ms = 0
        self.is_settled = is_settled  # nothing has been written since a clean stop: closing has nothing to do
        self.names_changed = not is_settled  # whether the directory has names that may not be on the disk
        self.epochs_unwritten = self._epochs_unsynced = False
        self._flushed_ms = 0
        # What became of batches that producers sent, since the log was opened.
        self.batches_in_place = 0
        self.records_converted = 0  # written anew, in the topic's format and codec
        self.records_recompressed = 0  # those of them that had the format already
        self.batches_converted_for_fetch = 0

    @property
    def or_offline(self) -> _OfflineOnFailure:
        # One each time: a log that held it would wait for the garbage collector when it is deleted.
        return _OfflineOnFailure(self)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def segment_of(self, offset: int) -> int:
        """Return the index of the segment that would hold an offset."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _first_unflushed(self) -> int:
        """Return the index of the first segment that may not be on the disk: one sealed since it was flushed is not."""
        return self.segment_of(max(self.recovery_point - 1, 0))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return up to where no transaction is open, at most the high watermark."""
        producers = self.producers
        if not producers.open_transactions and not producers.unreplicated:
            return high_watermark
        return producers.last_stable_offset(high_watermark, self.log_start_offset)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose markers lie below it are decided."""
        if self.producers.unreplicated:
            self.producers.on_high_watermark_updated(high_watermark)

    # Appending

    def append_as_leader(
        self,
        data: Chunk,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: str = CLIENT,
        verification: Verification | None = None,
        transaction_version: int = 0,
        allowance: Allowance | None = None,
        looked: Looked | None = None,
        checked: Validated | None = None,
    ) -> Appended:
        """Check what a producer sent, give it offsets, and append it; `data` is the log's to change.

        verification: what the coordinator confirmed of the batch's transaction. transaction_version: of a marker.
        allowance: what the batches of the request may still cost; LongValidation if this one costs more.
        looked: what came of `look` at the same data. checked: a batch of this broker's own, for this place.
        """
        self.check_online()
        settings, name = self.settings.validation, self.directory
        if checked is None and looked is None:
            checked = validate_in_place(
                data, settings, self.log_end_offset, leader_epoch, now_ms, name, origin, allowance
            )
        if checked is None:
            if looked is None:
                work = look(data, settings, now_ms, name, leader_epoch, origin, allowance)
                looked = finish(work) if allowance is None else allowance.finish(work)
            checked = place(looked, next_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms)
        if checked.size_bytes > self.settings.segment_bytes:
            raise KafkaError(
                Error.RECORD_LIST_TOO_LARGE,
                f"{checked.size_bytes} bytes are more than a segment may hold: segment.bytes is "
                f"{self.settings.segment_bytes}",
            )
        if not checked.batches:
            return Appended(-1, -1, -1)
        first = checked.batches[0]
        if first.leader_epoch != self.epochs.latest_epoch:
            self._note_epoch(first.leader_epoch, checked.first_offset)
        self._roll_if_due(checked.size_bytes, checked.first_offset, checked.last_offset, checked.max_timestamp, now_ms)
        if first.producer_id >= 0:
            verifies = self.settings.transaction_partition_verification_enable
            duplicate = self.producers.check(first, origin, verification, transaction_version, verifies=verifies)
            if duplicate is not None:
                return Appended(duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True)
        self._write(checked.chunks, checked.batches, now_ms)
        if checked.in_place:
            self.batches_in_place += len(checked.batches)
        elif looked is not None:
            self._note_conversion(looked, checked)
        return Appended(checked.first_offset, checked.last_offset, checked.append_time)

    def _note_conversion(self, looked: Looked, checked: Validated) -> None:
        count = checked.last_offset - checked.first_offset + 1
        self.records_converted += count
        if looked.batches[0].magic == checked.batches[0].magic:
            self.records_recompressed += count

    def look(self, data: bytes, *, now_ms: int, allowance: Allowance) -> InPieces[Looked]:
        """Check what a client sent, in pieces, before it is appended: all that needs no more than the data.

        Settings are those that the topic has when this begins.
        """
        return look(data, self.settings.validation, now_ms=now_ms, partition=self.directory, allowance=allowance)

    def append_as_follower(self, data: Chunk, *, now_ms: int) -> int:
        """Append whole batches as a leader has them; return how many bytes they were.

        A batch cut off at the end is left out, as everywhere. Each checksum is looked at.
        """
        self.check_online()
        checked = validate_replicated(data)
        run: list[AcceptedBatch] = []
        start = end = 0
        for batch in checked.batches:
            # Of a compressed batch before v2 the first offset is not in front; the last one stands for it.
            if batch.first_offset < self.log_end_offset:
                raise KafkaError(
                    Error.CORRUPT_MESSAGE,
                    f"{self.directory}: offset {batch.first_offset} comes, {self.log_end_offset} or more is due",
                )
            if run and (
                self.active.size_bytes + end - start + batch.size_bytes > self.settings.segment_bytes
                or batch.last_offset - run[0].first_offset > OFFSET_DELTA_MAX
            ):
                self._append_run(checked.chunks[0][start:end], run, now_ms)
                run, start = [], end
            run.append(batch)
            end += batch.size_bytes
        if run:
            self._append_run(checked.chunks[0][start:end], run, now_ms)
        return end

    def _append_run(self, data: Chunk, run: list[AcceptedBatch], now_ms: int) -> None:
        """Append batches that fit into one segment; a new one begins with the first of them."""
        first_offset, last_offset = run[0].first_offset, run[-1].last_offset
        if run[0].magic < 2:
            first_offset = max(last_offset - OFFSET_DELTA_MAX, self.log_end_offset)
        for batch in run:
            self._note_epoch(batch.leader_epoch, batch.first_offset)
        self._roll_if_due(len(data), first_offset, last_offset, max(batch.max_timestamp for batch in run), now_ms)
        self._write([data], run, now_ms)

    def _write(self, chunks: Sequence[Chunk], added: Sequence[AcceptedBatch], now_ms: int) -> None:
        active = self.active
        self.is_settled = False
        if self.epochs_unwritten:
            self.write_epochs(is_synced=False)
        try:
            active.append(chunks, added, self.settings.index_interval_bytes)
        except StorageError as failure:
            self._take_back(failure)
            raise
        self.log_end_offset = added[-1].last_offset + 1
        for batch in added:
            if batch.producer_id >= 0:
                aborted = self.producers.apply(batch)
                if aborted is not None:
                    with suppress(StorageError):  # it is written before the segment is flushed, or ends
                        active.transaction_index.add(aborted)
        if self.log_end_offset - self.recovery_point >= self.settings.flush_messages:
            self.flush(now_ms=now_ms)

    def _take_back(self, failure: StorageError) -> None:
        """Leave the file as it was before an append that failed; a full disk is no reason to stop for good.

        Kafka: a write that fails takes the whole log directory offline.
        """
        try:
            self.active.undo_append()
        except StorageError:
            self.fail(failure)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Note that a leader begins to write here, even if it never will.

        The file gets to know with the first batch, and the disk with the flush of that: all that would be lost is an
        epoch in which nothing was written. So a start need not write to every partition there is.
        """
        self.check_online()
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self.epochs_unwritten = True

    def _note_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Note the epoch of a batch that is about to be written.

        The file need not be on the disk before the recovery point passes the batch, for until then a start asks the
        batches. That is not so of one without an epoch.
        """
        if leader_epoch < 0:
            if self.epochs.clear():
                self.write_epochs()
        elif self.epochs.assign(leader_epoch, start_offset):
            self.write_epochs(is_synced=False)

    def write_epochs(self, *, is_synced: bool = True) -> None:
        """Put the epochs into their file; if that fails, the next append tries it again before it writes."""
        self.is_settled = False
        self.epochs_unwritten = True
        write_leader_epochs(self.storage, self.directory, self.epochs, is_synced=is_synced)
        self.epochs_unwritten = False
        self._epochs_unsynced = not is_synced
        self.names_changed = self.names_changed or not is_synced

    # Segments

    def _roll_if_due(self, size_bytes: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int) -> None:
        active, settings = self.active, self.settings
        if last_offset - active.base_offset > OFFSET_DELTA_MAX or (
            active.size_bytes
            and (
                active.size_bytes + size_bytes > settings.segment_bytes
                or _age_ms(active, timestamp, now_ms) > settings.segment_age_max_ms - self._jitter_ms
                or active.index_bytes > settings.segment_index_bytes
            )
        ):
            self.roll(first_offset, now_ms)

    def roll(self, base_offset: int | None = None, now_ms: int = 0) -> None:
        """End the active segment and begin another; of the producers' state before it a snapshot is kept."""
        base_offset = self.log_end_offset if base_offset is None else base_offset
        if base_offset == self.active.base_offset:
            return
        self.check_online()
        try:
            self.active.seal()
            self._note_roll(base_offset)
            write_snapshot(self.storage, self.directory, base_offset, self.producers)
            self._begin_segment(base_offset, now_ms)
        except StorageError as failure:
            # The active one goes on, if there is no sign of another.
            with self.or_offline:
                Segment(self.storage, self.directory, base_offset).remove()
                self.storage.remove(snapshot_path(self.directory, base_offset))
                self._forget_rolls(base_offset)
            raise failure
        self.has_rolled()

    def _note_roll(self, base_offset: int) -> None:
        """Note where the log ends before a segment, until that is flushed: its end may be lost, and the segment not."""
        if self.storage.is_durable and self.recovery_point < self.log_end_offset:
            path = f"{self.directory}/{base_offset:020}.{self.log_end_offset:020}{ROLLED}"
            self.storage.open(path, create=True).close()
            self._rolls.append((base_offset, path))

    def _forget_rolls(self, start: int = 0, end: int = OFFSET_MAX) -> None:
        """Forget what was noted of segments that begin between two offsets, `end` among them."""
        for roll in [roll for roll in self._rolls if start <= roll[0] <= end]:
            self.storage.remove(roll[1])
            self._rolls.remove(roll)
            self.names_changed = True

    def _begin_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(self.storage, self.directory, base_offset, now_ms)
        segment.create(self.settings.segment_index_bytes)
        self.segments.append(segment)
        self._bases.append(base_offset)
        self.names_changed = True
        self.is_settled = False
        self._jitter_ms = self._jitter(min(self.settings.segment_jitter_ms, self.settings.segment_ms))

    def put_segments(self, start: int, end: int, new: Sequence[Segment] = ()) -> None:
        """Let other segments, or none, take the place of some. Their files are the caller's: pruning.py."""
        self.segments[start:end] = new
        self._bases[start:end] = [segment.base_offset for segment in new]

    # Flushing and closing

    def flush(self, *, now_ms: int = 0) -> None:
        """Return when everything appended so far is on the disk."""
        self.check_online()
        if self.recovery_point < self.log_end_offset or self.names_changed:
            self.active.transaction_index.write()
            with self.or_offline:
                for segment in self.segments[self._first_unflushed() :]:
                    segment.sync()
                if self._epochs_unsynced:
                    # Before the recovery point passes the batches from which they could be told.
                    sync_file(self.storage, path_in(self.directory, LEADER_EPOCHS))
                self._forget_rolls()
                if self.names_changed:
                    self.storage.sync_directory(self.directory)
            self.names_changed = self._epochs_unsynced = False
            self.recovery_point = self.log_end_offset
        self._flushed_ms = now_ms

    def flush_plan(self) -> FlushPlan:
        """Return what has to be synced so that everything before the active segment is on the disk.

        Whoever does it, in a thread too, opens the files by their names, and tells `flushed` then.
        """
        segments = self.segments[self._first_unflushed() : -1]
        paths = [path for segment in segments for path in map(segment.path_of, KINDS)]
        paths += [snapshot_path(self.directory, segment.base_offset) for segment in [*segments[1:], self.active]]
        paths.append(path_in(self.directory, LEADER_EPOCHS))
        return FlushPlan(self.directory, paths, self.active.base_offset, self.cuts)

    def flushed(self, plan: FlushPlan) -> None:
        """Take note that what was planned is on the disk, unless something of it has been cut off meanwhile."""
        if plan.cuts == self.cuts and self.offline is None:
            self.recovery_point = max(self.recovery_point, plan.end_offset)
            with self.or_offline:
                self._forget_rolls(end=plan.end_offset)

    def flush_due(self, now_ms: int) -> bool:
        """Return whether flush.ms has passed since the last flush, and there is something to flush."""
        return self.recovery_point < self.log_end_offset and now_ms - self._flushed_ms >= self.settings.flush_ms

    def close(self) -> None:
        """Leave the directory as a clean stop does: everything flushed, indexes cut to their length, a snapshot."""
        plan = self.end()
        if plan is not None:
            try:
                with self.or_offline:
                    plan.carry_out(self.storage)
                self.flushed(plan)
            finally:
                self.release()

    def end(self) -> FlushPlan | None:
        """Write what a clean stop leaves, and return what is to be synced then, if anything; else close all files.

        Whoever does it, in a thread too, tells `flushed`, or `fail`, and then `release`: files that were written to
        while they were open are synced as they are. Nothing may be written any more.
        A log that never had a record needs no flush: what a crash takes of it, opening makes again.
        """
        opened: dict[str, File] = {}
        try:
            if self.offline is not None or self.is_settled:
                return None
            segments = self.segments[self._first_unflushed() :]
            written = {path: file for segment in segments for path, file in segment.open_files().items()}
            with self.or_offline:
                self.active.seal()
                if not self.log_end_offset:
                    return None
                write_snapshot(self.storage, self.directory, self.log_end_offset, self.producers)
            opened = written
        finally:
            self.release(opened)  # of thousands of logs no more are open in the end than were before
        paths = [path for segment in segments for path in map(segment.path_of, KINDS)]
        if self._epochs_unsynced:
            paths.append(path_in(self.directory, LEADER_EPOCHS))
        outdated = [path for _, path in self._rolls]
        return FlushPlan(self.directory, paths, self.log_end_offset, self.cuts, outdated=outdated, opened=opened)

    def release(self, keep: Container[str] = ()) -> None:
        """Close all files but those of some paths, whatever is in them."""
        for segment in self.segments:
            segment.close(keep)

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Forget every record at `offset` and behind. The disk has forgotten them too when this returns."""
        self.check_online()
        if offset >= self.log_end_offset:
            # Who led without writing anything has noted an epoch that nobody else knows of.
            if self.epochs.truncate_from_end(self.log_end_offset):
                self.write_epochs()
            return
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower(self._end_after_cut(offset))
        with self.or_offline:
            self.cuts += 1
            self.is_settled = False
            self._remove_segments_above(offset)
            self.active.truncate_to(offset)
            self.log_end_offset = min(offset, self.active.next_offset())
            self.recovery_point = min(self.recovery_point, self.log_end_offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            if self.epochs.truncate_from_end(offset):
                self.write_epochs()
            forget_snapshots(self.storage, self.directory, above=self.log_end_offset)
            load_producers(self.producers, self.storage, self.directory, self.segments, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Forget every record; the next one gets this offset."""
        self._lower(0)
        with self.or_offline:
            self.cuts += 1
            self._remove_segments_above(-1)
            forget_snapshots(self.storage, self.directory, above=-1)
            self._begin_segment(offset, now_ms)
            self.storage.sync_directory(self.directory)  # a recovery point says that there is such a segment
            self.log_end_offset = self.log_start_offset = self.recovery_point = offset
            self.epochs.clear()
            self.write_epochs()
            self.producers.clear()

    def _end_after_cut(self, offset: int) -> int:
        """Return where the log ends when it has been cut at an offset, or less: a batch goes as a whole."""
        segment = self.segments[self.segment_of(offset)]
        try:
            place = segment.find(offset - 1)
            if place is not None:
                batch = segment.batch_at(place)
                if batch.base_offset < offset:
                    return batch.next_offset if batch.next_offset <= offset else batch.base_offset
        except ProtocolError:
            pass  # who cuts it is told
        return segment.base_offset

    def _lower(self, offset: int) -> None:
        """Claim no more of what is going to be cut off.

        What is appended there later has not been flushed, whatever was noted before.
        """
        self.before_cut(offset)
        self.recovery_point = min(self.recovery_point, offset)

    def _remove_segments_above(self, offset: int) -> None:
        """Remove segments that begin behind `offset`, the newest first: a crash between leaves no hole."""
        while self.segments and self.active.base_offset > offset:
            self.active.remove()
            self.segments.pop()
            self._bases.pop()
        self._forget_rolls(offset + 1)
        self.storage.sync_directory(self.directory)

    def advance_log_start(self, offset: int) -> None:
        """Hide the records below `offset`; their segments can go when retention passes by."""
        self.check_online()
        if offset > self.log_end_offset:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"{offset} is behind the end of the log, {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self.write_epochs()

    def fail(self, failure: StorageError) -> None:
        """Go offline: nothing can be said any more of what is on the disk."""
        self.offline = failure
        if self.on_offline is not None:
            self.on_offline()

    def check_online(self) -> None:
        """Raise LogOffline if the disk has failed this log."""
        if self.offline is not None:
            raise LogOffline(f"{self.directory} is offline: {self.offline}")


def _age_ms(active: Segment, timestamp: int, now_ms: int) -> int:
    """Return how long a segment is written to, by the records' own time if they have one."""
    first = active.first_timestamp()
    return timestamp - first if first >= 0 and timestamp >= 0 else now_ms - active.created_ms


class FlushPlan:
    """Files to be synced, and up to which offset a log is on the disk then."""

    __slots__ = ("cuts", "directory", "end_offset", "opened", "outdated", "paths")

    def __init__(
        self,
        directory: str,
        paths: list[str],
        end_offset: int,
        cuts: int,
        *,
        outdated: Sequence[str] = (),
        opened: Mapping[str, File] = NOTHING_OPEN,
    ):
        """opened: files by path that are open, and stay so until this has been carried out."""
        self.directory = directory
        self.paths = paths
        self.end_offset = end_offset
        self.cuts = cuts  # of the log when it was made: what has been cut since is another log's
        self.opened = opened
        self.outdated = outdated  # files that are to go once the others are on the disk

    def carry_out(self, storage: Storage) -> None:
        """Sync the files that are still there, and their names; what has gone meanwhile was cut off or deleted.

        A file that is open is synced as it is: Linux tells once of what it could not write, to each that is open then.
        """
        for path in self.paths:
            file = self.opened.get(path)
            if file is not None:
                file.sync()
            else:
                _sync_unless_gone(storage, path, sync_file)
        for path in self.outdated:
            storage.remove(path)
        _sync_unless_gone(storage, self.directory, lambda storage, path: storage.sync_directory(path))


def carry_out_in_turn(storage: Storage, plans: Sequence[FlushPlan]) -> list[StorageError | None]:
    """Return of each plan what the disk refused; None: it has been carried out."""
    return [_failure_of(plan, storage) for plan in plans]


def _failure_of(plan: FlushPlan, storage: Storage) -> StorageError | None:
    try:
        plan.carry_out(storage)
    except StorageError as failure:
        return failure
    return None


def _sync_unless_gone(storage: Storage, path: str, sync: Callable[[Storage, str], object]) -> None:
    if storage.exists(path):
        try:
            sync(storage, path)
        except StorageError:
            if storage.exists(path):
                raise
