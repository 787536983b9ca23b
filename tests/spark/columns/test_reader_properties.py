"""Columns are what reading record by record gives: on random batches of all kinds, and on broken ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.records import Record
from tests import goldens
from tests.spark.columns.cases import both_ways, one_by_one

LIMIT_BYTES = 1 << 20
GOLDEN = [
    data for data in (bytes.fromhex(case["hex"]) for case in goldens.records("records")) if len(data) < 700
]  # small ones, so that a change hits something

some_bytes = st.none() | st.binary(max_size=40) | st.just(b"long" * 300) | st.just(bytes(9000))
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
timestamps = st.just(-1) | st.integers(0, 1 << 45)
records = st.builds(Record, some_bytes, some_bytes, headers, timestamps)
lists = st.lists(records, min_size=1, max_size=20)
formats = st.sampled_from(
    [(magic, codec) for magic in (0, 1, 2) for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD) if codec != ZSTD or magic == 2]
)
PRODUCERS = (7, 8)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Batches of all kinds, one after another, offsets rising and with gaps."""
    data, offset = b"", draw(st.sampled_from([0, 1, 1000, 1 << 60]))
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 4)) == 0:
            producer, commit = draw(st.sampled_from(PRODUCERS)), draw(st.booleans())
            data += build_transaction_marker(
                commit=commit, offset=offset, timestamp=5, producer_id=producer, producer_epoch=0, coordinator_epoch=1
            )
            offset += 1
            continue
        magic, codec = draw(formats)
        rows = []
        for record in draw(lists):
            rows.append(record._replace(offset=offset))
            offset += 1 + draw(st.sampled_from([0, 0, 0, 1, 200]))
        options: dict[str, Any] = {}
        if magic and draw(st.integers(0, 3)) == 0:
            options = {"timestamp_type": APPEND_TIME, "max_timestamp": draw(st.integers(0, 1 << 41))}
        if magic == 2:
            producer = draw(st.sampled_from([-1, *PRODUCERS]))
            options |= {
                "producer_id": producer,
                "transactional": producer >= 0 and draw(st.booleans()),
                "partition_leader_epoch": draw(st.integers(-1, 9)),
                "delete_horizon": draw(st.sampled_from([None, 77])),
            }
        data += build_batch(magic, rows, codec=codec, **options)
    return data


ranges = st.none() | st.integers(0, 1100)
aborted_lists = st.just([]) | st.lists(st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 1100)), max_size=4)
group_sizes = st.sampled_from([1, 100, 5000, 1 << 20])


@pytest.mark.slow
@settings(derandomize=True, max_examples=80, deadline=None)
@given(chunks(), aborted_lists, group_sizes, st.booleans(), st.integers(0, 60), st.booleans())
def test_columns_are_the_records(
    chunk: bytes, aborted: list[tuple[int, int]], group_bytes: int, control: bool, cut: int, strict: bool
) -> None:
    chunk = chunk[: len(chunk) - cut]
    options: dict[str, Any] = {"aborted": aborted, "control": control, "strict": strict}
    assert both_ways(chunk, group_bytes=group_bytes, **options) == one_by_one(chunk, **options)


@pytest.mark.slow
@settings(derandomize=True, max_examples=80, deadline=None)
@given(chunks(), st.integers(0, 1100), ranges, st.none() | timestamps, st.none() | timestamps)
def test_ranges_are_kept(
    chunk: bytes, first_offset: int, end_offset: int | None, oldest: int | None, newest: int | None
) -> None:
    options: dict[str, Any] = {
        "first_offset": first_offset,
        "end_offset": end_offset,
        "first_timestamp": oldest,
        "end_timestamp": newest,
    }
    assert both_ways(chunk, **options) == one_by_one(chunk, **options)


changes = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), min_size=1, max_size=4)


def changed(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    broken = bytearray(data)
    for position, byte in changes:
        broken[position % len(broken)] = byte
    return bytes(broken)


def same(data: bytes, aborted: list[tuple[int, int]]) -> None:
    for check_crc in (False, True):
        options: dict[str, Any] = {"check_crc": check_crc, "limit_bytes": LIMIT_BYTES, "aborted": aborted}
        assert both_ways(data, **options) == one_by_one(data, **options)


@pytest.mark.slow
@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(GOLDEN), min_size=1, max_size=3).map(b"".join), changes, aborted_lists)
def test_changed_bytes_are_read_alike_or_refused_alike(
    data: bytes, at: list[tuple[int, int]], aborted: list[tuple[int, int]]
) -> None:
    same(changed(data, at), aborted)


@pytest.mark.slow
@settings(derandomize=True, max_examples=80, deadline=None)
@given(lists, st.sampled_from([0, 1, 2]), changes)
def test_changed_records_are_read_alike_or_refused_alike(
    records: list[Record], magic: int, at: list[tuple[int, int]]
) -> None:
    inner = changed(build_batch(magic, records), at)
    same(inner, [])
    if magic < 2:
        # The same message set, but within a wrapper.
        wrapper = bytearray(build_batch(magic, [Record(None, compress(SNAPPY, inner))]))
        wrapper[17] |= SNAPPY
        same(bytes(wrapper), [])
    else:
        same(packed(inner), [])


def packed(batch: bytes) -> bytes:
    """Return a v2 batch with its records compressed, whatever they are; the checksum is left as it was."""
    made = bytearray(batch[:61] + compress(ZSTD, batch[61:]))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[16] = 2
    made[22] |= ZSTD
    return bytes(made)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.binary(max_size=200))
@example(bytes(61))
@example(bytes(17))
@example(b"")
def test_random_bytes_are_read_alike_or_refused_alike(data: bytes) -> None:
    same(data, [])


@pytest.mark.slow
@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.binary(min_size=1, max_size=120), st.integers(-1, 30), st.sampled_from([CREATE_TIME, APPEND_TIME]))
def test_random_records_are_read_alike_or_refused_alike(data: bytes, count: int, timestamp_type: int) -> None:
    batch = bytearray(build_batch(2, [], timestamp_type=timestamp_type, max_timestamp=(1 << 63) - 1) + data)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    same(bytes(batch), [])
    same(packed(bytes(batch)), [])
