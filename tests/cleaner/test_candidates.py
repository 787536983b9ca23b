"""How far a log may be cleaned, how dirty it is, and which log comes first."""

from __future__ import annotations

import pytest

from minibroker.cleaner.candidates import cleanable, due
from minibroker.log.settings import FOREVER

from .dirty_logs import NOW_MS, DirtyLog


def three_segments(**settings: object) -> DirtyLog:
    """Return a log of segments from 0, 3 and 6, the last of them active and with a record."""
    dirty = DirtyLog(**settings)
    for text in ("a1 b1 c1", "a2 b2 c2"):
        dirty.put_all(text)
        dirty.roll()
    dirty.put_all("a3")
    return dirty


def test_the_active_segment_is_never_cleaned() -> None:
    found = three_segments().candidate()
    assert (found.first_dirty, found.end, found.why_not) == (0, 6, "")


def test_nothing_is_cleaned_from_the_segment_on_that_holds_the_last_stable_offset() -> None:
    dirty = DirtyLog()
    dirty.put_all("a1")
    dirty.roll()
    dirty.put_all("a2")
    dirty.send(7, (b"b", b"open"))
    dirty.roll()
    dirty.put_all("a3")
    dirty.roll()
    assert dirty.candidate().end == 1
    dirty.end(7, commit=True)
    dirty.log.producers.on_high_watermark_updated(dirty.log.log_end_offset)
    assert dirty.candidate().end == 4


def test_a_segment_with_data_younger_than_the_least_lag_waits_and_all_behind_it() -> None:
    dirty = DirtyLog(min_compaction_lag_ms=100)
    for _ in range(3):
        dirty.put_all("a1")
        dirty.roll()
        dirty.now_ms += 60
    assert dirty.candidate().end == 2  # 180, 120 and 60 ms old
    assert dirty.candidate(1).end == 2
    dirty.now_ms += 39
    assert dirty.candidate().end == 2
    dirty.now_ms += 1
    assert dirty.candidate().end == 3


def test_without_timestamps_the_age_is_that_of_the_file() -> None:
    dirty = DirtyLog(min_compaction_lag_ms=100)
    dirty.put((b"a", b"1"), magic=0)
    dirty.roll()
    assert dirty.candidate().end == 0
    dirty.now_ms += 100
    assert dirty.candidate().end == 1


def test_the_dirty_ratio_counts_bytes_of_segments() -> None:
    dirty = three_segments(min_cleanable_dirty_ratio=0.5)
    first, second, _ = dirty.log.segments
    found = dirty.candidate(3)
    assert (found.clean_bytes, found.dirty_bytes) == (first.size_bytes, second.size_bytes)
    assert found.dirty_ratio == 0.5
    assert found.why_not == "dirty ratio 0.50 is not above 0.50"
    dirty.put((b"x", b"y" * 100))
    dirty.roll()
    assert dirty.candidate(3).why_not == ""
    # The segment in the middle of which the last pass ended is on both sides.
    found = dirty.candidate(4)
    assert found.clean_bytes == first.size_bytes + second.size_bytes
    assert found.dirty_bytes > second.size_bytes


def test_a_log_without_anything_dirty_is_left_alone() -> None:
    dirty = three_segments()
    assert dirty.candidate(6).why_not == "nothing is dirty that may be cleaned"
    assert dirty.candidate(7).why_not == "nothing is dirty that may be cleaned"
    assert DirtyLog().candidate().why_not == "nothing is dirty that may be cleaned"
    assert (dirty.candidate(6).dirty_ratio, DirtyLog().candidate().dirty_ratio) == (0.0, 0.0)


def test_only_topics_that_compact_are_cleaned_and_those_that_delete_too() -> None:
    assert three_segments(compact=False, delete=True).candidate().why_not == "cleanup.policy is not compact"
    assert three_segments(compact=True, delete=True).candidate().why_not == ""


def test_dirty_data_that_has_waited_too_long_needs_no_ratio() -> None:
    dirty = three_segments(min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=100)
    assert not dirty.candidate(3).needs_now
    dirty.now_ms += 100
    assert not dirty.candidate(3).needs_now
    dirty.now_ms += 1
    found = dirty.candidate(3)
    assert (found.needs_now, found.why_not) == (True, "")
    # Late, but there is nothing that may be cleaned: the active segment does not count.
    assert not dirty.candidate(6).needs_now


def test_without_a_most_lag_nothing_is_ever_late() -> None:
    dirty = three_segments(max_compaction_lag_ms=FOREVER)
    dirty.now_ms = 1 << 62
    assert not dirty.candidate().needs_now


@pytest.mark.parametrize(
    ("first_dirty", "is_lost"), [(None, False), (0, True), (2, True), (3, False), (7, False), (8, True)]
)
def test_a_first_dirty_offset_outside_the_log_is_lost_and_all_is_dirty(first_dirty: int | None, is_lost: bool) -> None:
    dirty = three_segments()
    dirty.log.advance_log_start(3)
    found = dirty.candidate(first_dirty)
    assert found.checkpoint_is_lost == is_lost
    assert found.first_dirty == (3 if is_lost or first_dirty is None else first_dirty)


def test_what_has_no_timestamp_is_never_late() -> None:
    dirty = DirtyLog(max_compaction_lag_ms=100)
    dirty.put((b"a", b"1"), magic=0)
    dirty.roll()
    dirty.now_ms += 1000
    assert not dirty.candidate().needs_now


def test_where_the_last_stable_offset_has_fallen_back_not_even_what_was_clean_may_be_touched() -> None:
    dirty = three_segments()
    found = cleanable(dirty.log, first_dirty_offset=6, last_stable_offset=4, now_ms=dirty.now_ms)
    assert (found.first_dirty, found.end, found.dirty_bytes) == (6, 3, 0)


def test_the_dirtiest_log_that_is_due_comes_first() -> None:
    clean, half, most = three_segments(), three_segments(), three_segments()
    most.put((b"x", b"y" * 100))
    most.roll()
    candidates = [clean.candidate(6), most.candidate(3), half.candidate(3), most.candidate(3)]
    assert due(candidates) == [candidates[2], candidates[3], candidates[1]]
    assert due(candidates[:1]) == []


def test_times_of_records_count_and_not_when_they_came() -> None:
    dirty = DirtyLog(min_compaction_lag_ms=100, max_compaction_lag_ms=1000)
    dirty.now_ms = NOW_MS - 500
    dirty.put_all("a1")
    dirty.now_ms = NOW_MS
    dirty.roll()
    assert dirty.candidate().end == 1
