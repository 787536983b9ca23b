"""Lessons about bytes with clients that people use: what they send stays as it is, or is written anew, as is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from minibroker.events import EventStream
from minibroker.lessons import load
from minibroker.lessons.commands import parse_command
from minibroker.lessons.running import Player, new_clock
from minibroker.lessons.stage import Stage
from minibroker.log.compression import GZIP
from minibroker.log.partition_log import PartitionLog
from minibroker.tools.appended import append, as_sent

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # kafka-python's
]

HANG_S = 30  # bounds a hang, and nothing else
FORMATS = {"old": 0, "mid": 1, "new": 2}
THREE = [b"value %d that is much like the others" % number for number in range(3)]


@asynccontextmanager
async def topics_of_all_formats() -> AsyncIterator[Stage]:
    clock = new_clock()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1))
    try:
        for line in (
            "start 1 brokers as=2.8",
            "topic old message.format.version=0.9.0",
            "topic mid message.format.version=0.10.2",
            "topic new",
            "thaw",
        ):
            await stage.do(parse_command(line))
        yield stage
    finally:
        await stage.close()


def log_of(stage: Stage, topic: str) -> PartitionLog:
    replica = stage.on.replica(topic, 0, 1)
    assert replica is not None
    return replica.log


def by_kafka_python(address: str, topic: str, **settings: Any) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type="gzip",
        linger_ms=2000,
        acks="all",
        enable_idempotence=False,
        **settings,
    )
    sent = [producer.send(topic, value, partition=0) for value in THREE]
    producer.flush(HANG_S)
    for each in sent:
        each.get(HANG_S)
    producer.close()


def by_librdkafka(address: str, topic: str, **settings: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "compression.type": "gzip", "linger.ms": 2000, **settings})
    for value in THREE:
        producer.produce(topic, value, partition=0)
    assert producer.flush(HANG_S) == 0


# A client, which format it sends, and how it is told to.
PRODUCERS: dict[str, tuple[Callable[..., None], int, dict[str, Any]]] = {
    "kafka-python as of 0.9": (by_kafka_python, 0, {"api_version": (0, 9)}),
    "kafka-python as of 0.10": (by_kafka_python, 1, {"api_version": (0, 10, 0)}),
    "kafka-python": (by_kafka_python, 2, {}),
    "librdkafka": (by_librdkafka, 2, {}),
}


@pytest.mark.parametrize("topic", FORMATS)
@pytest.mark.parametrize("name", PRODUCERS)
async def test_what_producers_pack_stays_as_it_is_where_the_lesson_says_so(name: str, topic: str) -> None:
    produce, sent_format, settings = PRODUCERS[name]
    async with topics_of_all_formats() as stage:
        await asyncio.to_thread(produce, stage.on.bootstrap_servers, topic, **settings)
        log, own_format = log_of(stage, topic), FORMATS[topic]
        (batch,) = log.active.batches()
        assert (batch.magic, batch.codec, batch.last_offset) == (own_format, GZIP, 2)
        assert [record.value for record in batch.records()] == THREE
        is_same = sent_format == own_format
        in_place = is_same and own_format > 0
        # Of v0 each number within is the leader's to write, so it packs again what has the right format already.
        counts = (1, 0, 0) if in_place else (0, 3, 3 if is_same else 0)
        assert (log.batches_in_place, log.records_converted, log.records_recompressed) == counts
        if in_place:
            stored = bytes(batch.view)
            epoch = batch.partition_leader_epoch
            assert append(as_sent(stored), message_format=own_format, leader_epoch=epoch).data == stored


def read_by_kafka_python(address: str, topic: str, start: int, **settings: Any) -> list[tuple[int, bytes]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer, place = KafkaConsumer(bootstrap_servers=address, **settings), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, start)
    rows: list[tuple[int, bytes]] = []
    while len(rows) < len(THREE) - start:
        rows += [(row.offset, row.value) for row in consumer.poll(500).get(place, [])]
    consumer.close()
    return rows


def read_by_librdkafka(address: str, topic: str, start: int, **settings: Any) -> list[tuple[int, bytes]]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, start)])
    rows: list[tuple[int, bytes]] = []
    while len(rows) < len(THREE) - start:
        row = consumer.poll(0.5)
        if row is not None and row.error() is None:
            rows.append((row.offset(), row.value()))
    consumer.close()
    return rows


READERS: dict[str, tuple[Callable[..., list[tuple[int, bytes]]], dict[str, Any]]] = {
    "kafka-python as of 0.9": (read_by_kafka_python, {"api_version": (0, 9)}),
    "kafka-python as of 0.10": (read_by_kafka_python, {"api_version": (0, 10, 0)}),
    "kafka-python": (read_by_kafka_python, {}),
    "librdkafka": (read_by_librdkafka, {}),
}


@pytest.mark.parametrize("topic", FORMATS)
@pytest.mark.parametrize("name", READERS)
async def test_consumers_pass_over_what_comes_before_in_a_packed_batch(name: str, topic: str) -> None:
    read, settings = READERS[name]
    async with topics_of_all_formats() as stage:
        texts = " ".join(f'"{value.decode()}"' for value in THREE)
        await stage.do(parse_command(f"produce {topic}-0 {texts} format={FORMATS[topic]} codec=gzip"))
        rows = await asyncio.wait_for(asyncio.to_thread(read, stage.on.bootstrap_servers, topic, 1, **settings), HANG_S)
        assert rows == [(1, THREE[1]), (2, THREE[2])]
        # A consumer that knows only older formats gets them, made for it.
        is_older = (name.endswith("0.9") and FORMATS[topic] > 0) or (name.endswith("0.10") and FORMATS[topic] > 1)
        assert (log_of(stage, topic).batches_converted_for_fetch > 0) == is_older


def found_by_kafka_python(address: str, topic: str, timestamp: int) -> int:
    from kafka import KafkaConsumer, TopicPartition

    consumer, place = KafkaConsumer(bootstrap_servers=address), TopicPartition(topic, 0)
    found = consumer.offsets_for_times({place: timestamp})[place]
    consumer.close()
    offset: int = found.offset
    return offset


def found_by_librdkafka(address: str, topic: str, timestamp: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], HANG_S)
    consumer.close()
    offset: int = found.offset
    return offset


@pytest.mark.parametrize("find", [found_by_kafka_python, found_by_librdkafka])
async def test_a_time_leads_clients_where_the_lesson_says(find: Callable[..., int]) -> None:
    clock = new_clock()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1))
    player = Player(load("finding-an-offset"), stage)
    try:
        for step in player.scenario.steps[:4]:
            assert not (await player.play(step)).failures
        since_ms = clock.now_ms() - 49_000
        address = stage.on.bootstrap_servers
        assert await asyncio.wait_for(asyncio.to_thread(find, address, "orders", since_ms), HANG_S) == 150
    finally:
        await stage.close()
