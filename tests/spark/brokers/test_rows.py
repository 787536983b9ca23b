"""Rows over the wire are those in the broker's files, whatever the formats, sizes of answers, and what happens."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Producer
from minibroker.client.admin import Admin
from minibroker.client.offsets import EARLIEST
from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.directory import split_name
from minibroker.log.records import Record
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.schema.types import NO_ID
from minibroker.spark.brokers import fetching
from minibroker.spark.brokers import planning as wire_planning
from minibroker.spark.brokers.fetching import NothingCame
from minibroker.spark.brokers.planning import NoBroker, divided
from minibroker.spark.brokers.rows import WireTaskReader
from minibroker.spark.columns.batches import count_missing, find_units
from minibroker.spark.columns.rows_of_query import CorruptBatch
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import Options, parse
from minibroker.spark.ranges import DataLoss, Task
from minibroker.spark.reading import all_ranges, plan
from tests.client.scripted import ScriptedBroker
from tests.interop.broker import running
from tests.spark.logs import START_MS, Row, every_batch, golden_directory, offsets, one_by_one, rows_of, written
from tests.spark.served import adopt, random_directory, served

pytestmark = pytest.mark.filterwarnings("ignore:minibroker.Broker")

QUICK = {"kafka.default.api.timeout.ms": "100", "fetchOffset.retryIntervalMs": "1"}
RANDOM_TOPICS = 8


def asked(broker: Broker, topic: str = "orders", **options: object) -> Options:
    """Return options; an underscore stands for a dot, numbers are those of partition 0."""
    told = {"kafka.bootstrap.servers": broker.bootstrap_servers, **QUICK}
    if not any(name in options for name in ("assign", "subscribePattern")):
        told["subscribe"] = topic
    for name, value in options.items():
        is_number = isinstance(value, int) and name.startswith(("starting", "ending")) and "Offsets" in name
        told[name.replace("_", ".")] = json.dumps({topic: {"0": value}}) if is_number else str(value)
    return parse(told)


def read(
    broker: Broker, topic: str = "orders", filters: Filters | None = None, group_bytes: int = 8 << 20, **options: object
) -> list[Row]:
    """Return the rows that a query gives, one task after the other; tasks go through pickle, as to another process."""
    found = asked(broker, topic, **options)
    return [
        row
        for task in pickle.loads(pickle.dumps(plan(found, filters)))
        for row in rows_of(WireTaskReader(task, found, filters, group_bytes=group_bytes))
    ]


def produce(broker: Broker, count: int, topic: str = "orders", partition: int = 0, *, keyed: bool = False) -> None:
    async def send() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, b"k" if keyed else None, partition=partition)

    asyncio.run(send())


# Rows


@pytest.fixture(scope="module", params=["kraft39-2-after-clean", "random"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Broker]]:
    work = tmp_path_factory.mktemp("shared")
    root = random_directory(work, RANDOM_TOPICS) if request.param == "random" else golden_directory(work, request.param)
    with served(root) as broker:
        yield root, broker


@pytest.mark.slow
@pytest.mark.parametrize("fetch_bytes", [1, 700, 8 << 20])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_in_the_files(isolation: str, fetch_bytes: int, shared: tuple[Path, Broker]) -> None:
    root, broker = shared
    count = 0
    for path in sorted(root.iterdir()):
        topic, partition = split_name(path.name) or ("__", 0)
        if not path.is_dir() or topic.startswith("__"):
            continue
        wanted = one_by_one(path, read_committed=isolation == "read_committed")
        told: dict[str, Any] = {"assign": json.dumps({topic: [partition]}), "kafka_isolation_level": isolation}
        (start,) = (each.first_offset for each in all_ranges(asked(broker, topic, **told)))
        told["kafka_max_partition_fetch_bytes"] = fetch_bytes
        found = read(broker, topic, includeHeaders="true", group_bytes=2000, **told)
        assert found == [row for row in wanted if row[0] >= start], topic
        count += len(found)
    assert count > 100


@pytest.mark.interop
@pytest.mark.slow
def test_rows_of_a_real_kafka_are_those_in_the_files(tmp_path: Path) -> None:
    root = random_directory(tmp_path, 6)
    logs = sorted(path for path in root.iterdir() if path.name.startswith("random"))
    wanted = {
        (path.name, isolation): one_by_one(path, read_committed=isolation == "read_committed")
        for path in logs
        for isolation in ("read_committed", "read_uncommitted")
    }
    with running(root, tmp_path / "kafka") as kafka:
        for (name, isolation), rows in wanted.items():
            topic, _ = split_name(name) or ("", 0)
            told = {
                "kafka.bootstrap.servers": kafka.address,
                "assign": json.dumps({topic: [0]}),
                "kafka.isolation.level": isolation,
                "kafka.max.partition.fetch.bytes": "3000",
                "includeHeaders": "true",
            }
            options = parse(told)
            (start,) = (each.first_offset for each in all_ranges(options))
            found = [row for task in plan(options) for row in rows_of(WireTaskReader(task, options))]
            assert found == [row for row in rows if row[0] >= start], name


@pytest.mark.parametrize("release", ["0.10.0", "0.10.1", "0.11", "1.1", "2.8"])
def test_old_brokers_are_asked_in_their_versions(release: str, tmp_path: Path) -> None:
    """Those that cut off batches at a limit are asked for more."""
    with Broker(topics=["orders"], as_version=release) as broker:
        produce(broker, 300)
        found = read(broker, kafka_max_partition_fetch_bytes=60, maxRecordsPerPartition=170)
    assert [row[4] for row in found] == [b"%d" % number for number in range(300)]


async def test_a_batch_that_a_broker_cuts_off_is_asked_for_once_more() -> None:
    """Before Fetch v3 a limit is a limit, and the answer ends within the first batch."""
    batch = build_batch(1, [Record(None, b"x" * 500, (), START_MS, 0)], codec=GZIP)

    def answer(request: Any, _: int) -> FetchResponse:
        Topic = FetchResponse.FetchableTopicResponse
        limit = request.topics[0].partitions[0].partition_max_bytes
        data = Topic.PartitionData(partition_index=0, error_code=0, high_watermark=1, records=batch[:limit])
        return FetchResponse(responses=[Topic(topic="orders", partitions=[data])])

    ranges = {"ApiVersions": (0, 0), "Metadata": (0, 1), "Fetch": (0, 2)}
    async with ScriptedBroker({FetchRequest: answer}, ranges) as broker:
        told = parse(
            {
                "kafka.bootstrap.servers": f"127.0.0.1:{broker.port}",
                "subscribe": "orders",
                "kafka.max.partition.fetch.bytes": "40",
            }
        )
        reader = WireTaskReader(Task("orders", 0, 0, 1), told)
        rows = await asyncio.to_thread(lambda: list(rows_of(reader)))
        asked = [each.topics[0].partitions[0].partition_max_bytes for each in broker.asked(FetchRequest)]
    assert [row[4] for row in rows] == [b"x" * 500]
    assert asked == [40, len(batch)]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A topic of 200 records, a second apart, in small segments, three in a batch."""
    work = tmp_path_factory.mktemp("orders")
    written(work / "made", 200, per_batch=4)
    adopt(work / "root", {"orders-0": work / "made/orders-0"})
    with served(work / "root") as broker:
        broker.create_topic("empty", 3)
        yield broker


