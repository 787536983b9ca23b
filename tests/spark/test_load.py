"""Bulk load in Spark, by function and by `df.write`: all rows once, in their order, and all or nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from minibroker import Broker
from minibroker.log.murmur2 import partition_of_key
from tests.interop.spark import SparkFailed
from tests.spark.loading import Load, batch_of, rows_of
from tests.spark.logs import tree
from tests.spark.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.interop]

LOAD, WRITE = "tests.spark.loads:load_rows", "tests.spark.loads:write_rows"
COLUMNS = {
    "key": "if(id % 7 = 0, null, encode(cast(id % 50 as string), 'UTF-8'))",
    "value": "if(id % 11 = 0, null, concat('v', id))",
    "timestamp": "timestamp_millis(1700000000000 + id)",
    "headers": "if(id % 2 = 0, null, array(named_struct('key', 'h', 'value', encode(cast(id as string), 'UTF-8'))))",
    "other": "id * 2",
}


def test_rows_are_read_back_as_they_were_loaded_by_either_way(spark: Session, tmp_path: Path) -> None:
    root, count = tmp_path / "data", 600
    told = {"topic": "orders", "batch_bytes": 2000, "segment_bytes": 6000, "codec": "lz4"}
    done = spark.call(
        LOAD,
        path=str(root),
        count=count,
        tasks=3,
        columns=COLUMNS,
        partitions=3,
        configs={"retention.ms": "-1"},
        **told,
    )
    assert done["records"] == count
    assert done["segments"] >= 9
    assert done["left"] == []
    options = {"topic": "orders", "batchBytes": 2000, "segmentBytes": 6000, "CODEC": "zstd"}
    spark.call(WRITE, path=str(root), count=count, tasks=3, columns=COLUMNS, **options)
    rows = spark.rows("minibroker", path=root, subscribe="orders", includeHeaders="true")
    assert len(rows) == 2 * count
    numbers = []
    for key, value, topic, partition, offset, timestamp, kind, headers in rows:
        number = timestamp // 1000 - 1_700_000_000_000
        numbers.append((partition, offset, number))
        assert (topic, kind) == ("orders", 0)
        assert value == (None if number % 11 == 0 else (b"v%d" % number).hex())
        assert key == (None if number % 7 == 0 else (b"%d" % (number % 50)).hex())
        assert headers == (None if number % 2 == 0 else [["h", (b"%d" % number).hex()]])
        assert key is None or partition == partition_of_key(bytes.fromhex(key), 3)
    for partition in range(3):
        of_one = sorted(each[1:] for each in numbers if each[0] == partition)
        assert [offset for offset, _ in of_one] == list(range(len(of_one)))
        in_order = [number for _, number in of_one]
        assert sum(later < sooner for sooner, later in pairwise(in_order)) == 1
    assert sorted(number for _, _, number in numbers) == sorted(2 * list(range(count)))
    with Broker(data_dir=root) as broker:
        assert broker.bootstrap_servers
    assert len(spark.rows("minibroker", path=root, subscribe="orders")) == 2 * count


def test_what_cannot_be_loaded_is_said_and_leaves_nothing(spark: Session, tmp_path: Path) -> None:
    root = tmp_path / "data"
    spark.call(LOAD, path=str(root), count=10, topic="orders")
    before = tree(root)
    failing = {"value": "if(id = 150, cast(raise_error('out of luck') as string), concat('v', id))"}
    for name in (LOAD, WRITE):
        for topic in ("orders", "others"):
            with pytest.raises(SparkFailed, match="out of luck"):
                spark.call(name, path=str(root), count=200, tasks=2, columns=failing, topic=topic)
    deadline = monotonic() + 60
    while tree(root) != before:
        # Of the two tasks one fails; the other, which Spark stops in its own time, may stage something yet.
        assert monotonic() < deadline
        assert spark.call(LOAD, path=str(root), count=0, topic="orders")["records"] == 0
    with pytest.raises(SparkFailed, match="there is no option 'topics'"):
        spark.call(WRITE, path=str(root), count=1, topics="orders")
    with pytest.raises(SparkFailed, match="mode"):
        spark.call(WRITE, path=str(root), count=1, topic="orders", mode="overwrite")
    with pytest.raises(SparkFailed, match="column value is bigint: it must be string or binary"):
        spark.call(WRITE, path=str(root), count=1, topic="orders", columns={"value": "id"})
    with pytest.raises(SparkFailed, match="no topic: set the option topic"):
        spark.call(LOAD, path=str(root), count=1)
    with Broker(data_dir=root):
        for name in (LOAD, WRITE):
            with pytest.raises(SparkFailed, match="at work in this directory"):
                spark.call(name, path=str(root), count=1, topic="orders")
    assert len(rows_of(root, "orders-0")) == 10


def test_what_a_killed_load_has_left_is_removed(spark: Session, tmp_path: Path) -> None:
    from minibroker.log.records import Record

    killed = Load(tmp_path / "data", topic="orders").begin()
    killed.task([batch_of([Record(b"k", b"v", (), 1)])])
    killed.unlock()
    done = spark.call(LOAD, path=str(tmp_path / "data"), count=10, topic="orders")
    assert done["left"] == [killed.directory.load_id]
    assert done["records"] == 10
    assert not [name for name in tree(tmp_path / "data") if "load-" in name or "-delete" in name]
