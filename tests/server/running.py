"""A broker in the test's own loop, clients that speak bytes, and connections that are fed segment by segment."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from minibroker.broker.broker import Node
from minibroker.broker.handlers.fetch_sessions import CachedPartition
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.reporter import Reporter
from minibroker.server.connection import Connection

Chunk = bytes | bytearray | memoryview
RESET = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST


class Said(Reporter):
    """What the broker told people."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@asynccontextmanager
async def running(
    settings: Mapping[str, object] | None = None,
    *,
    clock: Any = None,
    storage: Any = None,
    as_version: str | None = None,
    repairs: bool = False,
) -> AsyncIterator[Node]:
    """Run a broker on memory; when it has stopped, nothing of it may be left."""
    tasks_before = asyncio.all_tasks()
    clock = clock or LoopClock()
    arguments = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
    said = Said()
    node = Node(
        BrokerConfig.from_sources(arguments, {}, None),
        storage or MemoryStorage(clock.now_ms),
        clock=clock,
        chance=Random(5),
        as_version=as_version,
        reporter=said,
        repairs=repairs,
    )
    await node.start()
    replicas = node.replicas
    try:
        yield node
        await turns(3)
        # Whose coordinator waits for ever.
        made = (node.groups.made, node.transactions.made)
        led = {led.replica for coordinator in made if coordinator for led in coordinator.led.values()}
        waiting = [
            (key, len(left))
            for key, replica in replicas.items()
            if len(left := [each for each in replica.waiters if not belongs_to_session(node, each)]) > (replica in led)
        ]
        if not any(server.connections for server in node.servers):
            assert not waiting, f"somebody waits whose connection has gone: {waiting}"
    finally:
        if node.is_ready:
            await node.stop()
    for server in node.servers:
        assert not server.connections
        assert not server.quotas.count
        assert server.held_bytes == 0
    # A client that the test has closed may take its turn of the loop to go.
    left = [task for task in asyncio.all_tasks() - tasks_before if "Connection" in repr(task)]
    assert not left, left
    assert not [line for line in said.lines if "unexpected" in line], said.lines


def belongs_to_session(node: Node, waiter: object) -> bool:
    """Whether it is a fetch session that hears of a partition: those outlive their connection."""
    return isinstance(waiter, CachedPartition) and (
        node.fetch_sessions.find(waiter.session.session_id) is waiter.session
    )


def said(node: Node) -> list[str]:
    assert isinstance(node.reporter, Said)
    return node.reporter.lines


def frame(request: Request, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, "test"))


def batch(*values: bytes, key: bytes | None = None) -> bytes:
    return build_batch(2, [Record(key, value, (), 1_700_000_000_000, index) for index, value in enumerate(values)])


def produce(topic: str, data: bytes, *, partition: int = 0, acks: int = 1) -> ProduceRequest:
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=partition, records=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[Topic(name=topic, partition_data=rows)])


def fetch(
    topic: str, offset: int = 0, *, wait_ms: int = 0, bytes_min: int = 1, bytes_max: int = 1 << 30
) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        session_epoch=-1,
        topics=[Topic(topic=topic, partitions=rows)],
    )


def append(node: Node, topic: str, *values: bytes, partition: int = 0) -> None:
    """Put records into a log without asking the server."""
    node.replicas[topic, partition].append(bytearray(batch(*values)), now_ms=1_700_000_000_000, steady_ms=0)


def records_of(node: Node, topic: str, partition: int = 0) -> list[Any]:
    """Return the records that lie in a log, all of them."""
    log = node.replicas[topic, partition].log
    return [record for segment in log.segments for each in segment.batches() for record in each.records(check_crc=True)]


def values_of(node: Node, topic: str, partition: int = 0) -> list[bytes]:
    return [bytes(record.value) for record in records_of(node, topic, partition)]


