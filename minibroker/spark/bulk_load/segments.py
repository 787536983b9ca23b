"""Tasks of a bulk load: rows of Arrow in, staged segments out, one run of them for each partition.

    rows, gathered -> partition of each -> rows of a partition together -> batches -> segments with their indexes

A run is the segments of one partition that one task writes; its offsets begin at 0, and only the driver, which knows
all runs, gives them their true place (commit.py): the offset of a batch lies outside of its checksum, and entries of an
index count from the base offset of their segment.
What must hold: a task that fails leaves nothing; rows of a partition keep their order; at the end all is on the disk. A
segment ends where a broker would have ended it, and the three files have the bytes that `log/segment.py` writes for the
same batches.
Memory: about three times `bufferBytes`, whatever the number of rows and partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from minibroker.log.segment import KINDS, OFFSET_DELTA_MAX
from minibroker.log.storage import OsStorage
from minibroker.spark.bulk_load.columns import Rows
from minibroker.spark.bulk_load.plans import LoadError, Piece, Plan, TopicPlan, check_topic
from minibroker.spark.columns.building import BuiltBatch, Part, RowColumns, Section, build_sections
from minibroker.spark.columns.partitions import NO_PARTITION, partitions_of
from minibroker.spark.columns.varints import Int64s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import File, Storage


BATCHES_AT_ONCE = 6  # of a partition: the last of them is not full
GATHERED_BYTES_MIN = 2 << 20
OPEN_MAX = 64  # runs whose files are kept open


def load_segments(batches: Iterable[pa.RecordBatch], plan: Plan, task: int, attempt: int) -> list[Piece]:
    """Write the rows of a task; return the segments that they are in now."""
    writer = TaskWriter(plan, task, attempt)
    try:
        for rows in _gathered(batches, _gathered_bytes(plan)):
            writer.write(rows)
        return writer.finish()
    except BaseException:
        writer.drop()
        raise


def _gathered_bytes(plan: Plan) -> int:
    """Return how many bytes of rows are written at once: some batches for each partition, if so many are allowed."""
    if plan.topic is None:
        return plan.buffer_bytes
    return min(
        plan.buffer_bytes,
        max(plan.topic_plan(plan.topic).partitions * BATCHES_AT_ONCE * plan.batch_bytes, GATHERED_BYTES_MIN),
    )


def _gathered(batches: Iterable[pa.RecordBatch], buffer_bytes: int) -> Iterator[Rows]:
    """Put batches together until they are worth the while."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= buffer_bytes:
            yield _joined(held)
            held, size_bytes = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> Rows:
    if len(batches) == 1:
        return Rows(batches[0])
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return Rows(whole)


class TaskWriter:
    """Writes what one attempt of a task has."""

    def __init__(self, plan: Plan, task: int, attempt: int):
        self.plan, self.task = plan, task
        self.suffix = plan.suffix(task, attempt)
        self.storage = OsStorage(plan.root)
        self.runs: dict[tuple[str, int], Run] = {}
        self._next_sticky = task  # so that not all tasks begin with the same partition

    def write(self, rows: Rows) -> None:
        topic = self.plan.topic
        for name, some in rows.by_topic() if topic is None else ((topic, rows),):
            self._write_topic(self.plan.topic_plan(check_topic(name)), some)
        if len(self.runs) > OPEN_MAX:
            for run in self.runs.values():
                run.close()

    def _write_topic(self, topic: TopicPlan, rows: Rows) -> None:
        if topic.is_compacted and (rows.keys is None or rows.keys.null_count):
            raise LoadError(f"{topic.name} is compacted, and a row has no key")
        order, partitions, counts = _ordered(self._partitions(topic, rows))
        timestamps = rows.timestamps(self.plan.now_ms)
        columns = RowColumns(rows.keys, rows.values, timestamps, rows.headers, order=order)
        self._write(topic, columns, [self._run(topic, partition) for partition in partitions], counts)

    def _write(self, topic: TopicPlan, columns: RowColumns, runs: list[Run], counts: list[int]) -> None:
        """Write rows that are in the order of their runs."""
        plan = self.plan
        built = build_sections(
            columns,
            [Section(count, run.end_offset, run.leader_epoch) for run, count in zip(runs, counts, strict=True)],
            codec=plan.codec,
            level=plan.level,
            batch_bytes=min(plan.batch_bytes, topic.batch_bytes_max),
            timestamp_type=APPEND_TIME if topic.has_append_time else CREATE_TIME,
            append_time=plan.now_ms if topic.has_append_time else None,
        )
        left = dict(zip(runs, counts, strict=True))
        waiting = iter(runs)
        run = next(waiting)
        for batch in built:
            while not left[run]:
                run = next(waiting)
            run.append(batch)
            left[run] -= batch.count

    def _partitions(self, topic: TopicPlan, rows: Rows) -> NDArray[np.int32]:
        """Return the partition of each row: the one that it names, that of its key, or one batch after another."""
        count = topic.partitions
        if count == 1 or rows.keys is None:
            found = np.full(len(rows), 0 if count == 1 else NO_PARTITION, np.int32)
        else:
            found = partitions_of(rows.keys, count)
        named = rows.partitions
        if named is not None and named.null_count < len(named):
            given = np.asarray(named.cast(pa.int64()).fill_null(0))
            wrong = given[(given < 0) | (given >= count)]
            if len(wrong):
                raise LoadError(f"a row is for partition {wrong[0]} of {topic.name}, which has {count}")
            are_given = np.asarray(named.is_valid())
            found = np.where(are_given, given, found).astype(np.int32)
        without = np.flatnonzero(found == NO_PARTITION)
        if len(without):
            sizes = Part(rows.values).sizes[without]
            turns = np.cumsum(sizes + RECORD_OVERHEAD) // self.plan.batch_bytes + self._next_sticky
            found[without] = turns % count
            self._next_sticky = int(turns[-1]) + 1
        return found

    def _run(self, topic: TopicPlan, partition: int) -> Run:
        key = topic.name, partition
        run = self.runs.get(key)
        if run is None:
            directory = self.plan.directory(topic, partition)
            self.storage.make_directory(directory)
            run = self.runs[key] = Run(self.storage, directory, topic, partition, self.suffix)
        return run

    def finish(self) -> list[Piece]:
        """Return the segments, which are on the disk."""
        pieces = []
        for run in self.runs.values():
            pieces += run.finish(self.task)
        for directory in {run.directory for run in self.runs.values()}:
            self.storage.sync_directory(directory)
        return pieces

    def drop(self) -> None:
        """Leave nothing behind."""
        for run in self.runs.values():
            run.drop()


RECORD_OVERHEAD = 16  # about: what a record takes besides key and value


def _ordered(partitions: NDArray[np.int32]) -> tuple[Int64s | None, list[int], list[int]]:
    """Return rows in the order of their partitions, which these are, and how many rows each has."""
    first = int(partitions[0])
    if (partitions == first).all():
        return None, [first], [len(partitions)]
    narrow = partitions.astype(np.uint16) if int(partitions.max()) < 1 << 16 else partitions
    order = np.argsort(narrow, kind="stable")  # of 16 bits in one pass
    counts = np.bincount(partitions)
    found = np.flatnonzero(counts)
    return order, found.tolist(), counts[found].tolist()


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
