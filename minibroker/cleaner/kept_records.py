"""Writing the batch of the records that compaction keeps of a v2 batch, by copying their bytes.

The base timestamp becomes that of the first record that is left, or the delete horizon. Where that moves it, each
record's timestamp, which counts from it, is written anew, and the record's size with it; all else is copied as it is.
The codec stays, with Kafka's default level: what the topic's settings say of levels is for new batches, as in Kafka.
Not here: which records are kept (batch_filter.py).
"""

from __future__ import annotations

from struct import error as StructError

from minibroker.cleaner.keys import CHUNK_RECORDS, Unusual
from minibroker.errors import InvalidRecord
from minibroker.log.build import SMALL_VARINTS, pack_batch, varlong
from minibroker.log.compression import compress_in_pieces
from minibroker.log.formats import APPEND_TIME, DELETE_HORIZON_BIT
from minibroker.log.record_walks import make_walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from minibroker.log.batches import Batch

    Kept = tuple[int, int, int]  # records side by side that stay: where they begin and end, and how many they are


def rebuilt(
    batch: Batch, data: bytes, kept: Sequence[Kept], count: int, delete_horizon: int | None
) -> Generator[int | None, None, bytes]:
    """Return the batch with the `count` records at the places `kept` in `data`; yield after every 128.

    Raises Unusual for times that cannot be read or do not fit.
    """
    try:
        return (yield from _rebuilt(batch, data, kept, count, delete_horizon))
    except (InvalidRecord, ArithmeticError, LookupError, ValueError, StructError):
        raise Unusual from None


def _rebuilt(
    batch: Batch, data: bytes, kept: Sequence[Kept], count: int, delete_horizon: int | None
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
    base_offset, producer = batch.base_offset, (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    header = attributes, batch.last_offset - base_offset, base_timestamp, max_timestamp, *producer, count
    return pack_batch(base_offset, batch.partition_leader_epoch, header, payload)


def _first_timestamp(batch: Batch, data: bytes, position: int) -> int:
    """Return the timestamp of the record at a position."""
    times: list[int] = []
    (_read_times or _make_walks()[0])(data, position, 0, 1, 0, times)
    return batch.base_timestamp + times[0]


def _as_they_are(data: bytes, kept: Sequence[Kept]) -> Generator[int | None, None, tuple[bytes, int]]:
    """Return the records and the largest of the numbers that their timestamps are."""
    read, times = _read_times or _make_walks()[0], [_LEAST]
    for position, _, count in kept:
        while count:
            piece = min(count, CHUNK_RECORDS - len(times) + 1)
            position = read(data, position, 0, piece, 0, times)
            count -= piece
            if len(times) > CHUNK_RECORDS:
                times = [max(times)]
                yield None
    return b"".join([data[start:stop] for start, stop, _ in kept]), max(times)


def _with_times(
    data: bytes, kept: Sequence[Kept], moves: int, always: int | None = None
) -> Generator[int | None, None, tuple[bytes, int]]:
    """Return the records with other numbers for their timestamps, and the largest of the old ones.

    moves: what to add to each, unless it is to be `always` the same.
    """
    write, latest, left = _write_times or _make_walks()[1], _LEAST, CHUNK_RECORDS
    parts: list[bytes] = []
    for position, _, count in kept:
        while count:
            piece = min(count, left)
            position, latest = write(data, position, 0, piece, 0, parts, latest, moves, always)
            count -= piece
            left -= piece
            if not left:
                left = CHUNK_RECORDS
                yield None
    return b"".join(parts), latest


def _make_walks() -> tuple[Callable[..., int], Callable[..., tuple[int, int]]]:
    """Return the walks that take the timestamps of records, and that write records with others."""
    global _read_times, _write_times
    _read_times = make_walk(
        "timestamp_delta",
        trusting=True,
        parameters="times",
        before="add = times.append",
        each="add(timestamp_delta >> 1 ^ -(timestamp_delta & 1))",
    )
    _write_times = make_walk(
        "timestamp_delta",
        trusting=True,
        parameters="parts, latest, moves, always",
        before="add = parts.append",
        each="""\
number = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
if number > latest: latest = number
number = number + moves if always is None else always
time = small[number] if 0 <= number < small_count else varlong(number)
size = stop - pos + 1 + len(time)
add(small[size] if size < small_count else uvarint(size << 1)); add(zero); add(time); add(buf[pos:stop])""",
        result="pos, latest",
        scope={"small": SMALL_VARINTS, "small_count": len(SMALL_VARINTS), "varlong": varlong, "zero": b"\0"},
    )
    return _read_times, _write_times


_read_times: Callable[..., int] | None = None
_write_times: Callable[..., tuple[int, int]] | None = None
_LEAST = -(1 << 63)
