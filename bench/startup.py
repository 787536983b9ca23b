"""How long a broker takes to be there, and what it holds then.

A test that wants a broker waits for it each time, so there are aims: 120 ms from the start of a process to its first
answer, 15 ms for `Broker()` in a running program, 40 MB while nothing happens. The first answer is that to an
ApiVersions request from a raw socket. Cases take turns, so that a busy moment of the machine hits all of them, and the
bare interpreter and `import asyncio` stand beside them as the floor. It prints and never fails: a figure in
milliseconds says as much about the machine as about us.

    python bench/startup.py [ROUNDS]
"""

import os
import socket
import statistics
import struct
import subprocess
import sys
import time

ROUNDS = 15
# api 18, version 0, correlation id 1, client id "bench"
API_VERSIONS = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x05bench"

# Installed packages have their .pyc files; where the environment forbids to write ours, each run would compile again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SERVE = ["serve", "--port", "0", "--memory", "--quiet"]
WITHOUT_UVLOOP = f"import sys; sys.modules['uvloop'] = None; from minibroker.cli import main; main({SERVE})"

# What a program of somebody else does; it has imported asyncio before, as whoever talks to Kafka has.
IN_A_PROGRAM = """
import asyncio, sys, threading, time
if {without_uvloop}:
    sys.modules["uvloop"] = None
marks = [time.perf_counter()]
from minibroker import Broker
marks.append(time.perf_counter())
for _ in range(2):
    broker = Broker().start()
    marks.append(time.perf_counter())
    broker.stop()
    marks.append(time.perf_counter())
print(*(1e3 * (after - before) for before, after in zip(marks, marks[1:])))
"""


def run(code: str) -> tuple[float, str]:
    """Run a program; return its wall time in ms, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=ENVIRONMENT)
    return (time.perf_counter() - start) * 1e3, done.stdout


def first_answer(*arguments: str) -> tuple[float, float]:
    """Start a broker; return the ms to its first answer and the MB that it holds after that (0: nobody says)."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=ENVIRONMENT, text=True)
    assert process.stdout
    with process.stdout:
        host, _, port = process.stdout.readline().strip().rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as client:
            client.sendall(struct.pack(">i", len(API_VERSIONS)) + API_VERSIONS)
            assert client.recv(1024)
            wall_ms = (time.perf_counter() - start) * 1e3
            held_mb = resident_mb(process.pid)
        process.terminate()
        process.wait()
    return wall_ms, held_mb


def resident_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
    except OSError:
        return 0.0


def main(rounds: int = ROUNDS) -> None:
    samples: dict[str, list[float]] = {}

    def note(name: str, figure: float) -> None:
        samples.setdefault(name, []).append(figure)

    for number in range(rounds + 1):
        if number == 1:
            samples.clear()  # the first round writes .pyc files
        note("bare interpreter, ms", run("pass")[0])
        note("import asyncio, ms", run("import asyncio")[0])
        for loop, arguments in (("uvloop", ("-m", "minibroker", *SERVE)), ("asyncio", ("-c", WITHOUT_UVLOOP))):
            wall_ms, held_mb = first_answer(*arguments)
            note(f"first answer, {loop}, ms", wall_ms)
            note(f"idle, {loop}, MB", held_mb)
        for loop, is_without in (("uvloop", False), ("asyncio", True)):
            figures = run(IN_A_PROGRAM.format(without_uvloop=is_without))[1].split()
            names = ("from minibroker import Broker", "Broker() first", "stop first", "Broker() again", "stop again")
            for name, figure in zip(names, figures):
                note(f"{name}, {loop}, ms", float(figure))
    aims = {"first answer": 120, "idle": 40, "Broker()": 15}
    print(f"Python {sys.version.split()[0]}, {rounds} interleaved rounds")
    print(f"{'':<42} {'median':>8} {'least':>8} {'aim':>6}")
    for name, figures in samples.items():
        aim = next((str(aim) for begin, aim in aims.items() if name.startswith(begin)), "")
        print(f"{name:<42} {statistics.median(figures):8.1f} {min(figures):8.1f} {aim:>6}")


if __name__ == "__main__":
    main(max(3, int(sys.argv[1])) if len(sys.argv) > 1 else ROUNDS)
