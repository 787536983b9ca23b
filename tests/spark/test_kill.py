"""Streams that are killed with SIGKILL again and again: what they write is complete, and nothing is in it twice.

Both queries of killed.py run at once while records are produced, of which each comes several times, equal in key, value
and time. When to kill is drawn: after so many changes of the directory of files, the checkpoints and the end of the
topic that is written, which come at all steps of a micro-batch and of its transaction. Now only Python workers are
killed, so that the driver repeats tasks, or ends, now only the driver and its JVM, so that Python workers go on without
it for a moment, and now all processes.
MINIBROKER_TEST_KILLS says how often; ten times takes minutes. MINIBROKER_TEST_KILLED_WITH names brokers besides ours,
as releases of Kafka: 3.9.2,4.4.0.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from minibroker.client import Cluster, Producer
from minibroker.client.offsets import READ_UNCOMMITTED, find_offsets
from minibroker.errors import KafkaError
from tests.client.committed import committed_records
from tests.interop.spark import pyspark_folder
from tests.spark.session import descendants, kill, program
from tests.spark.sink.test_killed_driver import broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore:minibroker.Broker")]

SOURCE, TARGET = "orders", "copies"
KILLS = int(os.environ.get("MINIBROKER_TEST_KILLS", "2"))
KILLED_WITH = ["ours", *filter(None, os.environ.get("MINIBROKER_TEST_KILLED_WITH", "").split(","))]
SECONDS_MAX = 240.0  # from a start to the kill, and for the end
LOOK_SECONDS = 0.005
TOPICS = {SOURCE: 3, TARGET: 2}  # partitions of each
CHANGES_MAX = 150  # some thirty of each micro-batch
BUSY = "Timed out while waiting for the Python worker"  # Spark gives it ten seconds, whatever else the machine does
AHEAD = 60  # so many records are there at least that are not copied yet
EQUAL = 4  # so often comes each record
BEGIN_MS = 1_700_000_000_000


class Topics:
    """The topics of the queries, by a client of our own."""

    def __init__(self, address: str):
        self.address = address
        self.count = 0  # of records in the source
        self._runner = asyncio.Runner()
        self._cluster = Cluster(address)

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._cluster.close())
        self._runner.close()

    def feed(self, count: int) -> None:
        self._runner.run(self._send(count))

    async def _send(self, count: int) -> None:
        async with Producer(self._cluster) as producer:
            for number in range(self.count, self.count + count):
                same = number // EQUAL
                await producer.send(
                    SOURCE,
                    b"%06d" % same,
                    key=b"k%d" % (same % 7),
                    partition=number % TOPICS[SOURCE],
                    timestamp=BEGIN_MS + same,
                )
        self.count += count

    def end(self) -> int:
        """Return how many offsets the target has had so far, those of markers and of aborted records too."""
        partitions = {(TARGET, index): "latest" for index in range(TOPICS[TARGET])}
        found = self._runner.run(find_offsets(self._cluster, partitions, READ_UNCOMMITTED))
        return sum(each.offset for each in found.values() if not isinstance(each, KafkaError))


class Watched:
    """What the queries leave where it can be seen."""

    def __init__(self, work: Path, topics: Topics):
        self.work = work
        self.topics = topics
        self.seen: set[str] = set()
        self.changes = 0
        self.fed_at = 0  # how many micro-batches there had been

    def look(self) -> int:
        """Return how often something has changed so far; see to it that there is something to copy."""
        found = {str(path) for path in self.work.rglob("*")} | {f"{self.topics.end()}"}
        self.changes += len(found - self.seen)
        self.seen |= found
        batches = len(list(self.work.glob("checkpoints/copy/commits/*")))
        if batches >= self.fed_at:
            self.topics.feed(AHEAD)
            self.fed_at = batches + 1
        return self.changes


@contextmanager
def queries(work: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    told = {"servers": address, "source": SOURCE, "target": TARGET}
    told |= {"files": f"{work}/files", "checkpoints": f"{work}/checkpoints"}
    said = work.parent / "spark.txt"
    with program("tests.spark.killed", json.dumps(told), said=said, pyspark=pyspark_folder()) as process:
        yield process


def workers(processes: list[int]) -> list[int]:
    """Return those of some processes that are Python's below a JVM: its daemon, and its workers."""
    found = []
    for each in processes:
        try:
            if b"pyspark.daemon" in Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0"):
                found.append(each)
        except OSError:
            continue
    return found


def run_to_kill(process: subprocess.Popen[str], changes: int, watched: Watched) -> bool:
    """Return whether there have been so many changes; else the queries have ended by themselves."""
    goal, deadline = watched.look() + changes, time.monotonic() + SECONDS_MAX
    while watched.look() < goal:
        assert time.monotonic() < deadline, "nothing goes on"
        try:  # an end wakes this up, otherwise it is time to look again
            process.wait(LOOK_SECONDS)
            return False
        except subprocess.TimeoutExpired:
            continue
    return True


@pytest.mark.skipif(shutil.which("java") is None, reason="needs java: Spark runs on it")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc, to find what Spark has started")
@pytest.mark.parametrize("name", KILLED_WITH)
def test_streams_that_are_killed_lose_nothing_and_write_nothing_twice(name: str, tmp_path: Path) -> None:
    chance = Random(9)
    work = tmp_path / "work"
    work.mkdir()
    killed = ended = 0
    with broker(name, TOPICS, tmp_path) as address, Topics(address) as topics:
        watched = Watched(work, topics)
        topics.feed(AHEAD)
        while killed < KILLS:
            with queries(work, address) as process:
                assert process.stdout, said(tmp_path)
                assert process.stdout.readline() == "running\n", said(tmp_path)
                while run_to_kill(process, chance.randint(1, CHANGES_MAX), watched):
                    found = descendants(process.pid)
                    of_kill = [workers(found), found[:2], found][killed % 3]
                    kill(of_kill)
                    killed += 1
                    if found[0] in of_kill or killed == KILLS:
                        break
                else:
                    # Spark waited in vain for a worker, or one was killed that did the work of the driver.
                    ended += 1
                    assert BUSY in said(tmp_path) or killed % 3 == 1, said(tmp_path)
                    assert ended <= KILLS, said(tmp_path)
        with queries(work, address) as process:
            assert process.stdin, said(tmp_path)
            assert process.stdout, said(tmp_path)
            assert process.stdout.readline() == "running\n", said(tmp_path)
            topics.feed(AHEAD)
            process.stdin.close()
            exported = json.loads(process.stdout.readline() or "[]")
            assert process.wait(SECONDS_MAX) == 0, said(tmp_path)
        produced = committed_records(address, SOURCE)
        copied = committed_records(address, TARGET)
        written = topics.end()
    print(f"{name}: {killed} kills, {len(copied)} records once, {written - len(copied)} offsets of aborted and markers")
    assert sorted(map(tuple, exported)) == sorted((r.partition, r.offset, (r.value or b"").decode()) for r in produced)
    assert len(produced) == topics.count
    assert sorted((r.key, r.value, r.timestamp) for r in copied) == sorted(
        (r.key, r.value, r.timestamp) for r in produced
    )


def said(folder: Path) -> str:
    return (folder / "spark.txt").read_text()[-5000:]
