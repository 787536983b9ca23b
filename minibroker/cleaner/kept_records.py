"""Writing the batch of the records that compaction keeps of a v2 batch, by copying their bytes.

The base timestamp becomes that of the first record that is left, or the delete horizon. Where that moves it, each
record's timestamp, which counts from it, is written anew, and the record's size with it; all else is copied as it is.
The codec stays, with Kafka's default level: what the topic's settings say of levels is for new batches, as in Kafka.
Not here: which records are kept (batch_filter.py).
"""

from __future__ import annotations

from struct import error as StructError

from minibroker.cleaner.keys import CHUNK_RECORDS, Unusual
from minibroker.log.batches import crc32c
from minibroker.log.compression import compress_in_pieces
from minibroker.log.formats import (
    APPEND_TIME,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    layout,
)
from minibroker.schema.varint import read_uvarint, uvarint, zigzag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from minibroker.log.batches import Batch


def rebuilt(
    batch: Batch, data: bytes, kept: Sequence[tuple[int, int]], count: int, delete_horizon: int | None
) -> Generator[int | None, None, bytes]:
    """Return the batch with the `count` records at the positions `kept` of `data`; yield after every 128.

    Raises Unusual for times that cannot be read or do not fit.
    """
    try:
        return (yield from _rebuilt(batch, data, kept, count, delete_horizon))
    except (ArithmeticError, LookupError, ValueError, StructError):
        raise Unusual from None


def _rebuilt(
    batch: Batch, data: bytes, kept: Sequence[tuple[int, int]], count: int, delete_horizon: int | None
) -> Generator[int | None, None, bytes]:
    if batch.timestamp_type == APPEND_TIME:
        max_timestamp = batch.max_timestamp
        base_timestamp = max_timestamp if delete_horizon is None else delete_horizon
        payload, _ = yield from _with_times(data, kept, 0, always=max_timestamp - base_timestamp)
    else:
        base_timestamp = delete_horizon if delete_horizon is not None else _first_timestamp(batch, data, kept[0][0])
        moves = batch.base_timestamp - base_timestamp
        payload, latest = yield from (_with_times(data, kept, moves) if moves else _as_they_are(data, kept))
        max_timestamp = max(batch.base_timestamp + latest, -1)
    if batch.codec:
        payload = yield from compress_in_pieces(batch.codec, payload)
    attributes = batch.attributes if delete_horizon is None else batch.attributes | DELETE_HORIZON_BIT
    base_offset = batch.base_offset
    covered = (
        _pack_covered(
            attributes,
            batch.last_offset - base_offset,
            base_timestamp,
            max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            count,
        )
        + payload
    )
    size = HEADER_BYTES - PREFIX_BYTES - _COVERED_BYTES + len(covered)
    return _pack_front(base_offset, size, batch.partition_leader_epoch, 2, crc32c(covered)) + covered


def _first_timestamp(batch: Batch, data: bytes, position: int) -> int:
    """Return the timestamp of the record at a position."""
    return batch.base_timestamp + _read_signed(data, _read_size(data, position)[1] + 1)[0]


def _as_they_are(data: bytes, kept: Sequence[tuple[int, int]]) -> Generator[int | None, None, tuple[bytes, int]]:
    """Return the records and the largest of the numbers that their timestamps are."""
    latest = _LEAST
    count = 0
    for position, stop in kept:
        while position < stop:
            size, position = _read_size(data, position)
            delta, _ = _read_signed(data, position + 1)
            if delta > latest:
                latest = delta
            position += size
            count += 1
            if not count % CHUNK_RECORDS:
                yield None
    return b"".join([data[start:stop] for start, stop in kept]), latest


def _with_times(
    data: bytes, kept: Sequence[tuple[int, int]], moves: int, always: int | None = None
) -> Generator[int | None, None, tuple[bytes, int]]:
    """Return the records with other numbers for their timestamps, and the largest of the old ones.

    moves: what to add to each, unless it is to be `always` the same.
    """
    latest = _LEAST
    count = 0
    parts: list[bytes] = []
    add = parts.append
    for position, stop in kept:
        while position < stop:
            size, position = _read_size(data, position)
            delta, behind = _read_signed(data, position + 1)
            if delta > latest:
                latest = delta
            number = delta + moves if always is None else always
            time = _SIGNED[number] if 0 <= number < _SIGNED_COUNT else _varlong(number)
            end = position + size
            size = end - behind + 1 + len(time)
            add(_SIGNED[size] if size < _SIGNED_COUNT else uvarint(size << 1))
            add(b"\0")
            add(time)
            add(data[behind:end])
            position = end
            count += 1
            if not count % CHUNK_RECORDS:
                yield None
    return b"".join(parts), latest


def _varlong(number: int) -> bytes:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} does not fit into 64 bits")
    return uvarint(zigzag(number))


def _read_size(data: bytes, position: int) -> tuple[int, int]:
    """Return the size that a record begins with, and where it ends."""
    size = data[position]
    position += 1
    if size > 127:
        byte = data[position]
        position += 1
        size += (byte << 7) - 128
        if byte > 127:
            size, position = read_uvarint(data, position - 2)
    return size >> 1, position


def _read_signed(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends."""
    number = data[position]
    position += 1
    if number > 127:
        byte = data[position]
        position += 1
        number += (byte << 7) - 128
        if byte > 127:
            number, position = read_uvarint(data, position - 2, 10)
    return (number >> 1) ^ -(number & 1), position


_LEAST = -(1 << 63)
_SIGNED_COUNT = 1024
_SIGNED = [uvarint(number << 1) for number in range(_SIGNED_COUNT)]  # most sizes and times are small
_pack_front = layout(BatchHeader, end="attributes").pack
_pack_covered = layout(BatchHeader, "attributes").pack
_COVERED_BYTES = layout(BatchHeader, "attributes").size
