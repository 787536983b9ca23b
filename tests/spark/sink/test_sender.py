"""Rows of Arrow become records of topics: where they go, what is refused, and what brokers do in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.errors import EncodeError, Error
from minibroker.log.murmur2 import partition_of_key
from minibroker.spark.columns.reader import HEADERS
from minibroker.spark.sink import sender as sending
from minibroker.spark.sink.options import WriteOptions, parse
from minibroker.spark.sink.rows import BadRow
from minibroker.spark.sink.sender import WriteFailed, write_rows
from minibroker.spark.sink.transaction import WriteTransaction


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def options(broker: Broker, **told: object) -> WriteOptions:
    named = {name.replace("_", "."): str(value) for name, value in told.items()}
    return parse({"kafka.bootstrap.servers": broker.bootstrap_servers} | named)


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(*column) for name, column in columns.items()})


def keyed(count: int, start: int = 0, size: int = 0) -> pa.RecordBatch:
    """Return rows with some keys, whose values are numbers."""
    numbers = range(start, start + count)
    return rows(key=([b"k%d" % (n % 7) for n in numbers],), value=([b"%d" % n + b"." * size for n in numbers],))


def test_every_kind_of_column_is_written(shared: Broker) -> None:
    shared.create_topic("kinds", 3)
    pairs = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    batch = rows(
        key=(["a", None, "", "é", "b"],),
        value=([b"1", b"", None, b"4", b"5"],),
        partition=([2, None, 0, 1, None], pa.int32()),
        timestamp=([1_700_000_000_123_456, None, 0, -1500, 7_000], pa.timestamp("us", "Asia/Kolkata")),
        headers=([[("h", b"1"), ("h", None)], None, [], [("é", b"")], None], pairs),
        offset=([1, 2, 3, 4, 5], pa.int64()),  # passed over
    )
    assert write_rows([batch.slice(0, 2), batch.slice(2)], options(shared, topic="kinds")) == 5
    found = {record.value: record for record in shared.records("kinds")}
    assert {value: record.key for value, record in found.items()} == {
        b"1": b"a",
        b"": None,
        None: b"",
        b"4": "é".encode(),
        b"5": b"b",
    }
    assert [found[value].partition for value in (b"1", None, b"4", b"5")] == [2, 0, 1, partition_of_key(b"b", 3)]
    assert [found[value].timestamp for value in (b"1", None, b"4", b"5")] == [1_700_000_000_123, 0, -2, 7]
    assert found[b""].timestamp > 1_700_000_000_000
    headers = {value: record.headers for value, record in found.items()}
    assert headers == {b"1": (("h", b"1"), ("h", None)), b"": (), None: (), b"4": (("é", b""),), b"5": ()}


def test_topics_may_differ_from_row_to_row_and_the_option_goes_before_them(shared: Broker) -> None:
    for topic in ("left", "right", "middle"):
        shared.create_topic(topic)
    batch = rows(topic=(["left", "right", "left"],), value=(["1", "2", "3"],))
    write_rows([batch], options(shared))
    assert [record.value for record in shared.records("left")] == [b"1", b"3"]
    assert [record.value for record in shared.records("right")] == [b"2"]
    write_rows([batch], options(shared, topic="middle"))
    assert [record.value for record in shared.records("middle")] == [b"1", b"2", b"3"]


def test_times_may_be_numbers(shared: Broker) -> None:
    shared.create_topic("times")
    write_rows([rows(value=(["1", "2"],), timestamp=([7, None], pa.int64()))], options(shared, topic="times"))
    one, other = shared.records("times")
    assert one.timestamp == 7
    assert other.timestamp > 1_700_000_000_000


def test_headers_can_be_left_out(shared: Broker) -> None:
    shared.create_topic("bare")
    batch = rows(value=(["1"],), headers=([[{"key": "h", "value": b"1"}]], HEADERS))
    write_rows([batch], options(shared, topic="bare", includeHeaders="false"))
    assert shared.records("bare")[0].headers == ()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_of_a_key_stay_in_order_whatever_the_pieces(
    codec: str, shared: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PIECE_BYTES", 3000)
    topic = f"order-{codec}"
    shared.create_topic(topic, 3)
    told = options(shared, topic=topic, kafka_batch_size=300, kafka_compression_type=codec)
    assert write_rows([keyed(100, start) for start in range(0, 500, 100)], told) == 500
    found = shared.records(topic)
    assert sorted(int(record.value or b"") for record in found) == list(range(500))
    for partition in range(3):
        numbers = [int(record.value or b"") for record in found if record.partition == partition]
        assert numbers == sorted(numbers)
        assert {partition_of_key(b"k%d" % (n % 7), 3) for n in numbers} <= {partition}


def test_rows_without_a_key_go_to_one_partition_for_a_batch_and_then_to_the_next(shared: Broker) -> None:
    shared.create_topic("spread", 4)
    batch = rows(value=([b"%03d" % n for n in range(400)],))
    told = options(shared, topic="spread", kafka_batch_size=27 * 50)
    write_rows([batch.slice(0, 130), batch.slice(130)], told)
    found = {record.value: record.partition for record in shared.records("spread")}
    start = found[b"000"]  # by the first row
    assert [found[b"%03d" % n] for n in range(400)] == [(start + n // 50) % 4 for n in range(400)]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acknowledgements_are_those_that_were_asked_for(acks: str, shared: Broker) -> None:
    topic = f"acks-{acks}"
    shared.create_topic(topic)
    assert write_rows([keyed(10)], options(shared, topic=topic, kafka_acks=acks)) == 10
    assert len(shared.wait_records(topic, 10)) == 10


# What is refused


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (rows(value=(["1"],), partition=([9], pa.int32())), "partition 9: topic refusing has 2, counted from 0:"),
        (rows(value=(["1"],), partition=([-1], pa.int32())), "partition -1: partitions are counted from 0"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_records_are_refused(batch: pa.RecordBatch, reason: str, shared: Broker) -> None:
    if "refusing" not in shared.topics():
        shared.create_topic("refusing", 2)
    with pytest.raises(BadRow, match=reason):
        write_rows([batch], options(shared, topic="refusing"))


def test_a_header_without_key_is_refused(shared: Broker) -> None:
    batch = rows(value=(["1"],), headers=([[{"key": None, "value": b"1"}]], HEADERS))
    with pytest.raises(EncodeError, match="a header has no key: each has one"):
        write_rows([batch], options(shared, topic="refusing"))


def test_a_row_without_topic_is_refused(shared: Broker) -> None:
    with pytest.raises(BadRow, match="a row has no topic"):
        write_rows([rows(topic=([None], pa.string()), value=(["1"],))], options(shared))


@pytest.mark.slow  # brokers have seconds for making it
def test_a_topic_that_nobody_makes_is_named() -> None:
    with (
        Broker(auto_create_topics_enable=False) as broker,
        pytest.raises(WriteFailed, match=r"topic nowhere: UNKNOWN_TOPIC_OR_PARTITION, .*create it before"),
    ):
        write_rows([keyed(1)], options(broker, topic="nowhere"))


def test_brokers_that_cannot_be_reached_are_named() -> None:
    with Broker() as broker:
        told = options(broker, topic="orders", kafka_delivery_timeout_ms=0, kafka_retries=0)
    with pytest.raises(WriteFailed, match=r"brokers at .*: NETWORK_EXCEPTION, no connection to .*can the brokers be"):
        write_rows([keyed(1)], told)


def test_a_batch_that_is_too_large_is_halved_and_a_record_that_is_too_large_is_told(shared: Broker) -> None:
    shared.create_topic("small", 1, max_message_bytes=500)
    assert write_rows([keyed(200)], options(shared, topic="small")) == 200
    assert [int(record.value or b"") for record in shared.records("small")] == list(range(200))
    shared.create_topic("three", 3, max_message_bytes=500)
    assert write_rows([keyed(300)], options(shared, topic="three", kafka_compression_type="lz4")) == 300
    for partition in range(3):
        found = [int(record.value or b"") for record in shared.records("three") if record.partition == partition]
        assert found == [n for n in range(300) if partition_of_key(b"k%d" % (n % 7), 3) == partition]
    where = r"small-0: a batch of 1 records, 1\d\d\d bytes, could not be written: MESSAGE_TOO_LARGE, .*"
    with pytest.raises(WriteFailed, match=where + "raise max.message.bytes of the topic"):
        write_rows([keyed(10), keyed(1, size=1000)], options(shared, topic="small"))
    with pytest.raises(
        WriteFailed, match=r"topic small: a record of 1\d\d\d bytes is larger than kafka.max.request.size"
    ):
        write_rows([keyed(1, size=1000)], options(shared, topic="small", kafka_max_request_size=900))


# What passes


@pytest.mark.parametrize(
    "fault",
    [
        {"error": "NOT_LEADER_OR_FOLLOWER"},
        {"error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after": True},  # it is there already when it comes again
        {"close": "before"},
        {"close": "after"},
        {"throttle_ms": 20},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("transactional_id", ["", "once"])
def test_what_passes_is_tried_again_and_nothing_comes_twice(
    fault: dict[str, Any], transactional_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "PIECE_BYTES", 300)
    with Broker(topics=["orders:2"]) as broker:
        broker.faults.add(api="Produce", nth=2, **fault)
        rule = broker.faults.add(api="Produce", nth=4, **fault)
        told = options(broker, topic="orders", kafka_retry_backoff_ms=1, kafka_batch_size=1000)
        transaction = WriteTransaction(transactional_id, None, 60_000) if transactional_id else None
        assert write_rows([keyed(100), keyed(100, 100)], told, transaction) == 200
        assert rule.strikes() == 1
        numbers = [int(record.value or b"") for record in broker.records("orders")]
        assert sorted(numbers) == list(range(200))


def test_what_does_not_pass_ends_after_a_while_and_says_where() -> None:
    with Broker(topics=["orders"]) as broker:
        broker.faults.add(api="Produce", error=Error.NOT_ENOUGH_REPLICAS.name)
        told = options(broker, topic="orders", kafka_retry_backoff_ms=1, kafka_retries=3)
        where = (
            r"orders-0: a batch of 5 records, \d+ bytes, could not be written in 4 tries and \d+ ms \(kafka.retries\)"
        )
        with pytest.raises(WriteFailed, match=where + ": NOT_ENOUGH_REPLICAS.*min.insync.replicas"):
            write_rows([keyed(5)], told)
        told = options(broker, topic="orders", kafka_retry_backoff_ms=1, kafka_delivery_timeout_ms=50)
        with pytest.raises(WriteFailed, match=r"kafka\.delivery\.timeout\.ms"):
            write_rows([keyed(5)], told)
        assert broker.records("orders") == []
