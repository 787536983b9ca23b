"""Verification of a piece of a segment: its batches to the last record, and the indexes against them.

A piece is a whole segment, or what lies between two places where its index says that batches begin. What can be said
of a piece alone is said here. What depends on what came before is noted: first and last offsets, epochs, and of
producers the few batches from which all of their state follows (`Told`), so that whoever puts the pieces of a log
together (verify.py) finds the same as somebody who reads it in one go.
What must hold: problems are the same however a segment was cut. Where that cannot be promised, as a piece does not end
with a batch or an index entry does not fit to what is in it, `is_doubtful` asks for the segment to be read whole.
Not here: snapshots, markers against `.txnindex`, checkpoints of the directory.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Container

from minibroker.errors import ProtocolError
from minibroker.log.batches import SEQUENCE_MAX, Batch, batches
from minibroker.log.checkpoints import LEADER_EPOCHS
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.formats import CREATE_TIME
from minibroker.log.index import NO_TIMESTAMP
from minibroker.log.producers import BATCHES_KEPT, ProducerStates
from minibroker.log.records import Record
from minibroker.tools.verify.findings import Piece, Problem, Told
from minibroker.tools.verify.indexes import check_form, check_offset_index, check_time_index, look_at_indexes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.producers import AnyBatch, Producer
    from minibroker.log.segment import Segment


def read_piece(
    segment: Segment,
    epochs: LeaderEpochs | None,
    log_start: int | None,
    *,
    is_active: bool,
    has_sequences: bool = True,
    start: int = 0,
    end: int | None = None,
    sound: Container[int] = (),
) -> Piece:
    """Read the batches between two positions.

    epochs: what the checkpoint says, None if it cannot be read. log_start: by the checkpoint; None: the log lies alone.
    has_sequences: see `are_numbered`. sound: positions of batches of v2 whose records are known to be in order.
    """
    reader = _Reader(segment, epochs, log_start, start, segment.size_bytes if end is None else end)
    reader.has_sequences = has_sequences
    reader.sound = sound
    reader.read()
    piece = reader.piece
    if start == 0:
        piece.index_problems += check_form(segment, segment.offset_index, is_active)
        piece.index_problems += check_form(segment, segment.time_index, is_active)
    if start == 0 and piece.end == segment.size_bytes:
        piece.index_problems += check_offset_index(segment, reader)
        piece.index_problems += check_time_index(segment, reader)
    else:
        piece.is_doubtful = piece.is_doubtful or bool(piece.index_problems)
        look_at_indexes(segment, reader)
    return piece


class _Reader:
    """Goes over the batches of a piece."""

    def __init__(
        self, segment: Segment, epochs: LeaderEpochs | None, log_start: int | None, start: int, end: int
    ) -> None:
        self.segment = segment
        self.piece = Piece(segment.base_offset, start, end)
        # Of each batch: where it lies, its last offset, its largest timestamp.
        self.positions, self.ends, self.times = array("q"), array("q"), array("q")
        self.has_sequences = True
        self.sound: Container[int] = ()
        self._epochs = epochs
        self._log_start = log_start
        self._producers = _Producers()

    def read(self) -> None:
        segment, piece = self.segment, self.piece
        try:
            for batch in batches(segment.view(0, segment.size_bytes), piece.start, piece.end, strict=True):
                self._check_batch(batch)
                self.positions.append(batch.position)
                self.ends.append(batch.last_offset)
                self.times.append(batch.max_timestamp)
                if batch.producer_id >= 0:
                    self._note_producer(batch)
        except ProtocolError as error:
            position = self.positions[-1] if self.positions else piece.start
            self._add(f"behind the batch at byte {position}", str(error))
            piece.is_doubtful = True
        piece.newest = max(self.times, default=NO_TIMESTAMP)
        piece.told = self._producers.told()

    def _add(self, place: str, reason: str) -> None:
        self.piece.problems.append(Problem(self.segment.path, place, reason))

    def _check_batch(self, batch: Batch) -> None:
        place, piece = f"batch at byte {batch.position}", self.piece
        piece.batches += 1
        records = None if batch.position in self.sound else self._records(batch, place)
        piece.records += batch.count if records is None else len(records)
        first_offset = batch.base_offset if batch.magic == 2 or not records else records[0].offset
        if piece.first is None:
            piece.first = first_offset, batch.position
        elif first_offset < piece.next_offset:
            self._add(place, f"offset {first_offset} comes where {piece.next_offset} is due")
        elif first_offset > piece.next_offset:
            piece.gap_end = first_offset
        piece.next_offset = batch.next_offset
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
        epoch, piece = batch.partition_leader_epoch, self.piece
        if piece.first_epoch is None:
            piece.first_epoch = epoch, batch.position
        elif epoch < piece.last_epoch:
            self._add(place, epoch_problem(epoch, piece.last_epoch))
        piece.last_epoch = epoch
        if epoch >= 0 and self._epochs is not None:
            # The checkpoint begins with the log's start, which may be within the batch.
            visible = max(first_offset, self._log_start or 0)
            known = self._epochs.epoch_for_offset(visible)
            is_visible, is_due = visible <= batch.last_offset, self._log_start is not None
            if known != epoch and is_visible and (known is not None or is_due):
                told = "does not know it" if known is None else f"says {known}"
                self._add(place, f"leader epoch is {epoch}, {LEADER_EPOCHS} {told}")

    def _note_producer(self, batch: Batch) -> None:
        reason = self._producers.take(batch, self.piece.gap_end)
        if reason and self.has_sequences:
            self._add(f"batch at byte {batch.position}", reason)


def are_numbered(name: str) -> bool:
    """Return whether batches of producers have sequence numbers in the log of that name: coordinators write all 0."""
    return not name.startswith(("__consumer_offsets-", "__transaction_state-"))


def epoch_problem(epoch: int, before: int) -> str:
    return f"leader epoch {epoch} comes behind {before}"


class _Producers:
    """The producers of a piece, from nothing on, and which of their batches tell all that is to be told."""

    def __init__(self) -> None:
        self._states = ProducerStates()
        self._told: dict[int, Told] = {}  # by position
        self._last: dict[int, deque[Told]] = {}  # by producer id
        self._in_transaction: set[int] = set()

    def take(self, batch: Batch, gap_end: int) -> str:
        """Note a batch; return what is wrong with its sequence numbers, as far as the piece tells."""
        producer_id = batch.producer_id
        known = self._states.producers.get(producer_id)
        is_first = known is None or not known.batches
        reason = "" if is_first or known is None else sequence_problem(known, batch, gap_end)
        begins_epoch = known is None or known.epoch != batch.producer_epoch
        self._states.apply(batch)
        control = next(batch.records(), None) if batch.is_control else None
        told = Told(batch, gap_end, is_first=is_first, control=control)
        if batch.is_control:
            self._in_transaction.discard(producer_id)
        else:
            self._last.setdefault(producer_id, deque(maxlen=BATCHES_KEPT)).append(told)
        begins = batch.is_transactional and not batch.is_control and producer_id not in self._in_transaction
        if begins:
            self._in_transaction.add(producer_id)
        if is_first or begins_epoch or begins or batch.is_control:
            self._told[batch.position] = told
        return reason

    def told(self) -> list[Told]:
        for last in self._last.values():
            for each in last:
                self._told[each.position] = each
        return [self._told[position] for position in sorted(self._told)]


def sequence_problem(producer: Producer, batch: AnyBatch | Told, gap_end: int) -> str:
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
