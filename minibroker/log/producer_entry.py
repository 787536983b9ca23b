"""One producer in one partition: its epoch, its last batches, its open transaction; and the markers that end those.

What must hold: `batches` are those of the current epoch, oldest first, at most five, with sequence numbers that follow
each other; without any the producer has only ended transactions so far.
Not here: whether a batch may be appended (producers.py).
"""

from __future__ import annotations

from minibroker.errors import InvalidRecord
from minibroker.log.batches import NO_SEQUENCE, SEQUENCE_MAX, Batch
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.records import control_type
from minibroker.stored.producers import ProducerSnapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol, Self

    from minibroker.log.records import Record

    class BatchInfo(Protocol):
        """What must be known of a v2 batch that is to be appended; `AcceptedBatch` of the validator says it."""

        producer_id: int
        producer_epoch: int
        base_sequence: int
        last_sequence: int
        first_offset: int
        last_offset: int
        max_timestamp: int
        is_transactional: bool
        is_control: bool
        control: Record | None  # the record of a control batch

    AnyBatch = Batch | BatchInfo  # to be appended, or read from the log

BATCHES_KEPT = 5  # as many as a producer may have under way (max.in.flight.requests.per.connection)
NO_OFFSET = -1


class StoredBatch:
    """One of a producer's last batches; `check` returns it for a batch that is the same once more."""

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int):
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta  # last minus first, of offsets and of sequence numbers
        self.timestamp = timestamp  # largest within; what a repetition is answered as log append time

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

    def __init__(self) -> None:
        self.epoch = -1  # -1 only until the first batch or marker
        self.batches: list[StoredBatch] = []  # of this epoch, oldest first, at most five; none: only markers so far
        self.coordinator_epoch = -1  # of the last marker
        self.last_timestamp = -1  # of the last batch or marker, as it stands in the log; decides about expiry
        self.transaction_first_offset: int | None = None  # None: no transaction is open

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_stored(self, batch: AnyBatch) -> StoredBatch | None:
        """Return the batch with the same epoch and sequence numbers, if it is one of the last five."""
        if batch.producer_epoch == self.epoch:
            for stored in self.batches:
                if stored.last_sequence == batch.last_sequence and stored.first_sequence == batch.base_sequence:
                    return stored
        return None

    def add(self, batch: AnyBatch) -> None:
        self.enter_epoch(batch.producer_epoch)
        delta = batch.last_offset - first_offset_of(batch)
        self.batches.append(StoredBatch(batch.last_sequence, batch.last_offset, delta, batch.max_timestamp))
        del self.batches[:-BATCHES_KEPT]
        self.last_timestamp = batch.max_timestamp

    def end_transaction(self, epoch: int, marker: Marker) -> int | None:
        """Take note of a marker; return where the transaction began, None if none was open."""
        first_offset = self.transaction_first_offset
        self.enter_epoch(epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp = marker.timestamp
        self.transaction_first_offset = None
        return first_offset

    def enter_epoch(self, epoch: int) -> None:
        """Sequence numbers begin at 0 in each epoch, so batches of another one mean nothing."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    @classmethod
    def of_snapshot(cls, entry: ProducerSnapshot.ProducerEntry) -> Self:
        producer = cls()
        producer.epoch = entry.epoch
        if entry.last_offset >= 0:
            # The time of a marker that came after the batch, if one did: more is not kept.
            last = StoredBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            producer.batches = [last]
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.last_timestamp = entry.timestamp
        if entry.current_txn_first_offset >= 0:
            producer.transaction_first_offset = entry.current_txn_first_offset
        return producer

    def snapshot_entry(self, producer_id: int) -> ProducerSnapshot.ProducerEntry:
        last = self.batches[-1] if self.batches else StoredBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)
        first_offset = self.transaction_first_offset
        return ProducerSnapshot.ProducerEntry(
            producer_id=producer_id,
            epoch=self.epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            offset_delta=last.offset_delta,
            timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if first_offset is None else first_offset,
        )


class Marker:
    """The end of a transaction: what the record in a control batch says."""

    __slots__ = ("coordinator_epoch", "is_abort", "timestamp")

    def __init__(self, is_abort: bool, coordinator_epoch: int, timestamp: int):
        self.is_abort = is_abort
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = timestamp


def first_offset_of(batch: AnyBatch) -> int:
    """Return the offset of the batch's first record."""
    return batch.base_offset if isinstance(batch, Batch) else batch.first_offset


def read_marker(batch: AnyBatch) -> Marker | None:
    """Return what a control batch with a producer id says; None if the cleaner has taken the record out.

    Kafka: then notes an unknown producer without epoch; here nobody is noted.
    """
    record = next(batch.records(), None) if isinstance(batch, Batch) else batch.control
    if record is None:
        return None
    kind, value = control_type(record), record.value or b""
    # Later versions of the value only add to its end.
    if kind not in (ABORT, COMMIT) or len(value) < 6 or value[0] > 0x7F:
        raise InvalidRecord(f"record {record.offset} of type {kind} with {value.hex()} is no marker", 0, "EndTxnMarker")
    return Marker(kind == ABORT, int.from_bytes(value[2:6], "big", signed=True), record.timestamp)
