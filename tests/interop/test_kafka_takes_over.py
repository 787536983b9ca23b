"""A directory that we began, and every release of Kafka that can go on with it: topics, records, committed offsets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.broker.emulated_release import EmulatedRelease
from minibroker.broker.releases import release_named
from minibroker.client import Cluster as Client
from minibroker.client import Consumer, Producer
from minibroker.client.groups import Groups
from minibroker.protocol.framing import decode_response
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.differential.kafka import CLUSTER_ID, Kafka, missing_tools
from tests.differential.play import _frame
from tests.differential.wire import ANSWER, Side
from tests.metadata.test_features import JOIN

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

RECORDS = 100
OFFSETS = {("t", 0): 11, ("t", 1): 22}
JOIN_VERSION, VERSIONS_VERSION = 1, 3


async def begin(directory: Path, *, consumer_protocol: bool) -> None:
    """Let a broker of ours begin a directory: topics, records, offsets of a group, perhaps a group of KIP-848."""
    async with Broker(data_dir=directory, topics=["t:2", "c:1:compact"], cluster_id=CLUSTER_ID) as broker:
        async with Client(broker.bootstrap_servers) as client:
            async with Producer(client, idempotent=True) as producer:
                for number in range(RECORDS):
                    await producer.enqueue("t", b"%d" % number, partition=number % 2)
                await producer.flush()
            await Groups(client).alter_offsets("g", OFFSETS)
        if consumer_protocol:
            assert await asyncio.to_thread(joined, broker.bootstrap_servers) == 0


def joined(address: str) -> int:
    """Join a group of the consumer protocol; return the error code."""
    side = Side(address)
    side.send(_frame(JOIN, JOIN_VERSION))
    outcome = side.receive()
    side.close()
    assert outcome.kind == ANSWER
    answer = decode_response(outcome.frame, ConsumerGroupHeartbeatRequest.api, JOIN_VERSION)[1]
    return int(answer.error_code)  # type: ignore[attr-defined]


def announced(address: str) -> dict[int, tuple[int, int]]:
    """Return what a broker announces: as_version promises the same."""
    side = Side(address)
    side.send(_frame(ApiVersionsRequest(client_software_name="test", client_software_version="1"), VERSIONS_VERSION))
    answer = decode_response(side.receive().frame, ApiVersionsRequest.api, VERSIONS_VERSION)[1]
    side.close()
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ["3.9.2", "4.0.1", "4.1.1", "4.2.0", "4.3.1", "4.4.0"])
async def test_kafka_goes_on_with_a_directory_that_we_began(version: str, tmp_path: Path) -> None:
    consumer_protocol = version >= "4"  # a directory with a group of that protocol needs 4.0
    kafka = Kafka(version, tmp_path)
    await begin(kafka.data, consumer_protocol=consumer_protocol)
    await asyncio.to_thread(kafka.__enter__)
    try:
        assert await asyncio.to_thread(announced, kafka.address) == EmulatedRelease(release_named(version)).announced
        async with Client(kafka.address) as client:
            found = []
            async with Consumer(client) as consumer:
                await consumer.assign([("t", partition, "earliest") for partition in range(2)])
                while len(found) < RECORDS:
                    found += [int(record.value or b"") for record in await consumer.fetch(max_wait_ms=500)]
            assert sorted(found) == list(range(RECORDS))
            groups = Groups(client)
            committed = (await groups.fetch_offsets(["g"]))["g"]
            assert {key: each.offset for key, each in committed.items()} == OFFSETS
            assert {each.id for each in await groups.list_groups()} >= {
                "g",
                *(["k"] if consumer_protocol else []),
            }
            async with Producer(client, idempotent=True) as producer:
                await producer.enqueue("t", b"more", partition=0)
                await producer.flush()
    finally:
        await asyncio.to_thread(kafka.__exit__)
