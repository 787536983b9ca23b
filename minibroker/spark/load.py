"""Bulk load: a DataFrame becomes segments in a broker's directory, without any broker.

    load(frame, "data", topic="orders", partitions=12, codec="lz4", configs={"retention.ms": "-1"})

Each of Spark's tasks writes the segments of its rows, and when all have ended the driver gives them offsets, in the
order of the tasks: nothing is shuffled, and rows of a partition stay in the order of the frame.
What must hold: a load counts as a whole or not at all; what a failed or repeated task has written is never seen.
Not here: `df.write.format("minibroker")`, which does the same with Spark's own commit (spark/bulk_load/sink.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from minibroker.clock import LoopClock
from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.bulk_load.commit import LoadedPartition
from minibroker.spark.bulk_load.directory import LoadDirectory
from minibroker.spark.bulk_load.options import CONFIG, LoadOptions, parse_load
from minibroker.spark.bulk_load.plans import Piece, Plan
from minibroker.spark.bulk_load.segments import load_here
from minibroker.spark.sink.columns import check_columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import DataFrame  # pyright: ignore

    from minibroker.clock import Clock

PIECES = (
    "topic string, partition bigint, task bigint, base_offset bigint, end_offset bigint, suffix string, "
    "size_bytes bigint, largest_timestamp bigint"
)


class LoadResult:
    """What a load did."""

    def __init__(self, path: str, partitions: list[LoadedPartition], left: list[str]):
        self.path = path
        self.partitions = partitions  # by topic and partition; those that got nothing are not among them
        self.left = left  # ids of loads that ended before their time; what they had staged has been removed

    @property
    def records(self) -> int:
        return sum(each.end_offset - each.first_offset for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.partitions)

    @property
    def segments(self) -> int:
        return sum(each.segments for each in self.partitions)


def load(
    frame: DataFrame,
    path: str,
    *,
    topic: str | None = None,
    partitions: int | None = None,
    codec: str = "none",
    level: int | None = None,
    batch_bytes: int | None = None,
    segment_bytes: int | None = None,
    index_interval_bytes: int | None = None,
    buffer_bytes: int | None = None,
    configs: Mapping[str, str] | None = None,
    node_id: int | None = None,
    cluster_id: str | None = None,
    release: str | None = None,
    progress: Any = None,
    clock: Clock | None = None,
) -> LoadResult:
    """Load the rows of a frame into the log directory at `path`, which is made if there is none.

    topic: of all rows; None: there is a column `topic`. partitions: of topics that are not there yet, 1 by default.
    configs: settings of Kafka for new topics, as {"retention.ms": "-1"}.
    segment_bytes, index_interval_bytes: None is what the topic's settings say.
    release: of Kafka, for which a new directory is made, as "4.4"; None: every one from 3.9 on can go on with it.
    progress: of jobs/progress.py, told what happens.
    The other arguments are the options of docs/spark-writing.md. Raises OptionError for what cannot be asked for,
    StorageError if a broker is at work in the directory; what a task raises comes out of Spark.
    """
    given = {
        "path": path,
        "topic": topic,
        "partitions": partitions,
        "codec": codec,
        "level": level,
        "batchBytes": batch_bytes,
        "segmentBytes": segment_bytes,
        "indexIntervalBytes": index_interval_bytes,
        "bufferBytes": buffer_bytes,
        "nodeId": node_id,
        "clusterId": cluster_id,
        "release": release,
        **{CONFIG + name: value for name, value in (configs or {}).items()},
    }
    options = parse_load({name: str(value) for name, value in given.items() if value is not None})
    return load_with(frame, options, progress=progress, clock=clock)


def load_with(
    frame: DataFrame, options: LoadOptions, *, progress: Any = None, clock: Clock | None = None
) -> LoadResult:
    """Do the same with options that have been read."""
    from minibroker.spark.jobs.progress import Progress

    used = check_columns(((field.name, field.dataType.simpleString()) for field in frame.schema.fields), options.topic)
    steps = progress or Progress(is_wanted=False)
    with LoadDirectory(options, clock or LoopClock()) as directory:
        plan = directory.look()
        try:
            with steps.step(f"writing segments below {options.path}"):
                rows = map_in_arrow(frame.select(*used), _task_of(plan), PIECES).collect()
            with steps.step(f"giving {len(rows)} segments their places"):
                loaded = directory.commit(plan, [Piece(*row) for row in rows])
        except BaseException:
            directory.drop()
            raise
        return LoadResult(options.path, loaded, directory.left)


def _task_of(plan: Plan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = load_here(batches, plan)
        if pieces:
            yield pa.RecordBatch.from_pylist([piece._asdict() for piece in pieces])

    return run
