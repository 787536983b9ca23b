"""Transactions of confluent-kafka, that is librdkafka."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

VERSION = confluent_kafka.__version__
CALL_SECONDS_MAX = 20
NEAR = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.interval.ms": 50,  # else librdkafka looks once a second who leads
    "log_level": 0,
}


class Producer:
    def __init__(self, bootstrap, transactional_id, timeout_ms):
        self.common = {**NEAR, "bootstrap.servers": bootstrap}
        settings = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        self.producer = ConfluentProducer({**self.common, **settings, "retry.backoff.ms": 20})
        self.producer.init_transactions(CALL_SECONDS_MAX)

    def begin(self):
        self.producer.begin_transaction()

    def send(self, topic, values, partition=0):
        failures = []
        for value in values:
            self.producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: error and failures.append(error)
            )
        assert self.producer.flush(CALL_SECONDS_MAX) == 0
        if failures:
            raise KafkaException(failures[0])

    def offset(self, group, topic, at):
        consumer = Consumer({**self.common, "group.id": group})
        members = consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([TopicPartition(topic, 0, at)], members, CALL_SECONDS_MAX)
        consumer.close()

    def commit(self):
        self.producer.commit_transaction(CALL_SECONDS_MAX)

    def abort(self):
        self.producer.abort_transaction(CALL_SECONDS_MAX)

    def close(self):
        pass


class Copy:
    def __init__(self, bootstrap, transactional_id, group, source, target):
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "heartbeat.interval.ms": 300,
        }
        self.target = target
        self.consumer = Consumer({**NEAR, **settings})
        self.consumer.subscribe([source])
        self.producer = Producer(bootstrap, transactional_id, 20_000)

    def poll(self):
        found = self.consumer.consume(20, 0.1)
        for each in found:
            if each.error() is not None:
                raise KafkaException(each.error())
        return found

    def write(self, records, commits):
        self.producer.begin()
        for each in records:
            self.producer.producer.produce(self.target, each.value(), partition=each.partition())
        places = self.consumer.position(self.consumer.assignment())
        members = self.consumer.consumer_group_metadata()
        places = [each for each in places if each.offset >= 0]
        self.producer.producer.send_offsets_to_transaction(places, members, CALL_SECONDS_MAX)
        self.producer.producer.flush(CALL_SECONDS_MAX)  # an abort would keep back what has not been sent yet
        if commits:
            self.producer.commit()
            return
        self.producer.abort()
        for each in self.consumer.committed(places, CALL_SECONDS_MAX):
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def close(self):
        self.consumer.close()
