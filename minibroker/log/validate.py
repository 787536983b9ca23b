"""Validation: what a leader does to the batch that a producer sent before it is appended to its log.

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

Here is the batch of v2 that stays as it is, which is what nearly every request brings; all others are in
append_conversion.py.

Order, as a client can tell: size, checksum, header, then records: one at fault refuses all, with a list of those.
A key is needed in compacted topics. Where producers set the time, it must lie within the topic's limits around now; -1,
no time, always passes. Where the leader sets it, a producer must not claim to have done so. A batch is what its header
says, or it is refused: it has as many records, with offsets that follow each other if it is compressed. Of its largest
time the header is corrected.
What must hold: what is handed back has offsets from `next_offset` on without gaps, and valid checksums. Pure: no clock,
no files. Bytes that can be written to are changed where they are, and only once nothing can be refused any more.
Kafka: where `now + after.max` is beyond 64 bits, the limit in the message is a negative number.
Kafka: compares no record with its own size where it only needs to unpack a batch; here that is always refused.
Kafka: unpacks as it reads on, so of several things that are wrong it answers the first; here what cannot be unpacked is
refused before what cannot be read, and offsets out of order before what follows them.
Kafka: times that leave 64 bits wrap around; here such records are refused.
Kafka: unpacks whatever a batch or a request holds, as long as one record is not above max.decompressed.message.bytes;
here the broker's loop would stand meanwhile, so a batch may unpack to 64 MiB, and all batches of a request together to
as much, or twenty times their length.
Not here: repetitions and gaps of a producer (producers.py), which formats a Produce version may send (its handler).
"""

from __future__ import annotations

from functools import partial

from minibroker.errors import DecompressionLimit, Error, InvalidRecord, InvalidRecordCount, KafkaError, ProtocolError
from minibroker.in_pieces import finish
from minibroker.log.batches import COVERED_POSITION, Batch, batches, find_batch
from minibroker.log.compression import ZSTD, decompress_in_pieces
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER_BYTES,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
)
from minibroker.log.records import COUNT_POSITION, DECOMPRESSED_BYTES_MAX, RecordPieces, code_of, within
from minibroker.log.scan import STEPS, check_sizes_in_pieces, scan_few, scan_in_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Final, TypeVar

    from minibroker.in_pieces import InPieces
    from minibroker.log.records import Record
    from minibroker.log.settings import ValidationSettings
    from minibroker.log.storage import Chunk

    Made = TypeVar("Made")

# Who appends. Only clients are held to the rules for clients: offsets from 0, no control batches, sequence numbers.
CLIENT: Final = "client"
COORDINATOR: Final = "coordinator"
RAFT_LEADER: Final = "raft leader"
REPLICATION: Final = "replication"

# Batches that surely take longer than may be are not begun with.
RECORDS_AT_ONCE_MAX: Final = 3000
PACKED_BYTES_AT_ONCE_MAX: Final = 256 * 1024
FEW_BYTES_MAX: Final = 2048  # of records that are few: they may have hundreds of headers
BATCHES_PIECE: Final = 32
BATCHES_PIECE_US: Final = 200
FAULT_US: Final = 4

ATTRIBUTE_BITS: Final = (0b111, 0b1111, 0b111_1111)  # that mean something, by format
TIME_MIN: Final = -(1 << 63)
TIME_MAX: Final = (1 << 63) - 1
ERRORS_SHOWN_MAX: Final = 3  # in the message; the list has them all


def validate_in_place(
    data: bytes | bytearray | memoryview,
    settings: ValidationSettings,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    partition: str,
    origin: str = CLIENT,
    allowance: Allowance | None = None,
) -> Validated | None:
    """Return what the leader appends for `data`, or raise the KafkaError that its sender gets.

    None: it is not one batch of v2 that stays as it is. RecordsRejected says which records were at fault; only its
    message is for the client, the others are for the broker's own log. partition: the name to put into messages.
    allowance: what batches may still cost, LongValidation if it is more; without it each has its own limits.
    """
    view = data if type(data) is memoryview else memoryview(data)
    batch = _only_batch(view)
    if batch is None or settings.message_format != 2 or settings.codec not in (None, batch.attributes & CODEC_MASK):
        return None
    try:
        covered = batch.covered() if batch.size_bytes <= settings.max_message_bytes else b""
        _check_batch(batch, settings.max_message_bytes, leader_epoch, origin, covered)
        check_header(batch, batch, origin, 2)
        max_timestamp = _scan_small(batch, covered, settings, now_ms)
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
    chunks = patch(batch, next_offset + batch.header_count - 1, leader_epoch, max_timestamp, append_time)
    only = AcceptedBatch(batch, next_offset)
    return Validated(chunks, [only], only.max_timestamp, only.last_offset, append_time)


