"""Partition of __transaction_state that this broker leads: its transactional ids in memory, their records in the log.

    read             an id is answered for when the last record that was read of it is safe; what was prepared goes on
    a transition     its record is written; when it is safe the id has changed, and who asked is answered
    a preparation    when it is safe the markers are sent, and when the last of them is, the completion is written

What must hold: nothing is told, and no marker sent, that could be lost with this broker. A completion that cannot be
written is tried again for as long as this broker coordinates: nothing else of its id can happen before.
Not here: what requests may do (shard.py), markers (markers.py), which partitions there are (coordinator.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from minibroker.clock import CHORE, REQUEST
from minibroker.coordinator.log import BrokenRecord, EncodedRecord, Write
from minibroker.coordinator.partitions import RETRY_MS, LedPartition, LedPartitions, bytes_of, write_error
from minibroker.errors import EncodeError, Error, KafkaError, ProtocolError
from minibroker.event_kinds import Transaction
from minibroker.log.batches import Batch
from minibroker.log.compression import NONE
from minibroker.log.records import Record
from minibroker.metadata.features import TRANSACTION_VERSION
from minibroker.replication.replica import Replica
from minibroker.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata
from minibroker.transactions.records import decode, encode, is_known
from minibroker.transactions.shard import TransactionalId, TransactionLimits, TransactionShard, Transition
from minibroker.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    State,
)

Answer = Error | ProducerIdAndEpoch
Answered = Callable[[Answer], None]

TIMEOUT_MS: Final = 60_000  # Kafka's default for a transaction: a write without one of its own is given up as late
# What a client is told of a record that the log does not take at any time.
TOO_LARGE: Final = (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE)
# What an end has that an open transaction may not have yet: producer ids before and after, and the client's version.
END_BYTES: Final = 64
NOT_ENDED: Final = """\
transaction {name!r} cannot be ended: its record is too large for {topic}
  It stays {state}, and consumers with read_committed wait for it, until max.message.bytes of that topic is raised."""
WAITING_MAX: Final = 100  # for a change of one id: its producer has one request under way to each leader
DECODED_US: Final = 15  # what the last record of an id takes
DECODED_BYTES_A_US: Final = 16  # and how much more with its partitions
RESUMED_US: Final = 1
PREPARED: Final = PREPARE_COMMIT, PREPARE_ABORT
COMPLETED: Final = COMPLETE_COMMIT, COMPLETE_ABORT


class TransitionWrite(Write):
    """The record of a transition."""

    __slots__ = ("transition", "why")

    def __init__(self, record: EncodedRecord, transition: Transition, why: str, answered: Answered | None):
        to = transition.to
        super().__init__(
            (record,),
            None if answered is None else lambda error: answered(_told(error, transition)),
            timeout_ms=None if to is None else to.timeout_ms,
        )
        self.transition = transition
        self.why = why


class LoadedWrite(Write):
    """A record that was read above the high watermark."""

    __slots__ = ("metadata", "name")

    def __init__(self, name: str, metadata: TransactionMetadata | None):
        super().__init__((), None)
        self.name = name
        self.metadata = metadata


class TransactionStatePartition(LedPartition):
    """One partition of the topic that this broker leads, from when it leads to when it does no more."""

    record_us = 6  # it is kept as it is
    bytes_a_us = 250

    def __init__(
        self,
        partitions: LedPartitions[TransactionStatePartition],
        replica: Replica,
        limits: TransactionLimits,
        send_markers: Callable[[TransactionStatePartition, Transition], None],
    ):
        """send_markers: has the markers of a prepared transaction written, and then carries out the completion."""
        super().__init__(partitions, replica, codec=NONE, timeout_ms=TIMEOUT_MS)
        self.shard = TransactionShard(limits, self.level, is_before_4=self.parts.emulated.is_before_4)
        self._send_markers = send_markers
        self._read: dict[bytes, tuple[int, bytes | None]] = {}  # by key offset and value of its last safe record
        self._resumed: list[Transition] = []  # completions of what had been prepared, until all has been read
        self._waiting: dict[str, list[Callable[[Error], object]]] = {}  # by id: for its change to be over
        self.log.load()

    def level(self) -> int:
        """Return the level of transaction.version."""
        return self.parts.image.features.get(TRANSACTION_VERSION, 0)

    # Reading

    def take_record(self, batch: Batch, record: Record, is_safe: bool) -> Iterable[int]:
        """Take what is known of an id; if that is not safe the id waits.

        Of what is safe only the last record of each id is decoded, when all has been read: the producer of a large
        transaction has written all its partitions anew with each one more.
        """
        if batch.is_control:
            return ()  # a marker for this topic: anybody may have one written
        key, value = bytes_of(record.key), bytes_of(record.value)
        if key is None or not is_known(key, value):
            return ()
        if is_safe:
            self._read.pop(key, None)  # ids stay in the order of their last records
            self._read[key] = record.offset, value
            return ()
        name, metadata = _decoded(key, value)
        self.take_unsafe(name, LoadedWrite(name, metadata), record.offset)
        return (_decoded_us(value),)

    def prepare(self) -> Iterator[int]:
        """Decode what has been read, and find out what has been prepared."""
        read, self._read = self._read, {}
        for key, (offset, value) in read.items():
            yield _decoded_us(value)
            try:
                name, metadata = _decoded(key, value)
            except ProtocolError as failure:
                raise BrokenRecord(offset, failure) from None
            self.shard.replay(name, metadata)
            if metadata is not None and name not in self._unsafe:
                self._resume(self.shard.ids[name])

    def loaded(self) -> None:
        """Coordinate, and go on with what has been prepared."""
        super().loaded()
        self.parts.shares.begin(self._send_resumed())

    def _send_resumed(self) -> Generator[int, None, None]:
        resumed, self._resumed = self._resumed, []
        for completion in resumed:
            self._send_markers(self, completion)
            yield RESUMED_US

    def _take_loaded(self, write: LoadedWrite) -> None:
        """A record that was read is safe."""
        self.shard.replay(write.name, write.metadata)
        found = self.shard.ids.get(write.name)
        if self.take_safe(write.name, write) and found is not None:
            self._resume(found)

    def _resume(self, found: TransactionalId) -> None:
        if self.parts.events.observed:
            why = f"broker {self.parts.node_id} coordinates it now"
            self._tell(found.name, found.metadata, found.metadata.state.name, None, why)
        completion = self.shard.resume(found, self.parts.clock.now_ms())
        if completion is None:
            return
        if self.is_loading:  # nobody is asked before all of it is known
            self._resumed.append(completion)
        else:
            self._send_markers(self, completion)

    def expire(self, found: TransactionalId) -> Transition | None:
        """Have an id forgotten that nobody has used for long; None: it stays."""
        if self.log.is_closed or found.name in self._unsafe or self.shard.ids.get(found.name) is not found:
            return None
        transition = self.shard.expire(found, self.parts.clock.now_ms())
        if transition is not None:
            self.carry_out(transition, f"it was not used for {self.shard.limits.expiration_ms} ms")
        return transition

    # Writing

    def carry_out(self, transition: Transition, why: str, answered: Answered | None = None) -> None:
        """Write a transition down; who asked for it is answered when every replica in sync has it, or why not.

        Kafka: an id whose record was not safe in time may change again though the record may still come to count; here
        its next change waits (CONCURRENT_TRANSACTIONS).
        """
        name = transition.of.name
        try:
            record = encode(name, transition.to, self.level())
        except EncodeError as failure:
            record, error = (b"", None), KafkaError(Error.RECORD_LIST_TOO_LARGE, f"{name[:100]!r}: {failure}")
            self.refused([TransitionWrite(record, transition, why, answered)], error)
            return
        write = TransitionWrite(record, transition, why, answered)
        try:
            if transition.to is not None and transition.to.state is ONGOING:
                self._check_room(write)
            self.log.append(write)
        except KafkaError as error:
            self.refused([write], error)

    def _check_room(self, write: TransitionWrite) -> None:
        """Raise unless the end of a transaction will fit, too: what has begun can be aborted at any time.

        Kafka: looks at the record only as it is; one that just fits cannot be aborted by its coordinator.
        """
        settings = self.replica.log.settings
        bytes_max = min(settings.validation.max_message_bytes, settings.segment_bytes)
        if write.size_bytes + END_BYTES > bytes_max:
            name = write.transition.of.name
            raise KafkaError(Error.RECORD_LIST_TOO_LARGE, f"{name[:100]!r}: no room to end it in {bytes_max} bytes")

    def refused(self, writes: Sequence[Write], error: KafkaError) -> None:
        """Take back what cannot be written; a completion stays."""
        for write in writes:
            assert isinstance(write, TransitionWrite)
            if write.transition.to is not None and write.transition.to.state in COMPLETED:
                self._complete_later(write)
            else:
                self.shard.refused(write.transition)
                name = write.transition.of.name
                if error.code in TOO_LARGE and write.transition.to is not None:
                    self._say_not_ended(write.transition.of, write.transition.to.state)
                self._free(name, self._waiting.get(name))
        code = Error.UNKNOWN_SERVER_ERROR if error.code in TOO_LARGE else write_error(error)
        self.log.answer(writes, code)
        if error.code == Error.UNKNOWN_SERVER_ERROR and not self.log.is_closed:
            self._begin_again()  # ours: nobody knows what of it is in the log

    def _say_not_ended(self, found: TransactionalId, wanted: State) -> None:
        if wanted in PREPARED:
            topic, state = self.replica.topic, found.metadata.state.name
            line = NOT_ENDED.format(name=found.name[:100], topic=topic, state=state)
            self.parts.say_once("ends of transactions", line)

    def when_free(self, name: str, tell: Callable[[Error], object]) -> None:
        """Tell when the change of an id that is under way is over, or it would be time to ask again; or why never."""
        waiting = self._waiting.get(name)
        if waiting is None:
            waiting = self._waiting[name] = []
            backoff_ms = self.parts.config["add.partitions.to.txn.retry.backoff.ms"]
            self.parts.clock.after(backoff_ms, partial(self._free, name, waiting), REQUEST)
        waiting.append(tell)
        if len(waiting) == WAITING_MAX:
            self._free(name, waiting)

    def _free(self, name: str, waiting: list[Callable[[Error], object]] | None) -> None:
        """Let those go on who wait for an id, if these still do."""
        if waiting and self._waiting.get(name) is waiting:
            del self._waiting[name]
            for tell in waiting:
                tell(Error.NONE)

    def resign(self) -> None:
        super().resign()
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            for tell in each:
                tell(Error.NOT_COORDINATOR)

    def _complete_later(self, write: TransitionWrite) -> None:
        self.parts.clock.after(RETRY_MS, lambda: self._complete_again(write), CHORE)

    def _complete_again(self, write: TransitionWrite) -> None:
        if not self.log.is_closed:
            self.carry_out(write.transition, write.why)

    def committed(self, write: Write) -> None:
        """Let a transition count; if it has prepared a transaction, send the markers."""
        if isinstance(write, LoadedWrite):
            self._take_loaded(write)
            return
        assert isinstance(write, TransitionWrite)
        transition = write.transition
        found = transition.of
        before = found.metadata
        completion = self.shard.committed(transition, self.parts.clock.now_ms())
        if self.parts.events.observed:
            # An id that was made for this transition has no state before it.
            was = "" if before.producer_epoch < 0 else before.state.name
            self._tell(found.name, transition.to or before, was, DEAD if transition.to is None else None, write.why)
        if completion is not None:
            self._send_markers(self, completion)
        elif self._waiting:
            self._free(found.name, self._waiting.get(found.name))

    def before_answers(self) -> None:
        """Nothing depends on when that is."""

    def answered(self, write: Write) -> None:
        """Nothing waits for it."""

    # Events

    def _tell(self, name: str, metadata: TransactionMetadata, before: str, after: State | None, why: str) -> None:
        self.parts.events.emit(
            Transaction(
                broker=self.parts.node_id,
                id=name,
                producer_id=metadata.producer_id,
                producer_epoch=metadata.producer_epoch,
                before=before,
                after=(after or metadata.state).name,
                partitions=tuple(f"{topic}-{number}" for topic, number in metadata.partitions),
                why=why,
                timeout_ms=metadata.timeout_ms,
                start_ms=metadata.start_ms,
            )
        )


def _decoded_us(value: bytes | None) -> int:
    return DECODED_US + len(value or b"") // DECODED_BYTES_A_US


def _decoded(key: bytes, value: bytes | None) -> tuple[str, TransactionMetadata | None]:
    decoded = decode(key, value)
    assert decoded is not None, "what is not known is not kept"
    return decoded


def _told(error: Error, transition: Transition) -> Answer:
    return transition.answer if error is Error.NONE else error
