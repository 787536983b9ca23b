"""A copy of a log directory at which somebody is at work, made what a clean stop would leave.

In the copy alone, so whoever is at work notices nothing: the last timestamp comes into the time index, the indexes end
where their entries do, there is a snapshot of producers at the end of each log, the checkpoints name all that is there,
and the clean mark says that nothing need be looked at.
Not here: the copying (copying.py), what a stop does to the directory itself (partition_log.py, directory.py).
"""

from __future__ import annotations

from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_clean_shutdown,
    format_offsets,
    write_file,
    write_leader_epochs,
)
from minibroker.log.segment import Segment
from minibroker.log.snapshots import write_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.log.directory import LogDirectory, TopicPartition
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.storage import Storage


def prepare_copy(logs: Iterable[PartitionLog]) -> dict[str, int]:
    """Have logs ready to be copied; return how much of the files counts that are longer, by path.

    The indexes of an active segment are as long as they may become. LogOffline or StorageError: a log is not whole.
    """
    lengths: dict[str, int] = {}
    for log in logs:
        log.check_online()
        active = log.active
        active.transaction_index.write()  # what the disk has refused up to now
        if not log.is_settled:
            for index in (active.offset_index, active.time_index):
                lengths[index.path] = index.count * index.entry.size if active.size_bytes else 0
    return lengths


def end_log(log: PartitionLog, copy: Storage) -> None:
    """Have a log end in order in a copy of its files."""
    if log.is_settled:
        return
    active = Segment(copy, log.directory, log.active.base_offset)
    active.time_index.add(*log.active.latest)
    active.offset_index.trim()  # Kafka recovers a segment that has no such file, even if that would be empty
    active.close()
    if log.epochs_unwritten:
        write_leader_epochs(copy, log.directory, log.epochs, is_synced=False)
    if log.log_end_offset:
        write_snapshot(copy, log.directory, log.log_end_offset, log.producers)


def end_directory(
    directory: LogDirectory, copy: Storage, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int
) -> None:
    """Have a directory of which every log is open end in order in a copy of its files."""
    logs = directory.logs
    for log in logs.values():
        end_log(log, copy)
    starts = {key: log.log_start_offset for key, log in logs.items()}
    offsets = {
        RECOVERY_POINTS: {key: log.log_end_offset for key, log in logs.items()},
        LOG_STARTS: {key: start for key, start in starts.items() if start > logs[key].segments[0].base_offset},
        HIGH_WATERMARKS: high_watermarks,
        CLEANER_OFFSETS: directory.cleaner_offsets,
    }
    for name, noted in offsets.items():
        write_file(copy, name, format_offsets(noted), is_synced=False)
    write_file(copy, CLEAN_SHUTDOWN, format_clean_shutdown(broker_epoch), is_synced=False)
