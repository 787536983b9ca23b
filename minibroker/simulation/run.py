"""One run: a world made from a seed, a program in it, and what came of it.

    async def main(world):
        broker = world.loop.process("broker-1")
        await broker.run(node.start())
        ...

    outcome = simulate(main, seed=7)        # outcome.trace_hash is the same in every process, for this seed

What must hold: the seed is the whole input. What the program gives to `world.trace`, all events, and all bytes that
reach a program are in the hash. An error that nobody handled ends the run as its failure, even if the program is happy.
Code that is not ours asks the machine for time and chance, and gets the simulation's meanwhile. Defaults that somebody
bound when a module was imported (`def f(now=time.time)`) escape, and so does compiled code that asks the system itself,
but that of aiokafka (foreign_clients.py). What would leave the simulation is refused by name (strays.py).
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any
from zlib import crc32

import minibroker.event_kinds  # noqa: F401  # so that KINDS has them
from minibroker.clock import LoopClock
from minibroker.events import KINDS, Event, EventStream
from minibroker.simulation.foreign_clients import of_clients
from minibroker.simulation.loop import OutOfTime, SimulatedLoop, is_dead
from minibroker.simulation.sockets import SimulatedTransport
from minibroker.simulation.strays import strays

LIMIT_S = 30 * 86_400.0
LINES_KEPT = 100_000


class SimulatedClock(LoopClock):
    """A Clock that shows a loop's virtual time; its timers are the loop's."""

    def __init__(self, loop: SimulatedLoop):
        self._loop = loop

    def now_ms(self) -> int:
        return self._loop.now_ms()

    def steady_ms(self) -> int:
        return self._loop.now_ms()


class Trace:
    """What happened, as a hash and, if wanted, as lines."""

    def __init__(self, loop: SimulatedLoop, *, keep_lines: bool = False):
        self.lines: list[str] | None = [] if keep_lines else None
        self.count = 0
        self._loop = loop
        self._hash = hashlib.sha256()

    def add(self, line: str) -> None:
        """Add something that happened just now."""
        self.count += 1
        line = f"{self._loop.time():.6f} {line}"
        self._hash.update(line.encode() + b"\n")
        if self.lines is not None and len(self.lines) < LINES_KEPT:
            self.lines.append(line)

    def hear(self, event: Event) -> None:
        self.add(event.line)

    def receive(self, transport: SimulatedTransport, data: bytes) -> None:
        self.add(f"{transport!r} {len(data)} bytes {crc32(data):08x}")

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class World:
    """What a simulated program may use."""

    def __init__(self, loop: SimulatedLoop, seed: int, *, keep_lines: bool):
        self.seed = seed
        self.loop = loop
        self.chance = Random(seed)  # for the program: loads, faults, brokers
        self.clock = SimulatedClock(loop)
        self.events = EventStream(self.clock.now_ms)
        self.trace = Trace(loop, keep_lines=keep_lines)
        self.events.subscribe(self.trace.hear, KINDS)
        loop.sockets.watch = self.trace.receive


class Outcome:
    """What came of a run."""

    def __init__(self, world: World, result: Any, failure: BaseException | None):
        self.seed = world.seed
        self.result = result
        self.failure = failure  # None: all went well
        self.trace_hash = world.trace.digest
        self.trace_count = world.trace.count
        self.lines = world.trace.lines
        self.virtual_s = world.loop.time()
        self.turns = world.loop.turns
        # What the program left behind when it was done: tasks that were cancelled then, but those of killed processes.
        self.left: list[str] = []

    def check(self) -> Any:
        """Return the result, or raise the failure."""
        if self.failure is not None:
            self.failure.add_note(f"seed {self.seed}, after {self.virtual_s:g} virtual seconds")
            raise self.failure
        return self.result


def simulate(
    main: Callable[[World], Coroutine[Any, Any, Any]],
    seed: int,
    *,
    limit_s: float = LIMIT_S,
    keep_lines: bool = False,
) -> Outcome:
    """Run a program from a seed; `limit_s` are virtual seconds."""
    # Two chances: what the network draws does not depend on how often the program does.
    loop = SimulatedLoop(Random(f"network {seed}"), limit_s=limit_s)
    world = World(loop, seed, keep_lines=keep_lines)
    result, failure = None, None
    with simulated_world(loop, seed):
        try:
            try:
                result = loop.run_until_complete(main(world))
            except KeyboardInterrupt:
                raise
            except BaseException as raised:  # pytest.fail and sys.exit, too
                failure = raised
            outcome = Outcome(world, result, failure)  # before the rest is cancelled: in no order of the program's
            outcome.left = [task.get_name() for task in loop.tasks_left() if not is_dead(task)]
            loop.cancel_all()
            with suppress(OutOfTime):
                loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
    if outcome.failure is None and loop.failures:
        outcome.failure = loop.failures[0]
    return outcome


@contextmanager
def simulated_world(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Replace functions that ask the machine for time and chance, or lead out. No garbage is collected meanwhile."""
    chance = random.Random(seed)
    replaced = [
        (time, "time", lambda: loop.now_ms() / 1000),
        (time, "time_ns", lambda: loop.now_ms() * 1_000_000),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
        (os, "urandom", chance.randbytes),
        *strays(loop),
        *of_clients(loop.now_ms),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    state = random.getstate()
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for module, name, replacement in replaced:
            setattr(module, name, replacement)
        random.seed(seed)
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)
        random.setstate(state)
        if was_collecting:
            gc.enable()
