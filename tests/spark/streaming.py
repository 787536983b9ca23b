"""What works in the session for tests of streams: queries that run to an end, their micro-batches and progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException  # pyright: ignore
from pyspark.sql import DataFrame, SparkSession, functions  # pyright: ignore
from pyspark.sql.streaming import StreamingQuery  # pyright: ignore

from minibroker.spark.lag import lag

QUERY_SECONDS_MAX = 60
ATTEMPTS = 4


def plain_rows(frame: DataFrame) -> list[list[Any]]:
    if "timestamp" in frame.columns:
        frame = frame.withColumn("timestamp", functions.unix_micros("timestamp"))
    return [list(row) for row in frame.collect()]


def run(query_of: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    """Start a query, wait and stop it. Spark gives a worker ten seconds to start, which a busy machine may not keep."""
    for attempt in range(ATTEMPTS):
        query = query_of()
        try:
            wait(query)
            return query
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt == ATTEMPTS - 1:
                raise
        finally:
            query.stop()
    raise AssertionError("the last attempt returns or raises")


def ended(query: StreamingQuery) -> None:
    if not query.awaitTermination(QUERY_SECONDS_MAX):
        raise TimeoutError(f"no end within {QUERY_SECONDS_MAX} s")


def available(
    spark: SparkSession, *, source: str, options: dict[str, str], checkpoint: str, schema: str = ""
) -> dict[str, Any]:
    """Read what there is from the checkpoint on; return the rows of each micro-batch, and its offsets."""
    batches: list[list[list[Any]]] = []
    reader = spark.readStream.format(source).options(**options)
    frame = (reader.schema(schema) if schema else reader).load()
    writer = frame.writeStream.foreachBatch(lambda part, _: batches.append(plain_rows(part)))
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = run(writer.start, ended)
    progress = [json.loads(each.json) for each in query.recentProgress]
    offsets = [(each["sources"][0]["startOffset"], each["sources"][0]["endOffset"]) for each in progress]
    return {"batches": batches, "offsets": offsets}


def steps(spark: SparkSession, *, source: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
    """Read all that there is in micro-batches of a stream that goes on, and stop it; with what `lag` says of it."""
    batches: list[list[list[Any]]] = []
    said: dict[str, Any] = {}
    frame = spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.queryName("steps").foreachBatch(lambda part, _: batches.append(plain_rows(part)))
    writer = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds")

    def wait(query: StreamingQuery) -> None:
        query.processAllAvailable()
        said["lag"] = plain_rows(lag(query).drop("query"))
        said["asked"] = plain_rows(lag(spark, servers=options.get("kafka.bootstrap.servers", "")).drop("query"))

    run(writer.start, wait)
    return {"batches": batches, **said}
