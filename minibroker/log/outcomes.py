"""What came of opening a log, and of appending to it."""

from __future__ import annotations


class Recovery:
    """What opening had to do, for whoever tells people."""

    __slots__ = ("cut_bytes", "reason", "scanned_bytes")

    def __init__(self) -> None:
        self.scanned_bytes = 0
        self.cut_bytes = 0  # thrown away behind the first byte that is no good batch
        self.reason = ""  # what was wrong with it


def no_jitter(most_ms: int) -> int:
    return 0


class Appended:
    """Where produced records went; -1 if there were none."""

    __slots__ = ("append_time_ms", "first_offset", "is_duplicate", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, append_time_ms: int, is_duplicate: bool = False):
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms  # -1: the records keep the producer's times
        self.is_duplicate = is_duplicate  # they were there before
