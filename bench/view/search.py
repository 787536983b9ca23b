"""What it costs that somebody looks into a large log: produces beside a search, and how long a piece holds the loop.

    produce      single small produces, 30 a second: p50, p95 and max, without and with a search that never ends
    pieces       the longest callback of the loop, by CPU time of its thread, of each thing that HTTP can be asked for;
                 without the broker's own timers, which flush and write notes

The log has 1 GB (--quick: 100 MB) in a topic of one partition, half of its records compressed. Windows with and without
a search alternate; differences are medians of those of neighbours. It prints and never fails.

    python -m bench.view.search [--quick] [--parts produce,pieces]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from random import Random
from typing import Any

from bench.broker.raw import Raw, produce_frame
from bench.view.measure import Callbacks, free_port, percentile, viewer
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.records import Record

PARTS = ("produce", "pieces")
BATCH_RECORDS = 1000
DIFFERENT = 20  # batches
SEARCHES = {
    "text": "text=never%20there",
    "JSON": "path=$.id%20%3D%3D%20-1",
}


def batches_of(size_bytes: int) -> Iterator[bytes]:
    """Yield batches of JSON records, every other one compressed; after some the same come again."""
    chance, now_ms = Random(1), time.time_ns() // 1_000_000  # what is old would be deleted
    different = []
    for number in range(DIFFERENT):
        rows = []
        for at in range(BATCH_RECORDS):
            value = json.dumps({"id": number * BATCH_RECORDS + at, "name": f"{chance.getrandbits(400):x}"})
            rows.append(Record(b"key-%d" % at, value.encode(), (), now_ms, at))
        different.append(build_batch(2, rows, codec=CODEC_NAMES.index("lz4") if number % 2 else 0))
    made = 0
    for batch in cycle(different):
        if made >= size_bytes:
            return
        made += len(batch)
        yield batch


@contextmanager
def broker(directory: str, port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "minibroker", "serve", "--quiet", "--data-dir", directory, "--port", str(port)]
    command += ["--topic", "large", "--topic", "small"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def produce(size_bytes: int, rounds: int, window_s: float) -> None:
    directory, port = tempfile.mkdtemp(), free_port()
    print(f"single produces, 30 a second, beside a search of {size_bytes / 1e6:,.0f} MB: ms")
    print(f"{'search':8} {'p50':>6} {'p95':>6} {'max':>6}   p95 of pairs differs by")
    try:
        with broker(directory, port), Raw(f"127.0.0.1:{port}") as raw:
            for batch in batches_of(size_bytes):
                raw.round_trips(produce_frame("large", batch), 1)
            frame = produce_frame("small", build_batch(2, [Record(None, b"x" * 100)]))

            def measure() -> list[float]:
                took = []
                for _ in range(int(window_s * 30)):
                    took += [1000 * each for each in raw.round_trips(frame, 1)]
                    time.sleep(1 / 30)
                return took

            measure()
            for name, query in SEARCHES.items():
                alone, beside = [], []
                for number in range(rounds):
                    for with_search in ((False, True), (True, False))[number % 2]:
                        if with_search:
                            with viewer(port, f"/api/topics/large/search?{query}&seconds=600"):
                                beside.append(measure())
                        else:
                            alone.append(measure())
                for label, windows in (("none", alone), (name, beside)):
                    p50, p95, most = (
                        statistics.median(percentile(each, share) for each in windows) for share in (0.5, 0.95, 1.0)
                    )
                    pairs = [percentile(b, 0.95) - percentile(a, 0.95) for a, b in zip(alone, beside, strict=True)]
                    note = "" if label == "none" else f"{statistics.median(pairs):+.2f}"
                    print(f"{label:8} {p50:6.2f} {p95:6.2f} {most:6.2f}   {note}", flush=True)
                tell_rate(port, query)
    finally:
        shutil.rmtree(directory)


def tell_rate(port: int, query: str) -> None:
    """Say how far a search comes in twenty seconds."""
    import socket

    with socket.create_connection(("127.0.0.1", port)) as found:
        path = f"/api/topics/large/search?{query}&seconds=20"
        found.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        text = b""
        while data := found.recv(65536):
            text += data
    end = json.loads(text.rpartition(b"data: ")[2])
    rate = f"{end['bytes'] / end['seconds'] / 1e6:.0f} MB and {end['records'] / end['seconds']:,.0f} records a second"
    print(f"         it goes through {rate}; it ended because of: {end['why']}", flush=True)


async def measure_pieces(size_bytes: int) -> None:
    from minibroker.clock import LoopClock
    from minibroker.log.memory_storage import MemoryStorage
    from tests.server.running import connected, running

    async with running(storage=MemoryStorage(LoopClock().now_ms)) as node:
        node.create_topic("large", 1)
        replica = node.replicas["large", 0]
        now_ms = node.clock.now_ms()
        for batch in batches_of(size_bytes):
            replica.append(batch, now_ms=now_ms, steady_ms=0)
        huge = [Record(b"k", b'{"a": "' + b"x" * 900_000 + b'"}', (), now_ms, 0)]
        replica.append(build_batch(2, huge), now_ms=now_ms, steady_ms=0)
        headers = tuple((f"name {at}", b"v" * 10) for at in range(30_000))
        replica.append(build_batch(2, [Record(b"k", b"", headers, now_ms, 0)]), now_ms=now_ms, steady_ms=0)
        few = [Record(b"key", b"value %d" % at, (), now_ms, at) for at in range(200)]
        replica.append(build_batch(2, few, codec=CODEC_NAMES.index("gzip")), now_ms=now_ms, steady_ms=0)
        small = [Record(None, b"", (), now_ms, at) for at in range(100_000)]
        replica.append(build_batch(2, small), now_ms=now_ms, steady_ms=0)
        end = replica.log.log_end_offset
        before = end - len(small)  # behind the huge one, the one with headers, and a few

        async def get(path: str) -> bytes:
            async with connected(node) as client:
                client.send(f"GET /api/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                return await client.reader.read()

        asks: dict[str, str] = {
            "newest 200": "topics/large/records?newest=200&max_bytes=8388608",
            "200 from the beginning": "topics/large/records?offset=0&limit=200&max_bytes=8388608",
            "a value of 900 KB, whole": f"topics/large/records?offset={before - len(few) - 2}&whole=1",
            "30,000 headers": f"topics/large/records?offset={before - len(few) - 1}&whole=1",
            "in a batch of 100,000 records": f"topics/large/records?offset={end - 5}",
            "search for a text": "topics/large/search?text=never&seconds=20",
            "search for a field": "topics/large/search?path=$.id%20%3D%3D%20-1&seconds=20",
            "topics": "topics",
            "a topic": "topics/large",
            "a log": "log/large/0",
            "entries of indexes": "log/large/0?segment=0",
            "lookup of an offset": "log/large/0/lookup?offset={middle}",
            "lookup of a time": f"log/large/0/lookup?time={now_ms}",
            "bytes of 100 records": "log/large/0/bytes?offset={middle}&records=100",
            "bytes of a batch with 100,000 records": "log/large/0/bytes?offset={last}&records=100&compare=1",
            "bytes of a value of 900 KB": "log/large/0/bytes?offset={huge}&compare=1",
            "bytes, and what was sent": "log/large/0/bytes?offset={few}&records=100&compare=1",
        }
        print(f"longest callback, {size_bytes / 1e6:,.0f} MB in one partition: ms of CPU time")
        for name, path in asks.items():
            path = path.format(middle=before // 2, last=end - 5, huge=before - len(few) - 2, few=before - 1)
            await get(path)
            with Callbacks() as callbacks:
                answer = await get(path)
            status = answer.split(b" ", 2)[1].decode()
            longest, what = max(each for each in callbacks.took if "BrokerTimer" not in each[1])
            print(f"{name:40} {longest / 1e6:6.2f}   {status}, {len(answer):,} bytes", flush=True)
            if longest > 5e6:
                print(f"    {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs that somebody searches a large log.")
    parser.add_argument("--quick", action="store_true", help="100 MB, three rounds of three seconds")
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    size_bytes = 100_000_000 if options.quick else 1_000_000_000
    parts: dict[str, Callable[[], Any]] = {
        "produce": lambda: produce(size_bytes, *((3, 3.0) if options.quick else (10, 5.0))),
        "pieces": lambda: asyncio.run(measure_pieces(min(size_bytes, 100_000_000))),
    }
    for part in options.parts.split(","):
        parts[part]()
        print(flush=True)


if __name__ == "__main__":
    main()
