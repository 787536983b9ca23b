"""A run: the segments of one partition that one task of a bulk load writes, offsets from 0.

What must hold: a segment ends where a broker would have ended it, and the three files have the bytes that
`log/segment.py` writes for the same batches. Index entries count from the base offset of their segment, so they stay
right when the driver gives the run its place.
Not here: which rows are whose (segments.py).
"""

from __future__ import annotations

import numpy as np

from minibroker.log.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from minibroker.log.segment import KINDS, OFFSET_DELTA_MAX
from minibroker.spark.bulk_load.plans import LoadError, Piece, TopicPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import File, Storage
    from minibroker.spark.columns.building import BuiltBatch

BATCHES, OFFSETS, TIMES = KINDS[:3]


class StagedSegment:
    """A segment while it is written: batches in their file, entries of the indexes in memory."""

    def __init__(self, storage: Storage, directory: str, base_offset: int, suffix: str):
        self.storage = storage
        self.base_offset = self.end_offset = base_offset
        self.path, self.suffix = f"{directory}/{base_offset:020}", suffix
        self.size_bytes = 0
        self.first_timestamp = NO_TIMESTAMP  # the largest of the first batch
        self.places: list[int] = []  # position and base offset of each batch
        self.offsets, self.times = bytearray(), bytearray()
        self._file: File | None = None
        self._latest = NO_TIMESTAMP, base_offset  # the largest timestamp, and the end of the first batch that has it
        self._noted = NO_TIMESTAMP  # the last one in the time index
        self._bytes_since_entry = 0

    def append(self, batch: BuiltBatch, index_interval_bytes: int) -> None:
        last_offset = batch.last_offset
        if self._file is None:
            self._file = self.storage.open(self.path + BATCHES + self.suffix, create=True)
        self._file.append([batch.data])
        if not self.places:
            self.first_timestamp = batch.max_timestamp
        if batch.max_timestamp > self._latest[0]:
            self._latest = batch.max_timestamp, last_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offsets += OFFSET_ENTRY.pack(last_offset - self.base_offset, self.size_bytes)
            self._note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += batch.size_bytes
        self.places += self.size_bytes, batch.base_offset
        self.size_bytes += batch.size_bytes
        self.end_offset = last_offset + 1

    def _note_time(self) -> None:
        timestamp, offset = self._latest
        if timestamp > self._noted:
            self.times += TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self._noted = timestamp

    def is_full(self, batch: BuiltBatch, topic: TopicPlan) -> bool:
        """Return whether a broker would begin a new segment before a batch."""
        first, entry_bytes = self.first_timestamp, topic.index_bytes
        return (
            batch.last_offset - self.base_offset > OFFSET_DELTA_MAX
            or self.size_bytes + batch.size_bytes > topic.segment_bytes
            or (first >= 0 and batch.max_timestamp >= 0 and batch.max_timestamp - first > topic.segment_ms)
            or len(self.offsets) >= entry_bytes // OFFSET_ENTRY.size * OFFSET_ENTRY.size
            # One is kept free for the end.
            or len(self.times) >= (entry_bytes // TIME_ENTRY.size - 1) * TIME_ENTRY.size
        )

    def seal(self) -> None:
        """Return when all of it is on the disk."""
        self._note_time()
        for kind, entries in ((OFFSETS, self.offsets), (TIMES, self.times)):
            file = self.storage.open(self.path + kind + self.suffix, create=True)
            try:
                if entries:
                    file.append([entries])
                file.sync()
            finally:
                file.close()
        if self._file is None:
            self._file = self.storage.open(self.path + BATCHES + self.suffix)
        self._file.sync()
        self.close()

    def close(self) -> None:
        """Close the file until it is needed again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        self.close()
        for kind in KINDS[:3]:
            self.storage.remove(self.path + kind + self.suffix)


class Run:
    """The segments of one partition that one attempt of a task writes."""

    def __init__(self, storage: Storage, directory: str, topic: TopicPlan, partition: int, suffix: str):
        self.storage, self.directory, self.topic, self.partition = storage, directory, topic, partition
        self.suffix = suffix
        self.segments: list[StagedSegment] = []

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def leader_epoch(self) -> int:
        return self.topic.leader_epochs[self.partition] if self.topic.leader_epochs else 0

    def append(self, batch: BuiltBatch) -> None:
        topic = self.topic
        if batch.size_bytes > topic.batch_bytes_max:
            raise LoadError(
                f"a record of {topic.name} takes {batch.size_bytes} bytes as a batch: max.message.bytes is "
                f"{topic.max_message_bytes}, segment.bytes {topic.segment_bytes}"
            )
        if not self.segments or self.segments[-1].is_full(batch, topic):
            if self.segments:
                self.segments[-1].seal()
            self.segments.append(StagedSegment(self.storage, self.directory, batch.base_offset, self.suffix))
        self.segments[-1].append(batch, topic.index_interval_bytes)

    def close(self) -> None:
        """Close files until they are needed again."""
        self.segments[-1].close()

    def finish(self, task: int) -> list[Piece]:
        """Return the segments, which are on the disk."""
        self.segments[-1].seal()
        return [
            Piece(
                *(self.topic.name, self.partition, task, segment.base_offset, segment.end_offset, self.suffix),
                *(segment.size_bytes, np.array(segment.places, "<i8").tobytes()),
            )
            for segment in self.segments
        ]

    def drop(self) -> None:
        for segment in self.segments:
            segment.remove()