class Client:
    """A connection of which every byte is the test's word."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, api: int, version: int) -> tuple[int, Any]:
        """Return correlation id and message of the next answer."""
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        header, message = decode_response(await self.reader.readexactly(length), api, version)
        return header.correlation_id, message

    async def ask(self, request: Request, version: int, correlation_id: int = 1) -> Any:
        self.send(frame(request, version, correlation_id))
        found, message = await self.answer(request.api, version)
        assert found == correlation_id
        return message

    async def is_closed(self) -> bool:
        """Wait for the end; return whether nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """End it as a process that is killed with unread data does."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()


@asynccontextmanager
async def connected(node: Node, *, buffer_bytes: int = 0, listener: int = 0) -> AsyncIterator[Client]:
    sock = socket.socket()
    sock.setblocking(False)
    if buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", node.servers[listener].port))
    client = Client(*await asyncio.open_connection(sock=sock))
    try:
        yield client
    finally:
        await client.close()


async def alter_broker(client: Client, broker: str, configs: Mapping[str, str | None]) -> None:
    """Set settings of a broker, or of all ("") while it runs; None takes one back."""
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    rows = [
        Resource.AlterableConfig(name=name, config_operation=int(value is None), value=value)
        for name, value in configs.items()
    ]
    resource = Resource(resource_type=4, resource_name=broker, configs=rows)
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert [(each.error_code, each.error_message) for each in answer.responses] == [(0, None)]


async def settle(node: Node, count: int = 0) -> None:
    """Let the loop run until only so many connections are there."""
    for _ in range(10_000):
        if sum(len(server.connections) for server in node.servers) == count:
            return
        await asyncio.sleep(0)
    raise AssertionError([repr(each) for server in node.servers for each in server.connections])


class FedTransport:
    """A transport whose segments are cut by the test; what the server reads, and when, is the same every time."""

    def __init__(self, node: Node, host: str = "127.0.0.1", listener: int = 0):
        self._host = host  # where the client seems to be
        self.sent = bytearray()
        self.is_paused = self.is_gone = False
        self._backlog = bytearray()
        self.connection = Connection(node.servers[listener])
        self.connection.connection_made(self)  # type: ignore[arg-type]

    def feed(self, segment: Chunk) -> None:
        """Let a segment arrive."""
        self._backlog += segment
        while self._backlog and not self.is_paused and not self.is_gone:
            buffer = self.connection.get_buffer(-1)
            size_bytes = min(len(buffer), len(self._backlog))
            assert size_bytes, "no room to receive into"
            buffer[:size_bytes] = self._backlog[:size_bytes]
            del self._backlog[:size_bytes]
            self.connection.buffer_updated(size_bytes)

    async def idle(self) -> None:
        """Return when all that has come is answered: what comes together is answered in shares."""
        while (self.connection.is_answering or self._backlog) and not self.is_gone:
            await asyncio.sleep(0)

    def answers(self, *kinds: tuple[int, int]) -> list[tuple[int, Any]]:
        """Return correlation id and message of each answer so far; kinds are API and version of each."""
        found, position = [], 0
        for api, version in kinds:
            length = int.from_bytes(self.sent[position : position + 4], "big")
            header, message = decode_response(bytes(self.sent[position + 4 : position + 4 + length]), api, version)
            found.append((header.correlation_id, message))
            position += 4 + length
        assert position == len(self.sent), "bytes behind the last answer"
        return found

    # What the server calls

    def write(self, data: Chunk) -> None:
        self.sent += data

    def writelines(self, chunks: Sequence[Chunk]) -> None:
        self.sent += b"".join(chunks)

    def is_closing(self) -> bool:
        return self.is_gone

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        asyncio.get_running_loop().call_soon(self.feed, b"")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self._host, 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def close(self) -> None:
        if not self.is_gone:
            self.is_gone = True
            self.connection.connection_lost(None)

    abort = close


async def turns(count: int = 50) -> None:
    """Let whoever can go on do so."""
    for _ in range(count):
        await asyncio.sleep(0)


def connections_alive() -> int:
    """Count connection objects that nobody has let go of."""
    gc.collect()
    return sum(type(each) is Connection for each in gc.get_objects())
