"""Records: what they are, and reading them out of a batch, whatever its format.

Loops over records are generated from the declarations in formats.py and only notice that something is wrong; the slow
walk over the same declarations then says what and where.

What must hold: broken bytes raise a ProtocolError with position and path, and nothing else does; no count or size is
believed before it is compared with what is there; decompression stops at the caller's limit.
Positions in errors count from the start of the buffer; for compressed records from the start of what the batch unpacks
to, and the reason says so.
Not here: finding batches and their headers (batches.py), the layouts (formats.py).
"""

from __future__ import annotations

from collections import namedtuple
from struct import error as StructError
from zlib import crc32

from minibroker.errors import (
    CorruptCrc,
    DecompressionFailed,
    DecompressionLimit,
    Error,
    InvalidLength,
    InvalidMagic,
    InvalidRecord,
    InvalidRecordCount,
    NullForbidden,
    ProtocolError,
    TooDeep,
    Truncated,
    UnknownCodec,
)
from minibroker.in_pieces import finish
from minibroker.log.compression import decompress_in_pieces
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    CODEC_MASK,
    HEADER_BYTES,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
    RECORD_BYTES_MIN,
    MessageV0,
    MessageV1,
    RecordV2,
    layout,
)
from minibroker.schema.compile import rows
from minibroker.schema.plan import message_plan
from minibroker.schema.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NamedTuple

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch
    from minibroker.schema.types import StructMeta

    class Record(NamedTuple):
        """One record, whatever the format it came in."""

        key: bytes | None = None
        value: bytes | None = None
        headers: tuple[tuple[str, bytes | None], ...] = ()  # only v2 has them; a key may repeat
        timestamp: int = -1  # ms since 1970; -1 is none
        offset: int = -1  # -1 when building: the one after the record before
else:
    # A million come in a second: tuples are made in half the time that objects take. The class statement would import
    # typing, which costs more than this whole module.
    Record = namedtuple("Record", "key value headers timestamp offset", defaults=(None, None, (), -1, -1))
    Record.__doc__ = "One record, whatever the format it came in."

# A hop to the next message takes as long as the checksum of so many bytes.
HOPPED_BYTES, HOP_BYTES_PER_US, HOP_BYTES_PIECE = 1500, 1500, 1 << 20
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024  # for callers that name no limit of their own


def control_type(record: Record) -> int:
    """Return what a record of a control batch says: ABORT, COMMIT, ...; readers pass over types they do not know."""
    key = record.key or b""
    if len(key) < 4 or key[0] > 0x7F:
        raise InvalidRecord(f"control record {record.offset} has the key {key[:8].hex()!r}", 0, "RecordV2.key")
    return int.from_bytes(key[2:4], "big", signed=True)


def code_of(error: ProtocolError) -> Error:
    """Return what Kafka answers to records that cannot be read, though the header of their batch can."""
    if isinstance(error, CorruptCrc):
        return Error.CORRUPT_MESSAGE  # of a message within a wrapper
    if isinstance(error, DecompressionLimit):
        return Error.MESSAGE_TOO_LARGE
    if isinstance(error, DecompressionFailed):
        return Error.UNKNOWN_SERVER_ERROR
    # Kafka: answers UNKNOWN_SERVER_ERROR to v0 and v1 messages with lengths that lead beyond their end, or takes them.
    return Error.INVALID_RECORD


# Format v2


def batch_records(batch: Batch, limit_bytes: int, unpacked: bytes | None = None) -> Iterator[Record]:
    """Yield the records of a v2 batch. unpacked: what it unpacks to, if somebody has done that already.

    Kafka: where the count is 0, records that are there nevertheless are passed over; here they are an error.
    """
    start, count = batch.position + HEADER_BYTES, batch.count
    data = unpacked
    if data is None:
        data = _unpacked(batch, batch.buffer[start : batch.end_position], start, limit_bytes)
    end = len(data)
    if not 0 <= count * RECORD_BYTES_MIN <= end:
        raise wrong_count(batch, f"{count} records cannot be in {end} bytes")
    append_time = batch.attributes & APPEND_TIME_BIT
    read = _reader("v2 append time" if append_time else "v2")
    base_timestamp = batch.max_timestamp if append_time else batch.base_timestamp
    base_offset = batch.base_offset
    done = position = 0
    while done < count:
        chunk = min(count - done, CHUNK_RECORDS)
        try:
            made, stop = read(data, position, end, chunk, base_offset, base_timestamp)
            if stop > end:
                raise IndexError
        except (ArithmeticError, LookupError, ValueError, StructError):
            raise _broken_record(batch, data, position, done, chunk) from None
        yield from made
        done += chunk
        position = stop
    if position != end:
        raise wrong_count(batch, f"{count} records take {position} of {end} bytes")


CHUNK_RECORDS = 128  # read at once: long enough for the loop to be fast, short enough to stop early and hold little


def _unpacked(batch: Batch, data: memoryview, start: int, limit_bytes: int) -> bytes:
    return finish(unpacked_in_pieces(batch, data, start, limit_bytes))


