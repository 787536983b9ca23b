"""Conversion on append: what producers send otherwise than as one batch of v2 with the topic's format and codec.

    nothing compressed, same format        in place: offsets, of v2 the leader epoch, where needed timestamps
    same codec, same format 1 or 2         in place: the wrapper or the header; of v1 only if the offsets within are
                                           0, 1, 2, .., which some old clients get wrong
    v0 compressed, other codec or format   rebuilt as one batch, one wrapper, or single messages
    control batch, not compressed          in place, whatever codec the topic has

What is refused, and in which order, is as for one batch (validate.py); one batch refused refuses all.
Looking at records may take long: `look` does it in pieces, of bytes that do not change meanwhile, and knows nothing of
the log; `place` then is short. Both ask for the same as for a batch that stays as it is.
"""

from __future__ import annotations

from functools import partial

from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.log.batches import Batch, batches
from minibroker.log.build import BatchBuilder, build_batch
from minibroker.log.compression import NONE, ZSTD
from minibroker.log.formats import APPEND_TIME, CREATE_TIME, HEADER_BYTES, MESSAGE_BYTES_MIN, PREFIX_BYTES
from minibroker.log.message_sets import single_message
from minibroker.log.records import Record, RecordPieces, code_of
from minibroker.log.scan import check_size
from minibroker.log.validate import (
    CLIENT,
    FAULT_US,
    TIME_MAX,
    TIME_MIN,
    AcceptedBatch,
    RecordRules,
    Validated,
    are_fine,
    check_header,
    check_times,
    checked_batches,
    patch,
    rejected,
    too_large,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.in_pieces import InPieces
    from minibroker.log.message_sets import MessagePieces
    from minibroker.log.settings import ValidationSettings
    from minibroker.log.storage import Chunk
    from minibroker.log.validate import Allowance

MESSAGES_PIECE = 32
MESSAGE_US = 10  # of v0 or v1, alone or a wrapper
REBUILT_US = 1  # a record that is to be written anew


class Look:
    """What the leader must know of the records of a batch that stays as it is."""

    __slots__ = ("consecutive", "count", "max_timestamp")

    def __init__(self, count: int, max_timestamp: int, consecutive: bool = True):
        self.count = count
        self.max_timestamp = max_timestamp  # -1: none has one
        self.consecutive = consecutive  # offsets within a v1 wrapper are 0, 1, 2, ..; true of all else


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
    data: bytes | bytearray | memoryview,
    settings: ValidationSettings,
    now_ms: int,
    partition: str,
    leader_epoch: int = -1,
    origin: str = CLIENT,
    allowance: Allowance | None = None,
) -> InPieces[Looked]:
    """Return what is to be placed, or raise what `validate_in_place` does; a batch cut off at the end is left out.

    Bytes that change meanwhile must not be given.
    """
    rules = RecordRules(settings, now_ms, partition, allowance)
    found = yield from checked_batches(data, settings.max_message_bytes, leader_epoch, origin)
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
                check_header(batch, first, origin, settings.message_format)
                looks.append((yield from _look(rules, batch)))
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
            check_header(batch, first, origin, settings.message_format)
            yield from _read(rules, batch, take)
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
        chunks = patch(batch, last_offset, leader_epoch, batch.max_timestamp, append_time)
        only = AcceptedBatch(batch, next_offset)
        return Validated(chunks, [only], only.max_timestamp, last_offset, append_time, in_place=False)
    try:
        return _rebuild(found[0], looked.records, looked.codec, settings, next_offset, leader_epoch, append_time)
    except ProtocolError as error:
        raise KafkaError(code_of(error), str(error)) from error


def _can_stay(found: list[Batch], sent_codec: int, codec: int, message_format: int) -> bool:
    """Whether the bytes may be kept, as far as headers tell."""
    if not sent_codec and not codec:
        return all(batch.magic == message_format for batch in found)
    if not sent_codec and found[0].is_control:
        return True
    return sent_codec == codec and found[0].magic == message_format > 0


# Records


def _look(rules: RecordRules, batch: Batch) -> InPieces[Look]:
    """Look at the records of a batch that may stay as it is, or raise."""
    if batch.magic == 2:
        return Look(batch.header_count, (yield from rules.scan(batch, batch.covered())))
    count, max_timestamp, consecutive = 0, -1, True

    def take(records: list[Record]) -> Iterator[int]:
        nonlocal count, max_timestamp, consecutive
        offsets = [record.offset for record in records]
        consecutive = consecutive and offsets == list(range(count, count + len(records)))
        max_timestamp = max(max_timestamp, max(record.timestamp for record in records))
        count += len(records)
        return iter(())

    yield from _read(rules, batch, take)
    return Look(count, max_timestamp, consecutive or not batch.codec)


