"""Conversion between formats keeps what Kafka keeps."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import DecompressionLimit, InvalidRecord, UnknownCodec
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.convert import RUN_BYTES_MAX, convert
from minibroker.log.formats import APPEND_TIME
from minibroker.log.records import Record
from tests import goldens
from tests.log.golden_batches import CODECS, TIMESTAMP_TYPES, header_in, header_of, records_of

DOWN = goldens.records("downconvert")
VALIDATED = [
    case
    for case in goldens.records("validate")
    if "hex" in case and case["inputMagic"] != case["toMagic"] and "batches" in case
]
RECORDS = [
    Record(b"k%d" % n, b"value %d" % n, (("h", b"x"),), 1600000000000 + n * 7 % 5, 100 + 3 * n) for n in range(6)
]
PLAIN = [record._replace(headers=()) for record in RECORDS]
CODECS_OF_ALL = [NONE, GZIP, SNAPPY, LZ4]


def converted(data: bytes, to_magic: int, **settings: Any) -> bytes:
    return b"".join(convert(data, to_magic, **settings))


def read(data: bytes) -> list[Record]:
    return [record for batch in batches(data, strict=True) for record in batch.records(check_crc=True)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in DOWN])
def test_old_clients_get_what_kafka_gives_them(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["input"])
    if "error" in case:
        with pytest.raises(UnknownCodec) as caught:
            converted(data, case["toMagic"], first_offset=case["firstOffset"])
        assert (caught.value.position, caught.value.path) == (21, "BatchHeader.attributes")
        return
    built = converted(data, case["toMagic"], first_offset=case["firstOffset"])
    if CODECS[case["batches"][0]["codec"]] == NONE:
        assert built.hex() == case["hex"]
    same_content(built, case)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in VALIDATED])
def test_what_a_leader_converts_has_kafkas_content(case: dict[str, Any]) -> None:
    built = bytearray(
        converted(
            bytes.fromhex(case["input"]),
            case["toMagic"],
            base_offset=case["firstOffset"],
            codec=CODECS[case["toCodec"]],
        )
    )
    # Stamping is the validator's, not the conversion's.
    for batch in batches(built):
        if case["toMagic"] and case["topicTimestampType"] == "LogAppendTime":
            batch.set_max_timestamp(APPEND_TIME, case["now"])
        batch.set_leader_epoch(9)
    same_content(built, case)


def same_content(built: bytes | bytearray, case: dict[str, Any]) -> None:
    """Compare all but what depends on the bytes of a codec."""
    found = list(batches(built, strict=True))
    assert len(found) == len(case["batches"])
    for batch, shown in zip(found, case["batches"]):
        depends = ("size_bytes", "crc") if shown["codec"] != "none" else ()
        said = {name: value for name, value in header_of(shown).items() if name not in depends}
        assert header_in(batch, said) == said
        assert list(batch.records(check_crc=shown["timestampType"] != "LogAppendTime")) == records_of(shown)
        assert batch.crc_is_valid()


def test_the_golden_files_have_the_cases_they_should() -> None:
    assert len(DOWN) == 28
    assert len(VALIDATED) > 100
    assert {TIMESTAMP_TYPES[batch["timestampType"]] for case in VALIDATED for batch in case["batches"]} == {-1, 0, 1}


@pytest.mark.parametrize("from_magic", [0, 1, 2])
@pytest.mark.parametrize("to_magic", [0, 1, 2])
@pytest.mark.parametrize("codec", CODECS_OF_ALL)
def test_offsets_keys_and_values_survive_every_way(from_magic: int, to_magic: int, codec: int) -> None:
    given = build_batch(from_magic, RECORDS, codec=codec)
    found = read(converted(given, to_magic))
    timestamps = from_magic > 0 and to_magic > 0
    headers = from_magic == to_magic == 2
    expected = RECORDS if headers else PLAIN
    assert found == [record if timestamps else record._replace(timestamp=-1) for record in expected]
    assert {batch.magic for batch in batches(converted(given, to_magic))} == {to_magic}
    assert {batch.codec for batch in batches(converted(given, to_magic))} == {codec}


@pytest.mark.parametrize(("from_magic", "to_magic"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("codec", CODECS_OF_ALL)
def test_append_time_stays_append_time(from_magic: int, to_magic: int, codec: int) -> None:
    given = build_batch(from_magic, PLAIN, codec=codec, timestamp_type=APPEND_TIME, max_timestamp=42)
    made = converted(given, to_magic)
    assert {batch.timestamp_type for batch in batches(made)} == {APPEND_TIME}
    assert {batch.max_timestamp for batch in batches(made)} == {42}
    assert {record.timestamp for record in read(made)} == {42}


def test_messages_of_one_set_become_one_batch() -> None:
    [batch] = batches(converted(build_batch(0, PLAIN), 2))
    assert (batch.count, batch.base_offset, batch.last_offset) == (6, 100, 115)


def test_messages_with_different_append_times_do_not_share_a_batch() -> None:
    sets = [build_batch(1, PLAIN, timestamp_type=APPEND_TIME, max_timestamp=time) for time in (1, 1, 2)]
    created = build_batch(1, PLAIN)
    moved = [converted(data, 1, base_offset=10 * n) for n, data in enumerate([*sets, created])]
    assert [batch.count for batch in batches(converted(b"".join(moved), 2))] == [12, 6, 6]


def test_a_long_message_set_becomes_several_batches() -> None:
    given = build_batch(1, [Record(value=bytes(RUN_BYTES_MAX // 3)) for _ in range(5)])
    assert [batch.count for batch in batches(converted(given, 2))] == [2, 2, 1]


def test_a_batch_of_the_right_format_passes_untouched_and_uncopied() -> None:
    given = build_batch(2, RECORDS, codec=ZSTD, producer_id=5, producer_epoch=0, base_sequence=0)
    [piece] = convert(given, 2)
    assert isinstance(piece, memoryview)
    assert piece.obj is given


def test_recompressed_a_batch_keeps_its_header() -> None:
    given = build_batch(
        2,
        RECORDS,
        base_offset=90,
        last_offset=200,
        delete_horizon=1600000000000,
        partition_leader_epoch=4,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
    )
    made = converted(given, 2, codec=ZSTD)
    [before], [after] = batches(given), batches(made)
    kept = dict.fromkeys(
        (
            *("base_offset", "last_offset", "delete_horizon", "partition_leader_epoch", "producer_id", "count"),
            *("producer_epoch", "base_sequence", "is_transactional", "is_control", "max_timestamp"),
        )
    )
    assert header_in(after, kept) == header_in(before, kept)
    assert after.codec == ZSTD
    assert read(made) == RECORDS


def test_markers_are_not_for_old_clients() -> None:
    marker = build_transaction_marker(
        commit=True, offset=6, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    given = build_batch(2, PLAIN[:1], transactional=True, producer_id=1) + marker
    assert read(converted(given, 1)) == PLAIN[:1]
    assert converted(given, 2) == given


def test_an_emptied_batch_leaves_nothing_for_old_clients() -> None:
    given = build_batch(2, [], base_offset=3, last_offset=9)
    assert converted(given, 1) == b""
    assert converted(given, 2) == given


def test_conversion_goes_from_batch_to_batch() -> None:
    pieces = convert(build_batch(2, PLAIN) + build_batch(2, PLAIN, base_offset=10, codec=ZSTD), 1)
    assert read(bytes(next(pieces))) == PLAIN
    with pytest.raises(UnknownCodec):
        next(pieces)


def test_a_cut_batch_at_the_end_is_left_out() -> None:
    given = build_batch(2, PLAIN)
    assert read(converted(given + given[:-1], 1)) == PLAIN


def test_unpacking_stops_at_the_limit() -> None:
    with pytest.raises(DecompressionLimit):
        converted(build_batch(2, [Record(value=bytes(100_000))], codec=GZIP), 1, limit_bytes=50_000)


def test_offsets_that_fall_cannot_be_converted_but_can_be_counted_anew() -> None:
    falling = b"".join(build_batch(0, [Record(b"k", offset=offset)]) for offset in (5, 4))
    with pytest.raises(InvalidRecord):
        converted(falling, 2)
    assert [record.offset for record in read(converted(falling, 2, base_offset=8))] == [8, 9]
