"""What exports to be killed: an export for each line that comes; every third puts small files together.

    python -m tests.spark.jobs.exporting '{"path": ..., "target": ..., "table_format": ..., ...}' CLASSPATH

It says "ready" at first, after each line "done", or "failed" where Spark gave up, and at the end topic, partition and
offset of all rows as Spark sees them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession  # pyright: ignore

from minibroker.spark.jobs.export import export
from minibroker.spark.source import MinibrokerSource
from tests.spark.jobs.lakes import rows
from tests.spark.jobs.tables import settings
from tests.spark.worker import SETTINGS

STEP_OFFSETS = 400


def main(told: dict[str, Any], class_path: str) -> None:
    more = settings(f"{told['path']}/../warehouse") if class_path else {}
    builder = SparkSession.builder.master("local[2,4]").config(map=SETTINGS | more)
    spark = builder.config("spark.driver.extraClassPath", class_path).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MinibrokerSource)
    source = {"path": told.pop("path"), "subscribe": "orders"}
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        try:
            export(spark, source, **told, offsets_max=STEP_OFFSETS, compact=number % 3 == 2)
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            print("failed", flush=True)
        else:
            print("done", flush=True)
    while export(spark, source, **told).figures["offsets"]:  # until there is nothing new
        continue
    found = rows(spark, target=told["target"], columns="topic,partition,offset", table_format=told["table_format"])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), *sys.argv[2:])
