"""What a log would lose if the power went now: everything that was not flushed.

    lost = unsynced(logs)           while they are open
    lose(storage, each of lost)     when nobody has them open any more

Simulated disks do this better: they know each write (simulation/disk.py). This one serves real disks and memory,
which keep no record of what was synced but the recovery point: what is above it goes, all at once.
What must hold: what is left is what a disk may hold after a power loss, so a broker can start on it.
"""

from __future__ import annotations

from minibroker.errors import StorageError
from minibroker.log.segment import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.storage import Storage

    class Unsynced(NamedTuple):
        """Where the files of a log are to be cut."""

        path: str
        position: int  # from here on nothing was flushed
        size_bytes: int
        later: list[str]  # whole files that were not flushed
else:
    from collections import namedtuple

    Unsynced = namedtuple("Unsynced", "path position size_bytes later")


def unsynced(logs: Iterable[PartitionLog]) -> list[Unsynced]:
    """Return what of each log was not flushed; a log that cannot be read loses nothing, for who knows what it has."""
    found = []
    for log in logs:
        index = log.segment_of(log.recovery_point)
        segment = log.segments[index]
        try:
            place = segment.find(log.recovery_point)
        except StorageError:
            continue
        position = segment.size_bytes if place is None else place.position
        later = [path for each in log.segments[index + 1 :] for path in map(each.path_of, KINDS)]
        found.append(Unsynced(segment.path_of(".log"), position, segment.size_bytes, later))
    return found


def lose(storage: Storage, lost: Unsynced, *, torn_bytes: int = 0) -> None:
    """Take away what was not flushed, but for so many bytes of it: half of a batch may have reached the disk."""
    kept = min(lost.position + torn_bytes, lost.size_bytes)
    if kept < lost.size_bytes:
        file = storage.open(lost.path)
        try:
            file.truncate(kept)
        finally:
            file.close()
    for path in lost.later:
        if storage.exists(path):
            storage.remove(path)
