"""kafka-python 1.4.7, 2.0.2 and 3.x; the variant is its `api_version`, "0.10" for (0, 10)."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

# kafka-python before 2.0.3 carries a `six` whose lazy modules Python 3.12 cannot import; the real one can stand in.
try:
    import six

    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = six.moves
except ModuleNotFoundError:
    pass

warnings.simplefilter("ignore")  # of a library that knew only older Pythons

import kafka  # noqa: E402
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic  # noqa: E402
from script import Difference, Record  # noqa: E402

READ_SECONDS_MAX = 20
STAY_SECONDS = 1.0  # at the end of a partition, where nothing comes
NEW = int(kafka.__version__.split(".")[0]) >= 3


class Client:
    """Producers are made per call, one consumer and one admin client for the whole script."""

    version = kafka.__version__

    def __init__(self, bootstrap: str, variant: str) -> None:
        self.common: dict[str, Any] = {"bootstrap_servers": bootstrap}
        if variant:
            self.common["api_version"] = tuple(int(part) for part in variant.split("."))
        self.has_headers = not variant or self.common["api_version"] >= (0, 11)
        self.consumer = KafkaConsumer(
            **self.common,
            auto_offset_reset="none" if NEW else "earliest",
            enable_auto_commit=False,
            check_crcs=True,
            fetch_max_wait_ms=100,
        )
        self.admin: Any = None

    def close(self) -> None:
        self.consumer.close()
        if self.admin is not None:
            self.admin.close()

    def produce(self, topic, partition, records, codec="none", acks=-1, idempotent=False):
        more: dict[str, Any] = {"enable_idempotence": idempotent} if NEW else {}
        producer = KafkaProducer(
            **self.common, **more, acks=acks, compression_type=None if codec == "none" else codec, linger_ms=5
        )
        try:
            futures = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    partition=partition,
                    timestamp_ms=record.timestamp,
                    **({"headers": list(record.headers)} if self.has_headers else {}),
                )
                for record in records
            ]
            producer.flush(READ_SECONDS_MAX)
            offsets = [future.get(READ_SECONDS_MAX).offset for future in futures]
        finally:
            producer.close()
        return offsets if acks else None

    def consume(self, topic, partition, first_offset, count):
        place = TopicPartition(topic, partition)
        self.consumer.assign([place])
        if first_offset:
            self.consumer.seek(place, first_offset)
        else:
            self.consumer.seek_to_beginning(place)
        found, deadline = [], time.monotonic() + READ_SECONDS_MAX
        while len(found) < count:
            if time.monotonic() > deadline:
                raise Difference(f"{topic}-{partition}: {len(found)} of {count} records in {READ_SECONDS_MAX} s")
            found += self.consumer.poll(timeout_ms=500).get(place, [])
        return [
            Record(r.key, r.value, tuple(tuple(pair) for pair in r.headers or ()), r.timestamp, r.offset) for r in found
        ]

    def read_committed(self, topic, partition):
        """Read what is committed up to the end, and stay there; return it and where the consumer is."""
        place, found = TopicPartition(topic, partition), []
        more = {"isolation_level": "read_committed"} if NEW else {}
        consumer = KafkaConsumer(**self.common, **more, auto_offset_reset="earliest", fetch_max_wait_ms=100)
        try:
            consumer.assign([place])
            end, deadline = consumer.end_offsets([place])[place], time.monotonic() + READ_SECONDS_MAX
            while consumer.position(place) < end and time.monotonic() < deadline:
                found += consumer.poll(timeout_ms=100).get(place, [])
            deadline = time.monotonic() + STAY_SECONDS
            while time.monotonic() < deadline:
                found += consumer.poll(timeout_ms=100).get(place, [])
            return [Record(r.key, r.value, offset=r.offset) for r in found], consumer.position(place)
        finally:
            consumer.close()

    def offsets(self, topic, partition):
        place = TopicPartition(topic, partition)
        return self.consumer.beginning_offsets([place])[place], self.consumer.end_offsets([place])[place]

    def offset_at(self, topic, partition, timestamp):
        place = TopicPartition(topic, partition)
        found = self.consumer.offsets_for_times({place: timestamp})[place]
        return None if found is None else found.offset

    def make_admin(self):
        if self.admin is None:
            # Before 2.3 an admin client that is told the api_version knows no API's versions: let it ask.
            self.admin = KafkaAdminClient(bootstrap_servers=self.common["bootstrap_servers"])
        return self.admin

    def create(self, topic, partitions, configs):
        self.make_admin().create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])

    def describe(self, topic):
        if not hasattr(KafkaAdminClient, "describe_topics"):
            return self.consumer.partitions_for_topic(topic) or ()
        (found,) = self.make_admin().describe_topics([topic])
        return [partition["partition_index" if NEW else "partition"] for partition in found["partitions"]]

    def configs(self, topic):
        answer = self.make_admin().describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        if NEW:
            return {name: config["value"] for name, config in find_configs(answer, topic).items()}
        answers = answer if isinstance(answer, list) else [answer]
        return {entry[0]: entry[1] for one in answers for resource in one.resources for entry in resource[4]}

    def delete(self, topic):
        self.make_admin().delete_topics([topic])

    def topics(self):
        if not hasattr(KafkaAdminClient, "list_topics"):
            return self.consumer.topics()
        return self.make_admin().list_topics()


def find_configs(answer: Any, topic: str) -> dict[str, Any]:
    """Return the configs of a topic out of the nested dicts and lists that version 3 answers with."""
    for by_name in answer.values():
        if topic in by_name:
            return by_name[topic]
    raise Difference(f"no configs of {topic} in {answer}")
