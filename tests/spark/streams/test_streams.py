"""Streams give what those of Spark's own Kafka connector give, micro-batch by micro-batch; and groups show them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Producer
from minibroker.client.admin import Admin
from minibroker.log.checkpoints import format_id
from tests.interop.spark import SparkFailed
from tests.spark.served import directory, served
from tests.spark.session import CONNECTOR, Session

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore:minibroker.Broker")]

OURS = "minibroker"
AVAILABLE, STEPS = "tests.spark.streaming:available", "tests.spark.streaming:steps"


def produce(broker: Broker, topic: str, counts: dict[int, int]) -> None:
    """Write so many records to each partition."""

    async def send() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for partition, count in counts.items():
                for number in range(count):
                    await producer.send(topic, b"%d" % number, key=b"k%d" % partition, partition=partition)

    asyncio.run(send())


def add_partitions(broker: Broker, topic: str, count: int) -> None:
    async def add() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).create_partitions({topic: count})

    asyncio.run(add())


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    async def delete() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).delete_records({(topic, 0): offset})

    asyncio.run(delete())


def id_of(broker: Broker, topic: str) -> str:
    async def ask() -> str:
        async with Cluster(broker.bootstrap_servers) as cluster:
            return format_id((await cluster.topic(topic)).id)

    return asyncio.run(ask())


def make_anew(broker: Broker, topic: str) -> None:
    async def make() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).delete_topics([topic])

    asyncio.run(make())
    broker.create_topic(topic)


def in_order(batch: list[list[Any]]) -> list[list[Any]]:
    return sorted(batch, key=lambda row: row[2:5])  # topic, partition, offset


def batches(answer: dict[str, Any]) -> list[list[list[Any]]]:
    return [in_order(batch) for batch in answer["batches"] if batch]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Broker]]:
    root = directory("kraft39-2-after-clean", tmp_path_factory.mktemp("golden"))
    with served(root) as broker:
        yield root, broker


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_are_those_of_the_connector(
    isolation: str, golden: tuple[Path, Broker], spark: Session, tmp_path: Path
) -> None:
    root, broker = golden
    told = {"subscribePattern": ".*", "includeHeaders": "true", "kafka.isolation.level": isolation}
    told |= {"startingOffsets": "earliest", "kafka.bootstrap.servers": broker.bootstrap_servers}
    of_path = {name: value for name, value in told.items() if "servers" not in name} | {"path": str(root)}
    wanted = batches(spark.call(AVAILABLE, source=CONNECTOR, options=told, checkpoint=str(tmp_path / "theirs")))
    assert len(wanted[0]) > 100
    schema = ""
    if isolation == "read_uncommitted":
        schema = "key binary, value binary, topic string, partition int, offset long"
        wanted = [[row[:5] for row in batch] for batch in wanted]
    ours = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=str(tmp_path / "wire"), schema=schema)
    assert batches(ours) == wanted
    if isolation == "read_committed":
        of_path["endOfLog"] = "logEnd"  # the broker is at work
        assert batches(spark.call(AVAILABLE, source=OURS, options=of_path, checkpoint=str(tmp_path / "path"))) == wanted


def test_micro_batches_and_lag_are_those_of_the_connector(spark: Session, tmp_path: Path) -> None:
    with Broker(topics=["orders:3"], data_dir=tmp_path / "data") as broker:
        produce(broker, "orders", {0: 20, 1: 7, 2: 1})
        told = {"subscribe": "orders", "maxOffsetsPerTrigger": "10", "startingOffsets": "earliest"}
        wire = told | {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.group.id": "readers",
            "commitOffsets": "true",
        }
        of_path = told | {"path": str(tmp_path / "data"), "endOfLog": "logEnd"}
        found = {
            name: spark.call(STEPS, source=source, options=options, checkpoint=str(tmp_path / name))
            for name, source, options in [
                ("theirs", CONNECTOR, wire),
                ("wire", OURS, wire),
                ("path", OURS, of_path),
            ]
        }
        theirs, ours = found["theirs"], found["wire"]
        assert batches(ours) == batches(theirs) == batches(found["path"])
        assert len(batches(ours)) == 3
        assert ours["asked"] == theirs["lag"] == [
            ["steps", "orders", partition, start, end, end, 0]
            for partition, start, end in [(0, 14, 20), (1, 4, 7), (2, 1, 1)]
        ]  # fmt: skip
        # What Spark of this version does not know is not made up.
        assert [row[:5] for row in ours["lag"]] == [row[:5] for row in theirs["lag"]]
        produce(broker, "orders", {0: 5})
        rows = {row.partition: row for row in broker.group("readers").partitions}
        assert {number: (row.committed, row.lag_to_hw) for number, row in rows.items()} == {
            0: (20, 5),
            1: (7, 0),
            2: (1, 0),
        }


def test_a_query_goes_on_from_a_checkpoint_of_the_connector(spark: Session, tmp_path: Path) -> None:
    """New partitions are read from their beginning; nothing comes twice or not at all."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with Broker(topics=["orders:1"]) as broker:
        produce(broker, "orders", {0: 5})
        told = {"subscribe": "orders", "kafka.bootstrap.servers": broker.bootstrap_servers}
        told["startingOffsets"] = "earliest"
        first = spark.call(AVAILABLE, source=CONNECTOR, options=told, checkpoint=str(theirs))
        assert [len(batch) for batch in first["batches"]] == [5]
        shutil.copytree(theirs, ours)
        add_partitions(broker, "orders", 2)
        produce(broker, "orders", {0: 3, 1: 4})
        wanted = spark.call(AVAILABLE, source=CONNECTOR, options=told, checkpoint=str(theirs))
        found = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=str(ours))
        assert batches(found) == batches(wanted)
        assert sum(map(len, batches(found))) == 7
        assert found["offsets"][-1][0] == wanted["offsets"][-1][0]
        end = dict(found["offsets"][-1][1])
        assert end.pop(f"orders#{id_of(broker, 'orders')}") == {}
        assert end == wanted["offsets"][-1][1]
        # And back: the connector goes on where we were, ids of topics or not.
        produce(broker, "orders", {0: 2, 1: 1})
        back = spark.call(AVAILABLE, source=CONNECTOR, options=told, checkpoint=str(ours))
        assert [row[3:5] for row in batches(back)[0]] == [[0, 8], [0, 9], [1, 4]]
        produce(broker, "orders", {1: 1})
        again = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=str(ours))
        assert [row[3:5] for row in batches(again)[0]] == [[1, 5]]


