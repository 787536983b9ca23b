"""As long as there is no transaction coordinator, nothing of a transaction is taken, and whoever wants one is told."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.broker.virtual_broker import VirtualBroker
from tests.server.running import connected, running, said

TRANSACTION = 1
FINAL = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def transactional(transactional_id: str | None) -> ProduceRequest:
    batch = build_batch(
        2, [Record(b"k", b"v", (), 1)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    plain = build_batch(2, [Record(b"k", b"v", (), 1)])
    Topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            Topic(name=name, partition_data=[Topic.PartitionProduceData(index=0, records=data)])
            for name, data in (("orders", batch), ("plain", plain))
        ],
    )


@pytest.mark.parametrize("version", range(1, 7))
async def test_nobody_is_named_as_the_coordinator_of_a_transaction(version: int) -> None:
    async with running() as node, connected(node) as client:
        request = FindCoordinatorRequest(key="t", coordinator_keys=["t"] if version >= 4 else [], key_type=TRANSACTION)
        for _ in range(3):
            answer = await client.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            assert (found.error_code, found.node_id) == (FINAL, -1)
            assert found.error_message == "minibroker has no transactions yet"
        line = "client 'test' wants transactions (transactional id 't'): minibroker has no transactions yet"
        assert [each for each in said(node) if "transactions" in each] == [line]


@pytest.mark.parametrize("version", range(5))
async def test_no_producer_id_is_given_for_a_transactional_id(version: int) -> None:
    async with running() as node, connected(node) as client:
        for transactional_id, expected in (("t", FINAL), (None, Error.NONE)):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
            answer = await client.ask(request, version)
            assert answer.error_code == expected
            assert (answer.producer_id >= 0) == (expected == Error.NONE)
        assert len([each for each in said(node) if "transactions" in each]) == 1


@pytest.mark.parametrize("transactional_id", ["t", None])
async def test_no_batch_of_a_transaction_is_taken_nor_what_comes_with_it(transactional_id: str | None) -> None:
    async with running() as node, connected(node) as client:
        for topic in ("orders", "plain"):
            node.create_topic(topic, 1)
        answer = await client.ask(transactional(transactional_id), 9)
        codes = [row.error_code for topic in answer.responses for row in topic.partition_responses]
        assert codes == [FINAL, FINAL]
        for topic in ("orders", "plain"):
            log = node.replicas[topic, 0].log
            assert log.log_end_offset == 0
            assert log.last_stable_offset(0) == 0
            assert not log.producers.producers


async def test_what_clients_call_themselves_fills_no_log() -> None:
    async with running() as node, connected(node) as client:
        for each in range(300):
            name = "x" * 20_000 + str(each)
            request = FindCoordinatorRequest(coordinator_keys=[f"{each} {name}"], key_type=TRANSACTION)
            await client.ask(request, 4)
        lines = [line for line in said(node) if "transactions" in line]
        assert len(lines) == 200
        assert max(map(len, lines)) < 400


PATTERNS = {  # of RE2, which takes time in proportion to them; Python's own would need a second for the last
    "": True,
    "a.*": True,
    "(?P<name>.)": True,
    "[": False,
    "(?=a)": False,
    "a" * 1001: False,
    "(?i)" + 199 * "[X-\uffff]": True,
}


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_pattern_of_transactional_ids_is_one_that_members_of_groups_could_have(pattern: str) -> None:
    async with running() as node, connected(node) as client:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        answer = await client.ask(request, 2)
        assert (answer.error_code == Error.NONE) == PATTERNS[pattern]
        assert answer.error_code in (Error.NONE, Error.INVALID_REGULAR_EXPRESSION)


# What is answered for each partition that is named


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    broker.node.create_topic("orders", 1)
    return broker


UNKNOWN, ELSEWHERE = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_COORDINATOR
ADDED = {  # partitions by topic -> what is answered for each
    "all are there": ({"orders": [0]}, [ELSEWHERE]),
    "a partition is not": ({"orders": [0, 1]}, [Error.OPERATION_NOT_ATTEMPTED, UNKNOWN]),
    "a topic is not": ({"orders": [0], "absent": [0]}, [Error.OPERATION_NOT_ATTEMPTED, UNKNOWN]),
    "nothing is named": ({}, []),
}


@pytest.mark.parametrize("case", ADDED)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_no_partition_is_added_to_a_transaction(broker: VirtualBroker, version: int, case: str) -> None:
    wanted, expected = ADDED[case]
    topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in wanted.items()]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        results = broker.ask(request, version).results_by_topic_v3_and_below
    else:
        Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        rows = [Transaction(transactional_id=name, producer_id=1, producer_epoch=0, topics=topics) for name in "xy"]
        answer = broker.ask(AddPartitionsToTxnRequest(transactions=rows), version)
        assert answer.error_code == Error.NONE
        first, second = answer.results_by_transaction
        assert (first.transactional_id, second.transactional_id) == ("x", "y")
        assert first.topic_results == second.topic_results
        results = first.topic_results
    assert [topic.name for topic in results] == [*wanted]
    told = [each for topic in results for each in topic.results_by_partition]
    assert [each.partition_index for each in told] == [number for numbers in wanted.values() for number in numbers]
    assert [each.partition_error_code for each in told] == expected


@pytest.mark.parametrize("version", [5, 6])
def test_no_offsets_are_committed_in_a_transaction(broker: VirtualBroker, version: int) -> None:
    Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    ids = {"orders": broker.node.image.topics["orders"].id, "absent": bytes(15) + b"1"}
    topics = [
        Topic(
            name=name if version < 6 else "",
            topic_id=ids[name] if version >= 6 else bytes(16),
            partitions=[
                Topic.TxnOffsetCommitRequestPartition(
                    partition_index=number, committed_offset=1, committed_leader_epoch=0, committed_metadata=None
                )
                for number in (0, 1)
            ],
        )
        for name in ids
    ]
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, topics=topics)
    answer = broker.ask(request, version)
    assert [topic.topic_id if version >= 6 else topic.name for topic in answer.topics] == list(
        ids.values() if version >= 6 else ids
    )
    codes = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    absent = Error.UNKNOWN_TOPIC_ID if version >= 6 else UNKNOWN
    assert codes == [[ELSEWHERE, UNKNOWN], [absent, absent]]
    assert [each.partition_index for each in answer.topics[0].partitions] == [0, 1]


def test_no_marker_ends_a_transaction_that_is_not_there(broker: VirtualBroker) -> None:
    Marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [
        Marker.WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1]),
        Marker.WritableTxnMarkerTopic(name="absent", partition_indexes=[0]),
    ]
    markers = [
        Marker(producer_id=number, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
        for number in (7, 8)
    ]
    answer = broker.ask(WriteTxnMarkersRequest(markers=markers), 1)
    for marker, producer_id in zip(answer.markers, (7, 8)):
        assert marker.producer_id == producer_id
        assert [
            (topic.name, each.partition_index, each.error_code) for topic in marker.topics for each in topic.partitions
        ] == [("orders", 0, Error.INVALID_TXN_STATE), ("orders", 1, UNKNOWN), ("absent", 0, UNKNOWN)]
    assert broker.node.replicas["orders", 0].log.log_end_offset == 0


def test_no_transaction_is_described_or_listed(broker: VirtualBroker) -> None:
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["x", ""]), 0)
    rows = [(each.transactional_id, each.error_code) for each in described.transaction_states]
    assert rows == [("x", ELSEWHERE), ("", Error.INVALID_REQUEST)]
    (row, _) = described.transaction_states
    assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == ("", 0, 0)
    assert (row.producer_id, row.producer_epoch, row.topics) == (0, 0, [])
    for pattern, unknown in ((None, ["Nonsense"]), ("a.*", ["Nonsense"]), ("[", [])):
        request = ListTransactionsRequest(
            state_filters=["Ongoing", "Nonsense"], producer_id_filters=[], transactional_id_pattern=pattern
        )
        listed = broker.ask(request, 2)
        assert (listed.unknown_state_filters, listed.transaction_states) == (unknown, [])


PRODUCERS = {  # transactional id, producer id and epoch -> the answer
    (None, -1, -1): Error.NONE,
    (None, 5, 0): Error.NONE,
    (None, 5, -1): Error.INVALID_REQUEST,
    (None, -1, 0): Error.INVALID_REQUEST,
    ("", -1, -1): Error.INVALID_REQUEST,
    ("x", -1, -1): FINAL,
}


def test_a_producer_without_transactions_is_given_an_id_that_nobody_had(broker: VirtualBroker) -> None:
    given = []
    for (transactional_id, producer_id, epoch), code in PRODUCERS.items():
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = broker.ask(request, 4)
        assert answer.error_code == code
        if code:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        else:
            given.append(answer.producer_id)
            assert answer.producer_epoch == 0
    assert len(set(given)) == 2
    assert min(given) >= 0
