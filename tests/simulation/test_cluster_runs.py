"""A cluster under faults in virtual time: nothing that was acknowledged is lost, and all invariants hold throughout."""

from __future__ import annotations

import gc
from random import Random

import pytest

from minibroker.broker.handlers.fetch_sessions import CachedPartition
from minibroker.replication.directory_assignments import DirectoryAssignments
from minibroker.replication.fetcher import Fetcher
from minibroker.replication.follower import FollowerState
from minibroker.replication.network import NetworkError
from minibroker.replication.replica import Replica

from .cluster_run import DAMAGE_SHARE, RUNS, WAITING_SHARE
from .seeds import any_fails, trace_of

QUICK, SEEDS, FOREIGN_SEEDS = 6, 40, 5


def check(seed: int, *, foreign: bool = False) -> None:
    outcome = RUNS.run_seed(seed, foreign=foreign)
    gc.collect()  # a run makes much garbage, and collects none
    if outcome.failure is not None:
        outcome.failure.add_note(f"replay: {RUNS.replay(seed, foreign=foreign)}")
    assert outcome.check() > 20
    assert outcome.left == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK))
def test_nothing_is_lost_whatever_befalls_a_cluster(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, SEEDS))
def test_nothing_is_lost_in_many_more_seeds(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("seed", range(FOREIGN_SEEDS))
def test_nothing_is_lost_of_what_an_unmodified_aiokafka_writes(seed: int) -> None:
    check(seed, foreign=True)


# Planted bugs that a whole cluster must notice, and within how many seeds; tests/replication has more of them, which
# need rarer schedules. Found first at a third of that or sooner.
# Where it took long, the search begins near the first that finds it, so that a run of all is soon over.
BUDGETS = {
    "acks-before-hw": range(15),
    "anybody-leads": range(8),
    "hw-beyond-own-log": range(5),
    "hw-falls": range(15),
    "hw-is-log-end": range(5),
    "joins-below-hw": range(5),
    "leader-commits-its-log": range(15),
    "rises-under-min-isr": range(5),
    "truncates-to-hw": range(20, 32),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUDGETS)
@pytest.mark.usefixtures("plant")
def test_a_planted_bug_is_found_within_its_budget(bug: str) -> None:
    assert any_fails(RUNS.run_seed, BUDGETS[bug])


def tell_of_records_only(replica: Replica, size_bytes: int) -> None:
    if size_bytes:
        tell(replica, size_bytes)


def leave_in_silence(replica: Replica) -> None:
    replica.role = None
    replica.leader_id = -1


def forget_partition(cached: CachedPartition, added_bytes: int) -> None:
    """Take bytes for the condition."""
    if added_bytes:
        hear(cached, added_bytes)


tell, hear = Replica.tell, CachedPartition.__call__
LOST_WAKE_UPS = {
    "told of records only": (Replica, "tell", tell_of_records_only),
    "gone in silence": (Replica, "leave", leave_in_silence),
    "bytes are the condition": (CachedPartition, "__call__", forget_partition),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", LOST_WAKE_UPS)
def test_a_wake_up_that_is_lost_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, patch = LOST_WAKE_UPS[bug]
    monkeypatch.setattr(owner, name, patch)
    seeds = [seed for seed in range(40) if Random(f"waiting {seed}").random() < WAITING_SHARE]
    assert any_fails(RUNS.run_seed, seeds[:2])


def fail_for_all(fetcher: Fetcher, key: object, replica: object, role: FollowerState) -> None:
    """Give up what else the leader has sent when one partition does not get on."""
    raise NetworkError(role.trouble)


def cannot_say(assignments: DirectoryAssignments) -> bool:
    """Tell nobody that a log cannot be opened: then its broker ends."""
    return False


# Found first by the 14th and the 27th of the seeds that damage disks (23 and 48), by two of the first 30 and 35.
DAMAGE_BUGS = {
    "one damaged partition holds up all of a leader": (Fetcher, "_tell_trouble", fail_for_all, range(20, 32)),
    "one damaged partition ends its broker": (DirectoryAssignments, "is_possible", property(cannot_say), range(44, 60)),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", DAMAGE_BUGS)
def test_a_damaged_partition_that_stops_others_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, patch, seeds = DAMAGE_BUGS[bug]
    monkeypatch.setattr(owner, name, patch)
    assert any_fails(RUNS.run_seed, (seed for seed in seeds if Random(f"damage {seed}").random() < DAMAGE_SHARE))


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_in_processes_with_other_hash_seeds() -> None:
    assert trace_of("cluster_run", 3, 1) == trace_of("cluster_run", 3, 2)
    assert trace_of("cluster_run", 3, 1) != trace_of("cluster_run", 4, 1)
