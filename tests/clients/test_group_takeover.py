"""What confluent-kafka sees when somebody else takes its place in a group, or when the group changes its protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from minibroker import Broker

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, KafkaException, Message, Producer

TOPIC, PARTITIONS = "taken", 4
POLLS_MAX = 300  # of a tenth of a second


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"group.consumer.assignment.interval.ms": 0, "group.consumer.min.heartbeat.interval.ms": 100}
    settings["group.consumer.heartbeat.interval.ms"] = 100
    with Broker(topics=f"{TOPIC}:{PARTITIONS}", config=settings) as broker:
        yield broker


class Reader:
    """A consumer, and what it has read."""

    def __init__(self, broker: Broker, **settings: str):
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "log_level": 0,
                **settings,
            }
        )
        self.consumer.subscribe([TOPIC])
        self.values: list[bytes] = []
        self.failure: Any = None

    def poll(self) -> None:
        try:
            message: Message | None = self.consumer.poll(0.1)
        except KafkaException as failure:
            self.failure = failure.args[0]
            return
        if message is not None and message.error() is not None:
            self.failure = message.error()
        elif message is not None:
            self.values.append(message.value())

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def write(broker: Broker, first: int, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return set(values)


def poll_until(readers: list[Reader], is_done: Any) -> None:
    for _ in range(POLLS_MAX):
        if is_done():
            return
        for reader in readers:
            reader.poll()
    pytest.fail(f"after {POLLS_MAX} rounds: {[(each.partitions, len(each.values), each.failure) for each in readers]}")


@pytest.mark.interop
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_comes_with_the_name_of_another_that_lives(broker: Broker, protocol: str) -> None:
    """The classic protocol gives the newcomer the place, and fences the other; the consumer protocol refuses it."""
    wanted = write(broker, 0, 20)
    with ExitStack() as stack:
        first = Reader(broker, **{"group.instance.id": "one", "group.protocol": protocol})
        stack.callback(first.consumer.close)
        poll_until([first], lambda: set(first.values) == wanted)
        second = Reader(broker, **{"group.instance.id": "one", "group.protocol": protocol})
        stack.callback(second.consumer.close)
        loser, stays = (first, second) if protocol == "classic" else (second, first)
        poll_until([first, second], lambda: loser.failure is not None and stays.partitions == set(range(PARTITIONS)))
        fenced = "fenced by other consumer with same group.instance.id"
        unreleased = "instance ID is still used by another member"
        assert (fenced if protocol == "classic" else unreleased) in loser.failure.str()
        stays.values.clear()
        more = write(broker, 100, 20)
        poll_until([stays], lambda: more <= set(stays.values))
        assert stays.failure is None


@pytest.mark.interop
def test_a_group_changes_its_protocol_while_it_reads(broker: Broker) -> None:
    """Members move one after the other from the classic protocol to the consumer protocol, and back; all is read."""
    wanted = write(broker, 0, 20)
    with ExitStack() as stack:
        old = Reader(broker, **{"partition.assignment.strategy": "cooperative-sticky"})
        stack.callback(old.consumer.close)
        poll_until([old], lambda: set(old.values) == wanted)
        new = Reader(broker, **{"group.protocol": "consumer"})
        stack.callback(new.consumer.close)
        poll_until([old, new], lambda: len(old.partitions) == len(new.partitions) == PARTITIONS // 2)
        assert broker.group("readers").type == "Consumer"
        wanted |= write(broker, 100, 20)
        poll_until([old, new], lambda: wanted <= {*old.values, *new.values})
        old.consumer.close()
        poll_until([new], lambda: len(new.partitions) == PARTITIONS)
        wanted |= write(broker, 200, 20)
        poll_until([new], lambda: wanted <= {*old.values, *new.values})
        again = Reader(broker, **{"partition.assignment.strategy": "cooperative-sticky"})
        stack.callback(again.consumer.close)
        poll_until([new, again], lambda: len(new.partitions) == len(again.partitions) == PARTITIONS // 2)
        new.consumer.close()
        poll_until([again], lambda: len(again.partitions) == PARTITIONS)
        assert broker.group("readers").type == "Classic"
        wanted |= write(broker, 300, 20)
        poll_until([again], lambda: wanted <= {*old.values, *new.values, *again.values})
