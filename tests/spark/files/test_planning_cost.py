"""Planning looks at names, not at data: what would be 20 GB is planned with few questions and in little memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.spark.filters import Filters
from tests.spark.logs import tasks_of
from tests.spark.sparse import SEGMENT_BYTES, SEGMENT_MS, SEGMENT_RECORDS, START_MS, make_sparse

PARTITIONS, SEGMENTS = 4, 500
BYTES_MAX = 20_000_000  # a fiftieth of what 100,000 segments may take


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sparse") / "root"
    make_sparse(root, PARTITIONS, SEGMENTS)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "options", "parts", "count", "opened"),
    [
        ({}, {}, SEGMENTS, -(-SEGMENTS // 13), 0),
        ({}, {"maxBytesPerPartition": SEGMENT_BYTES}, SEGMENTS, SEGMENTS, 0),
        ({}, {"minPartitions": 3 * PARTITIONS * SEGMENTS}, SEGMENTS, 3 * SEGMENTS, 1),
        ({"first_timestamp": START_MS + 400 * SEGMENT_MS}, {}, 100, 8, 3),
        ({"first_offset": 10 * SEGMENT_RECORDS, "end_offset": 20 * SEGMENT_RECORDS + 1}, {}, 11, 1, 0),
    ],
    ids=str,
)
def test_a_large_directory_is_planned_at_once(
    filters: dict[str, int],
    options: dict[str, object],
    parts: int,
    count: int,
    opened: int,
    sparse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned() -> list[object]:
        return list(tasks_of(sparse, "events", Filters(**filters), **options))

    calls: Counter[str] = Counter()
    with monkeypatch.context() as watched:
        for name in ("open", "list", "size_bytes", "exists", "modified_ms"):
            watched.setattr(ReadOnlyStorage, name, _counting(name, calls))
        tasks = tasks_of(sparse, "events", Filters(**filters), **options)
    assert len(tasks) == PARTITIONS * count
    assert len({(task.partition, part[0]) for task in tasks for part in task.parts}) == PARTITIONS * parts
    segments = PARTITIONS * SEGMENTS
    assert calls["open"] <= opened * segments + 20, f"files opened: {calls}"  # 20: what all segments share
    assert calls.total() <= (2 + 3 * opened) * segments, f"questions to the file system: {calls}"
    del tasks
    tracemalloc.start()
    try:
        kept = planned()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept, f"{peak} bytes"
    assert peak < BYTES_MAX, f"{peak} bytes"


def _counting(name: str, calls: Counter[str]) -> Callable[..., Any]:
    inner = getattr(ReadOnlyStorage, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        calls[name] += 1
        return inner(*arguments, **named)

    return counted
