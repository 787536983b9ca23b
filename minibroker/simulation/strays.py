"""What would escape from a simulation: threads, real sockets, other programs, sleeping for real, compiled clients.

What must hold: whoever reaches for one of these in a simulation is told so by a Stray that names it and the line from
which it was reached for, and `SimulatedLoop.strays` keeps it, for foreign code may swallow it. Threads that are not
the simulation's own do what they like.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from minibroker.simulation.loop import SimulatedLoop

Replaced = tuple[Any, str, Any]  # whose attribute, its name, what stands there during a simulation

SLEEP = "time.sleep() would stop the simulation for real: await asyncio.sleep() passes virtual time"
THREAD = (
    "a thread runs in real time, and nobody could replay it: asyncio.to_thread and run_in_executor are run inline in "
    "a simulation, so work by them"
)
SOCKET = (
    "a real socket leads out of the simulation, where there is no such broker: use a client that goes through asyncio, "
    "such as aiokafka"
)
PROGRAM = "another program runs in real time: a simulation has this process only"
COMPILED = (
    "librdkafka has threads, sockets and a clock of its own, which no simulation can hold: use aiokafka here, and test "
    "this one on a minibroker.Broker"
)
# Such clients, where they were imported: by module, the classes that begin to work when they are made.
OTHER_CLIENTS = {
    "confluent_kafka": ("Producer", "Consumer", "SerializingProducer", "DeserializingConsumer"),
    "confluent_kafka.admin": ("AdminClient",),
    "kafka": ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient"),  # swallows what its sockets raise, and goes on
    "confluent_kafka.aio": ("AIOProducer", "AIOConsumer"),
}
# Functions that modules bind by `from time import monotonic`, and whose replacement they would never see.
BOUND = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
NOT_THEIRS = ("minibroker.simulation.", "threading", "subprocess", "socket", "concurrent.futures.", "asyncio.")


def strays(loop: SimulatedLoop) -> list[Replaced]:
    """Return what has to stand in the place of what would escape."""
    own = threading.get_ident()

    def refused(words: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != own:
                return original(*arguments, **named)
            raise loop.stray(f"{words} ({caller()})")

        return refuse

    wanted: list[tuple[Any, str, str]] = [
        (time, "sleep", SLEEP),
        (threading.Thread, "start", THREAD),
        (subprocess.Popen, "__init__", PROGRAM),
        *((socket.socket, name, SOCKET) for name in ("connect", "connect_ex", "bind", "sendto")),
    ]
    return [(whose, name, refused(words, getattr(whose, name))) for whose, name, words in wanted]


def caller() -> str:
    """Name the line that reached for something: the nearest that is no machinery."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not f"{frame.f_globals.get('__name__', '')}.".startswith(NOT_THEIRS):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "nobody knows where"


@contextmanager
def bound_names_follow(find_loop: Callable[[], SimulatedLoop | None]) -> Iterator[None]:
    """Let names that modules have bound to functions of time, or to compiled clients, mean what holds in a simulation.

    find_loop: that of the simulation that runs.
    """
    instead: dict[int, Any] = {}
    for name in BOUND:
        instead[id(getattr(time, name))] = _late(name)
    for module_name, names in OTHER_CLIENTS.items():
        for name in names:
            if (client := getattr(sys.modules.get(module_name), name, None)) is not None:
                instead[id(client)] = _refusing(f"{module_name}.{name}", client, find_loop)
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for known, module in list(sys.modules.items()):
        if known == "time" or known.startswith("minibroker."):
            continue
        globals_of = getattr(module, "__dict__", None) or {}
        for name, value in list(globals_of.items()):
            if (other := instead.get(id(value))) is not None:
                changed.append((globals_of, name, value))
                globals_of[name] = other
    try:
        yield
    finally:
        for globals_of, name, value in changed:
            globals_of[name] = value


def _late(name: str) -> Callable[..., Any]:
    def late(*arguments: Any) -> Any:
        return getattr(time, name)(*arguments)

    return late


def _refusing(shown: str, client: Any, find_loop: Callable[[], SimulatedLoop | None]) -> Callable[..., Any]:
    def refuse(*arguments: Any, **named: Any) -> Any:
        loop = find_loop()
        if loop is None:
            return client(*arguments, **named)
        raise loop.stray(f"{shown}: {SOCKET if shown.startswith('kafka.') else COMPILED} ({caller()})")

    return refuse
