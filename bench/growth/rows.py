"""The rows: each is given how many elements there are, and a meter for the part that counts."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.growth.counting import Meter
from bench.growth.hosts import (
    START_MS,
    Client,
    NoSocket,
    batch,
    in_broker,
    in_cluster,
    new_disk,
    new_node,
    run,
    settled,
)
from minibroker.broker.broker import Node
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.snapshot import snapshot
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.directory import LogDirectory
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest
from minibroker.simulation.loop import SimulatedLoop
from minibroker.stored.topics import ConfigRecord, PartitionChangeRecord

REPEATS = 9  # of what is done to one of many


NO_CHORES = {"replica.high.watermark.checkpoint.interval.ms": 10**9}  # look at all partitions now and then


class Row(NamedTuple):
    """What is measured, of how many elements, and what one of those is."""

    name: str
    each: str
    sizes: tuple[int, ...]
    measure: Callable[[int, Meter], None]


# Fetch


def fetch_request(node: Node, session_id: int, epoch: int, named: range, *, offset: int = 0, wait_ms: int = 0) -> Any:
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20) for each in named]
    topics = [Topic(topic_id=node.image.topics["t"].id, partitions=rows)] if rows else []
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, replica_id=-1, topics=topics
    )


def delivery(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        node.create_topic("t", size)
        client = Client(node)
        session_id = (await client.ask(fetch_request(node, 0, 0, range(size)), 17)).session_id
        named, offset = range(0), 0  # what was fetched before is asked for behind its record
        for epoch in range(1, REPEATS + 2):
            number = epoch * 7 % size
            replica = node.replicas["t", number]
            request = fetch_request(node, session_id, epoch, named, offset=offset, wait_ms=60_000)
            with meter.elements(int(epoch > 1)):  # the first makes codecs
                answer = client.begin(request, 17)
                await asyncio.sleep(0)
                replica.append(batch(), now_ms=START_MS, steady_ms=0)
                assert len((await answer).responses) == 1
            named, offset = range(number, number + 1), replica.log.log_end_offset

    in_broker(main)


def idle_polls(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        node.create_topic("t", size)
        client = Client(node)
        session_id = (await client.ask(fetch_request(node, 0, 0, range(size)), 17)).session_id
        for epoch in range(1, REPEATS + 2):
            with meter.elements(int(epoch > 1)):
                await client.ask(fetch_request(node, session_id, epoch, range(0), wait_ms=500), 17)

    in_broker(main, NO_CHORES)


# Produce


def produce_request(numbers: range, acks: int = -1) -> ProduceRequest:
    Topic = ProduceRequest.TopicProduceData
    data = bytes(batch())
    rows = [Topic.PartitionProduceData(index=number, records=data) for number in numbers]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[Topic(name="t", partition_data=rows)])


async def with_leader_1(cluster: Cluster, size: int, **settings: object) -> Client:
    """Make a topic of three replicas that broker 1 leads all partitions of."""
    cluster.create_topic("t", assignments=[[1, 2, 3]] * size, **settings)
    await settled(cluster)
    return Client(cluster.nodes[1])


def acks_all(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        client = await with_leader_1(cluster, size)
        await produced(client, size)
        await produced(client, size, meter)

    in_cluster(main)


async def produced(client: Client, size: int, meter: Meter | None = None) -> None:
    """Write a record to each partition in one request."""
    request = produce_request(range(size))
    frame = client.frame(request, 11)
    with contextlib.nullcontext() if meter is None else meter.elements(size):
        chunks = await client.send(frame)
    answer = client.read(request, 11, chunks)
    assert not [row for topic in answer.responses for row in topic.partition_responses if row.error_code], answer


def first_batches(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        client = await with_leader_1(cluster, size)
        await produced(client, size)
        for number in range(size):
            cluster.move_leader("t", number, 2)
        await settled(cluster)
        await produced(Client(cluster.nodes[2]), size, meter)

    in_cluster(main, on_disk=True)


# Groups

Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


class Members:
    """A group of the consumer protocol."""

    def __init__(self, node: Node, size: int):
        self.client = Client(node)
        self.topic_id = node.image.topics["t"].id
        self.epochs = dict.fromkeys((f"member-{number:06}" for number in range(size)), 0)
        self.owned: dict[str, list[int]] = {}

    async def beat(self, member_id: str) -> bool:
        """Send a heartbeat with what the member has; return whether it was told anything new."""
        epoch, owned = self.epochs[member_id], self.owned.get(member_id, [])
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if not epoch else -1,
            subscribed_topic_names=["t"] if not epoch else None,
            topic_partitions=[Owned(topic_id=self.topic_id, partitions=owned)] if owned else [],
        )
        answer = await self.client.ask(request, 1)
        assert not answer.error_code, answer
        is_news = answer.member_epoch != epoch
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            is_news = True
            self.owned[member_id] = [part for topic in answer.assignment.topic_partitions for part in topic.partitions]
        return is_news

    async def settle(self) -> None:
        """Go on until nobody is told anything new, and everybody is at the same epoch."""
        for _ in range(100):
            await asyncio.sleep(1.5)  # a new target is computed once a second
            news = [await self.beat(member_id) for member_id in self.epochs]
            if not any(news) and len(set(self.epochs.values())) == 1:
                return
        raise AssertionError("the group does not settle")


def group_settings() -> dict[str, object]:
    return {"offsets.topic.num.partitions": 1, "group.consumer.session.timeout.ms": 60_000}


async def with_group(node: Node, size: int) -> Members:
    node.create_topic("t", size)
    node.create_topic(OFFSETS_TOPIC, 1)
    await asyncio.sleep(1)
    return Members(node, size)


def consumer_joins(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        members = await with_group(node, size)
        with meter.elements(size):
            await members.settle()

    in_broker(main, group_settings())


def consumer_heartbeats(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        members = await with_group(node, size)
        await members.settle()
        with meter.elements(REPEATS):
            for _ in range(REPEATS):
                await members.beat("member-000007")

    in_broker(main, group_settings())


def classic_joins(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        await with_group(node, 10)
        clients = [Client(node) for _ in range(size)]
        ids = [(await client.ask(join_request(""), 9)).member_id for client in clients]
        await joined(clients, ids)
        with meter.elements(size):
            await joined(clients, ids)

    in_broker(main, {**group_settings(), "group.initial.rebalance.delay.ms": 3000})


def join_request(member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + b"t" * 40)
    return JoinGroupRequest(
        group_id="c",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def joined(clients: list[Client], ids: list[str]) -> None:
    """Let all join, and have their assignments; the leader first, as it does a rebalance."""
    asked = [client.begin(join_request(member_id), 9) for client, member_id in zip(clients, ids)]
    answers = [await each for each in asked]
    assert not [answer for answer in answers if answer.error_code], answers[0]
    Assignment = SyncGroupRequest.SyncGroupRequestAssignment
    asked = []
    for client, answer in zip(clients, answers):
        made = [Assignment(member_id=each, assignment=b"a" * 20) for each in ids] if answer.members else []
        request = SyncGroupRequest(
            group_id="c",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=made,
        )
        asked.append(client.begin(request, 5))
    for each in asked:
        assert not (await each).error_code


# Logs


def logs_of(storage: OsStorage, size: int, *, compact: bool = False) -> LogDirectory:
    """Return logs that hold three records each, in two segments."""
    directory = LogDirectory(storage)
    directory.start()
    settings = LogSettings(compact=compact)
    for number in range(size):
        log = directory.open("t", number, settings, now_ms=START_MS, is_synced=False)
        for _ in range(2):
            log.append_as_leader(batch(), leader_epoch=1, now_ms=START_MS)
        log.roll()
        log.append_as_leader(batch(), leader_epoch=1, now_ms=START_MS)
    directory.sync_names()
    return directory


def truncations(size: int, meter: Meter) -> None:
    """As after a failover: all logs were flushed, and all lose their last record."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as root:
        directory = logs_of(new_disk(root), size, compact=True)
        for key, log in directory.logs.items():
            log.flush()
            directory.cleaner_offsets[key] = 3
        directory.floors = lambda: dict.fromkeys(directory.logs, 2)
        directory.write_checkpoints(dict.fromkeys(directory.logs, 3))
        directory.write_cleaner_offsets()

        async def main(loop: SimulatedLoop) -> None:
            with meter.elements(size):
                for number in range(size):
                    directory.lower_high_watermark("t", number, 2)
                    directory.truncate_to("t", number, 2)
                    await asyncio.sleep(0)

        run(main)


