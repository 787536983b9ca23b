"""What Kafka's leader makes of a produced v2 batch, written out slowly: every field by itself, every rule once.

The order of the rules is that of UnifiedLog.analyzeAndValidateRecords and LogValidator of 4.4, but for what
minibroker/log/validate.py says that it does otherwise.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from minibroker.errors import Error, ProtocolError
from minibroker.log.batches import crc32c
from minibroker.log.compression import CODEC_NAMES, decompress
from minibroker.log.formats import APPEND_TIME
from tests.log.random_produce import NOW_MS, Sent

DECOMPRESSED_MAX = 64 * 1024 * 1024


class Broken(Exception):
    """No records."""


class Read(NamedTuple):
    """What the records of a batch say."""

    times: list[int]  # as deltas
    offsets: list[int]  # as deltas
    keyless: list[bool]
    size_bytes_max: int  # of one record


class RecordOracle:
    """Reads as Kafka's DefaultRecord does."""

    def __init__(self, data: bytes):
        self.data = data
        self.position = 0

    def byte(self) -> int:
        if self.position >= len(self.data):
            raise Broken("end")
        self.position += 1
        return self.data[self.position - 1]

    def number(self, bits: int = 32) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= (35 if bits == 32 else 70):
                raise Broken("varint too long")
        if value >> bits:
            raise Broken("varint too large")
        return value // 2 if value % 2 == 0 else -(value // 2) - 1

    def skip(self, size: int) -> None:
        if size > 0:
            self.position += size
            if self.position > len(self.data):
                raise Broken("end")

    def records(self, count: int) -> Read:
        times: list[int] = []
        offsets: list[int] = []
        keyless: list[bool] = []
        size_max = 0
        for _ in range(count):
            size = self.number()
            if size < 0:
                raise Broken("negative")
            size_max = max(size_max, size)
            stop = self.position + size
            self.byte()
            times.append(self.number(64))
            offsets.append(self.number())
            key = self.number()
            keyless.append(key < 0)
            self.skip(key)
            self.skip(self.number())
            headers = self.number()
            if not 0 <= headers <= stop - self.position:
                raise Broken("headers")
            for _ in range(headers):
                name = self.number()
                if name < 0:
                    raise Broken("header without a name")
                self.skip(name)
                self.skip(self.number())
            if self.position != stop:
                raise Broken("size")
        if self.position != len(self.data):
            raise Broken("more")
        return Read(times, offsets, keyless, size_max)


def read(data: bytes, count: int) -> Read | None:
    """Return what `count` records say; None: they are none, or not as many."""
    if not 0 <= count <= len(data):
        return None
    try:
        return RecordOracle(data).records(count)
    except Broken:
        return None


class Stored(NamedTuple):
    """What of a header is the leader's word."""

    attributes: int
    max_timestamp: int
    is_rebuilt: bool


def outcome(case: Sent) -> Stored | Error:
    """Return what is stored, or the error."""
    fields = struct.unpack_from(">qiibIhiqqqhii", case.data)
    base_offset, _, _, _, crc, attributes, last_delta, base_time, max_time = fields[:9]
    producer_id, producer_epoch, base_sequence, count = fields[9:]
    codec = attributes & 7
    if base_offset != 0:
        return Error.INVALID_RECORD
    if crc != crc32c(case.data[21:]):
        return Error.CORRUPT_MESSAGE
    if codec > 4:
        return Error.UNKNOWN_SERVER_ERROR
    if count <= 0 or last_delta + 1 != count or attributes & 32 or (producer_id > -1 and base_sequence < 0):
        return Error.INVALID_RECORD
    try:
        data = bytes(decompress(codec, case.data[61:], DECOMPRESSED_MAX))
    except ProtocolError:
        return Error.UNKNOWN_SERVER_ERROR
    found = read(data, count)
    if found is None or (codec and found.size_bytes_max > case.size_bytes_max):
        return Error.INVALID_RECORD
    is_stamped = attributes & 8 != 0
    times = [max_time if is_stamped else base_time + delta for delta in found.times]
    if min(times) < -(2**63) or max(times) > 2**63 - 1:
        return Error.INVALID_RECORD
    if fault := _fault(case, times, found.keyless, is_stamped=is_stamped):
        return fault
    target = codec if case.codec == "producer" else CODEC_NAMES.index(case.codec)
    if target == codec and codec and found.offsets != list(range(count)):
        return Error.UNKNOWN_SERVER_ERROR
    if target != codec:
        is_of_nobody = producer_id == -1 and attributes & 16
        has_no_numbers = producer_id != -1 and (producer_epoch < 0 or base_sequence < 0)
        if min(times) < -1 or is_of_nobody or has_no_numbers:
            return Error.UNKNOWN_SERVER_ERROR
    stamps = case.timestamp_type == APPEND_TIME
    largest = NOW_MS if stamps else max(-1, *times)
    if target == codec and (is_stamped, max_time) == (stamps, largest):
        return Stored(attributes, max_time, is_rebuilt=False)
    kept = attributes & (0b101_0000 if target == codec else 0b1_0000)
    return Stored(kept | target | stamps << 3, largest, is_rebuilt=target != codec)


def _fault(case: Sent, times: list[int], keyless: list[bool], *, is_stamped: bool) -> Error:
    """Return what the worst of the records is refused for."""
    low, high = NOW_MS - case.before_max_ms, NOW_MS + case.after_max_ms
    faults = set()
    for time, has_no_key in zip(times, keyless, strict=True):
        if case.compacted and has_no_key:
            faults.add(Error.INVALID_RECORD)
        elif case.timestamp_type != APPEND_TIME and time != -1:
            if not low <= time <= high:
                faults.add(Error.INVALID_TIMESTAMP)
        elif is_stamped:
            faults.add(Error.INVALID_TIMESTAMP)
    if Error.INVALID_TIMESTAMP in faults:
        return Error.INVALID_TIMESTAMP
    return Error.INVALID_RECORD if faults else Error.NONE
