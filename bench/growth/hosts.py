"""Brokers for the rows: one alone or a cluster, in virtual time and without sockets, asked frame by frame."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from minibroker.broker.broker import Node
from minibroker.cluster.cluster import Cluster
from minibroker.config import BrokerConfig
from minibroker.events import EventStream
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.storage import OsStorage
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.server.connection import Connection
from minibroker.simulation.loop import SimulatedLoop
from minibroker.simulation.run import SimulatedClock

CORRELATION_ID = 17
START_MS = 1_700_000_000_000
LISTENERS = "PLAINTEXT://127.0.0.1:0"


def batch() -> bytearray:
    return bytearray(build_batch(2, [Record(b"key", b"v" * 100, (), START_MS)]))


def new_disk(root: str) -> OsStorage:
    """Return a disk whose syncs are waited for: a thread knows nothing of virtual time."""
    storage = OsStorage(root)
    storage.is_slow = False
    return storage


class NoSocket:
    """A transport that sends nowhere."""

    def __init__(self, node: Node):
        self.sent_bytes = 0
        self._is_open = True
        self.connection = Connection(node.servers[0])
        self.connection.connection_made(self)  # type: ignore[arg-type]

    def feed(self, data: bytes) -> None:
        """Let bytes arrive."""
        buffer = self.connection.get_buffer(-1)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def write(self, data: Any) -> None:
        self.sent_bytes += len(data)

    def writelines(self, chunks: Any) -> None:
        self.sent_bytes += sum(map(len, chunks))

    def is_closing(self) -> bool:
        return not self._is_open

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.connection.connection_lost(None)

    abort = close


class Client:
    """Who asks one broker."""

    def __init__(self, node: Node):
        self.node = node
        self.connection = NoSocket(node).connection

    async def ask(self, request: Request, version: int) -> Any:
        """Return the answer."""
        return self.read(request, version, await self.send(self.frame(request, version)))

    def frame(self, request: Request, version: int) -> memoryview:
        return memoryview(b"".join(encode_request(request, version, CORRELATION_ID, "bench"))[4:])

    async def send(self, frame: memoryview) -> Any:
        """Return the bytes of the answer."""
        chunks: Any = self.node.dispatcher.answer(frame, self.connection)
        if hasattr(chunks, "__await__"):
            chunks = await chunks
        await asyncio.sleep(0)  # each question has a turn of its own
        return chunks

    def read(self, request: Request, version: int, chunks: Any) -> Any:
        return decode_response(b"".join(chunks)[4:], request.api, version)[1]

    def begin(self, request: Request, version: int) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.ask(request, version))


def run(main: Callable[[SimulatedLoop], Coroutine[Any, Any, Any]]) -> Any:
    """Run a program in virtual time."""
    loop = SimulatedLoop(Random(1))
    try:
        result = loop.run_until_complete(main(loop))
        assert not loop.failures, loop.failures
        return result
    finally:
        loop.cancel_all()
        loop.close()


def new_node(loop: SimulatedLoop, storage: Any = None, settings: Mapping[str, object] = {}) -> Node:
    clock = SimulatedClock(loop)
    config = BrokerConfig.from_sources({"listeners": LISTENERS, **settings}, {}, None)
    return Node(config, storage or MemoryStorage(clock.now_ms), clock=clock, chance=Random(5))


def in_broker(main: Callable[[Node], Coroutine[Any, Any, None]], settings: Mapping[str, object] = {}) -> None:
    """Run a program with a broker in memory."""

    async def inner(loop: SimulatedLoop) -> None:
        node = new_node(loop, settings=settings)
        await node.start()
        await main(node)
        await node.stop()

    run(inner)


def in_cluster(
    main: Callable[[Cluster], Coroutine[Any, Any, None]],
    brokers: int = 3,
    settings: Mapping[str, str] = {},
    *,
    on_disk: bool = False,
) -> None:
    """Run a program with a cluster, whose disks are memory."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as root:

        async def inner(loop: SimulatedLoop) -> None:
            clock = SimulatedClock(loop)
            cluster = Cluster(
                settings,
                (lambda name: new_disk(f"{root}/{name}")) if on_disk else (lambda name: MemoryStorage(clock.now_ms)),
                brokers=brokers,
                clock=clock,
                chance=Random(5),
                events=EventStream(clock.now_ms),
            )
            await cluster.start_all()
            await main(cluster)
            await cluster.kill_all()

        run(inner)


async def settled(cluster: Cluster) -> None:
    """Return when all brokers have done what the metadata say."""
    end = cluster.controller.image.offset
    for node in list(cluster.nodes.values()):
        if node.is_ready:
            await node.metadata.reached(end)  # type: ignore[union-attr]
            await node.partitions.settled()
