"""However a client goes, and whatever it sent, nothing of it stays: no task, no connection, nobody who waits."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from random import Random

import pytest

from minibroker.protocol.messages.metadata import MetadataRequest
from tests.client.scripted import TestClock
from tests.server.running import (
    append,
    batch,
    connected,
    connections_alive,
    fetch,
    frame,
    produce,
    running,
    said,
    settle,
    turns,
)

ASK = MetadataRequest(topics=[])
METADATA = (3, 9)


@pytest.mark.parametrize("seed", range(4))
async def test_garbage_closes_and_leaves_nothing(seed: int) -> None:
    chance = Random(seed)
    async with running() as node:
        for _ in range(50):
            async with connected(node) as client:
                length = chance.choice((0, 1, 7, 8, 50, 1000))
                client.send(length.to_bytes(4, "big") + chance.randbytes(length))
                client.send(chance.randbytes(chance.randrange(300)))
                client.writer.write_eof()
                await client.reader.read()
        await settle(node)


async def test_a_client_that_goes_in_the_middle_of_a_frame_leaves_nothing() -> None:
    data = frame(produce("t", batch(bytes(3000))), 9)
    async with running() as node:
        node.create_topic("t")
        for position in range(0, len(data), 41):
            for reset in (False, True):
                async with connected(node) as client:
                    client.send(data[:position])
                    if reset:
                        client.reset()
        await settle(node)
        assert node.servers[0].held_bytes == 0
        assert node.replicas["t", 0].log.log_end_offset == 0


async def test_a_client_that_goes_while_its_fetch_waits_leaves_nobody_waiting() -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        node.create_topic("t")
        for reset in (False, True):
            async with connected(node) as client:
                client.send(frame(fetch("t", wait_ms=(1 << 31) - 1), 12))
                while not node.replicas["t", 0].waiters:
                    await asyncio.sleep(0)
                if reset:
                    client.reset()
            await settle(node)
            await turns(3)
            assert not node.replicas["t", 0].waiters


@pytest.mark.parametrize("reset", [False, True])
async def test_a_client_that_goes_with_requests_behind_a_fetch_that_waits_is_noticed(reset: bool) -> None:
    clock = TestClock()
    async with running(clock=clock) as node:
        node.create_topic("t")
        async with connected(node) as client:
            client.send(frame(fetch("t", wait_ms=(1 << 31) - 1), 12) + frame(ASK, 9))
            while not node.replicas["t", 0].waiters or not node.servers[0].held_bytes:
                await asyncio.sleep(0)
            if reset:
                client.reset()
        clock.pass_time(1000)
        await settle(node)
        await turns(3)
        assert not node.replicas["t", 0].waiters


async def test_a_client_that_resets_in_the_middle_of_an_answer_leaves_nothing() -> None:
    async with running({"message.max.bytes": "30000000"}) as node:
        node.create_topic("t")
        append(node, "t", bytes(20_000_000))
        for _ in range(5):
            async with connected(node) as client:
                client.send(frame(fetch("t"), 12) * 3)
                await client.reader.readexactly(100_000)
                client.reset()
        await settle(node)


async def test_no_connection_object_outlives_its_client() -> None:
    before = connections_alive()
    async with running() as node:
        for _ in range(20):
            async with connected(node) as client:
                await client.ask(ASK, 9)
                client.send(b"\0\0\1\0half of it")
        await settle(node)
        assert connections_alive() <= before


async def test_a_tls_hello_is_recognised() -> None:
    async with running() as node, connected(node) as client:
        client.send(bytes.fromhex("1603010200010001fc0303") + bytes(500))
        assert await client.is_closed()
        assert any("TLS" in line for line in said(node))


async def test_http_is_answered_on_the_same_port() -> None:
    async with running() as node:
        for path, status, text in [
            ("/health", "200", "ok"),
            ("/ready", "200", "ready"),
            ("/metrics?x=1", "200", "kafka_brokers 1"),
            ("/nothing", "404", "/metrics"),
        ]:
            for pieces in (1, 1000):
                async with connected(node) as client:
                    data = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
                    size = max(len(data) // pieces, 1)
                    for position in range(0, len(data), size):
                        client.send(data[position : position + size])
                        await asyncio.sleep(0)
                    answer = (await client.reader.read()).decode()
                    head, _, body = answer.partition("\r\n\r\n")
                    assert head.startswith(f"HTTP/1.1 {status} ")
                    assert text in body
                    assert f"Content-Length: {len(body)}" in head
        await settle(node)


async def test_http_that_never_ends_is_given_up() -> None:
    clock = TestClock()
    async with running(clock=clock) as node, connected(node) as endless, connected(node) as silent:
        endless.send(b"GET /" + b"x" * 20_000)
        assert b"431" in await endless.reader.read()
        silent.send(b"GET /metr")
        await settle(node, 1)
        while not all(connection.partial.size_bytes for connection in node.servers[0].connections):
            await asyncio.sleep(0)
        for _ in range(12):
            clock.pass_time(1000)
        assert await silent.is_closed()
        await settle(node)


async def test_stop_closes_connections_that_are_busy_and_fetches_that_wait() -> None:
    async with running({"message.max.bytes": "30000000"}) as node:
        node.create_topic("t")
        node.create_topic("big")
        append(node, "big", bytes(20_000_000))
        waiters = node.replicas["t", 0].waiters
        async with connected(node) as waiting, connected(node) as half, connected(node, buffer_bytes=4096) as slow:
            waiting.send(frame(fetch("t", wait_ms=60_000), 12) + frame(ASK, 9))
            half.send(frame(ASK, 9)[:-1])
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(frame(fetch("big"), 12))
            while not waiters or node.servers[0].sent_bytes < 1_000_000:
                await asyncio.sleep(0)
            port = node.servers[0].port
            await node.stop()
            assert not waiters
            assert not node.servers[0].connections
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            for client in (waiting, half):
                assert await client.is_closed()


async def test_stop_closes_connections_that_were_just_made() -> None:
    async with running() as node:
        port = node.servers[0].port
        made = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        await node.stop()
        for each in made:
            each.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
            each.close()


async def test_a_restart_keeps_its_port() -> None:
    async with running() as node, connected(node) as client:
        await client.ask(ASK, 9)
        port = node.servers[0].port
        storage = node.storage
        await node.stop()
        async with running({"listeners": f"PLAINTEXT://127.0.0.1:{port}"}, storage=storage) as again:
            assert again.servers[0].port == port
            async with connected(again) as other:
                await other.ask(ASK, 9)
