"""Work in pieces, one in each turn of the loop: whoever waits for an answer waits for one piece at most.

The work is a generator: what it yields is for how long it is to rest, in milliseconds. By the clock, so that a clock
that is moved finishes what has begun before time goes on, and one that stands lets nothing happen; hurried, without
asking the clock, since somebody waits for it.
It may also yield a function that waits for the disk. That is called in a thread, and the loop goes on meanwhile; but
not while somebody moves the clock, for then time would go on, too, nor if no thread is to be had.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial

from minibroker.clock import CHORE
from minibroker.clock.broker_clock import BrokerClock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Timer

Step = float | Callable[[], object]
Work = Generator[Step, None, None]


class Pieces:
    """One piece of work, which begins at once."""

    def __init__(self, clock: BrokerClock, work: Work, *, is_hurried: bool = False):
        self.is_over = False
        self._clock = clock
        self._work = work
        self._is_hurried = is_hurried
        self._timer: Timer | None = None
        self._aside: _Aside | None = None
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

    def finish(self) -> None:
        """Return when the work is done: wait for what is in a thread, and rest no more."""
        if self._timer is not None:
            self._timer.cancel()
        while not self.is_over:
            aside, self._aside = self._aside, None  # what comes of it is taken here
            self._step(None if aside is None else aside.wait())

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
            loop, aside = asyncio.get_running_loop(), _Aside(step)
            self._aside = aside
            go_on = partial(self._go_on, aside)
            if not aside.begin(lambda: loop.call_soon_threadsafe(self._clock.run, go_on)):
                self._aside = None
                self._step(_failure_of(step))

    def _go_on(self, aside: _Aside) -> None:
        """A thread has done its part."""
        if self._aside is aside:  # else somebody has waited for it
            self._aside = None
            self._step(aside.failure)

    def _rest(self, pause_ms: float) -> None:
        self._timer = None
        if self._is_hurried:
            asyncio.get_running_loop().call_soon(self._clock.run, self._step)
        else:
            self._timer = self._clock.after(pause_ms, self._step, CHORE)


class _Aside:
    """What is done in a thread."""

    def __init__(self, act: Callable[[], object]):
        self.failure: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._when_done: Callable[[], object] | None = None

    def begin(self, when_done: Callable[[], object]) -> bool:
        """Begin, and call when it is done, in the thread; False: there is no thread to be had."""
        self._when_done = when_done
        return start_if_possible(self._thread)

    def wait(self) -> BaseException | None:
        """Return what came of it."""
        self._thread.join()
        return self.failure

    def _run(self) -> None:
        self.failure = _failure_of(self._act)
        assert self._when_done is not None
        with suppress(RuntimeError):  # the loop is closed: there is nobody to go on
            self._when_done()


def start_if_possible(thread: threading.Thread) -> bool:
    """Start a thread; False if the system has none left, as where a container may have few processes."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _failure_of(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except Exception as failure:
        return failure
    return None
