"""Validating records: which ones a leader takes.

A key is needed in compacted topics. Where producers set the time, it must lie within the topic's limits around now; -1,
no time, always passes. Where the leader sets it, a producer must not claim to have done so.

What must hold: every record of every batch is looked at; a batch with one record at fault is refused with a list of all
that are. A batch is what its header says, or it is refused: it has as many records, with offsets that follow each other
if it is compressed. Of its largest time the header is corrected.
Kafka: where `now + after.max` is beyond 64 bits, the limit in the message is a negative number.
Kafka: compares no record with its own size where it only needs to unpack a batch; here that is always refused.
Kafka: unpacks as it reads on, so of several things that are wrong it answers the first; here what cannot be unpacked is
refused before what cannot be read, and offsets out of order before what follows them.
Kafka: times that leave 64 bits wrap around; here such records are refused.
Kafka: unpacks whatever a batch or a request holds, as long as one record is not above max.decompressed.message.bytes;
here the broker's loop would stand meanwhile, so a batch may unpack to 64 MiB, and all batches of a request together to
as much, or twenty times their length.
All that goes through records is done in pieces (in_pieces.py).
"""

from __future__ import annotations

from minibroker.errors import DecompressionLimit, Error, InvalidRecord, KafkaError
from minibroker.log.batches import COVERED_POSITION
from minibroker.log.compression import decompress_in_pieces
from minibroker.log.formats import (
    APPEND_TIME,
    APPEND_TIME_BIT,
    CODEC_MASK,
    HEADER_BYTES,
    MESSAGE_BYTES_MIN,
    PREFIX_BYTES,
)
from minibroker.log.message_sets import single_message
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, RecordPieces
from minibroker.log.scan import STEPS, check_size, check_sizes_in_pieces, scan_few, scan_in_pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.in_pieces import InPieces
    from minibroker.log.batches import Batch
    from minibroker.log.message_sets import MessagePieces
    from minibroker.log.records import Record
    from minibroker.log.scan import Scanned
    from minibroker.log.validation import Allowance, ValidationSettings

TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
ERRORS_SHOWN_MAX = 3  # in the message; the list has them all
FEW_BYTES_MAX = 2048  # of records that are few: they may have hundreds of headers
FAULT_US = 4
MESSAGE_US = 10  # of v0 or v1, alone or a wrapper


class RecordsRejected(KafkaError):
    """Records at fault in a batch whose bytes are in order; message and list go to the client."""

    def __init__(self, code: Error, message: str, record_errors: list[tuple[int, str]]):
        super().__init__(code, message)
        self.record_errors = record_errors  # index of the record in its batch, what is wrong with it


class Look:
    """What the leader must know of the records of a batch that stays as it is."""

    __slots__ = ("consecutive", "count", "max_timestamp")

    def __init__(self, count: int, max_timestamp: int, consecutive: bool = True):
        self.count = count
        self.max_timestamp = max_timestamp  # -1: none has one
        self.consecutive = consecutive  # offsets within a v1 wrapper are 0, 1, 2, ..; true of all else


