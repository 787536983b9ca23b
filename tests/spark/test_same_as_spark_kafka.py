"""Our data source, on a directory and over the wire, gives what Spark's own Kafka connector gets from our broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from tests.interop.spark import VERSION, SparkFailed
from tests.spark.logs import START_MS, every_batch, tree, written
from tests.spark.served import RANDOM_TOPICS, adopt, directory, served
from tests.spark.session import CONNECTOR, Session, SparkRow

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore:minibroker.Broker")]

OURS = "minibroker"
KILLED = "kraft39-3-killed"
DIRECTORIES = ("kraft39-2-after-clean", KILLED, "kraft44-1", "zk28-2-after-clean", "random")
Shared = tuple[str, Path, Broker]


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    root = directory(request.param, tmp_path_factory.mktemp("shared"))
    with served(root) as broker:
        yield request.param, root, broker


def in_order(rows: list[SparkRow]) -> list[SparkRow]:
    return sorted(rows, key=lambda row: row[2:5])  # topic, partition, offset


# Without a session test_rows.py reads all of them in both ways.
@pytest.mark.parametrize(
    ("shared", "isolation"),
    [*((name, "read_committed") for name in DIRECTORIES), (KILLED, "read_uncommitted"), ("random", "read_uncommitted")],
    indirect=["shared"],
)
def test_rows_are_those_of_the_connector(isolation: str, shared: Shared, spark: Session) -> None:
    name, root, broker = shared
    # Where a transaction is open since before the leader began, a broker does not say what the last stable offset is.
    pattern = "^(?!txn$).*" if name == KILLED else ".*"
    told = {"subscribePattern": pattern, "kafka.isolation.level": isolation, "includeHeaders": "true"}
    wanted = in_order(spark.rows(CONNECTOR, **told, kafka_bootstrap_servers=broker.bootstrap_servers))
    columns = spark.columns
    pieces = {"maxBytesPerPartition": 4000} if name == "random" else {}
    found = spark.rows(OURS, path=root, endOfLog="logEnd", **told, **pieces)  # the broker is at work
    assert found == in_order(found) == wanted
    assert len(wanted) > 100
    assert spark.columns == columns
    assert spark.tasks > RANDOM_TOPICS or not pieces
    pieces = {"minPartitions": 40, "kafka.max.partition.fetch.bytes": 5000} if name == "random" else {}
    found = spark.rows(OURS, **told, **pieces, kafka_bootstrap_servers=broker.bootstrap_servers)
    assert in_order(found) == wanted
    assert spark.columns == columns
    assert spark.tasks > RANDOM_TOPICS or not pieces


# Ranges


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Broker]]:
    """A topic of 200 records, a second apart, in small segments."""
    work = tmp_path_factory.mktemp("orders")
    written(work / "made", 200)
    adopt(work / "root", {"orders-0": work / "made/orders-0"})
    with served(work / "root") as broker:
        yield work / "root", broker


def each(**numbers: int) -> dict[str, str]:
    return {name: json.dumps({"orders": {"0": number}}) for name, number in numbers.items()}


@pytest.mark.parametrize(
    "told",
    [
        each(startingOffsets=33, endingOffsets=77),
        each(startingOffsets=-2, endingOffsets=-1),
        each(startingOffsets=200),
        {"startingTimestamp": str(START_MS + 50_001), "endingTimestamp": str(START_MS + 90_000)},
        each(startingOffsetsByTimestamp=START_MS + 150_000, endingOffsetsByTimestamp=START_MS + 999_000),
        {"startingTimestamp": str(START_MS + 999_000), "startingOffsetsByTimestampStrategy": "latest"},
        {"startingOffsets": "earliest", "endingOffsets": "latest", "minPartitions": "5"},
        {"maxRecordsPerPartition": "40"},
    ],
    ids=str,
)  # fmt: skip
def test_ranges_are_those_of_the_connector(told: dict[str, str], orders: tuple[Path, Broker], spark: Session) -> None:
    root, broker = orders
    servers = broker.bootstrap_servers
    wanted = in_order(spark.rows(CONNECTOR, subscribe="orders", kafka_bootstrap_servers=servers, **told))
    tasks = spark.tasks
    assert spark.rows(OURS, subscribe="orders", path=root, endOfLog="logEnd", **told) == wanted
    assert in_order(spark.rows(OURS, subscribe="orders", kafka_bootstrap_servers=servers, **told)) == wanted
    # The connector of this version does not know that option yet.
    assert spark.tasks == (5 if "maxRecordsPerPartition" in told else max(tasks, 1))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest"),
        ({"subscribe": "order"}, "did you mean orders"),
        ({"startingTimestamp": str(START_MS + 999_000)}, "no record that is not older"),
        ({"startingOffsets": '{"orders":{"1":0}}'}, "orders-0 must have one"),
        ({"kafka.group.instance.idd": "x"}, "did you mean kafka.group.instance.id"),
        (each(startingOffsets=77, endingOffsets=33), "would begin at 77 and end before it"),
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_when_a_query_is_planned(
    told: dict[str, str], reason: str, orders: tuple[Path, Broker], spark: Session
) -> None:
    with pytest.raises(SparkFailed, match=reason):
        spark.rows(OURS, **{"subscribe": "orders", "path": str(orders[0]), **told})


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("offset >= 10 and offset < 20 and topic = 'orders'", 10),
        ("timestamp >= timestamp_millis(1700000030000) and timestamp < timestamp_millis(1700000040000)", 10),
        ("partition in (1, 2)", 0),
        ("offset = 5 or offset = 7", 2),
        ("cast(value as string) like '%99'", 2),
    ],
)
def test_filters_are_kept_wherever_they_are_kept(
    where: str, count: int, orders: tuple[Path, Broker], spark: Session
) -> None:
    """Spark hands them down from 4.1 on; before it keeps them itself."""
    rows = spark.rows(OURS, where=where, path=orders[0], subscribe="orders", endOfLog="logEnd")
    assert len(rows) == count


def test_the_columns_are_those_of_the_connector_without_headers_too(
    orders: tuple[Path, Broker], spark: Session
) -> None:
    root, broker = orders
    wanted = spark.rows(CONNECTOR, subscribe="orders", kafka_bootstrap_servers=broker.bootstrap_servers)
    columns = spark.columns
    assert spark.rows(OURS, path=root, subscribe="orders", endOfLog="logEnd") == in_order(wanted)
    assert spark.columns == columns
    assert len(columns) == 7


@pytest.mark.parametrize(
    "names", [("value", "offset"), ("timestamp", "headers", "topic"), ("partition",)], ids=" ".join
)
def test_a_schema_names_the_columns_that_are_read(
    names: tuple[str, ...], orders: tuple[Path, Broker], spark: Session
) -> None:
    """The connector has no such thing, so what it gives is cut here."""
    root, broker = orders
    told = {"subscribe": "orders", "kafka.bootstrap.servers": broker.bootstrap_servers}
    whole = in_order(spark.rows(CONNECTOR, includeHeaders="true", **told))
    types = dict(spark.columns)
    at = [list(types).index(name) for name in names]
    wanted = [[row[column] for column in at] for row in whole]
    schema = ", ".join(f"{name} {types[name]}" for name in names)
    assert spark.rows(OURS, path=root, subscribe="orders", endOfLog="logEnd", schema=schema) == wanted
    assert spark.columns == [[name, types[name]] for name in names]
    assert spark.rows(OURS, schema=schema, **told) == wanted


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("offset long, vallue binary", "names 'vallue'; the columns there are: key, value, topic"),
        ("value string", "says value string, and it is binary"),
    ],
)
def test_a_schema_with_other_columns_is_refused(
    schema: str, reason: str, orders: tuple[Path, Broker], spark: Session
) -> None:
    with pytest.raises(SparkFailed, match=reason):
        spark.rows(OURS, path=orders[0], subscribe="orders", schema=schema)


@pytest.mark.parametrize("pattern", ["rder", "^ord", "x", "^(?!orders$)", "(orders|x)$"])
def test_patterns_are_those_of_the_connector(pattern: str, orders: tuple[Path, Broker], spark: Session) -> None:
    root, broker = orders
    told = {"subscribePattern": pattern}
    wanted = spark.rows(CONNECTOR, kafka_bootstrap_servers=broker.bootstrap_servers, **told)
    assert spark.rows(OURS, path=root, endOfLog="logEnd", **told) == wanted


def test_records_are_counted(orders: tuple[Path, Broker], spark: Session) -> None:
    assert spark.rows(OURS, group_by="topic", path=orders[0], subscribe="orders", endOfLog="logEnd") == [
        ["orders", 200]
    ]


def test_broken_batches_are_a_table(spark: Session, tmp_path: Path) -> None:
    written(tmp_path, 100, segment_bytes=1 << 20)
    path = tmp_path / "orders-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    for batch in list(every_batch(tmp_path / "orders-0")):
        if batch.base_offset in (30, 99):
            data[batch.end_position - 1] ^= 1
    path.write_bytes(data)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 100\n")
    before = tree(tmp_path)
    told = {"path": tmp_path, "subscribe": "orders"}
    with pytest.raises(SparkFailed, match=r"orders-0, offsets \d+ to \d+, byte \d+ of .*set mode to skip"):
        spark.rows(OURS, **told)
    assert len(spark.rows(OURS, mode="skip", **told)) == 98
    broken = spark.rows(OURS, mode="quarantine", **told)
    assert [row[2:4] for row in broken] == [[30, 30], [99, 99]]
    assert [name for name, _ in spark.columns] == [
        *("topic", "partition", "firstOffset", "lastOffset", "file", "position", "error", "bytes")
    ]
    assert os.path.samefile(broken[0][4], path)
    assert tree(tmp_path) == before


def test_nothing_is_a_table_too(spark: Session, tmp_path: Path) -> None:
    written(tmp_path, 5)
    assert spark.rows(OURS, path=tmp_path, subscribe="orders", startingOffsets='{"orders":{"0":5}}') == []
    assert spark.version == VERSION
