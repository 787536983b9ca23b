"""The sizes that articles about the formats print, and codecs on records in each of them."""

from __future__ import annotations

import itertools

import pytest

from minibroker.log.compression import GZIP, LZ4, NONE, ZSTD
from minibroker.log.records import Record
from minibroker.tools.codec_sizes import ALL, FEW, in_batches, measured
from minibroker.tools.format_sizes import format_sizes, smaller_from

ARTICLES = [  # records, and what they take as v0, v1 and v2
    ([Record(b"key", b"value")], [34, 42, 76]),
    ([Record(None, b"value")], [31, 39, 73]),
    ([Record(None, b"value%d" % number) for number in range(10)], [320, 400, 191]),
    ([Record(None, b"x" * 16384)], [16410, 16418, 16456]),  # an article adds the last one up to 17,086
]


@pytest.mark.parametrize(("records", "sizes"), ARTICLES)
def test_records_have_the_sizes_that_articles_print(records: list[Record], sizes: list[int]) -> None:
    assert [each.size_bytes for each in format_sizes(records)] == sizes


def test_what_stands_around_the_data_is_told() -> None:
    v0, v1, v2 = format_sizes([Record(b"key", b"value", (("h", b"1"),))] * 2)
    assert (v0.around_bytes, v1.around_bytes) == (2 * 26 - 4, 2 * 34 - 4)  # they have no headers
    assert (v0.batch_bytes, v2.batch_bytes, v2.data_bytes) == (0, 61, 20)
    assert v1.to_dict() == {"format": 1, "bytes": 84, "records": 2, "data_bytes": 20, "around_bytes": 64}


def test_v2_is_smaller_from_a_few_records_on() -> None:
    record = Record(None, b"value0")
    assert (smaller_from(record, 0), smaller_from(record, 1)) == (4, 3)
    sizes = [each.size_bytes for each in format_sizes([record] * 4)]
    assert sizes[2] < sizes[0]
    assert smaller_from(Record(None, b"", (("h" * 30, None),)), 0) is None  # v0 leaves headers out


def test_older_formats_have_no_zstd() -> None:
    assert [each.magic for each in format_sizes([Record(None, b"a")], ZSTD)] == [2]
    assert [each.magic for each in format_sizes([Record(None, b"a")], GZIP)] == [0, 1, 2]


def test_batches_are_as_large_as_they_may_be_and_count_from_0() -> None:
    cut = in_batches([Record(None, b"x" * 93)] * 25, 1000)
    assert [len(batch) for batch in cut] == [10, 10, 5]
    assert [record.offset for record in cut[1]] == list(range(10))
    assert [len(batch) for batch in in_batches([Record(None, b"x" * 5000)] * 2, 1000)] == [1, 1]


def test_each_codec_is_measured_in_each_format() -> None:
    records = [Record(b"key%d" % (number % 7), b"a value that is much like others" * 3) for number in range(60)]
    ticks, told = itertools.count(), []
    rows = list(
        measured(
            records,
            batch_bytes=2048,
            settings=[(NONE, None), (GZIP, 6), (ZSTD, 3)],
            cpu_ms=lambda: float(next(ticks)),
            tell=lambda count, size_bytes: told.append(count),
        )
    )
    plain, gzip, zstd = rows
    assert [row.name for row in rows] == ["none", "gzip:6", "zstd:3"]
    assert (list(plain.formats), list(zstd.formats)) == ([0, 1, 2], [2])
    assert plain.formats[0].ratio < plain.formats[2].ratio < 1 < gzip.formats[2].ratio
    assert plain.formats[1].size_bytes == len(records) * 34 + sum(
        len(r.key or b"") + len(r.value or b"") for r in records
    )
    assert gzip.pack_ms > 0 < gzip.formats[0].append_ms
    assert sum(told) == len(records) * 7
    assert gzip.to_dict()["formats"]["v2"]["bytes"] == gzip.formats[2].size_bytes


def test_all_levels_are_there() -> None:
    assert {*FEW} <= {*ALL}
    assert len(ALL) == 50
    assert (LZ4, 17) in ALL
