"""aiokafka, driven from one event loop that runs only while a method waits."""

from __future__ import annotations

import asyncio
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from script import Difference, Record

READ_SECONDS_MAX = 20
STAY_SECONDS = 1.0  # at the end of a partition, where nothing comes


class Client:
    """Producers and consumers are made per call: each is bound to what it was made for."""

    version = aiokafka.__version__

    def __init__(self, bootstrap: str, variant: str) -> None:
        assert not variant
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete
        self.consumer = self.run(self.start(AIOKafkaConsumer, enable_auto_commit=False, fetch_max_wait_ms=100))
        self.admin = None

    async def start(self, kind, **settings):
        made = kind(bootstrap_servers=self.bootstrap, **settings)
        await made.start()
        return made

    def close(self) -> None:
        self.run(self.consumer.stop())
        if self.admin is not None:
            self.run(self.admin.close())
        self.loop.close()

    def produce(self, topic, partition, records, codec="none", acks=-1, idempotent=False):
        async def send():
            producer = await self.start(
                AIOKafkaProducer,
                acks="all" if acks == -1 else acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=5,
            )
            try:
                futures = [
                    await producer.send(
                        topic,
                        key=record.key,
                        value=record.value,
                        partition=partition,
                        timestamp_ms=record.timestamp,
                        headers=list(record.headers),
                    )
                    for record in records
                ]
                await producer.flush()
                return [(await future).offset for future in futures] if acks else None
            finally:
                await producer.stop()

        return self.run(send())

    def consume(self, topic, partition, first_offset, count):
        place = TopicPartition(topic, partition)

        async def read():
            self.consumer.assign([place])
            self.consumer.seek(place, first_offset)
            if not first_offset:
                await self.consumer.seek_to_beginning(place)
            found, deadline = [], time.monotonic() + READ_SECONDS_MAX
            while len(found) < count:
                if time.monotonic() > deadline:
                    raise Difference(f"{topic}-{partition}: {len(found)} of {count} records in {READ_SECONDS_MAX} s")
                found += (await self.consumer.getmany(place, timeout_ms=500)).get(place, [])
            return found

        return [Record(r.key, r.value, tuple(r.headers), r.timestamp, r.offset) for r in self.run(read())]

    def read_committed(self, topic, partition):
        """Read what is committed up to the end, and stay there; return it and where the consumer is."""
        place = TopicPartition(topic, partition)

        async def read():
            consumer = await self.start(
                AIOKafkaConsumer,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
            )
            try:
                consumer.assign([place])
                found, (end,) = [], (await consumer.end_offsets([place])).values()
                deadline = time.monotonic() + READ_SECONDS_MAX
                while await consumer.position(place) < end and time.monotonic() < deadline:
                    found += (await consumer.getmany(place, timeout_ms=100)).get(place, [])
                deadline = time.monotonic() + STAY_SECONDS
                while time.monotonic() < deadline:
                    found += (await consumer.getmany(place, timeout_ms=100)).get(place, [])
                return [Record(r.key, r.value, offset=r.offset) for r in found], await consumer.position(place)
            finally:
                await consumer.stop()

        return self.run(read())

    def offsets(self, topic, partition):
        place = TopicPartition(topic, partition)
        earliest, end = self.run(self.consumer.beginning_offsets([place])), self.run(self.consumer.end_offsets([place]))
        return earliest[place], end[place]

    def offset_at(self, topic, partition, timestamp):
        place = TopicPartition(topic, partition)
        found = self.run(self.consumer.offsets_for_times({place: timestamp}))[place]
        return None if found is None else found.offset

    def make_admin(self):
        if self.admin is None:
            self.admin = self.run(self.start(AIOKafkaAdminClient))
        return self.admin

    def create(self, topic, partitions, configs):
        answer = self.run(self.make_admin().create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]))
        assert [error[1] for error in answer.topic_errors] == [0], answer

    def describe(self, topic):
        (found,) = self.run(self.make_admin().describe_topics([topic]))
        return [partition["partition"] for partition in found["partitions"]]

    def configs(self, topic):
        answer = self.run(self.make_admin().describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        return {entry[0]: entry[1] for response in answer for resource in response.resources for entry in resource[4]}

    def delete(self, topic):
        answer = self.run(self.make_admin().delete_topics([topic]))
        assert [error for _, error in answer.topic_error_codes] == [0], answer

    def topics(self):
        return self.run(self.make_admin().list_topics())
