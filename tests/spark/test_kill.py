"""Streams that are killed with SIGKILL again and again: what they write is complete, and nothing is in it twice.

Both queries of killed.py run at once while records are produced. When to kill is drawn: after so many changes of the
directory of files, the checkpoints and the end of the topic that is written, which come at all steps of a micro-batch.
Now all processes are killed, now only the JVM, so that Python workers go on without it for a moment.
MINIBROKER_TEST_KILLS says how often; ten times takes minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Producer
from tests.interop.spark import pyspark_folder
from tests.spark.session import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore:minibroker.Broker")]

SOURCE, TARGET = "orders", "copies"
KILLS = int(os.environ.get("MINIBROKER_TEST_KILLS", "1"))
SECONDS_MAX = 240.0  # from a start to the kill, and for the end
LOOK_SECONDS = 0.005
PARTITIONS = 3
CHANGES_MAX = 40  # some ten of each micro-batch
BUSY = "Timed out while waiting for the Python worker"  # Spark gives it ten seconds, whatever else the machine does
AHEAD = 60  # so many records are there at most that are not copied yet


class Feeder:
    """Produces records without an end; a key is in one partition, with values that count."""

    def __init__(self, servers: str):
        self.servers = servers
        self.count = 0

    def feed(self, count: int) -> None:
        asyncio.run(self._send(count))

    async def _send(self, count: int) -> None:
        async with Cluster(self.servers) as cluster, Producer(cluster) as producer:
            for number in range(self.count, self.count + count):
                await producer.send(SOURCE, b"%06d" % number, key=b"k%d" % (number % 7), partition=number % PARTITIONS)
        self.count += count


class Watched:
    """What the queries leave where it can be seen."""

    def __init__(self, work: Path, broker: Broker):
        self.work = work
        self.broker = broker
        self.seen: set[str] = set()
        self.changes = 0
        self.copied = 0

    def look(self) -> int:
        """Return how often something has changed so far."""
        self.copied = len(self.broker.records(TARGET))
        found = {str(path) for path in self.work.rglob("*")} | {f"{self.copied}"}
        self.changes += len(found - self.seen)
        self.seen |= found
        return self.changes


@contextmanager
def queries(work: Path, broker: Broker) -> Iterator[subprocess.Popen[str]]:
    told = {"servers": broker.bootstrap_servers, "source": SOURCE, "target": TARGET}
    told |= {"files": f"{work}/files", "checkpoints": f"{work}/checkpoints"}
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYTHONPATH": os.pathsep.join([str(pyspark_folder()), str(ROOT)]), "PYTHONWARNINGS": "ignore"}
    with open(work.parent / "spark.txt", "a") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killed", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=environment,
            cwd=ROOT,
            text=True,
        )
    assert process.stdin
    assert process.stdout
    try:
        yield process
    finally:
        kill(descendants(process.pid))
        process.wait()
        process.stdin.close()
        process.stdout.close()


def descendants(pid: int) -> list[int]:
    """Return a process and all that it has started: the driver, the JVM, Python's daemons, their workers."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def kill(processes: list[int]) -> None:
    for each in processes:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue


def run_to_kill(process: subprocess.Popen[str], changes: int, feeder: Feeder, watched: Watched) -> bool:
    """Return whether there have been so many changes; else the queries have ended by themselves."""
    goal, deadline = watched.look() + changes, time.monotonic() + SECONDS_MAX
    while watched.look() < goal:
        assert time.monotonic() < deadline, "nothing goes on"
        if feeder.count - watched.copied < AHEAD:
            feeder.feed(AHEAD)
        try:  # an end wakes this up, otherwise it is time to look again
            process.wait(LOOK_SECONDS)
            return False
        except subprocess.TimeoutExpired:
            continue
    return True


@pytest.mark.skipif(shutil.which("java") is None, reason="needs java: Spark runs on it")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc, to find what Spark has started")
def test_streams_that_are_killed_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    chance = Random(9)
    work = tmp_path / "work"
    work.mkdir()
    killed = ended = 0
    with Broker(topics=[f"{SOURCE}:{PARTITIONS}", f"{TARGET}:2"]) as broker:
        feeder, watched = Feeder(broker.bootstrap_servers), Watched(work, broker)
        feeder.feed(AHEAD)
        while killed < KILLS:
            with queries(work, broker) as process:
                assert process.stdout, said(tmp_path)
                assert process.stdout.readline() == "running\n", said(tmp_path)
                if not run_to_kill(process, chance.randint(1, CHANGES_MAX), feeder, watched):
                    ended += 1
                    assert BUSY in said(tmp_path), said(tmp_path)
                    assert ended < KILLS, said(tmp_path)
                    continue
                found = descendants(process.pid)
                kill(found if killed % 2 else found[:2])
                killed += 1
        with queries(work, broker) as process:
            assert process.stdin, said(tmp_path)
            assert process.stdout, said(tmp_path)
            assert process.stdout.readline() == "running\n", said(tmp_path)
            feeder.feed(AHEAD)
            process.stdin.close()
            exported = json.loads(process.stdout.readline() or "[]")
            assert process.wait(SECONDS_MAX) == 0, said(tmp_path)
        produced = [(each.partition, each.offset, each.value.decode()) for each in broker.records(SOURCE)]
        copied = sorted(each.value.decode() for each in broker.records(TARGET))
    assert sorted(map(tuple, exported)) == sorted(produced)
    assert len(produced) == feeder.count
    assert copied == sorted(value for _, _, value in produced)


def said(folder: Path) -> str:
    return (folder / "spark.txt").read_text()[-5000:]