def validate_replicated(data: bytes | bytearray | memoryview) -> Validated:
    """Return what a follower appends: the leader's batches as they are. It looks at checksums and that offsets rise.

    Kafka: appends nothing of what was fetched with a damaged batch; here what comes before that is appended.
    """
    found = finish(checked_batches(data, None, -1, REPLICATION))
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


class AcceptedBatch:
    """What indexes and producer state must know of a batch that goes into the log. Holds no bytes of it."""

    __slots__ = (
        "base_sequence",
        "control",
        "first_offset",
        "is_control",
        "is_transactional",
        "last_offset",
        "last_sequence",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size_bytes",
    )

    def __init__(self, batch: Batch, first_offset: int):
        self.first_offset = first_offset
        self.last_offset = batch.last_offset
        self.max_timestamp = batch.max_timestamp
        self.size_bytes = batch.size_bytes
        self.magic = batch.magic
        self.leader_epoch = batch.partition_leader_epoch  # -1 below v2
        self.producer_id = batch.producer_id  # -1 for none, as in all that follow
        self.producer_epoch = batch.producer_epoch
        self.base_sequence = batch.base_sequence
        self.last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
        has_bits = batch.magic == 2
        self.is_transactional = has_bits and batch.attributes & TRANSACTIONAL_BIT != 0
        self.is_control = has_bits and batch.attributes & CONTROL_BIT != 0
        self.control: Record | None = None  # the first record of a control batch: a marker's type and coordinator epoch
        if self.is_control:
            self.control = next(batch.records(), None)


class Validated:
    """Bytes that may be appended, and what they are. Without any whole batch: no chunks, and every number -1."""

    __slots__ = (
        "append_time",
        "batches",
        "chunks",
        "first_offset",
        "in_place",
        "last_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "size_bytes",
    )

    def __init__(
        self,
        chunks: Sequence[Chunk],
        accepted: list[AcceptedBatch],
        max_timestamp: int = -1,
        max_timestamp_offset: int = -1,
        append_time: int = -1,
        in_place: bool = True,
    ):
        self.chunks = chunks  # to be written one after another; views of what came in are as short-lived as that
        self.batches = accepted
        self.first_offset = accepted[0].first_offset if accepted else -1
        self.last_offset = accepted[-1].last_offset if accepted else -1
        self.max_timestamp = max_timestamp  # -1: no record has one
        self.max_timestamp_offset = max_timestamp_offset  # last offset of the batch with it, as time indexes have it
        self.append_time = append_time  # what clients are told; -1 unless the topic has append time
        self.size_bytes = accepted[0].size_bytes if len(accepted) == 1 else sum(batch.size_bytes for batch in accepted)
        self.in_place = in_place


class LongValidation(Exception):
    """To look at a batch takes longer than others can wait: it has to be done in pieces. Nothing has changed."""


class Allowance:
    """What the batches of one request may cost from now on."""

    __slots__ = ("left_bytes", "left_us")

    def __init__(self, left_bytes: int = DECOMPRESSED_BYTES_MAX, left_us: int = 0):
        self.left_bytes = left_bytes  # that compressed ones may unpack to
        self.left_us = left_us  # for what is done at once

    @property
    def limit_bytes(self) -> int:
        """How many bytes the next one may unpack to."""
        return max(min(self.left_bytes, DECOMPRESSED_BYTES_MAX), 0)

    def finish(self, work: InPieces[Made]) -> Made:
        """Do all of it now; raise LongValidation if that takes longer than may be."""
        left_bytes = self.left_bytes
        try:
            while self.left_us >= 0:
                self.left_us -= next(work)
        except StopIteration as end:
            made: Made = end.value
            return made
        self.left_bytes = left_bytes  # it begins once more
        raise LongValidation


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


