"""Groups from outside: who is asked, how often, in which versions, and what becomes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minibroker.client import Cluster, SomeFailed
from minibroker.client.groups import CommittedOffset, GroupMember, Groups, ListedGroup
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minibroker.stored.consumer_protocol import ConsumerProtocolAssignment
from tests.client.scripted import CLOSE, SILENCE, ScriptedBroker, TestClock, metadata

pytestmark = pytest.mark.outside

ALL: dict[str, tuple[int, int]] = {
    "ApiVersions": (0, 4), "Metadata": (0, 12), "FindCoordinator": (0, 6), "ListGroups": (0, 5),
    "DescribeGroups": (0, 6), "ConsumerGroupDescribe": (0, 1), "DeleteGroups": (0, 3), "OffsetFetch": (0, 10),
    "OffsetCommit": (0, 10), "OffsetDelete": (0, 0),
}  # fmt: skip


def broker_with(answers: dict[Any, Callable[[Any, int], Any]], **ranges: tuple[int, int] | None) -> ScriptedBroker:
    """Return a broker that coordinates all groups; `ranges` replaces versions of it, None takes an API away."""
    served = {api: versions for api, versions in (ALL | ranges).items() if versions is not None}
    broker = ScriptedBroker({}, served)
    broker.answers = {FindCoordinatorRequest: lambda request, version: found(request, version, broker.port), **answers}
    return broker


def found(request: FindCoordinatorRequest, version: int, port: int, code: int = 0) -> FindCoordinatorResponse:
    at: dict[str, Any] = {"node_id": 1, "host": "127.0.0.1", "port": port, "error_code": code, "error_message": None}
    if version < 4:
        return FindCoordinatorResponse(**at)
    rows = [FindCoordinatorResponse.Coordinator(key=key, **at) for key in request.coordinator_keys]
    return FindCoordinatorResponse(coordinators=rows)


def cluster_of(broker: ScriptedBroker, clock: TestClock | None = None) -> Cluster:
    return Cluster([("127.0.0.1", broker.port)], clock=clock or TestClock())


Deleted = DeleteGroupsResponse.DeletableGroupResult


def deleted(request: DeleteGroupsRequest, codes: dict[str, int]) -> DeleteGroupsResponse:
    rows = [Deleted(group_id=group, error_code=codes.get(group, 0)) for group in request.groups_names]
    return DeleteGroupsResponse(throttle_time_ms=0, results=rows)


# Coordinators


async def test_coordinators_are_found_together_and_remembered() -> None:
    broker = broker_with({DeleteGroupsRequest: lambda request, version: deleted(request, {})})
    async with broker, cluster_of(broker) as cluster:
        groups = Groups(cluster)
        await groups.delete_groups(["a", "b", "a"])
        await groups.delete_groups(["b"])
    (found_once,) = broker.asked(FindCoordinatorRequest)
    assert (found_once.coordinator_keys, found_once.key_type) == (["a", "b"], 0)
    assert [request.groups_names for request in broker.asked(DeleteGroupsRequest)] == [["a", "b"], ["b"]]


async def test_old_brokers_are_asked_for_one_coordinator_at_a_time() -> None:
    broker = broker_with({}, FindCoordinator=(0, 3))
    async with broker, cluster_of(broker) as cluster:
        assert await Groups(cluster).find_coordinators(["a", "b"]) == {"a": 1, "b": 1}
    assert [request.key for request in broker.asked(FindCoordinatorRequest)] == ["a", "b"]


@pytest.mark.parametrize(
    "code", [Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS]
)
async def test_what_will_pass_is_asked_again_and_what_was_answered_is_not(code: Error) -> None:
    codes = [{"b": int(code)}, {"b": int(Error.NON_EMPTY_GROUP)}]
    broker = broker_with({DeleteGroupsRequest: lambda request, version: deleted(request, codes.pop(0))})
    clock = TestClock()
    async with broker, cluster_of(broker, clock) as cluster:
        with pytest.raises(SomeFailed) as caught:
            await Groups(cluster).delete_groups(["a", "b"])
    assert {group: error.code for group, error in caught.value.errors.items()} == {"b": Error.NON_EMPTY_GROUP}
    assert list(caught.value.results) == ["a"]
    assert [request.groups_names for request in broker.asked(DeleteGroupsRequest)] == [["a", "b"], ["b"]]
    assert [request.coordinator_keys for request in broker.asked(FindCoordinatorRequest)] == [["a", "b"], ["b"]]
    assert len(clock.slept) == 1


async def test_patience_ends_and_the_group_is_named() -> None:
    codes = {"b": int(Error.COORDINATOR_LOAD_IN_PROGRESS)}
    broker = broker_with({DeleteGroupsRequest: lambda request, version: deleted(request, codes)})
    async with broker, Cluster([("127.0.0.1", broker.port)], clock=TestClock(), retry_count=3) as cluster:
        with pytest.raises(SomeFailed, match="b: COORDINATOR_LOAD_IN_PROGRESS") as caught:
            await Groups(cluster).delete_groups(["a", "b"])
    assert list(caught.value.results) == ["a"]
    assert len(broker.asked(DeleteGroupsRequest)) == 4


async def test_a_coordinator_that_is_not_there_yet_is_looked_for_again() -> None:
    codes = [Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_NOT_AVAILABLE, Error.NONE]
    broker = broker_with({})
    broker.answers[FindCoordinatorRequest] = lambda request, version: found(request, version, broker.port, codes.pop(0))
    async with broker, cluster_of(broker) as cluster:
        assert await Groups(cluster).find_coordinators(["a"]) == {"a": 1}
    assert not codes


async def test_a_group_that_nobody_may_coordinate_is_an_error_of_its_own() -> None:
    broker = broker_with({DeleteGroupsRequest: lambda request, version: deleted(request, {})})

    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        good = found(request, version, broker.port)
        good.coordinators[0].error_code = Error.GROUP_AUTHORIZATION_FAILED
        return good

    broker.answers[FindCoordinatorRequest] = answer
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(SomeFailed, match="secret: GROUP_AUTHORIZATION_FAILED") as caught:
            await Groups(cluster).delete_groups(["secret", "mine"])
    assert list(caught.value.results) == ["mine"]


async def test_a_coordinator_that_hangs_up_is_looked_for_again() -> None:
    answers: list[Any] = [CLOSE, None]
    broker = broker_with({DeleteGroupsRequest: lambda request, version: answers.pop(0) or deleted(request, {})})
    async with broker, cluster_of(broker) as cluster:
        await Groups(cluster).delete_groups(["a"])
    assert len(broker.asked(FindCoordinatorRequest)) == 2


async def test_whoever_does_not_name_a_coordinator_in_time_loses_its_connection() -> None:
    silent = [True, False]
    clock = TestClock()
    broker = broker_with({})

    def answer(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse | None:
        return SILENCE if silent.pop(0) else found(request, version, broker.port)

    broker.answers[FindCoordinatorRequest] = answer
    async with broker, Cluster([("127.0.0.1", broker.port)], clock=clock, timeout_ms=100) as cluster:
        asking = asyncio.ensure_future(Groups(cluster).find_coordinators(["a"]))
        await broker.wait_for_requests(FindCoordinatorRequest, 1)
        clock.pass_time(100)
        assert await asking == {"a": 1}
        assert broker.connection_count == 2


async def test_a_coordinator_at_another_address_is_believed_after_a_look_at_the_metadata() -> None:
    broker = broker_with({DeleteGroupsRequest: lambda request, version: deleted(request, {})})
    ports = [1]  # where nobody is any more

    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        return metadata(ports.pop() if ports else broker.port, {})

    broker.answers[MetadataRequest] = answer
    async with broker, cluster_of(broker) as cluster:
        await cluster.metadata([])
        assert cluster.nodes[1].port == 1
        await Groups(cluster).delete_groups(["a"])
        assert cluster.nodes[1].port == broker.port


# Lists and descriptions


def listed(*groups: tuple[str, str, str, str], code: int = 0) -> ListGroupsResponse:
    Row = ListGroupsResponse.ListedGroup
    rows = [
        Row(group_id=group, protocol_type=protocol, group_state=state, group_type=kind)
        for group, protocol, state, kind in groups
    ]
    return ListGroupsResponse(error_code=code, groups=rows)


async def test_every_broker_lists_its_groups() -> None:
    lists = [
        listed(("z", "consumer", "Stable", "consumer"), ("a", "", "Empty", "Classic")),
        listed(code=Error.COORDINATOR_LOAD_IN_PROGRESS),
        listed(("m", "connect", "Stable", "Classic")),
    ]
    broker = broker_with({ListGroupsRequest: lambda request, version: lists.pop(0)})

    def two_brokers(request: MetadataRequest, version: int) -> MetadataResponse:
        Node = MetadataResponse.MetadataResponseBroker
        nodes = [Node(node_id=number, host="127.0.0.1", port=broker.port) for number in (1, 2)]
        return MetadataResponse(brokers=nodes, cluster_id="scripted", controller_id=1, topics=[])

    broker.answers[MetadataRequest] = two_brokers
    async with broker, cluster_of(broker) as cluster:
        assert await Groups(cluster).list_groups(states=["Stable"], types=["Consumer"]) == [
            ListedGroup("a", "", "Empty", "Classic"),
            ListedGroup("m", "connect", "Stable", "Classic"),
            ListedGroup("z", "consumer", "Stable", "Consumer"),
        ]
    request = broker.asked(ListGroupsRequest)[0]
    assert (request.states_filter, request.types_filter) == (["Stable"], ["Consumer"])


@pytest.mark.parametrize(
    ("version", "filters", "needed"), [(3, {"states": ["Empty"]}, "v4"), (4, {"types": ["Classic"]}, "v5")]
)
async def test_a_filter_that_the_broker_does_not_know_is_refused(
    version: int, filters: dict[str, list[str]], needed: str
) -> None:
    broker = broker_with({}, ListGroups=(0, version))
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(KafkaError, match=f"UNSUPPORTED_VERSION: .* ListGroups {needed}"):
            await Groups(cluster).list_groups(**filters)
    assert not broker.asked(ListGroupsRequest)


def assigned(topic: str, *partitions: int, version: int = 1, more: bytes = b"") -> bytes:
    rows = [ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))]
    message = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None)
    return version.to_bytes(2, "big") + message.encode(min(version, 3)) + more


def classic(group: str, protocol: str = "consumer", *assignments: bytes, **fields: Any) -> Any:
    Row = DescribeGroupsResponse.DescribedGroup
    members = [
        Row.DescribedGroupMember(
            member_id=f"member-{number}",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            member_metadata=b"",
            member_assignment=assignment,
        )
        for number, assignment in enumerate(assignments)
    ]
    stated = {"error_code": 0, "group_state": "Stable", "protocol_data": "range"} | fields
    return Row(group_id=group, protocol_type=protocol, members=members, **stated)


def modern(group: str, code: int = 0, members: Iterable[Any] = ()) -> Any:
    return ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=code,
        group_id=group,
        group_state="Reconciling",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=list(members),
    )


def describing(rows: dict[str, Any], others: dict[str, Any]) -> dict[Any, Callable[[Any, int], Any]]:
    """Answer for the consumer groups in `rows`, and for the classic ones in `others`."""

    def consumer(request: ConsumerGroupDescribeRequest, version: int) -> ConsumerGroupDescribeResponse:
        found = [rows.get(group) or modern(group, Error.GROUP_ID_NOT_FOUND) for group in request.group_ids]
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=found)

    def classics(request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[others[group] for group in request.groups])

    return {ConsumerGroupDescribeRequest: consumer, DescribeGroupsRequest: classics}


async def test_groups_of_both_protocols_are_described_together() -> None:
    def topics(*partitions: int) -> Assignment:
        row = Assignment.TopicPartitions(topic_id=bytes(16), topic_name="orders", partitions=list(partitions))
        return Assignment(topic_partitions=[row])

    member = ConsumerGroupDescribeResponse.DescribedGroup.Member(
        member_id="m",
        instance_id="one",
        member_epoch=6,
        client_id="client",
        client_host="/::1",
        subscribed_topic_names=["orders"],
        assignment=topics(2, 0),
        target_assignment=topics(0),
        member_type=0,
    )
    broker = broker_with(
        describing(
            {"new": modern("new", members=[member])},
            {"old": classic("old", "consumer", assigned("orders", 1), b"")},
        )
    )
    async with broker, cluster_of(broker) as cluster:
        described = await Groups(cluster).describe_groups(["old", "new"])
    assert list(described) == ["old", "new"]
    assert broker.asked(DescribeGroupsRequest)[0].groups == ["old"]
    new, old = described["new"], described["old"]
    assert (new.type, new.state, new.assignor, new.epoch, new.target_epoch) == (
        "Consumer", "Reconciling", "uniform", 7, 6,
    )  # fmt: skip
    assert new.members == [
        GroupMember("m", "one", "client", "/::1", [("orders", 0), ("orders", 2)], [("orders", 0)], 6, False)
    ]
    assert (old.type, old.state, old.assignor, old.epoch, old.coordinator_id) == ("Classic", "Stable", "range", -1, 1)
    assert [member.assignment for member in old.members] == [[("orders", 1)], []]
    assert old.members[0].target is None


async def test_brokers_without_the_consumer_protocol_are_asked_for_classic_groups_alone() -> None:
    broker = broker_with(describing({}, {"old": classic("old")}), ConsumerGroupDescribe=None)
    async with broker, cluster_of(broker) as cluster:
        assert (await Groups(cluster).describe_groups(["old"]))["old"].type == "Classic"
    assert not broker.asked(ConsumerGroupDescribeRequest)


@pytest.mark.parametrize(
    "row",
    [
        classic("gone", "", error_code=Error.GROUP_ID_NOT_FOUND, group_state="Dead"),
        classic("gone", "", group_state="Dead"),  # before version 6
    ],
)
async def test_a_group_that_does_not_exist_is_an_error(row: Any) -> None:
    broker = broker_with(describing({}, {"gone": row, "here": classic("here")}))
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(SomeFailed) as caught:
            await Groups(cluster).describe_groups(["gone", "here"])
    assert caught.value.errors["gone"].code == Error.GROUP_ID_NOT_FOUND
    assert list(caught.value.results) == ["here"]


async def test_assignments_of_newer_versions_are_read_as_far_as_they_are_known() -> None:
    row = classic("old", "consumer", assigned("orders", 3, version=9, more=b"what we cannot know"))
    broker = broker_with(describing({}, {"old": row}))
    async with broker, cluster_of(broker) as cluster:
        described = await Groups(cluster).describe_groups(["old"])
    assert described["old"].members[0].assignment == [("orders", 3)]


async def test_what_others_than_consumers_give_each_other_is_not_read() -> None:
    broker = broker_with(describing({}, {"workers": classic("workers", "connect", b"\xff\xff\xff")}))
    async with broker, cluster_of(broker) as cluster:
        described = (await Groups(cluster).describe_groups(["workers"]))["workers"]
    assert (described.protocol_type, described.members[0].assignment) == ("connect", [])


# Offsets


def fetched(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """Say that 5 is committed for each partition that is asked for, and nothing for partition 9; all means one."""

    def topics(wanted: Any, Topic: Any, Partition: Any) -> list[Any]:
        pairs = [("orders", [0])] if wanted is None else [(topic.name, topic.partition_indexes) for topic in wanted]
        return [
            Topic(
                name=name,
                partitions=[
                    Partition(
                        partition_index=index,
                        committed_offset=-1 if index == 9 else 5,
                        committed_leader_epoch=-1 if index == 9 else 2,
                        metadata="why",
                        error_code=0,
                    )
                    for index in numbers
                ],
            )
            for name, numbers in pairs
        ]

    if version < 8:
        Old = OffsetFetchResponse.OffsetFetchResponseTopic
        return OffsetFetchResponse(topics=topics(request.topics, Old, Old.OffsetFetchResponsePartition))
    Group = OffsetFetchResponse.OffsetFetchResponseGroup
    Topic = Group.OffsetFetchResponseTopics
    rows = [
        Group(group_id=group.group_id, topics=topics(group.topics, Topic, Topic.OffsetFetchResponsePartitions))
        for group in request.groups
    ]
    return OffsetFetchResponse(groups=rows)


@pytest.mark.parametrize("version", range(11))
async def test_offsets_are_fetched_in_every_version(version: int) -> None:
    broker = broker_with({OffsetFetchRequest: fetched}, OffsetFetch=(0, version))
    wanted = [("users", 1), ("orders", 9), ("orders", 0)]
    async with broker, cluster_of(broker) as cluster:
        offsets = await Groups(cluster).fetch_offsets(["a", "b"], wanted)
    at = CommittedOffset(5, "why", 2 if version >= 5 else -1)
    assert offsets == {group: {("orders", 0): at, ("users", 1): at} for group in ("a", "b")}
    assert list(offsets["a"]) == [("orders", 0), ("users", 1)]
    assert broker.versions(OffsetFetchRequest) == [min(version, 9)] * (1 if version >= 8 else 2)


@pytest.mark.parametrize("version", [1, 2, 9])
async def test_all_offsets_are_fetched_also_where_that_cannot_be_said(version: int) -> None:
    broker = broker_with({OffsetFetchRequest: fetched}, OffsetFetch=(0, version))
    broker.answers[MetadataRequest] = lambda request, version: metadata(broker.port, {"orders": 1, "users": 10})
    async with broker, cluster_of(broker) as cluster:
        offsets = (await Groups(cluster).fetch_offsets(["a"]))["a"]
    if version == 1:
        assert list(offsets) == [("orders", 0), *(("users", number) for number in range(9))]
    else:
        assert list(offsets) == [("orders", 0)]


async def test_stable_offsets_are_waited_for() -> None:
    codes = [Error.UNSTABLE_OFFSET_COMMIT, Error.NONE]

    def answer(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        assert request.require_stable
        answer = fetched(request, version)
        answer.groups[0].topics[0].partitions[0].error_code = codes.pop(0)
        return answer

    broker = broker_with({OffsetFetchRequest: answer})
    async with broker, cluster_of(broker) as cluster:
        offsets = await Groups(cluster).fetch_offsets(["a"], [("orders", 0)], stable=True)
    assert offsets["a"]["orders", 0].offset == 5
    assert not codes


async def test_stable_offsets_are_refused_where_brokers_cannot_tell() -> None:
    broker = broker_with({}, OffsetFetch=(0, 6))
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION: stable offsets need OffsetFetch v7"):
            await Groups(cluster).fetch_offsets(["a"], stable=True)


def committed(codes: dict[tuple[str, int], int]) -> Callable[[OffsetCommitRequest, int], OffsetCommitResponse]:
    Topic = OffsetCommitResponse.OffsetCommitResponseTopic
    Partition = Topic.OffsetCommitResponsePartition

    def answer(request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                Topic(
                    name=topic.name,
                    partitions=[
                        Partition(
                            partition_index=row.partition_index,
                            error_code=codes.get((topic.name, row.partition_index), 0),
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


async def test_offsets_are_altered_as_by_nobody() -> None:
    broker = broker_with({OffsetCommitRequest: committed({})})
    offsets = {("orders", 0): 7, ("users", 1): CommittedOffset(8, "why", 3), ("orders", 1): 0}
    async with broker, cluster_of(broker) as cluster:
        await Groups(cluster).alter_offsets("a", offsets)
    (request,) = broker.asked(OffsetCommitRequest)
    assert broker.versions(OffsetCommitRequest) == [9]  # the last one with names of topics
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("a", -1, "")
    assert [
        (topic.name, row.partition_index, row.committed_offset, row.committed_metadata, row.committed_leader_epoch)
        for topic in request.topics
        for row in topic.partitions
    ] == [("orders", 0, 7, "", -1), ("orders", 1, 0, "", -1), ("users", 1, 8, "why", 3)]


async def test_partitions_that_could_not_be_altered_are_named() -> None:
    broker = broker_with({OffsetCommitRequest: committed({("gone", 0): Error.UNKNOWN_TOPIC_OR_PARTITION})})
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(SomeFailed, match="gone-0: UNKNOWN_TOPIC_OR_PARTITION") as caught:
            await Groups(cluster).alter_offsets("a", {("gone", 0): 1, ("orders", 0): 2})
    assert list(caught.value.results) == [("orders", 0)]
    assert len(broker.asked(OffsetCommitRequest)) == 1


async def test_a_commit_that_met_the_wrong_coordinator_is_repeated() -> None:
    answers = [committed({("orders", 0): Error.NOT_COORDINATOR}), committed({})]
    broker = broker_with({OffsetCommitRequest: lambda request, version: answers.pop(0)(request, version)})
    async with broker, cluster_of(broker) as cluster:
        await Groups(cluster).alter_offsets("a", {("orders", 0): 1})
    assert len(broker.asked(FindCoordinatorRequest)) == 2


async def test_offsets_are_deleted() -> None:
    Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic

    def answer(request: OffsetDeleteRequest, version: int) -> OffsetDeleteResponse:
        codes = {0: 0, 1: Error.GROUP_SUBSCRIBED_TO_TOPIC}
        rows = [
            Topic.OffsetDeleteResponsePartition(
                partition_index=row.partition_index, error_code=codes[row.partition_index]
            )
            for row in request.topics[0].partitions
        ]
        return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=[Topic(name="orders", partitions=rows)])

    broker = broker_with({OffsetDeleteRequest: answer})
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(SomeFailed, match="orders-1: GROUP_SUBSCRIBED_TO_TOPIC") as caught:
            await Groups(cluster).delete_offsets("a", [("orders", 0), ("orders", 1)])
    assert list(caught.value.results) == [("orders", 0)]


async def test_offsets_of_a_group_that_does_not_exist_are_not_deleted() -> None:
    gone = OffsetDeleteResponse(error_code=Error.GROUP_ID_NOT_FOUND, throttle_time_ms=0, topics=[])
    broker = broker_with({OffsetDeleteRequest: lambda request, version: gone})
    async with broker, cluster_of(broker) as cluster:
        with pytest.raises(KafkaError) as caught:
            await Groups(cluster).delete_offsets("a", [("orders", 0)])
    assert caught.value.code == Error.GROUP_ID_NOT_FOUND
