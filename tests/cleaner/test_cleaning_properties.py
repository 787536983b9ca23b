"""Whatever is done to a compacted log, and in whatever order, the latest value of each key is there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.cleaner.candidates import Candidate, cleanable
from minibroker.cleaner.cleaner import clean
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.survivors import Survivors
from minibroker.cleaner.transactions import Transactions
from minibroker.log.partition_log import PartitionLog
from minibroker.simulation.disk import SimulatedStorage
from tests.log.audit import audit

from . import worker as worker_module
from .history import check_against
from .worker import DELETE_RETENTION_MS, Worker

pytestmark = pytest.mark.slow

Action = Callable[[Worker], None]
ACTIONS: list[Action] = [
    *[Worker.append] * 6,
    *[Worker.end_transaction, Worker.clean] * 2,
    *[Worker.roll, Worker.flush, Worker.drop, Worker.delete_records, Worker.truncate],
    *[Worker.checkpoint, Worker.purge, Worker.close_and_open, Worker.kill_and_open],
]


def compare(worker: Worker) -> None:
    known = worker.known()
    rows = audit(worker.log, every_lookup=False)
    end_offset = worker.log.log_end_offset
    check_against(known.histories[-1:], worker.log, rows, end_offset, known.cleaned_end, known.tombstones_gone)


def crash(worker: Worker) -> Worker:
    """Return a worker that goes on with what a power loss left: a beginning of what there was."""
    storage, known = worker.storage, worker.known()
    assert isinstance(storage, SimulatedStorage)
    left = worker.after_crash(storage.crashed(worker.chance))
    log = left.log
    rows = audit(log, every_lookup=False)
    assert log.log_end_offset >= known.flushed
    assert known.log_start_min <= log.log_start_offset <= known.log_start_max
    outcome = check_against(known.histories, log, rows, log.log_end_offset, known.cleaned_end, known.tombstones_gone)
    left.survived(tuple(outcome.entries.values()))
    return left


def play(actions: list[Action | None], seed: int) -> None:
    """Do everything, one after the other, and look after each; None is a power loss."""
    worker = Worker(SimulatedStorage(), Random(seed))
    for action in actions:
        if action is None:
            worker = crash(worker)
        else:
            worker.do(action)
        compare(worker)
    worker.close_and_open()
    compare(worker)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*ACTIONS, None]), min_size=10, max_size=50), st.integers(0, 1 << 32))
def test_nothing_committed_is_lost_and_nothing_aborted_comes_back(actions: list[Action | None], seed: int) -> None:
    play(actions, seed)


# Bugs that must not go unseen


def clean_what_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_is_stable(log: PartitionLog, **kwargs: Any) -> Candidate:
        return cleanable(log, **{**kwargs, "last_stable_offset": log.log_end_offset})

    monkeypatch.setattr(worker_module, "cleanable", all_is_stable)


def take_aborted_records_for_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "see", lambda self, batch: False)


def drop_tombstones_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def hurried(log: PartitionLog, *args: Any, **kwargs: Any) -> Any:
        log.settings.delete_retention_ms = DELETE_RETENTION_MS // 2
        return clean(log, *args, **kwargs)

    monkeypatch.setattr(worker_module, "clean", hurried)


def forget_what_was_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map knows the first offset of a key and not the last one."""
    real = OffsetMap.superseded

    def backwards(self: OffsetMap, keys: Any, offsets: Any) -> Any:
        return [offset < self.end_offset and not gone for gone, offset in zip(real(self, keys, offsets), offsets)]

    monkeypatch.setattr(OffsetMap, "superseded", backwards)
    monkeypatch.setattr(OffsetMap, "settle", lambda self: iter(()))


def mark_all_but_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the records that stay one is not marked."""
    real = Survivors.settle
    monkeypatch.setattr(Survivors, "settle", lambda self, offsets: real(self, sorted(offsets)[1:]))


BUGS = [
    clean_what_is_undecided,
    take_aborted_records_for_committed,
    drop_tombstones_too_early,
    forget_what_was_written_last,
    mark_all_but_one,
]


@pytest.mark.parametrize("bug", BUGS)
def test_it_would_be_seen(monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(100):
            play(Random(seed).choices(ACTIONS, k=40), seed)
