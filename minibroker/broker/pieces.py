"""Work in pieces, one in each turn of the loop: whoever waits for an answer waits for one piece at most.

The work is a generator: what it yields is for how long it is to rest, in milliseconds. By the clock, so that a clock
that is moved finishes what has begun before time goes on, and one that stands lets nothing happen; hurried, without
asking the clock, since somebody waits for it.
It may also yield a function that waits for the disk. That is called in a thread, and the loop goes on meanwhile; but
not while somebody moves the clock, for then time would go on, too.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial

from minibroker.clock import CHORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from minibroker.broker.held_clock import HeldClock
    from minibroker.clock import Timer

    Step = float | Callable[[], object]
    Work = Generator[Step, None, None]


class Pieces:
    """One piece of work, which begins at once."""

    def __init__(self, clock: HeldClock, work: Work, *, is_hurried: bool = False):
        self.is_over = False
        self._clock = clock
        self._work = work
        self._is_hurried = is_hurried
        self._timer: Timer | None = None
        self._step()

    def hurry(self) -> None:
        """Rest no more, and ask no clock."""
        self._is_hurried = True
        if self._timer is not None:
            self._timer.cancel()
            self._rest(0)

    def stop(self) -> None:
        """Give the work up; what it has open it closes."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._work.close()

    def _step(self, failure: BaseException | None = None) -> None:
        self._timer = None
        if self.is_over:
            return
        self.is_over = True  # unless it comes back: a piece that fails is the last
        try:
            step = next(self._work) if failure is None else self._work.throw(failure)
        except StopIteration:
            return
        self.is_over = False
        if not callable(step):
            self._rest(step)
        elif self._clock.is_moved:
            self._step(_failure_of(step))
        else:
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._aside, args=(loop, step), daemon=True).start()

    def _aside(self, loop: asyncio.AbstractEventLoop, act: Callable[[], object]) -> None:
        """In a thread: wait for the disk, and have the loop go on with the work."""
        step = partial(self._step, _failure_of(act))
        with suppress(RuntimeError):  # the loop is closed: there is nobody to go on
            loop.call_soon_threadsafe(self._clock.run, step)

    def _rest(self, pause_ms: float) -> None:
        self._timer = None
        if self._is_hurried:
            asyncio.get_running_loop().call_soon(self._clock.run, self._step)
        else:
            self._timer = self._clock.after(pause_ms, self._step, CHORE)


def _failure_of(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except Exception as failure:
        return failure
    return None
