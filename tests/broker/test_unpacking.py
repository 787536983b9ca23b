"""What produced batches may unpack to: one record of them, a batch, and all of a request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, LZ4, NONE, ZSTD
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.server.running import Client, connected, running, said

TIME_MS = 1_700_000_000_000
TOPIC, BROKER = 2, 4  # kinds of resources
SETTING = "max.decompressed.message.bytes"
MIB = 1 << 20


async def produced(client: Client, batches: Sequence[bytes], topic: str = "orders") -> list[Error]:
    """Send a batch to each partition; return the answers."""
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=index, records=data) for index, data in enumerate(batches)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Topic(name=topic, partition_data=rows)])
    answer = await client.ask(request, 9)
    return [Error(row.error_code) for row in answer.responses[0].partition_responses]


@cache
def zeros(size_bytes: int, codec: int) -> bytes:
    return build_batch(2, [Record(b"k", bytes(size_bytes), (), TIME_MS)], codec=codec)


async def test_all_batches_of_a_request_together_may_unpack_to_as_much_as_one() -> None:
    bomb = zeros(60 * MIB, ZSTD)
    assert len(bomb) < 4000
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 20)
        codes = await produced(client, [bomb] * 20)
        assert codes == [Error.NONE] + [Error.MESSAGE_TOO_LARGE] * 19
        # Nothing is left over from one request to the next.
        assert await produced(client, [bomb]) == [Error.NONE]
        assert await produced(client, [zeros(DECOMPRESSED_BYTES_MAX, ZSTD)]) == [Error.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("message_format", [1, 2])
async def test_wrappers_of_old_formats_count_as_well(message_format: int) -> None:
    bomb = build_batch(message_format, [Record(b"k", bytes(40 * MIB), (), TIME_MS)], codec=LZ4)
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=index, records=bomb) for index in range(3)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Topic(name="orders", partition_data=rows)])
    async with running(as_version="2.8") as node, connected(node) as client:
        node.create_topic("orders", 3)
        # Stored as they come, or written anew as format 2.
        answer = await client.ask(request, 3 if message_format == 2 else 2)
        codes = [row.error_code for row in answer.responses[0].partition_responses]
        assert codes == [Error.NONE, Error.MESSAGE_TOO_LARGE, Error.MESSAGE_TOO_LARGE]


async def test_large_requests_may_unpack_to_more() -> None:
    """A producer that compresses well is not refused: twenty times its own length is always allowed."""
    noise = bytes(range(256)) * 4096  # one MiB that hardly shrinks with snappy's small window
    sent = build_batch(2, [Record(b"k", noise, (), TIME_MS)])
    async with running({"message.max.bytes": 2 * MIB}) as node, connected(node) as client:
        node.create_topic("orders", 80)
        packed = zeros(MIB, ZSTD)
        assert set(await produced(client, [sent] * 4 + [packed] * 76)) == {Error.NONE}


async def alter(client: Client, kind: int, name: str, value: int) -> None:
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = Resource.AlterableConfig(name=SETTING, config_operation=0, value=str(value))
    resource = Resource(resource_type=kind, resource_name=name, configs=[change])
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == Error.NONE, answer


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
async def test_one_record_may_unpack_to_what_topic_and_broker_say_now(codec: int) -> None:
    sent = [zeros(2000, codec)]
    refused = Error.NONE if codec == NONE else Error.INVALID_RECORD
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 1, {SETTING: "1000"})
        node.create_topic("others", 1)
        assert await produced(client, sent) == [refused]
        assert await produced(client, sent, "others") == [Error.NONE]
        await alter(client, TOPIC, "orders", 2010)
        assert await produced(client, sent) == [Error.NONE]
        await alter(client, TOPIC, "orders", 2000)
        assert await produced(client, sent) == [refused]
        await alter(client, BROKER, "", 1500)
        assert await produced(client, sent, "others") == [refused]


async def find(node: Node, client: Client) -> Error:
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [Topic.ListOffsetsPartition(partition_index=0, timestamp=TIME_MS)]
    request = ListOffsetsRequest(replica_id=-1, topics=[Topic(name="orders", partitions=rows)])
    return Error((await client.ask(request, 7)).topics[0].partitions[0].error_code)


async def test_a_search_by_time_unpacks_no_record_that_is_too_large_now() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 1)
        assert await produced(client, [zeros(2000, ZSTD)]) == [Error.NONE]
        assert await find(node, client) == Error.NONE
        await alter(client, TOPIC, "orders", 1000)
        assert await find(node, client) == Error.INVALID_RECORD


async def test_a_batch_of_kafkas_that_unpacks_to_more_than_is_allowed_is_not_called_damaged() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("orders", 1)
        log = node.replicas["orders", 0].log
        log.append_as_follower(zeros(DECOMPRESSED_BYTES_MAX, ZSTD), now_ms=TIME_MS)
        node.replicas["orders", 0].high_watermark = 1
        assert await find(node, client) == Error.MESSAGE_TOO_LARGE
        assert not [line for line in said(node) if "damaged" in line]
