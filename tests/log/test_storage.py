"""What every storage does, the real one and those in memory: one suite over all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from minibroker.errors import Error, StorageError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.pages import ROOM_BYTES, cut, reserve, touch
from minibroker.log.storage import OsStorage
from minibroker.simulation.disk import SimulatedStorage
from tests.log.crash import extremes

if TYPE_CHECKING:
    from minibroker.log.storage import File, Storage

MIB = 1 << 20


@pytest.fixture(params=["os", "memory", "simulated"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: dict[str, Callable[[], Storage]] = {
        "os": lambda: OsStorage(str(tmp_path)),
        "memory": lambda: MemoryStorage(lambda: 1_700_000_000_000),
        "simulated": lambda: SimulatedStorage(lambda: 1_700_000_000_000),
    }
    return made[request.param]()


def written(storage: Storage, path: str, data: bytes) -> File:
    file = storage.open(path, create=True)
    file.append([data])
    return file


def content(storage: Storage, path: str) -> bytes:
    file = storage.open(path)
    try:
        return file.read_at(0, file.size_bytes)
    finally:
        file.close()


# Writing and reading


def test_chunks_are_appended_in_order_as_one(storage: Storage) -> None:
    file = written(storage, "f", b"one ")
    file.append([b"two ", bytearray(b"three "), memoryview(b"-four-")[1:5], b""])
    file.append([])
    assert file.size_bytes == 18
    assert content(storage, "f") == b"one two three four"
    file.close()


def test_more_chunks_than_one_system_call_takes(storage: Storage) -> None:
    file = storage.open("f", create=True)
    file.append([b"%04d" % number for number in range(3000)])
    assert file.read_at(4 * 2999, 10) == b"2999"
    assert storage.size_bytes("f") == 12_000
    file.close()


@pytest.mark.parametrize("taken", [0, 3, 5, 12])
def test_what_a_system_call_has_not_taken_is_written_after_it(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a signal or a disk that is nearly full ends it."""
    storage = OsStorage(str(tmp_path))
    file = written(storage, "f", b"before ")

    def short(handle: int, chunks: Sequence[bytes], offset: int) -> int:
        return os.pwrite(handle, b"".join(chunks)[:taken], offset)

    monkeypatch.setattr(os, "pwritev", short)
    file.append([b"one", b"two", b"three."])
    assert file.size_bytes == 19
    assert content(storage, "f") == b"before onetwothree."
    file.close()


