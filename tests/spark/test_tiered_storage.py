"""Kafka with tiered storage whose remote reads are slow: it answers with nothing, and every row comes all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client import Admin, Cluster, Producer
from minibroker.client.descriptions import NewTopic
from minibroker.client.offsets import EARLIEST_LOCAL, FoundOffset, find_offsets
from minibroker.spark.brokers.rows import WireTaskReader
from minibroker.spark.options import parse
from minibroker.spark.reading import plan
from tests.interop.broker import class_path, running
from tests.spark.logs import rows_of
from tests.spark.session import Session

pytestmark = [pytest.mark.interop, pytest.mark.slow]

RECORDS = 12_000
SEGMENT_BYTES = 1 << 20  # Kafka allows no shorter ones
# A remote read has to be quicker than 30 ms, or the answer is empty. Kafka's own 500 are too few for a cold store, and
# with 1 a busy machine never gives a record.
TIERED = """\
remote.log.storage.system.enable=true
remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage
remote.log.metadata.manager.listener.name=PLAINTEXT
rlmm.config.remote.log.metadata.topic.replication.factor=1
rlmm.config.remote.log.metadata.topic.num.partitions=1
remote.log.manager.task.interval.ms=500
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
remote.fetch.max.wait.ms=30
rsm.config.dir="""
LOCAL_SECONDS_MAX = 60
LIFE_SECONDS_MAX = 300  # of the broker: several tests ask it, one of them with a session of Spark


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a topic of which all but the newest segment lies in the remote store."""
    work = tmp_path_factory.mktemp("tiered")
    with Broker(data_dir=work / "data"):
        pass
    settings = f"{TIERED}{work / 'remote'}\n"
    jars = class_path(is_tiered=True)
    with running(work / "data", work / "kafka", settings=settings, jars=jars, seconds_max=LIFE_SECONDS_MAX) as kafka:
        remote = asyncio.run(_fill(kafka.address))
        assert remote > RECORDS / 2
        yield kafka.address


async def _fill(address: str) -> int:
    """Write, and wait until old segments are gone from the broker's disk; return how many records they have."""
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.bytes": f"{SEGMENT_BYTES}"}
    async with Cluster(address) as cluster, Producer(cluster) as producer:
        await Admin(cluster).create_topics([NewTopic("orders", 1, configs=configs)])
        for number in range(RECORDS):
            await producer.send("orders", b"%06d" % number * 50, partition=0)
        await producer.flush()
        clock, key = cluster.clock, ("orders", 0)
        give_up_ms = clock.steady_ms() + LOCAL_SECONDS_MAX * 1000
        while True:
            found = (await find_offsets(cluster, {key: EARLIEST_LOCAL}))[key]
            assert isinstance(found, FoundOffset), found
            if found.offset > RECORDS - 2 * SEGMENT_BYTES // 300:
                return found.offset
            assert clock.steady_ms() < give_up_ms, f"local from {found.offset} on"
            await clock.sleep(100)


def told(address: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": address, "subscribe": "orders"}


def test_every_row_comes(address: str) -> None:
    options = parse(told(address))
    found = [row[4] for task in plan(options) for row in rows_of(WireTaskReader(task, options))]
    assert found == [b"%06d" % number * 50 for number in range(RECORDS)]


def test_a_job_gets_every_row(address: str, spark: Session, tmp_path: Path) -> None:
    summary = spark.call(
        "tests.spark.test_tiered_storage:export_orders", address=address, target=str(tmp_path / "lake")
    )
    assert summary["problems"] == []
    rows = spark.rows("parquet", path=tmp_path / "lake", group_by="partition")
    assert rows == [[0, RECORDS]]


def export_orders(spark: Any, *, address: str, target: str) -> Any:
    from minibroker.spark.jobs.export import export

    return {"problems": export(spark, told(address), target).problems}