class RecordRules:
    """What a topic asks of records at one moment."""

    __slots__ = ("allowance", "now_ms", "partition", "settings")

    def __init__(self, settings: ValidationSettings, now_ms: int, partition: str, allowance: Allowance | None):
        self.settings = settings
        self.now_ms = now_ms
        self.partition = partition
        self.allowance = allowance

    @property
    def append_time(self) -> bool:
        return self.settings.timestamp_type == APPEND_TIME

    @property
    def earliest_ms(self) -> int:
        return self.now_ms - self.settings.timestamp_before_max_ms

    @property
    def latest_ms(self) -> int:
        return self.now_ms + self.settings.timestamp_after_max_ms

    def look(self, batch: Batch) -> InPieces[Look]:
        """Look at the records of a batch that may stay as it is, or raise."""
        if batch.magic == 2:
            return Look(batch.header_count, (yield from self.scan(batch, batch.covered())))
        count, max_timestamp, consecutive = 0, -1, True

        def take(records: list[Record]) -> Iterator[int]:
            nonlocal count, max_timestamp, consecutive
            offsets = [record.offset for record in records]
            consecutive = consecutive and offsets == list(range(count, count + len(records)))
            max_timestamp = max(max_timestamp, max(record.timestamp for record in records))
            count += len(records)
            return iter(())

        yield from self.read(batch, take)
        return Look(count, max_timestamp, consecutive or not batch.codec)

    def scan(self, batch: Batch, covered: bytes) -> InPieces[int]:
        """Look at the records of a v2 batch that may stay as it is, or raise; return their largest time, -1 for none.

        covered: the bytes under its checksum.
        """
        is_compressed = batch.attributes & CODEC_MASK != 0
        if is_compressed:
            data, start = (yield from self._unpacked(batch)), 0
            if self.settings.max_decompressed_message_bytes < len(data):
                yield from self._check_sizes(batch, data)
        else:
            data, start = covered, HEADER_BYTES - COVERED_POSITION
        count = batch.header_count
        if count <= STEPS and len(data) <= FEW_BYTES_MAX:
            scanned = scan_few(data, count, start)
        else:
            scanned = yield from scan_in_pieces(data, count, start, in_order=is_compressed)
        _, _, keyless, consecutive = scanned
        first, last, are_fine = _times(batch, scanned, self.settings, self.now_ms)
        if not are_fine:
            records = RecordPieces(batch, data if is_compressed else covered[start:])
            yield from self._check(batch, first, last, -1 in (first, last), keyless, records)
        if is_compressed and not consecutive:
            # Kafka would write it anew, as it does with v1, but has not kept the records and fails; nobody noticed.
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "offset deltas in a compressed batch are not 0, 1, 2, ..")
        return last if last > -1 else -1

    def read(self, batch: Batch, take: Callable[[list[Record]], Iterator[int]]) -> InPieces[None]:
        """Hand all records of a batch to `take`, some at a time, or raise if one cannot be taken.

        That is known only behind the last of them.
        """
        is_wrapper = batch.is_wrapper
        if batch.magic < 2 and not is_wrapper:
            yield from self._read_single(batch, take)
            return
        records = yield from self._open(batch)
        least = MESSAGE_BYTES_MIN[batch.magic] - PREFIX_BYTES if is_wrapper else 0
        first, last, largest_bytes = TIME_MAX + 1, TIME_MIN - 1, 0
        errors: list[tuple[int, str]] = []
        codes: set[Error] = set()
        index = 0
        while piece := (yield from records.read()):
            times = [record.timestamp for record in piece]
            low, high = min(times), max(times)
            first, last = min(first, low), max(last, high)
            if is_wrapper:
                sizes = [least + len(record.key or b"") + len(record.value or b"") for record in piece]
                largest_bytes = max(largest_bytes, max(sizes))
            keyless = any(record.key is None for record in piece)
            if not self._are_fine(batch, low, high, -1 in times, keyless):
                errors += self._faults(batch, piece, index, codes)
                yield FAULT_US * len(piece)
            index += len(piece)
            if not errors and first >= TIME_MIN and last <= TIME_MAX:
                yield from take(piece)
        if is_wrapper:
            check_size(largest_bytes, self.settings.max_decompressed_message_bytes)
        if index:
            _check_times(first, last)
        if errors:
            raise _rejected(Error.INVALID_TIMESTAMP in codes, errors)

    def _read_single(self, batch: Batch, take: Callable[[list[Record]], Iterator[int]]) -> Iterator[int]:
        yield MESSAGE_US
        record = single_message(batch)
        timestamp = record.timestamp
        _check_times(timestamp, timestamp)
        if not self._are_fine(batch, timestamp, timestamp, timestamp == -1, record.key is None):
            code, reason = self._fault(batch, record)
            if code:
                raise _rejected(code == Error.INVALID_TIMESTAMP, [(0, reason)])
        yield from take([record])

    def _open(self, batch: Batch) -> InPieces[RecordPieces | MessagePieces]:
        """Unpack a batch as far as so many bytes are still allowed."""
        if batch.magic == 2:
            data = yield from self._unpacked(batch)
            yield from self._check_sizes(batch, data)
            return RecordPieces(batch, data, with_headers=True)
        yield MESSAGE_US
        allowance = self.allowance
        try:
            limit_bytes = allowance.limit_bytes if allowance is not None else DECOMPRESSED_BYTES_MAX
            opened = yield from batch.pieces(limit_bytes, check_crc=True)
        except DecompressionLimit:
            if allowance is not None:
                allowance.left_bytes = 0
            raise
        if allowance is not None:
            allowance.left_bytes -= opened.size_bytes
        return opened

    def _check_sizes(self, batch: Batch, data: bytes) -> InPieces[None]:
        if batch.attributes & CODEC_MASK and self.settings.max_decompressed_message_bytes < len(data):
            yield from check_sizes_in_pieces(data, batch.count, self.settings.max_decompressed_message_bytes)

    def _unpacked(self, batch: Batch) -> InPieces[bytes]:
        """Return the records of a v2 batch, as far as so many bytes are still allowed."""
        data = batch.buffer[batch.position + HEADER_BYTES : batch.end_position]
        codec = batch.attributes & CODEC_MASK
        if not codec:
            return bytes(data)
        allowance = self.allowance
        try:
            limit_bytes = DECOMPRESSED_BYTES_MAX if allowance is None else allowance.limit_bytes
            unpacked = bytes((yield from decompress_in_pieces(codec, data, limit_bytes)))
        except DecompressionLimit:
            if allowance is not None:
                allowance.left_bytes = 0
            raise
        if allowance is not None:
            allowance.left_bytes -= len(unpacked)
        return unpacked

    def _check(
        self, batch: Batch, first: int, last: int, some_lack_time: bool, keyless: bool, records: RecordPieces
    ) -> InPieces[None]:
        """Raise if a record is at fault, given the smallest and the largest time."""
        _check_times(first, last)
        if self._are_fine(batch, first, last, some_lack_time, keyless):
            return
        errors: list[tuple[int, str]] = []
        codes: set[Error] = set()
        index = 0
        while piece := (yield from records.read()):
            errors += self._faults(batch, piece, index, codes)
            index += len(piece)
            yield FAULT_US * len(piece)
        if errors:
            raise _rejected(Error.INVALID_TIMESTAMP in codes, errors)

    def _faults(self, batch: Batch, piece: list[Record], index: int, codes: set[Error]) -> Iterator[tuple[int, str]]:
        """Yield those of some records that are at fault, from an index on; note why."""
        for at, record in enumerate(piece, index):
            code, reason = self._fault(batch, record)
            if code:
                codes.add(code)
                yield at, reason

    def _are_fine(self, batch: Batch, first: int, last: int, some_lack_time: bool, keyless: bool) -> bool:
        """Whether surely no record is at fault; if not, one of them may be."""
        if first < TIME_MIN or last > TIME_MAX or (keyless and self.settings.compacted):
            return False
        is_stamped = batch.timestamp_type == APPEND_TIME
        if self.append_time:
            return not is_stamped
        if is_stamped and (self.settings.refuse_append_time or some_lack_time):
            return False
        return self.earliest_ms <= first and last <= self.latest_ms

    def _fault(self, batch: Batch, record: Record) -> tuple[Error, str]:
        """Return what is wrong with a record, in Kafka's words; NONE if nothing is."""
        if self.settings.compacted and record.key is None:
            reason = f"Compacted topic cannot accept message without key in topic partition {self.partition}"
            return Error.INVALID_RECORD, reason
        if batch.timestamp_type == APPEND_TIME and (
            self.append_time or record.timestamp == -1 or self.settings.refuse_append_time
        ):
            return Error.INVALID_TIMESTAMP, (
                f"Invalid timestamp type in message DefaultRecord(offset={record.offset}, "
                f"timestamp={record.timestamp}, key={len(record.key or b'')} bytes, "
                f"value={len(record.value or b'')} bytes). Producer should not set timestamp type to LogAppendTime."
            )
        has_own_time = not self.append_time and record.timestamp != -1
        if has_own_time and not self.earliest_ms <= record.timestamp <= self.latest_ms:
            return Error.INVALID_TIMESTAMP, (
                f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{self.earliest_ms}, {self.latest_ms}]"
            )
        return Error.NONE, ""


