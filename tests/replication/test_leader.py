"""What a leader decides: what is committed, who is in sync, who may read where."""

from __future__ import annotations

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.replication.follower import FetchPosition
from minibroker.replication.leader import LeaderState, Proposal
from minibroker.replication.replica import HELD_BYTES

from .made import LAG_MS_MAX, Cluster, Known, read_for_follower


def accepted(cluster: Cluster, leader: LeaderState, proposal: Proposal | None) -> None:
    """Let the controller accept a proposal."""
    assert proposal is not None
    assert leader.proposal is proposal
    cluster.partition_epoch += 1
    leader.alter_answered(
        proposal,
        Error.NONE,
        steady_ms=cluster.now_ms,
        leader_epoch=leader.leader_epoch,
        partition_epoch=cluster.partition_epoch,
        in_sync=proposal.in_sync,
    )


def shrunk_to_one(*others: int) -> tuple[Cluster, LeaderState]:
    """Return a cluster in which only the leader, 1, is in sync."""
    cluster = Cluster(1, *others)
    leader = cluster.lead(1, [1])
    cluster.now_ms = LAG_MS_MAX * 2
    return cluster, leader


# The high watermark


def test_the_high_watermark_moves_with_the_followers_second_fetch_and_it_learns_of_that_with_the_third() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(1)
    cluster.produce(1, "a")
    cluster.fetch(2, 1)
    assert (cluster.end(2), cluster.high_watermark(1), cluster.high_watermark(2)) == (1, 0, 0)
    cluster.fetch(2, 1)
    assert (cluster.high_watermark(1), cluster.high_watermark(2)) == (1, 0)
    cluster.fetch(2, 1)
    assert cluster.high_watermark(2) == 1


def test_the_high_watermark_waits_for_the_slowest_replica_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.lead(1)
    cluster.produce(1, "a", "b")
    for _ in range(2):
        cluster.fetch(2, 1)
    assert cluster.high_watermark(1) == 0
    cluster.fetch(3, 1, size_bytes_max=1)
    cluster.fetch(3, 1, size_bytes_max=1)
    assert cluster.high_watermark(1) == 1


def test_a_lone_replica_commits_with_each_append() -> None:
    cluster = Cluster(1)
    cluster.lead(1)
    cluster.produce(1, "a", "b")
    assert cluster.high_watermark(1) == 2


def test_a_replica_out_of_sync_is_not_waited_for() -> None:
    cluster, _ = shrunk_to_one(2)
    cluster.produce(1, "a")
    assert cluster.high_watermark(1) == 1


def test_a_replica_that_is_about_to_join_is_waited_for_as_long_as_it_may_lag() -> None:
    cluster, leader = shrunk_to_one(2)
    cluster.brokers[2] = Known(in_controlled_shutdown=True)  # so it is not proposed at once
    cluster.fetch(2, 1)
    cluster.brokers[2] = Known()
    cluster.produce(1, "a")
    assert cluster.high_watermark(1) == 0
    cluster.now_ms += LAG_MS_MAX + 1
    assert leader.check_lag(cluster.now_ms) is None
    assert cluster.high_watermark(1) == 1


def test_the_high_watermark_stays_when_a_follower_goes_back() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    cluster.produce(1, "a", "b")
    leader.on_fetch(2, 2, 0, 0, 1)
    leader.on_fetch(2, 0, 0, 0, 1)
    assert cluster.high_watermark(1) == 2


def test_the_high_watermark_stays_while_fewer_than_min_insync_replicas_are_in_sync() -> None:
    cluster = Cluster(1, 2, 3, min_in_sync=2)
    cluster.lead(1, [1])
    cluster.produce(1, "a")
    assert cluster.high_watermark(1) == 0


def test_no_more_replicas_have_to_be_in_sync_than_there_are() -> None:
    cluster = Cluster(1, min_in_sync=3)
    cluster.lead(1)
    assert cluster.produce(1, "a", acks=-1) == cluster.high_watermark(1) == 1


def test_who_waits_is_told_when_the_high_watermark_moves() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    told: list[int] = []
    cluster.replicas[1].waiters[told.append] = None
    size_bytes = cluster.replicas[1].log.size_bytes
    cluster.produce(1, "a")
    assert told == [cluster.replicas[1].log.size_bytes - size_bytes]
    leader.on_fetch(2, 1, 0, 0, 1)
    leader.on_fetch(2, 1, 0, 0, 1)
    assert told[1:] == [HELD_BYTES, 0]  # its log start is news as well, once


