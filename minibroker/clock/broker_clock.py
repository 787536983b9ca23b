"""The clock of one broker: it stops with the broker, whatever the clock behind it does.

A process that is stopped is not called; what it missed is called when it goes on. One that was killed is never called
again. What it is called for and takes long is noted (clock/stretches.py). `skew_ms` is how wrong the broker's clock
is: it shows in what it writes, timers do not notice.
"""

from __future__ import annotations

from minibroker.clock import IDLE, SESSION, sleep_by_timer
from minibroker.clock.stretches import STRETCH_MS, Stretches, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.clock import Clock, Timer


class BrokerClock:
    """A Clock on top of another one."""

    def __init__(self, clock: Clock):
        self.skew_ms = 0
        self._clock = clock
        self.steady_ms = clock.steady_ms
        self.stretches = Stretches()
        self.is_paused = self._has_ended = False
        self._missed: list[Callable[[], object]] = []

    # A Clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.skew_ms

    def elapsed_ms(self) -> int:
        return self._clock.elapsed_ms()

    def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> Timer:
        timer = BrokerTimer(self, callback)
        timer.timer = self._clock.after(delay_ms, timer.fire, kind)
        return timer

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        await sleep_by_timer(self, delay_ms, kind)

    @property
    def is_moved(self) -> bool:
        """Whether somebody moves time at this moment, as far as the next thing that is due."""
        return getattr(self._clock, "is_advancing", False)

    # The process

    def run(self, callback: Callable[[], object]) -> object:
        """Call back if the process runs, later if it is paused; return what came of it."""
        if self.is_paused:
            self._missed.append(callback)
        elif not self._has_ended:
            begun_ms = self._clock.steady_ms()
            result = callback()
            took_ms = self._clock.steady_ms() - begun_ms
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
