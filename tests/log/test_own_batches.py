"""A batch of the broker's own is the one that it would have made of the same records of a stranger."""

from __future__ import annotations

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.formats import APPEND_TIME
from minibroker.log.own_batches import own_batch
from minibroker.log.records import Record
from minibroker.log.settings import ValidationSettings
from minibroker.log.validate import COORDINATOR, validate_in_place

NOW_MS, NEXT_OFFSET, EPOCH = 1_700_000_000_000, 1 << 40, 7
OF_ALL = ("first_offset", "last_offset", "max_timestamp", "max_timestamp_offset", "append_time", "size_bytes")
OF_BATCH = (
    *("first_offset", "last_offset", "max_timestamp", "size_bytes", "magic", "leader_epoch", "is_transactional"),
    *("producer_id", "producer_epoch", "base_sequence", "last_sequence", "is_control", "control"),
)


@pytest.mark.parametrize(
    "records",
    [
        [(b"key", b"value")],
        [(b"key", None)],
        [(b"", b"")],
        [(b"k" * 63, b"v" * 64), (b"k" * 64, b"v" * 1023), (b"k" * 8191, b"v" * 8192)],
        [(b"%d" % number, b"value") for number in range(1100)],
    ],
    ids=["one", "deletion", "empty", "sizes of all lengths", "many"],
)
def test_it_is_what_validation_makes_of_the_same_records(records: list[tuple[bytes, bytes | None]]) -> None:
    settings = ValidationSettings(compacted=True)
    rows = [Record(key, value, (), NOW_MS, index) for index, (key, value) in enumerate(records)]
    sent = bytearray(build_batch(2, rows))
    checked = validate_in_place(sent, settings, NEXT_OFFSET, EPOCH, NOW_MS, "p", COORDINATOR)
    own = own_batch(records, settings, NEXT_OFFSET, EPOCH, NOW_MS)
    assert own is not None
    assert checked is not None
    assert b"".join(own.chunks) == b"".join(checked.chunks)
    assert [getattr(own, name) for name in OF_ALL] == [getattr(checked, name) for name in OF_ALL]
    assert [[getattr(each, name) for name in OF_BATCH] for each in own.batches] == [
        [getattr(each, name) for name in OF_BATCH] for each in checked.batches
    ]


@pytest.mark.parametrize(
    "settings",
    [
        ValidationSettings(message_format=1),
        ValidationSettings(compression_type="lz4"),
        ValidationSettings(timestamp_type=APPEND_TIME),
    ],
    ids=["format", "codec", "time"],
)
def test_a_topic_that_has_other_batches_gets_them_by_validation(settings: ValidationSettings) -> None:
    assert own_batch([(b"key", b"value")], settings, NEXT_OFFSET, EPOCH, NOW_MS) is None


def test_one_that_is_too_large_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        own_batch([(b"key", b"v" * 100)], ValidationSettings(max_message_bytes=150), NEXT_OFFSET, EPOCH, NOW_MS)
    assert refused.value.code == Error.MESSAGE_TOO_LARGE
