"""Everything that a log answers, as a client sees it, so that two openings of a log can be compared.

A client checks what it gets: checksums, that a batch holds what was asked for or something behind it, that offsets
rise. What it would notice is raised here as a ProtocolError.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.errors import InvalidValue
from minibroker.log import reading
from minibroker.log.aborted import aborted_transactions
from minibroker.log.batches import batches
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record


class Answers(NamedTuple):
    bounds: tuple[int, int, int]  # where the log begins, ends, and is stable
    records: dict[int, object]  # offset asked for -> the first record that a client is given, and its batch
    aborted: dict[int, bool]  # offset asked for -> whether that record is part of an aborted transaction
    by_time: dict[int, tuple[int, int, int | None] | None]  # timestamp -> timestamp, offset, epoch
    epochs: list[tuple[int, int | None]]  # offset asked for, or epoch -> epoch, or where it ends
    producers: bytes


def answers(log: PartitionLog, times: list[int] | None = None) -> Answers:
    """Ask for everything; `times` are the moments to ask for, all that records have if not given."""
    log.producers.on_high_watermark_updated(log.log_end_offset)  # every replica has everything
    records: dict[int, object] = {}
    aborted = {}
    asked: set[int] = set() if times is None else set(times)
    for offset in range(log.log_start_offset, log.log_end_offset):
        piece = reading.read(log, offset, 1, limit_offset=log.log_end_offset)
        if piece is None:
            records[offset] = None
            continue
        record, batch = read_as_client(piece, offset)
        records[offset] = batch, record
        producer_id, is_control = batch[5], batch[8]
        aborted[offset] = (
            record is not None
            and not is_control
            and any(
                entry.producer_id == producer_id and entry.first_offset <= record.offset <= entry.last_offset
                for entry in aborted_transactions(log, piece, offset)
            )
        )
        if times is None and record is not None and record.timestamp >= 0:
            asked |= {record.timestamp - 1, record.timestamp, record.timestamp + 1}
    by_time: dict[int, tuple[int, int, int | None] | None] = {}
    for timestamp in [*sorted(asked), reading.EARLIEST, reading.LATEST, reading.MAX_TIMESTAMP]:
        if timestamp >= 0 or timestamp in (reading.EARLIEST, reading.LATEST, reading.MAX_TIMESTAMP):
            found = reading.find_offset(log, timestamp, limit_offset=log.log_end_offset)
            by_time[timestamp] = None if found is None else (found.timestamp, found.offset, found.leader_epoch)
    latest = log.epochs.latest_epoch or 0
    return Answers(
        (log.log_start_offset, log.log_end_offset, log.last_stable_offset(log.log_end_offset)),
        records,
        aborted,
        by_time,
        [(offset, log.epochs.epoch_for_offset(offset)) for offset in range(log.log_start_offset, log.log_end_offset)]
        + [log.epochs.end_offset_for(epoch, log.log_end_offset) for epoch in range(latest + 2)],
        log.producers.snapshot_bytes(),
    )


def read_as_client(piece: reading.Slice, offset: int) -> tuple[Record | None, tuple[object, ...]]:
    """Return the first record at or behind an offset, and what the batch's header says; a batch may hold none."""
    (batch,) = batches(piece.view(), strict=True)
    if batch.last_offset < offset:
        raise InvalidValue(f"the batch ends at {batch.last_offset}, before {offset}", batch.position, "batch")
    found, before = None, -1
    for record in batch.records(check_crc=True):
        if not before < record.offset <= batch.last_offset:
            raise InvalidValue(f"offset {record.offset} comes behind {before}", batch.position, "batch")
        before = record.offset
        if found is None and record.offset >= offset:
            found = record
    header = batch.magic, batch.last_offset, batch.codec, batch.timestamp_type, batch.max_timestamp
    return found, (*header, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_control)
