"""What the files say that speak of all logs of a directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from minibroker.errors import StorageError
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import BrokenFile, read_offsets
from minibroker.log.directory import LogDirectory
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.meta_properties import parse_meta_properties
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.settings import LogSettings
from minibroker.simulation.disk import SimulatedStorage
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory

from .audit import audit

SETTINGS = LogSettings(segment_bytes=300)
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
ID = bytes(range(16))


def opened(storage: MemoryStorage, *topics: str, repairs: bool = False) -> LogDirectory:
    directory = LogDirectory(storage, repairs=repairs)
    directory.start()
    for topic in topics:
        directory.open(topic, 0, SETTINGS, now_ms=0)
    return directory


def append(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        data = build_batch(2, [Record(b"k", b"%d" % log.log_end_offset, (), 1000)])
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=0)


def values(log: PartitionLog) -> list[bytes | None]:
    return [row.value for row in audit(log)]


@contextmanager
def written(storage: SimulatedStorage) -> Iterator[list[str]]:
    """Note which files are put in their place."""
    found: list[str] = []
    storage.before_step = lambda step: found.append(str(step).rpartition(".tmp to ")[2])
    yield found
    storage.before_step = None


# Names that are used again


@pytest.mark.parametrize("leave", ["delete", "set_aside"])
def test_a_log_that_gets_the_name_of_another_gets_nothing_of_what_was_noted_of_it(leave: str) -> None:
    storage = MemoryStorage(int)
    directory = opened(storage, "t", "other")
    append(directory.logs["t", 0], 9)
    append(directory.logs["other", 0], 9)
    directory.logs["t", 0].advance_log_start(7)
    directory.close({("t", 0): 9, ("other", 0): 9})
    directory = opened(storage, "other") if leave == "set_aside" else opened(storage, "t", "other")
    getattr(directory, leave)("t", 0, "1")
    log = directory.open("t", 0, SETTINGS, now_ms=0)
    append(log, 5)
    log.release()  # the process ends
    directory = opened(storage, "t", "other")
    assert values(directory.logs["t", 0]) == [b"0", b"1", b"2", b"3", b"4"]
    assert directory.high_watermarks == {("other", 0): 9}
    assert directory.logs["other", 0].recovery_point == 9


def test_a_cut_notes_no_lower_start_of_another_log() -> None:
    """After a crash before that one is cut, too, records would be there again that were deleted."""
    storage = MemoryStorage(int)
    directory = opened(storage, "cut", "other")
    directory.floors = lambda: {("cut", 0): 1, ("other", 0): 1}
    for name in ("cut", "other"):
        log = directory.logs[name, 0]
        append(log, 4)
        log.flush()
        log.advance_log_start(3)
    directory.write_checkpoints()
    directory.truncate_to("cut", 0, 1)
    assert read_offsets(storage, STARTS)["other", 0] == 3
    assert read_offsets(storage, POINTS)["other", 0] == 1


def take_away(storage: MemoryStorage, name: str) -> None:
    for inner in storage.list(name):
        storage.remove(f"{name}/{inner}")
    storage.remove(name)


def test_a_log_in_place_of_one_that_somebody_took_away_outlives_a_crash() -> None:
    storage = SimulatedStorage()
    directory = opened(storage, "orders")
    append(directory.logs["orders", 0], 5)
    directory.cleaner_offsets["orders", 0] = 3
    directory.write_cleaner_offsets()
    directory.close({("orders", 0): 5})
    take_away(storage, "orders-0")
    directory = opened(storage, "orders")
    append(directory.logs["orders", 0])
    # Killed before checkpoints were due.
    assert values(opened(storage, "orders").logs["orders", 0]) == [b"0"]


def test_nothing_is_noted_of_a_log_that_somebody_took_away() -> None:
    storage = SimulatedStorage()
    directory = opened(storage, "orders", "bills")
    for log in directory.logs.values():
        append(log)
    directory.cleaner_offsets["orders", 0] = 1
    directory.write_cleaner_offsets()
    directory.close({("orders", 0): 1, ("bills", 0): 1})
    take_away(storage, "orders-0")
    opened(storage, "bills").close()  # the replica has been moved elsewhere meanwhile
    assert list(verify_directory(storage, VerifiedCounts())) == []
    assert read_offsets(storage, POINTS) == {("bills", 0): 1}


def test_what_is_noted_of_logs_that_are_not_open_stays() -> None:
    storage = MemoryStorage(int)
    directory = opened(storage, "a", "b")
    for log in directory.logs.values():
        append(log, 9)
        log.advance_log_start(8)
    directory.close({("a", 0): 9, ("b", 0): 9})
    directory = opened(storage, "a")
    append(directory.logs["a", 0])
    directory.logs["a", 0].flush()
    directory.write_checkpoints({("a", 0): 10})
    assert read_offsets(storage, POINTS) == {("a", 0): 10, ("b", 0): 9}
    assert read_offsets(storage, STARTS) == {("a", 0): 8, ("b", 0): 8}
    assert read_offsets(storage, HIGH_WATERMARKS) == {("a", 0): 10, ("b", 0): 9}


def test_a_log_that_is_offline_keeps_what_was_noted_of_it() -> None:
    storage = MemoryStorage(int)
    directory = opened(storage, "a")
    log = directory.logs["a", 0]
    append(log, 9)
    log.flush()
    log.advance_log_start(8)
    directory.write_checkpoints()
    log.offline = StorageError("gone")
    directory.write_checkpoints()
    assert read_offsets(storage, STARTS) == {("a", 0): 8}
    assert read_offsets(storage, POINTS) == {("a", 0): 9}


# Who may touch a directory


def test_the_directory_of_the_metadata_log_belongs_to_no_topic() -> None:
    storage = MemoryStorage(int)
    storage.make_directory("__cluster_metadata-0")
    directory = opened(storage)
    with pytest.raises(StorageError, match="metadata log"):
        directory.open("__cluster_metadata", 0, SETTINGS, now_ms=0, topic_id=ID)
    with pytest.raises(StorageError, match="metadata log"):
        directory.set_aside("__cluster_metadata", 0, "1")
    assert storage.list("") == ["__cluster_metadata-0"]


def test_a_directory_that_is_open_is_opened_and_set_aside_by_nobody() -> None:
    directory = opened(MemoryStorage(int), "t")
    with pytest.raises(StorageError, match="open already"):
        directory.open("t", 0, SETTINGS, now_ms=0, topic_id=ID)
    with pytest.raises(StorageError, match="open already"):
        directory.set_aside("t", 0, "1")
    append(directory.logs["t", 0])


def test_a_directory_of_another_topic_is_set_aside_and_that_is_said() -> None:
    storage, said = MemoryStorage(int), list[str]()
    for topic_id in (ID, bytes(16)):
        directory = LogDirectory(storage, say=said.append)
        directory.start()
        append(directory.open("t", 0, SETTINGS, now_ms=0, topic_id=topic_id))
        directory.close()
    assert storage.list("t-0." + ID.hex() + "-stray")
    assert len(said) == 1
    assert "t-0 belongs to another topic" in said[0]


def test_a_damaged_topic_id_is_mended_and_the_records_stay() -> None:
    storage, said = MemoryStorage(int), list[str]()
    directory = opened(storage)
    append(directory.open("t", 0, SETTINGS, now_ms=0, topic_id=ID))
    directory.close()
    file = storage.open("t-0/partition.metadata")
    at = file.size_bytes - 6
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
    directory = LogDirectory(storage, say=said.append)
    directory.start()
    assert directory.open("t", 0, SETTINGS, now_ms=0, topic_id=ID).log_end_offset == 1
    assert len(said) == 1
    assert "with some damage" in said[0]


# What is missing


def vanish(storage: MemoryStorage) -> None:
    for name in storage.list("t-0"):
        if name.endswith(".log"):
            storage.remove(f"t-0/{name}")


def end_early(storage: MemoryStorage) -> None:
    storage.open(newest(storage)).truncate(0)


def flip(storage: MemoryStorage) -> None:
    file = storage.open(newest(storage))
    file.write_at(30, bytes([file.read_at(30, 1)[0] ^ 1]))


def newest(storage: MemoryStorage) -> str:
    return max(f"t-0/{name}" for name in storage.list("t-0") if name.endswith(".log"))


def tree(storage: MemoryStorage) -> dict[str, bytes]:
    """Return all that cannot be made again."""
    paths = [f"t-0/{name}" for name in storage.list("t-0") if not name.endswith("index")]
    paths += [name for name in storage.list("") if "checkpoint" in name]
    return {path: storage.open(path).read_at(0, 1 << 20) for path in paths}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", [vanish, end_early, flip])
def test_a_log_that_lacks_what_was_flushed_is_refused_as_it_is(
    damage: Callable[[MemoryStorage], None], is_clean: bool
) -> None:
    storage = MemoryStorage(int)
    directory = opened(storage, "t")
    append(directory.logs["t", 0], 13)
    directory.close()
    damage(storage)
    if not is_clean:
        storage.remove(".kafka_cleanshutdown")
    before = tree(storage)
    if damage is flip and is_clean:
        assert opened(storage, "t").logs["t", 0].log_end_offset == 13  # nobody looks; who reads there is told
        return
    for _ in range(2):
        with pytest.raises(StorageError, match="had been flushed"):
            opened(storage, "t")
        assert tree(storage) == before
    found = opened(storage, "t", repairs=True).logs["t", 0]
    append(found)
    assert found.log_end_offset == (14 if damage is vanish else len(values(found)))


# How often checkpoints are written


@pytest.mark.parametrize("count", [4, 40])
def test_after_a_failover_checkpoints_are_written_as_often_for_many_logs_as_for_few(count: int) -> None:
    storage = SimulatedStorage()
    topics = [f"t{number}" for number in range(count)]
    directory = opened(storage, *topics)
    for log in directory.logs.values():
        append(log, 9)
        log.flush()
    ends = dict.fromkeys(directory.logs, 9)
    directory.write_checkpoints(ends)
    directory.floors = lambda: dict.fromkeys(directory.logs, 3)
    with written(storage) as paths:
        for topic in topics:
            directory.lower_high_watermark(topic, 0, 4)
            directory.truncate_to(topic, 0, 4)
    assert (paths.count(POINTS), paths.count(HIGH_WATERMARKS)) == (1, 1)


# What a stop costs


def test_a_stop_writes_everything_before_it_syncs_and_syncs_each_file_and_directory_once() -> None:
    storage = SimulatedStorage()
    directory = opened(storage, "a", "b", "c")
    for log in directory.logs.values():
        append(log, 9)  # several segments
    files = [
        f"{topic}-0/{name}"
        for topic in ("a", "b", "c")
        for name in storage.list(f"{topic}-0")
        if name.endswith((".log", "index", "-checkpoint"))
    ]
    steps: list[tuple[str, str]] = []
    storage.before_step = lambda step: steps.append((step.doing, step.path))
    assert directory.close()
    storage.before_step = None
    own = [(doing, path) for doing, path in steps if path.startswith(("a-0", "b-0", "c-0"))]
    synced = [path for doing, path in own if doing == "sync"]
    assert sorted(synced) == sorted(files)
    writes = [index for index, (doing, _) in enumerate(own) if doing in ("create", "append", "write", "truncate")]
    assert writes
    assert max(writes) < [doing for doing, _ in own].index("sync")
    assert sorted(path for doing, path in own if doing == "sync directory") == ["a-0", "b-0", "c-0"]
    # The checkpoints follow, the mark is the last: file, name and directory of each.
    assert steps[-1] == ("sync directory", "")
    assert [path for doing, path in steps if doing == "rename"][-1].endswith(".kafka_cleanshutdown")
    assert steps[: len(own)] == own


def test_a_segment_beyond_the_largest_offset_is_nobodys() -> None:
    storage = MemoryStorage(int)
    append(opened(storage, "t").logs["t", 0])
    storage.open("t-0/99999999999999999999.log", create=True).append([b"x"])
    with pytest.raises(StorageError, match=r"99999\.log: no offset is so large"):
        opened(storage, "t")
    storage.remove("t-0/99999999999999999999.log")
    assert values(opened(storage, "t").logs["t", 0]) == [b"0"]


@pytest.mark.parametrize("data", [b"", b"\n", b"#\n#Sat Nov 21 10:35:03 UTC 2026\n"])
def test_an_empty_meta_properties_is_called_so(data: bytes) -> None:
    with pytest.raises(BrokenFile, match=r"meta\.properties: it says nothing"):
        parse_meta_properties(data)
