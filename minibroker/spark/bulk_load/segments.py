"""Tasks of a bulk load: rows of Arrow in, staged segments out, one run of them for each partition.

    rows, gathered -> partition of each -> rows of a partition together -> batches -> segments with their indexes

A run is the segments of one partition that one task writes; its offsets begin at 0, and only the driver, which knows
all runs, gives them their true place (commit.py): the offset of a batch lies outside of its checksum, and entries of an
index count from the base offset of their segment.
What must hold: a task that fails leaves nothing; rows of a partition keep their order; at the end all is on the disk. A
segment ends where a broker would have ended it.
Memory: about three times `bufferBytes`, whatever the number of rows and partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from minibroker.log.batches import Batch, batches
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.segment import OFFSET_DELTA_MAX, Segment
from minibroker.log.storage import OsStorage
from minibroker.spark.bulk_load.plans import LoadError, Piece, Plan, TopicPlan, check_topic
from minibroker.spark.columns.building import BuiltBatch, Section, build_batches
from minibroker.spark.sink.rows import Rows, Spread, pieces
from minibroker.spark.workers import naming_packages, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Storage


BATCHES_AT_ONCE = 6  # of a partition: the last of them is not full
GATHERED_BYTES_MIN = 2 << 20
OPEN_MAX = 64  # runs whose files are kept open


def load_here(batches: Iterable[pa.RecordBatch], plan: Plan) -> list[Piece]:
    """Write the rows of the task that runs here, in one of Spark's workers."""
    from pyspark import TaskContext  # pyright: ignore

    settle()
    context = TaskContext.get()
    assert context is not None, "this runs in Spark's workers only"
    with naming_packages():
        return load_segments(batches, plan, context.partitionId(), context.taskAttemptId())


def load_segments(batches: Iterable[pa.RecordBatch], plan: Plan, task: int, attempt: int) -> list[Piece]:
    """Write the rows of a task; return the segments that they are in now."""
    writer = TaskWriter(plan, task, attempt)
    try:
        for piece in pieces(batches, plan.options.topic, plan.now_ms, size_bytes=_gathered_bytes(plan)):
            writer.write(piece)
        return writer.finish()
    except BaseException:
        writer.drop()
        raise


def _gathered_bytes(plan: Plan) -> int:
    """Return how many bytes of rows are written at once: some batches for each partition, if so many are allowed."""
    options = plan.options
    if options.topic is None:
        return options.buffer_bytes
    wanted = plan.topic_plan(options.topic).partitions * BATCHES_AT_ONCE * options.batch_bytes
    return min(options.buffer_bytes, max(wanted, GATHERED_BYTES_MIN))


class TaskWriter:
    """Writes what one attempt of a task has."""

    def __init__(self, plan: Plan, task: int, attempt: int):
        self.plan, self.task = plan, task
        self.suffix = plan.suffix(task, attempt)
        self.storage = OsStorage(plan.root)
        self.runs: dict[tuple[str, int], Run] = {}
        self._spreads: dict[str, Spread] = {}

    def write(self, piece: Iterable[Rows]) -> None:
        for rows in piece:
            self._write_topic(self.plan.topic_plan(check_topic(rows.topic)), rows)
        if len(self.runs) > OPEN_MAX:
            for run in self.runs.values():
                run.segments[-1].close()

    def _write_topic(self, topic: TopicPlan, rows: Rows) -> None:
        if topic.is_compacted and (rows.keys is None or rows.keys.null_count):
            raise LoadError(f"{topic.name} is compacted, and a row has no key")
        plan, options = self.plan, self.plan.options
        spread = self._spreads.setdefault(topic.name, Spread(topic.partitions, options.batch_bytes))
        partitions, counts = spread.place(rows)
        runs = [self._run(topic, partition) for partition in partitions]
        built = build_batches(
            rows,
            [Section(count, run.end_offset, run.leader_epoch) for run, count in zip(runs, counts, strict=True)],
            codec=options.codec,
            level=options.level,
            batch_bytes=min(options.batch_bytes, topic.batch_bytes_max),
            timestamp_type=APPEND_TIME if topic.has_append_time else CREATE_TIME,
            append_time=plan.now_ms if topic.has_append_time else None,
        )
        for batch in built:
            runs[batch.section].append(batch)

    def _run(self, topic: TopicPlan, partition: int) -> Run:
        run = self.runs.get((topic.name, partition))
        if run is None:
            directory = self.plan.directory(topic, partition)
            self.storage.make_directory(directory)
            run = self.runs[topic.name, partition] = Run(self.storage, directory, topic, partition, self.suffix)
        return run

    def finish(self) -> list[Piece]:
        """Return the segments, which are on the disk."""
        found = [piece for run in self.runs.values() for piece in run.finish(self.task)]
        for run in self.runs.values():
            self.storage.sync_directory(run.directory)
        return found

    def drop(self) -> None:
        """Leave nothing behind."""
        for run in self.runs.values():
            for segment in run.segments:
                segment.remove()


class Run:
    """The segments of one partition that one attempt of a task writes."""

    def __init__(self, storage: Storage, directory: str, topic: TopicPlan, partition: int, suffix: str):
        self.storage, self.directory, self.topic, self.partition = storage, directory, topic, partition
        self.suffix = suffix
        self.segments: list[Segment] = []
        self.end_offset = 0

    @property
    def leader_epoch(self) -> int:
        return self.topic.leader_epochs[self.partition] if self.topic.leader_epochs else 0

    def append(self, built: BuiltBatch) -> None:
        topic = self.topic
        if built.size_bytes > topic.batch_bytes_max:
            raise LoadError(
                f"a record of {topic.name} takes {built.size_bytes} bytes as a batch: max.message.bytes is "
                f"{topic.max_message_bytes}, segment.bytes {topic.segment_bytes}"
            )
        (batch,) = batches(built.data)
        if not self.segments or _is_full(self.segments[-1], batch, topic):
            self._end_segment()
            self.segments.append(Segment(self.storage, self.directory, self.end_offset, suffix=self.suffix))
        self.segments[-1].append([built.data], [batch], topic.index_interval_bytes)
        self.end_offset = batch.last_offset + 1

    def _end_segment(self) -> None:
        """Return when all of the last one is on the disk."""
        for segment in self.segments[-1:]:
            segment.seal()
            segment.sync()
            segment.close()

    def finish(self, task: int) -> list[Piece]:
        """Return the segments, which are on the disk."""
        self._end_segment()
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]
        return [
            Piece(
                self.topic.name,
                self.partition,
                task,
                each.base_offset,
                end,
                self.suffix,
                each.size_bytes,
                each.latest[0],
            )
            for each, end in zip(self.segments, ends, strict=True)
        ]


def _is_full(segment: Segment, batch: Batch, topic: TopicPlan) -> bool:
    """Return whether a broker would begin a new segment before a batch."""
    first = segment.first_timestamp()
    return (
        batch.last_offset - segment.base_offset > OFFSET_DELTA_MAX
        or segment.size_bytes + batch.size_bytes > topic.segment_bytes
        or (first >= 0 and batch.max_timestamp >= 0 and batch.max_timestamp - first > topic.segment_ms)
        or segment.index_bytes > topic.index_bytes
    )
