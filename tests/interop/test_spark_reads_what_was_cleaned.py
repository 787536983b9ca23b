"""Spark's Kafka connector reads from our broker what compaction, retention and DeleteRecords have left.

It counts offsets, so it notices what is gone: a gap between two records is none of its business, a first offset that
was deleted is data loss, which it reports or not as it is told.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.client import Admin, Cluster, Producer
from tests.clients import cleaned_topics
from tests.goldens import log_files, log_meaning
from tests.interop.spark import SparkFailed
from tests.spark.session import CONNECTOR, Session, SparkRow

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COMPACTED = "compact"  # of the golden directory: the first 20 records and those from 22 to 28 are gone
OURS = "ours"  # a topic of cleaned_topics.py
DAY_MS = 86_400_000
LOSS = "Some data may have been lost because they are not available in Kafka any more"
OFF = "false"  # for failOnDataLoss

Row = tuple[int, int, str | None, str | None]  # partition, offset, key, value


class Connector:
    """Spark's own, which reads a topic from its beginning if nothing else is said."""

    def __init__(self, session: Session):
        self._session = session

    def batch(self, address: str, topic: str, **options: object) -> list[Row]:
        """Read a topic with one query; SparkFailed says what Spark says."""
        rows = self._session.rows(CONNECTOR, **told(address, topic, options))
        return [row_of(row) for row in rows]

    def stream(self, address: str, topic: str, checkpoint: Path, **options: object) -> list[Row]:
        """Read what there is from a checkpoint on in micro-batches, and leave the checkpoint behind it."""
        given = {"source": CONNECTOR, "options": told(address, topic, options), "checkpoint": str(checkpoint)}
        answer = self._session.call("tests.spark.streaming:available", **given)
        return [row_of(row) for batch in answer["batches"] for row in batch]


