"""What a pass leaves of the records of a log: old formats, tombstones, transactions, producers."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.cleaner.cleaner import clean
from minibroker.in_pieces import finish
from minibroker.log import reading
from minibroker.log.batches import batches
from minibroker.log.compression import GZIP
from minibroker.log.recovery import open_log
from tests.log.audit import audit

from .dirty_logs import MAP_BYTES, DirtyLog, filled, latest

# Which records stay


def test_of_each_key_the_last_record_stays_where_it_is() -> None:
    dirty = filled("a1 b1 a2 | c1 b2 a3 | d1 c2")
    rows = dirty.rows()
    cleaned = dirty.clean()
    assert dirty.rows() == [row for row in rows if row[0] in (4, 5, 6, 7)]
    assert (cleaned.end_offset, cleaned.records_before, cleaned.records_after) == (8, 8, 4)
    assert cleaned.bytes_after < cleaned.bytes_before == sum(len(data) for data in dirty.files(".log.deleted").values())
    audit(dirty.log)


def test_what_lies_behind_the_range_takes_nothing_away_and_is_not_touched() -> None:
    dirty = filled("a1 b1 | a2")
    dirty.put_all("b2 a3 a4")
    active = dirty.log.active
    before = bytes(active.view(0, active.size_bytes))
    dirty.clean()
    assert [row[0] for row in dirty.rows()] == [1, 2, 3, 4, 5]
    assert dirty.log.active is active
    assert bytes(active.view(0, active.size_bytes)) == before


def test_the_next_pass_looks_at_new_keys_only_and_cleans_everything_by_them() -> None:
    dirty = filled("a1 b1")
    first = dirty.clean()
    dirty.put_all("a2 c1")
    dirty.roll()
    second = dirty.clean(first.end_offset)
    assert (first.end_offset, second.end_offset) == (2, 4)
    assert [row[0] for row in dirty.rows()] == [1, 2, 3]


def test_records_without_key_go() -> None:
    dirty = DirtyLog()
    dirty.put((b"a", b"1"), (None, b"2"), (b"b", b"3"))
    dirty.put((None, b"4"))
    dirty.roll()
    dirty.clean()
    assert [row[0] for row in dirty.rows()] == [0, 2]


def test_a_segment_of_which_nothing_is_left_stays_empty_and_the_log_opens() -> None:
    dirty = filled("a1 b1 | a2 b2", segment_bytes=200)
    dirty.clean()
    assert [segment.size_bytes > 0 for segment in dirty.log.segments] == [False, True, False]
    dirty.reopen()
    assert [segment.base_offset for segment in dirty.log.segments] == [0, 2, 4]
    assert dirty.log.log_end_offset == 4
    found = reading.read(dirty.log, 0, 1000, limit_offset=4)
    assert found is not None
    assert next(batches(found.view())).last_offset == 2


def test_a_tombstone_stays_until_its_horizon_which_the_first_pass_sets() -> None:
    dirty = filled("a1 b1 a-")
    start_ms = dirty.now_ms
    end = dirty.clean().end_offset
    assert latest(dirty.rows())[b"a"] == (2, None)
    assert [batch.delete_horizon for batch in dirty.batches()] == [None, start_ms + 1000]
    dirty.now_ms += 999
    end = dirty.clean(end).end_offset
    assert latest(dirty.rows())[b"a"] == (2, None)
    assert dirty.batches()[-1].delete_horizon == start_ms + 1000
    dirty.now_ms += 1
    dirty.clean(end)
    assert [row[0] for row in dirty.rows()] == [1]


@pytest.mark.parametrize(("later_ms", "stays"), [(999, True), (1000, False)])
def test_tombstones_of_old_formats_go_by_the_times_of_files(later_ms: int, stays: bool) -> None:
    dirty = DirtyLog(segment_bytes=100)
    dirty.put((b"a", None), magic=1)
    dirty.roll()
    dirty.now_ms += later_ms
    dirty.put((b"b", b"1" * 60), magic=1)
    dirty.roll()
    end = dirty.clean(upgrades=False).end_offset  # nothing was clean yet, so nobody can have seen the tombstone
    assert set(latest(dirty.rows())) == {b"a", b"b"}
    dirty.put((b"c", b"1"), magic=1)
    dirty.roll()
    dirty.clean(end, upgrades=False)  # now it is older than what is clean, by so much
    assert set(latest(dirty.rows())) == {b"b", b"c"} | ({b"a"} if stays else set())


def test_v0_and_v1_become_v2_unless_formats_stay() -> None:
    for upgrades in (True, False):
        dirty = DirtyLog()
        dirty.put((b"a", b"1"), magic=0)
        dirty.put((b"a", b"2"), (b"b", b"1"), magic=0, codec=GZIP)
        dirty.put((b"c", b"1"), (b"b", b"2"), magic=1, codec=GZIP)
        dirty.put((b"d", b"1"))
        dirty.roll()
        dirty.clean(upgrades=upgrades)
        assert [row[0] for row in dirty.rows()] == [1, 3, 4, 5]
        assert [batch.magic for batch in dirty.batches()] == ([2, 2, 2] if upgrades else [0, 1, 2])


# Transactions


def test_aborted_data_goes_at_once_and_its_marker_after_its_horizon() -> None:
    dirty = DirtyLog()
    dirty.put_all("a1")
    dirty.send(7, (b"a", b"never"))
    dirty.end(7, commit=False)
    dirty.send(7, (b"b", b"1"))  # so that the aborted batch is not the producer's last
    dirty.end(7, commit=True)
    dirty.log.producers.on_high_watermark_updated(dirty.log.log_end_offset)
    dirty.roll()
    end = dirty.clean().end_offset
    assert [row[0] for row in dirty.rows()] == [0, 3]  # and the aborted value did not supersede the first
    marker = next(batch for batch in dirty.batches() if batch.is_control)
    assert (marker.last_offset, marker.delete_horizon) == (2, None)
    assert [entry.last_offset for entry in dirty.log.segments[0].transaction_index.entries()] == [2]
    end = dirty.clean(end).end_offset
    marker = next(batch for batch in dirty.batches() if batch.is_control)
    assert (marker.last_offset, marker.delete_horizon) == (2, dirty.now_ms + 1000)
    assert dirty.log.segments[0].transaction_index.entries() == []
    dirty.now_ms += 1000
    dirty.clean(end)
    assert [batch.last_offset for batch in dirty.batches() if batch.is_control] == [4]


def test_the_last_batch_of_a_producer_stays_maybe_empty_and_its_next_sequence_is_known() -> None:
    dirty = DirtyLog()
    dirty.send(7, (b"a", b"1"), (b"b", b"1"), transactional=False)
    dirty.send(8, (b"a", b"2"), (b"b", b"2"), transactional=False)
    dirty.put_all("a3 b3")
    dirty.roll()
    dirty.clean()
    assert [(batch.producer_id, batch.count) for batch in dirty.batches()] == [(7, 0), (8, 0), (-1, 1), (-1, 1)]
    before = {id_: (each.epoch, each.last_sequence) for id_, each in dirty.log.producers.producers.items()}
    for name in dirty.files(".snapshot"):
        dirty.storage.remove(f"t-0/{name}")
    log = open_log(dirty.storage, "t-0", dirty.settings, was_clean=True)  # from what is left of the batches
    assert {id_: (each.epoch, each.last_sequence) for id_, each in log.producers.producers.items()} == before
    assert before == {7: (0, 1), 8: (0, 1)}


def test_the_batch_at_the_end_of_what_may_be_cleaned_stays_maybe_empty() -> None:
    dirty = DirtyLog()
    dirty.put_all("a1")
    dirty.put((None, b"without key"))
    dirty.roll()
    dirty.clean()
    assert [(batch.last_offset, batch.count) for batch in dirty.batches()] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_transactions_there_were_readers_see_the_last_committed_values_and_no_others(seed: int) -> None:
    chance = Random(seed)
    dirty = DirtyLog(
        segment_bytes=chance.choice([200, 500, 2000]),
        delete_retention_ms=chance.choice([0, 500]),
        index_interval_bytes=0,
    )
    history: list[tuple[int, bytes | None, bytes | None]] = []
    open_ids: set[int] = set()
    end: int | None = None
    for _ in range(5):
        for _ in range(chance.randint(5, 40)):
            write_something(dirty, chance, open_ids)
        dirty.now_ms += chance.choice([0, 400, 600])
        if chance.random() < 0.3:
            dirty.reopen()
        dirty.log.producers.on_high_watermark_updated(dirty.log.log_end_offset)
        known = {row[0] for row in history}
        history += [row for row in dirty.committed() if row[0] not in known]
        history.sort()
        before = dirty.rows()
        map_bytes_max = chance.choice([450, 700, MAP_BYTES])
        found = dirty.candidate(end)
        end = finish(clean(dirty.log, found, now_ms=dirty.now_ms, map_bytes_max=map_bytes_max)).end_offset
        # What is left was there before, in the same order; what is read is the newest of what was committed.
        left, seen = dirty.rows(), dirty.committed()
        assert set(left) <= set(before)
        assert left == sorted(left)
        assert set(seen) <= set(history)
        stable = dirty.log.last_stable_offset(dirty.log.log_end_offset)
        expected = latest([row for row in history if row[0] < stable])
        values = {key: found for key, found in expected.items() if found[1] is not None}
        assert {key: found for key, found in latest(seen).items() if found[1] is not None} == values
        assert all(expected[key] == found for key, found in latest(seen).items())
        # Of a batch that was emptied the largest timestamp is still told, here and in Kafka, though no record has it.
        audit(dirty.log, every_lookup=seed < 5 and all(batch.count for batch in dirty.batches()))


def write_something(dirty: DirtyLog, chance: Random, open_ids: set[int]) -> None:
    producer_id, key = chance.randint(1, 3), b"%d" % chance.randrange(6)
    value = chance.choice([None, b"%d" % chance.randrange(1000)])
    draw = chance.random()
    if draw < 0.3:
        dirty.put((key, value), (b"%d" % chance.randrange(6), b"x"))
    elif draw < 0.75:
        open_ids.add(producer_id)
        dirty.send(producer_id, (key, value))
    elif producer_id in open_ids:
        open_ids.discard(producer_id)
        dirty.end(producer_id, commit=chance.random() < 0.5)
    if chance.random() < 0.1:
        dirty.roll()
