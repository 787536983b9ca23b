"""Pieces of the application: functions that are called in processes of their own.

What must hold: a process that is killed, or that ends with an error, is gone with all that it had begun, and is
started again as whoever runs it in production would do. An AssertionError is the test's own verdict, and ends the run.
So does any other error that comes again and again when nothing goes wrong any more.
"""

from __future__ import annotations

import asyncio

from minibroker.simulation.processes import ProcessKilled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future, Task
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any, Protocol

    from minibroker.simulation.processes import Process
    from minibroker.simulation.run import World as Core

    class Told(Protocol):
        """Who wants to know of an app."""

        core: Core
        is_healed: bool

        def tell(self, words: str, *, is_harm: bool = False) -> None: ...
        def fail(self, failure: BaseException) -> None: ...


AGAIN_MS = 1000.0  # until what ended with an error is started again
ERRORS_MAX = 3  # of an app since nothing goes wrong any more: it will not get over it


class App:
    """A piece of the application that runs. `await app` returns what the function returns, in whichever life."""

    def __init__(self, world: Told, name: str, call: Callable[[], Coroutine[Any, Any, Any]]):
        self.name = name
        self.life = 0
        self.process: Process | None = None  # None: it does not run, or has done what it had to do
        self._world = world
        self._call = call
        self._again_ms = AGAIN_MS
        self._errors = 0
        loop = world.core.loop
        self._done: Future[Any] = loop.create_future()
        self._living: Task[None] = loop.create_task(self._live(), name=name)

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._done).__await__()  # who stops waiting for it does not stop it

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.process.is_paused

    def kill(self, again_ms: float) -> None:
        """End it as kill -9 does; it is started again after so long."""
        if self.process is not None:
            self._again_ms = again_ms
            self.process.kill()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()

    async def _live(self) -> None:
        world = self._world
        while True:
            self.life += 1
            self._again_ms = AGAIN_MS
            self.process = world.core.loop.process(f"{self.name}, life {self.life}")
            if self.life > 1:
                world.tell(f"{self.name} is started again", is_harm=True)
            try:
                result = await self.process.run(self._call())
            except ProcessKilled:
                pass
            except BaseException as failure:
                if self._living.cancelling():  # the run is over
                    raise
                if self._is_final(failure):
                    world.fail(failure)
                    return
                world.tell(f"{self.name} ends with {type(failure).__name__}: {failure}", is_harm=True)
                self.process.kill()
            else:
                self.process = None
                if not self._done.done():
                    self._done.set_result(result)
                return
            self.process = None
            await world.core.clock.sleep(self._again_ms)

    def _is_final(self, failure: BaseException) -> bool:
        self._errors += self._world.is_healed
        return is_verdict(failure) or self._errors > ERRORS_MAX


def is_verdict(failure: BaseException) -> bool:
    """Whether it is what a test says: an AssertionError, one in a group of errors, or what pytest.fail raises."""
    if isinstance(failure, BaseExceptionGroup):
        return any(map(is_verdict, failure.exceptions))
    if isinstance(failure, AssertionError):
        return True
    return not isinstance(failure, (Exception, asyncio.CancelledError))
