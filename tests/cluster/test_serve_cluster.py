"""`minibroker serve --brokers N`: a cluster in the foreground."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.client import Cluster, Consumer, Producer

ROOT = Path(__file__).parent.parent.parent


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `minibroker serve`; yield it and its first line. SIGTERM ends it with status 0 and no complaint."""
    command = [sys.executable, "-m", "minibroker", "serve", "--quiet", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


async def work(bootstrap: str, *values: bytes) -> tuple[dict[int, str], list[bytes | None]]:
    """Write values; return the racks of all brokers, and everything that is there to be read."""
    async with Cluster(bootstrap) as cluster:
        async with Producer(cluster) as producer:
            for value in values:
                await producer.send("orders", value, partition=0)
        found: list[bytes | None] = []
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, "earliest")])
            while not consumer.is_at_end or not found:
                found += [record.value for record in await consumer.fetch(100)]
        return {each.id: each.rack or "" for each in cluster.nodes.values()}, found


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that nobody uses, below those that the system gives away by itself."""
    for first in range(20_000, 30_000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        else:
            return first
        finally:
            for each in sockets:
                each.close()
    raise AssertionError("no ports are free")


@pytest.mark.slow
def test_a_cluster_is_served_stopped_and_served_again(tmp_path: Path) -> None:
    first = free_ports(3)
    arguments = ["--brokers", "3", "--port", str(first), "--data-dir", str(tmp_path), "--topic", "orders"]
    wanted = ",".join(f"127.0.0.1:{port}" for port in range(first, first + 3))
    with serving(*arguments, "--rack", "a,b,c") as (_, line):
        assert line == wanted
        brokers, values = asyncio.run(work(line, b"1", b"2"))
        assert values == [b"1", b"2"]
        assert brokers == {1: "a", 2: "b", 3: "c"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker-1", "broker-2", "broker-3", "controller"]
    assert all((tmp_path / f"broker-{number}/.kafka_cleanshutdown").exists() for number in (1, 2, 3))
    with serving(*arguments) as (_, line):
        assert line == wanted
        for bootstrap in line.split(","):
            assert asyncio.run(work(bootstrap))[1] == [b"1", b"2"]


@pytest.mark.slow
def test_a_cluster_that_was_killed_serves_the_same_at_once(tmp_path: Path) -> None:
    arguments = ["--brokers", "3", "--port", "0", "--data-dir", str(tmp_path), "--topic", "orders"]
    command = [sys.executable, "-m", "minibroker", "serve", "--quiet", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    asyncio.run(work(process.stdout.readline().strip(), b"1"))
    process.kill()
    process.communicate()
    with serving(*arguments) as (_, line):
        assert asyncio.run(work(line, b"2"))[1] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--brokers", "0"], "at least one broker, not 0"),
        (["--brokers", "3", "--port", "65534"], "no 3 ports from 65534 on"),
        (["--brokers", "3", "--node-id", "-1"], "the ids of brokers begin at 0 to 1000, not at -1"),
        (["--brokers", "3", "-o", "node.id=0"], "`serve --node-id N` and first_id=N give that of the first"),
        (["--brokers", "3", "-o", "listeners=PLAINTEXT://:1"], "each broker of a cluster has its own"),
        (["--rack", "a"], "only together with --brokers"),
        (["--brokers", "1", "--topic", "orders:1:3"], "orders"),
    ],
)
def test_what_cannot_be_served_says_why(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--memory", *(["--port", "0"] if "--port" not in arguments else []), *arguments]) == 2
    assert words in capsys.readouterr().err
