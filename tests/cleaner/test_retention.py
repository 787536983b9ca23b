"""Retention takes what Kafka would take: whole segments, oldest first, by log start, size and age."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from minibroker.cleaner.retention import BELOW_START, TOO_MANY, TOO_OLD, apply, expired
from minibroker.errors import StorageError
from minibroker.log.aborted import aborted_between
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.pruning import purge
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.log.validate import COORDINATOR
from minibroker.simulation.disk import SimulatedStorage
from tests.log.audit import audit


def filled(
    timestamps: Iterable[int], *, magic: int = 2, retention_ms: int = -1, retention_bytes: int = -1
) -> PartitionLog:
    """Return a log with a segment of two records for each timestamp; the last one is active."""
    checks = ValidationSettings(message_format=magic, timestamp_after_max_ms=1 << 60)
    settings = LogSettings(retention_ms=retention_ms, retention_bytes=retention_bytes, validation=checks)
    log = open_log(MemoryStorage(int), "t-0", settings, was_clean=True)
    for timestamp in timestamps:
        log.roll()
        records = [Record(b"k", b"v" * 10, (), timestamp) for _ in range(2)]
        log.append_as_leader(bytearray(build_batch(magic, records)), leader_epoch=0, now_ms=0)
    return log


def gone(log: PartitionLog, now_ms: int = 0, high_watermark: int | None = None) -> list[tuple[int, str]]:
    """Return base offset and reason of what goes."""
    found = expired(log, now_ms=now_ms, high_watermark=log.log_end_offset if high_watermark is None else high_watermark)
    return [(segment.base_offset, why) for segment, why in found]


def test_a_segment_goes_when_its_newest_record_is_older_than_retention_ms_and_not_before() -> None:
    log = filled([10, 20, 30], retention_ms=100)
    assert gone(log, 110) == []
    assert gone(log, 111) == [(0, TOO_OLD)]
    assert gone(log, 130) == [(0, TOO_OLD), (2, TOO_OLD)]


def test_the_largest_timestamp_counts_wherever_it_is() -> None:
    log = filled([50, 20], retention_ms=100)
    assert gone(log, 150) == []
    assert gone(log, 151) == [(0, TOO_OLD), (2, TOO_OLD)]


def test_a_timestamp_in_the_future_keeps_its_segment_and_all_behind_it() -> None:
    assert gone(filled([10, 10**15, 10, 10], retention_ms=100), 10**9) == [(0, TOO_OLD)]


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    log = filled([0, 0], magic=0, retention_ms=100)
    log.storage.set_modified_ms(log.segments[0].path, 500)
    log.storage.set_modified_ms(log.segments[1].path, 501)
    assert gone(log, 600) == []
    assert gone(log, 601) == [(0, TOO_OLD)]


@pytest.mark.parametrize(
    ("segments", "more_bytes", "count"),
    [(4, 1, 0), (4, 0, 0), (4, -1, 0), (3, 1, 0), (3, 0, 1), (2, 1, 1), (2, 0, 2), (1, 0, 3), (1, -1, 3), (0, 0, 4)],
)
def test_a_segment_goes_if_what_is_left_is_still_as_large_as_retention_bytes(
    segments: int, more_bytes: int, count: int
) -> None:
    log = filled([0] * 4)
    assert log.size_bytes == 4 * log.active.size_bytes
    log.settings.retention_bytes = segments * log.active.size_bytes + more_bytes
    assert gone(log) == [(2 * index, TOO_MANY) for index in range(count)]


def test_minus_one_keeps_everything() -> None:
    assert gone(filled([0, 0, 0]), 10**15) == []


def test_zero_keeps_nothing_that_is_older_than_now() -> None:
    assert gone(filled([5, 6], retention_ms=0), 6) == [(0, TOO_OLD)]
    assert gone(filled([5, 6], retention_ms=0), 7) == [(0, TOO_OLD), (2, TOO_OLD)]


def test_nothing_goes_that_is_not_below_the_high_watermark() -> None:
    log = filled([0] * 4, retention_ms=100)
    assert [len(gone(log, 10**9, high_watermark)) for high_watermark in range(9)] == [0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_a_topic_that_only_compacts_loses_what_is_below_the_log_start_and_nothing_else() -> None:
    log = filled([0] * 4, retention_ms=0, retention_bytes=0)
    log.settings.compact, log.settings.delete = True, False
    assert gone(log, 10**9) == []
    log.advance_log_start(5)
    assert gone(log, 10**9) == [(0, BELOW_START), (2, BELOW_START)]
    log.settings.delete = True
    assert len(gone(log, 10**9)) == 4


def test_deleted_records_take_their_segments_with_them_when_retention_comes() -> None:
    log = filled([0] * 4)
    for offset, count in (1, 0), (2, 1), (3, 0), (7, 2), (8, 0):
        log.advance_log_start(offset)
        removed = apply(log, now_ms=0, high_watermark=8)
        assert (removed.segments, removed.log_start_offset) == (count, offset)
        assert log.log_start_offset == offset
        assert [row.offset for row in audit(log)] == list(range(offset, 8))


def test_each_rule_looks_at_what_the_one_before_has_left() -> None:
    log = filled([0, 0, 0, 50, 90], retention_ms=100)
    log.advance_log_start(3)
    log.settings.retention_bytes = 3 * log.active.size_bytes
    assert gone(log, 151) == [(0, BELOW_START), (2, TOO_MANY), (4, TOO_OLD), (6, TOO_OLD)]


def test_what_goes_is_out_of_sight_at_once_and_told_with_its_reason() -> None:
    log = filled([10, 20, 30], retention_ms=100)
    size_bytes = log.active.size_bytes
    removed = apply(log, now_ms=125, high_watermark=6)
    assert removed
    assert removed.reasons == [(0, size_bytes, TOO_OLD), (2, size_bytes, TOO_OLD)]
    assert (removed.segments, removed.size_bytes, removed.log_start_offset) == (2, 2 * size_bytes, 4)
    assert [segment.base_offset for segment in log.segments] == [4]
    assert [row.offset for row in audit(log)] == [4, 5]
    names = log.storage.list("t-0")
    assert sorted(f"t-0/{name}" for name in names if name.endswith(".deleted")) == sorted(removed.paths)
    assert "t-0/00000000000000000002.log.deleted" in removed.paths
    purge(log.storage, removed.paths)
    assert not any("deleted" in name or name.startswith(f"{0:020}") for name in log.storage.list("t-0"))


def test_if_everything_has_expired_the_active_segment_is_rolled_and_goes_too() -> None:
    log = filled([10, 20, 30], retention_ms=100)
    removed = apply(log, now_ms=1000, high_watermark=6)
    assert removed.segments == 3
    assert [(segment.base_offset, segment.size_bytes) for segment in log.segments] == [(6, 0)]
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (6, 6, 6)
    again = apply(log, now_ms=1000, high_watermark=6)
    assert not again
    assert again.segments == 0
    assert again.paths == []
    assert [segment.base_offset for segment in log.segments] == [6]


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_an_open_transaction_keeps_no_segment_and_does_not_begin_before_the_log(is_opened_again: bool) -> None:
    log = filled([10], retention_ms=100)
    for sequence, timestamp in enumerate((20, 30, 400)):
        log.roll()
        data = build_batch(
            2,
            [Record(b"k", b"v", (), timestamp)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=0)
    assert log.last_stable_offset(5) == 2
    purge(log.storage, apply(log, now_ms=400, high_watermark=5).paths)
    assert [segment.base_offset for segment in log.segments] == [4]
    assert log.last_stable_offset(5) == 4
    if is_opened_again:
        log.close()
        log = open_log(log.storage, "t-0", log.settings, was_clean=True, log_start_offset=4)
    marker = build_transaction_marker(
        commit=False, offset=0, timestamp=400, producer_id=7, producer_epoch=0, coordinator_epoch=0
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=0, origin=COORDINATOR)
    assert log.last_stable_offset(6) == 4
    log.on_high_watermark_updated(6)
    assert log.last_stable_offset(6) == 6
    assert [entry.first_offset for entry in aborted_between(log, 4, 6)] == [2]
    audit(log)


def test_an_empty_log_stays_as_it_is() -> None:
    log = filled([], retention_ms=0, retention_bytes=0)
    assert not apply(log, now_ms=10**9, high_watermark=0)
    assert [segment.base_offset for segment in log.segments] == [0]


def test_an_empty_active_segment_does_not_keep_what_is_before_it() -> None:
    log = filled([10, 20], retention_ms=100)
    log.roll()
    assert apply(log, now_ms=1000, high_watermark=4).segments == 2
    assert [(segment.base_offset, segment.size_bytes) for segment in log.segments] == [(4, 0)]


def test_judging_leaves_no_files_of_an_idle_log_open() -> None:
    log = filled([10, 20], retention_ms=100)
    log.close()
    log = open_log(log.storage, "t-0", log.settings, was_clean=True)
    assert len(gone(log, 10**9)) == 2
    for segment in log.segments:
        files = segment, segment.offset_index, segment.time_index, segment.transaction_index
        assert [file._file for file in files] == [None] * 4


def test_a_disk_that_fails_while_segments_go_takes_the_log_offline() -> None:
    storage = SimulatedStorage()
    log = open_log(storage, "t-0", LogSettings(retention_ms=100), was_clean=True)
    for timestamp in (1, 2):
        log.roll()
        data = bytearray(build_batch(2, [Record(b"k", b"v", (), timestamp)]))
        log.append_as_leader(data, leader_epoch=0, now_ms=0)
    storage.fail(doing="rename")
    with pytest.raises(StorageError, match="rename"):
        apply(log, now_ms=102, high_watermark=2)
    with pytest.raises(StorageError, match="offline"):
        apply(log, now_ms=102, high_watermark=2)


@hypothesis_settings(max_examples=300, deadline=None)
@given(
    timestamps=st.lists(st.integers(1, 30), max_size=6),
    start=st.integers(0, 12),
    high_watermark=st.integers(0, 12),
    retention_ms=st.integers(-1, 30),
    retention_segments=st.integers(-1, 6),
    policy=st.sampled_from([(True, False), (False, True), (True, True)]),
    is_rolled=st.booleans(),
)
def test_segments_go_one_by_one_as_long_as_a_rule_says_so(
    timestamps: list[int],
    start: int,
    high_watermark: int,
    retention_ms: int,
    retention_segments: int,
    policy: tuple[bool, bool],
    is_rolled: bool,
) -> None:
    log = filled(timestamps, retention_ms=retention_ms)
    end = log.log_end_offset
    high_watermark = min(high_watermark, end)
    log.settings.compact, log.settings.delete = policy
    size_bytes = log.active.size_bytes
    log.settings.retention_bytes = -1 if retention_segments < 0 else retention_segments * size_bytes
    log.advance_log_start(min(start, high_watermark))
    if is_rolled:
        log.roll()
    # Of each segment: first offset, the one behind, timestamp.
    left = [(2 * index, 2 * index + 2, timestamp) for index, timestamp in enumerate(timestamps)]
    for rule in ("start", "size", "age"):
        while left and left[0][1] <= high_watermark:
            may_be_active = len(left) == 1 and not is_rolled
            goes = {
                "start": left[0][1] <= log.log_start_offset and not may_be_active,
                "size": policy[1] and 0 <= retention_segments <= len(left) - 1,
                "age": policy[1] and 0 <= retention_ms < 100 - left[0][2],
            }
            if not goes[rule]:
                break
            left.pop(0)
    log_start = max(log.log_start_offset, left[0][0] if left else end)
    apply(log, now_ms=100, high_watermark=high_watermark)
    bases = [base for base, _, _ in left]
    assert [segment.base_offset for segment in log.segments] == (bases if bases and not is_rolled else [*bases, end])
    assert log.log_start_offset == log_start
    assert log.log_end_offset == end
    assert [row.offset for row in audit(log, every_lookup=False)] == list(range(log_start, end))
