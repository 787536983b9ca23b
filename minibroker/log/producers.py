"""What a partition knows of its idempotent and transactional producers: their last batches and open transactions.

Of each producer id: its epoch, its last five batches, where its open transaction begins. Enough to answer a batch that
was sent twice with the offsets it already has, to refuse one that is out of order or comes from a producer that has
been replaced, and to say up to where every transaction is decided: the last stable offset.

What must hold: the state is that of the batches that were applied and of nothing else, so a snapshot and a replay of
what follows it give the same state (but for the batches before each producer's last, which a snapshot leaves out).
`check` changes nothing and is for leaders; `apply` takes whatever stands in the log and refuses nothing.
The batches kept of a producer are those of its epoch, oldest first, at most five, with sequence numbers that follow
each other; without any it has only ended transactions so far.
A batch without producer id concerns nobody here: callers skip it.
Not here: snapshot files (snapshots.py), the transaction coordinator.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from struct import Struct as Layout

from minibroker.errors import (
    CorruptCrc,
    Error,
    InvalidRecord,
    InvalidValue,
    KafkaError,
    Truncated,
    UnsupportedVersion,
)
from minibroker.log.batches import NO_SEQUENCE, SEQUENCE_MAX, Batch, crc32c
from minibroker.log.formats import ABORT, COMMIT
from minibroker.log.records import control_type
from minibroker.log.validate import CLIENT
from minibroker.stored.producers import AbortedTxn, ProducerSnapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Self, TypeAlias

    from minibroker.log.batch_info import BatchInfo

    AnyBatch: TypeAlias = Batch | BatchInfo  # to be appended, or read from the log

SNAPSHOT_VERSION: Final = 1
BATCHES_KEPT: Final = 5  # as many as a producer may have under way (max.in.flight.requests.per.connection)
EPOCH_MAX: Final = 0x7FFF
NO_OFFSET: Final = -1


class Verification:
    """A transaction whose first batch waits until the coordinator has confirmed it (KIP-890).

    `check` wants the same object back: an answer that comes after the transaction has ended, when the next one waits
    for its own, must not let a batch in.
    """

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, lowest_sequence: int, started_ms: int, supports_epoch_bump: bool):
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence  # no batch may overtake this one while it is repeated
        self.started_ms = started_ms
        self.supports_epoch_bump = supports_epoch_bump  # transactions v2: each has an epoch of its own

    def note(self, epoch: int, sequence: int) -> None:
        """Another batch of the producer waits."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence = epoch, sequence


