"""Conversion of batches between the three formats, up and down: for old clients, old logs and re-compression.

| | v0 | v1 | v2 |
|---|---|---|---|
| offsets | kept, or counted from `base_offset` | the same | the same; the batch also keeps its ends |
| timestamps | dropped; coming from v0 they are -1 | kept, with their type | kept, with their type |
| headers, producer, transaction | dropped | dropped | kept |
| control batches | dropped: older readers would take them for data | dropped | kept |
| codec | kept; zstd is an error | kept; zstd is an error | kept |

Checksums are those of the new bytes; whether the old ones were right is the caller's question. What already has the
format asked for passes untouched, as a view. Goes from batch to batch and holds one at a time, of its records only as
many as are converted without a pause (in_pieces.py).
Kafka: the broker's down-conversion, RecordsUtil.downConvert of 3.9, keeps batches that are older than the format asked
for; here they are converted up.
"""

from __future__ import annotations

from minibroker.errors import EncodeError, InvalidRecord, UnknownCodec
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import BatchBuilder, origin_of, pack_batch
from minibroker.log.compression import ZSTD, compress
from minibroker.log.formats import APPEND_TIME, CODEC_MASK, CREATE_TIME, HEADER_BYTES
from minibroker.log.message_sets import single_message
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, unpacked_in_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from minibroker.in_pieces import InPieces
    from minibroker.log.message_sets import MessagePieces
    from minibroker.log.records import Record, RecordPieces

RUN_BYTES_MAX = 1024 * 1024  # of single messages that become one batch: Kafka's default for the largest batch
RUN_PIECE, SINGLE_US, BYTES_PER_US = 128, 3, 4000


class FormatLacksCodec(UnknownCodec):
    """A batch is in order, but its codec came with a later format than the one asked for."""


