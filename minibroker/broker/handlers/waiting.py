"""Purgatory: requests that wait until partitions have moved.

What must hold: a partition is asked when it has changed, whatever has changed, and only as long as it is undecided.
What has been decided stays so: a leader that is lost a moment later takes nothing back. So P partitions of a request
cost P questions and one more for each change.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable

from minibroker.clock import REQUEST
from minibroker.errors import Error
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock

    Decide = Callable[[], Error | None]  # None: not yet


class Decision:
    """One partition that a request waits for."""

    __slots__ = ("_decisions", "_replica", "decide", "outcome")

    def __init__(self, decisions: Decisions, replica: Replica, decide: Decide):
        self._decisions = decisions
        self._replica = replica
        self.decide = decide
        self.outcome: Error | None = None

    def __call__(self, added_bytes: int) -> None:
        """Hear that the partition has changed."""
        self.outcome = self.decide()
        if self.outcome is not None:
            self.leave()
            self._decisions.decided()

    def watch(self) -> None:
        self._replica.waiters[self] = None
        self(0)

    def leave(self) -> None:
        self._replica.waiters.pop(self, None)


class Decisions:
    """What one request waits for."""

    def __init__(self, waits: Iterable[tuple[Replica, Decide]], done: Future[None]):
        self.each = [Decision(self, replica, decide) for replica, decide in waits]
        self._left = len(self.each)
        self._done = done

    def decided(self) -> None:
        self._left -= 1
        if not self._left:
            self.end()

    def end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)


async def wait_for_decisions(
    waits: Iterable[tuple[Replica, Decide]], timeout_ms: float, clock: Clock
) -> list[Error | None]:
    """Return what has been decided of each partition; None: the time was over before.

    Each is asked at once, too: a coroutine begins later than the request was looked at, and until then somebody else
    may lead.
    """
    import asyncio

    done: Future[None] = asyncio.get_running_loop().create_future()
    decisions = Decisions(waits, done)
    timer = clock.after(max(timeout_ms, 0), decisions.end, REQUEST)
    for each in decisions.each:
        each.watch()
    try:
        await done
    finally:
        timer.cancel()
        for each in decisions.each:
            each.leave()
    return [each.outcome for each in decisions.each]
