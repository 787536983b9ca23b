"""What came of cleaning on demand, as rows with names: the same in Python, over HTTP and on the command line."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.cleaner import Cleaned

RETENTION, COMPACT, ROLL = "retention", "compact", "roll"  # verbs, as HTTP and the command line have them


class RetentionRow(NamedTuple):
    """What retention took from a partition."""

    broker: int
    topic: str
    partition: int
    segments: int  # that were removed
    size_bytes: int  # of their records
    start_offset: int  # where the log begins now
    reason: str  # why they had to go, or why nothing had to


class CompactionRow(NamedTuple):
    """What compaction made of a partition."""

    broker: int
    topic: str
    partition: int
    passes: int  # 0: nothing was done
    end_offset: int  # up to there the log is compacted now
    bytes_before: int  # of the segments that were read; 0, like the others, if nothing was done
    bytes_after: int
    records_before: int
    records_after: int
    segments_before: int
    segments_after: int
    reason: str  # why nothing was done, or not all; "" if all was


class CompactionSums:
    """What passes over one log have done together: the figures of a row, by the same names."""

    def __init__(self) -> None:
        self.passes = self.end_offset = 0
        self.bytes_before = self.bytes_after = 0
        self.records_before = self.records_after = 0
        self.segments_before = self.segments_after = 0

    def add(self, cleaned: Cleaned) -> None:
        self.passes += 1
        self.end_offset = cleaned.end_offset
        # A pass reads again what the one before has left.
        self.bytes_before += cleaned.bytes_before - self.bytes_after
        self.bytes_after = cleaned.bytes_after
        self.records_before += cleaned.records_before - self.records_after
        self.records_after = cleaned.records_after
        self.segments_before += cleaned.segments_before - self.segments_after
        self.segments_after = cleaned.segments_after


class RollRow(NamedTuple):
    """A new segment, or why there is none."""

    broker: int
    topic: str
    partition: int
    is_rolled: bool
    base_offset: int  # of the active segment now
    reason: str  # why nothing was done; "" if it was


ROWS: dict[str, type[RetentionRow | CompactionRow | RollRow]] = {
    RETENTION: RetentionRow,
    COMPACT: CompactionRow,
    ROLL: RollRow,
}
