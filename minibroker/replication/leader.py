"""A replica that leads: how far its followers are, who is in sync, and what is therefore committed.

                     high watermark            log end
                           |                      |
    leader    [.......... e5 ......|... e6 .......|
    follower 2 [........................|              in sync
    follower 3 [..............................|        in sync
    follower 4 [.............|                         not in sync, not waited for

The high watermark is the least end offset of the maximal ISR: those the controller has in the ISR and those that it
may have put there by now, for an answer may be under way. Who is about to join is waited for too (KIP-966), or a
follower as fast as the leader's producers would never get in.

What must hold: it never falls within an epoch, and does not rise while fewer than min.insync.replicas are in sync. A
follower joins only when it has all that may be committed: everything below the high watermark, and everything that was
there when this leader began, for its own high watermark may trail the last leader's. One proposal is under way at a
time; it names the partition epoch that it starts from, and the controller accepts it in that epoch only.
A follower falls out by time, not by count: a burst must not throw out one that keeps up (KIP-16). That time is the
steady clock's (`steady_ms`): a machine whose clock is set throws nobody out.

A fetch of a follower has the offset where its log ends, the epoch of its last record, and that in which it follows.
    epochs differ     -> error: whoever is behind has the controller's log to read
    logs differ       -> up to where they are the same; the follower cuts its own there and asks again
    otherwise         -> records up to the end of the log; and the follower has everything below its offset
Its progress counts only if its log is the leader's up to that offset (KIP-101, KIP-595).
Not here: sending proposals (isr_updates.py), sessions and requests (follower_sessions.py), who leads (the controller).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.log import reading
from minibroker.log.partition_log import PartitionLog
from minibroker.log.segment import Slice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, TypeAlias

    from minibroker.replication.follower import FetchPosition, RoleReplica
    from minibroker.replication.known_broker import KnownBroker

    FindBroker: TypeAlias = Callable[[int], KnownBroker | None]

LAG_MS_MAX: Final = 30_000  # replica.lag.time.max.ms
UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
NEVER_MS: Final = -(1 << 62)
STAY_HERE: Final = -1  # preferred read replica: the leader itself

# The controller has refused, and nothing was or will be changed: what was in force still is.
NOT_APPLIED: Final = (Error.INELIGIBLE_REPLICA, Error.OPERATION_NOT_ATTEMPTED)
# This broker is behind. The proposal may have been accepted, and its answer lost, so it counts until the metadata come.
METADATA_TO_COME: Final = (
    Error.FENCED_LEADER_EPOCH,
    Error.INVALID_REQUEST,
    Error.INVALID_UPDATE_VERSION,
    Error.NEW_LEADER_ELECTED,
    Error.UNKNOWN_TOPIC_ID,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
)


class FollowerProgress:
    """One follower as its leader sees it."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: int):
        self.broker_id = broker_id
        self.end_offset = UNKNOWN_OFFSET  # the offset it asked for last: it has everything below
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms  # when it last had all that the leader had; decides who falls out of the ISR
        self.fetched_ms = NEVER_MS  # when it last fetched
        self.leader_end_offset = UNKNOWN_OFFSET  # where the leader's log ended then
        self.broker_epoch: int | None = None  # as in its last fetch; None: it has not fetched yet

    def note(self, end_offset: int, log_start_offset: int, leader_end_offset: int, steady_ms: int, epoch: int) -> None:
        if end_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, steady_ms)
        elif end_offset >= self.leader_end_offset:
            # It has what was there at its last fetch, so it was caught up then. Without this a follower of a leader
            # that is written to all the time never would be.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = steady_ms
        self.broker_epoch = epoch

    def is_caught_up(self, leader_end_offset: int, steady_ms: int, lag_ms_max: int) -> bool:
        return self.end_offset == leader_end_offset or steady_ms - self.caught_up_ms <= lag_ms_max


class Divergence(NamedTuple):
    """Where the leader's log ends for an epoch that it shares with a follower."""

    epoch: int
    end_offset: int


