"""Whether what was written and read of something was what one register would have shown: linearizable, or not.

Every attempt to write has a value of its own, so a value and its readers are one cluster of operations. By a theorem of
Gibbons and Korach such a history is linearizable if no two clusters overlap of which each has an operation that ended
before another of its operations began, and no cluster whose operations all overlap lies within such a one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import inf

from .invariants import Violation

NOTHING = -1  # what a register shows that was never written


class Write:
    """An attempt."""

    __slots__ = ("end", "is_refused", "start", "who")

    def __init__(self, who: str, start: float):
        self.who = who
        self.start = start
        self.end = inf  # nobody was told that it counts; it may come to count at any time
        self.is_refused = False  # it must never


class Cluster:
    """A write and what read it."""

    def __init__(self, value: int, write: Write):
        self.value = value
        self.write = write
        self.first_end = write.end
        self.last_start = write.start
        self.readers: list[str] = []

    def read(self, who: str, start: float, end: float) -> None:
        self.first_end = min(self.first_end, end)
        self.last_start = max(self.last_start, start)
        self.readers.append(f"{who} from {start:.6f} to {end:.6f}")

    def __str__(self) -> str:
        write = self.write
        return f"{self.value} (by {write.who} from {write.start:.6f} to {write.end:.6f}; read {self.readers[-3:]})"


class Register:
    """What was done with one."""

    def __init__(self, name: str):
        self.name = name
        self.writes: dict[int, Write] = {}
        self.reads: list[tuple[int, str, float, float]] = []
        beginning = self.writes[NOTHING] = Write("nobody", -inf)
        beginning.end = -inf

    def attempt(self, who: str, now: float) -> int:
        """Return a value that nobody had before."""
        value = len(self.writes) - 1
        self.writes[value] = Write(who, now)
        return value

    def see(self, value: int, who: str, start: float, end: float, *, is_strict: bool) -> None:
        """Note what was read; not is_strict: by somebody whom nobody had told yet that there is a newer one."""
        write = self.writes.get(value)
        if write is None or write.start > end:
            raise Violation("G3", f"{self.name}: {who} found {value}, which nobody had committed")
        if write.is_refused:
            raise Violation("G1", f"{self.name}: {who} found {value}, of which {write.who} was told that it is refused")
        if is_strict:
            self.reads.append((value, who, start, end))

    def check(self) -> None:
        clusters = {value: Cluster(value, write) for value, write in self.writes.items() if not write.is_refused}
        for value, who, start, end in self.reads:
            clusters[value].read(who, start, end)
        known = [each for each in clusters.values() if each.readers or each.write.end < inf]
        forward = sorted((each for each in known if each.first_end < each.last_start), key=lambda each: each.first_end)
        for one, other in pairwise(forward):
            if other.first_end < one.last_start:
                raise Violation("G3", f"{self.name}: {one} and {other} do not fit together")
        self._check_inside(forward, (each for each in known if each.first_end >= each.last_start))

    def _check_inside(self, forward: list[Cluster], backward: Iterable[Cluster]) -> None:
        for inner in backward:
            for outer in forward:
                if outer.first_end < inner.last_start and inner.first_end < outer.last_start:
                    raise Violation("G3", f"{self.name}: {inner} counted while {outer} was read")
