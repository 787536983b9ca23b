"""A clock in the hand: freeze it, let it run at another rate, advance it by a week, set it wrong.

    clock.freeze()
    await clock.advance("7d")                  # what a week brings, in order, and the loop works after each of it
    await clock.advance("10s", sessions=True)  # everything that is timed, also heartbeats and sessions
    clock.rate(10)                             # ten times as fast as the machine's
    clock.jump("1h")                           # only what it shows: timers do not notice, as with a machine that is set

It keeps its timers in heaps of its own, with one timer of the loop for the first of them. As long as nobody steers it,
it shows the machine's time, also after that has been set; whoever reads it often may ask the machine himself until
`when_steered` calls him.
What must hold: timers fire in the order of their times, those of the same time in the order in which they were set,
never before their time; unless it was set wrong, `now_ms` shows no less then than what the timer was set for.

Two things are counted: how long it ran (steady_ms), and beside it what was advanced without the sessions. SESSION
timers go by the first, REQUEST and CHORE timers by both (clock/__init__.py says what is what). A request that comes in
while the clock is advanced has its full time when that is over: a client that asks again and again would be answered a
million times in a week.
`advance` cannot see bytes that are under way in the kernel: a client of another process may notice a long advance
only when it is over.
"""

from __future__ import annotations

import time
from heapq import heapify, heappop, heappush

from minibroker.clock import IDLE, REQUEST, SESSION, machine_ms, sleep_by_timer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from typing import Any

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
CANCELLED_MIN = 100
QUIET_TURNS = 10  # of the loop, without anybody asking the clock: then nobody has anything to do
TURNS_MAX = 200  # who asks the clock without end does not keep an advance from ending
FOREVER_MS = float("inf")
ROUNDING_MS = 1 / 1024  # sums of fractions may come out a little short
SHOWN_MS_MAX = 253_402_300_799_999  # the end of the year 9999: later times are no dates in many languages
RATE_MIN, RATE_MAX = 1e-6, 1e6  # beyond, sums of milliseconds run out of digits, or of range
IDLE_MAX = 500  # timers that did nothing, one after the other, before the loop gets its turn all the same


def wall_ms() -> float:
    """Return what the machine's clock shows."""
    return time.time_ns() / 1e6


class SteeredTimer:
    """Something that will happen at a time of this clock."""

    __slots__ = ("_timers", "callback", "number")

    def __init__(self, timers: Timers, number: int, callback: Callable[[], object]):
        self._timers = timers
        self.number = number
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.forget_cancelled()


