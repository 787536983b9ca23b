"""What is planned: ranges, splits, what is pruned, and what is said where something is not there."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.checkpoints import CLEAN_SHUTDOWN, CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS, format_offsets
from minibroker.log.index import OFFSET_ENTRY, TIME_ENTRY
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.records import Record
from minibroker.spark.files.directories import Unreadable
from minibroker.spark.files.planning import FileLogs
from minibroker.spark.files.rows import TaskReader
from minibroker.spark.filters import Filters
from minibroker.spark.option_values import OptionError
from minibroker.spark.ranges import DataLoss
from minibroker.spark.reading import all_ranges, plan
from tests.spark.logs import (
    START_MS,
    asked,
    every_batch,
    offsets,
    one_by_one,
    open_at,
    promise,
    read,
    rows_of,
    tasks_of,
    tree,
    written,
)


def bases(root: Path, name: str = "orders-0") -> list[int]:
    return [int(path.name[:20]) for path in sorted((root / name).glob("*.log"))]


def spans(tasks: list[Any]) -> list[tuple[int, int]]:
    return [(task.first_offset, task.end_offset) for task in tasks]


# Which directories


def test_a_directory_of_one_partition_is_enough(tmp_path: Path) -> None:
    written(tmp_path, 10)
    written(tmp_path, 5, "orders-1")
    assert offsets(read(tmp_path / "orders-0")) == [*range(10)]
    both = read("", path=f"{tmp_path / 'orders-0'}, {tmp_path / 'orders-1'}")
    assert offsets(both) == [*range(10), *range(5)]


def test_disks_of_one_broker_are_read_together_and_nothing_twice(tmp_path: Path) -> None:
    written(tmp_path / "a", 10)
    written(tmp_path / "b", 5, "orders-1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = read("", path=",".join(str(tmp_path / name) for name in ("a", "b", "link")))
    assert offsets(found) == [*range(10), *range(5)]


def test_of_replicas_the_one_is_read_that_knows_the_highest_high_watermark(tmp_path: Path) -> None:
    for broker, count, high_watermark in (("a", 30, 10), ("b", 25, 20), ("c", 30, 15)):
        written(tmp_path / broker, count)
        promise(tmp_path / broker, {("orders", 0): high_watermark})
    (task,) = tasks_of("", path=",".join(str(tmp_path / broker) for broker in "abc"))
    assert task.root == str(tmp_path / "b")
    assert task.end_offset == 20


def test_other_directories_are_no_partitions(tmp_path: Path) -> None:
    written(tmp_path, 10)
    for name in ("orders-1.0123abcd-delete", "orders-2.abc-stray", "orders-3.abc-future", "orders", "-1"):
        shutil.copytree(tmp_path / "orders-0", tmp_path / name)
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert [task.partition for task in tasks_of(tmp_path)] == [0]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"path": "/nowhere/at/all"}, "there is no directory /nowhere/at/all"),
        ({"topic": "order"}, "there is no topic order in .*; did you mean orders?"),
        ({"topic": "xyz"}, "there is no topic xyz in .*; there are orders"),
        ({"subscribePattern": "x.*"}, r"no topic matches x\.\*; there are orders"),
        ({"assign": '{"orders":[0,1]}'}, r"assign: orders has no partition 1 here, only \[0\]"),
        ({"assign": '{"orderz":[0]}'}, "assign: there is no topic orderz in"),
        ({"startingOffsets": '{"orders":{"1":0}}'}, "orders-0 must have one.*orders-1 will not be read"),
        ({"startingTimestamp": START_MS + 10_000}, "no record that is not older than 1700000010000; set"),
        ({"startingTimestamp": START_MS + 5_000, "endingTimestamp": START_MS + 2_000}, "begin at 5 and end before"),
    ],
)
def test_what_is_not_there_is_said(told: dict[str, Any], reason: str, tmp_path: Path) -> None:
    written(tmp_path, 10)
    with pytest.raises(OptionError, match=reason):
        tasks_of(tmp_path, **told)


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with pytest.raises(OptionError, match=r"there is no log in .*TOPIC-PARTITION"):
        tasks_of(tmp_path)
    written(tmp_path / "x", 5)
    shutil.copytree(tmp_path / "x/orders-0", tmp_path / "copied")
    with pytest.raises(OptionError, match="name it as a log is named, TOPIC-PARTITION"):
        tasks_of(tmp_path / "copied")


# From where to where


def test_a_log_begins_where_its_checkpoint_says(tmp_path: Path) -> None:
    written(tmp_path, 50)
    (tmp_path / LOG_STARTS).write_bytes(format_offsets({("orders", 0): 17}))
    assert offsets(read(tmp_path)) == [*range(17, 50)]
    with pytest.raises(DataLoss, match="orders-0 begins at 17, what was before it has been deleted: there is no 3"):
        tasks_of(tmp_path, startingOffsets=3)
    assert offsets(read(tmp_path, startingOffsets=3, failOnDataLoss="false")) == [*range(17, 50)]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"startingOffsets": 2, "endingOffsets": 5}, "startingOffsets: orders-0 begins at 17, .*there is no 2"),
        ({"endingOffsets": 5}, "endingOffsets: orders-0 begins at 17, .*there is no 5"),
        ({"startingOffsets": 60}, "startingOffsets: orders-0 ends at 50, there is nothing up to 60"),
        ({"startingOffsets": 60, "endingOffsets": 70}, "startingOffsets: orders-0 ends at 50"),
    ],
)
def test_a_range_outside_of_the_log_is_data_loss_and_else_empty(
    told: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """Retention may have taken all that was asked for, and a log may have been cut."""
    written(tmp_path, 50)
    (tmp_path / LOG_STARTS).write_bytes(format_offsets({("orders", 0): 17}))
    with pytest.raises(DataLoss, match=reason):
        tasks_of(tmp_path, **told)
    assert read(tmp_path, **told, failOnDataLoss="false") == []


def test_a_log_ends_at_its_high_watermark(tmp_path: Path) -> None:
    written(tmp_path, 50)
    promise(tmp_path, {("orders", 0): 31})
    assert offsets(read(tmp_path)) == [*range(31)]
    assert offsets(read(tmp_path, endOfLog="logEnd")) == [*range(50)]
    with pytest.raises(DataLoss, match="orders-0 ends at 31, there is nothing up to 40"):
        tasks_of(tmp_path, endingOffsets=40)
    assert offsets(read(tmp_path, endingOffsets=40, failOnDataLoss="false")) == [*range(31)]
    assert offsets(read(tmp_path, startingOffsets=4, endingOffsets=6)) == [4, 5]
    assert read(tmp_path, startingOffsets=31) == []


def test_a_high_watermark_behind_the_end_means_that_something_is_missing(tmp_path: Path) -> None:
    written(tmp_path, 50)
    promise(tmp_path, {("orders", 0): 51})
    with pytest.raises(
        DataLoss, match="should reach to 51, its high watermark, and ends at 50: the directory was copied"
    ):
        tasks_of(tmp_path)
    assert len(read(tmp_path, failOnDataLoss="false")) == 50


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_what_is_cut_off_a_range_is_told_once(isolation: str, tmp_path: Path) -> None:
    written(tmp_path, 50)
    promise(tmp_path, {("orders", 0): 51})
    (tmp_path / LOG_STARTS).write_bytes(format_offsets({("orders", 0): 17}))
    options = asked(tmp_path, failOnDataLoss="false", startingOffsets=3, kafka_isolation_level=isolation)
    for planned in (plan, all_ranges):
        told: list[str] = []
        planned(options, tell=told.append)
        end, begin = told
        assert end.startswith("data loss, orders-0 in ")
        assert "should reach to 51" in end
        assert begin == (
            "data loss, startingOffsets: orders-0 begins at 17, what was before it has been deleted: there is no 3"
        )


def merged(root: Path) -> None:
    """Do what the cleaner does of two segments, but for the index of the second one."""
    first, second = (root / f"orders-0/{base:020}.log" for base in bases(root)[:2])
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()


def test_a_segment_of_which_only_indexes_are_left_is_data_loss(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    written(whole, 100, per_batch=5)
    first, base, behind = bases(whole)
    assert (first, base, behind) == (0, 40, 80)
    name = f"orders-0/{base:020}.log"

    def told(harm: Callable[[Path], object], **options: object) -> list[str]:
        root = tmp_path / "data"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(whole, root)
        harm(root)
        if lost := list(map(str, _told(root, **options))):
            with pytest.raises(DataLoss, match=f"the segment that begins at {base} "):
                tasks_of(root, **options)
        return lost

    def _told(root: Path, **options: object) -> list[str]:
        found: list[str] = []
        plan(asked(root, failOnDataLoss="false", **options), tell=found.append)
        return found

    (gone,) = told(lambda root: (root / name).unlink())
    assert gone.endswith(f"the segment that begins at {base} is not there, and its indexes are")
    (emptied,) = told(lambda root: (root / name).write_bytes(b""))
    assert emptied.endswith(f"the segment that begins at {base} is empty, and its indexes are not")
    for wanted in ({"endingOffsets": base}, {"startingOffsets": behind}):
        assert told(lambda root: (root / name).unlink(), **wanted) == []
    assert told(lambda root: (root / name).unlink(), startingOffsets=base + 1) == [gone]
    # What may have been cleaning, or is to go.
    assert told(merged) == []
    assert told(lambda root: (root / name).rename(root / f"{name}.deleted")) == []
    assert told(lambda root: (root / f"orders-0/{0:020}.log").unlink()) == []

    def cleaned(root: Path) -> None:
        (root / name).unlink()
        (root / CLEANER_OFFSETS).write_bytes(format_offsets({("orders", 0): behind}))

    def emptied_by_cleaning(root: Path) -> None:
        for path in (root / "orders-0").glob(f"{base:020}.*"):
            path.write_bytes(b"")

    assert told(cleaned) == told(emptied_by_cleaning) == []


def test_broken_checkpoints_are_none(tmp_path: Path) -> None:
    written(tmp_path, 20)
    for name in (LOG_STARTS, RECOVERY_POINTS, "replication-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"0\n7\nnonsense")
    assert len(read(tmp_path)) == 20


def test_times_become_offsets(tmp_path: Path) -> None:
    written(tmp_path, 50)
    assert len(bases(tmp_path)) > 2
    at = {offset: START_MS + 1000 * offset for offset in range(60)}
    assert offsets(read(tmp_path, startingTimestamp=at[20] - 999, endingTimestamp=at[30])) == [*range(20, 30)]
    assert offsets(read(tmp_path, startingOffsetsByTimestamp=at[45], endingOffsetsByTimestamp=at[55])) == [
        *range(45, 50)
    ]
    told = {"startingTimestamp": at[50], "startingOffsetsByTimestampStrategy": "latest"}
    assert read(tmp_path, **told) == []
    promise(tmp_path, {("orders", 0): 31})
    assert offsets(read(tmp_path, startingTimestamp=at[25])) == [*range(25, 31)]
    with pytest.raises(OptionError, match="no record that is not older"):
        tasks_of(tmp_path, startingTimestamp=at[40])


def test_empty_logs_have_no_tasks(tmp_path: Path) -> None:
    open_at(tmp_path).close()
    assert tasks_of(tmp_path) == []
    for path in (tmp_path / "orders-0").iterdir():
        path.unlink()
    assert tasks_of(tmp_path) == []


# Transactions


def transactional(log: Any, offset: int, producer: int, count: int = 1) -> int:
    records = [Record(None, b"%d" % offset, (), START_MS, offset + index) for index in range(count)]
    made = build_batch(
        2, records, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_follower(made, now_ms=START_MS)
    return offset + count


def ended(log: Any, offset: int, producer: int, *, commit: bool) -> int:
    marker = build_transaction_marker(
        commit=commit,
        offset=offset,
        timestamp=START_MS,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        partition_leader_epoch=0,
    )
    log.append_as_follower(marker, now_ms=START_MS)
    return offset + 1


@pytest.mark.parametrize("state", ["clean", "killed", "alone"])
def test_open_transactions_hold_the_end_back(state: str, tmp_path: Path) -> None:
    log = open_at(tmp_path)
    transactional(log, 0, 7)
    transactional(log, 1, 8)
    ended(log, 2, 7, commit=False)
    transactional(log, 3, 7)
    ended(log, 4, 7, commit=True)
    ended(log, 5, 8, commit=True)
    transactional(log, 6, 9)
    transactional(log, 7, 7)
    ended(log, 8, 7, commit=True)
    log.close()
    if state == "clean":
        promise(tmp_path, {("orders", 0): 9})
        (tmp_path / CLEAN_SHUTDOWN).write_text("{}")
    elif state == "killed":
        promise(tmp_path, {("orders", 0): 9})
        (tmp_path / RECOVERY_POINTS).write_bytes(format_offsets({("orders", 0): 0}))
    else:
        for path in (tmp_path / "orders-0").glob("*.snapshot"):
            path.unlink()
    told = {"kafka_isolation_level": "read_committed"}
    assert offsets(read(tmp_path, **told)) == [1, 3] == offsets(one_by_one(tmp_path / "orders-0", read_committed=True))
    assert offsets(read(tmp_path)) == [0, 1, 3, 6, 7]
    promise(tmp_path, {("orders", 0): 4})  # the marker is not committed yet
    assert offsets(read(tmp_path, **told)) == []
    logs = FileLogs(asked(tmp_path, **told), print)
    of_stream = logs.tasks(logs.again({("orders", 0): (0, 1)}, {}, print), Filters())
    assert [row for task in of_stream for row in rows_of(TaskReader(task, asked(tmp_path, **told)))] == []
    promise(tmp_path, {("orders", 0): 6})
    assert offsets(read(tmp_path, **told)) == [1, 3]
    with pytest.raises(DataLoss, match="ends at 6, there is nothing up to 7"):
        promise(tmp_path, {("orders", 0): 9})
        tasks_of(tmp_path, endingOffsets=7, **told)


def test_where_transactions_cannot_be_told_nothing_is_guessed(tmp_path: Path) -> None:
    log = open_at(tmp_path, segment_bytes=1 << 20)
    for offset in range(20):
        transactional(log, offset, 7)
    log.close()
    path = tmp_path / "orders-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    (position,) = [batch.position for batch in every_batch(tmp_path / "orders-0") if batch.base_offset == 3]
    data[position + 8] ^= 1
    path.write_bytes(data + b"torn")
    told = {"kafka_isolation_level": "read_committed"}
    for snapshot in (tmp_path / "orders-0").glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(
        Unreadable, match=r"orders-0 in .*: cannot tell which transactions have ended.*read_uncommitted"
    ):
        tasks_of(tmp_path, **told)
    assert len(read(tmp_path, mode="skip")) > 15
    path.write_bytes(b"".join(bytes(part) for part in [data[: position + 8], b"\0", data[position + 9 :], b"torn"]))
    assert read(tmp_path, **told) == []  # the transaction is open; what is torn at the end is not looked at
    assert len(read(tmp_path)) == 20


# Splitting


def test_neighbouring_segments_are_read_by_one_task(tmp_path: Path) -> None:
    written(tmp_path, 100)
    count = len(bases(tmp_path))
    assert spans(tasks_of(tmp_path)) == [(0, 100)]
    tasks = tasks_of(tmp_path, maxBytesPerPartition=2000)
    assert len(tasks) == -(-count // 2)
    assert all(task.size_bytes <= 2000 for task in tasks)
    assert [task.first_offset for task in tasks] == bases(tmp_path)[::2]
    assert [part[0] for task in tasks for part in task.parts] == bases(tmp_path)


@pytest.mark.parametrize("per_batch", [1, 7])
def test_large_segments_are_cut_where_batches_end(per_batch: int, tmp_path: Path) -> None:
    written(tmp_path, 700, per_batch=per_batch, segment_bytes=1 << 20)
    assert bases(tmp_path) == [0]
    borders = {batch.base_offset for batch in every_batch(tmp_path / "orders-0")}
    size_bytes = (tmp_path / "orders-0/00000000000000000000.log").stat().st_size
    for pieces in (2, 3, 10):
        tasks = tasks_of(tmp_path, minPartitions=pieces)
        assert len(tasks) == pieces
        assert {task.first_offset for task in tasks} <= borders
        sizes = [task.end_offset - task.first_offset for task in tasks]
        assert max(sizes) < 1.5 * 700 / pieces, sizes
        assert sum(task.size_bytes for task in tasks) == pytest.approx(size_bytes, rel=0.02)
        assert offsets(read(tmp_path, minPartitions=pieces)) == [*range(700)]
    tasks = tasks_of(tmp_path, minPartitions=4, startingOffsets=350)
    assert spans(tasks)[0][0] == 350
    assert spans(tasks)[-1][1] == 700
    assert len(tasks) == 4


def test_tasks_have_at_most_so_many_offsets(tmp_path: Path) -> None:
    written(tmp_path, 100)
    tasks = tasks_of(tmp_path, maxRecordsPerPartition=9)
    assert max(end - first for first, end in spans(tasks)) <= 9
    assert offsets(read(tmp_path, maxRecordsPerPartition=9)) == [*range(100)]


def test_a_task_goes_to_another_process_and_is_small(tmp_path: Path) -> None:
    written(tmp_path, 100)
    (task,) = tasks_of(tmp_path)
    again = pickle.loads(pickle.dumps(task))
    assert repr(again) == repr(task)
    assert again.parts == task.parts
    assert len(pickle.dumps(task)) < 600


# What is not looked at


class Opened(list[str]):
    """Which files have been opened."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    open_file = ReadOnlyStorage.open

    def note(self: ReadOnlyStorage, path: str, *, create: bool = False) -> Any:
        found.append(path)
        return open_file(self, path, create=create)

    monkeypatch.setattr(ReadOnlyStorage, "open", note)
    return found


