"""What the tests of `import` and `slice` let happen in the session."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from minibroker.spark.jobs import loading, slice
from minibroker.spark.jobs.command import reason_of
from minibroker.spark.jobs.progress import Progress


def imported(spark: Any, *, words: list[str]) -> Any:
    return _done(spark, loading, words)


def cut(spark: Any, *, words: list[str]) -> Any:
    return _done(spark, slice, words)


def _done(spark: Any, job: Any, words: list[str]) -> Any:
    """Run a job as the command line does; return the summary, or what was wrong."""
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    try:
        return json.loads(job.run(spark, parser.parse_args(words), Progress(None, False)).as_json())
    except Exception as error:
        return {"error": reason_of(error) or f"{type(error).__name__}: {error}"}


def works(spark: Any, *, logs: int, topics: int) -> Any:
    """Return which logs each task writes of an export with so many, and whether their offsets rise in it."""
    from pyspark.sql import functions as sql

    from minibroker.spark.jobs.loading_files import in_order

    rows = spark.range(logs * topics * 20).selectExpr(
        f"concat('topic-', id % {topics}) AS topic",
        f"cast(id div {topics} % {logs} AS int) AS partition",
        "1000 - id AS offset",
        "array(named_struct('key', 'h')) AS headers",
    )
    placed = in_order(rows.repartition(5), ["topic", "partition"])
    placed = placed.select(
        "*", sql.spark_partition_id().alias("task"), sql.monotonically_increasing_id().alias("place")
    )
    found = placed.groupBy("task").agg(
        sql.count_distinct("topic", "partition"),
        sql.count("*"),
        sql.expr("array_sort(collect_list(struct(place, topic, partition, offset)))"),
    )
    whole = []
    for _, count, records, listed in found.collect():
        offsets = [(row["topic"], row["partition"], row["offset"]) for row in listed]
        whole.append([count, records, offsets == sorted(offsets)])
    return whole


def is_on_disk(spark: Any, *, text: str) -> bool:
    """Return whether Spark has written a text to the files by which rows go from task to task."""
    disk = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
    folders = [Path(folder) for folder in disk.localDirsString()]
    return any(text.encode() in path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file())


def files(spark: Any, *, folder: str) -> None:
    """Write the same three rows in several formats."""
    rows = spark.sql(
        "select * from values "
        "(1, 'a', named_struct('x', 1, 'y', null), timestamp'2024-01-01 00:00:00Z', 'orders', 0),"
        "(2, 'b', null, timestamp'2024-01-02 00:00:00Z', 'users', 1),"
        "(3, null, named_struct('x', 3, 'y', 'z'), timestamp'2024-01-03 00:00:00Z', 'orders', 1)"
        " as rows(id, name, more, at, kind, place)"
    ).coalesce(1)
    rows.write.parquet(f"{folder}/rows.parquet")
    rows.drop("more").selectExpr("*", "unix_millis(at) as ms").write.option("header", "true").csv(f"{folder}/rows.csv")


def written(spark: Any, *, folder: str, files: dict[str, str]) -> None:
    """Write what queries yield to a folder, each as one file of the format that its first folder is named after."""
    for name, query in files.items():
        kind = name.partition("/")[0]
        spark.sql(query).write.format(kind if kind == "orc" else "parquet").save(f"{folder}/{name}")


def generated(spark: Any, *, rule: str, tasks: int) -> Any:
    """Return a hash of all records, made in so many tasks."""
    from pyspark.sql import functions as sql

    from minibroker.spark.jobs.loading_generator import generated, parse_spec

    frame = generated(spark, parse_spec(rule), tasks=tasks)
    hashes = sql.xxhash64("key", "value", sql.unix_micros("timestamp"))
    return [*frame.select(sql.bit_xor(hashes), sql.count("*")).first(), frame.rdd.getNumPartitions()]


def made(spark: Any, *, rule: str) -> Any:
    """Return the records of a rule: key, value, time in ms, headers."""
    from pyspark.sql import functions as sql

    from minibroker.spark.jobs.loading_generator import generated, parse_spec

    frame = generated(spark, parse_spec(rule))
    headers = "headers" if "headers" in frame.columns else sql.lit(None)
    return [list(row) for row in frame.select("key", "value", sql.unix_millis("timestamp"), headers).collect()]
