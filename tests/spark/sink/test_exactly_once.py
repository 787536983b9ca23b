"""A batch that is repeated is written once: after failures anywhere, and with attempts that were thought dead."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.client import Cluster
from minibroker.client.groups import Groups
from minibroker.errors import Error
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.spark.columns.building import RowColumns, build_batches
from minibroker.spark.sink import rows as sending_rows
from minibroker.spark.sink import task as sending_task
from minibroker.spark.sink.batch_notes import Note, NotRepeatable
from minibroker.spark.sink.exactly_once import EPOCH_MAX, OtherAttempt, unclaimed
from minibroker.spark.sink.options import WriteOptions, parse
from minibroker.spark.sink.task import write_rows

GROUP = "minibroker-sink-query"
ROWS = 400


class Killed(Exception):
    """What happens to a task."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(sending_rows, "PIECE_BYTES", 2000)
    with Broker(topics=["orders:3"]) as broker:
        yield broker


def options(broker: Broker, **told: object) -> WriteOptions:
    named = {name.replace("_", "."): str(value) for name, value in told.items()}
    named = {"topic": "orders", "kafka.batch.size": "500", "kafka.retry.backoff.ms": "1"} | named
    return parse({"kafka.bootstrap.servers": broker.bootstrap_servers} | named)


def keyed(numbers: Iterable[int]) -> pa.RecordBatch:
    values = [b"%d" % n for n in numbers]
    return pa.record_batch({"key": [b"k%d" % (int(value) % 17) for value in values], "value": values})


def keyless(numbers: Iterable[int]) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % n for n in numbers]})


