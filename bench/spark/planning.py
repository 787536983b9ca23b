"""Planning of a terabyte that is not there: 100,000 segments of 10 MB as sparse files, in 20 partitions.

    python bench/spark/planning.py DIRECTORY [SEGMENTS]

Makes the directory if it is not there (about 1 GB of blocks), plans queries on it, each in a process of its own, and
prints how long that takes and how much memory it needs. No batch is read but those that prove an index.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTITIONS = 20
SEGMENTS = 100_000

PLAN = """\
import json, resource, sys, time
from minibroker.spark.filters import Filters
from minibroker.spark.options import parse
from minibroker.spark.reading import plan
options, filters = json.loads(sys.argv[1]), json.loads(sys.argv[2])
began, used = time.perf_counter(), time.process_time()
tasks = plan(parse(options), Filters(**filters))
took, used = time.perf_counter() - began, time.process_time() - used
print(json.dumps({
    "tasks": len(tasks),
    "segments": sum(len(task.parts) for task in tasks),
    "TB": round(sum(task.size_bytes for task in tasks) / 1e12, 3),
    "seconds": round(took, 2),
    "CPU seconds": round(used, 2),
    "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
}))
"""


def main(directory: str, segments: str = str(SEGMENTS)) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.spark.sparse import SEGMENT_MS, SEGMENT_RECORDS, START_MS, make_sparse

    root, each = Path(directory), int(segments) // PARTITIONS
    if not root.exists():
        began = time.perf_counter()
        make_sparse(root, PARTITIONS, each)
        print(f"made {PARTITIONS * each} segments in {time.perf_counter() - began:.0f} s")
    half_ms, tenth = START_MS + SEGMENT_MS * each // 2, SEGMENT_RECORDS * each // 10
    queries: list[tuple[str, dict[str, str], dict[str, int]]] = [
        ("all of it", {}, {}),
        ("a task for each segment", {"maxBytesPerPartition": "10000000"}, {}),
        ("half a million tasks", {"minPartitions": str(each * PARTITIONS * 5)}, {}),
        ("at most 20,000 offsets a task", {"maxRecordsPerPartition": "20000"}, {}),
        ("the younger half, by a filter on timestamps", {}, {"first_timestamp": half_ms}),
        ("a tenth, by a filter on offsets", {}, {"first_offset": tenth, "end_offset": 2 * tenth}),
    ]
    for name, options, filters in queries:
        told = {"path": directory, "subscribe": "events"} | options
        command = [sys.executable, "-c", PLAN, json.dumps(told), json.dumps(filters)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ})
        print(f"{name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
