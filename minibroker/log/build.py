"""Building batches.

`build_batch` writes any format: a v2 batch, a v0 or v1 message set, or the wrapper message of a compressed one. What a
format cannot carry is left out: v0 has no timestamps, v0 and v1 have no headers and know nothing of producers.
`BatchBuilder` writes the same of records that come some at a time, with others having their turn in between.
Not here: changing a finished batch in place (batches.py).
"""

from __future__ import annotations

from struct import error as StructError

from minibroker.errors import EncodeError
from minibroker.log.batches import crc32c
from minibroker.log.compression import NONE, Compressor, compress
from minibroker.log.formats import (
    ABORT,
    APPEND_TIME,
    APPEND_TIME_BIT,
    COMMIT,
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    layout,
)
from minibroker.log.message_sets import build_message_set, build_messages, wrap_messages
from minibroker.log.records import Record, due_offset
from minibroker.schema.varint import uvarint, zigzag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Final

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch

FEW_BYTES_MAX: Final = 16 * 1024  # of records that are written at once
RECORD_BYTES: Final = 8  # of one of them, beside key and value
WRITTEN_SHARE: Final = 2  # what is said of compression is of what can hardly be compressed
BUILT_NS: Final = 1200  # about how long a record takes
BUILT_BYTES_PER_US: Final = 1000  # and what it is made of


