"""Offsets by time, ends of epochs, records that are deleted; and what is told while a leader or transaction is new."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import connected, running

TIME_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, NEWER = -1, -2, -3, TIME_MS + 60_000
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
            replica = node.replicas["orders", 0]
            verified = replica.log.producers.start_verification(7, 0, 0, TIME_MS)
            data = bytearray(build_batch(2, records, **more))
            replica.append(data, now_ms=TIME_MS, steady_ms=0, verification=verified)
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


# By time, by epoch, and what is deleted


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    """Return a broker with three records, a second each apart."""
    broker.node.create_topic("orders", 2)
    records = [Record(b"k", b"v", (), TIME_MS + 1_000 * index) for index in range(3)]
    for record in records:
        data = bytearray(build_batch(2, [record]))
        broker.node.replicas["orders", 0].append(data, now_ms=TIME_MS, steady_ms=0)
    return broker


def list_offsets(
    broker: VirtualBroker, *wanted: tuple[int, int], version: int = 7, epoch: int = -1, topic: str = "orders"
) -> list[Any]:
    """Ask for (partition, timestamp); return the answers."""
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [
        Topic.ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch, max_num_offsets=9)
        if version == 0
        else Topic.ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch)
        for index, time in wanted
    ]
    request = ListOffsetsRequest(replica_id=CONSUMER, topics=[Topic(name=topic, partitions=rows)])
    (found,) = broker.ask(request, version).topics
    assert found.name == topic
    return list(found.partitions)


def test_offsets_are_found_by_time(broker: VirtualBroker) -> None:
    cases = [
        (EARLIEST, (-1, 0)),
        (LATEST, (-1, 3)),
        (TIME_MS - 1, (TIME_MS, 0)),
        (TIME_MS + 1, (TIME_MS + 1_000, 1)),
        (TIME_MS + 2_000, (TIME_MS + 2_000, 2)),
        (TIME_MS + 2_001, (-1, -1)),
        (MAX_TIMESTAMP, (TIME_MS + 2_000, 2)),
    ]
    for time, expected in cases:
        (found,) = list_offsets(broker, (0, time))
        assert (found.error_code, found.timestamp, found.offset) == (Error.NONE, *expected), time
        assert found.leader_epoch == (-1 if expected[1] < 0 else 0)
    (old,) = list_offsets(broker, (0, LATEST), version=0)
    assert old.old_style_offsets == [3, 0]
    broker.node.replicas["orders", 0].high_watermark = 2
    (old,) = list_offsets(broker, (0, LATEST), version=0)
    assert old.old_style_offsets == [2, 0]
    assert [each.offset for each in list_offsets(broker, (0, TIME_MS + 2_000))] == [-1]


SPECIAL = {-3: 7, -4: 8, -5: 9, -6: 11}  # and the first version that knows it


def test_special_times_mean_something_from_a_version_on(broker: VirtualBroker) -> None:
    for time, first in SPECIAL.items():
        for version in (first - 1, first):
            (found,) = list_offsets(broker, (0, time), version=version)
            assert (found.error_code == Error.UNSUPPORTED_VERSION) == (version < first), (time, version)
    assert list_offsets(broker, (0, -77), version=11)[0].error_code == Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("release", "count"), [("4.4", 2), ("3.9", 3)])
def test_a_partition_that_is_asked_for_twice_is_refused(release: str, count: int) -> None:
    with virtual_broker(as_version=release) as broker:
        broker.node.create_topic("orders", 2)
        found = list_offsets(broker, (0, LATEST), (1, LATEST), (0, EARLIEST))
        codes = [(each.partition_index, each.error_code) for each in found]
        twice = (0, Error.INVALID_REQUEST)
        assert codes == [twice, (1, Error.NONE), twice][:count]


def test_offsets_of_what_is_not_there_or_led_otherwise_are_refused(broker: VirtualBroker) -> None:
    assert list_offsets(broker, (7, LATEST))[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(broker, (0, LATEST), topic="absent")[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offsets(broker, (0, LATEST), epoch=0)[0].error_code == Error.NONE
    assert list_offsets(broker, (0, LATEST), epoch=9)[0].error_code == Error.UNKNOWN_LEADER_EPOCH
    broker.node.replicas["orders", 0].log.offline = KafkaError(Error.KAFKA_STORAGE_ERROR, "gone")
    for version in (1, 5, 6):  # Fetch alone has another error for clients who do not know this one
        assert list_offsets(broker, (0, LATEST), version=version)[0].error_code == Error.KAFKA_STORAGE_ERROR
    broker.node.replicas["orders", 0].log.offline = None


def test_epochs_end_where_the_next_began(broker: VirtualBroker) -> None:
    Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    rows = [
        Topic.OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
        for index, epoch, current in ((0, 0, -1), (0, 5, -1), (1, 0, -1), (7, 0, -1), (0, 0, 9))
    ]
    request = OffsetForLeaderEpochRequest(topics=[Topic(topic="orders", partitions=rows)])
    (topic,) = broker.ask(request, 4).topics
    assert topic.topic == "orders"
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.partition, each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions] == [
        (0, Error.NONE, 0, 3),
        (0, Error.NONE, -1, -1),
        (1, Error.NONE, *broker.node.replicas["orders", 1].log.epochs.end_offset_for(0, 0)),
        (7, unknown, -1, -1),
        (0, Error.UNKNOWN_LEADER_EPOCH, -1, -1),
    ]


def delete(broker: VirtualBroker, offset: int, *, topic: str = "orders", partition: int = 0) -> tuple[int, int]:
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [Topic.DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[Topic(name=topic, partitions=rows)], timeout_ms=1000)
    (found,) = broker.ask(request, 2).topics
    assert (found.name, found.partitions[0].partition_index) == (topic, partition)
    return found.partitions[0].error_code, found.partitions[0].low_watermark


def test_records_are_deleted_up_to_the_high_watermark(broker: VirtualBroker) -> None:
    log = broker.node.replicas["orders", 0].log
    for offset, expected in (
        (4, (Error.OFFSET_OUT_OF_RANGE, -1)),
        (-2, (Error.OFFSET_OUT_OF_RANGE, -1)),
        (0, (Error.NONE, 0)),
        (2, (Error.NONE, 2)),
        (1, (Error.NONE, 2)),
        (2, (Error.NONE, 2)),
        (-1, (Error.NONE, 3)),
    ):
        assert delete(broker, offset) == expected, offset
        assert log.log_start_offset == max(expected[1], 0)
    assert list_offsets(broker, (0, EARLIEST))[0].offset == 3
    assert delete(broker, 0, partition=7) == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    broker.node.create_topic("kept", 1, {"cleanup.policy": "compact"})
    assert delete(broker, 0, topic="kept") == (Error.POLICY_VIOLATION, -1)
    broker.node.create_topic("both", 1, {"cleanup.policy": "compact,delete"})
    assert delete(broker, 0, topic="both") == (Error.NONE, 0)