def of_segments(opened: Opened) -> set[int]:
    return {int(path[9:29]) for path in opened if path.startswith("orders-0/0") and ".snapshot" not in path}


def test_of_segments_within_a_range_only_names_are_looked_at(opened: Opened, tmp_path: Path) -> None:
    written(tmp_path, 200)
    first, *middle, last = bases(tmp_path)
    assert len(middle) > 10
    assert tasks_of(tmp_path)
    assert of_segments(opened) <= {first, last}
    opened.clear()
    (task,) = tasks_of(tmp_path, startingOffsets=middle[3] + 1, endingOffsets=middle[5] + 1)
    assert of_segments(opened) == {middle[3], middle[5], last}
    assert [part[0] for part in task.parts] == middle[3:6]


def test_a_task_opens_only_its_segments(opened: Opened, tmp_path: Path) -> None:
    written(tmp_path, 200)
    every = bases(tmp_path)
    assert offsets(read(tmp_path, startingOffsets=every[3] + 1, endingOffsets=every[3] + 2)) == [every[3] + 1]
    assert of_segments(opened) == {every[3], every[-1]}


def test_segments_older_than_asked_for_are_left_out(tmp_path: Path) -> None:
    written(tmp_path, 200)
    every = bases(tmp_path)
    for wanted in (every[4], every[4] + 1, every[5] - 1):
        filters = Filters(first_timestamp=START_MS + 1000 * wanted)
        (task,) = tasks_of(tmp_path, filters=filters)
        assert task.parts[0][0] == every[4]
        assert offsets(read(tmp_path, filters=filters)) == [*range(wanted, 200)]


