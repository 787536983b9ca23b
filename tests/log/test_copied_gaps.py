"""A log that was copied from a cleaned one has gaps, and no start takes them for losses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.reading import read
from minibroker.log.records import Record
from minibroker.log.segment import DELETED
from minibroker.log.settings import LogSettings
from minibroker.simulation.disk import SimulatedStorage

from .audit import audit
from .crash import STATES, explore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.log.storage import Storage

PLAIN = LogSettings(segment_bytes=600, index_interval_bytes=150, segment_index_bytes=80)
COMPACTED = LogSettings(segment_bytes=600, index_interval_bytes=150, segment_index_bytes=80, compact=True, delete=False)
Offsets = tuple[int, ...]


def batch(*offsets: int, magic: int = 2, epoch: int = 0) -> bytes:
    rows = [Record(b"k", b"%d" % offset, (), 1000 + offset % 1000, offset) for offset in offsets]
    return build_batch(magic, rows, partition_leader_epoch=epoch)


def opened(storage: Storage, settings: LogSettings = PLAIN) -> PartitionLog:
    directory = LogDirectory(storage)
    directory.start()
    return directory.open("t", 0, settings, now_ms=0)


def copied(batches: list[bytes], storage: Storage) -> PartitionLog:
    log = opened(storage)
    for each in batches:
        log.append_as_follower(each, now_ms=0)
    return log


def offsets_of(log: PartitionLog) -> list[int]:
    return [row.offset for row in audit(log, every_lookup=False)]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("jump", [1, 292, (1 << 31) - 3, (1 << 31) + 5, 1 << 40])
def test_a_start_after_a_crash_keeps_what_was_copied_with_gaps(magic: int, jump: int) -> None:
    storage = MemoryStorage(int)
    offsets = [0, 1, 2, *(2 + jump + index * 7 for index in range(40))]
    log = copied([batch(offset, magic=magic) for offset in offsets], storage)
    assert len(log.segments) >= 3
    assert offsets_of(log) == offsets
    log.release()
    found = opened(storage)
    assert offsets_of(found) == offsets
    assert found.recovery.reason == ""
    found.append_as_leader(bytearray(batch(0)), leader_epoch=0, now_ms=0)
    assert found.log_end_offset == offsets[-1] + 2


def test_batches_that_come_together_and_lie_far_apart_do_not_share_a_segment() -> None:
    storage = MemoryStorage(int)
    log = copied([batch(3) + batch(5 + (1 << 31)) + batch(6 + (1 << 33))], storage)
    assert offsets_of(log) == [3, 5 + (1 << 31), 6 + (1 << 33)]
    assert [segment.base_offset for segment in log.segments] == [0, 5 + (1 << 31), 6 + (1 << 33)]
    piece = read(log, 4, 1000, limit_offset=log.log_end_offset)
    assert piece is not None
    assert piece.segment is log.segments[1]


def test_a_segment_behind_a_lost_tail_goes() -> None:
    storage = SimulatedStorage()
    log = copied([batch(offset) for offset in range(20)], storage)
    first = log.segments[0]
    last = list(first.batches())[-1]
    log.release()
    storage.open(first.path).truncate(last.position)
    found = opened(storage)
    assert found.log_end_offset == last.base_offset
    assert "had gone on to" in found.recovery.reason


@pytest.mark.parametrize("overlap", [1, 4])
def test_a_segment_that_begins_before_the_end_of_the_one_before_goes_with_all_behind_it(overlap: int) -> None:
    storage = SimulatedStorage()
    log = copied([batch(offset) for offset in range(30)], storage)
    first, *others = log.segments
    assert len(others) >= 2
    log.release()
    between = first.next_offset() - overlap
    path = f"t-0/{between:020}.log"
    storage.open(path, create=True).append([b"".join(batch(between + index) for index in range(overlap))])
    found = opened(storage)
    assert (offsets_of(found), found.log_end_offset) == (list(range(first.next_offset())), first.next_offset())
    assert found.recovery.reason.startswith(path)
    assert found.recovery.cut_bytes > 0
    assert not storage.exists(path)
    assert not any(storage.exists(segment.path) for segment in others)


@pytest.mark.parametrize("policy", [PLAIN, COMPACTED])
def test_what_kafka_has_copied_with_gaps_between_segments_is_kept(policy: LogSettings) -> None:
    """It says nothing of where the log ended, and takes away what we said of that."""
    storage = SimulatedStorage()
    offsets = [number * 10 + more for number in range(20) for more in (0, 1)]
    log = copied([batch(offset) for offset in offsets], storage)
    assert any(after.base_offset > before.next_offset() for before, after in pairwise(log.segments))
    log.release()
    for name in storage.list("t-0"):
        if name.endswith(DELETED):
            storage.remove(f"t-0/{name}")
    found = opened(storage, policy)
    assert (offsets_of(found), found.log_end_offset, found.recovery.reason) == (offsets, 192, "")


def test_what_was_not_flushed_is_noted_until_it_is() -> None:
    storage = SimulatedStorage()

    def noted() -> list[str]:
        return [name for name in storage.list("t-0") if name.endswith(DELETED)]

    log = copied([batch(offset) for offset in range(0, 60, 3)], storage)
    assert [int(name[:20]) for name in noted()] == [segment.base_offset for segment in log.segments[1:]]
    assert [int(name[21:41]) for name in noted()] == [segment.next_offset() for segment in log.segments[:-1]]
    log.release()
    found = opened(storage)  # what is found need not be on the disk
    assert len(noted()) == len(found.segments) - 1
    found.truncate_to(found.segments[-1].base_offset - 1)
    assert len(noted()) == len(found.segments) - 1
    found.flushed(found.flush_plan())
    assert noted() == []
    found.roll()
    found.append_as_follower(batch(100), now_ms=0)
    found.roll()
    found.flush()
    assert noted() == []


@pytest.mark.parametrize("seed", range(40))
def test_wherever_a_log_with_gaps_is_cut_a_start_finds_what_was_left(seed: int) -> None:
    """Also where nothing has been: what is noted of the disk never goes beyond the end of the log."""
    chance, storage = Random(seed), SimulatedStorage()

    def start() -> LogDirectory:
        directory = LogDirectory(storage)
        directory.start()
        directory.open("t", 0, PLAIN, now_ms=0)
        return directory

    directory = start()
    for epoch in range(80):
        log = directory.logs["t", 0]
        match chance.choice(["copy"] * 8 + ["cut", "cut", "flush", "note", "note", "crash", "stop"]):
            case "copy":
                offset = log.log_end_offset + chance.choice([0, 0, 1, 30])
                log.append_as_follower(batch(*range(offset, offset + 3), epoch=epoch), now_ms=0)
            case "cut":
                directory.truncate_to("t", 0, chance.randint(0, log.log_end_offset))
            case "flush":
                log.flush()
            case "note":
                directory.write_checkpoints()
            case ending:
                before = offsets_of(log), log.log_end_offset
                if ending == "stop":
                    directory.close({})
                log.release()
                directory = start()
                log = directory.logs["t", 0]
                assert (offsets_of(log), log.log_end_offset) == before


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_batch_that_claims_to_begin_later_than_it_does_is_the_one_that_goes(at: int) -> None:
    """No checksum covers the first offset of a batch; the one behind it, or the next segment, tells."""
    storage = MemoryStorage(int)
    log = copied([batch(offset) for offset in range(20)], storage)
    segment = log.segments[1]
    count = len(list(segment.batches()))
    liar = list(segment.batches())[[0, count // 2, count - 1][at]]
    log.release()
    storage.open(segment.path).write_at(liar.position, (liar.base_offset + 1000).to_bytes(8, "big"))
    found = opened(storage)
    assert offsets_of(found) == list(range(liar.base_offset))


def test_the_first_batch_of_an_epoch_waits_for_no_disk() -> None:
    """Until the recovery point passes it, a start reads the epoch off the batch; a flush syncs the file before."""
    storage = SimulatedStorage()
    log = opened(storage)
    log.append_as_follower(batch(0, epoch=1), now_ms=0)
    syncs: list[str] = []
    storage.before_step = lambda step: syncs.append(str(step)) if "sync" in step.doing else None
    for epoch in range(2, 12):
        log.append_as_follower(batch(log.log_end_offset, epoch=epoch), now_ms=0)
    assert syncs == []
    log.flush()
    assert any("leader-epoch-checkpoint" in sync for sync in syncs)
    storage.before_step = None


# Crashes


def work(seed: int) -> Callable[[SimulatedStorage, Callable[[tuple[Offsets, int]], None]], None]:
    def workload(storage: SimulatedStorage, mark: Callable[[tuple[Offsets, int]], None]) -> None:
        chance = Random(seed)
        copied: Offsets = ()
        flushed, next_offset, epoch = 0, 0, 0
        mark((copied, flushed))
        log = opened(storage)
        for _ in range(40):
            next_offset += chance.choice([0, 0, 0, 1, 30, 1 << 30, (1 << 31) + 99])
            offsets = tuple(range(next_offset, next_offset + chance.randint(1, 3)))
            next_offset = offsets[-1] + 1
            copied += offsets
            mark((copied, flushed))
            epoch += chance.choice([0, 0, 0, 1, 3])
            log.append_as_follower(batch(*offsets, epoch=epoch), now_ms=0)
            if chance.random() < 0.1:
                log.flush()
                flushed = len(copied)
                mark((copied, flushed))

    return workload


def check(storage: SimulatedStorage, known: tuple[Offsets, int]) -> None:
    copied, flushed = known
    log = opened(storage)
    found = tuple(row.offset for row in audit(log, every_lookup=False))
    assert found == copied[: len(found)], f"{found} is no beginning of {copied}"
    assert len(found) >= flushed
    log.release()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_a_crash_there_is_a_beginning_of_what_was_copied(seed: int) -> None:
    assert explore(work(seed), check, seed=seed, states_max=STATES).distinct == STATES
