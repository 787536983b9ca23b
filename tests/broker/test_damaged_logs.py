"""A damaged log is the trouble of one partition: whatever reads logs goes on with the others, and so do connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, NONE
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.server.running import connected, running, said

BAD, GOOD = "bad", "good"
BATCHES, LATE_MS = 6, 1_700_000_000_000  # each batch a second after the one before
DAMAGED = 4  # the offset whose batch is hit; a batch holds one record


class Damage(NamedTuple):
    """What is done to the batch at an offset."""

    position: int
    data: bytes
    is_header: bool
    codec: int = NONE


# Sizes, formats and codecs that cannot be, and records and payloads that contradict their batch.
DAMAGES = {
    "size below a header": Damage(8, (3).to_bytes(4, "big"), True),
    "size beyond the file": Damage(8, (1 << 30).to_bytes(4, "big"), True),
    "format 9": Damage(16, b"\x09", True),
    "zeros": Damage(0, bytes(HEADER_BYTES), True),
    "a record too long": Damage(HEADER_BYTES, b"\x7e", False),
    "three records where one is": Damage(57, (3).to_bytes(4, "big"), False),
    "a payload that is not gzip": Damage(HEADER_BYTES, bytes(10), False, GZIP),
}


def list_offsets(timestamp: int, isolation_level: int = 0) -> ListOffsetsRequest:
    Topic = ListOffsetsRequest.ListOffsetsTopic
    row = Topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [Topic(name=name, partitions=[row]) for name in (BAD, GOOD)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def fetch(offset: int, isolation_level: int = 0) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    row = Topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[Topic(topic=name, partitions=[row]) for name in (BAD, GOOD)],
    )


def produce() -> ProduceRequest:
    Topic = ProduceRequest.TopicProduceData
    data = build_batch(2, [Record(b"k", b"new", (), LATE_MS + 60_000)])
    rows = [Topic.PartitionProduceData(index=0, records=data)]
    return ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[Topic(name=name, partition_data=rows) for name in (BAD, GOOD)]
    )


def delete_records(offset: int) -> DeleteRecordsRequest:
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [Topic.DeleteRecordsPartition(partition_index=0, offset=offset)]
    return DeleteRecordsRequest(topics=[Topic(name=name, partitions=rows) for name in (BAD, GOOD)], timeout_ms=1000)


def epochs() -> OffsetForLeaderEpochRequest:
    Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    rows = [Topic.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[Topic(topic=name, partitions=rows) for name in (BAD, GOOD)])


def in_fetch(answer: Any) -> list[Any]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def in_topics(answer: Any) -> list[Any]:
    return [partition for topic in answer.topics for partition in topic.partitions]


def in_produce(answer: Any) -> list[Any]:
    return [partition for topic in answer.responses for partition in topic.partition_responses]


class Asked(NamedTuple):
    """A request about both partitions, and what the damaged one is answered."""

    request: Callable[[], Request]
    version: int
    rows: Callable[[Any], list[Any]]
    header_code: Error
    records_code: Error


OK, CORRUPT = Error.NONE, Error.CORRUPT_MESSAGE
UNREADABLE = Error.INVALID_RECORD  # UNKNOWN_SERVER_ERROR where a codec fails
ASKED = {
    "Fetch": Asked(lambda: fetch(DAMAGED), 11, in_fetch, CORRUPT, OK),
    "Fetch, committed": Asked(lambda: fetch(DAMAGED, 1), 11, in_fetch, CORRUPT, OK),
    "Fetch, converted": Asked(lambda: fetch(DAMAGED), 3, in_fetch, CORRUPT, Error.UNSUPPORTED_COMPRESSION_TYPE),
    "Fetch, converted, from before": Asked(lambda: fetch(0), 3, in_fetch, OK, OK),
    "ListOffsets by time": Asked(lambda: list_offsets(LATE_MS + DAMAGED * 1000), 7, in_topics, CORRUPT, UNREADABLE),
    "ListOffsets, largest time": Asked(lambda: list_offsets(-3), 7, in_topics, OK, OK),
    "ListOffsets, latest": Asked(lambda: list_offsets(-1), 7, in_topics, OK, OK),
    "ListOffsets, earliest": Asked(lambda: list_offsets(-2), 7, in_topics, OK, OK),
    "OffsetForLeaderEpoch": Asked(epochs, 4, in_topics, OK, OK),
    "DeleteRecords": Asked(lambda: delete_records(DAMAGED), 2, in_topics, OK, OK),
    "Produce": Asked(produce, 9, in_produce, OK, OK),
}


def fill(node: Node, topic: str, codec: int) -> int:
    """Write batches of one record each; return where the one that will be damaged begins."""
    position = 0
    for offset in range(BATCHES):
        record = Record(b"k", b"v%d" % offset, (), LATE_MS + offset * 1000)
        if offset == DAMAGED:
            position = node.replicas[topic, 0].log.size_bytes
        node.replicas[topic, 0].append(bytearray(build_batch(2, [record], codec=codec)), now_ms=LATE_MS, steady_ms=0)
        if offset == BATCHES - 2:
            node.replicas[topic, 0].log.roll()  # the segment that is damaged is not the one that is written to
    return position


async def damaged(damage: Damage) -> MemoryStorage:
    """Return the disk of a broker that has stopped in order, with one batch of one topic damaged since."""
    storage = MemoryStorage(lambda: LATE_MS)
    async with running(storage=storage) as node:
        for topic in (BAD, GOOD):
            node.create_topic(topic, 1)
            position = fill(node, topic, damage.codec)
    storage.open(f"{BAD}-0/{0:020}.log").write_at(position + damage.position, damage.data)
    return storage


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_one_damaged_batch_is_answered_for_its_partition_alone(damage: Damage, asked: Asked) -> None:
    async with running(storage=await damaged(damage), as_version="3.9") as node, connected(node) as client:
        bad, good = asked.rows(await client.ask(asked.request(), asked.version))
        expected = asked.header_code if damage.is_header else asked.records_code
        if expected == UNREADABLE and damage.codec:
            expected = Error.UNKNOWN_SERVER_ERROR
        assert (bad.error_code, good.error_code) == (expected, Error.NONE)
        told = [line for line in said(node) if "is damaged" in line]
        assert len(told) == (expected != Error.NONE)
        assert all(line.startswith("bad-0 is damaged: ") for line in told)
        # The connection is as it was, and asking again says nothing twice.
        again = asked.rows(await client.ask(asked.request(), asked.version, 2))
        assert again[1].error_code == Error.NONE
        assert len([line for line in said(node) if "is damaged" in line]) == len(told)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_retention_goes_on_with_the_neighbour(damage: Damage) -> None:
    async with running({"log.retention.ms": "1"}, storage=await damaged(damage)) as node:
        rows = {row.topic: row for row in await node.cleaning.retention_now()}
        assert rows[GOOD].start_offset == BATCHES
        assert rows[BAD].start_offset == BATCHES or "cannot be read" in rows[BAD].reason


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_compaction_goes_on_with_the_neighbour_and_says_what_it_leaves_alone(damage: Damage) -> None:
    async with running({"log.cleanup.policy": "compact"}, storage=await damaged(damage)) as node:
        rows = {row.topic: row for row in await node.cleaning.compact_now()}
        assert (rows[GOOD].records_before, rows[GOOD].records_after) == (BATCHES - 1, 1)
        assert rows[BAD].reason, rows[BAD]
        assert node.replicas[BAD, 0].log.log_end_offset == BATCHES
