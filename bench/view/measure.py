"""What it costs that somebody looks: brokers of ours without and with a viewer of /api/events, by turns in one run.

    produce      single small produces, 30 a second: p50, p95 and max; 3 brokers, 100 and 10,000 partitions
    load         CPU time of the process at 100,000 records a second, in batches of 1,000, to 6 partitions of 3 replicas
    stretches    the longest that any callback held the loop, by CPU time of its thread, with 10,000 partitions:
                 while a viewer comes, while he looks, while all rows are asked for, while a broker is killed

The viewer is a process of its own that reads all it gets. Windows with and without him alternate; figures are medians
of windows, differences medians of those of neighbours. It prints and never fails.

    python -m bench.view.measure [--quick] [--parts produce,load,stretches]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import statistics
import subprocess
import sys
import time
from asyncio import events as asyncio_events
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.broker.raw import Raw, produce_frame
from bench.cluster.watched import new_cluster
from minibroker.clock.steered import SteeredClock
from minibroker.events import EventStream
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.view.selection import parse_query

PARTS = ("produce", "load", "stretches")
TICK_S = os.sysconf("SC_CLK_TCK")
VIEWER = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
count = 0
while data := s.recv(65536):
    if not count:
        print("looking", flush=True)
    count += len(data)
"""


class Plan(NamedTuple):
    rounds: int
    window_s: float


QUICK, FULL = Plan(3, 3.0), Plan(10, 5.0)


@contextmanager
def brokers(port: int) -> Iterator[int]:
    """Serve three brokers in memory; yield the id of the process."""
    command = [
        sys.executable,
        "-m",
        "minibroker",
        "serve",
        "--quiet",
        "--brokers",
        "3",
        "--memory",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def viewer(port: int, path: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", VIEWER, str(port), path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.0)  # for the state to come and be read
    try:
        yield
    finally:
        process.kill()
        process.wait()
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_S


def create(raw: Raw, topics: Sequence[tuple[str, int, int]]) -> None:
    from minibroker.protocol import message

    request: Any = message("CreateTopicsRequest")
    for name, partitions, replicas in topics:
        topic = request.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
        )
        answer = raw.ask("CreateTopicsRequest", topics=[topic], timeout_ms=60_000)
        assert answer.topics[0].error_code == 0, answer
    time.sleep(2.0 + sum(count * replicas for _, count, replicas in topics) / 5000)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def alternate(plan: Plan, port: int, path: str, measure: Any) -> tuple[list[Any], list[Any]]:
    """Return what was measured without and with a viewer, window by window."""
    alone, watched = [], []
    for number in range(plan.rounds):
        for with_viewer in ((False, True), (True, False))[number % 2]:
            if with_viewer:
                with viewer(port, path):
                    watched.append(measure())
            else:
                alone.append(measure())
    return alone, watched


def produce(plan: Plan) -> None:
    print("single produces, acks=all, 30 a second: ms")
    print(f"{'partitions':>10}  {'viewer':8} {'p50':>6} {'p95':>6} {'max':>6}   p95 of pairs differs by")
    for topics in ([("t0", 100, 3)], [("t0", 64, 3), *((f"t{number}", 994, 1) for number in range(1, 11))]):
        port = free_port()
        with brokers(port), Raw(f"127.0.0.1:{port}") as raw:
            create(raw, topics)
            frame = produce_frame("t0", build_batch(2, [Record(None, b"x" * 100)]))

            def measure(raw: Raw = raw, frame: bytes = frame) -> list[float]:
                took = []
                for _ in range(int(plan.window_s * 30)):
                    took += [1000 * each for each in raw.round_trips(frame, 1)]
                    time.sleep(1 / 30)
                return took

            measure()
            alone, watched = alternate(plan, port, "/api/events?topics=t0&sums=1&clients=1", measure)
        count = sum(each for _, each, _ in topics)
        for name, windows in (("none", alone), ("one", watched)):
            p50, p95, most = (
                statistics.median(percentile(each, share) for each in windows) for share in (0.5, 0.95, 1.0)
            )
            differences = [percentile(b, 0.95) - percentile(a, 0.95) for a, b in zip(alone, watched, strict=True)]
            note = f"{statistics.median(differences):+.2f}" if name == "one" else ""
            print(f"{count:>10,}  {name:8} {p50:6.2f} {p95:6.2f} {most:6.2f}   {note}", flush=True)


def load(plan: Plan) -> None:
    print(
        "CPU time of the process at 100,000 records a second (batches of 1,000 x 100 B, 6 partitions x 3 replicas): %"
    )
    port = free_port()
    with brokers(port) as pid, Raw(f"127.0.0.1:{port}") as first:
        create(first, [(f"t{number}", 1, 3) for number in range(6)])
        names = {each.node_id: f"{each.host}:{each.port}" for each in first.ask("MetadataRequest", topics=None).brokers}
        answer = first.ask("MetadataRequest", topics=None)
        leaders = {topic.name: topic.partitions[0].leader_id for topic in answer.topics}
        raws = {node: Raw(address) for node, address in names.items()}
        batch = build_batch(2, [Record(None, b"x" * 100)] * 1000)
        rates: list[float] = []
        frames = [(raws[leaders[f"t{number}"]], produce_frame(f"t{number}", batch)) for number in range(6)]

        def measure() -> float:
            begun_s, begun_cpu_s, sent = time.perf_counter(), cpu_s(pid), 0
            while (now_s := time.perf_counter() - begun_s) < plan.window_s:
                if sent < now_s * 100:
                    raw, frame = frames[sent % 6]
                    raw.round_trips(frame, 1)
                    sent += 1
                else:
                    time.sleep(0.002)
            rates.append(sent * 1000 / plan.window_s)
            return (cpu_s(pid) - begun_cpu_s) / sent * 100 * 100  # % of a core for 100 batches a second

        measure()
        alone, watched = alternate(plan, port, "/api/events?sums=1&clients=1", measure)
    differences = [100 * (b - a) / a for a, b in zip(alone, watched, strict=True)]
    print(f"{statistics.median(rates):,.0f} records a second;", end=" ")
    print(f"without {statistics.median(alone):.1f}, with a viewer {statistics.median(watched):.1f};", end=" ")
    print(
        f"pairs differ by {statistics.median(differences):+.1f} % of it ("
        + ", ".join(f"{each:+.0f}" for each in differences)
        + ")"
    )


class Callbacks:
    """How long each callback of the loop took, of CPU time of the thread, without the collector of garbage."""

    def __init__(self) -> None:
        self.took: list[tuple[int, str]] = []
        self.collected_ns: list[int] = []  # each time that it looked through everything
        self._run = asyncio_events.Handle._run
        self._collecting_ns = self._begun_ns = 0

    def __enter__(self) -> Callbacks:
        run, took = self._run, self.took

        def timed(handle: Any) -> None:
            begun_ns, self._collecting_ns = time.thread_time_ns(), 0
            run(handle)
            took.append((time.thread_time_ns() - begun_ns - self._collecting_ns, repr(handle)))

        gc.callbacks.append(self._collects)

        asyncio_events.Handle._run = timed  # type: ignore[method-assign]
        return self

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun_ns = time.thread_time_ns()
            return
        took_ns = time.thread_time_ns() - self._begun_ns
        self._collecting_ns += took_ns
        if info["generation"] == 2:
            self.collected_ns.append(took_ns)

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collects)
        asyncio_events.Handle._run = self._run  # type: ignore[method-assign]


