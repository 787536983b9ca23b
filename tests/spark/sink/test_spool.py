"""Rows on their way from tasks to the driver: in messages, in files of the checkpoint, and of each task once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from minibroker.spark.option_values import OptionError
from minibroker.spark.sink import spool as spooling
from minibroker.spark.sink.checkpoint import Checkpoint
from minibroker.spark.sink.options import parse
from minibroker.spark.sink.spool import Spool, SpooledRows

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ID, QUERY = "minibroker-spark-q1", "q1"


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "MESSAGE_BYTES_MAX", 1000)


def spool_of(query: str = QUERY, **told: str) -> Spool:
    # As Spark hands it from one process to another.
    options = parse(SERVERS | told)
    return pickle.loads(pickle.dumps(Spool(options, ID, Checkpoint(options.checkpoint, query))))  # type: ignore[no-any-return]


def checkpoint(path: Path, query: str = QUERY) -> str:
    """Make one as Spark does."""
    path.mkdir(exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query}))
    return str(path)


def rows(count: int, start: int = 0) -> Iterator[pa.RecordBatch]:
    for number in range(start, start + count):
        yield pa.record_batch({"value": [b"%d" % number, b"." * 100], "offset": [number, number]})


def values(spool: Spool, *spooled: SpooledRows) -> list[bytes]:
    found = [value for batch in spool.rows(list(spooled)) for value in batch.column("value").to_pylist()]
    return [value for value in found if not value.startswith(b".")]


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for each in ranges for number in each]


def test_few_rows_travel_in_the_message(tmp_path: Path) -> None:
    spool = spool_of(checkpointLocation=checkpoint(tmp_path))
    one, other = spool.put(rows(3), "a"), spool.put(rows(3, 3), "b")
    assert one.data
    assert not one.path
    assert one.size_bytes > 300
    assert values(spool_of(), one, other) == numbers(range(6))
    assert [path.name for path in tmp_path.iterdir()] == ["metadata"]


def test_many_rows_travel_in_a_file_of_the_checkpoint_which_is_deleted(tmp_path: Path) -> None:
    told = {"checkpointLocation": checkpoint(tmp_path)}
    one, lost, few, other = (spool_of(**told).put(rows(count, 100 * count), f"{count}") for count in (50, 40, 2, 30))
    assert [bool(each.path) for each in (one, lost, few, other)] == [True, True, False, True]
    assert not one.data
    # What another attempt of a task has left is not read.
    assert values(spool_of(**told), one, few, other) == numbers(range(5000, 5050), range(200, 202), range(3000, 3030))
    assert len(list((tmp_path / "minibroker-spool" / ID).iterdir())) == 3
    spool_of(**told).clear()
    assert not list((tmp_path / "minibroker-spool").iterdir())
    spool_of(**told).clear()  # another one has been there


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_a_location_may_be_an_address(scheme: str, tmp_path: Path) -> None:
    spool = spool_of(checkpointLocation=scheme + checkpoint(tmp_path))
    assert values(spool, spool.put(rows(50), "a")) == numbers(range(50))
    assert (tmp_path / "minibroker-spool" / ID).is_dir()


def test_a_checkpoint_that_is_not_that_of_the_query_is_left_alone(tmp_path: Path) -> None:
    """As the same path is on another machine."""
    for location in (checkpoint(tmp_path / "other", "q2"), str(tmp_path / "empty"), "dbfs:/not/known/here"):
        spool = spool_of(checkpointLocation=location)
        spooled = spool.put(rows(50), "a")
        assert spooled.data
        assert not spooled.path
        assert values(spool, spooled) == numbers(range(50))
        spool.clear()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["metadata"]


def test_a_checkpoint_in_a_store_that_pyarrow_was_built_without_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its builds differ in that: those of Linux have Azure's, others may not."""

    def from_uri(location: str) -> None:
        raise pa.ArrowNotImplementedError(f"Got {location} but Arrow compiled without support for it")

    monkeypatch.setattr("minibroker.spark.folders.FileSystem", SimpleNamespace(from_uri=from_uri))
    spool = spool_of(checkpointLocation="abfss://container@account.dfs.core.windows.net/checkpoint")
    assert values(spool, spool.put(rows(50), "a")) == numbers(range(50))
    spool = spool_of(spoolLocation="abfss://container@account.dfs.core.windows.net/folder")
    with pytest.raises(OptionError, match="Arrow compiled without"):
        spool.put(rows(50), "a")


def test_a_folder_that_was_named_is_used_whatever_is_there(tmp_path: Path) -> None:
    spool = spool_of(spoolLocation=str(tmp_path), checkpointLocation=checkpoint(tmp_path / "other"))
    assert values(spool, spool.put(rows(50), "a")) == numbers(range(50))
    assert (tmp_path / "minibroker-spool" / ID).is_dir()


def test_a_folder_that_was_named_and_cannot_be_used_is_an_error() -> None:
    with pytest.raises(OptionError, match="dbfs"):
        spool_of(spoolLocation="dbfs:/not/known/here").put(rows(50), "a")


def test_a_task_without_rows_has_nothing_to_tell(tmp_path: Path) -> None:
    spool = spool_of()
    assert spool.put(rows(0), "a") == SpooledRows()
    assert values(spool, SpooledRows(), spool.put(rows(2), "a")) == numbers(range(2))


def test_only_columns_of_records_are_spooled() -> None:
    spool = spool_of()
    (batch,) = spool.rows([spool.put(rows(1), "a")])
    assert batch.schema.names == ["value"]
