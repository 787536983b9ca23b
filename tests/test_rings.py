"""The doors that are shut for unit tests are shut, and nobody passes them unseen."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from minibroker.simulation.run import simulate
from tests.rings import UNIT

TRIES: dict[str, Callable[[], object]] = {
    "socket.bind": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "socket.connect": lambda: socket.create_connection(("127.0.0.1", 1)),
    "socket.connect_ex": lambda: socket.socket().connect_ex(("127.0.0.1", 1)),
    "socket.listen": lambda: socket.socket().listen(),
    "socket.sendto": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 1)),
    "uvloop": lambda: uvloop.run(asyncio.open_connection("127.0.0.1", 1)),
    "system": lambda: os.system("true"),
    "spawn": lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
    "Popen": lambda: subprocess.run([sys.executable, "-c", ""]),
    "fork": os.fork,
    "SimulatedLoop": lambda: simulate(lambda world: None, 1),  # type: ignore[arg-type,return-value]
}


@pytest.mark.parametrize("name", TRIES)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine .* was never awaited")
def test_a_unit_test_that_goes_outside_is_stopped(name: str, request: pytest.FixtureRequest) -> None:
    doors = request.config.pluginmanager.get_plugin("rings").doors
    with pytest.raises(AssertionError, match=r"a unit test calls .*: give it the marker `outside`"):
        TRIES[name]()
    assert doors.tried, "it is noted, whoever catches the error"
    doors.tried.clear()


def test_the_folders_of_unit_tests_are_there() -> None:
    root = Path(__file__).parents[1]
    assert [each for each in UNIT if not (root / each).exists()] == []


def test_what_a_fixture_does_behind_a_unit_test_is_looked_at_too(request: pytest.FixtureRequest) -> None:
    rings = request.config.pluginmanager.get_plugin("rings")
    teardown = rings.pytest_runtest_teardown(request.node)
    next(teardown)
    assert rings.doors.are_shut
    with pytest.raises(StopIteration):
        teardown.send(None)
    rings.doors.are_shut = True  # as it was: this is a unit test
