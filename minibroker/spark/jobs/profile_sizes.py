"""Sizes as a distribution: how many there are, their sum, the ends, and about where the middle is.

Numbers below 8 are told apart, above it 8 steps lie between two powers of two, so a percentile is at most an eighth too
high.
What must hold: merged distributions are those of all numbers together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

STEPS = 8
BINS = 61 * STEPS  # up to 2**63


class Sizes:
    """A distribution of numbers that are not negative."""

    __slots__ = ("bins", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self.bins: NDArray[np.int64] = np.zeros(BINS, np.int64)
        self.count = 0
        self.total = 0
        self.smallest = 0  # as `largest` it means nothing as long as there is none
        self.largest = 0

    def add(self, numbers: NDArray[np.int64]) -> None:
        if not len(numbers):
            return
        smallest, largest = int(numbers.min()), int(numbers.max())
        self.bins += np.bincount(_bins_of(numbers), minlength=BINS)
        self._note(len(numbers), int(numbers.sum()), smallest, largest)

    def merge(self, other: Sizes) -> None:
        if other.count:
            self.bins = self.bins + other.bins
            self._note(other.count, other.total, other.smallest, other.largest)

    def _note(self, count: int, total: int, smallest: int, largest: int) -> None:
        self.smallest = min(self.smallest, smallest) if self.count else smallest
        self.largest = max(self.largest, largest)
        self.count += count
        self.total += total

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, share: float) -> int | None:
        """Return a number that about such a share of all is not above."""
        if not self.count:
            return None
        place = int(np.searchsorted(np.cumsum(self.bins), max(share * self.count, 1)))
        return max(min(_bin_end(place) - 1, self.largest), self.smallest)

    def histogram(self, least: int = 8) -> list[tuple[int, int, int]]:
        """Return from, up to and with, how many; by powers of two, or by parts of them until there are `least` rows."""
        filled = np.flatnonzero(self.bins)
        if not filled.size:
            return []
        rows: list[tuple[int, int, int]] = []
        for step in (STEPS, STEPS // 2, STEPS // 4, 1):
            borders = [*range(0, STEPS, step), *range(STEPS, BINS + 1, step)] if step < STEPS else _OCTAVES
            first, last = np.searchsorted(borders, [filled[0], filled[-1]], "right").tolist()
            rows = [
                (_bin_end(begin - 1) if begin else 0, _bin_end(end - 1) - 1, int(self.bins[begin:end].sum()))
                for begin, end in zip(borders[first - 1 : last], borders[first : last + 1])
            ]
            if len(rows) >= least:
                break
        return rows


_OCTAVES = [0, 1, 2, 4, *range(STEPS, BINS + 1, STEPS)]  # bins that begin at a power of two


def offsets_of(values: pa.Array) -> NDArray[np.int64]:
    """Return where in its buffer each text or binary begins, and the last one ends."""
    buffer = values.buffers()[1]
    if not len(values) or buffer is None:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)


def sizes_of(values: pa.Array) -> NDArray[np.int64]:
    """Return the size of each text or binary, -1 for null."""
    sizes = np.diff(offsets_of(values))
    if values.null_count:
        sizes[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return sizes


def _bins_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    wide = np.maximum(numbers, 0).astype(np.int64)
    powers = np.frexp(wide.astype(np.float64))[1].astype(np.int64) - 1  # of the highest bit
    shifts = np.maximum(powers - 3, 0)
    return np.asarray(np.where(wide < STEPS, wide, (powers - 2) * STEPS + (wide >> shifts) - STEPS), np.int64)


def _bin_end(place: int) -> int:
    if place < STEPS:
        return place + 1
    power, step = place // STEPS + 2, place % STEPS
    return (STEPS + step + 1) << (power - 3)
