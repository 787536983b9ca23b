"""Records of __transaction_state: those of real brokers, byte for byte, and what is broken or of another release."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.errors import ProtocolError
from minibroker.stored.transactions import TransactionLogKey, TransactionLogValue
from minibroker.transactions.metadata import TransactionMetadata
from minibroker.transactions.records import decode, encode
from minibroker.transactions.states import COMPLETE_ABORT, EMPTY, ONGOING, STORED
from tests.goldens import wire
from tests.transactions.histories import DIRECTORIES, LEVELS, history

METADATA = TransactionMetadata(
    producer_id=7,
    timeout_ms=60_000,
    last_update_ms=2_000,
    state=ONGOING,
    previous_producer_id=6,
    next_producer_id=8,
    producer_epoch=3,
    partitions=dict.fromkeys([("t", 1), ("u", 0), ("t", 0)]),
    start_ms=1_000,
    client_version=2,
)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_what_kafka_has_written_is_read_and_written_as_it_is(directory: str) -> None:
    for key, value in history(directory):
        found = decode(key, value)
        assert found is not None
        assert encode(*found, LEVELS[directory]) == (key, value)


def test_the_values_of_kafkas_generated_classes_are_read() -> None:
    for case in wire("records"):
        if case["name"] != "TransactionLogValue" or case["variant"] == "extreme":
            continue  # its state is none
        fields: dict[str, Any] = case["fields"]
        stored = bytes.fromhex(case["storedPrefix"] + case["hex"])
        if fields["transactionStatus"] >= len(STORED) or fields["transactionPartitions"] is None:
            continue
        found = decode(TransactionLogKey(transactional_id="id").encode_stored(), stored)
        assert found is not None
        metadata = found[1]
        assert metadata is not None
        assert metadata.producer_id == fields["producerId"]
        assert metadata.producer_epoch == fields["producerEpoch"]
        assert metadata.previous_producer_id == fields.get("previousProducerId", -1)
        assert metadata.timeout_ms == fields["transactionTimeoutMs"]


def test_a_value_says_all_but_the_epoch_before() -> None:
    key, value = encode("id", METADATA._replace(last_producer_epoch=2), level=2)
    assert decode(key, value) == ("id", METADATA)
    found = decode(key, value)
    assert found is not None
    assert found[1] is not None
    assert list(found[1].partitions) == [("t", 1), ("t", 0), ("u", 0)]  # by topic, each in the order of the first


def test_below_transaction_version_1_a_value_has_no_ids_before_and_after() -> None:
    key, value = encode("id", METADATA, level=0)
    assert value is not None
    assert value[:2] == b"\0\0"
    assert decode(key, value) == (
        "id",
        METADATA._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0),
    )


def test_an_id_without_a_transaction_has_no_partitions_and_one_that_has_ended_none_left() -> None:
    for state, expected in ((EMPTY, None), (COMPLETE_ABORT, [])):
        _, value = encode("id", METADATA._replace(state=state, partitions={}), level=2)
        assert value is not None
        assert TransactionLogValue.decode_stored(value).transaction_partitions == expected


def test_an_id_that_is_forgotten_has_no_value() -> None:
    key, value = encode("id", None, level=2)
    assert value is None
    assert decode(key, None) == ("id", None)


def test_what_is_not_known_is_passed_over() -> None:
    key, value = encode("id", METADATA, level=2)
    assert value is not None
    assert decode(None, value) is None
    assert decode(b"\0\1" + key[2:], value) is None
    assert decode(key, b"\0\2" + value[2:]) is None


@pytest.mark.parametrize("number", [6, 7, 8, -1])
def test_a_state_that_no_record_has_is_refused(number: int) -> None:
    key, value = encode("id", METADATA, level=2)
    assert value is not None
    broken = TransactionLogValue.decode_stored(value)
    broken.transaction_status = number
    with pytest.raises(ProtocolError, match="no state of a transaction"):
        decode(key, broken.encode_stored(1))


def test_a_transaction_without_any_list_of_partitions_is_refused() -> None:
    key, value = encode("id", METADATA, level=2)
    assert value is not None
    broken = TransactionLogValue.decode_stored(value)
    broken.transaction_partitions = None
    with pytest.raises(ProtocolError, match="null"):
        decode(key, broken.encode_stored(1))
    with pytest.raises(ProtocolError):
        decode(key, value[:-1])


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_values_have_tags_from_the_first_level_on(level: int, version: int) -> None:
    _, value = encode("id", METADATA, level=level)
    assert value is not None
    assert int.from_bytes(value[:2], "big") == version
