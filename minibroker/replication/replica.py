"""One partition on one broker: its log, who leads, and up to where it may be read.

    log start offset <= last stable offset <= high watermark <= log end offset

The high watermark is the offset up to which every replica in sync has the records. It bounds what consumers see, for
what is above it may be lost with the leader. A partition whose only replica in sync is its leader raises it with
each append.
Waiters are told when there is more to read. No I/O but the log's, no waiting.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.log.outcomes import Appended
    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.producers import Verification
    from minibroker.log.storage import Chunk

    Waiter = Callable[[int], object]  # told how many bytes were added

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CLIENT = "client"


class Replica:
    """A partition as this broker has it."""

    __slots__ = (
        "high_watermark",
        "in_sync",
        "leader_epoch",
        "leader_id",
        "log",
        "min_in_sync",
        "node_id",
        "partition",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(self, topic: str, topic_id: bytes, partition: int, node_id: int, log: PartitionLog):
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.node_id = node_id
        self.log = log
        self.leader_id = -1  # nobody
        self.leader_epoch = -1
        self.in_sync: tuple[int, ...] = (node_id,)
        self.min_in_sync = 1
        self.high_watermark = log.log_start_offset
        self.waiters: dict[Waiter, None] = {}

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def lead(self, leader_epoch: int) -> None:
        """Become the leader: records from here on carry this epoch."""
        self.leader_id = self.node_id
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.begin_epoch(leader_epoch)
        self._advance(0)

    def leave(self) -> None:
        """Lead no more: the partition is gone, or somebody else's."""
        self.leader_id = -1
        self._tell(0)

    def append(
        self,
        data: Chunk,
        *,
        now_ms: int,
        acks: int = 1,
        origin: str = CLIENT,
        verification: Verification | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Append what a producer sent, if this broker leads and enough replicas are in sync."""
        self.check_leader()
        if acks == -1 and len(self.in_sync) < self.min_in_sync:
            raise KafkaError(
                Error.NOT_ENOUGH_REPLICAS, f"{len(self.in_sync)} replicas are in sync, {self.min_in_sync} have to be"
            )
        log = self.log
        size_bytes = log.active.size_bytes
        appended = log.append_as_leader(
            data,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            verification=verification,
            transaction_version=transaction_version,
        )
        if not appended.is_duplicate:
            self._advance(max(log.active.size_bytes - size_bytes, 1))
        return appended

    def check_leader(self, current_epoch: int = -1) -> None:
        """Raise unless this broker leads, and the client knows the same leader epoch."""
        if current_epoch >= 0 and self.leader_epoch >= 0:
            if current_epoch < self.leader_epoch:
                raise KafkaError(Error.FENCED_LEADER_EPOCH, f"epoch {current_epoch} is over, it is {self.leader_epoch}")
            if current_epoch > self.leader_epoch:
                raise KafkaError(Error.UNKNOWN_LEADER_EPOCH, f"epoch {current_epoch} is not known here yet")
        if self.leader_id != self.node_id:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"broker {self.leader_id} leads")

    def readable_end(self, isolation_level: int) -> int:
        """Return up to where a consumer may read."""
        if isolation_level == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    def log_start_moved(self) -> None:
        """Tell the replica that the beginning of its log has been deleted."""
        self.log.producers.on_high_watermark_updated(self.log.log_start_offset)
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)

    def _advance(self, size_bytes: int) -> None:
        """Raise the high watermark as far as the replicas in sync allow, and tell who waits for it."""
        if len(self.in_sync) == 1 and self.high_watermark < self.log.next_offset:
            self.high_watermark = self.log.next_offset
            self.log.producers.on_high_watermark_updated(self.high_watermark)
        if self.waiters:
            self._tell(size_bytes)

    def _tell(self, size_bytes: int) -> None:
        for waiter in list(self.waiters):
            waiter(size_bytes)
