"""One partition on one broker: its log, who leads, and up to where it may be read.

    log start offset <= last stable offset <= high watermark <= log end offset

The high watermark is the offset up to which every replica in sync has the records. It bounds what consumers see, for
what is above it may be lost with the leader. A partition whose only replica is its leader raises it with each append.
What a replica does beyond having a log is its role's: leader.py, follower.py; it has none before the metadata say so.
Waiters are told of everything that could end a wait: more to read, or less, another role, ISR or setting, a disk that
has failed. They look at the state themselves. No I/O but the log's, no waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import Append, Delete, Epoch, Roll
from minibroker.events import EventStream
from minibroker.log.append_conversion import Looked
from minibroker.log.partition_log import Appended, PartitionLog
from minibroker.log.producers import Verification
from minibroker.log.segment import Segment
from minibroker.log.validate import CLIENT, COORDINATOR, Allowance, Validated
from minibroker.metadata.image import Partition
from minibroker.replication.follower import NO_LEADER, FollowerState
from minibroker.replication.leader import LAG_MS_MAX, LeaderState
from minibroker.replication.offset_events import move_high_watermark, tell_marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Chunk
    from minibroker.replication.follower import CutLog
    from minibroker.replication.known_broker import KnownBroker
    from minibroker.replication.leader import FindBroker

Waiter = Callable[[int], object]  # told how many bytes were added
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
HELD_BYTES: Final = 1  # told as added where the high watermark has come to records that had been there
NOBODY_WATCHES: Final = EventStream()


def nobody_known(broker_id: int) -> KnownBroker | None:
    return None


class Replica:
    """A partition as this broker has it."""

    __slots__ = (
        "events",
        "high_watermark",
        "leader_epoch",
        "leader_id",
        "log",
        "min_in_sync",
        "node_id",
        "partition",
        "replicas",
        "role",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        node_id: int,
        log: PartitionLog,
        *,
        high_watermark: int = 0,
        min_in_sync: int = 1,
        events: EventStream = NOBODY_WATCHES,
    ):
        """high_watermark: as the checkpoint has it."""
        self.events = events
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.node_id = node_id
        self.log = log
        self.role: LeaderState | FollowerState | None = None
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.replicas: tuple[int, ...] = (node_id,)  # on which brokers
        self.min_in_sync = min_in_sync  # min.insync.replicas, as set_min_in_sync has it
        self.high_watermark = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        self.waiters: dict[Waiter, None] = {}
        log.on_high_watermark_updated(self.high_watermark)
        log.on_offline = lambda: self.tell(0)

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The ISR as the controller has last confirmed it to this leader; nothing is known elsewhere."""
        return self.role.in_sync if isinstance(self.role, LeaderState) else ()

    @property
    def min_in_sync_effective(self) -> int:
        """How many have to be in sync: there can be no more than there are replicas."""
        return min(self.min_in_sync, len(self.replicas))

    def as_leader(self) -> LeaderState:
        assert isinstance(self.role, LeaderState), self.role
        return self.role

    # Roles

    def take(
        self,
        partition: Partition,
        *,
        steady_ms: int,
        lag_ms_max: int = LAG_MS_MAX,
        find_broker: FindBroker = nobody_known,
        truncate: CutLog | None = None,
        cuts_to_high_watermark: bool = False,
    ) -> None:
        """Lead or follow, as the metadata say."""
        if partition.leader == self.node_id:
            self.lead(
                partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                in_sync=partition.isr,
                steady_ms=steady_ms,
                lag_ms_max=lag_ms_max,
                find_broker=find_broker,
            )
        else:
            self.follow(
                partition.leader,
                partition.leader_epoch,
                replicas=partition.replicas,
                truncate=truncate,
                cuts_to_high_watermark=cuts_to_high_watermark,
            )

    def lead(
        self,
        leader_epoch: int,
        *,
        partition_epoch: int = 0,
        replicas: Sequence[int] | None = None,
        in_sync: Sequence[int] | None = None,
        steady_ms: int = 0,
        lag_ms_max: int = LAG_MS_MAX,
        find_broker: FindBroker = nobody_known,
    ) -> None:
        """Lead, or go on leading with other replicas or another ISR, as the metadata say.

        Records from here on carry this epoch. find_broker: what the metadata here say of another broker.
        """
        if leader_epoch < self.leader_epoch:
            return  # old news
        alone = (self.node_id,)
        in_sync = alone if in_sync is None else in_sync
        role = self.role
        if isinstance(role, LeaderState) and leader_epoch == self.leader_epoch:
            if partition_epoch >= role.partition_epoch:
                self.replicas = alone if replicas is None else tuple(replicas)
                role.learn(partition_epoch, in_sync, steady_ms)
            return
        self.replicas = alone if replicas is None else tuple(replicas)
        self.leader_id = self.node_id
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.begin_epoch(leader_epoch)
        self.role = LeaderState(
            self,
            leader_epoch,
            partition_epoch,
            in_sync,
            steady_ms=steady_ms,
            lag_ms_max=lag_ms_max,
            find_broker=find_broker,
        )
        if self.events.observed:
            self.events.emit(Epoch(**self.place, leader_epoch=leader_epoch, start_offset=self.log.log_end_offset))
        self.advance(steady_ms)
        self.tell(0)

    def follow(
        self,
        leader_id: int,
        leader_epoch: int,
        *,
        replicas: Sequence[int] | None = None,
        truncate: CutLog | None = None,
        cuts_to_high_watermark: bool = False,
    ) -> None:
        """Follow a leader, or nobody (-1) while the metadata name none.

        truncate: cuts the log, as LogDirectory.truncate_to does; it is told why, too.
        """
        if leader_epoch < self.leader_epoch:
            return  # old news
        if replicas is not None:
            self.replicas = tuple(replicas)
        if isinstance(self.role, FollowerState) and (leader_id, leader_epoch) == (self.leader_id, self.leader_epoch):
            return
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.role = role = FollowerState(self, leader_id, leader_epoch, truncate or self._truncate)
        if leader_id != NO_LEADER:
            role.begin(cuts_to_high_watermark=cuts_to_high_watermark)
        self.tell(0)

    def _truncate(self, offset: int, why: str) -> None:
        self.log.recovery_point = min(self.log.recovery_point, offset)
        self.log.truncate_to(offset)

    def leave(self) -> None:
        """Lead and follow no more: the partition is gone from here."""
        self.role = None
        self.leader_id = NO_LEADER
        self.log.on_offline = None
        self.tell(0)

    # Records

    def append(
        self,
        data: Chunk,
        *,
        now_ms: int,
        steady_ms: int,
        acks: int = 1,
        origin: str = CLIENT,
        verification: Verification | None = None,
        transaction_version: int = 0,
        allowance: Allowance | None = None,
        looked: Looked | None = None,
        checked: Validated | None = None,
    ) -> Appended:
        """Append what a producer sent, if this broker leads and enough replicas are in sync.

        now_ms: for the records; steady_ms: for who lags. checked: as `PartitionLog.append_as_leader` has it.
        """
        self.check_leader()
        if acks == -1 and self.min_in_sync > 1:
            self._check_in_sync()
        log = self.log
        active = log.active
        size_bytes = active.size_bytes
        appended = log.append_as_leader(
            data,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            verification=verification,
            transaction_version=transaction_version,
            allowance=allowance,
            looked=looked,
            checked=checked,
        )
        if not appended.is_duplicate:
            size_bytes = max(log.active.size_bytes - size_bytes, 1)
            if self.events.observed:
                self.tell_appended(
                    active, appended.first_offset, size_bytes, "producer" if origin == CLIENT else origin
                )
                if origin == COORDINATOR:
                    tell_marker(self.events, self.place, data, appended.first_offset)
            self.advance(steady_ms, size_bytes)
        return appended

    def check_append(self) -> None:
        """Raise unless records that every replica in sync is to have can be appended now."""
        self.check_leader()
        self.log.check_online()
        if self.min_in_sync > 1:
            self._check_in_sync()

    def _check_in_sync(self) -> None:
        needed = self.min_in_sync_effective
        if len(self.in_sync) < needed:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS, f"{len(self.in_sync)} replicas are in sync, {needed} have to be"
            )

    def replicated(self, end_offset: int, leader_epoch: int) -> Error | None:
        """Return what becomes of an append with acks -1 that ended there in that epoch; None: it has to wait.

        Who leads in a later epoch need not have the records, even if it is this broker again.
        """
        role = self.role
        if self.log.offline is not None:
            return Error.KAFKA_STORAGE_ERROR
        if not isinstance(role, LeaderState) or leader_epoch != self.leader_epoch:
            return Error.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        if len(role.maximal_in_sync) < self.min_in_sync_effective:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return Error.NONE

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raise unless this broker leads, and the client knows the same leader epoch."""
        self.check_epoch(current_epoch)
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"broker {self.leader_id} leads")

    def check_epoch(self, current_epoch: int) -> None:
        """Raise unless the client knows the same leader epoch; -1 is not checked."""
        if current_epoch >= 0 and self.leader_epoch >= 0:
            if current_epoch < self.leader_epoch:
                raise KafkaError(Error.FENCED_LEADER_EPOCH, f"epoch {current_epoch} is over, it is {self.leader_epoch}")
            if current_epoch > self.leader_epoch:
                raise KafkaError(Error.UNKNOWN_LEADER_EPOCH, f"epoch {current_epoch} is not known here yet")

    def set_min_in_sync(self, count: int, steady_ms: int) -> None:
        """Take min.insync.replicas: with a smaller one the high watermark may rise."""
        if count != self.min_in_sync:
            self.min_in_sync = count
            if isinstance(self.role, LeaderState):
                self.advance(steady_ms)
                self.tell(0)

    def readable_end(self, isolation_level: int) -> int:
        """Return up to where a consumer may read."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    # What has moved

    def log_start_moved(self, why: str) -> None:
        """Tell the replica that the beginning of its log has been deleted."""
        if self.events.observed:
            self.events.emit(Delete(**self.place, start_offset=self.log.log_start_offset, why=why))
        self.log.on_high_watermark_updated(self.log.log_start_offset)
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)
        if self.waiters:
            self.tell(0)

    def advance(self, steady_ms: int, size_bytes: int = 0) -> None:
        """Raise the leader's high watermark as far as its followers allow, and tell who waits.

        size_bytes: what has been added to the log.
        """
        committed = self.as_leader().committed_end(steady_ms)
        if committed > self.high_watermark:
            self._move_high_watermark(committed, "every replica in sync has everything below it")
        elif not size_bytes:
            return
        if self.waiters:
            self.tell(size_bytes or HELD_BYTES)

    def take_high_watermark(self, offset: int, size_bytes: int) -> None:
        """Take the leader's high watermark, as far as this follower's log goes; it may have fallen with the leader."""
        offset = max(min(offset, self.log.log_end_offset), self.log.log_start_offset)
        if offset != self.high_watermark:
            self._move_high_watermark(offset, f"broker {self.leader_id}, its leader, told so")
        elif not size_bytes:
            return
        if self.waiters:
            self.tell(size_bytes or HELD_BYTES)

    def _move_high_watermark(self, offset: int, why: str) -> None:
        previous, self.high_watermark = self.high_watermark, offset
        if self.events.observed:
            move_high_watermark(self.events, self.place, self.log, previous, offset, why)
        else:
            self.log.on_high_watermark_updated(offset)

    @property
    def place(self) -> dict[str, Any]:
        """Which partition on which broker this is, as events name it."""
        return {"broker": self.node_id, "topic": self.topic, "partition": self.partition}

    def tell_appended(self, active: Segment, first_offset: int, size_bytes: int, origin: str) -> None:
        """Let watchers know of what was appended; active: the segment that was the last one before."""
        log = self.log
        if log.active is not active:
            why = "the last one was full, or old enough"
            self.events.emit(Roll(**self.place, base_offset=log.active.base_offset, why=why))
        if "append" not in self.events.wanted:
            return
        last_offset, epoch = log.log_end_offset - 1, log.epochs.latest_epoch
        epoch = -1 if epoch is None else epoch
        self.events.emit(
            Append(self.node_id, self.topic, self.partition, first_offset, last_offset, epoch, size_bytes, origin)
        )

    def truncated(self) -> None:
        """Tell the replica that the end of its log, or all of it, has been cut off."""
        log = self.log
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
        log.on_high_watermark_updated(self.high_watermark)
        if self.waiters:
            self.tell(0)

    def tell(self, size_bytes: int) -> None:
        """Have those who wait look again; size_bytes: if this is all about records that were appended, else 0."""
        for waiter in list(self.waiters):
            waiter(size_bytes)