class Reader:
    """A viewer in this process who reads at once."""

    is_full = False
    sent_bytes = 0

    def send(self, data: bytes) -> None:
        self.sent_bytes += len(data)

    def close(self, reason: str = "") -> None: ...


async def measure_stretches(plan: Plan) -> None:
    clock = SteeredClock()
    engine = new_cluster(clock, EventStream(clock.now_ms), 3)
    await engine.start()
    gc.freeze()  # as minibroker serve does
    gc.set_threshold(20_000, 20, 50)
    cluster = engine.core
    cluster.create_topic("t0", 64, replication_factor=3)
    for number in range(1, 11):
        cluster.create_topic(f"t{number}", 994, replication_factor=1)
    await cluster.waits.in_sync(timeout=120)
    batch = build_batch(2, [Record(None, b"x" * 100)])
    selection = parse_query("topics=t0&sums=1&clients=1", may_be_all=False)

    async def busy(seconds: float) -> None:
        for _ in range(int(seconds * 50)):
            for number in range(64):
                replica = cluster.leader("t0", number)
                assert replica is not None
                replica.append(batch, now_ms=clock.now_ms(), steady_ms=clock.steady_ms())
            await asyncio.sleep(0.02)

    def tell(name: str, callbacks: Callbacks) -> None:
        took = sorted(callbacks.took)
        own = [each for each in took if "Shares" in each[1] or "Watching" in each[1] or "HttpConnection" in each[1]]
        longest = own[-1][0] / 1e6 if own else 0.0
        p99 = own[int(len(own) * 0.99)][0] / 1e6 if own else 0.0
        print(
            f"{name:42} {longest:6.2f} {p99:6.2f} {took[-1][0] / 1e6:8.2f}   {len(callbacks.collected_ns)}", flush=True
        )

    async def killed(meanwhile: str) -> None:
        with Callbacks() as callbacks:
            await cluster.kill(3)
            await asyncio.sleep(3)
        tell(f"a broker is killed while {meanwhile}", callbacks)
        await cluster.start(3)
        await cluster.waits.in_sync(timeout=120)

    print("longest callback, 10,004 partitions: ms of CPU time")
    print(f"{'':42} {'feed':>6} {'p99':>6} {'any':>8}   collections of all garbage")
    for round_number in range(2 if plan is QUICK else 4):
        with Callbacks() as callbacks:
            await busy(plan.window_s)
        tell("nobody looks", callbacks)
        reader = Reader()
        with Callbacks() as callbacks:
            viewer_of_it = cluster.feed.open(selection, reader)
            await asyncio.sleep(2)
        tell("a viewer comes", callbacks)
        with Callbacks() as callbacks:
            await busy(plan.window_s)
        tell(f"he looks ({reader.sent_bytes / 1000:.0f} KB in all)", callbacks)
        with Callbacks() as callbacks:
            text = await cluster.feed.show(parse_query("parts=all", may_be_all=True))
        tell(f"all rows are asked for ({len(text) / 1e6:.1f} MB)", callbacks)
        if round_number % 2:
            await killed("he looks")
        cluster.feed.leave(viewer_of_it)
        cluster.feed.close()
        if not round_number % 2:
            await killed("nobody looks")
    await cluster.kill_all()


def stretches(plan: Plan) -> None:
    asyncio.run(measure_stretches(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs that somebody looks.")
    parser.add_argument("--quick", action="store_true", help="three rounds of three seconds")
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    for part in options.parts.split(","):
        {"produce": produce, "load": load, "stretches": stretches}[part](plan)
        print(flush=True)


if __name__ == "__main__":
    main()
