"""Group members of aiokafka, each with an event loop of its own, which runs while one of its methods waits."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

VERSION = aiokafka.__version__
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):
    def __init__(self, assigned, revoked):
        self.assigned, self.revoked = assigned, revoked

    async def on_partitions_assigned(self, assigned):
        self.assigned(place.partition for place in assigned)

    async def on_partitions_revoked(self, revoked):
        self.revoked(place.partition for place in revoked)


class Member:
    def __init__(self, bootstrap, variant, settings, assigned, revoked):
        assert not variant
        self.topic = settings["topic"]
        self.loop = asyncio.new_event_loop()
        self.run = self.loop.run_until_complete
        self.run(self.start(bootstrap, settings, Listener(assigned, revoked)))

    async def start(self, bootstrap, settings, listener):
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=settings["group"],
            group_instance_id=settings.get("instance"),
            partition_assignment_strategy=[ASSIGNORS[settings["assignor"]]],
            session_timeout_ms=int(settings["session"]),
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )
        self.consumer.subscribe([self.topic], listener=listener)
        await self.consumer.start()

    def poll(self):
        found = self.run(self.consumer.getmany(timeout_ms=50))
        return [(record.partition, record.offset, record.value) for records in found.values() for record in records]

    def commit(self, offsets):
        self.run(self.consumer.commit({TopicPartition(self.topic, p): offset for p, offset in offsets.items()}))

    def committed(self):
        found = {p: self.run(self.consumer.committed(TopicPartition(self.topic, p))) for p in range(4)}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def seek(self, offsets):
        for partition, offset in offsets.items():
            self.consumer.seek(TopicPartition(self.topic, partition), offset)

    def close(self):
        self.run(self.consumer.stop())
        self.loop.close()