def told(address: str, topic: str, options: dict[str, object]) -> dict[str, str]:
    """Return options by Spark's names: an underscore stands for a dot, and a number for the offset of partition 0."""
    words = {
        name.replace("_", "."): value if isinstance(value, str) else json.dumps({topic: {"0": value}})
        for name, value in options.items()
    }
    return {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"} | words


def row_of(row: SparkRow) -> Row:
    key, value, _, partition, offset, *_ = row
    return partition, offset, *(None if raw is None else bytes.fromhex(raw).decode("latin-1") for raw in (key, value))


@pytest.fixture
def connector(spark: Session) -> Connector:
    return Connector(spark)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One with the logs that Kafka's own cleaner has left. Their records are old, and shall stay."""
    root = tmp_path_factory.mktemp("cleaned")
    for path, data in log_files("kraft39-2-after-clean").items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    with Broker(data_dir=root, log_retention_ms=-1, log_initial_task_delay_ms=DAY_MS) as started:
        yield started


@pytest.fixture(scope="module")
def cleaner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that has compacted topics itself; behind the last record is nothing but an empty batch."""
    root = tmp_path_factory.mktemp("ours")
    cleaned_topics.write(root, OURS, int(time.time()) * 1000)
    with Broker(data_dir=root) as started:
        cleaned_topics.clean(started, OURS)
        yield started


def left_in(topic: str, start: int = 0, end: int = 1 << 60) -> list[Row]:
    """Return what Kafka's own reader finds in a partition of the golden directory, aborted transactions and all."""
    segments = log_meaning("kraft39-2-after-clean")["partitions"][f"{topic}-0"]["segments"]
    return [
        (0, record["offset"], record["key"], record["value"])
        for segment in segments
        for batch in segment["batches"]
        for record in ([] if batch["control"] else batch["records"])
        if start <= record["offset"] < end
    ]


def numbers(rows: list[Row]) -> list[int]:
    return [offset for _, offset, _, _ in rows]


async def write(address: str, topic: str, *values: str, age_ms: int = 0) -> None:
    timestamp = int(time.time() * 1000) - age_ms
    async with Cluster(address) as cluster, Producer(cluster) as producer:
        for value in values:
            await producer.send(topic, value.encode(), key=b"k", partition=0, timestamp=timestamp)


async def delete_before(address: str, topic: str, offset: int) -> None:
    async with Cluster(address) as cluster:
        assert await Admin(cluster).delete_records({(topic, 0): offset}) == {(topic, 0): offset}


# Gaps


def test_a_query_reads_all_that_compaction_has_left(connector: Connector, broker: Broker) -> None:
    wanted = left_in(COMPACTED)
    assert numbers(wanted)[:4] == [20, 21, 29, 30]
    assert connector.batch(broker.bootstrap_servers, COMPACTED) == wanted


def test_a_stream_reads_all_that_compaction_has_left_once(connector: Connector, broker: Broker, tmp_path: Path) -> None:
    address, checkpoint = broker.bootstrap_servers, tmp_path / "checkpoint"
    wanted = left_in("compact-fast")
    assert connector.stream(address, "compact-fast", checkpoint) == wanted
    assert connector.stream(address, "compact-fast", checkpoint) == []
    asyncio.run(write(address, "compact-fast", "new"))
    assert connector.stream(address, "compact-fast", checkpoint) == [(0, wanted[-1][1] + 1, "k", "new")]


def test_a_stream_in_small_steps_begins_and_ends_in_holes(connector: Connector, broker: Broker, tmp_path: Path) -> None:
    found = connector.stream(broker.bootstrap_servers, COMPACTED, tmp_path / "checkpoint", maxOffsetsPerTrigger="6")
    assert found == left_in(COMPACTED)


def test_a_query_begins_in_a_hole(connector: Connector, broker: Broker) -> None:
    assert connector.batch(broker.bootstrap_servers, COMPACTED, startingOffsets=24) == left_in(COMPACTED, 24)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_query_over_a_hole_ends_with_nothing(isolation: str, connector: Connector, broker: Broker) -> None:
    found = connector.batch(
        broker.bootstrap_servers, COMPACTED, startingOffsets=22, endingOffsets=28, kafka_isolation_level=isolation
    )
    assert found == left_in(COMPACTED, 22, 28) == []


def test_a_query_ends_at_an_empty_batch(connector: Connector, broker: Broker) -> None:
    """The producer's last batch is kept, empty, at 24; behind it all is gone up to a marker at 37."""
    for end in (25, 30, 38):
        found = connector.batch(broker.bootstrap_servers, "txn-compact", endingOffsets=end)
        assert numbers(found) == numbers(left_in("txn-compact", 0, end)), end


def test_a_query_reads_what_was_committed(connector: Connector, broker: Broker) -> None:
    """Nothing aborted is left below the cleaned point, and the two isolation levels see the same."""
    wanted = left_in("txn-compact")
    for isolation in ("read_uncommitted", "read_committed"):
        assert connector.batch(broker.bootstrap_servers, "txn-compact", kafka_isolation_level=isolation) == wanted


@pytest.mark.parametrize("topic", [OURS, OURS + cleaned_topics.ZSTD_SUFFIX])
def test_what_our_cleaner_has_left_is_read_up_to_the_empty_batch_at_the_end(
    topic: str, connector: Connector, cleaner: Broker, tmp_path: Path
) -> None:
    address, checkpoint, end = cleaner.bootstrap_servers, tmp_path / "checkpoint", cleaned_topics.END
    assert numbers(connector.batch(address, topic)) == cleaned_topics.LEFT
    assert numbers(connector.stream(address, topic, checkpoint)) == cleaned_topics.LEFT
    assert connector.stream(address, topic, checkpoint) == []
    assert connector.batch(address, topic, startingOffsets=100, endingOffsets=end) == []


def test_a_stream_reads_what_was_committed_up_to_an_aborted_transaction(
    connector: Connector, cleaner: Broker, tmp_path: Path
) -> None:
    address, topic = cleaner.bootstrap_servers, OURS + cleaned_topics.TXN_SUFFIX
    committed = {"kafka_isolation_level": "read_committed"}
    assert numbers(connector.stream(address, topic, tmp_path / "checkpoint", **committed)) == cleaned_topics.COMMITTED
    everything = cleaned_topics.COMMITTED + cleaned_topics.ABORTED
    assert numbers(connector.batch(address, topic)) == everything


# What was deleted


def test_a_first_offset_in_a_hole_is_no_loss(connector: Connector, broker: Broker, tmp_path: Path) -> None:
    address, topic = broker.bootstrap_servers, "timestamps"
    asyncio.run(delete_before(address, topic, 7))
    assert numbers(connector.batch(address, topic)) == [*range(7, 24)]
    assert numbers(connector.stream(address, topic, tmp_path / "checkpoint")) == [*range(7, 24)]


def test_a_stream_fails_if_what_it_had_not_read_is_deleted(
    connector: Connector, broker: Broker, tmp_path: Path
) -> None:
    address, topic, checkpoint = broker.bootstrap_servers, "lost", tmp_path / "checkpoint"
    asyncio.run(write(address, topic, *"abc"))
    assert numbers(connector.stream(address, topic, checkpoint)) == [0, 1, 2]
    asyncio.run(write(address, topic, *"defgh"))
    asyncio.run(delete_before(address, topic, 6))
    for _ in range(2):
        with pytest.raises(SparkFailed, match=LOSS):
            connector.stream(address, topic, checkpoint)
    assert numbers(connector.stream(address, topic, checkpoint, failOnDataLoss=OFF)) == [6, 7]
    asyncio.run(write(address, topic, "i"))
    assert numbers(connector.stream(address, topic, checkpoint)) == [8]


def test_a_stream_fails_if_retention_removes_what_it_had_not_read(
    connector: Connector, broker: Broker, tmp_path: Path
) -> None:
    address, topic, checkpoint = broker.bootstrap_servers, "expired", tmp_path / "checkpoint"
    broker.create_topic(topic, retention_ms=7 * DAY_MS)
    asyncio.run(write(address, topic, *"ab", age_ms=8 * DAY_MS))
    assert numbers(connector.stream(address, topic, checkpoint)) == [0, 1]
    asyncio.run(write(address, topic, *"cde", age_ms=8 * DAY_MS))
    broker.roll_now(topic)
    asyncio.run(write(address, topic, *"fg"))
    assert [row.start_offset for row in broker.retention_now(topic)] == [5]
    with pytest.raises(SparkFailed, match=LOSS):
        connector.stream(address, topic, checkpoint)
    assert numbers(connector.stream(address, topic, checkpoint, failOnDataLoss=OFF)) == [5, 6]


def test_a_query_fails_if_what_it_asks_for_is_deleted(connector: Connector, broker: Broker) -> None:
    address, topic = broker.bootstrap_servers, "trimmed"  # its first 17 records were deleted
    with pytest.raises(SparkFailed, match=LOSS):
        connector.batch(address, topic, startingOffsets=3)
    assert connector.batch(address, topic, startingOffsets=3, failOnDataLoss=OFF) == left_in(topic, 17)
    assert connector.batch(address, topic) == left_in(topic, 17)