@pytest.mark.parametrize("way", ["wire", "path"])
def test_a_topic_that_was_made_anew_is_data_loss(way: str, spark: Session, tmp_path: Path) -> None:
    """It has more records than the old one had, so offsets alone would say nothing."""
    with Broker(topics=["orders", "other"], data_dir=tmp_path / "data") as broker:
        produce(broker, "orders", {0: 5})
        produce(broker, "other", {0: 1})
        wire = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "2000"}
        told = wire if way == "wire" else {"path": str(tmp_path / "data"), "endOfLog": "logEnd"}
        told |= {"subscribe": "orders,other", "startingOffsets": "earliest"}
        checkpoint = str(tmp_path / "checkpoint")
        before = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint)
        assert len(batches(before)[0]) == 6
        make_anew(broker, "orders")
        produce(broker, "orders", {0: 8})
        produce(broker, "other", {0: 1})
        with pytest.raises(SparkFailed, match=r"orders is another topic: it was deleted and made anew; set failOnData"):
            spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint)
        told["failOnDataLoss"] = "false"
        found = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint)
        assert [[row[2], *row[4:5]] for batch in batches(found) for row in batch] == [
            *(["orders", offset] for offset in range(8)),
            ["other", 1],
        ]


def test_data_loss_ends_a_query_or_is_passed_over(spark: Session, tmp_path: Path) -> None:
    with Broker(topics=["orders"]) as broker:
        produce(broker, "orders", {0: 5})
        told = {"subscribePattern": "^ord", "kafka.bootstrap.servers": broker.bootstrap_servers}
        told |= {"startingOffsets": '{"orders":{"0":2}}', "kafkaConsumer.pollTimeoutMs": "2000"}
        checkpoint = str(tmp_path / "checkpoint")
        assert len(batches(spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint))[0]) == 3
        produce(broker, "orders", {0: 5})
        delete_before(broker, "orders", 7)
        with pytest.raises(SparkFailed, match=r"orders-0: offset 5 was there when .*set failOnDataLoss"):
            spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint)
        told["failOnDataLoss"] = "false"
        found = spark.call(AVAILABLE, source=OURS, options=told, checkpoint=checkpoint)
        assert [row[4] for row in batches(found)[0]] == [7, 8, 9]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"subscribe": "order"}, "did you mean orders"),
        ({"startingOffsets": '{"orders":{"0":9}}'}, "orders-0 holds 0 to 5, there is no 9"),
    ],
)
def test_what_makes_no_sense_is_refused(told: dict[str, str], reason: str, spark: Session, tmp_path: Path) -> None:
    with Broker(topics=["orders"]) as broker:
        produce(broker, "orders", {0: 5})
        told = {"subscribe": "orders", "kafka.bootstrap.servers": broker.bootstrap_servers, **told}
        with pytest.raises(SparkFailed, match=reason):
            spark.call(AVAILABLE, source=OURS, options=told, checkpoint=str(tmp_path / "checkpoint"))
