"""Segments of a bulk load: those that a broker would have written, in directories that a broker opens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.errors import StorageError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import HIGH_WATERMARKS, read_clean_shutdown, read_leader_epochs, read_offsets
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import APPEND_TIME
from minibroker.log.murmur2 import partition_of_key
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.spark.bulk_load.plans import LoadError
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.rows import BadRow
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.spark.loading import NOW_MS, Load, batch_of, loaded, opened, rows_of
from tests.spark.logs import read, tree

KINDS = (".log", ".index", ".timeindex")


def records_of(chance: Random, count: int, *, step_ms: int = 10) -> list[Record]:
    def some(size: int) -> bytes | None:
        return chance.choice([None, b"", chance.randbytes(chance.randrange(size)), b"same" * (size // 8)])

    return [
        Record(
            some(20),
            some(400),
            tuple((chance.choice(["", "trace", "é"]), some(9)) for _ in range(chance.choice([0, 0, 1, 3]))),
            NOW_MS + number * step_ms - chance.randrange(5 * step_ms),
        )
        for number in range(count)
    ]


def split(chance: Random, records: list[Record], tasks: int) -> list[list[pa.RecordBatch]]:
    """Return batches of random lengths for tasks, some of them without any."""
    found: list[list[pa.RecordBatch]] = [[] for _ in range(tasks)]
    borders = sorted(chance.randrange(len(records) + 1) for _ in range(3 * tasks - 1))
    for number, (begin, end) in enumerate(zip([0, *borders], [*borders, len(records)], strict=True)):
        found[number // 3].append(batch_of(records[begin:end]))
    return found


def problems(root: Path) -> list[str]:
    return [str(problem) for problem in verify_directory(OsStorage(str(root)), VerifiedCounts())]


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_files_are_those_that_our_log_writes_of_the_same_batches(codec: str, seed: int, tmp_path: Path) -> None:
    chance = Random(f"{codec} {seed}")
    records = records_of(chance, 400, step_ms=chance.choice([1, 3000]))
    limits = {"segmentBytes": chance.choice([3000, 20_000]), "indexIntervalBytes": chance.choice([1, 900, 4096])}
    loaded(
        tmp_path / "loaded",
        [[batch_of(records[:150]), batch_of(records[150:])]],
        **{"topic": "orders", "codec": codec, "batchBytes": 2000, "config__segment.ms": 600_000, **limits},
    )
    settings = LogSettings(
        segment_bytes=limits["segmentBytes"], index_interval_bytes=limits["indexIntervalBytes"], segment_ms=600_000
    )
    log = open_log(OsStorage(str(tmp_path / "ours")), "orders-0", settings)
    with opened(tmp_path / "loaded", "orders-0") as made:
        for segment in made.segments:
            for batch in batches(segment.view(0, segment.size_bytes)):
                log.append_as_leader(bytearray(bytes(8) + batch.view[8:]), leader_epoch=0, now_ms=NOW_MS)
    log.close()

    def files(root: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (root / "orders-0").iterdir() if path.suffix in KINDS}

    assert files(tmp_path / "loaded") == files(tmp_path / "ours")
    assert len(log.segments) > 1
    assert read_leader_epochs(OsStorage(str(tmp_path / "loaded")), "orders-0").entries == [(0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_rows_keep_their_order_and_go_where_their_keys_say(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    count, tasks = chance.choice([1, 3, 12]), chance.choice([1, 2, 5])
    expected: dict[int, list[Record]] = {partition: [] for partition in range(count)}
    open_records = 0
    for round_number in range(3):
        records = records_of(chance, 300)
        loaded(
            tmp_path / "data",
            split(chance, records, tasks),
            topic="orders",
            **({"partitions": count} if not round_number else {}),
            codec=chance.choice(CODEC_NAMES),
            batchBytes=chance.choice([512, 4000, 1 << 20]),
            segmentBytes=chance.choice([5000, 1 << 30]),
            bufferBytes=chance.choice([1, 20_000, 1 << 25]),
        )
        assert problems(tmp_path / "data") == []
        for record in records:
            if record.key is None:
                open_records += 1
            else:
                expected[partition_of_key(record.key, count)].append(record)
    high_watermarks = read_offsets(OsStorage(str(tmp_path / "data")), HIGH_WATERMARKS)
    without_key = 0
    for partition, wanted in expected.items():
        rows = rows_of(tmp_path / "data", f"orders-{partition}")
        assert [row[0] for row in rows] == list(range(len(rows)))
        assert high_watermarks["orders", partition] == len(rows)
        assert [row[1:] for row in rows if row[2] is not None] == [
            (record.timestamp, record.key, record.value, record.headers) for record in wanted
        ]
        without_key += sum(row[2] is None for row in rows)
        read_rows = read(tmp_path / "data", assign=f'{{"orders":[{partition}]}}', includeHeaders="true")
        assert [row[0] for row in read_rows] == [row[0] for row in rows]
    assert without_key == open_records


def test_topics_and_partitions_may_be_named_by_columns(tmp_path: Path) -> None:
    records = [Record(b"k%d" % n, b"v%d" % n, (), NOW_MS) for n in range(60)]
    names = pa.array(["a", "b.c"] * 30)
    numbers = pa.array([None if n % 3 else n % 4 for n in range(60)], pa.int32())
    done = loaded(tmp_path / "data", [[batch_of(records, topic=names, partition=numbers)]], partitions=4)
    assert {each.topic for each in done} == {"a", "b.c"}
    for name, begin in (("a", 0), ("b.c", 1)):
        for partition in range(4):
            wanted = [
                records[n].value
                for n in range(begin, 60, 2)
                if (partition_of_key(b"k%d" % n, 4) if n % 3 else n % 4) == partition
            ]
            assert [row[3] for row in rows_of(tmp_path / "data", f"{name}-{partition}")] == wanted


def test_rows_without_key_fill_batches_in_all_partitions(tmp_path: Path) -> None:
    records = [Record(None, b"v" * 200, (), NOW_MS + n) for n in range(4000)]
    done = loaded(tmp_path / "data", [[batch_of(records)]], topic="orders", partitions=4, batchBytes=20_000)
    assert [each.end_offset for each in done] == pytest.approx([1000] * 4, rel=0.15)
    with opened(tmp_path / "data", "orders-1") as log:
        assert max(batch.count for batch in log.segments[0].batches()) > 85


def test_settings_of_the_topic_are_kept_to(tmp_path: Path) -> None:
    records = [Record(b"k", b"v", (), NOW_MS - 5)]
    configs = {"config__message.timestamp.type": "LogAppendTime"}
    loaded(tmp_path / "data", [[batch_of(records)]], topic="stamped", **configs)
    with opened(tmp_path / "data", "stamped-0") as log:
        (batch,) = log.segments[0].batches()
        assert (batch.timestamp_type, batch.max_timestamp) == (APPEND_TIME, NOW_MS)
    load = Load(tmp_path / "data", topic="tables", config__cleanup__policy="compact").begin()
    with pytest.raises(LoadError, match="tables is compacted, and a row has no key"):
        load.task([batch_of([Record(None, b"v", (), 1)])])
    load.unlock()
    load = Load(tmp_path / "data", topic="small", **{"config__max.message.bytes": "300"}).begin()
    with pytest.raises(LoadError, match=r"max\.message\.bytes is 300"):
        load.task([batch_of([Record(None, b"v" * 300, (), 1)])])
    load.commit()
    assert "small-0" not in tree(tmp_path / "data")


def test_times_may_be_missing_or_numbers(tmp_path: Path) -> None:
    values = pa.array(["a", "b", "c"])
    times = pa.array([5, None, -1], pa.int64())
    loaded(
        tmp_path / "data",
        [
            [pa.RecordBatch.from_arrays([values, times], names=["value", "timestamp"])],
            [pa.RecordBatch.from_arrays([values], names=["value"])],
        ],
        topic="orders",
    )
    assert [row[1] for row in rows_of(tmp_path / "data", "orders-0")] == [5, NOW_MS, -1, NOW_MS, NOW_MS, NOW_MS]


# What goes wrong


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def failing() -> Any:
        yield batch_of([Record(b"k", b"v", (), 1)] * 50)
        raise RuntimeError("out of luck")

    load = Load(tmp_path / "data", topic="orders", bufferBytes=1).begin()
    with pytest.raises(RuntimeError):
        load.task(failing())
    load.tasks -= 1
    assert not [name for name in tree(tmp_path / "data") if name.endswith(".deleted")]
    load.task([batch_of([Record(b"k", b"again", (), 1)])], attempt=1)
    assert [each.end_offset for each in load.commit()] == [1]


def test_what_is_written_twice_counts_once(tmp_path: Path) -> None:
    load = Load(tmp_path / "data", topic="orders").begin()
    load.task([batch_of([Record(b"k", b"lost", (), 1)])])
    load.pieces.clear()
    load.tasks -= 1
    load.task([batch_of([Record(b"k", b"found", (), 1)])], attempt=1)
    load.commit()
    assert [row[3] for row in rows_of(tmp_path / "data", "orders-0")] == [b"found"]
    assert not [name for name in tree(tmp_path / "data") if "load-" in name or "-delete" in name]


@pytest.mark.parametrize("is_there", [False, True], ids=["new topic", "topic that is there"])
def test_a_load_that_never_ends_is_removed_by_the_next_one_and_by_a_broker(is_there: bool, tmp_path: Path) -> None:
    root, rows = tmp_path / "data", [[batch_of([Record(b"k", b"v", (), NOW_MS)])]]
    loaded(root, rows, topic="orders" if is_there else "others")
    before = tree(root)
    for _ in range(2):
        load = Load(root, topic="orders").begin()
        load.task(rows[0])
        load.unlock()
        assert tree(root) != before
    again = Load(root, topic="orders").begin()
    assert len(again.directory.left) == 1
    assert tree(root) == before
    again.task(rows[0])
    again.unlock()
    with Broker(data_dir=root) as broker:
        assert broker.bootstrap_servers
    assert not [name for name in tree(root) if "load-" in name or "-delete" in name]
    assert len(rows_of(root, "orders-0")) == 1 if is_there else not (root / "orders-0").exists()


def test_a_broker_at_work_keeps_loads_out_and_loads_keep_brokers_out(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with Broker(data_dir=root), pytest.raises(StorageError, match="at work in this directory"):
        Load(root, topic="orders").begin()
    load = Load(root, topic="orders").begin()
    with pytest.raises(Exception, match="at work in this directory"):
        Broker(data_dir=root).start()
    load.commit()


def test_a_broker_that_was_at_work_between_tasks_and_commit_makes_the_load_fail(tmp_path: Path) -> None:
    root = tmp_path / "data"
    loaded(root, [[batch_of([Record(b"k", b"v", (), NOW_MS)])]], topic="orders")
    for topic in ("orders", "others"):
        load = Load(root, topic=topic).begin()
        load.task([batch_of([Record(b"k", b"w", (), NOW_MS)])])
        load.unlock()  # as `df.write` does
        with Broker(data_dir=root):
            pass
        load.lock()
        with pytest.raises(LoadError, match="not there any more"):
            load.commit()
    assert [row[3] for row in rows_of(root, "orders-0")] == [b"v"]


def test_a_directory_that_was_left_in_disorder_is_put_in_order_first(tmp_path: Path) -> None:
    root = tmp_path / "data"
    loaded(root, [[batch_of([Record(b"k", b"v", (), NOW_MS)] * 3)]], topic="orders")
    (root / ".kafka_cleanshutdown").unlink()
    (root / "recovery-point-offset-checkpoint").unlink()
    torn = build_batch(2, [Record(b"k", b"torn")], base_offset=3, partition_leader_epoch=0)[:-1]
    with open(root / "orders-0" / f"{0:020}.log", "ab") as file:
        file.write(torn)
    loaded(root, [[batch_of([Record(b"k", b"w", (), NOW_MS)])]], topic="orders")
    assert [row[3] for row in rows_of(root, "orders-0")] == [b"v", b"v", b"v", b"w"]
    assert read_clean_shutdown(OsStorage(str(root))) is not None
    assert problems(root) == []


def test_what_a_topic_would_not_keep_is_counted(tmp_path: Path) -> None:
    def expired(topic: str, **options: object) -> tuple[bool, int, int]:
        old, young = (Record(b"k", b"v", (), NOW_MS - days * 86_400_000) for days in (30, 1))
        tasks = [[batch_of([old, old])], [batch_of([old, young])], [batch_of([old])]]
        (done,) = loaded(tmp_path / "data", tasks, topic=topic, **options)
        return done.is_new, done.expired, done.segments

    assert expired("orders") == (True, 2, 3), "a segment is as old as its youngest record"
    assert expired("orders") == (False, 2, 3)
    assert expired("kept", **{"config__retention.ms": -1}) == (True, 0, 3)
    assert expired("longer", **{"config__retention.ms": 40 * 86_400_000}) == (True, 0, 3)
    assert expired("compacted", **{"config__cleanup.policy": "compact"}) == (True, 0, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "orders", "partitions": 5}, "orders has 2 partitions, not 5"),
        ({"topic": "orders", "config__retention.ms": "7"}, r"config\.retention\.ms is for new topics: orders is there"),
        ({"topic": "or/ders"}, "option topic: 'or/ders' cannot be a topic"),
        ({"topic": "__cluster_metadata"}, "option topic: __cluster_metadata is a topic of the broker's own"),
        ({"topic": "x", "config__retentoin.ms": "7"}, "Unknown topic config name: retentoin.ms"),
        ({"topic": "x", "nodeId": "3"}, "belongs to node 1, not 3"),
        ({"topic": "x", "clusterId": "abc"}, "belongs to cluster"),
    ],
)
def test_what_the_directory_does_not_allow_is_said_before_anything_is_written(
    options: dict[str, object], text: str, tmp_path: Path
) -> None:
    loaded(tmp_path / "data", [[batch_of([Record(b"k", b"v", (), NOW_MS)])]], topic="orders", partitions=2)
    before = tree(tmp_path / "data")
    with pytest.raises(OptionError, match=text):
        Load(tmp_path / "data", **options).begin()
    assert tree(tmp_path / "data") == before


def test_directories_that_are_no_brokers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(OptionError, match=r"holds cat\.jpg and no meta\.properties"):
        Load(tmp_path / "photos", topic="orders").begin()


def test_a_directory_of_a_cluster_is_left_alone(tmp_path: Path) -> None:
    from minibroker import Cluster

    with Cluster(3, data_dir=tmp_path / "data"):
        pass
    for path in sorted((tmp_path / "data").iterdir()):
        with pytest.raises(OptionError, match="cluster"):
            Load(path, topic="orders").begin()
    with pytest.raises(OptionError):
        Load(tmp_path / "data", topic="orders").begin()


def test_rows_that_no_topic_takes_fail_the_task(tmp_path: Path) -> None:
    record = Record(b"k", b"v", (), NOW_MS)
    load = Load(tmp_path / "data", partitions=2).begin()
    with pytest.raises(BadRow, match="partition 2: topic orders has 2, counted from 0"):
        load.task([batch_of([record], topic=pa.array(["orders"]), partition=pa.array([2], pa.int32()))])
    with pytest.raises(BadRow, match="partition -1: partitions are counted from 0"):
        load.task([batch_of([record], topic=pa.array(["orders"]), partition=pa.array([-1], pa.int32()))])
    with pytest.raises(BadRow, match="a row has no topic"):
        load.task([batch_of([record], topic=pa.array([None], pa.string()))])
    with pytest.raises(LoadError, match=r"'\.\./up' cannot be a topic"):
        load.task([batch_of([record], topic=pa.array(["../up"]))])
    assert load.commit() == []
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_directory_may_be_of_node_0(tmp_path: Path) -> None:
    rows = [[batch_of([Record(b"k", b"v", (), NOW_MS)])]]
    loaded(tmp_path / "data", rows, topic="orders", nodeId=0)
    assert loaded(tmp_path / "data", rows, topic="orders")[0].first_offset == 1


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True], ids=["new topics", "topics that are there"])
def test_a_kill_at_any_rename_of_a_commit_leaves_a_directory_in_order(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [Record(b"k%d" % number, b"v" * 50, (), NOW_MS) for number in range(60)]
    topics = pa.array(["a", "b"] * 30)
    rows = [[batch_of(records[:30], topic=topics[:30])], [batch_of(records[30:], topic=topics[30:])]]
    told = {"partitions": 2, "segmentBytes": 600, "batchBytes": 512}
    rename, kills = OsStorage.rename, 0
    for count in range(1, 1000, 11):
        root = tmp_path / str(count)
        if is_there:
            loaded(root, rows, **told)
        load = Load(root, **told).begin()
        for batches_of_task in rows:
            load.task(batches_of_task)
        left = iter(range(count))

        def kill(storage: OsStorage, old: str, new: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed
            rename(storage, old, new)

        with monkeypatch.context() as patch, suppress(Killed):
            patch.setattr(OsStorage, "rename", kill)
            load.commit()
            break
        kills += 1
        before = 60 if is_there else 0
        with Broker(data_dir=root):
            pass
        assert problems(root) == []
        found = [
            len(rows_of(root, f"{topic}-{number}"))
            for topic in "ab"
            for number in (0, 1)
            if (root / f"{topic}-0").exists()
        ]
        assert (before <= sum(found) <= 120) if is_there else sum(found) in (0, 60)
        assert not [name for name in tree(root) if "load-" in name or "-delete" in name]
        loaded(root, rows, topic="again", segmentBytes=600, batchBytes=512)
        assert problems(root) == []
    assert kills > 3
