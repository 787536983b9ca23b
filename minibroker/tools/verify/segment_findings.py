"""Verification of a segment: its batches to the last record, and its two sparse indexes against them.

Problems of a segment alone are found here. What depends on the batches before it is noted: first and last offsets,
epochs, of producers the few batches from which all of their state follows (`ProducerBatch`), of transactions those
that may have begun before it (transaction_findings.py), so that log_directory.py, which puts the segments of a log
together, finds the same as a reader of the whole log. What has been found can go to another process, and is no more
for more batches or transactions.
Not here: snapshots, checkpoints of the directory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Container
from types import MappingProxyType

from minibroker.errors import ProtocolError
from minibroker.log.batches import SEQUENCE_MAX, Batch, batches
from minibroker.log.checkpoints import LEADER_EPOCHS
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.formats import ABORT, CREATE_TIME
from minibroker.log.index import NO_TIMESTAMP, OffsetIndex, TimeIndex
from minibroker.log.producers import BATCHES_KEPT, Producer, ProducerStates
from minibroker.log.records import Record, control_type
from minibroker.tools.verify.transaction_findings import NOTHING, TransactionFindings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping

    from minibroker.log.batches import Batch
    from minibroker.log.producers import AnyBatch
    from minibroker.log.records import Record
    from minibroker.log.segment import Segment
    from minibroker.stored.producers import AbortedTxn


class Problem:
    """Something that is not as it should be."""

    __slots__ = ("path", "place", "reason")

    def __init__(self, path: str, place: str, reason: str):
        self.path = path
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.reason}" if self.place else f"{self.path}: {self.reason}"


class ProducerBatch:
    """A batch of a producer, as far as `ProducerStates` wants to know it."""

    __slots__ = (
        "base_sequence",
        "control",
        "first_offset",
        "gap_end",
        "is_control",
        "is_first",
        "is_transactional",
        "last_offset",
        "last_sequence",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, batch: Batch, gap_end: int, control: Record | None):
        self.producer_id = batch.producer_id
        self.producer_epoch = batch.producer_epoch
        self.base_sequence = batch.base_sequence
        self.last_sequence = batch.last_sequence
        self.first_offset = batch.base_offset
        self.last_offset = batch.last_offset
        self.max_timestamp = batch.max_timestamp
        self.is_transactional = batch.is_transactional
        self.is_control = batch.is_control
        self.control = control
        self.position = batch.position
        self.gap_end = gap_end  # where in the segment the last gap before the batch ends
        self.is_first = False  # nothing in the segment says what was due here


class Findings:
    """What has been found in a segment. It can go to another process."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []  # of batches
        self.index_problems: list[Problem] = []
        self.batches = self.records = 0
        self.first: tuple[int, int] | None = None  # offset and position of the first batch
        self.next_offset = NOTHING  # behind the last batch
        self.gap_end = NOTHING  # the first offset behind the last gap between batches
        self.first_epoch: tuple[int, int] | None = None  # of the first batch that has one, and where that lies
        self.last_epoch = NOTHING
        self.told: list[ProducerBatch] = []  # in the order of their offsets; of each producer a dozen at most
        self.transactions: TransactionFindings | None = None  # None: .txnindex cannot be read


def read_segment(
    segment: Segment,
    epochs: LeaderEpochs | None,
    log_start: int | None,
    *,
    is_active: bool,
    has_sequences: bool = True,
    sound: Container[int] = (),
) -> Findings:
    """Read all batches of a segment.

    epochs: what the checkpoint says, None if it cannot be read. log_start: by the checkpoint; None: the log lies alone.
    has_sequences: see `are_numbered`. sound: positions of batches of v2 whose records are known to be in order; they
    are asked for as they rise.
    """
    reader = _Reader(segment, epochs, log_start)
    reader.has_sequences = has_sequences
    reader.sound = sound
    found, unread = reader.found, []
    try:
        found.transactions = TransactionFindings(segment.transaction_index.entries())
    except ProtocolError as error:
        unread.append(Problem(segment.transaction_index.path, "", str(error)))
    reader.read()
    found.index_problems += check_form(segment, segment.offset_index, is_active)
    found.index_problems += check_form(segment, segment.time_index, is_active)
    found.index_problems += check_offset_index(segment, reader)
    found.index_problems += check_time_index(segment, reader)
    found.index_problems += unread
    return found


def aborted_in(segment: Segment, before: Mapping[int, int]) -> list[AbortedTxn]:
    """Return all transactions that a segment aborts. before: the open ones, as producers and where each began."""
    reader = _Reader(segment, None, None, before)
    reader.sound = range(segment.size_bytes)  # somebody has looked at the records
    reader.read()
    return reader.aborted


