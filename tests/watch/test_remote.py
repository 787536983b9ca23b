"""Watching the cluster of another process: what its brokers tell, and what the screen makes of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from minibroker.cli.remote_screen import RemoteScreen
from minibroker.clock import LoopClock
from minibroker.cluster.cluster import Cluster
from minibroker.embedded import Broker
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.cluster.served import served
from tests.cluster.virtual import TOPIC

from .test_keys import terminal

pytestmark = pytest.mark.outside


def ports(cluster: Cluster) -> list[int]:
    return [node.servers[0].port for node in cluster.nodes.values()]


# The screen


async def until(screen: RemoteScreen, holds: Callable[[str], bool]) -> str:
    """Return the picture as soon as it fits."""
    changed = asyncio.Event()
    screen.changed = changed.set
    timer = LoopClock().after(10_000, asyncio.current_task().cancel)  # type: ignore[union-attr]
    while not holds(picture := "\n".join(screen.lines(100, 40, colour=False))):
        changed.clear()
        await changed.wait()
    timer.cancel()
    return picture


@pytest.mark.asyncio
async def test_keys_act_and_a_broker_that_is_gone_is_not_missed() -> None:
    async with served() as cluster:
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        async with RemoteScreen([("127.0.0.1", ports(cluster)[0])]) as screen:
            await screen.press("p")  # the very broker that is asked
            await until(screen, lambda picture: ">b1 paused" in picture)
            await screen.press("p")
            await until(screen, lambda picture: ">b1 running" in picture)
            await screen.press("right")
            await screen.press("k")
            picture = await until(screen, lambda picture: ">b2 killed" in picture and "in sync: 1,3" in picture)
            assert "Broker 2 is killed, because somebody asked for it." in picture
            await screen.press("left")
            await screen.press("k")
            await until(screen, lambda picture: "b1 killed  b2 killed" in picture and "broker 3 leads" in picture)
            await screen.press("k")
            await until(screen, lambda picture: ">b1 running" in picture)
            await screen.press("s")
            assert "no step waits" in screen.words[0]
            await screen.press("h")
            assert not screen.words
            assert cluster.steps.gates
            await screen.press("r")
            await screen.press("f")
            await until(screen, lambda picture: "(frozen)" in picture)
            await screen.press("a")
            assert not screen.words


@pytest.mark.asyncio
async def test_a_screen_says_that_nobody_answers_and_goes_on_asking() -> None:
    async with served() as cluster, RemoteScreen([("127.0.0.1", port) for port in ports(cluster)]) as screen:
        for broker in cluster.broker_ids:
            await cluster.kill(broker)
        await until(screen, lambda picture: "Nobody answers any more" in picture)
        await screen.press("k")
        assert "refused" in screen.words[0].lower() or "connect" in screen.words[0].lower()
        await cluster.start(2)
        await until(screen, lambda picture: "b2 running" in picture and "Nobody answers" not in picture)


@pytest.mark.asyncio
async def test_a_broker_alone_is_shown_and_says_that_it_cannot_be_pushed_about() -> None:
    async with Broker(topics=["orders:2"]) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        async with RemoteScreen([(host, int(port))]) as screen:
            await until(screen, lambda picture: "b1 running" in picture and "orders-1  broker 1 leads" in picture)
            await screen.press("k")
            assert "minibroker serve --brokers 3" in screen.words[0]


@pytest.mark.asyncio
async def test_records_of_short_logs_are_seen_letter_by_letter() -> None:
    async with served() as cluster:
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        async with RemoteScreen([("127.0.0.1", ports(cluster)[0])]) as screen:
            replica = cluster.leader(TOPIC, 0)
            assert replica is not None
            clock = cluster.clock
            for letter in b"abc":
                batch = build_batch(2, [Record(None, bytes([letter]))])
                replica.append(batch, now_ms=clock.now_ms(), steady_ms=clock.steady_ms())
            picture = await until(screen, lambda picture: picture.count(" a b c|") == 3)
            assert "hw 3  leo 3" in picture


@pytest.mark.asyncio
async def test_of_too_many_partitions_some_are_shown_those_in_trouble_first() -> None:
    async with served() as cluster:
        cluster.create_topic("many", 70, replication_factor=1)
        cluster.create_topic("zebras", 1, replication_factor=1)
        await cluster.waits.in_sync()
        where = cluster.partition("zebras", 0).leader
        await cluster.kill(where)
        async with RemoteScreen([("127.0.0.1", ports(cluster)[where % 3])]) as screen:
            picture = await until(screen, lambda picture: "Shown are 64 of 71 partitions." in picture)
            state = screen.state()
            assert state is not None
            assert len(state["partitions"]) == 64
            assert "zebras" in {each["topic"] for each in state["partitions"]}
            assert "running" in picture


@pytest.mark.asyncio
async def test_nobody_is_observed_who_is_not_looked_at() -> None:
    async with served() as cluster:
        assert not cluster.events.observed
        async with RemoteScreen([("127.0.0.1", ports(cluster)[0])]) as screen:
            assert cluster.events.observed
            assert screen.state() is not None
        cluster.feed._lease_over()
        while cluster.feed.viewers:
            await asyncio.sleep(0)
        cluster.feed._lease_over()
        assert not cluster.events.observed


# The command


async def command(*words: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "minibroker", "watch", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaints = await process.communicate()
    return process.returncode, out.decode(), complaints.decode()


@pytest.mark.asyncio
async def test_once_prints_a_frame_of_a_cluster_elsewhere() -> None:
    async with served() as cluster:
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        await cluster.kill(1)
        await cluster.waits.leader(TOPIC, other_than=1)
        status, out, complaint = await command("--once", "-b", cluster.bootstrap_servers)
        assert (status, complaint) == (0, "")
        assert "b1 killed  b2 running  b3 running" in out
        assert "orders-0  broker 2 leads" in out
        assert "b2 leader   |" in out


@pytest.mark.asyncio
async def test_who_cannot_watch_is_told_what_to_do() -> None:
    async with served() as cluster:
        port = ports(cluster)[0]
        await cluster.kill(1)
        status, _, complaint = await command("--once", "-b", f"127.0.0.1:{port}")
    assert status == 1
    assert complaint.startswith(f"minibroker watch: nobody answers at 127.0.0.1:{port} (")
    assert complaint.endswith("): is the broker running? `minibroker serve --brokers 3` starts one\n")
    assert await command("-b", "localhost:1") == (
        2,
        "",
        "minibroker watch: this is no terminal; --once prints one frame\n",
    )
    status, _, complaint = await command("-b", "localhost:1", "--brokers", "2")
    assert status == 2
    assert "for a cluster that is started here, without -b" in complaint
    status, _, complaint = await command("--once", "-b", "localhost:http")
    assert status == 2
    assert "no address of a broker" in complaint


@pytest.mark.slow
def test_watch_a_cluster_elsewhere_at_a_terminal() -> None:
    serve = [sys.executable, "-m", "minibroker", "serve", "--brokers", "2", "--port", "0", "--memory", "--quiet"]
    with subprocess.Popen([*serve, "--topic", "orders"], stdout=subprocess.PIPE, text=True) as served_elsewhere:
        try:
            assert served_elsewhere.stdout
            address = served_elsewhere.stdout.readline().strip()
            with terminal("watch", "-b", address) as screen:
                screen.wait_for(r"\x1b\[\?1049h.*orders-0")
                screen.type("k")
                screen.wait_for("b1 killed")
                screen.type("q")
                screen.wait_for(r"\x1b\[\?1049l")
                assert screen.process.wait(20) == 0
        finally:
            served_elsewhere.terminate()
