"""Planning looks at names, not at data: what would be 20 GB is planned in a moment and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest

from minibroker.spark.filters import Filters
from tests.spark.logs import tasks_of
from tests.spark.sparse import SEGMENT_BYTES, SEGMENT_MS, SEGMENT_RECORDS, START_MS, make_sparse

PARTITIONS, SEGMENTS = 4, 500
# A fiftieth of 100,000 segments, which may take 30 s and 1 GB.
CPU_SECONDS_MAX, BYTES_MAX = 0.6, 20_000_000


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sparse") / "root"
    make_sparse(root, PARTITIONS, SEGMENTS)
    return root


@pytest.mark.parametrize(
    ("filters", "options", "parts", "count"),
    [
        ({}, {}, SEGMENTS, -(-SEGMENTS // 13)),
        ({}, {"maxBytesPerPartition": SEGMENT_BYTES}, SEGMENTS, SEGMENTS),
        ({}, {"minPartitions": 3 * PARTITIONS * SEGMENTS}, SEGMENTS, 3 * SEGMENTS),
        ({"first_timestamp": START_MS + 400 * SEGMENT_MS}, {}, 100, 8),
        ({"first_offset": 10 * SEGMENT_RECORDS, "end_offset": 20 * SEGMENT_RECORDS + 1}, {}, 11, 1),
    ],
    ids=str,
)
def test_a_large_directory_is_planned_at_once(
    filters: dict[str, int], options: dict[str, object], parts: int, count: int, sparse: Path
) -> None:
    def planned() -> list[object]:
        return list(tasks_of(sparse, "events", Filters(**filters), **options))

    began = time.process_time()
    tasks = tasks_of(sparse, "events", Filters(**filters), **options)
    used = time.process_time() - began
    assert len(tasks) == PARTITIONS * count
    assert len({(task.partition, part[0]) for task in tasks for part in task.parts}) == PARTITIONS * parts
    assert used < CPU_SECONDS_MAX, f"{used:.2f} s"
    del tasks
    tracemalloc.start()
    try:
        kept = planned()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept and peak < BYTES_MAX, f"{peak} bytes"
