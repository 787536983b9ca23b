"""The Python clients of others, as turmoil.py wants them; each is imported when it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.cluster.turmoil import PATIENCE_S, TOPIC


class KafkaPython:
    def __init__(self, bootstrap_servers: str):
        self._common = {
            "bootstrap_servers": bootstrap_servers.split(","),
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 50,
        }
        self._producer: Any = None

    def send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        from kafka import KafkaProducer

        if self._producer is None:
            self._producer = KafkaProducer(**self._common, acks="all", enable_idempotence=True)
        futures = [self._producer.send(TOPIC, b"%d" % number, partition=partition) for partition, number in records]
        for (partition, number), future in zip(records, futures):
            acked(partition, number, future.get(timeout=PATIENCE_S).offset)

    def read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(**self._common)
        partitions = [TopicPartition(TOPIC, partition) for partition in counts]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        found: list[tuple[int, int, int]] = []
        while len(found) < sum(counts.values()):
            record = next(consumer)
            found.append((record.partition, record.offset, int(record.value)))
        consumer.close()
        return found

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()


class Confluent:
    def __init__(self, bootstrap_servers: str):
        self._common = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "topic.metadata.refresh.interval.ms": 50,  # else librdkafka looks once a second who leads
            "socket.nagle.disable": True,
            "log_level": 0,
        }
        self._producer: Any = None

    def send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        from confluent_kafka import Producer

        if self._producer is None:
            settings = {"enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
            self._producer = Producer({**self._common, **settings})
        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                acked(message.partition(), int(message.value()), message.offset())

        for partition, number in records:
            self._producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=delivered)
        left = self._producer.flush(PATIENCE_S)
        assert not left, (left, failures)
        assert not failures, (left, failures)

    def read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({**self._common, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in counts])
        found: list[tuple[int, int, int]] = []
        while len(found) < sum(counts.values()):
            for record in consumer.consume(500, 1):
                assert record.error() is None, record.error()
                found.append((record.partition(), record.offset(), int(record.value())))
        consumer.close()
        return found

    def close(self) -> None:
        pass


class Aiokafka:
    """It lives in a loop, which runs while it is called: between two calls its background work stands still."""

    def __init__(self, bootstrap_servers: str):
        self._common = {"bootstrap_servers": bootstrap_servers.split(","), "retry_backoff_ms": 20}
        self._loop = asyncio.new_event_loop()
        self._producer: Any = None

    def send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        self._run(self._send(records, acked))

    async def _send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        from aiokafka import AIOKafkaProducer

        if self._producer is None:
            self._producer = AIOKafkaProducer(**self._common, enable_idempotence=True)
            await self._producer.start()
        futures = [await self._producer.send(TOPIC, b"%d" % number, partition=each) for each, number in records]
        for (partition, number), future in zip(records, futures):
            acked(partition, number, (await future).offset)

    def read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        return self._run(self._read(counts))

    async def _read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(**self._common)
        await consumer.start()
        partitions = [TopicPartition(TOPIC, partition) for partition in counts]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        found: list[tuple[int, int, int]] = []
        while len(found) < sum(counts.values()):
            record = await consumer.getone()
            found.append((record.partition, record.offset, int(record.value)))
        await consumer.stop()
        return found

    def close(self) -> None:
        if self._producer is not None:
            self._run(self._producer.stop())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE_S))