# acks=all


def test_acks_all_is_refused_before_it_is_appended_when_too_few_are_in_sync() -> None:
    cluster = Cluster(1, 2, min_in_sync=2)
    cluster.lead(1, [1])
    with pytest.raises(KafkaError) as refused:
        cluster.produce(1, "a", acks=-1)
    assert refused.value.code is Error.NOT_ENOUGH_REPLICAS
    assert cluster.end(1) == 0
    assert cluster.produce(1, "a", acks=1) == 1


def test_acks_all_is_answered_when_all_in_sync_have_the_records() -> None:
    cluster = Cluster(1, 2, min_in_sync=2)
    cluster.lead(1)
    end_offset = cluster.produce(1, "a", acks=-1)
    replica = cluster.replicas[1]
    assert replica.replicated(end_offset, 0) is None
    cluster.fetch(2, 1)
    assert replica.replicated(end_offset, 0) is None
    cluster.fetch(2, 1)
    assert replica.replicated(end_offset, 0) is Error.NONE


def test_acks_all_is_answered_with_an_error_when_the_isr_shrank_after_the_append() -> None:
    cluster = Cluster(1, 2, min_in_sync=2)
    leader = cluster.lead(1)
    end_offset = cluster.produce(1, "a", acks=-1)
    leader.on_fetch(2, 1, 0, 0, 1)
    cluster.now_ms = LAG_MS_MAX * 2
    cluster.produce(1, "b")
    accepted(cluster, leader, leader.check_lag(cluster.now_ms))
    replica = cluster.replicas[1]
    assert replica.replicated(end_offset, 0) is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert replica.replicated(end_offset + 1, 0) is None


def test_acks_all_ends_with_the_leadership_even_if_the_broker_leads_again() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(1)
    end_offset = cluster.produce(1, "a", acks=-1)
    told: list[int] = []
    cluster.replicas[1].waiters[told.append] = None
    cluster.lead(2)
    assert told
    assert cluster.replicas[1].replicated(end_offset, 0) is Error.NOT_LEADER_OR_FOLLOWER
    cluster.lead(1, [1])
    assert cluster.replicas[1].replicated(end_offset, 0) is Error.NOT_LEADER_OR_FOLLOWER


# Falling out


def test_a_follower_falls_out_when_it_has_not_been_caught_up_for_too_long() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.lead(1)
    cluster.produce(1, "a")
    leader.on_fetch(2, 1, 0, 0, 1)
    leader.on_fetch(3, 0, 0, 0, 1)
    assert leader.check_lag(LAG_MS_MAX) is None
    proposal = leader.check_lag(LAG_MS_MAX + 1)
    assert proposal is not None
    assert (proposal.in_sync, proposal.broker_epochs) == ((1, 2), (1, 1))


def test_a_follower_that_has_everything_stays_however_long_it_is_silent() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    leader.on_fetch(2, 0, 0, 0, 1)
    assert leader.check_lag(LAG_MS_MAX * 100) is None


def test_a_follower_that_has_what_was_there_at_its_last_fetch_keeps_up_with_a_busy_leader() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    for _ in range(10):
        end_offset = cluster.end(1)
        cluster.produce(1, "a")
        cluster.now_ms += LAG_MS_MAX // 2
        leader.on_fetch(2, end_offset, 0, cluster.now_ms, 1)  # never at the end of the log
        assert leader.check_lag(cluster.now_ms) is None


def test_while_a_shrink_is_under_way_the_high_watermark_waits_for_who_is_to_go() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    cluster.produce(1, "a")
    cluster.now_ms = LAG_MS_MAX + 1
    proposal = leader.check_lag(cluster.now_ms)
    cluster.produce(1, "b")
    assert cluster.high_watermark(1) == 0
    accepted(cluster, leader, proposal)
    assert cluster.high_watermark(1) == 2
    assert leader.in_sync == cluster.replicas[1].in_sync == (1,)


# Joining


