"""What works in the session for tests of writing to topics: batches, streams that run to an end, and foreachBatch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, SparkSession  # pyright: ignore

OURS = "minibroker"
QUERY_SECONDS_MAX = 110  # a machine may be busy


def write(spark: SparkSession, *, query: str, options: dict[str, str], mode: str = "append") -> None:
    """Write what a query in SQL gives."""
    spark.sql(query).write.format(OURS).mode(mode).options(**options).save()


def copy(spark: SparkSession, *, source: str, given: dict[str, str], options: dict[str, str]) -> None:
    """Write what was read from topics."""
    spark.read.format(source).options(**given).load().write.format(OURS).mode("append").options(**options).save()


def stream(
    spark: SparkSession,
    *,
    given: dict[str, str],
    options: dict[str, str],
    checkpoint: str,
    columns: list[str],
    mode: str = "append",
) -> int:
    """Write what is there in one topic to another, from the checkpoint on; return the number of micro-batches."""
    frame = spark.readStream.format("kafka").options(**given).load().selectExpr(*columns)
    writer = frame.writeStream.format(OURS).outputMode(mode).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    return finished(query)


def each_batch(
    spark: SparkSession,
    *,
    given: dict[str, str],
    writes: list[dict[str, str]],
    checkpoint: str,
    columns: list[str],
    fails: str = "",
    threaded: bool = False,
) -> int:
    """Do so in foreachBatch, with several writes; fail behind all of them, once, if `fails` names a file.

    threaded: they are written in a thread of the function's own, which knows nothing of the query.
    """

    def save(frame: DataFrame, batch: int) -> None:
        def write_all() -> None:
            if threaded:
                # Without an active session Spark finds no source that Python has registered.
                session = frame.sparkSession
                session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
            for options in writes:
                told = {name: value.replace("BATCH", str(batch)) for name, value in options.items()}
                frame.write.format(OURS).mode("append").options(**told).save()

        if threaded:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(write_all).result()
        else:
            write_all()
        if fails and not os.path.exists(fails):
            with open(fails, "w"):
                raise RuntimeError("killed behind the writes")

    frame = spark.readStream.format("kafka").options(**given).load().selectExpr(*columns)
    writer = frame.writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
    return finished(writer.trigger(availableNow=True).start())


def finished(query: Any) -> int:
    try:
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            raise TimeoutError(f"no end within {QUERY_SECONDS_MAX} s")
        return len(query.recentProgress)
    finally:
        query.stop()
