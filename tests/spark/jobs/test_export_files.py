"""Parquet files of an export, without Spark: what tasks write, runs that are killed, small files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from minibroker.errors import StorageError
from minibroker.spark.columns.arrays import by_value
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs import export_files
from minibroker.spark.jobs.export_files import (
    Lake,
    LakeWriter,
    as_text,
    clean,
    dates_of,
    schema_of,
    small_files,
    surplus,
)
from minibroker.spark.option_values import OptionError

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64())])
DAY_US = 86_400_000_000


def rows(first: int, count: int, *, topic: str = "orders", dates: int = 1) -> pa.RecordBatch:
    offsets = list(range(first, first + count))
    days = pa.array([20_000 + offset % dates for offset in offsets], pa.int32()).view(pa.date32())
    values = [b"%d" % offset for offset in offsets]
    return pa.RecordBatch.from_pydict({"value": values, "offset": offsets, "topic": [topic] * count, "date": days})


def lake_at(root: Path, run: str = "1") -> Lake:
    lake = Lake(Folder(str(root)), SCHEMA, "zstd", run)
    lake.begin("id")
    return lake


def written(lake: Lake, batch: int, *batches: pa.RecordBatch, task: int = 0) -> list[dict[str, object]]:
    writer = LakeWriter(lake, batch, task, attempt=7)
    for each in batches:
        writer.write(each)
    return [row for result in writer.close() for row in result.to_pylist()]


def offsets_in(root: Path) -> list[int]:
    """Return what a reader sees who knows nothing of us."""
    found = ds.dataset(root, partitioning="hive").to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())


def names_in(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("topic=*/*/*.parquet"))


def test_a_task_writes_a_file_for_each_topic_and_date(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    done = written(lake, 3, rows(0, 10, dates=2), rows(10, 2, topic="users"), rows(12, 4), task=5)
    lake.end()
    assert names_in(tmp_path) == [
        "topic=orders/date=2024-10-04/00000003-000005-0000.parquet",
        "topic=orders/date=2024-10-05/00000003-000005-0000.parquet",
        "topic=users/date=2024-10-04/00000003-000005-0000.parquet",
    ]
    sizes = [(tmp_path / name).stat().st_size for name in names_in(tmp_path)]
    assert done == [
        {"topic": "orders", "files": 2, "records": 14, "bytes": sum(sizes[:2]), "bad": 0},
        {"topic": "users", "files": 1, "records": 2, "bytes": sizes[2], "bad": 0},
    ]
    assert offsets_in(tmp_path) == list(range(16))
    assert not list(tmp_path.glob(".export-*"))
    assert schema_of(lake.folder) == SCHEMA


def test_a_task_holds_a_bounded_number_of_bytes_and_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_files, "BUFFER_BYTES", 300)
    monkeypatch.setattr(export_files, "FILES_MAX", 4)
    lake = lake_at(tmp_path)
    written(lake, 0, *(rows(first, 10, dates=3) for first in range(0, 100, 10)))
    assert len(names_in(tmp_path)) == 3
    groups = pq.ParquetFile(tmp_path / names_in(tmp_path)[0]).num_row_groups
    assert groups > 1
    written(lake, 1, *(rows(first, 10, dates=10) for first in range(100, 200, 10)))
    assert offsets_in(tmp_path) == list(range(200))
    assert any(name.endswith("-0001.parquet") for name in names_in(tmp_path))


def test_dates_of_which_little_comes_wait_while_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_files, "BUFFER_BYTES", 50_000)
    monkeypatch.setattr(export_files, "PIECE_BYTES", 10)
    monkeypatch.setattr(export_files, "FILES_MAX", 4)
    writer = LakeWriter(lake_at(tmp_path), 0, 0, attempt=7)
    most = 0
    for number in range(20):
        writer.write(rows(1000 * number, 900))
        writer.write(rows(1000 * number + 900, 50, dates=30))
        assert writer._waiting_bytes == sum(file.waiting_bytes for file in writer._files.values()) <= 50_000
        most = max(most, len(writer._open))
    list(writer.close())
    assert len(names_in(tmp_path)) == 30, "one for each date"
    assert most == 1
    assert len(offsets_in(tmp_path)) == 20 * 950


@pytest.mark.parametrize("column", ["topic", "date"])
def test_rows_are_copied_once_whatever_many_values_they_are_sorted_out_by(column: str) -> None:
    counts, sizes = (4, 400), []
    for count in counts:
        batch = rows(0, 4000, dates=count)
        topics = pa.array([f"topic-{number % count}" for number in range(4000)])
        batch = batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)
        before = pa.total_allocated_bytes()
        found = list(by_value(batch, column))
        sizes.append(pa.total_allocated_bytes() - before)
        assert [len(some) for _, some in found] == [4000 // count] * count
        assert all(some["offset"].to_pylist() == list(range(at, 4000, count)) for at, (_, some) in enumerate(found))
        kept = found[0][1]
        before = pa.total_allocated_bytes()
        del found, batch
        assert before - pa.total_allocated_bytes() > 100_000 * (count - 1) // count, "what nobody keeps is gone"
        del kept
    assert sizes[1] < 8 * sizes[0]


def test_more_files_of_a_date_than_four_digits_count_are_files_too(tmp_path: Path) -> None:
    names = [f"00000001-000000-{number:04d}.parquet" for number in (9998, 9999, 10000, 10001)]
    where = "topic=a/date=2024-01-01"
    folder = Folder(str(tmp_path))
    for name in names:
        folder.write(f"{where}/{name}", b"x")
    (group,) = small_files(folder, 150)
    assert (group.names, group.name) == (names, f"{where}/{together(names[0], names[-1])}")
    assert surplus([*names, together(*names[1:])]) == names[1:]
    assert surplus(names, 1) == names
    clean(folder, unfinished=1)
    assert names_in(tmp_path) == []


def test_a_file_that_is_closed_holds_no_writer(tmp_path: Path) -> None:
    writer = LakeWriter(lake_at(tmp_path), 0, 0, attempt=7)
    writer.write(rows(0, 10, dates=3))
    list(writer.close())
    assert [(file._writer, file._sink) for file in writer._closed] == [(None, None)] * 3


def test_a_task_shows_its_files_last_of_all(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    writer = LakeWriter(lake, 0, 0, attempt=7)
    writer.write(rows(0, 5, dates=3))
    writer._close_all()
    assert names_in(tmp_path) == []
    list(writer.close())
    assert offsets_in(tmp_path) == list(range(5))


def test_a_micro_batch_that_is_repeated_finds_nothing_of_its_own(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    written(lake, 0, rows(0, 5))
    written(lake, 1, rows(5, 5))
    # Its tasks may be others than before.
    assert clean(lake.folder, unfinished=1)
    lake = lake_at(tmp_path, "2")
    written(lake, 1, rows(5, 2), task=0)
    written(lake, 1, rows(7, 3), task=1)
    assert offsets_in(tmp_path) == list(range(10))


def test_a_task_of_a_run_that_was_killed_cannot_add_a_file_any_more(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    writer = LakeWriter(lake, 1, 0, attempt=7)
    writer.write(rows(0, 5))
    next(iter(writer._files.values())).flush()
    late = LakeWriter(lake, 1, 1, attempt=8)
    late.write(rows(5, 5))
    assert clean(lake.folder, unfinished=1)
    for each in (writer, late):
        with pytest.raises((StorageError, OSError)):
            list(each.close())
    assert not list(tmp_path.glob(".export-*"))
    assert names_in(tmp_path) == []
    assert not clean(lake.folder, None)


def together(*names: str) -> str:
    return f"{names[0][:-8]}-{names[-1][:-8]}.parquet"


def test_what_is_in_a_larger_file_already_is_surplus() -> None:
    names = [f"{batch:08d}-000000-{number:04d}.parquet" for batch in range(4) for number in range(2)]
    first, larger = together(*names[1:4]), together(*names[1:6])
    assert surplus([*names, first]) == names[1:4]
    assert surplus([*names, first, larger]) == [first, *names[1:6]]
    assert surplus([larger, names[0]], 0) == [names[0]]
    assert surplus(names, 3) == names[6:]
    assert surplus([]) == []


def test_small_files_that_follow_each_other_go_together_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_files, "FILE_BYTES", 250)
    folder = Folder(str(tmp_path))
    names = [f"{batch:08d}-000000-0000.parquet" for batch in range(9)]
    for name, size in zip(names, [100, 100, 100, 200, 10, 10, 10, 300, 10], strict=True):
        folder.write(f"topic=a/date=2024-01-01/{name}", b"x" * size)
    folder.write(f"topic=b/date=2024-01-01/{names[0]}", b"x")
    folder.write("topic=a/date=2024-01-01/others.parquet", b"x")
    found = [(each.names, each.name) for each in small_files(folder, 150)]
    assert found == [
        (names[:2], f"topic=a/date=2024-01-01/{together(*names[:2])}"),
        (names[4:7], f"topic=a/date=2024-01-01/{together(*names[4:7])}"),
    ]


def test_dates_are_of_utc_and_texts_can_be_read() -> None:
    times = pa.array([20_000 * DAY_US - 1, 20_000 * DAY_US, -1, 1 << 62], pa.timestamp("us", "UTC"))
    assert [str(date) for date in dates_of(times).to_pylist()] == [
        "2024-10-03",
        "2024-10-04",
        "1969-12-31",
        "9999-12-31",
    ]
    replaced, changed = as_text(pa.array([b"a", None, b"\xff\xfe", "�".encode()]))
    assert (replaced.to_pylist(), changed) == (["a", None, "��", "�"], 1)
    same, changed = as_text(pa.array([b"a", None]))
    assert (same.to_pylist(), changed) == (["a", None], 0)


def test_a_folder_of_this_machine(tmp_path: Path) -> None:
    folder = open_folder(f"file://{tmp_path}/deep/er")
    assert (folder.exists(), folder.list()) == (False, [])
    folder.write("a/b", b"1")
    folder.write("a/b", b"23")
    assert folder.read("a/b") == b"23"
    with pytest.raises(ValueError, match="no more"), folder.writing("a/b", "me") as file:
        file.write(b"half")
        raise ValueError("no more")
    assert folder.read("a/b") == b"23"
    assert [(each.base_name, each.size) for each in folder.list("a")] == [("b", 2)]
    folder.move("a", "x")
    folder.remove("x")
    folder.remove("x")
    with pytest.raises(StorageError, match=r"read .*deep/er/x/b: "):
        folder.read("x/b")
    with pytest.raises(OptionError, match="nowhere://a/b cannot be opened"):
        open_folder("nowhere://a/b")
