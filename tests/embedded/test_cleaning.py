"""Retention, compaction and new segments on demand, wherever a broker runs; and a broker whose clock is moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from minibroker import Broker, Cluster
from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.embedded import CompactionRow, RetentionRow, RollRow
from minibroker.errors import Error, KafkaError

from .groups import CONSUMER, EAGER, team
from .test_broker import EVERYWHERE, PROCESS

USERS = "users:2:compact"
ORDERS = "orders:1:retention.bytes=0"


@pytest.fixture(params=EVERYWHERE)
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with Broker(topics=[USERS, ORDERS], process=request.param == PROCESS) as broker:
        yield broker


async def produce(address: str, topic: str, count: int = 30) -> None:
    from minibroker.client import Cluster as Client
    from minibroker.client import Producer

    async with Client(address) as client, Producer(client) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, b"k%d" % (number % 3), partition=0)


async def test_the_verbs_say_what_was_done(broker: Broker) -> None:
    await produce(broker.bootstrap_servers, "users")
    await produce(broker.bootstrap_servers, "orders")
    rolled = await broker.aroll_now("users")
    assert rolled == [
        RollRow(1, "users", 0, True, 30, ""),
        RollRow(1, "users", 1, False, 0, "the active segment is empty"),
    ]
    (compacted,) = await broker.acompact_now("users", 0)
    assert compacted == CompactionRow(
        broker=1,
        topic="users",
        partition=0,
        passes=1,
        end_offset=30,
        bytes_before=compacted.bytes_before,
        bytes_after=compacted.bytes_after,
        records_before=30,
        records_after=3,
        segments_before=1,
        segments_after=1,
        reason="",
    )
    assert compacted.bytes_after < compacted.bytes_before
    assert [record.offset for record in await broker.arecords("users")] == [27, 28, 29]
    orders, *users = await broker.aretention_now()
    assert orders == RetentionRow(1, "orders", 0, 1, orders.size_bytes, 30, "more than retention.bytes")
    assert [row.segments for row in users] == [0, 0]
    assert await broker.arecords("orders") == []


async def test_what_is_not_there_is_refused(broker: Broker) -> None:
    with pytest.raises(KafkaError, match="there is no topic 'nobody'") as refused:
        await broker.acompact_now("nobody")
    assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError, match="'users' has no partition 7"):
        await broker.aroll_now("users", 7)
    with pytest.raises(KafkaError, match="partition 7 of which topic") as refused:
        await broker.aretention_now(partition=7)
    assert refused.value.code == Error.INVALID_REQUEST


def test_plain_verbs_wait_in_any_thread() -> None:
    with Broker(topics=[USERS]) as broker:
        asyncio.run(produce(broker.bootstrap_servers, "users"))
        assert broker.roll_now("users", 0)[0].base_offset == 30
        assert broker.compact_now("users", 0)[0].records_after == 3
        assert [row.segments for row in broker.retention_now()] == [0, 0]


async def test_a_plain_verb_refuses_to_block_its_own_loop() -> None:
    async with Broker(topics=[USERS]) as broker:
        for verb in (broker.roll_now, broker.compact_now, broker.retention_now):
            with pytest.raises(RuntimeError, match="would block the loop"):
                verb()
        with pytest.raises(RuntimeError, match="would block the loop"):
            broker.advance("1s")


# A broker whose clock is in the hand


@pytest.mark.slow
async def test_a_week_passes_in_a_moment() -> None:
    clock = SteeredClock()
    clock.freeze()
    async with Broker(clock=clock, topics=["orders:1:retention.ms=86400000"]) as broker:
        await produce(broker.bootstrap_servers, "orders")
        assert len(await broker.await_records("orders", 30)) == 30
        before_ms = clock.now_ms()
        await broker.aadvance("7d")
        assert clock.now_ms() - before_ms == 7 * 86_400_000
        assert await broker.arecords("orders") == []
        with pytest.raises(TimeoutError):
            await broker.await_records("orders", 1, timeout=0.01)  # patience is not the broker's


@pytest.mark.slow
def test_in_a_thread_too() -> None:
    clock = SteeredClock()
    with Broker(clock=clock, topics=["orders:1:retention.ms=86400000"]) as broker:
        asyncio.run(produce(broker.bootstrap_servers, "orders"))
        broker.advance("7d")
        assert broker.records("orders") == []
        clock.from_thread(clock.advance, "1d")


def test_no_clock_need_be_handed_in() -> None:
    with Broker(topics=["orders:1:retention.ms=86400000"]) as broker:
        asyncio.run(produce(broker.bootstrap_servers, "orders"))
        broker.advance("2d")
        assert broker.records("orders") == []
        broker.freeze()
        before_ms = broker.clock.now_ms()
        broker.jump("1h")
        assert broker.clock.now_ms() == before_ms + 3_600_000
        broker.thaw()
        broker.rate(2)
        asyncio.run(produce(broker.bootstrap_servers, "orders"))
    assert abs(Broker(clock="steered").clock.now_ms() - LoopClock().now_ms()) < 60_000


async def test_in_a_loop_time_has_twins() -> None:
    async with Broker() as broker:
        await broker.afreeze()
        before_ms = broker.clock.now_ms()
        await broker.aadvance("1d")
        await broker.ajump("-1h")
        assert broker.clock.now_ms() == before_ms + 23 * 3_600_000
        await broker.athaw()
        await broker.arate(10)


def test_time_of_a_process_cannot_be_moved() -> None:
    with Broker(process=True) as broker, pytest.raises(TypeError, match="goes by the machine's clock"):
        broker.advance("1s")


@pytest.mark.slow
@pytest.mark.parametrize("by", [EAGER, CONSUMER])
async def test_a_member_stays_in_its_group_unless_sessions_go_on(by: str) -> None:
    """Its offsets stay, too, though nobody has committed for longer than offsets.retention.minutes."""
    async with Broker(topics="orders") as broker, team(broker.bootstrap_servers, "readers", ["orders"], by) as readers:
        await broker.afreeze()
        await readers.join("a")
        if by == EAGER:
            await readers.share()
        await readers.commit("a", "orders", 0, 0)
        before = await broker.agroup("readers")
        await broker.aadvance("8d")
        await readers.beat("a")
        after = await broker.agroup("readers")
        assert (after.state, len(after.members), after.epoch) == ("Stable", 1, before.epoch)
        assert after.partition("orders", 0).committed == 0
        await broker.aadvance("1m", sessions=True)
        assert (await broker.agroup("readers")).state == "Empty"


async def test_a_clock_that_cannot_be_moved_says_so() -> None:
    with pytest.raises(ValueError, match="a clock of its own"):
        Broker(process=True, clock=SteeredClock())
    with pytest.raises(TypeError, match="clock='frozen' is no clock"):
        Broker(clock="frozen")  # type: ignore[arg-type]
    async with Broker(clock=LoopClock()) as broker:
        with pytest.raises(TypeError, match=r"the LoopClock that this was made with cannot be moved: leave clock= out"):
            await broker.aadvance("1s")


# A cluster


async def test_in_a_cluster_it_is_done_on_every_broker() -> None:
    async with Cluster(brokers=3, topics=["users:1:3:compact", ORDERS]) as cluster:
        await cluster.await_in_sync()
        await produce(cluster.bootstrap_servers, "users")
        await produce(cluster.bootstrap_servers, "orders")
        await cluster.await_in_sync()
        for broker in (1, 2, 3):
            await cluster.await_high_watermark("users", broker=broker)
            await cluster.await_high_watermark("orders", broker=broker)
        assert [(row.broker, row.is_rolled) for row in await cluster.aroll_now("users")] == [
            (1, True),
            (2, True),
            (3, True),
        ]
        compacted = await cluster.acompact_now("users")
        assert [(row.broker, row.records_after) for row in compacted] == [(1, 3), (2, 3), (3, 3)]
        removed = await cluster.aretention_now("orders")
        assert [(row.broker, row.segments, row.start_offset) for row in removed] == [(1, 1, 30), (2, 1, 30), (3, 1, 30)]
        assert [row.log_start_offset for row in await cluster.adescribe("orders")] == [30, 30, 30]
        await cluster.akill(2)
        assert [row.broker for row in await cluster.aroll_now("orders")] == [1, 3]
        with pytest.raises(KafkaError, match="there is no topic 'nobody'"):
            await cluster.acompact_now("nobody")


async def test_a_follower_drops_old_segments_by_itself_and_goes_on() -> None:
    async with Cluster(brokers=2, topics=["orders:1:2:retention.ms=60000"]) as cluster:
        await cluster.await_in_sync()
        await produce(cluster.bootstrap_servers, "orders")
        for broker in (1, 2):
            await cluster.await_high_watermark("orders", 0, 30, broker=broker)
        with cluster.watching("retention") as heard:
            await cluster.aadvance("10m")
        assert {(event.broker, event.start_offset) for event in heard} == {(1, 30), (2, 30)}  # type: ignore[attr-defined]
        await produce(cluster.bootstrap_servers, "orders", 3)
        for broker in (1, 2):
            await cluster.await_high_watermark("orders", 0, 33, broker=broker)
        assert [record.offset for record in await cluster.arecords("orders")] == [30, 31, 32]


async def test_through_the_port_of_any_broker_the_whole_cluster_is_meant() -> None:
    from minibroker.client.control import ask

    async with Cluster(brokers=2, topics=["users:1:2"]) as cluster:
        await produce(cluster.bootstrap_servers, "users", 3)
        for broker in (1, 2):
            await cluster.await_high_watermark("users", 0, 3, broker=broker)
        host, port = cluster.bootstrap_servers.split(",")[1].split(":")
        found = await ask(host, int(port), "POST", "/roll", {"topic": "users", "partition": 0}, clock=LoopClock())
        assert [(row["broker"], row["base_offset"]) for row in found] == [(1, 3), (2, 3)]
