"""confluent-kafka, that is librdkafka."""

from __future__ import annotations

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from script import Difference, Record

READ_SECONDS_MAX = 20
STAY_SECONDS = 1.0  # at the end of a partition, where nothing comes


class Client:
    """Producers are made per call; the consumer is assigned by hand, its group is never joined."""

    version = confluent_kafka.__version__

    def __init__(self, bootstrap: str, variant: str) -> None:
        assert not variant
        self.common = {"bootstrap.servers": bootstrap}
        self.consumer = Consumer(
            {**self.common, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
            | {"auto.offset.reset": "error", "fetch.wait.max.ms": 100}
        )
        self.admin = AdminClient(self.common)

    def close(self) -> None:
        self.consumer.close()

    def produce(self, topic, partition, records, codec="none", acks=-1, idempotent=False):
        settings = {"compression.type": codec, "acks": acks, "enable.idempotence": idempotent}
        producer = Producer({**self.common, **settings, "message.max.bytes": 1_000_000, "linger.ms": 5})
        offsets = []

        def delivered(error, message):
            if error is not None:
                raise Difference(f"{topic}-{partition}: {error}")
            offsets.append(message.offset())

        for record in records:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp or 0,
                on_delivery=delivered,
            )
        left = producer.flush(READ_SECONDS_MAX)
        if left:
            raise Difference(f"{topic}-{partition}: {left} records not delivered in {READ_SECONDS_MAX} s")
        return offsets if acks else None

    def consume(self, topic, partition, first_offset, count):
        start = first_offset or confluent_kafka.OFFSET_BEGINNING
        self.consumer.assign([TopicPartition(topic, partition, start)])
        found, deadline = [], time.monotonic() + READ_SECONDS_MAX
        while len(found) < count:
            if time.monotonic() > deadline:
                raise Difference(f"{topic}-{partition}: {len(found)} of {count} records in {READ_SECONDS_MAX} s")
            for message in self.consumer.consume(count - len(found), timeout=0.5):
                if message.error() is not None:
                    raise Difference(f"{topic}-{partition}: {message.error()}")
                found.append(message)
        self.consumer.unassign()
        return [Record(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1], m.offset()) for m in found]

    def read_committed(self, topic, partition):
        """Read what is committed up to the end, and stay there; return it and where the end was met.

        The position is that behind the last message; only the end of a partition is told of behind what has none.
        """
        consumer = Consumer(
            {**self.common, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
            | {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
        found, end, deadline = [], None, time.monotonic() + READ_SECONDS_MAX
        while time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                if message.error() is None:
                    found.append(Record(message.key(), message.value(), offset=message.offset()))
                elif message.error().code() != KafkaError._PARTITION_EOF:
                    raise Difference(f"{topic}-{partition}: {message.error()}")
                elif end is None:
                    end, deadline = message.offset(), time.monotonic() + STAY_SECONDS
        consumer.close()
        return found, end

    def offsets(self, topic, partition):
        return self.consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_SECONDS_MAX)

    def offset_at(self, topic, partition, timestamp):
        (found,) = self.consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], READ_SECONDS_MAX)
        return None if found.offset == confluent_kafka.OFFSET_END else found.offset

    def create(self, topic, partitions, configs):
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=configs)])[topic].result(READ_SECONDS_MAX)

    def describe(self, topic):
        return list(self.admin.list_topics(topic, READ_SECONDS_MAX).topics[topic].partitions)

    def configs(self, topic):
        (future,) = self.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(READ_SECONDS_MAX).items()}

    def delete(self, topic):
        self.admin.delete_topics([topic])[topic].result(READ_SECONDS_MAX)

    def topics(self):
        return self.admin.list_topics(timeout=READ_SECONDS_MAX).topics
