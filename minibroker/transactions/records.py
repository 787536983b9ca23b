"""Records of __transaction_state: a transactional id, and its metadata as they are now; None if it is forgotten.

    value v0    up to Kafka 3.9, and as long as transaction.version is 0
    value v1    with the producer ids before and after, and the version that the client works by

What must hold: what is read back is what was written, but for what the version has no field for, and for the epoch
before, which no version has. A record of a kind or version that is not known is passed over, as Kafka does.
"""

from __future__ import annotations

from minibroker.errors import InvalidValue
from minibroker.stored.transactions import TransactionLogKey, TransactionLogValue
from minibroker.transactions.metadata import TopicPartition, TransactionMetadata, by_topic
from minibroker.transactions.states import EMPTY, STORED

VERSIONS = (0, 1)  # of the value
TAGGED_FROM_LEVEL = 1  # transaction.version from which on the value has version 1

Partitions = TransactionLogValue.PartitionsSchema


def encode(transactional_id: str, metadata: TransactionMetadata | None, level: int) -> tuple[bytes, bytes | None]:
    """Return key and value; level: of transaction.version."""
    key = TransactionLogKey(transactional_id=transactional_id).encode_stored()
    if metadata is None:
        return key, None
    topics = by_topic(metadata.partitions)
    assert metadata.state is not EMPTY or not topics, f"{transactional_id}: Empty, with partitions"
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.number,
        transaction_partitions=(
            None
            if metadata.state is EMPTY
            else [Partitions(topic=topic, partition_ids=found) for topic, found in topics.items()]
        ),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.client_version,
    )
    return key, value.encode_stored(1 if level >= TAGGED_FROM_LEVEL else 0)


def is_known(key: bytes, value: bytes | None) -> bool:
    """Whether a record is of a kind and version that can be decoded."""
    return int.from_bytes(key[:2], "big") == TransactionLogKey.type_number and (
        value is None or int.from_bytes(value[:2], "big") in VERSIONS
    )


def decode(key: bytes | None, value: bytes | None) -> tuple[str, TransactionMetadata | None] | None:
    """Return what a record says, None if it is not known; ProtocolError if it is broken."""
    if key is None or not is_known(key, value):
        return None
    transactional_id = TransactionLogKey.decode_stored(key).transactional_id
    return transactional_id, None if value is None else _metadata(TransactionLogValue.decode_stored(value))


def _metadata(value: TransactionLogValue) -> TransactionMetadata:
    number = value.transaction_status
    if not 0 <= number < len(STORED):
        raise InvalidValue(f"{number} is no state of a transaction", 0, "TransactionLogValue.transaction_status")
    partitions: dict[TopicPartition, None] = {}
    if STORED[number] is not EMPTY:
        if value.transaction_partitions is None:
            raise InvalidValue("null, but a transaction has begun", 0, "TransactionLogValue.transaction_partitions")
        for each in value.transaction_partitions:
            partitions |= dict.fromkeys((each.topic, partition) for partition in each.partition_ids)
    return TransactionMetadata(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=STORED[number],
        partitions=partitions,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
