"""Reading the records of a batch some at a time, so that others can have their turn in between.

What must hold: these are the records that `Batch.records` yields, and what is wrong with them raises a ProtocolError as
there. But headers stay the bytes they are, since a few kilobytes can unpack to tens of millions of them; whoever writes
the record anew puts them behind it (build.py), and all others do not look at them.
Not here: reading at once (records.py), going through records without making them (scan.py).
"""

from __future__ import annotations

from itertools import islice

from minibroker.errors import InvalidRecord
from minibroker.log.formats import APPEND_TIME_BIT, CODEC_MASK, HEADER_BYTES, PREFIX_BYTES, RECORD_BYTES_MIN
from minibroker.log.records import (
    CHUNK_RECORDS,
    Record,
    batch_records,
    inner_messages_in_pieces,
    single_message,
    unpacked_in_pieces,
    wrapped_records,
    wrong_count,
)
from minibroker.log.scan import HEADER_NS, ManyHeaders, behind_headers, behind_many_headers
from minibroker.schema.varint import read_uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch
    from minibroker.log.records import InnerMessages

PIECE_RECORDS = 2 * CHUNK_RECORDS
PIECE_BYTES = 256 * 1024
FEW_BYTES_MAX = 8192  # of records that are read at once, by the faster reader: they may have 4000 headers
RECORD_NS, BYTES_PER_US = 1200, 4000


def open_records(
    batch: Batch, limit_bytes: int, *, check_crc: bool = False, with_headers: bool = False
) -> InPieces[RecordPieces]:
    """Unpack a batch to at most `limit_bytes`; check_crc: of messages in a wrapper."""
    if batch.magic < 2:
        inner = (yield from inner_messages_in_pieces(batch, limit_bytes, check_crc)) if batch.is_wrapper else None
        return RecordPieces(batch, inner=inner)
    start = batch.position + HEADER_BYTES
    data = yield from unpacked_in_pieces(batch, batch.buffer[start : batch.end_position], start, limit_bytes)
    return RecordPieces(batch, data, with_headers=with_headers)


