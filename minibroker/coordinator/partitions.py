"""Partitions of a state topic that this broker leads, and so coordinates: found by the key of what is coordinated.

    led              reads all records; a key is answered for when all that was read of it is safe
    led elsewhere    who waits is told, and all is forgotten
    cannot be read   is coordinated by nobody, until it can

What must hold: what this broker coordinates is what it leads, in the leader epoch in which it does; nobody is told what
could be lost with this broker.
Not here: the log of one (log.py), what its records say, and what of it is told to whom (its owner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from minibroker.clock import CHORE
from minibroker.coordinator.hashing import partition_of
from minibroker.coordinator.log import CoordinatorLog, Owner, Write
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.event_kinds import Coordination
from minibroker.log.batches import Batch
from minibroker.log.records import Record
from minibroker.parts import Parts
from minibroker.replication.replica import Replica
from minibroker.turns import FIRST_US

if TYPE_CHECKING:
    from minibroker.clock import Timer

Led = TypeVar("Led", bound="LedPartition")

RETRY_MS: Final = 1000  # a disk that refused to be read may be read later; so are records written that nobody waits for
# What a client is told of a record that could not be written: to look for another coordinator, or to ask again.
WRITE_ERRORS: Final = {
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.FENCED_LEADER_EPOCH: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
}
UNREADABLE: Final = """\
{directory} cannot be read from offset {offset} on: {failure}
  Nobody coordinates its {contents} as long as that is so; clients are told NOT_COORDINATOR, and nothing is lost.
  To go on without what it holds: stop the broker, move the directory away, and start it again ({page})."""


def write_error(error: KafkaError) -> Error:
    """Return what a client is told of records that could not be written."""
    return WRITE_ERRORS.get(Error(error.code), Error(error.code))


def bytes_of(data: Any) -> bytes | None:
    """Return a key or value of a record that is loaded as bytes of its own."""
    return None if data is None else bytes(data)


class LedPartition(Owner):
    """One of them, from when this broker leads it to when it does no more; the owner of its log.

    Its heirs say what records mean: `take_record` when they are read, `committed` and `refused` when they are written.
    What is committed may have been read before it was: then its key waits no more (`take_safe`).
    """

    record_us = 8  # what it takes to take a small one that is read
    bytes_a_us = 25  # and how much more a large one

    def __init__(self, partitions: LedPartitions[Any], replica: Replica, *, codec: int, timeout_ms: int):
        """`log.load` begins; what an heir needs for that has to be there first."""
        self.parts = partitions.parts
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.failure: Exception | None = None  # why it cannot be read
        self.log = CoordinatorLog(self.parts, replica, self, codec=codec, timeout_ms=timeout_ms)
        self._partitions = partitions
        self._unsafe: dict[str, Write] = {}  # by key the last record that was read above the high watermark
        self._retry: Timer | None = None

    @property
    def is_loading(self) -> bool:
        return self.log.is_loading

    def check(self, key: str) -> None:
        """Raise unless requests about a key can be answered."""
        if self.log.is_closed or self.replica.leader_epoch != self.epoch:
            raise KafkaError(Error.NOT_COORDINATOR, f"{self._contents()} have moved")
        if self.failure is not None or self.replica.log.offline is not None:
            raise KafkaError(Error.NOT_COORDINATOR, f"{self._contents()} cannot be read")
        if self.log.is_loading or key in self._unsafe:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS, f"{self._contents()} are being read")

    def _contents(self) -> str:
        return f"the {self._partitions.contents} of partition {self.replica.partition}"

    # Reading

    def take_batch(self, batch: Batch, begun: int) -> Iterator[int]:
        """Take the records of a batch that is loaded, from an offset on."""
        spent_us = 0
        for record in batch.records():
            spent_us += self.record_us + len(record.value or b"") // self.bytes_a_us
            if spent_us >= FIRST_US:
                yield spent_us
                spent_us = 0
            if record.offset >= begun:
                yield from self.take_record(batch, record, self.log.is_loaded_safe(record.offset))
        yield spent_us

    def take_record(self, batch: Batch, record: Record, is_safe: bool) -> Iterable[int]:
        """Take one; if it is not safe its key waits until it is (`take_unsafe`). Return what it takes beyond others."""
        raise NotImplementedError

    def take_unsafe(self, key: str, write: Write, offset: int) -> None:
        """Let a key wait for a record above the high watermark: clients may have been told of it, or may not."""
        self._unsafe[key] = write
        self.log.load_in_flight(write, offset + 1)

    def take_safe(self, key: str, write: Write) -> bool:
        """A write is committed: say whether it was the last that its key has waited for."""
        if self._unsafe.get(key) is not write:
            return False
        del self._unsafe[key]
        return True

    def prepare(self) -> Iterator[int]:
        """All has been read: make of the records what they say."""
        yield from ()

    def loaded(self) -> None:
        """From now on requests are answered."""
        self._partitions.readable(self.replica.partition)

    def unreadable(self, offset: int, failure: Exception) -> None:
        """Coordinate nothing; a disk may be read later, damage stays."""
        self.failure = failure
        self._partitions.unreadable(self.replica, offset, failure)
        if isinstance(failure, StorageError):
            self._retry = self.parts.clock.after(RETRY_MS, self._begin_again, CHORE)

    def _begin_again(self) -> None:
        """Forget all, and read it: what is in memory is not what is in the log."""
        self.resign()
        self._partitions.lead(self.replica)

    # Writing

    def refused(self, writes: Sequence[Write], error: KafkaError) -> None:
        """Writes that had been taken cannot reach the log: as if they had never been."""
        self.log.answer(writes, write_error(error))

    # The end

    def resign(self) -> None:
        """Coordinate no more: who waits has to look for another."""
        if self._retry is not None:
            self._retry.cancel()
        self.log.close()
        self._partitions.tell(self.replica.partition, "has given up")


class LedPartitions(Generic[Led]):
    """All partitions of one topic that one broker coordinates; `follow` begins with them."""

    def __init__(
        self,
        parts: Parts,
        replicas: Mapping[tuple[str, int], Replica],
        topic: str,
        make: Callable[[Replica], Led],
        *,
        contents: str,
        page: str,
    ):
        """contents: what is coordinated, for messages; page: where it is written what to do if it cannot be read."""
        self.parts = parts
        self.replicas = replicas
        self.topic = topic
        self.contents = contents
        self.led: dict[int, Led] = {}
        self._make = make
        self._page = page
        self._unreadable: dict[int, str] = {}  # partitions that cannot be read, and what has been said of that
        parts.watchers[self._metadata_changed] = None

    def stop(self) -> None:
        self.parts.watchers.pop(self._metadata_changed, None)
        self.replicas = {}  # whoever asks from now on begins nothing anew
        for led in list(self.led.values()):
            led.resign()
        self.led.clear()

    def follow(self) -> None:
        """Coordinate what this broker leads, as the metadata say by now."""
        topic = self.parts.image.topics.get(self.topic)
        count = 0 if topic is None else len(topic.partitions)
        for number in {*self.led, *range(count)}:
            replica, led = self.replicas.get((self.topic, number)), self.led.get(number)
            if replica is not None and not (number < count and replica.is_leader and replica.log.offline is None):
                replica = None
            if led is not None and (replica is None or led.replica is not replica or led.epoch != replica.leader_epoch):
                led.resign()  # who waited may ask again at once, and must not find an empty place
                del self.led[number]
                led = None
            if replica is not None and led is None:
                self.lead(replica)

    def _metadata_changed(self) -> None:
        self.follow()

    def lead(self, replica: Replica) -> None:
        """Begin to coordinate a partition, or read it again."""
        before = self.led.get(replica.partition)
        assert before is None or before.log.is_closed, f"{self.topic}-{replica.partition} has two coordinators"
        self.tell(replica.partition, "reads")
        self.led[replica.partition] = self._make(replica)

    def _lead_opened(self, number: int) -> Led | None:
        """Coordinate a partition that has just been opened, while others of the topic are still to be."""
        replica = self.replicas.get((self.topic, number))
        if replica is not None and replica.is_leader and replica.log.offline is None:
            self.lead(replica)
        return self.led.get(number)

    def find(self, key: str) -> Led:
        """Return the partition of a key; raise if another broker leads it, or it is being read."""
        topic = self.parts.image.topics.get(self.topic)
        if topic is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"there is no {self.topic} yet")
        number = partition_of(key, len(topic.partitions))
        led = self.led.get(number) or self._lead_opened(number)
        if led is None:
            raise KafkaError(Error.NOT_COORDINATOR, f"another broker coordinates {key!r}")
        led.check(key)
        return led

    # What cannot be read

    def unreadable(self, replica: Replica, offset: int, failure: Exception) -> None:
        """Say once that a partition is not coordinated, and how to go on."""
        if self._unreadable.get(replica.partition) != str(failure):
            self._unreadable[replica.partition] = str(failure)
            self.parts.reporter.say(
                UNREADABLE.format(
                    directory=replica.log.directory,
                    offset=offset,
                    failure=failure,
                    contents=self.contents,
                    page=self._page,
                )
            )

    def tell(self, partition: int, state: str) -> None:
        """Let watchers know what has become of a partition."""
        if self.parts.events.observed:
            self.parts.events.emit(Coordination(self.parts.node_id, self.topic, partition, state))

    def readable(self, partition: int) -> None:
        self.tell(partition, "has read")
        if self._unreadable.pop(partition, None) is not None:
            self.parts.reporter.say(f"{self.topic}-{partition}: its {self.contents} have been read")
