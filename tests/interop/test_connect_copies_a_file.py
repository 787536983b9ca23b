"""Kafka Connect, distributed and with exactly.once.source.support, copies a file into a topic.

Its worker is killed with a task at work, and so are brokers; the one that comes after fences what the first has left
(fenceProducers) and goes on from the offsets that were committed with the records. Each line is in the topic once.
MINIBROKER_TEST_KILLS=20 kills so often, also the Connect of 3.9.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest

from minibroker import Cluster
from minibroker.coordinator.hashing import partition_of
from tests.cluster.turmoil import SETTINGS
from tests.interop import kafka

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, TopicPartition

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KILLED = int(os.environ.get("MINIBROKER_TEST_KILLS", "1"))
VERSIONS = ("4.3.1", "3.9.2") if "MINIBROKER_TEST_KILLS" in os.environ else ("4.3.1",)
STATE_PARTITIONS = 3
LINES = 20
PATIENCE_S = 90.0
TASK, GROUP = "connect-file-0", "connect"  # a task's transactional id
CONNECTOR = {
    "name": "file",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "topic": "lines",
    "exactly.once.support": "required",
    "transaction.boundary": "poll",
}
WORKER = {
    "group.id": GROUP,
    "listeners": "http://127.0.0.1:0",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": 1,
    "status.storage.topic": "connect-status",
    "status.storage.partitions": 1,
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
    "scheduled.rebalance.max.delay.ms": 0,  # what a killed worker did is given away at once
}


@contextmanager
def connect(version: str, bootstrap: str, directory: Path) -> Iterator[None]:
    """A worker runs, and at the end is killed; the first makes the connector."""
    worker = {**WORKER, "bootstrap.servers": bootstrap}
    for name, settings in ("worker", worker), ("connector", {**CONNECTOR, "file": str(directory / "file")}):
        (directory / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    parts = (kafka.class_path(kafka.Release(f"connect-{part}", version)) for part in ("runtime", "file"))
    command = [*kafka.JAVA, "-cp", os.pathsep.join(parts), str(kafka.HERE / "ConnectWorker.java")]
    program = subprocess.Popen([*command, str(directory / "worker"), str(directory / "connector")])
    try:
        yield
    finally:
        program.kill()
        program.wait()


class Lines:
    """A file, and what of it a consumer with read_committed has seen in the topic."""

    def __init__(self, bootstrap: str, path: Path):
        settings = {"isolation.level": "read_committed", "enable.auto.commit": False, "group.id": "unused"}
        near = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "topic.metadata.refresh.interval.ms": 50}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **near, **settings})
        self.consumer.assign([TopicPartition("lines", 0, 0)])
        self.path = path
        self.written = 0
        self.seen: list[int] = []

    def write(self) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{number}\n" for number in range(self.written, self.written + LINES))
        self.written += LINES

    def read(self, count: int) -> None:
        """Return when so many have come."""
        while len(self.seen) < count:
            message = self.consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(self.seen)} of {count} lines have come"
            if message.error() is None:
                self.seen.append(int(message.value()))


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_writes_each_line_once_though_it_is_killed(version: str, tmp_path: Path) -> None:
    few = {"offsets.topic.num.partitions": STATE_PARTITIONS, "transaction.state.log.num.partitions": STATE_PARTITIONS}
    with (
        Cluster(3, topics=["lines:1"], config={**SETTINGS, **few}) as cluster,
        cluster.watching("transaction") as heard,
    ):
        lines = Lines(cluster.bootstrap_servers, tmp_path / "file")
        lines.write()
        leaders = cycle(
            [
                ("__transaction_state", partition_of(TASK, STATE_PARTITIONS)),
                ("lines", 0),
                ("__consumer_offsets", partition_of(GROUP, STATE_PARTITIONS)),
                ("connect-offsets", 0),
            ]
        )
        with connect(version, cluster.bootstrap_servers, tmp_path):
            lines.read(lines.written)
            for topic, partition in islice(leaders, KILLED):
                lines.write()
                lines.read(len(lines.seen) + 1)
                broker = cluster.leader(topic, partition)
                cluster.kill(broker)
                lines.write()
                cluster.wait_leader(topic, partition, other_than=broker, timeout=PATIENCE_S)
                cluster.start_broker(broker)
                cluster.wait_in_sync(timeout=PATIENCE_S)
            lines.write()
        killed_at = len(heard)
        lines.write()
        with connect(version, cluster.bootstrap_servers, tmp_path):
            lines.read(lines.written)
        assert lines.seen == [*range(lines.written)]
        # The epoch that nobody is given, between those of the two workers' tasks, is that of the fence.
        epochs = {event.producer_epoch for event in heard[killed_at:] if event.id == TASK}
        assert len(epochs) > 1
        lines.consumer.close()
