"""The clients of others work with an embedded broker."""

from __future__ import annotations

import pytest

from minibroker import Broker

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_kafka_python_produces_and_consumes(kafka: Broker) -> None:
    kafka_python = pytest.importorskip("kafka")
    kafka.create_topic("orders")
    producer = kafka_python.KafkaProducer(**kafka.client_config("kafka-python"))
    producer.send("orders", b"hello", key=b"key", headers=[("a", b"b")])
    producer.close()
    (record,) = kafka.wait_records("orders", 1)
    assert (record.key, record.value, record.headers) == (b"key", b"hello", (("a", b"b"),))
    consumer = kafka_python.KafkaConsumer(**kafka.client_config("kafka-python"))
    partition = kafka_python.TopicPartition("orders", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert next(consumer).value == b"hello"
    consumer.close()


async def test_aiokafka_produces_and_consumes_in_the_loop_of_the_broker() -> None:
    aiokafka = pytest.importorskip("aiokafka")
    async with Broker(topics="orders") as broker:
        async with aiokafka.AIOKafkaProducer(**broker.client_config("aiokafka")) as producer:
            await producer.send_and_wait("orders", b"hello", key=b"key")
        assert [record.value for record in broker.records("orders")] == [b"hello"]
        consumer = aiokafka.AIOKafkaConsumer(**broker.client_config("aiokafka"))
        await consumer.start()
        partition = aiokafka.TopicPartition("orders", 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        assert (await consumer.getone()).value == b"hello"
        await consumer.stop()


def test_a_consumer_of_librdkafka_notices_nothing_of_a_week_but_what_retention_took(kafka: Broker) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    kafka.create_topic("orders", retention_ms=86_400_000)
    heard: list[str] = []
    consumer = confluent.Consumer(
        {**kafka.client_config("confluent"), "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(
        ["orders"],
        on_assign=lambda *_: heard.append("assign"),
        on_revoke=lambda *_: heard.append("revoke"),
        on_lost=lambda *_: heard.append("lost"),
    )
    producer = confluent.Producer(kafka.client_config("confluent"))
    for value in (b"before", b"after"):
        producer.produce("orders", value)
        producer.flush()
        while (message := consumer.poll(0.1)) is None:
            pass
        assert message.error() is None
        assert message.value() == value
        consumer.commit(message, asynchronous=False)
        kafka.advance("8d")
        assert kafka.records("orders") == []
    assert kafka.group("readers").state == "Stable"
    assert kafka.wait_committed("readers", "orders", offset=2) == 2
    assert heard == ["assign"]
    consumer.close()