def scan_small(batch: Batch, covered: bytes, settings: ValidationSettings, now_ms: int) -> int | None:
    """Return what `RecordRules.scan` does of a batch that is small and nothing is special about; None of any other."""
    if batch.attributes & CODEC_MASK or len(covered) > FEW_BYTES_MAX or batch.header_count > STEPS:
        return None
    scanned = scan_few(covered, batch.header_count, HEADER_BYTES - COVERED_POSITION)
    _, last, are_fine = _times(batch, scanned, settings, now_ms)
    return max(last, -1) if are_fine else None


def _times(batch: Batch, scanned: Scanned, settings: ValidationSettings, now_ms: int) -> tuple[int, int, bool]:
    """Return the smallest and the largest time of the records, and whether surely none of them is at fault."""
    smallest, largest, keyless, _ = scanned
    if batch.attributes & APPEND_TIME_BIT:
        return batch.max_timestamp, batch.max_timestamp, False
    first, last = batch.base_timestamp + smallest, batch.base_timestamp + largest
    return (
        first,
        last,
        settings.timestamp_type != APPEND_TIME
        and not (keyless and settings.compacted)
        and now_ms - settings.timestamp_before_max_ms <= first >= TIME_MIN
        and now_ms + settings.timestamp_after_max_ms >= last <= TIME_MAX,
    )


def _check_times(first: int, last: int) -> None:
    if first < TIME_MIN or last > TIME_MAX:
        raise InvalidRecord(f"times from {first} to {last} leave 64 bits", 0, "RecordV2.timestamp_delta")


def _rejected(bad_time: bool, errors: list[tuple[int, str]]) -> RecordsRejected:
    if bad_time:
        message = "One or more records have been rejected due to invalid timestamp"
        return RecordsRejected(Error.INVALID_TIMESTAMP, message, errors)
    shown = [f"RecordError(batchIndex={index}, message='{reason}')" for index, reason in errors[:ERRORS_SHOWN_MAX]]
    message = (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{', '.join(shown)}]"
    )
    return RecordsRejected(Error.INVALID_RECORD, message, errors)