def checked_batches(
    data: bytes | bytearray | memoryview, max_message_bytes: int | None, leader_epoch: int, origin: str
) -> InPieces[list[Batch]]:
    """Return the whole batches: right beginning, size and checksum."""
    found: list[Batch] = []
    try:
        for batch in batches(data):
            _check_batch(batch, max_message_bytes, leader_epoch, origin)
            found.append(batch)
            if not len(found) % BATCHES_PIECE:
                yield BATCHES_PIECE_US
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
        raise too_large(batch.size_bytes, max_message_bytes)
    batch.check_crc(covered)
    if batch.attributes & CODEC_MASK > ZSTD:
        # Kafka answers so, as its own failure.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"unknown codec {batch.codec}")


def check_header(batch: Batch, first: Batch, origin: str, message_format: int) -> None:
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


def patch(batch: Batch, last_offset: int, leader_epoch: int, max_timestamp: int, append_time: int) -> list[Chunk]:
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


# Records


class RecordsRejected(KafkaError):
    """Records at fault in a batch whose bytes are in order; message and list go to the client."""

    def __init__(self, code: Error, message: str, record_errors: list[tuple[int, str]]):
        super().__init__(code, message)
        self.record_errors = record_errors  # index of the record in its batch, what is wrong with it


class RecordRules:
    """What a topic asks of records at one moment."""

    __slots__ = ("allowance", "now_ms", "partition", "settings")

    def __init__(self, settings: ValidationSettings, now_ms: int, partition: str, allowance: Allowance | None):
        self.settings = settings
        self.now_ms = now_ms
        self.partition = partition
        self.allowance = allowance or Allowance()

    def scan(self, batch: Batch, covered: bytes) -> InPieces[int]:
        """Look at the records of a v2 batch that may stay as it is, or raise; return their largest time, -1 for none.

        covered: the bytes under its checksum.
        """
        is_compressed = batch.attributes & CODEC_MASK != 0
        data, start = covered, HEADER_BYTES - COVERED_POSITION
        if is_compressed:
            data, start = (yield from self.unpack(batch)), 0
        count = batch.header_count
        try:
            if count <= STEPS and len(data) <= FEW_BYTES_MAX:
                scanned = scan_few(data, count, start)
            else:
                scanned = yield from scan_in_pieces(data, count, start, in_order=is_compressed)
        except ProtocolError as error:
            raise _placed(batch, error) from None
        smallest, largest, keyless, consecutive = scanned
        first, last = _times(batch, smallest, largest)
        check_times(first, last)
        if not are_fine(self.settings, batch, first, last, keyless, self.now_ms):
            errors: list[tuple[int, str]] = []
            codes: set[Error] = set()
            records, index = RecordPieces(batch, data[start:]), 0
            while piece := (yield from records.read()):
                errors += self.faults(batch, piece, index, codes)
                index += len(piece)
                yield FAULT_US * len(piece)
            if errors:
                raise rejected(errors, codes)
        if is_compressed and not consecutive:
            # Kafka would write it anew, as it does with v1, but has not kept the records and fails; nobody noticed.
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "offset deltas in a compressed batch are not 0, 1, 2, ..")
        return max(last, -1)

    def unpack(self, batch: Batch) -> InPieces[bytes]:
        """Return the records of a v2 batch, as far as so many bytes are still allowed."""
        data = batch.buffer[batch.position + HEADER_BYTES : batch.end_position]
        codec, record_bytes_max = batch.attributes & CODEC_MASK, self.settings.max_decompressed_message_bytes
        if not codec:
            return bytes(data)
        unpacked = bytes((yield from self.unpacking(partial(decompress_in_pieces, codec, data), len)))
        if len(unpacked) > record_bytes_max:
            yield from check_sizes_in_pieces(unpacked, batch.header_count, record_bytes_max)
        return unpacked

    def unpacking(self, begin: Callable[[int], InPieces[Made]], size_bytes: Callable[[Made], int]) -> InPieces[Made]:
        """Unpack something to as many bytes as are still allowed, and count them."""
        allowance = self.allowance
        try:
            made = yield from begin(allowance.limit_bytes)
        except DecompressionLimit:
            allowance.left_bytes = 0
            raise
        allowance.left_bytes -= size_bytes(made)
        return made

    def faults(self, batch: Batch, piece: list[Record], index: int, codes: set[Error]) -> Iterator[tuple[int, str]]:
        """Yield those of some records that are at fault, from an index on; note why."""
        for at, record in enumerate(piece, index):
            code, reason = self._fault(batch, record)
            if code:
                codes.add(code)
                yield at, reason

    def _fault(self, batch: Batch, record: Record) -> tuple[Error, str]:
        """Return what is wrong with a record, in Kafka's words; NONE if nothing is."""
        is_stamped_here = self.settings.timestamp_type == APPEND_TIME
        if self.settings.compacted and record.key is None:
            reason = f"Compacted topic cannot accept message without key in topic partition {self.partition}"
            return Error.INVALID_RECORD, reason
        if batch.timestamp_type == APPEND_TIME and (
            is_stamped_here or record.timestamp == -1 or self.settings.refuse_append_time
        ):
            return Error.INVALID_TIMESTAMP, (
                f"Invalid timestamp type in message DefaultRecord(offset={record.offset}, "
                f"timestamp={record.timestamp}, key={len(record.key or b'')} bytes, "
                f"value={len(record.value or b'')} bytes). Producer should not set timestamp type to LogAppendTime."
            )
        earliest_ms = self.now_ms - self.settings.timestamp_before_max_ms
        latest_ms = self.now_ms + self.settings.timestamp_after_max_ms
        has_own_time = not is_stamped_here and record.timestamp != -1
        if has_own_time and not earliest_ms <= record.timestamp <= latest_ms:
            return Error.INVALID_TIMESTAMP, (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{earliest_ms}, {latest_ms}]"
            )
        return Error.NONE, ""


