"""Transactions of kafka-python, 3.0 and newer."""

from __future__ import annotations

import kafka
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

VERSION = kafka.__version__
CALL_SECONDS_MAX = 20
NEAR = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 50}


class Producer:
    def __init__(self, bootstrap, transactional_id, timeout_ms):
        settings = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self.producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), **NEAR, **settings)
        self.producer.init_transactions()
        self.begin = self.producer.begin_transaction
        self.commit = self.producer.commit_transaction
        self.abort = self.producer.abort_transaction

    def send(self, topic, values):
        for future in [self.producer.send(topic, value, partition=0) for value in values]:
            future.get(CALL_SECONDS_MAX)

    def offset(self, group, topic, at):
        self.producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(at, "", -1)}, group)

    def close(self):
        self.producer.close(timeout=CALL_SECONDS_MAX)


class Copy:
    def __init__(self, bootstrap, transactional_id, group, source, target):
        self.group, self.target = group, target
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
            max_poll_records=20,
            heartbeat_interval_ms=300,
            **NEAR,
        )
        self.consumer.subscribe([source])
        self.consumer.partitions_for_topic(source)  # why: kafka_python_group.py
        self.producer = Producer(bootstrap, transactional_id, 20_000)

    def poll(self):
        found = self.consumer.poll(timeout_ms=100)
        return [record for records in found.values() for record in records]

    def write(self, records, commits):
        producer = self.producer.producer
        producer.begin_transaction()
        offsets = {}
        for each in records:
            producer.send(self.target, each.value, partition=each.partition)
            offsets[TopicPartition(each.topic, each.partition)] = OffsetAndMetadata(each.offset + 1, "", -1)
        producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        producer.flush(CALL_SECONDS_MAX)  # an abort would keep back what has not been sent yet
        if commits:
            producer.commit_transaction()
            return
        producer.abort_transaction()
        for place in offsets:
            self.consumer.seek(place, self.consumer.committed(place) or 0)

    def close(self):
        self.consumer.close()
        self.producer.close()
