"""Administration of transactions by a client that has none: list, describe, find those that hang, abort.

A coordinator knows transactions by their transactional id, the leader of a partition by producer id only. A transaction
hangs that its leader knows as open and no coordinator will ever end: `hanging` compares the two (KIP-664).
What must hold: an open transaction that its coordinator still counts among its own is never found to hang.
Not here: having a transaction (transaction_manager.py), who is asked (coordinators.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from minibroker.client.admin import Admin
from minibroker.client.connection import error_of
from minibroker.client.coordinators import TRANSACTION, Coordinators, all_or_raise
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.descriptions import ProducerState

DURATIONS, PATTERNS = 1, 2  # the versions of ListTransactions that filter by them
FENCE_TIMEOUT_MS = 60_000  # the id's transaction.timeout.ms from then on, as Kafka's default is
PARTITIONS_MAX = 500  # of one DescribeProducers


class ListedTransaction(NamedTuple):
    """A transactional id as the list of its coordinator has it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator sees it."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int  # since 1970; -1: it has no transaction
    partitions: list[TopicPartition]  # of an open transaction; of one that ends: those without a marker yet


class OpenTransaction(NamedTuple):
    """A transaction as the leader of one of its partitions sees it."""

    partition: TopicPartition
    producer: ProducerState


class Transactions:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, TRANSACTION)

    # What coordinators know

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Return the transactional ids of all brokers, sorted: only those that pass every filter that is given.

        duration_ms: of those that have been open for longer. pattern: a regular expression (RE2) for the whole id.
        """
        from minibroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        needed = PATTERNS if pattern else DURATIONS if duration_ms >= 0 else 0

        async def ask(node_id: int) -> list[ListedTransaction]:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(request)
            if version < needed:
                what = "ids by pattern" if pattern else "transactions by duration"
                reason = f"{what} need ListTransactions v{needed}, {connection.address} has v{version}"
                raise KafkaError(Error.UNSUPPORTED_VERSION, reason)
            answer: ListTransactionsResponse = await self._cluster.call(request, node_id)
            if answer.error_code:
                wanted = f" whose ids match {pattern!r}" if pattern else ""
                raise error_of(answer.error_code, f"transactions of broker {node_id}{wanted}")
            return [
                ListedTransaction(row.transactional_id, node_id, row.producer_id, row.transaction_state)
                for row in answer.transaction_states
            ]

        await self._cluster.metadata([])
        lists = await asyncio.gather(
            *(self._cluster.retrying(partial(ask, node_id)) for node_id in self._cluster.nodes)
        )
        return sorted(each for listed in lists for each in listed)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return state, producer, timeout and partitions of transactional ids."""
        return all_or_raise(*await self._describe(transactional_ids))

    async def _describe(
        self, transactional_ids: Iterable[str]
    ) -> tuple[dict[str, TransactionDescription], dict[str, KafkaError]]:
        from minibroker.protocol.messages.describe_transactions import (
            DescribeTransactionsRequest,
            DescribeTransactionsResponse,
        )

        async def ask(node_id: int, ids: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            request = DescribeTransactionsRequest(transactional_ids=ids)
            answer: DescribeTransactionsResponse = await self._cluster.call(request, node_id)
            return {
                row.transactional_id: error_of(row.error_code, "")
                if row.error_code
                else TransactionDescription(
                    row.transactional_id,
                    node_id,
                    row.transaction_state,
                    row.producer_id,
                    row.producer_epoch,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms,
                    [(topic.topic, number) for topic in row.topics for number in topic.partitions],
                )
                for row in answer.transaction_states
            }

        return await self._coordinators.ask(transactional_ids, ask)

    async def fence(self, transactional_id: str) -> tuple[int, int]:
        """Fence the producer of a transactional id and abort its transaction; return producer id and epoch then.

        An id that nobody has used comes into being, as with every new producer.
        """
        from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

        async def ask(node_id: int, ids: list[str]) -> dict[str, tuple[int, int] | KafkaError]:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS)
            answer: InitProducerIdResponse = await self._cluster.call(request, node_id)
            if answer.error_code:  # CONCURRENT_TRANSACTIONS until the markers of the one that it aborts are written
                return {transactional_id: error_of(answer.error_code, "")}
            return {transactional_id: (answer.producer_id, answer.producer_epoch)}

        return all_or_raise(*await self._coordinators.ask([transactional_id], ask))[transactional_id]

    # What leaders know

    async def open_transactions(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> list[OpenTransaction]:
        """Return the transactions that are open in partitions, as their leaders have them, or one broker."""
        wanted = list(partitions)
        found = []
        for start in range(0, len(wanted), PARTITIONS_MAX):
            some = wanted[start : start + PARTITIONS_MAX]
            for place, producers in (await Admin(self._cluster).describe_producers(some, broker=broker)).items():
                found += [OpenTransaction(place, each) for each in producers if each.transaction_start_offset >= 0]
        return found

    async def hanging(
        self, partitions: Iterable[TopicPartition], *, longer_than_ms: int, broker: int | None = None
    ) -> list[OpenTransaction]:
        """Return the transactions that are open in partitions, have not written for so long, and hang."""
        now_ms = self._cluster.clock.now_ms()
        candidates = [
            each
            for each in await self.open_transactions(partitions, broker=broker)
            if now_ms - each.producer.last_timestamp > longer_than_ms
        ]
        if not candidates:
            return []
        producer_ids = {each.producer.producer_id for each in candidates}
        names = {
            each.producer_id: each.transactional_id
            for each in await self.list_transactions(producer_ids=producer_ids)
            if each.producer_id in producer_ids
        }
        described, errors = await self._describe(names.values())
        for error in errors.values():
            if error.code != Error.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        awaited = {each.producer_id: set(each.partitions) for each in described.values()}
        return [each for each in candidates if each.partition not in awaited.get(each.producer.producer_id, ())]

    async def abort(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Have an abort marker written to one partition, whatever the coordinator thinks: for what hangs."""
        from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

        topic, number = partition
        Marker = WriteTxnMarkersRequest.WritableTxnMarker
        marker = Marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[Marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            # A producer whose first transaction hangs has -1: no leader epoch is below 0.
            coordinator_epoch=max(0, coordinator_epoch),
        )

        async def ask() -> None:
            [leader] = await self._cluster.by_leader([partition])
            answer: WriteTxnMarkersResponse = await self._cluster.call(WriteTxnMarkersRequest(markers=[marker]), leader)
            codes = [
                row.error_code
                for result in answer.markers
                for of in result.topics
                for row in of.partitions
                if (of.name, row.partition_index) == partition
            ]
            code = codes[0] if codes else Error.UNKNOWN_SERVER_ERROR
            if code:
                raise error_of(code, f"{topic}-{number}")

        await self._cluster.retrying(ask, [topic])
