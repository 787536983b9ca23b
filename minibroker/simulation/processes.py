"""Processes within a simulation: parts of the program that can be killed and paused from outside.

What a process begins belongs to it, by its context: tasks, callbacks, timers, sockets. From `kill` on not one line of
its code is run, as with kill -9; no `finally` cleans up. While it is paused its callbacks wait, as after SIGSTOP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class ProcessKilled(Exception):
    """What somebody waited for will not come: its process was killed."""


class Process:
    """Made by `SimulatedLoop.process`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str):
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.set_aside: list[Callable[[], object]] = []  # callbacks that came while it was paused
        self.connections: dict[Callable[..., object], None] = {}  # how to break its connections
        self.listening: dict[Callable[[], object], None] = {}  # how to close its listeners
        self._loop = loop
        self._runs: list[asyncio.Future[Any]] = []
        self._context: Context = copy_context()
        self._context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the process do something and return what comes of it; ProcessKilled if it dies meanwhile."""
        if self.is_dead:
            work.close()
            raise ProcessKilled(self.name)
        done: asyncio.Future[Any] = self._loop.create_future()
        self._runs.append(done)
        task = self._loop.create_task(work, context=self._context.copy())

        def tell(task: asyncio.Task[Any]) -> None:
            if done.done():
                return
            if task.cancelled():
                done.cancel()
            elif failure := task.exception():
                done.set_exception(failure)
            else:
                done.set_result(task.result())

        task.add_done_callback(tell)
        try:
            return await done
        finally:
            self._runs.remove(done)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as this process."""
        return self._context.copy().run(function, *args)

    def kill(self, *, silent: bool = False) -> None:
        """End it here and now. Its sockets are reset; silent: nobody hears of it, as when a machine loses its power."""
        if self.is_dead:
            return
        self.is_dead = True
        self.set_aside.clear()
        for close in list(self.listening):
            close()
        for vanish in list(self.connections):
            vanish(silent=silent)
        for done in list(self._runs):
            if not done.done():
                done.set_exception(ProcessKilled(self.name))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Go on where it stood; what it missed happens now, in the order in which it came."""
        self.is_paused = False
        waiting, self.set_aside = self.set_aside, []
        for run in waiting:
            self._loop.call_soon(run)


class _Bound:
    """A callback of a process: run only if the process is."""

    __slots__ = ()

    _context: Context

    def runs(self, run: Callable[[], object]) -> bool:
        process = self._context.get(CURRENT)
        if process is None or not (process.is_dead or process.is_paused):
            return True
        if not process.is_dead:
            process.set_aside.append(run)
        return False


class ProcessHandle(asyncio.Handle, _Bound):
    """A callback in a loop that knows processes."""

    __slots__ = ()

    def _run(self) -> None:
        if not self._cancelled and self.runs(self._run):
            super()._run()


class ProcessTimer(asyncio.TimerHandle, _Bound):
    """A timer in a loop that knows processes."""

    __slots__ = ("number",)

    number: int
    _when: float

    def _run(self) -> None:
        if not self._cancelled and self.runs(self._run):
            super()._run()

    def __lt__(self, other: ProcessTimer) -> bool:  # type: ignore[override]
        return (self._when, self.number) < (other._when, other.number)
