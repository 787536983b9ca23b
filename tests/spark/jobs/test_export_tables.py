"""`export` into Delta Lake and Iceberg, as Maven has them: rows, runs that follow each other, fields that are added."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.log.records import Record
from tests.interop.spark import LAKES_VERSION, lakes_class_path, pyspark_folder
from tests.spark.jobs.tables import settings
from tests.spark.jobs.test_export import DAY_MS, LAKES, log_of, orders
from tests.spark.session import Session, started

pytestmark = [pytest.mark.slow, pytest.mark.interop]
MORE = "id INT, name STRING, at STRUCT<x: INT, all: ARRAY<STRUCT<z: INT>>>"


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    work = tmp_path_factory.mktemp("lakes")
    told = settings(str(work / "warehouse"))
    with started(work, pyspark=pyspark_folder(LAKES_VERSION), jars=lakes_class_path(), settings=told) as session:
        yield session


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_table_has_each_record_once_and_gets_new_fields(lakes: Session, tmp_path: Path, table_format: str) -> None:
    root = tmp_path / "data"
    target = str(tmp_path / "lake") if table_format == "delta" else "lake.shop.orders"
    told = {"path": str(root), "target": target, "table_format": table_format, "values": "json"}
    told |= {"checkpoint": str(tmp_path / "checkpoint")}
    log_of(root, "orders-0", orders(0, 3))
    log_of(root, "orders-1", orders(0, 2))
    assert lakes.call(f"{LAKES}:exported", **told, schema="id INT", offsets_max=3)["left for later"] > 0
    assert lakes.call(f"{LAKES}:exported", **told)["left for later"] == 0
    nothing = lakes.call(f"{LAKES}:exported", **told)
    assert (nothing["records"], nothing["notes"]) == (0, ["nothing new"])
    values = (b'{"id":3,"name":"c","at":{"x":1,"all":[{"z":2}]}}', b"no", b'{"id":"five"}')
    log_of(root, "orders-0", [Record(None, value, (), 20_000 * DAY_MS) for value in values])
    grown = lakes.call(f"{LAKES}:exported", **told, schema=MORE, compact=True)
    assert (grown["records"], grown["not parsed"]) == (3, 2)
    assert grown["problems"] == ["2 values are no JSON objects with these fields: see column json"]
    shown = "topic,partition,offset,value,cast(date as string),json.id,json.name,json.at.x,json.at.all[0].z"
    rows = lakes.call(f"{LAKES}:rows", target=target, columns=shown, table_format=table_format)
    first, second = "2024-10-04", "2024-10-05"
    assert rows == [
        ["orders", 0, 0, '{"id":0}', first, 0, None, None, None],
        ["orders", 0, 1, '{"id":1}', second, 1, None, None, None],
        ["orders", 0, 2, '{"id":2}', first, 2, None, None, None],
        ["orders", 0, 3, values[0].decode(), first, 3, "c", 1, 2],
        ["orders", 0, 4, "no", first, None, None, None, None],
        ["orders", 0, 5, values[2].decode(), first, None, None, None, None],
        ["orders", 1, 0, '{"id":0}', first, 0, None, None, None],
        ["orders", 1, 1, '{"id":1}', second, 1, None, None, None],
    ]
    fewer = lakes.call(f"{LAKES}:exported", **told, schema="id INT")
    assert "--schema has no json.name any more" in fewer["error"]
    other = lakes.call(f"{LAKES}:exported", **told, keys="string")
    assert "was begun with --keys binary, not string" in other["error"]
    # A table is of one checkpoint, and a checkpoint of one table.
    for checkpoint in ("other", "lost"):
        stranger = lakes.call(f"{LAKES}:exported", **{**told, "checkpoint": str(tmp_path / checkpoint)})
        assert "is not the checkpoint of" in stranger["error"]
    elsewhere = f"{target}-2" if table_format == "delta" else "lake.shop.others"
    absent = lakes.call(f"{LAKES}:exported", **{**told, "target": elsewhere})
    assert "is the checkpoint of an export that has written already" in absent["error"]
    assert len(lakes.call(f"{LAKES}:rows", target=target, table_format=table_format)) == 8


@pytest.mark.parametrize("name", ["t", "nowhere.shop.t", "lake/shop/t"])
def test_a_name_of_no_table_is_said_in_a_sentence(lakes: Session, tmp_path: Path, name: str) -> None:
    log_of(tmp_path / "data", "orders-0", orders(0, 1))
    told = {"path": str(tmp_path / "data"), "table_format": "iceberg", "checkpoint": str(tmp_path / "checkpoint")}
    wrong = lakes.call(f"{LAKES}:exported", target=name, **told)
    assert wrong["error"].startswith(f"OptionError: --format iceberg: {name} is no name of a table")


def test_a_checkpoint_that_cannot_be_made_is_said_in_a_sentence(lakes: Session, tmp_path: Path) -> None:
    log_of(tmp_path / "data", "orders-0", orders(0, 1))
    wrong = lakes.call(
        f"{LAKES}:exported", path=str(tmp_path / "data"), target="lake", checkpoint="/proc/no/checkpoint"
    )
    assert wrong["error"].startswith("OptionError: --checkpoint: /proc/no/checkpoint cannot be made")
