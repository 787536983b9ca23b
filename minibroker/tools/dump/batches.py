"""Batches of a file as Kafka's FileLogInputStream finds them, and the lines that kafka-dump-log makes of them."""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.errors import InvalidLength, InvalidMagic, Truncated, UnknownCodec
from minibroker.log.batches import SEQUENCE_MAX, Batch, find_batch
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import (
    APPEND_TIME,
    HEADER_BYTES,
    MAGIC_POSITION,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
    BatchHeader,
    MessageV0,
    MessageV1,
    layout,
)
from minibroker.log.message_sets import inner_messages
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record

RELEASES = OLDEST, _, NEWEST = ("2.8", "3.9", "4.4")  # whose words we know
RECORD_SIZE_MIN = 14  # of any format, by Kafka's first look at a size
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def base_offset_of(name: str) -> int:
    """Return the number that a file of a segment is named after."""
    digits = name[name.rfind("/") + 1 :].split(".")[0]
    if not digits.isascii() or not digits.isdigit():
        raise InvalidLength(f"{name} does not begin with an offset", 0, "file name")
    return int(digits)


def file_batches(view: memoryview, name: str) -> Iterator[Batch]:
    """Yield the batches of a file as Kafka's FileLogInputStream finds them, up to the first that is not whole.

    It believes a size before it looks at the magic.
    """
    position, end = 0, len(view)
    while position < end - MAGIC_POSITION - 1:
        size = int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        if size < RECORD_SIZE_MIN:
            reason = f"Found record size {size} smaller than minimum record overhead (14) in file {name}."
            raise InvalidLength(reason, position + 8, "batch.size")
        if position > end - PREFIX_BYTES - size:
            return
        yield _batch(view, position, name)
        position += PREFIX_BYTES + size


def _batch(view: memoryview, position: int, name: str) -> Batch:
    """Return the header of a batch, also with a size that is too small for its format: Kafka shows it."""
    magic = view[position + MAGIC_POSITION]
    if magic > 2:
        # Kafka: the tool shows whatever comes after 2 as format 2; here it is an error, as it is for a broker.
        raise InvalidMagic(f"{magic} is none of 0, 1, 2 in {name}", position + MAGIC_POSITION, "batch.magic")
    needed = HEADER_BYTES if magic == 2 else MESSAGE_BYTES_MIN[magic]
    if len(view) - position < needed:
        raise Truncated(f"needs {needed} bytes for a header in {name}", position, "batch")
    try:
        found = find_batch(view, position, len(view))
    except InvalidLength:
        found = None
    if found:
        return found
    if magic == 2:
        return Batch(view, position, *_read_header(view, position))
    offset, size, crc, _, attributes, *times = (_read_v1 if magic else _read_v0)(view, position)
    timestamp = times[0] if times else -1
    return Batch(view, position, offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


_read_header, _read_v0, _read_v1 = (layout(cls).unpack_from for cls in (BatchHeader, MessageV0, MessageV1))


def records_of(batch: Batch) -> Iterator[tuple[Record, int | None, bool]]:
    """Yield the records, each with the checksum that only v0 and v1 have per record, and whether it is right."""
    if batch.magic > 1:
        for record in batch.records():
            yield record, None, True
    elif not batch.is_wrapper:
        for record in batch.records():
            yield record, batch.crc, batch.crc_is_valid()
    else:
        inner = inner_messages(batch, DECOMPRESSED_BYTES_MAX, False)
        view, position = memoryview(inner.data), 0
        for record in batch.records():
            message = find_batch(view, position, len(view))
            assert message, "inner_messages has checked the sizes"
            yield record, message.crc, message.crc_is_valid()
            position = message.end_position


def is_valid(batch: Batch) -> bool:
    """Whether the checksum is right and the size is not below that of a header."""
    return batch.size_bytes >= (HEADER_BYTES if batch.magic > 1 else MESSAGE_BYTES_MIN[0]) and batch.crc_is_valid()


def _codec_name(batch: Batch, release: str) -> str:
    if batch.codec >= len(CODEC_NAMES):
        raise UnknownCodec(f"Unknown compression type id: {batch.codec}", batch.position, batch.path("attributes"))
    name = CODEC_NAMES[batch.codec]
    return name.upper() if release == OLDEST else name


def batch_line(batch: Batch, release: str, valid: bool) -> str:
    """Return the line of a batch."""
    if batch.magic > 1:
        line = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count}"
            f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
            f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
            f" partitionLeaderEpoch: {batch.partition_leader_epoch}"
            f" isTransactional: {_bool(batch.is_transactional)} isControl: {_bool(batch.is_control)}"
        )
        if release != OLDEST:
            line += f" deleteHorizonMs: {optional(batch.delete_horizon)}"
    else:
        line = f"offset: {batch.last_offset}"
    return (
        f"{line} position: {batch.position} {TIMESTAMP_TYPES[batch.timestamp_type]}: {batch.max_timestamp}"
        f" size: {batch.size_bytes} magic: {batch.magic} compresscodec: {_codec_name(batch, release)}"
        f" crc: {batch.crc} isvalid: {_bool(valid)}"
    )


def record_words(batch: Batch, record: Record, crc: int | None, valid: bool, release: str) -> str:
    sizes = f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    timestamp = record.timestamp if batch.timestamp_type != APPEND_TIME else batch.max_timestamp
    time = f"{TIMESTAMP_TYPES[batch.timestamp_type]}: {timestamp}"
    if release == OLDEST:
        checksum = "null" if crc is None else crc
        line = (
            f"| offset: {record.offset} isValid: {_bool(valid)} crc: {checksum} {sizes} {time}"
            f" baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} baseSequence: {batch.base_sequence}"
            f" lastSequence: {batch.last_sequence} producerEpoch: {batch.producer_epoch}"
            f" partitionLeaderEpoch: {batch.partition_leader_epoch} batchSize: {batch.size_bytes}"
            f" magic: {batch.magic} compressType: {_codec_name(batch, release)} position: {batch.position}"
        )
    else:
        line = f"| offset: {record.offset} {time} {sizes}"
    if batch.magic > 1:
        sequence = batch.base_sequence
        if sequence >= 0:
            sequence = sequence + record.offset - batch.base_offset & SEQUENCE_MAX
        return f"{line} sequence: {sequence} headerKeys: [{','.join(key for key, _ in record.headers)}]"
    if release == OLDEST:
        return f"{line} crc: {crc} isvalid: {_bool(valid)}"
    return f"{line} isValid: {_bool(valid)} crc: {crc}" + ("}" if release == "3.9" else "")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def optional(value: int | None) -> str:
    """Return what Java shows for a number that may be missing."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
