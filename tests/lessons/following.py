"""A consumer that follows a partition from its beginning and prints it: `python following.py LIBRARY ADDRESS TOPIC`.

It runs in a process of its own, so that it can be stopped (SIGSTOP), and in the version that PYTHONPATH names.
"""

from __future__ import annotations

import asyncio
import sys


def tell(offset: int, value: bytes) -> None:
    print(offset, value.decode(), flush=True)


def by_kafka_python(address: str, topic: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="latest", metadata_max_age_ms=1000)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    while True:
        for row in consumer.poll(100).get(place, []):
            tell(row.offset, row.value)


def by_librdkafka(address: str, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        row = consumer.poll(0.1)
        if row is not None and row.error() is None:
            tell(row.offset(), row.value())


async def by_aiokafka(address: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async with AIOKafkaConsumer(bootstrap_servers=address, metadata_max_age_ms=1000) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        async for row in consumer:
            tell(row.offset, row.value)


if __name__ == "__main__":
    library, address, topic = sys.argv[1:]
    if library == "aiokafka":
        asyncio.run(by_aiokafka(address, topic))
    else:
        {"kafka-python": by_kafka_python, "librdkafka": by_librdkafka}[library](address, topic)
