"""Batches of a file as Kafka's FileLogInputStream finds them, and the lines that kafka-dump-log makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
BYTES_MAX = 0x7FFFFFFF
RECORD_SIZE_MIN = 14  # of any format, by Kafka's first look at a size
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class Options(NamedTuple):
    """What the flags of kafka-dump-log say."""

    release: str = NEWEST
    contents: bool = False  # --print-data-log, or any decoder
    deep: bool = False  # --deep-iteration
    metadata: bool = True  # not --skip-record-metadata
    decoder: str = ""  # a key of DECODERS
    verify_only: bool = False  # --verify-index-only
    sanity_only: bool = False  # --index-sanity-check
    message_bytes_max: int = 5 << 20  # --max-message-size: how much of the log an index entry may look at
    bytes_max: int = BYTES_MAX  # --max-bytes: of each log


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
        return Batch(view, position, _read_header(view, position))
    offset, size, crc, _, attributes, *times = (_read_v1 if magic else _read_v0)(view, position)
    timestamp = times[0] if times else -1
    return Batch(view, position, (offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1))


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


# Lines


def words(**fields: object) -> str:
    """Return fields as the tool writes them."""
    return " ".join(
        f"{name}: {str(value).lower() if value is True or value is False else value}" for name, value in fields.items()
    )


def codec_name(batch: Batch, names: Sequence[str]) -> str:
    if batch.codec >= len(names):
        raise UnknownCodec(f"Unknown compression type id: {batch.codec}", batch.position, batch.path("attributes"))
    return names[batch.codec]


def _codec_name(batch: Batch, release: str) -> str:
    name = codec_name(batch, CODEC_NAMES)
    return name.upper() if release == OLDEST else name


def time_of(batch: Batch, record: Record | None = None) -> dict[str, int]:
    """Return the time of a record, or of the newest in a batch, under the name of its type."""
    is_own = record is not None and batch.timestamp_type != APPEND_TIME
    timestamp = record.timestamp if is_own and record is not None else batch.max_timestamp
    return {TIMESTAMP_TYPES[batch.timestamp_type]: timestamp}


def sequence_of(batch: Batch, record: Record) -> int:
    if batch.base_sequence < 0:
        return batch.base_sequence
    return batch.base_sequence + record.offset - batch.base_offset & SEQUENCE_MAX


def header_keys(record: Record) -> str:
    return f"[{','.join(key for key, _ in record.headers)}]"


def size_of(data: bytes | memoryview | None) -> int:
    return -1 if data is None else len(data)


def batch_line(batch: Batch, release: str, valid: bool) -> str:
    """Return the line of a batch."""
    fields: dict[str, object] = {"offset": batch.last_offset}
    if batch.magic > 1:
        fields = {"baseOffset": batch.base_offset, "lastOffset": batch.last_offset, "count": batch.count}
        fields |= producer_of(batch) | {"isTransactional": batch.is_transactional, "isControl": batch.is_control}
        if release != OLDEST:
            fields["deleteHorizonMs"] = optional(batch.delete_horizon)
    fields |= {"position": batch.position, **time_of(batch), "size": batch.size_bytes, "magic": batch.magic}
    return words(**fields, compresscodec=_codec_name(batch, release), crc=batch.crc, isvalid=valid)


def producer_of(batch: Batch) -> dict[str, object]:
    return {
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
    }


def record_words(batch: Batch, record: Record, crc: int | None, valid: bool, release: str) -> str:
    fields: dict[str, object] = {"offset": record.offset}
    sizes = {"keySize": size_of(record.key), "valueSize": size_of(record.value)}
    if release == OLDEST:
        fields |= {"isValid": valid, "crc": "null" if crc is None else crc, **sizes, **time_of(batch, record)}
        producer = producer_of(batch)
        del producer["producerId"]
        fields |= {"baseOffset": batch.base_offset, "lastOffset": batch.last_offset, **producer}
        fields |= {"batchSize": batch.size_bytes, "magic": batch.magic, "compressType": _codec_name(batch, release)}
        fields["position"] = batch.position
    else:
        fields |= time_of(batch, record) | sizes
    line = f"| {words(**fields)} "
    if batch.magic > 1:
        return line + words(sequence=sequence_of(batch, record), headerKeys=header_keys(record))
    if release == OLDEST:
        return line + words(crc=crc, isvalid=valid)
    return line + words(isValid=valid, crc=crc) + ("}" if release == "3.9" else "")


def optional(value: int | None) -> str:
    """Return what Java shows for a number that may be missing."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
