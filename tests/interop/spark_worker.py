"""What runs in Spark: it reads topics as it is told, a JSON line each on standard input, and answers in JSON lines.

    {"how": "batch", "options": {...}}                         all there is, as one query
    {"how": "stream", "options": {...}, "checkpoint": PATH}    all there is from the checkpoint on, in micro-batches

The answer is `{"records": [[partition, offset, key, value], ...]}` in the order in which Spark gave them, or `{"error":
...}` in Spark's own words. Arguments: the class path of the connector. It needs nothing but PySpark.
"""

from __future__ import annotations

import json
import sys

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

QUERY_SECONDS_MAX = 40
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.task.maxFailures": "1",
    # A JVM that lives for seconds.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def text(raw: bytearray | None) -> str | None:
    return None if raw is None else bytes(raw).decode("latin-1")


def rows(frame: DataFrame) -> list[list[object]]:
    found = frame.select("partition", "offset", "key", "value").collect()
    return [[row.partition, row.offset, text(row.key), text(row.value)] for row in found]


def batch(spark: SparkSession, options: dict[str, str]) -> list[list[object]]:
    return rows(spark.read.format("kafka").options(**options).load())


def stream(spark: SparkSession, options: dict[str, str], checkpoint: str) -> list[list[object]]:
    found: list[list[object]] = []
    frame = spark.readStream.format("kafka").options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda part, _: found.extend(rows(part)))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(QUERY_SECONDS_MAX):
            raise TimeoutError(f"no end within {QUERY_SECONDS_MAX} s, and {len(found)} records until then")
    finally:
        query.stop()
    return found


def main(class_path: str) -> None:
    builder = SparkSession.builder.master("local[1]").config(map=SETTINGS)
    spark = builder.config("spark.driver.extraClassPath", class_path).getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    print(json.dumps({"version": spark.version}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["how"] == "batch":
                answer: dict[str, object] = {"records": batch(spark, asked["options"])}
            else:
                answer = {"records": stream(spark, asked["options"], asked["checkpoint"])}
        except (Py4JJavaError, PySparkException, TimeoutError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
