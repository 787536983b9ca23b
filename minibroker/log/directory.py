"""A log directory: the logs of many partitions and the files that speak of all of them.

    <topic>-<partition>/                 a log
    <topic>-<partition>.<hex>-delete/    one that is being deleted
    <topic>-<partition>.<id>-stray/      one that belongs to no topic there is
    recovery-point-offset-checkpoint     up to where each log is known to be on the disk
    log-start-offset-checkpoint          where a log begins, if not with its first segment
    replication-offset-checkpoint        high watermarks
    cleaner-offset-checkpoint            up to where each compacted log has been cleaned
    .kafka_cleanshutdown                 everything was flushed and closed; gone as long as somebody is at work

What must hold: the clean mark is written last and removed first. A checkpoint that cannot be read makes the start
longer and nothing else. What a checkpoint says of a log never goes beyond what is on the disk, so a log that ends
before its recovery point has been damaged, and is not opened unless somebody asks for a repair. To find that may take
all of its bytes, so it is found once: until a segment file changes, or its time does, the answer is known.
A directory of which this process has a log open is touched by that log alone, the one of the metadata log never.
Not here: meta.properties (whose directory this is), when checkpoints are due, what a topic's settings are.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from minibroker.errors import ProtocolError, StorageDamaged, StorageError
from minibroker.in_pieces import finish
from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    METADATA_LOG,
    RECOVERY_POINTS,
    format_id,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
    remove_file,
    write_clean_shutdown,
    write_offsets,
    write_topic_id,
)
from minibroker.log.partition_log import carry_out_in_turn, no_jitter
from minibroker.log.recovery import opening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from minibroker.in_pieces import InPieces
    from minibroker.log.partition_log import FlushPlan, PartitionLog
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Storage

    TopicPartition = tuple[str, int]
    # What is to be synced; for each, what the disk refused.
    CarryOut = Callable[[Storage, Sequence[FlushPlan]], Sequence[StorageError | None]]

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
NO_BROKER_EPOCH = -1
CLEANED_SHARE = 10  # the checkpoint of the cleaner is written when a tenth of the logs in it has been cleaned
ID_BYTES_DAMAGED_MAX = 2  # so few bytes differ in two ids only if one is a damaged copy of the other


class LogDirectory:
    """The logs below the root of a storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        jitter: Callable[[int], int] = no_jitter,
        say: Callable[[str], object] = lambda line: None,
        repairs: bool = False,
    ):
        """say: told what people should know. repairs: what is missing of a log is given up, not refused."""
        self.storage = storage
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}  # as the checkpoint has them
        self.cleaner_offsets: dict[TopicPartition, int] = {}  # up to where each log has been cleaned
        self.was_clean = False
        self.clean_epoch: int | None = None  # broker epoch in the mark of a clean stop
        self.has_lost_logs = False  # something was flushed that has no directory any more: somebody took it away
        self.has_rolled: Callable[[TopicPartition], object] = _nobody  # called when a segment of a log has ended
        # Below which offset no log is cut soon: asked when one is, so that the next ones find room in the checkpoint.
        self.floors: Callable[[], Mapping[TopicPartition, int]] = dict
        self._jitter = jitter
        self._say = say
        self._repairs = repairs
        self._names_changed = False
        # What the checkpoints say, also of logs that are not open; and who is in them and not here any more.
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._gone: set[TopicPartition] = set()
        self._unwritten_cleanings = 0  # of which the checkpoint does not know
        # Logs that were found damaged: what is wrong, and which segment files there were.
        self._damages: dict[TopicPartition, tuple[StorageDamaged, list[tuple[str, int, int]]]] = {}

    def start(self) -> None:
        """Read what the last owner left, and begin to work."""
        self.read()
        self.begin()

    def read(self) -> None:
        """Read what the last owner left, and change nothing."""
        self.storage.make_directory("")
        self.clean_epoch = read_clean_shutdown(self.storage)
        self.was_clean = self.clean_epoch is not None
        here = set(self.found())
        noted = [self._read(name) for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)]
        self.has_lost_logs = any(offset and key not in here for key, offset in noted[0].items())
        self._gone = {key for offsets in noted for key in offsets if key not in here}
        self._recovery_points, self._log_starts, self.high_watermarks, self.cleaner_offsets = (
            {key: offset for key, offset in offsets.items() if key in here} for offsets in noted
        )

    def begin(self) -> None:
        """Take the clean mark away, and what is noted of logs that are not here: others may take their place."""
        remove_file(self.storage, CLEAN_SHUTDOWN)
        if self._gone:
            self._forget_gone()
            self.write_cleaner_offsets()
        for name in self.storage.list(""):
            if name.endswith(DELETE_SUFFIX):
                self._remove_tree(name)

    def is_there(self, topic: str, partition: int) -> bool:
        """Return whether a partition has a directory here, be it open or not."""
        return self.storage.exists(f"{topic}-{partition}")

    def found(self) -> list[TopicPartition]:
        """Return the partitions that have a directory here, but for the metadata log."""
        names = map(split_name, self.storage.list(""))
        return [key for key in names if key is not None and key != METADATA_LOG]

    def strays(self) -> list[str]:
        """Return the directories that have been set aside."""
        return [name for name in self.storage.list("") if name.endswith(STRAY_SUFFIX)]

    def open(
        self,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        now_ms: int,
        topic_id: bytes | None = None,
        is_synced: bool = True,
    ) -> PartitionLog:
        """Open a log now."""
        work = self.opening(topic, partition, settings, now_ms=now_ms, topic_id=topic_id, is_synced=is_synced)
        return finish(work)

    def opening(
        self,
        topic: str,
        partition: int,
        settings: LogSettings,
        *,
        now_ms: int,
        topic_id: bytes | None = None,
        is_synced: bool = True,
    ) -> InPieces[PartitionLog]:
        """Open a log, making its directory if there is none. Until it is open, or given up, nobody else opens it.

        is_synced: False if many are opened, and `sync_names` follows before anybody relies on what is in them.
        topic_id: written into a directory that has none, as 16 bytes. It is not synced: what a crash takes of it the
        next start writes again. A directory of another topic of the same name is set aside.
        StorageDamaged if the log cannot be trusted; again, without reading them, as long as the files are the same.
        """
        key, name = (topic, partition), f"{topic}-{partition}"
        self._check_free(key)
        known_id = None if topic_id is None else self._topic_id(name)
        if topic_id is not None and known_id is not None and known_id != topic_id:
            self._check_id(topic, partition, known_id, topic_id)
            known_id = None
        is_new = not self.storage.exists(name)
        if is_new:
            if key in self._gone:
                self._forget_gone()
            self.storage.make_directory(name)
            self._names_changed = True
        files = None
        if key in self._damages:
            files = self._segment_files(name)  # now: a file that changes while it is read is read again
            damage, damaged_files = self._damages[key]
            if files == damaged_files:
                raise damage.with_traceback(None)
        try:
            log = yield from self._opening_log(key, name, settings, is_new=is_new, now_ms=now_ms)
        except StorageDamaged as damage:
            self._damages[key] = damage, self._segment_files(name) if files is None else files
            raise
        self._damages.pop(key, None)
        if topic_id is not None and known_id is None:
            write_topic_id(self.storage, name, topic_id, is_synced=False)
        self.logs[key] = log
        log.before_cut = partial(self._before_cut, key)
        log.has_rolled = lambda: self.has_rolled(key)
        if is_synced:
            self.sync_names()
        return log

    def _opening_log(
        self, key: TopicPartition, name: str, settings: LogSettings, *, is_new: bool, now_ms: int
    ) -> InPieces[PartitionLog]:
        try:
            log = yield from opening(
                self.storage,
                name,
                settings,
                was_clean=self.was_clean or is_new,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._log_starts.get(key, 0),
                now_ms=now_ms,
                jitter=self._jitter,
                is_settled=self.was_clean and not is_new,
                refuses_loss=not self._repairs,
            )
            return log
        except ProtocolError as error:
            raise StorageDamaged(f"{name}: {error}") from error

    def _segment_files(self, name: str) -> list[tuple[str, int, int]]:
        """Return name, size and time of the files that hold the batches of a log: nothing else is damage to it."""
        paths = [f"{name}/{each}" for each in self.storage.list(name) if each.endswith(".log")]
        return [(path, self.storage.size_bytes(path), self.storage.modified_ms(path)) for path in paths]

    def _check_free(self, key: TopicPartition) -> None:
        """Raise StorageError if a directory is not to be touched."""
        if key == METADATA_LOG:
            raise StorageError(f"{key[0]}-{key[1]} is the directory of the metadata log, and of no topic")
        if key in self.logs:
            raise StorageError(f"{key[0]}-{key[1]} is open already")

    def _check_id(self, topic: str, partition: int, known_id: bytes, topic_id: bytes) -> None:
        """See to a directory whose partition.metadata names another topic than the one that is to be opened."""
        if sum(a != b for a, b in zip(known_id, topic_id, strict=True)) <= ID_BYTES_DAMAGED_MAX:
            self._say(
                f"{topic}-{partition}/partition.metadata says {format_id(known_id)}, which is {format_id(topic_id)} "
                "with some damage; it is written anew"
            )
            return
        name = self.set_aside(topic, partition, known_id.hex())
        self._say(
            f"{topic}-{partition} belongs to another topic of that name, {format_id(known_id)} and not "
            f"{format_id(topic_id)}; it is called {name} now"
        )

    def sync_names(self) -> None:
        """Return when the directories that have been made are on the disk: one sync for many of them."""
        if self._names_changed:
            self.storage.sync_directory("")
            self._names_changed = False

    def set_aside(self, topic: str, partition: int, unique: str) -> str:
        """Give a directory that no topic claims another name, as Kafka does; nothing in it is lost. Say so."""
        self._check_free((topic, partition))
        self._forget((topic, partition))
        name = _name_with_tail(topic, partition, unique, STRAY_SUFFIX)
        self.storage.rename(f"{topic}-{partition}", name)
        self.storage.sync_directory("")
        return name

    def _topic_id(self, name: str) -> bytes | None:
        try:
            return read_topic_id(self.storage, name)
        except ProtocolError:
            return None  # lost its end in a crash

    def delete(self, topic: str, partition: int, unique: str) -> str:
        """Take a log out of sight at once; return the name of what is left, for `purge`.

        unique: what nobody else used, so that a topic can be made and deleted over and over.
        """
        log = self.logs.pop((topic, partition), None)
        if log is not None:  # else it could not be opened
            log.cuts += 1
            log.release()
        self._forget((topic, partition))
        name = _name_with_tail(topic, partition, unique, DELETE_SUFFIX)
        self.storage.rename(f"{topic}-{partition}", name)
        self.storage.sync_directory("")
        return name

    def purge(self, name: str) -> None:
        """Remove the files of a deleted log."""
        self._remove_tree(name)

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        """Forget every record of a log from `offset` on."""
        key = (topic, partition)
        if self.cleaner_offsets.get(key, 0) > offset:
            self.cleaner_offsets = _lowered(self.cleaner_offsets, {**self.floors(), key: offset})
            self.write_cleaner_offsets()
        self.logs[key].truncate_to(offset)

    def _before_cut(self, key: TopicPartition, offset: int) -> None:
        """See to it that no checkpoint claims what is about to go.

        The checkpoints are of all logs, and after a failover many are cut: so the first makes room for the others.
        Kafka: notes the lower recovery point after a truncation, and syncs nothing.
        """
        if max(self._recovery_points.get(key, 0), self._log_starts.get(key, 0)) > offset:
            self._write_recovery_points({**self.floors(), key: offset})
            self._write_log_starts({key: offset})  # of others what was deleted would be there again after a crash

    def lower_high_watermark(self, topic: str, partition: int, offset: int) -> None:
        """Note that what was committed from an offset on is so no longer, before it is cut off.

        Here, too, the first makes room for the others: what is too low is put right when the checkpoint is due.
        """
        key = (topic, partition)
        if self.high_watermarks.get(key, 0) > offset:
            starts = {each: self.logs[each].log_start_offset for each in self.floors()}
            self.write_high_watermarks(_lowered(self.high_watermarks, {**starts, key: offset}))

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Note how far each log is flushed, where it starts, and the high watermarks if they are given."""
        self._write_recovery_points({})
        self._write_log_starts({})
        if high_watermarks is not None:
            self.write_high_watermarks(high_watermarks)

    def write_recovery_points(self) -> bool:
        """Note how far each log is flushed, and cleaned; return whether that was not known."""
        is_new = bool(self._unwritten_cleanings)
        if is_new:
            self.write_cleaner_offsets()
        return self._write_recovery_points({}) or is_new

    def write_log_starts(self) -> bool:
        """Note where logs begin; return whether that was not known."""
        return self._write_log_starts({})

    def _write_recovery_points(self, ends: Mapping[TopicPartition, int]) -> bool:
        points = {key: log.recovery_point for key, log in self._online()}
        noted = {**self._recovery_points, **_lowered(points, ends)}
        if noted == self._recovery_points and not self._gone:
            return False
        write_offsets(self.storage, RECOVERY_POINTS, noted)
        self._recovery_points = noted
        return True

    def _write_log_starts(self, ends: Mapping[TopicPartition, int]) -> bool:
        starts = _lowered({key: log.log_start_offset for key, log in self._online()}, ends)
        noted = {key: offset for key, offset in self._log_starts.items() if key not in starts}
        noted |= {key: offset for key, offset in starts.items() if offset > self.logs[key].segments[0].base_offset}
        if noted == self._log_starts and not self._gone:
            return False
        write_offsets(self.storage, LOG_STARTS, noted)
        self._log_starts = noted
        return True

    def _online(self) -> Iterable[tuple[TopicPartition, PartitionLog]]:
        return ((key, log) for key, log in self.logs.items() if log.offline is None)

    def _forget(self, key: TopicPartition) -> None:
        """Know nothing of a log any more; what the checkpoints say of it goes before its name is used again."""
        self._damages.pop(key, None)
        for offsets in (self._recovery_points, self._log_starts, self.high_watermarks):
            if offsets.pop(key, None) is not None:
                self._gone.add(key)
        self._forget_cleaning(*key)

    def _forget_gone(self) -> None:
        """Take those from the checkpoints that are not here any more: another log is about to get such a name."""
        self.write_checkpoints()
        write_offsets(self.storage, HIGH_WATERMARKS, self.high_watermarks)
        self._gone.clear()

    def before_cleaning(self, topic: str, partition: int, end_offset: int) -> None:
        """Flush a log that is about to be cleaned up to an offset, and note that up to there it is.

        What supersedes a record, or says that it was aborted, must not be lost by a crash that the record's removal
        survives. And behind the recovery point a gap between two segments would be taken for a loss.
        Kafka: flushes what it has cleaned, and relies on other replicas for the rest.
        """
        log = self.logs[topic, partition]
        log.flush()
        if self._recovery_points.get((topic, partition), 0) < end_offset:
            self.write_checkpoints()

    def note_cleaned(self, topic: str, partition: int, offset: int) -> None:
        """Note up to where a log has been cleaned.

        The checkpoint is of all logs, and many may be cleaned one after the other: so it does not know at once of each.
        What a crash takes of it is cleaned again; that it is less than before must be known at once.
        Kafka: writes the cleaner's checkpoint after each pass.
        """
        is_less = offset < self.cleaner_offsets.get((topic, partition), 0)
        self.cleaner_offsets[topic, partition] = offset
        self._unwritten_cleanings += 1
        if is_less or self._unwritten_cleanings * CLEANED_SHARE >= len(self.cleaner_offsets):
            self.write_cleaner_offsets()

    def write_cleaner_offsets(self) -> None:
        """Note up to where logs have been cleaned."""
        write_offsets(self.storage, CLEANER_OFFSETS, self.cleaner_offsets)
        self._unwritten_cleanings = 0

    def _forget_cleaning(self, topic: str, partition: int) -> None:
        """Forget how far a log was cleaned before its name is free for another one."""
        if self.cleaner_offsets.pop((topic, partition), None) is not None:
            self.write_cleaner_offsets()

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Note high watermarks; those of logs that are not open stay as they are known."""
        noted = {key: offset for key, offset in self.high_watermarks.items() if key not in self.logs}
        noted |= high_watermarks
        write_offsets(self.storage, HIGH_WATERMARKS, noted)
        self.high_watermarks = noted

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        may_be_clean: bool = True,
        carry_out: CarryOut = carry_out_in_turn,
    ) -> bool:
        """Flush and close everything, and say so with the clean mark; False: a disk refused, and there is none.

        may_be_clean: False if there is to be no mark, for something else was not left in order.
        carry_out: syncs what the logs have written; several at a time, if it can.
        All is written before anything is synced: then one commit of a file system's journal serves many files.
        """
        self._end_logs(carry_out)
        failed = any(log.offline is not None for log in self.logs.values())
        try:
            self.write_checkpoints(high_watermarks)
            if self._unwritten_cleanings:
                self.write_cleaner_offsets()
            if may_be_clean and not failed:
                write_clean_shutdown(self.storage, broker_epoch)
        except StorageError:
            failed = True
        self.logs.clear()
        return not failed

    def _end_logs(self, carry_out: CarryOut) -> None:
        """Flush and close every log; where a disk refuses, the log is offline."""
        plans: list[FlushPlan] = []
        ended: list[PartitionLog] = []
        for log in self.logs.values():
            with suppress(StorageError):
                plan = log.end()
                if plan is not None:
                    plans.append(plan)
                    ended.append(log)
        try:
            for log, plan, failure in zip(ended, plans, carry_out(self.storage, plans), strict=True):
                if failure is not None:
                    log.fail(failure)
                    continue
                with suppress(StorageError):
                    log.flushed(plan)
        finally:
            for log in ended:
                log.release()

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.storage, name)
        except ProtocolError:
            return {}

    def _remove_tree(self, name: str) -> None:
        for inner in self.storage.list(name):
            self.storage.remove(f"{name}/{inner}")
        self.storage.remove(name)


def _lowered(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: min(offset, ends.get(key, offset)) for key, offset in offsets.items()}


def _nobody(*_: object) -> None:
    """Nobody wants to know."""


def _name_with_tail(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return a name as Kafka makes it: it cuts the topic where the whole would be longer than file names can be."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: 255 - len(tail)] + tail


def split_name(name: str) -> TopicPartition | None:
    """Return topic and partition that a directory is named after; None for any other name."""
    topic, dash, partition = name.rpartition("-")
    return (topic, int(partition)) if dash and topic and partition.isascii() and partition.isdigit() else None