def build_batch(
    magic: int,
    records: Iterable[Record] | _Written,
    *,
    codec: int = NONE,
    level: int | None = None,
    base_offset: int | None = None,
    last_offset: int | None = None,
    timestamp_type: int = CREATE_TIME,
    max_timestamp: int | None = None,
    delete_horizon: int | None = None,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return the records in one of the three formats, offsets rising.

    base_offset, last_offset: by default those of the first and the last record. They differ after compaction.
    max_timestamp: by default the largest; with APPEND_TIME it must be given, as it is the time of all records.
    level: of the codec, Kafka's default if None.
    """
    if timestamp_type == APPEND_TIME and max_timestamp is None:
        raise EncodeError("append time needs max_timestamp, the time of the append", "max_timestamp")
    if magic < 2 and (delete_horizon is not None or producer_id != -1 or transactional or control):
        raise EncodeError(f"format {magic} has no control batches, producers or delete horizons", "magic")
    attributes = codec | timestamp_type << 3
    rows: Sequence[Record] = ()
    try:
        if isinstance(records, _Written):
            payload, count, base_offset, base_timestamp, last_built, max_built = records.fields
        else:
            rows = records if isinstance(records, (list, tuple)) else list(records)
            count = len(rows)
            if base_offset is None:
                base_offset = max(rows[0].offset, 0) if rows else 0
            if magic < 2:
                return build_message_set(magic, rows, attributes, level, base_offset, max_timestamp)
            base_timestamp = delete_horizon if delete_horizon is not None else rows[0].timestamp if rows else -1
            payload, last_built, max_built = _records(rows, base_offset, base_timestamp, base_offset)
            if codec and rows:
                payload = compress(codec, payload, level=level)
        if max_timestamp is None:
            max_timestamp = max_built
        if magic < 2:
            return wrap_messages(magic, payload, attributes, max_timestamp, last_built) if codec else payload
        if delete_horizon is not None:
            attributes |= DELETE_HORIZON_BIT
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        if control:
            attributes |= CONTROL_BIT
        last_delta = (last_built if last_offset is None else last_offset) - base_offset
        writer = producer_id, producer_epoch, base_sequence
        header = (attributes, last_delta, base_timestamp, max_timestamp, *writer, count)
        return pack_batch(base_offset, partition_leader_epoch, header, payload)
    except (StructError, TypeError, ValueError, AttributeError) as failure:
        raise _misfit(rows, failure) from failure


def pack_batch(base_offset: int, partition_leader_epoch: int, header: tuple[int, ...], payload: bytes) -> bytes:
    """Return a batch of v2 around its records; header: from attributes on, covered as they are by the checksum."""
    covered = _pack_covered(*header) + payload
    size = HEADER_BYTES - PREFIX_BYTES - _COVERED_BYTES + len(covered)
    return _pack_front(base_offset, size, partition_leader_epoch, 2, crc32c(covered)) + covered


def origin_of(batch: Batch) -> dict[str, Any]:
    """Return who wrote a batch, and in which epoch: it is written anew with that, whatever becomes of its records."""
    return {
        "partition_leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }


class BatchBuilder:
    """Builds what `build_batch` does, of records that come some at a time; the last offset is that of the last one.

    Headers may be bytes, as they lie in a record (records.py).
    """

    def __init__(self, magic: int, **settings: Any):
        """settings: those of `build_batch`."""
        self.size_bytes = 0  # of the records, before they are compressed; 0 as long as they are few
        self._is_kept = True  # False: what is written is only counted
        self._magic, self._settings = magic, settings
        self._codec: int = settings.get("codec", NONE)
        self._few: list[Record] = []
        self._few_bytes = 0
        self._compressor: Compressor | None = None  # as soon as they are more than can be written at once
        self._count, self._max_built = 0, -1
        self._base_offset = self._base_timestamp = self._next_offset = 0

    def add(self, records: Sequence[Record]) -> InPieces[None]:
        """Write more records; there is at least one."""
        if self._compressor is None:
            self._few += records
            for key, value, headers, _, _ in records:
                self._few_bytes += RECORD_BYTES + len(key or b"") + len(value or b"") + len(headers)
            if self._few_bytes <= FEW_BYTES_MAX:
                return
            records, self._few = self._few, []
            self._begin(records[0])
        assert self._compressor is not None
        made = self._write(records)
        self.size_bytes += len(made)
        yield 1 + BUILT_NS * len(records) // 1000 + len(made) // BUILT_BYTES_PER_US
        if self._is_kept:
            for step_us in self._compressor.add(made):
                yield step_us // WRITTEN_SHARE

    def _begin(self, first: Record) -> None:
        given = self._settings
        base_offset, base_timestamp = given.get("base_offset"), given.get("delete_horizon")
        self._base_offset = self._next_offset = max(first.offset, 0) if base_offset is None else base_offset
        self._base_timestamp = first.timestamp if base_timestamp is None else base_timestamp
        self._compressor = Compressor(self._codec, level=given.get("level"), magic=self._magic)

    def _write(self, records: Sequence[Record]) -> bytes:
        """Return records as they are without codec."""
        base_offset, next_offset, magic = self._base_offset, self._next_offset, self._magic
        try:
            if magic == 2:
                made, last_built, max_built = _records(records, base_offset, self._base_timestamp, next_offset)
            else:
                is_stamped = self._settings.get("timestamp_type") == APPEND_TIME
                attributes = APPEND_TIME_BIT if is_stamped and magic else 0
                append_time = self._settings["max_timestamp"] if is_stamped else None
                within = base_offset if self._codec and magic else 0
                made, last_built, max_built = build_messages(
                    magic, records, attributes, next_offset, within, append_time
                )
        except (StructError, TypeError, ValueError, AttributeError) as failure:
            raise _misfit(records, failure) from failure
        self._count += len(records)
        self._next_offset = last_built + 1
        self._max_built = max(self._max_built, max_built)
        return made

    def drop(self) -> None:
        """Forget what has been written, and only count what comes, in `size_bytes`; there is no batch in the end."""
        if self._is_kept and self._compressor is not None:
            self._is_kept = False
            self._compressor = Compressor(NONE)

    def end(self) -> bytes:
        """Return the batch."""
        assert self._is_kept, "it was dropped"
        if self._compressor is None:
            return build_batch(self._magic, self._few, **self._settings)
        ends = self._base_offset, self._base_timestamp, self._next_offset - 1, self._max_built
        return build_batch(self._magic, _Written((self._compressor.end(), self._count, *ends)), **self._settings)


class _Written:
    """Records as their batch has them."""

    __slots__ = ("fields",)

    def __init__(self, fields: tuple[bytes, int, int, int, int, int]):
        """fields: payload, count, base offset and timestamp, last offset, largest timestamp."""
        self.fields = fields


def build_transaction_marker(
    *,
    commit: bool,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a producer's transaction in a partition: 78 bytes."""
    from minibroker.stored.control import ControlRecordTypeSchema, EndTxnMarker

    version = b"\0\0"  # of key and value
    key = version + ControlRecordTypeSchema(type=COMMIT if commit else ABORT).encode(0)
    value = version + EndTxnMarker(coordinator_epoch=coordinator_epoch).encode(0)
    return build_batch(
        2,
        [Record(key, value, (), timestamp, offset)],
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


# Records


def _records(
    records: Sequence[Record], base_offset: int, base_timestamp: int, next_offset: int
) -> tuple[bytes, int, int]:
    """Return records of a v2 batch from `next_offset` on, the last offset, the largest timestamp."""
    parts: list[bytes] = []
    add, join, table, table_end = parts.append, b"".join, SMALL_VARINTS, len(SMALL_VARINTS)
    max_timestamp = -1
    for key, value, headers, timestamp, offset in records:
        if offset < next_offset:
            offset = due_offset(offset, next_offset)
        next_offset = offset + 1
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        timestamp -= base_timestamp
        offset -= base_offset
        if key is None:
            key = b""
            key_size = b"\1"
        else:
            size = len(key)
            key_size = table[size] if size < table_end else _varint(size)
        if value is None:
            value = b""
            value_size = b"\1"
        else:
            size = len(value)
            value_size = table[size] if size < table_end else _varint(size)
        body = join(
            (
                b"\0",
                table[timestamp] if 0 <= timestamp < table_end else varlong(timestamp),
                table[offset] if offset < table_end else _varint(offset),
                key_size,
                key,
                value_size,
                value,
                _headers(headers) if headers else b"\0",
            )
        )
        size = len(body)
        add(table[size] if size < table_end else _varint(size))
        add(body)
    return join(parts), next_offset - 1, max_timestamp


def _headers(headers: Sequence[tuple[str, bytes | None]] | bytes) -> bytes:
    if isinstance(headers, bytes):
        return headers
    parts = [_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += _varint(len(name)), name
        parts += (b"\1",) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def _misfit(records: Sequence[Record], failure: Exception) -> EncodeError:
    """Return the error for records that could not be written: the first one that alone cannot, if there is one."""
    for index, record in enumerate(records):
        try:
            _records([record._replace(offset=-1)], 0, records[0].timestamp, 0)
        except (TypeError, ValueError, AttributeError) as own:
            return EncodeError(str(own), f"records[{index}]")
    return EncodeError(str(failure), "records")


def _varint(value: int) -> bytes:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise ValueError(f"{value} does not fit into 32 bits")
    return uvarint(zigzag(value))


def varlong(value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    return uvarint(zigzag(value))


# Most sizes and deltas are small: looked up in half the time that counting out takes.
SMALL_VARINTS: Final = [uvarint(value << 1) for value in range(1024)]

_pack_front = layout(BatchHeader, end="attributes").pack
_pack_covered = layout(BatchHeader, "attributes").pack
_COVERED_BYTES: Final = layout(BatchHeader, "attributes").size
