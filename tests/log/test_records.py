"""Batches and records read as Kafka reads them, are built as Kafka builds them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.errors import (
    CorruptCrc,
    DecompressionFailed,
    DecompressionLimit,
    EncodeError,
    InvalidLength,
    InvalidMagic,
    InvalidRecord,
    InvalidRecordCount,
    InvalidVarint,
    NullForbidden,
    ProtocolError,
    TooDeep,
    Truncated,
    UnknownCodec,
)
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from minibroker.log.formats import (
    APPEND_TIME,
    COMMIT,
    CREATE_TIME,
    HEADER_BYTES,
    LEADER_CHANGE,
    BatchHeader,
    MessageV0,
    MessageV1,
    layout,
)
from minibroker.log.record_walks import AT_ONCE, make_walk
from minibroker.log.records import Record, RecordPieces, control_type
from tests import goldens
from tests.log.golden_batches import CONTROL_TYPES, header_in, header_of, records_of

GOLDEN = goldens.records("records")
WHOLE = [case for case in GOLDEN if "broken" not in case]
MIB = 1024 * 1024
THREE = [Record(b"k%d" % n, b"value %d" % n, (), 1600000000000 + n) for n in range(3)]
FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD) if codec != ZSTD or magic == 2
]


def only(data: bytes | bytearray | memoryview) -> Batch:
    [batch] = batches(data, strict=True)
    return batch


def read(data: bytes | memoryview) -> list[Record]:
    return [record for batch in batches(data, strict=True) for record in batch.records(check_crc=True)]


def by_id(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases])


# What Kafka wrote


def test_the_golden_file_is_all_there() -> None:
    assert len(GOLDEN) == 222


@by_id(GOLDEN)
def test_batches_and_records_read_as_kafka_reads_them(case: dict[str, Any]) -> None:
    found = list(batches(bytes.fromhex(case["hex"])))
    assert len(found) == len(case["batches"])
    for batch, shown in zip(found, case["batches"]):
        said = header_of(shown)
        assert header_in(batch, said) == said
        assert batch.crc_is_valid() == shown["valid"]
        assert batch.next_offset == shown["lastOffset"] + 1
        if "records" in shown:
            records = list(batch.records(check_crc=True))
            assert records == records_of(shown)
            for record, shown_record in zip(records, shown["records"]):
                if batch.is_control:
                    assert control_type(record) == CONTROL_TYPES[shown_record["controlType"]]


@by_id([case for case in GOLDEN if case.get("broken") == "crc"])
def test_a_wrong_checksum_is_an_error_when_asked_to_check(case: dict[str, Any]) -> None:
    batch = only(bytes.fromhex(case["hex"]))
    with pytest.raises(CorruptCrc) as caught:
        batch.check_crc()
    assert caught.value.position == (17 if batch.magic == 2 else 12)
    with pytest.raises(CorruptCrc):
        list(batch.records(check_crc=True))


@by_id([case for case in GOLDEN if case.get("broken") == "tail"])
def test_a_cut_batch_at_the_end_is_left_out_or_an_error(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["hex"])
    [whole] = batches(data)
    with pytest.raises(Truncated) as caught:
        list(batches(data, strict=True))
    assert caught.value.position == whole.end_position


def rebuilt(batch: Batch, shown: dict[str, Any]) -> bytes:
    """Build the batch anew from what Kafka reads in it."""
    if batch.timestamp_type == APPEND_TIME and batch.magic == 2:
        # The records keep their creation times on disk; with the other type they can be seen.
        copy = only(bytearray(batch.view))
        copy.set_max_timestamp(CREATE_TIME, batch.max_timestamp)
        records = list(copy.records())
    else:
        records = records_of(shown)
    if batch.magic < 2:
        times = {"timestamp_type": APPEND_TIME, "max_timestamp": batch.max_timestamp}
        return build_batch(
            batch.magic,
            records,
            codec=batch.codec,
            **(times if batch.timestamp_type == APPEND_TIME else {}),  # type: ignore[arg-type]
        )
    return build_batch(
        2,
        records,
        codec=batch.codec,
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        timestamp_type=batch.timestamp_type,
        max_timestamp=batch.max_timestamp,
        delete_horizon=batch.delete_horizon,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
    )


@by_id(WHOLE)
def test_built_anew_a_batch_has_the_bytes_kafka_wrote(case: dict[str, Any]) -> None:
    for batch, shown in zip(batches(bytes.fromhex(case["hex"])), case["batches"]):
        built = rebuilt(batch, shown)
        if not batch.codec:
            assert built == batch.view
            continue
        # Compressed bytes differ between libraries, what they mean does not.
        ours = only(built)
        said = {name: value for name, value in header_of(shown).items() if name not in ("size_bytes", "crc")}
        assert header_in(ours, said) == said
        assert ours.crc_is_valid()
        assert list(ours.records(check_crc=True)) == records_of(shown)


# Building


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_offsets_count_on_where_a_record_names_none(magic: int, codec: int) -> None:
    built = build_batch(magic, [Record(b"a"), Record(b"b", offset=14), Record(b"c")], codec=codec, base_offset=10)
    assert [record.offset for record in read(built)] == [10, 14, 15]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_offsets_must_rise(magic: int) -> None:
    with pytest.raises(EncodeError, match="offset 3 comes after 4"):
        build_batch(magic, [Record(offset=4), Record(offset=3)])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record("text"), "str"),
        (Record(value=5), "int"),
        (Record(headers=((None, b""),)), "encode"),
        (Record(headers=(("key", "text"),)), "str"),
        (Record(timestamp=1 << 63), "64 bits"),
    ],
)
def test_what_cannot_be_written_is_named(record: Record, reason: str) -> None:
    with pytest.raises(EncodeError, match=reason) as caught:
        build_batch(2, [Record(b"fine", timestamp=0), record])
    assert caught.value.path == "records[1]"


def test_append_time_needs_the_time() -> None:
    with pytest.raises(EncodeError, match="max_timestamp"):
        build_batch(2, THREE, timestamp_type=APPEND_TIME)


@pytest.mark.parametrize(("magic", "codec"), [(magic, codec) for magic, codec in FORMATS if magic])
def test_with_append_time_every_record_reads_as_appended_then(magic: int, codec: int) -> None:
    built = build_batch(magic, THREE, codec=codec, timestamp_type=APPEND_TIME, max_timestamp=42)
    assert {record.timestamp for record in read(built)} == {42}
    assert {batch.timestamp_type for batch in batches(built)} == {APPEND_TIME}


def test_old_formats_know_no_producers_and_no_control_batches() -> None:
    with pytest.raises(EncodeError):
        build_batch(1, THREE, producer_id=7)
    with pytest.raises(EncodeError):
        build_batch(0, THREE, control=True)


def test_old_formats_have_no_zstd() -> None:
    with pytest.raises(UnknownCodec):
        build_batch(1, THREE, codec=ZSTD)


def test_a_transaction_marker_is_the_one_kafka_writes() -> None:
    [case] = [case for case in GOLDEN if case["id"] == "v2-control-commit"]
    marker = build_transaction_marker(
        commit=True,
        offset=22,
        timestamp=1600000000009,
        producer_id=4000,
        producer_epoch=2,
        coordinator_epoch=3,
        partition_leader_epoch=5,
    )
    assert marker.hex() == case["hex"]
    assert len(marker) == 78
    [record] = only(marker).records()
    assert control_type(record) == COMMIT


def test_control_types_are_read_from_the_key() -> None:
    assert control_type(Record(b"\0\0\0\2")) == LEADER_CHANGE
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\1"):
        with pytest.raises(InvalidRecord):
            control_type(Record(key))


# Changing in place


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_offset_and_leader_epoch_of_a_v2_batch_leave_the_checksum_alone(codec: int) -> None:
    data = bytearray(build_batch(2, THREE, codec=codec))
    batch = only(data)
    batch.set_last_offset(102)
    batch.set_leader_epoch(9)
    again = only(data)
    assert (again.base_offset, again.last_offset, again.partition_leader_epoch) == (100, 102, 9)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (100, 102, 9)
    assert again.crc == batch.crc
    assert [record.offset for record in again.records(check_crc=True)] == [100, 101, 102]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_v1_wrapper_moves_with_its_content(codec: int) -> None:
    data = bytearray(build_batch(1, THREE, codec=codec))
    only(data).set_last_offset(1002)
    assert [record.offset for record in read(data)] == [1000, 1001, 1002]


def test_a_v0_wrapper_cannot_move() -> None:
    batch = only(bytearray(build_batch(0, THREE, codec=GZIP)))
    with pytest.raises(EncodeError):
        batch.set_last_offset(100)


@pytest.mark.parametrize("magic", [0, 1])
def test_single_messages_move_without_a_new_checksum(magic: int) -> None:
    data = bytearray(build_batch(magic, THREE))
    for index, batch in enumerate(batches(data)):
        batch.set_last_offset(50 + index)
        batch.set_leader_epoch(4)  # no place for it
    assert [record.offset for record in read(data)] == [50, 51, 52]


@pytest.mark.parametrize(("magic", "codec"), [(magic, codec) for magic, codec in FORMATS if magic])
def test_a_new_timestamp_type_gets_a_new_checksum(magic: int, codec: int) -> None:
    data = bytearray(build_batch(magic, THREE, codec=codec))
    for batch in batches(data):
        batch.set_max_timestamp(APPEND_TIME, 42)
        assert batch.crc_is_valid()
    assert {record.timestamp for record in read(data)} == {42}
    for batch in batches(data):
        assert (batch.timestamp_type, batch.max_timestamp, batch.codec) == (APPEND_TIME, 42, codec)


# Odd but in order


def test_an_empty_buffer_has_no_batches() -> None:
    assert list(batches(b"", strict=True)) == []


def test_reading_can_begin_and_end_anywhere() -> None:
    first, second = build_batch(2, THREE), build_batch(1, THREE[:1], base_offset=3)
    data = first + second + b"\xff" * 5
    assert [batch.last_offset for batch in batches(data, len(first), len(first + second), strict=True)] == [3]


def test_the_false_entry_behind_converted_data_is_taken_for_a_cut_batch() -> None:
    # What a broker fills an answer up with that it promised to be longer (PROTOCOL-NOTES, down-conversion).
    for left in (12, 13, 40, 100):
        false_entry = (-1).to_bytes(8, "big", signed=True) + max(left + 1, 61).to_bytes(4, "big") + bytes(left - 12)
        assert len(list(batches(build_batch(1, THREE) + false_entry))) == 3


def test_an_empty_batch_may_name_a_codec() -> None:
    data = bytearray(build_batch(2, [], base_offset=20, last_offset=29))
    data[22] |= LZ4
    assert list(only(data).records()) == []


def test_a_wrapper_at_offset_zero_counts_from_zero() -> None:
    # Some versions of librdkafka leave the wrapper's offset at 0.
    data = bytearray(build_batch(1, THREE, codec=GZIP, base_offset=0))
    data[:8] = bytes(8)
    assert [record.offset for record in read(data)] == [0, 1, 2]


def test_records_come_lazily() -> None:
    records = [Record(value=b"x" * 10) for _ in range(1000)]
    data = build_batch(2, records)
    found = only(data[:-1] + b"\x01").records()  # the last record is broken
    assert [next(found).offset for _ in range(500)] == list(range(500))


def test_a_scan_does_not_look_at_the_records() -> None:
    data = bytearray(build_batch(2, THREE, codec=ZSTD) * 3)
    data[70] ^= 0xFF
    assert len(list(batches(data, strict=True))) == 3


# Broken


def v2(payload: bytes, count: int = 1, attributes: int = 0) -> bytes:
    header = BatchHeader(
        base_offset=0,
        size=49 + len(payload),
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return header.encode(0) + payload


def v1(value: bytes | None, attributes: int = 0, *, offset: int = 0) -> bytes:
    size = 22 + len(value or b"")
    return MessageV1(
        offset=offset, size=size, crc=0, magic=1, attributes=attributes, timestamp=0, key=None, value=value
    ).encode(0)


def wrapper(*messages: bytes, offset: int = 0) -> bytes:
    return v1(compress(GZIP, b"".join(messages)), GZIP, offset=offset)


def v0(value: bytes | None, attributes: int = 0) -> bytes:
    size = 14 + len(value or b"")
    return MessageV0(offset=0, size=size, crc=0, magic=0, attributes=attributes, key=None, value=value).encode(0)


def changed(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


ONE = bytes.fromhex("10 00 00 00 02 61 02 62 00")  # a record of v2: key a, value b
SET = build_batch(1, THREE[:1])
BROKEN: list[tuple[str, bytes, type[ProtocolError], int, str]] = [
    # name, bytes, error, position, end of the path
    ("zeros", bytes(100), InvalidLength, 8, "batch.size"),
    ("negative size", changed(v2(ONE), 8, b"\xff\xff\xff\xff"), InvalidLength, 8, "batch.size"),
    ("size of v2 below 61", changed(v2(ONE), 8, b"\0\0\0\x30"), InvalidLength, 8, "batch.size"),
    ("size of v1 below 34", changed(SET, 8, b"\0\0\0\x15"), InvalidLength, 8, "batch.size"),
    ("size of v0 below 26", changed(v0(b"abc"), 8, b"\0\0\0\x0d"), InvalidLength, 8, "batch.size"),
    ("magic 3", changed(v2(ONE), 16, b"\3"), InvalidMagic, 16, "batch.magic"),
    ("magic -1", changed(v2(ONE), 16, b"\xff"), InvalidMagic, 16, "batch.magic"),
    ("cut header", v2(ONE)[:40], Truncated, 0, "batch"),
    ("cut batch", v2(ONE)[:-1], Truncated, 0, "batch"),
    ("cut prefix", v2(ONE)[:5], Truncated, 0, "batch"),
    ("negative count", v2(ONE, -1), InvalidRecordCount, 57, "BatchHeader.count"),
    ("count too large", v2(ONE, 2), InvalidRecordCount, 57, "BatchHeader.count"),
    ("count far too large", v2(ONE, 2**31 - 1), InvalidRecordCount, 57, "BatchHeader.count"),
    ("count too large, found late", v2(b"\x34\0\0\0\1\x28" + b"v" * 20 + b"\0", 2), InvalidRecordCount, 57, "count"),
    ("count too small", v2(ONE + ONE, 1), InvalidRecordCount, 57, "BatchHeader.count"),
    ("count 0 with records", v2(ONE, 0), InvalidRecordCount, 57, "BatchHeader.count"),
    ("record longer than it says", v2(changed(ONE, 0, b"\x0e")), InvalidLength, 70, "[0].size"),
    ("record shorter than it says", v2(changed(ONE, 0, b"\x12")), InvalidLength, 70, "[0].size"),
    ("negative record size", v2(changed(ONE, 0, b"\x0f")), InvalidLength, 70, "[0].size"),
    ("key beyond the end", v2(changed(ONE, 4, b"\x7e")), Truncated, 66, "[0].key"),
    ("value beyond the end", v2(changed(ONE, 6, b"\x7e")), Truncated, 68, "[0].value"),
    ("over-long varint", v2(b"\x1a\0\0" + b"\x80" * 5 + b"\0\1\1\0"), InvalidVarint, 64, "[0].offset_delta"),
    ("over-long varlong", v2(b"\x1c\0" + b"\x80" * 10 + b"\0\0\1\1\0"), InvalidVarint, 63, "[0].timestamp_delta"),
    ("varint above 32 bits", v2(b"\x18\0\0" + b"\xff" * 4 + b"\x7f\1\1\0\0"), InvalidVarint, 64, "[0].offset_delta"),
    ("negative header count", v2(changed(ONE, 8, b"\1")), NullForbidden, 69, "[0].headers"),
    ("header count too large", v2(changed(ONE, 8, b"\x7e")), InvalidLength, 69, "[0].headers"),
    ("null header key", v2(b"\x14\0\0\0\2a\2b\2\1\1"), NullForbidden, 70, "[0].headers[0].key"),
    ("unknown codec in v2", v2(ONE, 1, 5), UnknownCodec, 21, "BatchHeader.attributes"),
    ("unknown codec in v1", v1(SET, 7), UnknownCodec, 17, "MessageV1.attributes"),
    ("zstd in v1", v1(compress(ZSTD, SET), 4), UnknownCodec, 17, "MessageV1.attributes"),
    ("gzip that is none", v2(ONE, 1, GZIP), DecompressionFailed, 70, "BatchHeader.records"),
    ("gzip cut short", v2(compress(GZIP, ONE)[:-3], 1, GZIP), DecompressionFailed, 87, "BatchHeader.records"),
    ("wrapper that is no gzip", v1(b"no gzip", GZIP), DecompressionFailed, 41, "MessageV1.value"),
    ("null wrapper", v1(None, GZIP), NullForbidden, 30, "MessageV1.value"),
    ("empty wrapper", wrapper(), InvalidRecordCount, 34, "MessageV1.value"),
    ("key beyond the message", changed(SET, 26, b"\0\0\1\0"), Truncated, 30, "MessageV1.key"),
    ("value beyond the message", changed(v1(b"abc"), 30, b"\0\0\1\0"), Truncated, 34, "MessageV1.value"),
    ("bytes behind the value", changed(v1(b"abc"), 30, b"\0\0\0\2"), InvalidLength, 36, "MessageV1.size"),
    # Positions below count in what the wrapper unpacks to.
    ("wrapper in a wrapper", wrapper(wrapper(SET)), TooDeep, 17, "[0].attributes"),
    ("v0 in a v1 wrapper", wrapper(v0(b"")), InvalidMagic, 16, "[0].magic"),
    ("v2 in a v1 wrapper", wrapper(v2(ONE)), InvalidMagic, 16, "[0].magic"),
    ("wrapper below the last within", wrapper(v1(b"", offset=5), offset=4), InvalidRecord, 0, "MessageV1.offset"),
    ("cut message within", wrapper(SET, SET[:-1]), Truncated, len(SET) + 8, "[1].size"),
    ("cut head within", wrapper(SET, SET[:20]), Truncated, len(SET), "[1].offset"),
    ("small size within", wrapper(changed(SET, 8, bytes(4))), InvalidLength, 8, "[0].size"),
    ("key beyond the message within", wrapper(SET, changed(SET, 26, b"\0\0\1\0")), Truncated, len(SET) + 30, "[1].key"),
    ("CRC within", wrapper(v1(b"abc")), CorruptCrc, 12, "[0].crc"),
    ("value within ends early", wrapper(changed(v1(b"abc"), 30, b"\0\0\0\2")), InvalidLength, 36, "[0].size"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error", "position", "path"), [pytest.param(*row[1:], id=row[0]) for row in BROKEN])
def test_broken_bytes_say_what_is_wrong_and_where(
    data: bytes, error: type[ProtocolError], position: int, path: str
) -> None:
    # Checksums are not what is tested, except where one is named: the outer ones are put right.
    prefix = build_batch(2, THREE)
    with pytest.raises(error) as caught:
        for batch in batches(prefix + data, len(prefix), strict=True):
            fixed = error is CorruptCrc
            list(batch.records(check_crc=False) if not fixed else with_good_crc(batch).records(check_crc=True))
    within = "unpacks to" in caught.value.reason or error is CorruptCrc
    assert type(caught.value) is error
    assert caught.value.path.endswith(path)
    assert caught.value.position == position + (0 if within else len(prefix))


def with_good_crc(batch: Batch) -> Batch:
    copy = only(bytearray(batch.view))
    copy.set_max_timestamp(copy.timestamp_type, copy.max_timestamp)
    return copy


BOMBS: list[Callable[[bytes], bytes]] = [
    lambda zeros: v2(compress(ZSTD, zeros), 1, ZSTD),
    lambda zeros: v2(compress(GZIP, zeros), 1, GZIP),
    lambda zeros: v1(compress(LZ4, zeros, magic=1), LZ4),
]


@pytest.mark.parametrize("make", BOMBS)
def test_a_bomb_stops_at_the_limit(make: Callable[[bytes], bytes]) -> None:
    batch = only(make(bytes(64 * MIB)))
    tracemalloc.start()
    with pytest.raises(DecompressionLimit) as caught:
        list(batch.records(MIB))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * MIB
    assert caught.value.path in ("BatchHeader.records", "MessageV1.value")


def test_a_promised_count_reserves_nothing() -> None:
    tracemalloc.start()
    with pytest.raises(InvalidRecordCount):
        list(only(v2(ONE, 2**31 - 1)).records())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize("count", [0, 1, 63, 64, 127, 128, 5000])
def test_records_that_are_read_some_at_a_time_keep_their_headers(count: int) -> None:
    headers = tuple((f"h{number}", None if number % 3 else b"v") for number in range(count))
    records = [Record(b"k", bytes(20_000), given, 1000) for given in ((), headers, (("one", b"v"),), headers)]
    data = build_batch(2, records)
    batch = only(data)
    pieces = RecordPieces(batch, data[HEADER_BYTES:], with_headers=True)
    found: list[Record] = []
    while taken := finish(pieces.read()):
        found += taken
    assert [record.key for record in found] == [b"k"] * 4
    assert build_batch(2, found) == data


def test_names_and_values_of_headers_may_be_long() -> None:
    for size_bytes in (63, 64, 8_191, 8_192, 20_000):
        record = Record(b"k", b"v", (("h" * size_bytes, b"v" * size_bytes), ("short", None)), 1000)
        assert [each.headers for each in read(build_batch(2, [record, record]))] == [record.headers] * 2


def test_a_walk_that_is_made_reads_numbers_of_any_length() -> None:
    walk = make_walk("key value", "found.append((key, value))", before="found = []", result="found")
    sizes = (0, 63, 64, 8_191, 8_192, 2_000_000)
    records = [Record(b"k" * size, b"v" * size, (), 1000) for size in sizes]
    data = build_batch(2, records)[HEADER_BYTES:]
    assert walk(data, 0, 0, len(sizes), AT_ONCE) == [(record.key, record.value) for record in records]


def test_a_layout_is_of_the_fields_of_fixed_width_before_the_first_that_is_not() -> None:
    assert [layout(each).size for each in (MessageV0, MessageV1, BatchHeader)] == [18, 26, 61]
    assert layout(MessageV0, end="magic").size == 16
    assert layout(MessageV0, "magic").size == 2
    assert layout(BatchHeader, "crc", "base_timestamp").size == 10
