"""Bugs of replication that searches must find (tests/planting.py says what a bug is).

test_exploring.py and tests/simulation/test_cluster_runs.py have their budgets.
"""

from __future__ import annotations

from typing import Any

from minibroker.errors import Error
from minibroker.log.partition_log import PartitionLog
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.replication import leader
from minibroker.replication.follower import FetchPosition, FollowerState
from minibroker.replication.follower_sessions import FollowerFetch, FollowerSessions
from minibroker.replication.leader import FollowerProgress, FollowerRead, LeaderState, Proposal
from minibroker.replication.replica import Replica

UNKNOWN = -1
init, learn, on_fetch = LeaderState.__init__, LeaderState.learn, LeaderState.on_fetch
advance, lead, replicated = Replica.advance, Replica.lead, Replica.replicated
begin, on_fetched = FollowerState.begin, FollowerState.on_fetched
note_fetch, take, fetch = LeaderState.note_fetch, FollowerFetch.take, FollowerSessions.fetch


# What is committed


def falls(replica: Replica, steady_ms: int, size_bytes: int = 0) -> None:
    committed = replica.as_leader().committed_end(steady_ms)
    if UNKNOWN < committed < replica.high_watermark:
        replica._move_high_watermark(committed, "a bug")
        replica.tell(size_bytes)
    else:
        advance(replica, steady_ms, size_bytes)


def take_all(replica: Replica, offset: int, size_bytes: int) -> None:
    """Take the leader's high watermark, also beyond the end of the own log."""
    if offset != replica.high_watermark:
        replica._move_high_watermark(offset, "a bug")
    elif not size_bytes:
        return
    replica.tell(size_bytes)


def log_end(led: LeaderState, steady_ms: int) -> int:
    return UNKNOWN if led.followers and led.is_under_min else led.replica.log.log_end_offset


def commit_all(replica: Replica, leader_epoch: int, **named: Any) -> None:
    role = replica.role
    lead(replica, leader_epoch, **named)
    if replica.role is not role:
        replica.high_watermark = replica.log.log_end_offset


def is_replicated(replica: Replica, end_offset: int, leader_epoch: int) -> Error | None:
    return replicated(replica, min(end_offset, replica.high_watermark), leader_epoch)


# Who is in sync


def proposed(led: LeaderState) -> tuple[int, ...]:
    return led.in_sync if led.proposal is None else led.proposal.in_sync


def forget_proposal(led: LeaderState, partition_epoch: int, in_sync: tuple[int, ...], steady_ms: int) -> None:
    if partition_epoch == led.partition_epoch:
        led.proposal = None
        led._set_in_sync(in_sync)
    learn(led, partition_epoch, in_sync, steady_ms)


def keep_progress(led: LeaderState, replica: Replica, *given: Any, steady_ms: int, **named: Any) -> None:
    known = replica.role
    init(led, replica, *given, steady_ms=steady_ms, **named)
    if isinstance(known, LeaderState):
        led.followers = led._progress(known.followers, steady_ms)


def has_epoch_start(led: LeaderState, follower: FollowerProgress) -> bool:
    return follower.end_offset >= led.epoch_start_offset


def has_high_watermark(led: LeaderState, follower: FollowerProgress) -> bool:
    return follower.end_offset >= led.replica.high_watermark


def on_old_fetch(led: LeaderState, replica_id: int, *given: Any) -> Proposal | None:
    """Look at no broker epoch, which comes last."""
    return on_fetch(led, replica_id, *given[:3])


def may_join_if_known(led: LeaderState, follower: FollowerProgress) -> bool:
    return led.find_broker(follower.broker_id) is not None and follower.broker_epoch is not None


def newest_epoch(led: LeaderState, broker_id: int) -> int:
    broker = led.find_broker(broker_id)
    return UNKNOWN if broker is None else broker.broker_epoch


# Followers


def cut_to_high_watermark(follower: FollowerState, **named: Any) -> None:
    begin(follower, cuts_to_high_watermark=True)


def cut_to_leaders_end(follower: FollowerState, epoch: int, end_offset: int) -> None:
    follower._cut(end_offset, "a bug")