class _Reader:
    """Goes over the batches of a segment."""

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs | None,
        log_start: int | None,
        before: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.segment = segment
        self.found = Findings()
        # Of each batch: where it lies, its last offset, its largest timestamp.
        self.positions, self.ends, self.times = array("q"), array("q"), array("q")
        self.has_sequences = True
        self.sound: Container[int] = ()
        self._epochs = epochs
        self._log_start = log_start
        self._before = before
        self.aborted: list[AbortedTxn] = []

    def read(self) -> None:
        segment, found = self.segment, self.found
        self._producers = _Producers(self._before, found.transactions)
        try:
            for batch, following in _with_following(batches(segment.view(0, segment.size_bytes), strict=True)):
                if batch.magic == 2:
                    self._mend_offset(batch, following)
                self._check_batch(batch)
                self.positions.append(batch.position)
                self.ends.append(batch.last_offset)
                self.times.append(batch.max_timestamp)
                if batch.producer_id >= 0:
                    self._note_producer(batch)
        except ProtocolError as error:
            position = self.positions[-1] if self.positions else 0
            self._add(f"behind the batch at byte {position}", str(error))
        found.told, self.aborted = self._producers.told(), self._producers.aborted
        if found.transactions is not None:
            found.transactions.end()

    def _add(self, place: str, reason: str) -> None:
        self.found.problems.append(Problem(self.segment.path, place, reason))

    def _mend_offset(self, batch: Batch, following: Batch | None) -> None:
        """Name a batch whose base offset cannot be, and go on as if it had the one for which others leave room.

        No checksum covers it. Without this its neighbour would be blamed, and every index entry behind it.
        """
        due = self.found.next_offset if self.found.first else self.segment.base_offset
        first, behind = batch.header_offset, due + batch.last_offset - batch.header_offset + 1
        overlaps, fits = first < due, True
        if following is not None:
            is_old = following.magic < 2  # of a wrapper nobody knows yet where it begins
            overlaps = overlaps or following.header_offset <= batch.last_offset
            fits = not is_old and following.header_offset == behind
        if overlaps and fits:
            self._add(f"batch at byte {batch.position}", f"offset {first} comes where {due} is due")
            batch.header_offset, batch.last_offset = due, behind - 1

    def _check_batch(self, batch: Batch) -> None:
        place, found = f"batch at byte {batch.position}", self.found
        found.batches += 1
        records = None if batch.position in self.sound else self._records(batch, place)
        found.records += batch.count if records is None else len(records)
        first_offset = batch.base_offset if batch.magic == 2 or not records else records[0].offset
        if found.first is None:
            found.first = first_offset, batch.position
        elif first_offset < found.next_offset:
            self._add(place, f"offset {first_offset} comes where {found.next_offset} is due")
        elif first_offset > found.next_offset:
            found.gap_end = first_offset
        found.next_offset = batch.next_offset
        if records:
            self._check_records(batch, place, records, first_offset)
        if batch.magic == 2:
            self._check_epoch(batch, place, first_offset)

    def _records(self, batch: Batch, place: str) -> list[Record]:
        try:
            return list(batch.records(check_crc=True))
        except ProtocolError as error:
            self._add(place, str(error))
            return []

    def _check_records(self, batch: Batch, place: str, records: list[Record], first_offset: int) -> None:
        before = first_offset - 1
        for record in records:
            if not before < record.offset <= batch.last_offset:
                self._add(place, f"offset {record.offset} comes behind {before}")
            before = record.offset
        if batch.timestamp_type == CREATE_TIME and batch.delete_horizon is None:
            newest = max(record.timestamp for record in records)
            if newest != batch.max_timestamp:
                self._add(place, f"largest timestamp is {newest}, the header says {batch.max_timestamp}")

    def _check_epoch(self, batch: Batch, place: str, first_offset: int) -> None:
        epoch, found = batch.partition_leader_epoch, self.found
        if found.first_epoch is None:
            found.first_epoch = epoch, batch.position
        elif epoch < found.last_epoch:
            self._add(place, epoch_problem(epoch, found.last_epoch))
        found.last_epoch = epoch
        if epoch >= 0 and self._epochs is not None:
            # The checkpoint begins with the log's start, which may be within the batch.
            visible = max(first_offset, self._log_start or 0)
            known = self._epochs.epoch_for_offset(visible)
            is_visible, is_due = visible <= batch.last_offset, self._log_start is not None
            if known != epoch and is_visible and (known is not None or is_due):
                told = "does not know it" if known is None else f"says {known}"
                self._add(place, f"leader epoch is {epoch}, {LEADER_EPOCHS} {told}")

    def _note_producer(self, batch: Batch) -> None:
        reason = self._producers.take(batch, self.found.gap_end)
        if reason and self.has_sequences:
            self._add(f"batch at byte {batch.position}", reason)


