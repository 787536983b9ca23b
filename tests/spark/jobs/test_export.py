"""`export` in Spark: rows and columns, runs that follow each other, runs that are killed, data loss, small files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.log.build import build_batch
from minibroker.log.records import Record
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


def test_rows_are_those_of_the_topics_by_topic_and_date_of_utc(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    late = Record(None, None, (), 20_000 * DAY_MS - 1)  # a ms before midnight
    crazy = Record(b"\xff", b"\xff\xfe", (), 1_700_000_000_000_000)  # microseconds by mistake
    log_of(root, "orders-0", [*orders(0, 2), late, crazy])
    log_of(root, "users-1", orders(0, 1))
    told = spark.call(
        f"{LAKES}:exported", path=str(root), target=str(lake), topic="orders,users", values="json", schema="id INT"
    )
    assert (told["records"], told["files"], told["problems"]) == (5, 5, [])
    dates = {path.parent.relative_to(lake).as_posix() for path in lake.rglob("*.parquet")}
    assert dates == {
        "topic=orders/date=2024-10-03",
        "topic=orders/date=2024-10-04",
        "topic=orders/date=2024-10-05",
        "topic=orders/date=9999-12-31",
        "topic=users/date=2024-10-04",
    }
    shown = "topic,partition,offset,key,value,json.id,unix_millis(timestamp),timestampType,headers[0].value"
    day = 20_000 * DAY_MS
    assert spark.call(f"{LAKES}:rows", target=str(lake), columns=shown) == [
        ["orders", 0, 0, b"k0".hex(), '{"id":0}', 0, day, 0, b"x".hex()],
        ["orders", 0, 1, b"k1".hex(), '{"id":1}', 1, day + DAY_MS + 1, 0, b"x".hex()],
        ["orders", 0, 2, None, None, None, day - 1, 0, None],
        ["orders", 0, 3, "ff", "��", None, 1_700_000_000_000_000, 0, None],
        ["users", 1, 0, b"k0".hex(), '{"id":0}', 0, day, 0, b"x".hex()],
    ]
    assert spark.call(f"{LAKES}:columns", target=str(lake))[-2:] == [["topic", "string"], ["date", "date"]]


def test_runs_go_on_where_the_last_one_ended(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 5))
    told = {"path": str(root), "target": str(lake)}
    first = spark.call(f"{LAKES}:exported", **told, offsets_max=2)
    assert (first["records"], first["left for later"]) == (2, 3)
    assert spark.call(f"{LAKES}:exported", **told)["records"] == 3
    before = sorted(lake.rglob("*"))
    nothing = spark.call(f"{LAKES}:exported", **told)
    assert (nothing["records"], nothing["notes"]) == (0, ["nothing new in 1 partitions"])
    assert sorted(lake.rglob("*")) == before, "nothing is written where nothing is new"
    log_of(root, "orders-0", orders(5, 1))
    log_of(root, "orders-1", orders(0, 1))
    assert spark.call(f"{LAKES}:exported", **told)["records"] == 2
    compacted = spark.call(f"{LAKES}:exported", **told, compact=True)
    assert compacted["files rewritten"] == 6
    assert len(list(lake.glob("topic=*/date=*/*.parquet"))) == 2
    expected = [["orders", 0, offset] for offset in range(6)] + [["orders", 1, 0]]
    assert spark.call(f"{LAKES}:rows", target=str(lake)) == expected
    wrong = spark.call(f"{LAKES}:exported", **told, values="string")
    assert "was begun with --values binary, not string" in wrong["error"]


# At every step: test_export_manifest.py. Here before a version counts, while its files are moved, while small ones go.
@pytest.mark.parametrize(("changes", "after"), [(0, False), (1, True), (6, False)])
def test_an_export_that_is_killed_is_made_good(spark: Session, tmp_path: Path, changes: int, after: bool) -> None:
    log_of(tmp_path / "data", "orders-0", orders(0, 4))
    log_of(tmp_path / "data", "orders-1", orders(0, 6))
    was_killed, seen, rows, left = spark.call(
        f"{LAKES}:killed_at",
        path=str(tmp_path / "data"),
        target=str(tmp_path / "lake"),
        changes=changes,
        after=after,
    )
    assert was_killed
    assert left == []
    assert rows == [[0, offset] for offset in range(4)] + [[1, offset] for offset in range(6)]
    assert seen == 6 if not changes else 6 <= seen <= 20  # while files are replaced both are seen


def test_what_was_deleted_before_it_was_exported_is_told(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    written(root, 20)
    told = {"path": str(root), "target": str(lake)}
    assert spark.call(f"{LAKES}:exported", **told, offsets_max=3)["records"] == 3
    segments = sorted((root / "orders-0").glob("*.log"))
    segments[0].unlink()
    start = int(segments[1].stem)
    refused = spark.call(f"{LAKES}:exported", **told)
    lost = f"orders-0: offsets 3 to {start - 1} were deleted before they were exported"
    assert refused["error"].startswith(f"DataLoss: {lost}; set failOnDataLoss to false")
    assert spark.call(f"{LAKES}:exported", **told, fail_on_data_loss=False)["problems"] == [lost]
    rows = spark.call(f"{LAKES}:rows", target=str(lake))
    assert [row[2] for row in rows] == [*range(3), *range(start, 20)]
    assert spark.call(f"{LAKES}:exported", **told)["problems"] == []
    shutil.rmtree(root)
    written(root, 2)
    again = spark.call(f"{LAKES}:exported", **told)
    assert "orders-0 ends at 2, and 20 were exported already" in again["error"]


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
        assert "orders is another topic than the one that was exported: its id is" in told["error"]
    assert len(spark.call(f"{LAKES}:rows", target=wire["target"])) == 10


def test_broken_batches_that_are_left_out_are_problems(spark: Session, tmp_path: Path) -> None:
    root, lake = tmp_path / "data", tmp_path / "lake"
    log_of(root, "orders-0", orders(0, 10))
    log = root / "orders-0/00000000000000000000.log"
    data = bytearray(log.read_bytes())
    broken = list(every_batch(log.parent))[4]
    data[broken.end_position - 1] ^= 1
    log.write_bytes(data)
    told = {"path": str(root), "target": str(lake)}
    assert "CorruptBatch" in spark.call(f"{LAKES}:exported", **told)["error"]
    done = spark.call(f"{LAKES}:exported", **told, mode="skip")
    assert (done["offsets"], done["records"]) == (10, 9)
    (problem,) = done["problems"]
    assert problem.startswith("orders-0: offsets 4 to 4 are in a broken batch, which was left out: ")
    newest = sorted((lake / "_manifest").iterdir())[-1]
    assert json.loads(newest.read_text())["lost"] == [["orders", 0, 4, 5]]


def test_tables_that_the_session_lacks_are_refused(spark: Session, tmp_path: Path) -> None:
    written(tmp_path / "data", 1)
    told = {"path": str(tmp_path / "data"), "target": str(tmp_path / "lake")}
    delta = spark.call(f"{LAKES}:exported", **told, table_format="delta")
    assert "--format delta: this session has no Delta; add --conf spark.jars.packages=io.delta" in delta["error"]
    iceberg = spark.call(f"{LAKES}:exported", **told, table_format="iceberg", manifest=str(tmp_path / "m"))
    assert "this session has no Iceberg" in iceberg["error"]
    compact = spark.call(f"{LAKES}:exported", **told, table_format="delta", compact=True)
    assert "error" in compact


def test_json_whose_fields_cannot_be_guessed(spark: Session, tmp_path: Path) -> None:
    written(tmp_path / "data", 2)
    told = {"path": str(tmp_path / "data"), "target": str(tmp_path / "lake"), "values": "json"}
    refused = spark.call(f"{LAKES}:exported", **told)
    assert "of the first 2 values none is a JSON object with fields" in refused["error"]


def test_a_folder_of_hadoop(spark: Session, tmp_path: Path) -> None:
    told = spark.call(f"{LAKES}:hadoop_folder", place=str(tmp_path / "deep/er"))
    assert told == [
        False,
        [],
        b"23".hex(),
        False,
        True,
        [["b", 2, False], ["c", 256, False]],
        True,
        False,
        256,
        ["a/c", "x/y/b"],
        "StorageError: KAFKA_STORAGE_ERROR: read file://PLACE/x/y/b: java.io.FileNotFoundException: File "
        "file:PLACE/x/y/b does not exist",
        "OptionError: nowhere://a/b cannot be opened: org.apache.hadoop.fs.UnsupportedFileSystemException: No "
        'FileSystem for scheme "nowhere"',
        bytes(range(3)).hex(),
        "LocalFolder",
    ]
