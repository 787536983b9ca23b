"""Reading a log: by offset and by timestamp.

Up to where a reader may look is the caller's word: `limit_offset` is the high watermark for consumers, the last stable
offset for those that read only what is committed, the log's end for followers.
What is handed out is a place in a file: the bytes are sent as they lie there, batches from the one that holds the
offset on, and the last of them may be cut off by the size asked for. Clients skip and drop what they did not want.
What must hold: bytes that are no batches or records raise LogDamaged, a KafkaError. So they are the trouble of one
partition: not of the others in a request, and never of the connection that it came by, as a ProtocolError would be.
Not here: which transactions to leave out (aborted.py).
"""

from __future__ import annotations

from minibroker.errors import DecompressionLimit, Error, KafkaError, LogDamaged, ProtocolError
from minibroker.in_pieces import finish
from minibroker.log.batches import batches
from minibroker.log.convert import FormatLacksCodec, convert_in_pieces
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, code_of
from minibroker.log.scan import check_sizes_in_pieces
from minibroker.log.segment import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.records import Record

# What stands for a timestamp in ListOffsets.
LATEST: Final = -1  # where the next record comes
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # the record with the largest timestamp
EARLIEST_LOCAL: Final = -4  # of what is on this disk: everything is
LATEST_TIERED: Final = -5  # of what is in remote storage: nothing is
EARLIEST_PENDING_UPLOAD: Final = -6  # of what is to go there: nothing is

NO_OFFSET: Final = -1
HOPS_PIECE: Final = 500  # batches, a microsecond each
# Going to the next batch, or segment, takes as long as reading so many bytes; so much is sought without a pause.
SOUGHT_BYTES: Final = 2000
SEGMENT_BYTES: Final = 20_000
SOUGHT_BYTES_PIECE: Final = 1 << 20
SOUGHT_US: Final = 500


class Found:
    """A place in the log by timestamp."""

    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, timestamp: int, offset: int, leader_epoch: int | None):
        self.timestamp = timestamp  # of the record there; -1: nobody looked
        self.offset = offset
        self.leader_epoch = leader_epoch


def read(
    log: PartitionLog,
    offset: int,
    size_bytes_max: int,
    *,
    limit_offset: int,
    whole_batch: bool = True,
    may_cut: bool = False,
) -> Slice | None:
    """Return the batches from the one that holds `offset` on, up to `limit_offset`; None if there are none.

    whole_batch: return the first batch even if it is larger than the most that was asked for.
    may_cut: without that, return a piece of it rather than nothing.
    Never from more than one segment.
    """
    check_range(log, offset)
    if offset >= limit_offset:
        return None
    try:
        for index in range(log.segment_of(offset), len(log.segments)):
            segment = log.segments[index]
            place = segment.find(offset)
            if place is not None:
                end = _end_position(log, index, limit_offset)
                if place.end_position > end:
                    return None
                size_bytes = max(size_bytes_max, place.size_bytes) if whole_batch else size_bytes_max
                if size_bytes <= 0 or (size_bytes < place.size_bytes and not may_cut):
                    return None
                return Slice(segment, place.position, min(size_bytes, end - place.position))
    except ProtocolError as error:
        raise damaged(log, error) from error
    return None


def damaged(log: PartitionLog, error: ProtocolError, code: Error = Error.CORRUPT_MESSAGE) -> KafkaError:
    if isinstance(error, DecompressionLimit):
        return KafkaError(code, f"{log.directory}: {error}")  # Kafka wrote it, which unpacks as it reads on
    return LogDamaged(code, f"{log.directory} is damaged: {error}")


def check_range(log: PartitionLog, offset: int) -> None:
    """Raise unless a log can be read from an offset on."""
    log.check_online()
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE, f"{offset} is not within {log.log_start_offset} to {log.log_end_offset}"
        )


def end_offset_of(log: PartitionLog, index: int) -> int:
    """Return the offset behind a segment."""
    return log.segments[index + 1].base_offset if index + 1 < len(log.segments) else log.log_end_offset


def _end_position(log: PartitionLog, index: int, limit_offset: int) -> int:
    """Return the position in a segment at which the first batch at or behind the limit begins."""
    segment = log.segments[index]
    if limit_offset >= end_offset_of(log, index):
        return segment.size_bytes
    place = segment.find(limit_offset)
    return segment.size_bytes if place is None else place.position


def is_newer_in_pieces(read: memoryview, magic: int) -> InPieces[bool]:
    """Say whether a batch of what was read has a newer format, as far as batches can be read."""
    try:
        for count, batch in enumerate(batches(read)):
            if batch.magic > magic:
                return True
            if count % HOPS_PIECE == HOPS_PIECE - 1:
                yield HOPS_PIECE
    except ProtocolError:
        pass  # it goes out as it lies there
    return False


def converted_in_pieces(
    log: PartitionLog, read: memoryview, to_magic: int, first_offset: int
) -> Iterator[int | bytes | memoryview]:
    """Yield what was read in an older format, batch by batch; in between, how long about it has taken."""
    try:
        yield from convert_in_pieces(read, to_magic, first_offset=first_offset, keep_older=True)
    except FormatLacksCodec as error:
        raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, f"{log.directory}: {error}") from error
    except ProtocolError as error:
        raise damaged(log, error, Error.UNSUPPORTED_COMPRESSION_TYPE) from error


