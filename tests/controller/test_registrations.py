"""Brokers as the controller sees them: who may register, who is alive, who may stop, and where replicas go."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.controller.directories import assign_replicas
from minibroker.controller.placement import PIECE
from minibroker.controller.registrations import SESSION_TIMEOUT_MS, Registrations
from minibroker.errors import Error, KafkaError
from minibroker.in_pieces import finish
from minibroker.metadata.image import LOST_DIRECTORY
from minibroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minibroker.protocol.messages.broker_registration import BrokerRegistrationRequest
from minibroker.stored.brokers import BrokerRegistrationChangeRecord
from tests.controller.small_cluster import CLUSTER_ID, SmallCluster

if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces
    from minibroker.stored.kinds import MetadataRecord


def fenced(cluster: SmallCluster) -> list[int]:
    return [broker for broker, each in cluster.image.brokers.items() if each.fenced]


# Registration


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    cluster = SmallCluster()
    expected = cluster.next_offset
    assert cluster.register(1).broker_epoch == expected
    assert fenced(cluster) == [1]
    assert cluster.register(2).broker_epoch == expected + 1


def test_a_broker_that_repeats_its_registration_keeps_epoch_and_state() -> None:
    cluster = SmallCluster([1])
    epoch = cluster.image.brokers[1].broker_epoch
    again = cluster.register(1, rack="r2")
    assert (again.broker_epoch, fenced(cluster), cluster.image.brokers[1].rack) == (epoch, [], "r2")


def test_a_second_process_with_the_same_id_is_refused_until_the_first_has_been_silent() -> None:
    cluster = SmallCluster([1])
    other = {"incarnation_id": b"o" * 16}
    cluster.now_ms += SESSION_TIMEOUT_MS
    assert cluster.register(1, **other).error_code == Error.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.register(1, **other).error_code == Error.NONE


def test_a_broker_that_stopped_in_order_comes_back_at_once() -> None:
    cluster = SmallCluster([1, 2])
    cluster.stop(1)
    assert fenced(cluster) == [1]
    cluster.start(1)
    assert fenced(cluster) == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"cluster_id": "another"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(16)]}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [b"d" * 16, b"d" * 16]}, Error.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([1]) * 16]}, Error.INVALID_REGISTRATION),  # that of broker 1
        ({"features": []}, Error.INVALID_REGISTRATION),
        (
            {
                "features": [
                    BrokerRegistrationRequest.Feature(
                        name="metadata.version", min_supported_version=7, max_supported_version=25
                    )
                ]
            },
            Error.UNSUPPORTED_VERSION,
        ),
        ({"is_migrating_zk_broker": True}, Error.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_who_does_not_fit_is_not_registered(said: dict[str, Any], code: Error) -> None:
    cluster = SmallCluster([1])
    assert cluster.register(2, **said).error_code == code
    assert 2 not in cluster.image.brokers


def test_an_administrator_can_take_a_broker_out() -> None:
    cluster = SmallCluster([1, 2])
    cluster.create([1, 2])
    cluster.kill(1)
    cluster.append(cluster.registrations.unregister(1))
    assert list(cluster.image.brokers) == [2]
    with pytest.raises(KafkaError, match="BROKER_ID_NOT_REGISTERED"):
        cluster.registrations.unregister(1)


# Heartbeats


def test_a_broker_is_unfenced_when_it_has_read_its_own_registration() -> None:
    cluster = SmallCluster()
    epoch = cluster.register(1).broker_epoch
    answer = cluster.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (answer.is_fenced, answer.is_caught_up) == (True, False)
    answer = cluster.heartbeat(1, current_metadata_offset=epoch, want_fence=True)
    assert (answer.is_fenced, answer.is_caught_up) == (True, True)
    assert not cluster.heartbeat(1, current_metadata_offset=epoch).is_fenced
    assert fenced(cluster) == []


@pytest.mark.parametrize(("broker", "epoch"), [(1, 0), (1, 99), (2, -1)])
def test_a_heartbeat_of_another_life_is_refused(broker: int, epoch: int) -> None:
    cluster = SmallCluster([1])
    assert cluster.heartbeat(broker, broker_epoch=epoch).error_code == Error.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_one_session_after_its_last_word_and_others_lead() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2, 3])
    cluster.now_ms += SESSION_TIMEOUT_MS
    for broker in (2, 3):
        cluster.heartbeat(broker)
    assert cluster.registrations.expire(cluster.now_ms) == []
    assert cluster.registrations.next_expiry_ms == cluster.now_ms + 1
    cluster.append(cluster.registrations.expire(cluster.now_ms + 1))
    assert fenced(cluster) == [1]
    assert cluster.state == (2, [2, 3], [])
    assert cluster.registrations.expire(cluster.now_ms + 1) == []


def test_brokers_that_fall_silent_together_are_fenced_one_after_the_other() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2, 3])
    cluster.kill(1, 2)
    assert cluster.state == (3, [3], [])
    assert cluster.partition().leader_epoch == 2


def test_a_new_controller_gives_everybody_one_session() -> None:
    cluster = SmallCluster([1, 2])
    cluster.stop(2)
    anew = Registrations(cluster.controller, cluster_id=CLUSTER_ID, steady_ms=5000)
    assert anew.expire(5000 + SESSION_TIMEOUT_MS) == []
    assert anew.next_expiry_ms == 5001 + SESSION_TIMEOUT_MS
    assert len(anew.expire(5001 + SESSION_TIMEOUT_MS)) == 1  # only broker 1 was there
    assert anew.next_expiry_ms is None


# Stopping


def test_a_broker_that_leads_may_stop_when_its_leaders_have_moved_and_all_others_know() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2, 3])
    answer = cluster.heartbeat(1, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert cluster.state == (2, [2, 3], [])
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down  # broker 3 has not read it yet
    cluster.heartbeat(3)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert fenced(cluster) == [1]


def test_a_broker_that_leads_nothing_may_stop_at_once() -> None:
    cluster = SmallCluster([1, 2])
    cluster.create([1, 2])
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.state == (1, [1], [])


def test_a_fenced_broker_may_stop_at_once() -> None:
    cluster = SmallCluster()
    cluster.register(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_stops_does_not_join_an_isr() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2, 3], [3, 2, 1])
    cluster.heartbeat(3, want_shut_down=True)
    assert cluster.alter([1, 2, 3]).error_code == Error.INELIGIBLE_REPLICA


# Decided in pieces

WIDE = 400


def deciding(cluster: SmallCluster, kind: str) -> InPieces[list[MetadataRecord]]:
    """Return the work of deciding where many partitions of a topic go."""
    assigned = [(index, [1 + index % 3]) for index in range(WIDE)]
    if kind == "created":
        return cluster.controller.create_topic_in_pieces("wide", partitions=WIDE, replication_factor=3)
    if kind == "created as assigned":
        return cluster.controller.create_topic_in_pieces(
            "wide", partitions=-1, replication_factor=-1, assignments=assigned
        )
    if kind == "added":
        return cluster.controller.create_partitions_in_pieces("wide", 1 + WIDE)
    return cluster.controller.create_partitions_in_pieces("wide", 1 + WIDE, [replicas for _, replicas in assigned])


@pytest.mark.parametrize("kind", ["created", "created as assigned", "added", "added as assigned"])
def test_decisions_in_which_a_broker_was_fenced_do_not_hold_when_it_is_back(kind: str) -> None:
    """It is fenced in one pause and back in another, whichever they are."""
    cluster = SmallCluster([1, 2, 3])
    if kind.startswith("added"):
        cluster.create([2], name="wide")
    pauses = sum(1 for _ in deciding(cluster, kind))
    assert pauses >= 4
    epoch = cluster.image.brokers[1].broker_epoch
    held = set()
    for lost_at, back_at in [*combinations(range(pauses), 2), (None, None)]:
        facts, at, work = cluster.controller.facts("wide"), 0, deciding(cluster, kind)
        try:
            while True:
                next(work)
                if at in (lost_at, back_at):
                    change = 1 if at == lost_at else -1
                    cluster.append([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=change)])
                at += 1
        except StopIteration as end:
            partitions: list[Any] = [record for record in end.value if record.type_number == 3]
            assert len(partitions) == WIDE
            assert all(each.leader in each.isr for each in partitions)
            holds = facts == cluster.controller.facts("wide")
            assert holds == (lost_at is None)
            held.add(holds)
        except KafkaError as error:
            assert error.code == Error.INVALID_REPLICA_ASSIGNMENT
            if at == back_at or cluster.image.brokers[1].fenced:
                cluster.append([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)])
    assert held == {True, False} or "assigned" in kind


def test_no_partition_is_made_that_nobody_can_lead() -> None:
    cluster = SmallCluster([1, 2, 3])
    work = deciding(cluster, "created as assigned")
    for _ in range(WIDE // PIECE):
        next(work)  # they have been looked at
    epoch = cluster.image.brokers[1].broker_epoch
    cluster.append([BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)])
    with pytest.raises(KafkaError, match="for partition 0 are fenced or in controlled shutdown") as refused:
        finish(work)
    assert refused.value.code == Error.INVALID_REPLICA_ASSIGNMENT


# Directories


def test_leaders_leave_a_directory_that_fails() -> None:
    cluster = SmallCluster()
    for broker in (1, 2):
        cluster.start(broker, log_dirs=[bytes([broker]) * 16, bytes([broker, 9]) * 8])
    cluster.create([1, 2])
    cluster.partition().directories[:] = [bytes([1]) * 16, bytes([2]) * 16]
    cluster.heartbeat(1, offline_log_dirs=[bytes([1]) * 16])
    assert cluster.state == (2, [2], [])
    assert cluster.image.brokers[1].log_dirs == [bytes([1, 9]) * 8]
    assert fenced(cluster) == []


def assign(
    cluster: SmallCluster, broker: int, directory: bytes, *partitions: int, epoch: int | None = None
) -> list[int]:
    """Let a broker say where replicas of the topic are; return the codes that it gets."""
    topic = next(iter(cluster.image.topics.values()))
    Data = AssignReplicasToDirsRequest.DirectoryData
    asked = [Data.TopicData.PartitionData(partition_index=number) for number in partitions]
    request = AssignReplicasToDirsRequest(
        broker_id=broker,
        broker_epoch=cluster.image.brokers[broker].broker_epoch if epoch is None else epoch,
        directories=[Data(id=directory, topics=[Data.TopicData(topic_id=topic.id, partitions=asked)])],
    )
    records, response = assign_replicas(cluster.controller, request)
    cluster.append(records)
    if response.error_code:
        return [response.error_code]
    return [each.error_code for each in response.directories[0].topics[0].partitions]


def test_a_replica_whose_directory_is_lost_leads_nothing_until_it_is_found() -> None:
    cluster = SmallCluster([1, 2])
    cluster.create([1, 2])
    assert assign(cluster, 1, LOST_DIRECTORY, 0) == [Error.NONE]
    assert cluster.state == (2, [2], [])
    cluster.stop(2)
    assert cluster.partition().leader == -1
    assert assign(cluster, 1, bytes([1]) * 16, 0) == [Error.NONE]
    assert cluster.partition().leader == -1  # it was not in sync
    cluster.start(2)
    assert cluster.alter([2, 1]).error_code == Error.NONE
    cluster.stop(2)
    assert cluster.partition().leader == 1


def test_the_last_replica_in_sync_leads_again_when_its_directory_is_found() -> None:
    cluster = SmallCluster([1, 2])
    cluster.create([1, 2])
    cluster.stop(2)
    assert assign(cluster, 1, LOST_DIRECTORY, 0) == [Error.NONE]
    assert cluster.partition().leader == -1
    epoch = cluster.partition().partition_epoch
    assert assign(cluster, 1, LOST_DIRECTORY, 0) == [Error.NONE]
    assert cluster.partition().partition_epoch == epoch  # nothing new
    assert assign(cluster, 1, bytes([1]) * 16, 0) == [Error.NONE]
    assert cluster.partition().leader == 1


def test_a_directory_is_assigned_by_whoever_has_the_replica_in_this_life() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.create([1, 2])
    assert assign(cluster, 3, LOST_DIRECTORY, 0) == [Error.NOT_LEADER_OR_FOLLOWER]
    assert assign(cluster, 1, LOST_DIRECTORY, 1) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(cluster, 1, LOST_DIRECTORY, 0, epoch=0) == [Error.STALE_BROKER_EPOCH]
    assert cluster.state == (1, [1, 2], [])


def test_cordoned_brokers_get_no_new_replicas() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.heartbeat(2, cordoned_log_dirs=[bytes([2]) * 16])
    with pytest.raises(KafkaError, match="only 2 broker"):
        cluster.controller.create_topic("a", partitions=1, replication_factor=3)
    with pytest.raises(KafkaError, match="broker 2, but all its log directories are cordoned"):
        cluster.create([1, 2])
    cluster.heartbeat(2, cordoned_log_dirs=[])
    cluster.create([1, 2])


# Placement


def placed(cluster: SmallCluster, partitions: int, factor: int) -> list[list[int]]:
    cluster.append(cluster.controller.create_topic("p", partitions=partitions, replication_factor=factor))
    return [each.replicas for each in cluster.image.topics["p"].partitions]


def test_replicas_are_in_different_racks_and_every_broker_leads_as_often() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    cluster = SmallCluster(list(racks), racks=racks)
    found = placed(cluster, 12, 3)
    assert all(len({racks[broker] for broker in replicas}) == 3 for replicas in found)
    assert sorted(replicas[0] for replicas in found) == sorted([*racks] * 2)
    assert len(set(map(tuple, found))) == 6


def test_a_rack_is_taken_twice_only_when_there_are_not_enough() -> None:
    cluster = SmallCluster([1, 2, 3], racks={1: "a", 2: "a", 3: "b"})
    assert placed(cluster, 4, 2) == [[1, 3], [3, 2], [2, 3], [3, 1]]
    found = placed(SmallCluster([1, 2, 3], racks={1: "a", 2: "a", 3: "b"}), 2, 3)
    assert [sorted(replicas) for replicas in found] == [[1, 2, 3]] * 2


def test_a_fenced_broker_gets_replicas_but_does_not_lead() -> None:
    cluster = SmallCluster([1, 2, 3])
    cluster.kill(2)
    found = placed(cluster, 4, 3)
    assert all(replicas[-1] == 2 for replicas in found)
    assert all(2 not in each.isr for each in cluster.image.topics["p"].partitions)


@pytest.mark.parametrize("partitions", [1, 2, 3, 5])
@pytest.mark.parametrize("brokers", [1, 3, 4])
def test_every_broker_leads_as_often_however_many_topics_share_the_partitions(brokers: int, partitions: int) -> None:
    """Topics of one partition: the first broker would lead them all if each topic began there."""
    cluster = SmallCluster(list(range(1, brokers + 1)))
    for number in range(2 * brokers):
        cluster.append(cluster.controller.create_topic(f"t{number}", partitions=partitions, replication_factor=1))
        cluster.append(cluster.controller.create_partitions(f"t{number}", partitions + 1))
    leaders = Counter(each.leader for topic in cluster.image.topics.values() for each in topic.partitions)
    assert set(leaders.values()) == {2 * (partitions + 1)}


def test_placement_goes_on_after_a_restart_of_the_controller() -> None:
    cluster, restarted = SmallCluster([1, 2, 3]), SmallCluster([1, 2, 3])
    for each in (cluster, restarted):
        each.append(each.controller.create_topic("a", partitions=2, replication_factor=1))
    restarted.restart_controller()
    for each in (cluster, restarted):
        assert placed(each, 2, 1) == [[3], [1]]


def test_an_image_is_not_changed_through_another_that_took_the_same_records() -> None:
    cluster, other = SmallCluster(), SmallCluster()
    records, _ = cluster.registrations.register(cluster.registration_request(1), next_offset=9, steady_ms=0)
    for image in (cluster.image, other.image):
        for record in records:
            image.apply(record)
    cluster.heartbeat(1, current_metadata_offset=9)
    assert (cluster.image.brokers[1].fenced, other.image.brokers[1].fenced) == (False, True)
