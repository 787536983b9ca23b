"""What must always hold of topics that are cleaned, checked while a cluster runs and when it is over.

C1 to C5 of the project's invariants. `committed` is every record that was ever below a leader's high watermark, noted
before anybody could clean it; replicas are cleaned each by itself, so their logs need not be alike as those of other
topics (invariants.py), only each be what may be left of it.

    at a pass of compaction   what it removed: superseded below its end, or a tombstone whose time was over
    at retention              what it removed was too old by that broker's clock; no log start falls
    at the end                on each replica: the newest record of each key, nothing that was never committed, no
                              other hole in a log that is not compacted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from minibroker.cluster.cluster import Cluster
from minibroker.events import Event
from minibroker.replication.replica import Replica

from .invariants import Invariants, Key, Seen, Violation


class Row(NamedTuple):
    """A record, as far as cleaning is concerned."""

    key: bytes | None
    value: bytes | None
    timestamp: int


Rows = dict[int, Row]


class CleaningInvariants(Invariants):
    """The checks of one cluster."""

    def __init__(self, cluster: Cluster):
        self.committed: dict[Key, Rows] = {}
        self.unclean: set[Key] = set()  # an election took something of them away: nobody knows what should be there
        self.removed = self.passes = 0  # records by retention or compaction; passes of the cleaner
        self._horizons: dict[Key, dict[int, int]] = {}  # tombstone -> when it may go, at the earliest
        self._begun: dict[tuple[Key, int], tuple[Replica, int, Rows]] = {}  # passes: broker's time, what there was
        self._starts: dict[tuple[Key, int], tuple[Replica, int]] = {}
        super().__init__(cluster)

    def _hear(self, event: Event) -> None:
        super()._hear(event)
        if event.kind not in ("compaction_begin", "compaction", "retention", "delete"):
            return
        key = (event.topic, event.partition)  # type: ignore[attr-defined]
        replica = self.cluster.replica(*key, event.broker)  # type: ignore[attr-defined]
        if replica is None:
            return
        now_ms = self.cluster.nodes[replica.node_id].clock.now_ms()
        if event.kind == "compaction_begin":
            self._begin(key, replica, now_ms, event.end_offset)  # type: ignore[attr-defined]
        elif event.kind == "compaction":
            self._check_pass(key, replica, event.end_offset)  # type: ignore[attr-defined]
        else:
            self._check_start(key, replica, now_ms if event.kind == "retention" else None)

    # Compaction

    def _begin(self, key: Key, replica: Replica, now_ms: int, end: int) -> None:
        log = replica.log
        if end > min(replica.high_watermark, log.active.base_offset):
            where = f"HW {replica.high_watermark}, the active segment begins at {log.active.base_offset}"
            raise Violation("C2", f"{key} on {replica.node_id} is cleaned up to {end}: {where}")
        rows = self._rows(replica, end)
        self._begun[key, replica.node_id] = (replica, now_ms, rows)
        # A pass that is cut off may have marked batches all the same.
        horizons = self._horizons.setdefault(key, {})
        for offset, row in rows.items():
            if row.value is None:
                horizon = now_ms + log.settings.delete_retention_ms
                horizons[offset] = min(horizon, horizons.get(offset, horizon))

    def _check_pass(self, key: Key, replica: Replica, end: int) -> None:
        begun = self._begun.pop((key, replica.node_id), None)
        if begun is None or begun[0] is not replica:
            return
        _, now_ms, before = begun
        self.passes += 1
        settings, after = replica.log.settings, self._rows(replica, end)
        newest = {row.key: offset for offset, row in before.items() if offset < end}
        for offset, row in before.items():
            if offset >= end or offset < replica.log.log_start_offset or offset in after:
                continue
            self.removed += 1
            where = f"{key} on {replica.node_id}: {offset} ({row.key!r}: {row.value!r})"
            if settings.min_compaction_lag_ms and row.timestamp > now_ms - settings.min_compaction_lag_ms:
                raise Violation("C2", f"{where} was too young to be removed")
            if newest[row.key] == offset:
                if row.value is not None:
                    raise Violation("C1", f"{where} was the newest of its key, and is gone")
                if self._horizons[key][offset] > now_ms:
                    raise Violation("C3", f"{where} is a tombstone, and went before delete.retention.ms was over")
        for offset, row in after.items():
            if before.get(offset, row) != row:
                raise Violation("C1", f"{key} on {replica.node_id}: {offset} was {before[offset]} and is {row} now")

    # Retention

    def _check_start(self, key: Key, replica: Replica, now_ms: int | None) -> None:
        """now_ms: when retention removed what lies before the start, None if somebody else did."""
        start, place = replica.log.log_start_offset, (key, replica.node_id)
        known, before = self._starts.get(place, (replica, 0))
        if known is not replica:  # a broker that has started again
            before = 0
        self._starts[place] = (replica, start)
        if start < before:
            raise Violation("C4", f"{key} on {replica.node_id}: the log start fell from {before} to {start}")
        if start > replica.high_watermark:
            raise Violation("C4", f"{key} on {replica.node_id}: begins at {start}, HW is {replica.high_watermark}")
        if now_ms is None or known is not replica or key in self.unclean:
            return
        rows, retention_ms = self.committed.get(key, {}), replica.log.settings.retention_ms
        newest = {row.key: offset for offset, row in rows.items()}
        for offset in range(before, start):
            self.removed += 1
            if offset not in rows or (replica.log.settings.compact and self._may_have_gone(key, offset, newest)):
                continue
            if rows[offset].timestamp >= now_ms - retention_ms >= 0:
                age = now_ms - rows[offset].timestamp
                raise Violation("C4", f"{key} on {replica.node_id}: {offset} was {age} ms old, and is gone")

    def _may_have_gone(self, key: Key, offset: int, newest: Mapping[bytes | None, int]) -> bool:
        """Whether compaction may have removed it before, here or on the leader, so its segment may be older.

        That is what was superseded, and a tombstone whose time is over by some broker's clock.
        """
        row, horizon = self.committed[key][offset], self._horizons.get(key, {}).get(offset)
        latest_ms = max(node.clock.now_ms() for node in self.cluster.nodes.values())
        return newest[row.key] != offset or (row.value is None and horizon is not None and horizon <= latest_ms)

    def _rows(self, replica: Replica, end: int, start: int = 0) -> Rows:
        """Return what is in a log, as it was before somebody damaged it."""
        with self.whole(replica):
            return dict(rows_of(replica, end, start))

    # What invariants.py compares batch by batch

    def _compare(self, key: Key, replica: Replica, seen: Seen, *, may_grow: bool) -> None:
        """Note what is committed before anybody may clean it."""
        committed, end = self.committed.setdefault(key, {}), self._end(key)
        if replica.high_watermark <= end or key in self.unclean:
            return
        if not may_grow:
            raise Violation("R4", f"{key}: follower {replica.node_id} has HW {replica.high_watermark}, not {end}")
        committed.update(self._rows(replica, replica.high_watermark, end))
        self.truth[key] = [(0, replica.high_watermark, 0)]

    def _end(self, key: Key) -> int:
        return self.truth[key][-1][1] if key in self.truth else 0

    def _check_leader(self, event: Event) -> None:
        key = (event.topic, event.partition)  # type: ignore[attr-defined]
        if not event.is_clean:  # type: ignore[attr-defined]
            self.unclean.add(key)
            return
        replica = self.cluster.replica(*key, event.broker)  # type: ignore[attr-defined]
        if replica is not None and replica.log.log_end_offset < self._end(key) and key not in self.unclean:
            ends = f"its log ends at {replica.log.log_end_offset}, committed is up to {self._end(key)}"
            raise Violation("R5", f"{key}: broker {replica.node_id} leads, and {ends}")

    def check_equal(self) -> None:
        """Each replica has what may be left of what was committed, and no replica has anything else."""
        for name, topic in self.cluster.controller.image.topics.items():
            for partition in topic.partitions:
                if (name, partition.id) in self.unclean:
                    continue
                for broker in partition.replicas:
                    replica = self.cluster.replica(name, partition.id, broker)
                    assert replica is not None
                    self._check_left((name, partition.id), replica)

    def _check_left(self, key: Key, replica: Replica) -> None:
        committed, end = self.committed.get(key, {}), self._end(key)
        log, place = replica.log, f"{key} on {replica.node_id}"
        if log.log_end_offset < end:
            raise Violation("R12", f"{place} ends at {log.log_end_offset}, committed is up to {end}")
        found = self._rows(replica, end)
        for offset, row in found.items():
            if committed.get(offset) != row:
                raise Violation("C1", f"{place}: {row} is at {offset}, committed was {committed.get(offset)}")
        newest = {row.key: offset for offset, row in committed.items()}
        horizons = self._horizons.get(key, {})
        for offset, row in committed.items():
            if offset in found or offset < log.log_start_offset:
                continue
            if not log.settings.compact:
                raise Violation("C4", f"{place}: {offset} is not there, the log begins at {log.log_start_offset}")
            if offset >= log.active.base_offset and newest[row.key] == offset:
                raise Violation("C2", f"{place}: {offset} of the active segment is gone")
            if newest[row.key] == offset and (row.value is not None or offset not in horizons):
                raise Violation("C1", f"{place}: the newest of {row.key!r}, at {offset}, is gone")


def rows_of(replica: Replica, end: int, start: int = 0) -> Iterator[tuple[int, Row]]:
    """Yield the records of a log between its start, or `start`, and `end`."""
    log = replica.log
    start = max(start, log.log_start_offset)
    for segment in log.segments:
        for batch in segment.batches(0):
            if batch.is_control or batch.last_offset < start or batch.base_offset >= end:
                continue
            for record in batch.records():
                if start <= record.offset < end:
                    key = None if record.key is None else bytes(record.key)
                    value = None if record.value is None else bytes(record.value)
                    yield record.offset, Row(key, value, record.timestamp)