def find_offset(log: PartitionLog, timestamp: int, *, limit_offset: int) -> Found | None:
    """Return the first record by position that is not older, or what a special value stands for; None if none is."""
    return finish(find_offset_in_pieces(log, timestamp, limit_offset=limit_offset))


def find_offset_in_pieces(log: PartitionLog, timestamp: int, *, limit_offset: int) -> InPieces[Found | None]:
    """Do so in pieces. In between the log may grow, lose its beginning and be cleaned, but not be truncated.

    The records of a batch are looked at one by one; batches too old are passed over by their headers.
    """
    log.check_online()
    epochs = log.epochs
    if timestamp == LATEST:
        return Found(-1, limit_offset, epochs.latest.epoch if epochs.latest else None)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        first = epochs.earliest
        known = first is not None and first.start_offset <= log.log_start_offset
        return Found(-1, log.log_start_offset, first.epoch if first is not None and known else None)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Found(-1, NO_OFFSET, -1)
    if timestamp == MAX_TIMESTAMP:
        segment = max(log.segments, key=lambda each: each.latest[0])
        target = segment.latest[0]
        if target < 0:
            return None
        end_offset = end_offset_of(log, log.segments.index(segment))
        return (yield from _find_in(log, target, segment.base_offset, limit_offset, end_offset))
    return (yield from find_time_in_pieces(log, timestamp, limit_offset=limit_offset))


def find_time_in_pieces(log: PartitionLog, timestamp: int, *, limit_offset: int) -> InPieces[Found | None]:
    """Return the first record by position that is not older; no timestamp stands for anything else here."""
    return _find_in(log, timestamp, log.log_start_offset, limit_offset)


def _find_in(
    log: PartitionLog, timestamp: int, offset: int, limit_offset: int, end_offset: int | None = None
) -> InPieces[Found | None]:
    """Return the first record from an offset on that is not older; end_offset: None, or where it is not looked for.

    Others may have had their turn at each yield. Then all that is still known is that nothing lies between where this
    began and `offset`: where the log goes on there, in whatever segment, is looked up again.
    """
    try:
        while offset < log.log_end_offset and (end_offset is None or offset < end_offset):
            batch, next_offset = _next_since(log, timestamp, offset)
            record = None
            if batch is None:
                yield SOUGHT_US
            else:
                record = yield from _first_since(log, batch, timestamp, offset)
                log.check_online()
                if record is not None and (end_offset is not None or record.offset >= log.log_start_offset):
                    epoch = batch.partition_leader_epoch
                    is_visible = record.offset < limit_offset
                    return Found(record.timestamp, record.offset, epoch if epoch >= 0 else None) if is_visible else None
            if record is not None:
                offset = log.log_start_offset  # it has moved behind the record; the rest of the batch may hold another
            else:
                offset = next_offset if end_offset is not None else max(next_offset, log.log_start_offset)
    except ProtocolError as error:
        raise damaged(log, error) from error
    return None


def _next_since(log: PartitionLog, timestamp: int, offset: int) -> tuple[Batch | None, int]:
    """Return the next batch that ends at an offset or behind and has a record not older than a time.

    None if it is too far to be found at once; and from where to go on in either case.
    """
    sought_bytes = 0
    for index in range(log.segment_of(offset), len(log.segments)):
        segment = log.segments[index]
        if segment.latest[0] >= timestamp:
            for batch in segment.batches_near(timestamp, offset):
                if batch.max_timestamp >= timestamp:
                    return batch, batch.next_offset
                sought_bytes += SOUGHT_BYTES + batch.size_bytes
                if sought_bytes > SOUGHT_BYTES_PIECE:
                    return None, batch.next_offset
        sought_bytes += SEGMENT_BYTES
        if sought_bytes > SOUGHT_BYTES_PIECE:
            return None, end_offset_of(log, index)
    return None, log.log_end_offset


def _first_since(log: PartitionLog, batch: Batch, timestamp: int, start_offset: int) -> InPieces[Record | None]:
    found, count = None, 0
    try:
        records = yield from batch.pieces(DECOMPRESSED_BYTES_MAX)
        while found is None and (piece := (yield from records.read())):
            for record in piece:
                count += 1
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    found = record
                    break
        size_bytes_max = log.settings.validation.max_decompressed_message_bytes
        if batch.magic == 2 and batch.codec and size_bytes_max < DECOMPRESSED_BYTES_MAX:
            # The topic allows no larger records now; Kafka does so, too.
            yield from check_sizes_in_pieces(records.data, count, size_bytes_max)
    except ProtocolError as error:
        raise damaged(log, error, code_of(error)) from error
    return found


def offsets_before(log: PartitionLog, timestamp: int, count_max: int, *, now_ms: int) -> list[int]:
    """Return where segments begin, newest first, as ListOffsets v0 asks: from the last one written by a time on.

    The end of the log counts as written now. LATEST begins there, EARLIEST is the start alone.
    """
    log.check_online()
    starts = [max(segment.base_offset, log.log_start_offset) for segment in log.segments]
    written = [log.storage.modified_ms(segment.path) for segment in log.segments]
    if log.active.size_bytes:
        starts.append(log.log_end_offset)
        written.append(now_ms)
    if timestamp == LATEST:
        count = len(starts)
    elif timestamp == EARLIEST:
        count = 1
    else:
        count = max((index + 1 for index, at_ms in enumerate(written) if at_ms <= timestamp), default=0)
    return sorted(starts[max(count - count_max, 0) : count], reverse=True)
