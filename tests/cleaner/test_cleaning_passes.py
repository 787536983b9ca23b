"""How a pass goes on and ends: with a full map, in the middle, at damage; and how much of it is done at once."""

from __future__ import annotations

from errno import ENOSPC
from itertools import pairwise

import pytest

from minibroker.cleaner import cleaner
from minibroker.cleaner.cleaner import CleaningAborted, clean
from minibroker.errors import CorruptCrc, Error, InvalidRecord, KafkaError, StorageError, Truncated
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from tests.log.audit import audit

from .dirty_logs import DirtyLog, begun, filled, latest

# Ends of a pass


def test_a_map_that_is_full_ends_the_pass_and_the_next_goes_on_there() -> None:
    words = " ".join(f"{chr(ord('a') + number % 20)}{number}" for number in range(60))
    at_once, bit_by_bit = filled(words), filled(words)
    at_once.clean()
    ends = [0]
    while ends[-1] < 60:
        ends.append(bit_by_bit.clean(ends[-1], map_bytes_max=600).end_offset)
        assert ends[-1] > ends[-2]
        assert latest(bit_by_bit.rows()) == latest(at_once.rows())
    assert len(ends) > 4
    assert bit_by_bit.rows() == at_once.rows()


def test_without_anything_dirty_a_pass_takes_what_has_become_old() -> None:
    dirty = filled("a1 a- b1")
    end = dirty.clean().end_offset
    dirty.now_ms += 1000
    assert dirty.candidate(end).why_not
    cleaned = dirty.clean(end)
    assert cleaned.end_offset == end
    assert [row[0] for row in dirty.rows()] == [2]


def test_a_pass_ends_where_the_next_segment_begins_though_offsets_are_missing_before_it() -> None:
    dirty = DirtyLog(segment_bytes=100)
    dirty.put_all("a1")
    dirty.put((b"b", b"1"), gap=1 << 32)
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 1 + (1 << 32)]
    assert dirty.clean().end_offset == 1 + (1 << 32)


def test_what_has_been_looked_at_stays_so_where_less_may_be_cleaned_than_before() -> None:
    dirty = filled("a1 | b1")
    dirty.put_all("c1")
    assert dirty.candidate(3).end == 2
    assert dirty.clean(3).end_offset == 3


def test_an_empty_log_is_cleaned_by_doing_nothing() -> None:
    dirty = DirtyLog()
    cleaned = dirty.clean()
    assert (cleaned.end_offset, cleaned.segments_before, cleaned.paths) == (0, 0, [])


def test_a_log_whose_disk_fails_meanwhile_is_let_go() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(100)) + " | b1")
    work = begun(dirty)
    while not dirty.files(".cleaned"):
        next(work)
    dirty.log.offline = StorageError("no disk")
    with pytest.raises(KafkaError) as failure:
        next(work)
    assert failure.value.code == Error.KAFKA_STORAGE_ERROR


def test_a_log_that_is_cut_meanwhile_is_let_go() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(100)) + " | b1")
    work = begun(dirty)
    while not dirty.files(".cleaned"):
        next(work)
    dirty.log.truncate_to(50)
    with pytest.raises(CleaningAborted):
        next(work)
    assert dirty.files(".cleaned") == {}
    assert [row[0] for row in dirty.rows()] == list(range(50))
    audit(dirty.log)


def test_a_pass_that_is_given_up_leaves_no_files_behind_and_the_log_as_it_was() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(100)))
    before = dirty.files()
    pieces_max = len(list(begun(filled(" ".join(f"a{number}" for number in range(100))))))
    assert pieces_max > 10
    for pieces in range(1, pieces_max):
        work = begun(dirty)
        for _ in range(pieces):
            next(work)
        work.close()
        assert dirty.files() == before


def test_a_log_that_is_deleted_meanwhile_is_let_go() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(100)))
    dirty.log.close()
    directory = LogDirectory(dirty.storage)
    directory.start()
    dirty.log = directory.open("t", 0, dirty.settings, now_ms=dirty.now_ms)
    work = begun(dirty)
    for _ in range(12):
        next(work)
    directory.delete("t", 0, "0" * 32)
    with pytest.raises(CleaningAborted):
        next(work)


def test_what_is_appended_meanwhile_is_there_afterwards() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(100)))
    work = begun(dirty)
    for number, _ in enumerate(work):
        dirty.put_all(f"b{number}")
        if number == 5:
            dirty.roll()
    assert [row[0] for row in dirty.rows()] == list(range(99, dirty.log.log_end_offset))
    assert dirty.log.log_end_offset > 110
    audit(dirty.log)


# What cannot be read


@pytest.mark.parametrize("first_dirty", [0, 40], ids=["dirty", "clean"])
def test_a_damaged_batch_stops_the_pass_and_is_named(first_dirty: int) -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(20)) + "|" + " ".join("b1" for _ in range(20)) + "| c1")
    position = 15 * 70 + 66
    path = "t-0/00000000000000000000.log"
    (byte,) = dirty.storage.open(path).read_at(position, 1)
    dirty.storage.open(path).write_at(position, bytes([byte ^ 1]))
    before = dirty.files(".log")
    with pytest.raises(CorruptCrc) as caught:
        dirty.clean(first_dirty)
    batch = list(batches(before["00000000000000000000.log"]))[15]
    assert caught.value.position == batch.position + 17
    assert caught.value.path.startswith(f"{path}: ")
    assert dirty.files(".log") == before
    assert dirty.files(".cleaned", ".swap", ".deleted") == {}


