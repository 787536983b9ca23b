"""What the garbage collector does to a broker: short pauses in `serve`, nothing anywhere else, nothing left to it."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minibroker.broker.node import Node
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.test_many_topics import CREATE, creation, deletion
from tests.server.running import FedTransport, batch, connected, frame, produce, running

LOOKED_AT_MAX = 40_000  # by one collection: each object takes 0.1 to 0.4 microseconds
GROWN = 400_000

GROWING = f"""
import gc, json
from minibroker.server.garbage import shorten_pauses

shorten_pauses()
looked_at = []
gc.callbacks.insert(0, lambda phase, info: phase == "start" and looked_at.append(
    sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
))
kept = [[] for _ in range({GROWN})]
most = max(looked_at)
frozen = gc.get_freeze_count()
looked_at.clear()
for _ in range({GROWN}):
    circle = []
    circle.append(circle)
left = sum(len(gc.get_objects(each)) for each in range(3))
print(json.dumps([most, frozen, max(looked_at), gc.get_freeze_count(), left]))
"""

EMBEDDED = """
import gc, json
from minibroker.embedded import Broker

def seen():
    return [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), len(gc.callbacks)]

before = seen()
with Broker() as broker:
    broker.create_topic("t", 20)
    during = seen()
print(json.dumps([before, during, seen()]))
"""


def printed(program: str) -> list[object]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector works in pieces by itself")
def test_a_collection_never_looks_at_all_that_there_is() -> None:
    most, frozen, most_later, frozen_later, left = printed(GROWING)
    assert isinstance(most, int) and 0 < most < LOOKED_AT_MAX
    assert isinstance(frozen, int) and frozen > GROWN / 2
    # Circles that come and go are found all the while, and none of them is set aside.
    assert isinstance(most_later, int) and most_later < LOOKED_AT_MAX
    assert isinstance(left, int) and left < LOOKED_AT_MAX
    assert isinstance(frozen_later, int) and frozen_later - frozen < LOOKED_AT_MAX


def test_a_broker_in_somebody_elses_process_leaves_the_collector_alone() -> None:
    before, during, after = printed(EMBEDDED)
    assert before == during == after


@contextmanager
def no_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def test_a_deleted_partition_goes_without_the_collector() -> None:
    async with running() as node, connected(node) as client:
        with no_collector():
            await client.ask(creation(("t", 20)), CREATE[1])
            await client.ask(produce("t", batch(b"a")), 9)
            gone = [weakref.ref(replica.log) for (topic, _), replica in node.replicas.items() if topic == "t"]
            assert len(gone) == 20
            await client.ask(deletion("t"), 6)
            await node.partitions.settled()
            await asyncio.sleep(0)
            assert not [each for each in gone if each() is not None]


async def test_a_closed_connection_goes_without_the_collector() -> None:
    def used(node: Node) -> weakref.ref[object]:
        transport = FedTransport(node)
        transport.feed(frame(ApiVersionsRequest(), 0))
        assert transport.answers((18, 0))
        gone = weakref.ref(transport.connection)
        transport.close()
        del transport.connection  # the test's own circle
        return gone

    async with running() as node:
        with no_collector():
            gone = used(node)
            for _ in range(3):
                await asyncio.sleep(0)
            assert gone() is None
