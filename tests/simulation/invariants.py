"""What must always hold in a cluster, checked while it runs: each event says which partition to look at.

The names are those of the project's invariants: L1, L2 (a log), R1 to R7, R11 (replication). `truth` is what was ever
below the high watermark of a leader, batch by batch: nothing of it may ever be lost or changed, unless an unclean
election took it away, which is told of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from zlib import crc32

from minibroker.cluster.cluster import Cluster
from minibroker.coordinator.log import CoordinatorLog
from minibroker.events import Event
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import Replica
from minibroker.simulation.disk import SimulatedStorage

if TYPE_CHECKING:
    from .damage import Damaged

Key = tuple[str, int]
Truth = list[tuple[int, int, int]]  # base offset, offset behind, and checksum of each batch


class Violation(Exception):
    """Something does not hold."""

    def __init__(self, rule: str, what: str):
        super().__init__(f"{rule}: {what}")
        self.rule = rule


class Seen:
    """What was known of a replica when it was looked at last."""

    def __init__(self, replica: Replica):
        self.replica = replica
        self.role: object = None
        self.high_watermark = -1
        self.agreed = 0  # up to here its log has been compared with the truth
        self.leader_epoch = -1


PARTITION_KINDS = ("append", "high_watermark", "truncate", "epoch", "recover", "isr", "leader")


class Invariants:
    """The checks of one cluster; `failure` is the first violation."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.truth: dict[Key, Truth] = {}
        self.leaders: dict[tuple[Key, int], int] = {}  # who led in an epoch
        self.passing: set[str] = set()  # topics that are deleted and made anew: nothing of them need last
        self.unclean_elections = 0
        self.checks = 0
        self.failure: Violation | None = None
        self.fleeting: set[str] = set()  # topics that are deleted and made anew: nothing is known of their logs
        self.damaged: set[tuple[Key, int]] = set()  # partition and broker of which nothing is known for the time being
        self.damages: dict[tuple[Key, int], Damaged] = {}  # by partition and broker
        self._seen: dict[tuple[Key, int], Seen] = {}
        self._epochs: dict[Key, tuple[int, int]] = {}  # leader and partition epoch of the controller
        self._subscription = cluster.events.subscribe(self.hear)

    def close(self) -> None:
        self._subscription.cancel()
        if self.failure is not None:
            raise self.failure

    def hear(self, event: Event) -> None:
        if self.failure is None and getattr(event, "topic", None) not in self.passing:
            try:
                self._hear(event)
            except Violation as violation:
                violation.add_note(f"at {event!r}")
                self.failure = violation

    def _hear(self, event: Event) -> None:
        kind = event.kind
        if kind in PARTITION_KINDS and (
            event.topic in self.fleeting  # type: ignore[attr-defined]
            or ((event.topic, event.partition), event.broker) in self.damaged  # type: ignore[attr-defined]
        ):
            return
        if kind in ("append", "high_watermark", "truncate", "epoch", "recover"):
            key = (event.topic, event.partition)  # type: ignore[attr-defined]
            replica = self.cluster.replica(*key, event.broker)  # type: ignore[attr-defined]
            if replica is not None:
                self.checks += 1
                self._check_log(key, replica, event)
        elif kind == "isr":
            self._check_isr(event)
        elif kind == "leader":
            self._check_leader(event)
        if kind in ("isr", "leader"):
            key = (event.topic, event.partition)  # type: ignore[attr-defined]
            now = self.cluster.partition(*key)
            before = self._epochs.get(key, (-1, -1))
            epochs = (now.leader_epoch, now.partition_epoch)
            if epochs[0] < before[0] or epochs[1] < before[1]:
                raise Violation("R3", f"{key}: epochs fell from {before} to {epochs}")
            if now.leader != -1 and now.leader not in now.isr:
                raise Violation("R3", f"{key}: {now.leader} leads and is not in {now.isr}")
            self._epochs[key] = epochs

    # One replica

    def _check_log(self, key: Key, replica: Replica, event: Event) -> None:
        coordinators = [each for each in replica.waiters if isinstance(getattr(each, "__self__", None), CoordinatorLog)]
        if len(coordinators) > 1:
            raise Violation("R13", f"{key} on {replica.node_id} has {len(coordinators)} coordinators")
        log = replica.log
        stable = log.last_stable_offset(replica.high_watermark)
        if not log.log_start_offset <= stable <= replica.high_watermark <= log.log_end_offset:
            raise Violation(
                "L2",
                f"{key} on {replica.node_id}: start {log.log_start_offset}, LSO {stable}, HW {replica.high_watermark}, "
                f"LEO {log.log_end_offset}",
            )
        seen = self._seen.get((key, replica.node_id))
        if seen is None or seen.replica is not replica:
            seen = self._seen[key, replica.node_id] = Seen(replica)
        if event.kind == "truncate":
            seen.agreed = min(seen.agreed, event.to_offset)  # type: ignore[attr-defined]
        if replica.leader_epoch < seen.leader_epoch:
            raise Violation("R3", f"{key} on {replica.node_id}: leader epoch fell to {replica.leader_epoch}")
        seen.leader_epoch = replica.leader_epoch
        role = replica.role
        if isinstance(role, LeaderState):
            self._check_leading(key, replica, role, seen)
        seen.role, seen.high_watermark = role, replica.high_watermark
        self._compare(key, replica, seen, may_grow=isinstance(role, LeaderState))

    def _check_leading(self, key: Key, replica: Replica, role: LeaderState, seen: Seen) -> None:
        leader = self.leaders.setdefault((key, role.leader_epoch), replica.node_id)
        if leader != replica.node_id:
            raise Violation("R3", f"{key}: {leader} and {replica.node_id} both lead in epoch {role.leader_epoch}")
        if seen.role is role and replica.high_watermark < seen.high_watermark:
            raise Violation("R1", f"{key}: HW fell from {seen.high_watermark} to {replica.high_watermark}")
        if seen.role is role and replica.high_watermark > seen.high_watermark:
            if len(role.maximal_in_sync) < replica.min_in_sync_effective:
                raise Violation("R8", f"{key}: HW rises to {replica.high_watermark} with ISR {role.in_sync}")
            for broker in role.in_sync:
                other = self.cluster.replica(*key, broker)
                if other is None or self.cluster.states[broker] not in ("running", "paused"):
                    continue
                has_moved_on = isinstance(other.role, LeaderState) or other.leader_epoch > role.leader_epoch
                if other.log.log_end_offset < replica.high_watermark and not has_moved_on:
                    ends = f"broker {broker} in sync ends at {other.log.log_end_offset}"
                    raise Violation("R1", f"{key}: HW rises to {replica.high_watermark}, {ends}")

    def _compare(self, key: Key, replica: Replica, seen: Seen, *, may_grow: bool) -> None:
        """Compare what is committed here with the truth (R2, R4), or add to it."""
        high_watermark = replica.high_watermark
        if high_watermark <= seen.agreed:
            return
        truth = self.truth.setdefault(key, [])
        end = truth[-1][1] if truth else 0
        for base_offset, next_offset, checksum in self._batches(replica, seen.agreed, high_watermark):
            if base_offset >= end:
                if not may_grow:
                    raise Violation(
                        "R4", f"{key}: follower {replica.node_id} has HW {high_watermark}, committed is up to {end}"
                    )
                truth.append((base_offset, next_offset, checksum))
                end = next_offset
            elif truth[find(truth, base_offset)] != (base_offset, next_offset, checksum):
                raise Violation(
                    "R4", f"{key}: on {replica.node_id} the batch at {base_offset} is not the one that was committed"
                )
            seen.agreed = next_offset

    def _batches(self, replica: Replica, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return the batches of a log between two offsets, as they were before somebody damaged them."""
        with self.whole(replica):
            return list(batches_of(replica, start, end))

    @contextmanager
    def whole(self, replica: Replica) -> Iterator[None]:
        """Let a log be looked at as it was before somebody damaged it, and whatever its disk refuses."""
        disk = replica.log.storage
        assert isinstance(disk, SimulatedStorage)
        damaged = self.damages.get(((replica.topic, replica.partition), replica.node_id))
        faults, disk.faults = disk.faults, []
        try:
            with nullcontext() if damaged is None else damaged.undone():
                yield
        finally:
            disk.faults = faults

    # What the controller decides

    def _check_isr(self, event: Event) -> None:
        key = (event.topic, event.partition)  # type: ignore[attr-defined]
        leader = self.cluster.replica(*key, event.broker)  # type: ignore[attr-defined]
        joined = [each for each in event.after if each not in event.before]  # type: ignore[attr-defined]
        truth = self.truth.get(key) or [(0, 0, 0)]
        for broker in joined:
            replica = self.cluster.replica(*key, broker)
            registered = self.cluster.controller.image.brokers[broker]
            if registered.fenced:
                raise Violation("R6", f"{key}: broker {broker} is fenced and joins the ISR")
            if replica is None or leader is None or not isinstance(leader.role, LeaderState):
                continue
            if leader.role.leader_epoch != event.leader_epoch:  # type: ignore[attr-defined]
                continue
            if self.cluster.states[broker] == "running" and replica.log.log_end_offset < truth[-1][1]:
                raise Violation(
                    "R6", f"{key}: broker {broker} joins with {replica.log.log_end_offset}, committed is {truth[-1][1]}"
                )

    def _check_leader(self, event: Event) -> None:
        """A leader that is elected cleanly has everything that was ever committed (R5)."""
        key = (event.topic, event.partition)  # type: ignore[attr-defined]
        if not event.is_clean:  # type: ignore[attr-defined]
            self.unclean_elections += 1
        replica = self.cluster.replica(*key, event.broker)  # type: ignore[attr-defined]
        if replica is None or event.broker == -1:  # type: ignore[attr-defined]
            return
        truth = self.truth.get(key, [])
        found = self._batches(replica, 0, replica.log.log_end_offset)
        if found[: len(truth)] != truth:
            if event.is_clean:  # type: ignore[attr-defined]
                raise Violation(
                    "R5",
                    f"{key}: broker {replica.node_id} leads up to {replica.log.log_end_offset}, and lacks what "
                    f"was committed up to {truth[-1][1]}",
                )
            self.truth[key] = [each for each, own in zip(truth, found) if each == own]
            for (other, _), seen in self._seen.items():
                if other == key:
                    seen.agreed = 0

    # The end

    def check_equal(self) -> None:
        """All replicas are equal and hold all that was ever committed (R12, L6)."""
        for topic in self.cluster.controller.image.topics.values():
            for partition in topic.partitions if topic.name not in self.fleeting else ():
                key = (topic.name, partition.id)
                logs = {}
                for broker in partition.replicas:
                    replica = self.cluster.replica(*key, broker)
                    assert replica is not None
                    logs[broker] = self._batches(replica, 0, replica.log.log_end_offset)
                first = logs[partition.leader]
                for broker, batches in logs.items():
                    if batches != first:
                        raise Violation("R12", f"{key}: broker {broker} and its leader {partition.leader} differ")
                truth = self.truth.get(key, [])
                if first[: len(truth)] != truth:
                    raise Violation("R5", f"{key}: what was committed is not there any more")


def find(truth: Truth, base_offset: int) -> int:
    return bisect_left(truth, (base_offset,))


def batches_of(replica: Replica, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the batches of a log between two offsets: base offset, offset behind, checksum of what must be equal."""
    log = replica.log
    if end <= start:
        return
    for index in range(log.segment_of(max(start, log.log_start_offset)), len(log.segments)):
        segment = log.segments[index]
        place = segment.find(start)
        for batch in segment.batches(0 if place is None else place.position):
            if batch.base_offset >= end:
                return
            if batch.last_offset >= start:
                data = batch.buffer[batch.position : batch.position + batch.size_bytes]
                yield batch.base_offset, batch.last_offset + 1, crc32(data)
