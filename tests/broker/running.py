"""A broker in the test's own loop, on memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.memory_storage import MemoryStorage

if TYPE_CHECKING:
    from minibroker.log.storage import Storage


@asynccontextmanager
async def running_node(
    storage: Storage | None = None, *, as_version: str | None = None, **settings: object
) -> AsyncIterator[Node]:
    """Start a broker on a free port, stop it in the end. Settings are Kafka's, with underscores for dots."""
    clock = LoopClock()
    node = Node(
        BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}),
        storage or MemoryStorage(clock.now_ms),
        clock=clock,
        chance=Random(1),
        as_version=as_version,
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()
