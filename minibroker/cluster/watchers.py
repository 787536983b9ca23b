"""Watching a cluster from outside: its state, and what happened since somebody asked last.

    news = await watchers.news(since=-1, wait_ms=1000)     {"number": 17, "state": {...}, "events": [...]}
    news = await watchers.news(since=17, wait_ms=1000)     as soon as there is something new, or after a second

Who watches asks again and again, each time with the number that he was told. Nothing is polled: an answer comes when
there is something to tell, or when the time is up.
What must hold: a cluster that nobody watches keeps nothing and its stream is not observed; with watchers, however many,
the last RECENT_MAX events are kept, until nobody has asked for LEASE_MS.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from minibroker.clock import LoopClock
from minibroker.event_kinds import is_of_interest
from minibroker.events import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.clock import Timer
    from minibroker.cluster.nodes import Nodes
    from minibroker.events import Event, Subscription

RECENT_MAX = 200
LEASE_MS = 30_000  # a watcher that has not asked for so long has gone
WAIT_MS_MAX = 20_000
# Changes of the picture. Messages come and go without end, and change nothing until somebody has taken them in.
CHANGES = tuple(kind for kind, event in KINDS.items() if not event.by_name)


def is_shown(event: Event) -> bool:
    """Whether who looks at a screen is told of an event in words."""
    return is_of_interest(event) or event.kind in ("clock", "step", "fault")


class Watchers:
    """Who watches a cluster, taken together."""

    def __init__(self, cluster: Nodes):
        self._cluster = cluster
        self._recent: deque[Event] = deque(maxlen=RECENT_MAX)
        self._number = 0  # of the last event that changed the picture
        self._subscription: Subscription | None = None
        self._lease: Timer | None = None

    @property
    def is_on(self) -> bool:
        return self._subscription is not None

    def state(self) -> dict[str, Any]:
        """Return how far each broker and each replica is."""
        from minibroker.cluster.snapshot import brief_state

        return brief_state(self._cluster)

    async def news(self, since: int = -1, wait_ms: float = 0) -> dict[str, Any]:
        """Return the state, and the events after a number that are worth telling; wait_ms: so long for the first."""
        from minibroker.cluster.snapshot import snapshot

        self._stay()
        if since > self._number:
            since = -1  # of another life of the cluster
        if since == self._number and wait_ms > 0:
            await self._wait(min(wait_ms, WAIT_MS_MAX))
            if self.is_on:  # and the cluster has not ended
                self._stay()
        return {
            "number": self._number,
            "state": snapshot(self._cluster),
            "events": [event.as_json() for event in self._recent if event.number > since],
        }

    async def _wait(self, wait_ms: float) -> None:
        with suppress(TimeoutError):  # then the state is told as it is
            await self._cluster.events.wait_for(lambda event: True, CHANGES, timeout_ms=wait_ms)

    def _stay(self) -> None:
        """Hear what happens, from the first question until nobody has asked for a while."""
        if self._subscription is None:
            self._subscription = self._cluster.events.subscribe(self._hear, CHANGES)
            self._number = self._cluster.events.last_number
        if self._lease is not None:
            self._lease.cancel()
        self._lease = LoopClock().after(LEASE_MS, self.close)  # the cluster's clock may be frozen

    def _hear(self, event: Event) -> None:
        self._number = event.number
        if is_shown(event):
            self._recent.append(event)

    def close(self) -> None:
        """Forget everything: the cluster ends, or nobody watches."""
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        self._recent.clear()
