"""Log directory that a job makes: staged beside its place, and there only when it is whole.

    data.staged/    what tasks write; a job that is killed leaves it, and the next one clears it away
    data/           the same under its name, in one step, with all that a broker looks for

What must hold: a place where something lies already is refused before anything is read; what appears has been synced,
checkpoints and all, and says that its broker stopped in order. Tasks write files of one attempt each, so two of the
same work do not meet; the driver gives those their names that it was told of, and the rest goes.
Segments that stay as they are are copied here, byte by byte, the last one up to where the log ends; files keep their
times, by which retention and tombstones of old formats are judged.
Not here: segments that become others (convert.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from minibroker.errors import StorageError
from minibroker.in_pieces import finish
from minibroker.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_file,
    read_topic_id,
    write_clean_shutdown,
    write_file,
    write_leader_epochs,
    write_offsets,
    write_topic_id,
)
from minibroker.log.segment import CLEANED, KINDS, Segment
from minibroker.log.snapshots import snapshot_path
from minibroker.log.storage import LOCK, OsStorage
from minibroker.spark.jobs.directory_in import SourceLog, opened
from minibroker.spark.jobs.tasks import attempt
from minibroker.spark.option_values import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Storage

STAGED = ".staged"
CHUNK_BYTES = 4 * 1024 * 1024  # copied at once


class WrittenSegment:
    """A segment that a task has made, under the name that its attempt gave it."""

    def __init__(self, segment: Segment, counts: Mapping[str, int] | None = None):
        self.directory = segment.directory
        self.base_offset = segment.base_offset
        self.suffix = segment.suffix
        self.size_bytes = segment.size_bytes
        self.next_offset = segment.next_offset()
        self.counts = dict(counts or {})  # what else there is to say, by name


def begin_segment(root: str, directory: str, base_offset: int, index_bytes: int = 0) -> Segment:
    """Return an empty segment of this attempt, for a task to fill."""
    storage = OsStorage(root)
    segment = Segment(storage, directory, base_offset, suffix=f".{attempt()}{CLEANED}")
    segment.create(index_bytes)
    return segment


def end_segment(segment: Segment, modified_ms: int, counts: Mapping[str, int] | None = None) -> WrittenSegment:
    """Put a segment that is complete on the disk."""
    segment.sync()
    written = WrittenSegment(segment, counts)
    segment.close()
    segment.storage.set_modified_ms(segment.path, modified_ms)
    return written


class NewDirectory:
    """From `NewDirectory(target)` to `publish`; whatever comes between, `close` lets go of it."""

    def __init__(self, target: str, sources: Iterable[str]):
        self.target = os.path.abspath(target)
        above, _, self._name = self.target.rpartition("/")
        self._above = OsStorage(above or "/")
        if self._above.list(self._name):
            raise OptionError(f"{target} is not empty: name a directory that is not there yet")
        for source in sources:
            whole = os.path.realpath(source)
            if f"{os.path.realpath(above)}/{self._name}/".startswith(f"{whole}/"):
                raise OptionError(f"{target} lies within {source}, which is read")
        self.root = self.target + STAGED
        self.storage = OsStorage(self.root)
        self._above.make_directory(self._name + STAGED)
        try:
            self.storage.lock()
        except StorageError as failure:
            raise OptionError(f"{self.root}: another job is writing it ({failure})") from failure
        _clear(self.storage, "", keep=LOCK)

    def close(self) -> None:
        """Let others at it; what is staged stays only if it cannot be removed."""
        self.storage.unlock()
        if self._above.exists(self._name + STAGED):
            _clear(self._above, self._name + STAGED)
            self._above.remove(self._name + STAGED)

    def begin(self, logs: Iterable[SourceLog]) -> None:
        """Make the directories that tasks write into."""
        for log in logs:
            self.storage.make_directory(log.directory)

    def take_top(self, source: OsStorage, names: Sequence[str]) -> None:
        """Copy small files, and directories of them, as they are."""
        for name in names:
            inner = _names_in(source, name)
            if inner:
                self.storage.make_directory(name)
            for path in [f"{name}/{each}" for each in inner] or [name]:
                write_file(self.storage, path, read_file(source, path))

    def publish(self, logs: Sequence[SourceLog], written: Iterable[WrittenSegment]) -> None:
        """Give everything its name, write what speaks of it, and let it appear."""
        storage = self.storage
        reached: dict[str, int] = {}
        for each in written:
            Segment(storage, each.directory, each.base_offset, suffix=each.suffix).rename("")
            reached[each.directory] = max(each.next_offset, reached.get(each.directory, 0))
        for log in logs:
            if reached.get(log.directory, -1) < log.end_offset:
                # What was last has gone. Offsets do not come again, so the log goes on in a segment that begins there.
                segment = Segment(storage, log.directory, log.end_offset)
                segment.create(0)
                segment.sync()
                segment.close()
            self._finish(log)
        keys = {(log.topic, log.partition): log for log in logs}
        ends = {key: log.end_offset for key, log in keys.items()}
        starts = {key: log.start_offset for key, log in keys.items() if log.start_offset > log.first_base}
        write_offsets(storage, RECOVERY_POINTS, ends)
        write_offsets(storage, HIGH_WATERMARKS, ends)
        write_offsets(storage, LOG_STARTS, starts)
        cleaned = {key: log.cleaned_offset for key, log in keys.items() if log.cleaned_offset is not None}
        if cleaned:
            write_offsets(storage, CLEANER_OFFSETS, cleaned)
        write_clean_shutdown(storage)
        storage.unlock()
        storage.remove(LOCK)
        storage.sync_directory("")
        self._above.rename(self._name + STAGED, self._name)
        self._above.sync_directory("")

    def _finish(self, log: SourceLog) -> None:
        """Write what lies beside the segments of a log, and remove what attempts have left that do not count."""
        storage, directory = self.storage, log.directory
        for name in storage.list(directory):
            if name.endswith(CLEANED):
                storage.remove(f"{directory}/{name}")
        for offset, data in log.snapshots():
            write_file(storage, snapshot_path(directory, offset), data)
        if log.epochs.entries:
            write_leader_epochs(storage, directory, log.epochs)
        topic_id = read_topic_id(log.storage, directory)
        if topic_id is not None:
            write_topic_id(storage, directory, topic_id)
        storage.sync_directory(directory)


def _clear(storage: OsStorage, path: str, keep: str = "") -> None:
    """Remove what is in a directory."""
    for name in storage.list(path):
        inner = f"{path}/{name}" if path else name
        if name != keep:
            if _names_in(storage, inner):
                _clear(storage, inner)
            storage.remove(inner)


def _names_in(storage: OsStorage, path: str) -> list[str]:
    """Return the names in a directory; a file has none."""
    try:
        return storage.list(path)
    except StorageError:
        return []


# Copies


class Copy:
    """A segment to be copied."""

    def __init__(self, source: str, target: str, directory: str, base_offset: int, end_offset: int, interval: int):
        self.source = source
        self.target = target
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = end_offset  # what ends there or behind it is left out
        self.index_interval_bytes = interval  # in case that its indexes must be made anew


def copies_of(log: SourceLog, target: str, first_offset: int = 0) -> Iterator[Copy]:
    """Yield what is to be copied of a log, from the segment that begins at an offset on."""
    for segment in log.log.segments:
        if first_offset <= segment.base_offset <= log.end_offset:
            yield Copy(
                log.storage.root,
                target,
                log.directory,
                segment.base_offset,
                log.end_offset,
                log.settings.index_interval_bytes,
            )


def copy(work: Copy) -> WrittenSegment:
    """Copy a segment: what a task does."""
    storage = opened(work.source, work.directory)
    segment = Segment(storage, work.directory, work.base_offset)
    place = segment.find(work.end_offset)
    size_bytes = segment.size_bytes if place is None else place.position
    new = begin_segment(work.target, work.directory, work.base_offset)
    if place is None:
        for kind in KINDS:
            if storage.exists(segment.path_of(kind)):
                _copy_file(storage, segment.path_of(kind), new.storage, new.path_of(kind))
        new = Segment(new.storage, work.directory, work.base_offset, suffix=new.suffix)
    else:
        _copy_file(storage, segment.path, new.storage, new.path, size_bytes)
        new = Segment(new.storage, work.directory, work.base_offset, suffix=new.suffix)
        finish(new.rebuilding_indexes(work.index_interval_bytes))
        for entry in segment.transaction_index.entries():
            if entry.last_offset < work.end_offset:
                new.transaction_index.add(entry)
        new.seal()
    # One that only the driver has begun is empty, and of now.
    modified_ms = segment.modified_ms if storage.exists(segment.path) else new.modified_ms
    segment.close()
    return end_segment(new, modified_ms, {"bytes before": size_bytes})


def _copy_file(source: Storage, path: str, target: Storage, new_path: str, size_bytes: int | None = None) -> None:
    file, new = source.open(path), target.open(new_path, create=True)
    try:
        new.truncate(0)
        end, position = file.size_bytes if size_bytes is None else size_bytes, 0
        while position < end:
            data = file.read_at(position, min(CHUNK_BYTES, end - position))
            if not data:
                break
            new.append([data])
            position += len(data)
        new.sync()
    finally:
        file.close()
        new.close()
