"""Long work of many clients, a share of it in each turn of the loop: nobody waits for more than one share.

Work is a generator that yields how long about it has taken since it last did, in microseconds; or something to be
awaited before it goes on. What it returns may be something to be awaited, too: an answer that comes later.
By what it says and not by a clock, so that the same happens each time, in a simulation too. Shares are handed out in
the order in which they were asked for, whoever asks: a large request, or a connection on which many small ones have
come together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeAlias, TypeGuard, TypeVar

from minibroker.errors import InvalidLength

Made = TypeVar("Made")

Work: TypeAlias = Generator[int | Awaitable[object], None, Made]


_is_work: dict[type, bool] = {}  # by what handlers return


def is_work(made: object) -> TypeGuard[Generator[Any, None, Any]]:
    """Whether a handler has returned work: a generator, Python's own or one of the compiler's."""
    kind = type(made)
    known = _is_work.get(kind)
    if known is None:
        known = _is_work[kind] = issubclass(kind, Generator) and not issubclass(kind, Awaitable)
    return known


FIRST_US = 500  # begun at once: most is over before
SHARE_US = 2_000
WORK_US_MAX = 5_000_000  # for one request: 10,000 topics can be made, or their settings described


def awaited(coroutine: Coroutine[Any, Any, Made]) -> Work[Made]:
    """Return, as work, what comes of a coroutine; it is given up with the work that waits for it."""
    task = asyncio.get_running_loop().create_task(coroutine)
    try:
        yield task
        return task.result()
    finally:
        task.cancel()


class Shares:
    """Whose turn it is; one for the life of a broker."""

    def __init__(self, run: Callable[[Callable[[], object]], object]):
        """run: calls back, at once or when the broker is not held any more."""
        self._run = run
        self._waiting: deque[Callable[[], object]] = deque()
        self._begun_us = 0  # what `begin` has spent in this turn of the loop

    def add(self, go_on: Callable[[], object]) -> None:
        """Call when it is its turn, in another turn of the loop."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self._next_turn()

    def _next_turn(self) -> None:
        asyncio.get_running_loop().call_soon(self._run, self._take_turn)

    def _take_turn(self) -> None:
        go_on = self._waiting[0]
        try:
            go_on()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._next_turn()

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add(lambda: None if come.done() else come.set_result(None))
        await come

    def start(self, work: Work[Made]) -> Made | Coroutine[Any, Any, Made]:
        """Begin; return what came of the work if it is done already, else what waits for it."""
        spent_us = 0
        try:
            while spent_us < FIRST_US:
                step = next(work)
                if type(step) is not int:
                    return self._go_on(work, step)  # type: ignore[arg-type]
                spent_us += step
        except StopIteration as end:
            made: Made = end.value
            return made
        return self.run(work)

    def begin(self, work: Generator[int, None, None]) -> None:
        """Do what no request waits for, however long it takes: at once one share of all that begins in this turn."""
        left_us = SHARE_US - self._begun_us
        if left_us <= 0:
            self.add(partial(self._take_share, work))
            return
        if not self._begun_us:
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._begun_us += self._take_share(work, left_us)

    def _end_turn(self) -> None:
        self._begun_us = 0

    def _take_share(self, work: Generator[int, None, None], share_us: int = SHARE_US) -> int:
        """Go on with work, and have it go on later if it is not over; return how long about it has taken."""
        spent_us = 0
        for step_us in work:
            spent_us += step_us
            if spent_us >= share_us:
                self.add(partial(self._take_share, work))
                break
        return spent_us

    async def run(self, work: Work[Made]) -> Made:
        """Return what comes of the work; who is cancelled gives it up."""
        return await self._go_on(work, self.turn())

    async def _go_on(self, work: Work[Made], wait: Awaitable[object]) -> Made:
        """Go on when a wait is over."""
        try:
            await wait
            spent_us = total_us = 0
            while True:
                step = next(work)
                if type(step) is not int:
                    await step  # type: ignore[misc]
                    spent_us = 0
                    continue
                spent_us += step
                total_us += step
                if total_us > WORK_US_MAX:
                    raise InvalidLength(f"this is more work than {WORK_US_MAX / 1e6:.0f} seconds", 0, "request")
                if spent_us >= SHARE_US:
                    await self.turn()
                    spent_us = 0
        except StopIteration as end:
            made: Any = end.value
        finally:
            work.close()
        result: Made = await made if hasattr(made, "__await__") else made
        return result
