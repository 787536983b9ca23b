"""An event loop in virtual time: when everybody waits, time moves on to the first timer, and nothing really waits.

What must hold: the same program on it does the same things at the same times in every run, whatever the hash seed and
the addresses of objects; so tasks and futures hash by the order in which they were made, timers of the same time fire
in the order in which they were set, and worker threads run inline. Each turn of the loop takes a microsecond: to
clients that wait for a clock to move while they spin, a frozen one would look like no progress.
A program in which every task waits and no timer is set is told so (Deadlock): nothing could ever wake it. What would
let real time or other threads in raises Stray.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from contextvars import Context
from heapq import heappush
from random import Random
from typing import Any

from minibroker.simulation.processes import CURRENT, Process, ProcessHandle, ProcessTimer
from minibroker.simulation.sockets import SimulatedServer, SimulatedTransport, Sockets

TURN_S = 1e-6
PATIENCE_S = 600.0
SPINS_MAX = 2_000_000  # turns in which somebody always has something to do
RESOLUTION_S = 1e-9
TASKS_MIN = 1000
START_MS = 1_700_000_000_000  # what virtual clocks show when a simulation begins


class Deadlock(Exception):
    """Every task waits, and no timer is set."""


class OutOfTime(Exception):
    """The simulation went on longer than it may."""


class Stray(Exception):
    """Something reached for the real world."""


class SimulatedFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future that sets hold in the order of its making, not in that of its address."""

    def __init__(self, *, loop: SimulatedLoop):
        super().__init__(loop=loop)
        self.number = loop.next_number()

    def __hash__(self) -> int:
        return self.number


class SimulatedTask(asyncio.Task):  # type: ignore[type-arg]
    """A task that sets hold in the order of its making."""

    def __init__(self, work: Any, *, loop: SimulatedLoop, context: Context | None = None):
        self.number = loop.next_number()  # first: asyncio puts the task into a set at once
        self.process = CURRENT.get() if context is None else context.get(CURRENT)
        super().__init__(work, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.BaseEventLoop):
    """A loop for one simulation."""

    def __init__(self, chance: Random, *, limit_s: float = float("inf")):
        super().__init__()
        self.turns = 0
        self.chance = chance
        self.sockets = Sockets(self, chance)
        self.failures: list[BaseException] = []  # that nobody handled
        self.strays: list[Stray] = []  # that were raised, also if somebody swallowed them
        self.limit_s = limit_s
        self._spins = 0  # turns since everybody waited
        self._now = 0.0
        self._numbers = 0
        self._clock_resolution = RESOLUTION_S
        self._selector = self  # asks select() of it, which is where a real loop waits
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._tasks_max = TASKS_MIN  # with more of them, those that are done are forgotten
        self.set_task_factory(_make_task)  # type: ignore[arg-type]
        self.set_exception_handler(_keep_failure)

    # Time

    def time(self) -> float:
        return self._now

    def now_ms(self) -> int:
        """Return what virtual clocks show."""
        return START_MS + int(self._now * 1000)

    def select(self, timeout: float | None) -> list[Any]:
        """Move time to where a real loop would be woken."""
        self.turns += 1
        if timeout is None:
            raise Deadlock(f"every task waits and no timer is set:\n{self._waiting()}")
        self._spins = 0 if timeout else self._spins + 1
        if self._spins > SPINS_MAX:
            raise OutOfTime(f"{SPINS_MAX} turns of the loop, and nobody waited: something spins:\n{self._waiting()}")
        self._now += TURN_S + timeout
        if self._now > self.limit_s:
            raise OutOfTime(f"not done after {self._now:g} virtual seconds:\n{self._waiting()}")
        return []

    def stray(self, words: str) -> Stray:
        """Return the error for something that reaches for the real world; it is kept, too."""
        self.strays.append(Stray(words))
        return self.strays[-1]

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        timer = ProcessTimer(when, callback, args, self, context)
        timer.number = self.next_number()
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _call_soon(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None) -> Any:
        handle = ProcessHandle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    # What a real loop does with a selector

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Call it now: a thread would bring in real time."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as failure:
            done.set_exception(failure)
        return done

    # Tasks

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(loop=self)

    def remember(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) > self._tasks_max:
            self._tasks = {known: None for known in self._tasks if not known.done()}
            self._tasks_max = max(TASKS_MIN, 2 * len(self._tasks))  # as many have to come until it is worth while
        self._tasks[task] = None

    def tasks_left(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, oldest first; those of killed processes too."""
        return [task for task in self._tasks if not task.done()]

    def unheard(self) -> list[BaseException]:
        """Return what tasks have failed with that nobody asked for; but those of killed processes."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled() and task._log_traceback]
        return [failure for task in ended if (failure := task.exception()) is not None]

    def process(self, name: str) -> Process:
        """Return a new process; `run` lets it do something."""
        return Process(self, name)

    def _waiting(self) -> str:
        return "\n".join(f"  {task.get_name()}: {_place(task)}" for task in self.tasks_left()) or "  (no task)"

    # Sockets

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(host), int(port)))]

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        start_serving: bool = True,
        **_: Any,
    ) -> SimulatedServer:
        if ssl:
            raise self.stray("no TLS in a simulation")
        return self.sockets.listen(protocol_factory, host or "", port or 0, start_serving=start_serving)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **_: Any,
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        if ssl or sock or host is None or port is None:
            raise self.stray("a simulation has TCP by host and port, nothing else")
        return await self.sockets.connect(protocol_factory, host, port)

    # The end

    def cancel_all(self) -> None:
        """Cancel what is left of processes that live, oldest first, and let it end."""
        self.limit_s = self._now + PATIENCE_S  # for those who do not want to end
        left = [task for task in self.tasks_left() if not is_dead(task)]
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(Deadlock, OutOfTime):
                self.run_until_complete(asyncio.wait(left))

    def close(self) -> None:
        """Close, and throw away what killed processes were about to do."""
        closed: dict[asyncio.Task[Any], None] = {}
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)  # or a `finally` that wants a loop is given one that nobody closes
        try:
            while left := [task for task in self.tasks_left() if task not in closed]:
                for task in left:
                    closed[task] = None
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(BaseException):  # a `finally` that waits; there is nobody who could
                        task.get_coro().close()
        finally:
            asyncio._set_running_loop(running)
        self.sockets.close()
        self._tasks.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        super().close()


def _make_task(loop: SimulatedLoop, work: Any, context: Context | None = None, **_: Any) -> asyncio.Task[Any]:
    task = SimulatedTask(work, loop=loop, context=context)
    loop.remember(task)
    return task


def _keep_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    failure = context.get("exception") or RuntimeError(context["message"])
    if isinstance(failure, BaseException):
        failure.add_note(str(context["message"]))
        loop.failures.append(failure)


def is_dead(task: asyncio.Task[Any]) -> bool:
    """Whether the process of a task has been killed: it will never go on."""
    process = getattr(task, "process", None)
    return process is not None and process.is_dead


def _place(task: asyncio.Task[Any]) -> str:
    """Say where a task waits."""
    places = []
    frame: Any = task.get_coro()
    while getattr(frame, "cr_frame", None) is not None:
        places.append(f"{frame.cr_code.co_qualname} line {frame.cr_frame.f_lineno}")
        frame = frame.cr_await
    return " > ".join(places)
