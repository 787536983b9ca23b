"""Who leads and where replicas are, on a broker of its own: a share of many partitions at a time."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers.leaders import SHARE_PARTITIONS
from minibroker.errors import Error
from minibroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest
from minibroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.virtual_broker import VirtualBroker

PREFERRED = 0
MANY = 2 * SHARE_PARTITIONS + 3


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    broker.run(broker.node.create_topic, "t", MANY)
    broker.node.create_topic("u", 2)
    return broker


def elect(broker: VirtualBroker, wanted: dict[str, list[int]] | None, kind: int = PREFERRED, version: int = 2) -> Any:
    Topic = ElectLeadersRequest.TopicPartitions
    topics = None if wanted is None else [Topic(topic=name, partitions=rows) for name, rows in wanted.items()]
    return broker.ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=1000), version)


def elected(answer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
        for topic in answer.replica_election_results
    ]


@pytest.mark.parametrize("sizes", [{"t": MANY, "u": 2}, {"u": 2, "t": MANY}, {"t": SHARE_PARTITIONS}, {"u": 1}, {}])
def test_each_partition_is_answered_for_once_and_in_its_place(broker: VirtualBroker, sizes: dict[str, int]) -> None:
    answer = elect(broker, {name: list(range(count)) for name, count in sizes.items()})
    assert answer.error_code == Error.NONE
    assert elected(answer) == [
        (name, [(index, Error.ELECTION_NOT_NEEDED) for index in range(count)]) for name, count in sizes.items()
    ]


def test_of_all_partitions_only_those_are_named_that_needed_something(broker: VirtualBroker) -> None:
    answer = elect(broker, None)
    assert answer.error_code == Error.NONE
    assert all(rows == [] for _, rows in elected(answer))
    for wanted in (None, {"u": [0, 1]}):
        partition = broker.node.image.topics["u"].partitions[1]
        partition.leader, partition.replicas, partition.isr = 2, [1, 2], [1, 2]  # as with a broker that has gone
        found = dict(elected(elect(broker, wanted)))
        assert found["u"] == [(0, Error.ELECTION_NOT_NEEDED), (1, Error.NONE)][wanted is None :]
        assert broker.node.image.topics["u"].partitions[1].leader == 1


def test_an_election_of_another_kind_is_refused_and_unknown_partitions_are_told(broker: VirtualBroker) -> None:
    assert elect(broker, {"u": [0]}, kind=5).error_code == Error.INVALID_REQUEST
    assert elected(elect(broker, {"u": [7], "absent": [0]})) == [
        ("u", [(7, Error.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("absent", [(0, Error.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


def test_replicas_stay_where_they_are_if_there_is_one_broker(broker: VirtualBroker) -> None:
    Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    rows = [(name, index) for name, count in (("t", MANY), ("u", 2)) for index in range(count)]

    def reassign(names: dict[str, list[tuple[int, list[int] | None]]]) -> list[tuple[str, int, int]]:
        topics = [
            Topic(
                name=name,
                partitions=[
                    Topic.ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in wanted
                ],
            )
            for name, wanted in names.items()
        ]
        answer = broker.ask(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=1000), 1)
        assert answer.error_code == Error.NONE
        return [
            (topic.name, each.partition_index, each.error_code)
            for topic in answer.responses
            for each in topic.partitions
        ]

    for replicas, code in (
        ([1], Error.NONE),
        ([7], Error.INVALID_REPLICA_ASSIGNMENT),
        (None, Error.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        wanted: dict[str, Any] = {
            "t": [(index, replicas) for index in range(MANY)],
            "u": [(0, replicas), (1, replicas)],
        }
        assert reassign(wanted) == [(*row, code) for row in rows]
    assert reassign({}) == []
    assert reassign({"u": [(7, [1])]}) == [("u", 7, Error.UNKNOWN_TOPIC_OR_PARTITION)]


def listed(broker: VirtualBroker, wanted: dict[str, list[int]] | None) -> dict[str, list[tuple[int, list[int]]]]:
    Topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = None if wanted is None else [Topic(name=name, partition_indexes=rows) for name, rows in wanted.items()]
    answer = broker.ask(ListPartitionReassignmentsRequest(topics=topics, timeout_ms=1000), 0)
    assert answer.error_code == Error.NONE
    names = [topic.name for topic in answer.topics]
    assert len(names) == len(set(names)), "a topic that was cut gets one answer"
    return {
        topic.name: [(each.partition_index, each.adding_replicas) for each in topic.partitions]
        for topic in answer.topics
    }


def test_moves_that_go_on_are_listed_in_all_shares(broker: VirtualBroker) -> None:
    assert listed(broker, None) == listed(broker, {}) == listed(broker, {"t": [0, 1]}) == {}
    moving = [0, SHARE_PARTITIONS - 1, SHARE_PARTITIONS, MANY - 1]
    for index in moving:
        broker.node.image.topics["t"].partitions[index].adding = [2]
    broker.node.image.topics["u"].partitions[1].adding = [3]
    everything = {"t": [(index, [2]) for index in moving], "u": [(1, [3])]}
    assert listed(broker, None) == everything
    assert listed(broker, {"u": [0, 1], "t": list(range(MANY))}) == everything
    assert listed(broker, {"t": [1, MANY - 1]}) == {"t": [(MANY - 1, [2])]}
    for name in "tu":
        for partition in broker.node.image.topics[name].partitions:
            partition.adding = []
