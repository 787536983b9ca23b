"""Requests that are answered in shares: with elements that take several turns of the loop, each has its answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from minibroker.broker.apis import SERVED
from minibroker.broker.dispatch import find_route
from minibroker.errors import Error
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.cluster.served import served
from tests.server.running import Said, batch, connected, running

COUNT = 400
NAMES = [f"t{number}" for number in range(COUNT)]
GROUPS = [f"g{number}" for number in range(COUNT)]

EVERY_RULE: dict[str, Any] = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "principal_filter": "User:alice",
    "host_filter": "*",
    "operation": 1,
    "permission_type": 1,
}


def each(cls: Any, **fields: Any) -> list[Any]:
    """Return an element for each topic; the field that is None has its name."""
    return [cls(**{key: name if value is None else value for key, value in fields.items()}) for name in NAMES]


def requests(replicas: Sequence[int] = (1,)) -> list[tuple[Request, int]]:
    """Return a request of every API that is answered in shares, in the order in which they make sense.

    replicas: the brokers that are to have each partition.
    """
    produce, fetch = ProduceRequest.TopicProduceData, FetchRequest.FetchTopic
    epochs, listed = OffsetForLeaderEpochRequest.OffsetForLeaderTopic, ListOffsetsRequest.ListOffsetsTopic
    altered = AlterPartitionReassignmentsRequest.ReassignableTopic
    deleted, committed = DeleteRecordsRequest.DeleteRecordsTopic, OffsetCommitRequest.OffsetCommitRequestTopic
    forgotten, group = OffsetDeleteRequest.OffsetDeleteRequestTopic, OffsetFetchRequest.OffsetFetchRequestGroup
    changed, replaced = IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource
    transaction, marker = (
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
        WriteTxnMarkersRequest.WritableTxnMarker,
    )
    pending = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    retention = changed.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    old_retention = replaced.AlterableConfig(name="retention.ms", value="1000000")
    none: Any = None
    return [
        (
            CreateTopicsRequest(
                topics=each(
                    CreateTopicsRequest.CreatableTopic,
                    name=none,
                    num_partitions=1,
                    replication_factor=len(replicas),
                    assignments=[],
                    configs=[],
                ),
            ),
            7,
        ),
        (MetadataRequest(topics=each(MetadataRequest.MetadataRequestTopic, name=none)), 9),
        (MetadataRequest(topics=None), 9),
        (
            DescribeTopicPartitionsRequest(topics=each(DescribeTopicPartitionsRequest.TopicRequest, name=none)),
            0,
        ),
        (
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                topic_data=each(
                    produce, name=none, partition_data=[produce.PartitionProduceData(index=0, records=batch(b"v"))]
                ),
            ),
            9,
        ),
        (
            FetchRequest(
                max_wait_ms=50,
                min_bytes=1,
                session_epoch=-1,
                topics=each(
                    fetch,
                    topic=none,
                    topic_id=bytes(16),
                    partitions=[fetch.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)],
                ),
            ),
            11,
        ),
        (
            ListOffsetsRequest(
                replica_id=-1,
                topics=each(
                    listed, name=none, partitions=[listed.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                ),
            ),
            7,
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=each(
                    epochs, topic=none, partitions=[epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
                )
            ),
            4,
        ),
        (
            DeleteRecordsRequest(
                timeout_ms=1000,
                topics=each(
                    deleted, name=none, partitions=[deleted.DeleteRecordsPartition(partition_index=0, offset=1)]
                ),
            ),
            2,
        ),
        (
            DescribeConfigsRequest(
                resources=each(
                    DescribeConfigsRequest.DescribeConfigsResource,
                    resource_type=2,
                    resource_name=none,
                    configuration_keys=["retention.ms"],
                )
            ),
            4,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=each(changed, resource_type=2, resource_name=none, configs=[retention]), validate_only=False
            ),
            1,
        ),
        (
            AlterConfigsRequest(
                resources=each(replaced, resource_type=2, resource_name=none, configs=[old_retention]),
                validate_only=False,
            ),
            2,
        ),
        (
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=2, assignments=None)
                    for name in NAMES
                ],
                timeout_ms=1000,
                validate_only=False,
            ),
            3,
        ),
        (
            ElectLeadersRequest(
                election_type=0,
                topic_partitions=each(ElectLeadersRequest.TopicPartitions, topic=none, partitions=[0]),
                timeout_ms=1000,
            ),
            2,
        ),
        (
            AlterPartitionReassignmentsRequest(
                topics=each(
                    altered,
                    name=none,
                    partitions=[altered.ReassignablePartition(partition_index=0, replicas=list(replicas))],
                ),
            ),
            0,
        ),
        (
            ListPartitionReassignmentsRequest(
                topics=each(
                    ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics, name=none, partition_indexes=[0]
                ),
            ),
            0,
        ),
        (
            DescribeProducersRequest(
                topics=each(DescribeProducersRequest.TopicRequest, name=none, partition_indexes=[0])
            ),
            0,
        ),
        (
            DescribeLogDirsRequest(
                topics=each(DescribeLogDirsRequest.DescribableLogDirTopic, topic=none, partitions=[0])
            ),
            2,
        ),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[*GROUPS, "g"]), 4),
        (
            OffsetCommitRequest(
                group_id="g",
                topics=each(
                    committed,
                    name=none,
                    partitions=[
                        committed.OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                ),
            ),
            8,
        ),
        (OffsetFetchRequest(groups=[group(group_id=name, topics=None) for name in ("g", *GROUPS)]), 8),
        (ListGroupsRequest(), 4),
        (DescribeGroupsRequest(groups=GROUPS), 5),
        (ConsumerGroupDescribeRequest(group_ids=GROUPS, include_authorized_operations=False), 0),
        (
            OffsetDeleteRequest(
                group_id="g",
                topics=each(
                    forgotten, name=none, partitions=[forgotten.OffsetDeleteRequestPartition(partition_index=0)]
                ),
            ),
            0,
        ),
        (DeleteGroupsRequest(groups_names=GROUPS), 2),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=[*NAMES]), 4),
        (
            AddPartitionsToTxnRequest(
                transactions=each(
                    transaction,
                    transactional_id=none,
                    producer_id=7,
                    producer_epoch=0,
                    topics=[AddPartitionsToTxnTopic(name="t0", partitions=[0])],
                )
            ),
            5,
        ),
        (
            TxnOffsetCommitRequest(
                transactional_id="t0",
                group_id="g",
                producer_id=7,
                producer_epoch=0,
                topics=each(
                    pending,
                    name=none,
                    partitions=[
                        pending.TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                ),
            ),
            3,
        ),
        (
            WriteTxnMarkersRequest(
                markers=[
                    marker(
                        producer_id=7,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        transaction_result=True,
                        topics=each(marker.WritableTxnMarkerTopic, name=none, partition_indexes=[0]),
                    )
                ]
            ),
            1,
        ),
        (DescribeTransactionsRequest(transactional_ids=NAMES), 0),
        (
            CreateAclsRequest(
                creations=each(
                    CreateAclsRequest.AclCreation,
                    resource_name=none,
                    resource_type=2,
                    principal="User:alice",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ),
            3,
        ),
        (DescribeAclsRequest(**EVERY_RULE, resource_name_filter=None), 3),
        (
            DeleteAclsRequest(
                filters=each(DeleteAclsRequest.DeleteAclsFilter, **EVERY_RULE, resource_name_filter=none)
            ),
            3,
        ),
        (ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1),
        (
            DeleteTopicsRequest(
                topics=each(DeleteTopicsRequest.DeleteTopicState, name=none, topic_id=bytes(16)), timeout_ms=1000
            ),
            6,
        ),
    ]


def errors(answer: Any) -> Counter[int]:
    """Return how often each error stands in an answer."""
    found: Counter[int] = Counter()
    waiting = [answer.to_dict()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update([value["error_code"]] if "error_code" in value else [])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
# Short themselves: what they change may be large (tests/broker/handlers/test_transactions.py).
SHORT = {AddOffsetsToTxnRequest.api, EndTxnRequest.api}


@pytest.mark.pure
def test_there_is_one_of_every_api_that_is_answered_in_shares() -> None:
    in_shares = {
        api
        for api, (_, newest, name) in SERVED.items()
        if name != "not_in_use.refuse"  # tests/broker/handlers/test_not_in_use.py
        and "Work[" in str(find_route(api, newest).handler.__annotations__["return"])
    }
    assert {request.api for request, _ in requests()} == in_shares - SHORT


@pytest.mark.parametrize("has_authorizer", [False, True], ids=["", "authorizer"])
@pytest.mark.parametrize("has_rules", [False, True], ids=["", "rules for faults"])
async def test_each_has_its_answer(has_rules: bool, has_authorizer: bool) -> None:
    expected = {
        "ElectLeaders": {0, 84},
        "DeleteGroups": {0, 69},
        "ConsumerGroupDescribe": {69},
        "AddPartitionsToTxn": {0, 49},  # the second is each partition's, the first each transaction's
        "TxnOffsetCommit": {49},
        "DescribeTransactions": {105},
    }
    if not has_authorizer:
        expected |= {name: {54} for name in ("CreateAcls", "DescribeAcls", "DeleteAcls")}
    settings = {"offsets.topic.num.partitions": "1", **(AUTHORIZER if has_authorizer else {})}
    async with running(settings) as node, connected(node) as client:
        if has_rules:
            node.faults.add(delay_ms=1)
        for request, version in requests():
            name = type(request).__name__.removesuffix("Request")
            found = errors(await client.ask(request, version))
            assert set(found) <= expected.get(name, {0}), (name, found)


# What brokers say of what another one leads or coordinates, has just done for the one asked before, or never was.
ELSEWHERE = {
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.NOT_COORDINATOR,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
}
DONE_BEFORE = {
    "CreateTopics": Error.TOPIC_ALREADY_EXISTS,
    "CreatePartitions": Error.INVALID_PARTITIONS,
    "DeleteTopics": Error.UNKNOWN_TOPIC_OR_PARTITION,
    "ElectLeaders": Error.ELECTION_NOT_NEEDED,
    "DeleteGroups": Error.GROUP_ID_NOT_FOUND,
    "ConsumerGroupDescribe": Error.GROUP_ID_NOT_FOUND,
    "AddPartitionsToTxn": Error.INVALID_PRODUCER_ID_MAPPING,
    "TxnOffsetCommit": Error.INVALID_PRODUCER_ID_MAPPING,
    "DescribeTransactions": Error.TRANSACTIONAL_ID_NOT_FOUND,
    **dict.fromkeys(("CreateAcls", "DescribeAcls", "DeleteAcls"), Error.SECURITY_DISABLED),
}
UNKNOWN = {
    Error.SECURITY_DISABLED,
    Error.GROUP_ID_NOT_FOUND,
    Error.INVALID_PRODUCER_ID_MAPPING,
    Error.TRANSACTIONAL_ID_NOT_FOUND,
}


@pytest.mark.slow
async def test_each_has_its_answer_from_each_of_three_brokers() -> None:
    reporter = Said()
    async with served(reporter) as cluster, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(node)) for node in cluster.nodes.values()]
        assert len(clients) == 3
        for request, version in requests([1, 2, 3]):
            name = type(request).__name__.removesuffix("Request")
            found: Counter[int] = Counter()
            for client in clients:
                found += errors(await client.ask(request, version))
            assert set(found) <= {0, *ELSEWHERE, DONE_BEFORE.get(name, 0)}, (name, found)
            assert found[0] or DONE_BEFORE.get(name) in UNKNOWN, (name, found)
            await cluster.waits.in_sync(timeout=60)
        assert not [line for line in reporter.lines if "unexpected" in line or "error of our own" in line]
