"""Kafka's tools in a cluster of ours: its message copier while brokers are killed, who reads then what, what hangs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Cluster
from minibroker.coordinator.hashing import partition_of
from tests.cluster.turmoil import SETTINGS
from tests.interop import kafka

pytest.importorskip("confluent_kafka")
from confluent_kafka import Producer

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOOLS = kafka.DUMPS[1]
STATE_PARTITIONS = 3
COUNT, EACH = 200, 10  # records, and how many of them in one transaction
COPIER, GROUP = "copier", "copiers"
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    few = {"offsets.topic.num.partitions": STATE_PARTITIONS, "transaction.state.log.num.partitions": STATE_PARTITIONS}
    with Cluster(3, topics=["from:1", "to:1", "left:1"], config={**SETTINGS, **few}) as cluster:
        yield cluster


def tool(name: str, words: str, cluster: Cluster, directory: Path) -> list[str]:
    """Return the lines that a tool prints."""
    java = f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap_servers
    done = kafka.run(TOOLS, *java, *words.split(), cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_copier_copies_each_record_once_while_coordinators_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(COUNT):
        producer.produce("from", b"%d" % number, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    options = {"broker-list": cluster.bootstrap_servers, "input-topic": "from", "input-partition": 0}
    options |= {"output-topic": "to", "consumer-group": GROUP, "transactional-id": COPIER}
    options |= {"max-messages": COUNT, "transaction-size": EACH}
    command = [*kafka.JAVA, "-cp", kafka.class_path(TOOLS), "org.apache.kafka.tools.TransactionalMessageCopier"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    copier = subprocess.Popen([*command, "--use-group-metadata", "--enable-random-aborts"], stdout=-1, text=True)
    try:
        assert copier.stdout
        victims = [("__transaction_state", partition_of(COPIER, STATE_PARTITIONS)), ("to", 0)]
        victims += [("__consumer_offsets", partition_of(GROUP, STATE_PARTITIONS))]
        processed = 0
        for line in copier.stdout:
            processed = json.loads(line)["totalProcessed"]
            if victims and processed:
                topic, partition = victims.pop(0)
                broker = cluster.leader(topic, partition)
                cluster.kill(broker)
                cluster.wait_leader(topic, partition, other_than=broker, timeout=PATIENCE_S)
                cluster.start_broker(broker)
                cluster.wait_in_sync(timeout=PATIENCE_S)
        assert (copier.wait(PATIENCE_S), processed, victims) == (0, COUNT, [])
    finally:
        copier.kill()
        copier.communicate()
    assert cluster.wait_committed(GROUP, "from", 0, COUNT, timeout=PATIENCE_S) == COUNT
    words = f"--topic to --from-beginning --max-messages {COUNT} --isolation-level read_committed"
    lines = tool("consumer.ConsoleConsumer", words, cluster, tmp_path)
    assert [line for line in lines if line.isdigit()] == [str(number) for number in range(COUNT)]


def test_what_was_left_open_is_shown_by_a_follower_and_aborted(cluster: Cluster, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "leaver", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("left", b"never", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    cluster.wait_in_sync(timeout=PATIENCE_S)
    follower = next(broker for broker in (1, 2, 3) if broker != cluster.leader("left"))
    place = "--topic left --partition 0"
    lines = tool("TransactionsCommand", f"describe-producers {place} --broker-id {follower}", cluster, tmp_path)
    (columns, row) = (line.split("\t") for line in lines[-2:])
    assert dict(zip(map(str.strip, columns), map(str.strip, row)))["CurrentTransactionStartOffset"] == "0"
    with cluster.watching("marker") as heard:
        tool("TransactionsCommand", f"abort {place} --start-offset 0", cluster, tmp_path)
    assert [(each.topic, each.outcome, each.offset) for each in heard] == [("left", "abort", 1)]