class FollowerRead:
    """An answer to a follower, but for its bytes."""

    __slots__ = ("diverging", "found", "high_watermark", "last_stable_offset", "log_start_offset", "proposal")

    def __init__(self, replica: RoleReplica):
        # As before this fetch: what it moves the follower learns of with the next answer, as with Kafka.
        self.high_watermark = replica.high_watermark
        self.last_stable_offset = replica.log.last_stable_offset(replica.high_watermark)
        self.log_start_offset = replica.log.log_start_offset
        self.diverging: Divergence | None = None
        self.found: Slice | None = None
        self.proposal: Proposal | None = None  # to be sent to the controller

    def fill(self, log: PartitionLog, offset: int, size_bytes_max: int, *, whole_batch: bool = True) -> None:
        """Read records up to the end of the log."""
        self.found = reading.read(log, offset, size_bytes_max, limit_offset=log.log_end_offset, whole_batch=whole_batch)


class Proposal:
    """An ISR that the controller is to put in force: one AlterPartition request."""

    __slots__ = ("broker_epochs", "in_sync", "leader_epoch", "maximal_in_sync", "partition_epoch", "why")

    def __init__(self, leader: LeaderState, in_sync: tuple[int, ...], broker_epochs: tuple[int, ...], why: str):
        self.in_sync = in_sync
        self.broker_epochs = broker_epochs  # of each, as this leader saw it in a fetch; -1: it has seen none
        self.leader_epoch = leader.leader_epoch
        self.partition_epoch = leader.partition_epoch  # that it starts from
        self.maximal_in_sync = tuple(dict.fromkeys([*leader.in_sync, *in_sync]))
        self.why = why


