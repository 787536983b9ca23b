"""A replica that follows: what it asks its leader for, and what it does with the answer.

    next_fetch -> FetchPosition -> (the leader) -> answer -> on_fetched
                                            diverging epoch   cut the log there, ask again
                                            records           append them as they are
                                            out of range      ask the leader where its log begins and ends

What must hold: only an answer of the leader in the same epoch, to what would be asked now, changes anything. The log is
cut by epochs, never by the high watermark: that trails the leader's, and what is above it may be committed (KIP-101).
Only a log without any epoch, of a format before them or empty, is cut to the high watermark, having nothing better.
The high watermark is the leader's, at most the end of the own log; it may fall when a new leader knows less.
Not here: the loop that sends and waits, how long to wait after an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from minibroker.errors import Error, KafkaError, ProtocolError, StorageError
from minibroker.event_kinds import Epoch, Truncate
from minibroker.log.batches import batches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Chunk
    from minibroker.replication.follower_types import FetchedPartition as FetchedPartition
    from minibroker.replication.follower_types import RoleReplica as RoleReplica

    CutLog = Callable[[int, str], object]  # offset, and why


class FetchPosition(NamedTuple):
    """What a follower asks for."""

    offset: int  # where its log ends
    last_fetched_epoch: int  # the latest epoch in its log; -1: it knows of none
    log_start_offset: int
    leader_epoch: int  # in which it follows; -1: not checked


NO_LEADER: Final = -1
UNKNOWN_EPOCH: Final = -1

# What became of an answer.
APPENDED: Final = "appended"
NOTHING_NEW: Final = "nothing new"
TRUNCATED: Final = "truncated"
OUT_OF_RANGE: Final = "out of range"  # ask the leader for the ends of its log, then on_leader_ends
FENCED: Final = "fenced"  # fetch no more until the metadata say who leads now
STALE: Final = "stale"  # an answer to a question of before
RETRY: Final = "retry"  # after a while


class FollowerState:
    """What a follower knows beyond its log."""

    __slots__ = ("is_fenced", "leader_epoch", "leader_id", "needs_ends", "replica", "trouble", "truncate")

    def __init__(self, replica: RoleReplica, leader_id: int, leader_epoch: int, truncate: CutLog):
        """truncate: cuts the log as LogDirectory.truncate_to does: the recovery point goes down first."""
        self.replica = replica
        self.leader_id = leader_id  # -1: nobody leads
        self.leader_epoch = leader_epoch
        self.truncate = truncate
        self.is_fenced = False  # the leader knows a later epoch
        self.needs_ends = False  # what was asked for is not in the leader's log
        self.trouble = ""  # why the last answer was of no use, if it was RETRY

    def begin(self, *, cuts_to_high_watermark: bool = False) -> None:
        """Make the log ready for the first fetch in this epoch.

        cuts_to_high_watermark: as followers did before KIP-101, which loses records; lessons show it.
        """
        replica = self.replica
        if not len(replica.log.epochs):
            self._cut(replica.high_watermark, "it has no epochs to compare with its leader's")
        elif cuts_to_high_watermark:
            self._cut(replica.high_watermark, "it keeps nothing above its high watermark, as before KIP-101")

    def next_fetch(self) -> FetchPosition | None:
        """Return what to ask the leader for; None: there is nobody to ask, or something else to be known first."""
        if self.leader_id == NO_LEADER or self.is_fenced or self.needs_ends:
            return None
        log = self.replica.log
        epoch = log.epochs.latest_epoch
        return FetchPosition(
            log.log_end_offset, UNKNOWN_EPOCH if epoch is None else epoch, log.log_start_offset, self.leader_epoch
        )

    def on_fetched(self, position: FetchPosition, answer: FetchedPartition, now_ms: int) -> str:
        """Do what an answer says; return what that was."""
        replica = self.replica
        if replica.role is not self or position != self.next_fetch():
            # The last epoch has to be the same too: the log may have been cut and have grown to the same length since.
            return STALE
        error = answer.error_code
        if error == Error.NONE:
            if answer.diverging_epoch.epoch != UNKNOWN_EPOCH:
                self._cut_where_logs_part(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
                return TRUNCATED
            return self._append(answer, now_ms)
        if error == Error.OFFSET_OUT_OF_RANGE:
            self.needs_ends = True
            return OUT_OF_RANGE
        if error == Error.FENCED_LEADER_EPOCH:
            self.is_fenced = True
            return FENCED
        self.trouble = f"broker {self.leader_id} answers {Error(error).name}"
        return RETRY

    def _append(self, answer: FetchedPartition, now_ms: int) -> str:
        replica, size_bytes = self.replica, 0
        log = replica.log
        if answer.records:
            active, first_offset = log.active, log.log_end_offset
            epoch = log.epochs.latest_epoch
            try:
                if first_offset == log.log_start_offset:
                    self._begin_with_batch(answer.records)
                size_bytes = log.append_as_follower(answer.records, now_ms=now_ms)
            except StorageError:
                raise
            except (KafkaError, ProtocolError) as error:
                self.trouble = f"what broker {self.leader_id} sent is refused: {error}"
                return RETRY
            if size_bytes and replica.events.observed:
                latest = log.epochs.latest
                if latest is not None and latest.epoch != epoch:
                    event = Epoch(**replica.place, leader_epoch=latest.epoch, start_offset=latest.start_offset)
                    replica.events.emit(event)
                replica.tell_appended(active, first_offset, size_bytes, "leader")
        replica.take_high_watermark(answer.high_watermark, size_bytes)
        start_offset = min(answer.log_start_offset, replica.high_watermark)
        if start_offset > log.log_start_offset:
            log.advance_log_start(start_offset)
            replica.log_start_moved("its leader's log begins there")
        return APPENDED if size_bytes else NOTHING_NEW

    def _begin_with_batch(self, records: Chunk) -> None:
        """Let an empty log begin where a batch does of which the leader has deleted the first records.

        Fetched is what holds the leader's log start, and that may lie within a batch (DeleteRecords). As Kafka does for
        an UnexpectedAppendOffsetException, the log begins at the batch; where it starts for readers stays what it was.
        """
        log = self.replica.log
        batch = next(iter(batches(records)), None)
        if batch is not None and batch.magic == 2 and batch.base_offset < log.log_end_offset <= batch.last_offset:
            self.truncate(batch.base_offset, "the records before its leader's log start are in the same batch")
            self.replica.truncated()

    # Cutting

    def _cut_where_logs_part(self, epoch: int, end_offset: int) -> None:
        offset = self.parting_offset(epoch, end_offset)
        self._cut(offset, f"its leader's log ends at {end_offset} for epoch {epoch}")

    def parting_offset(self, epoch: int, end_offset: int) -> int:
        """Return from where on a leader does not have this log, that ends at `end_offset` for an epoch.

        It is the largest epoch both may know. If this log does not have it, only what came in later epochs is known to
        be wrong; the leader is asked again with what is left (KIP-279).
        """
        log = self.replica.log
        own_epoch, own_end_offset = log.epochs.end_offset_for(epoch, log.log_end_offset)
        if own_end_offset < 0 or own_epoch < 0:
            return end_offset
        return own_end_offset if own_epoch != epoch else min(own_end_offset, end_offset)

    def _cut(self, offset: int, why: str) -> None:
        log = self.replica.log
        offset = min(offset, log.log_end_offset)
        if offset < log.log_end_offset or (log.epochs.latest is not None and log.epochs.latest.start_offset >= offset):
            replica, end_offset = self.replica, log.log_end_offset
            self.truncate(offset, why)
            replica.truncated()
            if offset < end_offset and replica.events.observed:
                event = Truncate(**replica.place, from_offset=end_offset, to_offset=offset, why=why)
                replica.events.emit(event)

    def on_leader_ends(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Take what the leader, in this epoch, said of where its log begins and ends (ListOffsets -2 and -1)."""
        if self.replica.role is not self:
            return
        self.needs_ends = False
        log = self.replica.log
        if log_end_offset < log.log_end_offset:
            # Only an election of a replica that was not in sync leads here.
            self._cut(log_end_offset, f"its leader's log ends at {log_end_offset}")
        elif log_start_offset > log.log_end_offset:
            # What this replica has is older than anything its leader has kept.
            log.truncate_fully_and_start_at(log_start_offset, now_ms=now_ms)
            self.replica.truncated()
