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
from minibroker.spark.workers import PackageMissing, naming_packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow as pa

TASKS_PER_CORE = 16  # more would only be more to start; fewer would leave cores without work in the end
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
    context = _context(spark)
    if context is None:
        return _run_frame(spark, function, given)

    def run(work: bytes) -> bytes:
        return _run(function, work)

    slices = min(len(given), context.defaultParallelism * TASKS_PER_CORE)
    return _results(context.parallelize(given, slices).map(run).collect())


def _run(function: Callable[[Work], Result], work: bytes) -> bytes:
    try:
        with naming_packages():
            return pickle.dumps((function(pickle.loads(work)), ""))
    except (ProtocolError, StorageError, PackageMissing) as error:
        return pickle.dumps((None, str(error) or repr(error)))


def _results(made: Iterable[bytes]) -> list[Any]:
    found = []
    for each in made:
        result, failure = pickle.loads(each)
        if failure:
            raise TaskFailed(failure)
        found.append(result)
    return found


def _context(spark: Any) -> Any:
    """Return who hands out tasks; sessions of Spark Connect have nobody."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def _run_frame(spark: Any, function: Callable[[Work], Result], given: list[bytes]) -> list[Result]:
    """Do it with a table, for which PySpark wants pandas: Spark Connect, which has no other way, needs that anyway."""

    def run(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for chunk in chunks:
            for number in chunk.column(0).to_pylist():
                made = _run(function, given[number])
                yield pa.RecordBatch.from_pydict({"made": pa.array([made], pa.binary())})

    rows = spark.range(0, len(given), 1, len(given)).mapInArrow(run, "made binary").collect()
    return _results(bytes(row[0]) for row in rows)


def attempt() -> str:
    """Return a name that no other attempt of this or another task has, within a job."""
    try:
        from pyspark import TaskContext  # pyright: ignore
    except ImportError:
        return "0"  # somebody does the work of tasks without Spark
    context = TaskContext.get()
    return "0" if context is None else str(context.taskAttemptId())
