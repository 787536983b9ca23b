"""The scan of a v2 batch, beside an oracle that reads one field after the other and knows no shortcuts."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import minibroker.log.scan
from minibroker.errors import InvalidRecord, InvalidRecordCount, ProtocolError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.plain_records import UNIT_RECORDS_MAX, find_plain
from minibroker.log.records import Record
from minibroker.log.scan import PAGE, RUN_RECORDS_MIN, find_run, scan
from tests.log.record_oracle import read

# How many bytes each of the two looks at where a million records have the wrong order.
READS_MAX = {find_run: 1000, find_plain: 7 * UNIT_RECORDS_MAX + 7}


@pytest.fixture(autouse=True, params=[find_run, find_plain], ids=["columns", "loop"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds plain records in Python, and what does where it is compiled: they say the same."""
    monkeypatch.setattr(minibroker.log.scan, "find_unit", request.param)


def expected(data: bytes, count: int) -> tuple[int, int, bool, bool] | None:
    found = read(data, count)
    if found is None:
        return None
    in_order = found.offsets == list(range(count))
    return min(found.times, default=0), max(found.times, default=0), any(found.keyless), in_order


def agrees(data: bytes, count: int) -> bool:
    """Compare the two; return whether the records are in order."""
    wanted = expected(data, count)
    try:
        found = scan(data, count)
    except (InvalidRecord, InvalidRecordCount):
        assert wanted is None
        return False
    assert found == wanted
    return True


def packed(records: list[Record]) -> bytes:
    return build_batch(2, records)[HEADER_BYTES:]


def alike(count: int, *, value_bytes: int = 20, step_ms: int = 1, headers: int = 0, key: bytes | None = b"k") -> bytes:
    more = tuple((f"h{each}", b"x" * each) for each in range(headers))
    return packed([Record(key, bytes(value_bytes), more, 1_000_000 + each * step_ms, each) for each in range(count)])


# Where a delta, a size or an offset begins to take a byte more, and batches of no runs at all.
COUNTS = (1, RUN_RECORDS_MIN - 1, RUN_RECORDS_MIN, 63, 64, 65, 129, 500)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("step_ms", [0, 1, -1, 100, -9000, 700_000])
@pytest.mark.parametrize("headers", [0, 2])
@pytest.mark.parametrize("value_bytes", [0, 50, 60, 9000])
def test_records_that_are_alike(count: int, step_ms: int, headers: int, value_bytes: int) -> None:
    data = alike(
        count, step_ms=step_ms, headers=headers, value_bytes=min(value_bytes, 100) if count > 64 else value_bytes
    )
    assert agrees(data, count)
    for wrong in (count - 1, count + 1, -count, 0):
        assert not agrees(data, wrong)


@pytest.mark.parametrize("count", [PAGE - 1, PAGE + 1, 2 * PAGE + 100])
def test_offsets_of_three_bytes(count: int) -> None:
    data = bytearray(alike(count, value_bytes=3))
    assert agrees(bytes(data), count)
    for at in (64 * 15 + 3, len(data) - 9):
        data[at] ^= 2
        agrees(bytes(data), count)


@pytest.mark.parametrize("key", [None, b"", b"k", bytes(200)])
def test_null_keys_are_seen_in_runs_and_between_them(key: bytes | None) -> None:
    for place in (0, 30, 63, 64, 99):
        records = [Record(key if each == place else b"k" * 5, b"v", (), 0, each) for each in range(100)]
        assert scan(packed(records), 100)[2] == (key is None)


@pytest.mark.outside
@pytest.mark.parametrize("count", [1, RUN_RECORDS_MIN + 2])
@pytest.mark.parametrize("headers", [(), (("h", b"x"),), (("h", None), ("", b""))])
def test_every_byte_of_a_record_may_be_any_other_in_one_of_them_and_in_all(
    headers: tuple[tuple[str, bytes | None], ...], count: int
) -> None:
    """In all of them: so it stays a run, in which one record stands for the others."""
    data = packed([Record(b"k", b"v", headers, 1_000_000, each) for each in range(count)])
    stride = len(data) // count
    for at in range(stride):
        for byte in range(256):
            one, every = bytearray(data), bytearray(data)
            one[at] = byte
            every[at::stride] = bytes([byte]) * count
            agrees(bytes(one), count)
            agrees(bytes(every), count)


@pytest.mark.parametrize("count", [1, RUN_RECORDS_MIN + 2])
def test_null_keys_of_headers_and_less_than_no_headers_are_refused(count: int) -> None:
    data = packed([Record(b"k", b"v", (("", b"x"),), 1_000_000, each) for each in range(count)])
    stride = len(data) // count
    null_key = bytearray(data)
    assert set(data[stride - 3 :: stride]) == {0}
    null_key[stride - 3 :: stride] = b"\1" * count
    assert agrees(data, count)
    assert not agrees(bytes(null_key), count)
    plain = bytearray(packed([Record(b"k", b"v", (), 1_000_000, each) for each in range(count)]))
    stride = len(plain) // count
    assert agrees(bytes(plain), count)
    plain[stride - 1 :: stride] = b"\1" * count
    assert not agrees(bytes(plain), count)


