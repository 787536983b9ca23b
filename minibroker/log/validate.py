"""Validation: what a leader does to produced bytes before they are appended to its log.

Producers count their records from 0; the log gives them their places. How that is written down is the story of the
three formats, and what they cost the leader:

    v0   every message carries its absolute offset, those within a wrapper too: the leader has to unpack a compressed
         set, number it and compress it again, for every batch of every producer
    v1   within a wrapper offsets count from 0 and the wrapper carries the last one: only its first eight bytes change
    v2   the batch carries the first offset, outside the checksum: eight bytes, and four for the leader's epoch

So the bytes stay in place if format and codec are those of the topic, and are rebuilt if not:

    nothing compressed, same format        in place: offsets, of v2 the leader epoch, where needed timestamps
    same codec, same format 1 or 2         in place: the wrapper or the header; of v1 only if the offsets within are
                                           0, 1, 2, .., which some old clients get wrong
    v0 compressed, other codec or format   rebuilt as one batch, one wrapper, or single messages
    control batch, not compressed          in place, whatever codec the topic has

Order, as a client can tell: size, checksum, header (batch by batch), then records. One batch refused refuses all.
What must hold: what is handed back has offsets from `next_offset` on without gaps, and valid checksums. Pure: no clock,
no files. Bytes that can be written to are changed where they are, and only once nothing can be refused any more.
Looking at records may take long: `look` does it in pieces, of bytes that do not change meanwhile, and knows nothing of
the log; `place` then is short. `validate` is both at once. They share all that can be told apart by a client.
Not here: settings and results (validation.py), which records are taken (validate_records.py), repetitions and gaps of a
producer (producers.py), which formats a Produce version may send (its handler).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches, find_batch
from minibroker.log.build import BatchBuilder, build_batch
from minibroker.log.compression import NONE, ZSTD
from minibroker.log.formats import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER_BYTES,
    MAGIC_POSITION,
)
from minibroker.log.records import Record, code_of
from minibroker.log.validate_records import Look, RecordRules, scan_small
from minibroker.log.validation import AcceptedBatch as AcceptedBatch
from minibroker.log.validation import LongValidation
from minibroker.log.validation import Validated as Validated
from minibroker.log.validation import ValidationSettings as ValidationSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.in_pieces import InPieces
    from minibroker.log.storage import Chunk
    from minibroker.log.validation import Allowance

# Who appends. Only clients are held to the rules for clients: offsets from 0, no control batches, sequence numbers.
CLIENT, COORDINATOR, RAFT_LEADER = "client", "coordinator", "raft leader"
REPLICATION = "replication"

# Batches that surely take longer than may be are not begun with.
RECORDS_AT_ONCE_MAX = 3000
PACKED_BYTES_AT_ONCE_MAX = 256 * 1024
MESSAGES_PIECE, MESSAGES_PIECE_US = 32, 200
REBUILT_US = 1  # a record that is to be written anew

ATTRIBUTE_BITS = (0b111, 0b1111, 0b111_1111)  # that mean something, by format


def validate(
    data: bytes | bytearray | memoryview,
    settings: ValidationSettings,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    partition: str,
    origin: str = CLIENT,
    allowance: Allowance | None = None,
) -> Validated:
    """Return what the leader appends for `data`, or raise the KafkaError that its sender gets.

    A batch that is cut off at the end is left out. RecordsRejected says which records were at fault; only its message
    is for the client, the others are for the broker's own log. partition: the name to put into messages.
    allowance: what batches may still cost, LongValidation if it is more; without it each has its own limits.
    """
    view = data if type(data) is memoryview else memoryview(data)
    batch = _only_batch(view)
    if batch is not None and settings.keeps(batch):
        # What nearly every request brings; the same as below without the lists.
        try:
            covered = batch.covered() if batch.size_bytes <= settings.max_message_bytes else b""
            _check_batch(batch, settings.max_message_bytes, leader_epoch, origin, covered)
            _check_header(batch, batch, origin, 2)
            max_timestamp = scan_small(batch, covered, settings, now_ms)
            if max_timestamp is None:
                looking = RecordRules(settings, now_ms, partition, allowance).scan(batch, covered)
                if allowance is None:
                    max_timestamp = finish(looking)
                elif _is_long(batch):
                    raise LongValidation
                else:
                    max_timestamp = allowance.finish(looking)
        except ProtocolError as error:
            raise KafkaError(code_of(error), str(error)) from error
        append_time = now_ms if settings.timestamp_type == APPEND_TIME else -1
        chunks = _patch(batch, next_offset + batch.header_count - 1, leader_epoch, max_timestamp, append_time)
        only = AcceptedBatch(batch, next_offset)
        return Validated(chunks, [only], only.max_timestamp, only.last_offset, append_time)
    work = look(
        view,
        settings,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        origin=origin,
        partition=partition,
        allowance=allowance,
    )
    looked = finish(work) if allowance is None else allowance.finish(work)
    return place(looked, next_offset=next_offset, leader_epoch=leader_epoch, now_ms=now_ms)


class Looked:
    """Batches that may be appended, and what their records are; where they go is not known yet."""

    __slots__ = ("batches", "built", "codec", "looks", "records", "settings")

    def __init__(
        self,
        batches: list[Batch],
        settings: ValidationSettings,
        looks: list[Look] | None = None,
        *,
        built: bytes = b"",
        records: list[Record] | None = None,
        codec: int = NONE,
    ):
        self.batches = batches
        self.settings = settings
        self.looks = looks  # of each of them, if they stay as they are
        self.built = built  # what they have become, if not: a batch of format 2
        self.records = records or []  # of an older one, where offsets are beneath the checksum or within what is packed
        self.codec = codec  # to write those with


def look(
    data: bytes | memoryview,
    settings: ValidationSettings,
    *,
    now_ms: int,
    partition: str,
    leader_epoch: int = -1,
    origin: str = CLIENT,
    allowance: Allowance | None = None,
) -> InPieces[Looked]:
    """Return what is to be placed, or raise what `validate` does. Bytes that change meanwhile must not be given."""
    rules = RecordRules(settings, now_ms, partition, allowance)
    found = yield from _checked_batches(data, settings.max_message_bytes, leader_epoch, origin)
    if not found:
        return Looked([], settings)
    first = found[0]
    sent_codec = next((batch.codec for batch in reversed(found) if batch.codec), NONE)
    if len(found) > 1 and (sent_codec or first.magic == 2):
        raise KafkaError(Error.INVALID_RECORD, f"{len(found)} batches, where one may be compressed or of format 2")
    codec = sent_codec if settings.codec is None else settings.codec
    try:
        if _can_stay(found, sent_codec, codec, settings.message_format):
            looks = []
            for batch in found:
                _check_header(batch, first, origin, settings.message_format)
                looks.append((yield from rules.look(batch)))
            if all(each.consecutive for each in looks):
                return Looked(found, settings, looks)
        if settings.message_format == 2:
            built = yield from _rebuilt(found, codec, origin, settings, rules)
            return Looked(found, settings, built=built)
        records: list[Record] = []

        def take(piece: list[Record]) -> Iterator[int]:
            records.extend(piece)
            yield len(piece) * REBUILT_US

        for batch in found:
            _check_header(batch, first, origin, settings.message_format)
            yield from rules.read(batch, take)
        return Looked(found, settings, records=records, codec=codec)
    except ProtocolError as error:
        raise KafkaError(code_of(error), str(error)) from error


def place(looked: Looked, *, next_offset: int, leader_epoch: int, now_ms: int) -> Validated:
    """Return what the leader appends."""
    found, settings = looked.batches, looked.settings
    append_time = now_ms if settings.timestamp_type == APPEND_TIME else -1
    if not found:
        return Validated([], [], append_time=append_time)
    if looked.looks is not None:
        return _assign(found, looked.looks, next_offset, leader_epoch, append_time)
    if looked.built:
        (batch,) = batches(bytearray(looked.built))
        last_offset = next_offset + batch.header_count - 1
        chunks = _patch(batch, last_offset, leader_epoch, batch.max_timestamp, append_time)
        only = AcceptedBatch(batch, next_offset)
        return Validated(chunks, [only], only.max_timestamp, last_offset, append_time, in_place=False)
    try:
        return _rebuild(found[0], looked.records, looked.codec, settings, next_offset, leader_epoch, append_time)
    except ProtocolError as error:
        raise KafkaError(code_of(error), str(error)) from error


def validate_replicated(data: bytes | bytearray | memoryview) -> Validated:
    """Return what a follower appends: the leader's batches as they are. It looks at checksums and that offsets rise.

    Kafka: appends nothing of what was fetched with a damaged batch; here what comes before that is appended.
    """
    found = finish(_checked_batches(data, None, -1, REPLICATION))
    accepted = []
    last_offset = max_timestamp = max_timestamp_offset = -1
    for batch in found:
        if batch.last_offset <= last_offset:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"offset {batch.last_offset} comes after {last_offset}")
        last_offset = batch.last_offset
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, last_offset
        # A wrapper's first offset would have to be unpacked; Kafka goes by the last one as well.
        accepted.append(AcceptedBatch(batch, last_offset if batch.magic < 2 else batch.base_offset))
    chunks = [found[0].buffer[: found[-1].end_position]] if found else []
    return Validated(chunks, accepted, max_timestamp, max_timestamp_offset)


# Batches


def _only_batch(view: memoryview) -> Batch | None:
    """Return the batch that is all there is, if it is one of format 2."""
    if len(view) < HEADER_BYTES or view[MAGIC_POSITION] != 2:
        return None
    try:
        batch = find_batch(view, 0, len(view))
    except ProtocolError:
        return None  # who looks at each batch says what is wrong
    return batch if batch is not None and batch.size_bytes == len(view) else None


def _is_long(batch: Batch) -> bool:
    return batch.header_count > RECORDS_AT_ONCE_MAX or (
        batch.size_bytes > PACKED_BYTES_AT_ONCE_MAX and batch.attributes & CODEC_MASK != 0
    )


def _checked_batches(
    data: bytes | bytearray | memoryview, max_message_bytes: int | None, leader_epoch: int, origin: str
) -> InPieces[list[Batch]]:
    """Return the whole batches: right beginning, size and checksum."""
    found: list[Batch] = []
    try:
        for batch in batches(data):
            _check_batch(batch, max_message_bytes, leader_epoch, origin)
            found.append(batch)
            if not len(found) % MESSAGES_PIECE:
                yield MESSAGES_PIECE_US
    except ProtocolError as error:
        if not found or origin != REPLICATION:
            raise KafkaError(Error.CORRUPT_MESSAGE, str(error)) from error
    return found


def _check_batch(
    batch: Batch, max_message_bytes: int | None, leader_epoch: int, origin: str, covered: bytes | None = None
) -> None:
    """Refuse a batch that does not begin as it must, is too large, or has not the checksum of its bytes."""
    if batch.magic == 2:
        if origin == CLIENT and batch.header_offset:
            raise KafkaError(Error.INVALID_RECORD, f"base offset is {batch.header_offset}, not 0")
        if origin == RAFT_LEADER and batch.partition_leader_epoch != leader_epoch:
            raise KafkaError(Error.INVALID_RECORD, f"epoch {batch.partition_leader_epoch} != {leader_epoch}")
    if max_message_bytes is not None and batch.size_bytes > max_message_bytes:
        raise _too_large(batch.size_bytes, max_message_bytes)
    batch.check_crc(covered)
    if batch.attributes & CODEC_MASK > ZSTD:
        # Kafka answers so, as its own failure.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"unknown codec {batch.codec}")


def _check_header(batch: Batch, first: Batch, origin: str, message_format: int) -> None:
    """Refuse a batch whose header contradicts itself, the batches before it or the topic."""
    if batch.magic != first.magic:
        raise KafkaError(Error.INVALID_RECORD, f"format {batch.magic} after format {first.magic}")
    if batch.magic < 2:
        return
    if origin == CLIENT:
        offsets = batch.last_offset - batch.header_offset + 1
        if not 0 < offsets == batch.header_count:
            raise KafkaError(Error.INVALID_RECORD, f"{offsets} offsets for {batch.header_count} records")
        if batch.attributes & CONTROL_BIT:
            raise KafkaError(Error.INVALID_RECORD, "clients do not write control batches")
        if batch.producer_id > -1 and batch.base_sequence < 0:
            raise KafkaError(Error.INVALID_RECORD, f"producer {batch.producer_id}: sequence {batch.base_sequence}")
    # Kafka: answers UNKNOWN_SERVER_ERROR if the batch is transactional and neither it nor the topic has a codec.
    if message_format < 2 and (batch.is_transactional or batch.producer_id > -1):
        raise KafkaError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"format {message_format} knows nothing of producers")


def _can_stay(found: list[Batch], sent_codec: int, codec: int, message_format: int) -> bool:
    """Whether the bytes may be kept, as far as headers tell."""
    if not sent_codec and not codec:
        return all(batch.magic == message_format for batch in found)
    if not sent_codec and found[0].is_control:
        return True
    return sent_codec == codec and found[0].magic == message_format > 0


# In place


def _assign(
    found: list[Batch],
    looks: list[Look],
    next_offset: int,
    leader_epoch: int,
    append_time: int,
) -> Validated:
    """Give the batches their offsets, leader epoch and timestamp type, and hand back the bytes they came in."""
    if found[0].magic < 2 and found[0].buffer.readonly:
        found = list(batches(bytearray(found[0].buffer[: found[-1].end_position])))
    accepted = []
    chunks: list[Chunk] = []
    max_timestamp = max_timestamp_offset = -1
    for batch, seen in zip(found, looks):
        first_offset, next_offset = next_offset, next_offset + seen.count
        chunks = _patch(batch, next_offset - 1, leader_epoch, seen.max_timestamp, append_time)
        accepted.append(AcceptedBatch(batch, first_offset))
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
    if len(found) > 1:
        chunks = [found[0].buffer[: found[-1].end_position]]
    return Validated(chunks, accepted, max_timestamp, max_timestamp_offset, append_time)


def _patch(batch: Batch, last_offset: int, leader_epoch: int, max_timestamp: int, append_time: int) -> list[Chunk]:
    """Change the fields that are the leader's in a batch; return its bytes."""
    timestamp_type = CREATE_TIME
    if append_time != -1:
        timestamp_type, max_timestamp = APPEND_TIME, append_time
    stamp = batch.magic > 0 and (timestamp_type, max_timestamp) != (batch.timestamp_type, batch.max_timestamp)
    whole = batch.buffer, batch.position
    behind: list[Chunk] = []
    if batch.buffer.readonly:
        # What came in cannot be written to: a copy can. Only a new checksum needs more of it than the header.
        copied_bytes = batch.size_bytes if stamp else HEADER_BYTES
        behind = [] if stamp else [batch.view[copied_bytes:]]
        batch.buffer, batch.position = memoryview(bytearray(batch.view[:copied_bytes])), 0
    batch.set_last_offset(last_offset)
    batch.set_leader_epoch(leader_epoch)
    if stamp:
        batch.attributes &= ATTRIBUTE_BITS[batch.magic]  # what has no meaning yet stays only where nothing is changed
        batch.set_max_timestamp(timestamp_type, max_timestamp)
    chunks = [batch.buffer[batch.position : batch.position + batch.size_bytes], *behind]
    if behind:
        batch.buffer, batch.position = whole  # with its records again, for those who read on
    return chunks