@pytest.mark.parametrize(
    ("filters", "options", "wanted"),
    [
        ({}, {"startingOffsets": 33, "endingOffsets": 77}, range(33, 77)),
        ({}, {"startingOffsets": 200}, range(0)),
        ({"first_offset": 10, "end_offset": 12}, {}, range(10, 12)),
        ({"first_timestamp": START_MS + 150_500}, {}, range(151, 200)),
        ({"first_timestamp": START_MS + 999_000}, {}, range(0)),
        ({"end_timestamp": START_MS + 3_000}, {}, range(3)),
        # Brokers have other meanings for -1 to -6; all records are younger.
        *(({"first_timestamp": time}, {}, range(200)) for time in range(-7, 1)),
        *(({}, {"startingTimestamp": time}, range(200)) for time in range(-7, 1)),
        ({}, {"startingOffsetsByTimestamp": -1, "endingOffsetsByTimestamp": START_MS + 3_000}, range(3)),
        ({}, {"endingTimestamp": -1}, range(0)),
        ({"topics": frozenset(["empty"])}, {}, range(0)),
        ({}, {"startingTimestamp": START_MS + 9_001, "endingTimestamp": START_MS + 12_000}, range(10, 12)),
        ({}, {"startingOffsets": 0, "endingOffsets": 500, "failOnDataLoss": "false"}, range(200)),
        ({}, {"minPartitions": 7}, range(200)),
    ],
    ids=str,
)
def test_ranges(filters: dict[str, Any], options: dict[str, Any], wanted: range, orders: Broker) -> None:
    assert offsets(read(orders, filters=Filters(**filters), **options)) == list(wanted)


