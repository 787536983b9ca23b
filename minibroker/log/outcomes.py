"""What came of opening a log, and of appending to it."""

from __future__ import annotations

from minibroker.errors import StorageError
from minibroker.log.checkpoints import sync_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from minibroker.log.storage import File, Storage

NOTHING_OPEN: Mapping[str, File] = {}


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
