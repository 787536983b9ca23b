"""DataFrames written to topics by Spark: read back by others, refused in planning, and streams that are restarted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from minibroker import Broker
from minibroker.client import Cluster
from minibroker.client.groups import Groups
from minibroker.client.partitioner import partition_of_key
from minibroker.spark.sink.options import parse
from tests.differential.kafka import Kafka, missing_tools
from tests.interop.spark import SparkFailed
from tests.spark.session import CONNECTOR, Session

pytestmark = [pytest.mark.interop, pytest.mark.slow]

OURS = "minibroker"
ROWS = 600
KEYED = ["key", "value"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("numbers", 2)
        fill(broker.bootstrap_servers)
        yield broker


def fill(address: str) -> None:
    """Write the topic that streams read: numbers, whose order for each key must stay."""
    from minibroker.spark.sink.task import write_rows
    from tests.spark.sink.test_exactly_once import batches

    write_rows(batches(range(ROWS)), parse({"kafka.bootstrap.servers": address, "topic": "numbers"}))


def to(broker: Broker, **told: object) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers} | {
        name.replace("_", "."): str(value) for name, value in told.items()
    }


def groups(address: str) -> list[str]:
    async def ask() -> list[str]:
        async with Cluster(address) as cluster:
            return [group.id for group in await Groups(cluster).list_groups()]

    return asyncio.run(ask())


ALL_COLUMNS = """
    select if(id % 5 = 0, null, concat('k', id)) as key,
           if(id % 7 = 0, null, cast(concat('value ', id) as binary)) as value,
           'all' as topic,
           if(id % 3 = 0, cast(id % 2 as int), null) as partition,
           timestamp_millis(1700000000000 + id) as timestamp,
           if(id % 4 = 0, null, array(struct('h' as key, cast('x' as binary) as value),
                                      struct('é' as key, cast(null as binary) as value))) as headers,
           id * 2 as ignored
    from range(0, 100, 1, 3)