def test_a_filter_for_younger_records_begins_where_they_do(orders: Broker) -> None:
    (task,) = plan(asked(orders), Filters(first_timestamp=START_MS + 150_500))
    assert task.first_offset == 151


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"subscribe": "order"}, OptionError, "there is no topic order at 127.0.0.1:.*; did you mean orders"),
        ({"assign": '{"orders":[0,4]}'}, OptionError, r"orders has no partition 4 here, only \[0\]"),
        ({"subscribePattern": "^x"}, OptionError, r"no topic matches \^x; there are empty, orders"),
        ({"startingOffsets": 201}, DataLoss, "orders-0 ends at 200, there is nothing up to 201; set failOnDataLoss"),
        ({"endingOffsets": 201}, DataLoss, "orders-0 ends at 200, there is nothing up to 201; set failOnDataLoss"),
        ({"startingOffsets": '{"orders":{"1":0}}'}, OptionError, "orders-0 must have one, orders-1 will not be read"),
        ({"startingTimestamp": START_MS + 999_000}, OptionError, "no record that is not older"),
        ({"kafka_bootstrap_servers": "127.0.0.1"}, OptionError, "servers is '127.0.0.1'.*not host:port"),
        ({"kafka_bootstrap_servers": "127.0.0.1:1"}, NoBroker, "no broker answers at 127.0.0.1:1 .*no connection to"),
        ({"kafka_security_protocol": "TLS"}, OptionError, "kafka.security.protocol is 'TLS': it can be PLAINTEXT"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_read_is_said_when_a_query_is_planned(
    options: dict[str, Any], error: type[Exception], reason: str, orders: Broker
) -> None:
    with pytest.raises(error, match=reason):
        plan(asked(orders, **options))


def test_a_topic_is_not_made_by_asking_for_it(tmp_path: Path) -> None:
    for release in ("0.10.1", "4.0"):
        with Broker(as_version=release, topics=["orders"]) as broker:
            with pytest.raises(OptionError):
                plan(asked(broker, "other"))
            assert broker.topics() == {"orders": 1}


# Tasks


@pytest.mark.parametrize(
    ("sizes", "least", "most", "wanted"),
    [
        ([100, 100], None, None, [100, 100]),
        ([100, 0, 5], None, 40, [33, 33, 34, 5]),
        ([100, 100], 4, None, [50, 50, 50, 50]),
        ([1000, 10], 4, None, [333, 333, 334, 10]),  # as KafkaOffsetRangeCalculator has it
        ([3], 10, None, [1, 1, 1]),
        ([90, 10], 2, 30, [30, 30, 30, 10]),
    ],
)
def test_ranges_are_cut_as_spark_cuts_them(
    sizes: list[int], least: int | None, most: int | None, wanted: list[int]
) -> None:
    tasks = divided([Task(f"t{n}", 0, 7, 7 + size) for n, size in enumerate(sizes)], least, most)
    assert [task.end_offset - task.first_offset for task in tasks] == wanted


# What happens between planning and reading


def late(broker: Broker, happens: Any, **options: Any) -> tuple[list[int], list[str]]:
    """Plan, let something happen, and read; return offsets and what was told."""
    told = asked(broker, **options)
    tasks = plan(told)
    happens()
    found: list[int] = []
    left_out: list[str] = []
    for task in tasks:
        reader = WireTaskReader(task, told)
        found += offsets(list(rows_of(reader)))
        left_out += reader.left_out
    return found, left_out


def delete_before(broker: Broker, offset: int) -> None:
    async def delete() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).delete_records({("orders", 0): offset})

    asyncio.run(delete())


