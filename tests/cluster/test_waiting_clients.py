"""Consumers of others, who wait for long, have each record when it comes: with real clocks and sockets.

A fetch may wait for a minute here. A record that came only when that is over would be too late by far; the deadline
below is for machines that are busy, and says nothing of how fast it is (`make bench-cluster` does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOPIC = "orders"
FETCH_WAIT_MS = 60_000
DEADLINE_S = 20
Receive = Callable[[], bytes | None]  # the next record; None: none came before the deadline


@contextmanager
def librdkafka(bootstrap_servers: str) -> Iterator[Receive]:
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readers",
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "socket.timeout.ms": 2 * FETCH_WAIT_MS,
            "log_level": 0,
        }
    )
    consumer.assign([confluent.TopicPartition(TOPIC, 0, 0)])

    def receive() -> bytes | None:
        message = consumer.poll(DEADLINE_S)
        assert message is None or message.error() is None, message.error()
        return None if message is None else message.value()

    yield receive
    consumer.close()


@contextmanager
def kafka_python(bootstrap_servers: str) -> Iterator[Receive]:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        request_timeout_ms=2 * FETCH_WAIT_MS,
        session_timeout_ms=10_000,
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)

    def receive() -> bytes | None:
        for records in consumer.poll(DEADLINE_S * 1000, max_records=1).values():
            return bytes(records[0].value)
        return None

    yield receive
    consumer.close()


CLIENTS: dict[str, Callable[[str], Any]] = {"librdkafka": librdkafka, "kafka-python": kafka_python}


def produce(cluster: Cluster, value: bytes, acks: int = -1) -> None:
    async def send() -> None:
        async with Client(cluster.bootstrap_servers) as client, Producer(client, acks=acks) as producer:
            await producer.send(TOPIC, value, partition=0)

    asyncio.run(send())


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_consumer_that_waits_has_each_record_when_it_comes(client: str, replicas: int) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic(TOPIC, 1, replication_factor=replicas)
        cluster.wait_in_sync()
        with CLIENTS[client](cluster.bootstrap_servers) as receive:
            for number in range(4):
                value = b"%d" % number
                produce(cluster, value, acks=-1 if number % 2 else 1)
                assert receive() == value


@pytest.mark.parametrize("client", CLIENTS)
def test_a_consumer_that_waits_finds_the_new_leader(client: str) -> None:
    with Cluster(3) as cluster:
        cluster.create_topic(TOPIC, 1, replication_factor=3)
        cluster.wait_in_sync()
        with CLIENTS[client](cluster.bootstrap_servers) as receive:
            for number in range(3):
                value = b"%d" % number
                produce(cluster, value)
                assert receive() == value
                cluster.move_leader(TOPIC, 0, cluster.leader(TOPIC, 0) % 3 + 1)