records_sent = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=3),
        value=st.none() | st.binary(max_size=3),
        headers=st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=1).map(tuple),
        timestamp=st.integers(0, 3) | st.integers(-(10**4), 10**7),
    ),
    min_size=1,
    max_size=6,
)


@given(
    records=records_sent,
    times=st.integers(1, 20),
    spoils=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4),
)
@example(records=[Record(b"k", b"v")], times=1, spoils=[(0, 17)])  # size -9 has the digits of 8
def test_any_change_of_any_record_is_seen_alike(
    records: list[Record], times: int, spoils: list[tuple[int, int]]
) -> None:
    count = len(records) * times
    sent = [record._replace(offset=-1) for record in records * times]
    data = bytearray(packed(sent))
    assert agrees(bytes(data), count)
    for at, byte in spoils:
        data[at % len(data)] = byte
        agrees(bytes(data), count)


@pytest.mark.parametrize("seed", range(30))
def test_runs_that_are_spoilt_anywhere(seed: int) -> None:
    chance = Random(seed)
    for _ in range(40):
        count = chance.choice((9, 70, 140))
        data = bytearray(alike(count, value_bytes=chance.choice((0, 5, 58)), step_ms=chance.choice((0, 1, 90, -3))))
        kind = chance.randrange(3)
        at = chance.randrange(len(data))
        if kind == 0:
            data[at] = chance.choice((0, 1, 2, 127, 128, 129, 255, data[at] ^ 1))
        elif kind == 1:
            del data[at : at + chance.randrange(1, 40)]
        else:
            data[at:at] = bytes(chance.choice((0, 2, 128, 255)) for _ in range(chance.randrange(1, 20)))
        agrees(bytes(data), count)


def test_what_the_reader_refuses_is_refused() -> None:
    """The reader of records is a third opinion: what it yields can be scanned."""
    for seed in range(200):
        chance = Random(seed)
        data = bytearray(build_batch(2, [Record(b"k", bytes(chance.randrange(4)), (), each) for each in range(20)]))
        data[chance.randrange(HEADER_BYTES, len(data))] = chance.randrange(256)
        (batch,) = batches(data)
        try:
            times = [record.timestamp - batch.base_timestamp for record in batch.records()]
        except ProtocolError:
            with pytest.raises(ProtocolError):
                scan(bytes(data[HEADER_BYTES:]), batch.count)
        else:
            assert scan(bytes(data[HEADER_BYTES:]), batch.count)[:2] == (min(times), max(times))


def test_counts_that_cannot_be_cost_nothing() -> None:
    data = alike(10)
    for count in (-1, -(2**31), 2**31 - 1, len(data), 2**31):
        with pytest.raises(InvalidRecordCount):
            scan(data, count)


@pytest.mark.outside
def test_what_is_kept_does_not_grow_with_the_number_of_records() -> None:
    peaks = []
    for count in (9_000, 12_000):
        for data in (alike(count), packed([Record(b"k" * (each % 7), b"v", (), each) for each in range(count)])):
            tracemalloc.start()
            scan(data, count)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert max(peaks) < 500_000, peaks  # a page of a run is looked at in one


def test_records_out_of_order_are_left_at_once_where_order_is_wanted() -> None:
    """Ten million empty records are a few KiB when compressed."""
    count = 1_000_000
    data = b"\x0c\x00\x00\x00\x01\x01\x00" * count
    assert scan(data[: 7 * 100], 100) == (0, 0, True, False)

    class Counted(bytes):
        reads = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            Counted.reads += 1
            return super().__getitem__(key)

    assert scan(Counted(data), count, in_order=True)[3] is False
    assert Counted.reads < READS_MAX[minibroker.log.scan.find_unit]


@pytest.mark.parametrize("field", range(6))
@pytest.mark.parametrize("size", range(1, 11))
@pytest.mark.parametrize("last", [0, 1, 0x0F, 0x10, 0x7F])
def test_numbers_of_any_length_are_taken_or_refused_alike(field: int, size: int, last: int) -> None:
    """A number of 32 bits has at most five bytes, of which the fifth has four bits; one of 64 bits has ten."""
    for high in (0x80, 0xFF):
        number = bytes([high] * (size - 1) + [last])
        fields = [b"\0", b"\0", b"\1", b"\1", b"\0"]  # times, offset, key, value, headers
        if field < 5:
            fields[field] = number
        body = b"\0" + b"".join(fields)
        length = bytes([2 * len(body)]) if field < 5 else number
        agrees(length + body, 1)
