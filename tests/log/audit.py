"""What must hold of an open log, checked against nothing but the bytes of its segments.

A log answers from indexes, snapshots and checkpoints; here the same is worked out by reading everything. Whatever a
test did to a log before, the answers must be those.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from minibroker.log import reading
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
    assert log.segments[0].base_offset <= log.log_start_offset <= log.next_offset
    assert 0 <= log.recovery_point <= log.next_offset
    for before, after in pairwise(log.segments):
        assert before.next_offset() <= after.base_offset
    for before_batch, batch in pairwise(found):
        first = batch.base_offset if batch.magic == 2 else batch.last_offset
        assert before_batch.last_offset < first <= batch.last_offset
    assert log.next_offset == (found[-1].next_offset if found else log.log_start_offset)


def _audit_producers(log: PartitionLog, found: list[Batch]) -> None:
    replayed = ProducerStates()
    aborted = []
    for batch in found:
        if batch.producer_id >= 0:
            ended = replayed.apply(batch)
            if ended is not None:
                aborted.append(ended)
    if log.segments[0].base_offset == 0:
        assert log.producers.snapshot_bytes() == replayed.snapshot_bytes()
        # A snapshot does not keep transactions that have ended and may not be replicated yet.
        lowest = replayed.last_stable_offset(log.next_offset)
        replayed.on_high_watermark_updated(log.next_offset)
        assert lowest <= log.last_stable_offset(log.next_offset) <= replayed.last_stable_offset(log.next_offset)
        _audit_aborted(log, [entry for entry in aborted if entry.last_offset >= log.log_start_offset])


def _audit_aborted(log: PartitionLog, aborted: list[AbortedTxn]) -> None:
    """Read from start to end; each answer names the aborted transactions that it touches."""
    offset = log.log_start_offset
    while (piece := reading.read(log, offset, 300, limit_offset=log.next_offset)) is not None:
        next_offset = list(batches(piece.view()))[-1].next_offset
        answered = reading.aborted_transactions(log, piece, offset)
        due = [entry for entry in aborted if entry.last_offset >= offset and entry.first_offset < next_offset]
        assert [entry for entry in due if entry not in answered] == []
        assert [entry for entry in answered if entry not in aborted] == []
        offset = next_offset


def _audit_offsets(log: PartitionLog, rows: list[Row]) -> None:
    """Every offset is found by the index where a scan finds it."""
    for offset in range(log.log_start_offset, log.next_offset):
        due = next((row for row in rows if row.offset >= offset), None)
        piece = reading.read(log, offset, 1, limit_offset=log.next_offset)
        if due is None:
            assert piece is None, offset
            continue
        assert piece is not None, offset
        (batch,) = batches(piece.view(), strict=True)
        read = next((record for record in batch.records(check_crc=True) if record.offset >= offset), None)
        assert read is not None, offset
        assert (read.offset, read.key, read.value) == (due.offset, due.key, due.value)


def _audit_timestamps(log: PartitionLog, rows: list[Row]) -> None:
    """Every timestamp, and the moments around it, is found where a scan finds it."""
    visible = [row for row in rows if row.offset >= log.log_start_offset]
    for timestamp in {row.timestamp + near for row in visible for near in (-1, 0, 1)} | {0, 1 << 50}:
        if timestamp < 0:
            continue
        due = next((row for row in visible if row.timestamp >= timestamp), None)
        found = reading.find_offset(log, timestamp, limit_offset=log.next_offset)
        answer = None if found is None else (found.timestamp, found.offset)
        assert answer == (None if due is None else (due.timestamp, due.offset)), timestamp
    newest = reading.find_offset(log, reading.MAX_TIMESTAMP, limit_offset=log.next_offset)
    stamped = [row for row in visible if row.timestamp >= 0]
    if stamped and len(visible) == len(rows):
        assert newest is not None
        assert newest.timestamp == max(row.timestamp for row in stamped)
        assert newest.offset == next(row.offset for row in stamped if row.timestamp == newest.timestamp)