def _with_following(stream: Iterator[Batch]) -> Iterator[tuple[Batch, Batch | None]]:
    """Yield each batch and the one behind it; what is broken behind a batch is raised when that has been yielded."""
    batch = next(stream, None)
    while batch is not None:
        try:
            following = next(stream, None)
        except ProtocolError:
            yield batch, None
            raise
        yield batch, following
        batch = following


def are_numbered(name: str) -> bool:
    """Return whether batches of producers have sequence numbers in the log of that name: coordinators write all 0."""
    return not name.startswith(("__consumer_offsets-", "__transaction_state-"))


def epoch_problem(epoch: int, before: int) -> str:
    return f"leader epoch {epoch} comes behind {before}"


class _Told:
    """Which batches of a producer tell a reader of the whole log all that it has to know of it."""

    def __init__(self) -> None:
        self.firsts: list[ProducerBatch] = []  # the first marker, the first of another epoch, the first with data
        self.ended: list[ProducerBatch] = []  # where the first transaction begins that ends here, and its marker
        self.last_marker: ProducerBatch | None = None
        self.begin: ProducerBatch | None = None  # of the open transaction
        self.last: deque[ProducerBatch] = deque(maxlen=BATCHES_KEPT)
        self._epoch: int | None = None  # of the markers so far
        self._is_known = False  # what comes next is known from batches of this segment

    def take(self, batch: ProducerBatch, *, begins: bool) -> None:
        if not self._is_known:
            is_same = batch.is_control and batch.producer_epoch == self._epoch
            if not is_same:
                batch.is_first = True
                self.firsts.append(batch)
            self._is_known = not batch.is_control or not (is_same or self._epoch is None)
            self._epoch = batch.producer_epoch
        if batch.is_control:
            if not self.ended:
                self.ended = [batch] if self.begin is None else [self.begin, batch]
            self.last_marker, self.begin = batch, None
        else:
            self.last.append(batch)
            self.begin = batch if begins else self.begin

    def batches(self) -> Iterator[ProducerBatch]:
        """Yield them. To whoever applies them a transaction in between is none: its marker is not among them."""
        open_at = self.begin.position if self.begin is not None else None
        for batch in (*self.firsts, *self.last):
            is_open = open_at is not None and batch.position >= open_at
            batch.is_transactional = batch.is_transactional and (is_open or batch in self.ended)
            yield batch
        yield from self.ended
        yield from filter(None, (self.last_marker, self.begin))


class _Producers:
    """The producers of a segment, from nothing on, and what is to be told of them."""

    def __init__(self, before: Mapping[int, int], transactions: TransactionFindings | None) -> None:
        """before: as far as that is known, which producers had begun transactions, and where."""
        self._states = ProducerStates()
        for producer_id, first_offset in before.items():
            self._states.producers[producer_id] = Producer()
            self._states.producers[producer_id].transaction_first_offset = first_offset
            self._states.open_transactions[first_offset] = producer_id
        self._transactions = transactions
        self._told: dict[int, _Told] = {}  # by producer id
        self._emptied: dict[int, ProducerBatch] = {}  # markers that the cleaner has emptied: they have an epoch
        self.aborted: list[AbortedTxn] = []

    def take(self, batch: Batch, gap_end: int) -> str:
        """Note a batch; return what is wrong with its sequence numbers, as far as the segment tells."""
        producer_id, states = batch.producer_id, self._states
        known = states.producers.get(producer_id)
        reason = "" if known is None else sequence_problem(known, batch, gap_end)
        first_offset = None if known is None else known.transaction_first_offset
        aborted = states.apply(batch)
        control = next(batch.records(), None) if batch.is_control else None
        told = ProducerBatch(batch, gap_end, control)
        if batch.is_control and control is None:
            told.is_first = True
            if producer_id not in self._told:
                self._emptied.setdefault(producer_id, told)
            return reason
        begins = first_offset is None and batch.is_transactional and not batch.is_control
        self._told.setdefault(producer_id, _Told()).take(told, begins=begins)
        if control is not None:
            self._take_marker(batch, NOTHING if first_offset is None else first_offset, control, aborted)
        return reason

    def _take_marker(self, batch: Batch, first_offset: int, control: Record, aborted: AbortedTxn | None) -> None:
        self._states.on_high_watermark_updated(batch.next_offset)  # nobody waits for replicas here
        if aborted is not None:
            self.aborted.append(aborted)
        if self._transactions is not None:
            stable_offset = next(iter(self._states.open_transactions), batch.last_offset + 1)
            due = batch.producer_id, first_offset, batch.last_offset, stable_offset
            self._transactions.take(due, is_abort=control_type(control) == ABORT)

    def told(self) -> list[ProducerBatch]:
        found = {each.position: each for each in self._emptied.values()}
        for of_producer in self._told.values():
            found |= {each.position: each for each in of_producer.batches()}
        return [found[position] for position in sorted(found)]


