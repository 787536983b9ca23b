"""One log directory, two brokers in turn: we, a real Kafka 4.x, we again. Each serves what the other left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY
from tests.interop.broker import Broker, running
from tests.metadata.nodes import NOW_MS, LoneNode

# kafka-python reads its own files in a way that Python has deprecated.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOPICS: dict[str, tuple[int, dict[str, str | None]]] = {
    "orders": (3, {"retention.ms": "-1"}),
    "payments": (1, {"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": "2000000"}),
    "un.dotted": (2, {"retention.ms": "-1"}),
}
Rows = dict[tuple[str, int], list[tuple[int, bytes, bytes]]]


class Node(LoneNode):
    """A node with its partitions' logs, as a broker of ours has them."""

    def __init__(self, root: Path, **settings: Any):
        storage = OsStorage(str(root))
        super().__init__(storage, **settings)
        self.logs = LogDirectory(storage)
        self.logs.start()
        for name, topic in self.image.topics.items():
            for partition in topic.partitions:
                self.open(name, partition.id)

    def open(self, topic: str, partition: int) -> PartitionLog:
        compact = self.image.topic_configs(topic).get("cleanup.policy") == "compact"
        topic_id = self.image.topics[topic].id
        return self.logs.open(topic, partition, LogSettings(compact=compact), now_ms=NOW_MS, topic_id=topic_id)

    def produce(self, topic: str, partition: int, count: int, label: str) -> None:
        log = self.logs.logs.get((topic, partition)) or self.open(topic, partition)
        rows = [
            Record(b"%d" % index, f"{label} {topic} {index}".encode(), (), NOW_MS + index, index)
            for index in range(count)
        ]
        log.append_as_leader(
            bytearray(build_batch(2, rows)),
            leader_epoch=self.image.topics[topic].partitions[partition].leader_epoch,
            now_ms=NOW_MS,
        )

    def rows(self) -> Rows:
        return {
            key: [
                (record.offset, bytes(record.key or b""), bytes(record.value or b""))
                for segment in log.segments
                for batch in batches(segment.view(0, segment.size_bytes))
                for record in batch.records(check_crc=True)
            ]
            for key, log in self.logs.logs.items()
            if not key[0].startswith("__")
        }

    def stop(self) -> None:
        epoch = self.image.brokers[1].broker_epoch
        super().stop()
        self.logs.close({key: log.log_end_offset for key, log in self.logs.logs.items()}, broker_epoch=epoch)


def consumed(address: str, partitions: list[tuple[str, int]]) -> Rows:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", group_id=None)
    try:
        wanted = [TopicPartition(*partition) for partition in partitions]
        consumer.assign(wanted)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(wanted)
        found: Rows = {partition: [] for partition in partitions}
        while any(consumer.position(each) < ends[each] for each in wanted):
            for each, records in consumer.poll(1000).items():
                found[each.topic, each.partition] += [(r.offset, r.key or b"", r.value or b"") for r in records]
        return found
    finally:
        consumer.close()


def described(address: str) -> tuple[dict[str, bytes], dict[str, int], dict[str, dict[str, str]]]:
    """Return ids, numbers of partitions and own settings of the topics."""
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        topics = {each["name"]: each for each in admin.describe_topics() if not each["is_internal"]}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        configs = admin.describe_configs(resources)
        return (
            {name: UUID(str(topic["topic_id"])).bytes for name, topic in topics.items()},
            {name: len(topic["partitions"]) for name, topic in topics.items()},
            own_settings(configs),
        )
    finally:
        admin.close()


def own_settings(answer: Any) -> dict[str, dict[str, str]]:
    return {
        name: {
            key: entry["value"] for key, entry in entries.items() if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        }
        for name, entries in answer["topic"].items()
    }


def add_with_kafka(address: str, topic: str, count: int) -> None:
    """Make a topic and write to it and to one of ours, as an idempotent producer."""
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "-1"})])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    sent = [
        producer.send(name, key=b"%d" % index, value=f"theirs {topic} {index}".encode(), partition=0)
        for index in range(count)
        for name in (topic, "orders")
    ]
    for each in sent:
        each.get(timeout=20)
    producer.close()


