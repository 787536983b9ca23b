"""What runs in Spark: functions of queries.py as they are asked for, a JSON line each.

    {"call": "bench.spark.queries:ask", "arguments": {...}}

The answer is `{"returned": ...}` or `{"error": ...}`. Arguments: the master, settings as JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module

from pyspark.sql import SparkSession

from minibroker.spark.source import MinibrokerSource

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def main(master: str, settings: str) -> None:
    spark = SparkSession.builder.master(master).config(map=SETTINGS | json.loads(settings)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MinibrokerSource)
    print(json.dumps({"returned": spark.version}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        module, _, function = asked["call"].partition(":")
        try:
            found = {"returned": getattr(import_module(module), function)(spark, **asked["arguments"])}
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
