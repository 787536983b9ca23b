"""Figures that depend on the order of records in a partition: gaps, times that go back, transactions.

    stretch of one task, .then(the next one), ...: as if one had read them all

What must hold: however a partition is cut into stretches, the figures are the same. Stretches follow each other by
offset; what neither holds lies between them.
A record is late by how much it is older than the newest one before it, and out of order if the one just before it is
younger.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


class Ending:
    """What became of a producer's records in transactions, within a stretch."""

    __slots__ = ("aborted", "committed", "first_is_commit", "head", "tail")

    def __init__(self) -> None:
        self.head = 0  # records before the first marker; as long as there is none they are in `tail`
        self.first_is_commit: bool | None = None  # None: no marker yet
        self.committed = 0  # between the first marker and the last
        self.aborted = 0
        self.tail = 0  # behind the last marker

    def add(self, records: int) -> None:
        self.tail += records

    def mark(self, is_commit: bool) -> None:
        if self.first_is_commit is None:
            self.head, self.first_is_commit = self.tail, is_commit
        elif is_commit:
            self.committed += self.tail
        else:
            self.aborted += self.tail
        self.tail = 0

    def then(self, later: Ending) -> None:
        if later.first_is_commit is None:
            self.tail += later.tail
            return
        self.tail += later.head
        self.mark(later.first_is_commit)
        self.committed += later.committed
        self.aborted += later.aborted
        self.tail = later.tail

    def ended(self) -> tuple[int, int, int]:
        """Return how many records were committed, were aborted, and are in a transaction that is open."""
        by_first = {True: (self.head, 0), False: (0, self.head), None: (0, 0)}[self.first_is_commit]
        return self.committed + by_first[0], self.aborted + by_first[1], self.tail


class Stretch:
    """Records that follow each other in one partition."""

    __slots__ = (
        "backward",
        "end_offset",
        "endings",
        "first_offset",
        "first_seen",
        "first_time",
        "hole_offsets_max",
        "holes",
        "last_seen",
        "last_time",
        "late_ms_max",
        "newest",
        "oldest",
        "timed",
    )

    def __init__(self, first_offset: int | None = None, end_offset: int | None = None):
        self.first_offset = first_offset  # of the range that was read; None if only the records are known
        self.end_offset = end_offset
        self.first_seen: int | None = None  # offsets of records
        self.last_seen: int | None = None
        self.holes = 0  # rows of offsets without a record, between records
        self.hole_offsets_max = 0
        self.timed = 0  # records with a timestamp
        self.backward = 0  # of these: older than the one just before
        self.late_ms_max = 0
        self.first_time: int | None = None
        self.last_time: int | None = None
        self.oldest: int | None = None
        self.newest: int | None = None
        self.endings: dict[int, Ending] = {}  # by producer

    def add_rows(self, offsets: Int64s, timestamps: Int64s) -> None:
        """Take records in their order."""
        if not len(offsets):
            return
        part = Stretch()
        part.first_seen, part.last_seen = int(offsets[0]), int(offsets[-1])
        skipped = np.diff(offsets) - 1
        part.holes = int((skipped > 0).sum())
        part.hole_offsets_max = int(skipped.max(initial=0))
        times = timestamps[timestamps >= 0]
        if len(times):
            part.timed = len(times)
            part.first_time, part.last_time = int(times[0]), int(times[-1])
            part.oldest, part.newest = int(times.min()), int(times.max())
            part.backward = int((times[1:] < times[:-1]).sum())
            if part.backward:
                part.late_ms_max = int((np.maximum.accumulate(times) - times).max())
        self._follow(part)

    def then(self, later: Stretch) -> None:
        self._follow(later)
        if self.end_offset is not None and later.end_offset is not None:
            self.end_offset = max(self.end_offset, later.end_offset)
        for producer, ending in later.endings.items():
            self.ending(producer).then(ending)

    def _follow(self, later: Stretch) -> None:
        self.holes += later.holes
        self.hole_offsets_max = max(self.hole_offsets_max, later.hole_offsets_max)
        if later.first_seen is not None:
            if self.last_seen is None:
                self.first_seen = later.first_seen
            elif later.first_seen > self.last_seen + 1:
                self.holes += 1
                self.hole_offsets_max = max(self.hole_offsets_max, later.first_seen - self.last_seen - 1)
            self.last_seen = later.last_seen
        if later.first_time is None or later.oldest is None or later.newest is None:
            return
        self.timed += later.timed
        self.backward += later.backward
        self.late_ms_max = max(self.late_ms_max, later.late_ms_max)
        if self.last_time is None or self.newest is None or self.oldest is None:
            self.first_time, self.oldest, self.newest = later.first_time, later.oldest, later.newest
        else:
            self.backward += later.first_time < self.last_time
            self.late_ms_max = max(self.late_ms_max, self.newest - later.oldest)
            self.oldest, self.newest = min(self.oldest, later.oldest), max(self.newest, later.newest)
        self.last_time = later.last_time

    def ending(self, producer: int) -> Ending:
        return self.endings.get(producer) or self.endings.setdefault(producer, Ending())

    def span(self) -> tuple[int, int]:
        """Return from which offset up to which was read, the end excluded: as asked for, else as seen."""
        first = self.first_seen if self.first_offset is None else self.first_offset
        last = self.last_seen + 1 if self.last_seen is not None else first
        end = last if self.end_offset is None else self.end_offset
        return first or 0, end or 0
