"""FindCoordinator: whose the groups are, and what else is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.controller.controller import RECORDS_MAX
from minibroker.coordinator.hashing import partition_of
from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.transactions import TRANSACTION_STATE_TOPIC
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(broker: VirtualBroker, *keys: str, kind: int = GROUP, version: int = 6) -> list[Any]:
    """Return what is answered for each key."""
    if version < 4:
        return [broker.ask(FindCoordinatorRequest(key=key, key_type=kind), version) for key in keys]
    answer = broker.ask(FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind), version)
    assert [each.key for each in answer.coordinators] == [*keys]
    return list(answer.coordinators)


# Kind of coordinator -> the topic of its state, and the setting that says how many partitions that has.
KEPT_IN = {
    GROUP: (OFFSETS_TOPIC, "offsets.topic.num.partitions"),
    TRANSACTION: (TRANSACTION_STATE_TOPIC, "transaction.state.log.num.partitions"),
}


@pytest.mark.parametrize(
    ("kind", "version"), [*((GROUP, version) for version in range(7)), *((TRANSACTION, each) for each in range(1, 7))]
)
def test_the_broker_coordinates_every_group_and_transactional_id_and_has_a_topic_for_them(
    broker: VirtualBroker, kind: int, version: int
) -> None:
    for found in find(broker, "g", "i", "h", kind=kind, version=version):
        assert (found.error_code, found.node_id) == (Error.NONE, 1)
        assert (found.host, found.port) == broker.connection.local_address
        assert found.error_message == ("" if version >= 4 else "NONE" if version else "")
    topic, setting = KEPT_IN[kind]
    assert {name: len(each.partitions) for name, each in broker.node.image.topics.items()} == {
        topic: broker.node.config[setting]
    }


def test_an_empty_name_has_a_coordinator_though_no_transaction_may_have_it(broker: VirtualBroker) -> None:
    for kind in (GROUP, TRANSACTION):
        (found,) = find(broker, "", kind=kind)
        assert (found.error_code, found.node_id) == (Error.NONE, broker.node.node_id)


def test_no_other_kind_of_coordinator_makes_a_topic_or_is_there(broker: VirtualBroker) -> None:
    for kind, code in (
        (SHARE, Error.INVALID_REQUEST),
        (9, Error.INVALID_REQUEST),
    ):
        for version in (3, 4):
            (found,) = find(broker, "k", kind=kind, version=version)
            assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)
            assert bool(found.error_message.removeprefix("NONE")) == (kind != SHARE)
    assert not broker.node.image.topics


def test_a_group_whose_partition_nobody_leads_has_no_coordinator() -> None:
    with virtual_broker({"offsets.topic.num.partitions": 2}) as broker:
        names = {partition_of(name, 2): name for name in "ghijklmn"}
        assert [each.error_code for each in find(broker, *names.values())] == [Error.NONE] * 2
        first, second = broker.node.image.topics[OFFSETS_TOPIC].partitions
        for leader in (-1, 7):
            first.leader = leader
            found = {index: find(broker, names[index])[0] for index in (0, 1)}
            assert {index: (each.error_code, each.node_id) for index, each in found.items()} == {
                0: (Error.COORDINATOR_NOT_AVAILABLE, -1),
                1: (Error.NONE, 1),
            }
            assert found[0].error_message
        first.leader = second.leader


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION])
def test_the_partition_of_a_key_is_opened_before_all_others_and_for_its_kind_only(
    broker: VirtualBroker, kind: int
) -> None:
    topic, _ = KEPT_IN[kind]

    def create() -> None:
        for name, count in (("wide", 1_000), (topic, 2)):
            broker.node.create_topic(name, count, at_once=False)

    broker.run(create)
    wanted, other = partition_of("g", 2), 1 - partition_of("g", 2)
    (found,) = find(broker, "g", kind=SHARE)
    assert found.error_code == Error.INVALID_REQUEST
    assert (topic, wanted) not in broker.node.replicas
    (found,) = find(broker, "g", kind=kind)
    assert found.error_code == Error.NONE
    assert (topic, wanted) in broker.node.replicas
    assert (topic, other) not in broker.node.replicas
    assert not broker.node.partitions.is_settled


def test_no_group_has_a_coordinator_as_long_as_its_topic_cannot_be_made() -> None:
    with virtual_broker({"offsets.topic.num.partitions": RECORDS_MAX + 1}) as broker:
        broker.run(lambda: broker.node.create_topic("wide", 1_000, at_once=False))
        (found,) = find(broker, "g")
        assert found.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert not broker.node.partitions.is_settled
