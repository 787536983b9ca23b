"""Group members of confluent-kafka, that is librdkafka, of the classic and of the consumer protocol."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition

VERSION = confluent_kafka.__version__
CALL_SECONDS_MAX = 20
ASSIGNORS = {"cooperative": "cooperative-sticky"}


class Member:
    def __init__(self, bootstrap, variant, settings, assigned, revoked):
        assert not variant
        self.topic = settings["topic"]
        wanted = {
            "bootstrap.servers": bootstrap,
            "group.id": settings["group"],
            "group.protocol": settings["protocol"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        if "instance" in settings:
            wanted["group.instance.id"] = settings["instance"]
        assignor = ASSIGNORS.get(settings["assignor"], settings["assignor"])
        if settings["protocol"] == "consumer":
            wanted["group.remote.assignor"] = assignor  # the broker sets the two times
        else:
            wanted |= {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": 300}
            wanted["session.timeout.ms"] = int(settings["session"])
        self.consumer = Consumer(wanted)

        def on_revoke(_, places):
            revoked(place.partition for place in places)

        self.consumer.subscribe(
            [self.topic],
            on_assign=lambda _, places: assigned(place.partition for place in places),
            on_revoke=on_revoke,
            on_lost=on_revoke,
        )

    def poll(self):
        found = []
        for message in self.consumer.consume(100, timeout=0.05):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append((message.partition(), message.offset(), message.value()))
        return found

    def commit(self, offsets):
        wanted = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        for done in self.consumer.commit(offsets=wanted, asynchronous=False):
            if done.error is not None:
                raise KafkaException(done.error)

    def committed(self):
        found = self.consumer.committed([TopicPartition(self.topic, p) for p in range(4)], CALL_SECONDS_MAX)
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def seek(self, offsets):
        for partition, offset in offsets.items():
            self.consumer.seek(TopicPartition(self.topic, partition, offset))

    def close(self):
        self.consumer.close()
