"""The clock of one broker: it stops with the broker, whatever the clock behind it does.

A process that is stopped is not called; what it missed is called when it goes on. One that was killed is never called
again. `skew_ms` is how wrong the broker's clock is: it shows in what it writes, timers do not notice.
As long as nobody steers the clock behind it, this one asks the machine itself.

What held the loop longer than it may is counted, by what it was: others wait meanwhile, so this is what their slowest
answers are made of. By the steady clock, so a machine that has other things to do shows, too; in a simulation, where no
time passes within a callback, nothing is counted.
"""

from __future__ import annotations

import time
from functools import partial

from minibroker.clock import IDLE, SESSION, LoopClock, sleep_by_timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from minibroker.clock import Clock, Timer


STRETCH_MS: Final = 20  # as long as one request may hold the loop


def name_of(callback: Callable[[], object]) -> str:
    """Return what a callback is called in the source."""
    while isinstance(callback, partial):
        callback = callback.func
    name: str = getattr(callback, "__qualname__", type(callback).__qualname__)
    return name


class Stretches:
    """One for the life of a broker."""

    def __init__(self) -> None:
        self.counts: dict[int | str, int] = {}  # by API, or by the name of what else it was
        self.longest_ms: dict[int | str, int] = {}

    def note(self, what: int | str, took_ms: int) -> None:
        """Count a stretch of STRETCH_MS or more."""
        self.counts[what] = self.counts.get(what, 0) + 1
        self.longest_ms[what] = max(self.longest_ms.get(what, 0), took_ms)


class BrokerClock:
    """A Clock on top of another one."""

    def __init__(self, clock: Clock):
        self.skew_ms = 0
        self.behind = clock  # that it goes by, which is perhaps one that people move
        # None: the machine. A clock derived from LoopClock, as of a simulation, has a time of its own.
        self._source: Clock | None = None if type(clock) is LoopClock else clock
        when_steered = getattr(clock, "when_steered", None)
        if when_steered is not None:
            self._source = None
            when_steered.append(self._is_steered)
        self.stretches = Stretches()
        self.is_paused = self._has_ended = False
        self._missed: list[Callable[[], object]] = []

    # A Clock

    def now_ms(self) -> int:
        source = self._source
        return (time.time_ns() // 1_000_000 if source is None else source.now_ms()) + self.skew_ms

    def steady_ms(self) -> int:
        source = self._source
        return time.monotonic_ns() // 1_000_000 if source is None else source.steady_ms()

    def elapsed_ms(self) -> int:
        source = self._source
        return time.monotonic_ns() // 1_000_000 if source is None else source.elapsed_ms()

    def fine_ns(self) -> int:
        """Return nanoseconds, to measure how long something has taken; in a simulation nothing takes any time."""
        source = self._source
        return time.perf_counter_ns() if source is None else source.steady_ms() * 1_000_000

    def _is_steered(self) -> None:
        self._source = self.behind

    def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> Timer:
        timer = BrokerTimer(self, callback)
        timer.timer = self.behind.after(delay_ms, timer.fire, kind)
        return timer

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        await sleep_by_timer(self, delay_ms, kind)

    @property
    def is_moved(self) -> bool:
        """Whether somebody moves time at this moment, as far as the next thing that is due."""
        return getattr(self.behind, "is_advancing", False)

    # The process

    def run(self, callback: Callable[[], object]) -> object:
        """Call back if the process runs, later if it is paused; return what came of it."""
        if self.is_paused:
            self._missed.append(callback)
        elif not self._has_ended:
            begun_ms = self.steady_ms()
            result = callback()
            took_ms = self.steady_ms() - begun_ms
            if took_ms >= STRETCH_MS:
                self.stretches.note(name_of(callback), took_ms)
            return result
        return IDLE

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        missed, self._missed = self._missed, []
        for callback in missed:
            self.run(callback)

    def end(self) -> None:
        self.is_paused = False
        self._has_ended = True
        self._missed.clear()


class BrokerTimer:
    """Something that will happen, if the process lives to see it."""

    __slots__ = ("_callback", "_clock", "timer")

    timer: Timer

    def __init__(self, clock: BrokerClock, callback: Callable[[], object]):
        self._clock = clock
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None
        self.timer.cancel()

    def fire(self) -> object:
        return self._clock.run(self._call)

    def _call(self) -> object:
        callback, self._callback = self._callback, None
        # It may have been cancelled while it waited for the process.
        return IDLE if callback is None else callback()
