"""A transactional producer that says what the test wants, to a broker in virtual time."""

from __future__ import annotations

from typing import Any

from minibroker.client.aborted import AbortedFilter
from minibroker.errors import Error
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.virtual_broker import VirtualBroker

TRANSACTION = 1
READ_COMMITTED = 1
SETTINGS: dict[str, object] = {"transaction.state.log.num.partitions": 3}


class Transactional:
    """A producer with a transactional id; it holds what it has been told last."""

    def __init__(self, broker: VirtualBroker, name: str = "t", *, is_v2: bool = False):
        self.broker = broker
        self.name = name
        self.is_v2 = is_v2
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def find(self) -> Any:
        request = FindCoordinatorRequest(coordinator_keys=[self.name], key_type=TRANSACTION)
        return self.broker.ask(request, 4).coordinators[0]

    def init(self, timeout_ms: int = 60_000, *, expected: tuple[int, int] = (-1, -1), version: int = 5) -> Error:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self.broker.ask(request, version)
        if answer.error_code == Error.NONE:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return Error(answer.error_code)

    def begin(self, timeout_ms: int = 60_000) -> Transactional:
        """Find the coordinator, and get an id and epoch."""
        assert self.find().error_code == Error.NONE
        assert self.init(timeout_ms) == Error.NONE
        return self

    def add(self, *places: tuple[str, int], version: int = 3) -> dict[tuple[str, int], Error]:
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        named = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=named,
            )
            results = self.broker.ask(request, version).results_by_topic_v3_and_below
        else:
            answer = self.broker.ask(AddPartitionsToTxnRequest(transactions=[self.transaction(named)]), version)
            results = answer.results_by_transaction[0].topic_results
        return {
            (topic.name, each.partition_index): Error(each.partition_error_code)
            for topic in results
            for each in topic.results_by_partition
        }

    def transaction(self, topics: list[AddPartitionsToTxnTopic], *, verify_only: bool = False) -> Any:
        return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics,
        )

    def add_offsets(self, group: str, version: int = 4) -> Error:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return Error(self.broker.ask(request, version).error_code)

    def commit_offset(
        self, topic: str, offset: int, *, version: int = 5, group: str = "g", generation: int = -1
    ) -> Error:
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        row = Topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        given = {"topic_id": self._topic_id(topic)} if version >= 6 else {"name": topic}
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=generation,
            topics=[Topic(partitions=[row], **given)],
        )
        return Error(self.broker.ask(request, version).topics[0].partitions[0].error_code)

    def _topic_id(self, topic: str) -> bytes:
        known = self.broker.node.image.topics.get(topic)
        return known.id if known else bytes(15) + b"1"

    def produce(
        self, topic: str, value: bytes | None, number: int = 0, *, key: bytes = b"k", version: int | None = None
    ) -> Error:
        version = version if version is not None else 12 if self.is_v2 else 11
        answer = self.broker.ask(self.batches(topic, value, number, key), version)
        code = Error(answer.responses[0].partition_responses[0].error_code)
        if code == Error.NONE:
            self.sequences[topic, number] = self.sequences.get((topic, number), 0) + 1
        return code

    def batches(self, topic: str, value: bytes | None, number: int = 0, key: bytes = b"k") -> ProduceRequest:
        batch = build_batch(
            2,
            [Record(key, value, (), self.broker.now_ms())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, number), 0),
            transactional=True,
        )
        Topic = ProduceRequest.TopicProduceData
        rows = [Topic.PartitionProduceData(index=number, records=batch)]
        return ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[Topic(name=topic, partition_data=rows)],
        )

    def end(self, *, commit: bool = True, version: int | None = None) -> Error:
        version = version if version is not None else 5 if self.is_v2 else 4
        answer = self.broker.ask(self.end_request(commit=commit), version)
        if version >= 5 and answer.error_code == Error.NONE:
            if (answer.producer_id, answer.producer_epoch) != (self.id, self.epoch):
                self.sequences.clear()
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code)

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )

    def described(self) -> Any:
        answer = self.broker.ask(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
        return answer.transaction_states[0]

    @property
    def state(self) -> str:
        return str(self.described().transaction_state)


def listed(broker: VirtualBroker, version: int = 2, **filters: Any) -> dict[str, str]:
    request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    answer = broker.ask(request, version)
    assert answer.error_code == Error.NONE
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def read(broker: VirtualBroker, topic: str, number: int = 0, *, isolation_level: int = READ_COMMITTED) -> list[bytes]:
    """Return the values that a consumer reads from the beginning."""
    records = read_records(broker, topic, number, isolation_level=isolation_level)
    return [bytes(record.value or b"") for record in records]


def fetched(broker: Any, topic: str, number: int, offset: int, isolation_level: int) -> Any:
    """Return what is answered of one partition to who asks once."""
    Topic = FetchRequest.FetchTopic
    rows = [Topic.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[Topic(topic=topic, partitions=rows)],
    )
    return broker.ask(request, 12).responses[0].partitions[0]


def read_records(
    broker: VirtualBroker, topic: str, number: int = 0, *, isolation_level: int = READ_COMMITTED
) -> list[Record]:
    """Return what a consumer reads from the beginning."""
    found: list[Record] = []
    offset = 0
    while True:
        row = fetched(broker, topic, number, offset, isolation_level)
        assert row.error_code == Error.NONE
        answered = list(batches(row.records or b""))
        if not answered:
            return found
        hidden = AbortedFilter([(each.first_offset, each.producer_id) for each in row.aborted_transactions or ()])
        found += [record for batch in answered if not hidden.hides(batch) for record in batch.records()]
        offset = answered[-1].last_offset + 1