def convert_in_pieces(
    buffer: bytes | bytearray | memoryview,
    to_magic: int,
    *,
    first_offset: int = 0,
    base_offset: int | None = None,
    codec: int | None = None,
    level: int | None = None,
    keep_older: bool = False,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[int | bytes | memoryview]:
    """Yield the whole batches of a buffer in format `to_magic`, one or more batches at a time.

    And between that, how many microseconds about have passed (in_pieces.py); `convert` leaves those out.

    first_offset: where the reader wants to begin. Single messages below it are left out, whole compressed batches are
        converted as they are: readers skip what they did not ask for.
    base_offset: count the records from here, without gaps, as the leader does with what producers send.
    keep_older: leave batches of older formats as they are: whoever can read a format can read those before it.
    codec: compress with this one instead of keeping each batch's own.
    level: of the codec; batches that have the codec already are compressed again then.
    limit_bytes: the most that one batch may unpack to.
    """
    for run in _runs(batches(buffer)):
        if isinstance(run, int):
            yield run
            continue
        batch = run[0]
        if to_magic < 2 and batch.is_control:
            continue
        new_codec = batch.codec if codec is None else codec
        if to_magic < 2 and new_codec == ZSTD:
            position = batch.position + 21
            raise FormatLacksCodec(f"format {to_magic} has no zstd", position, "BatchHeader.attributes")
        is_fine = batch.magic == to_magic or (keep_older and batch.magic < to_magic)
        is_packed = new_codec == batch.codec and (level is None or not new_codec)
        if is_fine and is_packed and base_offset is None:
            yield from (piece.view for piece in run)
            continue
        if to_magic == batch.magic == 2 and base_offset is None:
            yield recompressed(batch, new_codec, level=level, limit_bytes=limit_bytes)
            continue
        builder = None
        try:
            reader = _Records(run, limit_bytes, with_headers=to_magic == 2)
            while records := (yield from reader.read()):
                if to_magic < 2 and not batch.codec:
                    records = [record for record in records if record.offset >= first_offset]
                if base_offset is not None:
                    records = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
                    base_offset += len(records)
                if records:
                    builder = builder or _builder(batch, to_magic, new_codec, level, keep_ends=base_offset is None)
                    yield from builder.add(records)
            if builder is None and to_magic == batch.magic == 2:
                builder = _builder(batch, to_magic, new_codec, level, keep_ends=base_offset is None)
            if builder is not None:
                yield builder.end()
        except EncodeError as error:
            # Numbers that can be read but not be written: offsets that fall, times beyond 64 bits.
            raise InvalidRecord(f"cannot become format {to_magic}: {error}", batch.position, "batch") from None


def convert(*args: Any, **settings: Any) -> Iterator[bytes | memoryview]:
    """Do all of `convert_in_pieces` at once."""
    for made in convert_in_pieces(*args, **settings):
        if not isinstance(made, int):
            yield made


def recompressed(
    batch: Batch, codec: int, *, level: int | None = None, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """Return a v2 batch with another codec: header and records as they were, only not as small, or smaller."""
    start = batch.position + HEADER_BYTES
    packed = batch.buffer[start : batch.end_position]
    if batch.count:
        payload = finish(unpacked_in_pieces(batch, packed, start, limit_bytes))
        if codec:
            payload = compress(codec, payload, level=level)
    else:  # there is nothing; if there is nevertheless, nobody knows what it was
        payload, codec = bytes(packed), batch.codec if packed else codec
    writer = batch.producer_id, batch.producer_epoch, batch.base_sequence
    delta, attributes = batch.last_offset - batch.base_offset, batch.attributes & ~CODEC_MASK | codec
    header = (attributes, delta, batch.base_timestamp, batch.max_timestamp, *writer, batch.count)
    return pack_batch(batch.base_offset, batch.partition_leader_epoch, header, payload)


class _Records:
    """The records of a run, some at a time."""

    def __init__(self, run: list[Batch], limit_bytes: int, *, with_headers: bool):
        self._run, self._next = run, 0
        self._limit_bytes, self._with_headers = limit_bytes, with_headers
        self._reader: RecordPieces | MessagePieces | None = None

    def read(self) -> InPieces[list[Record]]:
        first = self._run[0]
        if first.magic < 2 and not first.codec:
            singles = self._run[self._next : self._next + RUN_PIECE]
            self._next += len(singles)
            yield SINGLE_US * len(singles) + sum(batch.size_bytes for batch in singles) // BYTES_PER_US
            return [single_message(batch) for batch in singles]
        if self._reader is None:
            self._reader = yield from first.pieces(self._limit_bytes, with_headers=self._with_headers)
        return (yield from self._reader.read())


def _runs(found: Iterator[Batch]) -> Iterator[list[Batch] | int]:
    """Yield each batch alone, but single messages that can share a batch together: a message set is a run of them.

    And between those, how long about it has taken to find them.
    """
    run: list[Batch] = []
    run_bytes = 0
    for batch in found:
        if run and not (run_bytes + batch.size_bytes <= RUN_BYTES_MAX and _can_share(run[0], batch)):
            yield run
            run, run_bytes = [], 0
        run.append(batch)
        run_bytes += batch.size_bytes
        if not len(run) % RUN_PIECE:
            yield SINGLE_US * RUN_PIECE
    if run:
        yield run


def _can_share(batch: Batch, other: Batch) -> bool:
    """Whether both are single messages of a format, with the same type of timestamp, and the same append time."""
    if batch.magic == 2 or batch.magic != other.magic or batch.codec or other.codec:
        return False
    if batch.timestamp_type != APPEND_TIME:
        return other.timestamp_type != APPEND_TIME
    return other.timestamp_type == APPEND_TIME and batch.max_timestamp == other.max_timestamp


def _builder(batch: Batch, to_magic: int, codec: int, level: int | None, *, keep_ends: bool) -> BatchBuilder:
    append_time = batch.max_timestamp if batch.timestamp_type == APPEND_TIME else None
    timestamp_type = CREATE_TIME if append_time is None else APPEND_TIME
    if to_magic < 2 or batch.magic < 2:
        return BatchBuilder(
            to_magic, codec=codec, level=level, timestamp_type=timestamp_type, max_timestamp=append_time
        )
    return BatchBuilder(
        2,
        codec=codec,
        level=level,
        base_offset=batch.base_offset if keep_ends else None,
        last_offset=batch.last_offset if keep_ends else None,
        timestamp_type=timestamp_type,
        max_timestamp=append_time,
        delete_horizon=batch.delete_horizon,
        **origin_of(batch),
    )
