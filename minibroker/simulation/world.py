"""What code that is not ours asks the machine for: time and chance. While a simulation runs it gets the simulation's.

Ours asks its Clock and its Random, and needs none of this. Names that somebody bound when a module was imported
(`def f(now=time.time)`) escape, and so does compiled code that asks the system itself: pass timestamps to such.
"""

from __future__ import annotations

import gc
import os
import random
import time
from contextlib import contextmanager

from minibroker.clock import LoopClock
from minibroker.simulation.loop import Stray

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.simulation.loop import SimulatedLoop


class SimulatedClock(LoopClock):
    """A Clock that shows a loop's virtual time; its timers are the loop's."""

    def __init__(self, loop: SimulatedLoop):
        self._loop = loop

    def now_ms(self) -> int:
        return self._loop.now_ms()

    def steady_ms(self) -> int:
        return self._loop.now_ms()


def _no_sleep(_seconds: float) -> None:
    raise Stray("time.sleep() would stop the simulation for real")


@contextmanager
def simulated_world(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Replace functions of the time and random modules. No garbage is collected meanwhile."""
    chance = random.Random(seed)
    replaced = [
        (time, "time", lambda: loop.now_ms() / 1000),
        (time, "time_ns", lambda: loop.now_ms() * 1_000_000),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "perf_counter_ns", lambda: int(loop.time() * 1e9)),
        (time, "sleep", _no_sleep),
        (os, "urandom", chance.randbytes),
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
