"""What runs in Spark to be killed: one query from a topic into Parquet files, one from that topic to another.

The other one's rows are shuffled, so that a task that is repeated has them in another order, and records go out one by
one, so that there is time to be killed between them.

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
OF_SHUFFLE = {"spark.sql.execution.sortBeforeRepartition": "false"}  # without it no repetition has the order of before


def main(told: dict[str, str]) -> None:
    spark = SparkSession.builder.master("local[2,4]").config(map=SETTINGS | OF_SHUFFLE).getOrCreate()
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
    write = {"kafka.bootstrap.servers": told["servers"], "topic": told["target"], "kafka.batch.size": "1"}
    copy = (
        rows.select("key", "value", "timestamp")
        .repartition(3)
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
