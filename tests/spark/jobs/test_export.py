"""`export` in Spark: rows and columns, runs that follow each other, runs that are killed, data loss, small files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from minibroker import Broker
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.log.storage import OsStorage
from tests.spark.logs import every_batch, open_at, written
from tests.spark.session import Session
from tests.spark.streams.test_streams import produce

pytestmark = [pytest.mark.slow, pytest.mark.interop]
LAKES = "tests.spark.jobs.lakes"
DAY_MS = 86_400_000


def log_of(root: Path, name: str, records: list[Record]) -> None:
    """Write records behind those that are there, each in a batch."""
    log = open_at(root, name)
    for record in records:
        offset = log.log_end_offset
        log.append_as_follower(build_batch(2, [record._replace(offset=offset)], base_offset=offset), now_ms=0)
    log.close()


def orders(start: int, count: int) -> list[Record]:
    """Return records, the even ones of one day, the odd ones of the next."""
    return [
        Record(b"k%d" % number, b'{"id":%d}' % number, (("h", b"x"),), 20_000 * DAY_MS + number % 2 * DAY_MS + number)
        for number in range(start, start + count)
    ]


def rows_in(lake: Path) -> list[tuple[int, int]]:
    """Return partition and offset of each row, as a reader sees them who knows neither Spark nor us."""
    if not lake.exists():
        return []
    found = ds.dataset(lake, partitioning="hive").to_table()
    return sorted((row["partition"], row["offset"]) for row in found.to_pylist())


def test_rows_are_those_of_the_topics_by_topic_and_date_of_utc(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    late = Record(None, None, (), 20_000 * DAY_MS - 1)  # a ms before midnight
    crazy = Record(b"\xff", b"\xff\xfe", (), 1_700_000_000_000_000)  # microseconds by mistake
    log_of(root, "orders-0", [*orders(0, 2), late, crazy])
    log_of(root, "users-1", [*orders(0, 1), Record(b"e", b" ", (), 20_000 * DAY_MS)])
    told = spark.call(
        f"{LAKES}:exported", path=str(root), target=str(lake), topic="orders,users", values="json", schema="id INT"
    )
    assert (told["records"], told["files"], told["not parsed"], told["not UTF-8"]) == (6, 5, 2, 1)
    parsed, texts = told["problems"]
    assert parsed == "2 values are no JSON objects with these fields: see column json"
    assert texts.startswith("1 keys or values are no UTF-8: replacement characters stand")
    dates = {path.parent.relative_to(lake).as_posix() for path in lake.rglob("*.parquet")}
    assert dates == {
        "topic=orders/date=2024-10-03",
        "topic=orders/date=2024-10-04",
        "topic=orders/date=2024-10-05",
        "topic=orders/date=9999-12-31",
        "topic=users/date=2024-10-04",
    }
    assert ds.dataset(lake, partitioning="hive").to_table()["headers"].null_count == 3
    shown = "topic,partition,offset,key,value,json.id,unix_millis(timestamp),timestampType,headers[0].value"
    day = 20_000 * DAY_MS
    assert spark.call(f"{LAKES}:rows", target=str(lake), columns=shown) == [
        ["orders", 0, 0, b"k0".hex(), '{"id":0}', 0, day, 0, b"x".hex()],
        ["orders", 0, 1, b"k1".hex(), '{"id":1}', 1, day + DAY_MS + 1, 0, b"x".hex()],
        ["orders", 0, 2, None, None, None, day - 1, 0, None],
        ["orders", 0, 3, "ff", "��", None, 1_700_000_000_000_000, 0, None],
        ["users", 1, 0, b"k0".hex(), '{"id":0}', 0, day, 0, b"x".hex()],
        ["users", 1, 1, b"e".hex(), " ", None, day, 0, None],
    ]
    assert spark.call(f"{LAKES}:columns", target=str(lake))[-2:] == [["topic", "string"], ["date", "date"]]


def test_runs_go_on_where_the_last_one_ended(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 5))
    told = {"path": str(root), "target": str(lake)}
    first = spark.call(f"{LAKES}:exported", **told, offsets_max=2)
    assert (first["records"], first["left for later"]) == (2, 3)
    assert spark.call(f"{LAKES}:exported", **told, ending='{"orders":{"0":4}}')["records"] == 2
    assert spark.call(f"{LAKES}:exported", **told, offsets_max=2)["records"] == 1
    before = sorted(lake.rglob("*.parquet"))
    nothing = spark.call(f"{LAKES}:exported", **told)
    assert (nothing["records"], nothing["notes"], nothing["problems"]) == (0, ["nothing new"], [])
    assert sorted(lake.rglob("*.parquet")) == before, "nothing is written where nothing is new"
    log_of(root, "orders-0", orders(5, 1))
    log_of(root, "orders-1", orders(0, 1))
    assert spark.call(f"{LAKES}:exported", **told)["records"] == 2
    compacted = spark.call(f"{LAKES}:exported", **told, compact=True)
    assert compacted["files rewritten"] == 7
    assert len(list(lake.glob("topic=*/date=*/*.parquet"))) == 2
    expected = [["orders", 0, offset] for offset in range(6)] + [["orders", 1, 0]]
    assert spark.call(f"{LAKES}:rows", target=str(lake)) == expected
    assert rows_in(lake) == [(partition, offset) for _, partition, offset in expected]
    wrong = spark.call(f"{LAKES}:exported", **told, values="string")
    assert "was begun with --values binary, not string" in wrong["error"]


def test_what_a_run_found_that_was_killed_is_said_by_the_next_one_and_once(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 2))
    told = {"path": str(root), "target": str(lake)}
    assert spark.call(f"{LAKES}:exported", **told)["problems"] == []
    notes = lake / "_checkpoint" / "notes"
    assert not notes.exists()
    notes.mkdir()
    (notes / "1.json").write_text(json.dumps({"problems": ["left out: orders-0"], "ranges": {"orders/0": [0, 2]}}))
    (notes / "2.json").write_text(json.dumps({"batch": 0, "written": {"orders": [1, 2, 100, 1]}}))
    assert "was begun with" in spark.call(f"{LAKES}:exported", **told, values="string")["error"]
    said = spark.call(f"{LAKES}:exported", **told)
    assert said["records"] == 0
    assert [each.partition(" (found by a run that did not come to its end)")[0] for each in said["problems"]] == [
        "left out: orders-0",
        "1 values are no JSON objects with these fields: see column json",
    ]
    assert spark.call(f"{LAKES}:exported", **told)["problems"] == []


def test_counts_of_all_micro_batches_are_kept(spark: Session, tmp_path: Path) -> None:
    assert spark.call(f"{LAKES}:kept_while_running", checkpoint=str(tmp_path / "checkpoint")) == ["1000000", "100"]


def test_a_folder_belongs_to_one_checkpoint_and_a_checkpoint_to_one_run(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 2))
    told = {"path": str(root), "target": str(lake)}
    assert spark.call(f"{LAKES}:exported", **told)["records"] == 2
    other = spark.call(f"{LAKES}:exported", **told, checkpoint=str(tmp_path / "other"))
    assert "is not the checkpoint of" in other["error"]
    absent = {**told, "target": str(tmp_path / "absent"), "checkpoint": str(lake / "_checkpoint")}
    assert "has written already" in spark.call(f"{LAKES}:exported", **absent)["error"]
    storage = OsStorage(str(lake / "_checkpoint"))
    storage.lock()
    try:
        refused = spark.call(f"{LAKES}:exported", **told)
    finally:
        storage.unlock()
    assert "another export is at work with this checkpoint" in refused["error"]
    shutil.rmtree(lake / "_checkpoint")
    lost = spark.call(f"{LAKES}:exported", **told)
    assert "is not the checkpoint of" in lost["error"]
    assert rows_in(lake) == [(0, 0), (0, 1)]


def test_what_was_deleted_before_it_was_exported_is_told(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    written(root, 20)
    told = {"path": str(root), "target": str(lake)}
    assert spark.call(f"{LAKES}:exported", **told, offsets_max=3)["records"] == 3
    segments = sorted((root / "orders-0").glob("*.log"))
    segments[0].unlink()
    start = int(segments[1].stem)
    refused = spark.call(f"{LAKES}:exported", **told)
    assert f"orders-0 holds {start} to 20" in refused["error"], refused
    assert "set failOnDataLoss to false" in refused["error"]
    (problem,) = spark.call(f"{LAKES}:exported", **told, fail_on_data_loss=False)["problems"]
    assert f"orders-0 holds {start} to 20, and 3 to 20 were to be read" in problem
    assert rows_in(lake) == [(0, offset) for offset in [*range(3), *range(start, 20)]]
    assert spark.call(f"{LAKES}:exported", **told)["problems"] == []


def test_a_topic_that_was_made_anew_is_not_joined_to_the_old_one(spark: Session, tmp_path: Path) -> None:
    """Not even if it is longer by now than what was exported."""
    broker = Broker(topics=["orders"], data_dir=tmp_path / "data")
    of_path = {"path": str(tmp_path / "data"), "target": str(tmp_path / "path")}
    with broker:
        produce(broker, "orders", {0: 10})
        wire = {"servers": broker.bootstrap_servers, "target": str(tmp_path / "wire")}
        assert spark.call(f"{LAKES}:exported", **wire)["records"] == 10
    assert spark.call(f"{LAKES}:exported", **of_path)["records"] == 10
    with broker:
        broker.delete_topic("orders")
        broker.create_topic("orders")
        produce(broker, "orders", {0: 30})
        refused = spark.call(f"{LAKES}:exported", **wire | {"servers": broker.bootstrap_servers})
    for told in (refused, spark.call(f"{LAKES}:exported", **of_path)):
        assert "orders is another topic: it was deleted and made anew" in told["error"]
    assert len(rows_in(tmp_path / "wire")) == 10


def test_broken_batches_that_are_left_out_are_problems(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 10))
    log = root / "orders-0/00000000000000000000.log"
    data = bytearray(log.read_bytes())
    broken = list(every_batch(log.parent))[4]
    data[broken.end_position - 1] ^= 1
    log.write_bytes(data)
    told = {"path": str(root), "target": str(lake)}
    assert "TaskFailed: orders-0, offsets 4 to 4, byte " in spark.call(f"{LAKES}:exported", **told)["error"]
    assert rows_in(lake) == []
    done = spark.call(f"{LAKES}:exported", **told, mode="skip")
    assert (done["offsets"], done["records"], done["finished a run that was killed"]) == (10, 9, True)
    (problem,) = done["problems"]
    assert problem.startswith("left out: orders-0, offsets 4 to 4, byte ")


def test_tables_that_the_session_lacks_are_refused(spark: Session, tmp_path: Path) -> None:
    written(tmp_path / "data", 1)
    told = {"path": str(tmp_path / "data"), "target": str(tmp_path / "lake")}
    delta = spark.call(f"{LAKES}:exported", **told, table_format="delta")
    assert "--format delta: this session has no Delta; add --conf spark.jars.packages=io.delta" in delta["error"]
    iceberg = spark.call(f"{LAKES}:exported", **told, table_format="iceberg")
    assert "name a folder with --checkpoint DIR" in iceberg["error"]
    iceberg = spark.call(f"{LAKES}:exported", **told, table_format="iceberg", checkpoint=str(tmp_path / "c"))
    assert "this session has no Iceberg" in iceberg["error"]


def test_fields_of_json_are_guessed_and_can_become_more(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 2))
    log_of(root, "users-0", [Record(None, b'{"at":{"x":1}}', (), 20_000 * DAY_MS)])
    told = {"path": str(root), "target": str(lake), "topic": "orders,users", "values": "json"}
    assert spark.call(f"{LAKES}:exported", **told)["problems"] == []
    log_of(root, "users-0", [Record(None, b'{"at":{"x":2,"y":"b"}}', (), 20_000 * DAY_MS)])
    more = "at STRUCT<x: BIGINT, y: STRING>, id BIGINT, name STRING"
    assert spark.call(f"{LAKES}:exported", **told, schema=more, compact=True)["files rewritten"] == 2
    shown = "topic,partition,offset,json.at.x,json.at.y,json.id,json.name"
    assert spark.call(f"{LAKES}:rows", target=str(lake), columns=shown) == [
        ["orders", 0, 0, None, None, 0, None],
        ["orders", 0, 1, None, None, 1, None],
        ["users", 0, 0, 1, None, None, None],
        ["users", 0, 1, 2, "b", None, None],
    ]
    fewer = spark.call(f"{LAKES}:exported", **told, schema="id BIGINT")
    assert "--schema has no json.at any more" in fewer["error"]
    other = spark.call(f"{LAKES}:exported", **told, schema=more.replace("id BIGINT", "id STRING"))
    assert "--schema says json.id string, and it is bigint" in other["error"]
    wrong = spark.call(f"{LAKES}:exported", **told, schema="id NOTHING")
    assert wrong["error"].startswith("OptionError: --schema 'id NOTHING': ")


def test_json_whose_fields_cannot_be_guessed(spark: Session, tmp_path: Path) -> None:
    written(tmp_path / "data", 2)
    told = {"path": str(tmp_path / "data"), "target": str(tmp_path / "lake"), "values": "json"}
    refused = spark.call(f"{LAKES}:exported", **told)
    assert "of the first values none is a JSON object with fields" in refused["error"]


def test_fields_that_differ_only_in_case_are_refused_if_they_are_guessed(spark: Session, tmp_path: Path) -> None:
    values = b'{"id":1}', b'{"x":[{"A":{"b":1}}],"ID":2}', b'{"x":[{"A":{"B":1}}]}'
    root, told = tmp_path / "data", {"target": str(tmp_path / "lake"), "values": "json"}
    log_of(root, "users-0", [Record(None, value, (), 20_000 * DAY_MS) for value in values[1:]])
    refused = spark.call(f"{LAKES}:exported", path=str(root), topic="users", **told)
    assert refused["error"].startswith("OptionError: --values json: x.A.B and x.A.b differ only in case of letters, ")
    log_of(root, "orders-0", [Record(None, value, (), 20_000 * DAY_MS) for value in values[:2]])
    refused = spark.call(f"{LAKES}:exported", path=str(root), **told)
    assert refused["error"].startswith("OptionError: --values json: ID and id differ only in case of letters, ")
    assert spark.call(f"{LAKES}:exported", path=str(root), **told, schema="id INT")["records"] == 2
    assert spark.call(f"{LAKES}:rows", target=told["target"], columns="json.id") == [[1], [None]]


def test_a_task_has_a_bounded_number_of_topics(spark: Session) -> None:
    works = spark.call(f"{LAKES}:works", topics=500, partitions=3, records=10)
    assert sum(topics for _, topics in works) <= 500 + len(works), "a topic stays together, but at the edges"
    assert max(topics for _, topics in works) <= 65
    assert sum(logs for logs, _ in works) == 1500
    assert spark.call(f"{LAKES}:works", topics=1, partitions=1500, records=10) == [[1500, 1]]
    assert spark.call(f"{LAKES}:works", topics=2, partitions=2, records=100_000) == [[1, 1]] * 4


def test_fields_of_the_run_before_are_found_by_their_names(spark: Session) -> None:
    some, many = (spark.call(f"{LAKES}:compared_names", fields=fields) for fields in (50, 500))
    assert many < 20 * some