@pytest.mark.parametrize("damage", ["missing", "padded", "lies", "names nothing", "half an entry"])
def test_a_time_index_that_proves_nothing_leaves_nothing_out(damage: str, tmp_path: Path) -> None:
    """As of a segment that was copied while it was written."""
    written(tmp_path, 200)
    every = bases(tmp_path)
    path = tmp_path / f"orders-0/{every[2]:020}.timeindex"
    data = path.read_bytes()
    timestamp, relative = TIME_ENTRY.unpack(data[-12:])
    path.write_bytes(
        {
            "missing": b"",
            "padded": data[:12] + bytes(120),
            "lies": data[:-12] + TIME_ENTRY.pack(timestamp - 1, relative),
            "names nothing": data[:-12] + TIME_ENTRY.pack(timestamp, relative + 100_000),
            "half an entry": data[:-5],
        }[damage]
    )
    if damage == "missing":
        path.unlink()
    wanted = every[3] - 1
    filters = Filters(first_timestamp=START_MS + 1000 * wanted)
    before = tree(tmp_path)
    assert offsets(read(tmp_path, filters=filters)) == [*range(wanted, 200)]
    assert offsets(read(tmp_path, startingTimestamp=START_MS + 1000 * wanted)) == [*range(wanted, 200)]
    assert tree(tmp_path) == before