def test_a_follower_joins_at_the_high_watermark_not_before() -> None:
    cluster, leader = shrunk_to_one(2)
    cluster.produce(1, "a", "b")
    assert leader.on_fetch(2, 1, 0, cluster.now_ms, 1) is None
    proposal = leader.on_fetch(2, 2, 0, cluster.now_ms, 1)
    assert proposal is not None
    assert (proposal.in_sync, proposal.leader_epoch, proposal.partition_epoch) == ((1, 2), 0, 1)


def test_a_follower_joins_a_new_leader_only_with_all_that_was_there_when_it_began() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.lead(1)
    cluster.produce(1, "a", "b")
    cluster.fetch(2, 1)
    leader = cluster.lead(2, [2, 1])
    assert (leader.epoch_start_offset, cluster.high_watermark(2)) == (2, 0)
    assert (
        leader.on_fetch(3, 1, 0, 0, 1) is None
    )  # above its high watermark, and yet the first leader may have had more
    assert leader.on_fetch(3, 2, 0, 0, 1) is not None


def test_while_a_joining_is_under_way_the_high_watermark_waits_for_the_new_one() -> None:
    cluster, leader = shrunk_to_one(2)
    cluster.produce(1, "a")
    leader.on_fetch(2, 1, 0, cluster.now_ms, 1)
    cluster.now_ms += LAG_MS_MAX * 2  # so it is not waited for merely because it may join
    cluster.produce(1, "b")
    assert cluster.high_watermark(1) == 1
    assert leader.maximal_in_sync == (1, 2)


@pytest.mark.parametrize(
    "known",
    [None, Known(fenced=True), Known(in_controlled_shutdown=True), Known(broker_epoch=0)],
    ids=["unknown", "fenced", "stopping", "not registered yet"],
)
def test_who_may_not_lead_does_not_join(known: Known | None) -> None:
    cluster, leader = shrunk_to_one(2)
    if known is None:
        del cluster.brokers[2]
    else:
        cluster.brokers[2] = known
    assert leader.on_fetch(2, 0, 0, cluster.now_ms, 1) is None


def test_a_fetch_of_before_a_restart_does_not_count() -> None:
    cluster, leader = shrunk_to_one(2)
    cluster.brokers[2] = Known(broker_epoch=5)
    with pytest.raises(KafkaError) as refused:
        leader.on_fetch(2, 0, 0, cluster.now_ms, 4)
    assert refused.value.code is Error.NOT_LEADER_OR_FOLLOWER
    assert leader.followers[2].end_offset == -1


def test_a_proposal_names_the_broker_epoch_of_the_fetch() -> None:
    cluster, leader = shrunk_to_one(2)
    cluster.brokers[2] = Known(broker_epoch=5)
    proposal = leader.on_fetch(2, 0, 0, cluster.now_ms, 5)
    assert proposal is not None
    assert proposal.broker_epochs == (1, 5)


def test_one_proposal_is_under_way_at_a_time() -> None:
    cluster, leader = shrunk_to_one(2, 3)
    first = leader.on_fetch(2, 0, 0, cluster.now_ms, 1)
    assert leader.on_fetch(3, 0, 0, cluster.now_ms, 1) is None
    accepted(cluster, leader, first)
    assert leader.on_fetch(3, 0, 0, cluster.now_ms, 1) is not None


# Answers of the controller


