"""Three rings of tests, and the doors that are shut for the innermost.

    make unit     tests of what decides: no socket, no process, no cluster in virtual time; for while one writes
    make check    all that needs no other software and no more than a second each; before a commit
    make test     everything

Unit tests are those in the folders of UNIT but for the ones with the marker `outside`. A unit test that binds or
connects a socket, starts a process, a server or a simulation fails, in whichever ring it runs.

    python -m tests.rings     the folders, for the Makefile
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Generator
from functools import wraps
from multiprocessing import util
from typing import Any

import pytest
import uvloop

from minibroker.server.server import Server
from minibroker.simulation.loop import SimulatedLoop

UNIT = (
    "tests/schema",
    "tests/protocol",
    "tests/log",
    "tests/cleaner",
    "tests/metadata",
    "tests/quotas",
    "tests/controller",
    "tests/replication",
    "tests/groups",
    "tests/transactions",
    "tests/config",
    "tests/client",
    "tests/faults",
    "tests/instances",
    "tests/lessons",
    "tests/tools",
    "tests/watch",
    "tests/test_events.py",
    "tests/test_rings.py",
)
OTHER_RINGS = ("outside", "interop", "slow", "fuzz")  # markers
DOORS: list[tuple[Any, str]] = [
    *((socket.socket, name) for name in ("bind", "connect", "connect_ex", "listen", "sendto", "sendmsg")),
    (subprocess.Popen, "__init__"),
    (os, "system"),
    (util, "spawnv_passfds"),  # processes of multiprocessing
    (os, "fork"),
    (os, "posix_spawn"),
    (Server, "bind"),  # uvloop's sockets are none of Python's
    (uvloop.Loop, "create_server"),
    (uvloop.Loop, "create_connection"),
    (SimulatedLoop, "run_until_complete"),
]


class Doors:
    """Doors to the outside: shut while a unit test runs. What passes one is refused, and kept for the report."""

    def __init__(self) -> None:
        self.are_shut = False
        self.tried: list[str] = []

    def guard(self) -> None:
        for owner, name in DOORS:
            setattr(owner, name, self._guarded(f"{owner.__name__}.{name}", getattr(owner, name)))

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if self.are_shut:
                self.tried.append(name)
                raise AssertionError(f"a unit test calls {name}: give it the marker `outside`")
            return function(*arguments, **named)

        return guarded


class Rings:
    """Plugin of pytest: marks the unit tests, and shuts the doors for them."""

    def __init__(self, doors: Doors):
        self.doors = doors

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            path = item.nodeid.partition("::")[0]
            in_folder = path.startswith(tuple(f"{each}/" for each in UNIT)) or path in UNIT
            if in_folder and not any(item.get_closest_marker(name) for name in OTHER_RINGS):
                item.add_marker("unit")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._shut(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._shut(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._shut(item))

    def _shut(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.doors.are_shut = item.get_closest_marker("unit") is not None
        try:
            return (yield)
        finally:
            self.doors.are_shut = False
            if self.doors.tried:
                tried, self.doors.tried = self.doors.tried, []
                pytest.fail(f"a unit test calls {', '.join(tried)}: give it the marker `outside`")


if __name__ == "__main__":
    print(*UNIT)