class RecordPieces:
    """The records of a batch that has been unpacked."""

    def __init__(
        self, batch: Batch, data: bytes = b"", *, inner: InnerMessages | None = None, with_headers: bool = False
    ):
        """data: of v2, and inner: of a wrapper, what it unpacks to. with_headers: if not, records have none."""
        self.size_bytes = len(data) if inner is None else len(inner.data) - PREFIX_BYTES * inner.count
        self.data = data  # what a batch of v2 unpacks to
        self._batch, self._inner, self._with_headers = batch, inner, with_headers
        self._done, self._position = 0, 0
        self._coming: Iterator[Record] | None = None
        self._piece_records = PIECE_RECORDS
        self._headers_read = 0  # with the records that were read last
        if inner is not None:
            self._piece_records = max(min(PIECE_RECORDS, PIECE_BYTES * inner.count // len(inner.data)), 1)
        self.rewind()

    def rewind(self) -> None:
        """Begin once more."""
        batch, inner, data = self._batch, self._inner, self.data
        self._done = self._position = 0
        if inner is not None:
            self._coming = wrapped_records(batch, inner, min(CHUNK_RECORDS, self._piece_records))
        elif batch.magic < 2:
            self._coming = (single_message(batch) for _ in range(1))
        elif len(data) <= FEW_BYTES_MAX:
            self._coming = batch_records(batch, len(data), data)
        elif not 0 <= batch.count * RECORD_BYTES_MIN <= len(data):
            raise wrong_count(batch, f"{batch.count} records cannot be in {len(data)} bytes")

    def read(self) -> InPieces[list[Record]]:
        """Return the next records; none if there are no more."""
        if self._coming is None:
            return (yield from self._read_plain())
        records = list(islice(self._coming, self._piece_records))
        if records:
            yield 1 + RECORD_NS * len(records) // 1000
        return records

    def _read_plain(self) -> InPieces[list[Record]]:
        batch, data, begin = self._batch, self.data, self._position
        try:
            records, self._position = self._plain(begin)
        except ManyHeaders as many:
            if not many.index - self._done:
                headers_end = yield from behind_many_headers(data, many)
                records, self._position = self._plain(begin, 1, headers_end)
            else:
                records, self._position = self._plain(begin, many.index - self._done)
        self._done += len(records)
        if records:
            read_ns = RECORD_NS * len(records) + HEADER_NS * self._headers_read
            yield 1 + read_ns // 1000 + (self._position - begin) // BYTES_PER_US
        elif self._position != len(data):
            raise wrong_count(batch, f"{batch.count} records take {self._position} of {len(data)} bytes")
        return records

    def _plain(self, position: int, count: int = PIECE_RECORDS, headers_end: int = 0) -> tuple[list[Record], int]:
        """Read records from a position on; return where they end.

        headers_end: where the headers of the record end, if there is only one and somebody has gone through them.
        """
        batch, data, begun = self._batch, self.data, self._done
        index = begun
        append_time = batch.attributes & APPEND_TIME_BIT
        base_timestamp, base_offset = batch.base_timestamp, batch.base_offset
        with_headers, new, headers_read = self._with_headers, tuple.__new__, 0
        records: list[Record] = []
        end = position + PIECE_BYTES
        try:
            # Most numbers have one or two bytes: a call for each would take longer than all else.
            for index in range(begun, min(begun + count, batch.count)):
                if position > end:
                    break
                number = data[position]
                position += 1
                if number > 127:
                    second = data[position]
                    if second < 128:
                        number += (second - 1) << 7
                        position += 1
                    else:
                        number, position = read_uvarint(data, position - 1)
                if number & 1:
                    raise ValueError(f"size {-(number >> 1) - 1} is negative")
                stop = position + (number >> 1)
                number = data[position + 1]
                position += 2
                if number > 127:
                    second = data[position]
                    if second < 128:
                        number += (second - 1) << 7
                        position += 1
                    else:
                        number, position = read_uvarint(data, position - 1, 10)
                timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
                number = data[position]
                position += 1
                if number > 127:
                    second = data[position]
                    if second < 128:
                        number += (second - 1) << 7
                        position += 1
                    else:
                        number, position = read_uvarint(data, position - 1)
                offset = base_offset + (number >> 1 ^ -(number & 1))
                number = data[position]
                position += 1
                if number > 127:
                    second = data[position]
                    if second < 128:
                        number += (second - 1) << 7
                        position += 1
                    else:
                        number, position = read_uvarint(data, position - 1)
                key = None
                if not number & 1:
                    key = data[position : position + (number >> 1)]
                    position += number >> 1
                number = data[position]
                position += 1
                if number > 127:
                    second = data[position]
                    if second < 128:
                        number += (second - 1) << 7
                        position += 1
                    else:
                        number, position = read_uvarint(data, position - 1)
                value = None
                if not number & 1:
                    value = data[position : position + (number >> 1)]
                    position += number >> 1
                begin = position
                number = data[position]
                position += 1
                if number:
                    if number > 127 and not headers_end:
                        raise ManyHeaders(index, position - 1, stop)
                    position = headers_end or behind_headers(data, position, stop, number)
                    headers_read += number >> 1
                if position != stop:
                    raise ValueError(f"its fields end at byte {position}, its size says {stop}")
                headers = data[begin:position] if number and with_headers else ()
                if append_time:
                    timestamp = batch.max_timestamp
                records.append(new(Record, (key, value, headers, timestamp, offset)))
        except (IndexError, ValueError) as error:
            raise self._broken(error, position, index) from None
        self._headers_read = 0 if headers_end else headers_read
        return records, position

    def _broken(self, error: Exception, position: int, index: int) -> InvalidRecord:
        reason = "goes on beyond the end" if isinstance(error, IndexError) else str(error)
        if self._batch.attributes & CODEC_MASK:
            reason += " (in what the batch unpacks to)"
        else:
            position += self._batch.position + HEADER_BYTES
        return InvalidRecord(reason, position, f"RecordV2[{index}]")