def test_records_deleted_after_planning_are_data_loss() -> None:
    with Broker(topics=["orders"]) as broker:
        produce(broker, 20)
        with pytest.raises(DataLoss, match=r"orders-0: offset 0 was there when .* the log begins at 7 and ends at 20"):
            late(broker, lambda: delete_before(broker, 7))
        found, told = late(broker, lambda: delete_before(broker, 9), failOnDataLoss="false", startingOffsets="earliest")
        assert found == list(range(9, 20))
        assert "offset 7 was there" in told[0]


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_topic_that_is_deleted_after_planning_is_data_loss(made_anew: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_planning, "TASK_RETRIES", 4)  # a broker may not have heard of it yet: that takes seconds

    def happens() -> None:
        broker.delete_topic("orders")
        if made_anew:
            broker.create_topic("orders")
            produce(broker, 30)

    with Broker(topics=["orders"]) as broker:
        produce(broker, 20)
        with pytest.raises(DataLoss, match="the topic was deleted, or made anew"):
            late(broker, happens)
        if not made_anew:
            broker.create_topic("orders")
            produce(broker, 20)
        found, told = late(broker, happens, failOnDataLoss="false")
        assert found == []
        assert len(told) == 1


async def test_a_query_is_planned_where_a_loop_runs_already(orders: Broker) -> None:
    assert [repr(task) for task in plan(asked(orders))] == ["Task(orders-0 0..200)"]


def test_what_never_comes_is_waited_for_as_long_as_it_was_said(orders: Broker) -> None:
    orders.faults.add(api="Fetch", error="NOT_LEADER_OR_FOLLOWER", times=1000)
    told = asked(orders, kafkaConsumer_pollTimeoutMs=150)
    try:
        with pytest.raises(NothingCame, match=r"nothing came at offset 190 within 150 ms .*: NOT_LEADER_OR_FOLLOWER"):
            list(WireTaskReader(Task("orders", 0, 190, 200), told).batches())
    finally:
        orders.faults.clear()


@pytest.mark.parametrize("first_offset", [190, 200, 205])
def test_a_log_that_lost_its_end_is_data_loss(first_offset: int, orders: Broker) -> None:
    """An unclean election, or a crash, after a micro-batch was planned: it must not be tried for ever."""
    task, patience = Task("orders", 0, first_offset, 210), 150
    lost = rf"offset {max(200, first_offset)} was there when the query was planned; now the log .* ends at 200"
    with pytest.raises(DataLoss, match=f"{lost}; set failOnDataLoss"):
        list(WireTaskReader(task, asked(orders, kafkaConsumer_pollTimeoutMs=patience)).batches())
    told = asked(orders, kafkaConsumer_pollTimeoutMs=patience, failOnDataLoss="false")
    reader = WireTaskReader(task, told)
    assert offsets(list(rows_of(reader))) == list(range(first_offset, 200))
    assert [bool(re.search(lost, each)) for each in reader.left_out] == [True]
    assert reader.noticed == []