class LeaderState:
    """What a leader knows beyond its log."""

    __slots__ = (
        "epoch_start_offset",
        "find_broker",
        "followers",
        "in_sync",
        "lag_ms_max",
        "leader_epoch",
        "partition_epoch",
        "proposal",
        "replica",
    )

    def __init__(
        self,
        replica: RoleReplica,
        leader_epoch: int,
        partition_epoch: int,
        in_sync: Sequence[int],
        *,
        steady_ms: int,
        lag_ms_max: int,
        find_broker: FindBroker,
    ):
        """find_broker: what this broker's metadata say of another one."""
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.in_sync = tuple(in_sync)  # as the controller has last confirmed
        self.proposal: Proposal | None = None  # under way to the controller
        self.epoch_start_offset = replica.log.log_end_offset
        self.lag_ms_max = lag_ms_max
        self.find_broker = find_broker
        # Nothing is kept of an epoch before, even if this broker led it: meanwhile others may have led, and followers
        # may have cut their logs. Kafka: a leader that is elected again keeps the end offsets it knew.
        self.followers = self._progress({}, steady_ms)

    def learn(self, partition_epoch: int, in_sync: Sequence[int], steady_ms: int) -> None:
        """Take what the metadata say in the same leader epoch; the replicas may have changed too."""
        if partition_epoch < self.partition_epoch:
            return
        # What comes in the epoch of a proposal is what the proposal starts from, and it may be accepted any time.
        # Kafka: forgets the proposal then, and no longer waits for a follower that may be in the ISR already.
        if partition_epoch > self.partition_epoch:
            self.proposal = None
            self.partition_epoch = partition_epoch
            self._set_in_sync(in_sync)
        self.followers = self._progress(self.followers, steady_ms)
        self.replica.advance(steady_ms)

    def _set_in_sync(self, in_sync: Sequence[int]) -> None:
        if self.in_sync != tuple(in_sync):
            self.in_sync = tuple(in_sync)
            self.replica.tell(0)

    def _progress(self, known: dict[int, FollowerProgress], steady_ms: int) -> dict[int, FollowerProgress]:
        progress = {}
        for broker_id in self.replica.replicas:
            if broker_id != self.replica.node_id:
                caught_up_ms = steady_ms if broker_id in self.in_sync else NEVER_MS
                progress[broker_id] = known.get(broker_id) or FollowerProgress(broker_id, caught_up_ms)
        return progress

    # What is committed

    @property
    def maximal_in_sync(self) -> tuple[int, ...]:
        """Everybody who may be in the ISR by now."""
        return self.in_sync if self.proposal is None else self.proposal.maximal_in_sync

    @property
    def is_under_min(self) -> bool:
        return len(self.in_sync) < self.replica.min_in_sync_effective

    def committed_end(self, steady_ms: int) -> int:
        """Return up to where the records are on all replicas that have to have them; -1: nothing can be said."""
        end_offset = self.replica.log.log_end_offset
        if not self.followers:
            return end_offset
        if self.is_under_min:
            return UNKNOWN_OFFSET
        committed = end_offset
        in_sync = self.maximal_in_sync
        for follower in self.followers.values():
            if follower.end_offset < committed and (
                follower.broker_id in in_sync or self._is_joining(follower, end_offset, steady_ms)
            ):
                committed = follower.end_offset
        return committed

    def _is_joining(self, follower: FollowerProgress, end_offset: int, steady_ms: int) -> bool:
        return follower.is_caught_up(end_offset, steady_ms, self.lag_ms_max) and self._may_join(follower)

    # Followers

    def note_fetch(
        self,
        follower_id: int,
        position: FetchPosition,
        *,
        steady_ms: int,
        broker_epoch: int = -1,
        counts: bool = True,
    ) -> FollowerRead:
        """Note how far a follower is, and compare its log with the leader's; there are no records in the answer yet.

        broker_epoch: of the follower when it sent the request. counts: False when the same request is looked at again,
        having waited: the follower has said nothing new.
        """
        replica = self.replica
        replica.check_epoch(position.leader_epoch)
        if follower_id not in self.followers:
            # It may know of a reassignment that has not come here yet, in the same leader epoch: it is to ask again.
            unknown = Error.UNKNOWN_LEADER_EPOCH if position.leader_epoch >= 0 else Error.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(unknown, f"broker {follower_id} has no replica of this partition")
        answer = FollowerRead(replica)
        answer.diverging = find_divergence(replica.log, position.offset, position.last_fetched_epoch)
        if answer.diverging is None:
            reading.check_range(replica.log, position.offset)
            if counts:
                answer.proposal = self.on_fetch(
                    follower_id, position.offset, position.log_start_offset, steady_ms, broker_epoch
                )
        return answer

    def on_fetch(
        self, replica_id: int, fetch_offset: int, log_start_offset: int, steady_ms: int, broker_epoch: int = -1
    ) -> Proposal | None:
        """Note that a follower has everything below an offset; return the proposal that lets it join, if it may.

        Its log has been compared with this one. broker_epoch: of the sender; -1 is not checked.
        """
        follower = self.followers[replica_id]
        broker = self.find_broker(replica_id)
        if broker_epoch != -1 and broker is not None and not broker.fenced and broker.broker_epoch > broker_epoch:
            raise KafkaError(
                Error.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} sent this in broker epoch {broker_epoch}, it is {broker.broker_epoch} now",
            )
        end_offset, start_offset = follower.end_offset, follower.log_start_offset
        follower.note(fetch_offset, log_start_offset, self.replica.log.log_end_offset, steady_ms, broker_epoch)
        proposal = self._expand(follower)
        if follower.end_offset != end_offset:
            self.replica.advance(steady_ms)
        if follower.log_start_offset != start_offset:
            self.replica.tell(0)  # who waits for records to be deleted everywhere
        return proposal

    def _may_join(self, follower: FollowerProgress) -> bool:
        """Return whether the controller would have it in the ISR: it lives, and it is the one who fetched (KIP-903)."""
        broker = self.find_broker(follower.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and follower.broker_epoch in (UNKNOWN_EPOCH, broker.broker_epoch)
        )

    def _expand(self, follower: FollowerProgress) -> Proposal | None:
        if self.proposal is not None or follower.broker_id in self.in_sync or not self._may_join(follower):
            return None
        if not self._has_all_committed(follower):
            return None
        return self._propose(
            (*self.in_sync, follower.broker_id),
            f"broker {follower.broker_id} has everything up to {follower.end_offset}, and the high watermark is "
            f"{self.replica.high_watermark}",
        )

    def _has_all_committed(self, follower: FollowerProgress) -> bool:
        """Whether a follower has all that may be committed, also by the leader before this one."""
        return follower.end_offset >= max(self.replica.high_watermark, self.epoch_start_offset)

    def check_lag(self, steady_ms: int) -> Proposal | None:
        """Return the proposal without those who have not been caught up for too long; due every half of that time."""
        end_offset = self.replica.log.log_end_offset
        kept, lagging = [], []
        for broker_id in self.in_sync:
            follower = self.followers.get(broker_id)
            if broker_id == self.replica.node_id or (
                follower is not None and follower.is_caught_up(end_offset, steady_ms, self.lag_ms_max)
            ):
                kept.append(broker_id)
            else:
                lagging.append(broker_id)
        if lagging and self.proposal is None:
            return self._propose(
                tuple(kept),
                f"broker {', '.join(map(str, lagging))} has not been caught up for more than {self.lag_ms_max} ms",
            )
        # A follower that was about to join and has stopped is waited for no more.
        # Kafka: looks at that again with the next append or fetch, so a producer may wait in vain.
        self.replica.advance(steady_ms)
        return None

    # The controller

    def _propose(self, in_sync: tuple[int, ...], why: str) -> Proposal:
        self.proposal = Proposal(self, in_sync, tuple(map(self._epoch_of, in_sync)), why)
        return self.proposal

    def _epoch_of(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        if follower is None:
            broker = self.find_broker(broker_id)
            return UNKNOWN_EPOCH if broker is None else broker.broker_epoch
        return UNKNOWN_EPOCH if follower.broker_epoch is None else follower.broker_epoch

    def alter_answered(
        self,
        proposal: Proposal,
        error: int,
        *,
        steady_ms: int,
        leader_epoch: int = UNKNOWN_EPOCH,
        partition_epoch: int = UNKNOWN_EPOCH,
        in_sync: Sequence[int] = (),
    ) -> Proposal | None:
        """Take the controller's answer; return the proposal if it is to be sent again.

        error: of the partition, or of the request as a whole, or any if no answer came. The rest: what is in force.
        """
        if proposal is not self.proposal:
            return None  # the metadata were faster
        if error == Error.NONE:
            if leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
                self.partition_epoch = partition_epoch
                self.proposal = None
                self._set_in_sync(in_sync)
                self.replica.advance(steady_ms)
            return None
        if error in NOT_APPLIED:
            self.proposal = None
            self.replica.advance(steady_ms)
            return None
        return None if error in METADATA_TO_COME else proposal

    # Reading from a replica nearby

    def preferred_replica(self, rack: str, fetch_offset: int, steady_ms: int) -> int:
        """Return the broker that a consumer in a rack should read from (KIP-392); -1: the leader.

        The best of those in sync there that have the offset, as Kafka's RackAwareReplicaSelector chooses.
        """
        me = self.find_broker(self.replica.node_id)
        if not rack or (me is not None and me.rack == rack):
            return STAY_HERE
        near = []
        for broker_id in self.in_sync:
            follower = self.followers.get(broker_id)
            broker = self.find_broker(broker_id)
            if follower is None or broker is None or broker.fenced or broker.rack != rack:
                continue
            if follower.log_start_offset <= fetch_offset <= follower.end_offset:
                near.append((follower.end_offset, follower.caught_up_ms - steady_ms, broker_id))
        return max(near)[2] if near else STAY_HERE

    @property
    def low_watermark(self) -> int:
        """The offset below which no living replica has records any more: DeleteRecords waits for it."""
        starts = [self.replica.log.log_start_offset]
        for follower in self.followers.values():
            broker = self.find_broker(follower.broker_id)
            if broker is not None and not broker.fenced:
                starts.append(follower.log_start_offset)
        return min(starts)


def find_divergence(log: PartitionLog, offset: int, last_fetched_epoch: int) -> Divergence | None:
    """Return where a log parts from one that ends at `offset` with that epoch; None: it does not.

    Raises OFFSET_OUT_OF_RANGE if nothing can be said about them.
    """
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} is not known")
    if offset < log.log_start_offset:
        # Whether they parted before cannot be told: the follower has to start over.
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"{offset} is before the log start {log.log_start_offset}")
    if epoch < last_fetched_epoch or end_offset < offset:
        return Divergence(epoch, end_offset)
    return None
