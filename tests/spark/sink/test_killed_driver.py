"""A driver that is killed with SIGKILL again and again in its transactions: each row is there once.

When to kill is drawn: after so many changes of the topic's end and of the driver's own note. MINIBROKER_TEST_KILLS says
how often. What Spark does around it is in tests/spark/test_kill.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from minibroker import Broker
from minibroker.client import Admin, Cluster, NewTopic
from minibroker.client.offsets import READ_UNCOMMITTED, find_offsets
from tests.client.committed import committed_records
from tests.differential.kafka import Kafka, missing_tools
from tests.spark.session import ROOT
from tests.spark.sink.killed_driver import ROWS, rows_of

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("MINIBROKER_TEST_KILLS", "5"))
TOPIC, PARTITIONS = "orders", 3
CHANGES_MAX = 60  # two batches have so many
SECONDS_MAX = 120.0

OF_KAFKA = pytest.mark.interop


@contextmanager
def broker(name: str, topics: dict[str, int], work: Path) -> Iterator[str]:
    """Start a broker of ours, or a release of Kafka, with topics that keep their records; return its address."""
    if name.startswith("ours"):
        as_version = {"as_version": "3.9"} if name.endswith("classic") else {}
        with Broker(**as_version) as ours:
            for topic, partitions in topics.items():
                ours.create_topic(topic, partitions, retention_ms=-1)
            yield ours.bootstrap_servers
        return
    if missing := missing_tools():
        pytest.skip(f"needs {missing}: Kafka takes what Spark writes")

    async def make_topics(address: str) -> None:
        made = [NewTopic(topic, partitions, configs={"retention.ms": "-1"}) for topic, partitions in topics.items()]
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topics(made)

    with Kafka(name, work / "kafka") as kafka:
        asyncio.run(make_topics(kafka.address))
        yield kafka.address


def run_to_kill(process: subprocess.Popen[bytes], changes: int, address: str, note: Path) -> None:
    """Wait for so many changes, and kill."""

    async def wait() -> None:
        asked = {(TOPIC, index): "latest" for index in range(PARTITIONS)}
        seen: set[str] = set()
        deadline = time.monotonic() + SECONDS_MAX
        async with Cluster(address) as cluster:
            while len(seen) <= changes:
                seen.add(f"{await find_offsets(cluster, asked, READ_UNCOMMITTED)} {note.read_text()}")
                assert process.poll() is None, "the driver has ended by itself"
                assert time.monotonic() < deadline, "nothing goes on"

    try:
        asyncio.run(wait())
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "name",
    ["ours", "ours, classic", pytest.param("3.9.2", marks=OF_KAFKA), pytest.param("4.4.0", marks=OF_KAFKA)],
)
def test_a_driver_that_is_killed_leaves_each_row_once(name: str, tmp_path: Path) -> None:
    chance = Random(18)
    note = tmp_path / "note"
    note.write_text("0")
    with broker(name, {TOPIC: PARTITIONS}, tmp_path) as address:
        command = [sys.executable, "-m", "tests.spark.sink.killed_driver", address, TOPIC, str(note)]
        for _ in range(KILLS):
            process = subprocess.Popen([*command, "1000000"], cwd=ROOT)
            run_to_kill(process, chance.randint(1, CHANGES_MAX), address, note)
        count = int(note.read_text()) + 1
        subprocess.run([*command, f"{count}"], cwd=ROOT, check=True, timeout=SECONDS_MAX)
        found = committed_records(address, TOPIC)
    ends: dict[int, int] = {}
    for record in found:
        ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 2)
    left = sum(ends.values()) - len(found)
    print(f"{name}: {KILLS} kills, {count} batches, {len(found)} rows once, {left} offsets of aborted ones and markers")
    wanted = [row for batch in range(count) for row in rows_of(batch)]
    assert len(wanted) == count * ROWS
    assert sorted((r.key, r.value, r.timestamp) for r in found) == sorted(wanted)
