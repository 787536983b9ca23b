"""Damage in the metadata log: found before anything is changed, refused, or cut off where that loses nothing.

Every change of the metadata is on the disk before anybody is told of it. So of the end of the log only what nobody was
told of may be torn by a crash; whatever else is wrong is damage, and a start that went on without it would set the
partitions aside whose topics it does not know.

    flushed-end-offset      up to where the log was on the disk when it was last written to: 20 digits, their CRC-32C
    repair-begun            while a repair is under way: where the copy is, and the damage

The note is written after each flush and not synced: after a loss of power it may be older than the truth, never newer.
Kafka: cuts off everything from the first bad batch on, as of any log; so does a directory here that has no note, as
Kafka's have none, unless good batches follow.
A repair that was broken off, by a crash or because the port was taken, is begun again from the copy: until it has ended
no start goes on without it.
Not here: reading the records (metadata_log.py), what is behind the damage (rescue.py), putting topics back that were
lost (broker/repair.py).
"""

from __future__ import annotations

from minibroker.errors import ProtocolError, StorageError
from minibroker.log.batches import crc32c, find_batch
from minibroker.log.checkpoints import read_file, remove_file, write_file
from minibroker.log.formats import MAGIC_POSITION
from minibroker.metadata.bootstrap import METADATA_DIRECTORY, WrongDirectory
from minibroker.metadata.snapshot import find_snapshots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.batches import Batch
    from minibroker.log.storage import File, Storage

FLUSHED_END = f"{METADATA_DIRECTORY}/flushed-end-offset"
REPAIR_BEGUN = f"{METADATA_DIRECTORY}/repair-begun"
OFFSET_DELTA_MAX = 0x7FFFFFFF
REPAIR = "bring the files back from a copy, or start with --repair to go on without what is missing"


class DamagedMetadata(WrongDirectory):
    """Something of the metadata is missing that had been on the disk."""

    def __init__(self, path: str, position: int, reason: str, offset: int = 0):
        super().__init__(f"{path}, byte {position}: {reason}; {REPAIR}")
        self.path = path
        self.position = position  # from here on nothing is sure
        self.reason = reason
        self.offset = offset  # that would come there


def is_blank(storage: Storage) -> bool:
    """Return whether there are no metadata at all: neither a log nor a snapshot."""
    if any(end_offset for end_offset, _ in find_snapshots(storage, METADATA_DIRECTORY)):
        return False
    return not _has_more(storage, [name for name in storage.list(METADATA_DIRECTORY) if name.endswith(".log")])


def check_log(storage: Storage, *, was_clean: bool) -> None:
    """Read every byte of the log; raise DamagedMetadata if something is wrong that no crash explains."""
    noted = read_flushed_end(storage)
    names = [name for name in storage.list(METADATA_DIRECTORY) if name.endswith(".log") and name[:20].isdigit()]
    expected = epoch = -1
    for index, name in enumerate(names):
        path, base_offset = f"{METADATA_DIRECTORY}/{name}", int(name[:20])
        if 0 <= expected != base_offset:
            raise DamagedMetadata(path, 0, f"it begins where {expected} would come next", expected)
        data = memoryview(read_file(storage, path))
        position, expected, epoch, reason = _good_end(data, base_offset, epoch)
        if reason:
            had_been_flushed = was_clean or expected < noted
            if not had_been_flushed and noted < 0:
                had_been_flushed = _goes_on(data, position, expected) or _has_more(storage, names[index + 1 :])
            if had_been_flushed:
                raise DamagedMetadata(path, position, reason, expected)
            return  # what a crash has torn
    if expected < noted:
        path = f"{METADATA_DIRECTORY}/{names[-1]}" if names else METADATA_DIRECTORY
        size_bytes = storage.size_bytes(path) if names else 0
        reason = f"ends at {max(expected, 0)}, and was on the disk up to {noted}"
        raise DamagedMetadata(path, size_bytes, reason, max(expected, 0))


def _good_end(data: memoryview, base_offset: int, epoch: int) -> tuple[int, int, int, str]:
    """Return where good batches end, which offset comes next, the last epoch, and what is wrong with the next one."""
    position, expected = 0, base_offset
    while position < len(data):
        try:
            batch = find_batch(data, position, len(data))
            if batch is None:
                return position, expected, epoch, f"the {len(data) - position} bytes that are left are no whole batch"
            batch.check_crc()
        except ProtocolError as error:
            return position, expected, epoch, error.reason
        if batch.magic != 2 or batch.base_offset != expected or batch.last_offset < expected:
            return position, expected, epoch, f"offset {batch.base_offset} where {expected} comes next"
        if batch.partition_leader_epoch < epoch:
            return position, expected, epoch, f"epoch {batch.partition_leader_epoch} behind {epoch}"
        position, expected, epoch = batch.end_position, batch.next_offset, batch.partition_leader_epoch
    return position, expected, epoch, ""