@pytest.mark.parametrize(
    ("late", "code", "stable", "told"),
    [
        (4, Error.NONE, 3, None),
        (10_000, Error.NONE, 1, DataLoss),
        (10_000, Error.OFFSET_NOT_AVAILABLE, 1, NothingCame),
        (10_000, Error.NONE, 3, NothingCame),  # a transaction is open
    ],
)
async def test_a_high_watermark_that_lags_is_no_data_loss(
    late: int, code: int, stable: int, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader has all that was committed, and learns from its followers that it was."""
    monkeypatch.setattr(wire_planning, "TASK_RETRIES", 1)
    batch = build_batch(2, [Record(None, b"x")] * 3, base_offset=0)
    Topic, Row = FetchResponse.FetchableTopicResponse, ListOffsetsResponse.ListOffsetsTopicResponse

    def fetched(request: Any, _: int) -> FetchResponse:
        is_late = len(broker.asked(FetchRequest)) <= late
        end, records = (1, b"") if is_late else (3, batch)
        data = Topic.PartitionData(partition_index=0, error_code=0, high_watermark=end, records=records)
        return FetchResponse(responses=[Topic(topic="orders", topic_id=NO_ID, partitions=[data])])

    def listed(request: Any, _: int) -> ListOffsetsResponse:
        offset = 0 if request.topics[0].partitions[0].timestamp == EARLIEST else stable
        row = Row.ListOffsetsPartitionResponse(partition_index=0, error_code=code, timestamp=-1, offset=offset)
        return ListOffsetsResponse(topics=[Row(name="orders", partitions=[row])])

    ranges = {"ApiVersions": (0, 0), "Metadata": (0, 1), "Fetch": (4, 11), "ListOffsets": (1, 5)}
    async with ScriptedBroker({FetchRequest: fetched, ListOffsetsRequest: listed}, ranges) as broker:
        options = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": "orders"}
        patience = "150" if told else "20000"
        reader = WireTaskReader(Task("orders", 0, 0, 3), parse(options | {"kafkaConsumer.pollTimeoutMs": patience}))
        read = asyncio.to_thread(lambda: list(rows_of(reader)))
        if told is None:
            assert len(await read) == 3
        else:
            with pytest.raises(told, match="ends at 1"):
                await read


def test_a_broker_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path, topics=["orders"])
    with broker:
        produce(broker, 50)

    def restart() -> None:
        broker.stop()
        broker.start()

    with broker:
        told = asked(broker, kafka_max_partition_fetch_bytes=1, includeHeaders="true")
        (task,) = plan(told)
        reader = WireTaskReader(task, told).batches()
        found = next(reader).column("offset").to_pylist()
        restart()
        for batch in reader:
            found += batch.column("offset").to_pylist()
    assert found == list(range(50))


@pytest.mark.parametrize(
    ("error", "times"), [("NOT_LEADER_OR_FOLLOWER", 3), ("FENCED_LEADER_EPOCH", 1), ("UNKNOWN_SERVER_ERROR", 2)]
)
def test_errors_that_pass_are_passed_over(error: str, times: int) -> None:
    with Broker(topics=["orders"]) as broker:
        produce(broker, 20)
        broker.faults.add(api="Fetch", error=error, times=times)
        if error == "UNKNOWN_SERVER_ERROR":  # does not pass
            with pytest.raises(Exception, match=error):
                read(broker)
        else:
            assert offsets(read(broker)) == list(range(20))


# Broken batches


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Broker]:
    """A broker of 100 records, whose disk has spoiled two batches."""
    written(tmp_path / "made", 100, segment_bytes=1 << 20)
    adopt(tmp_path / "root", {"orders-0": tmp_path / "made/orders-0"})
    path = tmp_path / "root/orders-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    for batch in list(every_batch(tmp_path / "root/orders-0")):
        if batch.base_offset in (30, 98):
            data[batch.end_position - 1] ^= 1
    with served(tmp_path / "root") as broker:
        path.write_bytes(data)
        yield broker


def test_broken_batches(broken: Broker) -> None:
    with pytest.raises(CorruptBatch, match=r"orders-0, offsets 30 to 30, from 127.*set mode to skip or quarantine"):
        read(broken)
    assert offsets(read(broken, mode="skip")) == [each for each in range(100) if each not in (30, 98)]
    told = asked(broken, mode="quarantine")
    (task,) = plan(told)
    rows = [row for batch in WireTaskReader(task, told).batches() for row in batch.to_pylist()]
    assert [(row["firstOffset"], row["lastOffset"], row["position"]) for row in rows] == [
        (30, 30, None),
        (98, 98, None),
    ]
    assert rows[0]["file"] == broken.bootstrap_servers
    assert len(rows[0]["bytes"]) > 60


def test_what_an_answer_covers() -> None:
    def covered(data: bytes, first: int, end: int) -> tuple[int, int]:
        return count_missing(find_units(memoryview(data), 0, len(data), len(data), False)[0], first, end)

    assert covered(b"", 0, 9) == (0, 0) == covered(bytes(40), 0, 9)
    whole = b"".join(build_batch(2, [Record(None, b"x")] * 3, base_offset=base) for base in (0, 3, 6))
    assert covered(whole, 0, 9) == (9, 0) == covered(whole, 4, 9)
    holed = b"".join(build_batch(2, [Record(None, b"x")] * 3, base_offset=base) for base in (2, 8, 20))
    assert covered(holed, 0, 9) == (23, 2 + 3)  # what begins behind the task's end is not its matter
    old = build_batch(1, [Record(None, b"x", (), START_MS, 5)]) + build_batch(2, [Record(None, b"x")], base_offset=7)
    assert covered(old, 0, 9) == (8, 1)


# Answers without records, where there are some


@pytest.mark.parametrize(
    ("emptied", "policy", "rows"),
    [
        (2, "delete", 3),
        (9, "delete", 3),
        (9, "compact", 3),
        (10_000, "compact", 0),
        (10_000, "compact,delete", 0),
        (10_000, "delete", NothingCame),
        (10_000, None, NothingCame),  # who may not describe settings is not told
    ],
)
async def test_an_answer_without_records_is_no_end(
    emptied: int, policy: str | None, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers so when a remote read takes longer than remote.fetch.max.wait.ms, as often as that happens."""
    monkeypatch.setattr(fetching, "CLEANED_MS", 300)
    monkeypatch.setattr(fetching, "PAUSE_MS_MAX", 1)
    batch = build_batch(2, [Record(None, b"x")] * 3, base_offset=0)
    Topic, Result = FetchResponse.FetchableTopicResponse, DescribeConfigsResponse.DescribeConfigsResult

    def fetched(request: Any, _: int) -> FetchResponse:
        records = b"" if len(broker.asked(FetchRequest)) <= emptied else batch
        data = Topic.PartitionData(partition_index=0, error_code=0, high_watermark=3, records=records)
        return FetchResponse(responses=[Topic(topic="orders", topic_id=NO_ID, partitions=[data])])

    def described(request: Any, _: int) -> DescribeConfigsResponse:
        row = Result(error_code=0, error_message=None, resource_type=2, resource_name="orders", configs=[])
        if policy is None:
            row.error_code = Error.TOPIC_AUTHORIZATION_FAILED
        else:
            Config = Result.DescribeConfigsResourceResult
            row.configs = [Config(name="cleanup.policy", value=policy, read_only=False, is_sensitive=False)]
        return DescribeConfigsResponse(throttle_time_ms=0, results=[row])

    ranges = {"ApiVersions": (0, 0), "Metadata": (0, 1), "Fetch": (4, 11), "DescribeConfigs": (1, 1)}
    async with ScriptedBroker({FetchRequest: fetched, DescribeConfigsRequest: described}, ranges) as broker:
        told = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": "orders"}
        options = parse(told | {"kafkaConsumer.pollTimeoutMs": "1000" if rows is NothingCame else "20000"})
        reader = WireTaskReader(Task("orders", 0, 0, 3), options)
        read = asyncio.to_thread(lambda: list(rows_of(reader)))
        if rows is NothingCame:
            with pytest.raises(NothingCame, match=r"gives no records, although its log ends at 3.*remote\.fetch"):
                await read
        else:
            assert len(await read) == rows


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_offsets_without_a_record_are_told_unless_the_topic_is_compacted(policy: str, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "root", log_cleaner_enable=False) as broker:
        broker.create_topic("orders", cleanup_policy=policy)
        produce(broker, 10, keyed=True)
    log = tmp_path / "root/orders-0/00000000000000000000.log"
    data, batches = log.read_bytes(), list(every_batch(log.parent))
    gone = batches[4]
    log.write_bytes(data[: gone.position] + data[gone.end_position :])
    for index in ("index", "timeindex"):
        log.with_suffix(f".{index}").unlink()
    with Broker(data_dir=tmp_path / "root", log_cleaner_enable=False) as broker:
        options = asked(broker)
        (task,) = plan(options)
        reader = WireTaskReader(task, options)
        assert offsets(list(rows_of(reader))) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    told = "orders-0: 1 of the offsets 0 to 9 have no record, although the topic is not compacted"
    assert reader.noticed == ([told] if policy == "delete" else [])


def test_a_task_has_no_topic_id_unless_it_is_told_one() -> None:
    assert Task("orders", 0, 1, 2).topic_id == NO_ID
