"""Rows of a task, out of segments, as record batches of Arrow of bounded size.

What must hold: the rows are exactly those of the task's offsets that the filters let through, in their order, whatever
borders the planning chose. Memory is bounded by CHUNK_BYTES, what ColumnReader holds at once, and one batch.
Behind a broken batch reading goes on with the next one, or where not even that can be found with the next one that the
index knows.
Not here: which offsets (planning.py), columns of Spark (minibroker/spark/columns/rows_of_query.py), what is in a batch
(minibroker/spark/columns/reader.py).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import Struct as Layout

import pyarrow as pa

from minibroker.errors import InvalidLength, ProtocolError, StorageError
from minibroker.log.formats import PREFIX_BYTES
from minibroker.log.read_only_segment import ReadOnlySegment
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.log.segment import DELETED, SWAP, Place
from minibroker.schema.types import NO_ID
from minibroker.spark.columns.reader import GROUP_BYTES
from minibroker.spark.columns.rows_of_query import BROKEN_BYTES_MAX, RowReader
from minibroker.spark.files.directories import has_been_cut, topic_id_in
from minibroker.spark.files.planning import FileTask
from minibroker.spark.filters import Filters
from minibroker.spark.options import Options
from minibroker.spark.ranges import DataLoss

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import File

CHUNK_BYTES = 4 * 1024 * 1024
_PREFIX = Layout(">qi")  # of every batch: an offset, and how many bytes follow


class TaskReader(RowReader):
    """Reads one task."""

    task: FileTask

    def __init__(
        self,
        task: FileTask,
        options: Options,
        filters: Filters | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        group_bytes: int = GROUP_BYTES,
    ):
        super().__init__(task, options, filters, group_bytes=group_bytes)
        self._storage = ReadOnlyStorage(task.root)
        self._chunk_bytes = max(chunk_bytes, _PREFIX.size)

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        task = self.task
        for number, (base_offset, suffix, size_bytes) in enumerate(task.parts):
            is_last = number == len(task.parts) - 1
            behind = task.next_base if is_last else task.parts[number + 1][0]
            end_offset = task.end_offset if is_last else min(task.parts[number + 1][0], task.end_offset)
            try:
                segment = self._open(base_offset, suffix, size_bytes)
                try:
                    yield from self._stretch(segment, max(task.first_offset, base_offset), end_offset, behind)
                except StorageError as failure:
                    if self._storage.size_bytes(segment.path) >= size_bytes:
                        raise
                    exists = self._storage.exists(segment.path)
                    raise (self._shorter(segment) if exists else self._gone(base_offset)) from failure
                finally:
                    segment.close()
            except DataLoss as loss:
                if self._options.fail_on_data_loss:
                    raise
                self.left_out.append(str(loss).partition(";")[0])
        # With a filter on time segments are left out, too.
        if self._missing > 0 and task.was_never_cleaned and not self.left_out and self._filters.first_timestamp is None:
            self._notice_missing("although the cleaner has no note of the log: is a segment missing?")

    def _open(self, base_offset: int, suffix: str, size_bytes: int) -> ReadOnlySegment:
        """Open a segment under the name that it has by now; raise DataLoss if it is gone or has become shorter."""
        noted = topic_id_in(self._storage, self.task.directory)
        if noted != self.task.topic_id and NO_ID not in (noted, self.task.topic_id):
            raise DataLoss(f"{self.task}: the topic was deleted and made anew since the query was planned")
        for each in dict.fromkeys((suffix, "", SWAP, DELETED)):
            segment = ReadOnlySegment(self._storage, self.task.directory, base_offset, suffix=each)
            if segment.size_bytes >= size_bytes:
                segment.size_bytes = size_bytes  # what has come since is not of this query
                return segment
            if segment.size_bytes:
                raise self._shorter(segment)
        raise self._gone(base_offset)

    def _shorter(self, segment: ReadOnlySegment) -> DataLoss:
        return DataLoss(
            f"{self._storage.real_path(segment.path)} has become shorter since the query was planned, by truncation or "
            "cleaning: run it again"
        )

    def _gone(self, base_offset: int) -> DataLoss:
        return DataLoss(
            f"{self.task}: the segment that begins at {base_offset} has gone since the "
            "query was planned, by retention or cleaning: run it again"
        )

    def _stretch(
        self, segment: ReadOnlySegment, first_offset: int, end_offset: int, limit_offset: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the offsets of a segment that lie between two; behind the segment the log goes on at the limit."""
        position, end = self._find(segment, first_offset, end_offset)
        file, path = self._storage.open(segment.path), self._storage.real_path(segment.path)
        wanted_bytes, next_offset, is_told = self._chunk_bytes, first_offset, False
        try:
            min_offset = segment.base_offset
            while position < end:
                chunk = self._chunk(segment, file, position, min(wanted_bytes, end - position))
                needed = size_of_first(chunk)
                if len(chunk) < needed <= min(end - position, DECOMPRESSED_BYTES_MAX):
                    wanted_bytes = needed  # one batch is longer than a chunk
                    continue
                is_whole = position + len(chunk) >= end
                # Transactions that have ended before would hide what their producers did later.
                aborted = [(producer, first) for producer, first, last in self.task.aborted if last >= next_offset]
                reader = self._reader(
                    chunk, first_offset, end_offset, aborted, next_offset=next_offset, is_strict=is_whole
                )
                reader.lies_between(min_offset, limit_offset)
                lost = yield from self._decoded(reader, chunk, path, position)
                if lost is None and reader.position == 0:
                    lost = InvalidLength(f"a batch of {needed} bytes cannot be here", 0, "batch.size")
                position += reader.position
                next_offset = max(next_offset, reader.next_offset)
                min_offset = max(min_offset, reader.next_offset)
                if lost is not None:
                    # What is behind the last offset is none of ours, and may be half written.
                    if next_offset >= end_offset:
                        break
                    behind, next_offset = self._next_known(segment, position, end, next_offset)
                    size_bytes = behind - position
                    data = file.read_at(position, min(size_bytes, BROKEN_BYTES_MAX))
                    yield from self._broken(lost, "offsets unknown", data, size_bytes, path, position)
                    position, is_told = behind, True
                wanted_bytes = self._chunk_bytes
            if end_offset > next_offset:
                self._missing += end_offset - next_offset
                if not is_told and end_offset == limit_offset and has_been_cut(self.task.root, segment, next_offset):
                    raise DataLoss(f"{path} has been cut: its index names batches behind its end")
        finally:
            file.close()

    def _find(self, segment: ReadOnlySegment, first_offset: int, end_offset: int) -> tuple[int, int]:
        """Return between which bytes the offsets are; where headers are broken the index must do."""
        end = segment.size_bytes
        begin = self._begin(segment, first_offset) if first_offset > segment.base_offset else 0
        try:
            place = segment.find(end_offset)
            # The batch that ends behind may begin before; of a wrapper of v0 or v1 only the records say so.
            if place is not None and self._goes_on(segment, place):
                end = place.end_position
        except ProtocolError:
            pass
        return begin, end

    def _begin(self, segment: ReadOnlySegment, first_offset: int) -> int:
        """Return from where to read so that nothing from an offset on is missed.

        Where there is a gap at the offset, that is from the batch before it on, which may only say that it ends there:
        who reads it looks at the checksum.
        """
        _, known = segment.offset_index.entry_before(first_offset)
        try:
            place = segment.find(first_offset)
            if place is not None and place.base_offset <= first_offset:
                return place.position
            end = segment.size_bytes if place is None else place.position
            _, known = segment.offset_index.entry_before(first_offset)  # which may have been made anew
            before = (each.position for each in segment.hop(known) if each.end_position >= end)
            return min(next(before, end), end)
        except ProtocolError:
            return known

    def _goes_on(self, segment: ReadOnlySegment, place: Place) -> bool:
        """Return whether what follows has higher offsets; if not one of the two batches lies, and all is read."""
        try:
            following = next(segment.hop(place.end_position), None)
        except ProtocolError:
            return True
        return following is None or following.last_offset > place.last_offset

    def _chunk(self, segment: ReadOnlySegment, file: File, position: int, size_bytes: int) -> bytes:
        chunk = file.read_at(position, size_bytes)
        if len(chunk) < size_bytes:
            raise self._shorter(segment)
        return chunk

    def _next_known(self, segment: ReadOnlySegment, position: int, end: int, next_offset: int) -> tuple[int, int]:
        """Return where the index knows of the next batch, and the offset with which that begins."""
        for _, known in segment.offset_index.entries():
            if position < known < end:
                try:
                    place = next(segment.hop(known))
                except ProtocolError:
                    continue
                if place.last_offset >= next_offset:
                    return known, max(place.base_offset, next_offset)
        return end, next_offset


def size_of_first(chunk: bytes | memoryview) -> int:
    """Return how many bytes the first batch says that it has, 0 if it does not."""
    if len(chunk) < _PREFIX.size:
        return 0
    return int(max(_PREFIX.unpack_from(chunk)[1] + PREFIX_BYTES, 0))
