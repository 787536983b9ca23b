"""Batches out of columns are those that are built of single records, byte by byte."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.errors import EncodeError, ProtocolError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.formats import APPEND_TIME
from minibroker.log.records import Record
from minibroker.spark.columns import building as column_building
from minibroker.spark.columns.building import BuiltBatch, RowColumns, Section, build_batches
from minibroker.spark.columns.reader import HEADERS, ColumnReader
from tests.spark.columns.cases import rows_of

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
# Sizes around those where one more byte is needed for them.
some_bytes = (
    st.none()
    | st.binary(max_size=40)
    | st.sampled_from([62, 63, 64, 65, 8190, 8191, 8192]).map(bytes)
    | st.just(b"long" * 6000)
)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
timestamps = (
    st.integers(0, 70) | st.integers(-3, 1 << 21) | st.integers(-1, 1 << 45) | st.sampled_from([-(1 << 61), 1 << 61])
)
records = st.builds(Record, some_bytes, some_bytes, st.just(()) | headers, timestamps)
lists = st.lists(records, min_size=1, max_size=25) | st.tuples(records, st.integers(60, 300)).map(
    lambda pair: [pair[0]] * pair[1]
)
NEAR = [Record(b"k", b"v" * 50, (), 1000 + n) for n in range(70)]
FAR = [Record(None, b"", (), n << 55) for n in range(3)]


def columns(rows: list[Record]) -> RowColumns:
    return RowColumns(
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
        np.array([row.timestamp for row in rows], np.int64),
        pa.array([[{"key": key, "value": value} for key, value in row.headers] for row in rows], HEADERS),
    )


def one_by_one(rows: list[Record], made: list[BuiltBatch], base_offset: int, **told: Any) -> list[bytes]:
    """Return the same batches as they are built of single records."""
    found = []
    for batch in made:
        some = rows[batch.first_row : batch.first_row + batch.count]
        found.append(build_batch(2, some, base_offset=base_offset + batch.first_row, **told))
    return found


@pytest.mark.slow
@settings(derandomize=True, max_examples=80, deadline=None)
@given(lists, st.sampled_from(CODECS), st.sampled_from([100, 1000, 20_000, 1 << 20]), st.sampled_from([1, 7, 1 << 20]))
@example(NEAR, NONE, 1 << 20, 1 << 20)
@example(FAR, NONE, 1 << 20, 1 << 20)
@example([Record(b"", None, (("é", None), ("", b"")), -1)], ZSTD, 100, 1)
def test_batches_are_those_of_single_records(
    rows: list[Record], codec: int, batch_bytes: int, batch_records: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_building, "BATCH_RECORDS", batch_records)
        made = list(build_batches(columns(rows), [Section(len(rows), 1000, 3)], codec=codec, batch_bytes=batch_bytes))
    assert [bytes(batch.data) for batch in made] == one_by_one(rows, made, 1000, codec=codec, partition_leader_epoch=3)
    assert [batch.first_row for batch in made] == [sum(b.count for b in made[:n]) for n in range(len(made))]
    assert sum(batch.count for batch in made) == len(rows)
    for batch in made:
        (read,) = batches(bytes(batch.data))
        assert (read.base_offset, read.last_offset) == (batch.base_offset, batch.last_offset)
        assert (read.max_timestamp, read.size_bytes) == (batch.max_timestamp, batch.size_bytes)
        assert batch.count <= batch_records
        assert codec or batch.count == 1 or batch.size_bytes <= batch_bytes
    whole = b"".join(bytes(batch.data) for batch in made)
    read_back = [row for some in ColumnReader(whole, headers=True, origins=True) for row in rows_of(some)]
    assert [(row[0], row[1], row[3], row[4], row[5]) for row in read_back] == [
        (1000 + n, row.timestamp, row.key, row.value, list(row.headers)) for n, row in enumerate(rows)
    ]


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.lists(records, min_size=2, max_size=40), st.integers(0, 30), st.integers(1, 40))
def test_slices_are_taken_where_they_lie(rows: list[Record], begin: int, count: int) -> None:
    begin %= len(rows)
    whole, part = columns(rows), rows[begin : begin + count]
    assert whole.keys is not None
    assert whole.headers is not None
    sliced = RowColumns(
        whole.keys[begin : begin + count],
        whole.values[begin : begin + count],
        whole.timestamps[begin : begin + count],
        whole.headers[begin : begin + count],
    )
    made = list(build_batches(sliced, batch_bytes=3000))
    assert [bytes(batch.data) for batch in made] == one_by_one(part, made, 0)


def test_groups_of_batches_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Record(b"k%d" % n, b"v" * (n % 300), (), n * 7) for n in range(2000)]
    expected = [bytes(batch.data) for batch in build_batches(columns(rows), batch_bytes=4000)]
    monkeypatch.setattr(column_building, "GROUP_BYTES", 10_000)
    made = list(build_batches(columns(rows), batch_bytes=4000))
    assert [bytes(batch.data) for batch in made] == expected == one_by_one(rows, made, 0)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(records, min_size=1, max_size=40), st.randoms(use_true_random=False), st.sampled_from(CODECS))
def test_sections_are_what_each_would_be_alone(rows: list[Record], chance: Random, codec: int) -> None:
    order = [chance.randrange(len(rows)) for _ in range(chance.randrange(60))]
    borders = [0, *sorted(chance.randrange(len(order) + 1) for _ in range(3)), len(order)]
    sections = [Section(end - begin, 1000 * number, number) for number, (begin, end) in enumerate(pairwise(borders))]
    whole = columns(rows)
    some = RowColumns(whole.keys, whole.values, whole.timestamps, whole.headers, order=np.array(order, np.int64))
    made = list(build_batches(some, sections, codec=codec, batch_bytes=2000))
    left = iter(made)
    for number, (begin, end) in enumerate(pairwise(borders)):
        while begin < end:
            batch = next(left)
            taken = [rows[index] for index in order[begin : begin + batch.count]]
            start = 1000 * number + begin - borders[number]
            told = {"codec": codec, "base_offset": start, "partition_leader_epoch": number}
            assert bytes(batch.data) == build_batch(2, taken, **told)
            assert batch.first_row == begin
            begin += batch.count
        assert begin == end
    assert next(left, None) is None


def test_batches_are_filled_as_far_as_they_can_be() -> None:
    rows = [Record(b"key%05d" % n, b"v" * 200, (), 1_600_000_000_000 + n) for n in range(10_000)]
    sizes = [batch.size_bytes for batch in build_batches(columns(rows), batch_bytes=16384)]
    assert all(16384 * 0.96 < size <= 16384 for size in sizes[:-1])


def test_producers_number_their_records_and_begin_anew_behind_the_largest_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(column_building, "BATCH_RECORDS", 4)
    rows = [Record(b"k", b"v", (), n) for n in range(14)]
    told: dict[str, Any] = {"producer_id": 7, "producer_epoch": 2, "transactional": True}
    sections = [Section(4, base_sequence=60), Section(10, base_sequence=0x7FFFFFFF - 5)]
    made = list(build_batches(columns(rows), sections, is_sent=True, **told))
    assert [bytes(batch.data) for batch in made] == [
        build_batch(2, rows[start:end], base_sequence=sequence, **told)
        for start, end, sequence in ((0, 4, 60), (4, 8, 0x7FFFFFFA), (8, 12, 0x7FFFFFFE), (12, 14, 2))
    ]


def test_time_of_the_append_is_that_of_all_records() -> None:
    rows = [Record(b"k", b"v", (), n) for n in range(10)]
    (made,) = build_batches(columns(rows), timestamp_type=APPEND_TIME, append_time=99)
    assert bytes(made.data) == build_batch(2, rows, timestamp_type=APPEND_TIME, max_timestamp=99)
    assert made.max_timestamp == 99


def test_columns_may_be_missing_or_of_other_types() -> None:
    times = np.arange(3)
    (made,) = build_batches(RowColumns(None, pa.array(["a", None, "é"]), times))
    assert bytes(made.data) == build_batch(
        2, [Record(None, b"a", (), 0), Record(None, None, (), 1), Record(None, "é".encode(), (), 2)]
    )
    keys = pa.array([b"x", b"y", None], pa.large_binary())
    (made,) = build_batches(RowColumns(keys, pa.nulls(3, pa.binary()), times, pa.nulls(3, HEADERS)))
    assert bytes(made.data) == build_batch(2, [Record(key, None, (), n) for n, key in enumerate((b"x", b"y", None))])
    assert list(build_batches(RowColumns(None, pa.array([], pa.binary()), times[:0]))) == []


def test_what_no_batch_can_hold_is_refused() -> None:
    value, times = pa.array([b"v", b"w"]), np.arange(2)
    with pytest.raises(EncodeError, match="too far apart"):
        list(build_batches(RowColumns(None, value, np.array([-(1 << 62), 1 << 62]))))
    with pytest.raises(EncodeError, match="not of the same length"):
        list(build_batches(RowColumns(None, value, np.arange(3))))
    unnamed = pa.array([[{"key": None, "value": b"x"}], []], HEADERS)
    with pytest.raises(EncodeError, match="no key"):
        list(build_batches(RowColumns(None, value, times, unnamed)))
    with pytest.raises(ValueError, match="no compression levels"):
        list(build_batches(RowColumns(None, value, times), codec=SNAPPY, level=3))


def test_a_changed_batch_is_noticed() -> None:
    """Checksums are in their place: what is built here is read there with them."""
    (made,) = build_batches(columns(NEAR))
    data = bytearray(made.data)
    data[100] ^= 1
    with pytest.raises(ProtocolError, match="not the checksum"):
        list(ColumnReader(bytes(data)))