def _goes_on(data: memoryview, position: int, expected: int) -> bool:
    """Return whether somewhere behind a position a batch begins that is in order."""
    behind = good_batches(bytes(data), position + 1)
    return any(0 <= batch.base_offset - expected <= OFFSET_DELTA_MAX for batch in behind)


def good_batches(content: bytes, position: int) -> Iterator[Batch]:
    """Yield the batches in order that begin at a position or anywhere behind it, whatever lies before each."""
    data, at = memoryview(content), position
    while at >= 0:
        try:
            batch = find_batch(data, at, len(data))
        except ProtocolError:
            batch = None
        if batch is not None and batch.magic == 2 and batch.crc_is_valid():
            yield batch
            at = batch.end_position
            continue
        found = content.find(b"\2", at + MAGIC_POSITION + 1)
        at = found - MAGIC_POSITION if found >= 0 else -1


def _has_more(storage: Storage, names: list[str]) -> bool:
    return any(storage.size_bytes(f"{METADATA_DIRECTORY}/{name}") for name in names)


class Repair:
    """A repair that is under way."""

    __slots__ = ("flushed_end", "kept", "name", "offset", "position")

    def __init__(self, kept: str, name: str, position: int, offset: int, flushed_end: int):
        self.kept = kept  # where the files are as they were
        self.name = name  # of the file that is damaged
        self.position = position  # in it
        self.offset = offset  # that would come there
        self.flushed_end = flushed_end  # up to where the log had been on the disk; -1: nobody knows


def begin_repair(storage: Storage, damage: DamagedMetadata) -> Repair:
    """Keep a copy of a damaged log, and note what is to be done."""
    kept = _copy_name(storage)
    storage.make_directory(kept)
    for name in storage.list(METADATA_DIRECTORY):
        if name[:20].isdigit():
            write_file(storage, f"{kept}/{name}", read_file(storage, f"{METADATA_DIRECTORY}/{name}"))
    storage.sync_directory("")
    name = damage.path.removeprefix(METADATA_DIRECTORY).removeprefix("/")
    repair = Repair(kept, name, damage.position, damage.offset, read_flushed_end(storage))
    storage.make_directory(METADATA_DIRECTORY)
    text = f"{kept}\n{name}\n{repair.position}\n{repair.offset}\n{repair.flushed_end}"
    write_file(storage, REPAIR_BEGUN, text.encode())
    return repair


def read_repair(storage: Storage) -> Repair | None:
    """Return the repair that has begun and not ended."""
    lines = read_file(storage, REPAIR_BEGUN).decode("utf-8", "replace").split("\n")
    try:
        kept, name, position, offset, flushed_end = lines
        return Repair(kept, name, int(position), int(offset), int(flushed_end))
    except ValueError:
        return None


def cut_log(storage: Storage, repair: Repair) -> None:
    """Cut off what is behind the damage."""
    for name in reversed(storage.list(METADATA_DIRECTORY)):
        path = f"{METADATA_DIRECTORY}/{name}"
        if not (name[:20].isdigit() and name.endswith(".log")):
            continue
        if name > repair.name:
            storage.remove(path)
        elif name == repair.name:
            file = storage.open(path)
            try:
                file.truncate(min(repair.position, file.size_bytes))
                file.sync()
            finally:
                file.close()
    remove_file(storage, FLUSHED_END)
    storage.sync_directory(METADATA_DIRECTORY)


def end_repair(storage: Storage) -> None:
    """All that could be saved is in the log."""
    storage.remove(REPAIR_BEGUN)
    storage.sync_directory(METADATA_DIRECTORY)


def _copy_name(storage: Storage) -> str:
    number, names = 1, storage.list("")
    while f"{METADATA_DIRECTORY}.{number}-damaged" in names:
        number += 1
    return f"{METADATA_DIRECTORY}.{number}-damaged"


# The note


class FlushedEnd:
    """Notes up to where the log is on the disk."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._file: File | None = None

    def note(self, end_offset: int) -> None:
        try:
            if self._file is None:
                self._file = self._storage.open(FLUSHED_END, create=True)
            self._file.write_at(0, format_flushed_end(end_offset))
        except StorageError:
            # The change is on the disk. What the note does not say is only guarded less.
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_flushed_end(storage: Storage) -> int:
    """Return what the note says; -1 if there is none that can be read."""
    data = read_file(storage, FLUSHED_END)
    digits = data[:20]
    return int(digits) if digits.isdigit() and data == format_flushed_end(int(digits)) else -1


def format_flushed_end(end_offset: int) -> bytes:
    digits = b"%020d" % end_offset
    return b"%b %08x\n" % (digits, crc32c(digits))