# Files in every state


@pytest.mark.parametrize("damage", ["missing", "padded", "lies", "falls"])
def test_indexes_in_any_state_make_no_difference_to_rows(damage: str, tmp_path: Path) -> None:
    written(tmp_path, 300, segment_bytes=6000)
    for path in (tmp_path / "orders-0").glob("*.index"):
        data = path.read_bytes()
        entries = list(OFFSET_ENTRY.iter_unpack(data))
        if damage == "missing":
            path.unlink()
            path.with_suffix(".timeindex").unlink()
        elif damage == "padded":  # as a broker that was killed leaves those of its last segment
            path.write_bytes(data + bytes(1000))
            path.with_suffix(".timeindex").write_bytes(path.with_suffix(".timeindex").read_bytes() + bytes(996))
        elif damage == "lies":
            path.write_bytes(b"".join(OFFSET_ENTRY.pack(offset, position + 1) for offset, position in entries))
        else:
            path.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in reversed(entries)))
    before = tree(tmp_path)
    for told in (
        {},
        {"minPartitions": 7},
        {"startingOffsets": 33, "endingOffsets": 270},
        {"maxRecordsPerPartition": 11},
    ):
        found = offsets(read(tmp_path, **told))
        assert found == [*range(33, 270)] if "startingOffsets" in told else [*range(300)]
    assert tree(tmp_path) == before


