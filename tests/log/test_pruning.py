"""Segments leave a log, or cleaned ones take their place; readers see no difference, and neither does a start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from minibroker.errors import Error, KafkaError, StorageError
from minibroker.log import pruning, reading, recovery
from minibroker.log.aborted import aborted_transactions
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.checkpoints import read_offsets
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.pruning import drop_oldest, purge, replace_segments
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.segment import CLEANED, DELETED, ROLLED, SWAP, Segment
from minibroker.log.settings import LogSettings
from minibroker.log.validate import COORDINATOR
from minibroker.simulation.disk import SimulatedStorage

from .audit import audit
from .crash import CrashFound, explore, extremes

if TYPE_CHECKING:
    from minibroker.log.storage import Storage

COMPACTED = LogSettings(index_interval_bytes=100, segment_index_bytes=80, compact=True)
PLAIN = LogSettings(index_interval_bytes=100, segment_index_bytes=80)


def new_log(settings: LogSettings, storage: SimulatedStorage | None = None) -> PartitionLog:
    log = open_log(storage or SimulatedStorage(), "t-0", settings, was_clean=True)
    log.storage.sync_directory("")
    return log


def append(
    log: PartitionLog, value: bytes = b"v", *, epoch: int = 0, producer_id: int = -1, sequence: int = -1
) -> None:
    """Append a batch of two records."""
    records = [Record(b"k", value, (), 1000 + log.log_end_offset + index) for index in range(2)]
    data = build_batch(
        2,
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )
    log.append_as_leader(bytearray(data), leader_epoch=epoch, now_ms=0)


def abort(log: PartitionLog, producer_id: int) -> None:
    marker = build_transaction_marker(
        offset=0, commit=False, producer_id=producer_id, producer_epoch=0, timestamp=0, coordinator_epoch=0
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=0, origin=COORDINATOR)


def filled(count: int, settings: LogSettings = COMPACTED, storage: SimulatedStorage | None = None) -> PartitionLog:
    """Return a log of so many segments, two batches of two records in each."""
    log = new_log(settings, storage)
    for _ in range(count):
        log.roll()
        append(log)
        append(log)
    return log


def rewritten(log: PartitionLog, sources: Iterable[Segment], keep: Iterable[int], base_offset: int) -> Segment:
    """Write the batches with these base offsets into a cleaned segment."""
    new = Segment(log.storage, log.directory, base_offset, suffix=CLEANED)
    new.create(log.settings.segment_index_bytes)
    for segment in sources:
        for batch in segment.batches():
            if batch.base_offset in set(keep):
                new.append([batch.view], [batch], log.settings.index_interval_bytes)
    return new


def reopened(log: PartitionLog, settings: LogSettings = COMPACTED) -> PartitionLog:
    return open_log(log.storage, log.directory, settings, recovery_point=log.recovery_point)


def offsets(log: PartitionLog) -> list[int]:
    return [row.offset for row in audit(log)]


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def names(log: PartitionLog, suffix: str) -> list[str]:
    found = (name for name in log.storage.list(log.directory) if name.endswith(suffix))
    return [name for name in found if not name.endswith(ROLLED)]


# The oldest go


def test_the_log_begins_behind_what_was_dropped_and_a_start_agrees() -> None:
    log = filled(4)
    log.flush()
    paths = drop_oldest(log, 2)
    assert (log.log_start_offset, bases(log), log.cuts) == (8, [8, 12], 1)
    assert offsets(log) == list(range(8, 16))
    with pytest.raises(KafkaError) as refused:
        reading.read(log, 7, 1000, limit_offset=16)
    assert refused.value.code == Error.OFFSET_OUT_OF_RANGE
    for found in (reopened(log), log):
        assert (found.log_start_offset, bases(found), offsets(found)) == (8, [8, 12], list(range(8, 16)))
    assert not [path for path in paths if log.storage.exists(path)]  # the start has removed them


def test_what_was_dropped_does_not_come_back_when_the_power_goes() -> None:
    storage = SimulatedStorage()
    log = filled(4, storage=storage)
    log.flush()
    drop_oldest(log, 3)
    loss = storage.power_loss()
    for choice in extremes(loss):
        left = open_log(SimulatedStorage(disk=loss.disk(choice)), "t-0", COMPACTED, recovery_point=log.recovery_point)
        assert (left.log_start_offset, offsets(left)) == (12, [12, 13, 14, 15])


def test_nothing_is_dropped_if_nothing_is_to_go() -> None:
    log = filled(2)
    steps = log.storage.steps  # type: ignore[attr-defined]
    assert drop_oldest(log, 0) == []
    assert (log.cuts, log.storage.steps) == (0, steps)  # type: ignore[attr-defined]


def test_the_snapshot_at_the_new_start_stays_and_older_ones_go() -> None:
    log = filled(4, PLAIN)
    assert names(log, ".snapshot") == [f"{offset:020}.snapshot" for offset in (4, 8, 12)]
    paths = drop_oldest(log, 2)
    assert names(log, ".snapshot") == [f"{offset:020}.snapshot" for offset in (8, 12)]
    assert "t-0/00000000000000000004.snapshot.deleted" in paths


def test_producers_whose_records_are_gone_are_still_known_after_a_crash() -> None:
    storage = SimulatedStorage()
    log = new_log(PLAIN, storage)
    append(log, producer_id=7, sequence=0)
    abort(log, 7)
    log.roll()
    append(log)
    log.flush()
    drop_oldest(log, 1)
    loss = storage.power_loss()
    for choice in extremes(loss):
        left = open_log(SimulatedStorage(disk=loss.disk(choice)), "t-0", PLAIN, recovery_point=log.recovery_point)
        assert left.producers.producers[7].last_sequence == 1


def test_a_snapshot_of_before_the_log_is_not_believed() -> None:
    """The marker of the transaction that it has for open lay in a segment that was dropped."""
    log = new_log(PLAIN)
    append(log, producer_id=7, sequence=0)
    log.roll()
    abort(log, 7)
    log.roll()
    append(log)
    log.flush()
    for segment in log.segments[:2]:
        segment.remove()
    file = log.storage.open("t-0/00000000000000000003.snapshot")
    file.truncate(0)
    assert names(log, ".snapshot") == [f"{offset:020}.snapshot" for offset in (2, 3)]
    left = reopened(log, PLAIN)
    assert (left.log_start_offset, left.log_end_offset, left.last_stable_offset(5)) == (3, 5, 5)


def test_epochs_begin_with_the_log() -> None:
    log = new_log(PLAIN)
    for epoch in (3, 5):
        append(log, epoch=epoch)
        append(log, epoch=epoch)
        log.roll()
    drop_oldest(log, 1)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(5, 4)]
    assert [(entry.epoch, entry.start_offset) for entry in reopened(log, PLAIN).epochs.entries] == [(5, 4)]


def test_the_recovery_point_is_never_below_the_log_start() -> None:
    log = filled(3, PLAIN)
    assert log.recovery_point == 0
    drop_oldest(log, 2)
    assert log.recovery_point == log.log_start_offset == 8


def test_who_had_found_something_reads_it_until_it_is_purged() -> None:
    log = filled(3)
    before = reading.read(log, 1, 1, limit_offset=12, whole_batch=True)
    unread = reading.read(log, 2, 1, limit_offset=12, whole_batch=True)
    assert before is not None
    assert unread is not None
    view = before.view()
    kept = bytes(view)
    paths = drop_oldest(log, 1)
    assert len(unread.view()) == unread.size_bytes
    purge(log.storage, paths)
    assert bytes(view) == kept
    assert not any(log.storage.exists(path) for path in paths)


# Cleaned ones take the place of others


def test_a_cleaned_segment_takes_the_place_of_its_sources() -> None:
    log = filled(4)
    old = log.segments[:3]
    new = rewritten(log, old, [2, 8, 10], 0)
    paths = replace_segments(log, old, [new])
    assert (bases(log), log.segments[0] is new, new.suffix, log.cuts) == ([0, 12], True, "", 0)
    assert offsets(log) == [2, 3, 8, 9, 10, 11, 12, 13, 14, 15]
    assert (log.log_start_offset, log.log_end_offset) == (0, 16)
    assert names(log, CLEANED) == names(log, SWAP) == []
    assert sorted(f"t-0/{name}" for name in names(log, DELETED)) == sorted(paths)
    assert bases(reopened(log)) == [0, 12]
    assert offsets(reopened(log)) == offsets(log)


def test_a_read_within_a_gap_finds_the_next_record_be_it_in_the_next_segment() -> None:
    log = filled(4)
    replace_segments(log, log.segments[:2], [rewritten(log, log.segments[:2], [2], 0)])
    for offset, due in (0, 2), (3, 2), (4, 8), (7, 8), (8, 8):
        found = reading.read(log, offset, 1, limit_offset=16, whole_batch=True)
        assert found is not None
        assert found.segment.find(offset).base_offset == due  # type: ignore[union-attr]
    found = reading.read(log, 5, 1000, limit_offset=8)
    assert found is None


def test_nothing_may_be_left_of_a_segment() -> None:
    log = filled(3)
    replace_segments(log, log.segments[:2], [rewritten(log, log.segments[:2], [], 0)])
    assert (bases(log), log.log_start_offset, offsets(log)) == ([0, 8], 0, [8, 9, 10, 11])
    log.close()
    log = open_log(log.storage, "t-0", COMPACTED, was_clean=True)
    assert (bases(log), log.log_start_offset, offsets(log)) == ([0, 8], 0, [8, 9, 10, 11])


def test_snapshots_go_behind_which_something_was_cleaned_away() -> None:
    log = filled(4)
    paths = replace_segments(log, log.segments[1:3], [rewritten(log, log.segments[1:3], [6], 4)])
    assert names(log, ".snapshot") == ["00000000000000000012.snapshot"]
    assert {path for path in paths if "snapshot" in path} == {f"t-0/{offset:020}.snapshot.deleted" for offset in (4, 8)}


def test_a_cleaned_segment_is_as_old_as_the_last_of_its_sources() -> None:
    log = filled(3)
    for segment, modified_ms in zip(log.segments, (100, 200, 300), strict=True):
        log.storage.set_modified_ms(segment.path, modified_ms)
    replace_segments(log, log.segments[:2], [rewritten(log, log.segments[:2], [2], 0)])
    assert [segment.modified_ms for segment in log.segments] == [200, 300]


def test_aborted_transactions_are_still_told() -> None:
    log = new_log(COMPACTED)
    append(log, producer_id=7, sequence=0)
    append(log)
    abort(log, 7)
    log.roll()
    append(log)
    new = rewritten(log, log.segments[:1], [0, 4], 0)
    for entry in log.segments[0].transaction_index.entries():
        new.transaction_index.add(entry)
    replace_segments(log, log.segments[:1], [new])
    for found in (log, reopened(log)):
        piece = reading.read(found, 0, 1000, limit_offset=5)
        assert piece is not None
        assert [entry.producer_id for entry in aborted_transactions(found, piece, 0)] == [7]


def test_readers_of_each_generation_see_their_own() -> None:
    log = filled(2)
    slices, paths = [], []
    for keep in ([0, 2], [2], []):
        slices.append(reading.read(log, 2, 1000, limit_offset=4))
        paths += replace_segments(log, log.segments[:1], [rewritten(log, log.segments[:1], keep, 0)])
    assert [None if piece is None else len(piece.view()) for piece in slices] == [
        piece and len(piece) for piece in slices
    ]
    first, second, third = (bytes(piece.view()) for piece in slices if piece is not None)
    assert first == second == third
    assert len(names(log, ".log.deleted")) == 1
    assert len(names(log, ".log.2.deleted")) == 1
    purge(log.storage, paths)
    assert names(log, DELETED) == []


def test_what_a_pass_left_that_gave_up_is_in_nobodys_way() -> None:
    log = filled(4)
    rewritten(log, log.segments[:1], [0], 0)
    assert names(log, CLEANED)
    replace_segments(log, log.segments[1:3], [rewritten(log, log.segments[1:3], [6], 4)])
    assert names(log, CLEANED) == []
    assert bases(log) == [0, 4, 12]


@pytest.mark.parametrize("doing", ["sync", "set time", "remove"])
def test_a_disk_that_fails_before_anything_is_renamed_leaves_the_log_as_it_was(doing: str) -> None:
    log = filled(3)
    storage = log.storage
    assert isinstance(storage, SimulatedStorage)
    rewritten(log, log.segments[1:2], [4], 4)  # a leftover
    new = rewritten(log, log.segments[:2], [2], 0)
    storage.fail(doing=doing)
    with pytest.raises(StorageError):
        replace_segments(log, log.segments[:2], [new])
    new.remove()
    assert offsets(log) == list(range(12))


@pytest.mark.parametrize("at", range(1, 12))
def test_a_disk_that_fails_later_takes_the_log_offline_and_a_start_mends_it(at: int) -> None:
    log = filled(3)
    storage = log.storage
    assert isinstance(storage, SimulatedStorage)
    new = rewritten(log, log.segments[:2], [2, 6], 0)
    log.flush()
    seen = 0

    def refuse(step: object) -> None:
        nonlocal seen
        if "rename" in str(step) or "sync directory" in str(step):
            seen += 1
            if seen == at:
                storage.fail()

    storage.before_step = refuse
    with pytest.raises(StorageError):
        replace_segments(log, log.segments[:2], [new])
    storage.before_step = None
    with pytest.raises(StorageError, match="offline"):
        reading.read(log, 0, 1, limit_offset=12)
    assert offsets(reopened(log)) in (list(range(12)), [2, 3, 6, 7, 8, 9, 10, 11])


# Every moment of it


Contents = tuple[list[int], ...]  # the offsets that there may be; none: whatever there is


def swapping(storage: SimulatedStorage, mark: Callable[[Contents], None]) -> None:
    """Three segments become two with other bounds: the second of them begins where none did."""
    mark(())
    log = new_log(COMPACTED, storage)
    append(log, producer_id=7, sequence=0)
    abort(log, 7)
    append(log)
    for _ in range(2):
        log.roll()
        log.flush()
        append(log)
        append(log)
    log.roll()
    append(log)
    log.flush()
    mark((list(range(15)),))
    after = [0, 1, 2, 7, 8, 11, 12, 13, 14]
    mark((list(range(15)), after))
    old = log.segments[:3]
    assert [segment.base_offset for segment in old] == [0, 5, 9]
    new = [rewritten(log, old, [0, 2, 7], 0), rewritten(log, old, [11], 11)]
    for entry in old[0].transaction_index.entries():
        new[0].transaction_index.add(entry)
    paths = replace_segments(log, old, new)
    mark((after,))
    purge(storage, paths)


def found_after_swapping(storage: SimulatedStorage, known: Contents) -> None:
    log = open_log(storage, "t-0", COMPACTED, recovery_point=15 if known else 0, contiguous=not known)
    found = [row.offset for row in audit(log, every_lookup=False)]
    assert not known or found in known
    piece = reading.read(log, 0, 1, limit_offset=3, whole_batch=True)
    if known and piece is not None:
        assert [entry.last_offset for entry in aborted_transactions(log, piece, 0)] == [2]
    for suffix in (CLEANED, SWAP, DELETED):
        assert names(log, suffix) == []


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [1, 3])
def test_whenever_the_power_goes_there_are_the_old_segments_or_the_new_ones(crashes: int) -> None:
    assert explore(swapping, found_after_swapping, states_max=3000, crashes=crashes).distinct > 1000


def _swaps_go_last(monkeypatch: pytest.MonkeyPatch) -> None:
    real, waiting = recovery._remove_names, []

    def remove(storage: Storage, directory: str, these: list[str]) -> None:
        if these and all(name.endswith(SWAP) for name in these):
            waiting.extend(these)
        else:
            real(storage, directory, these)
            real(storage, directory, waiting)

    monkeypatch.setattr(recovery, "_remove_names", remove)


def _each_covers_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recovery._covered
    monkeypatch.setattr(
        recovery,
        "_covered",
        lambda storage, directory, swaps: [name for swap in swaps for name in real(storage, directory, [swap])],
    )


def _indexes_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(these: Iterable[str], key: Callable[[str], bool] | None = None) -> list[str]:
        return sorted(these, key=key, reverse=key is not None)

    monkeypatch.setattr(recovery, "sorted", backwards, raising=False)


def _first_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "reversed", list, raising=False)


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_swaps_go_last, _each_covers_its_own, _indexes_come_first, _first_ones_first])
def test_steps_in_another_order_would_be_found(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]
) -> None:
    bug(monkeypatch)
    with pytest.raises(CrashFound):
        explore(swapping, found_after_swapping, states_max=6000, crashes=3, seed=2)


LEFT = [  # what a crash may leave beside 0 (offsets 0 to 3), 4 and the active 8, and what a start makes of it
    ("nothing went on", [], [0, 4, 8]),
    ("not all was written", ["0.log.cleaned"], [0, 4, 8]),
    ("half a rename", ["0.log.swap", "0.index.cleaned"], [0, 4, 8]),
    ("only the second of two is renamed", ["0.log.cleaned", "6.log.swap"], [0, 4, 8]),
    ("all are renamed", ["0.log.swap", "0.index.swap"], [0, 8]),
    ("two new ones", ["0.log.swap", "6.log.swap"], [0, 6, 8]),
    ("an index is still to be renamed", ["4.index.swap"], [0, 4, 8]),
    ("deleted ones wait", ["4.log.deleted", "0.log.2.deleted", "4.snapshot.deleted"], [0, 4, 8]),
]


@pytest.mark.parametrize(("left", "due"), [each[1:] for each in LEFT], ids=[each[0] for each in LEFT])
def test_a_start_finishes_what_counts_and_drops_the_rest(left: list[str], due: list[int]) -> None:
    log = filled(3)
    log.flush()
    batch = {base: b"".join(each.view for each in log.segments[index].batches()) for base, index in ((0, 0), (4, 1))}
    batch[6] = b"".join(each.view for each in log.segments[1].batches() if each.base_offset == 6)
    merged = b"".join(each.view for each in log.segments[1].batches() if each.base_offset == 4)
    for name in left:
        base, kind = name.split(".", 1)
        content = b"" if "log" not in kind else batch[6] if base == "6" else merged if "swap" in kind else batch[0]
        log.storage.open(f"t-0/{int(base):020}.{kind}", create=True).append([content])
    found = open_log(log.storage, "t-0", COMPACTED, recovery_point=12)
    assert bases(found) == due
    assert not [name for name in log.storage.list("t-0") if name.endswith((CLEANED, SWAP, DELETED))]
    audit(found)


# What the directory knows


def directory_of(storage: SimulatedStorage, settings: LogSettings = COMPACTED) -> LogDirectory:
    directory = LogDirectory(storage)
    directory.start()
    directory.open("t", 0, settings, now_ms=0)
    return directory


def test_how_far_a_log_was_cleaned_is_kept_and_goes_down_with_its_end() -> None:
    storage = SimulatedStorage()
    directory = directory_of(storage)
    for _ in range(4):
        append(directory.logs["t", 0])
    directory.cleaner_offsets["t", 0] = 6
    directory.write_cleaner_offsets()
    assert directory_of(storage).cleaner_offsets == {("t", 0): 6}
    directory.truncate_to("t", 0, 7)
    assert directory.cleaner_offsets == {("t", 0): 6}
    directory.truncate_to("t", 0, 4)
    assert directory_of(storage).cleaner_offsets == {("t", 0): 4}


def test_how_far_a_log_was_cleaned_is_forgotten_with_it() -> None:
    for goes in (
        lambda directory: directory.delete("t", 0, "1"),
        lambda directory: (directory.logs.clear(), directory.set_aside("t", 0, "1")),
    ):
        storage = SimulatedStorage()
        directory = directory_of(storage)
        directory.cleaner_offsets.update({("t", 0): 6, ("gone", 3): 1})
        directory.write_cleaner_offsets()
        goes(directory)
        assert directory_of(storage).cleaner_offsets == {}  # there is no log of the other


def test_whoever_is_at_work_on_a_log_sees_that_it_was_cut_or_deleted() -> None:
    directory = directory_of(SimulatedStorage())
    log = directory.logs["t", 0]
    for _ in range(3):
        append(log)
    directory.truncate_to("t", 0, 6)
    assert log.cuts == 0  # there was nothing to cut
    directory.truncate_to("t", 0, 4)
    log.truncate_fully_and_start_at(20)
    directory.delete("t", 0, "1")
    assert log.cuts == 3


@pytest.mark.parametrize("loses_recovery_points", [False, True])
def test_gaps_are_no_loss_in_a_log_that_was_compacted_once(loses_recovery_points: bool) -> None:
    storage = SimulatedStorage()
    directory = directory_of(storage)
    log = directory.logs["t", 0]
    for _ in range(4):
        append(log)
        append(log)
        log.roll()
    append(log)
    directory.before_cleaning("t", 0, 16)
    replace_segments(log, log.segments[:1], [rewritten(log, log.segments[:1], [2], 0)])
    replace_segments(log, log.segments[1:3], [rewritten(log, log.segments[1:3], [4], 4)])
    if loses_recovery_points:
        directory.cleaner_offsets["t", 0] = 16
        directory.write_cleaner_offsets()
        storage.remove("recovery-point-offset-checkpoint")
    found = directory_of(storage, PLAIN).logs["t", 0]
    assert offsets(found) == [2, 3, 4, 5, 12, 13, 14, 15, 16, 17]
    assert found.recovery.reason == ""


def test_before_cleaning_the_disk_knows_how_far_the_log_is_flushed() -> None:
    storage = SimulatedStorage()
    directory = directory_of(storage, PLAIN)
    log = directory.logs["t", 0]

    def noted() -> int:
        return read_offsets(storage, "recovery-point-offset-checkpoint").get(("t", 0), 0)

    append(log)
    log.roll()
    append(log)
    directory.before_cleaning("t", 0, 2)
    assert log.recovery_point == noted() == 4
    append(log)
    directory.before_cleaning("t", 0, 4)
    assert (log.recovery_point, noted()) == (6, 4)  # what is behind is flushed too, for the sake of its markers
    steps = storage.steps
    directory.before_cleaning("t", 0, 4)
    assert storage.steps == steps
    directory.truncate_to("t", 0, 2)
    assert noted() == 2
    append(log)
    directory.before_cleaning("t", 0, 4)
    assert noted() == 4
