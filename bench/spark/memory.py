"""How much memory tasks need, of a topic that is much larger: the JVM has 1 GB for its heap, and two tasks at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from bench.broker.brokers import Broker
from bench.broker.raw import Raw, Topics
from bench.broker.rounds import busy_seconds
from bench.spark.sessions import Session
from bench.spark.topics import PARTITIONS, produce_batch, values
from minibroker.log.build import build_batch
from minibroker.log.records import Record

TOPIC = "large"
BATCH_RECORDS = 2400  # half a MiB
QUERIES = ("count", "aggregate", "Parquet")


def memory(broker: Broker, work: Path, directory: Path, size_bytes: int, note: Callable[..., None]) -> None:
    records = fill(broker, size_bytes)
    sources = {
        "wire": {"kafka.bootstrap.servers": broker.address},
        "path": {"path": f"{directory}", "endOfLog": "logEnd"},
    }
    for name, options in sources.items():
        session = Session(work / "spark.txt", memory="1g")
        try:
            for query in QUERIES:
                session.forget_peaks()
                told = {"subscribe": TOPIC, **options}
                began, busy, own = time.perf_counter(), busy_seconds(), _used(session, broker)
                done = session.call(
                    "queries:ask", query=query, source="minibroker", options=told, columns="", folder=f"{work}/parquet"
                )
                others = (busy_seconds() - busy - (_used(session, broker) - own)) / (time.perf_counter() - began)
                figures = {"rows_s": records / done["seconds"], "seconds": done["seconds"], **session.peaks()}
                note(f"memory, {size_bytes / (1 << 30):g} GB, {query}", name, 0, figures, others=round(others, 2))
        finally:
            session.stop()


def _used(session: Session, broker: Broker) -> float:
    return sum(session.cpu_seconds().values()) + broker.cpu_seconds() + time.process_time()


def fill(broker: Broker, size_bytes: int) -> int:
    """Produce the same batch again and again, into all partitions; return how many records that makes."""
    chance, now_ms = Random(7), int(time.time() * 1000)
    pool = values(chance, 997)
    rows = [Record(b"key%05d" % each, chance.choice(pool), (), now_ms + each, each) for each in range(BATCH_RECORDS)]
    batch = build_batch(2, rows)
    with Raw(broker.address) as raw:
        topics = Topics(raw)
        topics.create(TOPIC, PARTITIONS)
        for number in range(-(-size_bytes // len(batch))):
            produce_batch(raw, TOPIC, number % PARTITIONS, batch)
        return sum(end - begin for begin, end in topics.ends(TOPIC, PARTITIONS))
