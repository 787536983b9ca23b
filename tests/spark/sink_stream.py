"""A streaming write that can be killed: rows of numbers to a topic, from a checkpoint on, until there are so many.

    python -m tests.spark.sink_stream --bootstrap-server HOST:PORT --topic numbers --checkpoint DIR --rows 100000

Run again after any end it goes on; when it has ended by itself, each number below --rows is in the topic once.
With --marks tasks fail at their first attempt, and Spark repeats them; --hangs lets others take for ever, which Spark
runs a second time (speculation) if there is an executor on another host. DIR gets a file for each attempt.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from functools import partial
from pathlib import Path

from pyspark import TaskContext  # pyright: ignore
from pyspark.sql import SparkSession, functions  # pyright: ignore

from minibroker.spark.source import MinibrokerSource

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
}

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
}
FAILS, HANGS = 0, 1  # tasks
FOR_EVER_SECONDS = 3600  # until it is killed
ROWS_PASSED = 1000
SEEN: Counter[int] = Counter()  # rows of each attempt


def fail_or_hang(value: str, marks: str, hangs: bool) -> str:
    """Pass a value on, but at the first attempt of some tasks not all of them."""
    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    SEEN[context.taskAttemptId()] += 1
    if SEEN[context.taskAttemptId()] == ROWS_PASSED:
        Path(marks, f"{task}-{attempt}").touch()
        if attempt == 0 and task == FAILS:
            raise RuntimeError("the first attempt fails")
        if attempt == 0 and task == HANGS and hangs:
            time.sleep(FOR_EVER_SECONDS)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description="Write numbers to a topic in micro-batches, each once.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument("--rows", type=int, default=100_000, help="how many in all; a multiple of --batch-rows")
    parser.add_argument("--batch-rows", type=int, default=10_000, help="how many in a micro-batch")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the sink")
    parser.add_argument("--marks", metavar="DIR", default="")
    parser.add_argument("--hangs", action="store_true")
    parser.add_argument("--master", default="local[2,4]")
    told = parser.parse_args()
    settings = SETTINGS | SPECULATION if told.hangs else SETTINGS
    spark = SparkSession.builder.master(told.master).config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MinibrokerSource)
    given = {"rowsPerBatch": told.batch_rows, "numPartitions": told.tasks, "startTimestamp": 0}
    rows = spark.readStream.format("rate-micro-batch").options(**given).load()
    rows = rows.selectExpr("cast(value % 97 as string) as key", "cast(value as string) as value")
    options = {"kafka.bootstrap.servers": told.bootstrap_server, "topic": told.topic}
    options |= dict(each.split("=", 1) for each in told.option)
    rows = rows.where(f"cast(value as long) < {told.rows}")
    if told.marks:
        slowly = functions.udf(partial(fail_or_hang, marks=told.marks, hangs=told.hangs)).asNondeterministic()
        rows = rows.select("key", slowly("value").alias("value"))
    writer = rows.writeStream.format("minibroker").options(**options)
    query = writer.option("checkpointLocation", told.checkpoint).start()
    last = told.rows // told.batch_rows
    while not query.awaitTermination(0.1):
        if (query.lastProgress or {"batchId": -1})["batchId"] >= last:
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
