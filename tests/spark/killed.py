"""What runs in Spark to be killed: one query from a topic into Parquet files, one from that topic to another.

    python -m tests.spark.killed '{"servers": ..., "source": ..., "target": ..., "files": ..., "checkpoints": ...}'

It says "running" when both queries are, and ends if one of them does. At the end of its input it waits until all that
there is has been written, and says what is in the files then, a JSON line with partition, offset and value of each row.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Thread

from pyspark.sql import SparkSession

from minibroker.spark.source import MinibrokerSource
from tests.spark.worker import SETTINGS

STEP_OFFSETS = 40  # so that there are many micro-batches


def main(told: dict[str, str]) -> None:
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MinibrokerSource)
    read = {"kafka.bootstrap.servers": told["servers"], "subscribe": told["source"], "startingOffsets": "earliest"}
    rows = spark.readStream.format("minibroker").options(maxOffsetsPerTrigger=STEP_OFFSETS, **read).load()
    export = (
        rows.select("partition", "offset", "value")
        .writeStream.format("parquet")
        .options(path=told["files"], checkpointLocation=f"{told['checkpoints']}/export")
        .trigger(processingTime="0 seconds")
        .start()
    )
    write = {"kafka.bootstrap.servers": told["servers"], "topic": told["target"], "exactlyOnce": "true"}
    copy = (
        rows.select("key", "value")
        .writeStream.format("minibroker")
        .options(checkpointLocation=f"{told['checkpoints']}/copy", **write)
        .trigger(processingTime="0 seconds")
        .start()
    )
    print("running", flush=True)
    Thread(target=end_with, args=(spark,), daemon=True).start()
    sys.stdin.read()
    for query in (export, copy):
        query.processAllAvailable()
        query.stop()
    found = spark.read.parquet(told["files"]).collect()
    print(json.dumps([[partition, offset, value.decode()] for partition, offset, value in found]), flush=True)
    spark.stop()


def end_with(spark: SparkSession) -> None:
    """Wait for a query that ends by itself, which it does only because something is wrong."""
    try:
        spark.streams.awaitAnyTermination()
    except Exception as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(3)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
