"""Records: what they are, and reading them out of a v2 batch, all at once or some at a time.

What must hold: broken bytes raise a ProtocolError with position and path, and nothing else does; no count or size is
believed before it is compared with what is there; decompression stops at the caller's limit.
Positions in errors count from the start of the buffer; for compressed records from the start of what the batch unpacks
to, and the reason says so.
Read in pieces, others have their turn in between, and headers stay bytes, as they are but for keys that are no text: a
few kilobytes can unpack to tens of millions of them. Whoever writes the record anew puts them behind it (build.py), all
others do not look at them.
Not here: finding batches and their headers (batches.py), the layouts (formats.py), formats v0 and v1 (message_sets.py).
"""

from __future__ import annotations

from collections import namedtuple

from minibroker.errors import (
    CorruptCrc,
    DecompressionFailed,
    DecompressionLimit,
    Error,
    InvalidRecord,
    InvalidRecordCount,
    ProtocolError,
    UnknownCodec,
)
from minibroker.in_pieces import finish
from minibroker.log.compression import decompress_in_pieces
from minibroker.log.formats import APPEND_TIME_BIT, CODEC_MASK, HEADER_BYTES, RECORD_BYTES_MIN, RecordV2
from minibroker.log.record_walks import (
    AT_ONCE,
    HEADER_NS,
    HEADERS_PIECE,
    ManyHeaders,
    behind_headers,
    make_walk,
    pass_many_headers,
)
from minibroker.schema.plan import message_plan
from minibroker.schema.varint import read_uvarint, uvarint
from minibroker.schema.walk import Walker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NamedTuple, Protocol

    from minibroker.in_pieces import InPieces

    class Batch(Protocol):
        """What must be known of a batch to read its records: batches.py has it from the header."""

        buffer: memoryview
        position: int
        magic: int
        attributes: int
        header_offset: int
        last_offset: int
        header_count: int
        base_timestamp: int
        max_timestamp: int

        @property
        def end_position(self) -> int: ...
        @property
        def view(self) -> memoryview: ...
        @property
        def codec(self) -> int: ...
        @property
        def timestamp_type(self) -> int: ...
        def path(self, field: str) -> str: ...

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

COUNT_POSITION = HEADER_BYTES - 4  # of how many records there are
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024  # for callers that name no limit of their own
CHUNK_RECORDS = 128  # read at once: long enough for the loop to be fast, short enough to stop early and hold little
PIECE_RECORDS = 2 * CHUNK_RECORDS
PIECE_BYTES = 256 * 1024
FEW_BYTES_MAX = 8192  # of records whose headers are gone through at once: they may have 4000
RECORD_NS, BYTES_PER_US = 1200, 4000  # about how long it takes: a record, and what it is made of


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


def batch_records(batch: Batch, limit_bytes: int, unpacked: bytes | None = None) -> Iterator[Record]:
    """Yield the records of a v2 batch. unpacked: what it unpacks to, if somebody has done that already.

    Kafka: where the count is 0, records that are there nevertheless are passed over; here they are an error.
    """
    start, count = batch.position + HEADER_BYTES, batch.header_count
    data = unpacked
    if data is None:
        data = finish(unpacked_in_pieces(batch, batch.buffer[start : batch.end_position], start, limit_bytes))
    _check_count(batch, data)
    read = _full_walk or _make_walk(parsed=True)
    append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_BIT else None
    base_timestamp, base_offset = batch.base_timestamp, batch.header_offset
    done = position = 0
    while done < count:
        end = min(count, done + CHUNK_RECORDS)
        try:
            made, stop, _ = read(data, position, done, end, AT_ONCE, base_timestamp, append_time, base_offset)
        except InvalidRecord:
            raise _broken_record(batch, data, position, done, end) from None
        if stop > len(data):
            raise _broken_record(batch, data, position, done, end)
        yield from made
        done, position = end, stop
    _check_end(batch, data, position)


class RecordPieces:
    """The records of a v2 batch that has been unpacked, some at a time; what is wrong is as for `batch_records`."""

    def __init__(self, batch: Batch, data: bytes, *, with_headers: bool = False):
        """data: what it unpacks to. with_headers: if not, records have none."""
        self.size_bytes = len(data)
        self.data = data
        self._batch, self._with_headers = batch, with_headers
        self._done, self._position = 0, 0
        _check_count(batch, data)

    def read(self) -> InPieces[list[Record]]:
        """Return the next records; none if there are no more."""
        data, begin, done, count = self.data, self._position, self._done, self._batch.header_count
        if done == count:
            _check_end(self._batch, data, begin)
            return []
        end = min(count, done + PIECE_RECORDS)
        headers_end = AT_ONCE if len(data) <= FEW_BYTES_MAX else 0
        try:
            records, headers = self._walk(done, end, headers_end)
        except ManyHeaders as many:
            end = many.index  # those before it; if there are none, it alone
            if end == done:
                end, headers_end = done + 1, (yield from pass_many_headers(data, many))
            records, headers = self._walk(done, end, headers_end)
        self._done = done + len(records)
        if self._with_headers:
            for index, record in enumerate(records):
                if record.headers and not record.headers.isascii():  # type: ignore[attr-defined]
                    text: Any = yield from _as_text(record.headers)  # type: ignore[arg-type]
                    records[index] = record._replace(headers=text)
        yield 1 + (RECORD_NS * len(records) + HEADER_NS * headers) // 1000 + (self._position - begin) // BYTES_PER_US
        return records

    def _walk(self, index: int, end: int, headers_end: int) -> tuple[list[Record], int]:
        """Read records from the position on; return how many headers were gone through, too."""
        batch, data, begin = self._batch, self.data, self._position
        walk = _plain_walk or _make_walk(parsed=False)
        append_time = batch.max_timestamp if batch.attributes & APPEND_TIME_BIT else None
        base_timestamp, base_offset, with_headers = batch.base_timestamp, batch.header_offset, self._with_headers
        try:
            records, self._position, headers = walk(
                data,
                begin,
                index,
                end,
                headers_end,
                base_timestamp,
                append_time,
                base_offset,
                with_headers,
                begin + PIECE_BYTES,
            )
        except InvalidRecord as error:
            raise _placed(batch, error) from None
        return records, headers


