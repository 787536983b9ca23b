"""Retention on one broker: segments that are too old or too much leave their logs, on leaders and followers alike.

Every log.retention.check.interval.ms all logs are looked at that are not compacted; the cleaner looks at those
(compaction.py), so the two never meet. What has gone from a log is removed from the disk later (file_delete.py).
Not here: which segments go (minibroker/cleaner/retention.py).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from minibroker.cleaner.file_delete import Purging
from minibroker.cleaner.pieces import Pieces, Work
from minibroker.cleaner.results import RetentionRow
from minibroker.clock import IDLE
from minibroker.errors import ProtocolError, StorageError
from minibroker.event_kinds import Retention as RetentionEvent
from minibroker.event_kinds import Roll
from minibroker.log.settings import LogSettings
from minibroker.parts import Parts
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.retention import Removed

PARTITIONS_A_PIECE = 50  # of which nothing is removed, some 0.2 ms
SEGMENTS_A_PIECE = 16  # of one log that are removed, some 2 ms


class Retention:
    """The retention of all partitions of a broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica], purging: Purging):
        self.parts = parts
        self.replicas = replicas
        self.purging = purging
        self.segments_removed = self.bytes_removed = 0  # since the start
        self._pieces: Pieces | None = None

    def stop(self) -> None:
        if self._pieces is not None:
            self._pieces.stop()

    def tick(self) -> object:
        """Look at all logs that the cleaner does not look at."""
        if self._pieces is None or self._pieces.is_over:
            self._pieces = Pieces(self.parts.clock, self._pass())
            if self._pieces.is_over:  # in one piece, so nothing was to be done
                return IDLE
        return None

    def _pass(self) -> Work:
        count = 0
        for replica in list(self.replicas.values()):
            if replica.log.settings.compact or not is_open(self.replicas, replica):
                continue
            yield from self.retain(replica)
            count += 1
            if count % PARTITIONS_A_PIECE == 0:
                yield 0

    def retain(self, replica: Replica) -> Generator[float, None, RetentionRow | None]:
        """Take from a log what its settings do not keep, some segments at a time; return a row for all of them.

        None: there is nothing to take.
        """
        total: RetentionRow | None = None
        while is_open(self.replicas, replica) and (row := self._take_some(replica)) is not None:
            total = row if total is None else _together(total, row)
            if not row.segments:
                break  # its disk fails
            yield 0
        return total

    def _take_some(self, replica: Replica) -> RetentionRow | None:
        """Take the oldest of what has expired."""
        log, active = replica.log, replica.log.active
        try:
            removed = self._remove(replica)
        except StorageError as failure:
            self.parts.disk_failed(failure)
            return _row(replica, 0, 0, str(failure))
        except ProtocolError as failure:
            # Nobody knows how old its records are. It is looked at again: somebody may repair it.
            self.parts.reporter.say(f"{log.directory}: retention cannot read it: {failure}")
            return _row(replica, 0, 0, f"it cannot be read: {failure}")
        if log.active is not active and self.parts.events.observed:
            why = "all that is in the last one is to go"
            self.parts.events.emit(Roll(**replica.place, base_offset=log.active.base_offset, why=why))
        if not removed:
            return None
        reason = " and ".join(dict.fromkeys(why for _, _, why in removed.reasons))
        self.purging.add(removed.paths, log.settings.file_delete_delay_ms)
        self.segments_removed += removed.segments
        self.bytes_removed += removed.size_bytes
        row = _row(replica, removed.segments, removed.size_bytes, reason)
        if self.parts.events.observed:
            self.parts.events.emit(RetentionEvent(*row[:-1], why=f"they were {reason}"))
        replica.log_start_moved(f"retention removed what was {reason}")
        return row

    def _remove(self, replica: Replica) -> Removed:
        from minibroker.cleaner.retention import Removed, apply, expired
        from minibroker.log.pruning import drop_oldest

        log, now_ms = replica.log, self.parts.clock.now_ms()
        found = expired(log, now_ms=now_ms, high_watermark=replica.high_watermark)
        if len(found) <= SEGMENTS_A_PIECE:
            return apply(log, now_ms=now_ms, high_watermark=replica.high_watermark)
        reasons = [(segment.base_offset, segment.size_bytes, why) for segment, why in found[:SEGMENTS_A_PIECE]]
        paths = drop_oldest(log, SEGMENTS_A_PIECE)
        return Removed(log.log_start_offset, paths, reasons)


def is_open(replicas: Mapping[tuple[str, int], Replica], replica: Replica) -> bool:
    """Whether a replica that was seen a while ago is still one of this broker's, on a disk that works."""
    key = (replica.topic, replica.partition)
    return replicas.get(key) is replica and replica.log.offline is None


def nothing(replica: Replica) -> RetentionRow:
    """Return the row of a partition from which nothing had to go."""
    return _row(replica, 0, 0, _why_nothing(replica.log.settings))


def _row(replica: Replica, segments: int, size_bytes: int, reason: str) -> RetentionRow:
    return RetentionRow(
        **replica.place,
        segments=segments,
        size_bytes=size_bytes,
        start_offset=replica.log.log_start_offset,
        reason=reason,
    )


def _together(a: RetentionRow, b: RetentionRow) -> RetentionRow:
    reason = " and ".join(dict.fromkeys((a.reason, b.reason)))
    return b._replace(segments=a.segments + b.segments, size_bytes=a.size_bytes + b.size_bytes, reason=reason)


def _why_nothing(settings: LogSettings) -> str:
    if settings.only_compacts:
        return "cleanup.policy is compact: only what is below the log start offset goes"
    limits = {"retention.ms": settings.retention_ms, "retention.bytes": settings.retention_bytes}
    kept = [f"{name}={value}" for name, value in limits.items() if value >= 0]
    return (
        f"every segment is within {' and '.join(kept)}" if kept else "neither retention.ms nor retention.bytes is set"
    )
