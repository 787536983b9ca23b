"""Exports that are killed with SIGKILL again and again: each record is there once, whatever was killed.

When to kill is drawn: after so many changes of the target and its checkpoint. Now only Python workers are killed, now
the driver and its JVM, so that Python workers go on without it for a moment, and now all processes. Files are read by
PyArrow after each run that came to its end. MINIBROKER_TEST_KILLS says how often; ten times takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from minibroker.log.records import Record
from tests.interop.spark import LAKES_VERSION, lakes_class_path, pyspark_folder
from tests.spark.jobs.test_export import DAY_MS, log_of, rows_in
from tests.spark.session import descendants, kill, program
from tests.spark.test_kill import KILLS, LOOK_SECONDS, SECONDS_MAX, workers

pytestmark = [pytest.mark.slow, pytest.mark.interop]
RECORDS, PARTITIONS = 200, 3  # so many more of each partition before each run
GOING_ON = 1 << 30
CHANGES_MAX = 60  # two micro-batches have so many


@contextmanager
def exporting(told: dict[str, str], class_path: str, said: Path) -> Iterator[subprocess.Popen[str]]:
    folder = pyspark_folder(LAKES_VERSION) if class_path else pyspark_folder()
    words = json.dumps(told), class_path
    with program("tests.spark.jobs.exporting", *words, said=said, pyspark=folder) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n", said.read_text()[-5000:]
        os.set_blocking(process.stdout.fileno(), False)
        yield process


class Watched:
    """The folders of an export, and how often something has changed there."""

    def __init__(self, *folders: Path):
        self.folders = folders
        self.seen: set[str] = set()
        self.changes = 0

    def look(self) -> int:
        found = {str(path) for folder in self.folders for path in folder.rglob("*")}
        self.changes += len(found ^ self.seen)
        self.seen = found
        return self.changes


def run_to_kill(process: subprocess.Popen[str], changes: int, watched: Watched) -> str:
    """Let it export until there have been so many changes; return what it said, if that was before."""
    assert process.stdin
    assert process.stdout
    if changes != GOING_ON:
        process.stdin.write("go\n")
        process.stdin.flush()
    goal, deadline = watched.look() + changes, time.monotonic() + SECONDS_MAX
    while watched.look() < goal:
        assert time.monotonic() < deadline, "nothing goes on"
        if answer := process.stdout.readline():
            return answer.strip()
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return "ended"
    return ""


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_an_export_that_is_killed_has_each_record_once(table_format: str, tmp_path: Path) -> None:
    chance, killed, class_path = Random(7), 0, "" if table_format == "parquet" else lakes_class_path()
    data, lake, said = tmp_path / "data", tmp_path / "lake", tmp_path / "spark.txt"
    target = "lake.shop.orders" if table_format == "iceberg" else str(lake)
    told = {"path": str(data), "target": target, "table_format": table_format}
    told |= {"checkpoint": str(tmp_path / "checkpoint")}
    watched = Watched(lake, tmp_path / "checkpoint", tmp_path / "warehouse")
    expected: list[tuple[int, int]] = []
    while killed < KILLS:
        with exporting(told, class_path, said) as process:
            answer = "begun"  # a kill while files are put together leaves rows twice until the next run
            while answer in ("begun", "done", "failed"):
                if table_format == "parquet" and answer == "done":
                    found = rows_in(lake)
                    assert len(found) == len(set(found))
                expected = fed(data, len(expected) // PARTITIONS)
                if not (answer := run_to_kill(process, chance.randint(1, CHANGES_MAX), watched)):
                    tree = descendants(process.pid)
                    of_kill = [workers(tree), tree[:2], tree][killed % 3]
                    kill(of_kill)
                    killed += 1
                    if tree[0] not in of_kill and killed < KILLS:  # Spark repeats tasks, or gives up
                        answer = run_to_kill(process, GOING_ON, watched)
    with exporting(told, class_path, said) as process:
        assert process.stdin
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), True)
        process.stdin.close()
        seen = json.loads(process.stdout.readline() or "[]")
        assert process.wait(SECONDS_MAX) == 0, said.read_text()[-5000:]
    print(f"{table_format}: {killed} kills, {len(seen)} records once")
    assert [(partition, offset) for _, partition, offset in seen] == expected
    if table_format == "parquet":
        assert rows_in(lake) == expected


def fed(data: Path, before: int) -> list[tuple[int, int]]:
    """Write more records, of two days; return partition and offset of all."""
    for partition in range(PARTITIONS):
        days = (20_000 + number % 2 for number in range(RECORDS))
        log_of(data, f"orders-{partition}", [Record(None, b"%d" % day, (), day * DAY_MS) for day in days])
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(before + RECORDS)]
