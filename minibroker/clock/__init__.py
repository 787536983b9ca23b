"""The door to time: what the broker knows of it, and how it waits.

Times are int milliseconds since 1970. Whoever owns the clock owns time: a test may hand in one that stands still or
runs a week in a second; nothing else in the broker asks the machine. The clock that can be held in the hand is
steered.py.

Timers are for one of three things, and whoever moves a clock by a week needs to know for which:

    SESSION   what two sides do to see that the other is there, and what they say meanwhile: heartbeats, sessions,
              fetches of followers, delays of links, pauses before something is tried again
    REQUEST   the deadline of a request that waits, or a rule of faults that holds it up
    CHORE     what happens without being asked: retention, cleaning, expiry, checkpoints; bytes that leave a toxic

A week that is advanced brings the chores of a week and ends the requests that wait, and nobody is taken for dead:
SESSION timers stand still meanwhile, and so does steady_ms, by which sessions count.
"""

from __future__ import annotations

import time

SESSION, REQUEST, CHORE = "session", "request", "chore"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from typing import Protocol

    class Timer(Protocol):
        """Something that will happen."""

        def cancel(self) -> None: ...

    class Clock(Protocol):
        """Time as the broker sees it."""

        def now_ms(self) -> int:
            """Return milliseconds since 1970."""
            ...

        def steady_ms(self) -> int:
            """Return milliseconds as SESSION timers go, whatever the clock is set to; their start means nothing."""
            ...

        def elapsed_ms(self) -> int:
            """Return milliseconds as REQUEST and CHORE timers go: steady_ms, and what was advanced beside it."""
            ...

        def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> Timer:
            """Call back once, that much later, on the loop; a callback that returns IDLE says that it did nothing."""
            ...

        async def sleep(self, delay_ms: float, kind: str = SESSION) -> None: ...


IDLE = object()  # returned by a timer that found nothing to do: who moves time need not let anybody work after it


class LoopClock:
    """The machine's time, and the running loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def elapsed_ms(self) -> int:
        return self.steady_ms()

    def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> Timer:
        import asyncio

        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        import asyncio

        await asyncio.sleep(delay_ms / 1000)


async def sleep_by_timer(clock: Clock, delay_ms: float, kind: str) -> None:
    """Sleep by a timer of the clock itself; for clocks that make their own."""
    if delay_ms <= 0:
        import asyncio

        await asyncio.sleep(0)
    else:
        await Pause(clock).sleep(delay_ms, kind)


class Pause:
    """A wait that somebody else may end before its time."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._woken: Future[None] | None = None

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        """Return after that time, or when it is woken; who waited already is woken first."""
        import asyncio

        self.wake()
        woken = self._woken = asyncio.get_running_loop().create_future()
        timer = self._clock.after(delay_ms, lambda: None if woken.done() else woken.set_result(None), kind)
        try:
            await woken
        finally:
            timer.cancel()

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def machine_ms() -> float:
    """Return milliseconds that only ever rise, from a start that means nothing."""
    return time.monotonic_ns() / 1e6


def thread_ms() -> float:
    """Return milliseconds for which the calling thread has been at work on a processor; waiting does not count."""
    return time.thread_time_ns() / 1e6