def test_writing_inside_a_file_overwrites(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef")
    file.write_at(2, b"XY")
    assert (file.size_bytes, file.read_at(0, 6)) == (6, b"abXYef")
    file.write_at(5, memoryview(b"Z!"))
    assert (file.size_bytes, file.read_at(0, 9)) == (7, b"abXYeZ!")
    file.append([b"."])
    assert file.read_at(0, 9) == b"abXYeZ!."
    file.close()


def test_writing_beyond_the_end_leaves_zeros_between(storage: Storage) -> None:
    file = written(storage, "f", b"ab")
    file.write_at(5, b"c")
    assert (file.size_bytes, file.read_at(0, 9)) == (6, b"ab\0\0\0c")
    file.write_at(1000, b"")
    assert file.size_bytes == 6
    file.close()


def test_reading_is_short_only_at_the_end(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef")
    assert file.read_at(1, 3) == b"bcd"
    assert file.read_at(4, 100) == b"ef"
    assert file.read_at(6, 1) == b""
    assert file.read_at(1000, 1) == b""
    assert file.read_at(2, 0) == b""
    file.close()


def test_truncating_cuts_or_grows_with_zeros(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef")
    file.truncate(2)
    assert (file.size_bytes, storage.size_bytes("f")) == (2, 2)
    file.truncate(5)
    assert file.read_at(0, 9) == b"ab\0\0\0"
    file.append([b"g"])
    file.truncate(6)
    assert file.read_at(0, 9) == b"ab\0\0\0g"
    file.truncate(0)
    file.append([b"new"])
    assert content(storage, "f") == b"new"
    file.close()


def test_a_file_can_be_opened_again(storage: Storage) -> None:
    written(storage, "f", b"abc").close()
    file = storage.open("f", create=True)
    assert file.size_bytes == 3
    file.append([b"d"])
    file.sync()
    file.close()
    file.close()
    assert content(storage, "f") == b"abcd"


# Views


def test_a_file_that_is_made_longer_is_zeros_there_whoever_writes_around_them(storage: Storage) -> None:
    file = storage.open("f", create=True)
    file.append([b"abc"])
    file.truncate(1000)
    assert (file.size_bytes, file.read_at(1, 4), file.read_at(990, 20)) == (1000, b"bc\0\0", bytes(10))
    assert file.read_at(1000, 5) == file.read_at(2000, 5) == b""
    view = file.map()
    assert bytes(view) == b"abc" + bytes(997)
    file.truncate(2000)
    file.write_at(1500, b"x")
    file.append([b"end"])
    expected = b"abc" + bytes(1497) + b"x" + bytes(499) + b"end"
    assert file.read_at(0, 5000) == bytes(file.map()) == expected
    assert bytes(view) == expected[:1000]
    file.truncate(1700)
    file.truncate(1800)
    assert file.read_at(0, 5000) == expected[:1501] + bytes(299)


@pytest.mark.parametrize("kind", [MemoryStorage, SimulatedStorage])
def test_a_file_in_memory_takes_what_was_written_and_not_how_long_it_is(kind: type[MemoryStorage]) -> None:
    storage = kind(lambda: 0)
    tracemalloc.start()
    try:
        for index in range(20):
            with closing(storage.open(f"f{index}", create=True)) as file:
                file.truncate(10 << 20)
                file.write_at(0, b"entry")
                assert file.read_at(0, 6) == b"entry\0"
                assert file.size_bytes == 10 << 20
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_view_shows_the_file_and_cannot_be_written(storage: Storage) -> None:
    file = storage.open("f", create=True)
    assert bytes(file.map()) == b""
    file.append([b"abc"])
    view = file.map()
    assert bytes(view) == b"abc"
    assert view.readonly
    file.close()
    assert bytes(view) == b"abc"


def test_a_view_shows_later_writes_below_its_end(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef")
    view = file.map()
    file.write_at(1, b"XY")
    assert bytes(view) == b"aXYdef"
    file.append([bytes(100_000)])
    file.write_at(4, b"!?-beyond the view")
    assert bytes(view) == b"aXYd!?"
    file.truncate(200_000)
    file.write_at(0, b"A")
    assert bytes(view) == b"AXYd!?"
    file.close()


def test_views_taken_while_a_file_grows_all_stay(storage: Storage) -> None:
    file = storage.open("f", create=True)
    views = []
    for number in range(200):
        file.append([b"%05d" % number * 20])
        views.append(file.map())
    whole = content(storage, "f")
    assert all(bytes(view) == whole[: 100 * (number + 1)] for number, view in enumerate(views))
    file.write_at(0, b"first")
    file.write_at(250, b"x" * 10_000)
    whole = content(storage, "f")
    assert all(bytes(view) == whole[: 100 * (number + 1)] for number, view in enumerate(views))
    file.close()


def test_views_stay_as_they_were_when_a_file_is_cut(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef" * 1000)
    old, part = file.map(), file.map()[3:9]
    file.truncate(4)
    file.append([b"-new-" * 2000])
    file.write_at(0, b"X")
    assert bytes(old) == b"abcdef" * 1000
    assert bytes(part) == b"defabc"
    assert content(storage, "f") == b"Xbcd" + b"-new-" * 2000
    assert bytes(file.map()[:6]) == b"Xbcd-n"
    file.sync()
    file.truncate(2)
    file.close()
    assert content(storage, "f") == b"Xb"
    assert storage.list("") == ["f"]


def test_views_outlive_the_file_they_came_from(storage: Storage) -> None:
    file = written(storage, "f", b"abcdef" * 1000)
    view = file.map()
    file.close()
    file = storage.open("f")
    file.truncate(0)
    file.append([b"another"])
    assert bytes(view) == b"abcdef" * 1000
    assert content(storage, "f") == b"another"
    file.close()


def test_a_file_that_is_removed_can_be_used_to_its_end(storage: Storage) -> None:
    file = written(storage, "f", b"abc")
    view = file.map()
    storage.remove("f")
    file.append([b"def"])
    assert (file.read_at(0, 9), bytes(view)) == (b"abcdef", b"abc")
    assert not storage.exists("f")
    file.close()


# Names


def test_a_rename_replaces(storage: Storage) -> None:
    written(storage, "old", b"new content").close()
    file = written(storage, "name", b"before")
    storage.rename("old", "name")
    assert content(storage, "name") == b"new content"
    assert storage.list("") == ["name"]
    assert file.read_at(0, 9) == b"before"
    storage.rename("name", "name")
    assert content(storage, "name") == b"new content"
    file.close()


def test_directories_hold_files_and_directories(storage: Storage) -> None:
    storage.make_directory("a/b/c")
    storage.make_directory("a/b")
    written(storage, "a/b/two", b"2").close()
    written(storage, "a/b/one", b"11").close()
    assert storage.list("a/b") == ["c", "one", "two"]
    assert storage.list("") == ["a"]
    assert storage.list("a/b/c") == []
    assert storage.exists("a/b")
    assert storage.size_bytes("a/b/one") == 2
    storage.sync_directory("a/b")
    storage.sync_directory("")


def test_a_directory_is_renamed_with_all_in_it(storage: Storage) -> None:
    storage.make_directory("t-0")
    file = written(storage, "t-0/f", b"x")
    storage.make_directory("t-1")
    storage.rename("t-0", "t-1")
    file.append([b"y"])
    assert content(storage, "t-1/f") == b"xy"
    assert storage.list("") == ["t-1"]
    file.close()


def test_removing(storage: Storage) -> None:
    storage.make_directory("d")
    written(storage, "d/f", b"x").close()
    with pytest.raises(StorageError, match="remove d: "):
        storage.remove("d")
    storage.remove("d/f")
    storage.remove("d/f")
    storage.remove("d")
    storage.remove("d/not/there")
    assert storage.list("") == []


def test_what_is_absent_is_empty(storage: Storage) -> None:
    assert storage.list("nothing/here") == []
    assert storage.size_bytes("nothing") == 0
    assert not storage.exists("nothing/here")


def test_files_know_when_they_were_written(storage: Storage) -> None:
    written(storage, "f", b"x").close()
    assert storage.modified_ms("f") > 1_600_000_000_000
    storage.set_modified_ms("f", 1_234_567_890_123)
    assert storage.modified_ms("f") == 1_234_567_890_123


# Failures


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda storage: storage.open("d/no"), "open d/no: No such file or directory"),
        (lambda storage: storage.open("no/f", create=True), "open no/f: No such file or directory"),
        (lambda storage: storage.open("f/x", create=True), "open f/x: Not a directory"),
        (lambda storage: storage.open("d", create=True), "open d: Is a directory"),
        (lambda storage: storage.list("f"), "list f: Not a directory"),
        (lambda storage: storage.modified_ms("no"), "stat no: No such file or directory"),
        (lambda storage: storage.set_modified_ms("no", 1), "set time no: No such file or directory"),
        (lambda storage: storage.make_directory("f"), "make directory f: File exists"),
        (lambda storage: storage.make_directory("f/x"), "make directory f/x: Not a directory"),
        (lambda storage: storage.rename("no", "x"), "rename no to x: No such file or directory"),
        (lambda storage: storage.rename("no/a", "no/b"), "rename no/a to no/b: No such file or directory"),
        (lambda storage: storage.rename("f", "d"), "rename f to d: Is a directory"),
        (lambda storage: storage.rename("d", "f"), "rename d to f: Not a directory"),
        (lambda storage: storage.rename("e", "d"), "rename e to d: Directory not empty"),
        (lambda storage: storage.sync_directory("no"), "sync directory no: No such file or directory"),
    ],
)
def test_failures_name_the_file(storage: Storage, act: Callable[[Storage], object], message: str) -> None:
    storage.make_directory("d")
    storage.make_directory("e")
    written(storage, "f", b"x").close()
    written(storage, "d/f", b"x").close()
    with pytest.raises(StorageError) as caught:
        act(storage)
    assert (str(caught.value).endswith(message), caught.value.code) == (True, Error.KAFKA_STORAGE_ERROR), caught.value
    assert storage.list("") == ["d", "e", "f"]


@pytest.mark.parametrize(
    ("doing", "act"),
    [
        ("append", lambda file: file.append([b"x"])),
        ("write", lambda file: file.write_at(0, b"x")),
        ("read", lambda file: file.read_at(0, 1)),
        ("map", lambda file: file.map()),
        ("truncate", lambda file: file.truncate(0)),
        ("sync", lambda file: file.sync()),
    ],
)
def test_a_closed_file_does_nothing_more(storage: Storage, doing: str, act: Callable[[File], object]) -> None:
    file = written(storage, "f", b"abc")
    file.close()
    with pytest.raises(StorageError, match=f"{doing} f: Bad file descriptor"):
        act(file)
    assert content(storage, "f") == b"abc"


def test_a_name_stays_in_its_directory(storage: Storage) -> None:
    storage.make_directory("d")
    written(storage, "f", b"x").close()
    with pytest.raises(AssertionError, match="f to d/f"):
        storage.rename("f", "d/f")


# All at once


def act_at_random(chance: Random, storages: list[Storage], files: dict[str, list[File]], scale: int) -> None:
    """Do one thing, the same to every storage."""
    name = chance.choice(["a", "b", "d/c", "d/e"])
    if name not in files:
        files[name] = [storage.open(name, create=True) for storage in storages]
    position, data = scale * chance.randrange(700), scale * chance.randbytes(chance.choice([0, 1, 30, 600]))
    doing = chance.randrange(7)
    if doing == 5:
        directory, _, _ = name.rpartition("/")
        other = f"{directory}/{chance.choice('cex')}" if directory else chance.choice("abx")
        for storage in storages:
            storage.rename(name, other)
    if doing >= 5:  # a removed or renamed file is opened anew
        for file in [*files.pop(name), *files.pop(other if doing == 5 else name, [])]:
            file.close()
        for storage in storages:
            storage.remove(name)
        return
    for file in files[name]:
        if doing <= 1:
            file.append([data, b"+"])
        elif doing == 2:
            file.write_at(position, data)
        elif doing == 3:
            file.truncate(position)
        else:
            file.sync()


@pytest.mark.parametrize(("seed", "scale"), [*((seed, 1) for seed in range(10)), (10, 3000), (11, 3001)])
def test_all_storages_do_the_same(seed: int, scale: int, tmp_path: Path) -> None:
    chance = Random(seed)
    simulated = SimulatedStorage()
    storages: list[Storage] = [OsStorage(str(tmp_path)), MemoryStorage(int), simulated]
    for storage in storages:
        storage.make_directory("d")
    files: dict[str, list[File]] = {}
    views: list[list[memoryview]] = []
    for _ in range(150 if scale == 1 else 40):
        act_at_random(chance, storages, files, scale)
        if files and chance.random() < 0.3:
            views.append([file.map() for file in files[chance.choice(sorted(files))]])
        for name, opened in files.items():
            assert len({file.size_bytes for file in opened}) == 1, name
            assert len({file.read_at(5, 300 * scale) for file in opened}) == 1, name
        assert len({tuple(storage.list("") + storage.list("d")) for storage in storages}) == 1
        if views:
            assert len({bytes(view) for view in chance.choice(views)}) == 1
    for seen in views:
        assert len({bytes(view) for view in seen}) == 1

    # And if all gets through, a power loss changes nothing.
    loss = simulated.power_loss()
    for path, data, _ in loss.disk(extremes(loss)[1]).found:
        if data is not None:
            assert data == content(storages[0], path), path
    for opened in files.values():
        for file in opened:
            file.close()


# Of the real one alone


def test_a_viewed_file_is_not_cut_under_another_name(tmp_path: Path) -> None:
    storage = OsStorage(str(tmp_path))
    file = written(storage, "f", b"abcdef")
    view = file.map()
    storage.rename("f", "g")
    written(storage, "f", b"another").close()
    with pytest.raises(StorageError, match="truncate f: "):
        file.truncate(1)
    assert (bytes(view), content(storage, "f"), content(storage, "g")) == (b"abcdef", b"another", b"abcdef")
    file.close()


def test_a_file_that_somebody_else_cut_cannot_be_mapped(tmp_path: Path) -> None:
    storage = OsStorage(str(tmp_path))
    file = written(storage, "f", b"x" * 10_000)
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError, match="map f: "):
        file.map()
    file.close()


# Of memory alone


def test_a_buffer_that_no_view_needs_is_let_go() -> None:
    storage = MemoryStorage(int)
    file = storage.open("f", create=True)
    file.append([b"x" * 1000])
    kept = file.map()
    for _ in range(100):
        file.append([b"y" * 1000])
        file.map()
    assert len(file._content._retired) <= 2  # type: ignore[union-attr]
    del kept
    file.append([b"z" * 100_000])
    assert not file._content._retired  # type: ignore[union-attr]


def test_a_buffer_that_no_view_needs_is_let_go_also_when_the_file_does_not_move_any_more() -> None:
    file = written(MemoryStorage(int), "f", b"x" * MIB)
    kept = file.map()
    file.append([b"y" * MIB])
    file.write_at(0, b"z")
    assert kept[0] == ord("z")
    del kept
    file.append([b"y" * MIB])
    assert not file._content._retired  # type: ignore[attr-defined]


@pytest.fixture
def chunk() -> memoryview:
    """What a broker appends: a part of its receive buffer."""
    return memoryview(bytearray(b"x" * (MIB + 1)))[:MIB]


def test_a_long_file_grows_without_being_copied(chunk: memoryview) -> None:
    file = written(MemoryStorage(int), "f", bytes(2 * MIB))
    first = file.map()
    tracemalloc.start()
    try:
        for _ in range(40):
            file.append([chunk])
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert file.map().obj is first.obj
    assert bytes(file.map()[-MIB:]) == chunk


needs_linux = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="it counts pages as Linux tells them")


