"""What we build a real client reads, and what it builds we read: kafka-python, in every format and codec."""

from __future__ import annotations

import warnings

import pytest

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.records import Record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own use of old parts of the standard library
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

FORMATS = [
    (magic, codec) for magic in (0, 1, 2) for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD) if codec != ZSTD or magic == 2
]


@pytest.fixture(autouse=True)
def _has_what_its_codecs_need(magic: int, codec: int) -> None:
    if (magic, codec) == (0, LZ4):
        pytest.importorskip("xxhash", reason="kafka-python wants it for the wrong header checksum of v0")


@pytest.mark.interop
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_kafka_python_reads_what_we_build(magic: int, codec: int) -> None:
    headers = (("h", b"1"), ("h", None)) if magic == 2 else ()
    records = [Record(b"k%d" % n, b"v" * 50, headers, 1600000000000 + n, 5 + n) for n in range(100)]
    records.append(Record(None, None, (), 1600000000000, 105))
    found = MemoryRecords(build_batch(magic, records, codec=codec))
    seen = []
    while found.has_next():
        batch = found.next_batch()
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc()
            timestamp = -1 if record.timestamp is None else record.timestamp
            seen.append(Record(record.key, record.value, tuple(record.headers), timestamp, record.offset))
    assert seen == [record._replace(timestamp=record.timestamp if magic else -1) for record in records]


@pytest.mark.interop
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_we_read_what_kafka_python_builds(magic: int, codec: int) -> None:
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, codec, True, 7, 1, 2147483640, 1 << 20)
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for n in range(100):
        headers = [("h", b"1"), ("n", None)] if magic == 2 else []
        builder.append(n, 1600000000000 + n, None if n % 3 == 0 else b"key", b"v" * n, headers)
    data = bytes(builder.build())
    assert {batch.codec for batch in batches(data)} == {codec}
    records = [record for batch in batches(data, strict=True) for record in batch.records(check_crc=True)]
    assert [record.offset for record in records] == list(range(100))
    assert [record.value for record in records] == [b"v" * n for n in range(100)]
    assert {record.headers for record in records} == {(("h", b"1"), ("n", None)) if magic == 2 else ()}
    assert records[7].timestamp == (1600000000007 if magic else -1)
    if magic == 2:
        [batch] = batches(data)
        assert (batch.producer_id, batch.producer_epoch, batch.is_transactional) == (7, 1, True)
        assert batch.last_sequence == 91  # 2147483640 + 99, after 2147483647 comes 0
