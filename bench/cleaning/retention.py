"""One look of retention at many partitions: how long a pass takes in all, and its longest piece holds the loop.

Each partition has four segments on the disk, one record in each. First nothing is old enough; then one segment of each
partition is, and goes. Pieces follow each other here; a broker lets others have their turn in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from minibroker import Broker
from minibroker.client import Admin, Cluster, Producer

TOPIC = "many"
SEGMENTS = 4
DAY_MS = 86_400_000


def retention(work: Path, partitions: int) -> dict[str, dict[str, float]]:
    return asyncio.run(_retention(work / "retention", partitions))


async def _retention(root: Path, partitions: int) -> dict[str, dict[str, float]]:
    now_ms = int(time.time() * 1000)
    async with Broker(data_dir=root, log_initial_task_delay_ms=DAY_MS) as broker:
        await broker.acreate_topic(TOPIC, partitions, retention_ms=-1)
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for number in range(SEGMENTS):
                sent = [
                    await producer.enqueue(
                        TOPIC, b"x" * 100, partition=partition, timestamp=now_ms - (SEGMENTS - number) * DAY_MS
                    )
                    for partition in range(partitions)
                ]
                for each in sent:
                    await each
                if number < SEGMENTS - 1:
                    await broker.aroll_now(TOPIC)
            node = broker._engine._node  # type: ignore[union-attr]
            found = {}
            for what, days in (("nothing to do", SEGMENTS + 1), ("one segment each", SEGMENTS - 0.5)):
                change = {("topic", TOPIC): {"retention.ms": str(int(days * DAY_MS))}}
                await Admin(cluster).alter_configs(change)  # type: ignore[arg-type]
                removed = node.cleaning.retention.segments_removed
                found[what] = _timed(node.cleaning.retention._pass())
                found[what]["segments"] = node.cleaning.retention.segments_removed - removed
    return found


def _timed(work: Iterator[float]) -> dict[str, float]:
    pieces, start = [], time.perf_counter()
    since = start
    for _ in work:
        pieces.append(time.perf_counter() - since)
        since = time.perf_counter()
    pieces.append(time.perf_counter() - since)
    pieces.sort()
    return {
        "pass_ms": (time.perf_counter() - start) * 1e3,
        "pieces": float(len(pieces)),
        "piece_p50_ms": pieces[len(pieces) // 2] * 1e3,
        "piece_max_ms": pieces[-1] * 1e3,
    }