def take_old(follower: FollowerState, wanted: FetchPosition, answer: Any, now_ms: int) -> str:
    return on_fetched(follower, follower.next_fetch(), answer, now_ms)  # type: ignore[arg-type]


def note_any_epoch(led: LeaderState, follower_id: int, position: FetchPosition, **named: Any) -> FollowerRead:
    return note_fetch(led, follower_id, position._replace(leader_epoch=UNKNOWN), **named)


def note_diverging(
    led: LeaderState, follower_id: int, position: FetchPosition, *, steady_ms: int, counts: bool = True, **named: Any
) -> FollowerRead:
    read = note_fetch(led, follower_id, position, steady_ms=steady_ms, counts=counts, **named)
    if counts and read.diverging is not None:
        progress = (position.offset, position.log_start_offset, steady_ms, named.get("broker_epoch", UNKNOWN))
        read.proposal = led.on_fetch(follower_id, *progress)
    return read


def fetch_in_any_epoch(sessions: FollowerSessions, request: FetchRequest) -> Any:
    session = sessions.sessions.get(request.replica_state.replica_id)
    if session is not None and session.session_id == request.session_id:
        session.epoch = request.session_epoch - 1
    return fetch(sessions, request)


def confirm_sent(request: FollowerFetch) -> None:
    request.session.sent = {}
    take(request)


def confirm_refused(request: FollowerFetch) -> None:
    request.session.refused.clear()
    take(request)


BUGS: dict[str, list[tuple[object, str, object]]] = {
    "acks-before-hw": [(Replica, "replicated", is_replicated)],
    "acks-ignore-min-isr": [(Replica, "_check_in_sync", lambda replica: None)],
    "any-error-ends-proposal": [(leader, "NOT_APPLIED", range(-1, 1000))],
    "any-session-epoch": [(FollowerSessions, "fetch", fetch_in_any_epoch)],
    "cuts-to-leaders-end-only": [(FollowerState, "_cut_where_logs_part", cut_to_leaders_end)],
    "diverging-fetch-counts": [(LeaderState, "note_fetch", note_diverging)],
    "epoch-is-not-noted": [(PartitionLog, "begin_epoch", lambda log, epoch: None)],
    "hw-beyond-own-log": [(Replica, "take_high_watermark", take_all)],
    "hw-falls": [(Replica, "advance", falls)],
    "hw-is-log-end": [(LeaderState, "committed_end", log_end)],
    "joining-is-not-waited-for": [(LeaderState, "_is_joining", lambda led, *given: False)],
    "joins-below-epoch-start": [(LeaderState, "_has_all_committed", has_high_watermark)],
    "joins-below-hw": [(LeaderState, "_has_all_committed", has_epoch_start)],
    "leader-commits-its-log": [(Replica, "lead", commit_all)],
    "never-looks-again": [(FollowerFetch, "_look_again", lambda request, key: None)],
    "no-divergence-check": [(leader, "find_divergence", lambda *given: None)],
    "old-broker-epoch-joins": [
        (LeaderState, "on_fetch", on_old_fetch),
        (LeaderState, "_may_join", may_join_if_known),
        (LeaderState, "_epoch_of", newest_epoch),
    ],
    "pending-isr-does-not-count": [(LeaderState, "maximal_in_sync", property(lambda led: led.in_sync))],
    "progress-outlives-epoch": [(LeaderState, "__init__", keep_progress)],
    "refused-counts-as-heard": [(FollowerFetch, "take", confirm_refused)],
    "rises-under-min-isr": [(LeaderState, "is_under_min", False)],
    "same-epoch-ends-proposal": [(LeaderState, "learn", forget_proposal)],
    "sent-counts-as-received": [(FollowerFetch, "take", confirm_sent)],
    "shrink-counts-at-once": [(LeaderState, "maximal_in_sync", property(proposed))],
    "stale-leader-accepts-fetch": [(LeaderState, "note_fetch", note_any_epoch)],
    "takes-old-answers": [(FollowerState, "on_fetched", take_old)],
    "truncates-to-hw": [(FollowerState, "begin", cut_to_high_watermark)],
}
