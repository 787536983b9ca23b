"""What must hold of an open log, checked against nothing but the bytes of its segments.

A log answers from indexes, snapshots and checkpoints; here the same is worked out by reading everything. Whatever a
test did to a log before, the answers must be those.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from minibroker.log import reading
from minibroker.log.aborted import aborted_transactions
from minibroker.log.batches import Batch, batches
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import ProducerStates
from minibroker.stored.producers import AbortedTxn


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def all_batches(log: PartitionLog) -> list[Batch]:
    found = []
    for segment in log.segments:
        found += batches(segment.view(0, segment.size_bytes), strict=True)
    return found


def all_rows(log: PartitionLog) -> list[Row]:
    """Every record, control records too, by reading everything."""
    return [
        Row(record.offset, record.key, record.value, record.timestamp)
        for batch in all_batches(log)
        for record in batch.records(check_crc=True)
    ]


def audit(log: PartitionLog, *, every_lookup: bool = True) -> list[Row]:
    """Compare what the log answers with what its bytes say; return its records from the log start on."""
    found = all_batches(log)
    rows = all_rows(log)
    _audit_order(log, found)
    _audit_producers(log, found)
    for batch in found:
        if batch.magic == 2 and batch.last_offset >= log.log_start_offset:
            first = max(batch.base_offset, log.log_start_offset)
            assert log.epochs.epoch_for_offset(first) == batch.partition_leader_epoch, (first, log.epochs)
    if every_lookup:
        _audit_offsets(log, rows)
        _audit_timestamps(log, rows)
    return [row for row in rows if row.offset >= log.log_start_offset]


def _audit_order(log: PartitionLog, found: list[Batch]) -> None:
    assert log.segments[0].base_offset <= log.log_start_offset <= log.log_end_offset
    assert 0 <= log.recovery_point <= log.log_end_offset
    for before, after in pairwise(log.segments):
        assert before.next_offset() <= after.base_offset
    for before_batch, batch in pairwise(found):
        first = batch.base_offset if batch.magic == 2 else batch.last_offset
        assert before_batch.last_offset < first <= batch.last_offset
    end_offset = found[-1].next_offset if found else log.log_start_offset
    assert log.log_end_offset == max(end_offset, log.active.base_offset)  # which may begin behind a gap


def _audit_producers(log: PartitionLog, found: list[Batch]) -> None:
    replayed = ProducerStates()
    aborted = []
    for batch in found:
        if batch.producer_id >= 0:
            ended = replayed.apply(batch)
            if ended is not None:
                aborted.append(ended)
    if log.segments[0].base_offset == 0:
        exact = not has_gaps(found)
        if exact:
            assert log.producers.snapshot_bytes() == replayed.snapshot_bytes()
            # A snapshot does not keep transactions that have ended and may not be replicated yet.
            lowest = replayed.last_stable_offset(log.log_end_offset, log.log_start_offset)
            replayed.on_high_watermark_updated(log.log_end_offset)
            highest = replayed.last_stable_offset(log.log_end_offset, log.log_start_offset)
            assert lowest <= log.last_stable_offset(log.log_end_offset) <= highest
        _audit_aborted(log, [entry for entry in aborted if entry.last_offset >= log.log_start_offset], exact)


def has_gaps(found: list[Batch]) -> bool:
    """Whether the cleaner was in this log that begins at 0: what it took cannot be worked out from what it left."""
    offsets = [record.offset for batch in found for record in batch.records()]
    return offsets != list(range(len(offsets))) or bool(found and len(offsets) != found[-1].next_offset)


def _audit_aborted(log: PartitionLog, aborted: list[AbortedTxn], exact: bool) -> None:
    """Read from start to end; each answer names the aborted transactions that it touches.

    exact: no other, and also those of which no records are left.
    """
    offset = log.log_start_offset
    while (piece := reading.read(log, offset, 300, limit_offset=log.log_end_offset)) is not None:
        found = list(batches(piece.view()))
        answered = list(aborted_transactions(log, piece, offset))
        due = [
            entry
            for entry in aborted
            if entry.last_offset >= offset
            and entry.first_offset < found[-1].next_offset
            and (exact or any(_is_part(batch, entry) for batch in found))
        ]
        assert [entry for entry in due if not _is_named(entry, answered, exact)] == []
        assert not exact or [entry for entry in answered if entry not in aborted] == []
        offset = found[-1].next_offset


def _is_part(batch: Batch, entry: AbortedTxn) -> bool:
    return (
        batch.producer_id == entry.producer_id
        and not batch.is_control
        and batch.count > 0
        and entry.first_offset <= batch.last_offset < entry.last_offset
    )


def _is_named(entry: AbortedTxn, answered: list[AbortedTxn], exact: bool) -> bool:
    """Whether the entry is there, or at least one of the same transaction that begins earlier."""
    if exact:
        return entry in answered
    return any(
        (other.producer_id, other.last_offset) == (entry.producer_id, entry.last_offset)
        and other.first_offset <= entry.first_offset
        for other in answered
    )


def _audit_offsets(log: PartitionLog, rows: list[Row]) -> None:
    """Every offset is found by the index where a scan finds it. The cleaner leaves batches without records."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        due = next((row for row in rows if row.offset >= offset), None)
        read, next_offset = None, offset
        while (
            read is None and (piece := reading.read(log, next_offset, 1, limit_offset=log.log_end_offset)) is not None
        ):
            (batch,) = batches(piece.view(), strict=True)
            read = next((record for record in batch.records(check_crc=True) if record.offset >= offset), None)
            next_offset = batch.next_offset
        found = None if read is None else (read.offset, read.key, read.value)
        assert found == (None if due is None else (due.offset, due.key, due.value)), offset


def _audit_timestamps(log: PartitionLog, rows: list[Row]) -> None:
    """Every timestamp, and the moments around it, is found where a scan finds it."""
    visible = [row for row in rows if row.offset >= log.log_start_offset]
    for timestamp in {row.timestamp + near for row in visible for near in (-1, 0, 1)} | {0, 1 << 50}:
        if timestamp < 0:
            continue
        due = next((row for row in visible if row.timestamp >= timestamp), None)
        found = reading.find_offset(log, timestamp, limit_offset=log.log_end_offset)
        answer = None if found is None else (found.timestamp, found.offset)
        assert answer == (None if due is None else (due.timestamp, due.offset)), timestamp
    newest = reading.find_offset(log, reading.MAX_TIMESTAMP, limit_offset=log.log_end_offset)
    stamped = [row for row in visible if row.timestamp >= 0]
    if stamped and len(visible) == len(rows):
        assert newest is not None
        assert newest.timestamp == max(row.timestamp for row in stamped)
        assert newest.offset == next(row.offset for row in stamped if row.timestamp == newest.timestamp)
