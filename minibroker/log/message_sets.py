"""Message sets: the formats v0 and v1, as clients and brokers below 0.11 write and read them.

Messages follow one another, each with its own offset and checksum. Compressed they are the value of one message, the
wrapper: in v0 with absolute offsets within, in v1 counted from 0, and the wrapper has that of the last one.
What must hold: broken bytes raise a ProtocolError with position and path, and nothing else does; no size is believed
before it is compared with what is there; decompression stops at the caller's limit. What is wrong with a message the
slow walk over its declaration (formats.py) says.
Not here: finding messages in a buffer (batches.py), turning them into batches of v2 (convert.py).
"""

from __future__ import annotations

from itertools import islice
from struct import Struct as Layout
from struct import error as StructError
from zlib import crc32

from minibroker.errors import (
    CorruptCrc,
    InvalidLength,
    InvalidMagic,
    InvalidRecord,
    InvalidRecordCount,
    NullForbidden,
    ProtocolError,
    TooDeep,
    Truncated,
)
from minibroker.in_pieces import finish
from minibroker.log.compression import compress
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    CODEC_MASK,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
    MessageV0,
    MessageV1,
    layout,
)
from minibroker.log.records import (
    CHUNK_RECORDS,
    PIECE_BYTES,
    PIECE_RECORDS,
    RECORD_NS,
    Record,
    due_offset,
    unpacked_in_pieces,
    within,
)
from minibroker.schema.plan import message_plan
from minibroker.schema.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from minibroker.in_pieces import InPieces
    from minibroker.log.records import Batch

# A hop to the next message takes as long as the checksum of so many bytes.
HOPPED_BYTES, HOP_BYTES_PER_US, HOP_BYTES_PIECE = 1500, 1500, 1 << 20

# Reading


def single_message(batch: Batch) -> Record:
    """Read the message that the batch is: a record, or the wrapper of some."""
    data = bytes(batch.view)
    try:
        return _read(data, 0, 1, batch.magic)[0][0]
    except (IndexError, ValueError, StructError):
        pass
    error = _find_error(data, batch.magic, _CLASSES[batch.magic].__name__)
    assert error, "the reader failed on a message that is in order"
    error.position += batch.position
    raise error


def wrapped_records(batch: Batch, inner: InnerMessages, chunk_records: int = CHUNK_RECORDS) -> Iterator[Record]:
    """Yield the records of a v0 or v1 wrapper that has been unpacked."""
    append_time = batch.max_timestamp if batch.timestamp_type == APPEND_TIME else None
    done = position = 0
    while done < inner.count:
        chunk = min(inner.count - done, chunk_records)
        try:
            made, stop = _read(inner.data, position, chunk, batch.magic, inner.base_offset, append_time)
        except (IndexError, ValueError, StructError):
            raise _broken_inner(batch, inner.data, position, done, chunk) from None
        yield from made
        done += chunk
        position = stop


def _read(
    data: bytes, position: int, count: int, magic: int, base_offset: int = 0, append_time: int | None = None
) -> tuple[list[Record], int]:
    """Read so many messages and return where the last one ends, or fail: sizes must be those of the contents."""
    unpack, head_bytes = _LAYOUTS[magic].unpack_from, _LAYOUTS[magic].size
    read_size, end, new, time = _read_size, len(data), tuple.__new__, -1
    records: list[Record] = []
    add = records.append
    for _ in range(count):
        if magic:
            offset, size, _, _, _, time, key_size = unpack(data, position)
        else:
            offset, size, _, _, _, key_size = unpack(data, position)
        stop = position + PREFIX_BYTES + size
        position += head_bytes
        key = value = None
        if key_size >= 0:
            key = data[position : position + key_size]
            position += key_size
        (value_size,) = read_size(data, position)
        position += 4
        if value_size >= 0:
            value = data[position : position + value_size]
            position += value_size
        if position != stop or stop > end:
            raise ValueError
        add(new(Record, (key, value, (), time if append_time is None else append_time, base_offset + offset)))
    return records, position


