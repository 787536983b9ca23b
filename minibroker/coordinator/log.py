"""Log of a coordinator: records of one partition that this broker leads; read once, then written, answered when safe.

    load        all records in their order: those below the high watermark are committed, the others are in flight
    append      records are checked at once, and reach the log with those of others of the same turn of the loop
                or, where no follower has to have them, alone and now (`append_alone`): then they are committed, too
    committed   the high watermark has passed them: they count for whoever asks, and who wrote them is answered

What must hold: a write that is refused has changed nothing, and only who sent it suffers; whoever waits is answered,
whatever fails; nobody is answered what could be lost with this broker. A log that cannot be read is never taken for an
empty one.
Not here: what records say, and what becomes of them (its owner, partitions.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from minibroker.clock import REQUEST
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import NONE
from minibroker.log.own_batches import own_batch
from minibroker.log.reading import read
from minibroker.log.records import Record
from minibroker.log.validate import COORDINATOR
from minibroker.parts import Parts
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import Replica

if TYPE_CHECKING:
    from minibroker.clock import Timer
    from minibroker.log.producers import Verification

Done = Callable[[Error], None]
EncodedRecord = tuple[bytes, bytes | None]


class BrokenRecord(Exception):
    """A record that was read, but has been looked at only later, is broken."""

    def __init__(self, offset: int, failure: Exception):
        super().__init__(str(failure))
        self.offset = offset
        self.failure = failure


class Owner(Protocol):
    """Who knows what the records say."""

    def take_batch(self, batch: Batch, begun: int) -> Iterator[int]:
        """Take the records of a batch that is loaded, from an offset on; ProtocolError if one cannot be read.

        It yields how long about it has taken since it last did, in microseconds; so does `prepare`.
        """
        ...

    def prepare(self) -> Iterator[int]:
        """All has been read: make of the records what they say; BrokenRecord if one cannot be read after all."""
        ...

    def loaded(self) -> None:
        """From now on requests are answered."""

    def unreadable(self, offset: int, failure: Exception) -> None:
        """Nothing from an offset on can be read: the partition is not coordinated."""

    def committed(self, write: Write) -> None:
        """A write counts for whoever asks."""

    def refused(self, writes: Sequence[Write], error: KafkaError) -> None:
        """Writes that had been taken cannot reach the log: as if they had never been."""

    def before_answers(self) -> None:
        """Somebody is about to be answered."""

    def answered(self, write: Write) -> None:
        """Somebody has been."""


LOAD_BYTES: Final = 256 << 10  # read at once: half a millisecond if the disk has it at hand
LOAD_US: Final = 500
BATCH_BYTES_MAX: Final = 512 << 10  # records of several requests go into one batch up to here
HEADER_BYTES: Final = 61  # of a batch
RECORD_BYTES: Final = 20  # at most, of a record beside its key and value
RECORD_BYTES_MIN: Final = 7  # of a record


class BatchHead(NamedTuple):
    """What the batch of a write says beside its records: whose transaction it belongs to, or ends."""

    producer_id: int
    producer_epoch: int
    control: bytes | None = None  # the whole batch of a marker, which has no other records
    verification: Verification | None = None
    transaction_version: int = 0  # of a marker, as who wants it written says


NO_HEAD: Final = BatchHead(-1, -1)


class Write:
    """Records that are written together, in one batch."""

    __slots__ = ("done", "end_offset", "head", "records", "size_bytes", "timeout_ms", "until_ms")

    def __init__(
        self,
        records: Sequence[EncodedRecord],
        done: Done | None,
        *,
        head: BatchHead | None = None,
        timeout_ms: int | None = None,
    ):
        """head: the batch is their own, and says so much; otherwise they share one with others of the same turn."""
        self.records = records
        self.done = done  # told when they are committed, or why not; None: nobody is, or has been
        self.head = head
        self.timeout_ms = timeout_ms  # for how long who waits has patience; None: as the log says
        self.size_bytes = records_bytes(records)
        self.end_offset = -1  # behind the last of them, once they are in the log
        self.until_ms = 0  # when who waits gives up, as requests count time


def records_bytes(records: Sequence[EncodedRecord]) -> int:
    """Return how large a batch of records is at most, when it is not compressed."""
    size_bytes = HEADER_BYTES
    for key, value in records:
        size_bytes += RECORD_BYTES + len(key) + (0 if value is None else len(value))
    return size_bytes


class CoordinatorLog:
    """One, from when this broker leads to when it does no more."""

    def __init__(self, parts: Parts, replica: Replica, owner: Owner, *, codec: int, timeout_ms: int):
        """codec: of its batches. timeout_ms: for how long who waits for a write has patience, if that says nothing."""
        self.parts = parts
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.is_loading = True
        self.is_closed = False
        self._owner = owner
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._writes: list[Write] = []  # of this turn of the loop
        self._in_flight: deque[Write] = deque()  # in the log, and not on every replica in sync
        self._waiting: deque[Write] = deque()  # those of them that somebody waits for
        self._is_flushed_soon = False
        self._patience: Timer | None = None
        self._patience_ms = 0  # when it ends
        replica.waiters[self._moved] = None

    def close(self) -> None:
        """Write no more: who waits has to look for another coordinator."""
        self.is_closed = True
        self.replica.waiters.pop(self._moved, None)
        if self._patience is not None:
            self._patience.cancel()
        writes = [*self._waiting, *self._writes]
        self._waiting.clear()
        self._writes.clear()
        self._in_flight.clear()
        for write in writes:
            self._answer(write, Error.NOT_COORDINATOR)

    # Reading

    def load(self) -> None:
        """Read all of it: at once if that is little, else in shares."""
        self.parts.shares.begin(self._load())

    def _load(self) -> Generator[int, None, None]:
        offset, log = self.replica.log.log_start_offset, self.replica.log
        try:
            while found := read(log, offset, LOAD_BYTES, limit_offset=log.log_end_offset):
                begun = offset
                for batch in batches(found.view()):
                    batch.check_crc()
                    for spent_us in self._owner.take_batch(batch, begun):
                        yield spent_us
                        if self.is_closed:
                            return
                    offset = batch.last_offset + 1
                if offset == begun:
                    break
                yield LOAD_US
                if self.is_closed:
                    return
                offset = max(offset, log.log_start_offset)  # somebody may delete records meanwhile
            for spent_us in self._owner.prepare():
                yield spent_us
                if self.is_closed:
                    return
        except BrokenRecord as broken:
            self._owner.unreadable(broken.offset, broken.failure)
            return
        except (KafkaError, ProtocolError) as failure:
            self._owner.unreadable(offset, failure)
            return
        self.is_loading = False
        self._owner.loaded()
        self._see()

    def is_loaded_safe(self, offset: int) -> bool:
        """Whether a record that is read counts already: those behind one that does not wait for it, in their order."""
        return not self._in_flight and offset < self.replica.high_watermark

    def load_in_flight(self, write: Write, end_offset: int) -> None:
        """Note records that were read above the high watermark."""
        write.end_offset = end_offset
        self._in_flight.append(write)

    # Writing

    @property
    def is_alone(self) -> bool:
        """Whether what is written counts with that: there are no other replicas that are to have it."""
        role = self.replica.role
        return isinstance(role, LeaderState) and not role.followers

    @property
    def batch_bytes_max(self) -> int:
        settings = self.replica.log.settings
        return min(BATCH_BYTES_MAX, settings.validation.max_message_bytes, settings.segment_bytes)

    def append(self, write: Write) -> None:
        """Take records; KafkaError if they cannot be written: nothing has happened then.

        They reach the log in the end of this turn of the loop, before anybody is answered. Large ones do at once, and
        those of a transaction, since whether the log takes them has to be known before anything is made of them.
        """
        self.check_open()
        self.replica.check_append()
        if write.head is not None or write.size_bytes > self.batch_bytes_max:
            self.flush()  # what came before
            try:
                self._append([write])
            except KafkaError as error:
                self._see_disk(error)
                raise
        else:
            self._writes.append(write)
        if not self._is_flushed_soon:
            self._is_flushed_soon = True
            asyncio.get_running_loop().call_soon(self.flush)

    def check_size(self, least_bytes: int) -> None:
        """Raise if records of so many bytes at least make a batch that the log would refuse; nobody builds it then."""
        bytes_max = self.replica.log.settings.validation.max_message_bytes
        if self._codec == NONE and HEADER_BYTES + least_bytes > bytes_max:
            raise KafkaError(Error.MESSAGE_TOO_LARGE, f"records of {least_bytes} bytes, and a batch has {bytes_max}")

    def check_open(self) -> None:
        """Raise if another coordinator has come after this one, or is about to."""
        if self.is_closed or self.replica.leader_epoch != self.epoch:
            raise KafkaError(Error.NOT_COORDINATOR, f"{self.replica.topic}-{self.replica.partition} is led elsewhere")

    def not_committed(self) -> Iterator[Write]:
        """Yield what has been taken and is not committed, in its order."""
        yield from self._in_flight
        yield from self._writes

    def flush(self) -> None:
        """Append what has come in this turn; it is done in the end of the turn, if nobody wants it earlier."""
        self._is_flushed_soon = False
        while self._writes and not self.is_closed:
            batch: list[Write] = []
            size_bytes = 0
            for write in self._writes:
                if batch and size_bytes + write.size_bytes > self.batch_bytes_max:
                    break
                batch.append(write)
                size_bytes += write.size_bytes
            del self._writes[: len(batch)]
            try:
                self._append(batch)
            except KafkaError as error:
                self._refuse(batch, error)
            except Exception as failure:
                self._refuse(batch, KafkaError(Error.UNKNOWN_SERVER_ERROR, str(failure)))
                self._report(failure)
        self._see()

    def append_alone(self, records: Sequence[EncodedRecord]) -> None:
        """Write records where there is no other replica: they count when this returns, and nobody waits.

        KafkaError if they cannot be written: nothing has happened then.
        """
        if self._writes:
            self.flush()  # what came before
        try:
            self._append_records(records, NO_HEAD)
        except KafkaError as error:
            self._see_disk(error)
            raise

    def _append(self, batch: list[Write]) -> None:
        records = [record for write in batch for record in write.records]
        offset = self._append_records(records, batch[0].head or NO_HEAD) - len(records)
        elapsed_ms = self.parts.clock.elapsed_ms()
        for write in batch:
            offset += len(write.records)
            write.end_offset = offset
            write.until_ms = elapsed_ms + (self._timeout_ms if write.timeout_ms is None else write.timeout_ms)
            self._in_flight.append(write)
            if write.done is not None:
                self._waiting.append(write)
                if self._patience is None or write.until_ms < self._patience_ms:
                    self._give_up_at(write.until_ms)

    def _append_records(self, records: Sequence[EncodedRecord], head: BatchHead) -> int:
        """Append a batch; return where the log ends then."""
        self.check_open()
        clock, log = self.parts.clock, self.replica.log
        now_ms = clock.now_ms()
        if not records and head.control is None:
            return log.log_end_offset
        own = None
        if head is NO_HEAD and self._codec == NONE:
            own = own_batch(records, log.settings.validation, log.log_end_offset, self.epoch, now_ms)
        appended = self.replica.append(
            bytearray(head.control or self._built(records, head, now_ms)) if own is None else own.chunks[0],
            now_ms=now_ms,
            steady_ms=clock.steady_ms(),
            acks=-1,
            origin=COORDINATOR,
            verification=head.verification,
            transaction_version=head.transaction_version,
            checked=own,
        )
        return appended.last_offset + 1

    def _built(self, records: Sequence[EncodedRecord], head: BatchHead, now_ms: int) -> bytes:
        return build_batch(
            2,
            [Record(key, value, (), now_ms, index) for index, (key, value) in enumerate(records)],
            codec=self._codec,
            producer_id=head.producer_id,
            producer_epoch=head.producer_epoch,
            base_sequence=-1 if head.producer_id < 0 else 0,  # as Kafka: coordinators do not count their batches
            transactional=head.producer_id >= 0,
        )

    def _refuse(self, batch: list[Write], error: KafkaError) -> None:
        if self.is_closed:
            for write in batch:
                self._answer(write, Error.NOT_COORDINATOR)
            return
        self._see_disk(error)
        self._owner.refused(batch, error)

    def _see_disk(self, error: KafkaError) -> None:
        if error.code == Error.KAFKA_STORAGE_ERROR:
            self.parts.disk_failed(error)

    # The high watermark

    def _moved(self, added_bytes: int) -> None:
        if not self.is_loading:
            self._see()

    def _see(self) -> None:
        """Let count what is safe, and tell who waits for it."""
        replica = self.replica
        if self.is_closed or not replica.is_leader or replica.leader_epoch != self.epoch:
            return  # the coordinator is about to say so
        if self._waiting:
            self._owner.before_answers()
        high_watermark = replica.high_watermark
        while self._in_flight and self._in_flight[0].end_offset <= high_watermark:
            self._owner.committed(self._in_flight.popleft())
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            self._answer(self._waiting.popleft(), Error.NONE)

    def _give_up(self) -> None:
        """Tell those who have waited too long; what they wrote may still come to count."""
        self._owner.before_answers()
        self._patience = None
        elapsed_ms = self.parts.clock.elapsed_ms()
        late = [write for write in self._waiting if write.until_ms <= elapsed_ms]
        self._waiting = deque(write for write in self._waiting if write.until_ms > elapsed_ms)
        self.answer(late, Error.COORDINATOR_NOT_AVAILABLE)
        if self._waiting and not self.is_closed:
            self._give_up_at(min(write.until_ms for write in self._waiting))

    def _give_up_at(self, until_ms: int) -> None:
        if self._patience is not None:
            self._patience.cancel()
        delay_ms = max(until_ms - self.parts.clock.elapsed_ms(), 0)
        self._patience_ms = until_ms
        self._patience = self.parts.clock.after(delay_ms, self._give_up, REQUEST)

    def answer(self, writes: Sequence[Write], error: Error) -> None:
        for write in writes:
            self._answer(write, error)

    def _answer(self, write: Write, error: Error) -> None:
        done, write.done = write.done, None
        if done is None:
            return
        try:
            done(error)
            self._owner.answered(write)
        except Exception as failure:  # one who fails must not keep the others from their answers
            self._report(failure)

    def _report(self, failure: Exception) -> None:
        topic = f"{self.replica.topic}-{self.replica.partition}"
        asyncio.get_running_loop().call_exception_handler({"message": f"{topic} failed", "exception": failure})
