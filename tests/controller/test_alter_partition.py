"""AlterPartition: which proposals of a leader come into force, and which error each of the others gets."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.controller.partition_change import RECOVERED, RECOVERING
from minibroker.errors import Error
from tests.controller.small_cluster import SmallCluster


@pytest.fixture
def cluster() -> SmallCluster:
    made = SmallCluster([1, 2, 3])
    made.create([1, 2, 3])
    return made


def test_a_leader_shrinks_and_grows_the_isr_and_hears_the_new_partition_epoch(cluster: SmallCluster) -> None:
    answer = cluster.alter([1, 2])
    assert (answer.error_code, answer.isr, answer.partition_epoch, answer.leader_epoch) == (0, [1, 2], 1, 0)
    answer = cluster.alter([1, 2, 3])
    assert (answer.error_code, answer.isr, answer.partition_epoch, answer.leader_epoch) == (0, [1, 2, 3], 2, 0)


def test_of_two_proposals_from_the_same_state_only_the_first_is_taken(cluster: SmallCluster) -> None:
    first, second = cluster.alter_request([1, 2]), cluster.alter_request([1, 3])
    assert cluster.alter_as(first).topics[0].partitions[0].error_code == Error.NONE
    assert cluster.alter_as(second).topics[0].partitions[0].error_code == Error.INVALID_UPDATE_VERSION
    assert cluster.partition().isr == [1, 2]


def test_a_leader_that_was_replaced_changes_nothing(cluster: SmallCluster) -> None:
    late = cluster.alter_request([1])
    cluster.kill(1)
    cluster.start(1)
    assert cluster.alter_as(late).error_code == Error.STALE_BROKER_EPOCH
    late.broker_epoch = cluster.image.brokers[1].broker_epoch
    assert cluster.alter_as(late).topics[0].partitions[0].error_code == Error.FENCED_LEADER_EPOCH
    assert cluster.state == (2, [2, 3], [])


REFUSED: list[tuple[dict[str, Any], Error]] = [
    ({"partition_index": 9}, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ({"topic_id": b"t" * 16}, Error.UNKNOWN_TOPIC_ID),
    ({"leader_epoch": 7}, Error.NOT_CONTROLLER),
    ({"partition_epoch": 7}, Error.NOT_CONTROLLER),
    ({"leader_epoch": -1}, Error.FENCED_LEADER_EPOCH),
    ({"broker_id": 2}, Error.INVALID_REQUEST),
    ({"partition_epoch": -1}, Error.INVALID_UPDATE_VERSION),
    ({"isr": []}, Error.INVALID_REQUEST),
    ({"isr": [1, 1]}, Error.INVALID_REQUEST),
    ({"isr": [1, 9]}, Error.INVALID_REQUEST),
    ({"isr": [2, 3]}, Error.INVALID_REQUEST),
    ({"leader_recovery_state": RECOVERING}, Error.INVALID_REQUEST),
    ({"isr": [1], "leader_recovery_state": RECOVERING}, Error.INVALID_REQUEST),
    ({"leader_recovery_state": 5}, Error.INVALID_REQUEST),
    ({"epochs": {2: 0}}, Error.INELIGIBLE_REPLICA),
]


@pytest.mark.parametrize(("said", "code"), REFUSED)
def test_a_wrong_proposal_gets_kafkas_error_and_nothing_changes(
    cluster: SmallCluster, said: dict[str, Any], code: Error
) -> None:
    more = dict(said)
    answer = cluster.alter(more.pop("isr", [1, 2]), **more)
    assert answer.error_code == code
    assert (cluster.partition().isr, cluster.partition().partition_epoch) == ([1, 2, 3], 0)


def test_a_request_of_another_life_is_refused_as_a_whole(cluster: SmallCluster) -> None:
    lives: list[dict[str, Any]] = [{"broker_epoch": 0}, {"broker_id": 9}]
    for said in lives:
        response = cluster.alter_as(cluster.alter_request([1, 2], **said))
        assert (response.error_code, response.topics) == (Error.STALE_BROKER_EPOCH, [])


def test_a_replica_that_is_fenced_or_in_another_life_does_not_join(cluster: SmallCluster) -> None:
    epoch = cluster.image.brokers[3].broker_epoch
    cluster.kill(3)
    assert cluster.alter([1, 2, 3]).error_code == Error.INELIGIBLE_REPLICA
    cluster.start(3)
    assert cluster.alter([1, 2, 3], epochs={3: epoch}).error_code == Error.INELIGIBLE_REPLICA
    assert cluster.alter([1, 2, 3], epochs={3: -1}).error_code == Error.NONE


def test_versions_before_3_do_not_compare_epochs_of_replicas_and_the_oldest_have_other_errors() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2, 3])
    assert cluster.alter([1, 2], version=2, epochs={2: 0}).error_code == Error.NONE
    cluster.kill(3)
    assert cluster.alter([1, 2, 3], version=2).error_code == Error.INELIGIBLE_REPLICA
    assert cluster.alter([1, 2, 3], version=1).error_code == Error.OPERATION_NOT_ATTEMPTED
    assert cluster.alter([1, 2], version=0, topic_id=bytes(16)).error_code == Error.NONE  # by its name
    unknown = cluster.alter_request([1, 2])
    unknown.topics[0].topic_name = "none"
    assert cluster.alter_as(unknown, 1).topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_proposal_that_completes_a_move_of_the_leader_is_done_and_an_error() -> None:
    for version, code in ((3, Error.NEW_LEADER_ELECTED), (1, Error.FENCED_LEADER_EPOCH)):
        cluster = SmallCluster([1, 2, 3])
        cluster.create([1, 2])
        cluster.reassign([2, 3])
        assert cluster.alter([1, 2, 3], version=version).error_code == code
        assert (cluster.state, cluster.partition().replicas) == ((2, [2, 3], []), [2, 3])


def test_a_leader_elected_uncleanly_recovers_alone_and_then_lets_others_in(cluster: SmallCluster) -> None:
    cluster.set("unclean.leader.election.enable", "true")
    cluster.alter([1])
    cluster.kill(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, [2], RECOVERING)
    assert cluster.alter([2, 3], leader_recovery_state=RECOVERING).error_code == Error.INVALID_REQUEST
    answer = cluster.alter([2], leader_recovery_state=RECOVERED)
    assert (answer.error_code, answer.leader_recovery_state) == (Error.NONE, RECOVERED)
    assert cluster.alter([2, 3]).error_code == Error.NONE


def test_what_changes_nothing_is_no_record_and_no_new_epoch(cluster: SmallCluster) -> None:
    answer = cluster.alter([1, 2, 3])
    assert (answer.error_code, answer.partition_epoch) == (Error.NONE, 0)


def test_before_3_6_a_shrinking_isr_was_a_new_leader_epoch(cluster: SmallCluster) -> None:
    cluster.image.features["metadata.version"] = 11
    cluster.image.features.pop("eligible.leader.replicas.version")
    assert cluster.alter([1, 2]).leader_epoch == 1
    assert cluster.alter([1, 2, 3]).leader_epoch == 1


# Eligible leader replicas (KIP-966)


@pytest.fixture
def careful(cluster: SmallCluster) -> SmallCluster:
    cluster.set("min.insync.replicas", "2")
    return cluster


def test_who_leaves_an_isr_that_is_too_small_stays_eligible(careful: SmallCluster) -> None:
    careful.alter([1, 2])
    assert careful.state == (1, [1, 2], [])
    careful.alter([1])
    assert careful.state == (1, [1], [2])
    careful.kill(1)
    assert careful.state == (2, [2], [1])
    assert careful.partition().leader_recovery_state == RECOVERED


def test_nobody_is_eligible_any_more_when_the_isr_is_large_enough(careful: SmallCluster) -> None:
    careful.kill(2, 3)
    assert careful.state == (1, [1], [3])  # when broker 2 went there were enough without it
    careful.start(2)
    careful.alter([1, 2])
    assert careful.state == (1, [1, 2], [])


def test_who_comes_back_without_its_data_is_not_eligible(careful: SmallCluster) -> None:
    careful.kill(3)
    careful.kill(2, 1)
    assert careful.state[:2] == (-1, [])
    careful.start(2, previous_broker_epoch=-1)
    assert careful.state == (-1, [], [1])
    careful.start(1)
    assert careful.state == (1, [1], [])


def test_when_all_may_have_lost_something_the_last_leader_leads_and_recovers(careful: SmallCluster) -> None:
    careful.kill(1, 2, 3)
    last = careful.partition().last_known_elr
    assert (careful.state, last) == ((-1, [], [2, 3]), [3])
    for broker in (1, 2):
        careful.start(broker, previous_broker_epoch=-1)
        assert careful.partition().leader == -1
    careful.start(3, previous_broker_epoch=-1)
    partition = careful.partition()
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (last[0], last, RECOVERING)
    assert (partition.elr, partition.last_known_elr) == ([], [])


def test_one_that_was_eligible_and_is_a_replica_no_more_is_not_waited_for(careful: SmallCluster) -> None:
    careful.set("min.insync.replicas", "3")
    assert careful.reassign([1, 3]) == (0, None)
    careful.set("min.insync.replicas", "2")
    careful.kill(1, 3)
    assert careful.state == (-1, [], [1, 2, 3])
    careful.start(1, previous_broker_epoch=-1)
    assert careful.state == (-1, [], [2, 3])
    careful.start(3, previous_broker_epoch=-1)
    assert careful.state == (3, [3], [])
