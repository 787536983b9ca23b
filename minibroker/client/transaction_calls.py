"""Transactions of one transactional id: what its producer asks of coordinators.

    calls = TransactionCalls(cluster, "orders-1", timeout_ms=60_000)
    producer = await calls.init_producer()               fences who had the id before, and aborts what that left open
    await calls.add_partitions(producer, [("orders", 0)])                    before the first batch to each of them
    await calls.commit_offsets(producer, "group", {("payments", 0): 17})
    producer = await calls.end(producer, commit=True)                        who the producer is from now on

Both protocols: the classic one, and transactions v2 (KIP-890) where the cluster's `transaction.version` is 2. There
batches and offsets add their partitions by themselves, and each end raises the epoch.
What must hold: a request whose answer was lost is asked again, which does no harm: the broker knows a repetition.
Not here: batches (produce.py), and when to ask what.
"""

from __future__ import annotations

from minibroker.client.accumulator import ProducerId
from minibroker.client.connection import error_of
from minibroker.client.coordinators import TRANSACTION, Coordinators
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import TypeVar

    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.connection import Connection
    from minibroker.client.groups import CommittedOffset
    from minibroker.protocol.headers import Request

    R = TypeVar("R")

FEATURE, SINCE_V2 = "transaction.version", 2
# The last versions of the classic protocol. What comes behind says that the sender knows v2.
LAST_CLASSIC = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4}
LAST_WITH_NAMES = 5  # of TxnOffsetCommit
LAST_FOR_CLIENTS = 3  # of AddPartitionsToTxn
RAISES_EPOCH = 3  # of InitProducerId: a producer may go on in another epoch without fencing others


class TransactionCalls:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int):
        self.transactional_id = transactional_id
        self.is_v2 = False  # known from `init_producer` on
        self.can_raise_epoch = False  # the same
        self.sees_v2 = False  # the cluster has changed to v2 since: `init_producer` does, too
        self.has_begun = False  # something was added, so the transaction needs an end
        self._timeout_ms = timeout_ms  # how long a transaction may be open before its coordinator aborts it
        self._cluster = cluster
        self._transactions = Coordinators(cluster, TRANSACTION)
        self._groups = Coordinators(cluster)

    @property
    def produce_version_max(self) -> int | None:
        """Return the last version of Produce for batches of a transaction; None: any."""
        return None if self.is_v2 else LAST_CLASSIC["Produce"]

    async def init_producer(self, producer: ProducerId | None = None) -> ProducerId:
        """Return who the producer is; producer: who it was, if it goes on with another epoch (KIP-360)."""
        from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer.id if producer else -1,
            producer_epoch=producer.epoch if producer else -1,
        )

        async def ask(node_id: int) -> ProducerId:
            connection = await self._cluster.connection(node_id)
            self.can_raise_epoch = connection.version_of(request) >= RAISES_EPOCH
            answer: InitProducerIdResponse = await self._cluster.call(request, node_id)
            self._check(answer.error_code)
            self.is_v2 = self.sees_v2 = _is_v2(connection)
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return await self._of_coordinator(ask)

    async def add_partitions(self, producer: ProducerId, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction; those that are may be among them.

        v2: nothing is to be asked, but it is to be called before the first batch all the same.
        """
        from minibroker.protocol.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnResponse,
            AddPartitionsToTxnTopic,
        )

        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        if self.is_v2 or not topics:
            self.has_begun = self.has_begun or bool(topics)
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )

        async def ask(node_id: int) -> None:
            version = await self._version(node_id, request, LAST_FOR_CLIENTS)
            answer: AddPartitionsToTxnResponse = await self._cluster.call(request, node_id, version=version)
            codes = [
                (row.partition_error_code, f"{topic.name}-{row.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ]
            # The one that failed, not those that were left alone because of it.
            for code, partition in sorted(codes, key=lambda each: each[0] == Error.OPERATION_NOT_ATTEMPTED):
                self._check(code, partition)

        await self._of_coordinator(ask)
        self.has_begun = True

    async def commit_offsets(
        self,
        producer: ProducerId,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit offsets of a group that count when the transaction is committed.

        generation, member_id, instance_id: of the consumer in the group; by default it is not checked.
        """
        from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

        if not self.is_v2:
            await self._add_offsets(producer, group)
        self.has_begun = True
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
        for (topic, partition), committed in offsets.items():
            topics.setdefault(topic, Topic(name=topic, partitions=[])).partitions.append(
                Topic.TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        last = LAST_WITH_NAMES if self.is_v2 else LAST_CLASSIC["TxnOffsetCommit"]

        async def ask(node_id: int) -> None:
            version = await self._version(node_id, request, last)
            answer: TxnOffsetCommitResponse = await self._cluster.call(request, node_id, version=version)
            for topic in answer.topics:
                for row in topic.partitions:
                    self._check(row.error_code, f"offset of {topic.name}-{row.partition_index} for group {group}")

        await _of_one(self._groups, group, ask)

    async def _add_offsets(self, producer: ProducerId, group: str) -> None:
        from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group,
        )

        async def ask(node_id: int) -> None:
            answer: AddOffsetsToTxnResponse = await self._cluster.call(request, node_id)
            self._check(answer.error_code, f"group {group}")

        await self._of_coordinator(ask)

    async def end(self, producer: ProducerId, *, commit: bool) -> ProducerId:
        """Commit or abort; return who the producer is in the next transaction."""
        from minibroker.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )

        async def ask(node_id: int) -> ProducerId:
            version = await self._version(node_id, request, None if self.is_v2 else LAST_CLASSIC["EndTxn"])
            answer: EndTxnResponse = await self._cluster.call(request, node_id, version=version)
            self._check(answer.error_code)
            self.sees_v2 = _is_v2(await self._cluster.connection(node_id))
            return ProducerId(answer.producer_id, answer.producer_epoch) if self.is_v2 else producer

        after = await self._of_coordinator(ask)
        self.has_begun = False
        return after

    # Asking

    async def _of_coordinator(self, ask: Callable[[int], Awaitable[R]]) -> R:
        return await _of_one(self._transactions, self.transactional_id, ask)

    async def _version(self, node_id: int, request: Request, last: int | None) -> int:
        version = (await self._cluster.connection(node_id)).version_of(request)
        return version if last is None else min(version, last)

    def _check(self, code: int, where: str = "") -> None:
        if code:
            raise error_of(code, ": ".join(filter(None, (f"transactional id {self.transactional_id}", where))))


def _is_v2(connection: Connection) -> bool:
    return connection.features.get(FEATURE, 0) >= SINCE_V2


async def _of_one(coordinators: Coordinators, key: str, ask: Callable[[int], Awaitable[R]]) -> R:
    """Ask the coordinator of one group or transactional id, again while the errors are those that pass."""

    async def ask_node(node_id: int, _: list[str]) -> dict[str, R | KafkaError]:
        try:
            return {key: await ask(node_id)}
        except KafkaError as error:
            return {key: error}

    results, errors = await coordinators.ask([key], ask_node)
    if errors:
        raise errors[key]
    return results[key]
