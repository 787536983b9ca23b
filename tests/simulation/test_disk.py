"""The simulated disk loses and breaks what a real one may, and nothing else; crash exploration finds planted bugs."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest

from minibroker.errors import StorageError
from minibroker.simulation.disk import FOREVER, SimulatedFile, SimulatedStorage
from minibroker.simulation.power_loss import Disk
from tests.log.crash import CrashFound, Explored, explore, extremes


def disks(storage: SimulatedStorage, sector_bytes: int = 512) -> list[dict[str, bytes | None]]:
    """Return many of the disks that a power loss may leave now, each once."""
    loss = storage.power_loss(sector_bytes)
    choices = extremes(loss) + [loss.choose(Random(number)) for number in range(500)]
    found = {disk.identity: disk for disk in map(loss.disk, choices)}
    return [contents(disk) for disk in found.values()]


def contents(disk: Disk) -> dict[str, bytes | None]:
    return {path: data for path, data, _ in disk.found}


def contents_of(storage: SimulatedStorage, path: str) -> set[bytes | None]:
    return {disk.get(path) for disk in disks(storage)}


def settled(path: str, data: bytes) -> tuple[SimulatedStorage, SimulatedFile]:
    """Return a disk with one file that is certain, and the file."""
    storage = SimulatedStorage()
    file = storage.open(path, create=True)
    file.append([data])
    file.sync()
    storage.sync_directory("")
    return storage, file


# What survives


def test_what_was_synced_survives_every_power_loss() -> None:
    storage, file = settled("f", b"certain")
    assert disks(storage) == [{"f": b"certain"}]
    file.append([b" and not"])
    assert all((disk["f"] or b"").startswith(b"certain") for disk in disks(storage))
    file.sync()
    assert disks(storage) == [{"f": b"certain and not"}]


def test_unsynced_writes_survive_in_order_torn_or_not_at_all() -> None:
    storage, file = settled("f", b"0")
    file.append([b"1"])
    file.append([b"2"])
    assert contents_of(storage, "f") == {b"0", b"01", b"012", b"0\0", b"0\0\0", b"01\0", b"0\0" + b"2"}


def test_a_long_write_is_torn_at_sectors_of_the_file() -> None:
    storage, file = settled("f", b"x" * 100)
    file.append([b"y" * 1500])
    whole = b"x" * 100 + b"y" * 1500
    assert contents_of(storage, "f") == {
        *(whole[:length] for length in (100, 512, 1024, 1536, 1600)),
        whole[:100] + bytes(1500),
    }


def test_an_overwrite_is_there_or_not_and_a_cut_too() -> None:
    storage, file = settled("f", b"abcdef")
    file.write_at(2, b"XY")
    assert contents_of(storage, "f") == {b"abcdef", b"abXYef"}
    file.sync()
    file.truncate(3)
    assert contents_of(storage, "f") == {b"abXYef", b"abX"}
    file.append([b"!"])
    assert contents_of(storage, "f") == {b"abXYef", b"abX", b"abX!", b"abX\0"}


def test_a_later_write_to_another_file_may_overtake() -> None:
    storage, first = settled("first", b"")
    second = storage.open("second", create=True)
    storage.sync_directory("")
    first.append([b"1"])
    second.append([b"2"])
    found = disks(storage)
    assert {"first": b"", "second": b"2"} in found
    assert {"first": b"1", "second": b""} in found


def test_a_file_may_vanish_until_its_directory_is_synced() -> None:
    storage = SimulatedStorage()
    file = storage.open("f", create=True)
    file.append([b"x"])
    file.sync()
    assert {tuple(disk.items()) for disk in disks(storage)} == {(), (("f", b"x"),)}
    storage.sync_directory("")
    assert disks(storage) == [{"f": b"x"}]


def test_a_directory_that_vanishes_takes_all_in_it_along() -> None:
    storage = SimulatedStorage()
    storage.make_directory("a/b")
    storage.open("a/b/f", create=True)
    storage.sync_directory("a/b")
    storage.sync_directory("a")
    assert sorted(map(len, disks(storage))) == [0, 3]
    storage.sync_directory("")
    assert disks(storage) == [{"a": None, "a/b": None, "a/b/f": b""}]


def test_a_rename_may_be_undone_until_the_directory_is_synced() -> None:
    storage, _ = settled("f", b"old")
    new = storage.open("f.tmp", create=True)
    new.append([b"new"])
    new.sync()
    storage.rename("f.tmp", "f")
    found = disks(storage)
    assert len(found) == 3
    assert {"f": b"old"} in found
    assert {"f": b"old", "f.tmp": b"new"} in found
    assert {"f": b"new"} in found
    storage.sync_directory("")
    assert disks(storage) == [{"f": b"new"}]


def test_a_renamed_file_that_was_not_synced_may_be_empty() -> None:
    storage, _ = settled("f", b"old")
    storage.open("f.tmp", create=True).append([b"new"])
    storage.rename("f.tmp", "f")
    storage.sync_directory("")
    assert contents_of(storage, "f") == {b"", b"new", b"\0\0\0"}


def test_a_removed_file_may_come_back() -> None:
    storage, _ = settled("f", b"x")
    storage.remove("f")
    assert sorted(map(len, disks(storage))) == [0, 1]
    storage.sync_directory("")
    assert disks(storage) == [{}]


def test_names_of_one_directory_change_in_order() -> None:
    storage = SimulatedStorage()
    for name in ("a", "b", "c"):
        storage.open(name, create=True)
    assert {"".join(disk) for disk in disks(storage)} == {"", "a", "ab", "abc"}


def test_a_moment_stays_as_it_was_whatever_happens_later() -> None:
    storage, file = settled("f", b"1")
    file.append([b"2"])
    loss = storage.power_loss()
    file.append([b"3"])
    file.sync()
    storage.remove("f")
    assert [contents(loss.disk(choice)) for choice in extremes(loss)[:2]] == [{"f": b"1"}, {"f": b"12"}]


def test_disks_do_not_write_into_each_other() -> None:
    storage, _ = settled("d", b"shared")
    loss = storage.power_loss()
    disk = loss.disk(extremes(loss)[0])
    one, two = SimulatedStorage(disk=disk), SimulatedStorage(disk=disk)
    file = one.open("d")
    view = file.map()
    file.write_at(0, b"S")
    file.append([b"!"])
    assert bytes(view) == b"Shared"
    assert two.open("d").read_at(0, 99) == b"shared"
    assert contents(disk) == {"d": b"shared"}


def test_the_same_chance_gives_the_same_crash() -> None:
    def crashed(seed: int) -> bytes:
        storage, file = settled("f", b"")
        for number in range(50):
            file.append([b"%d " % number])
        after = storage.crashed(Random(seed))
        return after.open("f").read_at(0, 999)

    assert len({crashed(seed) for seed in range(20)}) > 5
    assert [crashed(seed) for seed in range(20)] == [crashed(seed) for seed in range(20)]


def test_files_keep_their_time_over_a_crash() -> None:
    now_ms = iter(range(1000, 2000, 100))
    storage = SimulatedStorage(lambda: next(now_ms))
    file = storage.open("f", create=True)
    file.append([b"x"])
    file.sync()
    storage.sync_directory("")
    before = storage.modified_ms("f")
    assert before > 1000
    assert storage.crashed(Random(0)).modified_ms("f") == before
    steps = storage.steps
    storage.set_modified_ms("f", 77)
    assert storage.steps == steps + 1
    assert (storage.modified_ms("f"), storage.crashed(Random(0)).modified_ms("f")) == (77, 77)
    storage.fail(doing="set time")
    with pytest.raises(StorageError, match="set time f: "):
        storage.set_modified_ms("f", 78)


# Failures


def test_the_nth_operation_fails() -> None:
    storage, file = settled("f", b"x")
    storage.fail(errno.EIO, at=storage.steps + 2)
    file.append([b"1"])
    with pytest.raises(StorageError, match="append f: Input/output error"):
        file.append([b"2"])
    file.append([b"3"])
    assert file.read_at(0, 9) == b"x13"


def test_a_full_disk_may_take_a_part() -> None:
    storage, file = settled("f", b"x")
    storage.fail(errno.ENOSPC, doing="append", times=FOREVER, written_bytes=3)
    for _ in range(2):
        with pytest.raises(StorageError, match="append f: No space left on device"):
            file.append([b"abcdef"])
    assert (file.size_bytes, file.read_at(0, 99)) == (7, b"xabcabc")
    storage.heal()
    file.append([b"!"])
    assert file.read_at(0, 99) == b"xabcabc!"


@pytest.mark.parametrize(
    ("doing", "path", "act"),
    [
        ("create", "new", lambda storage, file: storage.open("new", create=True)),
        ("write", "f", lambda storage, file: file.write_at(0, b"y")),
        ("truncate", "f", lambda storage, file: file.truncate(0)),
        ("read", "f", lambda storage, file: file.read_at(0, 1)),
        ("rename", "f to g", lambda storage, file: storage.rename("f", "g")),
        ("remove", "f", lambda storage, file: storage.remove("f")),
        ("make directory", "d", lambda storage, file: storage.make_directory("d/e")),
        ("sync directory", "", lambda storage, file: storage.sync_directory("")),
    ],
)
def test_what_fails_has_not_happened(
    doing: str, path: str, act: Callable[[SimulatedStorage, SimulatedFile], object]
) -> None:
    storage, file = settled("f", b"x")
    storage.fail(errno.EIO, doing=doing, path=path)
    with pytest.raises(StorageError, match=f"{doing} {path}: Input/output error"):
        act(storage, file)
    assert (storage.list(""), file.read_at(0, 9)) == (["f"], b"x")
    assert disks(storage) == [{"f": b"x"}]
    act(storage, file)


def test_each_file_that_is_open_is_told_once_of_what_was_dropped() -> None:
    storage = SimulatedStorage()
    first, second = storage.open("f", create=True), storage.open("f")
    first.append([b"a"])
    storage.fail(doing="sync")
    for file in (first, second):
        with pytest.raises(StorageError):
            file.sync()
        file.sync()
    storage.open("f").sync()


def test_a_failed_sync_drops_what_it_should_have_written() -> None:
    storage, file = settled("f", b"1")
    file.append([b"2"])
    storage.fail(errno.EIO, doing="sync")
    with pytest.raises(StorageError, match="sync f: Input/output error"):
        file.sync()
    assert file.read_at(0, 9) == b"12"
    file.append([b"3"])
    file.sync()
    assert file.read_at(0, 9) == b"123"
    assert disks(storage) == [{"f": b"1\0" + b"3"}]


def test_a_failed_sync_may_fail_for_ever_and_drop_nothing() -> None:
    storage, file = settled("f", b"1")
    file.append([b"2"])
    storage.fail(errno.EIO, doing="sync", path="f", times=FOREVER, drops=False)
    for _ in range(3):
        with pytest.raises(StorageError):
            file.sync()
    assert contents_of(storage, "f") == {b"1", b"12", b"1\0"}


def test_a_flipped_bit_is_read_and_survives() -> None:
    storage, file = settled("f", b"abc")
    file.append([b"d"])
    view = file.map()
    storage.flip("f", 1, 0)
    storage.flip("f", 3, 5)
    assert (bytes(view), file.read_at(0, 9)) == (b"accD", b"accD")
    assert contents_of(storage, "f") == {b"acc", b"accD", b"acc\0"}


# Exploration, on a small write-ahead log: each record is its length, its CRC and itself.

HEADER = struct.Struct(">II")
RECORDS = [b"record %d " % number * (3 + number * 7 % 11) for number in range(12)]
LOG = "data/log"


class Promise(NamedTuple):
    """How many records were handed to append, and how many of them were synced."""

    tried: int
    synced: int


def write_log(storage: SimulatedStorage, mark: Callable[[Promise], None]) -> None:
    mark(Promise(0, 0))
    storage.make_directory("data")
    storage.sync_directory("")
    file = storage.open(LOG, create=True)
    storage.sync_directory("data")
    for number, record in enumerate(RECORDS):
        mark(Promise(number + 1, number // 3 * 3))
        file.append([HEADER.pack(len(record), zlib.crc32(record)), record])
        if number % 3 == 2:
            file.sync()
            mark(Promise(number + 1, number + 1))


def write_log_without_sync(storage: SimulatedStorage, mark: Callable[[Promise], None]) -> None:
    mark(Promise(0, 0))
    storage.make_directory("data")
    storage.sync_directory("")
    file = storage.open(LOG, create=True)
    storage.sync_directory("data")
    for number, record in enumerate(RECORDS):
        mark(Promise(number + 1, number))
        file.append([HEADER.pack(len(record), zlib.crc32(record)), record])
        mark(Promise(number + 1, number + 1))


def whole_records(data: bytes, shortest: int = 1) -> Iterator[bytes]:
    while len(data) >= HEADER.size:
        size, crc = HEADER.unpack_from(data)
        record = data[HEADER.size : HEADER.size + size]
        if not shortest <= size == len(record) or zlib.crc32(record) != crc:
            return
        yield record
        data = data[HEADER.size + size :]


def recover(storage: SimulatedStorage, shortest: int = 1) -> list[bytes]:
    """Cut the log behind the last whole record."""
    if not storage.exists(LOG):
        return []
    file = storage.open(LOG)
    records = list(whole_records(file.read_at(0, file.size_bytes), shortest))
    end = sum(HEADER.size + len(record) for record in records)
    if end < file.size_bytes:
        file.truncate(end)
        file.sync()
    file.close()
    return records


def recover_by_writing_anew(storage: SimulatedStorage) -> list[bytes]:
    """Do what must not be done: empty the log, then write what was good."""
    records = recover(storage)
    if records:
        file = storage.open(LOG)
        file.truncate(0)
        file.append([HEADER.pack(len(record), zlib.crc32(record)) + record for record in records])
        file.sync()
    return records


def compare(records: list[bytes], promise: Promise) -> None:
    assert records == RECORDS[: len(records)], "no prefix of what was written"
    assert promise.synced <= len(records) <= promise.tried, f"{len(records)} records, {promise}"


def check_log(storage: SimulatedStorage, promise: Promise) -> None:
    compare(recover(storage), promise)


def test_a_log_that_syncs_survives_every_crash() -> None:
    explored = explore(write_log, check_log, seed=1, states_max=3000, sector_bytes=64)
    assert explored.boundaries == 4 + 12 + 4 + 1
    assert explored.states > explored.distinct > 100
    assert explored.distinct > explored.disks > 50


def test_recovery_survives_crashes_of_its_own() -> None:
    once = explore(write_log, check_log, seed=1, states_max=3000, sector_bytes=64)
    thrice = explore(write_log, check_log, seed=1, states_max=3000, sector_bytes=64, crashes=3)
    assert thrice.states > once.states


def test_exploring_again_finds_the_same() -> None:
    explored = [explore(write_log, check_log, seed=5, states_max=500, crashes=2) for _ in range(2)]
    assert explored[0] == explored[1]


def test_states_are_bounded() -> None:
    explored = explore(write_log, check_log, states_max=57)
    assert explored.distinct == 57


def test_a_log_that_does_not_sync_is_found() -> None:
    with pytest.raises(CrashFound, match=r"0 records, Promise\(tried=2, synced=1\)") as caught:
        explore(write_log_without_sync, check_log, seed=3)
    story = str(caught.value)
    assert "boundary 5: power lost before step 6: append data/log; kept data/log: 0 of 1 writes" in story
    assert "again: explore(..., seed=3, only=((5, 0),))" in story
    with pytest.raises(CrashFound) as again:
        explore(write_log_without_sync, check_log, seed=3, only=((5, 0),))
    assert str(again.value) == story


def test_zeros_taken_for_an_empty_record_are_found() -> None:
    def check(storage: SimulatedStorage, promise: Promise) -> None:
        compare(recover(storage, shortest=0), promise)

    with pytest.raises(CrashFound, match="no prefix of what was written"):
        explore(write_log, check)


def test_a_directory_that_is_not_synced_is_found() -> None:
    def workload(storage: SimulatedStorage, mark: Callable[[Promise], None]) -> None:
        mark(Promise(0, 0))
        file = storage.open("log", create=True)
        mark(Promise(1, 0))
        file.append([b"x"])
        file.sync()
        mark(Promise(1, 1))

    def check(storage: SimulatedStorage, promise: Promise) -> None:
        assert storage.size_bytes("log") >= promise.synced

    with pytest.raises(CrashFound, match="kept the root: 0 of 1 changes of names"):
        explore(workload, check)


def test_recovery_that_loses_when_it_is_crashed_is_found() -> None:
    def check(storage: SimulatedStorage, promise: Promise) -> None:
        compare(recover_by_writing_anew(storage), promise)

    explore(write_log, check, seed=2, states_max=1000)
    with pytest.raises(CrashFound, match="records, Promise") as caught:
        explore(write_log, check, seed=2, states_max=1000, crashes=2)
    story = str(caught.value)
    assert story.count("power lost before") == 2
    with pytest.raises(CrashFound) as again:
        explore(write_log, check, seed=2, only=caught.value.crashes)
    assert str(again.value) == story


def test_a_workload_must_say_what_it_knows() -> None:
    with pytest.raises(AssertionError, match="mark what is known"):
        explore(lambda storage, mark: storage.make_directory("d"), check_log)


def test_explored_says_how_much() -> None:
    explored = explore(lambda storage, mark: mark(Promise(0, 0)), check_log)
    assert explored == Explored(boundaries=1, states=explored.states, distinct=1, disks=1)
