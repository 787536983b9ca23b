"""Counts by name: the smallest state that a coordinator can keep, in a topic of its own, one number a record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.coordinator.log import BatchHead, Done, Write
from minibroker.coordinator.partitions import LedPartition, LedPartitions, bytes_of
from minibroker.coordinator.service import CoordinatorService
from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.reading import read
from minibroker.log.records import Record
from minibroker.replication.replica import Replica

TOPIC = "counts"
CODEC, TIMEOUT_MS = 0, 5000


class CountWrite(Write):
    """One count, on its way into the log."""

    __slots__ = ("count", "name")

    def __init__(
        self, name: str, count: int, done: Done | None, *, head: BatchHead | None = None, timeout_ms: int | None = None
    ):
        is_marker = head is not None and head.control is not None
        records = [] if is_marker else [(name.encode(), b"%d" % count)]
        super().__init__(records, done, head=head, timeout_ms=timeout_ms)
        self.name = name
        self.count = count


class CountPartition(LedPartition):
    """The counts of one partition: as they are written, and as they are committed."""

    def __init__(self, partitions: LedPartitions[CountPartition], replica: Replica):
        super().__init__(partitions, replica, codec=CODEC, timeout_ms=TIMEOUT_MS)
        self.written: dict[str, int] = {}
        self.safe: dict[str, int] = {}
        self.is_prepared = False
        self.log.load()

    def count(
        self, name: str, done: Done, *, head: BatchHead | None = None, timeout_ms: int | None = None
    ) -> CountWrite:
        write = CountWrite(name, self.written.get(name, 0) + 1, done, head=head, timeout_ms=timeout_ms)
        self.log.append(write)
        self.written[name] = write.count
        return write

    def take_record(self, batch: Batch, record: Record, is_safe: bool) -> tuple[int, ...]:
        if batch.is_control:
            return ()
        name, value = (bytes_of(record.key) or b"").decode(), bytes_of(record.value) or b""
        if not value.isdigit():
            raise ProtocolError(f"{value!r} is no count", 0, "count")
        self.written[name] = int(value)
        if is_safe:
            self.safe[name] = int(value)
        else:
            write = CountWrite(name, int(value), None)
            self.take_unsafe(name, write, record.offset)
        return ()

    def prepare(self) -> Iterator[int]:
        self.is_prepared = True
        yield 1

    def committed(self, write: Write) -> None:
        assert isinstance(write, CountWrite)
        self.safe[write.name] = write.count
        self.take_safe(write.name, write)

    def refused(self, writes: Sequence[Write], error: KafkaError) -> None:
        self.written = dict(self.safe)
        for write in self.log.not_committed():
            assert isinstance(write, CountWrite)
            self.written[write.name] = write.count
        super().refused(writes, error)


class Counts(CoordinatorService[LedPartitions[CountPartition]]):
    """The service of a broker that counts."""

    def __init__(self, node: Node):
        super().__init__(node, TOPIC)
        self.node = node

    def make(self) -> LedPartitions[CountPartition]:
        def begin(replica: Replica) -> CountPartition:
            return CountPartition(partitions, replica)

        partitions: LedPartitions[CountPartition] = LedPartitions(
            self.node, self.node.replicas, TOPIC, begin, contents="counts", page="docs/counts.md"
        )
        partitions.follow()
        return partitions


@asynccontextmanager
async def counting(
    storage: MemoryStorage, *, partitions: int = 1, clock: SteeredClock | None = None
) -> AsyncIterator[tuple[Node, Counts]]:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "connections_max_idle_ms": -1}
    node = Node(BrokerConfig.from_sources(given), storage, clock=clock or SteeredClock(), chance=Random(1))
    await node.start()
    counts = Counts(node)
    counts.start()
    try:
        if partitions and TOPIC not in node.image.topics:
            node.create_topic(TOPIC, partitions)
        yield node, counts
    finally:
        counts.stop()
        await node.stop()


def hold(replica: Replica) -> Callable[[], None]:
    """Let another broker be in sync that fetches nothing, so nothing is committed; return how to end that."""
    epoch = replica.as_leader().partition_epoch
    replica.lead(replica.leader_epoch, partition_epoch=epoch + 1, replicas=(1, 2), in_sync=(1, 2))
    return partial(replica.lead, replica.leader_epoch, partition_epoch=epoch + 2, replicas=(1,), in_sync=(1,))


def batches_of(replica: Replica) -> list[Batch]:
    found = read(replica.log, 0, 1 << 20, limit_offset=replica.log.log_end_offset)
    return [] if not found else list(batches(found.view()))
