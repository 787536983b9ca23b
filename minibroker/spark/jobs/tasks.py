"""Tasks of Spark that do the same work on many pieces: a function, its arguments, its results.

    found = run_tasks(spark, read_piece, works)

Works and what comes of them go between processes, so they hold names and numbers; the driver keeps them all.
What must hold: results are in the order of the works. Broken data and disks that fail end the job with TaskFailed,
which says it in our words; anything else is a bug, and comes as Spark tells it. A task may be run twice, or at the
same time on two machines.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from minibroker.errors import ProtocolError, StorageError
from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.workers import PackageMissing, naming_packages, settle

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow as pa

TASKS_PER_CORE = 16  # more would only be more to start; fewer would leave cores without work in the end
CONNECT_TASKS_MAX = 1024  # where nobody says how many cores there are
Work = TypeVar("Work")
Result = TypeVar("Result")


class TaskFailed(ProtocolError):
    """What a task met."""

    def __str__(self) -> str:
        return self.reason


def run_tasks(spark: Any, function: Callable[[Work], Result], works: Sequence[Work]) -> list[Result]:
    """Return what the function makes of each; it must be one of a module, so that workers find it."""
    if not works:
        return []
    given = [pickle.dumps(work) for work in works]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"made": pa.array([_made(function, given[number])], pa.binary())})

    numbers = spark.range(0, len(given), 1, slices_of(spark, len(given)))
    found = []
    for row in map_in_arrow(numbers, run, "made binary").collect():
        result, failure = pickle.loads(bytes(row[0]))
        if failure:
            raise TaskFailed(failure)
        found.append(result)
    return found


def slices_of(spark: Any, work_count: int) -> int:
    """Return how many tasks of Spark do so many works."""
    try:
        count = int(spark.sparkContext.defaultParallelism) * TASKS_PER_CORE
    except Exception:  # Spark Connect: only the server knows
        count = CONNECT_TASKS_MAX
    return min(work_count, count)


def grouped(pieces: Iterable[Work], size_of: Callable[[Work], int], most: int) -> Iterator[list[Work]]:
    """Yield pieces that follow each other, as many together as are no larger than that, but one at least."""
    group: list[Work] = []
    total = 0
    for piece in pieces:
        size = size_of(piece)
        if group and total + size > most:
            yield group
            group, total = [], 0
        group.append(piece)
        total += size
    if group:
        yield group


def _made(function: Callable[[Work], Result], work: bytes) -> bytes:
    try:
        with naming_packages():
            return pickle.dumps((function(pickle.loads(work)), ""))
    except (ProtocolError, StorageError, PackageMissing) as error:
        return pickle.dumps((None, str(error) or repr(error)))


def attempt() -> str:
    """Return a name that no other attempt of this or another task has, within a job."""
    try:
        from pyspark import TaskContext  # pyright: ignore
    except ImportError:
        return "0"  # somebody does the work of tasks without Spark
    context = TaskContext.get()
    return "0" if context is None else str(context.taskAttemptId())
