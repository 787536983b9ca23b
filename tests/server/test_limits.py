"""Limits on connections, silence and slowness, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest

from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.server.buffers import FIRST_BYTES
from tests.client.scripted import TestClock
from tests.server.running import (
    FedTransport,
    alter_broker,
    append,
    batch,
    connected,
    fetch,
    frame,
    produce,
    running,
    said,
    settle,
    turns,
)

METADATA = (3, 9)
FETCH = (1, 12)
ASK = MetadataRequest(topics=[])


def pass_seconds(clock: TestClock, seconds: int) -> None:
    """Let time pass as it does, the server looking around each second."""
    for _ in range(seconds):
        clock.pass_time(1000)


@pytest.mark.setting("max.connections")
async def test_more_connections_than_allowed_are_closed() -> None:
    async with running({"max.connections": "2"}) as node, connected(node) as one, connected(node) as two:
        await one.ask(ASK, 9)
        await two.ask(ASK, 9)
        async with connected(node) as three:
            assert await three.is_closed()
        await two.close()
        await settle(node, 1)
        async with connected(node) as four:
            await four.ask(ASK, 9)
        await one.ask(ASK, 9)
        assert any("more than 2 connections" in line for line in said(node))


@pytest.mark.setting("max.connections.per.ip")
async def test_more_connections_from_one_address_than_allowed_are_closed() -> None:
    async with running({"max.connections.per.ip": "1"}) as node, connected(node) as one:
        await one.ask(ASK, 9)
        async with connected(node) as two:
            assert await two.is_closed()
        await one.ask(ASK, 9)


async def test_connections_are_counted_over_all_listeners() -> None:
    settings = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "max.connections": "1",
    }
    async with running(settings) as node, connected(node) as one:
        await one.ask(ASK, 9)
        async with connected(node, listener=1) as two:
            assert await two.is_closed()


async def test_a_listener_may_have_fewer_connections_than_the_broker() -> None:
    async with running({"listener.name.plaintext.max.connections": "1"}) as node, connected(node) as one:
        await one.ask(ASK, 9)
        async with connected(node) as two:
            assert await two.is_closed()
        assert any("more than 1 connections to listener PLAINTEXT" in line for line in said(node))


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
@pytest.mark.setting("max.connections.per.ip.overrides")
async def test_an_address_may_have_a_limit_of_its_own(address: str) -> None:
    settings = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": f"{address}:2"}
    async with running(settings) as node, connected(node) as one, connected(node) as two:
        await one.ask(ASK, 9)
        await two.ask(ASK, 9)
        async with connected(node) as three:
            assert await three.is_closed()


async def test_an_address_without_a_limit_of_its_own_is_shut_out_where_the_limit_is_0() -> None:
    settings = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.9:5"}
    async with running(settings) as node, connected(node) as one:
        assert await one.is_closed()


CHANGED = [
    ("max.connections", "1"),
    ("max.connections.per.ip", "1"),
    ("max.connections.per.ip.overrides", "127.0.0.1:1"),
    ("listener.name.plaintext.max.connections", "1"),
]


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize(("name", "value"), CHANGED)
async def test_a_limit_that_is_changed_is_one_at_once_and_goes_when_it_is_taken_back(
    name: str, value: str, broker: str
) -> None:
    async with running() as node, connected(node) as one, connected(node) as two:
        await alter_broker(one, broker, {name: value})
        await two.ask(ASK, 9)  # who is there stays
        async with connected(node) as three:
            assert await three.is_closed()
        await alter_broker(one, broker, {name: None})
        async with connected(node) as four:
            await four.ask(ASK, 9)


@pytest.mark.setting("socket.send.buffer.bytes", "socket.receive.buffer.bytes")
async def test_buffers_of_sockets_have_the_size_that_is_asked_for() -> None:
    settings = {"socket.send.buffer.bytes": "20000", "socket.receive.buffer.bytes": "30000"}
    async with running(settings) as node, connected(node) as client:
        await client.ask(ASK, 9)
        (connection,) = node.servers[0].connections
        accepted = connection.transport.get_extra_info("socket")
        # Linux doubles what is asked for, for its own use.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (20000, 40000)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30000, 60000)


@pytest.mark.setting("connections.max.idle.ms")
async def test_a_silent_connection_is_closed() -> None:
    clock = TestClock()
    async with running({"connections.max.idle.ms": "60000"}, clock=clock) as node, connected(node) as client:
        await client.ask(ASK, 9)
        pass_seconds(clock, 60)
        await client.ask(ASK, 9)
        pass_seconds(clock, 60)
        await client.ask(ASK, 9)
        pass_seconds(clock, 61)
        assert await client.is_closed()
        await settle(node)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
async def test_a_clock_that_is_set_changes_nothing_for_connections(jump_ms: int) -> None:
    clock = TestClock()
    async with running({"connections.max.idle.ms": "60000"}, clock=clock) as node, connected(node) as client:
        await client.ask(ASK, 9)
        unfinished = FedTransport(node)
        unfinished.feed(frame(ASK, 9)[:-1])
        node.clock.skew_ms = jump_ms
        pass_seconds(clock, 5)
        await client.ask(ASK, 9)
        assert not unfinished.is_gone
        pass_seconds(clock, 10)
        assert unfinished.is_gone
        pass_seconds(clock, 51)
        assert await client.is_closed()
        await settle(node)


async def test_who_holds_much_and_sends_nothing_makes_room_for_who_sends() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        server = node.servers[0]
        server.limits.held_bytes_max = 8_500_000
        idle = [FedTransport(node) for _ in range(10)]
        for fed in idle:
            fed.feed((90_000_000).to_bytes(4, "big") + bytes(600_000))
        honest = FedTransport(node)
        data = frame(produce("t", batch(bytes(4_000_000))), 9)
        for start in range(0, len(data), 50_000):
            honest.feed(data[start : start + 50_000])
            pass_seconds(clock, 1)
        assert honest.answers((0, 9))
        assert 0 < sum(fed.is_gone for fed in idle) < len(idle)
        for fed in (honest, *idle):
            fed.close()


async def test_a_fetch_that_waits_is_not_silent() -> None:
    clock = TestClock()
    async with running({"connections.max.idle.ms": "60000"}, clock=clock) as node, connected(node) as client:
        node.create_topic("t")
        client.send(frame(fetch("t", wait_ms=600_000), 12))
        while not node.replicas["t", 0].waiters:
            await asyncio.sleep(0)
        pass_seconds(clock, 599)
        assert node.replicas["t", 0].waiters
        pass_seconds(clock, 1)
        await client.answer(*FETCH)
        pass_seconds(clock, 59)
        await client.ask(ASK, 9)


@pytest.mark.parametrize("idle_ms", ["-1", "5000"])
async def test_who_waits_with_more_behind_and_may_have_gone_is_given_up_in_the_end(idle_ms: str) -> None:
    clock = TestClock()
    async with running({"connections.max.idle.ms": idle_ms}, clock=clock) as node:
        node.create_topic("t")
        waiting, alone = FedTransport(node), FedTransport(node)
        for fed in (waiting, alone):
            fed.feed(frame(fetch("t", wait_ms=3_600_000), 12))
        waiting.feed(frame(ASK, 9))
        assert [fed.is_paused for fed in (waiting, alone)] == [True, False]
        pass_seconds(clock, 600)
        assert not waiting.is_gone
        pass_seconds(clock, 2)
        await turns()
        assert waiting.is_gone
        assert not alone.is_gone  # its end would be seen
        assert any("nobody could tell whether the client is still there" in line for line in said(node))
        alone.close()
        await turns()


async def test_a_frame_whose_rest_does_not_come_is_given_up() -> None:
    clock = TestClock()
    async with running(clock=clock) as node, connected(node) as client:
        client.send(frame(ASK, 9)[:-1])
        while not node.servers[0].held_bytes:
            await asyncio.sleep(0)
        pass_seconds(clock, 10)
        assert len(node.servers[0].connections) == 1
        pass_seconds(clock, 2)
        assert await client.is_closed()
        await settle(node)
        assert node.servers[0].held_bytes == 0


async def test_a_frame_fed_by_the_drop_is_given_up_however_large_it_is() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        fed = FedTransport(node)
        fed.feed((2_000_000).to_bytes(4, "big"))
        for _ in range(60):
            fed.feed(b"x")
            pass_seconds(clock, 1)
        assert fed.is_gone


async def test_a_slow_but_steady_frame_is_waited_for() -> None:
    clock = TestClock()
    async with running({"connections.max.idle.ms": "60000"}, clock=clock) as node:
        node.create_topic("t")
        fed = FedTransport(node)
        data = frame(produce("t", batch(bytes(100_000))), 9)
        for position in range(0, len(data), 2000):
            fed.feed(data[position : position + 2000])
            pass_seconds(clock, 1)
        assert fed.answers((0, 9))[0][1].responses[0].partition_responses[0].error_code == 0
        fed.close()


async def test_a_busy_connection_that_always_has_half_a_frame_open_is_not_given_up() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        fed = FedTransport(node)
        data = frame(ASK, 9)
        fed.feed(data[:-3])
        for _ in range(60):
            fed.feed(data[-3:] + data[:-3])
            pass_seconds(clock, 1)
        assert not fed.is_gone
        fed.feed(data[-3:])
        assert len(fed.answers(*[METADATA] * 61)) == 61
        fed.close()


@pytest.mark.parametrize("length", [-1, -(1 << 31), (1 << 31) - 1, 104_857_601])
async def test_a_length_that_cannot_be_closes_at_once(length: int) -> None:
    async with running() as node, connected(node) as client:
        client.send(length.to_bytes(4, "big", signed=True))
        assert await client.is_closed()
        await settle(node)
        assert node.servers[0].held_bytes == 0


@pytest.mark.setting("socket.request.max.bytes")
async def test_socket_request_max_bytes_is_the_longest_frame() -> None:
    async with running({"socket.request.max.bytes": "2000"}) as node, connected(node) as client:
        node.create_topic("t")
        empty = len(frame(produce("t", batch(b"")), 3)) - 4
        # One byte more of varint for the record's length and one for the value's.
        answer = await client.ask(produce("t", batch(bytes(2000 - empty - 3))), 3)
        assert answer.responses[0].partition_responses[0].error_code == 0
        client.send(frame(produce("t", batch(bytes(2001 - empty))), 3))
        assert await client.is_closed()


@pytest.mark.slow
async def test_a_reader_that_does_not_read_slows_only_itself() -> None:
    async with running({"message.max.bytes": "2000000"}) as node:
        node.create_topic("t")
        for _ in range(10):
            append(node, "t", bytes(1_000_000))
        async with connected(node, buffer_bytes=4096) as slow, connected(node) as quick:
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(10):
                slow.send(frame(fetch("t", bytes_max=10_000_000), 12, number))
            connection = None
            while connection is None or not connection.is_full:  # type: ignore[union-attr]
                await quick.ask(ASK, 9)
                connection = next(iter(node.servers[0].connections))
            answered_bytes = node.servers[0].sent_bytes
            for _ in range(20):
                await quick.ask(ASK, 9)
            # One answer is under way; the next is not even made before that has left.
            assert node.servers[0].sent_bytes - answered_bytes < 100_000
            assert answered_bytes < 30_000_000
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            for number in range(10):
                found, answer = await slow.answer(*FETCH)
                assert found == number
                assert len(answer.responses[0].partitions[0].records) > 9_000_000


async def test_a_reader_that_does_not_read_is_not_blamed_for_requests_that_wait() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        fed = FedTransport(node)
        fed.connection.pause_writing()
        fed.feed(frame(ASK, 9) + frame(ASK, 9)[:-1])
        pass_seconds(clock, 300)
        assert not fed.is_gone
        assert not fed.sent
        fed.connection.resume_writing()
        await turns()
        fed.feed(frame(ASK, 9)[-1:])
        assert len(fed.answers(METADATA, METADATA)) == 2
        fed.close()


async def test_who_comes_most_slowly_is_closed_also_where_it_asks_for_more_itself() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        server = node.servers[0]
        server.limits.held_bytes_max = 4_000_000
        slow, fast = FedTransport(node), FedTransport(node)
        data = frame(produce("t", batch(bytes(1_500_000))), 9)
        slow.feed((90_000_000).to_bytes(4, "big") + bytes(10_000))
        pass_seconds(clock, 8)
        fast.feed(data[:-1])
        while not slow.is_gone and server.held_bytes <= 4_000_000:
            slow.feed(bytes(50_000))
        assert slow.is_gone
        assert not fast.is_gone
        for fed in (slow, fast):
            fed.close()


async def test_who_holds_a_trifle_is_not_closed_however_slowly_it_comes() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        server = node.servers[0]
        trifle, slow, fast = (FedTransport(node) for _ in range(3))
        for fed, size_bytes in ((trifle, 10_000), (slow, 100_000)):
            fed.feed((90_000_000).to_bytes(4, "big") + bytes(size_bytes))
        pass_seconds(clock, 8)
        fast.feed((90_000_000).to_bytes(4, "big") + bytes(500_000))
        assert trifle.connection.partial.held_bytes
        server.limits.held_bytes_max = server.held_bytes
        fast.feed(bytes(100_000))
        assert slow.is_gone
        assert not trifle.is_gone
        assert not fast.is_gone
        for fed in (trifle, fast):
            fed.close()


async def test_who_asks_for_more_costs_nobody_that_comes_faster() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        server = node.servers[0]
        idle, asking, fast = (FedTransport(node) for _ in range(3))
        for fed in (idle, asking):
            fed.feed((90_000_000).to_bytes(4, "big") + bytes(100_000))
        pass_seconds(clock, 8)
        asking.feed(bytes(100_000))
        fast.feed((90_000_000).to_bytes(4, "big") + bytes(500_000))
        held_bytes = idle.connection.partial.held_bytes
        server.limits.held_bytes_max = server.held_bytes
        # More than the slowest leaves: who asks is the next to go, and goes when it asks again.
        server.hold(held_bytes + 1, asking.connection)
        assert idle.is_gone
        assert not asking.is_gone
        assert not fast.is_gone
        server.hold(1, asking.connection)
        assert asking.is_gone
        assert not fast.is_gone
        server.held_bytes -= held_bytes + 2
        fast.close()


async def test_a_reader_that_never_reads_is_given_up() -> None:
    clock = TestClock()
    settings = {"connections.max.idle.ms": "60000", "message.max.bytes": "30000000"}
    async with running(settings, clock=clock) as node:
        node.create_topic("t")
        append(node, "t", bytes(20_000_000))
        async with connected(node, buffer_bytes=4096) as slow:
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(frame(fetch("t"), 12))
            while not (found := list(node.servers[0].connections)) or not found[0].is_full:  # type: ignore[union-attr]
                await asyncio.sleep(0)
            pass_seconds(clock, 61)
            assert found[0].is_closing
            pass_seconds(clock, 12)
            await settle(node)


async def test_unfinished_frames_together_hold_no_more_than_allowed() -> None:
    async with running() as node:
        server = node.servers[0]
        server.limits.held_bytes_max = 3_000_000
        good = FedTransport(node)
        good.feed(frame(ASK, 9)[:-1])
        greedy = [FedTransport(node) for _ in range(20)]
        for fed in greedy:
            fed.feed((90_000_000).to_bytes(4, "big") + bytes(250_000))
        await turns()
        assert server.held_bytes <= 3_000_000
        assert 0 < sum(fed.is_gone for fed in greedy) < len(greedy)
        good.feed(frame(ASK, 9)[-1:])
        assert good.answers(METADATA)
        for fed in (good, *greedy):
            fed.close()


async def test_unfinished_frames_that_come_in_one_turn_of_the_loop_hold_no_more_than_allowed() -> None:
    async with running() as node, AsyncExitStack() as stack:
        server = node.servers[0]
        server.limits.held_bytes_max, frame_bytes = 7_000_000, 2_000_000
        greedy = [await stack.enter_async_context(connected(node)) for _ in range(40)]
        await settle(node, len(greedy))
        most_bytes, hold = 0, server.hold

        def held(more_bytes: int, connection: Any) -> None:
            nonlocal most_bytes
            hold(more_bytes, connection)
            most_bytes = max(most_bytes, server.held_bytes)

        server.hold = held  # type: ignore[method-assign]
        for client in greedy:
            client.send(frame_bytes.to_bytes(4, "big") + bytes(FIRST_BYTES))
        while most_bytes < 3 * frame_bytes or len(server.connections) > 3:
            await asyncio.sleep(0)
        assert most_bytes <= 7_000_000
        assert len(server.connections) == 3


async def test_only_produce_may_send_frames_of_many_megabytes() -> None:
    names = [MetadataRequest.MetadataRequestTopic(name="n" * 240) for _ in range(40_000)]
    async with running() as node, connected(node) as client:
        node.create_topic("orders")
        await client.ask(produce("orders", batch(bytes(1_000_000))), 9)
        client.send(frame(MetadataRequest(topics=names), 9))
        assert await client.is_closed()
        assert "too many for api 3" in said(node)[-1]
