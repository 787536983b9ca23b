"""What a pass makes of the segments of a log: which become one, what they are called, where their sources go."""

from __future__ import annotations

import pytest

from minibroker.cleaner import cleaner
from minibroker.errors import InvalidValue
from minibroker.log.build import build_batch
from minibroker.log.pruning import purge
from minibroker.log.records import Record
from tests.log.audit import audit

from .dirty_logs import DirtyLog, filled


def test_small_neighbours_become_one_and_what_would_be_too_large_does_not() -> None:
    dirty = filled("a1 b1 | c1 d1 | e1 f1 | g1 h1")
    size_bytes = dirty.log.segments[0].size_bytes
    dirty.log.settings.segment_bytes = 3 * size_bytes
    cleaned = dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 6, 8]
    assert (cleaned.segments_before, cleaned.segments_after) == (4, 2)
    assert [row[0] for row in dirty.rows()] == list(range(8))
    dirty.log.settings.segment_bytes = 4 * size_bytes - 1
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 6, 8]
    dirty.log.settings.segment_bytes = 4 * size_bytes
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 8]


def test_segments_whose_indexes_would_not_fit_into_one_stay_apart() -> None:
    dirty = filled("a1 b1 c1 | d1 e1 f1 | g1 h1 i1", index_interval_bytes=0)
    assert [segment.offset_index.count for segment in dirty.log.segments] == [2, 2, 2, 0]
    dirty.log.settings.segment_index_bytes = 31  # three entries
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 3, 6, 9]
    dirty.log.settings.segment_index_bytes = 32
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 6, 9]


def test_segments_whose_time_indexes_would_not_fit_into_one_stay_apart() -> None:
    dirty = DirtyLog(index_interval_bytes=0)
    for _ in range(3):
        for key in (b"a", b"b", b"c"):
            dirty.now_ms += 1
            dirty.put((key, b"1"))
        dirty.roll()
    assert [segment.time_index.count for segment in dirty.log.segments] == [2, 2, 2, 0]
    candidate = dirty.candidate()
    for size_bytes, count in ((47, 3), (48, 2), (71, 2), (72, 1)):
        dirty.log.settings.segment_index_bytes = size_bytes
        assert len(cleaner.grouped(dirty.log.segments[:-1], candidate.end, dirty.log.settings)) == count


@pytest.mark.parametrize(("offset", "bases"), [((1 << 31) - 1, [0, 1 << 31]), (1 << 31, [0, 2, (1 << 31) + 1])])
def test_offsets_of_a_segment_never_lie_further_apart_than_an_index_can_say(offset: int, bases: list[int]) -> None:
    dirty = filled("a1 | b1")
    dirty.put((b"c", b"1"), gap=offset - 2)
    dirty.roll()
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == bases
    audit(dirty.log, every_lookup=False)
    dirty.put_all("d1")
    dirty.roll()
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, bases[1], offset + 2]


def test_an_empty_segment_is_taken_in_however_far_away_the_next_one_is() -> None:
    dirty = filled("a1 | b1", segment_bytes=100)
    dirty.put((b"b", b"2"), gap=1 << 31)
    dirty.roll()
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 1, (1 << 31) + 2, (1 << 31) + 3]
    assert dirty.log.segments[1].size_bytes == 0
    dirty.log.settings.segment_bytes = 1000
    dirty.clean()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, (1 << 31) + 2, (1 << 31) + 3]


def test_a_segment_that_reaches_too_far_cannot_be_cleaned() -> None:
    dirty = filled("a1")
    far = build_batch(2, [Record(b"a", b"2", (), 0, 1 << 31)], partition_leader_epoch=0)
    dirty.storage.open("t-0/00000000000000000000.log").append([far])
    dirty.log.segments[0].size_bytes += len(far)
    with pytest.raises(InvalidValue, match=r"0\.log.*offset 2147483648 does not fit"):
        dirty.clean()
    assert dirty.files(".cleaned") == {}


def test_a_new_segment_has_name_of_the_first_and_file_time_of_the_last_of_its_sources() -> None:
    dirty = DirtyLog()
    for text in ("a1", "b1"):
        dirty.put_all(text)
        dirty.roll()
        dirty.now_ms += 10_000
    expected = dirty.log.segments[1].modified_ms
    assert expected > dirty.log.segments[0].modified_ms
    dirty.clean()
    assert [(each.base_offset, each.modified_ms) for each in dirty.log.segments[:1]] == [(0, expected)]


def test_sources_are_put_away_and_can_be_purged() -> None:
    dirty = filled("a1 | a2")
    cleaned = dirty.clean()
    gone = {f"t-0/{name}" for name in dirty.files(".deleted")}
    assert (
        {"t-0/00000000000000000000.log.deleted", "t-0/00000000000000000001.log.deleted"} <= gone == set(cleaned.paths)
    )
    purge(dirty.storage, cleaned.paths)
    assert dirty.files(".deleted", ".cleaned", ".swap") == {}


def test_indexes_of_new_segments_find_every_record() -> None:
    dirty = DirtyLog(index_interval_bytes=100)
    for number in range(60):
        dirty.now_ms += 7
        dirty.put((b"%d" % (number % 23), b"%d" % number), (b"%d" % (number % 7), None))
    dirty.roll()
    dirty.clean()
    assert dirty.log.segments[0].offset_index.count > 5
    audit(dirty.log)
    dirty.reopen()
    audit(dirty.log)
