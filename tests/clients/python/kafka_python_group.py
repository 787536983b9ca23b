"""Group members of kafka-python; the variant is its `api_version`, as in kafka_python_client.py."""

from __future__ import annotations

from importlib import import_module

import kafka_python_client  # first: it makes old versions fit for this Python
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition

VERSION = kafka_python_client.Client.version
# By their modules: a release has only some of them.
ASSIGNORS = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    "cooperative": ("cooperative_sticky", "CooperativeStickyAssignor"),
}


class Listener(ConsumerRebalanceListener):
    def __init__(self, assigned, revoked):
        self.assigned, self.revoked = assigned, revoked

    def on_partitions_assigned(self, assigned):
        self.assigned(place.partition for place in assigned)

    def on_partitions_revoked(self, revoked):
        self.revoked(place.partition for place in revoked)


class Member:
    def __init__(self, bootstrap, variant, settings, assigned, revoked):
        module, name = ASSIGNORS[settings["assignor"]]
        assignor = getattr(import_module(f"kafka.coordinator.assignors.{module}"), name)
        more = {"api_version": tuple(int(part) for part in variant.split("."))} if variant else {}
        if "instance" in settings:
            more["group_instance_id"] = settings["instance"]
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=settings["group"],
            partition_assignment_strategy=[assignor],
            session_timeout_ms=int(settings["session"]),
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **more,
        )
        self.topic = settings["topic"]
        self.consumer.subscribe([self.topic], listener=Listener(assigned, revoked))
        # Version 3.0.12 joins again when it hears of the topic's partitions after it has assigned them, and forgets
        # about it (for good) if a poll ends meanwhile: let it hear of them first.
        self.consumer.partitions_for_topic(self.topic)

    def poll(self):
        found = self.consumer.poll(timeout_ms=50)
        return [(record.partition, record.offset, record.value) for records in found.values() for record in records]

    def commit(self, offsets):
        # Version 2.1 gave it a third field, the leader epoch.
        blank = ("", -1)[: len(OffsetAndMetadata._fields) - 1]
        self.consumer.commit({TopicPartition(self.topic, p): OffsetAndMetadata(o, *blank) for p, o in offsets.items()})

    def committed(self):
        found = {p: self.consumer.committed(TopicPartition(self.topic, p)) for p in range(4)}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def seek(self, offsets):
        for partition, offset in offsets.items():
            self.consumer.seek(TopicPartition(self.topic, partition), offset)

    def close(self):
        self.consumer.close()
