"""What is built reads back, and broken bytes do no worse than a ProtocolError."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from minibroker.log.convert import convert
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.records import Record
from tests import goldens

LIMIT_BYTES = 1 << 20
GOLDEN = [
    data for data in (bytes.fromhex(case["hex"]) for case in goldens.records("records")) if len(data) < 500
]  # small ones, so that a change hits something

some_bytes = st.none() | st.binary(max_size=200) | st.just(b"long" * 300)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple)
timestamps = st.just(-1) | st.integers(0, 1 << 45)
rows = st.lists(st.builds(Record, some_bytes, some_bytes, headers, timestamps), min_size=1, max_size=20)
formats = st.sampled_from(
    [(magic, codec) for magic in (0, 1, 2) for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD) if codec != ZSTD or magic == 2]
)
int64s = st.integers(0, 1 << 62)


def as_in(magic: int, record: Record) -> Record:
    """Return what a format can carry of a record."""
    if magic == 2:
        return record
    return record._replace(headers=(), timestamp=record.timestamp if magic else -1)


@pytest.mark.outside
@settings(derandomize=True, max_examples=200, deadline=None)
@given(rows, formats, int64s, st.lists(st.integers(0, 1000), min_size=20, max_size=20))
def test_what_is_built_reads_back(
    records: list[Record], form: tuple[int, int], base_offset: int, gaps: list[int]
) -> None:
    magic, codec = form
    offset = base_offset
    for index, gap in enumerate(gaps[: len(records)]):
        records[index] = records[index]._replace(offset=offset)
        offset += 1 + gap
    built = build_batch(magic, records, codec=codec)
    found = list(batches(built, strict=True))
    read = [record for batch in found for record in batch.records(check_crc=True)]
    assert read == [as_in(magic, record) for record in records]
    assert found[0].base_offset == base_offset
    assert found[-1].last_offset == records[-1].offset
    assert sum(batch.count for batch in found) == len(records)


@pytest.mark.outside
@settings(derandomize=True, max_examples=200, deadline=None)
@given(rows, formats, st.sampled_from([0, 1, 2]), st.sampled_from([CREATE_TIME, APPEND_TIME]))
def test_every_format_converts_to_every_other(
    records: list[Record], form: tuple[int, int], to_magic: int, timestamp_type: int
) -> None:
    magic, codec = form
    if codec == ZSTD:
        to_magic = 2
    stamp = 42 if timestamp_type == APPEND_TIME else None
    built = build_batch(magic, records, codec=codec, timestamp_type=timestamp_type, max_timestamp=stamp)
    made = b"".join(convert(built, to_magic))
    read = [record for batch in batches(made, strict=True) for record in batch.records(check_crc=True)]
    expected = [as_in(to_magic, as_in(magic, record))._replace(offset=index) for index, record in enumerate(records)]
    if stamp is not None and magic:
        expected = [as_in(to_magic, record._replace(timestamp=stamp)) for record in expected]
    assert read == expected


def touch_everything(data: bytes | bytearray) -> None:
    """Read all there is; only a ProtocolError may come of it."""
    for strict in (False, True):
        try:
            for batch in batches(data, strict=strict):
                batch.crc_is_valid()
                for check_crc in (True, False):
                    try:
                        for record in batch.records(LIMIT_BYTES, check_crc=check_crc):
                            assert record.key is None or type(record.key) is bytes
                    except ProtocolError as error:
                        located(error, data)
                try:
                    assert batch.base_offset is not None
                    assert batch.count is not None
                except ProtocolError as error:
                    located(error, data)
                repr(batch)
        except ProtocolError as error:
            located(error, data)
    for to_magic in (0, 1, 2):
        for settings_ in ({}, {"base_offset": 7}, {"codec": GZIP}):
            try:
                for piece in convert(data, to_magic, limit_bytes=LIMIT_BYTES, **settings_):
                    assert len(piece) > 0
            except ProtocolError as error:
                located(error, data)


def located(error: ProtocolError, data: bytes | bytearray) -> None:
    """Every error says where, in these bytes or in what they unpack to."""
    assert error.path
    assert error.reason
    assert 0 <= error.position <= (LIMIT_BYTES if "unpacks to" in error.reason else len(data))


changes = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.outside
@settings(derandomize=True, max_examples=500, deadline=None)
@given(st.sampled_from(GOLDEN), changes, st.integers(0, 20))
def test_changed_bytes_are_read_or_refused(data: bytes, changed: list[tuple[int, int]], cut: int) -> None:
    broken = bytearray(data[: len(data) - cut] if cut < len(data) else data)
    for position, byte in changed:
        broken[position % len(broken)] = byte
    touch_everything(broken)


@pytest.mark.slow
@settings(derandomize=True, max_examples=250, deadline=None)
@given(rows, st.sampled_from([0, 1, 2]), changes)
def test_changed_records_are_read_or_refused(records: list[Record], magic: int, changed: list[tuple[int, int]]) -> None:
    inner = bytearray(build_batch(magic, records))
    for position, byte in changed:
        inner[position % len(inner)] = byte
    touch_everything(inner)
    if magic < 2:
        # The same message set, but within a wrapper.
        wrapper = bytearray(build_batch(magic, [Record(None, compress(SNAPPY, inner))]))
        wrapper[17] |= SNAPPY
        touch_everything(wrapper)


@settings(derandomize=True, max_examples=250, deadline=None)
@given(st.binary(max_size=200))
@example(bytes(61))
@example(bytes(17))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    touch_everything(data)