def cleanings(size: int, meter: Meter) -> None:
    """Every log is compacted: what a broker does about each of them, and their tiny segments."""

    async def main(loop: SimulatedLoop) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-growth-") as root:
            node = new_node(loop, new_disk(root), {"log.cleaner.backoff.ms": 1_000_000})
            await node.start()
            node.create_topic("t", size, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
            for replica in node.replicas.values():
                for _ in range(2):
                    replica.append(batch(), now_ms=START_MS, steady_ms=0)
                replica.log.roll()
                replica.append(batch(), now_ms=START_MS, steady_ms=0)
            await asyncio.sleep(120)  # what has been rolled is flushed
            compaction = node.cleaning.compaction
            with meter.elements(size):
                while compaction.passes != size:
                    compaction.start()
                    await asyncio.sleep(60)
            await node.kill()

    run(main)


# Metadata


def change(act: Callable[[Node, Client, int], Any]) -> Callable[[int, Meter], None]:
    """Return what measures a change of the metadata among so many topics, which a group coordinator watches."""

    def measure(size: int, meter: Meter) -> None:
        async def main(node: Node) -> None:
            node.create_topic(OFFSETS_TOPIC, 1)
            node.create_topic("t", 1)
            with node.together():
                for number in range(size):
                    node.create_topic(f"topic-{number}", 1)
            client = Client(node)
            await Members(node, 1).beat("member-000000")
            for number in range(REPEATS + 1):
                with meter.elements(int(number > 0)):  # the first makes codecs
                    await act(node, client, number)

        in_broker(main, group_settings())

    return measure


async def created(client: Client, name: str, **settings: str) -> None:
    Topic = CreateTopicsRequest.CreatableTopic
    configs = [Topic.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = Topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    assert not answer.topics[0].error_code, answer


async def create_plain(node: Node, client: Client, number: int) -> None:
    await created(client, f"new-{number}")


async def create_with_settings(node: Node, client: Client, number: int) -> None:
    await created(client, f"new-{number}", cleanup_policy="compact", retention_ms="1000000")


async def create_with_dot(node: Node, client: Client, number: int) -> None:
    await created(client, f"new.{number}")


async def delete(node: Node, client: Client, number: int) -> None:
    answer = await client.ask(DeleteTopicsRequest(topic_names=[f"topic-{number}"], timeout_ms=60_000), 5)
    assert not answer.responses[0].error_code, answer


async def alter_topic(node: Node, client: Client, number: int) -> None:
    node.change([ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=str(10**6 + number))])


def isr_change(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        node.create_topic("t", size)
        topic_id = node.image.topics["t"].id
        for number in range(REPEATS + 1):
            with meter.elements(int(number > 0)):
                node.change([PartitionChangeRecord(partition_id=number % size, topic_id=topic_id, isr=[node.node_id])])

    in_broker(main)


def cluster_topics(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        for number in range(size):
            cluster.create_topic(f"topic-{number}", 1, 3)
        await settled(cluster)
        await asyncio.sleep(2)  # followers have asked for all of them
        for number in range(REPEATS + 1):
            with meter.elements(int(number > 0)):
                cluster.create_topic(f"new-{number}", 1, 3)
                await settled(cluster)

    in_cluster(main)


def snapshots(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("t", size, 3)
        await settled(cluster)
        with meter.elements(size):
            loop = asyncio.get_running_loop()
            loop.call_soon(snapshot, cluster)
            await asyncio.sleep(0.001)

    in_cluster(main)


# The life of a broker


def lives(what: str) -> Callable[[int, Meter], None]:
    """Return what measures a start or stop of a broker whose partitions have a record each, on a disk."""

    def measure(size: int, meter: Meter) -> None:
        async def main(loop: SimulatedLoop) -> None:
            with tempfile.TemporaryDirectory(prefix="bench-growth-") as root:
                node = await filled(loop, root, size)
                if what == "stop":
                    with meter.elements(size):
                        await node.stop()
                    return
                await (node.kill() if what == "crash" else node.stop())
                node = new_node(loop, new_disk(root))
                with meter.elements(size):
                    await node.start()
                await node.kill()

        run(main)

    return measure


async def filled(loop: SimulatedLoop, root: str, size: int) -> Node:
    node = new_node(loop, new_disk(root))
    await node.start()
    node.create_topic("t", size)
    for replica in node.replicas.values():
        replica.append(batch(), now_ms=START_MS, steady_ms=0)
    return node


def creation(size: int, meter: Meter) -> None:
    async def main(loop: SimulatedLoop) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-growth-") as root:
            node = new_node(loop, new_disk(root))
            await node.start()
            client = Client(node)
            Topic = CreateTopicsRequest.CreatableTopic
            topic = Topic(name="t", num_partitions=size, replication_factor=1, assignments=[], configs=[])
            with meter.elements(size):
                await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            await node.kill()

    run(main)


def connections(size: int, meter: Meter) -> None:
    """Each says who it is; then an hour passes in which they ask once more."""

    async def main(node: Node) -> None:
        frame = b"".join(encode_request(ApiVersionsRequest(), 3, 1, "bench"))
        node.servers[0].idle_ms = 10**9
        tracemalloc.start() if meter.counts_lines else None
        before = tracemalloc.get_traced_memory()[0]
        clients = []
        with meter.elements(size):
            for _ in range(size):
                client = NoSocket(node)
                client.feed(frame)
                clients.append(client)
                await asyncio.sleep(0)
        meter.bytes_each = (tracemalloc.get_traced_memory()[0] - before) / size
        tracemalloc.stop()
        for client in clients:
            client.close()

    in_broker(main)


def idle_connections(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        clients = [NoSocket(node) for _ in range(size)]
        frame = b"".join(encode_request(ApiVersionsRequest(), 3, 1, "bench"))
        for client in clients:
            client.feed(frame)
        with meter.elements(60 * size):
            await asyncio.sleep(60)
        for client in clients:
            client.close()

    in_broker(main)


def idle(size: int, meter: Meter) -> None:
    async def main(node: Node) -> None:
        node.create_topic("t", size)
        for replica in node.replicas.values():
            replica.append(batch(), now_ms=START_MS, steady_ms=0)
        await asyncio.sleep(60)
        with meter.elements(600 * size):
            await asyncio.sleep(600)

    in_broker(main)


# A cluster

BROKERS = 10


async def ten_brokers(cluster: Cluster, size: int) -> None:
    for number in range(BROKERS):
        cluster.create_topic(f"t{number}", size, 1)
        await asyncio.sleep(0)
    await settled(cluster)


def cluster_creation(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        with meter.elements(size * BROKERS):
            await ten_brokers(cluster, size)

    in_cluster(main, BROKERS)


def cluster_idle(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        await replicated(cluster, size)
        await asyncio.sleep(60)
        with meter.elements(60 * size * BROKERS):
            await asyncio.sleep(60)

    in_cluster(main, BROKERS)


def cluster_kill(size: int, meter: Meter) -> None:
    async def main(cluster: Cluster) -> None:
        await replicated(cluster, size)
        with meter.elements(size):
            await cluster.kill(4)
            await settled(cluster)

    in_cluster(main, BROKERS)


def follower(what: str) -> Callable[[int, Meter], None]:
    """Return what measures one follower of one leader, that gets all of its partitions or comes back to them."""

    def measure(size: int, meter: Meter) -> None:
        async def main(cluster: Cluster) -> None:
            with meter.elements(size) if what == "new" else contextlib.nullcontext():
                cluster.create_topic("t", assignments=[[2, 1]] * size)
                await settled(cluster)
                await asyncio.sleep(1)  # all are asked for
            if what == "new":
                return
            await cluster.kill(1)
            await settled(cluster)
            for replica in cluster.nodes[2].replicas.values():
                replica.append(batch(), now_ms=START_MS, steady_ms=0)
            with meter.elements(size):
                await cluster.start(1)
                await cluster.waits.in_sync()

        in_cluster(main, 2)

    return measure


async def replicated(cluster: Cluster, size: int) -> None:
    """Make so many replicas on each of the brokers, three of each partition."""
    for number in range(BROKERS):
        cluster.create_topic(f"t{number}", size // 3, 3)
    await settled(cluster)
    await asyncio.sleep(2)


SIZES = (10, 1_000, 9_000)  # Kafka takes no topic of more than 10,000 partitions
REPLICATED = (10, 1_000, 4_000)
MEMBERS = (10, 500, 2_000)
A_BROKER = (10, 100, 1_000)
LIFE = "partition"
ROWS = [
    Row("record to a consumer waiting for N partitions", "record", SIZES, delivery),
    Row("poll without news, session of N partitions", "poll", SIZES, idle_polls),
    Row("produce acks=all to N partitions, RF 3", "partition", REPLICATED, acks_all),
    Row("create a topic of N partitions, one follower", "partition", REPLICATED, follower("new")),
    Row("a follower of N partitions comes back", "partition", REPLICATED, follower("back")),
    Row("first batch of a new epoch in N partitions, RF 3, disk", "partition", A_BROKER, first_batches),
    Row("consumer group: N members join and settle", "member", MEMBERS, consumer_joins),
    Row("consumer group: heartbeat among N members", "heartbeat", MEMBERS, consumer_heartbeats),
    Row("classic group: N members join again", "member", MEMBERS, classic_joins),
    Row("N logs are truncated, disk", "log", A_BROKER, truncations),
    Row("N logs are compacted, disk", "log", A_BROKER, cleanings),
    Row("create a topic among N", "change", SIZES, change(create_plain)),
    Row("create a topic with settings among N", "change", SIZES, change(create_with_settings)),
    Row("create a topic with a dot among N", "change", SIZES, change(create_with_dot)),
    Row("alter a topic among N", "change", SIZES, change(alter_topic)),
    Row("delete a topic among N", "change", SIZES, change(delete)),
    Row("one ISR change in a topic of N partitions", "change", SIZES, isr_change),
    Row("create a topic among N, three brokers", "change", A_BROKER, cluster_topics),
    Row("picture of N partitions, RF 3", "partition", REPLICATED, snapshots),
    Row("create a topic of N partitions, disk", LIFE, SIZES, creation),
    Row("stop with N partitions, disk", LIFE, SIZES, lives("stop")),
    Row("start with N partitions, disk", LIFE, SIZES, lives("start")),
    Row("start with N partitions after a crash, disk", LIFE, SIZES, lives("crash")),
    Row("N partitions are idle", "partition and second", SIZES, idle),
    Row("N connections come", "connection", (10, 1_000, 5_000), connections),
    Row("N connections are idle", "connection and second", (10, 1_000, 5_000), idle_connections),
    Row("ten brokers of N partitions: create", "partition", A_BROKER, cluster_creation),
    Row("ten brokers of N replicas: idle", "replica and second", A_BROKER, cluster_idle),
    Row("ten brokers of N replicas: kill one", "replica", A_BROKER, cluster_kill),
]
