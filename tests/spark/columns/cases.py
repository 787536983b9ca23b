"""What columns must hold: the same chunk read record by record, as rows and errors in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from minibroker.client.aborted import AbortedFilter
from minibroker.errors import DecompressionFailed, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.formats import APPEND_TIME
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record
from minibroker.spark.columns import opening as column_opening
from minibroker.spark.columns import record_starts as record_starts
from minibroker.spark.columns import rows as column_rows
from minibroker.spark.columns.reader import ColumnReader, Columns

Row = tuple[Any, ...]
Found = tuple[list[Row], list[tuple[type, str, int, str, int]]]  # rows; errors, with how many rows came before


def one_by_one(
    chunk: bytes,
    *,
    first_offset: int | None = None,
    end_offset: int | None = None,
    first_timestamp: int | None = None,
    end_timestamp: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    control: bool = False,
    check_crc: bool = True,
    strict: bool = False,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Found:
    """Return rows and errors as `Batch.records` gives them. No batch is left out by its header, but for the ranges."""
    rows: list[Row] = []
    errors: list[tuple[type, str, int, str, int]] = []
    hidden = AbortedFilter((first, producer) for producer, first in aborted)

    def note(error: ProtocolError, position: int = 0) -> None:
        errors.append((type(error), reason_of(error), error.position or position, error.path, len(rows)))

    try:
        for batch in batches(chunk, strict=strict):
            if aborted:
                try:
                    is_hidden = hidden.hides(batch)
                except ProtocolError as error:
                    note(error if not check_crc or batch.crc_is_valid() else crc_error(batch), batch.position)
                    return rows, errors
                if is_hidden and not (control and batch.is_control):
                    if check_crc and inside(batch, first_offset, end_offset, first_timestamp, end_timestamp):
                        try:
                            batch.check_crc()
                        except ProtocolError as error:
                            note(error)
                    continue
            if not inside(batch, first_offset, end_offset, first_timestamp, end_timestamp):
                continue
            try:
                if batch.is_control and not control:
                    if check_crc:
                        batch.check_crc()
                    continue
                made = [row(batch, record) for record in batch.records(limit_bytes, check_crc=check_crc)]
            except ProtocolError as error:
                note(error)
                continue
            for each in made:
                offset, timestamp = each[:2]
                if (
                    (first_offset is None or offset >= first_offset)
                    and (end_offset is None or offset < end_offset)
                    and (first_timestamp is None or timestamp >= first_timestamp)
                    and (end_timestamp is None or timestamp < end_timestamp)
                ):
                    rows.append(each)
    except ProtocolError as error:
        note(error)
    return rows, errors


def reason_of(error: ProtocolError) -> str:
    """Return the reason, without what a codec's package says: that depends on what it did before."""
    return error.reason.partition(":")[0] if type(error) is DecompressionFailed else error.reason


def crc_error(batch: Batch) -> ProtocolError:
    try:
        batch.check_crc()
    except ProtocolError as error:
        return error
    raise AssertionError("the checksum is right")


def inside(batch: Batch, first: int | None, end: int | None, oldest: int | None, newest_end: int | None) -> bool:
    """Whether the batch has to be opened: its header does not say that all of it lies outside the ranges."""
    last, has_base = batch.last_offset, not batch.is_wrapper  # a wrapper knows neither base nor, at 0, its last offset
    if first is not None and last < first and (has_base or last > 0):
        return False
    if end is not None and has_base and batch.base_offset >= end:
        return False
    if oldest is not None and batch.magic == 2 and batch.max_timestamp < oldest:
        return False
    return newest_end is None or batch.timestamp_type != APPEND_TIME or batch.max_timestamp < newest_end


def row(batch: Batch, record: Record) -> Row:
    key, value, headers, timestamp, offset = record
    origin = batch.partition_leader_epoch, batch.producer_id, batch.position
    # A column is 64 bits wide, Python's numbers are not.
    return wrapped(offset), wrapped(timestamp), batch.timestamp_type, key, value, list(headers), *origin


def wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def both_ways(chunk: bytes, **options: Any) -> Found:
    """Return rows and errors as columns give them: few records go another way than many, and it must not matter."""
    found = side_by_side(chunk, **options)
    with few_are_many():
        assert side_by_side(chunk, **options) == found
    with mock.patch.object(column_opening, "ROWS_MAX", 2):
        assert side_by_side(chunk, **options) == found
    return found


@contextmanager
def few_are_many() -> Iterator[None]:
    """Let the least number of records be treated like a large one."""
    with (
        mock.patch.multiple(record_starts, NARROW=0, STEPS=3, RUN_RECORDS=1),
        mock.patch.multiple(column_rows, NARROW=0, CHUNK_ROWS=3),
    ):
        yield


def side_by_side(chunk: bytes, **options: Any) -> Found:
    """Return rows and errors as columns give them."""
    reader = ColumnReader(chunk, headers=True, origins=True, **options)
    rows: list[Row] = []
    errors: list[tuple[type, str, int, str, int]] = []
    while True:
        try:
            rows += rows_of(next(reader))
        except ProtocolError as error:
            errors.append((type(error), reason_of(error), error.position, error.path, len(rows)))
        except StopIteration:
            return rows, errors


def rows_of(columns: Columns) -> list[Row]:
    """Return what was read with headers and origins, as rows."""
    assert columns.keys is not None
    assert columns.values is not None
    assert columns.headers is not None
    for array in (columns.keys, columns.values, columns.headers):
        array.validate(full=True)
        assert len(array) == len(columns)
    assert columns.leader_epochs is not None
    assert columns.producer_ids is not None
    assert columns.positions is not None
    return list(
        zip(
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            columns.timestamp_types.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            [[(pair["key"], pair["value"]) for pair in pairs] for pairs in columns.headers.to_pylist()],
            columns.leader_epochs.tolist(),
            columns.producer_ids.tolist(),
            columns.positions.tolist(),
        )
    )
