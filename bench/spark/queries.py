"""What is asked of Spark, in its own process (worker.py): queries of a whole topic, and writes.

Each answers how many seconds it took, from its options to its end, and with what can be compared between contestants.
"""

from __future__ import annotations

import shutil
import time
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

Options = dict[str, str]


def ask(spark: SparkSession, query: str, source: str, options: Options, columns: str, folder: str) -> dict[str, Any]:
    """Read a topic; columns: the schema to ask for, if any; folder: where files go."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    reader = spark.read.format(source).options(**options)
    if columns:
        reader = reader.schema(columns)
    answer = QUERIES[query](reader.load(), folder)
    return {"seconds": time.perf_counter() - began, "answer": answer}


def _count(frame: DataFrame, _: str) -> Any:
    return frame.count()


def _aggregate(frame: DataFrame, _: str) -> Any:
    size, newest = f.sum(f.length("value")), f.unix_millis(f.max("timestamp"))
    found = frame.groupBy("partition").agg(f.count("*"), size, newest).orderBy("partition").collect()
    return [list(row) for row in found]


def _by_key(frame: DataFrame, _: str) -> Any:
    buckets = frame.groupBy((f.hash("key") % 64).alias("bucket")).agg(f.count("*"), f.max("offset"))
    return [list(row) for row in buckets.orderBy("bucket").collect()]


def _parquet(frame: DataFrame, folder: str) -> Any:
    frame.write.parquet(folder)


def job(spark: SparkSession, words: list[str], folder: str) -> dict[str, Any]:
    """Run a job of ours as its command does, in this session; what it says goes nowhere."""
    from minibroker.spark.jobs.command import main

    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    with redirect_stdout(StringIO()):
        status = main([*words, "--quiet"])
    if status:
        raise RuntimeError(f"minibroker spark {' '.join(words)}: status {status}")
    return {"seconds": time.perf_counter() - began, "answer": None}


QUERIES = {"count": _count, "aggregate": _aggregate, "by key": _by_key, "Parquet": _parquet}


def made(spark: SparkSession, records: int) -> DataFrame:
    """Return rows that cost little to make: keys of 8 bytes, values of 200 that differ in their first."""
    number = f.lpad(f.col("id").cast("string"), 8, "0")
    value = f.concat(number, f.lit("order shipped 2026 amount EUR " * 7)).substr(1, 200)
    key = f.lpad((f.col("id") * 2_654_435_761 % 100_000).cast("string"), 8, "k")
    return spark.range(0, records, numPartitions=4).select(
        key.cast("binary").alias("key"), value.cast("binary").alias("value")
    )


def write(spark: SparkSession, sink: str, options: Options, records: int, folder: str) -> dict[str, Any]:
    """Write rows to a topic, into a directory, or to nowhere, which is what making them costs."""
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    made(spark, records).write.format(sink).options(**options).mode("append").save()
    return {"seconds": time.perf_counter() - began, "answer": None}
