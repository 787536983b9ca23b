"""Toxics over real sockets: when what arrives, by a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.faults import FaultError
from minibroker.faults.toxics import TYPES
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.server.connection import Connection
from tests.server.running import (
    Client,
    append,
    batch,
    connected,
    fetch,
    frame,
    produce,
    running,
    settle,
    turns,
    values_of,
)

pytestmark = pytest.mark.outside

METADATA, PRODUCE, FETCH = 3, 0, 1
NO_TOPICS = MetadataRequest(topics=[])


@asynccontextmanager
async def frozen() -> AsyncIterator[tuple[Node, SteeredClock, Client]]:
    """Run a broker whose time stands still, with a client that has been there before."""
    clock = SteeredClock()
    clock.freeze()
    async with running(clock=clock) as node, connected(node) as client:
        # Or the kernel keeps a second request back until the first is acknowledged, in its own time.
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await client.ask(NO_TOPICS, 9)
        yield node, clock, client


async def come(client: Client) -> bytes:
    """Return what has arrived when everybody had his turn."""
    await turns()
    reader: Any = client.reader
    data = bytes(reader._buffer)
    reader._buffer.clear()
    return data


def connection_of(node: Node) -> Connection:
    (connection,) = node.servers[0].connections
    assert isinstance(connection, Connection)
    return connection


@pytest.mark.parametrize("stream", ["downstream", "upstream"])
async def test_latency_delays_a_connection_that_is_there_and_new_ones(stream: str) -> None:
    async with frozen() as (node, clock, client):
        node.faults.add_toxic(type="latency", stream=stream, attributes={"latency": 200})
        async with connected(node) as later:
            for each in (client, later):
                each.send(frame(NO_TOPICS, 9))
            await turns()
            await clock.advance(199)
            assert (await come(client), await come(later)) == (b"", b"")
            await clock.advance(1)
            for each in (client, later):
                await each.answer(METADATA, 9)


async def test_jitter_keeps_the_order() -> None:
    async with frozen() as (node, clock, client):
        node.faults.add_toxic(type="latency", stream="upstream", attributes={"latency": 100, "jitter": 100})
        for number in range(20):
            client.send(frame(NO_TOPICS, 9, number))
            await turns()
            await clock.advance(5)
        await clock.advance(200)
        assert [(await client.answer(METADATA, 9))[0] for _ in range(20)] == list(range(20))


async def test_connections_without_toxics_have_nothing_in_between() -> None:
    async with frozen() as (node, _, client):
        transport = connection_of(node).transport
        node.faults.add_toxic(type="latency", attributes={"latency": 10})
        assert connection_of(node).transport is not transport
        node.faults.clear_toxics()
        assert connection_of(node).transport is transport
        assert transport.get_protocol() is connection_of(node)
        node.faults.add_toxic(type="latency", toxicity=0, attributes={"latency": 10})
        assert connection_of(node).transport is transport
        await client.ask(NO_TOPICS, 9)


async def test_taking_a_toxic_away_lets_go_what_it_holds() -> None:
    async with frozen() as (node, _, client):
        node.faults.add_toxic(type="latency", stream="upstream", attributes={"latency": 60_000})
        client.send(frame(NO_TOPICS, 9, 1))
        await turns()
        client.send(frame(NO_TOPICS, 9, 2))
        await turns()
        assert await come(client) == b""
        node.faults.clear_toxics()
        assert [(await client.answer(METADATA, 9))[0] for _ in range(2)] == [1, 2]


async def test_bandwidth_lets_so_many_kilobytes_through_in_a_second() -> None:
    async with frozen() as (node, clock, client):
        node.create_topic("orders")
        append(node, "orders", bytes(100_000))
        node.faults.add_toxic(type="bandwidth", attributes={"rate": 10})
        client.send(frame(fetch("orders"), 11))
        await turns()
        sizes = []
        for _ in range(5):
            await clock.advance(1000)
            sizes.append(len(await come(client)))
        assert sizes[1:] == [10_000] * 4
        node.faults.clear_toxics()


async def test_a_slicer_cuts_what_comes_into_pieces() -> None:
    async with frozen() as (node, clock, client):
        node.create_topic("orders")
        attributes = {"average_size": 10, "size_variation": 3, "delay": 1000}
        node.faults.add_toxic(type="slicer", stream="upstream", attributes=attributes)
        client.send(frame(produce("orders", batch(b"a" * 1000)), 9))
        await turns()
        connection = connection_of(node)
        came, steps = 0, 0
        while not values_of(node, "orders"):
            assert connection.partial.size_bytes - came <= 13
            came = connection.partial.size_bytes
            await clock.advance(1)
            steps += 1
        assert 70 < steps < 150
        await client.answer(PRODUCE, 9)


async def test_timeout_swallows_everything_and_closes() -> None:
    async with frozen() as (node, clock, client):
        node.faults.add_toxic(type="timeout", attributes={"timeout": 3000})
        client.send(frame(NO_TOPICS, 9))
        await turns()
        await clock.advance(2999)
        assert await come(client) == b""
        await clock.advance(1)
        assert await client.is_closed()


async def test_timeout_0_hangs_until_it_is_taken_away() -> None:
    async with frozen() as (node, clock, client):
        node.create_topic("orders")
        node.faults.add_toxic(type="timeout", stream="upstream")
        client.send(frame(produce("orders", batch(b"a")), 9))
        await turns()
        await clock.advance("1h")
        assert (await come(client), values_of(node, "orders")) == (b"", [])
        node.faults.clear_toxics()
        assert await client.is_closed()  # bytes are lost, so it cannot go on


async def test_reset_peer_is_a_reset() -> None:
    async with frozen() as (node, clock, client):
        node.faults.add_toxic(type="reset_peer", attributes={"timeout": 100})
        client.send(frame(NO_TOPICS, 9))
        await turns()
        await clock.advance(99)
        assert await come(client) == b""
        await clock.advance(1)
        with pytest.raises(ConnectionResetError):
            await client.reader.read()


async def test_limit_data_ends_after_so_many_bytes() -> None:
    async with frozen() as (node, _, client):
        node.faults.add_toxic(type="limit_data", attributes={"bytes": 10})
        client.send(frame(NO_TOPICS, 9))
        assert len(await client.reader.read()) == 10


async def test_slow_close_delays_the_end() -> None:
    async with frozen() as (node, clock, client):
        node.faults.add_toxic(type="slow_close", attributes={"delay": 500})
        node.faults.add(api="Metadata", close="before")
        client.send(frame(NO_TOPICS, 9))
        await turns()
        await clock.advance(499)
        await turns()
        assert not client.reader.at_eof()
        await clock.advance(1)
        assert await client.is_closed()


async def test_toxics_add_up_in_both_directions() -> None:
    async with frozen() as (node, clock, client):
        for stream in ("upstream", "downstream"):
            node.faults.add_toxic(type="latency", stream=stream, attributes={"latency": 100})
        client.send(frame(NO_TOPICS, 9))
        await turns()
        await clock.advance(199)
        assert await come(client) == b""
        await clock.advance(1)
        await client.answer(METADATA, 9)


async def test_http_feels_no_toxic() -> None:
    async with frozen() as (node, _, _):
        for kind in TYPES:
            node.faults.add_toxic(type=kind, attributes={"average_size": 1} if kind == "slicer" else None)
        async with connected(node) as browser:
            browser.send(b"DEL")
            await turns()
            browser.send(b"ETE /toxics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in await browser.reader.read()
        assert not node.faults.toxics


async def test_a_client_that_has_gone_leaves_nothing() -> None:
    async with frozen() as (node, clock, client):
        node.create_topic("orders")
        node.faults.add_toxic(type="latency", stream="upstream", attributes={"latency": 50})
        node.faults.add_toxic(type="bandwidth", attributes={"rate": 1})
        client.send(frame(produce("orders", batch(b"last words"), acks=0), 9))
        await client.close()
        await turns()
        await clock.advance(50)
        await settle(node)
        assert values_of(node, "orders") == [b"last words"]  # it came before the end, and so it does here


async def test_a_client_that_does_not_read_is_no_burden() -> None:
    """Latency is no buffer without end: who does not get his answers rid takes no more requests."""
    async with frozen() as (node, _, client):
        node.create_topic("orders")
        append(node, "orders", bytes(500_000))
        node.faults.add_toxic(type="latency", attributes={"latency": 60_000})
        for number in range(10):
            client.send(frame(fetch("orders"), 11, number))
        await turns()
        connection = connection_of(node)
        assert connection.is_unread
        asked = node.request_counts[FETCH, 11]
        assert asked < 5
        node.faults.clear_toxics()
        assert [(await client.answer(FETCH, 11))[0] for _ in range(10)] == list(range(10))


async def test_toxicity_is_the_share_of_connections() -> None:
    async with running() as node:
        node.faults.add_toxic(type="latency", toxicity=0.5)
        clients = []
        for _ in range(40):
            client = connected(node)
            clients.append(client)
            await (await client.__aenter__()).ask(NO_TOPICS, 9)
        connections = [each for each in node.servers[0].connections if isinstance(each, Connection)]
        struck = sum("Link" in type(each.transport).__name__ for each in connections)
        assert 10 < struck < 30
        await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "there is no toxic ''"),
    ({"type": "smell"}, "latency, bandwidth"),
    ({"type": "latency", "stream": "sideways"}, "upstream"),
    ({"type": "latency", "toxicity": 2}, "no probability"),
    ({"type": "latency", "attributes": {"rate": 1}}, "it has latency, jitter"),
    ({"type": "latency", "attributes": {"latency": "1"}}, "no whole number"),
    ({"type": "latency", "attributes": [1]}, "JSON object"),
    ({"type": "latency", "colour": 1}, "a toxic has name"),
    ({"type": "latency", "name": "a/b"}, "no name"),
    ({"type": "slicer"}, "average_size"),
    ({"type": "slicer", "attributes": {"average_size": 5, "size_variation": 5}}, "smaller"),
]


@pytest.mark.parametrize(("wanted", "reason"), REFUSED, ids=[str(wanted) for wanted, _ in REFUSED])
async def test_what_makes_no_sense_is_refused_with_a_reason(wanted: dict[str, Any], reason: str) -> None:
    async with running() as node:
        with pytest.raises(FaultError, match=reason):
            node.faults.add_toxic(**wanted)
        assert not node.faults.toxics


async def test_a_name_is_given_once() -> None:
    async with running() as node:
        assert node.faults.add_toxic(type="latency").name == "latency_downstream"
        with pytest.raises(FaultError, match="already"):
            node.faults.add_toxic(type="latency")
        assert node.faults.add_toxic(type="latency", name="second").name == "second"
