"""Timers of a consumer group: when something is due for a member, and when topics are to be looked at again.

Soft state: records do not hold it, and each coordinator begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple


class Due(NamedTuple):
    """A timer; it sorts by its time, and then by when it was set."""

    at_ms: int
    order: int
    kind: str
    member_id: str
    epoch: int  # that the member must still be at; UNKNOWN_EPOCH: any


SESSION: Final = "session"  # no heartbeat for so long: the member is gone
REBALANCE: Final = "rebalance"  # it has not given up its partitions
JOIN: Final = "join"  # of the classic protocol: it has not joined again
SYNC: Final = "sync"  # and has not asked for its assignment
REFRESH: Final = "refresh"  # regular expressions are to be resolved; for no member
UNKNOWN_EPOCH: Final = -1
REFRESH_AFTER_MS: Final = 0x7FFFFFFF  # topics are looked at again if nothing was said to have changed for so long
STALE_MIN: Final = 100  # entries of the heap with which it is made anew
STALE_TIMES: Final = 8  # and per timer


class Timers:
    """The timers of one group, one of a kind for each member.

    What is due first is at the top of a heap. Timers that were set anew or cancelled stay in it until they get there.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Due] = {}  # by kind and member
        self._heap: list[Due] = []
        self._count = 0
        # Until when, and since which group epoch, the topics need not be looked at; the past at first.
        self._fresh_until_ms = 0
        self._fresh_epoch = 0
        self.patterns: frozenset[str] | None = None  # regular expressions to be resolved when REFRESH is due
        # Of which topics the member may know by whose heartbeat that is; None: of all.
        self.may_see: Callable[[str], bool] | None = None

    def set(self, kind: str, member_id: str, at_ms: int, epoch: int = UNKNOWN_EPOCH) -> None:
        self._count += 1
        due = self._due[kind, member_id] = Due(at_ms, self._count, kind, member_id, epoch)
        heappush(self._heap, due)
        if len(self._heap) > STALE_MIN and len(self._heap) > STALE_TIMES * len(self._due):
            self._rebuild()

    def set_if_absent(self, kind: str, member_id: str, at_ms: int) -> None:
        if (kind, member_id) not in self._due:
            self.set(kind, member_id, at_ms)

    def cancel(self, member_id: str, *kinds: str) -> None:
        """Stop timers of a member, all if no kind is named."""
        for kind in kinds or (SESSION, REBALANCE, JOIN, SYNC):
            self._due.pop((kind, member_id), None)

    def find(self, kind: str, member_id: str) -> Due | None:
        return self._due.get((kind, member_id))

    def shift(self, by_ms: int) -> None:
        """Have all be due so much later by the clock: it has been set, and no time has passed."""
        self._due = {key: due._replace(at_ms=due.at_ms + by_ms) for key, due in self._due.items()}
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = sorted(self._due.values())

    def _first(self) -> Due | None:
        heap = self._heap
        while heap:
            first = heap[0]
            if self._due.get((first.kind, first.member_id)) is first:
                return first
            heappop(heap)
        return None

    def deadline_ms(self) -> int | None:
        first = self._first()
        return None if first is None else first.at_ms

    def pop(self, now_ms: int) -> Due | None:
        """Take out and return what is due first, None if nothing is by now."""
        first = self._first()
        if first is None or first.at_ms > now_ms:
            return None
        del self._due[first.kind, first.member_id]
        return first

    # Topics

    def topics_seen(self, now_ms: int, epoch: int) -> None:
        self._fresh_until_ms, self._fresh_epoch = now_ms + REFRESH_AFTER_MS, epoch

    def topics_changed(self) -> None:
        self._fresh_until_ms = self._fresh_epoch = 0

    def must_see_topics(self, now_ms: int, epoch: int) -> bool:
        # An epoch below says that the record which raised it was never written: what was seen then does not count.
        return now_ms >= self._fresh_until_ms or epoch < self._fresh_epoch

    def want_patterns(self, patterns: Iterable[str], now_ms: int) -> None:
        """Have these resolved soon, not in the midst of a heartbeat: there may be many topics."""
        self.patterns = frozenset(patterns)
        self.set(REFRESH, "", now_ms)

    def take_patterns(self, now_ms: int) -> frozenset[str] | None:
        """Return what is to be resolved now, if that is what is due first."""
        first = self._first()
        if first is None or first.at_ms > now_ms or first.kind != REFRESH:
            return None
        del self._due[first.kind, first.member_id]
        return self.patterns or frozenset()
