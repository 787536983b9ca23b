"""From an answer to records: what is shown, and where the position is afterwards."""

from __future__ import annotations

import pytest

from minibroker.client.fetching import FetchLimits, Position, read_partition
from minibroker.errors import CorruptCrc, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchResponse

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
LIMITS = FetchLimits(
    max_wait_ms=0,
    bytes_min=1,
    bytes_max=4000,
    partition_bytes_max=1000,
    decompressed_bytes_max=100_000,
    isolation=0,
    check_crc=True,
)
KEY = ("orders", 0)


def batch(first: int, last: int, magic: int = 2, codec: int = 0) -> bytes:
    return build_batch(
        magic, [Record(None, b"v", (), 5, offset) for offset in range(first, last + 1)], codec=codec, base_offset=first
    )


def read(position: Position, records: bytes, version: int = 11, high_watermark: int = 100) -> list[int]:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=high_watermark, records=records)
    return [record.offset for record in read_partition(KEY, position, data, LIMITS, version)]


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_records_before_the_position_are_passed_over(magic: int, codec: int) -> None:
    position = Position(3)
    assert read(position, batch(0, 5, magic, codec) + batch(6, 7, magic, codec)) == [3, 4, 5, 6, 7]
    assert position.offset == 8


def test_a_batch_that_is_cut_off_is_read_next_time() -> None:
    position = Position(0)
    assert read(position, batch(0, 1) + batch(2, 3)[:-1]) == [0, 1]
    assert position.offset == 2


def test_the_position_moves_past_what_compaction_has_emptied() -> None:
    position = Position(0)
    assert read(position, build_batch(2, [], base_offset=0, last_offset=9)) == []
    assert position.offset == 10


def test_what_comes_before_a_broken_batch_is_handed_over_first() -> None:
    broken = bytearray(batch(2, 3))
    broken[-1] ^= 1
    position = Position(0)
    assert read(position, batch(0, 1) + broken) == [0, 1]
    assert position.offset == 2
    with pytest.raises(CorruptCrc, match="orders-0 at offset 2"):
        read(position, bytes(broken))
    assert position.offset == 2


def test_an_old_broker_is_asked_for_more_until_a_whole_batch_fits() -> None:
    position = Position(0)
    for widened in (1, 2):
        assert read(position, batch(0, 0, 0)[:-1], version=0) == []
        assert position.widened == widened
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE: orders-0: what is at offset 0 is larger than 4000 bytes"):
        read(position, batch(0, 0, 0)[:-1], version=0)


def test_an_empty_answer_at_the_end_asks_for_no_more_than_before() -> None:
    position = Position(100)
    assert read(position, b"", version=0) == []
    assert position.widened == 0