# Rebuilt


def _rebuilt(
    found: list[Batch], codec: int, origin: str, settings: ValidationSettings, rules: RecordRules
) -> InPieces[bytes]:
    """Write the records anew as a batch of format 2: what its place decides is not beneath the checksum."""
    first = found[0]
    builder = BatchBuilder(
        2,
        codec=codec,
        level=settings.level,
        base_offset=0,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        transactional=first.is_transactional,
    )
    some_are_early = False

    def is_too_large() -> bool:
        return not codec and builder.size_bytes > settings.max_message_bytes

    waiting: list[Record] = []  # single messages come one by one

    def add(records: list[Record]) -> Iterator[int]:
        nonlocal some_are_early
        some_are_early = some_are_early or min(record.timestamp for record in records) < -1
        if some_are_early:
            return
        if is_too_large():
            builder.drop()  # errors of later records come first, and the size is that of all of them
        yield from builder.add([Record(key, value, headers, time) for key, value, headers, time, _ in records])

    def take(records: list[Record]) -> Iterator[int]:
        if len(found) == 1:
            return add(records)
        waiting.extend(records)
        if len(waiting) < MESSAGES_PIECE:
            return iter(())
        piece = waiting[:]
        waiting.clear()
        return add(piece)

    for batch in found:
        _check_header(batch, first, origin, settings.message_format)
        yield from rules.read(batch, take)
    if waiting:
        yield from add(waiting)
    _check_producer(first)
    if some_are_early:
        raise _too_early()
    if is_too_large():
        raise _too_large(HEADER_BYTES + builder.size_bytes, settings.max_message_bytes)
    built = builder.end()
    if len(built) > settings.max_message_bytes:
        raise _too_large(len(built), settings.max_message_bytes)
    return built