def unpacked_in_pieces(batch: Batch, data: memoryview, start: int, limit_bytes: int) -> InPieces[bytes]:
    """Return what the codec makes of `data`, which begins at `start`; bytes, which Python reads faster than views."""
    if not batch.codec or not data:  # an empty batch may name a codec, there is nothing for it
        return bytes(data)
    try:
        return bytes((yield from decompress_in_pieces(batch.codec, data, limit_bytes, magic=batch.magic)))
    except UnknownCodec as error:
        error.position = batch.position + (21 if batch.magic == 2 else 17)
        error.path = batch.path("attributes")
        raise
    except ProtocolError as error:
        error.position += start
        error.path = batch.path("records" if batch.magic == 2 else "value")
        raise


def _broken_record(batch: Batch, data: bytes, position: int, index: int, count: int) -> ProtocolError:
    """Return the error in one of `count` records, of which the first is at `position`."""
    plan, walker = message_plan(RecordV2, 0), Walker(data, None)
    for number in range(index, index + count):
        if position == len(data):
            return wrong_count(batch, f"the records end after {number} of {batch.count}")
        try:
            position = walker.struct(plan, position, f"RecordV2[{number}]")
        except ProtocolError as error:
            return _placed(error, None if batch.codec else batch.position + HEADER_BYTES)
    raise AssertionError("the generated reader failed on records that are in order")


def _placed(error: ProtocolError, start: int | None) -> ProtocolError:
    """Complete an error in data that begins at `start` of the buffer, or comes out of a codec."""
    if start is None:
        error.reason += " (in what the batch unpacks to)"
    else:
        error.position += start
    return error


def wrong_count(batch: Batch, reason: str) -> InvalidRecordCount:
    return InvalidRecordCount(reason, batch.position + 57, batch.path("count"))


# Formats v0 and v1


def single_message(batch: Batch) -> Record:
    """Read the message that the batch is: a record, or the wrapper of some."""
    read = _reader("one v1" if batch.magic else "one v0")
    data = bytes(batch.view)
    try:
        made, stop = read(data, 0, len(data), 1)
        if stop == len(data):
            record: Record = made[0]
            return record
    except (ArithmeticError, LookupError, ValueError, StructError):
        pass
    error = _find_error(data, batch.magic, _CLASSES[batch.magic].__name__)
    assert error, "the generated reader failed on a message that is in order"
    raise _placed(error, batch.position)


def wrapped_records(batch: Batch, inner: InnerMessages, chunk_records: int = CHUNK_RECORDS) -> Iterator[Record]:
    """Yield the records of a v0 or v1 wrapper that has been unpacked."""
    read = _reader("v1 append time" if batch.timestamp_type == APPEND_TIME else "v1" if batch.magic else "v0")
    done = position = 0
    while done < inner.count:
        chunk = min(inner.count - done, chunk_records)
        try:
            made, stop = read(inner.data, position, len(inner.data), chunk, inner.base_offset, batch.max_timestamp)
            if stop > len(inner.data):
                raise IndexError
        except (ArithmeticError, LookupError, ValueError, StructError):
            raise _broken_inner(batch, inner.data, position, done, chunk) from None
        yield from made
        done += chunk
        position = stop


class InnerMessages:
    """The message set within a wrapper; the sizes in it lead from one message to the next and to the end."""

    __slots__ = ("base_offset", "count", "data", "first_offset")

    def __init__(self, data: bytes, count: int, base_offset: int, first_offset: int):
        self.data = data
        self.count = count
        self.base_offset = base_offset  # what to add to the offsets of the messages
        self.first_offset = first_offset


def inner_messages(batch: Batch, limit_bytes: int, check_crc: bool) -> InnerMessages:
    """Unpack a wrapper."""
    return finish(inner_messages_in_pieces(batch, limit_bytes, check_crc))


def inner_messages_in_pieces(batch: Batch, limit_bytes: int, check_crc: bool) -> InPieces[InnerMessages]:
    """Unpack a wrapper, and go through the sizes of what it holds."""
    value = single_message(batch).value
    if value is None:
        raise NullForbidden("a wrapper without messages", batch.end_position - 4, batch.path("value"))
    start = batch.end_position - len(value)
    data = yield from unpacked_in_pieces(batch, memoryview(value), start, limit_bytes)
    count, first_offset, last_offset = yield from _hop(data, batch.magic, check_crc)
    if not count:
        raise InvalidRecordCount("a wrapper without messages", start, batch.path("value"))
    if batch.magic == 0 or batch.last_offset == 0:
        # v0 has absolute offsets within. And a wrapper at 0 comes from a librdkafka that counts within from 0 but does
        # not set the wrapper's offset; Kafka's readers do the same.
        return InnerMessages(data, count, 0, first_offset)
    base_offset = batch.last_offset - last_offset
    if base_offset < 0:
        reason = f"the wrapper's offset {batch.last_offset} is below {last_offset} of the last message within"
        raise InvalidRecord(reason, batch.position, batch.path("offset"))
    return InnerMessages(data, count, base_offset, base_offset + first_offset)