def _make_walk(*, parsed: bool) -> Callable[..., tuple[list[Record], int, int]]:
    """Return the walk that makes records, with headers that are read or stay bytes."""
    global _full_walk, _plain_walk
    parameters, headers = "base_timestamp, append_time, base_offset", "count or ()"
    scope: dict[str, Any] = {"Record": Record, "new": tuple.__new__, "read_uvarint": read_uvarint}
    if parsed:
        scope["pass_headers"] = _read_headers
    else:
        parameters, headers = (
            f"{parameters}, with_headers, pos_max",
            # A count of 0 may take more than one byte.
            "buf[headers_at:pos] if with_headers and buf[headers_at] "
            "and (buf[headers_at] < 128 or read_uvarint(buf, headers_at)[0]) else ()",
        )
    each = f"""\
timestamp = base_timestamp + (timestamp_delta >> 1 ^ -(timestamp_delta & 1)) if append_time is None else append_time
add(new(Record, (key, value, {headers}, timestamp, base_offset + (offset_delta >> 1 ^ -(offset_delta & 1)))))"""
    walk = make_walk(
        "timestamp_delta offset_delta key value headers",
        parameters=parameters,
        before="records = []; add = records.append",
        each=each if parsed else f"{each}\nif pos > pos_max: break",
        if_headers="pass" if parsed else "headers += count",
        result="records, pos, headers",
        scope=scope,
    )
    if parsed:
        _full_walk = walk
    else:
        _plain_walk = walk
    return walk


_full_walk: Callable[..., tuple[list[Record], int, int]] | None = None
_plain_walk: Callable[..., tuple[list[Record], int, int]] | None = None


def _read_headers(
    data: bytes, position: int, number: int, stop: int, _index: int, _headers_end: int
) -> tuple[int, tuple[tuple[str, bytes | None], ...]]:
    """Return where the headers of a record end whose count begins with a number, and the headers."""
    if number > 127:
        number, position = read_uvarint(data, position - 1)
    headers: list[tuple[str, bytes | None]] = []
    position = behind_headers(data, position, stop, number, headers)
    return position, tuple(headers)


def _as_text(headers: bytes) -> InPieces[bytes]:
    """Return headers as they are written anew: what is no text in their keys becomes U+FFFD, as in Kafka."""
    number, position = read_uvarint(headers, 0)
    parts = [headers[:position]]
    while number:
        piece, begin = min(number, 2 * HEADERS_PIECE), position
        found: list[tuple[str, bytes | None]] = []
        position = behind_headers(headers, begin, len(headers), piece, found)
        as_they_are = all("\ufffd" not in key for key, _ in found)
        parts.append(headers[begin:position] if as_they_are else b"".join(map(_written_header, found)))
        number -= piece
        yield HEADER_NS * piece // 1000
    return b"".join(parts)


def _written_header(header: tuple[str, bytes | None]) -> bytes:
    name, value = header[0].encode(), header[1]
    size = 1 if value is None else len(value) << 1
    return uvarint(len(name) << 1) + name + uvarint(size) + (value or b"")


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


# What is wrong


def _check_count(batch: Batch, data: bytes) -> None:
    if not 0 <= batch.header_count * RECORD_BYTES_MIN <= len(data):
        raise _wrong_count(batch, f"{batch.header_count} records cannot be in {len(data)} bytes")


def _check_end(batch: Batch, data: bytes, position: int) -> None:
    if position != len(data):
        raise _wrong_count(batch, f"{batch.header_count} records take {position} of {len(data)} bytes")


def _wrong_count(batch: Batch, reason: str) -> InvalidRecordCount:
    return InvalidRecordCount(reason, batch.position + COUNT_POSITION, batch.path("count"))


def _broken_record(batch: Batch, data: bytes, position: int, index: int, end: int) -> ProtocolError:
    """Return the error in one of the records from an index on, of which the first is at `position`."""
    record_plan, walker = message_plan(RecordV2, 0), Walker(data, None)
    for number in range(index, end):
        if position == len(data):
            return _wrong_count(batch, f"the records end after {number} of {batch.header_count}")
        try:
            position = walker.struct(record_plan, position, f"RecordV2[{number}]")
        except ProtocolError as error:
            return _placed(batch, error)
    raise AssertionError("the walk failed on records that are in order")


def _placed(batch: Batch, error: ProtocolError) -> ProtocolError:
    """Complete an error in what a v2 batch unpacks to."""
    if batch.attributes & CODEC_MASK:
        return within(error)
    error.position += batch.position + HEADER_BYTES
    return error


def within(error: ProtocolError) -> ProtocolError:
    """Say of an error that its position is not one in the buffer."""
    error.reason += " (in what the batch unpacks to)"
    return error


# Building


def due_offset(offset: int, next_offset: int) -> int:
    """Return the offset of a record that names none; or raise, for offsets must rise."""
    if offset >= 0:
        raise ValueError(f"offset {offset} comes after {next_offset - 1}: offsets must rise from base_offset")
    return next_offset