"""


def test_what_was_written_is_read_by_all(spark: Session, shared: Broker) -> None:
    shared.create_topic("all", 2, retention_ms=-1)  # its records are years old
    spark.call("tests.spark.sinks:write", query=ALL_COLUMNS, options=to(shared, kafka_compression_type="lz4"))
    told = to(shared, subscribe="all", includeHeaders="true")
    wanted = spark.rows(CONNECTOR, **told)
    assert spark.rows(OURS, **told) == sorted(wanted, key=lambda row: row[2:5])
    found = {row[5] // 1000 - 1_700_000_000_000: row for row in wanted}
    assert sorted(found) == list(range(100))
    for number, (key, value, _, partition, _, _, kind, headers) in found.items():
        assert key == (None if number % 5 == 0 else (b"k%d" % number).hex())
        if number % 3 == 0:
            assert partition == number % 2
        elif number % 5:
            assert partition == partition_of_key(b"k%d" % number, 2)
        assert value == (None if number % 7 == 0 else (b"value %d" % number).hex())
        assert kind == 0
        assert headers == (None if number % 4 == 0 else [["h", "78"], ["é", None]])


def test_kafka_python_reads_what_was_written(spark: Session, shared: Broker) -> None:
    kafka = pytest.importorskip("kafka")
    query = "select cast(id as string) as key, cast(id as string) as value from range(1000)"
    shared.create_topic("python", 3)
    spark.call(
        "tests.spark.sinks:write", query=query, options=to(shared, topic="python", kafka_compression_type="zstd")
    )
    consumer = kafka.KafkaConsumer("python", bootstrap_servers=shared.bootstrap_servers, auto_offset_reset="earliest")
    with contextlib.closing(consumer):
        found = [next(consumer) for _ in range(1000)]
    assert sorted(int(record.value) for record in found) == list(range(1000))
    assert all(record.partition == partition_of_key(record.key, 3) for record in found)


def test_a_topic_is_copied_as_it_is(spark: Session, shared: Broker) -> None:
    shared.create_topic("copied", 2)
    given = to(shared, subscribe="numbers", includeHeaders="true")
    spark.call("tests.spark.sinks:copy", source=OURS, given=given, options=to(shared, topic="copied"))
    one, other = (spark.rows(OURS, **to(shared, subscribe=topic)) for topic in ("numbers", "copied"))
    assert len(one) == ROWS
    for row in other:
        row[2] = "numbers"
    assert one == other  # partitions, offsets and times as well


@pytest.mark.parametrize(
    ("query", "told", "reason"),
    [
        ("select 1 as value", {"topic": "x"}, "column value is int: it must be string or binary"),
        ("select 'a' as value", {"topic": "x", "compression": "lz4"}, "no option 'compression'"),
        ("select 'a' as value, 5 as partition", {"topic": "numbers"}, "partition 5: topic numbers has 2"),
    ],
)
def test_what_cannot_be_written_is_refused(
    query: str, told: dict[str, str], reason: str, spark: Session, shared: Broker
) -> None:
    with pytest.raises(SparkFailed, match=reason):
        spark.call("tests.spark.sinks:write", query=query, options=to(shared) | told)


def test_topics_are_only_appended_to(spark: Session, shared: Broker) -> None:
    with pytest.raises(SparkFailed, match=r'mode\("overwrite"\): records of a topic cannot be overwritten'):
        told = to(shared, topic="numbers")
        spark.call("tests.spark.sinks:write", query="select 'a' as value", options=told, mode="overwrite")


def test_tasks_of_a_batch_can_be_exactly_once_too(spark: Session, shared: Broker) -> None:
    shared.create_topic("tasks", 2)
    query = "select cast(id as string) as value from range(0, 100, 1, 2)"
    spark.call("tests.spark.sinks:write", query=query, options=to(shared, topic="tasks", exactlyOnce="true"))
    assert sorted(int(record.value or b"") for record in shared.records("tasks")) == list(range(100))
    assert not [group for group in groups(shared.bootstrap_servers) if "-write-" in group]  # nobody needs them any more


# Streams


def streamed(broker: Broker, target: dict[str, str], checkpoint: Path, **told: Any) -> dict[str, Any]:
    given = to(broker, subscribe="numbers", startingOffsets="earliest", maxOffsetsPerTrigger=400)
    return {"given": given, "options": target, "checkpoint": str(checkpoint), "columns": KEYED} | told


def check_once_and_in_order(records: list[tuple[int, bytes | None]]) -> None:
    assert sorted(int(value or b"") for _, value in records) == list(range(ROWS))
    for partition in {partition for partition, _ in records}:
        found = [int(value or b"") for where, value in records if where == partition]
        for key in range(17):
            of_key = [number for number in found if number % 17 == key]
            assert of_key == sorted(of_key)


def of(broker: Broker, topic: str) -> list[tuple[int, bytes | None]]:
    return [(record.partition, record.value) for record in broker.records(topic)]


def test_a_stream_goes_on_from_its_checkpoint(spark: Session, shared: Broker, tmp_path: Path) -> None:
    shared.create_topic("plain", 3)
    target = to(shared, topic="plain")
    assert spark.call("tests.spark.sinks:stream", **streamed(shared, target, tmp_path)) == 2
    check_once_and_in_order(of(shared, "plain"))
    spark.call("tests.spark.sinks:stream", **streamed(shared, target, tmp_path))
    check_once_and_in_order(of(shared, "plain"))


def test_a_micro_batch_that_is_repeated_is_written_once(spark: Session, shared: Broker, tmp_path: Path) -> None:
    shared.create_topic("repeated", 3)
    patient = to(shared, topic="repeated", kafka_batch_size=500)
    hasty = patient | {"kafka.retries": "0", "kafka.delivery.timeout.ms": "0"}
    faults: list[tuple[int, Literal["before", "after"]]] = [(2, "after"), (3, "before")]
    for nth, how in faults:
        with (
            shared.faults.add(api="Produce", topic="repeated", nth=nth, close=how),
            pytest.raises(SparkFailed, match=r"repeated-\d: .* could not be written.*NETWORK_EXCEPTION"),
        ):
            spark.call("tests.spark.sinks:stream", **streamed(shared, hasty, tmp_path))
    assert shared.records("repeated")
    spark.call("tests.spark.sinks:stream", **streamed(shared, patient, tmp_path))
    check_once_and_in_order(of(shared, "repeated"))


def test_each_batch_can_be_written_once_to_several_topics(spark: Session, shared: Broker, tmp_path: Path) -> None:
    for topic in ("one", "two"):
        shared.create_topic(topic, 2)
    writes = [
        to(shared, topic="one", exactlyOnce="true", sinkName="first"),
        to(shared, topic="two", exactlyOnce="true", sinkName="second"),
    ]
    told = streamed(shared, {}, tmp_path / "checkpoint") | {"writes": writes, "fails": str(tmp_path / "failed")}
    del told["options"]
    with pytest.raises(SparkFailed, match="killed behind the writes"):
        spark.call("tests.spark.sinks:each_batch", **told)
    spark.call("tests.spark.sinks:each_batch", **told)
    check_once_and_in_order(of(shared, "one"))
    check_once_and_in_order(of(shared, "two"))


def test_a_stream_cannot_replace_what_is_there(spark: Session, shared: Broker, tmp_path: Path) -> None:
    told = streamed(shared, to(shared, topic="plain"), tmp_path, columns=["count(*) as n", "'a' as value"])
    with pytest.raises(SparkFailed, match="output mode complete: records of a topic cannot be overwritten"):
        spark.call("tests.spark.sinks:stream", **told, mode="complete")


# Kafka's own broker


def test_real_kafka_takes_each_row_once(spark: Session, tmp_path: Path) -> None:
    if missing := missing_tools():
        pytest.skip(f"needs {missing}: Kafka takes what Spark writes")
    from minibroker.spark.sink.task import write_rows
    from tests.spark.sink.test_exactly_once import GROUP, Killed, batches

    with Kafka("4.4.0", tmp_path / "kafka", {"auto.create.topics.enable": "true", "num.partitions": "3"}) as kafka:
        fill(kafka.address)
        servers = {"kafka.bootstrap.servers": kafka.address}
        told = servers | {"topic": "task", "kafka.batch.size": "500", "kafka.compression.type": "zstd"}
        for done in (150, 300, 250):
            with pytest.raises(Killed):
                write_rows(batches(range(done), killed=True), parse(told), GROUP, 7)
        write_rows(batches(range(ROWS)), parse(told), GROUP, 7)
        write_rows(batches(range(ROWS, ROWS)), parse(told), GROUP, 8)
        given = servers | {"subscribe": "numbers", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
        asked = {"given": given, "options": servers | {"topic": "out"}, "checkpoint": str(tmp_path / "checkpoint")}
        assert spark.call("tests.spark.sinks:stream", **asked, columns=KEYED) == 2
        # As if the last micro-batch had not been committed.
        (tmp_path / "checkpoint/commits/1").unlink()
        (tmp_path / "checkpoint/commits/.1.crc").unlink()
        spark.call("tests.spark.sinks:stream", **asked, columns=KEYED)
        for topic in ("task", "out"):
            rows = spark.rows(CONNECTOR, **servers, subscribe=topic, startingOffsets="earliest")
            rows.sort(key=lambda row: row[4])
            check_once_and_in_order([(row[3], bytes.fromhex(row[1])) for row in rows])
