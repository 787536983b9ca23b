"""Validating records: which ones a leader takes.

A key is needed in compacted topics. Where producers set the time, it must lie within the topic's limits around now; -1,
no time, always passes. Where the leader sets it, a producer must not claim to have done so.

What must hold: a batch with one record at fault is refused with a list of all that are.
Kafka looks at every record of every batch. For a v2 batch that stays as it is, that only confirms what the header says
if the producer is in order, and takes Python a hundred times as long as the checksum. So a batch of more than
`records_checked_max` records is taken at its header's word, unless a setting asks what only the records can tell: their
keys, or a limit that they come close to.
Kafka: in such a batch, if its checksum is right, also refuses records that cannot be read or are not as many as the
header says, compressed ones whose offset deltas are not 0, 1, 2, .., or with a time beyond the limit that the header
hides; and it corrects a max timestamp that is not the largest.
Kafka: where `now + after.max` is beyond 64 bits, the limit in the message is a negative number.
Kafka: compares no record with its own size where it only needs to unpack a batch; here that is always refused.
"""

from __future__ import annotations

from minibroker.errors import Error, InvalidRecord, InvalidRecordCount, KafkaError
from minibroker.log.compression import decompress
from minibroker.log.formats import APPEND_TIME, HEADER_BYTES, RECORD_BYTES_MIN
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record
from minibroker.log.validation import UNLIMITED_MS
from minibroker.schema.varint import read_uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.batches import Batch
    from minibroker.log.validation import ValidationSettings

