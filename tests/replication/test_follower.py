"""What a follower does with answers, and how logs come to agree again after leaders have changed."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import read_leader_epochs
from minibroker.log.directory import LogDirectory
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.replication import follower
from minibroker.replication.follower import FetchPosition
from minibroker.replication.leader import Divergence

from .made import Answer, Cluster, answer_of


def in_step(*broker_ids: int) -> Cluster:
    """Return a cluster that 1 leads in epoch 0, with "ab" everywhere."""
    cluster = Cluster(*broker_ids)
    cluster.lead(1)
    cluster.produce(1, "a", "b")
    for _ in range(3):
        for broker_id in broker_ids[1:]:
            cluster.fetch(broker_id, 1)
    assert {cluster.high_watermark(broker_id) for broker_id in broker_ids} == {2}
    return cluster


def agree(cluster: Cluster, leader_id: int, *, rounds: int = 6) -> None:
    """Let everybody fetch for a while."""
    for _ in range(rounds):
        for broker_id in cluster.replicas:
            if broker_id != leader_id:
                cluster.fetch(broker_id, leader_id)
    found = {(cluster.values(broker_id), cluster.high_watermark(broker_id)) for broker_id in cluster.replicas}
    assert len(found) == 1, found


# Answers


def test_a_follower_says_where_its_log_ends_and_in_which_epoch() -> None:
    cluster = in_step(1, 2)
    assert cluster.wanted(2) == FetchPosition(2, 0, 0, 0)


def test_a_follower_without_records_says_that_it_knows_no_epoch() -> None:
    cluster = Cluster(1, 2)
    cluster.lead(1)
    assert cluster.wanted(2) == FetchPosition(0, -1, 0, 0)


def test_a_follower_has_the_bytes_of_its_leader() -> None:
    cluster = in_step(1, 2)
    logs = [replica.log.active for replica in cluster.replicas.values()]
    assert bytes(logs[0].storage.open(logs[0].path).map()) == bytes(logs[1].storage.open(logs[1].path).map())


def test_the_high_watermark_of_a_follower_is_bounded_by_its_own_log() -> None:
    cluster = in_step(1, 2)
    cluster.role(2).on_fetched(cluster.wanted(2), Answer(high_watermark=9), 0)
    assert cluster.high_watermark(2) == 2


def test_nobody_is_asked_when_nobody_leads() -> None:
    cluster = in_step(1, 2)
    cluster.replicas[2].follow(-1, 1)
    assert cluster.role(2).next_fetch() is None


def test_an_answer_to_a_question_of_before_changes_nothing() -> None:
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    wanted = cluster.wanted(2)
    answer = answer_of(cluster.read(2, 1))
    role = cluster.role(2)
    assert role.on_fetched(wanted, answer, 0) == follower.APPENDED
    assert role.on_fetched(wanted, answer, 0) == follower.STALE
    assert role.on_fetched(wanted._replace(offset=3, leader_epoch=-1), answer, 0) == follower.STALE
    assert role.on_fetched(wanted._replace(offset=3, last_fetched_epoch=5), answer, 0) == follower.STALE
    assert cluster.values(2) == "abc"


def test_an_answer_to_the_role_of_before_changes_nothing() -> None:
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    wanted, answer, role = cluster.wanted(2), answer_of(cluster.read(2, 1)), cluster.role(2)
    cluster.lead(1)
    assert role.on_fetched(wanted, answer, 0) == follower.STALE
    role.on_leader_ends(0, 0, 0)
    assert cluster.end(2) == 2


def test_a_fenced_follower_waits_for_the_metadata() -> None:
    cluster = in_step(1, 2)
    cluster.lead(1, to=[1])
    assert cluster.fetch(2, 1) == follower.FENCED
    assert cluster.role(2).next_fetch() is None
    cluster.tell(2, 1)
    assert cluster.fetch(2, 1) == follower.NOTHING_NEW


def test_a_leader_that_does_not_know_its_epoch_yet_is_asked_again() -> None:
    cluster = in_step(1, 2)
    cluster.lead(1, to=[2])
    assert cluster.fetch(2, 1) == follower.RETRY


def test_records_that_broke_on_the_way_are_fetched_again() -> None:
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    answer = answer_of(cluster.read(2, 1))
    assert answer.records
    answer.records = answer.records[:-1] + b"?"
    assert cluster.role(2).on_fetched(cluster.wanted(2), answer, 0) == follower.RETRY
    assert cluster.fetch(2, 1) == follower.APPENDED
    assert cluster.values(2) == "abc"


def test_a_follower_lets_its_log_begin_where_the_leaders_does() -> None:
    cluster = in_step(1, 2)
    cluster.replicas[1].log.advance_log_start(1)
    cluster.fetch(2, 1)
    assert cluster.replicas[2].log.log_start_offset == 1


def test_a_follower_hides_nothing_above_its_high_watermark() -> None:
    cluster = in_step(1, 2)
    cluster.role(2).on_fetched(cluster.wanted(2), Answer(high_watermark=1, log_start_offset=2), 0)
    assert cluster.replicas[2].log.log_start_offset == 1


# Out of range


def test_a_follower_that_is_too_far_behind_starts_over_where_the_leader_begins() -> None:
    cluster = in_step(1, 2)
    cluster.produce(1, "c", "d")
    cluster.lead(1, [1])
    cluster.replicas[1].log.advance_log_start(3)
    assert cluster.fetch(2, 1) == follower.OUT_OF_RANGE
    assert cluster.role(2).next_fetch() is None
    cluster.role(2).on_leader_ends(3, 4, 0)
    assert (cluster.end(2), cluster.high_watermark(2), cluster.replicas[2].log.log_start_offset) == (3, 3, 3)
    assert cluster.fetch(2, 1) == follower.APPENDED
    assert cluster.values(2) == "d"


def test_a_follower_with_more_than_its_leader_and_no_epochs_is_cut_to_the_leaders_end() -> None:
    cluster = in_step(1, 2)
    cluster.replicas[2].log.epochs.clear()
    cluster.lead(1, to=[2])
    cluster.role(2).on_fetched(cluster.wanted(2), Answer(error_code=Error.OFFSET_OUT_OF_RANGE), 0)
    cluster.role(2).on_leader_ends(0, 1, 0)
    assert (cluster.end(2), cluster.high_watermark(2)) == (1, 1)


def test_a_follower_within_its_leaders_log_just_asks_again() -> None:
    cluster = in_step(1, 2)
    cluster.role(2).on_fetched(cluster.wanted(2), Answer(error_code=Error.OFFSET_OUT_OF_RANGE), 0)
    cluster.role(2).on_leader_ends(0, 5, 0)
    assert cluster.wanted(2).offset == 2
    assert not cluster.cuts


# Cutting


def test_a_log_without_epochs_is_cut_to_the_high_watermark() -> None:
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    cluster.fetch(2, 1)
    cluster.replicas[2].log.epochs.clear()
    cluster.lead(1)
    assert (cluster.cuts, cluster.end(2)) == ([(2, 2)], 2)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut_to"),
    [
        (1, 4, 4),  # the leader's epoch 1 ends earlier
        (1, 9, 6),  # it ends later: own records of epoch 3 go
        (2, 5, 6),  # epoch 2 is not known here: what came after it goes, the leader is asked again
        (0, 1, 1),
        (3, 7, 7),
    ],
)
def test_a_log_is_cut_where_it_parts_from_the_leaders(epoch: int, end_offset: int, cut_to: int) -> None:
    cluster = Cluster(1, 2)
    for own_epoch, values in ((0, "ab"), (1, "cdef"), (3, "ghi")):
        cluster.epoch = own_epoch - 1
        cluster.lead(2)
        cluster.produce(2, *values)
    cluster.lead(1)
    answer = Answer(diverging=Divergence(epoch, end_offset))
    assert cluster.role(2).on_fetched(cluster.wanted(2), answer, 0) == follower.TRUNCATED
    assert (cluster.end(2), cluster.cuts) == (cut_to, [(2, cut_to)])


def test_an_epoch_in_which_nothing_was_written_is_forgotten() -> None:
    """Without that the follower would ask for it for ever: the leader never knew it."""
    cluster = in_step(1, 2)
    cluster.lead(2, to=[2])
    cluster.lead(1)
    assert cluster.wanted(2) == FetchPosition(2, 1, 0, 2)
    assert cluster.fetch(2, 1) == follower.TRUNCATED
    assert (cluster.values(2), cluster.wanted(2)) == ("ab", FetchPosition(2, 0, 0, 2))
    agree(cluster, 1)


def test_the_disk_forgets_an_epoch_in_which_nothing_was_written_too() -> None:
    storage = MemoryStorage(int)
    directory = LogDirectory(storage)
    directory.start()
    log = directory.open("t", 0, LogSettings(), now_ms=0)
    for epoch in (4, 5):
        log.append_as_leader(bytearray(build_batch(2, [Record(None, b"a", (), 1)])), leader_epoch=epoch, now_ms=0)
    log.begin_epoch(6)
    directory.truncate_to("t", 0, 2)
    assert log.epochs.entries == read_leader_epochs(storage, "t-0").entries == [(4, 0), (5, 1)]


def test_kip_101_first_scenario_a_follower_that_restarts_keeps_what_is_above_its_high_watermark() -> None:
    """It had fetched "c" and not learned yet that it was committed. Cut to its high watermark it would have lost it;
    and when it then leads, everybody would have."""
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    cluster.fetch(2, 1)
    cluster.read(2, 1)  # the leader commits; the answer is lost
    assert (cluster.high_watermark(1), cluster.high_watermark(2)) == (3, 2)
    cluster.restart(2, high_watermark=2)
    cluster.tell(2, 1)
    assert cluster.end(2) == 3
    cluster.lead(2, [2])
    assert cluster.values(2) == "abc"
    agree(cluster, 2)
    assert cluster.values(1) == "abc"


def test_kip_101_second_scenario_logs_do_not_part_when_both_replicas_have_crashed() -> None:
    """The follower lost "c", leads, and writes "d" where the old leader has "c"; both logs have the same length."""
    cluster = in_step(1, 2)
    cluster.produce(1, "c")
    cluster.fetch(2, 1)
    cluster.restart(2, keep=2, high_watermark=2)
    cluster.restart(1, high_watermark=2)
    cluster.lead(2, [2])
    cluster.produce(2, "d")
    assert (cluster.end(1), cluster.end(2)) == (3, 3)
    assert cluster.fetch(1, 2) == follower.TRUNCATED
    agree(cluster, 2)
    assert cluster.values(1) == "abd"


def test_kip_279_fast_leader_changes_leave_no_foreign_records() -> None:
    """Broker 2 has records of epoch 1 that 1 never saw, 1 leads in epoch 2 and 3; the epochs are known to one only."""
    cluster = in_step(1, 2)
    cluster.lead(2, to=[2])
    cluster.produce(2, "x", "y")
    cluster.lead(1, to=[1])
    cluster.produce(1, "c")
    cluster.lead(2, to=[2])
    cluster.produce(2, "z")
    cluster.lead(1, [1])
    cluster.produce(1, "d")
    agree(cluster, 1)
    assert cluster.values(2) == "abcd"


def test_kip_279_a_leader_that_answers_with_an_epoch_unknown_here_is_asked_twice() -> None:
    cluster = in_step(1, 2, 3)
    cluster.lead(2, to=[2])
    cluster.produce(2, "x", "y")  # epoch 1, only on 2
    cluster.lead(3, to=[3])
    cluster.produce(3, "p", "q", "r")  # epoch 2, only on 3
    cluster.lead(2, to=[2])
    cluster.produce(2, "z")  # epoch 3, only on 2
    cluster.lead(3, [3])  # unclean
    assert [cluster.fetch(2, 3) for _ in range(3)] == [follower.TRUNCATED, follower.TRUNCATED, follower.APPENDED]
    assert cluster.cuts == [(2, 4), (2, 2)]  # first what came after the epoch that only the leader knows
    agree(cluster, 3)
    assert cluster.values(2) == "abpqr"


def test_an_unclean_leader_takes_back_what_was_committed() -> None:
    cluster = in_step(1, 2)
    cluster.lead(1, [1])
    cluster.produce(1, "c")
    assert cluster.high_watermark(1) == 3
    cluster.lead(2, [2])
    cluster.produce(2, "d")
    agree(cluster, 2)
    assert cluster.values(1) == "abd"
    assert (1, 2) in cluster.cuts


def test_the_high_watermark_of_a_follower_may_fall_when_its_new_leader_knows_less() -> None:
    cluster = in_step(1, 2, 3)
    cluster.produce(1, "c")
    for broker_id in (2, 3, 2, 3):
        cluster.fetch(broker_id, 1)
    cluster.fetch(3, 1)
    assert (cluster.high_watermark(3), cluster.high_watermark(2)) == (3, 2)
    cluster.lead(2)
    cluster.fetch(3, 2)
    assert (cluster.high_watermark(3), cluster.values(3)) == (2, "abc")