def batches(
    numbers: Iterable[int], make: Callable[[Iterable[int]], pa.RecordBatch] = keyed, *, killed: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield rows, 50 at a time; at the end the task is killed."""
    left = list(numbers)
    while left:
        yield make(left[:50])
        left = left[50:]
    if killed:
        raise Killed


def numbers_in(broker: Broker, partition: int | None = None) -> list[int]:
    return [int(r.value or b"") for r in broker.records("orders") if partition in (None, r.partition)]


def check_once_and_in_order(broker: Broker, *, per_task: int = ROWS) -> None:
    assert sorted(numbers_in(broker)) == list(range(ROWS))
    for partition in range(3):
        found = numbers_in(broker, partition)
        for task in range(ROWS // per_task):
            of_this = [number for number in found if number // per_task == task]
            assert of_this == sorted(of_this)


def notes(broker: Broker, group: str = GROUP + ".0") -> dict[int, Note]:
    async def ask() -> dict[int, Note]:
        async with Cluster(broker.bootstrap_servers) as cluster:
            found = await Groups(cluster).fetch_offsets([group])
            return {partition: Note.read(group, each) for (_, partition), each in found[group].items()}

    return asyncio.run(ask())


@pytest.mark.parametrize("make", [keyed, keyless])
@pytest.mark.parametrize("done", [0, 1, 50, 120, 399, 400])
def test_rows_that_are_there_are_left_out_when_a_batch_is_repeated(
    done: int, make: Callable[[Iterable[int]], pa.RecordBatch], broker: Broker
) -> None:
    with pytest.raises(Killed):
        write_rows(batches(range(done), make, killed=True), options(broker), GROUP, 7)
    before = len(numbers_in(broker))
    assert before <= done
    assert before or done < 100
    assert write_rows(batches(range(ROWS), make), options(broker), GROUP, 7).record_count == ROWS - before
    check_once_and_in_order(broker)
    assert write_rows(batches(range(ROWS), make), options(broker), GROUP, 7).record_count == 0
    check_once_and_in_order(broker)


def test_a_batch_may_be_repeated_often(broker: Broker) -> None:
    for done in (60, 30, 130, 250, 130):
        with pytest.raises(Killed):
            write_rows(batches(range(done), killed=True), options(broker), GROUP, 7)
    write_rows(batches(range(ROWS)), options(broker), GROUP, 7)
    check_once_and_in_order(broker)


def test_other_batches_are_other_rows(broker: Broker) -> None:
    for batch in range(3):
        assert write_rows(batches(range(100)), options(broker), GROUP, batch).record_count == 100
    assert sorted(numbers_in(broker)) == sorted([*range(100)] * 3)
    found = notes(broker)
    assert {(note.batch, note.epoch) for note in found.values()} == {(2, 2)}
    assert len({note.producer for note in found.values()}) == 1


def test_equal_rows_are_counted(broker: Broker) -> None:
    same = [keyed([5] * 100), keyed([6] * 3)]
    with pytest.raises(Killed):
        write_rows(batches([5] * 60, killed=True), options(broker), GROUP, 1)
    write_rows(iter(same), options(broker), GROUP, 1)
    assert sorted(numbers_in(broker)) == [5] * 100 + [6] * 3


def timed(times: Iterable[int]) -> pa.RecordBatch:
    """Return rows that are equal but for their time; below 0 they have none of their own."""
    of_rows = list(times)
    columns = {"key": [b"k"] * len(of_rows), "value": [b"beat"] * len(of_rows)}
    return pa.record_batch(columns | {"timestamp": pa.array([t if t >= 0 else None for t in of_rows], pa.int64())})


def times_in(broker: Broker) -> list[int]:
    return sorted(record.timestamp for record in broker.records("orders"))


@pytest.mark.parametrize("step", [1, -1])
def test_rows_that_differ_only_in_their_time_are_told_apart(broker: Broker, step: int) -> None:
    times = [1_700_000_000_000 + number for number in range(ROWS)]
    with pytest.raises(Killed):
        write_rows(batches(times[:150], timed, killed=True), options(broker), GROUP, 1)
    write_rows(batches(times[::step], timed), options(broker), GROUP, 1)
    assert times_in(broker) == times


def test_rows_without_a_time_of_their_own_are_known_by_the_rest(broker: Broker) -> None:
    """What the column does not say is the time of the write, another one at each attempt."""
    with pytest.raises(Killed):
        write_rows(batches([-1] * 150, timed, killed=True), options(broker), GROUP, 1)
    write_rows(batches([-1] * ROWS, timed), options(broker), GROUP, 1)
    assert len(times_in(broker)) == ROWS


def test_a_topic_that_sets_the_times_itself_keeps_none_of_the_rows(broker: Broker) -> None:
    broker.delete_topic("orders")
    broker.create_topic("orders", 3, message_timestamp_type="LogAppendTime")
    times = [1_700_000_000_000 + number for number in range(ROWS)]
    with pytest.raises(Killed):
        write_rows(batches(times[:150], timed, killed=True), options(broker), GROUP, 1)
    write_rows(batches(times, timed), options(broker), GROUP, 1)
    assert len(times_in(broker)) == ROWS


def test_rows_may_come_in_another_order(broker: Broker) -> None:
    """As they do behind a shuffle."""
    with pytest.raises(Killed):
        write_rows(batches(range(150), killed=True), options(broker), GROUP, 1)
    write_rows(batches(reversed(range(ROWS))), options(broker), GROUP, 1)
    assert sorted(numbers_in(broker)) == list(range(ROWS))


def test_other_rows_are_an_error_before_any_is_written(broker: Broker) -> None:
    with pytest.raises(Killed):
        write_rows(batches(range(150), killed=True), options(broker), GROUP, 1)
    before = numbers_in(broker)
    with pytest.raises(NotRepeatable, match=r"batch 1, group .*: \d+ records of an earlier attempt, in orders-\d"):
        write_rows(batches(range(50, ROWS)), options(broker), GROUP, 1)
    assert numbers_in(broker) == before
    write_rows(batches(range(50, ROWS)), options(broker, exactlyOnce="false"))  # the way out
    assert len(numbers_in(broker)) == len(before) + ROWS - 50


def test_so_many_rows_may_be_held_back_and_no_more(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending_task, "HELD_BYTES_MAX", 5000)
    with pytest.raises(Killed):
        write_rows(batches(range(150), killed=True), options(broker), GROUP, 1)
    write_rows(batches(reversed(range(ROWS))), options(broker), GROUP, 1)
    assert sorted(numbers_in(broker)) == list(range(ROWS))


def test_an_earlier_batch_than_the_last_is_refused(broker: Broker) -> None:
    write_rows(batches(range(10)), options(broker), GROUP, 5)
    with pytest.raises(NotRepeatable, match="a later batch, 5, has been written: the checkpoint is older"):
        write_rows(batches(range(10)), options(broker), GROUP, 4)


def test_a_group_of_somebody_else_is_refused(broker: Broker) -> None:
    async def commit() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Groups(cluster).alter_offsets(GROUP + ".0", {("orders", 0): 3})

    asyncio.run(commit())
    with pytest.raises(NotRepeatable, match=r"is not ours.*set groupIdPrefix"):
        write_rows(batches(range(10)), options(broker), GROUP, 4)


def test_epochs_that_are_used_up_begin_anew_with_another_producer(broker: Broker) -> None:
    write_rows(batches(range(100)), options(broker), GROUP, 5)
    first = next(iter(notes(broker).values()))
    last = first._replace(epoch=EPOCH_MAX).committed()

    async def commit() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Groups(cluster).alter_offsets(GROUP + ".0", {("orders", 0): last})

    asyncio.run(commit())
    write_rows(batches(range(100, ROWS)), options(broker), GROUP, 6)
    check_once_and_in_order(broker)
    assert {(note.producer == first.producer, note.epoch) for note in notes(broker).values()} == {(False, 0)}


# Brokers that fail in between


@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_task_that_fails_at_a_request_is_repeated(nth: int, how: Literal["before", "after"], broker: Broker) -> None:
    told = options(broker, kafka_retries=0, kafka_delivery_timeout_ms=0)
    with broker.faults.add(api="Produce", nth=nth, close=how), pytest.raises(sending_task.WriteFailed):
        write_rows(batches(range(ROWS)), told, GROUP, 1)
    write_rows(batches(range(ROWS)), options(broker), GROUP, 1)
    check_once_and_in_order(broker)


@pytest.mark.parametrize("api", ["OffsetCommit", "OffsetFetch", "ListOffsets", "InitProducerId", "Fetch"])
def test_a_coordinator_may_be_away_for_a_while(api: str, broker: Broker) -> None:
    with pytest.raises(Killed):
        write_rows(batches(range(150), killed=True), options(broker), GROUP, 1)
    error = {"Fetch": "NOT_LEADER_OR_FOLLOWER", "ListOffsets": "NOT_LEADER_OR_FOLLOWER"}.get(
        api, "COORDINATOR_LOAD_IN_PROGRESS"
    )
    with broker.faults.add(api=api, error=error, times=2) as rule:
        write_rows(batches(range(ROWS)), options(broker), GROUP, 1)
        assert rule.strikes() == 2
    check_once_and_in_order(broker)


# Runs of a query: tasks may have other numbers than before


def run(broker: Broker, tasks: Mapping[int, Iterable[pa.RecordBatch]], name: str, batch: int = 1) -> set[str]:
    """Write what the tasks have; return the slots that nobody has taken."""
    sent = []
    for task, rows in tasks.items():
        with suppress(Killed):
            sent.append(write_rows(rows, options(broker), GROUP, batch, task, name))
    return {slot for each in sent for slot in each.in_doubt} - {each.slot for each in sent}


def of_task(task: int, count: int = 100) -> range:
    return range(task * 100, task * 100 + count)


@pytest.mark.parametrize("make", [keyed, keyless])
def test_tasks_find_their_rows_whatever_their_numbers_are(
    make: Callable[[Iterable[int]], pa.RecordBatch], broker: Broker
) -> None:
    """Spark's Kafka source numbers the partitions of a topic anew when a query is restarted."""
    first = {task: batches(of_task(task, 60 + task), make, killed=True) for task in (0, 1, 3)}  # 2 had not begun
    assert not run(broker, first, "first")
    # Again in vain, and of this run one task is repeated by Spark.
    second = {task: batches(of_task((task + 1) % 4, 90), make, killed=True) for task in (3, 1, 0)}
    assert not run(broker, second, "second")
    assert not run(broker, {1: batches(of_task(2, 95), make, killed=True)}, "second")
    third = {task: batches(of_task(3 - task), make) for task in range(4)}
    assert not run(broker, third, "third")
    check_once_and_in_order(broker, per_task=100)
    # The next batch; of the run before nothing is in doubt.
    assert not run(broker, {task: batches(of_task(task), make) for task in range(4)}, "third", 2)
    assert sorted(numbers_in(broker)) == sorted([*range(ROWS)] * 2)


def test_rows_in_another_order_are_found_by_the_number_of_the_task(broker: Broker) -> None:
    run(broker, {task: batches(of_task(task, 70), killed=True) for task in range(4)}, "first")
    assert not run(broker, {task: batches(reversed(of_task(task))) for task in range(4)}, "second")
    assert sorted(numbers_in(broker)) == list(range(ROWS))


def test_records_that_no_task_has_are_not_passed_over(broker: Broker) -> None:
    run(broker, {task: batches(of_task(task, 70), killed=True) for task in range(4)}, "first")
    left = run(broker, {task: batches(of_task(task)) for task in (0, 1, 2)}, "second")
    assert left == {GROUP + ".3"}

    async def ask() -> str:
        async with Cluster(broker.bootstrap_servers) as cluster:
            return await unclaimed(cluster, GROUP, left, 1)

    assert re.fullmatch(rf"\d+ of {GROUP}\.3, in orders-\d and elsewhere", asyncio.run(ask()))


# Attempts that were thought dead


def test_an_attempt_ends_when_another_has_begun(broker: Broker) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(range(200))
        write_rows(batches(range(ROWS)), options(broker), GROUP, 1)
        yield from batches(range(200, ROWS))

    with pytest.raises(OtherAttempt, match="another attempt of this task has begun"):
        write_rows(rows(), options(broker), GROUP, 1)
    check_once_and_in_order(broker)


def test_an_attempt_ends_when_a_later_batch_has_begun(broker: Broker) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(range(200))
        write_rows(batches(range(200)), options(broker), GROUP, 1)
        write_rows(batches(range(200, ROWS)), options(broker), GROUP, 2)
        yield from batches(range(200, ROWS))

    with pytest.raises(OtherAttempt, match="has begun with batch 2"):
        write_rows(rows(), options(broker), GROUP, 1)
    check_once_and_in_order(broker)


def test_an_attempt_that_has_written_all_does_not_count_when_another_has_begun(broker: Broker) -> None:
    """Else Spark could take it for the one that counts, while the broker has kept the other one's batches."""

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(range(ROWS))
        with pytest.raises(Killed):
            write_rows(batches(range(ROWS), killed=True), options(broker), GROUP, 1)

    with pytest.raises(OtherAttempt):
        write_rows(rows(), options(broker), GROUP, 1)
    check_once_and_in_order(broker)


def append(broker: Broker, partition: int, values: list[int], note: Note, sequence: int) -> int:
    """Send what an attempt sends with this note; return the error code."""

    async def produce() -> int:
        async with Cluster(broker.bootstrap_servers) as cluster:
            made = keyed(values)
            columns = RowColumns(made["key"], made["value"], np.full(len(values), 5))
            (batch,) = build_batches(
                columns, producer_id=note.producer, producer_epoch=note.epoch, base_sequence=sequence
            )
            Topic = ProduceRequest.TopicProduceData
            rows = [Topic.PartitionProduceData(index=partition, records=batch.data)]
            topic = Topic(name="orders", topic_id=(await cluster.topic("orders")).id, partition_data=rows)
            answer = await cluster.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]))
            code: int = answer.responses[0].partition_responses[0].error_code
            return code

    return asyncio.run(produce())


