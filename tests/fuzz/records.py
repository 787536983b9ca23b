"""Fuzz target: batches of all formats, their records, and what is made of them.

    options, then the bytes
    bit 0 batches must be whole, bit 1 checksums are checked, bits 2-3 the format to convert to (3: none),
    bit 4 offsets are counted anew, bits 5-7 the codec to convert to (above zstd: each batch's own)

What must hold: ProtocolError is the only exception, and names a place in the input. Records that can be read can be
built again and then read as the same; if all can be read, so can what they are converted to, with right checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from minibroker.errors import CorruptCrc, EncodeError, InvalidRecord, ProtocolError, UnknownCodec
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import NONE, ZSTD, compress, decompress
from minibroker.log.convert import convert
from minibroker.log.formats import APPEND_TIME, HEADER_BYTES, PREFIX_BYTES, MessageV0, MessageV1, RecordV2
from minibroker.log.records import Record, control_type
from minibroker.schema.walk import walk
from tests import goldens

LIMIT_BYTES = 1024 * 1024
REBUILD_RECORDS_MAX = 200  # more would take most of the time without showing more


def check(data: bytes) -> None:
    if not data:
        return
    options, data = data[0], data[1:]
    found: list[Batch] = []
    broken = False
    try:
        for batch in batches(data, strict=bool(options & 1)):
            found.append(batch)
    except ProtocolError as error:
        check_error(error, data)
        broken = True
    ends = [0, *(batch.end_position for batch in found)]
    assert [batch.position for batch in found] == ends[:-1]
    assert ends[-1] <= len(data)
    contents = [check_batch(batch, data, bool(options & 2)) for batch in found]
    if found and options >> 2 & 3 < 3 and sum(len(content or ()) for content in contents) <= REBUILD_RECORDS_MAX:
        check_conversion(data, found, contents if None not in contents and not broken else None, options)


def check_batch(batch: Batch, data: bytes, check_crc: bool) -> list[Record] | None:
    """Return the records, None if they are broken."""
    repr(batch), batch.last_sequence, batch.delete_horizon, batch.timestamp_type
    assert len(batch.view) == batch.size_bytes
    try:
        records = list(batch.records(LIMIT_BYTES, check_crc=check_crc))
    except CorruptCrc as error:
        assert check_crc
        check_error(error, data)
        return None
    except ProtocolError as error:
        check_error(error, data)
        assert error.path, error
        return None
    if len(records) > REBUILD_RECORDS_MAX:
        return records
    assert batch.count == len(records)
    check_walk(batch, len(records))
    if batch.is_control:
        for record in records:
            with suppress(InvalidRecord):
                control_type(record)
    check_rebuilding(batch, records)
    check_setters(batch)
    return records


def check_walk(batch: Batch, count: int) -> None:
    """The slow reading finds nothing wrong with records that could be read, and ends where they do."""
    if batch.magic == 2:
        cls: Any = RecordV2
        data = bytes(batch.view[HEADER_BYTES:])
        if batch.codec and data:
            data = bytes(decompress(batch.codec, data, LIMIT_BYTES))
    else:
        cls = MessageV1 if batch.magic else MessageV0
        data = bytes(batch.view)
        if batch.is_wrapper:
            value = walk(cls, data, 0)[0][-1].value
            data = bytes(decompress(batch.codec, value, LIMIT_BYTES, magic=batch.magic))
    position = 0
    for _ in range(count):
        leaves, end = walk(cls, data, 0, position)
        assert batch.magic == 2 or end == position + PREFIX_BYTES + leaves[1].value
        position = end
    assert position == len(data)


def check_rebuilding(batch: Batch, records: list[Record]) -> None:
    append_time = batch.max_timestamp if batch.timestamp_type == APPEND_TIME else None
    try:
        built = build_batch(
            batch.magic,
            records,
            codec=batch.codec if batch.codec <= ZSTD else NONE,
            timestamp_type=max(batch.timestamp_type, 0),
            max_timestamp=append_time,
        )
    except EncodeError:
        # Offsets that fall, numbers that only fit as base and delta: they can be read, not written.
        return
    if not records:
        return
    again = [record for made in batches(built, strict=True) for record in made.records(LIMIT_BYTES, check_crc=True)]
    if min(record.offset for record in records) >= 0:
        assert again == records
    else:
        assert [record[:4] for record in again] == [record[:4] for record in records]


def check_setters(batch: Batch) -> None:
    """Change what brokers change, in a copy."""
    copy = next(batches(bytearray(batch.view)))
    copy.set_leader_epoch(7)
    if batch.magic:
        copy.set_max_timestamp(APPEND_TIME, 1_700_000_000_000)
    if batch.magic or not batch.is_wrapper:
        copy.set_last_offset(1 << 40)
    changed = next(batches(copy.view))
    assert changed.last_offset == copy.last_offset
    assert changed.max_timestamp == copy.max_timestamp
    assert changed.timestamp_type == copy.timestamp_type
    assert changed.crc_is_valid() or not batch.magic


def check_conversion(data: bytes, found: list[Batch], contents: list[list[Record]] | None, options: int) -> None:
    """Convert all; `contents` are the records of each batch if none is broken."""
    to_magic, codec = options >> 2 & 3, options >> 5
    try:
        made = b"".join(
            convert(
                data,
                to_magic,
                base_offset=1000 if options & 16 else None,
                codec=codec if codec <= ZSTD else None,
                limit_bytes=LIMIT_BYTES,
            )
        )
    except (UnknownCodec, InvalidRecord) as error:
        check_error(error, data)
        return
    except ProtocolError as error:
        assert contents is None, f"all records can be read: {error}"
        check_error(error, data)
        return
    if contents is None:
        return
    if any(record.offset < 0 for content in contents for record in content):
        return  # below the offset at which a reader begins, and no number that a log has
    kept = [content for batch, content in zip(found, contents, strict=True) if to_magic == 2 or not batch.is_control]
    again = [record for batch in batches(made, strict=True) for record in batch.records(LIMIT_BYTES)]
    assert [record[:2] for record in again] == [record[:2] for content in kept for record in content]
    if options & 16:
        assert [record.offset for record in again] == list(range(1000, 1000 + len(again)))


def check_error(error: ProtocolError, data: bytes) -> None:
    # Positions within what a codec made do not count in the input.
    assert error.position >= 0, error
    assert error.position <= len(data) or "unpacks to" in error.reason, error


def seeds() -> Iterator[bytes]:
    """Yield what Kafka wrote, as far as it is small, broken batches, and batches within batches."""
    cases = sorted(goldens.records("records"), key=lambda case: case["size"])
    small = [bytes.fromhex(case["hex"]) for case in cases if case["size"] <= 200 or "broken" in case]
    small += [bytes.fromhex(case["input"]) for case in goldens.records("downconvert")]
    for index, data in enumerate(dict.fromkeys(small)):
        if len(data) < 1500:
            yield bytes((index * 37 & 0xFF,)) + data
    yield from (bytes((options,)) + data for options, data in broken())


def broken() -> Iterator[tuple[int, bytes]]:
    records = [Record(b"k", b"v", (("h", b"1"), ("i", None)), 5, 10), Record(None, None, (), 4, 12)]
    for magic in (0, 1, 2):
        whole = build_batch(magic, records)
        yield 0xFC, whole + whole  # nothing is broken
        yield 1, whole[:-1]
        yield 2, whole[:-1] + b"x"
        yield 0, whole[:16] + b"\3" + whole[17:]
        yield 0, whole[:8] + b"\xff\xff\xff\xf0" + whole[12:]
        yield 0, whole[:17] + b"\7" + whole[18:]
        yield 0, bytes(100)
        for codec in range(1, 5 if magic == 2 else 4):
            append_time = 1 if magic else 0
            packed = build_batch(magic, records, codec=codec, timestamp_type=append_time, max_timestamp=9)
            yield 0x84 + 4 * magic, packed
    whole = build_batch(2, records)
    for position, byte in ((57, 0x7F), (60, 3), (60, 1), (61, 0xFF), (61, 0x13), (22, 0x30), (22, 0x40), (66, 0xFF)):
        yield 8, whole[:position] + bytes((byte,)) + whole[position + 1 :]
    for magic in (0, 1):
        wrapper = build_batch(magic, records, codec=1)
        # The last value says that it goes on behind the end.
        cut_value = build_batch(magic, [Record(None, b"")])[:-1] + b"\5"
        for within in (
            wrapper,
            b"",
            whole,
            build_batch(1 - magic, records),
            build_batch(magic, records)[:-3],
            cut_value,
        ):
            packed = compress(1, within)
            message = build_batch(magic, [Record(None, packed, (), 1, 20)])
            yield 8, message[:17] + b"\1" + message[18:]
        null = build_batch(magic, [Record(None, None, (), 1, 20)])
        yield 8, null[:17] + b"\1" + null[18:]
