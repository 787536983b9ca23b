"""What requests of many small elements cost a broker: `make amplification` prints the table.

For each body of amplified.py: processor time and memory per byte that came in, the longest stretch that the loop gave
to one callback, and what an innocent client beside it had to wait: 99 of 100 of its pings, of so many that this is not
their longest. The request is sent again until there are as many, by a process of its own (sender.py). What is above the
bar, twice the quiet value and 5 ms, is marked and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path as FilePath

from minibroker.broker.apis import SERVED
from minibroker.protocol.registry import APIS, request_class
from minibroker.schema.plan import message_plan
from tests.server.amplified import KINDS, Path, arrays, body, frame, versions_of
from tests.server.sender import LAST_ID, WAIT_SECONDS, exactly

SIZES = {"1K": 1024, "64K": 65536, "1M": 1 << 20, "8M": 8 << 20}
PING = frame(18, 0, b"")
LAST = PING.replace(PING[8:12], LAST_ID, 1)
PAUSE_SECONDS = 0.0005  # between pings
PINGS_MIN = 300
REPEATS_MAX = 150
TOLD_MS = 15  # from here on the table says which callback it was


class Figures:
    """One request."""

    def __init__(self) -> None:
        self.outcome = "answered"
        self.answer_bytes = 0
        self.cpu_ms = self.grown_bytes = self.longest_ms = 0.0
        self.callback = ""
        self.innocent_ms: list[float] = []
        self.seconds = 0.0

    def add(self, again: Figures) -> None:
        """Take in the same request, sent once more."""
        if self.outcome == "answered":
            self.outcome = again.outcome
        if again.longest_ms > self.longest_ms:
            self.longest_ms, self.callback = again.longest_ms, again.callback
        self.cpu_ms = max(self.cpu_ms, again.cpu_ms)
        self.grown_bytes = max(self.grown_bytes, again.grown_bytes)
        self.innocent_ms += again.innocent_ms
        self.seconds += again.seconds


class Measured:
    """A broker that is measured, with an innocent client."""

    def __init__(self, *settings: str, root: str | None = None):
        program = FilePath(__file__).with_name("measured_broker.py")
        environment = dict(os.environ, PYTHONPATH=root) if root else dict(os.environ)
        self._stderr = os.memfd_create("stderr")  # a pipe would be full some time
        self._heard_bytes = 0  # of it
        self.process = subprocess.Popen(
            [sys.executable, str(program), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment,
            cwd=root,
        )
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())
        self._frame = os.memfd_create("frame")
        self._sender = subprocess.Popen(
            [
                sys.executable,
                str(program.with_name("sender.py")),
                str(self.port),
                f"/proc/{os.getpid()}/fd/{self._frame}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._innocent = socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)
        self._innocent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(200):
            self.ping()

    def close(self) -> None:
        self._innocent.close()
        for process in (self.process, self._sender):
            process.kill()
            process.communicate()
        os.close(self._stderr)
        os.close(self._frame)

    def tracebacks(self) -> str:
        """Return what the broker has said since the last call, from an error of our own on; nothing without one."""
        said = os.pread(self._stderr, 1 << 24, self._heard_bytes)
        self._heard_bytes += len(said)
        return "".join(said.decode(errors="replace").partition("Traceback")[1:])

    def report(self) -> dict[str, float | str]:
        """Return the longest stretch since the last report."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, float | str] = json.loads(self.process.stdout.readline())
        return found

    def cpu_ns(self) -> int:
        tasks = FilePath(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def memory(self, name: str) -> int:
        for line in FilePath(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise KeyError(name)

    def ping(self) -> float:
        begun = time.perf_counter()
        self._innocent.sendall(PING)
        left = int.from_bytes(exactly(self._innocent, 4), "big")
        exactly(self._innocent, left)
        return (time.perf_counter() - begun) * 1000

    def quiet_pings(self, count: int) -> list[float]:
        found = []
        for _ in range(count):
            found.append(self.ping())
            time.sleep(PAUSE_SECONDS)
        return found

    def send(self, data: bytes, *, pings: bool = True) -> Figures:
        """Send a request, and return what it cost until it was answered or the connection closed."""
        figures = Figures()
        self.report()
        FilePath(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        memory_before, cpu_before, begun = self.memory("VmRSS"), self.cpu_ns(), time.perf_counter()
        assert self._sender.stdin
        assert self._sender.stdout
        os.ftruncate(self._frame, 0)
        os.pwrite(self._frame, data + LAST, 0)
        self._sender.stdin.write("\n")
        self._sender.stdin.flush()
        try:
            while pings and not select.select([self._sender.stdout], [], [], 0)[0]:
                figures.innocent_ms.append(self.ping())
                time.sleep(PAUSE_SECONDS)
            # Behind it comes a request that is always answered: some, such as Produce with acks 0, are not.
            figures.outcome, figures.answer_bytes = json.loads(self._sender.stdout.readline())
            self.ping()
        except TimeoutError:
            figures.outcome = "starves"
            figures.innocent_ms.append(WAIT_SECONDS * 1000)
        figures.seconds = time.perf_counter() - begun
        figures.cpu_ms = (self.cpu_ns() - cpu_before) / 1e6
        figures.grown_bytes = max(self.memory("VmHWM") - memory_before, 0)
        if figures.outcome != "starves":
            found = self.report()
            figures.longest_ms, figures.callback = float(found["longest_ms"]), str(found["callback"])
        return figures


def cases(apis: list[int], *, newest: bool = False) -> Iterator[tuple[int, int, Path, str]]:
    for api in apis:
        for version in versions_of(api)[-1:] if newest else versions_of(api):
            for path in arrays(message_plan(request_class(api), version)):
                for kind in KINDS:
                    yield api, version, path, kind


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] if values else 0.0


HEAD = (
    f"{'request':58} {'size':>4} {'outcome':8} {'answer KB':>9} {'cpu ms':>8} {'us/B':>7} "
    f"{'MB':>7} {'B/B':>7} {'loop ms':>8} {'pings':>6} {'p99':>7} {'max':>8}"
)


def row(name: str, label: str, size: int, figures: Figures, bar_ms: float) -> str:
    most, p99 = max(figures.innocent_ms, default=0), percentile(figures.innocent_ms, 0.99)
    marks = ["above the bar"] * (p99 > bar_ms) + [figures.callback] * (figures.longest_ms > TOLD_MS)
    return (
        f"{name:58} {label:>4} {figures.outcome:8} {figures.answer_bytes / 1e3:9.0f} {figures.cpu_ms:8.1f} "
        f"{figures.cpu_ms * 1e3 / size:7.2f} {figures.grown_bytes / 1e6:7.1f} {figures.grown_bytes / size:7.1f} "
        f"{figures.longest_ms:8.1f} {len(figures.innocent_ms):6} {p99:7.1f} {most:8.1f} {', '.join(marks)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser("make amplification")
    parser.add_argument("--apis", help="numbers with commas between them; all by default")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--newest", action="store_true", help="no older versions")
    parser.add_argument("--root", help="a folder that holds another minibroker")
    options = parser.parse_args()
    apis = [int(each) for each in options.apis.split(",")] if options.apis else sorted(SERVED)
    print(HEAD)
    rows = above = 0
    for api in apis:
        broker = Measured(root=options.root)
        quiet = percentile(broker.quiet_pings(500), 0.99)
        bar_ms = 2 * quiet + 5
        print(f"# {APIS[api]}: p99 of an innocent client when it is quiet {quiet:.2f} ms")
        warm = set()
        for number, version, path, kind in cases([api], newest=options.newest):
            if version not in warm:  # modules and codecs are made with the first request
                warm.add(version)
                broker.send(frame(number, version, body(number, version, path, "same", 1)), pings=False)
            for label in options.sizes.split(","):
                data = frame(number, version, body(number, version, path, kind, SIZES[label] - 100))
                name = f"{APIS[number]} v{version} {'.'.join(path)} {kind}"
                figures = broker.send(data)
                for _ in range(REPEATS_MAX):
                    if len(figures.innocent_ms) >= PINGS_MIN or figures.outcome in ("starves", "waits"):
                        break
                    figures.add(broker.send(data))
                rows += 1
                above += percentile(figures.innocent_ms, 0.99) > bar_ms
                print(row(name, label, len(data), figures, bar_ms), flush=True)
                if figures.outcome in ("starves", "waits") or figures.grown_bytes > 500e6:
                    broker.close()
                    broker = Measured(root=options.root)
        broker.close()
    print(f"# {above} of {rows} are above the bar: a p99 of twice the quiet value and 5 ms")


if __name__ == "__main__":
    main()
