"""Groups and offsets in one log directory, two brokers in turn: we, a real Kafka 4.x, we again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Groups
from tests.interop.broker import running

# kafka-python reads its own files in a way that Python has deprecated.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOPIC = "orders"
Committed = dict[str, dict[tuple[str, int], tuple[int, str]]]


def ask(address: str, what: Any) -> Any:
    async def asked() -> Any:
        async with Cluster(address) as cluster:
            return await what(Groups(cluster))

    return asyncio.run(asked())


def committed(address: str, *also: str) -> Committed:
    """Return what each group has committed, offset and text; also: who is asked for even if not listed yet."""

    async def look(groups: Groups) -> Committed:
        # A Kafka that has just started lists nothing; asked for a group it says that it is still reading.
        await groups.fetch_offsets(also)
        names = [each.id for each in await groups.list_groups()]
        found = await groups.fetch_offsets(names)
        return {
            name: {place: (each.offset, each.metadata) for place, each in places.items()}
            for name, places in found.items()
            if places
        }

    result: Committed = ask(address, look)
    return result


def kinds(address: str) -> dict[str, str]:
    found: dict[str, str] = ask(address, lambda groups: _kinds(groups))
    return found


async def _kinds(groups: Groups) -> dict[str, str]:
    return {each.id: each.type.lower() for each in await groups.list_groups()}


def fill(address: str, count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(count):
        producer.send(TOPIC, b"%d" % number, partition=number % 2)
    producer.flush()
    producer.close()


def consume_with_confluent(address: str, group: str, count: int, **settings: str) -> None:
    """Read so many records and commit, as a member that leaves in the end."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", **settings},
    )
    consumer.subscribe([TOPIC])
    while count:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            count -= 1
    consumer.commit(asynchronous=False)
    consumer.close()


def commit_outside(address: str, group: str, offset: int) -> None:
    ask(address, lambda groups: groups.alter_offsets(group, {(TOPIC, 0): offset, (TOPIC, 1): offset + 1}))


def test_groups_go_from_us_to_kafka_and_back(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with Broker(data_dir=root, offsets_topic_num_partitions=3) as ours:
        ours.create_topic(TOPIC, 2)
        fill(ours.bootstrap_servers, 20)
        consume_with_confluent(ours.bootstrap_servers, "classic", 20)
        consume_with_confluent(ours.bootstrap_servers, "modern", 20, **{"group.protocol": "consumer"})
        commit_outside(ours.bootstrap_servers, "simple", 4)
        ask(ours.bootstrap_servers, lambda groups: groups.delete_offsets("simple", [(TOPIC, 1)]))
        left, left_kinds = committed(ours.bootstrap_servers), kinds(ours.bootstrap_servers)
    assert left["simple"] == {(TOPIC, 0): (4, "")}
    assert left_kinds == {"classic": "classic", "modern": "consumer", "simple": "classic"}

    with running(root, tmp_path / "kafka") as kafka:
        assert committed(kafka.address, *left) == left
        assert kinds(kafka.address) == left_kinds
        fill(kafka.address, 10)
        consume_with_confluent(kafka.address, "classic", 10)
        consume_with_confluent(kafka.address, "modern", 10, **{"group.protocol": "consumer"})
        consume_with_confluent(kafka.address, "theirs", 30)
        ask(kafka.address, lambda groups: groups.delete_groups(["simple"]))
        left, left_kinds = committed(kafka.address), kinds(kafka.address)
        kafka.stop()
    assert left.keys() == {"classic", "modern", "theirs"}

    with Broker(data_dir=root) as ours:
        assert committed(ours.bootstrap_servers) == left
        assert kinds(ours.bootstrap_servers) == left_kinds
        fill(ours.bootstrap_servers, 4)
        consume_with_confluent(ours.bootstrap_servers, "modern", 4, **{"group.protocol": "consumer"})
        left, left_kinds = committed(ours.bootstrap_servers), kinds(ours.bootstrap_servers)

    with running(root, tmp_path / "kafka") as kafka:
        assert committed(kafka.address, *left) == left
        assert kinds(kafka.address) == left_kinds
        kafka.kill()
    with Broker(data_dir=root) as ours:
        assert committed(ours.bootstrap_servers) == left
        assert kinds(ours.bootstrap_servers) == left_kinds
