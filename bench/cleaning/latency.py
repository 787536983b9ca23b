"""What clients notice of a broker that compacts: round trips of one record produced and fetched, on another topic.

The broker is a process with a log on the disk. First it has nothing else to do, then the policy of the large topic
becomes compact, and the cleaner takes its turn: it rests whenever somebody asks for something. The same once more with
`compact_now`, which does not. One connection, one request at a time.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from threading import Thread

from bench.broker.raw import Raw, fetch_frame, produce_frame
from bench.cleaning.logs import Kind, batches, count_of
from minibroker import Broker
from minibroker.client import Cluster
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import CLEANER_OFFSETS
from minibroker.log.records import Record
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SMALL = build_batch(2, [Record(None, b"x" * 100, (), 0, 0)])
SECONDS, POLL_SECONDS = 5.0, 0.01
BACKOFF_MS = 100  # log.cleaner.backoff.ms
TOPIC, SET = 2, 0  # of IncrementalAlterConfigs
FETCH_BYTES = 1 << 20
SEGMENT_BYTES = 64 << 20


def latency(work: Path, kind: Kind, size_bytes: int) -> dict[str, dict[str, float]]:
    """Return percentiles in ms, by what the broker did meanwhile, and how long its pass took."""
    root = work / "latency"
    with Broker(process=True, data_dir=root, log_cleaner_backoff_ms=BACKOFF_MS) as broker:
        broker.create_topic("small")
        for name in ("large", "hurried"):
            broker.create_topic(name, segment_bytes=SEGMENT_BYTES, retention_ms=-1)
        with Raw(broker.bootstrap_servers) as raw:
            for batch in batches(kind, count_of(kind, size_bytes)):
                for name in ("large", "hurried"):
                    answer = raw.send(produce_frame(name, batch))
                    assert not answer.responses[0].partition_responses[0].error_code
            broker.roll_now()
            offset = round_trips(raw, 0, time.perf_counter() + 1.0)[1]  # warms it up
            idle, offset = round_trips(raw, offset, time.perf_counter() + SECONDS)
            found = {"idle": percentiles(idle)}
            for what, act in (("compacting", partial(turn, root)), ("compact_now", compaction)):
                took: list[float] = []
                cleaning = Thread(target=lambda act=act, took=took: took.append(act(broker)))
                cleaning.start()
                busy, offset = round_trips(raw, offset, None, cleaning)
                cleaning.join()
                found[what] = {**percentiles(busy), "pass_s": took[0], "mb_s": size_bytes / took[0] / 1e6}
    return found


def turn(root: Path, broker: Broker) -> float:
    """Let the cleaner find something to do, and wait until it is done."""
    start = time.perf_counter()
    asyncio.run(_make_compacted(broker.bootstrap_servers, "large"))
    checkpoint = root / CLEANER_OFFSETS
    while not (checkpoint.exists() and "large 0" in checkpoint.read_text()):
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - start


async def _make_compacted(address: str, topic: str) -> None:
    async with Cluster(address) as cluster:
        Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        policy = Resource.AlterableConfig(name="cleanup.policy", config_operation=SET, value="compact")
        wanted = Resource(resource_type=TOPIC, resource_name=topic, configs=[policy])
        answer = await cluster.call(IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False))
        assert not answer.responses[0].error_code, answer


def compaction(broker: Broker) -> float:
    """Compact at once; the cleaner may come first, and is hurried."""
    start = time.perf_counter()
    asyncio.run(_make_compacted(broker.bootstrap_servers, "hurried"))
    broker.compact_now("hurried")
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
