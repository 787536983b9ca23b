"""A directory that is only read: what is changed is changed in memory, and the disk never hears of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minibroker.errors import StorageError
from minibroker.log import read_only_storage
from minibroker.log.build import build_batch
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.segment import Segment
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage


@pytest.fixture
def storage(tmp_path: Path) -> ReadOnlyStorage:
    (tmp_path / "log").mkdir()
    (tmp_path / "log/a").write_bytes(b"first")
    (tmp_path / "log/b").write_bytes(b"second")
    return ReadOnlyStorage(str(tmp_path))


def on_disk(storage: ReadOnlyStorage) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(storage.root, "log").iterdir()}


def test_files_are_read(storage: ReadOnlyStorage) -> None:
    assert storage.list("log") == ["a", "b"]
    assert storage.list("nowhere") == []
    assert storage.exists("log/a")
    assert not storage.exists("log/c")
    assert storage.size_bytes("log/b") == 6
    file = storage.open("log/b")
    assert file.size_bytes == 6
    assert file.read_at(2, 3) == b"con"
    assert file.map() == b"second"
    assert storage.modified_ms("log/a") == Path(storage.root, "log/a").stat().st_mtime_ns // 1_000_000
    with pytest.raises(StorageError):
        storage.open("log/c")
    with pytest.raises(StorageError, match="only read"):
        storage.lock()


def test_what_is_written_stays_in_memory(storage: ReadOnlyStorage) -> None:
    before = on_disk(storage)
    file = storage.open("log/a")
    file.append([b" and", b" more"])
    file.write_at(0, b"F")
    assert file.map() == b"First and more"
    assert storage.size_bytes("log/a") == 14
    file.close()
    again = storage.open("log/a")
    again.truncate(2)
    assert again.read_at(0, 9) == b"Fi"
    assert again.size_bytes == 2
    made = storage.open("log/c", create=True)
    made.append([b"new"])
    made.sync()
    assert storage.list("log") == ["a", "b", "c"]
    assert storage.size_bytes("log/c") == 3
    storage.sync_directory("log")
    assert on_disk(storage) == before


def test_names_change_in_memory(storage: ReadOnlyStorage) -> None:
    before = on_disk(storage)
    storage.rename("log/a", "log/b")
    assert storage.list("log") == ["b"]
    assert storage.open("log/b").map() == b"first"
    assert storage.origin("log/b") == "log/a"
    assert storage.size_bytes("log/b") == 5
    assert not storage.exists("log/a")
    storage.rename("log/b", "log/c")
    assert storage.origin("log/c") == "log/a"
    storage.remove("log/c")
    assert storage.list("log") == []
    assert storage.size_bytes("log/c") == 0
    with pytest.raises(StorageError):
        storage.open("log/c")
    with pytest.raises(StorageError):
        storage.rename("log/c", "log/d")
    storage.open("log/c", create=True).append([b"new"])
    assert storage.open("log/c").map() == b"new"
    assert on_disk(storage) == before


def test_files_of_others_are_read_without_a_right_to_write(storage: ReadOnlyStorage, tmp_path: Path) -> None:
    (tmp_path / "log/a").chmod(0o400)
    (tmp_path / "log").chmod(0o500)
    try:
        file = storage.open("log/a")
        file.truncate(0)
        file.append([b"x"])
        assert storage.open("log/a").map() == b"x"
    finally:
        (tmp_path / "log").chmod(0o700)


def test_a_small_file_that_its_owner_cuts_is_safe_to_look_at(storage: ReadOnlyStorage, tmp_path: Path) -> None:
    """A mapping would end the process."""
    view = storage.open("log/a").map()
    os.truncate(tmp_path / "log/a", 0)
    assert view == b"first"


@pytest.mark.pure
def test_a_large_file_is_mapped(storage: ReadOnlyStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_only_storage, "MAP_BYTES_MIN", 6)
    view = storage.open("log/b").map()
    with open(tmp_path / "log/b", "r+b") as file:
        file.write(b"S")
    assert view == b"Second"
    view.release()


@pytest.mark.parametrize("damage", ["missing", "lies", "empty"])
def test_an_index_is_mended_in_memory(damage: str, tmp_path: Path) -> None:
    settings = LogSettings(index_interval_bytes=100)
    log = open_log(OsStorage(str(tmp_path)), "log-0", settings)
    for offset in range(50):
        log.append_as_follower(build_batch(2, [Record(None, b"x", (), offset, offset)], base_offset=offset), now_ms=0)
    log.close()
    path = tmp_path / "log-0/00000000000000000000.index"
    data = path.read_bytes()
    path.write_bytes(b"" if damage == "empty" else bytes(byte ^ (index % 8 == 7) for index, byte in enumerate(data)))
    if damage == "missing":
        path.unlink()
    names, before = os.listdir(tmp_path / "log-0"), path.exists() and path.read_bytes()
    segment = Segment(ReadOnlyStorage(str(tmp_path)), "log-0", 0)
    for offset in range(50):
        place = segment.find(offset)
        assert place is not None
        assert place.base_offset == offset
    segment.close()
    assert os.listdir(tmp_path / "log-0") == names
    assert (path.exists() and path.read_bytes()) == before