@pytest.mark.parametrize("cut", [1, 11, 30, 60])
def test_a_batch_that_is_being_written_is_not_there_yet(cut: int, tmp_path: Path) -> None:
    written(tmp_path, 30, segment_bytes=1 << 20)
    path = tmp_path / "orders-0/00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-cut])
    assert offsets(read(tmp_path)) == [*range(29)]
    assert offsets(read(tmp_path, chunk_bytes=100)) == [*range(29)]


@pytest.mark.parametrize("tail", [bytes(500), b"\xff" * 500, b"torn"])
def test_what_a_crash_left_behind_the_last_batch_is_not_read(tail: bytes, tmp_path: Path) -> None:
    written(tmp_path, 30, segment_bytes=1 << 20)
    with open(tmp_path / "orders-0/00000000000000000000.log", "ab") as file:
        file.write(tail)
    before = tree(tmp_path)
    assert offsets(read(tmp_path)) == [*range(30)]
    assert tree(tmp_path) == before
    promise(tmp_path, {("orders", 0): 30})
    assert offsets(read(tmp_path)) == [*range(30)]


def test_a_torn_last_batch_ends_the_log_unless_it_was_promised(tmp_path: Path) -> None:
    written(tmp_path, 30, segment_bytes=1 << 20)
    path = tmp_path / "orders-0/00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-3] + b"\0\0\0")
    assert offsets(read(tmp_path)) == [*range(29)]
    promise(tmp_path, {("orders", 0): 30})
    with pytest.raises(Exception, match="orders-0, offsets 29 to 29"):
        read(tmp_path)


