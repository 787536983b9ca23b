"""A cluster on real sockets, for tests that come by its ports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from minibroker.clock import LoopClock
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.control import call_through
from minibroker.events import EventStream
from minibroker.log.memory_storage import MemoryStorage
from minibroker.reporter import Reporter


@asynccontextmanager
async def served(reporter: Reporter | None = None) -> AsyncIterator[Cluster]:
    """A cluster on real sockets, whose clock can be moved."""
    clock = SteeredClock()
    cluster = Cluster(
        {},
        lambda name: MemoryStorage(LoopClock().now_ms),
        clock=clock,
        chance=Random(1),
        events=EventStream(clock.now_ms),
        reporter=reporter,
        steer=call_through,
    )
    await cluster.start_all()
    try:
        yield cluster
    finally:
        clock.thaw()  # who stops waits for heartbeats
        await cluster.stop_all()
