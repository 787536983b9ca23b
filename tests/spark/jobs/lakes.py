"""What the tests of `export` let happen in the session."""

from __future__ import annotations

import json
from typing import Any

from minibroker.spark.folders import Folder
from minibroker.spark.jobs.export import PROGRESS_KEPT, _Export, export
from minibroker.spark.jobs.export_targets import columns_of
from minibroker.spark.jobs.progress import QUIET


def exported(
    spark: Any,
    *,
    target: str,
    path: str = "",
    servers: str = "",
    topic: str = "orders",
    mode: str = "fail",
    ending: str = "latest",
    **told: Any,
) -> Any:
    """Export; return the summary, or what was wrong."""
    options = {"subscribe": topic, "mode": mode} | ({"path": path} if path else {"kafka.bootstrap.servers": servers})
    options |= {} if ending == "latest" else {"endingOffsets": ending}
    try:
        return json.loads(export(spark, options, target, **told).as_json())
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def rows(spark: Any, *, target: str, columns: str = "topic,partition,offset", table_format: str = "parquet") -> Any:
    """Return what somebody sees who knows nothing of us."""
    frame = spark.table(target) if table_format == "iceberg" else spark.read.format(table_format).load(target)
    return [
        list(row) for row in frame.selectExpr(*columns.split(",")).orderBy("topic", "partition", "offset").collect()
    ]


def columns(spark: Any, *, target: str) -> Any:
    return spark.read.parquet(target).dtypes


class _Query:
    """One that has nothing to do."""

    recentProgress: list[Any] = []

    def awaitTermination(self) -> None: ...

    def stop(self) -> None: ...


class _Target:
    """Where nothing is written, but how many micro-batches Spark remembers while it is."""

    place = notes = "nowhere"

    def __init__(self, spark: Any):
        self.spark, self.seen = spark, list[str]()

    def start(self, *_: Any) -> _Query:
        self.seen.append(self.spark.conf.get(PROGRESS_KEPT))
        return _Query()


def kept_while_running(spark: Any, *, checkpoint: str) -> list[str]:
    """Return for how many micro-batches a run has their counts kept, and how many there are when it has ended."""
    target: Any = _Target(spark)
    job = _Export(spark, {"path": "nowhere", "subscribe": "orders"}, target, Folder(checkpoint), QUIET)
    job.columns = columns_of("binary", "binary", None)
    job.export(is_one=False)
    return [*target.seen, spark.conf.get(PROGRESS_KEPT)]


def works(spark: Any, *, topics: int, partitions: int, records: int) -> Any:
    """Return how many logs, and of how many topics, each task of Spark reads of a micro-batch."""
    from types import SimpleNamespace

    from minibroker.spark.jobs.export_stream import works_of

    tasks = [
        SimpleNamespace(topic=f"topic-{topic}", first_offset=0, end_offset=records)
        for topic in range(topics)
        for _ in range(partitions)
    ]
    return [[len(work), len({task.topic for task in work})] for work in works_of(tasks)]


class CountedName(str):
    """The name of a field; how often names were compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def compared_names(spark: Any, *, fields: int) -> int:
    """Return how many names are compared when as many fields are those of the run before, but for one."""
    from pyspark.sql.types import LongType, StructField, StructType  # pyright: ignore

    from minibroker.spark.jobs.export_targets import grown

    there, wanted = (
        StructType([StructField(CountedName(f"field{number}"), LongType()) for number in range(fields + more)])
        for more in (0, 1)
    )
    CountedName.compared = 0
    assert grown(there, wanted, "json") == wanted
    return CountedName.compared
