"""Segments that a new directory has as they are: copied byte by byte, the last one up to where the log ends.

What must hold: files keep their times, by which retention and tombstones of old formats are judged.
"""

from __future__ import annotations

from minibroker.in_pieces import finish
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.recovery import finish_swaps
from minibroker.log.segment import KINDS, Segment
from minibroker.spark.jobs.new_directory import Written, begin_segment, end_segment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.storage import Storage
    from minibroker.spark.jobs.source_logs import SourceLog

CHUNK_BYTES = 4 * 1024 * 1024


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


def copy(work: Copy) -> Written:
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


def opened(root: str, directory: str) -> ReadOnlyStorage:
    """Return a directory to read from, its log as a start would find it."""
    storage = ReadOnlyStorage(root)
    finish_swaps(storage, directory)
    return storage


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
