"""Bulk load in Spark: records of 200 bytes into segments, uncompressed and with lz4.

Rows are made by SQL while they are loaded: a key of 8 bytes, a value of 200 that compresses about as JSON does, a
millisecond apart. For each load: seconds, CPU seconds of the Python workers (Arrow in, segments with their indexes out)
and of the JVM (rows made, turned into Arrow and handed over), and millions of records per second of a worker's CPU.
The first load warms the session up and is not shown.

    python -m bench.spark.loading [MILLIONS]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from bench.spark.sessions import DRIVER, JVM, WORKERS, Session

VALUE = (
    "encode(rpad(concat('order', id % 1000, ' customer', hash(id) % 1000, ' amount', hash(id + 1) % 1000, ' EUR ',"
    " 'created', hash(id + 2) % 1000, ' shipped', hash(id + 3) % 1000, ' address', hash(id + 4)), 200,"
    " ' items discount street'), 'UTF-8')"
)
KEY = "encode(concat('key', lpad(cast(pmod(hash(id), 100000) as string), 5, '0')), 'UTF-8')"
CASES: tuple[dict[str, Any], ...] = (
    {"partitions": 1},
    {"partitions": 12},
    {"partitions": 12, "codec": "lz4"},
    {"partitions": 100},
)


def load_rows(spark: Any, path: str, count: int, **arguments: Any) -> list[int]:
    """Load so many rows; return how many records, bytes and segments there are. Called in the session."""
    from minibroker.spark.load import load

    frame = spark.range(count).selectExpr(f"{KEY} as key", f"{VALUE} as value", "1600000000000 + id as timestamp")
    done = load(frame, path, topic="orders", configs={"retention.ms": "-1"}, **arguments)
    return [done.records, done.size_bytes, done.segments]


def main(millions: float) -> None:
    work = Path(mkdtemp(prefix="loading-"))
    session = Session(work / "spark.txt")
    count = int(millions * 1e6)
    print(f"{'':34}{'seconds':>9}{'workers':>9}{'JVM':>7}{'M/s of a core':>15}{'MB':>7}", flush=True)
    try:
        for number, case in enumerate(({"partitions": 12}, *CASES)):
            before, start = session.cpu_seconds(), time.monotonic()
            records, size_bytes, _ = session.call("loading:load_rows", path=str(work / "data"), count=count, **case)
            seconds, after = time.monotonic() - start, session.cpu_seconds()
            used = {kind: after[kind] - before[kind] for kind in (JVM, WORKERS, DRIVER)}
            assert records == count
            rmtree(work / "data")
            if number:
                title = ", ".join(f"{name} {value}" for name, value in case.items())
                rate = count / used[WORKERS] / 1e6
                print(
                    f"{title:34}{seconds:9.1f}{used[WORKERS]:9.2f}{used[JVM]:7.1f}{rate:15.2f}{size_bytes / 1e6:7.0f}",
                    flush=True,
                )
    finally:
        session.stop()
        rmtree(work)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
