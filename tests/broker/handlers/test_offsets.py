"""ListOffsets while a new leader does not know yet what is committed, and while a transaction is open."""

from __future__ import annotations

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from tests.server.running import connected, running

TIME_MS = 1_700_000_000_000
LATEST, EARLIEST, NEWER = -1, -2, TIME_MS + 60_000
UNCOMMITTED, COMMITTED = 0, 1
CONSUMER, DEBUGGER = -1, -2


async def ask(
    node: Node, timestamp: int, isolation_level: int, *, version: int = 7, replica_id: int = CONSUMER
) -> object:
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [Topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(
        replica_id=replica_id, isolation_level=isolation_level, topics=[Topic(name="orders", partitions=rows)]
    )
    async with connected(node) as client:
        (answer,) = (await client.ask(request, version)).topics[0].partitions
    return answer.offset if answer.error_code == Error.NONE else Error(answer.error_code)


async def with_open_transaction() -> MemoryStorage:
    """Return the disk of a broker with two records, a transaction that is open since offset 2, and two more in it."""
    storage = MemoryStorage(lambda: TIME_MS)
    async with running(storage=storage) as node:
        node.create_topic("orders", 1)
        records = [Record(b"k", b"v", (), TIME_MS), Record(b"k", b"v", (), TIME_MS + 1)]
        for more in ({}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}):
            node.replicas["orders", 0].append(bytearray(build_batch(2, records, **more)), now_ms=TIME_MS, steady_ms=0)
    return storage


async def test_an_open_transaction_from_before_this_leader_hides_no_ends() -> None:
    async with running(storage=await with_open_transaction()) as node:
        replica = node.replicas["orders", 0]
        assert replica.as_leader().epoch_start_offset == replica.high_watermark == 4
        assert await ask(node, LATEST, COMMITTED) == 2
        assert await ask(node, LATEST, UNCOMMITTED) == 4
        assert await ask(node, NEWER, COMMITTED) == -1


@pytest.mark.parametrize("isolation_level", [UNCOMMITTED, COMMITTED])
async def test_a_leader_that_does_not_know_what_is_committed_says_so(isolation_level: int) -> None:
    async with running(storage=await with_open_transaction()) as node:
        node.replicas["orders", 0].high_watermark = 3  # as if followers had not fetched yet
        for timestamp in (LATEST, NEWER, TIME_MS + 1 if isolation_level == COMMITTED else NEWER):
            expected = 1 if timestamp == TIME_MS + 1 else Error.OFFSET_NOT_AVAILABLE
            assert await ask(node, timestamp, isolation_level) == expected
        assert await ask(node, LATEST, isolation_level, version=4) == Error.LEADER_NOT_AVAILABLE
        assert await ask(node, EARLIEST, isolation_level) == 0
        assert await ask(node, LATEST, isolation_level, replica_id=DEBUGGER) == 4