@pytest.mark.parametrize("error", [Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_was_certainly_not_applied_ends(error: Error) -> None:
    cluster, leader = shrunk_to_one(2)
    proposal = leader.on_fetch(2, 0, 0, cluster.now_ms, 1)
    assert proposal is not None
    assert leader.alter_answered(proposal, error, steady_ms=cluster.now_ms) is None
    assert (leader.proposal, leader.maximal_in_sync) == (None, (1,))


@pytest.mark.parametrize(
    "error",
    [
        Error.FENCED_LEADER_EPOCH,
        Error.INVALID_REQUEST,
        Error.INVALID_UPDATE_VERSION,
        Error.NEW_LEADER_ELECTED,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_proposal_that_may_have_been_applied_counts_until_the_metadata_come(error: Error) -> None:
    cluster, leader = shrunk_to_one(2)
    proposal = leader.on_fetch(2, 0, 0, cluster.now_ms, 1)
    assert proposal is not None
    assert leader.alter_answered(proposal, error, steady_ms=cluster.now_ms) is None
    assert leader.maximal_in_sync == (1, 2)
    cluster.partition_epoch += 1
    cluster.tell(1, 1, [1])
    assert (leader.proposal, leader.maximal_in_sync, leader.partition_epoch) == (None, (1,), 2)


@pytest.mark.parametrize("error", [Error.NOT_CONTROLLER, Error.STALE_BROKER_EPOCH, Error.NETWORK_EXCEPTION])
def test_a_proposal_without_a_verdict_is_sent_again(error: Error) -> None:
    cluster, leader = shrunk_to_one(2)
    proposal = leader.on_fetch(2, 0, 0, cluster.now_ms, 1)
    assert proposal is not None
    assert leader.alter_answered(proposal, error, steady_ms=cluster.now_ms) is proposal


def test_an_answer_that_the_metadata_overtook_is_ignored() -> None:
    cluster, leader = shrunk_to_one(2)
    proposal = leader.on_fetch(2, 0, 0, cluster.now_ms, 1)
    assert proposal is not None
    cluster.partition_epoch = 7
    cluster.tell(1, 1, [1, 2])
    leader.alter_answered(proposal, Error.NONE, steady_ms=0, leader_epoch=0, partition_epoch=6, in_sync=[1])
    assert (leader.in_sync, leader.partition_epoch) == ((1, 2), 7)


def test_metadata_of_the_epoch_that_a_proposal_starts_from_do_not_end_it() -> None:
    cluster, leader = shrunk_to_one(2, 3)
    accepted(cluster, leader, leader.on_fetch(2, 0, 0, cluster.now_ms, 1))
    proposal = leader.on_fetch(3, 0, 0, cluster.now_ms, 1)
    cluster.tell(1, 1, [1, 2])  # what the leader knows from the first answer
    assert leader.proposal is proposal
    assert leader.maximal_in_sync == (1, 2, 3)


def test_a_leader_that_is_elected_again_does_not_trust_what_it_knew_of_its_followers() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    cluster.produce(1, "a")
    leader.on_fetch(2, 1, 0, 0, 1)
    cluster.epoch += 1  # others led meanwhile, and it has not heard of them
    again = cluster.lead(1)
    assert again.followers[2].end_offset == -1
    assert again.leader_epoch == 2


def test_replicas_come_and_go_within_an_epoch() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    leader.on_fetch(2, 0, 0, 0, 1)
    cluster.brokers[3] = Known()
    replica = cluster.replicas[1]
    replica.lead(0, partition_epoch=2, replicas=(1, 2, 3), in_sync=(1, 2), find_broker=cluster.brokers.get)
    assert {known.broker_id: known.end_offset for known in leader.followers.values()} == {2: 0, 3: -1}
    replica.lead(0, partition_epoch=3, replicas=(1, 3), in_sync=(1,), find_broker=cluster.brokers.get)
    assert list(leader.followers) == [3]
    replica.lead(0, partition_epoch=2, replicas=(1, 2, 3), in_sync=(1, 2), find_broker=cluster.brokers.get)
    assert (list(leader.followers), replica.replicas) == ([3], (1, 3))


# Reading for followers


def ask(cluster: Cluster, wanted: FetchPosition, replica_id: int = 2) -> object:
    return read_for_follower(cluster.replicas[1], replica_id, wanted, size_bytes_max=1000, steady_ms=0)


@pytest.mark.parametrize(
    ("wanted", "replica_id", "error"),
    [
        (FetchPosition(0, -1, 0, 0), 2, Error.FENCED_LEADER_EPOCH),
        (FetchPosition(0, -1, 0, 2), 2, Error.UNKNOWN_LEADER_EPOCH),
        (FetchPosition(0, -1, 0, 1), 9, Error.UNKNOWN_LEADER_EPOCH),
        (FetchPosition(0, -1, 0, -1), 9, Error.NOT_LEADER_OR_FOLLOWER),
        (FetchPosition(4, -1, 0, 1), 2, Error.OFFSET_OUT_OF_RANGE),
        (FetchPosition(1, 1, 0, 1), 2, Error.OFFSET_OUT_OF_RANGE),
        (FetchPosition(3, 7, 0, 1), 2, Error.OFFSET_OUT_OF_RANGE),
    ],
    ids=["epoch over", "epoch to come", "no replica", "no replica, old", "behind the end", "before the start", "epoch"],
)
def test_a_leader_refuses_what_does_not_fit(wanted: FetchPosition, replica_id: int, error: Error) -> None:
    cluster = Cluster(1, 2)
    cluster.lead(1)
    cluster.lead(1)
    cluster.produce(1, "a", "b", "c")
    cluster.replicas[1].log.advance_log_start(2)
    with pytest.raises(KafkaError) as refused:
        ask(cluster, wanted, replica_id)
    assert refused.value.code is error


def test_where_a_follower_parted_before_the_log_start_cannot_be_told() -> None:
    cluster = Cluster(1, 2)
    first = cluster.lead(1).leader_epoch
    cluster.produce(1, "a", "b")
    cluster.lead(1)
    last = cluster.lead(1).leader_epoch
    cluster.produce(1, "c")
    cluster.replicas[1].log.advance_log_start(1)
    with pytest.raises(KafkaError) as refused:
        ask(cluster, FetchPosition(0, first + 1, 0, last))
    assert refused.value.code is Error.OFFSET_OUT_OF_RANGE
    assert "is before the log start 1" in refused.value.message


def test_a_broker_that_does_not_lead_refuses_followers() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(2)
    with pytest.raises(KafkaError) as refused:
        ask(cluster, FetchPosition(0, -1, 0, 0))
    assert refused.value.code is Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_reads_above_the_high_watermark() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(1)
    cluster.produce(1, "a", "b")
    read = cluster.read(2, 1)
    assert read.found is not None
    assert (read.found.size_bytes, read.high_watermark) == (cluster.replicas[1].log.size_bytes, 0)


def test_the_progress_of_a_follower_whose_log_diverges_does_not_count() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(2, to=[2])
    cluster.produce(2, "x", "y")
    leader = cluster.lead(1)
    cluster.produce(1, "a", "b")
    read = cluster.read(2, 1)
    assert read.diverging == (0, 0)
    assert (leader.followers[2].end_offset, cluster.high_watermark(1)) == (-1, 0)


def test_a_request_that_is_read_again_says_nothing_new() -> None:
    cluster = Cluster(1, 2)
    leader = cluster.lead(1)
    read_for_follower(cluster.replicas[1], 2, FetchPosition(0, -1, 0, 0), size_bytes_max=1, steady_ms=7, counts=False)
    assert leader.followers[2].end_offset == -1


# Reading nearby


def test_a_consumer_is_sent_to_the_best_replica_in_its_rack() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.brokers = {1: Known(rack="a"), 2: Known(rack="b"), 3: Known(rack="b"), 4: Known(rack="c")}
    leader = cluster.lead(1, [1, 2, 3])
    cluster.produce(1, "a", "b")
    leader.on_fetch(2, 1, 0, 0, 1)
    leader.on_fetch(3, 2, 0, 0, 1)
    leader.on_fetch(4, 1, 0, 0, 1)
    assert leader.preferred_replica("b", 0, 0) == 3
    assert leader.preferred_replica("b", 2, 0) == 3
    assert leader.preferred_replica("a", 0, 0) == -1  # the leader's own
    assert leader.preferred_replica("c", 0, 0) == -1  # not in sync
    assert leader.preferred_replica("d", 0, 0) == -1
    assert leader.preferred_replica("", 0, 0) == -1
    leader.on_fetch(3, 1, 1, 0, 1)
    assert leader.preferred_replica("b", 2, 0) == -1  # nobody has it yet
    assert leader.preferred_replica("b", 0, 0) == 2  # 3 does not have it any more
    assert leader.preferred_replica("b", 1, 0) == 3  # as good, then the larger id


def test_deleted_records_are_gone_when_the_last_living_replica_has_deleted_them() -> None:
    cluster = Cluster(1, 2, 3)
    leader = cluster.lead(1)
    cluster.produce(1, "a", "b")
    for follower_id in (2, 3):
        leader.on_fetch(follower_id, 2, 0, 0, 1)
    cluster.replicas[1].log.advance_log_start(2)
    leader.on_fetch(2, 2, 2, 0, 1)
    assert leader.low_watermark == 0
    cluster.brokers[3] = Known(fenced=True)
    assert leader.low_watermark == 2
