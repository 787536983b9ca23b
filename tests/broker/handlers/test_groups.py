"""Members of groups: what each version is answered, and which requests no group hears of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.handlers.groups import NAME_BYTES_MAX
from minibroker.errors import Error
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.leave_group import LeaveGroupRequest
from tests.broker.handlers.members import MEMBER_ID, beat, coordinator, join_request, stable, sync_request
from tests.broker.virtual_broker import VirtualBroker

Member = LeaveGroupRequest.MemberIdentity


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with coordinator() as broker:
        yield broker


def heartbeat(group: str = "g", member_id: str = "m", generation: int = 1, **more: Any) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation, **more)


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_and_leads_its_group(broker: VirtualBroker, version: int) -> None:
    first = broker.ask(join_request(), version, client_id="client")
    if version >= 4:
        assert (first.error_code, first.generation_id) == (Error.MEMBER_ID_REQUIRED, -1)
        assert first.protocol_name == (None if version >= 7 else "")
        assert first.member_id.startswith("client-")
        first = broker.ask(join_request(member_id=first.member_id), version)
    assert first.error_code == Error.NONE
    assert (first.generation_id, first.protocol_name, first.leader) == (1, "range", first.member_id)
    assert [(each.member_id, each.metadata) for each in first.members] == [(first.member_id, b"meta")]
    assert first.member_id.startswith("client-")
    member = next(iter(broker.node.groups.coordinator.find("g").shard.find("g").members))
    assert (member.client_id, member.client_host) == ("client" if version < 4 else "test", "/127.0.0.1")
    assert member.session_timeout_ms == 10_000
    assert member.rebalance_timeout_ms == (10_000 if version == 0 else 20_000)


def test_a_member_without_a_client_id_has_an_empty_one(broker: VirtualBroker) -> None:
    joined = broker.ask(join_request(), 3, client_id=None)
    assert joined.member_id.startswith("-")
    (member,) = broker.node.groups.coordinator.find("g").shard.find("g").members
    assert member.client_id == ""


def test_a_static_member_is_named_after_its_instance(broker: VirtualBroker) -> None:
    joined = broker.ask(join_request(group_instance_id="instance"), 5)
    assert (joined.error_code, joined.member_id.startswith("instance-")) == (Error.NONE, True)


def refused(broker: VirtualBroker, version: int = 3, **more: Any) -> int:
    answer = broker.ask(join_request(**more), version)
    assert (answer.generation_id, answer.members) == (-1, [])
    assert answer.member_id == more.get("member_id", "")
    return int(answer.error_code)


def test_who_may_not_join_makes_no_group(broker: VirtualBroker) -> None:
    low, high = 6_000, 1_800_000
    assert refused(broker, group="") == Error.INVALID_GROUP_ID
    for session_ms in (low - 1, high + 1):
        assert refused(broker, session_timeout_ms=session_ms) == Error.INVALID_SESSION_TIMEOUT
    assert refused(broker, member_id="unknown") == Error.UNKNOWN_MEMBER_ID
    assert refused(broker, protocols=[]) == Error.INCONSISTENT_GROUP_PROTOCOL
    assert not broker.node.groups.coordinator.find("g").shard.groups
    for session_ms in (low, high):
        assert stable(broker, f"g{session_ms}", session_timeout_ms=session_ms).generation_id == 1


def test_an_id_that_no_record_has_room_for_is_refused(broker: VirtualBroker) -> None:
    for name, code in (("n" * NAME_BYTES_MAX, Error.NONE), ("n" * (NAME_BYTES_MAX + 1), Error.INVALID_REQUEST)):
        assert broker.ask(join_request(f"g{code}", group_instance_id=name), 5).error_code == code
    letters = "ü" * (NAME_BYTES_MAX // 2 + 1)  # of two bytes each
    assert broker.ask(join_request("h", group_instance_id=letters), 5).error_code == Error.INVALID_REQUEST
    known = broker.ask(join_request("i", "x" * 30_000, group_instance_id=letters), 5)
    assert known.error_code == Error.UNKNOWN_MEMBER_ID, "who has an id is given none"


@pytest.mark.parametrize("version", [4, 5])
def test_a_member_that_syncs_names_its_protocol(broker: VirtualBroker, version: int) -> None:
    joined = broker.ask(join_request(), 3)
    for more in ({"protocol_type": None}, {"protocol_name": None}):
        if version < 5:
            more = {"protocol_type": None, "protocol_name": None}
        answer = broker.ask(sync_request(joined, **more), version)
        assert answer.error_code == (Error.NONE if version < 5 else Error.INCONSISTENT_GROUP_PROTOCOL)
    answer = broker.ask(sync_request(joined), 5)
    assert (answer.error_code, answer.assignment) == (Error.NONE, b"share")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def test_nobody_belongs_to_a_group_that_is_not_there(broker: VirtualBroker) -> None:
    joined = stable(broker)
    for group, code in (("", Error.INVALID_GROUP_ID), ("absent", Error.UNKNOWN_MEMBER_ID)):
        assert broker.ask(sync_request(joined, group), 5).error_code == code
        assert broker.ask(heartbeat(group), 4).error_code == code
        assert broker.ask(LeaveGroupRequest(group_id=group, member_id="m"), 2).error_code == code
    assert broker.ask(LeaveGroupRequest(group_id="", members=[Member(member_id="m")]), 3).error_code == 24


def test_a_member_is_alive_as_long_as_it_says_so(broker: VirtualBroker) -> None:
    joined = stable(broker)

    def code(member_id: str = joined.member_id, generation: int = joined.generation_id) -> int:
        return int(broker.ask(heartbeat("g", member_id, generation), 4).error_code)

    for _ in range(4):
        assert code() == Error.NONE
        broker.pass_ms(9_000)
    assert code(generation=7) == Error.ILLEGAL_GENERATION
    assert code("another") == Error.UNKNOWN_MEMBER_ID
    broker.pass_ms(11_000)
    assert code() == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_alone_or_together_with_others(broker: VirtualBroker, version: int) -> None:
    joined = stable(broker)
    if version < 3:
        answers = [
            broker.ask(LeaveGroupRequest(group_id="g", member_id=each), version)
            for each in ("absent", joined.member_id)
        ]
        assert [each.error_code for each in answers] == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
        assert [each.members for each in answers] == [[], []]
    else:
        rows = [
            Member(member_id="absent"),
            Member(member_id=joined.member_id),
            Member(member_id="", group_instance_id="i"),
        ]
        answer = broker.ask(LeaveGroupRequest(group_id="g", members=rows), version)
        assert answer.error_code == Error.NONE
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
            ("absent", None, Error.UNKNOWN_MEMBER_ID),
            (joined.member_id, None, Error.NONE),
            ("", "i", Error.UNKNOWN_MEMBER_ID),
        ]
        gone = broker.ask(LeaveGroupRequest(group_id="absent", members=rows[:1]), version)
        assert (gone.error_code, [each.error_code for each in gone.members]) == (0, [Error.UNKNOWN_MEMBER_ID])
    group = broker.node.groups.coordinator.find("g").shard.find("g")
    assert not group.members
    assert group.is_idle


def test_a_leader_that_returns_keeps_the_assignment_if_it_knows_how(broker: VirtualBroker) -> None:
    for version in (8, 9):
        group = f"g{version}"
        joined = stable_static(broker, group)
        again = broker.ask(join_request(group, group_instance_id="i"), version)
        assert (again.error_code, again.generation_id) == (Error.NONE, joined.generation_id)
        assert again.skip_assignment == (version == 9)
        assert again.leader == (again.member_id if version == 9 else joined.member_id)


def stable_static(broker: VirtualBroker, group: str) -> Any:
    joined = broker.ask(join_request(group, group_instance_id="i"), 5)
    assert broker.ask(sync_request(joined, group, group_instance_id="i"), 5).error_code == Error.NONE
    return joined


# The consumer protocol


def test_a_member_of_a_consumer_group_joins_stays_and_leaves(broker: VirtualBroker) -> None:
    broker.node.create_topic("orders", 2)
    joined = beat(broker, 0)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (Error.NONE, MEMBER_ID, 2)
    ((topic),) = joined.assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (broker.node.image.topics["orders"].id, [0, 1])
    again = beat(broker, 2)
    assert (again.error_code, again.member_epoch, again.assignment) == (Error.NONE, 2, None)
    assert again.heartbeat_interval_ms == broker.node.config["group.consumer.heartbeat.interval.ms"]
    (member,) = broker.node.groups.coordinator.find("g").shard.find("g").state.members.values()
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    left = beat(broker, -1)
    assert (left.error_code, left.member_epoch) == (Error.NONE, -1)
    gone = beat(broker, 2)
    assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (Error.UNKNOWN_MEMBER_ID, 0, 0)
    assert gone.error_message


def test_in_version_0_the_broker_makes_the_ids_of_members(broker: VirtualBroker) -> None:
    ids = {beat(broker, 0, member_id="", version=0).member_id for _ in range(3)}
    assert len(ids) == 3
    assert all(len(each) == 22 for each in ids)
    assert beat(broker, 0, member_id="", version=1).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_only_who_joins_makes_a_consumer_group(broker: VirtualBroker, epoch: int) -> None:
    more = {"instance_id": "i"} if epoch == -2 else {}
    answer = beat(broker, epoch, **more)
    assert answer.error_code == Error.GROUP_ID_NOT_FOUND
    assert "g" in answer.error_message
    assert not broker.node.groups.coordinator.find("g").shard.groups
    features = broker.node.image.features
    assert "group.version" not in features
    assert beat(broker, 0).error_code == Error.NONE
    assert broker.node.image.features["group.version"] == 1


def test_a_broker_without_that_protocol_says_so() -> None:
    with coordinator({"group.coordinator.rebalance.protocols": "classic"}) as broker:
        answer = beat(broker, 0)
        assert (answer.error_code, answer.error_message) == (Error.UNSUPPORTED_VERSION, None)
        assert beat(broker, 0, "").error_code == Error.UNSUPPORTED_VERSION
    with coordinator() as broker:
        assert beat(broker, 0, "").error_code == Error.INVALID_REQUEST


def test_an_empty_group_takes_the_protocol_of_who_comes_next(broker: VirtualBroker) -> None:
    joined = stable(broker)
    assert beat(broker, 0).error_code == Error.GROUP_ID_NOT_FOUND, "its member speaks no consumer protocol"
    left = broker.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    assert left.error_code == Error.NONE
    assert beat(broker, 0).member_epoch == 2
    assert beat(broker, -1).error_code == Error.NONE
    assert stable(broker).generation_id == 1


def test_classic_members_join_consumer_groups(broker: VirtualBroker) -> None:
    """Their ids are made as those of consumer groups are, and each of their requests finds the group."""
    broker.node.create_topic("orders", 2)
    assert beat(broker, 0).error_code == Error.NONE
    subscription = (
        b"\0\3" + b"\0\0\0\1\0\6orders" + b"\xff\xff\xff\xff" + b"\0\0\0\0" + b"\xff\xff\xff\xff" + b"\xff\xff"
    )
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)]
    needed = broker.ask(join_request(protocols=protocols), 9)
    assert needed.error_code == Error.MEMBER_ID_REQUIRED
    assert len(needed.member_id) == 22
    joined = broker.ask(join_request(member_id=needed.member_id, protocols=protocols), 9)
    assert (joined.error_code, joined.member_id) == (Error.NONE, needed.member_id)
    synced = broker.ask(sync_request(joined, assignments=[]), 5)
    assert synced.error_code in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    beaten = broker.ask(heartbeat("g", joined.member_id, joined.generation_id), 4)
    assert beaten.error_code in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    assert broker.ask(heartbeat("g", "absent"), 4).error_code == Error.UNKNOWN_MEMBER_ID
    rows = [Member(member_id="absent"), Member(member_id=joined.member_id)]
    left = broker.ask(LeaveGroupRequest(group_id="g", members=rows), 5)
    assert [each.error_code for each in left.members] == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
    group = broker.node.groups.coordinator.find("g").shard.find("g")
    assert list(group.state.members) == [MEMBER_ID]
