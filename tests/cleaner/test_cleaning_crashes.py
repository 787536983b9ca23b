"""A log that is cleaned survives the loss of power between any two steps of the disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from minibroker.cleaner import retention
from minibroker.log.build import build_batch
from minibroker.log.directory import LogDirectory
from minibroker.log.partition_log import PartitionLog
from minibroker.log.pruning import drop_oldest
from minibroker.log.records import Record
from minibroker.log.segment import CLEANED, DELETED, SWAP, Segment
from minibroker.simulation.disk import SimulatedStorage
from tests.log.audit import audit
from tests.log.crash import STATES, CrashFound, explore

from .history import check_against
from .worker import ACTIONS, Known, Worker, settings_of

pytestmark = pytest.mark.slow

AFTER_THE_CRASH = b"after the crash "

Plant = Callable[[pytest.MonkeyPatch], None]


def work(seed: int, actions: int) -> Callable[[SimulatedStorage, Callable[[Known], None]], None]:
    def workload(storage: SimulatedStorage, mark: Callable[[Known], None]) -> None:
        worker = Worker(storage, Random(seed), mark)
        for _ in range(actions):
            worker.do(worker.chance.choice(ACTIONS))

    return workload


def check(storage: SimulatedStorage, known: Known) -> None:
    directory = LogDirectory(storage)
    directory.start()
    # Whether the topic is still compacted must make no difference to what is found.
    settings = settings_of(compact=known.flushed % 2 == 0)
    log = directory.open("t", 0, settings, now_ms=known.now_ms, topic_id=bytes(16))
    rows = audit(log, every_lookup=False)
    # Of checks that the power ended there may be records at the end.
    ours = next((row.offset for row in rows if (row.key or b"").startswith(AFTER_THE_CRASH)), log.log_end_offset)
    rows = [row for row in rows if row.offset < ours]
    assert ours >= known.flushed, f"the log ends at {ours}, and {known.flushed} was flushed"
    assert known.log_start_min <= log.log_start_offset <= known.log_start_max, (
        f"the log begins at {log.log_start_offset}, not within {known.log_start_min} to {known.log_start_max}"
    )
    check_against(known.histories, log, rows, ours, known.cleaned_end, known.tombstones_gone)
    key = AFTER_THE_CRASH + b"%d" % log.log_end_offset
    data = build_batch(2, [Record(key, b"", (), known.now_ms + 1)])
    log.append_as_leader(bytearray(data), leader_epoch=1000, now_ms=known.now_ms)
    assert audit(log, every_lookup=False)[-1].key == key
    log.release()


@pytest.mark.parametrize("seed", range(8))
def test_cleaning_loses_nothing_in_any_crash(seed: int) -> None:
    explored = explore(work(seed, 45), check, seed=seed, states_max=STATES)
    assert explored.distinct == STATES


@pytest.mark.parametrize("seed", range(8, 16))
def test_nor_if_the_power_goes_again_while_the_log_is_put_in_order(seed: int) -> None:
    explored = explore(work(seed, 40), check, seed=seed, states_max=STATES // 3, crashes=3)
    assert explored.distinct == STATES // 3


# Bugs that must not go unseen


def sync_nothing_that_was_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Segment.sync
    monkeypatch.setattr(Segment, "sync", lambda self: None if self.suffix == CLEANED else real(self))


def put_the_old_ones_away_before_there_is_a_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Segment.rename
    monkeypatch.setattr(Segment, "rename", lambda self, suffix: None if suffix == SWAP else real(self, suffix))


def drop_the_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(log: PartitionLog, count: int) -> list[str]:
        start_offset = log.segments[count].base_offset
        for segment in reversed(log.segments[:count]):
            segment.rename(DELETED)
        log.put_segments(0, count)
        log.storage.sync_directory(log.directory)
        log.advance_log_start(start_offset)
        log.recovery_point = max(log.recovery_point, start_offset)
        return []

    monkeypatch.setattr(retention, "drop_oldest", drop)


def do_not_sync_what_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(log: PartitionLog, count: int) -> list[str]:
        with monkeypatch.context() as inner:
            inner.setattr(log.storage, "sync_directory", lambda path: None)
            return drop_oldest(log, count)

    monkeypatch.setattr(retention, "drop_oldest", drop)


def do_not_flush_before_cleaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "before_cleaning", lambda *_: None)


BUGS: list[tuple[Plant, int]] = [  # and a seed that comes across it soon
    (sync_nothing_that_was_cleaned, 0),
    (put_the_old_ones_away_before_there_is_a_swap, 0),
    (drop_the_newest_first, 16),
    (do_not_sync_what_was_dropped, 0),
    (do_not_flush_before_cleaning, 0),
]


@pytest.mark.parametrize(("bug", "seed"), BUGS)
def test_it_would_be_found(monkeypatch: pytest.MonkeyPatch, bug: Plant, seed: int) -> None:
    bug(monkeypatch)
    with pytest.raises(CrashFound):
        explore(work(seed, 40), check, seed=seed, states_max=10_000)
