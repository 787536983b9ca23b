"""A cluster of ours, one of real Kafka on the same directories, ours again: each goes on where the other stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from minibroker import Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Consumer, Producer
from minibroker.cluster.controller_server import NODE_ID
from minibroker.errors import KafkaError
from tests.interop.broker import Broker, free_ports, launched

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC, PARTITIONS, BROKERS = "orders", 3, (1, 2, 3)


@contextmanager
def real_cluster(root: Path, work: Path) -> Iterator[list[Broker]]:
    """Start a controller and three brokers of Kafka on the directories of a cluster of ours."""
    ports = free_ports(1 + len(BROKERS))
    common = f"""\
controller.quorum.voters={NODE_ID}@127.0.0.1:{ports[0]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=300
"""
    controller = f"""\
process.roles=controller
node.id={NODE_ID}
listeners=CONTROLLER://127.0.0.1:{ports[0]}
log.dirs={root}/controller
{common}"""
    with ExitStack() as stack:
        head = stack.enter_context(launched(controller, work / "controller", ports[0]))
        brokers = [
            stack.enter_context(
                launched(
                    f"process.roles=broker\nnode.id={broker}\nlisteners=PLAINTEXT://127.0.0.1:{ports[broker]}\n"
                    f"log.dirs={root}/broker-{broker}\n{common}",
                    work / f"broker-{broker}",
                    ports[broker],
                )
            )
            for broker in BROKERS
        ]
        for each in (head, *brokers):
            each.wait_until_ready()
        yield brokers
        for each in brokers:
            each.stop()
        head.stop()


async def write(servers: str, first: int, count: int) -> None:
    async with Client(servers) as client, Producer(client, idempotent=True) as producer:
        for number in range(first, first + count):
            await producer.enqueue(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        await producer.flush()


async def read(servers: str, count: int) -> list[int]:
    """Return the numbers of so many records, each partition in its order."""
    found: list[int] = []
    async with Client(servers) as client, Consumer(client) as consumer:
        await consumer.assign([(TOPIC, partition, "earliest") for partition in range(PARTITIONS)])
        while len(found) < count:
            try:
                found += [int(record.value or b"") for record in await consumer.fetch(max_wait_ms=500)]
            except KafkaError as error:
                assert error.code.retriable, error
    return found


async def test_kafka_goes_on_with_our_cluster_and_we_with_kafkas(tmp_path: Path) -> None:
    root, work = tmp_path / "data", tmp_path / "work"
    work.mkdir()
    async with Cluster(len(BROKERS), data_dir=root, topics=[f"{TOPIC}:{PARTITIONS}"]) as cluster:
        await write(cluster.bootstrap_servers, 0, 300)
        await cluster.akill(2)  # so that there is more than one epoch
        await write(cluster.bootstrap_servers, 300, 100)
        await cluster.astart_broker(2)
        await cluster.await_in_sync()
    with real_cluster(root, work) as brokers:
        servers = ",".join(broker.address for broker in brokers)
        assert sorted(await read(servers, 400)) == list(range(400))
        await write(servers, 400, 100)
    async with Cluster(len(BROKERS), data_dir=root) as cluster:
        await cluster.await_in_sync()
        assert await cluster.atopics() == {TOPIC: PARTITIONS}
        await write(cluster.bootstrap_servers, 500, 100)
        numbers = await read(cluster.bootstrap_servers, 600)
        assert sorted(numbers) == list(range(600))
        for partition in range(PARTITIONS):
            own = [number for number in numbers if number % PARTITIONS == partition]
            assert own == sorted(own)
