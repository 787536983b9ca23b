"""What of a log may be cleaned now, how dirty it is, and which log comes first.

    log start            first dirty offset                    end                 active segment
        | clean: looked at before |  dirty: newer values may lie here  | not yet: open transactions, too young

What must hold: a pass never touches the active segment, a record at or behind the last stable offset, or a segment with
data younger than min.compaction.lag.ms; so `end` is always where a segment begins.
Not here: the pass itself (cleaner.py), when one is due and where first dirty offsets are kept (the broker).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from minibroker.log.partition_log import PartitionLog
from minibroker.log.segment import Segment


class Candidate:
    """A log as the cleaner sees it at one moment."""

    __slots__ = (
        "checkpoint_is_lost",
        "clean_bytes",
        "dirty_bytes",
        "end",
        "first_dirty",
        "kept_end",
        "log",
        "needs_now",
        "why_not",
    )

    def __init__(
        self,
        log: PartitionLog,
        first_dirty: int,
        end: int,
        *,
        kept_end: int | None = None,
        needs_now: bool = False,
        checkpoint_is_lost: bool = False,
    ):
        self.log = log
        self.first_dirty = first_dirty  # keys from here on are looked at
        self.end = end  # first offset of the first segment that must be left alone; below first_dirty: nothing is dirty
        self.kept_end = end if kept_end is None else kept_end  # the batch that ends here stays, if need be empty
        self.needs_now = needs_now  # something dirty has waited longer than max.compaction.lag.ms
        self.checkpoint_is_lost = checkpoint_is_lost  # the first dirty offset lay outside the log
        # The segment that holds the first dirty offset counts on both sides, as Kafka counts.
        self.clean_bytes = _size_bytes(segments_between(log, -1, first_dirty))
        self.dirty_bytes = _size_bytes(segments_between(log, first_dirty, end))
        self.why_not = self._why_not()

    @property
    def dirty_ratio(self) -> float:
        """What min.cleanable.dirty.ratio is compared with; 0 for a log without bytes."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def _why_not(self) -> str:
        """Say in words for people why no pass is due; empty if one is."""
        settings = self.log.settings
        if not settings.compact:
            return "cleanup.policy is not compact"
        if not self.dirty_bytes:
            return "nothing is dirty that may be cleaned"
        if self.needs_now or self.dirty_ratio > settings.min_cleanable_dirty_ratio:
            return ""
        return f"dirty ratio {self.dirty_ratio:.2f} is not above {settings.min_cleanable_dirty_ratio:.2f}"


def cleanable(
    log: PartitionLog,
    *,
    first_dirty_offset: int | None,
    last_stable_offset: int,
    now_ms: int,
    high_watermark: int | None = None,
) -> Candidate:
    """Return how far the log may be cleaned, and whether it should be.

    first_dirty_offset: where the last pass ended; None: there was none. Outside the log it is good for nothing (the log
        was cut, or its beginning deleted), and everything counts as dirty.
    high_watermark: the batch that ends there stays, if need be empty, as in Kafka 4.4; without it the one at the end of
        what may be cleaned, as in 3.9. Either way nobody forgets how far the log went.
    """
    start = log.log_start_offset
    first_dirty = start if first_dirty_offset is None else first_dirty_offset
    is_lost = not start <= first_dirty <= log.log_end_offset
    if is_lost:
        first_dirty = start
    unclean = [min(last_stable_offset, log.active.base_offset)]
    dirty = segments_between(log, first_dirty, log.active.base_offset)
    lag_ms = max(log.settings.min_compaction_lag_ms, 0)
    if lag_ms:
        unclean += (each.base_offset for each in dirty if each.age_timestamp > now_ms - lag_ms)
    # The segment that holds the first offset that must stay is left alone as a whole.
    end = log.segments[log.segment_of(min(unclean))].base_offset
    late_ms = now_ms - max(log.settings.max_compaction_lag_ms, 0)
    return Candidate(
        log,
        first_dirty,
        end,
        kept_end=high_watermark,
        needs_now=late_ms > 0 and any(0 < each.first_timestamp() < late_ms for each in dirty),
        checkpoint_is_lost=is_lost,
    )


def due(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return those that are due, the dirtiest, which is the first to be cleaned, last."""
    found = [each for each in candidates if not each.why_not]
    found.reverse()  # of two that are as dirty the first one stays first
    return sorted(found, key=lambda each: each.dirty_ratio)


def segments_between(log: PartitionLog, start: int, end: int) -> list[Segment]:
    """Return the segments that hold offsets from `start` on and begin before `end`."""
    if start >= end:
        return []
    bases = [segment.base_offset for segment in log.segments]
    return log.segments[log.segment_of(start) : bisect_left(bases, end)]


def _size_bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.size_bytes for segment in segments)
