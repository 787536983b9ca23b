"""Verification of what Produce appends in transactions (KIP-890): its coordinator is asked before the log is.

What must hold: a batch that begins a transaction in a partition is appended only when the coordinator of that
transaction has the partition in it, so that a marker will follow.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct as Layout

from minibroker.errors import Error, KafkaError
from minibroker.log.formats import ATTRIBUTES_POSITION, TRANSACTIONAL_BIT
from minibroker.transactions.metadata import ProducerIdAndEpoch
from minibroker.transactions.old_versions import PRODUCE, adds_partitions, append_error
from minibroker.turns import awaited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from minibroker.broker.dispatch import Context
    from minibroker.log.producers import Verification
    from minibroker.protocol.messages.produce import ProduceRequest
    from minibroker.replication.replica import Replica
    from minibroker.turns import Work

    Topic = ProduceRequest.TopicProduceData
    Partition = Topic.PartitionProduceData

PRODUCER, PRODUCER_POSITION = Layout(">qhi"), 43  # producer id, epoch and base sequence in the header of a batch
PRODUCER_IN_BATCH = slice(43, 53)  # without the sequence
NEGATIVE = b"\x80"  # what begins lower has a producer id


def start_verification(
    records: bytes | memoryview | None, replica: Replica, context: Context, now_ms: int
) -> Verification | None:
    """Return what a batch has to be verified by, if it has to; a KafkaError if its producer was replaced."""
    if records is None or len(records) < PRODUCER_POSITION + PRODUCER.size:
        return None
    if not records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
        return None
    adds = adds_partitions(PRODUCE, context.api_version)
    if not adds and not replica.log.settings.transaction_partition_verification_enable:
        return None
    producer_id, epoch, sequence = PRODUCER.unpack_from(records, PRODUCER_POSITION)
    if producer_id < 0:  # that is in no transaction, whatever it says
        return None
    return replica.log.producers.start_verification(producer_id, epoch, sequence, now_ms, supports_epoch_bump=adds)


def verified(
    transactional_id: str, records: bytes, replicas: Collection[Replica], context: Context
) -> Work[dict[tuple[str, int], Error]]:
    """Ask the coordinator about partitions, and about the producer of what has come for them, which waits."""
    producer_id, epoch, _ = PRODUCER.unpack_from(records, PRODUCER_POSITION)
    verifying = context.node.transactions.verifier.verify(
        transactional_id,
        ProducerIdAndEpoch(producer_id, epoch),
        [(replica.topic, replica.partition) for replica in replicas],
        adds=adds_partitions(PRODUCE, context.api_version),
    )
    return (yield from awaited(verifying))


def refusal(error: Error, version: int) -> tuple[Error, str | None]:
    """Return what a client is told of a batch that was not verified, and what Kafka says to it."""
    told = append_error(PRODUCE, version, error)
    if told is Error.INVALID_TXN_STATE:
        return told, "Partition was not added to the transaction"
    if told is Error.NOT_ENOUGH_REPLICAS:
        text = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return told, text
    return told, None


def are_of_several(
    batches: Collection[tuple[Topic, Partition]], check: Callable[[bytes | memoryview | None], None], context: Context
) -> bool:
    """Whether transactional batches are of several producers; those do not count that are refused anyway.

    check: raises a KafkaError for what cannot be appended.
    """
    # Of thousands of partitions this is all that there is to be looked at, in every good request.
    heads = {bytes((partition.records or b"")[PRODUCER_IN_BATCH]) for _, partition in batches}
    if len(heads) < 2:
        return False
    producers = set()
    for topic, partition in batches:
        head = bytes((partition.records or b"")[PRODUCER_IN_BATCH])
        name = topic.name or context.node.topic_name(topic.topic_id)
        if head < NEGATIVE and name is not None and context.node.has_partition(name, partition.index):
            with suppress(KafkaError):
                check(partition.records)
                producers.add(head)
        if len(producers) > 1:
            return True
    return False