def _read(rules: RecordRules, batch: Batch, take: Callable[[list[Record]], Iterator[int]]) -> InPieces[None]:
    """Hand all records of a batch to `take`, some at a time, or raise if one cannot be taken.

    That is known only behind the last of them.
    """
    settings, now_ms = rules.settings, rules.now_ms
    if batch.magic < 2 and not batch.is_wrapper:
        yield MESSAGE_US
        yield from take([_read_single(rules, batch)])
        return
    records = yield from _open(rules, batch)
    least = MESSAGE_BYTES_MIN[batch.magic] - PREFIX_BYTES if batch.is_wrapper else 0
    first, last, largest_bytes = TIME_MAX + 1, TIME_MIN - 1, 0
    errors: list[tuple[int, str]] = []
    codes: set[Error] = set()
    index = 0
    while piece := (yield from records.read()):
        times = [record.timestamp for record in piece]
        low, high = min(times), max(times)
        first, last = min(first, low), max(last, high)
        if batch.is_wrapper:
            sizes = [least + len(record.key or b"") + len(record.value or b"") for record in piece]
            largest_bytes = max(largest_bytes, max(sizes))
        keyless = any(record.key is None for record in piece)
        if not are_fine(settings, batch, low, high, keyless, now_ms):
            errors += rules.faults(batch, piece, index, codes)
            yield FAULT_US * len(piece)
        index += len(piece)
        if not errors and first >= TIME_MIN and last <= TIME_MAX:
            yield from take(piece)
    check_size(largest_bytes, settings.max_decompressed_message_bytes)
    if index:
        check_times(first, last)
    if errors:
        raise rejected(errors, codes)


def _read_single(rules: RecordRules, batch: Batch) -> Record:
    """Return the record that a message is, or raise if it cannot be taken."""
    record = single_message(batch)
    time = record.timestamp
    if not are_fine(rules.settings, batch, time, time, record.key is None, rules.now_ms):
        codes: set[Error] = set()
        errors = list(rules.faults(batch, [record], 0, codes))
        if errors:
            raise rejected(errors, codes)
    return record


def _open(rules: RecordRules, batch: Batch) -> InPieces[RecordPieces | MessagePieces]:
    """Unpack a batch as far as so many bytes are still allowed."""
    if batch.magic == 2:
        return RecordPieces(batch, (yield from rules.unpack(batch)), with_headers=True)
    yield MESSAGE_US
    return (yield from rules.unpacking(partial(batch.pieces, check_crc=True), lambda opened: opened.size_bytes))


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
        chunks = patch(batch, next_offset - 1, leader_epoch, seen.max_timestamp, append_time)
        accepted.append(AcceptedBatch(batch, first_offset))
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
    if len(found) > 1:
        chunks = [found[0].buffer[: found[-1].end_position]]
    return Validated(chunks, accepted, max_timestamp, max_timestamp_offset, append_time)


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

    def istoo_large() -> bool:
        return not codec and builder.size_bytes > settings.max_message_bytes

    waiting: list[Record] = []  # single messages come one by one

    def add(records: list[Record]) -> Iterator[int]:
        nonlocal some_are_early
        some_are_early = some_are_early or min(record.timestamp for record in records) < -1
        if some_are_early:
            return
        if istoo_large():
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
        check_header(batch, first, origin, settings.message_format)
        yield from _read(rules, batch, take)
    if waiting:
        yield from add(waiting)
    _check_producer(first)
    if some_are_early:
        raise _too_early()
    if istoo_large():
        raise too_large(HEADER_BYTES + builder.size_bytes, settings.max_message_bytes)
    built = builder.end()
    if len(built) > settings.max_message_bytes:
        raise too_large(len(built), settings.max_message_bytes)
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
            raise too_large(batch.size_bytes, settings.max_message_bytes)
        # One batch holds all, or each message is one.
        accepted.append(AcceptedBatch(batch, batch.last_offset if accepted else next_offset))
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_timestamp_offset = batch.max_timestamp, batch.last_offset
    return Validated([built], accepted, max_timestamp, max_timestamp_offset, append_time, in_place=False)
