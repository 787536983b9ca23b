"""Verification of transactional batches: the leader of a partition asks the coordinator before it appends the first.

So no batch is appended whose transaction has ended, or never begun: nobody would ever write a marker for it (KIP-890).
In transactions v2 asking adds the partition. Between two transactions of a producer the coordinator is busy until every
marker of the first is written: its answer waits for that, and it is asked again for a while.
Not here: which batches need it (log/producers.py), what clients are told (old_versions.py).
"""

from __future__ import annotations

from collections.abc import Collection

from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error
from minibroker.metadata.image import NO_LEADER
from minibroker.parts import Parts
from minibroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from minibroker.replication.network import NetworkError
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from minibroker.transactions.markers import BrokerCalls
from minibroker.transactions.metadata import ProducerIdAndEpoch, TopicPartition, by_topic

VERSION = 5


class TransactionVerifier:
    """Asks for one broker."""

    def __init__(self, parts: Parts, calls: BrokerCalls):
        self.parts = parts
        self._calls = calls

    async def verify(
        self, name: str, producer: ProducerIdAndEpoch, places: Collection[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, Error]:
        """Return of each partition whether it is in the transaction of a producer. adds: it is to be, from now on."""
        clock, config = self.parts.clock, self.parts.config
        patience_ms = min(config["add.partitions.to.txn.retry.backoff.max.ms"], config["request.timeout.ms"])
        until_ms = clock.steady_ms() + (patience_ms if adds else 0)
        while True:
            again_ms = clock.steady_ms() + config["add.partitions.to.txn.retry.backoff.ms"]
            errors = await self._ask(name, producer, places, adds=adds)
            if Error.CONCURRENT_TRANSACTIONS not in errors.values() or clock.steady_ms() >= until_ms:
                return errors
            if (left_ms := again_ms - clock.steady_ms()) > 0:  # mostly the coordinator has waited so long
                await clock.sleep(left_ms)

    async def _ask(
        self, name: str, producer: ProducerIdAndEpoch, places: Collection[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, Error]:
        topic = self.parts.image.topics.get(TRANSACTION_STATE_TOPIC)
        leader = NO_LEADER if topic is None else topic.partitions[partition_of(name, len(topic.partitions))].leader
        if leader == NO_LEADER:
            return dict.fromkeys(places, Error.COORDINATOR_NOT_AVAILABLE)
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=not adds,
            topics=[
                AddPartitionsToTxnTopic(name=each, partitions=numbers) for each, numbers in by_topic(places).items()
            ],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            found = self._calls.call(leader, request, VERSION)
            answer: AddPartitionsToTxnResponse = await found if hasattr(found, "__await__") else found
        except NetworkError:
            return dict.fromkeys(places, Error.NETWORK_EXCEPTION)
        return {
            (each.name, row.partition_index): Error(row.partition_error_code)
            for result in answer.results_by_transaction
            for each in result.topic_results
            for row in each.results_by_partition
        }
