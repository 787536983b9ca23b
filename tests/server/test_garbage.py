"""The garbage collector: a broker in somebody else's process leaves it alone, and leaves it little."""

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

from tests.broker.test_many_topics import CREATE, creation, deletion
from tests.server.running import batch, connected, produce, running

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


@pytest.mark.pure
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
