"""Kafka Streams with exactly_once_v2 counts words while brokers are killed, stopped, paused and cut off.

MINIBROKER_TEST_KILLS=100 disturbs so often, the newest Streams and that of 3.9.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from random import Random

import pytest

from minibroker import Cluster
from tests.cluster.turmoil import DISTURBANCES, SETTINGS
from tests.interop import kafka

pytest.importorskip("confluent_kafka")
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DISTURBED = int(os.environ.get("MINIBROKER_TEST_KILLS", "3"))
VERSIONS = ("4.3.1", "3.9.2") if "MINIBROKER_TEST_KILLS" in os.environ else ("4.3.1",)
PARTITIONS = 3
LINES, WORDS = 20, ("one", "two", "three", "four", "five", "six", "seven")
LED = ("__transaction_state", "__consumer_offsets", "counts", "words-words-repartition", "words-words-changelog")
PATIENCE_S = 60.0
NEAR = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.interval.ms": 50,
    "log_level": 0,
}


class Counts:
    """What a consumer with read_committed has seen of the counts."""

    def __init__(self, bootstrap: str):
        settings = {"isolation.level": "read_committed", "enable.auto.commit": False, "group.id": "unused"}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, **NEAR, **settings})
        self.consumer.assign([TopicPartition("counts", partition, 0) for partition in range(PARTITIONS)])
        self.by_word: dict[str, list[int]] = defaultdict(list)
        self.total = 0

    def read(self, total: int) -> None:
        """Return when so many have come."""
        while self.total < total:
            message = self.consumer.poll(PATIENCE_S)
            assert message is not None, f"{self.total} of {total} counts have come"
            if message.error() is None:
                self.by_word[message.key().decode()].append(int(message.value()))
                self.total += 1


@contextmanager
def streams(version: str, bootstrap: str, directory: Path) -> Iterator[None]:
    """Streams runs; at the end it stops in order."""
    classes = kafka.class_path(kafka.Release("kafka-streams", version))
    command = [*kafka.JAVA, "-cp", classes, str(kafka.HERE / "Words.java"), bootstrap, str(directory)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
        program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("version", VERSIONS)
def test_streams_counts_each_word_once_while_brokers_come_and_go(version: str, tmp_path: Path) -> None:
    chance, sent = Random(7), Counter[str]()
    few = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
    with Cluster(3, topics=["lines:3", "counts:3"], config={**SETTINGS, **few}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **NEAR})
        counts = Counts(cluster.bootstrap_servers)

        def write() -> None:
            for number in range(LINES):
                line = chance.choices(WORDS, k=5)
                sent.update(line)
                producer.produce("lines", " ".join(line).encode(), partition=number % PARTITIONS)
            producer.poll(0)

        with streams(version, cluster.bootstrap_servers, tmp_path):
            write()
            counts.read(sent.total())
            for number, disturb in enumerate(islice(cycle(DISTURBANCES), DISTURBED)):
                topic, partition = LED[number % len(LED)], chance.randrange(PARTITIONS)
                broker = cluster.leader(topic, partition)
                write()
                counts.read(counts.total + 1)
                disturbance = disturb(cluster, broker)
                next(disturbance)
                write()
                cluster.wait_leader(topic, partition, other_than=broker, timeout=PATIENCE_S)
                next(disturbance, None)
                assert producer.flush(PATIENCE_S) == 0
                cluster.wait_in_sync(timeout=PATIENCE_S)
            write()
            counts.read(sent.total())
        assert counts.by_word == {word: [*range(1, count + 1)] for word, count in sent.items()}
        assert counts.consumer.poll(0.1) is None
        counts.consumer.close()
