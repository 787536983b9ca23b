"""A micro-batch is visible once, whole or not at all: whatever fails, and however often it is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.spark.sink import sender as sending
from minibroker.spark.sink.options import WriteOptions, parse
from minibroker.spark.sink.rows import BadRow, pieces
from minibroker.spark.sink.sender import Sender, WriteFailed, open_cluster, write_rows
from minibroker.spark.sink.transaction import LaterBatch, WriteTransaction
from tests.client.committed import committed_records

ROWS = 400
ID = "minibroker-spark-query"
TIMEOUT_MS = 60_000
LOOK_MS = 20_000  # so much later at most the coordinator has seen that a transaction is late


@pytest.fixture(params=[None, "3.9"], ids=["v2", "classic"])
def broker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(sending, "PIECE_BYTES", 2000)
    as_version = {"as_version": request.param} if request.param else {}
    with Broker(topics=["orders:3"], **as_version) as broker:
        yield broker


def options(broker: Broker, **told: object) -> WriteOptions:
    named = {name.replace("_", "."): str(value) for name, value in told.items()}
    named = {"topic": "orders", "kafka.batch.size": "500", "kafka.retry.backoff.ms": "1"} | named
    return parse({"kafka.bootstrap.servers": broker.bootstrap_servers} | named)


def keyed(numbers: Iterable[int]) -> pa.RecordBatch:
    values = [b"%d" % n for n in numbers]
    return pa.record_batch({"key": [b"k%d" % (int(value) % 17) for value in values], "value": values})


def batches(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    left = list(numbers)
    while left:
        yield keyed(left[:50])
        left = left[50:]


def write(broker: Broker, rows: Iterable[pa.RecordBatch], batch: int | None, *, plan: str = "", **told: object) -> int:
    found = options(broker, **told)
    return write_rows(rows, found, WriteTransaction(ID, batch, TIMEOUT_MS, topic=found.topic, plan=plan))


def numbers_in(broker: Broker) -> list[int]:
    return [int(record.value or b"") for record in committed_records(broker.bootstrap_servers, "orders")]


def crash(broker: Broker, batch: int, count: int) -> None:
    """Write some rows and leave the transaction open, as a driver does that is killed."""
    leave_open(options(broker), ID, batch, range(count))


def leave_open(told: WriteOptions, transactional_id: str, batch: int, numbers: Iterable[int]) -> None:
    async def begin() -> None:
        async with open_cluster(told) as cluster:
            transaction = WriteTransaction(transactional_id, batch, TIMEOUT_MS)
            assert await transaction.begin(cluster)
            sender = Sender(cluster, told, transaction)
            for piece in pieces(batches(numbers), told.topic, cluster.clock.now_ms(), size_bytes=sending.PIECE_BYTES):
                await sender.send(piece)

    asyncio.run(begin())


def test_a_batch_that_is_repeated_is_there_once(broker: Broker) -> None:
    assert write(broker, batches(range(ROWS)), 7) == ROWS
    assert write(broker, batches(range(ROWS)), 7) == 0
    assert write(broker, batches(reversed(range(ROWS))), 7) == 0
    assert sorted(numbers_in(broker)) == list(range(ROWS))
    assert write(broker, batches(range(ROWS)), 8) == ROWS
    assert sorted(numbers_in(broker)) == sorted([*range(ROWS)] * 2)


def test_equal_rows_are_all_there_once(broker: Broker) -> None:
    same = pa.record_batch({"key": [b"k"] * ROWS, "value": [b"5"] * ROWS, "timestamp": pa.array([1000] * ROWS)})
    crash(broker, 1, 150)
    assert write(broker, [same], 1) == ROWS
    assert write(broker, [same], 1) == 0
    assert numbers_in(broker) == [5] * ROWS


@pytest.mark.parametrize("count", [1, 120])
def test_what_a_driver_that_was_killed_has_left_is_never_seen(count: int, broker: Broker) -> None:
    crash(broker, 7, count)
    assert broker.records("orders")
    crash(broker, 7, count)
    assert write(broker, batches(reversed(range(ROWS))), 7) == ROWS
    assert sorted(numbers_in(broker)) == list(range(ROWS))
    assert len(broker.records("orders")) == ROWS + 2 * count


def test_rows_stay_in_their_order(broker: Broker) -> None:
    write(broker, batches(range(ROWS)), 0)
    found = committed_records(broker.bootstrap_servers, "orders")
    for partition in range(3):
        numbers = [int(record.value or b"") for record in found if record.partition == partition]
        assert numbers == sorted(numbers)


def test_an_earlier_batch_than_the_last_is_refused(broker: Broker) -> None:
    write(broker, batches(range(10)), 5)
    with pytest.raises(LaterBatch, match=r"a later one, 5, has been written .*: the checkpoint is older"):
        write(broker, batches(range(10)), 4)
    assert sorted(numbers_in(broker)) == list(range(10))


def test_a_write_without_a_number_is_another_one_each_time(broker: Broker) -> None:
    assert [write(broker, batches(range(10)), None) for _ in range(2)] == [10, 10]
    assert len(numbers_in(broker)) == 20


def test_another_batch_of_the_same_number_is_refused(broker: Broker) -> None:
    assert write(broker, batches(range(10)), 5, plan="a") == 10
    assert [write(broker, batches(range(10)), 5, plan=plan) for plan in ("a", "")] == [0, 0]  # "": it cannot be known
    with pytest.raises(
        LaterBatch, match=r"one of this number with other rows has been written .*transactionalIdPrefix"
    ):
        write(broker, batches(range(10, 20)), 5, plan="b")
    assert sorted(numbers_in(broker)) == list(range(10))
    assert write(broker, batches(range(10, 20)), 6, plan="b") == 10


def test_numbers_count_for_the_topics_that_were_written(broker: Broker) -> None:
    broker.create_topic("payments")
    both = pa.record_batch({"value": [b"1", b"2"], "topic": ["orders", "payments"]})
    write(broker, batches(range(10)), 1)
    assert write(broker, batches(range(10)), 1, topic="payments") == 10  # a copy of the checkpoint, for another topic
    assert write(broker, batches(range(10)), 2, topic="payments") == 10
    assert write(broker, [both], 2, topic="") == 0
    with pytest.raises(LaterBatch):
        write(broker, [both], 1, topic="")
    assert write(broker, batches(range(10)), 2) == 10


def test_rows_that_cannot_be_written_take_all_others_with_them(broker: Broker) -> None:
    def bad() -> Iterator[pa.RecordBatch]:
        yield from batches(range(200))
        yield pa.record_batch({"value": [b"x"], "partition": pa.array([9], pa.int32())})

    with pytest.raises(BadRow, match="partition 9"):
        write(broker, bad(), 1)
    # Readers do not wait for it either: there is no open transaction.
    assert numbers_in(broker) == []
    assert write(broker, batches(range(ROWS)), 1) == ROWS
    assert sorted(numbers_in(broker)) == list(range(ROWS))


def test_who_begins_later_fences_who_was_thought_dead(broker: Broker) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(range(200))
        assert write(broker, batches(range(ROWS)), 1) == ROWS
        yield from batches(range(200, ROWS))

    with pytest.raises(WriteFailed, match="another run of the query has taken over"):
        write(broker, rows(), 1)
    assert sorted(numbers_in(broker)) == list(range(ROWS))


def test_a_transaction_that_took_too_long_says_so(broker: Broker) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(range(200))
        broker.advance(TIMEOUT_MS + LOOK_MS)
        broker.wait_transaction(ID, "CompleteAbort", timeout=60)
        yield from batches(range(200, ROWS))

    with pytest.raises(WriteFailed, match=r"longer than kafka\.transaction\.timeout\.ms"):
        write(broker, rows(), 1)
    assert numbers_in(broker) == []


# Answers that are lost


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize(
    "api", ["FindCoordinator", "InitProducerId", "OffsetFetch", "AddPartitionsToTxn", "TxnOffsetCommit", "EndTxn"]
)
def test_brokers_may_be_away_for_a_while(api: str, how: Literal["before", "after"], broker: Broker) -> None:
    with broker.faults.add(api=api, close=how, times=2):
        assert write(broker, batches(range(ROWS)), 1) == ROWS
    assert write(broker, batches(range(ROWS)), 1) == 0
    assert sorted(numbers_in(broker)) == list(range(ROWS))


@pytest.mark.parametrize(
    "fault",
    [
        {"api": "InitProducerId", "error": "CONCURRENT_TRANSACTIONS"},
        {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS"},
        {"api": "TxnOffsetCommit", "error": "COORDINATOR_LOAD_IN_PROGRESS"},
        {"api": "EndTxn", "error": "NOT_COORDINATOR"},
    ],
    ids=str,
)  # fmt: skip
def test_what_passes_is_waited_for(fault: dict[str, Any], broker: Broker) -> None:
    with broker.faults.add(**fault, times=2) as rule:
        assert write(broker, batches(range(ROWS)), 1) == ROWS
        assert rule.strikes() == 2
    assert sorted(numbers_in(broker)) == list(range(ROWS))


@pytest.mark.parametrize("how", ["before", "after"])
def test_an_end_whose_answer_never_came_is_known_when_the_batch_is_repeated(
    how: Literal["before", "after"], broker: Broker
) -> None:
    hasty = {"kafka_delivery_timeout_ms": 0, "kafka_retries": 0}
    with broker.faults.add(api="EndTxn", close=how), pytest.raises(WriteFailed, match="NETWORK_EXCEPTION"):
        write(broker, batches(range(ROWS)), 1, **hasty)
    assert write(broker, batches(range(ROWS)), 1) == (0 if how == "after" else ROWS)
    assert sorted(numbers_in(broker)) == list(range(ROWS))


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_batch_that_failed_at_a_request_is_repeated(
    nth: int, how: Literal["before", "after"], broker: Broker
) -> None:
    hasty = {"kafka_delivery_timeout_ms": 0, "kafka_retries": 0}
    with broker.faults.add(api="Produce", nth=nth, close=how), pytest.raises(WriteFailed):
        write(broker, batches(range(ROWS)), 1, **hasty)
    assert numbers_in(broker) == []
    assert write(broker, batches(range(ROWS)), 1) == ROWS
    assert sorted(numbers_in(broker)) == list(range(ROWS))


# Settings


def test_a_timeout_that_brokers_do_not_allow_is_named(broker: Broker) -> None:
    with pytest.raises(WriteFailed, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction\.max\.timeout\.ms"):
        write_rows(batches(range(10)), options(broker), WriteTransaction(ID, 1, 2_000_000))
