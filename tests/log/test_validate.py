"""What a leader does to produced bytes (validate.py, append_conversion.py), beside what Kafka's own validator did."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.errors import Error, KafkaError
from minibroker.in_pieces import finish
from minibroker.log.append_conversion import look, place
from minibroker.log.batches import batches
from minibroker.log.build import BatchBuilder, build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, NONE, ZSTD
from minibroker.log.formats import APPEND_TIME, COMMIT, CREATE_TIME, HEADER_BYTES
from minibroker.log.records import DECOMPRESSED_BYTES_MAX, Record, control_type
from minibroker.log.settings import PRODUCER, UNCOMPRESSED, ValidationSettings
from minibroker.log.validate import CLIENT, COORDINATOR, RAFT_LEADER, RecordsRejected, Validated, validate_replicated
from tests import goldens
from tests.log.golden_batches import header_in, header_of, records_of
from tests.log.validating import validate
from tests.sealing import seal

NOW = 1_600_000_000_777
RECORDS = [Record(b"a", b"1", (), NOW - 5), Record(b"b", b"2", (), NOW), Record(b"c", None, (), NOW - 3)]
CASES = goldens.records("validate")
TIMESTAMP_TYPES = {"CreateTime": CREATE_TIME, "LogAppendTime": APPEND_TIME}


def run(data: bytes | bytearray, settings: ValidationSettings | None = None, origin: str = CLIENT) -> Validated:
    return validate(
        data,
        settings or ValidationSettings(),
        next_offset=1000,
        leader_epoch=9,
        now_ms=NOW,
        partition="t-0",
        origin=origin,
    )


def in_pieces(
    data: bytes | bytearray,
    settings: ValidationSettings,
    *,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    **of: Any,
) -> Validated:
    """Do what `validate` does, with pauses, and knowing where the log ends only when they are over."""
    looked = finish(look(data, settings, leader_epoch=leader_epoch, now_ms=now_ms, **of))
    return place(looked, next_offset=next_offset, leader_epoch=leader_epoch, now_ms=now_ms)


WAYS = pytest.mark.parametrize("way", [validate, in_pieces], ids=["at once", "in pieces"])
Way = Callable[..., Validated]


def settings_of(case: dict[str, Any], **others: Any) -> ValidationSettings:
    codec = "uncompressed" if case["toCodec"] == "none" else case["toCodec"]
    return ValidationSettings(
        message_format=case["toMagic"],
        compression_type=codec,
        timestamp_type=TIMESTAMP_TYPES[case["topicTimestampType"]],
        **others,
    )


@WAYS
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_stores_what_kafka_stores(case: dict[str, Any], writable: bool, way: Way) -> None:
    sent = bytes.fromhex(case["input"])
    done = way(
        bytearray(sent) if writable else sent,
        settings_of(case),
        next_offset=case["firstOffset"],
        leader_epoch=9,
        now_ms=case["now"],
        partition="t-0",
    )
    stored = b"".join(done.chunks)
    assert (done.first_offset, done.last_offset + 1) == (case["firstOffset"], case["nextOffset"])
    assert done.max_timestamp == case["maxTimestampMs"]
    assert done.append_time == (case["now"] if case["topicTimestampType"] == "LogAppendTime" else -1)
    assert done.in_place == case["inPlace"]
    assert done.size_bytes == len(stored)
    if case["inPlace"] or case["toCodec"] == "none":
        assert stored.hex() == case["hex"]
    # Codecs of other libraries give other bytes: then meaning counts.
    mine, theirs = list(batches(stored, strict=True)), list(batches(bytes.fromhex(case["hex"]), strict=True))
    for batch, wanted, shown in zip(mine, theirs, case["batches"], strict=True):
        names = header_of(shown).keys() - {"size_bytes", "crc"}
        assert header_in(batch, names) == header_in(wanted, names)
        assert list(batch.records(check_crc=True)) == records_of(shown)


REFUSE = goldens.records("refuse")
# Kafka lists every message within; here the wrapper as a whole is what is wrong.
NOT_LISTED = {"v0 within v1"}


def validate_case(case: dict[str, Any], way: Way = validate, **others: Any) -> Validated:
    """Run a case of the `refuse` file."""
    return way(
        bytes.fromhex(case["input"]),
        settings_of(
            case,
            timestamp_before_max_ms=case["beforeMaxMs"],
            timestamp_after_max_ms=case["afterMaxMs"],
            compacted=case["compacted"],
            max_message_bytes=case["maxMessageBytes"],
            **others,
        ),
        next_offset=case["firstOffset"],
        leader_epoch=case["leaderEpoch"],
        now_ms=case["now"],
        origin={"CLIENT": CLIENT, "COORDINATOR": COORDINATOR}[case["origin"]],
        partition="t-0",
    )


@WAYS
@pytest.mark.parametrize("case", [case for case in REFUSE if case["errorCode"]], ids=lambda case: case["id"])
def test_refuses_what_kafka_refuses(case: dict[str, Any], way: Way) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_case(case, way)
    assert refused.value.code == case["errorCode"]
    if case["recordErrors"] and case["id"] not in NOT_LISTED:
        assert isinstance(refused.value, RecordsRejected)
        assert [list(error) for error in refused.value.record_errors] == case["recordErrors"]
        assert refused.value.message == case["message"]
    else:
        assert not isinstance(refused.value, RecordsRejected)


@pytest.mark.parametrize("case", [case for case in REFUSE if not case["errorCode"]], ids=lambda case: case["id"])
def test_accepts_what_kafka_accepts(case: dict[str, Any]) -> None:
    done = validate_case(case)
    stored = b"".join(done.chunks)
    assert done.max_timestamp == case["maxTimestampMs"]
    assert done.last_offset + 1 == case["nextOffset"]
    if not stored:
        assert case["hex"] == ""
        assert done.first_offset == -1
        return
    assert done.in_place == case["inPlace"]
    mine, theirs = list(batches(stored, strict=True)), list(batches(bytes.fromhex(case["hex"]), strict=True))
    for batch, wanted in zip(mine, theirs, strict=True):
        assert batch.crc_is_valid()
        assert (batch.last_offset, batch.codec) == (wanted.last_offset, wanted.codec)
        assert list(batch.records()) == list(wanted.records())
    if done.in_place or not theirs[0].codec:
        assert stored.hex() == case["hex"]


COUNTS = (1, 2, 10, 16, 17, 20, 100, 1000)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("off_by", [-1, 1, 2**31 - 1001])
def test_a_header_that_contradicts_its_records_is_refused_whatever_their_number(
    count: int, off_by: int, codec: int
) -> None:
    sent = bytearray(build_batch(2, [Record(b"k", b"v", (), NOW + each) for each in range(count)], codec=codec))
    sent[23:27] = (count + off_by - 1).to_bytes(4, "big", signed=True)  # last offset delta
    sent[57:61] = (count + off_by).to_bytes(4, "big")
    seal(sent)
    before = bytes(sent)
    with pytest.raises(KafkaError) as refused:
        run(sent)
    assert refused.value.code == Error.INVALID_RECORD
    assert sent == before


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("claimed_ms", [5, -1, NOW + 10**6, NOW - 10**9])
def test_the_largest_time_is_that_of_the_records_whatever_the_header_says(
    count: int, claimed_ms: int, codec: int
) -> None:
    sent = bytearray(build_batch(2, [Record(b"k", b"v", (), NOW + each) for each in range(count)], codec=codec))
    sent[35:43] = claimed_ms.to_bytes(8, "big", signed=True)
    seal(sent)
    (batch,) = batches(b"".join(run(sent).chunks))
    assert batch.max_timestamp == NOW + count - 1
    batch.check_crc()


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
@pytest.mark.parametrize("is_before", [True, False])
def test_times_beyond_64_bits_are_refused_whatever_times_a_topic_takes(
    is_before: bool, timestamp_type: int, count: int, codec: int
) -> None:
    settings = ValidationSettings(
        timestamp_type=timestamp_type, timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1
    )
    records = [Record(b"k", b"v", (), NOW + (-10 if is_before else 10) * (each == count)) for each in range(count + 1)]
    for beyond in (0, 1):
        sent = bytearray(build_batch(2, records, codec=codec))
        first = -(2**63) + 10 - beyond if is_before else 2**63 - 11 + beyond
        sent[27:35] = first.to_bytes(8, "big", signed=True)
        seal(sent)
        if not beyond and (timestamp_type == APPEND_TIME or not is_before):
            assert run(sent, settings).last_offset == 1000 + count
            continue
        with pytest.raises(KafkaError) as refused:
            run(sent, settings)
        assert refused.value.code == (Error.INVALID_RECORD if beyond else Error.INVALID_TIMESTAMP)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("claimed", [2**31 - 1, 2**31 - 2, 10**6])
def test_what_a_header_claims_makes_no_room(claimed: int, codec: int) -> None:
    sent = bytearray(build_batch(2, [Record(b"k", b"v", (), NOW)] * 20, codec=codec))
    sent[23:27] = (claimed - 1).to_bytes(4, "big")
    sent[57:61] = claimed.to_bytes(4, "big")
    seal(sent)
    with contextlib.suppress(KafkaError):
        run(bytearray(sent))  # the codec's package is imported by now
    tracemalloc.start()
    with pytest.raises(KafkaError) as refused:
        run(sent)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.code == Error.INVALID_RECORD
    assert peak_bytes < 200_000


@pytest.mark.parametrize("count", COUNTS)
def test_offsets_that_do_not_follow_each_other_are_refused_in_a_compressed_batch(count: int) -> None:
    records = [Record(b"k", b"v", (), NOW, offset) for offset in (*range(count - 1), count)]
    for codec, code in ((NONE, None), (GZIP, Error.UNKNOWN_SERVER_ERROR)):
        sent = bytearray(build_batch(2, records, codec=codec, base_offset=0))
        sent[23:27] = (count - 1).to_bytes(4, "big")
        seal(sent)
        if code is None:
            assert run(sent).last_offset == 1000 + count - 1  # Kafka looks at the deltas only when it unpacks
            continue
        with pytest.raises(KafkaError) as refused:
            run(sent)
        assert refused.value.code == code


def test_a_late_record_in_a_large_batch_is_found_by_the_header() -> None:
    records = [Record(b"k", b"v", (), NOW + (index == 70) * 3_600_001, index) for index in range(100)]
    with pytest.raises(RecordsRejected) as refused:
        run(build_batch(2, records))
    assert refused.value.code == Error.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [70]


def test_a_null_key_in_a_large_batch_for_a_compacted_topic_is_found() -> None:
    records = [Record(None if index in (3, 300) else b"k", b"v", (), NOW, index) for index in range(1000)]
    for codec in (NONE, ZSTD):
        with pytest.raises(RecordsRejected) as refused:
            run(build_batch(2, records, codec=codec), ValidationSettings(compacted=True))
        assert [index for index, _ in refused.value.record_errors] == [3, 300]


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_cannot_be_written_to_is_left_alone(magic: int, timestamp_type: int) -> None:
    sent = build_batch(magic, RECORDS)
    before = bytes(bytearray(sent))
    done = run(sent, ValidationSettings(message_format=magic, timestamp_type=timestamp_type))
    assert done.in_place
    assert sent == before
    assert b"".join(done.chunks)[:8] == (1000).to_bytes(8, "big")


def test_bytes_that_can_be_written_to_are_changed_where_they_are() -> None:
    sent = bytearray(build_batch(2, RECORDS, codec=GZIP))
    done = run(sent, ValidationSettings(timestamp_type=APPEND_TIME))
    assert b"".join(done.chunks) == sent
    (batch,) = batches(sent)
    batch.check_crc()
    assert (batch.base_offset, batch.max_timestamp, done.append_time) == (1000, NOW, NOW)


def test_refused_bytes_stay_as_they_were() -> None:
    sent = bytearray(build_batch(1, [Record(b"k", b"v"), Record(None, b"v")]))
    before = bytes(sent)
    with pytest.raises(RecordsRejected):
        run(sent, ValidationSettings(message_format=1, compacted=True))
    assert sent == before


def test_batches_tell_indexes_and_producer_state_what_they_need() -> None:
    sent = build_batch(2, RECORDS, producer_id=7, producer_epoch=3, base_sequence=2**31 - 2, transactional=True)
    (batch,) = run(sent).batches
    assert (batch.first_offset, batch.last_offset, batch.size_bytes) == (1000, 1002, len(sent))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (7, 3, 2**31 - 2, 0)
    assert (batch.is_transactional, batch.is_control, batch.leader_epoch) == (True, False, 9)


@pytest.mark.parametrize("writable", [False, True])
def test_a_marker_keeps_its_record_for_the_producer_state(writable: bool) -> None:
    sent = build_transaction_marker(
        commit=True, offset=0, timestamp=NOW, producer_id=7, producer_epoch=3, coordinator_epoch=5
    )
    (batch,) = run(bytearray(sent) if writable else sent, origin=COORDINATOR).batches
    assert batch.control
    assert (control_type(batch.control), batch.control.offset) == (COMMIT, 1000)
    assert batch.control.value == bytes.fromhex("0000 00000005")


def test_several_old_messages_are_batches_of_their_own() -> None:
    done = run(build_batch(1, RECORDS), ValidationSettings(message_format=1))
    assert [(batch.first_offset, batch.last_offset) for batch in done.batches] == [
        (1000 + i, 1000 + i) for i in (0, 1, 2)
    ]
    assert (done.max_timestamp, done.max_timestamp_offset) == (NOW, 1001)


def test_a_raft_leader_has_set_the_epoch_itself() -> None:
    sent = build_batch(2, RECORDS, partition_leader_epoch=8)
    with pytest.raises(KafkaError, match="epoch 8 != 9"):
        run(sent, origin=RAFT_LEADER)
    assert run(build_batch(2, RECORDS, partition_leader_epoch=9), origin=RAFT_LEADER).last_offset == 1002


def test_a_follower_takes_what_its_leader_has_appended() -> None:
    sent = build_batch(2, RECORDS, base_offset=40) + build_batch(1, [Record(b"k", b"v", (), NOW + 5, 50)], codec=GZIP)
    done = validate_replicated(sent + sent[:30])
    assert b"".join(done.chunks) == sent
    assert [(batch.first_offset, batch.last_offset) for batch in done.batches] == [(40, 42), (50, 50)]
    assert (done.first_offset, done.last_offset) == (40, 50)
    assert (done.max_timestamp, done.max_timestamp_offset) == (NOW + 5, 50)
    with pytest.raises(KafkaError) as refused:
        validate_replicated(sent + sent)
    assert refused.value.code == Error.UNKNOWN_SERVER_ERROR
    assert validate_replicated(b"").chunks == []


def test_a_follower_takes_what_comes_before_a_damaged_batch() -> None:
    good = build_batch(2, RECORDS, base_offset=40)
    for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:8] + bytes(4) + good[12:], good[:16] + b"\x09" + good[17:]):
        done = validate_replicated(good + bad + good)
        assert (b"".join(done.chunks), done.last_offset) == (good, 42)
        with pytest.raises(KafkaError) as refused:
            validate_replicated(bad + good)
        assert refused.value.code == Error.CORRUPT_MESSAGE


def test_a_batch_that_unpacks_to_too_much_is_too_large() -> None:
    sent = build_batch(2, [Record(b"k", bytes(DECOMPRESSED_BYTES_MAX), (), NOW)], codec=ZSTD)
    for settings in (ValidationSettings(), ValidationSettings(compression_type="uncompressed")):
        with pytest.raises(KafkaError) as refused:
            run(sent, settings)
        assert refused.value.code == Error.MESSAGE_TOO_LARGE


@WAYS
@pytest.mark.parametrize(("magic", "size_bytes"), [(0, 515), (1, 523), (2, 508)])
def test_a_record_may_unpack_to_as_much_as_its_topic_says_and_no_more(magic: int, size_bytes: int, way: Way) -> None:
    small = Record(b"k", b"", (), NOW if magic else -1)
    sent = build_batch(magic, [small, small._replace(value=bytes(500)), small], codec=GZIP)
    for size_bytes_max in (size_bytes, size_bytes - 1):
        settings = ValidationSettings(max_decompressed_message_bytes=size_bytes_max)
        taken = partial(
            way, bytearray(sent), settings, next_offset=0, leader_epoch=0, now_ms=NOW, partition="t-0", origin=CLIENT
        )
        if size_bytes_max == size_bytes:
            taken()
            continue
        with pytest.raises(KafkaError) as refused:
            taken()
        assert "max.decompressed.message.bytes" in str(refused.value)


def old_records(magic: int, **last: Any) -> bytes:
    """Return a small batch of many records, the last of them another."""
    records = [Record(b"k", bytes(100), (), NOW if magic else -1, index) for index in range(2_000)]
    records[-1] = records[-1]._replace(**last)
    return build_batch(magic, records, codec=GZIP)


@WAYS
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_written_anew_that_is_too_large_is_told_with_all_its_bytes(magic: int, way: Way) -> None:
    sent = old_records(magic)
    built_bytes = sum(map(len, run(sent, ValidationSettings(compression_type=UNCOMPRESSED)).chunks))
    assert built_bytes > 10 * len(sent)
    for limit_bytes in (len(sent), built_bytes - 1):
        settings = ValidationSettings(compression_type=UNCOMPRESSED, max_message_bytes=limit_bytes)
        with pytest.raises(KafkaError, match=f"a batch of {built_bytes} bytes; {limit_bytes} ") as refused:
            way(sent, settings, next_offset=0, leader_epoch=0, now_ms=NOW, partition="t-0")
        assert refused.value.code == Error.MESSAGE_TOO_LARGE


@WAYS
@pytest.mark.parametrize(
    "magic, last, code",
    [
        *[(magic, {"key": None}, Error.INVALID_RECORD) for magic in (0, 1, 2)],
        *[(magic, {"timestamp": NOW + 10**8}, Error.INVALID_TIMESTAMP) for magic in (1, 2)],
        *[(magic, {"timestamp": -2}, Error.UNKNOWN_SERVER_ERROR) for magic in (1, 2)],
    ],
)
def test_what_is_wrong_with_records_is_told_before_their_size(
    magic: int, last: dict[str, Any], code: Error, way: Way
) -> None:
    sent = old_records(magic, **last)
    settings = ValidationSettings(compression_type=UNCOMPRESSED, compacted=True, max_message_bytes=len(sent))
    with pytest.raises(KafkaError) as refused:
        way(sent, settings, next_offset=0, leader_epoch=0, now_ms=NOW, partition="t-0")
    assert refused.value.code == code
    if isinstance(refused.value, RecordsRejected):
        assert [index for index, _ in refused.value.record_errors] == [1_999]


def test_of_what_is_too_large_no_more_is_kept() -> None:
    record = Record(b"k", bytes(1 << 20), (), NOW)
    builder = BatchBuilder(2, base_offset=0)
    finish(builder.add([record]))
    tracemalloc.start()
    builder.drop()
    for _ in range(9):
        finish(builder.add([record]))
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept_bytes < 100_000
    assert HEADER_BYTES + builder.size_bytes == len(build_batch(2, [record] * 10, base_offset=0))


# Properties

records_sent = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
        timestamp=st.just(-1) | st.integers(NOW - 10**6, NOW + 10**6),
    ),
    min_size=1,
    max_size=40,
)


@given(
    records=records_sent,
    codecs=st.tuples(st.integers(0, 4), st.sampled_from([PRODUCER, UNCOMPRESSED, "gzip", "snappy", "lz4", "zstd"])),
    timestamp_type=st.sampled_from([CREATE_TIME, APPEND_TIME]),
    next_offset=st.integers(0, 2**62),
    writable=st.booleans(),
)
def test_what_is_stored_is_what_was_sent_with_offsets(
    records: list[Record],
    codecs: tuple[int, str],
    timestamp_type: int,
    next_offset: int,
    writable: bool,
) -> None:
    sent = build_batch(2, records, codec=codecs[0])
    settings = ValidationSettings(compression_type=codecs[1], timestamp_type=timestamp_type)
    data = bytearray(sent) if writable else sent
    done = validate(data, settings, next_offset=next_offset, leader_epoch=9, now_ms=NOW, partition="t-0")
    (batch,) = batches(b"".join(done.chunks), strict=True)
    times = [NOW if timestamp_type == APPEND_TIME else record.timestamp for record in records]
    assert list(batch.records(check_crc=True)) == [
        record._replace(timestamp=time, offset=next_offset + index)
        for index, (record, time) in enumerate(zip(records, times))
    ]
    assert batch.max_timestamp == max(times) == done.max_timestamp
    assert (batch.partition_leader_epoch, done.last_offset) == (9, next_offset + len(records) - 1)


@given(data=st.binary(max_size=200), magic=st.sampled_from([0, 1, 2]), cut=st.integers(0, 300))
def test_any_bytes_are_accepted_or_refused_with_an_error_code(data: bytes, magic: int, cut: int) -> None:
    sent = bytearray(build_batch(magic, RECORDS, codec=GZIP)[:cut] + data)
    if len(sent) > HEADER_BYTES and sent[16] == 2:
        sent[8:12] = (len(sent) - 12).to_bytes(4, "big")
        seal(sent)
    for settings in (
        ValidationSettings(),
        ValidationSettings(message_format=1, compression_type="lz4", compacted=True),
    ):
        with contextlib.suppress(KafkaError):
            run(bytes(sent), settings)
