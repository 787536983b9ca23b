"""Retention: which segments of a log have had their time, and away with them.

Whole segments go, the oldest first, for one of three reasons, looked at one after the other:

    below the log start offset     somebody deleted the records, or the leader's log begins later; whatever the policy
    more than retention.bytes      without it the log would still be that large
    older than retention.ms        its newest record is; if no record has a timestamp, its file

What must hold: nothing at or behind the high watermark goes; what is left has no hole; the log start only rises. Each
rule ends at the first segment that may stay, so one record with a timestamp in the future keeps all that follows.
The active segment goes only if everything does, and not if it is empty: another one is begun for it then.
Time enters as `now_ms`. Not here: when it is time to look, when the files vanish, compaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from minibroker.log.partition_log import PartitionLog
from minibroker.log.pruning import drop_oldest
from minibroker.log.segment import Segment

BELOW_START = "below the log start offset"
TOO_MANY = "more than retention.bytes"
TOO_OLD = "older than retention.ms"


class Removed:
    """What went, for whoever tells people; the files are there until somebody purges `paths`."""

    __slots__ = ("log_start_offset", "paths", "reasons", "size_bytes")

    def __init__(self, log_start_offset: int, paths: list[str], reasons: list[tuple[int, int, str]]):
        self.log_start_offset = log_start_offset  # from now on
        self.paths = paths
        self.reasons = reasons  # base offset, bytes, and why: one for each segment
        self.size_bytes = sum(size_bytes for _, size_bytes, _ in reasons)

    @property
    def segments(self) -> int:
        return len(self.reasons)

    def __bool__(self) -> bool:
        return bool(self.reasons)


def apply(log: PartitionLog, *, now_ms: int, high_watermark: int) -> Removed:
    """Take away what has expired."""
    found = expired(log, now_ms=now_ms, high_watermark=high_watermark)
    if len(found) == len(log.segments):
        log.roll(now_ms=now_ms)
    paths = drop_oldest(log, len(found))
    reasons = [(segment.base_offset, segment.size_bytes, why) for segment, why in found]
    return Removed(log.log_start_offset, paths, reasons)


def expired(log: PartitionLog, *, now_ms: int, high_watermark: int) -> list[tuple[Segment, str]]:
    """Return the segments that are to go, the oldest first, and why each of them."""
    log.check_online()
    settings = log.settings
    removable = list(_removable(log, high_watermark))
    ends = [segment.base_offset for segment in log.segments[1:]]
    found: list[tuple[Segment, str]] = []
    for segment, end_offset in zip(removable, ends):
        if end_offset > log.log_start_offset:
            break
        found.append((segment, BELOW_START))
    if settings.delete and settings.retention_bytes >= 0:
        spare_bytes = sum(segment.size_bytes for segment in log.segments[len(found) :]) - settings.retention_bytes
        for segment in removable[len(found) :]:
            spare_bytes -= segment.size_bytes
            if spare_bytes < 0:
                break
            found.append((segment, TOO_MANY))
    if settings.delete and settings.retention_ms >= 0:
        for segment in removable[len(found) :]:
            if now_ms - segment.age_timestamp <= settings.retention_ms:
                break
            found.append((segment, TOO_OLD))
    return found


def _removable(log: PartitionLog, high_watermark: int) -> Iterator[Segment]:
    """Yield the segments that end below the high watermark or there."""
    for segment, following in pairwise([*log.segments, None]):
        assert segment is not None
        if (log.log_end_offset if following is None else following.base_offset) > high_watermark:
            return
        if following is None and not segment.size_bytes:
            return
        yield segment
