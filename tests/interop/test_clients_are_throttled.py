"""Real clients above their limits: they get on as fast as these let them, and say that they were throttled."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from minibroker import Broker
from tests.interop.golden_quotas import altering
from tests.interop.test_tools_of_quotas import ask

confluent = pytest.importorskip("confluent_kafka")
kafka_python = pytest.importorskip("kafka")

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LIMIT, COUNT, VALUE_BYTES = 200_000, 150, 10_000
SAMPLES = 3  # of a second each: so much may be taken at once, and so long it may then take until there is more
FETCHED_BYTES = 4 * (VALUE_BYTES + 100)  # some whole batches: what is cut off is counted, too


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics=["t:1"], config={"quota.window.num": SAMPLES}) as broker:
        yield broker


def limit(broker: Broker, **limits: float) -> None:
    ask(broker.bootstrap_servers, altering([([("client-id", "limited")], list(limits.items()))]))


def check(begun: float) -> None:
    took_s, even_s = time.monotonic() - begun, COUNT * VALUE_BYTES / LIMIT
    assert even_s - SAMPLES < took_s < even_s + SAMPLES + 1


def fill(broker: Broker) -> None:
    # A batch that is more than a whole window allows would never come, as with Kafka.
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for _ in range(COUNT):
        producer.produce("t", bytes(VALUE_BYTES))
    assert producer.flush(10) == 0


def test_confluent_kafka_produces_as_fast_as_it_may(broker: Broker) -> None:
    limit(broker, producer_byte_rate=LIMIT)
    throttled: list[float] = []
    producer = confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "limited",
            "batch.num.messages": 1,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    begun = time.monotonic()
    for _ in range(COUNT):
        producer.produce("t", bytes(VALUE_BYTES))
    assert producer.flush(30) == 0
    check(begun)
    assert throttled


def test_confluent_kafka_consumes_as_fast_as_it_may(broker: Broker) -> None:
    fill(broker)
    limit(broker, consumer_byte_rate=LIMIT)
    throttled: list[float] = []
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "limited",
            "group.id": "g",
            "fetch.max.bytes": 50_000,
            "max.partition.fetch.bytes": FETCHED_BYTES,
            "message.max.bytes": 50_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    consumer.assign([confluent.TopicPartition("t", 0, 0)])
    begun = time.monotonic()
    found = 0
    while found < COUNT and time.monotonic() - begun < 30:
        found += len(consumer.consume(10, 0.2))
    consumer.close()
    assert found == COUNT
    check(begun)
    assert throttled


def test_kafka_python_produces_as_fast_as_it_may(broker: Broker) -> None:
    limit(broker, producer_byte_rate=LIMIT)
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, client_id="limited", batch_size=0, max_block_ms=30_000
    )
    begun = time.monotonic()
    sent = [producer.send("t", bytes(VALUE_BYTES)) for _ in range(COUNT)]
    producer.flush(30)
    check(begun)
    assert sent[-1].get(1).offset == COUNT - 1
    producer.close()


def test_kafka_python_consumes_as_fast_as_it_may(broker: Broker) -> None:
    fill(broker)
    limit(broker, consumer_byte_rate=LIMIT)
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        client_id="limited",
        max_partition_fetch_bytes=FETCHED_BYTES,
        fetch_max_bytes=50_000,
        auto_offset_reset="earliest",
        group_id=None,
    )
    consumer.assign([kafka_python.TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    begun = time.monotonic()
    found = 0
    while found < COUNT and time.monotonic() - begun < 30:
        found += sum(map(len, consumer.poll(200).values()))
    consumer.close()
    assert found == COUNT
    check(begun)
