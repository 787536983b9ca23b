"""DataFrames written to topics by Spark: read back by others, refused in planning, and streams that are restarted."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from minibroker import Broker
from minibroker.log.murmur2 import partition_of_key
from minibroker.spark.sink.options import parse
from minibroker.spark.sink.sender import write_rows
from minibroker.spark.sink.transaction import LaterBatch, WriteTransaction
from tests.client.committed import committed_records
from tests.differential.kafka import Kafka, missing_tools
from tests.interop.spark import SparkFailed
from tests.spark.session import CONNECTOR, Session
from tests.spark.sink.test_transaction import batches, leave_open

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
    write_rows(batches(range(ROWS)), parse({"kafka.bootstrap.servers": address, "topic": "numbers"}))


def to(broker: Broker, **told: object) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers} | {
        name.replace("_", "."): str(value) for name, value in told.items()
    }


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


def test_a_batch_can_be_written_whole_or_not_at_all(spark: Session, shared: Broker, tmp_path: Path) -> None:
    shared.create_topic("whole", 2)
    # More than a commit message takes.
    target = to(shared, topic="whole", exactlyOnce="true", spoolLocation=tmp_path)
    query = "select rpad(cast(id as string), 10000, ' ') as value{} from range(0, 100, 1, 2)"
    with pytest.raises(SparkFailed, match="partition 9: topic whole has 2"):
        bad = query.format(", if(id = 99, 9, null) as partition")
        spark.call("tests.spark.sinks:write", query=bad, options=target)
    assert of(shared, "whole") == []
    spark.call("tests.spark.sinks:write", query=query.format(""), options=target)
    assert sorted(int(value or b"") for _, value in of(shared, "whole")) == list(range(100))
    assert [path.name for path in tmp_path.rglob("*")] == ["minibroker-spool"]


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
    return [(record.partition, record.value) for record in committed_records(broker.bootstrap_servers, topic)]


def test_a_stream_goes_on_from_its_checkpoint(spark: Session, shared: Broker, tmp_path: Path) -> None:
    shared.create_topic("plain", 3)
    target = to(shared, topic="plain")
    # More than a commit message takes: rows come to the driver by way of the checkpoint.
    told = streamed(shared, target, tmp_path, columns=["key", "rpad(cast(value as string), 3000, ' ') as value"])
    assert spark.call("tests.spark.sinks:stream", **told) == 2
    check_once_and_in_order(of(shared, "plain"))
    assert [path.name for path in tmp_path.glob("minibroker-*")] == ["minibroker-spool"]
    assert not list((tmp_path / "minibroker-spool").iterdir())
    spark.call("tests.spark.sinks:stream", **told)
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
    assert of(shared, "repeated") == []
    spark.call("tests.spark.sinks:stream", **streamed(shared, patient, tmp_path))
    check_once_and_in_order(of(shared, "repeated"))


def test_each_batch_can_be_written_once_to_several_topics(spark: Session, shared: Broker, tmp_path: Path) -> None:
    for topic in ("one", "two"):
        shared.create_topic(topic, 2)
    writes = [
        to(shared, topic="one", exactlyOnce="true", sinkName="first"),
        to(shared, topic="two", exactlyOnce="true", sinkName="second"),
    ]
    nameless = streamed(shared, {}, tmp_path / "nameless") | {"writes": [to(shared, topic="one", exactlyOnce="true")]}
    del nameless["options"]
    with pytest.raises(SparkFailed, match="exactlyOnce in foreachBatch needs a sinkName"):
        spark.call("tests.spark.sinks:each_batch", **nameless)
    told = streamed(shared, {}, tmp_path / "checkpoint") | {"writes": writes, "fails": str(tmp_path / "failed")}
    del told["options"]
    with pytest.raises(SparkFailed, match="killed behind the writes"):
        spark.call("tests.spark.sinks:each_batch", **told)
    spark.call("tests.spark.sinks:each_batch", **told)
    check_once_and_in_order(of(shared, "one"))
    check_once_and_in_order(of(shared, "two"))


def test_a_checkpoint_that_was_put_back_loses_nothing_in_silence(
    spark: Session, shared: Broker, tmp_path: Path
) -> None:
    shared.create_topic("restored", 2)
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    told = streamed(shared, to(shared, topic="restored"), checkpoint)
    told["given"] |= {"maxOffsetsPerTrigger": "300"}
    spark.call("tests.spark.sinks:stream", **told)
    check_once_and_in_order(of(shared, "restored"))
    shutil.copytree(checkpoint, copy)
    for name in ("offsets/1", "commits/1", "offsets/.1.crc", "commits/.1.crc"):
        (checkpoint / name).unlink()
    told["given"] |= {"maxOffsetsPerTrigger": "10"}  # so the batch is another one than that of its number before
    with pytest.raises(SparkFailed, match=r"batch 1: one of this number with other rows has been written"):
        spark.call("tests.spark.sinks:stream", **told)
    check_once_and_in_order(of(shared, "restored"))
    # Only its note of the commit is missing: as if the driver had been killed in between.
    (copy / "commits/1").unlink()
    (copy / "commits/.1.crc").unlink()
    spark.call("tests.spark.sinks:stream", **told | {"checkpoint": str(copy)})
    check_once_and_in_order(of(shared, "restored"))


def test_a_copy_of_a_checkpoint_writes_to_another_topic(spark: Session, shared: Broker, tmp_path: Path) -> None:
    for topic in ("first", "second"):
        shared.create_topic(topic, 2)
    spark.call("tests.spark.sinks:stream", **streamed(shared, to(shared, topic="first"), tmp_path / "checkpoint"))
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "checkpoint/metadata", tmp_path / "copy/metadata")
    spark.call("tests.spark.sinks:stream", **streamed(shared, to(shared, topic="second"), tmp_path / "copy"))
    check_once_and_in_order(of(shared, "first"))
    check_once_and_in_order(of(shared, "second"))


def test_who_does_not_know_the_query_names_its_writes_itself(spark: Session, shared: Broker, tmp_path: Path) -> None:
    shared.create_topic("named", 2)
    named = to(shared, topic="named", exactlyOnce="true")
    told = streamed(shared, {}, tmp_path / "checkpoint") | {"threaded": True}
    del told["options"]
    with pytest.raises(SparkFailed, match=r"here nobody knows the query: .*inheritable_thread_target.*Set txnAppId"):
        spark.call("tests.spark.sinks:each_batch", **told, writes=[named | {"sinkName": "first"}])
    told |= {"writes": [named | {"txnAppId": "shop", "txnVersion": "BATCH"}], "fails": str(tmp_path / "failed")}
    with pytest.raises(SparkFailed, match="killed behind the writes"):
        spark.call("tests.spark.sinks:each_batch", **told)
    spark.call("tests.spark.sinks:each_batch", **told)
    check_once_and_in_order(of(shared, "named"))


def test_a_stream_cannot_replace_what_is_there(spark: Session, shared: Broker, tmp_path: Path) -> None:
    told = streamed(shared, to(shared, topic="plain"), tmp_path, columns=["count(*) as n", "'a' as value"])
    with pytest.raises(SparkFailed, match="output mode complete: records of a topic cannot be overwritten"):
        spark.call("tests.spark.sinks:stream", **told, mode="complete")


# Kafka's own broker


@pytest.mark.parametrize("version", ["3.9.2", "4.4.0"])
def test_real_kafka_takes_each_row_once(version: str, spark: Session, tmp_path: Path) -> None:
    if missing := missing_tools():
        pytest.skip(f"needs {missing}: Kafka takes what Spark writes")
    with Kafka(version, tmp_path / "kafka", {"auto.create.topics.enable": "true", "num.partitions": "3"}) as kafka:
        fill(kafka.address)
        servers = {"kafka.bootstrap.servers": kafka.address}
        given = servers | {"subscribe": "numbers", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
        asked = {"given": given, "options": servers | {"topic": "out"}, "checkpoint": str(tmp_path / "checkpoint")}
        assert spark.call("tests.spark.sinks:stream", **asked, columns=KEYED) == 2
        # As if Spark had been killed behind the transaction of the last micro-batch.
        (tmp_path / "checkpoint/commits/1").unlink()
        (tmp_path / "checkpoint/commits/.1.crc").unlink()
        spark.call("tests.spark.sinks:stream", **asked, columns=KEYED)
        (query,) = json.loads((tmp_path / "checkpoint/metadata").read_text()).values()
        told = parse(servers | {"topic": "out", "kafka.batch.size": "500", "kafka.compression.type": "zstd"})
        transactional_id = f"minibroker-spark-{query}"
        for _ in range(2):  # drivers that were killed while they wrote the next micro-batch
            leave_open(told, transactional_id, 2, range(ROWS, 800))
        with pytest.raises(LaterBatch):
            write_rows(batches(range(ROWS)), told, WriteTransaction(transactional_id, 0, 60_000))
        assert write_rows(batches(range(ROWS)), told, WriteTransaction(transactional_id, 1, 60_000)) == 0
        rows = spark.rows(
            CONNECTOR, **servers, subscribe="out", startingOffsets="earliest", kafka_isolation_level="read_committed"
        )
        rows.sort(key=lambda row: row[4])
        check_once_and_in_order([(row[3], bytes.fromhex(row[1])) for row in rows])
