"""Replicas with real logs in memory, for tests: what a cluster of them does is said call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from minibroker.errors import Error, KafkaError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.replication.follower import FetchPosition, FollowerState
from minibroker.replication.leader import Divergence, FollowerRead, LeaderState
from minibroker.replication.replica import Replica

LAG_MS_MAX = 1000


class Known(NamedTuple):
    """A broker as the metadata have it."""

    broker_epoch: int = 1
    fenced: bool = False
    in_controlled_shutdown: bool = False
    rack: str | None = None


class Answer:
    """What a follower gets."""

    def __init__(
        self,
        records: bytes | None = None,
        *,
        error_code: int = Error.NONE,
        high_watermark: int = 0,
        log_start_offset: int = 0,
        diverging: Divergence | None = None,
    ):
        self.records = records
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging or Divergence(-1, -1)


def answer_of(read: FollowerRead) -> Answer:
    return Answer(
        None if read.found is None else bytes(read.found.view()),
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
        diverging=read.diverging,
    )


def read_for_follower(
    replica: Replica, follower_id: int, position: FetchPosition, *, size_bytes_max: int, **named: Any
) -> FollowerRead:
    """Note what a follower says, and read what it asks for, as one fetch of a session does."""
    if not replica.is_leader:
        replica.check_leader(position.leader_epoch)
    read = replica.as_leader().note_fetch(follower_id, position, **named)
    if read.diverging is None:
        read.fill(replica.log, position.offset, size_bytes_max)
    return read


class Cluster:
    """Some brokers with one partition. Nothing happens by itself."""

    def __init__(self, *broker_ids: int, min_in_sync: int = 1):
        self.brokers = dict.fromkeys(broker_ids, Known())
        self.now_ms = 0
        self.epoch = -1
        self.partition_epoch = 0
        self.min_in_sync = min_in_sync
        self.cuts: list[tuple[int, int]] = []  # broker and offset of each truncation
        self.storages = {broker_id: MemoryStorage(int) for broker_id in broker_ids}
        self.replicas = {broker_id: self.open(broker_id) for broker_id in broker_ids}

    def open(self, broker_id: int, high_watermark: int = 0) -> Replica:
        log = open_log(self.storages[broker_id], "t-0", LogSettings(segment_index_bytes=96))
        return Replica("t", bytes(16), 0, broker_id, log, high_watermark=high_watermark, min_in_sync=self.min_in_sync)

    def restart(self, broker_id: int, *, keep: int | None = None, high_watermark: int = 0) -> None:
        """Crash and start again, with the first `keep` records only."""
        replica = self.replicas[broker_id]
        if keep is not None and keep < replica.log.log_end_offset:
            replica.log.truncate_to(keep)
        replica.log.release()
        self.replicas[broker_id] = self.open(broker_id, high_watermark)

    def lead(self, leader_id: int, in_sync: Sequence[int] | None = None, *, to: Sequence[int] = ()) -> LeaderState:
        """Elect a leader in a new epoch; the brokers `to` learn of it, all if none is named."""
        self.epoch += 1
        self.partition_epoch += 1
        for broker_id in to or self.replicas:
            self.tell(broker_id, leader_id, in_sync)
        return self.replicas[leader_id].as_leader()

    def tell(self, broker_id: int, leader_id: int, in_sync: Sequence[int] | None = None) -> None:
        replica, everybody = self.replicas[broker_id], tuple(self.replicas)
        if broker_id == leader_id:
            replica.lead(
                self.epoch,
                partition_epoch=self.partition_epoch,
                replicas=everybody,
                in_sync=everybody if in_sync is None else in_sync,
                steady_ms=self.now_ms,
                lag_ms_max=LAG_MS_MAX,
                find_broker=self.brokers.get,
            )
        else:
            replica.follow(
                leader_id, self.epoch, replicas=everybody, truncate=lambda offset, why: self.cut(broker_id, offset)
            )

    def cut(self, broker_id: int, offset: int) -> None:
        self.cuts.append((broker_id, offset))
        self.replicas[broker_id].log.truncate_to(offset)

    def produce(self, broker_id: int, *values: str, acks: int = 1) -> int:
        """Append records, a batch each; return where the log ends."""
        for value in values:
            data = bytearray(build_batch(2, [Record(None, value.encode(), (), 1000)]))
            self.replicas[broker_id].append(data, now_ms=self.now_ms, steady_ms=self.now_ms, acks=acks)
        return self.end(broker_id)

    def role(self, follower_id: int) -> FollowerState:
        role = self.replicas[follower_id].role
        assert isinstance(role, FollowerState)
        return role

    def wanted(self, follower_id: int) -> FetchPosition:
        wanted = self.role(follower_id).next_fetch()
        assert wanted is not None
        return wanted

    def read(self, follower_id: int, leader_id: int, *, size_bytes_max: int = 1 << 20) -> FollowerRead:
        """Let a follower ask; return what the leader says, which does not arrive yet."""
        return read_for_follower(
            self.replicas[leader_id],
            follower_id,
            self.wanted(follower_id),
            size_bytes_max=size_bytes_max,
            steady_ms=self.now_ms,
            broker_epoch=self.brokers[follower_id].broker_epoch,
        )

    def fetch(self, follower_id: int, leader_id: int, *, size_bytes_max: int = 1 << 20) -> str:
        """Let a follower ask and get its answer; return what came of it."""
        wanted = self.wanted(follower_id)
        try:
            answer = answer_of(self.read(follower_id, leader_id, size_bytes_max=size_bytes_max))
        except KafkaError as error:
            answer = Answer(error_code=error.code)
        return self.role(follower_id).on_fetched(wanted, answer, self.now_ms)

    # What there is

    def end(self, broker_id: int) -> int:
        return self.replicas[broker_id].log.log_end_offset

    def high_watermark(self, broker_id: int) -> int:
        return self.replicas[broker_id].high_watermark

    def values(self, broker_id: int) -> str:
        """Return all records of a replica, one after another."""
        log = self.replicas[broker_id].log
        found = []
        for segment in log.segments:
            data = segment.storage.open(segment.path).map()
            for batch in batches(data):
                found += [bytes(record.value or b"").decode() for record in batch.records()]
        return "".join(found)
