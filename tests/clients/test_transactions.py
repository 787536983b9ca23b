"""Transactions of foreign clients of many ages, and what becomes of them while brokers are killed.

Each client has a program that makes transactional producers, and copies a topic, as it is told (README.md has the
words); the parts are played here, on a cluster of three, because brokers are killed meanwhile. Skips are those of
test_clients.py. MINIBROKER_TEST_KILLS=50 kills so many for each client.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.coordinator.hashing import partition_of
from tests.clients import build
from tests.clients.matrix import TRANSACTION_CLIENTS, TRANSACTION_STEPS, Client

KILLS = int(os.environ.get("MINIBROKER_TEST_KILLS", "4"))
PARTITIONS = 2  # of the topics that are copied
EACH = 10  # records that each of them gets in a round
PATIENCE_S = 60.0
STATE_PARTITIONS = 5
SETTINGS = {
    "min.insync.replicas": 2,
    "replica.fetch.wait.max.ms": 300,
    "replica.fetch.backoff.ms": 20,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": STATE_PARTITIONS,
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
}
TIMEOUT_MS = 60_000  # of transactions; the clock is moved, nobody waits so long
IMPATIENT = "kafkajs"  # fails where the others ask again: when the markers of its last transaction are still written


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config=SETTINGS) as cluster:
        yield cluster


class Program:
    """A client's program: told on its input what to do, it says on its output what became of it."""

    def __init__(self, command: build.Command, bootstrap: str):
        self.process = subprocess.Popen(
            [*command.arguments, bootstrap],
            cwd=command.folder,
            env=os.environ | command.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.again: list[str] = []  # why a copy began anew
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def hear(self, *events: str) -> dict[str, Any]:
        """Return the next of these events; what a copy says meanwhile is passed over."""
        while True:
            try:
                said = self.said.get(timeout=PATIENCE_S)
            except queue.Empty:
                pytest.fail(f"none of {events} within {PATIENCE_S:g} s; it began anew: {self.again}")
            assert said is not None, f"the program has ended with {self.process.wait(PATIENCE_S)}"
            if said["event"] == "again":
                self.again.append(said["text"])
            if said["event"] in events:
                return said

    def tell(self, word: str, name: str, **told: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join([word, name, *(f"{key}={value}" for key, value in told.items())]) + "\n")

    def do(self, word: str, name: str, **told: object) -> None:
        self.tell(word, name, **told)
        said = self.hear("done", "error")
        assert said["event"] == "done", f"{word} {name}: {said['text']}"

    def fail(self, word: str, name: str, **told: object) -> str:
        """Have something done that must not go well; return what the client says of it."""
        self.tell(word, name, **told)
        said = self.hear("done", "error")
        assert said["event"] == "error", f"{word} {name}: went well"
        return str(said["text"])

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait()
        self._listener.join()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def program_of(client: Client, bootstrap: str) -> Iterator[Program]:
    try:
        command = build.transactions_of(client)
    except build.Missing as missing:
        if os.environ.get("MINIBROKER_TEST_CLIENTS_REQUIRED"):
            raise
        pytest.skip(f"{client.id}: {missing}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{client.id} does not build:\n{error.output[-3000:]}")
    program = Program(command, bootstrap)
    try:
        start = program.said.get(timeout=PATIENCE_S)
        assert start is not None
        assert str(start["version"]).startswith(client.version)
        yield program
    finally:
        program.end()


def read(
    cluster: Cluster, topic: str, partition: int = 0, isolation: str = "read_committed", count: int = 0
) -> list[str]:
    """Return all that a consumer of librdkafka sees of a partition, once there are so many."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"isolation.level": isolation, "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            if len(found) >= count:
                consumer.close()
                return found
        else:
            found.append(message.value().decode())


def write(cluster: Cluster, topic: str, values: range) -> None:
    """Write numbers to all partitions of a topic."""
    from confluent_kafka import Producer

    near = {
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "topic.metadata.refresh.interval.ms": 50,
        "log_level": 0,
    }
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **near})
    for value in values:
        for partition in range(PARTITIONS):
            producer.produce(topic, str(value).encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def finish(program: Program, cluster: Cluster, id: str, end: str) -> None:
    """Commit or abort; a client that cannot wait for the markers begins its next transaction after them."""
    program.do(end, "a")
    if id.startswith(IMPATIENT):
        cluster.wait_transaction(id, f"Complete{end.capitalize()}", timeout=PATIENCE_S)


# The steps


def ended(program: Program, cluster: Cluster, name: str) -> None:
    """Committed, aborted, committed: the one is read, the other is not."""
    topic = f"{name}-ended"
    cluster.create_topic(topic, 1)
    program.do("open", "a", id=topic, timeout=TIMEOUT_MS)
    for end in ("commit", "abort", "commit"):
        program.do("begin", "a")
        program.do("send", "a", topic=topic, values=f"{end}-1,{end}-2")
        program.do("send", "a", topic=topic, values=f"{end}-3")
        finish(program, cluster, topic, end)
    program.do("close", "a")
    done, never = [f"commit-{number}" for number in (1, 2, 3)], [f"abort-{number}" for number in (1, 2, 3)]
    assert read(cluster, topic, count=len(done) * 2) == done * 2
    assert read(cluster, topic, isolation="read_uncommitted") == done + never + done


def offsets(program: Program, cluster: Cluster, name: str) -> None:
    """Offsets are committed with their transaction."""
    topic = f"{name}-offsets"
    cluster.create_topic(topic, 1)
    program.do("open", "a", id=topic, timeout=TIMEOUT_MS)
    for offset, end, wanted in ((1, "commit", 1), (2, "abort", 1), (3, "commit", 3)):
        program.do("begin", "a")
        program.do("offset", "a", group=topic, topic=topic, at=offset)
        finish(program, cluster, topic, end)
        assert cluster.wait_committed(topic, topic, 0, wanted) == wanted
    program.do("close", "a")


def fenced(program: Program, cluster: Cluster, name: str) -> None:
    """A second instance takes the place of the first, whose transaction is aborted."""
    topic = f"{name}-fenced"
    cluster.create_topic(topic, 1)
    program.do("open", "a", id=topic, timeout=TIMEOUT_MS)
    program.do("begin", "a")
    program.do("send", "a", topic=topic, values="first")
    program.do("open", "b", id=topic, timeout=TIMEOUT_MS)
    program.do("begin", "b")
    program.do("send", "b", topic=topic, values="second")
    said = program.fail("commit", "a")
    assert "fenced" in said.lower() or "epoch" in said.lower(), said
    program.do("commit", "b")
    assert read(cluster, topic, count=1) == ["second"]
    assert read(cluster, topic, isolation="read_uncommitted") == ["first", "second"]


def late(program: Program, cluster: Cluster, name: str) -> None:
    """Who takes longer than it asked for has been aborted, and can go on when it comes anew."""
    topic = f"{name}-late"
    cluster.create_topic(topic, 1)
    program.do("open", "a", id=topic, timeout=TIMEOUT_MS)
    program.do("begin", "a")
    program.do("send", "a", topic=topic, values="late")
    with cluster.watching("transaction") as heard:
        cluster.advance(f"{TIMEOUT_MS + 20_000}ms")
        heard.wait(lambda event: event.id == topic and event.after == "CompleteAbort", PATIENCE_S)
    program.fail("commit", "a")
    program.do("open", "b", id=topic, timeout=TIMEOUT_MS)
    program.do("begin", "b")
    program.do("send", "b", topic=topic, values="in-time")
    program.do("commit", "b")
    assert read(cluster, topic, count=1) == ["in-time"]


def copied(program: Program, cluster: Cluster, name: str) -> None:
    """A topic is copied in transactions, whose offsets say how far."""
    copy(program, cluster, f"{name}-copied", 0)


def killed(program: Program, cluster: Cluster, name: str) -> None:
    """The same while leaders and coordinators are killed."""
    copy(program, cluster, f"{name}-killed", KILLS)


def copy(program: Program, cluster: Cluster, name: str, kills: int) -> None:
    source, target, group, id = (f"{name}-{word}" for word in ("from", "to", "copiers", "copier"))
    cluster.create_topic(source, PARTITIONS)
    cluster.create_topic(target, PARTITIONS)
    victims = cycle(
        [
            ("__transaction_state", partition_of(id, STATE_PARTITIONS)),
            (target, 0),
            ("__consumer_offsets", partition_of(group, STATE_PARTITIONS)),
            (source, 1),
        ]
    )
    program.tell("copy", "-", id=id, group=group, **{"from": source, "to": target})
    count = 0 if kills else 3 * EACH
    write(cluster, source, range(count))
    for topic, partition in islice(victims, kills):
        write(cluster, source, range(count, count + EACH))
        count += EACH
        program.hear("committed")  # it is under way, with all of this round but the first still to come
        broker = cluster.leader(topic, partition)
        cluster.kill(broker)
        write(cluster, source, range(count, count + EACH))
        count += EACH
        cluster.wait_leader(topic, partition, other_than=broker, timeout=PATIENCE_S)
        cluster.start_broker(broker)
        cluster.wait_in_sync(timeout=PATIENCE_S)
    for partition in range(PARTITIONS):
        assert cluster.wait_committed(group, source, partition, count, timeout=PATIENCE_S) == count
    wanted = [str(value) for value in range(count)]
    for partition in range(PARTITIONS):
        assert read(cluster, target, partition, count=count) == wanted
    everything = sum(len(read(cluster, target, each, "read_uncommitted")) for each in range(PARTITIONS))
    assert everything > count * PARTITIONS  # some were aborted


PARTS = {"ended": ended, "offsets": offsets, "fenced": fenced, "late": late, "copied": copied, "killed": killed}


@pytest.mark.interop
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("client", TRANSACTION_CLIENTS, ids=lambda client: client.slug)
def test_transactions_of_a_client(client: Client, cluster: Cluster) -> None:
    with program_of(client, cluster.bootstrap_servers) as program:
        for step in client.steps:
            PARTS[step](program, cluster, client.slug)


def test_the_steps_about_transactions_keep_their_order() -> None:
    assert tuple(PARTS) == TRANSACTION_STEPS
    for client in TRANSACTION_CLIENTS:
        assert list(client.steps) == [step for step in TRANSACTION_STEPS if step in client.steps]
