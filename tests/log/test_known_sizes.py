"""The sizes that comparisons of the three formats quote."""

from __future__ import annotations

import pytest

from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.records import Record

SIZES = [  # magic, key, value, bytes on disk
    (0, b"key", b"value", 34),
    (0, None, b"value", 31),
    (1, b"key", b"value", 42),
    (1, None, b"value", 39),
    (2, b"key", b"value", 76),
    (2, None, b"value", 73),
]


@pytest.mark.parametrize(("magic", "key", "value", "size_bytes"), SIZES)
def test_one_record_has_the_size_kafka_gives_it(magic: int, key: bytes | None, value: bytes, size_bytes: int) -> None:
    assert len(build_batch(magic, [Record(key, value)])) == size_bytes


@pytest.mark.parametrize(("magic", "size_bytes"), [(0, 320), (1, 400), (2, 191)])
def test_ten_records_of_six_bytes_without_a_key(magic: int, size_bytes: int) -> None:
    assert len(build_batch(magic, [Record(value=b"value%d" % n) for n in range(10)])) == size_bytes


def test_the_v0_message_of_key_and_value_has_the_checksum_that_articles_quote() -> None:
    [batch] = batches(build_batch(0, [Record(b"key", b"value")]))
    assert batch.crc == 592888119
    assert batch.crc_is_valid()


def test_an_empty_v2_batch_is_its_header() -> None:
    assert len(build_batch(2, [])) == 61


def test_a_transaction_marker_takes_78_bytes() -> None:
    marker = build_transaction_marker(
        commit=False, offset=0, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    assert len(marker) == 78