ERRORS_SHOWN_MAX = 3  # in the message; the list has them all


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

    __slots__ = (
        "append_time",
        "bounded_below",
        "compacted",
        "earliest_ms",
        "latest_ms",
        "partition",
        "records_checked_max",
        "refuse_append_time",
    )

    def __init__(self, settings: ValidationSettings, now_ms: int, partition: str):
        self.append_time = settings.timestamp_type == APPEND_TIME
        self.bounded_below = settings.timestamp_before_max_ms < UNLIMITED_MS
        self.earliest_ms = now_ms - settings.timestamp_before_max_ms
        self.latest_ms = now_ms + settings.timestamp_after_max_ms
        self.compacted = settings.compacted
        self.records_checked_max = settings.records_checked_max
        self.refuse_append_time = settings.refuse_append_time
        self.partition = partition

    def look(self, batch: Batch) -> Look:
        """Look at the records of a batch as closely as necessary, or raise."""
        if batch.magic == 2:
            if not self._must_scan(batch):
                return Look(batch.count, batch.max_timestamp)
            return self._scan(batch)
        records = self.read(batch)
        max_timestamp = max(record.timestamp for record in records)
        consecutive = not batch.codec or [record.offset for record in records] == list(range(len(records)))
        return Look(len(records), max(max_timestamp, -1), consecutive)

    def read(self, batch: Batch) -> list[Record]:
        """Return all records of a batch, or raise if one cannot be taken."""
        records = list(batch.records(check_crc=batch.is_wrapper))
        times = [record.timestamp for record in records] or [-1]
        keyless = any(record.key is None for record in records)
        self._check(batch, min(times), max(times), -1 in times, keyless)
        return records

    def _must_scan(self, batch: Batch) -> bool:
        """Whether there is more to know than the header says."""
        if self.compacted or batch.count <= self.records_checked_max:
            return True
        if self.append_time or self.refuse_append_time:
            return batch.timestamp_type == APPEND_TIME
        return self.bounded_below or batch.max_timestamp > self.latest_ms

    def _scan(self, batch: Batch) -> Look:
        data: bytes | memoryview = batch.view[HEADER_BYTES:]
        if batch.codec:
            data = decompress(batch.codec, data, DECOMPRESSED_BYTES_MAX)
        deltas, keyless, consecutive = scan(bytes(data), batch.count)
        if batch.timestamp_type == APPEND_TIME:
            first = last = batch.max_timestamp
        elif len(deltas) == 1:
            first = last = batch.base_timestamp + deltas[0]
        else:
            first = batch.base_timestamp + min(deltas, default=0)
            last = batch.base_timestamp + max(deltas, default=0)
        self._check(batch, first, last, -1 in (first, last), keyless)
        if batch.codec and not consecutive:
            # Kafka would write it anew, as it does with v1, but has not kept the records and fails; nobody noticed.
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "offset deltas in a compressed batch are not 0, 1, 2, ..")
        return Look(batch.count, max(last, -1))

    def _check(self, batch: Batch, first: int, last: int, some_lack_time: bool, keyless: bool) -> None:
        """Raise if a record is at fault, given the smallest and the largest time."""
        is_stamped = batch.timestamp_type == APPEND_TIME
        if self.append_time:
            in_order = not is_stamped
        else:
            in_order = self.earliest_ms <= first and last <= self.latest_ms
            if is_stamped and (self.refuse_append_time or some_lack_time):
                in_order = False
        if in_order and not (keyless and self.compacted):
            return
        errors = []
        codes = set()
        for index, record in enumerate(batch.records()):
            code, reason = self._fault(batch, record)
            if code:
                codes.add(code)
                errors.append((index, reason))
        if errors:
            raise _rejected(Error.INVALID_TIMESTAMP in codes, errors)

    def _fault(self, batch: Batch, record: Record) -> tuple[Error, str]:
        """Return what is wrong with a record, in Kafka's words; NONE if nothing is."""
        if self.compacted and record.key is None:
            place = f" in topic partition {self.partition}" if self.partition else ""
            return Error.INVALID_RECORD, f"Compacted topic cannot accept message without key{place}"
        if batch.timestamp_type == APPEND_TIME and (
            self.append_time or record.timestamp == -1 or self.refuse_append_time
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


def scan(data: bytes, count: int) -> tuple[list[int], bool, bool]:
    """Hop over the records of a v2 batch, making nothing of them.

    Return the timestamp deltas, whether a key is null, whether the offset deltas are 0, 1, 2, ..
    """
    if not 0 <= count * RECORD_BYTES_MIN <= len(data):
        raise InvalidRecordCount(f"{count} records cannot be in {len(data)} bytes", 0, "BatchHeader.count")
    deltas: list[int] = []
    add = deltas.append
    keyless, consecutive = False, True
    position = index = 0
    try:
        # Numbers are zigzag: a length is twice what it says, an odd one is negative. A call for each would double the
        # time, so those of one or two bytes are read here.
        for index in range(count):
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
            # Attributes: no bit is in use, Kafka does not look at them either.
            number = data[position + 1]
            position += 2
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                else:
                    number, position = read_uvarint(data, position - 1, 10)
            add(number >> 1 ^ -(number & 1))
            number = data[position]
            position += 1
            if number > 127:
                second = data[position]
                if second < 128:
                    number += (second - 1) << 7
                    position += 1
                else:
                    number, position = read_uvarint(data, position - 1)
            if number != index + index:
                consecutive = False
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
                keyless = True
            else:
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
            if not number & 1:
                position += number >> 1
            number = data[position]
            position += 1
            if number:
                position = _behind_headers(data, position - 1, stop)
            if position != stop:
                raise ValueError(f"its fields end at byte {position}, its size says {stop}")
    except IndexError:
        raise InvalidRecord("goes on beyond the end", position, f"RecordV2[{index}]") from None
    except ValueError as error:
        raise InvalidRecord(str(error), position, f"RecordV2[{index}]") from None
    if position != len(data):
        raise InvalidRecordCount(f"{count} records take {position} of {len(data)} bytes", 0, "BatchHeader.count")
    return deltas, keyless, consecutive


def _behind_headers(data: bytes, position: int, stop: int) -> int:
    count, position = read_uvarint(data, position)
    if count & 1 or count >> 1 > stop - position:
        raise ValueError(f"{count >> 1} headers cannot be in {stop - position} bytes")
    for _ in range(count >> 1):
        size, position = read_uvarint(data, position)
        if size & 1:
            raise ValueError("the key of a header is null")
        size, position = read_uvarint(data, position + (size >> 1))
        if not size & 1:
            position += size >> 1
    return position