def sequence_problem(producer: Producer, batch: AnyBatch | ProducerBatch, gap_end: int) -> str:
    """Say what a leader would have refused: sequence numbers that come again or out of order, an epoch of before.

    gap_end: where the last gap before the batch ends. What came before it tells nothing: cleaning has been there. Nor
    does a marker alone, for the data before it may have been deleted.
    """
    if not producer.batches or producer.batches[-1].last_offset < gap_end:
        return ""
    about = f"producer {batch.producer_id}"
    if batch.producer_epoch < producer.epoch:
        return f"{about}: epoch {batch.producer_epoch} comes behind {producer.epoch}"
    if batch.is_control:
        return ""
    stored = producer.find_stored(batch)
    first, last = batch.base_sequence, batch.last_sequence
    if stored is not None:
        return f"{about}: sequence {first} to {last} comes again, it is at offset {stored.first_offset} already"
    due = (producer.last_sequence + 1) & SEQUENCE_MAX if batch.producer_epoch == producer.epoch else 0
    return f"{about}: sequence {first} comes where {due} is due" if first != due else ""


# Indexes


def check_offset_index(segment: Segment, found: _Reader) -> Iterator[Problem]:
    index = segment.offset_index
    entries = index.entries() if index.exists else []
    wanted = {offset for offset, _ in entries}
    last_at = {offset: at for at, offset in enumerate(found.ends) if offset in wanted}
    for number, (offset, position) in enumerate(entries):
        at = _at(found.positions, position)
        if at is None:
            yield Problem(index.path, f"entry {number}", f"no batch begins at byte {position}")
        # Kafka up to 3.9 names the last offset of all batches that were appended together.
        elif last_at.get(offset, -1) < at:
            yield Problem(index.path, f"entry {number}", f"no batch from byte {position} on ends with offset {offset}")


def _at(positions: array[int], position: int) -> int | None:
    """Return which batch begins at a position."""
    at = bisect_left(positions, position)
    return at if at < len(positions) and positions[at] == position else None


def check_time_index(segment: Segment, found: _Reader) -> Iterator[Problem]:
    index, ends, times = segment.time_index, found.ends, found.times
    entries = index.entries() if index.exists else []
    at, newest = 0, NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(entries):
        held = NO_TIMESTAMP
        while at < len(ends) and (at == 0 or ends[at - 1] < offset):
            held = times[at]
            newest = max(newest, held)
            at += 1
        if at and ends[at - 1] < offset:
            yield Problem(index.path, f"entry {number}", f"offset {offset} is behind the segment's end")
        elif timestamp != newest or (held != NO_TIMESTAMP and held != timestamp):
            yield Problem(
                index.path, f"entry {number}", f"{timestamp} at offset {offset}; the largest so far is {newest}"
            )


def check_form(segment: Segment, index: OffsetIndex | TimeIndex, is_active: bool) -> Iterator[Problem]:
    """Check an index by itself: its length, and that its entries go up."""
    yield from _check_length(segment, index.path, index.count * index.entry.size, index.entry.size, is_active)
    if index.exists:
        try:
            index.check()
        except ProtocolError as error:
            yield Problem(index.path, "", str(error))


def _check_length(segment: Segment, path: str, used_bytes: int, entry_bytes: int, is_active: bool) -> Iterator[Problem]:
    """Only the active segment's indexes are longer than their entries, and only by zeros."""
    if not segment.storage.exists(path):
        if segment.size_bytes:
            yield Problem(path, "", "is missing; the next start makes it")
        return
    size_bytes = segment.storage.size_bytes(path)
    if size_bytes % entry_bytes:
        yield Problem(path, f"byte {size_bytes}", f"ends within an entry of {entry_bytes} bytes")
    elif size_bytes > used_bytes and not is_active:
        yield Problem(path, f"byte {used_bytes}", f"{size_bytes - used_bytes} bytes of zeros at the end")
    elif size_bytes > used_bytes:
        file = segment.storage.open(path)
        try:
            if any(file.read_at(used_bytes, size_bytes - used_bytes)):
                yield Problem(path, f"byte {used_bytes}", "entries behind zeros")
        finally:
            file.close()
