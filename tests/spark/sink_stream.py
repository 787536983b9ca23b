"""A streaming write that can be killed: rows of numbers to a topic, from a checkpoint on, until there are so many.

    python -m tests.spark.sink_stream --bootstrap-server HOST:PORT --topic numbers --checkpoint DIR --rows 100000

Run again after any end it goes on; when it has ended by itself, each number below --rows is in the topic once.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession  # pyright: ignore

from minibroker.spark.source import MinibrokerSource

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write numbers to a topic in micro-batches, each once.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument("--rows", type=int, default=100_000, help="how many in all; a multiple of --batch-rows")
    parser.add_argument("--batch-rows", type=int, default=10_000, help="how many in a micro-batch")
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the sink")
    told = parser.parse_args()
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MinibrokerSource)
    given = {"rowsPerBatch": told.batch_rows, "numPartitions": told.tasks, "startTimestamp": 0}
    rows = spark.readStream.format("rate-micro-batch").options(**given).load()
    rows = rows.selectExpr("cast(value % 97 as string) as key", "cast(value as string) as value")
    options = {"kafka.bootstrap.servers": told.bootstrap_server, "topic": told.topic, "exactlyOnce": "true"}
    options |= dict(each.split("=", 1) for each in told.option)
    rows = rows.where(f"cast(value as long) < {told.rows}")
    writer = rows.writeStream.format("minibroker").options(**options)
    query = writer.option("checkpointLocation", told.checkpoint).start()
    last = told.rows // told.batch_rows
    while not query.awaitTermination(0.1):
        if (query.lastProgress or {"batchId": -1})["batchId"] >= last:
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