def _hop(data: bytes, magic: int, check_crc: bool) -> InPieces[tuple[int, int, int]]:
    """Hop through a message set and check its sizes; return how many messages it has, the first and the last offset."""
    position = count = first_offset = offset = found = unsaid = 0
    end = len(data)

    def wrong(kind: type[ProtocolError], reason: str, field: str, at: int) -> ProtocolError:
        return _placed(kind(reason, position + at, f"{_CLASSES[magic].__name__}[{count}].{field}"), None)

    size_min = MESSAGE_BYTES_MIN[magic] - PREFIX_BYTES
    while position < end:
        if end - position < MESSAGE_BYTES_MIN[0]:
            raise wrong(Truncated, f"{end - position} bytes are left, no message is so short", "offset", 0)
        offset, size, crc, inner_magic, attributes = _read_head(data, position)
        if inner_magic != magic:
            raise wrong(InvalidMagic, f"format {inner_magic} within format {magic}", "magic", 16)
        if size < size_min:
            raise wrong(InvalidLength, f"size {size} is below the {size_min} that format {magic} needs", "size", 8)
        if size > end - position - PREFIX_BYTES:
            raise wrong(Truncated, f"needs {size} bytes, {end - position - PREFIX_BYTES} are left", "size", 8)
        if attributes & CODEC_MASK:
            raise wrong(TooDeep, "a compressed message within a compressed message", "attributes", 17)
        if check_crc and size > HOP_BYTES_PIECE:
            found = 0
            view = memoryview(data)[position + 16 : position + PREFIX_BYTES + size]
            for start in range(0, len(view), HOP_BYTES_PIECE):
                found = crc32(view[start : start + HOP_BYTES_PIECE], found)
                yield HOP_BYTES_PIECE // HOP_BYTES_PER_US
        elif check_crc:
            found = crc32(data[position + 16 : position + PREFIX_BYTES + size])
        if check_crc and found != crc:
            raise wrong(CorruptCrc, f"{crc:#010x} is not the checksum of the bytes", "crc", 12)
        if not count:
            first_offset = offset
        position += PREFIX_BYTES + size
        count += 1
        unsaid += HOPPED_BYTES + size
        if unsaid > HOP_BYTES_PIECE:
            yield unsaid // HOP_BYTES_PER_US
            unsaid = 0
    return count, first_offset, offset


def _broken_inner(batch: Batch, data: bytes, position: int, index: int, count: int) -> ProtocolError:
    """Return the error in one of `count` messages within a wrapper, of which the first is at `position`."""
    for number in range(index, index + count):
        end = position + PREFIX_BYTES + _read_head(data, position)[1]
        error = _find_error(data[position:end], batch.magic, f"{_CLASSES[batch.magic].__name__}[{number}]")
        if error:
            error.position += position
            return _placed(error, None)
        position = end
    raise AssertionError("the generated reader failed on messages that are in order")


def _find_error(message: bytes, magic: int, path: str) -> ProtocolError | None:
    try:
        stop = Walker(message, None).struct(message_plan(_CLASSES[magic], 0), 0, path)
    except ProtocolError as error:
        return error
    left = len(message) - stop
    return InvalidLength(f"{left} bytes follow the value", stop, path + ".size") if left else None


# Readers, generated at first use


def _reader(name: str) -> Callable[..., Any]:
    return _readers.get(name) or _make_reader(name)


def _make_reader(name: str) -> Callable[..., Any]:
    parameters = "base_offset, base_timestamp"
    if name.startswith("one"):
        timestamp, offset, parameters = "timestamp" if name == "one v1" else "-1", "offset", ""
    else:
        # With append time the second argument is not a base but the time of all records.
        timestamp = {"v0": "-1", "v1": "timestamp", "v2": "base_timestamp + timestamp_delta"}.get(
            name, "base_timestamp"
        )
        offset = "base_offset + offset_delta" if name.startswith("v2") else "base_offset + offset"
    if name.startswith("v2"):
        cls: StructMeta = RecordV2
        make = f"new(Record, (key, value, tuple(headers) if headers else (), {timestamp}, {offset}))"
    else:
        cls = MessageV1 if "v1" in name else MessageV0
        # The size in front of a message must be that of its content. In v2 the declaration itself says so, and of a
        # single message the end is known.
        rest = MESSAGE_BYTES_MIN[cls is MessageV1] - PREFIX_BYTES
        make = f"new(Record, (key, value, (), {timestamp}, {offset}))"
        make += (
            ""
            if name.startswith("one")
            else f" if size == {rest} + len(key or b'') + len(value or b'') else wrong_size()"
        )
    scope = {"Record": Record, "new": tuple.__new__, "wrong_size": _wrong_size}
    reader = _readers[name] = rows(cls, make, parameters, {"Header": "(Header_key, Header_value)"}, scope)
    return reader


def _wrong_size() -> None:
    raise ValueError


_readers: dict[str, Callable[..., Any]] = {}
_CLASSES: tuple[type[Any], ...] = (MessageV0, MessageV1)
_read_head = layout(MessageV0).unpack_from  # the fields that v0 and v1 share
