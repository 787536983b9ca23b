"""Groups as others see them: described, listed, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.group_admin import consumer_group_describe, describe_groups
from minibroker.errors import Error
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.handlers.members import MEMBER_ID, beat, commit, coordinator, join_request, stable
from tests.broker.virtual_broker import VirtualBroker

NOT_ASKED = -(1 << 31)


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    """Return a broker with a group of each protocol, and one that has only offsets."""
    with coordinator() as broker:
        broker.node.create_topic("orders", 2)
        stable(broker, "classic", group_instance_id=None)
        assert beat(broker, 0, "consumer").error_code == Error.NONE
        commit(broker, {"orders": {0: 1}}, "simple")
        yield broker


def describe(broker: VirtualBroker, *groups: str, version: int = 6, operations: bool = False) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    found = broker.ask(request, version).groups
    assert [each.group_id for each in found] == [*groups]
    return list(found)


def test_a_group_that_is_named_often_is_described_once(broker: VirtualBroker) -> None:
    context = Context(broker.node, broker.connection, 6, "test")

    def cost_us(*groups: str) -> int:
        return sum(describe_groups(DescribeGroupsRequest(groups=list(groups)), context))  # type: ignore[arg-type]

    def cost_of_consumers_us(*groups: str) -> int:
        request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)
        return sum(each for each in consumer_group_describe(request, context) if isinstance(each, int))

    once_us = cost_us("classic")
    assert once_us > cost_us("simple") > 0, "each member counts"
    assert cost_us(*["classic"] * 100) == once_us
    assert cost_us("classic", "simple") == once_us + cost_us("simple")
    assert cost_of_consumers_us(*["consumer"] * 100) == cost_of_consumers_us("consumer") > 0


def test_classic_groups_are_described_with_their_members(broker: VirtualBroker) -> None:
    classic, simple, again = describe(broker, "classic", "simple", "classic")
    assert classic == again
    assert (classic.error_code, classic.error_message, classic.group_state) == (Error.NONE, None, "Stable")
    assert (classic.protocol_type, classic.protocol_data) == ("consumer", "range")
    (member,) = classic.members
    assert (member.client_id, member.client_host, member.group_instance_id) == ("test", "/127.0.0.1", None)
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"share")
    assert (simple.group_state, simple.protocol_type, simple.protocol_data, simple.members) == ("Empty", "", "", [])


@pytest.mark.parametrize(("release", "assignment"), [("3.9", b""), ("4.4", b"share")])
def test_a_group_that_rebalances_shows_no_protocol(release: str, assignment: bytes) -> None:
    with coordinator(as_version=release) as broker:
        first = stable(broker)
        second = broker.begin(join_request(), 3, by=broker.connect().connection)
        (found,) = describe(broker, "g", version=5)
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("PreparingRebalance", "consumer", "")
        shown = [
            (each.member_id == first.member_id, each.member_metadata, each.member_assignment) for each in found.members
        ]
        assert sorted(shown) == [(False, b"", b""), (True, b"", assignment)]
        broker.wait(second)


def test_what_is_no_classic_group_is_dead_or_not_found(broker: VirtualBroker) -> None:
    words = {"consumer": "Group consumer is not a classic group.", "absent": "Group absent not found."}
    for group, message in words.items():
        (old,) = describe(broker, group, version=5, operations=True)
        assert (old.error_code, old.group_state, old.members) == (Error.NONE, "Dead", [])
        assert old.authorized_operations > 0
        (new,) = describe(broker, group, operations=True)
        assert (new.error_code, new.error_message, new.group_state) == (Error.GROUP_ID_NOT_FOUND, message, "Dead")
        assert new.authorized_operations == NOT_ASKED


@pytest.mark.parametrize(("release", "operations"), [("3.9", (3, 6, 8)), ("4.4", (3, 6, 8, 10, 11))])
def test_what_may_be_done_with_a_group_is_told_who_asks(release: str, operations: tuple[int, ...]) -> None:
    with coordinator(as_version=release) as broker:
        stable(broker)
        assert describe(broker, "g", version=5)[0].authorized_operations == NOT_ASKED
        (found,) = describe(broker, "g", version=5, operations=True)
        assert found.authorized_operations == sum(1 << each for each in operations)


def described(broker: VirtualBroker, *groups: str, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
    found = broker.ask(request, 1).groups
    assert [each.group_id for each in found] == [*groups]
    return list(found)


def test_consumer_groups_are_described_with_their_members(broker: VirtualBroker) -> None:
    found, again = described(broker, "consumer", "consumer")
    assert found == again
    assert (found.error_code, found.group_state, found.assignor_name) == (Error.NONE, "Stable", "uniform")
    assert found.group_epoch == found.assignment_epoch == 2
    assert found.authorized_operations == NOT_ASKED
    (member,) = found.members
    assert (member.member_id, member.subscribed_topic_names) == (MEMBER_ID, ["orders"])
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("orders", [0, 1])]
    (asked,) = described(broker, "consumer", operations=True)
    assert asked.authorized_operations == sum(1 << each for each in (3, 6, 8, 10, 11))
    for group, code, words in (
        ("classic", Error.GROUP_ID_NOT_FOUND, "Group classic is not a consumer group."),
        ("absent", Error.GROUP_ID_NOT_FOUND, "Group absent not found."),
        ("", Error.INVALID_GROUP_ID, None),
    ):
        (refused,) = described(broker, group)
        assert (refused.error_code, refused.error_message) == (code, words)
        assert (refused.group_epoch, refused.assignment_epoch, refused.members) == (0, 0, [])


def test_consumer_groups_are_not_described_where_there_can_be_none() -> None:
    with coordinator({"group.coordinator.rebalance.protocols": "classic"}) as broker:
        assert [each.error_code for each in described(broker, "g", "")] == [Error.UNSUPPORTED_VERSION] * 2


def test_groups_are_listed_by_state_and_type(broker: VirtualBroker) -> None:
    rows = {
        "classic": ("consumer", "Stable", "classic"),
        "consumer": ("consumer", "Stable", "consumer"),
        "simple": ("", "Empty", "classic"),
    }

    def listed(states: tuple[str, ...] = (), kinds: tuple[str, ...] = (), version: int = 5) -> dict[str, Any]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))
        answer = broker.ask(request, version)
        assert answer.error_code == Error.NONE
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}

    assert listed() == rows
    assert listed(("stable",)) == {name: row for name, row in rows.items() if name != "simple"}
    assert listed(("Empty", "Dead")) == {"simple": rows["simple"]}
    assert listed(kinds=("Consumer",)) == {"consumer": rows["consumer"]}
    assert listed(("Stable",), ("classic",)) == {"classic": rows["classic"]}
    assert listed(("Dead",)) == listed(("Empty",), ("consumer",)) == {}
    assert listed(version=0).keys() == rows.keys()


def test_a_partition_that_is_being_read_is_told(broker: VirtualBroker) -> None:
    (led, *_) = broker.node.groups.led()
    led.log.is_loading = True
    assert broker.ask(ListGroupsRequest(), 5).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    led.log.is_loading = False
    assert broker.ask(ListGroupsRequest(), 5).error_code == Error.NONE


def test_groups_that_nobody_is_in_are_deleted(broker: VirtualBroker) -> None:
    def delete(*groups: str) -> list[tuple[str, int]]:
        answer = broker.ask(DeleteGroupsRequest(groups_names=list(groups)), 2)
        return [(each.group_id, each.error_code) for each in answer.results]

    refused = [("classic", Error.NON_EMPTY_GROUP), ("consumer", Error.NON_EMPTY_GROUP), ("absent", 69)]
    assert delete("simple", "classic", "consumer", "absent", "classic") == [*refused, ("simple", Error.NONE)]
    assert {each.group_id for each in broker.ask(ListGroupsRequest(), 5).groups} == {"classic", "consumer"}
    assert delete("simple") == [("simple", Error.GROUP_ID_NOT_FOUND)]
    assert delete() == []
    assert beat(broker, -1, "consumer").error_code == Error.NONE
    assert delete("consumer") == [("consumer", Error.NONE)]
