"""Writing the batch of the records that compaction keeps of a v2 batch, by copying their bytes.

The base timestamp becomes that of the first record that is left, or the delete horizon. Where that moves it, each
record's timestamp, which counts from it, is written anew, and the record's size with it; all else is copied as it is.
The codec stays, with Kafka's default level: what the topic's settings say of levels is for new batches, as in Kafka.
Not here: which records are kept (batch_filter.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import error as StructError
from typing import Any

from minibroker.cleaner.keys import CHUNK_RECORDS, CHUNK_US, Unusual
from minibroker.errors import InvalidRecord
from minibroker.log.batches import Batch
from minibroker.log.build import SMALL_VARINTS, pack_batch, varlong
from minibroker.log.compression import compress_in_pieces
from minibroker.log.formats import APPEND_TIME, DELETE_HORIZON_BIT
from minibroker.log.record_walks import make_walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces


def rebuilt(batch: Batch, data: bytes, kept: Sequence[int], delete_horizon: int | None) -> InPieces[bytes]:
    """Return the batch with the records that begin at the positions `kept` of `data`; yield after every 128.

    Raises Unusual for times that cannot be read or do not fit.
    """
    attributes, base_timestamp = batch.attributes, batch.base_timestamp
    if delete_horizon is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon
    try:
        if batch.timestamp_type == APPEND_TIME:
            max_timestamp = batch.max_timestamp
            if delete_horizon is None:
                base_timestamp = max_timestamp
            payload, _ = yield from _copied(data, kept, always=max_timestamp - base_timestamp)
        else:
            if delete_horizon is None:
                base_timestamp += (_copy or _make_walks()[0])(data, 0, 0, 1, 0, kept, [], _LEAST, 0, None)
            payload, latest = yield from _copied(data, kept, batch.base_timestamp - base_timestamp)
            max_timestamp = max(batch.base_timestamp + latest, -1)
        if batch.codec:
            payload = yield from compress_in_pieces(batch.codec, payload)
        base_offset, writer = batch.base_offset, (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        header = (attributes, batch.last_offset - base_offset, base_timestamp, max_timestamp, *writer, len(kept))
        return pack_batch(base_offset, batch.partition_leader_epoch, header, payload)
    except (InvalidRecord, ArithmeticError, LookupError, ValueError, StructError):
        raise Unusual from None


def _copied(data: bytes, kept: Sequence[int], moves: int = 0, always: int | None = None) -> InPieces[tuple[bytes, int]]:
    """Return the records, and the largest of the numbers that their timestamps are.

    moves: what to add to each of those, unless it is to be `always` the same.
    """
    walk = (_copy or _make_walks()[0]) if not moves and always is None else (_write_times or _make_walks()[1])
    latest = _LEAST
    parts: list[bytes] = []
    for first in range(0, len(kept), CHUNK_RECORDS):
        if first:
            yield CHUNK_US
        latest = walk(data, 0, first, first + CHUNK_RECORDS, 0, kept, parts, latest, moves, always)
    return b"".join(parts), latest


def _make_walks() -> tuple[Callable[..., int], Callable[..., int]]:
    """Return the walks that copy records as they are, and that write them with other timestamps."""
    global _copy, _write_times
    given: dict[str, Any] = {
        "trusting": True,
        "at_places": True,
        "parameters": "places, parts, latest, moves, always",
        "before": "add = parts.append",
        "result": "latest",
        "scope": {"small": SMALL_VARINTS, "small_count": len(SMALL_VARINTS), "varlong": varlong, "zero": b"\0"},
    }
    number = """\
number = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
if number > latest: latest = number
"""
    _copy = make_walk("timestamp_delta", number + "add(buf[at:stop])", **given)
    times = """\
number = number + moves if always is None else always
time = small[number] if 0 <= number < small_count else varlong(number)
size = stop - pos + 1 + len(time)
add(small[size] if size < small_count else uvarint(size << 1)); add(zero); add(time); add(buf[pos:stop])"""
    _write_times = make_walk("timestamp_delta", number + times, **given)
    return _copy, _write_times


_copy: Callable[..., int] | None = None
_write_times: Callable[..., int] | None = None
_LEAST = -(1 << 63)