def test_damage_far_behind_in_a_file_is_named_with_its_place() -> None:
    dirty = DirtyLog()
    for number in range(100):
        dirty.put((b"%d" % number, bytes(4000)))
    dirty.roll()
    (file,) = [name for name, data in dirty.files(".log").items() if data]
    batch = list(batches(dirty.files()[file]))[90]
    dirty.storage.open(f"t-0/{file}").write_at(batch.position + 100, b"x")
    with pytest.raises(CorruptCrc) as caught:
        dirty.clean()
    assert caught.value.position == batch.position + 17


def test_records_that_make_no_sense_stop_the_pass() -> None:
    dirty = filled("a1")
    dirty.append(
        build_batch(2, [Record(b"\0\0", b"", (), 0, 1)], producer_id=-1, control=True, partition_leader_epoch=0)
    )
    dirty.roll()
    with pytest.raises(InvalidRecord, match=r"t-0/00000000000000000000\.log: |t-0/00000000000000000001\.log: "):
        dirty.clean()


def test_a_size_that_leads_behind_the_end_of_the_file_is_not_followed() -> None:
    dirty = DirtyLog()
    dirty.put((b"a", bytes(300_000)))
    dirty.put((b"b", b"1"))
    dirty.roll()
    dirty.storage.open("t-0/00000000000000000000.log").write_at(8, (1 << 30).to_bytes(4, "big"))
    with pytest.raises(Truncated, match="needs 1073741836 bytes"):
        dirty.clean(2)


def test_batches_larger_than_what_is_read_at_once_are_cleaned() -> None:
    dirty = DirtyLog()
    for number in range(3):
        dirty.put((b"a", bytes(300_000)), (b"b%d" % number, b"%d" % number))
    dirty.roll()
    dirty.clean()
    assert [row[0] for row in dirty.rows()] == [1, 3, 4, 5]


def test_a_disk_that_is_full_costs_the_pass_and_not_the_log() -> None:
    dirty = filled(" ".join(f"a{number}" for number in range(10)))
    before = dirty.files(".log")

    def refuse(doing: str, path: str) -> None:
        if path.endswith(".log.cleaned"):
            raise OSError(ENOSPC, "full")

    dirty.storage.trouble = refuse
    with pytest.raises(StorageError):
        dirty.clean()
    dirty.storage.trouble = None
    assert dirty.files(".log", ".cleaned") == before
    dirty.put_all("b1")
    dirty.clean()
    assert [row[0] for row in dirty.rows()] == [9, 10]


# Pieces


@pytest.mark.parametrize("per_batch", [1, 20, 5000])
def test_a_piece_is_so_many_records_or_twice_that_however_they_are_batched(
    per_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = DirtyLog()
    for _ in range(10_000 // per_batch):
        dirty.put(*((b"%d" % number, b"value") for number in range(per_batch)))
    dirty.roll()
    size_bytes = dirty.log.segments[0].size_bytes
    work = clean(dirty.log, dirty.candidate(), now_ms=dirty.now_ms, map_bytes_max=1 << 24)
    pieces = list(work)
    # 10,000 records are read, and all but those of batches that stay or go as a whole once more. A batch alone takes
    # longer than a record, so they are fewer then.
    most = cleaner.PIECE_RECORDS if per_batch > 1 else 10
    assert 10_000 / (2 * cleaner.PIECE_RECORDS) < len(pieces) < 20_000 / most * 1.5
    # Written is no more than what is left.
    assert 2 * size_bytes <= sum(pieces) <= 2 * size_bytes + dirty.log.segments[0].size_bytes + 1
    assert max(pieces) < 2 * cleaner.PIECE_BYTES + size_bytes // (10_000 // per_batch)


def test_large_values_make_pieces_of_their_own() -> None:
    dirty = DirtyLog()
    for number in range(50):
        dirty.put((b"%d" % number, bytes(100_000)))
    dirty.roll()
    pieces = list(clean(dirty.log, dirty.candidate(), now_ms=dirty.now_ms, map_bytes_max=1 << 24))
    assert sum(pieces) > 3 * 5_000_000
    assert max(pieces) < 700_000


def test_what_is_written_is_flushed_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    dirty = DirtyLog()
    for number in range(100):
        dirty.put((b"%d" % number, bytes(10_000)))
    dirty.roll()

    def note(storage: MemoryStorage, path: str) -> None:
        assert path == "t-0/00000000000000000000.log.cleaned"
        flushed.append(storage.size_bytes(path))

    monkeypatch.setattr(cleaner, "sync_file", note)
    monkeypatch.setattr(cleaner, "SYNC_BYTES", 200_000)
    dirty.clean()
    assert len(flushed) == 5
    assert all(200_000 <= after - before < 300_000 for before, after in pairwise([0, *flushed]))
