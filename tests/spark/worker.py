"""What runs in Spark: it answers queries of our data source and of the Kafka connector, a JSON line each.

    {"format": "minibroker", "options": {...}, "schema": "", "where": "offset > 3", "group_by": "topic"}
    {"call": "tests.spark.writes:write_rows", "arguments": {...}}

A call names a function that gets the session and its arguments, and returns something that JSON has: the answer is
`{"returned": ...}`. That of a query is `{"columns": [...], "rows": [...], "tasks": n}`, bytes as hexadecimal digits and
times as microseconds, or `{"error": ...}` in Spark's own words. Arguments: the class path of the connector, and more
settings as JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
from datetime import datetime
from importlib import import_module
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

from minibroker.spark.source import MinibrokerSource

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "Asia/Kolkata",  # whose offset is no whole hour
    "spark.task.maxFailures": "1",
    "spark.sql.python.filterPushdown.enabled": "true",  # from 4.1 on
    # A JVM that lives for seconds.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


def answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    reader = spark.read.format(asked["format"]).options(**asked["options"])
    frame = (reader.schema(asked["schema"]) if asked.get("schema") else reader).load()
    columns = [(name, kind) for name, kind in frame.dtypes]
    if asked.get("where"):
        frame = frame.where(asked["where"])
    if asked.get("group_by"):
        frame = frame.groupBy(asked["group_by"]).agg(functions.count("*")).orderBy(asked["group_by"])
    if "timestamp" in frame.columns:
        frame = frame.withColumn("timestamp", functions.unix_micros("timestamp"))
    return {"columns": columns, "rows": [plain(row) for row in frame.collect()], "tasks": frame.rdd.getNumPartitions()}


def called(spark: SparkSession, asked: dict[str, Any]) -> Any:
    module, _, function = asked["call"].partition(":")
    return plain(getattr(import_module(module), function)(spark, **asked["arguments"]))


def main(class_path: str, settings: str) -> None:
    builder = SparkSession.builder.master("local[2]").config(map=SETTINGS | json.loads(settings))
    spark = builder.config("spark.driver.extraClassPath", class_path).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    spark.dataSource.register(MinibrokerSource)
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            found = {"returned": called(spark, asked)} if "call" in asked else answer(spark, asked)
        except (Py4JJavaError, PySparkException) as error:
            found = {"error": str(error)}
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