class ProducerStates:
    """All producers of a partition."""

    def __init__(self, name: str = ""):
        self.name = name  # topic and partition, for messages
        self.producers: dict[int, Producer] = {}
        self.has_markers = False  # whether any transaction has ended, of those who have expired too
        # First offset of each open transaction -> producer id. A log grows at its end, so they are in order. Here and
        # below the first is asked for all the time: a dict would look again at each place that has become free.
        self.open_transactions: OrderedDict[int, int] = OrderedDict()
        # First offset of each ended transaction whose marker may still be lost -> offset of the marker, in the order
        # of the markers.
        self.unreplicated: OrderedDict[int, int] = OrderedDict()
        # Their first offsets, and behind the smallest some of those that are replicated by now.
        self._unreplicated_heap: list[int] = []
        self.verifications: dict[int, Verification] = {}  # by producer id; not of the log, so they outlive its state

    # Before a batch is appended

    def check(
        self,
        batch: AnyBatch,
        origin: str = CLIENT,
        verification: Verification | None = None,
        transaction_version: int = 0,
        *,
        verifies: bool = False,
    ) -> StoredBatch | None:
        """Raise KafkaError if the batch may not be appended; return the stored one if it is a repetition.

        A producer that nobody knows may begin with any sequence number: its earlier batches may have been deleted
        (KIP-360; UNKNOWN_PRODUCER_ID was the answer before Kafka 2.5).
        transaction_version: of a marker, as the coordinator's request says.
        verifies: whether the first batch of a transaction needs the coordinator's word.
        """
        producer = self.producers.get(batch.producer_id)
        if origin == CLIENT and producer is not None:
            stored = producer.find_stored(batch)
            if stored is not None:
                return stored
        self._check_epoch(batch, producer)
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.check_marker(batch, marker, transaction_version)
            return None
        if verifies and batch.is_transactional:
            self._check_verified(batch, verification)
        if origin == CLIENT:
            self._check_sequence(batch, producer)
        if producer is not None and producer.transaction_first_offset is not None and not batch.is_transactional:
            raise KafkaError(
                Error.INVALID_TXN_STATE,
                f"{self._about(batch)}: not transactional, but a transaction is open since offset "
                f"{producer.transaction_first_offset}",
            )
        return None

    def check_marker(self, batch: AnyBatch, marker: Marker, transaction_version: int = 0) -> None:
        """Raise KafkaError if a marker comes from a coordinator that has been replaced, or too late.

        Version 2 raises the epoch with each marker, so a delayed one is known by its epoch and cannot end the next
        transaction. The same epoch again without an open transaction is the marker repeated, and harmless; and the
        largest epoch cannot be raised, so it ends the last transaction of its producer id.
        """
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        is_open = self.has_open_transaction(batch.producer_id, batch.producer_epoch)
        if transaction_version >= 2 and is_open and producer.epoch != EPOCH_MAX:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"{self._about(batch)}: a marker of transactions v2 must raise the epoch {producer.epoch}",
            )
        self._check_epoch(batch, producer)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                Error.TRANSACTION_COORDINATOR_FENCED,
                f"{self._about(batch)}: coordinator epoch {marker.coordinator_epoch} < {producer.coordinator_epoch}",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether records of this epoch would go on with a transaction that has begun."""
        producer = self.producers.get(producer_id)
        return (
            producer is not None and producer.transaction_first_offset is not None and producer.epoch == producer_epoch
        )

    def start_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool = False
    ) -> Verification | None:
        """Return what `check` wants to see once the coordinator has confirmed; None: it has done so before.

        Raise KafkaError for an epoch that is over: nobody need be asked about that.
        """
        producer = self.producers.get(producer_id)
        if producer is not None and producer_epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH,
                f"{self.name}: producer {producer_id}: {producer_epoch} < {producer.epoch}",
            )
        if self.has_open_transaction(producer_id, producer_epoch):
            return None
        waiting = self.verifications.get(producer_id)
        if waiting is None:
            waiting = Verification(producer_epoch, sequence, now_ms, supports_epoch_bump)
            self.verifications[producer_id] = waiting
        waiting.note(producer_epoch, sequence)
        return waiting

    def _check_verified(self, batch: AnyBatch, verification: Verification | None) -> None:
        """The first batch of a transaction: the coordinator must know of it."""
        if self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            return
        if verification is None or self.verifications.get(batch.producer_id) is not verification:
            raise KafkaError(Error.INVALID_TXN_STATE, f"{self._about(batch)}: not part of an open transaction")

    def _check_epoch(self, batch: AnyBatch, producer: Producer | None) -> None:
        if producer is not None and batch.producer_epoch < producer.epoch:
            raise KafkaError(
                Error.INVALID_PRODUCER_EPOCH, f"{self._about(batch)}: epoch {batch.producer_epoch} < {producer.epoch}"
            )

    def _check_sequence(self, batch: AnyBatch, producer: Producer | None) -> None:
        first = batch.base_sequence
        waiting = self.verifications.get(batch.producer_id)
        if waiting is not None and waiting.supports_epoch_bump and (producer is None or not producer.batches):
            expected = 0
        elif waiting is not None and first > waiting.lowest_sequence:
            expected = waiting.lowest_sequence
        elif producer is None or producer.epoch < 0:
            return
        elif batch.producer_epoch == producer.epoch:
            expected = (producer.last_sequence + 1) & SEQUENCE_MAX
        else:
            expected = 0
        if first != expected:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self._about(batch)}: sequence {first} instead of {expected}",
            )

    def _about(self, batch: AnyBatch) -> str:
        where = f"{self.name}: " if self.name else ""
        return f"{where}producer {batch.producer_id} epoch {batch.producer_epoch} at offset {first_offset_of(batch)}"

    # What stands in the log

    def apply(self, batch: AnyBatch) -> AbortedTxn | None:
        """Take note of a batch that has been appended; return an entry for .txnindex if it aborts a transaction."""
        if batch.is_control:
            marker = read_marker(batch)
            return None if marker is None else self.apply_marker(batch, marker)
        producer = self._get(batch.producer_id)
        producer.add(batch)
        if batch.is_transactional:
            self.verifications.pop(batch.producer_id, None)
            if producer.transaction_first_offset is None:
                producer.transaction_first_offset = first_offset_of(batch)
                self.open_transactions[producer.transaction_first_offset] = batch.producer_id
        return None

    def apply_marker(self, batch: AnyBatch, marker: Marker) -> AbortedTxn | None:
        """Take note of the end of a transaction; return an entry for .txnindex if it was aborted and held records.

        A marker without a transaction, or one repeated, leaves its epochs behind and nothing else. One of transactions
        v2 has the epoch of the next transaction: if that is being confirmed already, it goes on.
        """
        first_offset = self._get(batch.producer_id).end_transaction(batch.producer_epoch, marker)
        waiting = self.verifications.get(batch.producer_id)
        if waiting is not None and not (waiting.supports_epoch_bump and waiting.epoch == batch.producer_epoch):
            del self.verifications[batch.producer_id]
        self.has_markers = True
        if first_offset is None:
            return None
        self.open_transactions.pop(first_offset, None)
        self.unreplicated[first_offset] = batch.last_offset
        heappush(self._unreplicated_heap, first_offset)
        if not marker.is_abort:
            return None
        return AbortedTxn(
            producer_id=batch.producer_id,
            first_offset=first_offset,
            last_offset=batch.last_offset,
            last_stable_offset=next(iter(self.open_transactions), batch.last_offset + 1),
        )

    def _get(self, producer_id: int) -> Producer:
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer()
        return producer

    # The last stable offset

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or whose marker not every replica in sync has."""
        open_offset = next(iter(self.open_transactions), None)
        ended_offset = self._unreplicated_heap[0] if self._unreplicated_heap else None
        if open_offset is None or ended_offset is None:
            return ended_offset if open_offset is None else open_offset
        return min(open_offset, ended_offset)

    def last_stable_offset(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Return the offset below which every transaction has ended; at most the high watermark."""
        # Kafka: of a log that begins within a batch the last stable offset may be where that batch begins.
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(max(unstable, log_start_offset), high_watermark)

    def has_transaction_before(self, time_ms: int) -> bool:
        """Whether the oldest open transaction has had no batch since a time, as it stands in the log."""
        producer_id = next(iter(self.open_transactions.values()), None)
        return producer_id is not None and 0 < self.producers[producer_id].last_timestamp < time_ms

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Markers below the high watermark are there to stay, so what they ended is decided."""
        safe = []
        for first_offset, marker_offset in self.unreplicated.items():
            if marker_offset >= high_watermark:
                break
            safe.append(first_offset)
        for first_offset in safe:
            del self.unreplicated[first_offset]
        heap = self._unreplicated_heap
        while heap and heap[0] not in self.unreplicated:
            heappop(heap)

    # Forgetting and keeping

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without open transaction that wrote nothing for that long, by the records' own time.

        And verifications that began so long ago.
        """
        limit_ms = now_ms - expiration_ms
        expired = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.last_timestamp <= limit_ms and producer.transaction_first_offset is None
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self.verifications = {
            producer_id: waiting
            for producer_id, waiting in self.verifications.items()
            if now_ms - waiting.started_ms < expiration_ms
        }

    def clear(self) -> None:
        """Forget everything: the log has been cut, or starts over. A snapshot and a replay make the state again.

        Verifications stay: they are not of the log.
        """
        self.producers = {}
        self.open_transactions = OrderedDict()
        self.unreplicated = OrderedDict()
        self._unreplicated_heap = []

    def snapshot_bytes(self) -> bytes:
        """Return the content of a .snapshot file, also if there is nobody to tell of."""
        entries = [self.producers[producer_id].stored_entry(producer_id) for producer_id in sorted(self.producers)]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    def load_snapshot(self, data: bytes) -> None:
        """Replace the state by that of a .snapshot file; a broken one raises a ProtocolError and changes nothing.

        Call `expire` before replaying the log, as Kafka does: who has been forgotten does not come back.
        """
        entries = read_snapshot(data)
        self.clear()
        for entry in entries:
            self.producers[entry.producer_id] = Producer.of_snapshot(entry)
            self.has_markers = self.has_markers or entry.coordinator_epoch >= 0
        self.open_transactions = OrderedDict(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset)
            if entry.current_txn_first_offset >= 0
        )


# One producer


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


NO_BATCH: Final = StoredBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)


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

    def stored_entry(self, producer_id: int) -> bytes:
        """Return a `ProducerSnapshot.ProducerEntry` as it is stored: appends wait while all of them are made."""
        last = self.batches[-1] if self.batches else NO_BATCH
        first_offset = self.transaction_first_offset
        return _ENTRY.pack(
            producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            NO_OFFSET if first_offset is None else first_offset,
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


# Snapshots

_HEAD: Final = Layout(">hI")  # version, CRC-32C of all that follows
_COUNT: Final = Layout(">i")  # of stored/producers.py
_ENTRY: Final = Layout(">qhiqiqiq")


def read_snapshot(data: bytes) -> list[ProducerSnapshot.ProducerEntry]:
    """Return the entries of a .snapshot file."""
    if len(data) < _HEAD.size:
        raise Truncated(f"{len(data)} bytes are no snapshot", len(data), "snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise UnsupportedVersion(f"{version} instead of {SNAPSHOT_VERSION}", 0, "snapshot.version")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptCrc(f"{crc:#010x} is not the checksum of the bytes", 2, "snapshot.crc")
    entries = ProducerSnapshot.decode(data[2:], SNAPSHOT_VERSION).producer_entries
    if len({entry.producer_id for entry in entries}) < len(entries):
        raise InvalidValue("a producer comes twice", _HEAD.size, "snapshot.producer_entries")
    return entries
