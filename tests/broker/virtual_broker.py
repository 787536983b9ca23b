"""A broker in virtual time and memory, asked without a socket: a frame goes in, and what was answered comes out.

    with virtual_broker() as broker:
        broker.node.create_topic("orders", 2)
        answer = broker.ask(MetadataRequest(topics=None), 12)

What crosses is what a client sees: the request is encoded and decoded in its version, and so is the answer. An answer
that waits is waited for, in no time; `begin` gives what will have it, for others to be asked meanwhile.
Once left, nothing of the broker may be waiting, and nothing may have failed unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from minibroker.broker.broker import Node
from minibroker.config import BrokerConfig
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.server.connection import Connection
from minibroker.simulation.loop import START_MS, SimulatedLoop
from minibroker.simulation.run import SimulatedClock
from tests.server.running import FedTransport, Said

if TYPE_CHECKING:
    from minibroker.log.storage import Storage

CORRELATION_ID = 17
Made = TypeVar("Made")


class ShiftedClock(SimulatedClock):
    """Virtual time that begins when the test wants."""

    def __init__(self, loop: SimulatedLoop, start_ms: int):
        super().__init__(loop)
        self._shift_ms = start_ms - START_MS

    def now_ms(self) -> int:
        return super().now_ms() + self._shift_ms


class VirtualBroker:
    """A node that runs, its loop, and one connection to it."""

    def __init__(self, node: Node, loop: SimulatedLoop):
        self.node = node
        self.loop = loop
        self.said: list[str] = node.reporter.lines  # type: ignore[attr-defined]  # to people
        self.connection = self.connect().connection

    def run(self, function: Callable[..., Made], *arguments: Any) -> Made:
        """Call a function while the loop runs."""

        async def call() -> Made:
            return function(*arguments)

        return self.loop.run_until_complete(call())

    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    def connect(self, listener: int = 0) -> FedTransport:
        return self.run(FedTransport, self.node, "127.0.0.1", listener)

    def feed(self, transport: FedTransport, data: bytes) -> None:
        """Let bytes arrive on a connection."""
        self.run(transport.feed, data)

    def hang_up(self, transport: FedTransport) -> None:
        self.run(transport.close)

    def ask(
        self, request: Request, version: int, *, client_id: str | None = "test", by: Connection | None = None
    ) -> Any:
        """Return what is answered, None if that is nothing."""
        return self.wait(self.begin(request, version, client_id=client_id, by=by))

    def begin(
        self, request: Request, version: int, *, client_id: str | None = "test", by: Connection | None = None
    ) -> asyncio.Task[Any]:
        """Ask, and return what will have the answer."""
        frame = b"".join(encode_request(request, version, CORRELATION_ID, client_id))[4:]

        async def answer() -> Any:
            found: Any = self.node.dispatcher.answer(memoryview(frame), by or self.connection)
            chunks = await found if hasattr(found, "__await__") else found
            if chunks is None:
                return None
            header, message = decode_response(b"".join(chunks)[4:], request.api, version)
            assert header.correlation_id == CORRELATION_ID
            return message

        task = self.loop.create_task(answer())
        self.pass_ms(0)
        return task

    def wait(self, task: asyncio.Task[Any]) -> Any:
        return self.loop.run_until_complete(task)

    def pass_ms(self, wait_ms: int) -> None:
        """Let time pass, and whoever can go on do so."""
        self.loop.run_until_complete(asyncio.sleep(wait_ms / 1000))


@contextmanager
def virtual_broker(
    settings: dict[str, object] | None = None,
    *,
    as_version: str | None = None,
    storage: Storage | None = None,
    start_ms: int = START_MS,
) -> Iterator[VirtualBroker]:
    loop = SimulatedLoop(Random(1))
    clock = ShiftedClock(loop, start_ms)
    node = Node(
        BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}, {}, None),
        storage or MemoryStorage(clock.now_ms),
        clock=clock,
        chance=Random(5),
        as_version=as_version,
        reporter=Said(),
    )
    try:
        loop.run_until_complete(node.start())
        broker = VirtualBroker(node, loop)
        yield broker
        loop.run_until_complete(node.stop())
        assert not loop.failures, loop.failures
        assert not [line for line in broker.said if "unexpected" in line], broker.said
    finally:
        loop.cancel_all()
        loop.close()
