"""A clock in the hand: freeze it, let it run at another rate, advance it by a week, set it wrong.

    clock.freeze()
    await clock.advance("7d")       # fires every timer in between, in order, and lets the loop work after each
    clock.rate(10)                  # ten times as fast as the machine's
    clock.jump("1h")                # only what it shows: timers do not notice, as with a machine whose clock is set

It keeps its timers in a heap of its own, with one timer of the loop for the first of them.
What must hold: timers fire in the order of their times, those of the same time in the order in which they were set,
never before their time; unless it was set wrong, `now_ms` shows no less then than what the timer was set for.
`advance` cannot see bytes that are under way in the kernel: a client of another process may notice a long advance
only when it is over.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from minibroker.clock import IDLE, LoopClock, machine_ms, sleep_by_timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from typing import Any

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
CANCELLED_MIN = 100
QUIET_TURNS = 10  # of the loop, without anybody asking the clock: then nobody has anything to do
TURNS_MAX = 200  # who asks the clock without end does not keep an advance from ending
IDLE_MAX = 100  # timers that did nothing, one after the other, before the loop gets its turn all the same


class SteeredTimer:
    """Something that will happen at a time of this clock."""

    __slots__ = ("_clock", "callback", "due_ms", "number")

    def __init__(self, clock: SteeredClock, due_ms: float, number: int, callback: Callable[[], object]):
        self._clock = clock
        self.due_ms = due_ms
        self.number = number
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._clock.forget_cancelled()

    def __lt__(self, other: SteeredTimer) -> bool:
        return (self.due_ms, self.number) < (other.due_ms, other.number)


class SteeredClock:
    """A Clock that people move."""

    def __init__(self, now_ms: int | None = None, *, source_ms: Callable[[], float] = machine_ms):
        """now_ms: what it shows first, the machine's time by default. source_ms: what makes it run."""
        self.watchers: dict[Callable[[str], object], None] = {}  # told what was done, such as "is frozen"
        self._source_ms = source_ms
        self._ran_ms = 0.0  # since it was made; timers go by this
        self._shown_ms = float(LoopClock().now_ms() if now_ms is None else now_ms)  # what it shows when _ran_ms is 0
        self._rate = 1.0
        self._is_frozen = False
        self.is_advancing = False
        self._looked_ms = source_ms()  # what the source said when _ran_ms was right
        self._timers: list[SteeredTimer] = []
        self._timer_count = 0
        self._cancelled_count = 0  # since the heap was cleaned
        self._calls = 0  # how often anybody asked: a sign that there is work
        self._loop: AbstractEventLoop | None = None
        self._alarm: Any = None  # the loop's timer

    # A Clock

    def now_ms(self) -> int:
        self._calls += 1
        return int(self._shown_ms + self._run())

    def steady_ms(self) -> int:
        self._calls += 1
        return int(self._run())

    def after(self, delay_ms: float, callback: Callable[[], object]) -> SteeredTimer:
        self._calls += 1
        self._timer_count += 1
        timer = SteeredTimer(self, self._run() + max(delay_ms, 0), self._timer_count, callback)
        heappush(self._timers, timer)
        if self._timers[0] is timer:
            self._set_alarm()
        return timer

    async def sleep(self, delay_ms: float) -> None:
        self._calls += 1
        await sleep_by_timer(self, delay_ms)

    # Steering

    @property
    def is_frozen(self) -> bool:
        return self._is_frozen

    @property
    def next_due_ms(self) -> int | None:
        """In how many milliseconds the next timer fires; None: there is none."""
        self._drop_cancelled()
        return None if not self._timers else max(0, -int(-(self._timers[0].due_ms - self._run()) // 1))

    def freeze(self) -> None:
        """Stand still until `thaw`; `advance` still moves it."""
        self._run()
        self._is_frozen = True
        self._set_alarm()
        self._tell("is frozen")

    def thaw(self) -> None:
        """Run on from where it stands."""
        self._run()
        self._is_frozen = False
        self._set_alarm()
        self._tell("runs again")

    def rate(self, factor: float) -> None:
        """Run so many times as fast as the machine's clock."""
        if factor <= 0:
            raise ValueError(f"a clock runs forward: {factor}")
        self._run()
        self._rate = factor
        self._set_alarm()
        self._tell(f"runs at x{factor:g}")

    def jump(self, amount: float | str) -> None:
        """Show another time from now on, earlier if negative; timers go on as if nothing had happened."""
        amount_ms = duration_ms(amount)
        self._shown_ms += amount_ms
        self._tell(f"was set by {amount_ms:g} ms")

    async def advance(self, amount: float | str, *, grain: float | str = 0) -> None:
        """Move on by milliseconds, or "7d". Returns when every timer up to there has fired and the loop is quiet.

        grain: move in steps of at least so much, so that what happens every second happens once a step: timers fire
        late, as after a machine slept, and a week takes a moment ("1m").
        """
        amount_ms, grain_ms = duration_ms(amount), duration_ms(grain)
        if amount_ms < 0:
            raise ValueError(f"time does not go back: {amount}")
        if self.is_advancing:
            raise RuntimeError("somebody is advancing this clock")
        self._run()
        self.is_advancing = True  # meanwhile the source does not move it
        self._set_alarm()
        try:
            await self.settle()
            end_ms = self._ran_ms + amount_ms
            idle_count = 0
            while (due_ms := self._first_due_ms()) is not None and due_ms <= end_ms:
                self._ran_ms = max(self._ran_ms, due_ms, min(self._ran_ms + grain_ms, end_ms))
                idle_count = idle_count + 1 if self._fire() else IDLE_MAX
                if idle_count >= IDLE_MAX:  # what brokers look after every second is most often nothing
                    await self.settle()
                    idle_count = 0
            if idle_count:
                await self.settle()
            self._ran_ms = end_ms
        finally:
            self._looked_ms = self._source_ms()
            self.is_advancing = False
            self._set_alarm()
        self._tell(f"was advanced by {amount_ms:g} ms")

    async def settle(self) -> None:
        """Let the loop turn until nobody has work."""
        import asyncio

        if self._loop is None:
            self.attach()
        ready = getattr(self._loop, "_ready", None)  # asyncio's own loop tells; uvloop does not
        quiet = 0
        for _ in range(TURNS_MAX):
            calls = self._calls
            await asyncio.sleep(0)
            quiet = quiet + 1 if calls == self._calls else 0
            if quiet and (not ready if ready is not None else quiet >= QUIET_TURNS):
                return

    def from_thread(self, action: Callable[..., Any], *args: object) -> Any:
        """Do one of the above from another thread, and return when it is done: `from_thread(clock.advance, "7d")`."""
        import asyncio

        assert self._loop is not None, "no loop has used this clock yet: call attach() there"

        async def act() -> Any:
            done = action(*args)
            return await done if asyncio.iscoroutine(done) else done

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def attach(self) -> None:
        """Belong to the running loop from now on; the first timer does this too."""
        import asyncio

        self._loop = asyncio.get_running_loop()

    # Timers

    def _run(self) -> float:
        """Bring the clock up to what its source says; return how long it has run."""
        if not self._is_frozen and not self.is_advancing:
            source_ms = self._source_ms()
            self._ran_ms += (source_ms - self._looked_ms) * self._rate
            self._looked_ms = source_ms
        elif not self.is_advancing:
            self._looked_ms = self._source_ms()
        return self._ran_ms

    def _set_alarm(self) -> None:
        """Have the loop wake us for the first timer, unless time comes from elsewhere."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._is_frozen or self.is_advancing or not self._timers:
            return
        if self._loop is None:
            self.attach()
        assert self._loop is not None
        delay_ms = max(0.0, (self._timers[0].due_ms - self._ran_ms) / self._rate)
        self._alarm = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._run()
        self._fire()
        self._set_alarm()

    def _fire(self) -> bool:
        """Call what is due, and was set before we began; return whether nobody had anything to do."""
        last, now_ms = self._timer_count, self._ran_ms
        later, is_idle = [], True
        while (due_ms := self._first_due_ms()) is not None and due_ms <= now_ms:
            timer = heappop(self._timers)
            if timer.number > last:  # set by what we call: the loop gets its turn first
                later.append(timer)
                continue
            callback, timer.callback = timer.callback, None
            assert callback is not None
            try:
                is_idle = callback() is IDLE and is_idle
            except Exception as failure:  # as a timer of the loop would
                assert self._loop is not None
                self._loop.call_exception_handler({"message": "a timer failed", "exception": failure})
                is_idle = False
        for timer in later:
            heappush(self._timers, timer)
        return is_idle

    def _first_due_ms(self) -> float | None:
        self._drop_cancelled()
        return self._timers[0].due_ms if self._timers else None

    def forget_cancelled(self) -> None:
        """Clean the heap when half of it may be timers that will not fire: most timers are deadlines that are met."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MIN and 2 * self._cancelled_count > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapify(self._timers)
            self._cancelled_count = 0

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0].callback is None:
            heappop(self._timers)

    def _tell(self, what: str) -> None:
        for tell in list(self.watchers):
            tell(what)


def duration_ms(amount: float | str) -> float:
    """Return milliseconds of a number of such, or of a text like "250ms", "1.5h", "7d"; else ValueError."""
    if not isinstance(amount, str):
        return amount
    text = amount.strip().replace("_", "")
    unit = text.lstrip("+-0123456789.")
    number = text[: len(text) - len(unit)]
    try:
        return float(number) * UNITS_MS[unit.strip() or "ms"]
    except (ValueError, KeyError):
        raise ValueError(f"{amount!r} is no duration such as 250ms, 10s, 5m, 1.5h or 7d") from None
