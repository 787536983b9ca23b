"""Brokers and the processes around them: a program that forks, one that is killed, what is left when one stops."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from minibroker import Broker, Cluster
from tests.embedded.test_broker import handles

MADE = {
    "broker": "Broker(topics='o')",
    "cluster": "Cluster(2, topics='o')",
    "process": "Broker(process=True, topics='o')",
}
DEADLINE_S = 60  # only bounds a hang

FORKING = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of forks in programs with threads
if {loop!r} == "asyncio":
    sys.modules["uvloop"] = None
from minibroker import Broker, Cluster
from socket import create_connection

with {made} as broker:
    host, _, port = broker.bootstrap_servers.partition(",")[0].rpartition(":")
    with create_connection((host, port)) as client:
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm({deadline})
            try:
                broker.topics()
            except RuntimeError as error:
                print(error, flush=True)
            broker.stop()
            {act}
        assert os.waitpid(child, 0)[1] == 0, "the child died of something"
        assert broker.topics() == {{"o": 1}}

        # A child that lives on holds neither the port nor the client's connection.
        child = os.fork()
        if child == 0:
            os.close(writable)
            os.read(readable, 1)
            os._exit(0)
        os.close(readable)
        broker.stop()
        if {made!r}[:7] == "Broker(" and "process" not in {made!r}:
            assert client.recv(1) == b""
        with broker:
            assert broker.bootstrap_servers.startswith(host + ":" + port)
        os.close(writable)
        os.waitpid(child, 0)
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("act", ["sys.exit(0)", "os._exit(0)"])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("made", MADE)
def test_a_fork_leaves_the_broker_with_the_parent(made: str, loop: str, act: str) -> None:
    program = FORKING.format(made=MADE[made], loop=loop, act=act, deadline=DEADLINE_S)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )
    noun = "cluster" if made == "cluster" else "broker"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"the {noun} runs in the process that this one was forked from", "done"]


POOL = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
from minibroker import Broker

def squared(number):
    return number * number

if __name__ == "__main__":
    with Broker(topics="o") as broker:
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            assert pool.map(squared, range(4)) == [0, 1, 4, 9]
        assert broker.topics() == {{"o": 1}}
    print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_processes_work_beside_a_broker(method: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.py"
    path.write_text(POOL.format(method=method), encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


ORPHAN = """
import os, signal
from minibroker import Broker

broker = Broker(process=True).start()
print(broker._engine._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells of the end of a process that is no child")
def test_a_broker_whose_program_was_killed_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.wait(DEADLINE_S) == -9
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it has ended already
    try:
        ended, _, _ = select.select([handle], [], [], DEADLINE_S)
        assert ended, "the broker is still there"
    finally:
        os.close(handle)


@pytest.mark.slow
def test_serve_stops_with_its_standard_input(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "minibroker", "serve", "--memory", "--port", "0", "--until-stdin-ends"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as serving:  # type: ignore[call-overload]
        assert serving.stdout.readline()
        serving.stdin.write(b"anything\n")
        serving.stdin.flush()
        serving.communicate(timeout=DEADLINE_S)
        assert serving.returncode == 0
    with open(tmp_path / "file", "w+b") as file:
        done = subprocess.run(words, stdin=file, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert b"standard input is to be a pipe or a terminal" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
def test_nothing_is_left_of_it(made: str) -> None:
    def life() -> None:
        with eval(MADE[made], {"Broker": Broker, "Cluster": Cluster}) as broker:
            broker.topics()
            broker.wait_records("o", 0)

    life()  # what is loaded and opened once
    before, threads = handles(), set(threading.enumerate())
    for _ in range(3):
        life()
    assert handles() == before
    assert set(threading.enumerate()) == threads