def test_what_cleaning_leaves_beside_a_log_counts_as_at_the_next_start(tmp_path: Path) -> None:
    written(tmp_path, 100)
    directory = tmp_path / "orders-0"
    one, two, three, *_ = bases(tmp_path)
    for path in directory.glob(f"{two:020}.*"):
        shutil.copy(path, f"{path}.deleted")
        shutil.copy(path, f"{path}.cleaned")
    assert offsets(read(tmp_path)) == [*range(100)]
    for path in directory.glob("*.cleaned"):
        path.unlink()
    # The first two segments have become one, of every second record; that has been renamed, they have not gone yet.
    kept = b"".join(
        bytes(batch.buffer[batch.position : batch.end_position])
        for batch in every_batch(directory)
        if batch.base_offset < three and batch.base_offset % 2 == (three - 1) % 2
    )
    (directory / f"{one:020}.log.swap").write_bytes(kept)
    before = tree(tmp_path)
    wanted = [offset for offset in range(100) if offset >= three or offset % 2 == (three - 1) % 2]
    assert offsets(read(tmp_path)) == wanted
    assert offsets(read(tmp_path, maxBytesPerPartition=100)) == wanted
    assert tree(tmp_path) == before
    # Another one is not ready: what has become .swap behind it does not count.
    (directory / f"{one:020}.log.cleaned").write_bytes(b"")
    assert offsets(read(tmp_path)) == [*range(100)]


def test_a_query_is_planned_while_the_last_segment_grows(tmp_path: Path) -> None:
    log = open_at(tmp_path, segment_bytes=1 << 20, segment_index_bytes=4096)
    for offset in range(40):
        log.append_as_follower(build_batch(2, [Record(None, b"x", (), 0, offset)], base_offset=offset), now_ms=0)
        if offset % 13 == 0:
            before = tree(tmp_path)
            assert offsets(read(tmp_path)) == [*range(offset + 1)]
            assert offsets(read(tmp_path, minPartitions=3)) == [*range(offset + 1)]
            assert tree(tmp_path) == before
    log.close()