def resident_bytes() -> int:
    with open("/proc/self/statm") as counted:
        return int(counted.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@needs_linux
def test_memory_goes_back_to_the_system_with_what_was_cut_off_and_with_the_file(chunk: memoryview) -> None:
    storage = MemoryStorage(int)
    before = resident_bytes()
    file = written(storage, "f", b"")
    for _ in range(40):
        file.append([chunk])
    at_most = resident_bytes()
    assert 40 * MIB <= at_most - before < 44 * MIB
    file.truncate(30 * MIB + 5)
    assert resident_bytes() - before < 34 * MIB
    file.append([b"z"])
    file.truncate(35 * MIB)
    assert file.read_at(30 * MIB + 3, 5) == b"xxz\0\0"
    view = file.view(20 * MIB, 1)
    file.truncate(10 * MIB)  # what is viewed stays
    file.append([b"new"])
    assert (view[0], file.read_at(10 * MIB - 1, 5)) == (ord("x"), b"xnew")
    del view
    assert resident_bytes() - before < 14 * MIB
    file.close()
    storage.remove("f")
    del file
    assert resident_bytes() - before < 4 * MIB


@needs_linux
def test_pages_are_asked_for_at_once_some_more_than_are_written_now() -> None:
    pages = reserve(8 * MIB)
    assert pages is not None
    before = resident_bytes()
    assert touch(pages, 3 * MIB + 5, 6 * MIB) == 6 * MIB + 384 * 1024
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (5, 14):
        assert 3 * MIB <= resident_bytes() - before < 4 * MIB
    assert cut(pages, 6 * MIB)
    assert touch(pages, 5 * MIB, 6 * MIB) == len(pages) == 6 * MIB


@needs_linux
def test_the_hole_of_a_long_file_takes_no_memory() -> None:
    before = resident_bytes()
    file = written(MemoryStorage(int), "f", b"")
    file.truncate(900 * MIB)
    file.write_at(500 * MIB, b"x")
    file.write_at(5, b"y")
    assert (len(file.map()), file.read_at(500 * MIB - 1, 3), file.read_at(4, 3)) == (900 * MIB, b"\0x\0", b"\0y\0")
    assert resident_bytes() - before < 6 * MIB


@needs_linux
@pytest.mark.outside
def test_a_fork_shares_the_pages_and_sees_no_later_write(chunk: memoryview) -> None:
    file = written(MemoryStorage(int), "f", b"")
    for _ in range(20):
        file.append([chunk])
    written_now, wait = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(wait)
            os.read(written_now, 1)  # its end: the parent has written
            with open("/proc/self/smaps_rollup") as counted:
                private = sum(int(line.split()[1]) << 10 for line in counted if line.startswith("Private_"))
            os._exit(0 if private < 15 * MIB and file.read_at(5, 1) == b"x" else 1)
        finally:
            os._exit(2)
    file.write_at(5, b"z")
    os.close(wait)
    os.close(written_now)
    assert os.waitpid(child, 0)[1] == 0


@needs_linux
@pytest.mark.outside
def test_a_process_with_more_addresses_than_memory_can_be_forked(chunk: memoryview) -> None:
    """Its files lie side by side, as one map; the machine has less memory than that."""
    storage = MemoryStorage(int)
    for number in range(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ROOM_BYTES + 2):
        file = written(storage, f"f{number}", b"")
        file.append([chunk, chunk])
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@needs_linux
@pytest.mark.outside
@pytest.mark.parametrize(("when", "limit_bytes"), [("from the beginning", 4 << 30), ("later", 200 * MIB)])
def test_where_addresses_are_limited_a_file_takes_no_more_than_it_needs(when: str, limit_bytes: int) -> None:
    script = """
import resource, sys
from minibroker.log.memory_storage import MemoryStorage

storage, views = MemoryStorage(int), []
if sys.argv[1] == "later":
    storage.open("first", create=True).append([bytes(2 << 20)])
with open("/proc/self/statm") as counted:
    used = int(counted.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]), resource.RLIM_INFINITY))
files = [storage.open(f"f{number}", create=True) for number in range(3)]
for number in range(9):
    for file in files:
        file.append([bytes([number]) * (1 << 20)])
        views.append(file.map())
assert all(len(file.map().obj) < 40 << 20 for file in files)
for file in files:
    file.write_at(5, b"z")
    file.truncate(8 << 20)
    file.append([b"end"])
    assert file.read_at(0, 9 << 20) == bytes(5) + b"z" + b"".join(
        bytes([number]) * (1 << 20) for number in range(8))[6:] + b"end"
assert all(view[5] == ord("z") and view[-1] == number // 3 for number, view in enumerate(views))
"""
    subprocess.run([sys.executable, "-c", script, when, str(limit_bytes)], check=True, timeout=60)
