"""Transactions of aiokafka, each object with an event loop of its own, which runs while one of its methods waits."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

VERSION = aiokafka.__version__


async def opened(bootstrap, transactional_id, timeout_ms):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        retry_backoff_ms=20,
    )
    await producer.start()
    return producer


class Producer:
    def __init__(self, bootstrap, transactional_id, timeout_ms):
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete
        self.producer = self.run(opened(bootstrap, transactional_id, timeout_ms))

    def begin(self):
        self.run(self.producer.begin_transaction())

    def send(self, topic, values):
        async def send():
            for each in [await self.producer.send(topic, value, partition=0) for value in values]:
                await each

        self.run(send())

    def offset(self, group, topic, at):
        self.run(self.producer.send_offsets_to_transaction({TopicPartition(topic, 0): at}, group))

    def commit(self):
        self.run(self.producer.commit_transaction())

    def abort(self):
        self.run(self.producer.abort_transaction())

    def close(self):
        self.run(self.producer.stop())
        self.loop.close()


class Copy:
    def __init__(self, bootstrap, transactional_id, group, source, target):
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete
        self.group, self.source, self.target = group, source, target
        self.consumer = self.producer = None
        self.run(self.start(bootstrap, transactional_id))

    async def start(self, bootstrap, transactional_id):
        self.producer = await opened(bootstrap, transactional_id, 20_000)
        self.consumer = AIOKafkaConsumer(
            self.source,
            bootstrap_servers=bootstrap.split(","),
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
            heartbeat_interval_ms=300,
            retry_backoff_ms=20,
        )
        await self.consumer.start()

    def poll(self):
        found = self.run(self.consumer.getmany(timeout_ms=100, max_records=20))
        return [record for records in found.values() for record in records]

    def write(self, records, commits):
        self.run(self._write(records, commits))

    async def _write(self, records, commits):
        await self.producer.begin_transaction()
        offsets = {}
        for each in records:
            await self.producer.send(self.target, each.value, partition=each.partition)
            offsets[TopicPartition(each.topic, each.partition)] = each.offset + 1
        await self.producer.send_offsets_to_transaction(offsets, self.group)
        await self.producer.flush()  # an abort would keep back what has not been sent yet
        if commits:
            await self.producer.commit_transaction()
            return
        await self.producer.abort_transaction()
        for place in offsets:
            self.consumer.seek(place, await self.consumer.committed(place) or 0)

    def close(self):
        self.run(self._close())
        self.loop.close()

    async def _close(self):
        await self.consumer.stop()
        await self.producer.stop()
