"""Brokers are killed, stopped, paused and cut off in turns while a client of others goes on writing and reading.

The work goes in rounds: in each, the client sends some numbered records to every partition, acks=all and idempotent,
and says which offsets were acknowledged. A disturbance strikes when a round has begun and not ended; then somebody else
has to lead, the broker comes back, and the round has to end. So each of them hits work that is under way, and nothing
here sleeps or asks again and again.

What must hold at the end: every record that was acknowledged is at its offset, on every replica; the records of a
partition are in the order in which they were sent, each of them once; and a reader has read exactly these.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Protocol

from minibroker import Cluster
from minibroker.embedded.reading import records_of

TOPIC = "orders"
PARTITIONS = 3
EACH = 3  # records to each partition in a round
BROKERS = 3
PATIENCE_S = 30.0
SETTINGS = {
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 200,  # so that a broker that hangs is replaced soon
    "broker.heartbeat.interval.ms": 40,
    "replica.lag.time.max.ms": 300,
    "replica.fetch.wait.max.ms": 300,
    "replica.fetch.backoff.ms": 20,
}


class Client(Protocol):
    """A client that writes and reads. Everything is called in threads of its own."""

    def __init__(self, bootstrap_servers: str): ...

    def send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        """Write records (partition and number), tell the offset of each, and return when all are acknowledged."""
        ...

    def read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        """Read so many records of each partition from the beginning: partition, offset and number."""
        ...

    def close(self) -> None: ...


class Work:
    """The rounds of a client, in a thread."""

    def __init__(self, client: Client):
        self.client = client
        self.acked: dict[tuple[int, int], int] = {}  # offset by partition and number
        self.sent = 0  # numbers that each partition has got
        self.failure: BaseException | None = None
        self._changed = threading.Condition()
        self._wanted = self._done = 0  # rounds
        self._thread = threading.Thread(target=self._run, name="work")
        self._thread.start()

    def begin(self) -> None:
        """Let a round begin; return when the first of its records is acknowledged."""
        before = len(self.acked)
        with self._changed:
            self._wanted += 1
            self._changed.notify_all()
        self._wait(lambda: len(self.acked) > before, "the first record of a round")

    def finish(self) -> None:
        """Return when every record that was sent is acknowledged."""
        self._wait(lambda: self._done == self._wanted, "the last record of a round")

    def end(self) -> None:
        with self._changed:
            self._wanted = -1
            self._changed.notify_all()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the client does not end"

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        with self._changed:
            has_come = self._changed.wait_for(lambda: condition() or self.failure is not None, PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        assert has_come, f"{what} has not come within {PATIENCE_S:g} s; {len(self.acked)} are acknowledged"

    def _ack(self, partition: int, number: int, offset: int) -> None:
        with self._changed:
            assert (partition, number) not in self.acked, f"{partition} {number} is acknowledged twice"
            self.acked[partition, number] = offset
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._wanted != self._done)
                    if self._wanted < 0:
                        break
                # One after the other first, then together: both what is under way and what comes after is disturbed.
                for _ in range(2):
                    numbers = range(self.sent, self.sent + EACH)
                    self.sent += EACH
                    self.client.send([(each, number) for number in numbers for each in range(PARTITIONS)], self._ack)
                with self._changed:
                    self._done += 1
                    self._changed.notify_all()
        except BaseException as failure:
            with self._changed:
                self.failure = failure
                self._changed.notify_all()


# Disturbances: each takes a broker away, and gives it back when somebody else leads.


def killed(cluster: Cluster, broker: int) -> Iterator[None]:
    cluster.kill(broker)
    yield
    cluster.start_broker(broker)


def without_power(cluster: Cluster, broker: int) -> Iterator[None]:
    cluster.kill(broker, lossy=True)
    yield
    cluster.start_broker(broker)


def stopped(cluster: Cluster, broker: int) -> Iterator[None]:
    cluster.stop_broker(broker)
    yield
    cluster.start_broker(broker)


def paused(cluster: Cluster, broker: int) -> Iterator[None]:
    cluster.pause(broker)
    yield
    cluster.resume(broker)


def cut_off(cluster: Cluster, broker: int) -> Iterator[None]:
    cluster.isolate(broker)
    yield
    cluster.heal()


def cut_from_brokers(cluster: Cluster, broker: int) -> Iterator[None]:
    """Clients still reach it: it takes records that it cannot commit."""
    cluster.split([broker], ["controller", *(each for each in range(1, BROKERS + 1) if each != broker)])
    yield
    cluster.heal()


DISTURBANCES = (killed, stopped, killed, paused, without_power, killed, cut_off, stopped, killed, cut_from_brokers)


def turmoil(new_client: Callable[[str], Client], count: int, **more: object) -> Counter[str]:
    """Disturb a client so many times and check what came of it; return how often each disturbance struck."""
    struck: Counter[str] = Counter()
    with Cluster(BROKERS, topics=f"{TOPIC}:{PARTITIONS}", config=SETTINGS, **more) as cluster:  # type: ignore[arg-type]
        writer = new_client(cluster.bootstrap_servers)
        work = Work(writer)
        try:
            for number, disturb in enumerate(islice(cycle(DISTURBANCES), count)):
                partition = number % PARTITIONS
                broker = cluster.leader(TOPIC, partition)
                work.begin()
                disturbance = disturb(cluster, broker)
                next(disturbance)
                cluster.wait_leader(TOPIC, partition, other_than=broker, timeout=PATIENCE_S)
                next(disturbance, None)
                work.finish()
                for each in range(PARTITIONS):
                    cluster.wait_isr(TOPIC, each, timeout=PATIENCE_S)
                struck[disturb.__name__] += 1
        finally:
            work.end()
            writer.close()
        cluster.wait_in_sync()
        check(cluster, work, new_client)
    return struck


def check(cluster: Cluster, work: Work, new_client: Callable[[str], Client]) -> None:
    """Compare what was sent, what was acknowledged, what every replica holds and what a reader reads."""
    sent = {partition: list(range(work.sent)) for partition in range(PARTITIONS)}
    assert len(work.acked) == work.sent * PARTITIONS
    held: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for record in cluster.records(TOPIC):
        held[record.partition].append((record.offset, int(record.value or b"")))
    for partition, rows in held.items():
        numbers = [number for _, number in rows]
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"partition {partition} holds {twice} twice"
        lost = sorted({*sent[partition]} - {*numbers})
        assert not lost, f"partition {partition} has lost {lost}"
        assert numbers == sent[partition], f"partition {partition} is out of order"
        offsets = {number: offset for offset, number in rows}
        wrong = {
            number: (offset, offsets[number])
            for (each, number), offset in work.acked.items()
            if each == partition and offset not in (offsets[number], -1)  # -1: the client was not told
        }
        assert not wrong, f"partition {partition}: acknowledged at one offset, found at another: {wrong}"
    assert_replicas_agree(cluster)
    reader = new_client(cluster.bootstrap_servers)
    try:
        found = reader.read({partition: len(rows) for partition, rows in held.items()})
    finally:
        reader.close()
    assert sorted(found) == sorted(
        (partition, offset, number) for partition, rows in held.items() for offset, number in rows
    )


def assert_replicas_agree(cluster: Cluster) -> None:
    """Compare the records of all replicas with each other."""
    core = cluster._running().core
    for partition in range(PARTITIONS):
        copies = []
        for broker in core.broker_ids:
            replica = core.replica(TOPIC, partition, broker)
            assert replica is not None
            copies.append([(each.offset, each.value, each.timestamp) for each in records_of(replica)])
        # A follower learns of the last high watermark with its next fetch, so it may be some records behind in that.
        shortest = min(map(len, copies))
        assert all(copy[:shortest] == copies[0][:shortest] for copy in copies)


class Process:
    """A client in a process of its own: told on stdin what to do, it says on stdout what was done.

    send PARTITION NUMBER ...   ->   ack PARTITION NUMBER OFFSET, one line each, then: done
    read PARTITION COUNT ...    ->   got PARTITION OFFSET NUMBER, one line each, then: done
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None):
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )

    def send(self, records: list[tuple[int, int]], acked: Callable[[int, int, int], None]) -> None:
        for word, *numbers in self._ask("send", [number for record in records for number in record]):
            assert word == "ack", word
            acked(*map(int, numbers))

    def read(self, counts: dict[int, int]) -> list[tuple[int, int, int]]:
        rows = self._ask("read", [number for row in counts.items() for number in row])
        return [(int(partition), int(offset), int(number)) for _, partition, offset, number in rows]

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(PATIENCE_S) == 0

    def _ask(self, verb: str, numbers: list[int]) -> Iterator[list[str]]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(" ".join([verb, *map(str, numbers)]) + "\n")
        for line in self._process.stdout:
            if line == "done\n":
                return
            yield line.split()
        raise AssertionError(f"the client has ended with {self._process.wait(PATIENCE_S)}")