def of_partition(partition: int, numbers: Iterable[int]) -> list[int]:
    from minibroker.client.partitioner import partition_of_key

    return [n for n in numbers if partition_of_key(b"k%d" % (n % 17), 3) == partition]


@pytest.mark.parametrize("as_many", ["fewer", "as many", "more"])
@pytest.mark.parametrize("same_rows", [True, False])
def test_a_request_that_arrives_when_another_attempt_has_read_back_is_no_harm(
    as_many: str, same_rows: bool, broker: Broker
) -> None:
    """The broker takes it, and says to the other attempt that its batch has been written if it is as long."""
    with pytest.raises(Killed):
        write_rows(batches(range(150), killed=True), options(broker), GROUP, 1)
    written = set(numbers_in(broker))
    note = notes(broker)[0]
    first = of_partition(0, [n for n in range(ROWS) if n not in written])
    sequence = len(of_partition(0, written))
    # How long the first batch of the other attempt will be, as it was with nobody in the way.
    count = {"fewer": 3, "as many": 12, "more": 20}[as_many]
    late = first[:count] if same_rows else first[5 : count + 5]

    def rows() -> Iterator[pa.RecordBatch]:
        # By now this attempt has read back what is there.
        assert append(broker, 0, late, note, sequence) == Error.NONE
        yield from batches(range(ROWS))

    told = options(broker, kafka_batch_size=61 + 13 * 12)
    write_rows(rows(), told, GROUP, 1)
    assert sorted(numbers_in(broker)) == list(range(ROWS))
    if same_rows:
        check_once_and_in_order(broker)
    # And should it come later still.
    assert append(broker, 0, late, note, sequence) in (Error.NONE, Error.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert append(broker, 0, late, note, sequence + 1) == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sorted(numbers_in(broker)) == list(range(ROWS))