# What Kafka's builder refuses, by exceptions that nobody translates for clients.


def _too_early() -> KafkaError:
    return KafkaError(Error.UNKNOWN_SERVER_ERROR, "a timestamp below -1")


def _check_producer(first: Batch) -> None:
    if first.producer_id == -1:
        if first.is_transactional:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a transaction of no producer")
    elif first.producer_epoch < 0 or first.base_sequence < 0:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"epoch {first.producer_epoch}, sequence {first.base_sequence}")


def _rebuild(
    first: Batch,
    records: list[Record],
    codec: int,
    settings: ValidationSettings,
    next_offset: int,
    leader_epoch: int,
    append_time: int,
) -> Validated:
    """Write the records anew in format 0 or 1, numbered from `next_offset`."""
    magic = settings.message_format
    if codec == ZSTD:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"format {magic} has no zstd")
    if any(record.headers for record in records):
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"format {magic} has no headers")
    if any(record.timestamp < -1 for record in records):
        raise _too_early()
    _check_producer(first)
    append = append_time != -1 and magic > 0
    built = build_batch(
        magic,
        [Record(key, value, headers, timestamp) for key, value, headers, timestamp, _ in records],
        codec=codec,
        level=settings.level,
        base_offset=next_offset,
        timestamp_type=APPEND_TIME if append else CREATE_TIME,
        max_timestamp=append_time if append else None,
    )
    accepted: list[AcceptedBatch] = []
    max_timestamp = max_timestamp_offset = -1
    for batch in batches(built):
        if batch.size_bytes > settings.max_message_bytes:
            raise _too_large(batch.size_bytes, settings.max_message_bytes)
        # One batch holds all, or each message is one.
        accepted.append(AcceptedBatch(batch, batch.last_offset if accepted else next_offset))
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
    return Validated([built], accepted, max_timestamp, max_timestamp_offset, append_time, in_place=False)


# Refusals


def _too_large(size_bytes: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(Error.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes; {max_message_bytes} are allowed")
