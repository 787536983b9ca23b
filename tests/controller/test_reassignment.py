"""Moves of replicas: they begin, complete, are changed and are cancelled."""

from __future__ import annotations

import pytest

from minibroker.controller.reassignment import list_reassignments
from minibroker.errors import Error
from minibroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.controller.small_cluster import SmallCluster


@pytest.fixture
def cluster() -> SmallCluster:
    made = SmallCluster([1, 2, 3, 4, 5])
    made.create([1, 2, 3], [2, 3, 4])
    return made


def members(cluster: SmallCluster) -> tuple[list[int], list[int], list[int]]:
    """Return replicas, those being added and those being removed."""
    partition = cluster.partition()
    return partition.replicas, partition.adding, partition.removing


def test_new_replicas_join_and_old_ones_go_when_the_new_ones_are_in_sync(cluster: SmallCluster) -> None:
    assert cluster.reassign([4, 5, 1]) == (0, None)
    assert members(cluster) == ([4, 5, 1, 2, 3], [4, 5], [2, 3])
    assert cluster.state == (1, [1, 2, 3], [])
    cluster.alter([1, 2, 3, 4])
    assert members(cluster)[1] == [4, 5]
    epoch = cluster.partition().leader_epoch
    cluster.alter([1, 2, 3, 4, 5])
    assert members(cluster) == ([4, 5, 1], [], [])
    assert cluster.state == (1, [1, 4, 5], [])
    assert cluster.partition().leader_epoch == epoch + 1  # so those who are dropped notice
    assert len(cluster.partition().directories) == 3


def test_a_leader_that_is_dropped_gives_way_when_the_move_completes(cluster: SmallCluster) -> None:
    cluster.reassign([4, 2])
    assert cluster.alter([1, 2, 3, 4]).error_code == Error.NEW_LEADER_ELECTED
    assert (members(cluster), cluster.state) == (([4, 2], [], []), (4, [2, 4], []))


def test_another_order_or_fewer_replicas_need_no_wait(cluster: SmallCluster) -> None:
    assert cluster.reassign([3, 2, 1]) == (0, None)
    assert (members(cluster), cluster.partition().leader_epoch) == (([3, 2, 1], [], []), 0)
    cluster.reassign([3, 2])
    assert (members(cluster), cluster.state) == (([3, 2], [], []), (3, [2, 3], []))


def test_fewer_replicas_wait_until_all_that_stay_are_in_sync(cluster: SmallCluster) -> None:
    cluster.alter([1, 2])
    cluster.reassign([1, 3])
    assert members(cluster) == ([1, 3, 2], [], [2])
    cluster.alter([1, 2, 3])
    assert members(cluster) == ([1, 3], [], [])


def test_a_replica_that_lagged_before_does_not_stop_a_move(cluster: SmallCluster) -> None:
    cluster.kill(3)
    cluster.reassign([1, 3, 4])
    cluster.alter([1, 2, 4])
    assert (members(cluster), cluster.state) == (([1, 3, 4], [], []), (1, [1, 4], []))


def test_a_cancelled_move_leaves_what_was_there(cluster: SmallCluster) -> None:
    before = members(cluster)
    cluster.reassign([4, 5, 1])
    cluster.alter([1, 2, 3, 4])
    assert cluster.reassign(None) == (0, None)
    assert (members(cluster), cluster.state) == (before, (1, [1, 2, 3], []))
    assert cluster.reassign(None) == (Error.NO_REASSIGNMENT_IN_PROGRESS, None)


def test_a_cancel_that_would_lose_data_is_refused_unless_that_is_allowed(cluster: SmallCluster) -> None:
    cluster.reassign([4, 5])
    cluster.alter([1, 4])
    cluster.kill(1)
    assert cluster.state == (4, [4], [])
    code, message = cluster.reassign(None)
    assert code == Error.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "it would require an unclean leader election" in message
    cluster.set("unclean.leader.election.enable", "true")
    assert cluster.reassign(None) == (0, None)
    assert cluster.partition().leader == 2


def test_a_move_can_be_changed_while_it_goes_on(cluster: SmallCluster) -> None:
    cluster.reassign([1, 2, 4])
    cluster.reassign([1, 2, 5])
    assert members(cluster) == ([1, 2, 5, 3, 4], [5], [3, 4])
    cluster.alter([1, 2, 3, 5])
    assert members(cluster) == ([1, 2, 5], [], [])


@pytest.mark.parametrize(
    ("replicas", "more", "code", "message"),
    [
        ([1], {"topic": "none"}, Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named none."),
        ([1], {"number": 9}, Error.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition a:9."),
        ([], {}, Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        (
            [1, 9],
            {},
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            [1, 2, 2],
            {},
            Error.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 2 more than once.",
        ),
        (
            [1, 2],
            {"may_resize": False},
            Error.INVALID_REPLICATION_FACTOR,
            "The replication factor is changed from 3 to 2",
        ),
    ],
)
def test_a_move_that_cannot_be_is_refused_in_kafkas_words(
    cluster: SmallCluster, replicas: list[int], more: dict[str, object], code: Error, message: str
) -> None:
    before = cluster.next_offset
    assert cluster.reassign(replicas, **more) == (code, message)  # type: ignore[arg-type]
    assert cluster.next_offset == before


def test_only_what_moves_is_listed(cluster: SmallCluster) -> None:
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    assert list_reassignments(cluster.controller, ListPartitionReassignmentsRequest()).topics == []
    cluster.reassign([5, 3, 4], number=1)
    for topics in (None, [asked(name="a", partition_indexes=[0, 1, 7]), asked(name="none", partition_indexes=[0])]):
        (topic,) = list_reassignments(cluster.controller, ListPartitionReassignmentsRequest(topics=topics)).topics
        (moving,) = topic.partitions
        assert (topic.name, moving.partition_index) == ("a", 1)
        assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([5, 3, 4, 2], [5], [2])