def _scan_small(batch: Batch, covered: bytes, settings: ValidationSettings, now_ms: int) -> int | None:
    """Return what `RecordRules.scan` does of a batch that is small and nothing is special about; None of any other."""
    if batch.attributes & CODEC_MASK or len(covered) > FEW_BYTES_MAX or batch.header_count > STEPS:
        return None
    try:
        smallest, largest, keyless, _ = scan_few(covered, batch.header_count, HEADER_BYTES - COVERED_POSITION)
    except ProtocolError as error:
        raise _placed(batch, error) from None
    first, last = _times(batch, smallest, largest)
    return max(last, -1) if are_fine(settings, batch, first, last, keyless, now_ms) else None


def _placed(batch: Batch, error: ProtocolError) -> ProtocolError:
    """Complete an error in what is beneath the checksum of a batch, or in what it unpacks to."""
    if isinstance(error, InvalidRecordCount):
        error.position = batch.position + COUNT_POSITION
    elif batch.attributes & CODEC_MASK:
        return within(error)
    else:
        error.position += batch.position + COVERED_POSITION
    return error


def _times(batch: Batch, smallest: int, largest: int) -> tuple[int, int]:
    """Return the smallest and the largest time of records with such deltas."""
    if batch.attributes & APPEND_TIME_BIT:
        return batch.max_timestamp, batch.max_timestamp
    return batch.base_timestamp + smallest, batch.base_timestamp + largest


def are_fine(settings: ValidationSettings, batch: Batch, first: int, last: int, keyless: bool, now_ms: int) -> bool:
    """Whether surely no record of a batch is at fault, by the smallest and the largest time; if not, one may be."""
    if (keyless and settings.compacted) or first < TIME_MIN or last > TIME_MAX or batch.timestamp_type == APPEND_TIME:
        return False
    return settings.timestamp_type == APPEND_TIME or (
        now_ms - settings.timestamp_before_max_ms <= first and last <= now_ms + settings.timestamp_after_max_ms
    )


def check_times(first: int, last: int) -> None:
    if first < TIME_MIN or last > TIME_MAX:
        raise InvalidRecord(f"times from {first} to {last} leave 64 bits", 0, "RecordV2.timestamp_delta")


# Refusals


def rejected(errors: list[tuple[int, str]], codes: set[Error]) -> RecordsRejected:
    if Error.INVALID_TIMESTAMP in codes:
        message = "One or more records have been rejected due to invalid timestamp"
        return RecordsRejected(Error.INVALID_TIMESTAMP, message, errors)
    shown = [f"RecordError(batchIndex={index}, message='{reason}')" for index, reason in errors[:ERRORS_SHOWN_MAX]]
    message = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{', '.join(shown)}]"
    )
    return RecordsRejected(Error.INVALID_RECORD, message, errors)


def too_large(size_bytes: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(Error.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes; {max_message_bytes} are allowed")
