"""How long it takes to make a snapshot of a broker, and to have another one go on from there.

Each case is a broker with so many records and a group that has committed, on memory and on a disk: `snapshot`, then
`fork` up to its first answer and its stop, and `write`, the first record in a partition of a fork, which copies the
active segment. `held` is the longest stretch in which the loop did nothing else while a snapshot was made.
The last line is a run of pytest with a fork for each test, against the same tests without a broker. It prints and never
fails: a figure in milliseconds says as much about the machine as about us.

    python bench/snapshots.py [TESTS [WORKERS]]
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from minibroker import Broker
from minibroker.client import Cluster, Producer
from minibroker.client.groups import Groups

RECORDS = (0, 1_000, 100_000)
ROUNDS = 7
TESTS, WORKERS = 1_000, 2

CONFTEST = """
import pytest
from minibroker import Broker

@pytest.fixture(scope="session")
def kafka_snapshot():
    with Broker(topics=["orders:3"]) as broker:
        broker.load("orders", [{"id": number} for number in range(1000)], key="id")
        yield broker.snapshot()
"""
SUITE = """
import pytest

@pytest.mark.parametrize("number", range(%d))
def test_orders(%snumber):
    %s
"""


async def case(count: int, data_dir: Path | None) -> dict[str, list[float]]:
    """Return the times of a broker with so many records, in ms."""
    found: dict[str, list[float]] = {}

    def note(name: str, since: float) -> float:
        found.setdefault(name, []).append((time.perf_counter() - since) * 1e3)
        return time.perf_counter()

    async with Broker(topics=["orders:3"], data_dir=data_dir) as broker:
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster, linger_ms=1) as producer:
            for number in range(count):
                await producer.enqueue("orders", b"%0100d" % number)
            await producer.flush()
            await Groups(cluster).alter_offsets("readers", {("orders", 0): 0})
        for _ in range(ROUNDS):
            turns = asyncio.ensure_future(longest_turn())
            await asyncio.sleep(0)
            since = time.perf_counter()
            with await broker.asnapshot() as snapshot:
                note("snapshot", since)
                turns.cancel()
                found.setdefault("held", []).append(await turns)
                since = time.perf_counter()
                fork = await snapshot.fork().astart()
                note("fork", since)
                await fork.aproduce("orders", "a", partition=0)  # loads the client
                since = time.perf_counter()
                await fork.aproduce("orders", "a", partition=1)
                since = note("write", since)
                await fork.astop()
                note("stop", since)
    return found


async def longest_turn() -> float:
    longest = 0.0
    last = time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    except asyncio.CancelledError:
        return max(longest, time.perf_counter() - last) * 1e3


def suite(tests: int, workers: int, *, has_broker: bool) -> float:
    """Return the seconds that a run of pytest takes."""
    with tempfile.TemporaryDirectory() as directory:
        body = ("kafka, ", 'assert kafka.topics() == {"orders": 3}') if has_broker else ("", "pass")
        Path(directory, "conftest.py").write_text(CONFTEST)
        Path(directory, f"test_{workers}.py").write_text(SUITE % (tests, *body))
        since = time.perf_counter()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), directory]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=directory)
        return time.perf_counter() - since


def main(tests: int = TESTS, workers: int = WORKERS) -> None:
    print(f"{'':<24}" + "".join(f"{name + ', ms':>14}" for name in ("snapshot", "held", "fork", "write", "stop")))
    for where in ("memory", "disk"):
        for count in RECORDS:
            with tempfile.TemporaryDirectory() as directory:
                found = asyncio.run(case(count, Path(directory, "data") if where == "disk" else None))
            print(
                f"{f'{where}, {count:,} records':<24}"
                + "".join(
                    f"{statistics.median(found[name]):>14.1f}" for name in ("snapshot", "held", "fork", "write", "stop")
                )
            )
    without, with_broker = suite(tests, workers, has_broker=False), suite(tests, workers, has_broker=True)
    overhead_ms = (with_broker - without) * 1e3 / tests
    print(
        f"{tests} tests, {workers} workers: {with_broker:.1f} s, without a broker {without:.1f} s: "
        f"{overhead_ms:.1f} ms a test"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