class Timers:
    """Timers that go by the same count, the first of them first."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, SteeredTimer]] = []  # when, in which order they were set, which
        self._cancelled_count = 0  # since the heap was cleaned

    def first(self) -> tuple[float, int, SteeredTimer] | None:
        """Return when the first fires, its number, and the timer."""
        heap = self.heap
        while heap and heap[0][2].callback is None:
            heappop(heap)
        return heap[0] if heap else None

    def forget_cancelled(self) -> None:
        """Clean the heap when half of it may be timers that will not fire: most timers are deadlines that are met."""
        self._cancelled_count += 1
        if self._cancelled_count > CANCELLED_MIN and 2 * self._cancelled_count > len(self.heap):
            self.heap = [each for each in self.heap if each[2].callback is not None]
            heapify(self.heap)
            self._cancelled_count = 0


class SteeredClock:
    """A Clock that people move."""

    def __init__(self, now_ms: int | None = None, *, source_ms: Callable[[], float] | None = None):
        """now_ms: what it shows first, the machine's time by default. source_ms: what makes it run."""
        self.watchers: dict[Callable[[str, float], object], None] = {}  # told what was done, and of how much
        self._first_shown_ms = now_ms
        self._source_ms = source_ms or machine_ms
        self._wall_ms = source_ms or wall_ms
        self._loop: AbstractEventLoop | None = None
        self._alarm: Any = None  # the loop's timer
        self._timer_count = 0
        self._calls = 0  # how often anybody asked: a sign that there is work
        self.is_advancing = False
        self.reset()

    def reset(self) -> None:
        """Be as when it was made, without timers, at no loop."""
        assert not self.is_advancing
        self._loop = None
        self._looked_ms, self._looked_wall_ms = self._source_ms(), self._wall_ms()  # when what follows was right
        is_unsteered = self._first_shown_ms is None and self._wall_ms is wall_ms
        # As SESSION timers count, and as the others do; the machine's count until somebody steers.
        self._ran_ms = self._elapsed_ms = self._looked_ms if is_unsteered else 0.0
        # By how much what it shows is ahead of _elapsed_ms.
        self._ahead_ms = (wall_ms() if self._first_shown_ms is None else self._first_shown_ms) - self._elapsed_ms
        self._rate = 1.0
        self._is_frozen = False
        self.when_steered: list[Callable[[], object]] | None = [] if is_unsteered else None  # called once
        self._sessions, self._others = Timers(), Timers()
        self._parks = False  # sessions stand still, and requests that come
        self._parked: list[tuple[float, SteeredTimer]] = []  # with the time that they have
        self._set_alarm()

    # A Clock

    def now_ms(self) -> int:
        self._calls += 1
        if self.when_steered is not None:
            return time.time_ns() // 1_000_000
        return int(self._shown() + ROUNDING_MS)

    def steady_ms(self) -> int:
        self._calls += 1
        return int(self._ran_ms + self._since_ms() + ROUNDING_MS)

    def elapsed_ms(self) -> int:
        self._calls += 1
        return int(self._elapsed_ms + self._since_ms() + ROUNDING_MS)

    def after(self, delay_ms: float, callback: Callable[[], object], kind: str = SESSION) -> SteeredTimer:
        self._calls += 1
        self._timer_count += 1
        timers, begin_ms = self._others, self._elapsed_ms
        if kind == SESSION:
            timers, begin_ms = self._sessions, self._ran_ms
        timer = SteeredTimer(timers, self._timer_count, callback)
        if self._parks and kind == REQUEST and delay_ms > 0:
            self._parked.append((delay_ms, timer))
            return timer
        heappush(timers.heap, (begin_ms + self._since_ms() + max(delay_ms, 0), self._timer_count, timer))
        if timers.heap[0][2] is timer:
            self._set_alarm()
        return timer

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        self._calls += 1
        await sleep_by_timer(self, delay_ms, kind)

    # Steering

    @property
    def is_frozen(self) -> bool:
        return self._is_frozen

    @property
    def next_due_ms(self) -> int | None:
        """In how many milliseconds the next timer fires; None: there is none."""
        first = self._first()
        return None if first is None else max(0, -int(-first[0] // 1))

    def freeze(self) -> None:
        """Let the clock stand still, for all who go by it: a broker, or a cluster with its controller.

        `advance` still moves it, `thaw` lets it run on.
        """
        self._note()
        if not self._is_frozen:
            self._ahead_ms = int(self._shown()) - self._elapsed_ms  # what it shows is where it stands
        self._is_frozen = True
        self._set_alarm()
        self._tell("freeze")

    def thaw(self) -> None:
        """Let the clock run on, from where it stands."""
        self._note()
        self._is_frozen = False
        self._set_alarm()
        self._tell("thaw")

    @property
    def speed(self) -> float:
        """How fast it runs when it is not frozen: 1 as the machine's."""
        return self._rate

    def rate(self, factor: float) -> None:
        """Let the clock run so many times as fast as the machine's."""
        if not 0 < factor < float("inf"):
            raise ValueError(f"a clock runs forward: {factor}")
        if not RATE_MIN <= factor <= RATE_MAX:
            raise ValueError(
                f"a clock runs {RATE_MIN:g} to {RATE_MAX:g} times as fast as the machine's, not {factor:g}"
            )
        self._note()
        self._rate = factor
        self._set_alarm()
        self._tell("rate", factor)

    def jump(self, amount: float | str) -> None:
        """Set the clock wrong by 1h, or -1h; timers do not notice.

        The amount is such a text, or milliseconds.
        """
        amount_ms = duration_ms(amount)
        self._check_shown(amount, amount_ms)
        self._note()
        self._ahead_ms += amount_ms
        self._tell("jump", amount_ms)

    @property
    def moved(self) -> tuple[int, float, bool] | None:
        """What it shows, how fast it runs and whether it is frozen; None as long as nobody has steered it."""
        return None if self.when_steered is not None else (self.now_ms(), self._rate, self._is_frozen)

    def move(self, moved: tuple[int, float, bool] | None) -> None:
        """Be as another clock has moved, before anybody goes by this one."""
        self.reset()
        if moved is not None:
            now_ms, rate, is_frozen = moved
            self.rate(rate)
            if is_frozen:
                self.freeze()
            self.jump(now_ms - self.now_ms())

    async def advance(self, amount: float | str, *, sessions: bool = False) -> None:
        """Move the clock on: 7d, 30s, 250ms; sessions: heartbeats go on, too, and who is silent is taken for dead.

        The amount is such a text, or milliseconds. Returns when what is due up to there has been done and the loop is
        quiet: the chores of brokers, and the deadlines of requests that wait. Brokers and members of groups stay: they
        would have sent their heartbeats. sessions: heartbeats, fetches of followers and all other timers go on as well.
        """
        amount_ms = duration_ms(amount)
        if not 0 <= amount_ms < float("inf"):
            raise ValueError(f"time does not go back: {amount}" if amount_ms < 0 else f"{amount!r} is no duration")
        self._check_shown(amount, amount_ms)
        if self.is_advancing:
            raise RuntimeError("somebody is advancing this clock")
        self._note()
        self.is_advancing = True  # meanwhile the source does not move it
        self._set_alarm()
        try:
            await self.settle()
            self._parks = not sessions
            end_ms = self._elapsed_ms + amount_ms
            idle_count = 0
            first = self._first(self._parks)
            while first is not None and self._move(*first, end_ms):
                is_idle, first = self._fire(self._parks)
                idle_count = idle_count + 1 if is_idle else IDLE_MAX
                if idle_count >= IDLE_MAX:  # what brokers look after every second is most often nothing
                    await self.settle()
                    idle_count, first = 0, self._first(self._parks)
            if idle_count:
                await self.settle()
            self._go_on(end_ms - self._elapsed_ms)
            self._elapsed_ms = end_ms
        finally:
            self.is_advancing = self._parks = False
            self._note_sources()
            self._unpark()
            self._set_alarm()
        self._tell("advance", amount_ms)

    async def settle(self) -> None:
        """Let the loop turn until nobody has work."""
        import asyncio

        if self.when_steered is not None:
            self._note()  # so that everybody asks this clock, and we see it
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

    def from_thread(self, action: Callable[..., Any], *args: object, **named: object) -> Any:
        """Do one of the above from another thread, and return when it is done: `from_thread(clock.advance, "7d")`."""
        import asyncio

        assert self._loop is not None, "no loop has used this clock yet: call attach() there"

        async def act() -> Any:
            done = action(*args, **named)
            return await done if asyncio.iscoroutine(done) else done

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def attach(self) -> None:
        """Belong to the running loop from now on; the first timer does this too."""
        import asyncio

        self._loop = asyncio.get_running_loop()

    # How far it is

    def _since_ms(self) -> float:
        """Return how long it has run since it was noted how far it is."""
        if self._is_frozen or self.is_advancing:
            return 0.0
        return (self._source_ms() - self._looked_ms) * self._rate

    def _shown(self) -> float:
        shown_ms = self._ahead_ms + self._elapsed_ms
        if self._is_frozen or self.is_advancing:
            return shown_ms
        return shown_ms + (self._wall_ms() - self._looked_wall_ms) * self._rate

    def _check_shown(self, amount: float | str, amount_ms: float) -> None:
        """Raise ValueError if records could not have the time that would be shown; it would be shown for ever."""
        if not 0 <= self._shown() + amount_ms <= SHOWN_MS_MAX:
            raise ValueError(f"a clock shows the years 1970 to 9999, which {amount!r} would leave")

    def _note(self) -> None:
        """Note how far it is, before the way in which it runs is changed."""
        told, self.when_steered = self.when_steered or (), None
        for tell in told:
            tell()
        since_ms, shown_ms = self._since_ms(), self._shown()
        self._ran_ms += since_ms
        self._elapsed_ms += since_ms
        self._ahead_ms = shown_ms - self._elapsed_ms
        self._note_sources()

    def _note_sources(self) -> None:
        self._looked_ms, self._looked_wall_ms = self._source_ms(), self._wall_ms()

    def _move(self, due_in_ms: float, due_ms: float, timers: Timers, end_ms: float) -> bool:
        """Move on until a timer is due; return whether it is before the end."""
        if self._elapsed_ms + due_in_ms > end_ms:
            return False
        self._go_on(due_in_ms)
        if timers is self._sessions:  # to the very time that is written there: sums are not exact
            self._ran_ms = max(self._ran_ms, due_ms)
        else:
            self._elapsed_ms = max(self._elapsed_ms, due_ms)
        return True

    def _go_on(self, by_ms: float) -> None:
        if by_ms > 0:
            self._elapsed_ms += by_ms
            if not self._parks:
                self._ran_ms += by_ms

    # Timers

    def _first(self, skips_sessions: bool = False) -> tuple[float, float, Timers] | None:
        """Return in how many milliseconds the first timer fires, when by its own count, and where it is kept.

        skips_sessions: none of those that are not due now.
        """
        since_ms = self._since_ms()
        session, other = self._sessions.first(), self._others.first()
        other_in_ms = FOREVER_MS if other is None else other[0] - self._elapsed_ms - since_ms
        if session is not None:
            in_ms = session[0] - self._ran_ms - since_ms
            is_first = other is None or (in_ms, session[1]) < (other_in_ms, other[1])
            if is_first and (in_ms <= 0 or not skips_sessions):
                return in_ms, session[0], self._sessions
        return None if other is None else (other_in_ms, other[0], self._others)

    def _unpark(self) -> None:
        """Let the requests that came while the clock was advanced have their time from now on."""
        parked, self._parked = self._parked, []
        for delay_ms, timer in parked:
            if timer.callback is not None:
                heappush(self._others.heap, (self._elapsed_ms + delay_ms, timer.number, timer))

    def _set_alarm(self) -> None:
        """Have the loop wake us for the first timer, unless time comes from elsewhere."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._is_frozen or self.is_advancing or (first := self._first()) is None:
            return
        if self._loop is not None and self._loop.is_closed():  # what is left there will not happen
            return
        if self._loop is None:
            self.attach()
        assert self._loop is not None
        self._alarm = self._loop.call_later(max(0.0, first[0] / self._rate) / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._fire()
        self._set_alarm()

    def _fire(self, skips_sessions: bool = False) -> tuple[bool, tuple[float, float, Timers] | None]:
        """Call what is due, and was set before we began; return whether nobody had anything to do, and what is next."""
        last = self._timer_count
        later: list[tuple[Timers, tuple[float, int, SteeredTimer]]] = []
        is_idle = True
        while (first := self._first(skips_sessions)) is not None and first[0] <= 0:
            timers = first[2]
            entry = heappop(timers.heap)
            timer = entry[2]
            if timer.number > last:  # set by what we call: the loop gets its turn first
                later.append((timers, entry))
                continue
            callback, timer.callback = timer.callback, None
            assert callback is not None
            try:
                is_idle = callback() is IDLE and is_idle
            except Exception as failure:  # as a timer of the loop would
                assert self._loop is not None
                self._loop.call_exception_handler({"message": "a timer failed", "exception": failure})
                is_idle = False
        if not later:
            return is_idle, first
        for timers, entry in later:
            heappush(timers.heap, entry)
        return is_idle, self._first(skips_sessions)

    def _tell(self, what: str, amount: float = 0) -> None:
        for tell in list(self.watchers):
            tell(what, amount)


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