class MessagePieces:
    """The messages of a wrapper, or the only one, some at a time: as records.py reads those of v2."""

    data = b""  # only batches of v2 are looked at as a whole

    def __init__(self, batch: Batch, inner: InnerMessages | None = None):
        self.size_bytes = 0 if inner is None else len(inner.data) - PREFIX_BYTES * inner.count
        self._piece_records = PIECE_RECORDS
        if inner is None:
            self._coming: Iterator[Record] = (single_message(batch) for _ in range(1))
        else:
            self._piece_records = max(min(PIECE_RECORDS, PIECE_BYTES * inner.count // len(inner.data)), 1)
            self._coming = wrapped_records(batch, inner, min(CHUNK_RECORDS, self._piece_records))

    def read(self) -> InPieces[list[Record]]:
        """Return the next records; none if there are no more."""
        records = list(islice(self._coming, self._piece_records))
        if records:
            yield 1 + RECORD_NS * len(records) // 1000
        return records


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
        return within(kind(reason, position + at, f"{_CLASSES[magic].__name__}[{count}].{field}"))

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
            return within(error)
        position = end
    raise AssertionError("the generated reader failed on messages that are in order")


def _find_error(message: bytes, magic: int, path: str) -> ProtocolError | None:
    try:
        stop = Walker(message, None).struct(message_plan(_CLASSES[magic], 0), 0, path)
    except ProtocolError as error:
        return error
    left = len(message) - stop
    return InvalidLength(f"{left} bytes follow the value", stop, path + ".size") if left else None


# Writing


def build_message_set(
    magic: int,
    records: Sequence[Record],
    attributes: int,
    level: int | None,
    base_offset: int,
    max_timestamp: int | None,
) -> bytes:
    """Return the messages, in a wrapper if there is a codec."""
    codec, append_time = attributes & 7, attributes & APPEND_TIME_BIT
    time = max_timestamp if append_time else None
    # Offsets within v1 wrappers count from the first.
    messages, last_offset, max_built = build_messages(
        magic, records, append_time if magic else 0, base_offset, base_offset if codec and magic else 0, time
    )
    if not codec or not records:
        return messages
    payload = compress(codec, messages, level=level, magic=magic)
    return wrap_messages(magic, payload, attributes, max_built if max_timestamp is None else max_timestamp, last_offset)


def wrap_messages(magic: int, payload: bytes, attributes: int, timestamp: int, last_offset: int) -> bytes:
    """Return the wrapper of compressed messages."""
    attributes &= CODEC_MASK | APPEND_TIME_BIT if magic else CODEC_MASK
    return build_messages(magic, [Record(None, payload, (), timestamp, last_offset)], attributes, 0, 0, None)[0]


def build_messages(
    magic: int, records: Sequence[Record], attributes: int, next_offset: int, subtract: int, append_time: int | None
) -> tuple[bytes, int, int]:
    """Return messages one after another from `next_offset` on, the last offset, the largest timestamp."""
    parts: list[bytes] = []
    add, join, pack_size, pack_front = parts.append, b"".join, _pack_size, _pack_message_front
    max_timestamp = -1
    for key, value, _, timestamp, offset in records:
        if offset < next_offset:
            offset = due_offset(offset, next_offset)
        next_offset = offset + 1
        if append_time is not None:
            timestamp = append_time
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        head = _pack_v1(1, attributes, timestamp) if magic else _pack_v0(0, attributes)
        if key is None:
            if value is None:
                body = head + b"\xff\xff\xff\xff\xff\xff\xff\xff"
            else:
                body = join((head, b"\xff\xff\xff\xff", pack_size(len(value)), value))
        elif value is None:
            body = join((head, pack_size(len(key)), key, b"\xff\xff\xff\xff"))
        else:
            body = join((head, pack_size(len(key)), key, pack_size(len(value)), value))
        add(pack_front(offset - subtract, len(body) + 4, crc32(body)))
        add(body)
    return join(parts), next_offset - 1, max_timestamp


_CLASSES: tuple[type[Any], ...] = (MessageV0, MessageV1)
_read_head = layout(MessageV0).unpack_from  # the fields that v0 and v1 share
_LAYOUTS = [Layout(layout(cls).format + "i") for cls in _CLASSES]  # up to the size of the key
_read_size = Layout(">i").unpack_from
_pack_message_front = layout(MessageV0, end="magic").pack
_pack_v0 = layout(MessageV0, "magic").pack
_pack_v1 = layout(MessageV1, "magic").pack
_pack_size = Layout(">i").pack