def assert_same(address: str, node: Node, rows: Rows) -> None:
    """Kafka has the topics, ids, settings and records that we left."""
    ids, counts, configs = described(address)
    ours = {name: topic for name, topic in node.image.topics.items() if not name.startswith("__")}
    assert ids == {name: topic.id for name, topic in ours.items()}
    assert counts == {name: len(topic.partitions) for name, topic in ours.items()}
    assert configs == {name: node.image.topic_configs(name) for name in ours}
    assert consumed(address, list(rows)) == rows


def test_kafka_and_we_take_turns_on_one_directory(tmp_path: Path) -> None:
    root = tmp_path / "data"
    node = Node(root, snapshot_records=10)
    for name, (partitions, configs) in TOPICS.items():
        node.create(name, partitions, configs=configs)
        for partition in range(partitions):
            node.produce(name, partition, 20 + partition, "ours")
    node.append(node.controller.create_partitions("un.dotted", 3))
    node.produce("un.dotted", 2, 5, "ours")
    node.append(node.controller.delete_topic(name="orders"))
    for partition in range(3):
        node.logs.purge(node.logs.delete("orders", partition, "gone"))
    node.create("orders", 3, configs=TOPICS["orders"][1])
    for partition in range(3):
        node.produce("orders", partition, 30, "ours anew")
    for _ in range(2):
        records, first, count = node.controller.allocate_producer_ids(1, node.image.brokers[1].broker_epoch)
        node.append(records)
    rows, next_producer_id = node.rows(), first + count
    node.stop()

    with running(root, tmp_path / "kafka") as kafka:
        assert_same(kafka.address, node, rows)
        add_with_kafka(kafka.address, "theirs", 25)
        kafka.stop()
    assert_nothing_was_lost(kafka, root)

    node = Node(root)
    assert node.clean_epoch is not None
    rows = after_kafka(node, rows, "theirs", 25)
    assert node.image.next_producer_id == next_producer_id + 1000
    node.produce("theirs", 1, 7, "ours again")
    node.create("last_of_ours")
    node.produce("last_of_ours", 0, 3, "ours again")
    rows = node.rows()
    node.stop()

    with running(root, tmp_path / "kafka") as kafka:
        assert_same(kafka.address, node, rows)
        add_with_kafka(kafka.address, "before.kill", 40)
        kafka.kill()
    assert_nothing_was_lost(kafka, root)

    node = Node(root)
    assert node.clean_epoch is None
    after_kafka(node, rows, "before.kill", 40)
    assert node.image.next_producer_id == next_producer_id + 2000
    partitions = [each for topic in node.image.topics.values() for each in topic.partitions]
    assert {each.leader for each in partitions} == {1}
    node.stop()


def after_kafka(node: Node, before: Rows, topic: str, count: int) -> Rows:
    """Check that all of before is there, and what Kafka has added."""
    rows = node.rows()
    for key, expected in before.items():
        assert rows[key][: len(expected)] == expected, key
    added = [value for _, _, value in rows["orders", 0][len(before["orders", 0]) :]]
    assert added == [f"theirs {topic} {index}".encode() for index in range(count)]
    assert [value for _, _, value in rows[topic, 0]] == added
    assert node.image.topic_configs(topic) == {"retention.ms": "-1"}
    assert len(node.image.topics[topic].partitions) == 2
    return rows


def assert_nothing_was_lost(kafka: Broker, root: Path) -> None:
    """Kafka neither cut a log of ours nor found a directory that it knows nothing of."""
    assert "stray" not in kafka.text.lower().replace("stray=", ""), kafka.text
    assert not list(root.glob("*-stray"))


def test_kafka_takes_over_from_one_of_ours_that_was_killed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    node = Node(root)
    node.create("orders", 2, configs={"retention.ms": "-1"})
    node.produce("orders", 0, 50, "ours")
    node.produce("orders", 1, 60, "ours")
    rows = node.rows()
    shutil.copytree(root, tmp_path / "left")  # what a kill leaves: nothing is closed, nothing flushed
    node.stop()
    assert not (tmp_path / "left/.kafka_cleanshutdown").exists()

    with running(tmp_path / "left", tmp_path / "kafka") as kafka:
        assert consumed(kafka.address, list(rows)) == rows
        kafka.stop()
    node = Node(tmp_path / "left")
    assert node.rows() == rows
    assert (tmp_path / "left" / METADATA_DIRECTORY).exists()
