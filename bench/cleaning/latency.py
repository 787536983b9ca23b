"""What clients notice of a broker that compacts: round trips of one record produced and fetched, on another topic.

The broker is a process with a log on the disk. First it has nothing else to do, then it compacts as fast as it can, as
log.cleaner.io.max.bytes.per.second is not limited by default. One connection, one request at a time.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

from bench.broker.raw import Raw, fetch_frame, produce_frame
from bench.cleaning.logs import Kind, batches, count_of
from minibroker import Broker
from minibroker.log.build import build_batch
from minibroker.log.records import Record

SMALL = build_batch(2, [Record(None, b"x" * 100, (), 0, 0)])
SECONDS = 5.0
FETCH_BYTES = 1 << 20
SEGMENT_BYTES = 64 << 20


def latency(work: Path, kind: Kind, size_bytes: int) -> dict[str, dict[str, float]]:
    """Return percentiles in ms, by what the broker did meanwhile, and how long its pass took."""
    with Broker(process=True, data_dir=work / "latency", log_cleaner_enable=False) as broker:
        broker.create_topic("small")
        broker.create_topic("large", cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
        with Raw(broker.bootstrap_servers) as raw:
            for batch in batches(kind, count_of(kind, size_bytes)):
                answer = raw.send(produce_frame("large", batch))
                assert not answer.responses[0].partition_responses[0].error_code
            broker.roll_now("large")
            offset = round_trips(raw, 0, time.perf_counter() + 1.0)[1]  # warms it up
            idle, offset = round_trips(raw, offset, time.perf_counter() + SECONDS)
            took: list[float] = []
            cleaning = Thread(target=lambda: took.append(compaction(broker)))
            cleaning.start()
            busy, offset = round_trips(raw, offset, None, cleaning)
            cleaning.join()
    return {
        "idle": percentiles(idle),
        "compacting": {**percentiles(busy), "pass_s": took[0], "mb_s": size_bytes / took[0] / 1e6},
    }


def compaction(broker: Broker) -> float:
    start = time.perf_counter()
    (row,) = broker.compact_now("large")
    assert row.passes, row.reason
    return time.perf_counter() - start


def round_trips(raw: Raw, offset: int, until: float | None, during: Thread | None = None) -> tuple[list[float], int]:
    """Produce a record and fetch it, until a time or as long as a thread runs; return ms, and the next offset."""
    produce, found = produce_frame("small", SMALL), []
    while during.is_alive() if during else time.perf_counter() < (until or 0):
        fetch = fetch_frame("small", offset, FETCH_BYTES)
        seconds = raw.round_trips(produce, 1)[0] + raw.round_trips(fetch, 1)[0]
        found.append(seconds * 1e3)
        offset += 1
    return found, offset


def percentiles(found: list[float]) -> dict[str, float]:
    found.sort()
    count = len(found)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {name: found[int(count * share)] for name, share in shares.items()} | {
        "max_ms": found[-1],
        "count": float(count),
    }
