"""Storages that are copied while somebody writes to them: each file as it was, and nothing comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.errors import StorageError
from minibroker.log.checkpoints import read_file
from minibroker.log.copying import Copying, copy_at_once, remove_all
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.storage import OsStorage
from minibroker.log.storage_types import Storage

LONG = b"x" * 3_000_000  # some pieces of a disk, pages of memory
PATH, SMALL = "orders-0/00000000000000000000.log", "orders-0/partition.metadata"
KINDS = ("memory", "disk")


def new(kind: str, root: Path) -> Storage:
    storage: Storage = MemoryStorage(lambda: 1000) if kind == "memory" else OsStorage(str(root))
    storage.make_directory("")
    return storage


def filled(kind: str, root: Path) -> Storage:
    storage = new(kind, root)
    storage.make_directory("orders-0")
    for path, data in ((PATH, LONG), (SMALL, b"small"), (".lock", b""), (f"{PATH}.deleted", b"gone")):
        file = storage.open(path, create=True)
        file.append([data])
        file.close()
    return storage


@pytest.mark.parametrize("target_kind", KINDS)
@pytest.mark.parametrize("source_kind", KINDS)
def test_a_copy_has_what_was_there_when_it_began(source_kind: str, target_kind: str, tmp_path: Path) -> None:
    source, target = filled(source_kind, tmp_path / "a"), new(target_kind, tmp_path / "b")
    source.set_modified_ms(PATH, 5000)
    copying = Copying(source, target)
    for path in (PATH, SMALL):
        file = source.open(path)
        file.append([LONG])
        file.close()
    source.remove(SMALL)
    for _ in copying:
        pass
    assert (read_file(target, PATH), read_file(target, SMALL)) == (LONG, b"small")
    assert target.modified_ms(PATH) == 5000
    assert target.list("orders-0") == [PATH.rpartition("/")[2], SMALL.rpartition("/")[2]]
    assert ".lock" not in target.list("")
    assert read_file(source, PATH) == LONG * 2


def test_twins_in_memory_never_see_what_one_of_them_writes(tmp_path: Path) -> None:
    source = filled("memory", tmp_path)
    twins = [MemoryStorage(lambda: 1000) for _ in range(2)]
    for twin in twins:
        for _ in Copying(source, twin):
            pass
    first, second = (twin.open(PATH) for twin in twins)
    seen = first.view(0, 10)
    first.write_at(0, b"first")
    first.truncate(1000)
    first.append([b"y"])
    file = source.open(PATH)
    file.truncate(0)
    file.append([b"z" * 2_000_000])
    assert bytes(seen) == LONG[:10]
    assert second.read_at(0, len(LONG)) == LONG
    assert first.read_at(0, 2000) == b"first" + LONG[:995] + b"y"
    assert bytes(first.map()) == first.read_at(0, 2000)
    second.append([b"end"])
    assert second.read_at(len(LONG) - 1, 10) == b"xend"


def test_a_copy_that_is_broken_off_holds_no_file(tmp_path: Path) -> None:
    source, target = filled("disk", tmp_path / "a"), new("disk", tmp_path / "b")
    copying = Copying(source, target)
    copying.close()
    assert list(copying) or target.exists(SMALL)
    assert not target.exists(PATH)
    file = source.open(PATH)
    with pytest.raises(StorageError, match="ends at byte 10"):
        late = Copying(source, new("disk", tmp_path / "c"))
        file.truncate(10)  # nobody does that to batches
        list(late)
    file.close()


def test_a_directory_is_emptied_but_for_some_names(tmp_path: Path) -> None:
    storage = filled("disk", tmp_path / "a")
    assert isinstance(storage, OsStorage)
    remove_all(storage, (".lock",))
    assert storage.list("") == [".lock"]
    copy_at_once(storage, new("disk", tmp_path / "b"))
