"""What a leader answers to a follower's fetch, and what the follower says in it. Nothing here waits.

    follower: next offset, epoch of its last record, the epoch in which it follows
    leader:   epochs differ          -> error, whoever is behind asks the controller's log
              logs differ            -> up to where they are the same; the follower cuts its own there and asks again
              otherwise              -> records up to the end of the log, whoever else has them
                                        and: the follower has everything below the offset that it asks for

What must hold: a follower's progress counts only if its log is the leader's log up to the offset (KIP-101, KIP-595).
Not here: bytes of requests, sessions, waiting for more (broker/handlers/fetch.py).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.log import reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.segment import Slice
    from minibroker.replication.leader import Proposal
    from minibroker.replication.replica import Replica

    class FetchPosition(NamedTuple):
        """What a follower asks for."""

        offset: int  # where its log ends
        last_fetched_epoch: int  # the latest epoch in its log; -1: it knows of none
        log_start_offset: int
        leader_epoch: int  # in which it follows; -1: not checked

    class Divergence(NamedTuple):
        """Where the leader's log ends for an epoch that it shares with a follower."""

        epoch: int
        end_offset: int
else:
    # As in records.py: importing typing costs more than this module.
    from collections import namedtuple

    FetchPosition = namedtuple("FetchPosition", "offset last_fetched_epoch log_start_offset leader_epoch")
    Divergence = namedtuple("Divergence", "epoch end_offset")


class FollowerRead:
    """An answer to a follower, but for its bytes."""

    __slots__ = ("diverging", "found", "high_watermark", "last_stable_offset", "log_start_offset", "proposal")

    def __init__(self, replica: Replica):
        # As before this fetch: what it moves the follower learns of with the next answer, as with Kafka.
        self.high_watermark = replica.high_watermark
        self.last_stable_offset = replica.log.last_stable_offset(replica.high_watermark)
        self.log_start_offset = replica.log.log_start_offset
        self.diverging: Divergence | None = None
        self.found: Slice | None = None
        self.proposal: Proposal | None = None  # to be sent to the controller

    def fill(self, replica: Replica, wanted: FetchPosition, size_bytes_max: int, *, whole_batch: bool = True) -> None:
        """Read records up to the end of the log."""
        log = replica.log
        self.found = reading.read(
            log, wanted.offset, size_bytes_max, limit_offset=log.log_end_offset, whole_batch=whole_batch
        )


def read_for_follower(
    replica: Replica,
    replica_id: int,
    wanted: FetchPosition,
    *,
    size_bytes_max: int,
    steady_ms: int,
    broker_epoch: int = -1,
    whole_batch: bool = True,
    counts: bool = True,
) -> FollowerRead:
    """Note what a follower says, and read what it asks for."""
    read = note_fetch(replica, replica_id, wanted, steady_ms=steady_ms, broker_epoch=broker_epoch, counts=counts)
    if read.diverging is None:
        read.fill(replica, wanted, size_bytes_max, whole_batch=whole_batch)
    return read


def note_fetch(
    replica: Replica,
    replica_id: int,
    wanted: FetchPosition,
    *,
    steady_ms: int,
    broker_epoch: int = -1,
    counts: bool = True,
) -> FollowerRead:
    """Note how far a follower is, and compare its log with the leader's; there are no records in the answer yet.

    broker_epoch: of the follower when it sent the request. counts: False when the same request is looked at again,
    having waited: the follower has said nothing new.
    """
    replica.check_leader(wanted.leader_epoch)
    leader = replica.as_leader()
    if replica_id not in leader.followers:
        # It may know of a reassignment that has not come here yet, in the same leader epoch: then it is to ask again.
        unknown = Error.UNKNOWN_LEADER_EPOCH if wanted.leader_epoch >= 0 else Error.NOT_LEADER_OR_FOLLOWER
        raise KafkaError(unknown, f"broker {replica_id} has no replica of {replica.topic}-{replica.partition}")
    log = replica.log
    answer = FollowerRead(replica)
    answer.diverging = find_divergence(log, wanted.offset, wanted.last_fetched_epoch)
    if answer.diverging is None:
        reading.check_range(log, wanted.offset)
    if counts and answer.diverging is None:
        answer.proposal = leader.on_fetch(replica_id, wanted.offset, wanted.log_start_offset, steady_ms, broker_epoch)
    return answer


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
