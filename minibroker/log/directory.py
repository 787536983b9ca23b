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
longer and nothing else.
Not here: meta.properties (whose directory this is), when checkpoints are due, what a topic's settings are.
"""

from __future__ import annotations

from minibroker.errors import ProtocolError, StorageError
from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_clean_shutdown,
    read_offsets,
    read_topic_id,
    remove_file,
    write_clean_shutdown,
    write_offsets,
    write_topic_id,
)
from minibroker.log.outcomes import no_jitter
from minibroker.log.recovery import open_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Storage

    TopicPartition = tuple[str, int]

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
NO_BROKER_EPOCH = -1


class LogDirectory:
    """The logs below the root of a storage."""

    def __init__(self, storage: Storage, *, jitter: Callable[[int], int] = no_jitter):
        self.storage = storage
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}  # as the checkpoint had them at start
        self.cleaner_offsets: dict[TopicPartition, int] = {}  # up to where each log has been cleaned
        self.was_clean = False
        self.clean_epoch: int | None = None  # broker epoch in the mark of a clean stop
        self._jitter = jitter
        self._names_changed = False
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Read what the last owner left, and take the clean mark away: from now on this is work in progress."""
        self.storage.make_directory("")
        self.clean_epoch = read_clean_shutdown(self.storage)
        self.was_clean = self.clean_epoch is not None
        self._recovery_points = self._read(RECOVERY_POINTS)
        self._log_starts = self._read(LOG_STARTS)
        self.high_watermarks = self._read(HIGH_WATERMARKS)
        self.cleaner_offsets = self._read(CLEANER_OFFSETS)
        remove_file(self.storage, CLEAN_SHUTDOWN)
        for name in self.storage.list(""):
            if name.endswith(DELETE_SUFFIX):
                self._remove_tree(name)

    def found(self) -> list[TopicPartition]:
        """Return the partitions that have a directory here."""
        return [split for split in map(split_name, self.storage.list("")) if split is not None]

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
        """Open a log, making its directory if there is none.

        is_synced: False if many are opened, and `sync_names` follows before anybody relies on what is in them.
        topic_id: written into a directory that has none, as 16 bytes. It is not synced: what a crash takes of it the
        next start writes again. A directory of another topic of the same name is set aside.
        """
        name = f"{topic}-{partition}"
        known_id = None if topic_id is None else self._topic_id(name)
        if known_id is not None and known_id != topic_id:
            self.set_aside(topic, partition, known_id.hex())
            known_id = None
        is_new = not self.storage.exists(name)
        if is_new:
            self.storage.make_directory(name)
            self._names_changed = True
        log = open_log(
            self.storage,
            name,
            settings,
            was_clean=self.was_clean or is_new,
            recovery_point=self._recovery_points.get((topic, partition), 0),
            log_start_offset=self._log_starts.get((topic, partition), 0),
            contiguous=not settings.compact,
            gaps_end=self.cleaner_offsets.get((topic, partition), 0),
            now_ms=now_ms,
            jitter=self._jitter,
            is_settled=self.was_clean and not is_new,
        )
        if topic_id is not None and known_id is None:
            write_topic_id(self.storage, name, topic_id, is_synced=False)
        self.logs[topic, partition] = log
        if is_synced:
            self.sync_names()
        return log

    def sync_names(self) -> None:
        """Return when the directories that have been made are on the disk: one sync for many of them."""
        if self._names_changed:
            self.storage.sync_directory("")
            self._names_changed = False

    def set_aside(self, topic: str, partition: int, unique: str) -> str:
        """Give a directory that no topic claims another name, as Kafka does; nothing in it is lost."""
        self._forget_cleaning(topic, partition)
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
        log = self.logs.pop((topic, partition))
        log.cuts += 1
        log.release()
        self._forget_cleaning(topic, partition)
        name = _name_with_tail(topic, partition, unique, DELETE_SUFFIX)
        self.storage.rename(log.directory, name)
        self.storage.sync_directory("")
        return name

    def purge(self, name: str) -> None:
        """Remove the files of a deleted log."""
        self._remove_tree(name)

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        """Forget every record of a log from `offset` on.

        The recovery point goes down first: what is appended there later has not been flushed, whatever a checkpoint
        of before says.
        Kafka: notes the lower recovery point after a truncation, and syncs nothing.
        """
        log = self.logs[topic, partition]
        if self.cleaner_offsets.get((topic, partition), 0) > offset:
            self.cleaner_offsets[topic, partition] = offset
            self.write_cleaner_offsets()
        if offset < log.next_offset:
            log.recovery_point = min(log.recovery_point, offset)
            log.log_start_offset = min(log.log_start_offset, offset)
            self.write_checkpoints()
        log.truncate_to(offset)

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Note how far each log is flushed, where it starts, and the high watermarks if they are given."""
        online = {key: log for key, log in self.logs.items() if log.offline is None}
        recovery_points = {key: log.recovery_point for key, log in online.items()}
        write_offsets(self.storage, RECOVERY_POINTS, recovery_points)
        self._recovery_points = recovery_points
        starts = {
            key: log.log_start_offset
            for key, log in online.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        write_offsets(self.storage, LOG_STARTS, starts)
        if high_watermarks is not None:
            self.write_high_watermarks(high_watermarks)

    def before_cleaning(self, topic: str, partition: int, end_offset: int) -> None:
        """Flush a log that is about to be cleaned up to an offset, and note that up to there it is.

        What supersedes a record, or says that it was aborted, must not be lost by a crash that the record's removal
        survives. And if the topic is no longer compacted when the next start comes, a gap behind the recovery point
        would be taken for a loss.
        Kafka: flushes what it has cleaned, and relies on other replicas for the rest.
        """
        log = self.logs[topic, partition]
        log.flush()
        if self._recovery_points.get((topic, partition), 0) < end_offset:
            self.write_checkpoints()

    def write_cleaner_offsets(self) -> None:
        """Note up to where logs have been cleaned, of those that are there."""
        names = set(self.storage.list(""))
        for topic, partition in list(self.cleaner_offsets):
            if f"{topic}-{partition}" not in names:
                del self.cleaner_offsets[topic, partition]
        write_offsets(self.storage, CLEANER_OFFSETS, self.cleaner_offsets)

    def _forget_cleaning(self, topic: str, partition: int) -> None:
        """Forget how far a log was cleaned before its name is free for another one."""
        if self.cleaner_offsets.pop((topic, partition), None) is not None:
            self.write_cleaner_offsets()

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        write_offsets(self.storage, HIGH_WATERMARKS, high_watermarks)

    def close(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None, *, broker_epoch: int = NO_BROKER_EPOCH
    ) -> bool:
        """Flush and close everything, and say so with the clean mark; False: a disk refused, and there is none."""
        failed = False
        for log in self.logs.values():
            try:
                log.close()
            except StorageError:
                failed = True
            failed = failed or log.offline is not None
        try:
            self.write_checkpoints(high_watermarks)
            if not failed:
                write_clean_shutdown(self.storage, broker_epoch)
        except StorageError:
            failed = True
        self.logs.clear()
        return not failed

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.storage, name)
        except ProtocolError:
            return {}

    def _remove_tree(self, name: str) -> None:
        for inner in self.storage.list(name):
            self.storage.remove(f"{name}/{inner}")
        self.storage.remove(name)


def _name_with_tail(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return a name as Kafka makes it: it cuts the topic where the whole would be longer than file names can be."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: 255 - len(tail)] + tail


def split_name(name: str) -> TopicPartition | None:
    """Return topic and partition that a directory is named after; None for any other name."""
    topic, dash, partition = name.rpartition("-")
    return (topic, int(partition)) if dash and topic and partition.isascii() and partition.isdigit() else None
