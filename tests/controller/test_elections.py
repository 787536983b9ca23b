"""Elections: who leads when a broker is gone or back, and when an administrator asks."""

from __future__ import annotations

import pytest

from minibroker.controller.elections import balance_leaders, elect_uncleanly
from minibroker.errors import Error
from minibroker.metadata.image import NO_LEADER
from minibroker.stored.topics import ConfigRecord
from tests.controller.small_cluster import SmallCluster, elect_request

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def cluster() -> SmallCluster:
    made = SmallCluster([1, 2, 3])
    made.create([1, 2, 3])
    return made


def test_the_first_replica_in_sync_takes_over_and_keeps_the_lead(cluster: SmallCluster) -> None:
    cluster.alter([1, 3])
    cluster.kill(1)
    assert cluster.state[0] == 3
    cluster.start(1)
    cluster.alter([3, 1])
    assert (cluster.state[0], cluster.partition().leader_epoch) == (3, 1)


def test_the_preferred_leader_comes_back_when_it_is_asked_for(cluster: SmallCluster) -> None:
    assert cluster.elect(PREFERRED) == [Error.ELECTION_NOT_NEEDED]
    cluster.kill(1)
    assert cluster.elect(PREFERRED) == [Error.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.start(1)
    assert cluster.elect(PREFERRED) == [Error.PREFERRED_LEADER_NOT_AVAILABLE]  # it is not in sync yet
    cluster.alter([2, 3, 1])
    assert cluster.elect(PREFERRED) == [Error.NONE]
    assert (cluster.state[0], cluster.partition().leader_epoch) == (1, 2)


def test_an_unclean_election_is_held_only_where_nobody_leads(cluster: SmallCluster) -> None:
    cluster.alter([1])
    assert cluster.elect(UNCLEAN) == [Error.ELECTION_NOT_NEEDED]
    cluster.kill(1)
    assert cluster.state[0] == NO_LEADER
    cluster.kill(1, 2, 3)
    assert cluster.elect(UNCLEAN) == [Error.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.start(3)
    assert cluster.elect(UNCLEAN) == [Error.NONE]
    assert cluster.state == (3, [3], [])


def test_without_a_replica_in_sync_nobody_leads_unless_the_topic_says_so(cluster: SmallCluster) -> None:
    cluster.alter([1])
    cluster.kill(1)
    assert cluster.state[0] == NO_LEADER
    assert elect_uncleanly(cluster.controller) == []
    cluster.set("unclean.leader.election.enable", "true")
    cluster.append(elect_uncleanly(cluster.controller))
    assert cluster.state[0] == 2


@pytest.mark.parametrize("where", [(2, "a"), (4, ""), (4, "0"), None])
def test_unclean_elections_are_allowed_by_topic_cluster_or_controller(
    cluster: SmallCluster, where: tuple[int, str] | None
) -> None:
    name = "unclean.leader.election.enable"
    if where is None:
        cluster.controller.settings = {name: "true"}
    else:
        cluster.append([ConfigRecord(resource_type=where[0], resource_name=where[1], name=name, value="true")])
    cluster.alter([1])
    cluster.kill(1)
    assert cluster.state[0] == 2
    assert cluster.partition().leader_recovery_state == 1


def test_partitions_that_are_not_there_and_kinds_that_are_not_get_errors(cluster: SmallCluster) -> None:
    response = cluster.elect_as(elect_request(PREFERRED, {"none": [0], "a": [7]}))
    answers = [each.partition_result[0] for each in response.replica_election_results]
    assert [(each.error_code, each.error_message) for each in answers] == [
        (Error.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as none"),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as a-7"),
    ]
    assert cluster.elect(5) == [Error.INVALID_REQUEST]


def test_asked_about_all_only_what_needed_an_election_is_named(cluster: SmallCluster) -> None:
    cluster.create([2, 1], [3, 1], name="b")
    cluster.kill(2)
    cluster.start(2)
    cluster.alter([1, 2], topic="b")
    response = cluster.elect_as(elect_request(PREFERRED, None))
    assert [
        (each.topic, [(part.partition_id, part.error_code) for part in each.partition_result])
        for each in response.replica_election_results
    ] == [("a", []), ("b", [(0, Error.NONE)])]


def test_balancing_gives_leaders_back_where_they_are_in_sync(cluster: SmallCluster) -> None:
    cluster.create([1, 3], [2, 3], name="b")
    cluster.kill(1)
    cluster.start(1)
    cluster.alter([3, 1], topic="b")
    cluster.append(balance_leaders(cluster.controller))
    assert [cluster.state[0], *(each.leader for each in cluster.image.topics["b"].partitions)] == [2, 1, 2]
    assert balance_leaders(cluster.controller) == []
