"""Our own client and our broker, in every version that both have."""

from __future__ import annotations

from functools import partial

import pytest

from minibroker.broker.apis import SERVED
from minibroker.client import Admin, Cluster, Consumer, NewTopic, Producer
from minibroker.log.checkpoints import HIGH_WATERMARKS, read_offsets
from minibroker.log.memory_storage import MemoryStorage
from minibroker.replication.follower import FollowerState

from .running import running_node

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
VALUES = [b"%d" % number for number in range(30)]


async def round_trip(address: str, **max_versions: int) -> None:
    async with Cluster(address, max_versions=max_versions) as cluster:
        async with Producer(cluster) as producer:
            for value in VALUES:
                await producer.enqueue("orders", value, b"k")
            await producer.flush()
        async with Consumer(cluster) as consumer:
            await consumer.assign([("orders", 0, "earliest")])
            found: list[bytes | None] = []
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.fetch(max_wait_ms=1000)]
            assert found == VALUES


@pytest.mark.parametrize("version", range(SERVED[PRODUCE][1] + 1))
async def test_every_version_of_produce(version: int) -> None:
    async with running_node() as node:
        await round_trip(node.bootstrap_servers, Produce=version)


@pytest.mark.parametrize("version", range(SERVED[FETCH][1] + 1))
async def test_every_version_of_fetch(version: int) -> None:
    async with running_node() as node:
        await round_trip(node.bootstrap_servers, Fetch=version)


@pytest.mark.parametrize("version", range(SERVED[METADATA][1] + 1))
async def test_every_version_of_metadata(version: int) -> None:
    async with running_node() as node:
        await round_trip(node.bootstrap_servers, Metadata=version)


@pytest.mark.parametrize("version", range(SERVED[LIST_OFFSETS][1] + 1))
async def test_every_version_of_list_offsets(version: int) -> None:
    async with running_node() as node:
        await round_trip(node.bootstrap_servers, ListOffsets=version)


@pytest.mark.parametrize("release", ["0.10.0", "0.10.2", "0.11.0", "1.0", "2.0", "2.8", "3.9", "4.0", "4.4"])
async def test_every_age_of_broker(release: str) -> None:
    async with running_node(as_version=release) as node:
        await round_trip(node.bootstrap_servers)


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0"])
async def test_brokers_that_do_not_tell_their_versions(release: str) -> None:
    old = dict.fromkeys(("Produce", "Fetch", "ListOffsets", "Metadata"), 0)
    async with (
        running_node(as_version=release) as node,
        Cluster(node.bootstrap_servers, max_versions=old, ask_versions=False) as cluster,
        Producer(cluster) as producer,
    ):
        assert (await producer.send("orders", b"v")).offset == 0


async def test_a_stop_and_a_start_keep_topics_settings_and_records() -> None:
    storage = MemoryStorage(lambda: 0)
    async with running_node(storage) as node, Cluster(node.bootstrap_servers) as cluster:
        await Admin(cluster).create_topics([NewTopic("orders", 3, 1, {"retention.ms": "60000"})])
        async with Producer(cluster, idempotent=True) as producer:
            for number in range(9):
                await producer.send("orders", b"%d" % number, partition=number % 3)
        topic_id = node.image.topics["orders"].id
    async with running_node(storage) as node, Cluster(node.bootstrap_servers) as cluster:
        topic = node.image.topics["orders"]
        assert (topic.id, len(topic.partitions)) == (topic_id, 3)
        assert node.topic_config("orders")["retention.ms"] == 60000
        assert [node.replicas["orders", number].high_watermark for number in range(3)] == [3, 3, 3]
        async with Producer(cluster, idempotent=True) as producer:
            place = await producer.send("orders", b"more", partition=0)
            assert place.offset == 3
        assert node.directory.was_clean


async def test_a_log_that_is_cut_takes_the_claim_of_what_was_committed_out_of_the_checkpoint() -> None:
    storage = MemoryStorage(lambda: 0)
    async with running_node(storage) as node:
        await round_trip(node.bootstrap_servers)
        replica = node.replicas["orders", 0]
        node.scheduler.checkpoint_high_watermarks()
        assert read_offsets(storage, HIGH_WATERMARKS)["orders", 0] == len(VALUES)
        replica.follow(2, replica.leader_epoch + 1, truncate=partial(node.partitions._cut, ("orders", 0)))
        role = replica.role
        assert isinstance(role, FollowerState)
        role.on_leader_ends(0, 7, 0)  # another was elected, uncleanly, and its log ends there
        assert read_offsets(storage, HIGH_WATERMARKS)["orders", 0] == 7
